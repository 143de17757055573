// An array: what it is, and a picture of its elements.
import { el, ask, num, count, css, later, problem } from './base.js';
import { args } from './state.js';
import { jsonTree } from './json.js';

// Colours from dark to light, even to the eye (after viridis).
const scale = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137], [53, 183, 121], [110, 206, 88], [181, 222, 43], [253, 231, 37]];
function colour(t, out, at) {
  const x = Math.min(0.9999, Math.max(0, t)) * (scale.length - 1), i = Math.floor(x), f = x - i;
  for (let k = 0; k < 3; k++) out[at + k] = scale[i][k] + (scale[i + 1][k] - scale[i][k]) * f;
  out[at + 3] = 255;
}
// Units that take a prefix, and what they are written as.
const units = { volts: 'V', volt: 'V', v: 'V', amperes: 'A', ampere: 'A', a: 'A', seconds: 's', second: 's', s: 's', meters: 'm', metres: 'm', hertz: 'Hz', hz: 'Hz', ohms: 'Ω', siemens: 'S', farads: 'F', watts: 'W', newtons: 'N', pascals: 'Pa', tesla: 'T' };
const prefixes = [[1e9, 'G'], [1e6, 'M'], [1e3, 'k'], [1, ''], [1e-3, 'm'], [1e-6, 'µ'], [1e-9, 'n'], [1e-12, 'p']];
/** Round numbers from a to b, about n of them. */
export function ticks(a, b, n) {
  const raw = (b - a) / Math.max(1, n), mag = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map(k => k * mag).find(s => s >= raw * 0.999);
  if (!Number.isFinite(step) || step <= 0) return [a];
  const out = [];
  // Numbers may be so large that adding a step changes nothing.
  for (let v = Math.ceil(a / step - 1e-9) * step; v <= b + step * 1e-9 && out.length < 200; v += step) out.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return out;
}
const short = v => Number.isFinite(v) ? String(Number(v.toPrecision(6))) : String(v);

