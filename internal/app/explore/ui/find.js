// A search of names in a page without a holdall server. It keeps the numbers of the rows that it
// finds, and few rows themselves.
import { raw, shown } from './flat.js';
import { bytesOf } from './base.js';
import { kindNames, kindOf } from './kinds.js';
import { step, baseOf } from './survey.js';

const patience = 3000; // ms for which it goes on if nobody asks
const soon = 250; // ms after which it tells what it has
const most = 5000; // rows that are kept, and so can be sorted by size and time

/** Whether a row is searched for. */
export function finder({ q = '', kind, min, max, since, until }) {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean), k = kindNames.indexOf(kind), set = v => v !== undefined && v !== '';
  const least = (n, v) => !set(v) || n >= Number(v);
  return (row, path) => (!set(min) && !set(max) || row.kind !== 'dir' && least(row.size, min) && (!set(max) || row.size <= Number(max)))
    && (!set(since) && !set(until) || row.time !== undefined && least(row.time, since) && (!set(until) || row.time < Number(until)))
    && (!kind || (kind === 'folders' ? row.kind === 'dir' : row.kind !== 'dir' && kindOf(row.base) === k))
    && (name => words.every(w => name.includes(w)))(path.toLowerCase());
}

export class Search {
  flat; q; at; kept; complete; begin; error; orders;
  /** Unless all names are to be read at once, names that begin with the text are enough, if there are any. */
  constructor(flat, key, q, { all }) {
    Object.assign(this, { flat, key, q, at: [], kept: new Map(), complete: false, begin: undefined, error: undefined, orders: new Map() });
    this.asked = performance.now();
    this.done = (all || q.kind || q.min || q.max || q.since || q.until ? this.scan() : this.prefix()).catch(err => { this.error = err.message; })
      .finally(() => { this.complete = true; this.orders.clear(); });
  }
  end() { this.ended = true; }
  /** Waits until it is complete, or for a moment. */
  async some() {
    this.asked = performance.now();
    if (!this.complete) await Promise.race([this.done, new Promise(f => setTimeout(f, soon))]);
  }
  async prefix() {
    const text = raw(Uint8Array.from(bytesOf(this.q.q.trim()))), i = text.lastIndexOf('/'), quoted = s => s.replaceAll('\0', '\0\xff');
    const key = quoted(i < 0 ? '' : text.slice(0, i)) + '\0\x01' + quoted(text.slice(i + 1)), end = after(key);
    const from = await this.flat.seek(key), to = end === undefined ? this.flat.count : await this.flat.seek(end);
    if (from === to) return this.scan();
    this.begin = true;
    const rows = to - from <= most ? await this.flat.range(from, to) : [];
    for (let n = from; n < to; n++) this.add(rows[n - from], n);
  }
  async scan() {
    const finds = finder(this.q);
    for (let at = 0; at < this.flat.count; at += step) {
      for (const [k, r] of (await this.flat.range(at, Math.min(this.flat.count, at + step))).entries()) {
        if (finds(r, shown((r.dir ? r.dir + '/' : '') + baseOf(r)))) this.add(r, at + k);
      }
      this.orders.clear();
      if (this.ended || performance.now() - this.asked > patience) throw new Error('ended before all names were searched');
    }
  }
  add(r, n) {
    this.at.push(n);
    if (this.at.length > most || !r) this.kept = undefined;
    this.kept?.set(n, r);
  }
  /** The numbers of the rows in an order. That of the index is by names. */
  order(sort, way) {
    const { kept } = this, by = kept && { size: r => r.size ?? 0, time: r => r.time ?? -Infinity }[sort], id = by ? sort + way : way;
    if (!this.orders.has(id)) {
      const list = [...this.at];
      if (by) list.sort((a, b) => { const x = by(kept.get(a)), y = by(kept.get(b)); return x < y ? -1 : x > y ? 1 : a - b; });
      if (way === 'desc') list.reverse();
      this.orders.set(id, list);
    }
    return this.orders.get(id);
  }
  /** The rows of these numbers. Those that follow each other are read at once. */
  async rows(numbers) {
    if (this.kept) return numbers.map(n => this.kept.get(n));
    const out = [];
    for (let i = 0; i < numbers.length;) {
      let n = 1;
      while (numbers[i + n] === numbers[i] + n) n++;
      out.push(...await this.flat.range(numbers[i], numbers[i] + n));
      i += n;
    }
    return out;
  }
}

/** The least key after all that begin with this one, if there is one. */
function after(key) {
  const k = key.replace(/\xff+$/, '');
  return k && k.slice(0, -1) + String.fromCharCode(k.charCodeAt(k.length - 1) + 1);
}
