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
    if (a.numbers && a.elements > 0) this.plot(box);
    else if (a.numbers) box.append(el('p', { class: 'hint' }, 'It has no elements.'));
    if (a.text) box.append(el('h3', {}, 'Elements'), el('pre', { class: 'elements', tabindex: '0' }, a.text + (a.cut ? '…' : '')));
    box.append(el('dl', { class: 'list' }, row('Shape', a.shape.length ? a.shape.map(num).join(' × ') : 'scalar'), row('Type', a.dtype), row('Elements', num(a.elements)), row('Chunks', a.chunks.map(num).join(' × ') || '–'), row('Stored by', a.codecs)));
    if (a.attrs) box.append(el('h3', {}, 'Attributes'), jsonTree(a.attrs));
    if (a.numbers && a.elements > 0) await this.load();
  }
  plot(box) {
    const { shape } = this.a;
    this.from = shape.map(() => 0);
    this.range = shape.length === 1 ? [0, shape[0]] : undefined;
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
    if (this.range) { q.from = this.range[0]; q.to = this.range[1]; } else if (this.from.length) q.from = this.from.join(',');
    try {
      const r = await ask.raw('array/data', args(q), { signal: stop.signal });
      const b = await r.arrayBuffer();
      this.w = JSON.parse(r.headers.get('Holdall-Window'));
      this.values = this.w.type === 'float32' ? new Float32Array(b) : new Float64Array(b);
      this.paint();
      document.body.dataset.plot = this.w.kind + ' ' + this.w.count.join('×');
    } catch (err) {
      if (err.name === 'AbortError') return;
      this.told.replaceChildren(problem(err));
      document.body.dataset.plot = 'failed';
    }
  }
  paint() {
    const { canvas: c, w, values: v } = this;
    if (!w || !c.clientWidth) return;
    const dpr = devicePixelRatio || 1, W = c.clientWidth, isImage = w.kind === 'image' && w.count.length > 1;
    const [rows, cols] = isImage ? w.count.slice(-2) : [0, 0];
    const H = isImage ? Math.max(80, Math.min(420, W * rows * w.step.at(-2) / (cols * w.step.at(-1)))) : 220;
    c.style.height = H + 'px';
    c.width = W * dpr; c.height = H * dpr;
    const g = c.getContext('2d');
    g.scale(dpr, dpr);
    const span = w.max - w.min || 1;
    const cut = w.cut ? '; not all of it was looked at' : '';
    if (isImage) {
      const img = new ImageData(cols, rows);
      for (let i = 0; i < v.length; i++) if (Number.isFinite(v[i])) colour((v[i] - w.min) / span, img.data, 4 * i);
      const o = new OffscreenCanvas(cols, rows);
      o.getContext('2d').putImageData(img, 0, 0);
      g.imageSmoothingEnabled = cols > W;
      g.drawImage(o, 0, 0, W, H);
      this.told.textContent = `${short(w.min)} to ${short(w.max)}; ${num(rows)} × ${num(cols)} elements` + (w.step.some(s => s > 1) ? `, every ${w.step.slice(-2).join(' by ')}` : '') + cut;
      return;
    }
    const L = 6, T = 8, B = 20, h = H - T - B, y = x => T + h - (x - w.min) / span * h;
    g.strokeStyle = css('--line'); g.fillStyle = css('--soft'); g.font = '11px system-ui, sans-serif'; g.lineWidth = 1;
    g.strokeRect(0.5, T + 0.5, W - 1, h);
    for (const f of [0.25, 0.5, 0.75]) { g.beginPath(); g.moveTo(0, T + h * f); g.lineTo(W, T + h * f); g.stroke(); }
    g.strokeStyle = css('--accent'); g.lineWidth = 1.25; g.lineJoin = 'round';
    g.beginPath();
    const pairs = w.kind === 'range', n = pairs ? v.length / 2 : v.length, X = i => L + (W - 2 * L) * (n < 2 ? 0.5 : i / (n - 1));
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
    g.fillStyle = css('--soft'); g.textBaseline = 'alphabetic';
    const from = w.from[0] ?? 0, to = this.range ? this.range[1] : 1;
    g.fillText(num(from), 2, H - 5); g.textAlign = 'right'; g.fillText(num(to - 1), W - 2, H - 5); g.textAlign = 'left';
    this.told.textContent = `${short(w.min)} to ${short(w.max)}; ${count(to - from, 'element')}` + (pairs ? `, the least and largest of each ${num(w.step[0])}` : '') + cut;
  }
  hover(e) {
    const { w, values: v, canvas: c } = this;
    if (!w) return;
    if (w.kind === 'image' && w.count.length > 1) {
      const [rows, cols] = w.count.slice(-2), r = Math.min(rows - 1, Math.floor(e.offsetY / c.clientHeight * rows)), k = Math.min(cols - 1, Math.floor(e.offsetX / c.clientWidth * cols));
      c.title = `[${[...w.from.slice(0, -2), w.from.at(-2) + r * w.step.at(-2), w.from.at(-1) + k * w.step.at(-1)].join(', ')}] = ${short(v[r * cols + k])}`;
      return;
    }
    const pairs = w.kind === 'range', n = pairs ? v.length / 2 : v.length, i = Math.max(0, Math.min(n - 1, Math.round((e.offsetX - 6) / (c.clientWidth - 12) * (n - 1))));
    c.title = `[${num((w.from[0] ?? 0) + i * (w.step[0] ?? 1))}] = ` + (pairs ? `${short(v[2 * i])} … ${short(v[2 * i + 1])}` : short(v[i]));
  }
}
