// Reads an index (docs/index.md) in ranges: the names, sizes and places of an archive's entries. It
// needs only a plain file server.
import { decompress } from './fzstd.js';
import { mostOf } from './decode.js';

class Damaged extends Error {
  constructor(message) { super(message); this.code = 'bad-index'; }
}

const table = new Uint32Array(256).map((_, i) => { for (let k = 0; k < 8; k++) i = i & 1 ? i >>> 1 ^ 0x82f63b78 : i >>> 1; return i; });
/** The CRC-32C of bytes. */
function crc32c(b) {
  let c = ~0;
  for (let i = 0; i < b.length; i++) c = table[(c ^ b[i]) & 255] ^ c >>> 8;
  return ~c >>> 0;
}

/** Parses bytes. Missing bytes are an error. */
class Cursor {
  constructor(b, what) { this.b = b; this.at = 0; this.what = what; }
  fail() { throw new Damaged(`${this.what} is invalid`); }
  u8() { if (this.at >= this.b.length) this.fail(); return this.b[this.at++]; }
  /** Reads a number up to 2^53: no archive has more of anything. */
  uvar() {
    let v = 0, f = 1;
    for (let i = 0; i < 8; i++, f *= 128) { const c = this.u8(); v += (c & 127) * f; if (c < 128) return v; }
    return this.fail();
  }
  varint() { const v = this.uvar(); return v % 2 ? -(v + 1) / 2 : v / 2; }
  take(n) { if (n > this.b.length - this.at) this.fail(); this.at += n; return this.b.subarray(this.at - n, this.at); }
  text() { return this.take(this.uvar()); }
  u32() { const p = this.take(4); return (p[0] | p[1] << 8 | p[2] << 16 | p[3] << 24) >>> 0; }
  get more() { return this.at < this.b.length; }
}

