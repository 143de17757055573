// The byte map: a picture of the archive, from the whole of it down to single entries.
import { $, el, ask, say, size, num, count, hex, css, later, middle, base, problem } from './base.js';
import { go, here, args, archive, note } from './state.js';

const words = { content: 'contents', header: 'headers', index: 'index', journal: 'journal', padding: 'padding', trash: 'trash', unknown: 'unknown', gap: 'holes', overlap: 'overlaps' };
const px = 8, gap = 1; // of a cell
const classCode = 32; // codes from here on are classes of content
/** The properties that can colour content, with their names and the colours of their classes. */
const shades = n => Array.from({ length: n }, (_, i) => '--s' + i);
/** @type {Record<string, [string, string[], string[]?]>} */
const colourings = {
  use: ['Use', []], kind: ['Kind of file', Array.from({ length: 11 }, (_, i) => '--k' + i)], age: ['Age', [...shades(6).reverse(), '--k0']],
  packing: ['Compression', ['--k0', '--s1', '--s2', '--s3', '--s5']], sharing: ['Sharing', ['--k0', '--s2', '--s3', '--s5']], proof: ['Checksums', ['--k1', '--k6', '--k3']],
};

const mix = (a, b, t) => a.map((x, i) => x + (b[i] - x) * t | 0);
const rgb = s => { const m = /^#(..)(..)(..)$/.exec(s); return m ? m.slice(1).map(x => parseInt(x, 16)) : [128, 128, 128]; };

async function fetchMap(q, signal) {
  const b = await (await ask.raw('map', args(q), { signal })).arrayBuffer();
  const n = new DataView(b).getUint32(0, true);
  const m = JSON.parse(new TextDecoder().decode(new Uint8Array(b, 4, n)));
  return { ...m, bytes: new Uint8Array(b, 4 + n, 8 * m.cells), spans32: new DataView(b, 4 + n) };
}

export class ByteMap {
  constructor(main) {
    this.canvas = el('canvas', { class: 'map', tabindex: '0', role: 'application', 'aria-label': 'Byte map. Arrow keys move between cells, plus and minus zoom, Enter opens.', 'aria-describedby': 'map-told' });
    this.strip = el('canvas', { class: 'strip', 'aria-hidden': 'true' });
    this.told = el('p', { id: 'map-told', class: 'told', role: 'status' });
    this.legend = el('ul', { class: 'legend', 'aria-label': 'What the colours mean' });
    this.of = {}; // which archive, if not the shown one
    this.by = 'use'; this.only = undefined; // the code of the only use or class shown
    this.pick = el('select', { 'aria-label': 'Colour by', onchange: e => { this.by = e.target.value; this.only = undefined; this.overview(); this.load(); } }, Object.entries(colourings).map(([v, [name]]) => el('option', { value: v }, name)));
    this.tip = el('div', { class: 'tip', hidden: true });
    const button = (text, label, f) => el('button', { type: 'button', 'aria-label': label, title: label, onclick: f }, text);
    this.bar = el('div', { class: 'bar' }, this.told, el('div', { class: 'group' }, this.pick, button('−', 'Zoom out', () => this.zoom(2)), button('+', 'Zoom in', () => this.zoom(0.5)), button('All', 'All of the archive', () => this.go(0, this.size))));
    this.stage = el('div', { class: 'stage' }, this.canvas, this.tip);
    main.append(el('div', { class: 'mapped' }, this.bar, this.strip, this.stage, this.legend));
    this.cursor = -1;
    this.watch = new ResizeObserver(() => this.resized());
    this.watch.observe(this.stage);
    this.resized = later(() => { if (this.size && !this.closed) { this.overview(); this.load(); } }, 60);
    this.look = later(i => this.at(i), 40);
    this.noteSoon = later(() => { if (here.tab === 'map' && !this.closed) note(this.from === 0 && this.to === this.size ? { from: undefined, to: undefined } : { from: this.from, to: this.to }); }, 200);
    this.events();
  }
  close() { this.watch.disconnect(); this.under?.abort(); this.looking?.abort(); this.closed = true; }
  focus() { this.canvas.focus(); }
  async show(_, file) {
    this.chosen = undefined;
    if (!this.size) {
      this.stage.classList.add('loading');
      this.told.textContent = 'Reading the archive…';
      let first;
      try {
        first = await fetchMap({ ...this.of, cells: 1 });
      } catch (err) {
        this.stage.classList.remove('loading');
        this.told.textContent = '';
        this.stage.replaceChildren(problem(err));
        return;
      }
      this.stage.classList.remove('loading');
      this.size = first.size; this.volumes = first.volumes;
    }
    const to = Math.min(here.to ?? this.size, this.size), from = Math.min(here.from ?? 0, to - 1);
    this.from = Math.max(0, from); this.to = Math.max(this.from + 1, to);
    await Promise.all([this.overview(), this.load(), file !== undefined && this.mark(file)]);
    if (file !== undefined && here.from === undefined && this.chosen?.length) this.reach();
    this.canvas.focus({ preventScroll: true });
    if (this.map?.coarse) $('aside').textContent = 'Too many entries to show them one by one.';
  }
  /** Marks the places of an entry. */
  async mark(path) {
    try { this.chosen = (await ask.json('map/of', args({ path }))).spans; } catch { this.chosen = []; }
    this.paint();
  }
  /** Zooms in on the selected entry, unless it is large enough already. */
  reach() {
    const [off, n] = this.chosen[0];
    const per = (this.to - this.from) / this.cells;
    if (off >= this.from && off < this.to && n > 2 * per) return;
    const want = Math.min(this.size, Math.max(n * 12, 4096));
    const from = Math.max(0, Math.min(this.size - want, off + n / 2 - want / 2));
    return this.go(Math.floor(from), Math.ceil(from + want));
  }
  repaint() { this.colours = undefined; this.paint(); this.paintStrip(); this.tell(); }
  palette() {
    return this.colours ??= { use: Object.keys(words).map(u => rgb(css('--map-' + u))), faint: rgb(css('--map-gap')), by: Object.fromEntries(Object.entries(colourings).map(([k, [, list]]) => [k, list.map(c => rgb(css(c)))])), other: rgb(css('--map-content-2')), bad: rgb(css('--map-problem')), ink: css('--ink'), ground: rgb(css('--map-ground')) };
  }
  /**
   * The colour of a code of a use, or of a class of content. If only one is shown, the others are
   * faint.
   */
  colour(code, by = this.map.by) {
    const P = this.palette();
    if (this.only !== undefined && code !== this.only) return P.faint;
    return code >= classCode ? P.by[by][code - classCode] ?? P.use[0] : P.use[code];
  }
  /** The colour of a cell. Content has one of two shades, so that each file can be seen where it begins. */
  shade(code, flags, by) {
    const P = this.palette(), odd = flags & 1;
    if (code === 0 && odd && this.only === undefined) return P.other;
    return code >= classCode && odd ? mix(this.colour(code, by), P.faint, 0.22) : this.colour(code, by);
  }
  layout() {
    const W = this.stage.clientWidth, H = Math.max(120, this.stage.clientHeight);
    this.cols = Math.max(8, Math.floor(W / px)); this.lines = Math.max(4, Math.floor(H / px));
    this.cells = this.cols * this.lines;
  }
  async overview() {
    const cells = Math.max(16, Math.floor(this.strip.clientWidth));
    try { this.all = await fetchMap({ ...this.of, cells, by: this.by }); } catch { return; }
    this.paintStrip();
  }
  async load() {
    if (this.closed) return;
    this.layout();
    this.under?.abort();
    const stop = this.under = new AbortController(), began = performance.now();
    let map;
    try {
      map = await fetchMap({ ...this.of, from: this.from, to: this.to, cells: this.cells, by: this.by }, stop.signal);
    } catch (err) {
      if (err.name !== 'AbortError') say(err.message);
      return;
    }
    if (this.closed) return;
    this.map = map;
    this.cursor = Math.min(this.cursor, map.cells - 1);
    this.paint(); this.paintStrip(); this.tell();
    this.noteSoon();
    document.body.dataset.map = `${this.from}-${this.to}`;
    document.body.dataset.redraw = (performance.now() - began).toFixed(1);
  }
  go(from, to) {
    const least = Math.min(this.size, 64);
    let w = Math.max(least, Math.min(this.size, Math.round(to - from)));
    this.from = Math.max(0, Math.min(this.size - w, Math.round(from)));
    this.to = this.from + w;
    this.tip.hidden = true;
    return this.load();
  }
  zoom(f, at) {
    const mid = at ?? (this.cursor >= 0 ? this.place(this.cursor) : (this.from + this.to) / 2), t = (mid - this.from) / (this.to - this.from), w = (this.to - this.from) * f;
    const to = Math.max(Math.min(64, this.size), Math.min(this.size, w));
    const place = mid;
    return this.go(mid - t * to, mid + (1 - t) * to).then(() => { if (this.cursor >= 0) { this.cursor = this.cellOf(place); this.paint(); } });
  }
  place(cell) { return this.from + (this.to - this.from) * (cell + 0.5) / this.map.cells; }
  cellOf(at) { return Math.max(0, Math.min(this.map.cells - 1, Math.floor((at - this.from) / (this.to - this.from) * this.map.cells))); }
  /** The columns, and the pixels of a cell. If there are few cells, they are larger. */
  grid() {
    const m = this.map;
    if (m.cells >= this.cells) return [this.cols, px];
    const W = this.stage.clientWidth, H = this.stage.clientHeight;
    let side = px;
    while (side < 64 && Math.ceil(m.cells / Math.floor(W / (side + 1))) * (side + 1) <= H) side++;
    return [Math.max(1, Math.floor(W / side)), side];
  }
  paint() {
    const m = this.map, c = this.canvas;
    if (!m || this.closed) return;
    const began = performance.now(), dpr = Math.min(2, devicePixelRatio || 1), W = this.stage.clientWidth, H = Math.max(120, this.stage.clientHeight), [cols, side] = this.grid(), P = this.palette();
    this.gridNow = [cols, side];
    Object.assign(c.dataset, { cols, side, cells: m.cells });
    c.width = W * dpr; c.height = H * dpr; c.style.width = W + 'px'; c.style.height = H + 'px';
    const g = c.getContext('2d'), img = g.createImageData(c.width, c.height), out = new Uint32Array(img.data.buffer), pack = ([r, q, b]) => (255 << 24 | b << 16 | q << 8 | r) >>> 0;
    const memo = new Map(), full = Math.round(side * dpr), hole = Math.max(1, Math.round((side > 4 ? gap : 0) * dpr));
    const chosen = (this.chosen ?? []).map(([off, n]) => [off, off + n]).filter(([a, b]) => b > m.from && a < m.to);
    const per = (m.to - m.from) / m.cells;
    for (let i = 0; i < m.cells; i++) {
      const at = 8 * i, use = m.bytes[at], share = m.bytes[at + 1], flags = m.bytes[at + 2], second = m.bytes[at + 3];
      const key = use | share >> 4 << 8 | (flags & 1) << 16 | second << 20;
      let v = memo.get(key);
      if (v === undefined) {
        let base = this.shade(use, flags);
        if (second !== 255) base = this.only === second ? mix(P.faint, this.colour(second), 0.8) : mix(base, this.colour(second), Math.min(0.5, (255 - share) / 255));
        memo.set(key, v = pack(base));
      }
      const x0 = Math.round((i % cols) * side * dpr), y0 = Math.round(Math.floor(i / cols) * side * dpr), bad = flags & 2;
      if (bad) v = pack(P.bad);
      for (let y = y0; y < Math.min(c.height, y0 + full - hole); y++) out.fill(v, y * c.width + x0, y * c.width + Math.min(c.width, x0 + full - hole));
    }
    g.putImageData(img, 0, 0);
    g.scale(dpr, dpr);
    const frame = (i, colour, width) => { g.strokeStyle = colour; g.lineWidth = width; g.strokeRect((i % cols) * side - 0.5, Math.floor(i / cols) * side - 0.5, side, side); };
    for (const [a, b] of chosen.slice(0, 200)) {
      // Frame each row of its cells.
      for (let i = Math.max(0, Math.floor((a - m.from) / per)), end = Math.min(m.cells, Math.ceil((b - m.from) / per)); i < end;) {
        const n = Math.min(end - i, cols - i % cols);
        g.strokeStyle = P.ink; g.lineWidth = 2;
        g.strokeRect((i % cols) * side, Math.floor(i / cols) * side, n * side - 1, side - 1);
        i += n;
      }
    }
    if (this.brush) { const [a, b] = this.brush; g.fillStyle = P.ink; g.globalAlpha = 0.25; for (let i = Math.min(a, b); i <= Math.max(a, b); i++) g.fillRect((i % cols) * side, Math.floor(i / cols) * side, side, side); g.globalAlpha = 1; }
    if (this.cursor >= 0) { frame(this.cursor, css('--panel'), 4); frame(this.cursor, P.ink, 2); }
    document.body.dataset.paint = (performance.now() - began).toFixed(1);
  }
  paintStrip() {
    const m = this.all, c = this.strip;
    if (!m || this.closed) return;
    const dpr = devicePixelRatio || 1, W = c.clientWidth, H = c.clientHeight, P = this.palette();
    c.width = W * dpr; c.height = H * dpr;
    const g = c.getContext('2d');
    g.scale(dpr, dpr);
    for (let i = 0; i < m.cells; i++) {
      const bad = m.bytes[8 * i + 2] & 2;
      const x = i * W / m.cells, w = W / m.cells + 0.5, share = m.bytes[8 * i + 1], second = m.bytes[8 * i + 3];
      g.fillStyle = `rgb(${this.shade(m.bytes[8 * i], m.bytes[8 * i + 2], m.by).join(' ')})`;
      g.fillRect(x, 4, w, H - 8);
      if (second !== 255) { // show the second largest share, too
        const h = Math.max(3, (H - 8) * Math.min(0.5, (255 - share) / 255));
        g.fillStyle = `rgb(${this.colour(second, m.by).join(' ')})`;
        g.fillRect(x, H - 4 - h, w, h);
      }
      if (bad) { g.fillStyle = `rgb(${P.bad.join(' ')})`; g.fillRect(x, 0, Math.max(w, 2), H); }
    }
    const a = this.from / this.size * W, b = Math.max(a + 3, this.to / this.size * W);
    if (this.to - this.from < this.size) { g.fillStyle = css('--ground'); g.globalAlpha = 0.55; g.fillRect(0, 0, a, H); g.fillRect(b, 0, W - b, H); g.globalAlpha = 1; g.strokeStyle = P.ink; g.lineWidth = 2; g.strokeRect(a, 1, b - a, H - 2); }
  }
  tell() {
    const m = this.map;
    const cell = (m.to - m.from) / m.cells;
    this.told.textContent = `${size(m.to - m.from)} shown` + (m.to - m.from < m.size ? `, from ${hex(m.from)}` : '') + ` · ${cell < 1024 ? count(Math.round(cell * 10) / 10, 'byte') : size(cell)} per cell`;
    const all = this.all?.totals ?? m.totals;
    const bad = archive.verify?.counts ?? {};
    const item = (code, colour, name, n) => el('li', {}, el('button', { type: 'button', class: 'quiet', 'aria-pressed': String(this.only === code), title: 'Show only this', onclick: () => { this.only = this.only === code ? undefined : code; this.paint(); this.paintStrip(); this.tell(); } },
      swatch(colour), name + ' ', el('span', { class: 'hint' }, size(n ?? 0))));
    const classes = m.classes ?? [], allClasses = this.all?.class_totals ?? {};
    this.pick.disabled = m.coarse;
    this.legend.replaceChildren(...classes.map((c, k) => (m.class_totals[c] || allClasses[c]) && item(classCode + k, css(colourings[m.by][1][k]), c, m.class_totals[c])).filter(Boolean),
      ...Object.keys(words).map((u, k) => (m.totals[u] || all[u]) && !(classes.length && u === 'content') && item(k, css('--map-' + u), words[u], m.totals[u])).filter(Boolean),
      ...bad.error || bad.warning ? [el('li', {}, swatch(css('--map-problem')), 'problems ', el('span', { class: 'hint' }, num((bad.error ?? 0) + (bad.warning ?? 0))))] : [],
      ...m.parity ? [el('li', {}, 'parity ', el('span', { class: 'hint' }, m.parity))] : []);
  }
  cellAt(e) {
    if (!this.map) return -1;
    const [cols, side] = this.gridNow, x = Math.floor(e.offsetX / side), y = Math.floor(e.offsetY / side), i = y * cols + x;
    return x < 0 || x >= cols || y < 0 || i >= this.map.cells ? -1 : i;
  }
  range(i) {
    const m = this.map, per = (m.to - m.from) / m.cells, from = Math.floor(m.from + i * per);
    return [from, Math.max(from + 1, Math.min(m.to, Math.ceil(m.from + (i + 1) * per)))];
  }
  async ask(i) {
    const [from, to] = this.range(i);
    this.looking?.abort();
    this.looking = new AbortController();
    return ask.json('map/at', args({ ...this.of, from, to, limit: 3 }), { signal: this.looking.signal });
  }
  async at(i) {
    if (i < 0 || this.closed) return;
    let r;
    try { r = await this.ask(i); } catch { return; }
    if (this.over !== i) return;
    const [cols, side] = this.gridNow, [from] = this.range(i), lines = [];
    const s = r.spans[0];
    if (!s) lines.push(el('b', {}, 'a hole'), el('span', {}, `at ${hex(from)}: nothing refers to it`));
    else {
      lines.push(el('b', {}, s.entry ? middle(s.name, 60) : words[s.use] ?? s.use));
      if (!s.entry && s.name) lines.push(el('span', {}, s.name));
      lines.push(el('span', {}, `${size(s.len)} at ${hex(s.off)}` + (this.volumes.length > 1 ? ` of ${base(s.volume)}` : '')));
      if (s.files) lines.push(el('span', {}, `shared by ${count(s.files, 'file', 'files')}`));
      if (r.count > 1) lines.push(el('span', {}, `and ${count(r.count - 1, 'other', 'others')} in this cell`));
    }
    this.tip.replaceChildren(...lines);
    this.tip.hidden = false;
    const x = (i % cols) * side, y = Math.floor(i / cols) * side, W = this.stage.clientWidth, H = this.stage.clientHeight, w = this.tip.offsetWidth, h = this.tip.offsetHeight;
    this.tip.style.left = Math.max(0, Math.min(W - w - 4, x + side + 6)) + 'px';
    this.tip.style.top = (y + side + 6 + h > H ? Math.max(0, y - h - 6) : y + side + 6) + 'px';
    document.body.dataset.over = s ? s.name : 'hole';
  }
  async open(i) {
    let r;
    try { r = await this.ask(i); } catch { return; }
    const s = r.spans.find(x => x.entry);
    if (r.count > 3 && this.map.coarse !== true) { const [from, to] = this.range(i), w = (this.to - this.from) / 16; return this.go((from + to) / 2 - w / 2, (from + to) / 2 + w / 2); }
    if (s) go({ path: s.name, view: archive.views && this.map.view !== archive.view ? this.map.view : here.view, from: this.from || undefined, to: this.from || this.to < this.size ? this.to : undefined });
  }
  events() {
    const c = this.canvas;
    c.addEventListener('wheel', e => { e.preventDefault(); const i = this.cellAt(e); if (i >= 0) { const at = this.place(i); this.cursor = -1; this.zoom(Math.exp(Math.sign(e.deltaY) * Math.min(0.6, Math.abs(e.deltaY) / 250)), at); } }, { passive: false });
    c.addEventListener('pointermove', e => {
      const i = this.cellAt(e);
      if (this.down !== undefined && i >= 0) { if (i !== this.down) { this.brush = [this.down, i]; this.tip.hidden = true; this.paint(); } return; }
      if (i !== this.over) { this.over = i; if (i < 0) this.tip.hidden = true; this.look(i); }
    });
    c.addEventListener('pointerleave', () => { this.over = -1; this.tip.hidden = true; });
    c.addEventListener('pointerdown', e => { if (e.button === 0 && e.pointerType !== 'touch') { this.down = this.cellAt(e); if (this.down < 0) this.down = undefined; else c.setPointerCapture(e.pointerId); } });
    c.addEventListener('pointerup', e => {
      const i = this.cellAt(e), brush = this.brush;
      const clicked = this.down !== undefined || e.pointerType === 'touch';
      this.down = this.brush = undefined;
      if (brush && Math.abs(brush[0] - brush[1]) > 1) { const a = this.range(Math.min(...brush))[0], b = this.range(Math.max(...brush))[1]; this.go(a, b); } else if (clicked && i >= 0) { this.cursor = i; this.open(i); }
    });
    c.addEventListener('keydown', e => {
      if (!this.map || e.ctrlKey || e.metaKey || e.altKey) return;
      const [cols] = this.gridNow, w = this.to - this.from, last = this.map.cells - 1;
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: cols, ArrowUp: -cols }[e.key];
      if (step && e.shiftKey) { e.preventDefault(); this.go(this.from + Math.sign(step) * w / 4, this.to + Math.sign(step) * w / 4); return; }
      if (step || e.key === 'Home' || e.key === 'End') {
        e.preventDefault();
        this.cursor = e.key === 'Home' ? 0 : e.key === 'End' ? last : Math.max(0, Math.min(last, (this.cursor < 0 ? 0 : this.cursor) + (this.cursor < 0 ? 0 : step)));
        this.paint();
        this.over = this.cursor; this.look(this.cursor);
        return;
      }
      const f = { '+': () => this.zoom(0.5), '=': () => this.zoom(0.5), '-': () => this.zoom(2), 0: () => this.go(0, this.size), PageDown: () => this.go(this.from + w, this.to + w), PageUp: () => this.go(this.from - w, this.to - w), Enter: () => this.cursor >= 0 && this.open(this.cursor) }[e.key];
      if (f) { e.preventDefault(); e.stopPropagation(); f(); }
    });
    const slide = e => { const at = e.offsetX / this.strip.clientWidth * this.size, w = this.to - this.from; if (w < this.size) this.go(at - w / 2, at + w / 2); };
    this.strip.addEventListener('pointerdown', e => { this.strip.setPointerCapture(e.pointerId); this.sliding = true; slide(e); });
    this.strip.addEventListener('pointermove', e => { if (this.sliding) slide(e); });
    this.strip.addEventListener('pointerup', () => { this.sliding = false; });
  }
}
function swatch(colour) { const i = el('i', { class: 'swatch', 'aria-hidden': 'true' }); i.style.background = colour; return i; }
