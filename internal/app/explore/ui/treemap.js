// What takes the room in a folder, as boxes.
import { el, ask, size, num, count, join, problem, parent } from './base.js';
import { go, args } from './state.js';

/** Lays boxes of these sizes out in a rectangle, as square as they can be (Bruls and others). */
function squarify(sizes, W, H) {
  const total = sizes.reduce((a, b) => a + b, 0) || 1, area = sizes.map(s => s / total * W * H), out = [];
  let x = 0, y = 0, w = W, h = H, i = 0;
  while (i < area.length) {
    const side = Math.min(w, h);
    if (side < 1) { out.push({ x, y, w: 0, h: 0 }); i++; continue; } // too little to be seen
    let sum = 0, k = i, worst = Infinity;
    while (k < area.length) {
      const s = sum + area[k], now = Math.max(side * side * area[i] / (s * s), s * s / (side * side * Math.max(area[k], 1e-9)));
      if (now > worst) break;
      worst = now; sum = s; k++;
    }
    const thick = sum / side || 0;
    let at = 0;
    for (; i < k; i++) {
      const long = area[i] / thick || 0;
      out.push(w >= h ? { x, y: y + at, w: thick, h: long } : { x: x + at, y, w: long, h: thick });
      at += long;
    }
    if (w >= h) { x += thick; w -= thick; } else { y += thick; h -= thick; }
  }
  return out;
}
const tone = name => { let h = 7; for (const c of name) h = (h * 31 + c.codePointAt(0)) >>> 0; return h % 8; };

export class Treemap {
  constructor(main) {
    this.what = el('p', { class: 'told', role: 'status' });
    this.up = el('button', { type: 'button', onclick: () => go({ path: parent(this.dir) }) }, 'Up');
    this.box = el('div', { class: 'boxes', role: 'group', 'aria-label': 'What takes the room: arrow keys go from box to box, Enter goes in, Backspace out' });
    main.append(el('div', { class: 'treemapped' }, el('div', { class: 'bar' }, this.what, el('div', { class: 'group' }, this.up)), this.box));
    this.watch = new ResizeObserver(() => this.paint());
    this.watch.observe(this.box);
    this.box.addEventListener('keydown', e => this.key(e));
  }
  close() { this.watch.disconnect(); this.under?.abort(); }
  focus() { this.box.querySelector('button')?.focus(); }
  async show(dir) {
    if (dir === this.dir && this.data) return;
    const from = this.dir;
    this.dir = dir;
    this.under?.abort();
    this.under = new AbortController();
    this.what.textContent = 'Adding up…';
    this.up.disabled = !dir;
    try {
      this.data = await ask.json('treemap', args({ path: dir, limit: 200 }), { signal: this.under.signal });
    } catch (err) { if (err.name !== 'AbortError') { this.what.textContent = ''; this.box.replaceChildren(problem(err)); } return; }
    const d = this.data;
    this.what.textContent = `${size(d.bytes)} in ${count(d.files, 'file')}`;
    this.make();
    this.paint();
    const back = from !== undefined && parent(from) === dir ? this.items.find(b => b.path === from) : undefined;
    (back ?? this.items[0])?.el.focus({ preventScroll: true });
    document.body.dataset.boxes = this.items.length;
  }
  make() {
    const d = this.data;
    this.items = d.boxes.map(b => {
      const path = join(this.dir, b);
      const e = el('button', { type: 'button', class: 'box tone' + tone(b.dir ? b.n : b.n.slice(b.n.lastIndexOf('.'))) + (b.dir ? ' dir' : ''), title: `${b.n}\n${size(b.s)}${b.dir ? ', ' + count(b.c ?? 0, 'file') : ''}`, onclick: () => go(b.dir ? { path } : { path, tab: 'list' }) },
        el('span', { class: 'word' }, b.n + (b.dir ? '/' : '')), el('span', { class: 'much' }, size(b.s) + (b.dir ? ` · ${num(b.c ?? 0)}` : '')));
      return { size: b.s, el: e, path };
    });
    if (d.rest > 0) this.items.push({ size: d.rest, el: el('button', { type: 'button', class: 'box rest', disabled: true, title: `${count(d.rest_files, 'other file')}\n${size(d.rest)}` }, el('span', { class: 'word' }, count(d.rest_files, 'other')), el('span', { class: 'much' }, size(d.rest))) });
    this.box.replaceChildren(...this.items.map(b => b.el), ...this.items.length ? [] : [el('p', { class: 'empty' }, 'Nothing here takes any room.')]);
  }
  paint() {
    if (!this.items) return;
    const W = this.box.clientWidth, H = this.box.clientHeight;
    squarify(this.items.map(b => b.size), W, H).forEach((r, i) => {
      const s = this.items[i].el.style;
      s.left = r.x + 'px'; s.top = r.y + 'px'; s.width = Math.max(1, r.w - 2) + 'px'; s.height = Math.max(1, r.h - 2) + 'px';
      this.items[i].el.hidden = r.w * r.h < 3;
      this.items[i].rect = r;
      this.items[i].el.classList.toggle('tiny', r.w < 46 || r.h < 20);
      this.items[i].el.classList.toggle('flat', r.h < 40);
    });
  }
  key(e) {
    const i = this.items?.findIndex(b => b.el === document.activeElement) ?? -1;
    const d = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[e.key];
    if (i < 0 || !d) return;
    e.preventDefault();
    // The nearest box that lies that way.
    const mid = r => [r.x + r.w / 2, r.y + r.h / 2], [x, y] = mid(this.items[i].rect);
    let best, least = Infinity;
    for (const b of this.items) {
      const [u, v] = mid(b.rect), along = (u - x) * d[0] + (v - y) * d[1], across = Math.abs((u - x) * d[1]) + Math.abs((v - y) * d[0]);
      if (along > 1 && !b.el.disabled && !b.el.hidden && along + 2 * across < least) { least = along + 2 * across; best = b; }
    }
    best?.el.focus();
  }
}
