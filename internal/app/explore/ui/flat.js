// Reads an index (docs/bytes/index.md) in ranges: the names, sizes and places of an archive's
// entries. It needs only a plain file server.

class Damaged extends Error {
  constructor(message) { super(message); this.code = 'bad-index'; }
}

const table = new Uint32Array(256).map((_, i) => { for (let k = 0; k < 8; k++) i = i & 1 ? i >>> 1 ^ 0xedb88320 : i >>> 1; return i; });
/** The CRC-32 of bytes. */
function crc32(b) {
  let c = ~0;
  for (let i = 0; i < b.length; i++) c = table[(c ^ b[i]) & 255] ^ c >>> 8;
  return ~c >>> 0;
}

export const hexOf = b => [...b].map(x => x.toString(16).padStart(2, '0')).join('');

/** Parses bytes. Missing bytes are an error. */
class Cursor {
  constructor(b, what) { this.b = b; this.at = 0; this.what = what; }
  /** @returns {never} */
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
  number(width) { let v = 0; const p = this.take(width); for (let i = width - 1; i >= 0; i--) v = v * 256 + p[i]; return v; }
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

const mostPage = 16 << 20, tailSize = 12 << 10, mostHeld = 128, mostAtOnce = 96 << 10;

export class Flat {
  signed;
  /** @param {(off:number, n:number)=>Promise<Uint8Array>} read @param {(n:number)=>Promise<{bytes:Uint8Array,size:number}>} tail */
  constructor(read, tail) { this.readRange = read; this.readTail = tail; this.nodes = new Map(); this.pages = new Map(); this.asked = new Map(); }
  /** Opens an index. If a root was signed, nothing is read that it does not cover. @param {{root:string, blake3:(b:Uint8Array)=>Uint8Array}=} signed */
  static async open(read, tail, signed) { const f = new Flat(read, tail); f.signed = signed; await f.begin(); return f; }

  async begin() {
    const { bytes, size } = await this.readTail(tailSize);
    this.size = size; this.tail = bytes; this.tailAt = size - bytes.length;
    const end = new Cursor(bytes.subarray(-32), 'the end of the index');
    if (raw(bytes.subarray(-8)) === 'holdall2') throw new Damaged('this index was made by an older holdall');
    if (bytes.length < 32 || raw(bytes.subarray(-8)) !== 'holdall3') throw new Damaged('this is not a holdall index');
    const lo = end.u32(), off = lo + end.u32() * 2 ** 32, stored = end.u32(), length = end.u32(), crc = end.u32();
    if (end.u32() !== crc32(bytes.subarray(-32, -12))) throw new Damaged('the end of the index is damaged');
    const text = await this.page({ off, stored, length, crc, root: true });
    if (this.signed && hexOf(this.signed.blake3(text.subarray(0, text.indexOf(10)))) !== this.signed.root) throw new Damaged('this index is not the one that was signed');
    let lines; // what copies have in common, and what not
    try { lines = new TextDecoder().decode(text).split('\n').map(l => JSON.parse(l)); } catch (err) { if (err instanceof Damaged) throw err; throw new Damaged('the root of the index is invalid'); }
    if (lines.some(l => typeof l !== 'object' || !l || Array.isArray(l))) throw new Damaged('the root of the index is invalid');
    this.root = Object.assign({}, ...lines);
    const whole = n => Number.isSafeInteger(n) && n >= 0;
    const tree = t => {
      if (!t?.top) return undefined;
      const { items, offset, stored: s, length: l, crc32: c, blake3: sum } = t.top;
      if (![t.depth, items, offset, s, l, c].every(whole) || t.depth > 8) throw new Damaged('the root of the index is invalid');
      return t.depth ? { depth: t.depth, top: { from: 0, items, off: offset, stored: s, length: l, crc: c, sum, first: '' } } : undefined;
    };
    this.rows = tree(this.root.rows); this.proofs = tree(this.root.proofs);
    this.count = this.rows?.top.items ?? 0;
  }
  async bytes(off, n) {
    if (!(n >= 0 && n <= mostPage && off >= 0 && off + n <= this.size)) throw new Damaged('the index points outside itself');
    if (off >= this.tailAt) return this.tail.subarray(off - this.tailAt, off - this.tailAt + n);
    return this.readRange(off, n);
  }
  /** Reads a page. Those who want it at the same time share one request. */
  page(r) {
    const asked = this.asked.get(r.off) ?? this.read(r).finally(() => this.asked.delete(r.off));
    this.asked.set(r.off, asked);
    return asked;
  }
  async read(r) {
    if (r.length > mostPage) throw new Damaged('a page of the index is too long');
    return this.unpack(r, await this.bytes(r.off, r.stored));
  }
  unpack(r, b) {
    if (crc32(b) !== r.crc) throw new Damaged(`a page of the index is damaged, at ${r.off}`);
    if (this.signed && !r.root && hexOf(this.signed.blake3(b)) !== r.sum) throw new Damaged(`a page of the index is not what was signed, at ${r.off}`);
    if (b.length !== r.length) throw new Damaged(`a page of the index has ${b.length} bytes, expected ${r.length}`);
    return b;
  }
  async node(r) {
    let refs = this.nodes.get(r.off);
    if (refs) return refs;
    const c = new Cursor(await this.page(r), 'a node of the index');
    let from = c.uvar(), off = c.uvar(), last = '';
    refs = [];
    while (c.more) {
      const k = c.uvar(), first = last.slice(0, k) + raw(c.text()), items = c.uvar(), stored = c.uvar(), length = c.uvar() || stored, crc = c.u32();
      const sum = this.root.sealed ? hexOf(c.take(32)) : undefined;
      if (k > last.length || !items || stored > mostPage || length > mostPage || first < last) throw new Damaged('a node of the index is invalid');
      refs.push({ first, from, items, off, stored, length, crc, sum });
      last = first; from += items; off += stored;
    }
    if (!refs.length || refs[0].from !== r.from || from !== r.from + r.items) throw new Damaged('a node of the index points elsewhere');
    this.nodes.set(r.off, refs);
    return refs;
  }
  /** The page that contains an item, or would contain a key. @param {any} tree @param {{item?:number, key?:string}} $1 */
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
    if (rows) return rows;
    const { depth } = this.rows, first = depth === 1 && await this.leaf(this.rows, { item: 0 }), last = first && await this.leaf(this.rows, { item: this.count - 1 });
    if (first && first.off < last.off && last.off + last.stored - first.off <= mostAtOnce) { // of a short index, all pages with one request
      await this.range(0, this.count);
      rows = this.pages.get(r.off);
    }
    if (!rows) {
      const page = await this.page(r);
      rows = this.pages.get(r.off) ?? this.decoded(r, page);
      this.keep(r, rows);
    }
    return rows;
  }
  decoded(r, page) {
    const rows = decodeRows(page, this.root.chunk, this.root.volumes?.length ?? 0);
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
    if (row.proof < 0) return [row.sum]; // that of the entry
    while (out.length < n) {
      const r = await this.leaf(this.proofs, { item: row.proof + out.length }), b = await this.page(r);
      if (b.length !== r.items * 32) throw new Damaged('a page of digests is invalid');
      for (let i = row.proof + out.length - r.from; i < r.items && out.length < n; i++) out.push(b.subarray(32 * i, 32 * i + 32));
    }
    return out;
  }
}