const kinds = ['file', 'dir', 'symlink', 'hardlink', 'fifo', 'property'];
const dec = new TextDecoder('utf-8', { fatal: true });
/** Bytes as a string with one character per byte, for comparing names. */
export const raw = b => {
  let s = '';
  if (b.length < 64) { for (let i = 0; i < b.length; i++) s += String.fromCharCode(b[i]); return s; }
  for (let i = 0; i < b.length; i += 8192) s += String.fromCharCode(...b.subarray(i, i + 8192));
  return s;
};
/** A raw string in the form that the command prints: bytes that are not UTF-8 become \xNN. */
export function shown(s) {
  if (/^[\x20-\x5b\x5d-\x7e]*$/.test(s)) return s; // the usual case
  const b = Uint8Array.from(s, c => c.charCodeAt(0));
  try {
    const t = dec.decode(b);
    if (!/[\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]|\\x/.test(t)) return t;
  } catch { /* not UTF-8 */ }
  let out = '';
  for (let i = 0; i < b.length;) {
    let n = b[i] < 0x80 ? 1 : b[i] >= 0xf0 ? 4 : b[i] >= 0xe0 ? 3 : b[i] >= 0xc2 ? 2 : 0, t;
    try { t = n && dec.decode(b.subarray(i, i + n)); } catch { n = 0; }
    if (!n || !t) { out += '\\x' + b[i].toString(16).padStart(2, '0'); i++; continue; }
    if (/[\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/.test(t) || t === '\\' && b[i + 1] === 0x78) for (const c of b.subarray(i, i + n)) out += '\\x' + c.toString(16).padStart(2, '0');
    else out += t;
    i += n;
  }
  return out;
}

const part = s => (s.includes('\0') ? s.replaceAll('\0', '\0\xff') : s) + '\0\x01';
const keyOf = (dir, base, whole) => part(dir) + part(base) + (whole ? '\x01' : '\0');

const mostPage = 16 << 20, tailSize = 32 << 10, mostHeld = 64;

export class Flat {
  /** @param {(off:number, n:number)=>Promise<Uint8Array>} read @param {(n:number)=>Promise<{bytes:Uint8Array,size:number}>} tail */
  constructor(read, tail) { this.readRange = read; this.readTail = tail; this.nodes = new Map(); this.pages = new Map(); }
  static async open(read, tail) { const f = new Flat(read, tail); await f.begin(); return f; }

  async begin() {
    const { bytes, size } = await this.readTail(tailSize);
    this.size = size; this.tail = bytes; this.tailAt = size - bytes.length;
    const end = new Cursor(bytes.subarray(-32), 'the end of the index');
    if (bytes.length < 32 || raw(bytes.subarray(-8)) !== 'holdall2') throw new Damaged('this is not a holdall index');
    const lo = end.u32(), off = lo + end.u32() * 2 ** 32, stored = end.u32(), length = end.u32(), crc = end.u32();
    if (end.u32() !== crc32c(bytes.subarray(-32, -12))) throw new Damaged('the end of the index is damaged');
    try { this.root = JSON.parse(new TextDecoder().decode(await this.page({ off, stored, length, crc }))); } catch (err) { if (err instanceof Damaged) throw err; throw new Damaged('the root of the index is invalid'); }
    const whole = n => Number.isSafeInteger(n) && n >= 0;
    const tree = t => {
      if (!t?.top) return undefined;
      const { items, offset, stored: s, length: l, crc32c: c } = t.top;
      if (![t.depth, items, offset, s, l, c].every(whole) || t.depth > 8) throw new Damaged('the root of the index is invalid');
      return t.depth ? { depth: t.depth, top: { from: 0, items, off: offset, stored: s, length: l, crc: c, first: '' } } : undefined;
    };
    this.rows = tree(this.root.rows); this.proofs = tree(this.root.proofs);
    this.count = this.rows?.top.items ?? 0;
  }
  async bytes(off, n) {
    if (!(n >= 0 && n <= mostPage && off >= 0 && off + n <= this.size)) throw new Damaged('the index points outside itself');
    if (off >= this.tailAt) return this.tail.subarray(off - this.tailAt, off - this.tailAt + n);
    return this.readRange(off, n);
  }
  async page(r) {
    if (r.length > mostPage) throw new Damaged('a page of the index is too long');
    return this.unpack(r, await this.bytes(r.off, r.stored));
  }
  unpack(r, b) {
    if (crc32c(b) !== r.crc) throw new Damaged(`a page of the index is damaged, at ${r.off}`);
    if (!(mostOf(b) <= 2 * mostPage)) throw new Damaged(`a page of the index is invalid, at ${r.off}`);
    let out;
    try { out = decompress(b); } catch (err) { throw new Damaged(`a page of the index cannot be decoded, at ${r.off}: ${err.message}`); }
    if (out.length !== r.length) throw new Damaged(`a page of the index has ${out.length} bytes, expected ${r.length}`);
    return out;
  }
  async node(r) {
    let refs = this.nodes.get(r.off);
    if (refs) return refs;
    const c = new Cursor(await this.page(r), 'a node of the index');
    let from = c.uvar(), off = c.uvar(), last = '';
    refs = [];
    while (c.more) {
      const k = c.uvar(), first = last.slice(0, k) + raw(c.text()), items = c.uvar(), stored = c.uvar(), length = c.uvar(), crc = c.u32();
      if (k > last.length || !items || stored > mostPage || length > mostPage || first < last) throw new Damaged('a node of the index is invalid');
      refs.push({ first, from, items, off, stored, length, crc });
      last = first; from += items; off += stored;
    }
    if (!refs.length || refs[0].from !== r.from || from !== r.from + r.items) throw new Damaged('a node of the index points elsewhere');
    this.nodes.set(r.off, refs);
    return refs;
  }
  /** The page that contains an item, or would contain a key. */
  async leaf(tree, { item, key }) {
    let r = tree.top;
    for (let d = 0; d < tree.depth; d++) {
      const refs = await this.node(r);
      let lo = 0, hi = refs.length - 1;
      while (lo < hi) { const m = (lo + hi + 1) >> 1; if (key !== undefined ? refs[m].first <= key : refs[m].from <= item) lo = m; else hi = m - 1; }
      r = refs[lo];
    }
    return r;
  }
  async rowsOf(r) {
    let rows = this.pages.get(r.off);
    if (!rows) {
      rows = this.decoded(r, await this.page(r));
      this.keep(r, rows);
    }
    return rows;
  }
  decoded(r, page) {
    const rows = decodeRows(page, this.root.chunk);
    if (rows.length !== r.items) throw new Damaged('a page of the index has the wrong number of rows');
    return rows;
  }
  keep(r, rows) {
    this.pages.set(r.off, rows);
    if (this.pages.size > mostHeld) this.pages.delete(this.pages.keys().next().value);
  }
  /** The number of the first row whose key is not less than this one. */
  async seek(key) {
    if (!this.rows) return 0;
    const r = await this.leaf(this.rows, { key }), rows = await this.rowsOf(r);
    let lo = 0, hi = rows.length;
    while (lo < hi) { const m = (lo + hi) >> 1; if (rows[m].key < key) lo = m + 1; else hi = m; }
    return r.from + lo;
  }
  /** Rows [from, to). Adjacent pages are read with one request. */
  async range(from, to) {
    const out = [];
    for (let at = from; at < to;) {
      const refs = [await this.leaf(this.rows, { item: at })];
      for (let bytes = refs[0].stored; ;) {
        const last = refs.at(-1), next = last.from + last.items;
        if (next >= to) break;
        const r = await this.leaf(this.rows, { item: next });
        if (r.off !== last.off + last.stored || bytes + r.stored > 1 << 20) break;
        refs.push(r); bytes += r.stored;
      }
      const held = refs.map(r => this.pages.get(r.off)); // the cache may drop pages before all are read
      if (refs.length > 1 && held.includes(undefined)) {
        const first = refs[0].off, b = await this.bytes(first, refs.at(-1).off + refs.at(-1).stored - first);
        for (const [i, r] of refs.entries()) {
          if (held[i]) continue;
          held[i] = this.decoded(r, this.unpack(r, b.subarray(r.off - first, r.off - first + r.stored)));
          this.keep(r, held[i]);
        }
      }
      for (const [i, r] of refs.entries()) {
        const rows = held[i] ?? await this.rowsOf(r);
        out.push(...rows.slice(Math.max(0, from - r.from), Math.max(0, to - r.from)));
        at = r.from + r.items;
      }
    }
    return out;
  }
  /** The range of the rows of the entries directly in a folder. */
  async folder(dir) {
    const begin = await this.seek(part(dir)), end = await this.seek(dir.replaceAll('\0', '\0\xff') + '\0\x02');
    return [begin, end];
  }
  /** The row of a name, which may be a folder that other names imply. */
  async find(name) {
    const i = name.lastIndexOf('/'), dir = i < 0 ? '' : name.slice(0, i), base = name.slice(i + 1);
    for (const key of [keyOf(dir, base, false), keyOf(dir, base + '/', false), keyOf('', name, true)]) {
      const at = await this.seek(key);
      if (at >= this.count) continue;
      const [row] = await this.range(at, at + 1);
      if (row.key === key) return Object.assign(row, { number: at });
    }
    return undefined;
  }
  /** The digests of the pieces of a content. */
  async sums(row) {
    const n = Math.ceil(row.size / this.root.chunk), out = [];
    while (out.length < n) {
      const r = await this.leaf(this.proofs, { item: row.proof + out.length }), b = await this.page(r);
      if (b.length !== r.items * 32) throw new Damaged('a page of digests is invalid');
      for (let i = row.proof + out.length - r.from; i < r.items && out.length < n; i++) out.push(b.subarray(32 * i, 32 * i + 32));
    }
    return out;
  }
}

/** A row of the index: an entry, or a folder that names imply. There may be a million of them. */
class Row {
  size; mode; owner; group; algo; time; sum; rank; link; attr; fault; own = false; proof; elsewhere = false; extents;
  constructor(kind, dir, base, whole, implied) { this.kind = kind; this.dir = dir; this.base = base; this.whole = whole; this.implied = implied; }
  get key() { return keyOf(this.dir, this.base, this.whole); }
}

/** Parses a page of rows; chunk is the length of the pieces that have digests, if there are any. */
function decodeRows(page, chunk) {
  let c = new Cursor(page, 'a page of the index'), sums;
  if (page[0] === 6) {
    c.u8();
    const n = c.uvar();
    if (n > page.length - c.at) c.fail();
    sums = new Cursor(page.subarray(page.length - n), 'a page of the index');
    const at = c.at;
    c = new Cursor(page.subarray(0, page.length - n), 'a page of the index');
    c.at = at;
  }
  const rows = [], manners = [];
  let dir = '', base = '', volume = 0, end = 0, sec = 0, rank = -1, proof = 0;
  while (c.more) {
    let flags = c.u8();
    if (flags === 7) {
      const k = c.uvar();
      if (k > dir.length) c.fail();
      dir = dir.slice(0, k) + raw(c.text()); base = '';
      flags = c.u8();
    }
    const kind = kinds[flags & 7] ?? c.fail(), k = c.uvar();
    if (k > base.length) c.fail();
    base = base.slice(0, k) + raw(c.text());
    const row = new Row(kind, dir, base, !!(flags & 32), !!(flags & 16));
    rows.push(row);
    if (row.implied) { row.kind = 'dir'; continue; }
    const m = c.uvar();
    if (m === manners.length) {
      const bits = c.u8(), mode = c.uvar(), owner = raw(c.text()), group = raw(c.text()), algo = raw(c.text());
      manners.push({ mode: bits & 1 ? mode : undefined, timed: !!(bits & 2), owner, group, algo, sumLen: c.u8() });
    }
    const how = manners[m] ?? c.fail();
    row.size = c.uvar(); row.mode = how.mode; row.owner = how.owner; row.group = how.group; row.algo = how.algo;
    if (how.timed) { sec += c.varint(); row.time = sec * 1000 + Math.floor(c.uvar() / 1e6); }
    row.sum = (sums ?? c).take(how.sumLen);
    rank = row.rank = rank + 1 + c.varint();
    if (flags & 64) {
      const rare = c.u8();
      if (rare & 1) row.link = raw(c.text());
      if (rare & 2) { row.attr = {}; for (let n = c.uvar(); n > 0; n--) { const key = raw(c.text()); row.attr[key] = raw(c.text()); } }
      if (rare & 4) { c.text(); c.text(); c.u8(); c.text(); c.varint(); c.text(); c.u8(); row.fault = raw(c.text()); }
      row.own = !!(rare & 8);
    }
    if (chunk && row.size > 0 && row.fault === undefined && ['file', 'hardlink', 'property'].includes(kind)) { row.proof = proof + c.varint(); proof = row.proof + Math.ceil(row.size / chunk); }
    if (flags & 128) row.elsewhere = true;
    else if (flags & 8) { row.extents = [{ at: 0, size: row.size, volume, off: end + c.varint(), len: row.size, skip: 0, unit: 0, codec: '' }]; end = row.extents[0].off + row.size; }
    else {
      const x = new Cursor(c.text(), 'a place in the index');
      row.extents = [];
      let at = 0, from = 0, codec = '';
      while (x.more) {
        const bits = x.u8(), e = { volume: x.uvar(), off: from + x.varint(), size: x.uvar(), at, skip: 0, unit: 0 };
        if (bits & 1) e.at += x.varint();
        e.len = bits & 2 ? x.uvar() : e.size;
        if (bits & 4) e.skip = x.uvar();
        if (bits & 8) e.unit = x.uvar();
        if (bits & 32) codec = raw(x.text());
        e.codec = codec;
        if (bits & 16) e.data = x.text();
        at = e.at + e.size; from = e.off + e.len;
        row.extents.push(e);
      }
      const [one, more] = row.extents;
      // The places of the following rows are relative to the end of a single raw run.
      if (one && !more && one.codec === '' && one.at === 0 && one.skip === 0 && one.unit === 0 && one.len === one.size && one.size === row.size && !one.data) { volume = one.volume; end = one.off + one.len; }
    }
  }
  if (sums?.more) c.fail();
  return rows;
}
