// The spikes of units: a row for each unit, time from left to right.
import { el, ask, num, count, css, later, problem } from './base.js';
import { args } from './state.js';
import { frame, short } from './plot.js';

const shown = 64; // units at a time, if there are more

export class Raster {
  extent; // of all spikes, in seconds
  constructor(area, entry) {
    this.area = area; this.entry = entry; this.dead = new AbortController();
    this.repaint = () => this.paint();
    addEventListener('theme', this.repaint);
  }
  close() { this.dead.abort(); removeEventListener('theme', this.repaint); this.watch?.disconnect(); }
  async show() {
    this.canvas = el('canvas', { class: 'plot raster', tabindex: '0', role: 'img', 'aria-label': 'Spikes of units over time' });
    this.told = el('p', { class: 'hint', role: 'status' });
    this.wrong = el('div', { class: 'wrong' });
    const button = (name, label, f) => el('button', { type: 'button', 'aria-label': label, title: label, onclick: f }, name);
    this.bar = el('div', { class: 'group' }, button('−', 'Zoom out', () => this.zoom(2)), button('+', 'Zoom in', () => this.zoom(0.5)), button('‹', 'Earlier', () => this.move(-0.4)), button('›', 'Later', () => this.move(0.4)), button('All', 'All of the time range', () => this.all()));
    this.first = 0;
    this.slide = el('input', { type: 'range', min: 0, max: 0, value: 0, oninput: e => { this.first = Number(e.target.value); this.soon(); } });
    this.which = el('output');
    this.slider = el('label', { class: 'axis', hidden: true }, 'units ', this.slide, this.which);
    this.area.append(el('div', { class: 'pad' }, this.bar, this.slider, this.canvas, this.told, this.wrong));
    this.soon = later(() => this.load(), 60);
    this.watch = new ResizeObserver(() => this.resized());
    this.watch.observe(this.canvas);
    const c = this.canvas, along = e => (e.offsetX - this.f.L) / this.f.w;
    c.addEventListener('wheel', e => { if (!this.f) return; e.preventDefault(); this.zoom(e.deltaY > 0 ? 1.4 : 1 / 1.4, along(e)); }, { passive: false });
    c.addEventListener('pointerdown', e => { this.drag = { x: e.offsetX, time: this.time }; c.setPointerCapture(e.pointerId); });
    c.addEventListener('pointerup', () => { this.drag = undefined; });
    c.addEventListener('pointercancel', () => { this.drag = undefined; });
    c.addEventListener('pointermove', e => {
      if (!this.f) return;
      if (!this.drag) return this.hover(e);
      const [a, b] = this.drag.time, d = (this.drag.x - e.offsetX) / this.f.w * (b - a);
      this.window(a + d, b + d);
    });
    c.addEventListener('keydown', e => {
      const f = { '+': () => this.zoom(0.7), '=': () => this.zoom(0.7), '-': () => this.zoom(1.4), ArrowLeft: () => this.move(-0.15), ArrowRight: () => this.move(0.15), ArrowUp: () => this.units(-1), ArrowDown: () => this.units(1), PageUp: () => this.units(-shown), PageDown: () => this.units(shown), 0: () => this.all() }[e.key];
      if (f && !e.ctrlKey && !e.metaKey && !e.altKey) { e.preventDefault(); f(); }
    });
    await this.load();
  }
  resized() { this.paint(); if (this.r && this.canvas.clientWidth !== this.width) this.soon(); }
  all() { this.time = this.extent; this.soon(); }
  zoom(f, at = 0.5) {
    if (!this.time) return;
    const [a, b] = this.time, mid = a + (b - a) * Math.max(0, Math.min(1, at));
    this.window(mid - (mid - a) * f, mid + (b - mid) * f);
  }
  move(d) { if (this.time) { const [a, b] = this.time; this.window(a + (b - a) * d, b + (b - a) * d); } }
  /** Shows a window of time, within the recorded range. */
  window(a, b) {
    const [lo, hi] = this.extent;
    if (!Number.isFinite(hi - lo)) return;
    const w = Math.min(hi - lo, Math.max((hi - lo) * 1e-7, b - a));
    a = Math.max(lo, Math.min(hi - w, a));
    this.time = [a, a + w];
    this.soon();
  }
  units(d) {
    const to = Math.max(0, Math.min(this.r.units - this.r.told.length, this.first + d));
    if (to === this.first) return;
    this.first = to; this.slide.value = to; this.soon();
  }
  async load() {
    this.under?.abort();
    const stop = this.under = new AbortController();
    this.dead.signal.addEventListener('abort', () => stop.abort());
    this.width = this.canvas.clientWidth;
    const asked = this.time;
    try {
      const r = await ask.json('raster', args({ path: this.entry.path, from: this.first, n: shown, bins: Math.max(100, Math.min(8192, Math.round((this.width - 68) * (devicePixelRatio || 1)))), start: this.time?.[0], end: this.time?.[1] }), { signal: stop.signal });
      r.cells = Uint8Array.from(atob(r.counts), c => c.charCodeAt(0));
      this.r = r;
      this.extent ??= [r.start, r.end];
      if (this.time === asked) this.time = [r.start, r.end]; // else the user has gone on meanwhile
      this.slide.max = Math.max(0, r.units - shown); this.slider.hidden = r.units <= shown;
      this.which.textContent = `${num(r.from)} to ${num(r.from + r.told.length - 1)} of ${num(r.units)}`;
      this.tell();
      this.paint();
      document.body.dataset.raster = `${r.from} ${r.told.length} ${r.told.reduce((a, u) => a + u.within, 0)}`;
    } catch (err) {
      if (err.name === 'AbortError') return;
      this.told.replaceChildren(problem(err));
      document.body.dataset.raster = 'failed';
    }
  }
  tell() {
    const r = this.r, of = r.told.reduce((a, u) => a + u.spikes, 0), within = r.told.reduce((a, u) => a + u.within, 0);
    this.told.textContent = `${count(r.told.length, 'unit')}${r.told.length < r.units ? ` of ${num(r.units)}` : ''} with ${count(of, 'spike')}; ${num(within)} from ${short(r.start)} s to ${short(r.end)} s` + (r.every ? `. This is a sample: every ${num(r.every)}th spike was read` : '') + (r.told.length < r.units ? `; all units have ${num(r.spikes)}` : '');
    const f = r.faults ?? [];
    this.wrong.replaceChildren(...f.slice(0, 8).map(x => el('p', { class: 'fault' }, el('b', {}, `Unit ${num(x.unit)}`), ': ' + x.why)), f.length > 8 ? el('p', { class: 'fault' }, `and ${count(f.length - 8 + (r.more_faults ?? 0), 'more unit')}`) : '');
  }
  paint() {
    const { canvas: c, r } = this;
    if (!r || !c.clientWidth) return;
    const dpr = devicePixelRatio || 1, W = c.clientWidth, n = r.told.length, H = Math.max(160, Math.min(n * 14 + 60, Math.max(220, this.area.clientHeight - (this.slider.hidden ? 150 : 180))));
    c.style.height = H + 'px'; c.width = W * dpr; c.height = H * dpr;
    const g = c.getContext('2d');
    g.scale(dpr, dpr);
    const apart = Math.ceil(n / Math.max(1, (H - 48) / 16)), hurt = new Set((r.faults ?? []).map(x => x.unit));
    const f = this.f = frame(g, W, H, n, 0, r.start, r.end, 's', 'unit', r.told.map((_, k) => [k + 0.5, num(r.from + k)]).filter((_, k) => k % apart === 0));
    const lane = f.h / n, bin = f.w / r.bins, ink = css('--accent'), bad = css('--bad-bg');
    let most = 1;
    for (const k of r.cells) if (k > most) most = k;
    for (let k = 0; k < n; k++) {
      if (hurt.has(r.from + k)) { g.fillStyle = bad; g.fillRect(f.L + 1, f.T + k * lane, f.w - 1, lane); }
      g.fillStyle = ink;
      for (let i = 0; i < r.bins; i++) {
        const v = r.cells[k * r.bins + i];
        if (!v) continue;
        g.globalAlpha = most === 1 ? 1 : 0.35 + 0.65 * Math.min(1, Math.log2(1 + v) / Math.log2(1 + most));
        g.fillRect(f.L + i * bin, f.T + k * lane + lane * 0.12, Math.max(1 / dpr, Math.min(bin, 1.5)), Math.max(1, lane * 0.76));
      }
      g.globalAlpha = 1;
    }
  }
  hover(e) {
    const { r, f } = this, k = Math.floor((e.offsetY - f.T) / f.h * r.told.length), t = (e.offsetX - f.L) / f.w;
    if (k < 0 || k >= r.told.length || t < 0 || t > 1) { this.canvas.title = ''; return; }
    const v = r.cells[k * r.bins + Math.min(r.bins - 1, Math.floor(t * r.bins))];
    this.canvas.title = `unit ${num(r.from + k)}, ${short(r.start + t * (r.end - r.start))} s` + (v ? `: ${count(v, 'spike')}` : '') + `; ${count(r.told[k].spikes, 'spike')} in all`;
  }
}
