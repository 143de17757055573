// Decodes stored bytes to contents, for the codecs of holdall's formats that a page can support.
// Sizes from an archive are checked before memory is allocated.
import { Failed } from './base.js';
import { decompress } from './fzstd.js';

/** The largest unit that is decoded, in bytes. */
export const mostUnit = 64 << 20;
const mostWindow = 128 << 20; // the largest window of zstd

const bad = what => new Failed('bad-data', 'cannot be decoded: ' + what);

/**
 * The end of the zstd frame at a place, and its maximum decoded length; undefined if it is not a
 * frame.
 */
function frame(b, at) {
  const magic = b[at] | b[at + 1] << 8 | b[at + 2] << 16 | b[at + 3] << 24;
  if (b.length - at >= 8 && magic >>> 4 === 0x184d2a5) return { end: at + 8 + (b[at + 4] | b[at + 5] << 8 | b[at + 6] << 16) + b[at + 7] * 2 ** 24, most: 0 };
  if (b.length - at < 6 || magic !== (0xfd2fb528 | 0)) return undefined;
  const d = b[at + 4], single = d >> 5 & 1, n = [single, 2, 4, 8][d >> 6];
  if (!single && (8 + (b[at + 5] & 7)) * 2 ** (7 + (b[at + 5] >> 3)) > mostWindow) return undefined;
  at += 5 + (single ? 0 : 1) + [0, 1, 2, 4][d & 3];
  let said = n ? 0 : undefined, blocks = 0;
  for (let i = n - 1; i >= 0; i--) said = said * 256 + b[at + i];
  if (n === 2) said += 256;
  at += n;
  for (let last = 0; !last;) {
    if (at + 3 > b.length) return undefined;
    const head = b[at] | b[at + 1] << 8 | b[at + 2] << 16, type = head >> 1 & 3, size = head >> 3;
    last = head & 1;
    at += 3 + (type === 1 ? 1 : size);
    blocks += type === 2 ? 128 << 10 : size;
  }
  return said > blocks ? undefined : { end: at + (d & 4), most: said ?? blocks };
}
/**
 * The maximum decoded length of zstd frames, from their headers or their blocks; NaN if they are
 * invalid.
 */
export function mostOf(b) {
  let sum = 0;
  for (let at = 0, f; at < b.length; at = f.end) {
    f = frame(b, at);
    if (!f) return NaN;
    sum += f.most;
  }
  return sum;
}
function zstd(b) {
  if (!(mostOf(b) <= mostUnit)) throw bad('not zstd, or too large');
  try { return decompress(b); } catch (err) { throw bad(err.message); }
}
/** Decodes blocks that are stored without the header and the end of their frame. */
function blocks(b) {
  const whole = new Uint8Array(6 + b.length + 3);
  whole.set([0x28, 0xb5, 0x2f, 0xfd, 0, 13 << 3]); whole.set(b, 6); whole[6 + b.length] = 1; // a window of 8 MiB, and an empty last block
  return zstd(whole);
}

function snappy(b, size) {
  let at = 0, length = 0, n = 0;
  for (let f = 1; ; f *= 128) { const c = b[at++]; if (c === undefined || f > 2 ** 28) throw bad('not snappy'); length += (c & 127) * f; if (c < 128) break; }
  if (length > mostUnit || length < size) throw bad('wrong length');
  const out = new Uint8Array(length);
  while (n < length) {
    const tag = b[at++];
    let l, back = 0;
    if ((tag & 3) === 0) {
      l = tag >> 2;
      if (l >= 60) { const k = l - 59; l = 0; for (let i = 0; i < k; i++) l += b[at++] * 2 ** (8 * i); }
      l++;
      if (!(at + l <= b.length)) throw bad('it ends too soon');
    } else {
      l = (tag & 3) === 1 ? 4 + (tag >> 2 & 7) : 1 + (tag >> 2);
      back = (tag & 3) === 1 ? tag >> 5 << 8 | b[at++] : (tag & 3) === 2 ? b[at] | b[at + 1] << 8 : (b[at] | b[at + 1] << 8 | b[at + 2] << 16 | b[at + 3] << 24) >>> 0;
      at += [0, 0, 2, 4][tag & 3];
      if (!(back > 0 && back <= n && at <= b.length)) throw bad('it refers back too far');
    }
    if (!(l <= length - n)) throw bad('it is longer than its stated length');
    if (!back) { out.set(b.subarray(at, at + l), n); at += l; n += l; } else for (const end = n + l; n < end; n++) out[n] = out[n - back];
  }
  return out;
}

/**
 * The table of a Huffman code. It gives for the next bits 16 times the symbol, plus its number of
 * bits.
 */
function huffman(lengths) {
  const count = new Uint16Array(16), next = new Uint16Array(17);
  for (const l of lengths) count[l]++;
  count[0] = 0;
  let most = 15, room = 1;
  while (most > 1 && !count[most]) most--;
  for (let l = 1; l < 16; l++) { next[l + 1] = next[l] + count[l] << 1; room = 2 * room - count[l]; if (room < 0) throw bad('a Huffman code has too many words'); }
  const table = new Uint16Array(1 << most);
  lengths.forEach((l, symbol) => {
    if (!l) return;
    let code = next[l]++, turned = 0;
    for (let i = 0; i < l; i++, code >>= 1) turned = turned << 1 | code & 1;
    for (; turned < table.length; turned += 1 << l) table[turned] = symbol << 4 | l;
  });
  return table;
}
const steps = (extra, first) => { const base = []; let v = first; for (const e of extra) { base.push(v); v += 1 << e; } return base; };
const lengthBits = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0], lengthBase = steps(lengthBits, 3);
lengthBase[28] = 258;
const backBits = Array.from({ length: 30 }, (_, i) => Math.max(0, (i >> 1) - 1)), backBase = steps(backBits, 1);
const lengthOrder = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
const fixed = [Array.from({ length: 288 }, (_, i) => i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8), new Array(30).fill(5)].map(l => huffman(l));

