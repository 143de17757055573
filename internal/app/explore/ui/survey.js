// The survey of an archive for a page without a holdall server. It reads the index once, and keeps
// the data for the treemap and the sizes of folders in columns.
import { shown } from './flat.js';
import { kindNames, kindOf } from './kinds.js';

const hasContent = ['file', 'hardlink', 'property'], maxDepth = 64;
/** The number of rows read at a time when all rows are read. */
export const step = 65536;
/** The name of a row in its folder. In an implied folder's row, the name ends in a slash. */
export const baseOf = r => r.implied ? r.base.slice(0, -1) : r.base;
/**
 * The stored size of an extent. If other contents share its record, this is the content's share.
 */
const storedOf = x => x.unit > x.size ? x.len * x.size / x.unit : x.codec === 'zero' ? 0 : x.len;

/** Amounts of something. */
class Tally {
  bytes = 0; files = 0; stored = 0; holds = new Float64Array(kindNames.length);
  add(t, sign = 1) { this.bytes += sign * t.bytes; this.files += sign * t.files; this.stored += sign * t.stored; t.holds.forEach((n, k) => { this.holds[k] += sign * n; }); return this; }
  of(by) { return by === 'stored' ? this.stored : by === 'count' ? this.files : this.bytes; }
  get most() { return this.holds.indexOf(Math.max(...this.holds)); }
}

export class Survey {
  /** flat is the index. */
  constructor(flat) {
    this.flat = flat; this.ids = new Map([['', 0]]); this.paths = ['']; this.parents = [0]; this.sums = [new Tally()];
    const n = flat.count;
    this.files = 0; this.bases = []; this.whole = new Set();
    this.folder = new Uint32Array(n); this.size = new Float64Array(n); this.stored = new Float64Array(n); this.kind = new Uint8Array(n);
  }
  /** Reads all rows. It calls each with every file and its number. */
  async gather(each) {
    let dir, id = 0;
    for (let at = 0; at < this.flat.count; at += step) {
      for (const r of await this.flat.range(at, Math.min(this.flat.count, at + step))) {
        if (r.implied || !hasContent.includes(r.kind)) continue;
        if (r.dir !== dir || r.whole) { dir = r.whole ? undefined : r.dir; id = this.idOf(dir ?? ''); }
        const i = this.files++, k = kindOf(r.base), stored = (r.extents ?? []).reduce((sum, x) => sum + storedOf(x), 0), t = this.sums[id];
        this.bases.push(r.base); this.folder[i] = id; this.size[i] = r.size; this.stored[i] = stored; this.kind[i] = k;
        if (r.whole) this.whole.add(i);
        t.bytes += r.size; t.files++; t.stored += stored; t.holds[k] += r.size;
        each?.(r, i);
      }
    }
    for (let k = this.paths.length - 1; k > 0; k--) this.sums[this.parents[k]].add(this.sums[k]); // a folder's number is larger than its parent's
    return this;
  }
  idOf(path) {
    let id = this.ids.get(path);
    if (id !== undefined) return id;
    const i = path.lastIndexOf('/'), up = this.idOf(i < 0 ? '' : path.slice(0, i));
    this.ids.set(path, id = this.paths.length);
    this.paths.push(path); this.parents.push(up); this.sums.push(new Tally());
    return id;
  }
  pathOf(i) { const dir = this.paths[this.folder[i]]; return shown(dir && !this.whole.has(i) ? dir + '/' + this.bases[i] : this.bases[i]); }
  /** The amounts below a folder. */
  below(path) { const id = this.ids.get(path); return id === undefined ? undefined : this.sums[id]; }
  /** Responds as the server does, with everything that takes at least 1/limit of a folder. */
  treemap(dir, by, limit = 1200) {
    const id = this.ids.get(dir), totals = {};
    const box = (n, t, more) => ({ n, s: t.bytes, z: Math.round(t.stored), c: t.files, h: t.most, ...more });
    if (id === undefined) return { box: { n: '', dir: true, s: 0 }, holds: totals, kinds: kindNames, stored: true };
    const name = path => shown(path.slice(path.lastIndexOf('/') + 1)), least = Math.max(1, this.sums[id].of(by) / limit), list = new Map();
    const open = (k, depth) => { const f = { depth, rest: new Tally().add(this.sums[k]), box: box(name(this.paths[k]), this.sums[k], { dir: true, boxes: [] }) }; list.set(k, f); return f; };
    const put = (up, made, t) => { up.box.boxes.push(made); up.rest.add(t, -1); n++; };
    const top = open(id, 0), column = by === 'stored' ? this.stored : this.size;
    let n = 0;
    for (let k = id + 1; k < this.paths.length && n < limit; k++) {
      const up = list.get(this.parents[k]);
      if (up && up.depth < maxDepth && this.sums[k].of(by) >= least) put(up, open(k, up.depth + 1).box, this.sums[k]);
    }
    for (let i = 0; i < this.files && n < limit && !(by === 'count' && least > 1); i++) { // each file counts as one
      const up = list.get(this.folder[i]);
      if (!up || by !== 'count' && column[i] < least) continue;
      const t = Object.assign(new Tally(), { bytes: this.size[i], files: 1, stored: this.stored[i] });
      t.holds[this.kind[i]] = t.bytes;
      put(up, box(shown(this.bases[i]), t, this.whole.has(i) ? { whole: true } : {}), t);
    }
    for (const f of list.values()) {
      if (f.rest.of(by) >= 0.5) f.box.rest = box('', f.rest);
      if (!f.box.boxes.length) delete f.box.boxes;
    }
    this.sums[id].holds.forEach((bytes, k) => { if (bytes > 0) totals[kindNames[k]] = bytes; });
    return { box: top.box, holds: totals, kinds: kindNames, stored: true };
  }
}
