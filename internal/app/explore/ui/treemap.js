// The use of space in a folder and its subfolders: a frame for each folder, down to the smallest
// visible ones, in the colours of the kinds of files.
import { $, el, ask, size, num, count, css, join, problem, parent, later, healthWord } from './base.js';
import { go, args } from './state.js';

/** Lays out boxes of these sizes in a rectangle, as square as possible (Bruls et al.). */
export function squarify(sizes, x, y, w, h) {
  const total = sizes.reduce((a, b) => a + b, 0) || 1, scale = w * h / total, out = [];
  let i = 0;
  while (i < sizes.length) {
    const side = Math.min(w, h);
    if (side < 1) { out.push({ x, y, w: 0, h: 0 }); i++; continue; } // too small to see
    let sum = 0, k = i, worst = Infinity;
    while (k < sizes.length) {
      const a = sizes[k] * scale, s = sum + a, now = Math.max(side * side * sizes[i] * scale / (s * s), s * s / (side * side * Math.max(a, 1e-9)));
      if (now > worst) break;
      worst = now; sum = s; k++;
    }
    const thick = sum / side || 0;
    let at = 0;
    for (; i < k; i++) {
      const long = sizes[i] * scale / thick || 0;
      out.push(w >= h ? { x, y: y + at, w: thick, h: long } : { x: x + at, y, w: long, h: thick });
      at += long;
    }
    if (w >= h) { x += thick; w -= thick; } else { y += thick; h -= thick; }
  }
  return out;
}

const measures = [['size', 'Size'], ['stored', 'Stored size'], ['count', 'Number of files']];
const head = 19, pad = 3; // of a frame
const still = matchMedia('(prefers-reduced-motion: reduce)');

