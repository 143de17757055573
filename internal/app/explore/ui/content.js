// The bytes of an entry, by ranges.
import { ask, Failed } from './base.js';
import { args, urlOf, usual } from './state.js';

export class Content {
  constructor(entry) {
    this.entry = entry; this.size = entry.size; this.dead = new AbortController();
    // Other views, and names that a URL cannot represent, are read through the API.
    this.url = usual() && !entry.odd ? urlOf(entry.path) : undefined;
  }
  close() { this.dead.abort(); }
  async read(off, n) {
    n = Math.min(n, this.size - off);
    if (n <= 0) return new Uint8Array();
    const signal = this.dead.signal;
    if (!this.url) return new Uint8Array(await (await ask.raw('content', args({ path: this.entry.path, off, n }), { signal })).arrayBuffer());
    const r = await fetch(this.url, { headers: { Range: `bytes=${off}-${off + n - 1}` }, signal });
    if (r.status !== 206 && !(r.status === 200 && off === 0 && n === this.size)) {
      r.body?.cancel();
      const why = r.status >= 500 || r.status === 422 ? 'cannot be read: the file or its archive is damaged' : 'the server responds with status ' + r.status;
      throw new Failed('unreadable', why);
    }
    return new Uint8Array(await r.arrayBuffer());
  }
  /** Reads everything, up to most bytes. */
  async all(most) {
    if (this.size > most) throw new Failed('large', 'too large to show as a whole');
    const b = new Uint8Array(this.size), step = 1 << 20;
    for (let at = 0; at < this.size; at += step) b.set(await this.read(at, step), at);
    return b;
  }
  /** An address for <img> and the like. */
  async address(type, most) { return this.url ?? URL.createObjectURL(new Blob([await this.all(most)], { type })); }
}