/** Whether each piece of a content has a digest. */
export const inPieces = (row, chunk) => !!chunk && row.proof !== undefined && row.fault === undefined;
/** Which bytes of a content are read to compare those from off to end with digests; undefined if they are not compared. */
export function compared(row, chunk, off, end) {
  if (inPieces(row, chunk)) return [off - off % chunk, Math.min(row.size, Math.ceil(end / chunk) * chunk)];
  return row.algo === 'blake3' && (row.size <= 1 << 20 || end - off === row.size) ? [0, row.size] : undefined;
}

/** A row of the index: an entry, or a folder that names imply. There may be a million of them. */
class Row {
  size; mode; owner; group; algo; time; sum; rank; link; attr; fault; own = false; proof; elsewhere = false; extents;
  constructor(kind, dir, base, whole, implied) { this.kind = kind; this.dir = dir; this.base = base; this.whole = whole; this.implied = implied; }
  get key() { return keyOf(this.dir, this.base, this.whole); }
}

const invalid = 'a page of the index', blockRows = 64;
const implied = 8, whole = 16, placed = 32, moded = 64, timed = 128, ask = 256, coded = 512, filled = 1024, faulty = 2048, proven = 4096;

/** A column of a block: a number for each row. Numbers beyond 2^53 are inexact; no archive has them. */
class Column {
  least = 0; start = 0; width = 0; chained = false; data; at = 0;
  head(c) {
    const b = c.u8();
    this.width = b & 15; this.chained = !!(b & 16);
    this.least = c.varint();
    if (this.chained) this.start = c.varint();
    if (this.width > 8 || b > 31) c.fail();
  }
  /** The value of row i; step leads to the row after it. */
  value(i, step) {
    let v = this.least;
    if (this.width) { let n = 0; for (let k = this.width, at = this.at + i * this.width; k-- > 0;) n = n * 256 + this.data[at + k]; v += n; }
    if (this.chained) { v += this.start; this.start = v + step; }
    return v;
  }
}

