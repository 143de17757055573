// A list as tiles, several in a row. It has the same methods as Rows.
import { Rows } from './rows.js';

const wide = 168, high = 196;

export class Tiles {
  /** o.make makes a tile, o.fill fills it with item i; item o.chosen() stays in view. */
  constructor(box, o) {
    this.box = box; this.o = o; this.count = 0;
    this.cols = this.fitting();
    this.rows = new Rows(box, { height: high, head: o.head, make: () => { const row = document.createElement('div'); row.setAttribute('role', 'row'); row.className = 'tiles'; return row; },
      fill: (row, i) => this.fill(row, i), need: (a, b) => o.need(a * this.cols, Math.min(this.count, b * this.cols)) });
    this.watch = new ResizeObserver(() => {
      const cols = this.fitting(), top = this.top, chosen = this.o.chosen(), seen = chosen >= top - this.cols && chosen <= top + this.fits + this.cols;
      if (cols === this.cols) return;
      this.cols = cols;
      this.rows.set(Math.ceil(this.count / cols), top / cols);
      if (chosen >= 0 && seen) this.show(chosen);
    });
    this.watch.observe(box);
  }
  fitting() { return Math.max(2, Math.floor((this.box.clientWidth - 16) / wide)); }
  get total() { return this.count; }
  get top() { return this.rows.top * this.cols; }
  set top(i) { this.rows.top = i / this.cols; }
  get fits() { return this.rows.fits * this.cols; }
  set(n, top = 0) { this.count = n; this.rows.set(Math.ceil(n / this.cols), top / this.cols); }
  grow(n) { this.count = n; this.rows.grow(Math.ceil(n / this.cols)); }
  show(i) { this.rows.show(Math.floor(i / this.cols)); }
  draw() { this.rows.draw(); }
  close() { this.watch.disconnect(); this.rows.close(); }
  fill(row, r) {
    row.style.gridTemplateColumns = `repeat(${this.cols}, minmax(0, 1fr))`;
    row.setAttribute('aria-rowindex', r + 2);
    while (row.children.length < this.cols) row.append(this.o.make());
    for (const [k, tile] of [...row.children].entries()) {
      const i = r * this.cols + k;
      tile.hidden = k >= this.cols || i >= this.count;
      if (!tile.hidden) this.o.fill(tile, i);
    }
  }
}