export class ArrayView {
  constructor(area, entry) {
    this.area = area; this.entry = entry; this.dead = new AbortController();
    this.repaint = () => this.paint();
    addEventListener('theme', this.repaint);
  }
  close() { this.dead.abort(); removeEventListener('theme', this.repaint); this.watch?.disconnect(); }
  async show() {
    const a = this.a = await ask.json('array', args({ path: this.entry.path }), { signal: this.dead.signal });
    const row = (k, v) => [el('dt', {}, k), el('dd', {}, v)];
    const box = el('div', { class: 'pad' });
    this.area.append(box);
    this.unit = a.scale?.unit ?? '';
    this.timed = !!(a.scale?.rate || a.scale?.times);
    if (a.numbers && a.elements > 0) this.plot(box);
    else if (a.numbers) box.append(el('p', { class: 'hint' }, 'It has no elements.'));
    if (a.text) box.append(el('h3', {}, 'Elements'), el('pre', { class: 'elements', tabindex: '0' }, a.text + (a.cut ? '…' : '')));
    box.append(el('dl', { class: 'list' }, row('Shape', a.shape.length ? a.shape.map(num).join(' × ') : 'scalar'), row('Type', a.dtype), row('Elements', num(a.elements)), row('Shape of a chunk', a.chunks.map(num).join(' × ') || '–'), a.scale?.unit ? row('Unit', a.scale.unit + (a.scale.conversion !== 1 ? `; an element is to be multiplied with ${short(a.scale.conversion)}` : '') + (a.scale.offset ? `, and ${short(a.scale.offset)} added` : '')) : [], a.scale?.rate ? row('Time', `${short(a.scale.rate)} Hz, from ${short(a.scale.start)} s on`) : a.scale?.times ? row('Time', 'as in ' + a.scale.times) : [], row('Stored by', a.codecs)));
    if (a.attrs) box.append(el('h3', {}, 'Attributes'), jsonTree(a.attrs));
    if (a.numbers && a.elements > 0) await this.load();
  }
  plot(box) {
    const { shape } = this.a;
    this.from = shape.map(() => 0);
    // Channels over time are traces.
    this.traces = shape.length === 2 && this.timed && shape[1] <= 32;
    this.range = shape.length === 1 || this.traces ? [0, shape[0]] : undefined;
    this.canvas = el('canvas', { class: 'plot', tabindex: '0', role: 'img', 'aria-label': 'The elements of the array' });
    this.told = el('p', { class: 'hint', role: 'status' });
    const sliders = shape.slice(0, Math.max(0, shape.length - 2)).map((n, axis) => {
      const out = el('output', {}, '0');
      return el('label', { class: 'axis' }, `axis ${axis} `, el('input', { type: 'range', min: 0, max: n - 1, value: 0, oninput: e => { this.from[axis] = Number(e.target.value); out.textContent = e.target.value; this.soon(); } }), out);
    });
    this.soon = later(() => this.load(), 80);
    box.append(...sliders, this.canvas, this.told);
    this.watch = new ResizeObserver(() => this.paint());
    this.watch.observe(this.canvas);
    this.canvas.addEventListener('pointermove', e => this.hover(e));
    if (this.range) {
      const zoom = f => {
        const [a, b] = this.range, mid = (a + b) / 2, half = Math.max(8, (b - a) / 2 * f);
        this.range = [Math.max(0, Math.floor(mid - half)), Math.min(shape[0], Math.ceil(mid + half))];
        this.soon();
      };
      this.canvas.addEventListener('wheel', e => { e.preventDefault(); zoom(e.deltaY > 0 ? 1.4 : 1 / 1.4); }, { passive: false });
      this.canvas.addEventListener('keydown', e => {
        const [a, b] = this.range, step = Math.ceil((b - a) / 8), move = d => { const w = b - a, at = Math.max(0, Math.min(shape[0] - w, a + d)); this.range = [at, at + w]; this.soon(); };
        const f = { '+': () => zoom(0.7), '=': () => zoom(0.7), '-': () => zoom(1.4), ArrowLeft: () => move(-step), ArrowRight: () => move(step), 0: () => { this.range = [0, shape[0]]; this.soon(); } }[e.key];
        if (f) { e.preventDefault(); f(); }
      });
    }
  }
  async load() {
    this.under?.abort();
    const stop = this.under = new AbortController();
    this.dead.signal.addEventListener('abort', () => stop.abort());
    const q = { path: this.entry.path, points: this.range ? 4 * Math.max(300, this.canvas.clientWidth) : 512 * 512 };
    if (this.traces) { q.from = `${this.range[0]},0`; q.to = `${this.range[1]},${this.a.shape[1]}`; q.points = 1 << 20; }
    else if (this.range) { q.from = this.range[0]; q.to = this.range[1]; } else if (this.from.length) q.from = this.from.join(',');
    try {
      const r = await ask.raw('array/data', args(q), { signal: stop.signal });
      const b = await r.arrayBuffer();
      this.w = JSON.parse(r.headers.get('Holdall-Window'));
      this.values = this.w.type === 'float32' ? new Float32Array(b) : new Float64Array(b);
      await this.times(stop.signal);
      this.paint();
      document.body.dataset.plot = this.w.kind + ' ' + this.w.count.join('×');
    } catch (err) {
      if (err.name === 'AbortError') return;
      this.told.replaceChildren(problem(err));
      document.body.dataset.plot = 'failed';
    }
  }
  /** When what is shown begins and ends, in seconds: undefined if that is not known. */
  async times(signal) {
    const s = this.a.scale, [a, b] = this.range ?? [];
    this.clock = undefined;
    if (!this.range || !this.timed) return;
    if (s.rate) { this.clock = [s.start + a / s.rate, s.start + (b - 1) / s.rate]; return; }
    const at = async i => {
      const r = await ask.raw('array/data', args({ path: s.times, from: i, to: i + 1, points: 1 }), { signal }), b = await r.arrayBuffer();
      return (JSON.parse(r.headers.get('Holdall-Window')).type === 'float32' ? new Float32Array(b) : new Float64Array(b))[0];
    };
    try { const t = [await at(a), await at(b - 1)]; if (t.every(Number.isFinite)) this.clock = t; } catch (err) { if (err.name === 'AbortError') throw err; }
  }
  /** An element in the unit that fits those between lo and hi: what to do with it, and its name. */
  measure(lo, hi) {
    const s = this.a.scale, f = s?.conversion ?? 1, o = s?.offset ?? 0, most = Math.max(Math.abs(lo * f + o), Math.abs(hi * f + o)), sign = units[this.unit.toLowerCase()];
    const [p, word] = sign && most > 0 ? prefixes.find(([p]) => most >= p * 0.999) ?? prefixes.at(-1) : [1, ''];
    return [v => (v * f + o) / p, sign ? word + sign : this.unit];
  }
  /** Draws the frame of a plot and its scales, and returns where it is. */
  frame(g, W, H, lo, hi, x0, x1, xUnit, unit, labels) {
    const L = 58, R = 10, T = 22, B = 26, w = W - L - R, h = H - T - B;
    g.font = '11px system-ui, sans-serif'; g.lineWidth = 1; g.strokeStyle = css('--line'); g.fillStyle = css('--soft');
    const Y = v => T + h - (v - lo) / (hi - lo || 1) * h, X = v => L + (v - x0) / (x1 - x0 || 1) * w;
    g.textAlign = 'right'; g.textBaseline = 'middle';
    for (const [v, text] of labels ?? ticks(lo, hi, h / 40).map(v => [v, short(v)])) { g.beginPath(); g.moveTo(L, Math.round(Y(v)) + 0.5); g.lineTo(L + w, Math.round(Y(v)) + 0.5); g.stroke(); g.fillText(text, L - 6, Y(v)); }
    g.textBaseline = 'alphabetic'; g.textAlign = 'center';
    for (const v of ticks(x0, x1, w / 90)) { const at = Math.round(X(v)) + 0.5; g.beginPath(); g.moveTo(at, T + h); g.lineTo(at, T + h + 4); g.stroke(); g.fillText(xUnit ? short(v) : num(v), Math.max(L + 8, Math.min(W - R - 12, at)), H - 9); }
    g.textAlign = 'left'; if (unit) g.fillText(unit, 4, 13);
    g.textAlign = 'right'; g.fillText(xUnit || 'index', W - R, 13); g.textAlign = 'left';
    g.strokeRect(L + 0.5, T + 0.5, w, h);
    return { L, T, w, h, X, Y };
  }
  paint() {
    const { canvas: c, w, values: v } = this;
    if (!w || !c.clientWidth) return;
    if (this.traces) return this.paintTraces();
    const dpr = devicePixelRatio || 1, W = c.clientWidth, isImage = w.kind === 'image' && w.count.length > 1;
    const [rows, cols] = isImage ? w.count.slice(-2) : [0, 0];
    const H = isImage ? Math.max(80, Math.min(420, W * rows * w.step.at(-2) / (cols * w.step.at(-1)))) : 220;
    c.style.height = H + 'px';
    c.width = W * dpr; c.height = H * dpr;
    const g = c.getContext('2d');
    g.scale(dpr, dpr);
    const span = w.max - w.min || 1, cut = w.cut ? '; not all of it was looked at' : '';
    const [scaled, unit] = this.measure(w.min, w.max);
    if (isImage) {
      const img = new ImageData(cols, rows);
      for (let i = 0; i < v.length; i++) if (Number.isFinite(v[i])) colour((v[i] - w.min) / span, img.data, 4 * i);
      const o = new OffscreenCanvas(cols, rows);
      o.getContext('2d').putImageData(img, 0, 0);
      g.imageSmoothingEnabled = cols > W;
      g.drawImage(o, 0, 0, W, H);
      this.told.replaceChildren(el('canvas', { class: 'bar-of-colours', width: 120, height: 10, 'aria-hidden': 'true' }), ` ${short(scaled(w.min))} to ${short(scaled(w.max))}${unit ? ' ' + unit : ''}; ${num(rows)} × ${num(cols)} elements` + (w.step.some(s => s > 1) ? `, every ${w.step.slice(-2).join(' by ')}` : '') + cut);
      const bar = this.told.firstChild.getContext('2d'), ramp = new ImageData(120, 1);
      for (let i = 0; i < 120; i++) colour(i / 119, ramp.data, 4 * i);
      for (let y = 0; y < 10; y++) bar.putImageData(ramp, 0, y);
      return;
    }
    const from = w.from[0] ?? 0, to = this.range ? this.range[1] : 1, pad = (w.max - w.min || Math.abs(w.max) || 1) * 0.03, ends = [scaled(w.min - pad), scaled(w.max + pad)].sort((a, b) => a - b);
    const [x0, x1] = this.clock ?? [from, to - 1], pairs = w.kind === 'range', n = pairs ? v.length / 2 : v.length;
    const f = this.frame(g, W, H, ends[0], ends[1], x0, x1, this.clock ? 's' : '', unit), X = i => f.L + f.w * (n < 2 ? 0.5 : i / (n - 1)), y = x => f.Y(scaled(x));
    this.left = f.L; this.wide = f.w;
    g.strokeStyle = css('--accent'); g.lineWidth = 1.25; g.lineJoin = 'round';
    g.beginPath();
    let pen = false;
    for (let i = 0; i < n; i++) {
      const a = pairs ? v[2 * i] : v[i], b = pairs ? v[2 * i + 1] : v[i];
      if (!Number.isFinite(a)) { pen = false; continue; }
      if (pen) g.lineTo(X(i), y(a)); else g.moveTo(X(i), y(a));
      if (b !== a) g.lineTo(X(i), y(b));
      pen = true;
    }
    g.stroke();
    if (n <= 60) { g.fillStyle = css('--accent'); for (let i = 0; i < n; i++) if (Number.isFinite(v[i])) { g.beginPath(); g.arc(X(i), y(v[i]), 2.5, 0, 7); g.fill(); } }
    this.told.textContent = `${short(scaled(w.min))} to ${short(scaled(w.max))}${unit ? ' ' + unit : ''}; ${count(to - from, 'element')}` + (pairs ? `, the least and largest of each ${num(w.step[0])}` : '') + cut;
  }
  /** Channels over time, one above the other. */
  paintTraces() {
    const { canvas: c, w, values: v } = this, dpr = devicePixelRatio || 1, W = c.clientWidth, [rows, cols] = w.count, H = Math.max(220, Math.min(560, 30 * cols + 60));
    c.style.height = H + 'px'; c.width = W * dpr; c.height = H * dpr;
    const g = c.getContext('2d');
    g.scale(dpr, dpr);
    const [scaled, unit] = this.measure(w.min, w.max), [x0, x1] = this.clock ?? [this.range[0], this.range[1] - 1];
    const f = this.frame(g, W, H, cols, 0, x0, x1, this.clock ? 's' : '', 'channel', Array.from({ length: cols }, (_, k) => [k + 0.5, num(k)]).filter((_, k) => cols <= 16 || k % 4 === 0));
    this.left = f.L; this.wide = f.w;
    const lane = f.h / cols, span = w.max - w.min || 1;
    g.lineWidth = 1; g.lineJoin = 'round'; g.strokeStyle = css('--accent');
    for (let k = 0; k < cols; k++) {
      g.beginPath();
      let pen = false;
      for (let i = 0; i < rows; i++) {
        const x = v[i * cols + k];
        if (!Number.isFinite(x)) { pen = false; continue; }
        const at = f.L + f.w * (rows < 2 ? 0.5 : i / (rows - 1)), y = f.T + lane * (k + 0.95 - 0.9 * (x - w.min) / span);
        if (pen) g.lineTo(at, y); else g.moveTo(at, y);
        pen = true;
      }
      g.stroke();
    }
    this.told.textContent = `${count(cols, 'channel')}, each from ${short(scaled(w.min))} to ${short(scaled(w.max))}${unit ? ' ' + unit : ''}; ${num(this.range[1] - this.range[0])} samples` + (w.step[0] > 1 ? `, every ${num(w.step[0])}` : '') + (w.cut ? '; not all of it was looked at' : '');
  }
  hover(e) {
    const { w, values: v, canvas: c } = this;
    if (!w) return;
    const [scaled, unit] = this.measure(w.min, w.max), said = x => short(scaled(x)) + (unit ? ' ' + unit : ''), along = (e.offsetX - this.left) / this.wide, when = i => this.clock ? `${short(this.clock[0] + (this.clock[1] - this.clock[0]) * Math.max(0, Math.min(1, along)))} s, ` : '';
    if (this.traces) {
      const [rows, cols] = w.count, i = Math.max(0, Math.min(rows - 1, Math.round(along * (rows - 1)))), k = Math.max(0, Math.min(cols - 1, Math.floor((e.offsetY - 22) / (c.clientHeight - 48) * cols)));
      c.title = `${when(i)}channel ${k}: ${said(v[i * cols + k])}`;
      return;
    }
    if (w.kind === 'image' && w.count.length > 1) {
      const [rows, cols] = w.count.slice(-2), r = Math.min(rows - 1, Math.floor(e.offsetY / c.clientHeight * rows)), k = Math.min(cols - 1, Math.floor(e.offsetX / c.clientWidth * cols));
      c.title = `[${[...w.from.slice(0, -2), w.from.at(-2) + r * w.step.at(-2), w.from.at(-1) + k * w.step.at(-1)].join(', ')}] = ${said(v[r * cols + k])}`;
      return;
    }
    const pairs = w.kind === 'range', n = pairs ? v.length / 2 : v.length, i = Math.max(0, Math.min(n - 1, Math.round(along * (n - 1))));
    c.title = when(i) + `[${num((w.from[0] ?? 0) + i * (w.step[0] ?? 1))}] = ` + (pairs ? `${said(v[2 * i])} … ${said(v[2 * i + 1])}` : said(v[i]));
  }
}