/** Parses a page of rows; chunk is the length of the pieces that have digests, if there are any. */
function decodeRows(page, chunk, volumes) {
  const c = new Cursor(page, invalid), n = c.uvar(), hows = [], ends = [], rows = [];
  for (let k = c.uvar(); k > 0; k--) {
    const bits = c.number(2), how = { bits, kind: kinds[bits & 7] ?? c.fail(), mode: c.uvar() };
    how.owner = raw(c.text()); how.group = raw(c.text()); how.algo = raw(c.text()); how.sumLen = c.u8();
    how.volume = c.uvar(); how.codec = raw(c.text());
    if (bits & placed && how.volume >= volumes) c.fail();
    hows.push(how);
  }
  for (let k = 0; k < n; k += blockRows) ends.push(c.u32());
  const blocks = ends.map((end, k) => c.take(end - (ends[k - 1] ?? 0))), sums = c.take(page.length - c.at);
  for (const [k, block] of blocks.entries()) decodeBlock(new Cursor(block, invalid), Math.min(blockRows, n - k * blockRows), hows, sums, chunk, rows);
  return rows;
}

/** Parses a block of n rows. */
function decodeBlock(c, n, hows, sums, chunk, rows) {
  c.u8();
  let name = raw(c.text()), sumAt = c.uvar();
  const long = c.uvar(), mask = c.number(2), cols = [];
  for (let k = 0; k < 13; k++) { cols.push(new Column()); if (mask >> k & 1) cols[k].head(c); }
  for (const col of cols) { col.data = c.b; col.at = c.at; c.take(col.width * n); }
  const texts = new Cursor(c.take(long), invalid);
  const [shared, rest, howOf, sizes, offs, stored, skips, units, secs, nanos, ranks, firsts, rares] = cols;
  for (let i = 0; i < n; i++) {
    if (i) { const k = shared.value(i, 0); if (k > name.length) c.fail(); name = name.slice(0, k) + raw(texts.take(rest.value(i, 0))); }
    const how = hows[howOf.value(i, 0)] ?? c.fail(), is = bit => !!(how.bits & bit);
    const slash = is(whole) ? -1 : name.lastIndexOf('/', name.length - 2);
    const row = new Row(how.kind, name.slice(0, Math.max(slash, 0)), name.slice(slash + 1), is(whole), is(implied));
    rows.push(row);
    const rare = new Cursor(c.take(rares.value(i, 0)), invalid);
    if (row.implied) { row.kind = 'dir'; continue; }
    row.size = sizes.value(i, 0); row.owner = how.owner; row.group = how.group; row.algo = how.algo;
    if (is(moded)) row.mode = how.mode;
    if (is(timed)) row.time = secs.value(i, 0) * 1000 + Math.floor(nanos.value(i, 0) / 1e6);
    if (how.sumLen > sums.length - sumAt) c.fail();
    row.sum = sums.subarray(sumAt, sumAt += how.sumLen);
    row.rank = ranks.value(i, 1);
    if (is(proven)) row.proof = -1;
    else if (chunk && row.size > 0 && !is(faulty) && ['file', 'hardlink', 'property'].includes(row.kind)) row.proof = firsts.value(i, Math.ceil(row.size / chunk));
    row.elsewhere = is(ask);
    row.extents = [];
    if (is(placed)) {
      const len = is(coded) ? stored.value(i, 0) : row.size, skip = is(coded) ? skips.value(i, row.size) : 0;
      row.extents.push({ at: 0, size: row.size, volume: how.volume, off: offs.value(i, len), len, skip, unit: !is(coded) ? 0 : is(filled) ? row.size : units.value(i, 0), codec: how.codec });
    }
    if (rare.more) decodeRare(rare, row);
    for (const e of row.extents) if (!(e.off >= 0 && e.len >= 0 && e.at >= 0 && e.skip >= 0)) c.fail();
    if (!(row.size >= 0)) c.fail();
  }
}

/** Parses what few rows have. */
function decodeRare(c, row) {
  const rare = c.u8();
  if (rare & 1) row.link = raw(c.text());
  if (rare & 2) { row.attr = {}; for (let n = c.uvar(); n > 0; n--) { const key = raw(c.text()); row.attr[key] = raw(c.text()); } }
  if (rare & 4) { c.text(); c.text(); c.u8(); c.text(); c.varint(); c.text(); c.u8(); row.fault = raw(c.text()); }
  row.own = !!(rare & 8);
  let at = 0, from = 0, codec = '';
  while (rare & 16 && c.more) {
    const bits = c.u8(), e = { volume: c.uvar(), off: from + c.varint(), size: c.uvar(), at, skip: 0, unit: 0 };
    if (bits & 1) e.at += c.varint();
    e.len = bits & 2 ? c.uvar() : e.size;
    if (bits & 4) e.skip = c.uvar();
    if (bits & 8) e.unit = c.uvar();
    if (bits & 32) codec = raw(c.text());
    e.codec = codec;
    if (bits & 16) e.data = c.text();
    at = e.at + e.size; from = e.off + e.len;
    row.extents.push(e);
  }
}