/**
 * Decodes DEFLATE, starting at b[at], into out, starting at n, until out is full or the stream
 * ends. Bytes after the stream are ignored: records are padded.
 */
function inflate(b, at, out, n) {
  let hold = 0, held = 0;
  const need = k => { while (held < k) { hold |= (b[at++] ?? 0) << held; held += 8; } if (at > b.length + 4) throw bad('it ends too soon'); };
  const bits = k => { need(k); const v = hold & (1 << k) - 1; hold >>>= k; held -= k; return v; };
  const symbol = table => {
    need(15);
    const e = table[hold & table.length - 1], l = e & 15;
    if (!l) throw bad('unknown code word');
    hold >>>= l; held -= l;
    return e >> 4;
  };
  for (let last = 0; !last && n < out.length;) {
    last = bits(1);
    const type = bits(2);
    if (type === 0) {
      at -= held >> 3; hold = held = 0; // give back complete bytes that were not used
      const l = b[at] | b[at + 1] << 8;
      if (!(at + 4 + l <= b.length) || l !== (~(b[at + 2] | b[at + 3] << 8) & 0xffff)) throw bad('invalid stored block');
      at += 4;
      const some = b.subarray(at, at + Math.min(l, out.length - n));
      out.set(some, n); n += some.length; at += l;
      continue;
    }
    let [words, backs] = fixed;
    if (type === 2) {
      const nw = 257 + bits(5), nb = 1 + bits(5), nl = 4 + bits(4), lengths = new Array(19).fill(0), all = [];
      for (let i = 0; i < nl; i++) lengths[lengthOrder[i]] = bits(3);
      const table = huffman(lengths);
      while (all.length < nw + nb) {
        const s = symbol(table);
        if (s < 16) { all.push(s); continue; }
        if (s === 16 && !all.length) throw bad('invalid repeat in a Huffman code');
        const v = s === 16 ? all.at(-1) : 0;
        for (let k = s === 16 ? 3 + bits(2) : s === 17 ? 3 + bits(3) : 11 + bits(7); k > 0; k--) all.push(v);
      }
      if (all.length > nw + nb) throw bad('a Huffman code is too long');
      words = huffman(all.slice(0, nw)); backs = huffman(all.slice(nw));
    } else if (type === 3) throw bad('unknown block type');
    while (n < out.length) {
      const s = symbol(words);
      if (s < 256) { out[n++] = s; continue; }
      if (s === 256) break;
      if (s > 285) throw bad('unknown code word');
      const l = lengthBase[s - 257] + bits(lengthBits[s - 257]), d = symbol(backs);
      if (d > 29) throw bad('unknown code word');
      const back = backBase[d] + bits(backBits[d]);
      if (back > n) throw bad('it refers back too far');
      for (const end = Math.min(out.length, n + l); n < end; n++) out[n] = out[n - back];
    }
  }
  if (at - (held >> 3) > b.length) throw bad('it ends too soon');
  return { at: at - (held >> 3), n };
}
function zlib(b, out) {
  if (b.length < 2 || (b[0] & 15) !== 8 || (b[0] << 8 | b[1]) % 31 || b[1] & 32) throw bad('not zlib');
  return inflate(b, 2, out, 0).n;
}
/** Decodes gzip members, one after the other. */
function gzip(b, out) {
  let n = 0;
  for (let at = 0; n < out.length && at < b.length;) {
    const flags = b[at + 3];
    if (b[at] !== 0x1f || b[at + 1] !== 0x8b || b[at + 2] !== 8) throw bad('not gzip');
    at += 10;
    if (flags & 4) at += 2 + (b[at] | b[at + 1] << 8);
    for (const text of [8, 16]) if (flags & text) { while (b[at]) at++; at++; }
    if (flags & 2) at += 2;
    ({ at, n } = inflate(b, at, out, n));
    at += 8;
  }
  return n;
}

const filled = f => (b, size) => { const out = new Uint8Array(size); return out.subarray(0, f(b, out)); };
const codecs = {
  zstd, 'zstd-record': b => zstd(b.subarray(0, frame(b, 0)?.end)), 'zstd-blocks': blocks, 'snappy-record': snappy,
  deflate: filled((b, out) => inflate(b, 0, out, 0).n), 'zlib-record': filled(zlib), gzip: filled(gzip),
  'oak-segment': b => b.subarray(512), // after its header
};
/** Decodes stored bytes, and returns the first size bytes. */
export function decode(codec, b, size) {
  const f = codecs[codec];
  if (!f) throw new Failed('unsupported', `content compressed with ${codec} cannot be read in a browser: use “holdall cat”`);
  if (size > mostUnit) throw new Failed('large', 'its compressed parts are too large for a browser: use “holdall cat”');
  const out = f(b, size);
  if (out.length < size) throw bad('the content is too short');
  return out.subarray(0, size);
}
