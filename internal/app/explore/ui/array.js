// An array: its properties, and a plot of its elements.
import { el, ask, num, count, css, later, problem } from './base.js';
import { args } from './state.js';
import { frame, scaled, short } from './plot.js';
import { attributes, placeOf } from './attributes.js';
import { typeOf } from './words.js';

// Colours from dark to light in perceptually even steps (based on viridis).
const scale = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137], [53, 183, 121], [110, 206, 88], [181, 222, 43], [253, 231, 37]];
function colour(t, out, at, grey) {
  if (grey) { out[at] = out[at + 1] = out[at + 2] = 255 * Math.min(1, Math.max(0, t)); out[at + 3] = 255; return; }
  const x = Math.min(0.9999, Math.max(0, t)) * (scale.length - 1), i = Math.floor(x), f = x - i;
  for (let k = 0; k < 3; k++) out[at + k] = scale[i][k] + (scale[i + 1][k] - scale[i][k]) * f;
  out[at + 3] = 255;
}
const lanes = 32; // channels drawn above each other

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
    else if (a.numbers) box.append(el('p', { class: 'hint' }, 'No elements.'));
    if (a.text) box.append(el('h3', {}, 'Elements'), el('pre', { class: 'elements', tabindex: '0' }, a.text + (a.cut ? '…' : '')));
    box.append(el('dl', { class: 'list' }, row('Shape', a.shape.length ? a.shape.map(num).join(' × ') : 'scalar'), row('Type', typeOf(a.dtype)), row('Elements', num(a.elements)), row('Chunk shape', a.chunks.map(num).join(' × ') || '–'), a.scale?.unit ? row('Unit', a.scale.unit + (a.scale.conversion !== 1 ? `; multiply an element by ${short(a.scale.conversion)}` : '') + (a.scale.offset ? `, add ${short(a.scale.offset)}` : '')) : [], a.scale?.rate ? row('Time', [`${short(a.scale.rate)} Hz, from ${short(a.scale.start)} s`, a.scale.fault ? el('div', { class: 'fault' }, a.scale.fault) : '']) : a.scale?.times ? row('Time', ['as in ', placeOf(a.scale.times)]) : a.scale?.fault ? row('Time', el('span', { class: 'fault' }, a.scale.fault)) : [], row('Codecs', a.codecs)));
    if (a.attrs || a.attrs_fault) box.append(el('h3', {}, 'Attributes'), attributes(a.attrs, a.attrs_fault));
    if (a.numbers && a.elements > 0) await this.load();
  }
  plot(box) {
    const { shape } = this.a;
    this.from = shape.map(() => 0);
    // Channels over time are drawn as traces, some at a time.
    this.traces = shape.length === 2 && this.timed && (shape[1] <= lanes || shape[0] > shape[1]);
    this.channels = [0, Math.min(lanes, shape[1])];
    this.range = shape.length === 1 || this.traces ? [0, shape[0]] : undefined;
    this.canvas = el('canvas', { class: 'plot', tabindex: '0', role: 'img', 'aria-label': 'The elements of the array' });
    this.told = el('p', { class: 'hint', role: 'status' });
    const slider = (name, most, set, said) => {
      const out = el('output', {}, said(0)), to = v => { set(v); out.textContent = said(v); };
      const input = el('input', { type: 'range', min: 0, max: most, value: 0, oninput: e => { to(Number(e.target.value)); this.soon(); } });
      return { label: el('label', { class: 'axis' }, name + ' ', input, out), move: v => { input.value = v; to(v); } };
    };
    // Images over time are frames.
    const before = shape.length - (this.a.colours ? 3 : 2), name = axis => axis === 0 && this.frames ? 'frame' : `axis ${axis}`;
    this.frames = before > 0 && (this.timed || this.a.colours);
    this.grey = this.a.attrs?.neurodata_type === 'GrayscaleImage';
    const sliders = shape.slice(0, Math.max(0, before)).map((n, axis) => slider(name(axis), n - 1, v => { this.from[axis] = v; }, v => `${num(v)} of 0–${num(n - 1)}`));
    if (this.traces && shape[1] > lanes) sliders.push(slider('channels', shape[1] - lanes, v => { this.channels = [v, v + lanes]; }, v => `${num(v)} to ${num(v + lanes - 1)} of ${num(shape[1])}`));
    this.soon = later(() => this.load(), 80);
    if (this.frames && shape[0] > 1) {
      this.player = el('button', { type: 'button', id: 'play', onclick: () => { if (this.playing) this.stop(); else this.play(sliders[0], shape[0]); } }, 'Play');
      sliders[0].label.append(this.player);
    }
    box.append(...sliders.map(s => s.label), this.canvas, this.told);
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
  /** Shows one frame after the other, at their rate as far as they arrive, up to the last one. */
  async play(slider, n) {
    const rate = this.a.scale?.rate, step = Math.max(1, Math.round((rate || 0) / 25)), { signal } = this.dead, mine = this.playing = {};
    let was, pause = 1000 * step / (rate || 10); // without a rate, the time since the frame before
    this.player.textContent = 'Pause';
    if (this.from[0] >= n - 1) slider.move(0);
    while (this.playing === mine && !signal.aborted && this.from[0] < n - 1) {
      const next = performance.now() + pause;
      slider.move(Math.min(n - 1, this.from[0] + step));
      await this.load();
      if (document.body.dataset.plot === 'failed') break;
      const at = this.clock?.(this.from[0]);
      if (!rate && at > was) pause = Math.min(1000, Math.max(40, 1000 * (at - was)));
      was = at;
      await new Promise(f => setTimeout(f, Math.max(0, next - performance.now())));
    }
    if (this.playing === mine) this.stop();
  }
  stop() { this.playing = undefined; this.player.textContent = 'Play'; }
  async load() {
    this.under?.abort();
    const stop = this.under = new AbortController();
    this.dead.signal.addEventListener('abort', () => stop.abort());
    const q = { path: this.entry.path, points: this.range ? 4 * Math.max(300, this.canvas.clientWidth) : 512 * 512 };
    if (this.traces) { q.from = `${this.range[0]},${this.channels[0]}`; q.to = `${this.range[1]},${this.channels[1]}`; q.points = 1 << 20; }
    else if (this.range) { q.from = this.range[0]; q.to = this.range[1]; } else if (this.from.length) q.from = this.from.join(',');
    try {
      const r = await ask.raw('array/data', args(q), { signal: stop.signal });
      const b = await r.arrayBuffer();
      const w = JSON.parse(r.headers.get('Holdall-Window'));
      await this.times(stop.signal);
      this.w = w; this.values = w.type === 'float32' ? new Float32Array(b) : new Float64Array(b);
      this.paint();
      document.body.dataset.plot = this.w.kind + ' ' + this.w.count.join('×');
    } catch (err) {
      if (err.name === 'AbortError') return;
      this.told.replaceChildren(problem(err));
      document.body.dataset.plot = 'failed';
    }
  }
  /**
   * Sets clock, which gives the time of an index of the first axis in seconds; undefined if
   * unknown.
   */
  async times(signal) {
    const s = this.a.scale, [a, b] = this.range ?? (this.frames ? [this.from[0], this.from[0] + 1] : []);
    this.clock = undefined; this.unordered = false; this.untimed = '';
    if (b === undefined || !this.timed) return;
    if (s.rate) { this.clock = i => s.start + i / s.rate; return; }
    const told = 4096;
    try {
      const r = await ask.raw('array/data', args({ path: s.times, from: a, to: b, points: told }), { signal }), w = JSON.parse(r.headers.get('Holdall-Window')), bytes = await r.arrayBuffer();
      let t = w.type === 'float32' ? new Float32Array(bytes) : new Float64Array(bytes);
      if (w.kind === 'range') t = t.filter((_, i) => i % 2 === 0); // the minimum of each stretch, which is its first element
      if (!t.every(Number.isFinite)) { this.untimed = 'some are not finite numbers'; return; }
      if (t.some((x, i) => i && x < t[i - 1])) { this.unordered = true; return; }
      const step = w.step[0] ?? 1;
      // Only the beginning of the last stretch is known, so the last timestamp is requested.
      let last = t.at(-1);
      if (step > 1) { const e = await ask.raw('array/data', args({ path: s.times, from: b - 1, to: b, points: 1 }), { signal }), v = await e.arrayBuffer(); last = (v.byteLength === 4 ? new Float32Array(v) : new Float64Array(v))[0]; }
      this.clock = i => {
        const x = (i - a) / step, k = Math.max(0, Math.min(t.length - 1, Math.floor(x)));
        if (k >= t.length - 1) { const rest = b - 1 - a - k * step; return rest > 0 ? t[k] + (last - t[k]) * Math.min(1, (x - k) * step / rest) : t[k]; }
        return t[k] + (t[k + 1] - t[k]) * (x - k);
      };
    } catch (err) { if (err.name === 'AbortError') throw err; this.untimed = err.message; }
  }
  /** Explains why the plot has no time axis. */
  late() { return this.unordered ? '; its timestamps are not in order, so the axis shows the index' : this.untimed ? '; its timestamps cannot be read: ' + this.untimed : ''; }
  /** The unit that suits elements between lo and hi: a conversion function, and the unit's name. */
  measure(lo, hi) {
    const s = this.a.scale, f = s?.conversion ?? 1, o = s?.offset ?? 0, [p, unit] = scaled(Math.max(Math.abs(lo * f + o), Math.abs(hi * f + o)), this.unit);
    return [v => (v * f + o) / p, unit];
  }
  paint() {
    const { canvas: c, w, values: v } = this;
    if (!w || !c.clientWidth) return;
    if (this.traces) return this.paintTraces();
    const dpr = devicePixelRatio || 1, W = c.clientWidth, isImage = w.kind !== 'line' && w.kind !== 'range' && w.count.length > 1, y = w.count.length - (w.kind === 'colours' ? 3 : 2);
    const [rows, cols] = isImage ? w.count.slice(y) : [0, 0];
    const H = isImage ? Math.max(80, Math.min(420, W * rows * w.step[y] / (cols * w.step[y + 1]))) : 220;
    c.style.height = H + 'px';
    c.width = W * dpr; c.height = H * dpr;
    const g = c.getContext('2d');
    g.scale(dpr, dpr);
    const span = w.max - w.min || 1, cut = w.cut ? '; incomplete' : '';
    const [scaled, unit] = this.measure(w.min, w.max);
    if (isImage) {
      const img = new ImageData(cols, rows);
      const bytes = w.kind === 'colours' && this.a.dtype.endsWith('u1'), signs = w.count.at(-1);
      if (w.kind === 'colours') for (let i = 0; i < rows * cols; i++) for (let k = 0; k < 4; k++) img.data[4 * i + k] = k >= signs ? 255 : bytes ? v[signs * i + k] : 255 * (v[signs * i + k] - w.min) / span;
      else for (let i = 0; i < v.length; i++) if (Number.isFinite(v[i])) colour((v[i] - w.min) / span, img.data, 4 * i, this.grey);
      const o = new OffscreenCanvas(cols, rows);
      o.getContext('2d').putImageData(img, 0, 0);
      g.imageSmoothingEnabled = cols > W;
      g.drawImage(o, 0, 0, W, H);
      const size = `${num(rows)} × ${num(cols)} ${w.kind === 'colours' ? 'pixels' : 'elements'}` + (w.step.some(s => s > 1) ? `, every ${w.step.slice(y, y + 2).join(' by ')}` : '') + cut + (this.clock && this.frames ? `; at ${short(this.clock(this.from[0]))} s` : '') + this.late();
      if (w.kind === 'colours') { this.told.textContent = size; return; }
      this.told.replaceChildren(el('canvas', { class: 'bar-of-colours', width: 120, height: 10, 'aria-hidden': 'true' }), ` ${short(scaled(w.min))} to ${short(scaled(w.max))}${unit ? ' ' + unit : ''}; ` + size);
      const bar = this.told.firstChild.getContext('2d'), ramp = new ImageData(120, 1);
      for (let i = 0; i < 120; i++) colour(i / 119, ramp.data, 4 * i, this.grey);
      for (let y = 0; y < 10; y++) bar.putImageData(ramp, 0, y);
      return;
    }
    const from = w.from[0] ?? 0, to = this.range ? this.range[1] : 1, pad = (w.max - w.min || Math.abs(w.max) || 1) * 0.03, ends = [scaled(w.min - pad), scaled(w.max + pad)].sort((a, b) => a - b);
    const clock = this.clock, x0 = clock ? clock(from) : from, x1 = clock ? clock(to - 1) : to - 1, step = w.step[0] ?? 1, pairs = w.kind === 'range', n = pairs ? v.length / 2 : v.length;
    const f = frame(g, W, H, ends[0], ends[1], x0, x1, this.clock ? 's' : '', unit), X = i => n < 2 ? f.L + f.w / 2 : f.X(clock ? clock(Math.min(to - 1, from + i * step)) : x0 + i / (n - 1) * (x1 - x0)), at = x => f.Y(scaled(x));
    this.left = f.L; this.wide = f.w;
    g.strokeStyle = css('--accent'); g.lineWidth = 1.25; g.lineJoin = 'round';
    g.beginPath();
    let pen = false;
    for (let i = 0; i < n; i++) {
      const a = pairs ? v[2 * i] : v[i], b = pairs ? v[2 * i + 1] : v[i];
      if (!Number.isFinite(a)) { pen = false; continue; }
      if (pen) g.lineTo(X(i), at(a)); else g.moveTo(X(i), at(a));
      if (b !== a) g.lineTo(X(i), at(b));
      pen = true;
    }
    g.stroke();
    if (n <= 60) { g.fillStyle = css('--accent'); for (let i = 0; i < n; i++) if (Number.isFinite(v[i])) { g.beginPath(); g.arc(X(i), at(v[i]), 2.5, 0, 7); g.fill(); } }
    this.told.textContent = `${short(scaled(w.min))} to ${short(scaled(w.max))}${unit ? ' ' + unit : ''}; ${count(to - from, 'element')}` + (pairs ? `, minimum and maximum of each ${num(w.step[0])}` : '') + cut + this.late();
  }
  /** Draws channels over time, one above the other. */
  paintTraces() {
    const { canvas: c, w, values: v } = this, dpr = devicePixelRatio || 1, W = c.clientWidth, [rows, cols] = w.count, H = Math.max(220, Math.min(560, 30 * cols + 60));
    c.style.height = H + 'px'; c.width = W * dpr; c.height = H * dpr;
    const g = c.getContext('2d');
    g.scale(dpr, dpr);
    const [scaled, unit] = this.measure(w.min, w.max), clock = this.clock, [from, to] = this.range, step = w.step[0], x0 = clock ? clock(from) : from, x1 = clock ? clock(to - 1) : to - 1;
    const f = frame(g, W, H, cols, 0, x0, x1, clock ? 's' : '', 'channel', Array.from({ length: cols }, (_, k) => [k + 0.5, num(w.from[1] + k)]).filter((_, k) => cols <= 16 || k % 4 === 0)), X = i => rows < 2 ? f.L + f.w / 2 : f.X(clock ? clock(from + i * step) : x0 + i / (rows - 1) * (x1 - x0));
    this.left = f.L; this.wide = f.w;
    const lane = f.h / cols, span = w.max - w.min || 1;
    g.lineWidth = 1; g.lineJoin = 'round'; g.strokeStyle = css('--accent');
    for (let k = 0; k < cols; k++) {
      g.beginPath();
      let pen = false;
      for (let i = 0; i < rows; i++) {
        const x = v[i * cols + k];
        if (!Number.isFinite(x)) { pen = false; continue; }
        const at = X(i), y = f.T + lane * (k + 0.95 - 0.9 * (x - w.min) / span);
        if (pen) g.lineTo(at, y); else g.moveTo(at, y);
        pen = true;
      }
      g.stroke();
    }
    this.told.textContent = `${count(cols, 'channel')}, each from ${short(scaled(w.min))} to ${short(scaled(w.max))}${unit ? ' ' + unit : ''}; ${count(this.range[1] - this.range[0], 'sample')}` + (w.step[0] > 1 ? `, every ${num(w.step[0])}` : '') + (w.cut ? '; incomplete' : '') + this.late();
  }
  /** Which of n elements is at a given fraction of the scale. */
  place(along, n, step) {
    const clock = this.clock, from = this.range?.[0] ?? 0, to = this.range?.[1] ?? 1;
    along = Math.max(0, Math.min(1, along));
    if (!clock) return Math.round(along * (n - 1));
    const t = clock(from) + along * (clock(to - 1) - clock(from));
    let lo = 0, hi = n - 1;
    while (lo < hi) { const mid = lo + hi + 1 >> 1; if (clock(from + mid * step) <= t) lo = mid; else hi = mid - 1; }
    return lo;
  }
  hover(e) {
    const { w, values: v, canvas: c } = this;
    if (!w) return;
    const [scaled, unit] = this.measure(w.min, w.max), said = x => short(scaled(x)) + (unit ? ' ' + unit : ''), along = (e.offsetX - this.left) / this.wide, when = i => this.clock && this.range ? `${short(this.clock(this.range[0] + i * (w.step[0] ?? 1)))} s, ` : '';
    if (this.traces) {
      const [rows, cols] = w.count, i = this.place(along, rows, w.step[0]), k = Math.max(0, Math.min(cols - 1, Math.floor((e.offsetY - 22) / (c.clientHeight - 48) * cols)));
      c.title = `${when(i)}channel ${w.from[1] + k}: ${said(v[i * cols + k])}`;
      return;
    }
    if (w.kind !== 'line' && w.kind !== 'range' && w.count.length > 1) {
      const signs = w.kind === 'colours' ? w.count.at(-1) : 1, y = w.count.length - (signs > 1 ? 3 : 2), [rows, cols] = w.count.slice(y), r = Math.max(0, Math.min(rows - 1, Math.floor(e.offsetY / c.clientHeight * rows))), k = Math.max(0, Math.min(cols - 1, Math.floor(e.offsetX / c.clientWidth * cols))), at = signs * (r * cols + k);
      c.title = `[${[...w.from.slice(0, y), w.from[y] + r * w.step[y], w.from[y + 1] + k * w.step[y + 1]].join(', ')}] = ${Array.from({ length: signs }, (_, i) => said(v[at + i])).join(', ')}`;
      return;
    }
    const pairs = w.kind === 'range', n = pairs ? v.length / 2 : v.length, i = this.place(along, n, w.step[0] ?? 1);
    c.title = when(i) + `[${num((w.from[0] ?? 0) + i * (w.step[0] ?? 1))}] = ` + (pairs ? `${said(v[2 * i])} … ${said(v[2 * i + 1])}` : said(v[i]));
  }
}
