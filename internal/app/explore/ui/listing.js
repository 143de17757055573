// The rows of a list: of a folder, of the names that a search finds, or of the lines that have a text.
// It knows nothing of the page's elements. What is shown tells it when it ends.
import { ask, join } from './base.js';
import { Pages } from './rows.js';

/** The part of a folder's bytes that a row has; undefined if that is not known. */
export const shareOf = (r, all) => all?.s > 0 && r.s !== undefined ? Math.min(1, r.s / all.s) : undefined;

/** Rows that the server has in order. Any of them can be asked for. */
export class Listing {
  shown; request; args; dir; changed;
  /** @type {Partial<Rows> & { total: number, complete: boolean }} */
  state;
  /**
   * request and args ask for the rows of dir; changed is called when there is more to show, or with
   * an error.
   */
  constructor(shown, { request, args, dir = '' }, changed) {
    Object.assign(this, { shown, request, args, dir, changed });
    this.state = { total: 0, complete: false };
    this.has = {}; // which properties any row had so far
    this.pages = new Pages((offset, limit, signal) => this.page(offset, limit, signal), changed);
    shown.signal.addEventListener('abort', () => this.pages.stop(), { once: true });
  }
  get total() { return this.state.total; }
  at(i) { return this.pages.at(i); }
  pathOf(row) { return join(this.dir, row); }
  need(first, end) { if (!this.shown.ended) this.pages.need(first, end); }
  /** The number of a row, if it was loaded. */
  index(path) {
    for (const [p, items] of this.pages.pages) {
      const k = items.findIndex(r => this.pathOf(r) === path);
      if (k >= 0) return p * this.pages.page + k;
    }
    return -1;
  }
  /** The number of the row of a path, wherever it is. */
  async place(path) {
    const i = this.index(path);
    return i >= 0 ? i : (await this.shown.json(this.request, { ...this.args, limit: 0, find: path })).at ?? -1;
  }
  async load() {
    const items = await this.page(0, this.pages.page, this.shown.signal);
    this.pages.pages.set(0, items);
    this.changed();
  }
  /** Loads the first n rows. */
  async upTo(n) {
    const { page, pages } = this.pages;
    for (let p = 0; p * page < Math.min(n, this.total); p++) {
      if (!pages.has(p)) pages.set(p, await this.page(p * page, page, this.shown.signal));
    }
  }
  /** Forgets the rows, which are different now. */
  renew() { if (!this.shown.ended) { this.pages.clear(); this.changed(); } }
  async page(offset, limit, signal) {
    const r = await ask.json(this.request, { ...this.args, offset, limit }, { signal });
    this.took(r);
    return r.items;
  }
  /** @param {Rows} rows */
  took({ items, ...state }) {
    this.state = state;
    for (const r of items) for (const k of ['c', 's', 't']) if (r[k] !== undefined) this.has[k] = true;
    this.changed();
    if (!state.complete) this.wait ??= this.shown.later(300, () => this.more());
  }
  /** Asks how many rows are known so far. When all are, they have an order. */
  async more() {
    this.wait = undefined;
    await this.shown.attempt(async () => {
      this.took(await this.shown.json(this.request, { ...this.args, limit: 0 }));
      if (this.state.complete) this.renew();
    }, this.changed);
  }
}

/** Lines of contents, as they are found. */
export class Lines {
  shown; args; changed; hits; has = {};
  constructor(shown, { args }, changed) {
    Object.assign(this, { shown, args, changed, hits: [] });
    this.state = { total: 0, complete: false, files: 0, bytes: 0, found: 0 };
  }
  get total() { return this.hits.length; }
  at(i) { return this.hits[i]; }
  pathOf(row) { return row.p; }
  need() {}
  index(path) { return this.hits.findIndex(h => h.p === path); }
  async place(path) { return this.index(path); }
  async upTo() {}
  renew() {}
  async load() {
    for await (const x of lines(await this.shown.raw('grep', { ...this.args, limit: 500 }))) {
      if (this.shown.ended) return;
      if (x.p !== undefined) this.hits.push(x);
      else this.state = { ...x, complete: !!x.end };
      this.changed();
    }
  }
}

/** The lines of a response as they arrive, each parsed as JSON. */
async function* lines(r) {
  let rest = '';
  const text = r.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await text.read();
    if (done) return;
    const all = (rest + value).split('\n');
    rest = all.pop();
    for (const line of all) yield JSON.parse(line);
  }
}