export class Treemap {
  constructor(main) {
    this.by = 'size'; this.only = undefined; this.cursor = -1;
    this.what = el('p', { id: 'map-told', class: 'told', role: 'status' });
    this.up = el('button', { type: 'button', onclick: () => go({ path: parent(this.dir) }) }, 'Up');
    this.pick = el('select', { 'aria-label': 'Size of boxes', onchange: e => { this.by = e.target.value; this.load(); } }, measures.map(([v, name]) => el('option', { value: v }, name)));
    this.canvas = el('canvas', { class: 'map', tabindex: '0', role: 'application', 'aria-label': 'Treemap. Arrow keys move between boxes, Enter opens one, Backspace goes back.', 'aria-describedby': 'map-told' });
    this.tip = el('div', { class: 'tip', hidden: true });
    this.stage = el('div', { class: 'stage' }, this.canvas, this.tip);
    this.legend = el('ul', { class: 'legend', 'aria-label': 'What the colours mean' });
    main.append(el('div', { class: 'treemapped mapped' }, el('div', { class: 'bar' }, this.what, el('div', { class: 'group' }, this.pick, this.up)), this.stage, this.legend));
    this.watch = new ResizeObserver(later(() => { this.arrange(); this.paint(); }, 40));
    this.watch.observe(this.stage);
    const c = this.canvas;
    c.addEventListener('keydown', e => this.key(e));
    c.addEventListener('pointermove', e => this.hover(e));
    c.addEventListener('pointerleave', () => { this.tip.hidden = true; this.over = undefined; this.paint(); });
    c.addEventListener('click', e => { const b = this.at(e.offsetX, e.offsetY); if (b) this.open(b); });
    c.addEventListener('wheel', e => { // zooming in opens the folder below the pointer; zooming out leaves the folder
      if (e.ctrlKey || this.moving || Date.now() - (this.wheeled ?? 0) < 350) return;
      this.wheeled = Date.now();
      const b = this.at(e.offsetX, e.offsetY);
      if (e.deltaY > 0 && this.dir) go({ path: parent(this.dir) });
      else if (e.deltaY < 0 && b) { const t = this.branch(b); if (t?.box.dir) this.open(t); }
    }, { passive: true });
  }
  close() { this.closed = true; this.watch.disconnect(); this.under?.abort(); cancelAnimationFrame(this.moving); }
  focus() { this.canvas.focus(); }
  repaint() { this.colours = undefined; this.paint(); this.tell(); }
  checked() { this.load(); }
  async show(dir) {
    if (dir === this.dir && this.data) return;
    this.from = this.dir; this.dir = dir;
    this.up.disabled = !dir;
    await this.load();
    if (!this.closed && !this.canvas.hidden) this.canvas.focus({ preventScroll: true });
  }
  async load() {
    this.under?.abort();
    const stop = this.under = new AbortController(), was = this.data && this.boxes;
    if (!this.data) this.what.textContent = 'Adding up…';
    let d;
    try {
      for (;;) {
        d = await ask.json('treemap', args({ path: this.dir, by: this.by }), { signal: stop.signal });
        if (!d.survey) break;
        this.what.textContent = `Adding up: ${count(d.survey.entries, 'node')}, ${size(d.survey.bytes)} so far…`;
        await new Promise(ok => setTimeout(ok, 200));
      }
    } catch (err) {
      if (err.name !== 'AbortError') { this.what.textContent = ''; this.canvas.hidden = true; this.tip.replaceChildren(problem(err)); this.tip.hidden = false; this.data = undefined; }
      return;
    }
    if (this.closed || stop.signal.aborted) return;
    this.canvas.hidden = false; this.tip.hidden = true;
    this.data = d;
    this.pick.querySelector('[value=stored]').disabled = !d.stored;
    this.arrange();
    this.cursor = this.from && this.from !== this.dir && parent(this.from) === this.dir ? this.tops.findIndex(b => b.path === this.from) : this.tops.length ? 0 : -1;
    this.tell();
    document.body.dataset.boxes = String(this.boxes.length);
    this.mark();
    // Animate the way: the new picture grows from its box, or the old one shrinks into its box.
    const inside = was?.find(b => b.path === this.dir && b.depth > 0), back = this.from !== undefined && this.from !== this.dir && this.boxes.find(b => b.path === this.from && b.depth > 0);
    this.from = this.dir;
    if (!was || still.matches || !inside && !back) this.paint(); else this.move(inside || back, !!back && !inside);
  }
  amount(b) { return this.by === 'count' ? b.c ?? 0 : this.by === 'stored' ? b.z ?? 0 : b.s; }
  /** Places all visible boxes. */
  arrange() {
    if (!this.data || this.closed) return;
    const W = this.stage.clientWidth, H = Math.max(120, this.stage.clientHeight);
    this.boxes = [];
    const put = (list, rest, dir, x, y, w, h, depth) => {
      const items = [...list, ...rest ? [rest] : []].filter(b => this.amount(b) > 0);
      items.sort((a, b) => this.amount(b) - this.amount(a));
      const short = apart(items.filter(b => b !== rest).map(b => b.n));
      squarify(items.map(b => this.amount(b)), x, y, w, h).forEach((r, i) => {
        if (r.w < 1.5 || r.h < 1.5) return;
        const box = items[i], b = { ...r, box, depth, open: false, head: 0, rest: box === rest, alone: !list.length, short: short(box.n), path: box === rest ? dir : join(dir, box) };
        this.boxes.push(b);
        if (!box.boxes && !(box.rest && r.w > 60 && r.h > 48) || r.w < 14 || r.h < 14) return;
        b.open = true;
        b.head = r.w > 40 && r.h > 34 ? head : 0;
        put(box.boxes ?? [], box.rest, b.path, r.x + pad, r.y + (b.head || pad), r.w - 2 * pad, r.h - (b.head || pad) - pad, depth + 1);
      });
    };
    put(this.data.box.boxes ?? [], this.data.box.rest, this.dir, 0, 0, W, H, 1);
    this.tops = this.boxes.filter(b => b.depth === 1 && !b.rest);
  }
  palette() {
    return this.colours ??= { k: this.data.kinds.map((_, k) => css('--k' + k)), panel: css('--panel'), raise: css('--raise'), ink: css('--ink'), soft: css('--soft'), line: css('--line'), bad: css('--map-problem'), accent: css('--accent') };
  }
  /** Draws all boxes, moved by x and y and scaled by s. */
  paint(view = { x: 0, y: 0, sx: 1, sy: 1 }) {
    if (!this.boxes || this.closed) return;
    const began = performance.now(), c = this.canvas, dpr = Math.min(2, devicePixelRatio || 1), W = this.stage.clientWidth, H = Math.max(120, this.stage.clientHeight), P = this.palette();
    if (c.width !== Math.round(W * dpr) || c.height !== Math.round(H * dpr)) { c.width = Math.round(W * dpr); c.height = Math.round(H * dpr); c.style.width = W + 'px'; c.style.height = H + 'px'; }
    const g = c.getContext('2d');
    g.setTransform(dpr, 0, 0, dpr, 0, 0);
    g.fillStyle = P.panel; g.fillRect(0, 0, W, H);
    const font = getComputedStyle(document.body).fontFamily;
    let labels = 0;
    g.textBaseline = 'middle';
    for (const b of this.boxes) {
      const x = view.x + b.x * view.sx, y = view.y + b.y * view.sy, w = b.w * view.sx - 1, h = b.h * view.sy - 1;
      if (x > W || y > H || x + w < 0 || y + h < 0 || w <= 0 || h <= 0) continue;
      const frame = b.open, faded = this.only !== undefined && (b.box.h ?? 0) !== this.only && !frame;
      g.globalAlpha = 1;
      if (frame) {
        g.fillStyle = b === this.over ? P.line : P.raise; g.fillRect(x, y, w, h);
        g.strokeStyle = P.line; g.lineWidth = 1; g.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
      } else {
        g.globalAlpha = faded ? 0.06 : b === this.over ? 0.55 : 0.38;
        g.fillStyle = P.k[b.box.h ?? 0]; g.fillRect(x, y, w, h);
        g.globalAlpha = faded ? 0.1 : 1;
        if (b.rest) weave(g, b.box.c, x, y, w, h, P.panel); else if (w > 50) g.fillRect(x, y, 3, h);
      }
      g.globalAlpha = 1;
      if (b.box.health === 'damaged' || b.box.below) { g.strokeStyle = P.bad; g.lineWidth = 2; g.strokeRect(x + 1, y + 1, w - 2, h - 2); }
      if (w < 20 || h < 12 || faded || frame && !b.head) continue;
      const name = b.rest ? this.files(b.box.c, b.alone ? '' : 'other ') : b.box.n + (b.box.dir && w > 60 ? '/' : ''), much = this.words(b.box);
      // A name that does not fit is smaller, since more names say more than large ones.
      let room, shown, left;
      for (const size of [12, 11, 10]) {
        left = size === 12 ? 7 : 3; room = w - left - Math.min(5, left);
        g.font = `600 ${size}px ${font}`;
        if ((shown = fit(g, name, room)) === name) break;
      }
      if (shown !== name && b.short && g.measureText(b.short).width <= room) shown = b.short;
      if (b.rest && shown) { g.globalAlpha = 0.85; g.fillStyle = P.panel; g.fillRect(x, y, Math.min(w, g.measureText(shown).width + 14), Math.min(h, h > 34 ? 38 : 22)); g.globalAlpha = 1; }
      g.fillStyle = P.ink;
      if (shown) { g.fillText(shown, x + left, y + (frame ? head / 2 : Math.min(h / 2, 12))); labels++; }
      g.font = `12px ${font}`; g.fillStyle = P.soft;
      const wide = g.measureText(much).width;
      if (frame) { // beside the name, if both fit
        g.font = `600 12px ${font}`;
        const used = g.measureText(shown).width;
        g.font = `12px ${font}`;
        if (shown === name && used + wide + 16 < room) g.fillText(much, x + 7 + used + 8, y + head / 2);
      } else if (h > 34 && wide <= room) { g.fillStyle = P.ink; g.fillText(much, x + left, y + 28); }
    }
    const t = this.tops[this.cursor];
    if (t && view.sx === 1) { g.strokeStyle = P.panel; g.lineWidth = 4; g.strokeRect(t.x + 1, t.y + 1, t.w - 3, t.h - 3); g.strokeStyle = P.ink; g.lineWidth = 2; g.strokeRect(t.x + 1, t.y + 1, t.w - 3, t.h - 3); }
    Object.assign(document.body.dataset, { labels, paint: (performance.now() - began).toFixed(1) });
  }
  /** Animates the way into a box of the old picture, or out of what is now a box. */
  move(box, out) {
    cancelAnimationFrame(this.moving);
    const W = this.stage.clientWidth, H = this.stage.clientHeight, began = performance.now(), long = 220;
    let frames = 0;
    const step = now => {
      const t = Math.min(1, (now - began) / long), k = (out ? t : 1 - t) ** 2, f = out ? 1 - (1 - t) ** 2 : 1 - k;
      frames++;
      // At 0 the new picture is in the place of the box (going in), or its box fills the view
      // (going out).
      if (out) { const sx = W / box.w, sy = H / box.h, s = 1 - f; this.paint({ x: -box.x * sx * s, y: -box.y * sy * s, sx: 1 + (sx - 1) * s, sy: 1 + (sy - 1) * s }); }
      else this.paint({ x: box.x * (1 - f), y: box.y * (1 - f), sx: box.w / W + (1 - box.w / W) * f, sy: box.h / H + (1 - box.h / H) * f });
      if (t < 1 && !this.closed) { this.moving = requestAnimationFrame(step); return; }
      this.moving = undefined;
      document.body.dataset.frames = (frames / ((performance.now() - began) / 1000)).toFixed(0);
      this.paint();
    };
    this.moving = requestAnimationFrame(step);
  }
  files(n, which = '') { return count(n ?? 0, which + (this.data.nodes ? 'node' : 'file')); }
  words(b) { return this.by === 'count' ? count(b.c ?? 0, 'file') : size(this.amount(b)); }
  tell() {
    const d = this.data;
    if (!d) return;
    this.what.textContent = d.nodes ? `${size(d.box.z)} in ${this.files(d.box.c)}; shared content counts once, for its first node` + (d.lost ? '; some is missing because of damage' : '')
      : `${size(d.box.s)} in ${this.files(d.box.c)}` + (d.box.z !== undefined ? `, ${size(d.box.z)} stored` : '') + (this.boxes.length ? '' : ': nothing here uses space');
    this.legend.replaceChildren(...d.kinds.map((name, k) => [name, k, d.holds[name]]).filter(x => x[2]).sort((a, b) => b[2] - a[2]).map(([name, k, n]) => el('li', {},
      el('button', { type: 'button', class: 'quiet', 'aria-pressed': String(this.only === k), title: 'Show only these', onclick: () => { this.only = this.only === k ? undefined : k; this.tell(); this.paint(); } },
        el('i', { class: 'swatch k' + k, 'aria-hidden': 'true' }), name + ' ', el('span', { class: 'hint' }, size(n))))));
  }
  at(x, y) { return this.boxes?.findLast(b => x >= b.x && x < b.x + b.w && y >= b.y && y < b.y + b.h); }
  /** The top-level box that contains b. */
  branch(b) { return this.tops.find(t => t === b || b.x >= t.x && b.y >= t.y && b.x < t.x + t.w && b.y < t.y + t.h); }
  hover(e) {
    const b = this.at(e.offsetX, e.offsetY);
    if (b !== this.over) { this.over = b; if (!this.moving) this.paint(); }
    this.tip.hidden = !b;
    if (!b) return;
    const x = b.box;
    this.tip.replaceChildren(el('b', {}, b.rest ? `${this.files(x.c, 'other ')} in ${b.path || '/'}` : b.path + (x.dir ? '/' : '')),
      el('span', {}, [size(x.s), x.z !== undefined && `${size(x.z)} stored`, x.dir && this.files(x.c)].filter(Boolean).join(' · ')),
      el('span', {}, (x.dir || b.rest ? 'mostly ' : '') + this.data.kinds[x.h ?? 0]),
      x.health || x.below ? el('span', { class: 'fault' }, x.health ? healthWord(x.health) : `${num(x.below)} damaged inside`) : '');
    const W = this.stage.clientWidth, H = this.stage.clientHeight;
    this.tip.style.left = Math.max(0, Math.min(W - this.tip.offsetWidth - 4, e.offsetX + 14)) + 'px';
    this.tip.style.top = (e.offsetY + 18 + this.tip.offsetHeight > H ? Math.max(0, e.offsetY - this.tip.offsetHeight - 8) : e.offsetY + 18) + 'px';
  }
  open(b) {
    if (b.rest) { if (b.path !== this.dir) go({ path: b.path }); else go({ path: this.dir, tab: 'list', sort: 'size-desc' }); }
    else if (b.box.dir) go({ path: b.path });
    else go({ path: b.path, tab: 'list' });
  }
  mark() {
    const t = this.tops[this.cursor];
    document.body.dataset.sel = t?.path ?? '';
    $('status').textContent = t ? `${t.box.n}${t.box.dir ? '/' : ''}: ${this.words(t.box)}${t.box.dir && this.by !== 'count' ? ', ' + this.files(t.box.c) : ''}` : '';
  }
  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const t = this.tops?.[this.cursor];
    if (e.key === 'Enter' && t) { e.preventDefault(); this.open(t); return; }
    const d = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[e.key];
    if (!t || !d) return;
    e.preventDefault();
    // The nearest box in that direction.
    const mid = r => [r.x + r.w / 2, r.y + r.h / 2], [x, y] = mid(t);
    let least = Infinity;
    this.tops.forEach((b, i) => {
      const [u, v] = mid(b), along = (u - x) * d[0] + (v - y) * d[1], across = Math.abs((u - x) * d[1]) + Math.abs((v - y) * d[0]);
      if (along > 1 && along + 2 * across < least) { least = along + 2 * across; this.cursor = i; }
    });
    this.mark(); this.paint();
  }
}

