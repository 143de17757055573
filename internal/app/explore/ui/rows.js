// A list with any number of rows of one height. Only visible rows have elements.

// Browsers do not support taller elements: the limit is 17.8 million pixels in Firefox, and 33.5
// million in Chromium. In a longer list, a pixel of the scroll bar stands for several rows.
const tallest = 8e6;

export class Rows {
  /**
   * @param {HTMLElement} box scrolls; its existing children stay at its top
   * @param {{height:number, make:()=>HTMLElement, fill:(row:HTMLElement,i:number)=>void, need?:(first:number,end:number)=>void, head?:number}} o
   */
  constructor(box, o) {
    this.box = box; this.o = o; this.total = 0; this.top = 0; this.pool = [];
    this.sizer = document.createElement('div');
    this.sizer.className = 'sizer'; this.sizer.setAttribute('role', 'presentation');
    box.append(this.sizer);
    this.expected = 0;
    this.dead = new AbortController();
    box.addEventListener('scroll', () => {
      if (Math.abs(box.scrollTop - this.expected) >= 1) {
        this.expected = box.scrollTop;
        this.top = this.scaled ? box.scrollTop / Math.max(1, this.tall - this.view) * this.last : box.scrollTop / o.height;
      }
      this.draw();
    }, { passive: true, signal: this.dead.signal });
    box.addEventListener('wheel', e => { // by rows, if the scroll bar is too coarse
      if (!this.scaled || e.ctrlKey) return;
      e.preventDefault();
      this.go(this.top + e.deltaY * (e.deltaMode === 1 ? o.height : e.deltaMode === 2 ? this.view : 1) / o.height);
    }, { passive: false, signal: this.dead.signal });
    this.watch = new ResizeObserver(() => this.resize());
    this.watch.observe(box);
  }
  get head() { return this.o.head ?? 0; }
  get view() { return Math.max(0, this.box.clientHeight - this.head); }
  get fits() { return Math.max(1, Math.floor(this.view / this.o.height)); }
  /** The topmost row when the list is scrolled to its end. */
  get last() { return Math.max(0, this.total - this.view / this.o.height); }
  resize() {
    this.tall = Math.min(this.total * this.o.height, tallest);
    this.scaled = this.total * this.o.height > tallest;
    this.sizer.style.height = this.tall + 'px';
    this.go(this.top);
  }
  set(total, top = 0) { this.total = total; this.top = top; this.resize(); }
  grow(total) { if (total !== this.total) { this.total = total; this.resize(); } else this.draw(); }
  go(top) {
    this.top = Math.min(this.last, Math.max(0, top));
    const at = this.scaled ? this.top / Math.max(1e-9, this.last) * (this.tall - this.view) : this.top * this.o.height;
    this.box.scrollTop = at;
    this.expected = this.box.scrollTop;
    this.draw();
  }
  /** Scrolls so that row i is visible. */
  show(i) {
    if (i < this.top) this.go(i);
    else if (i > this.top + this.view / this.o.height - 1) this.go(i + 1 - this.view / this.o.height);
    else this.draw();
  }
  draw() { this.frame ??= requestAnimationFrame(() => { this.frame = undefined; this.paint(); }); }
  paint() {
    const h = this.o.height, first = Math.floor(this.top), n = Math.max(0, Math.min(Math.ceil(this.view / h) + 1, this.total - first));
    const at = (this.scaled ? this.expected : this.box.scrollTop) - (this.top - first) * h;
    while (this.pool.length < n) {
      const row = this.o.make();
      row.style.height = h + 'px';
      this.pool.push(row); this.box.append(row);
    }
    for (const [k, row] of this.pool.entries()) {
      if (k >= n) { row.hidden = true; continue; }
      row.hidden = false;
      row.style.transform = `translateY(${at + k * h}px)`;
      this.o.fill(row, first + k);
    }
    this.o.need?.(first, first + n);
  }
  row(i) { return this.pool[i - Math.floor(this.top)]; }
  /** Removes the list from its box, which can then be used again. */
  close() {
    this.watch.disconnect();
    this.dead.abort();
    if (this.frame) cancelAnimationFrame(this.frame);
    for (const e of [this.sizer, ...this.pool]) e.remove();
  }
}

/** The pages of a list on the server. Distant pages are dropped, and their requests aborted. */
export class Pages {
  constructor(get, got, page = 200) { this.get = get; this.got = got; this.page = page; this.clear(); }
  clear() { this.stop(); this.pages = new Map(); this.failed = new Set(); }
  /** Aborts all requests. */
  stop() {
    for (const a of this.under?.values() ?? []) a.abort();
    this.under = new Map();
    clearTimeout(this.timer);
  }
  at(i) { return this.pages.get(Math.floor(i / this.page))?.[i % this.page]; }
  need(first, end) {
    const from = Math.floor(first / this.page), to = Math.floor(Math.max(first, end - 1) / this.page);
    for (const [p, a] of this.under) if (p < from - 1 || p > to + 1) { a.abort(); this.under.delete(p); }
    clearTimeout(this.timer);
    let missing = false;
    for (let p = from; p <= to; p++) missing ||= !this.pages.has(p) && !this.under.has(p) && !this.failed.has(p);
    // Fast scrolling must not request every page that passes.
    if (missing) this.timer = setTimeout(() => { for (let p = from; p <= to; p++) this.load(p); }, this.pages.size ? 40 : 0);
  }
  async load(p) {
    if (this.pages.has(p) || this.under.has(p)) return;
    const a = new AbortController(), mine = this.under;
    mine.set(p, a);
    try {
      const got = await this.get(p * this.page, this.page, a.signal);
      if (mine !== this.under) return;
      this.pages.set(p, got);
      if (this.pages.size > 40) for (const k of this.pages.keys()) if (Math.abs(k - p) > 15) this.pages.delete(k);
      mine.delete(p);
      this.got();
    } catch (err) {
      if (mine === this.under) { mine.delete(p); if (err.name !== 'AbortError') { this.failed.add(p); this.got(err); } }
    }
  }
}