/** Returns a function that shortens names to the part in which they differ, if they begin alike. */
export function apart(names) {
  const [one] = names;
  let begin = 0, end = 0;
  if (names.length > 2) {
    while (begin < one.length && names.every(n => n[begin] === one[begin])) begin++;
    while (end < one.length - begin && names.every(n => n.length - begin > end && n[n.length - 1 - end] === one[one.length - 1 - end])) end++;
  }
  return name => begin < 3 || begin + end >= name.length ? '' : '…' + name.slice(begin, name.length - end);
}

/** Draws the files that are too small for boxes: a thread between any two, as long as there is room for that. */
function weave(g, n, x, y, w, h, colour) {
  const cols = Math.max(1, Math.round(Math.sqrt(n * w / h))), rows = Math.max(1, Math.ceil(n / cols)), dx = Math.max(4, w / cols), dy = Math.max(4, h / rows);
  g.fillStyle = colour;
  for (let at = dx; at < w - 1; at += dx) g.fillRect(x + at - 0.5, y, 1, h);
  for (let at = dy; at < h - 1; at += dy) g.fillRect(x, y + at - 0.5, w, 1);
  const last = n - (rows - 1) * cols;
  if (dx === w / cols && dy === h / rows && last < cols) g.fillRect(x + last * dx, y + h - dy, w - last * dx, dy);
}

/** As much of a text as fits, if necessary without its middle; empty if too little fits. */
function fit(g, text, room) {
  if (g.measureText(text).width <= room) return text;
  let lo = 0, hi = text.length;
  const cut = n => text.slice(0, Math.ceil(n / 2)) + '…' + text.slice(text.length - Math.floor(n / 2));
  while (lo < hi) { const n = (lo + hi + 1) >> 1; if (g.measureText(cut(n)).width <= room) lo = n; else hi = n - 1; }
  return lo < 5 ? '' : cut(lo);
}
