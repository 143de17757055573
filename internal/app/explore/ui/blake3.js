// BLAKE3 of bytes, 32 bytes long. https://github.com/BLAKE3-team/BLAKE3-specs

const iv = Uint32Array.of(0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19);
const chunkStart = 1, chunkEnd = 2, parent = 4, root = 8;
// The order of the words of a block in each of the seven rounds.
const order = (() => {
  const permute = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8], all = new Uint8Array(112);
  let now = Array.from({ length: 16 }, (_, i) => i);
  for (let r = 0; r < 7; r++) { all.set(now, 16 * r); now = permute.map(i => now[i]); }
  return all;
})();
const s = new Uint32Array(16), m = new Uint32Array(16);

function mix(a, b, c, d, x, y) {
  s[a] = s[a] + s[b] + x; let t = s[d] ^ s[a]; s[d] = t >>> 16 | t << 16;
  s[c] = s[c] + s[d]; t = s[b] ^ s[c]; s[b] = t >>> 12 | t << 20;
  s[a] = s[a] + s[b] + y; t = s[d] ^ s[a]; s[d] = t >>> 8 | t << 24;
  s[c] = s[c] + s[d]; t = s[b] ^ s[c]; s[b] = t >>> 7 | t << 25;
}
/** Compresses the block in m with what is before it, and leaves what comes out in cv. */
function compress(cv, counter, length, flags) {
  s.set(cv); s.set(iv.subarray(0, 4), 8);
  s[12] = counter; s[13] = counter / 2 ** 32; s[14] = length; s[15] = flags;
  for (let r = 0; r < 112; r += 16) {
    const w = i => m[order[r + i]];
    mix(0, 4, 8, 12, w(0), w(1)); mix(1, 5, 9, 13, w(2), w(3)); mix(2, 6, 10, 14, w(4), w(5)); mix(3, 7, 11, 15, w(6), w(7));
    mix(0, 5, 10, 15, w(8), w(9)); mix(1, 6, 11, 12, w(10), w(11)); mix(2, 7, 8, 13, w(12), w(13)); mix(3, 4, 9, 14, w(14), w(15));
  }
  for (let i = 0; i < 8; i++) cv[i] = s[i] ^ s[i + 8];
}
function chunk(b, counter, last) {
  const cv = iv.slice();
  let at = 0;
  do {
    const n = Math.min(64, b.length - at);
    for (let i = 0; i < 16; i++) {
      const k = at + 4 * i;
      m[i] = n === 64 ? b[k] | b[k + 1] << 8 | b[k + 2] << 16 | b[k + 3] << 24 : (4 * i < n ? b[k] : 0) | (4 * i + 1 < n ? b[k + 1] : 0) << 8 | (4 * i + 2 < n ? b[k + 2] : 0) << 16 | (4 * i + 3 < n ? b[k + 3] : 0) << 24;
    }
    const end = at + n >= b.length;
    compress(cv, counter, n, (at === 0 ? chunkStart : 0) | (end ? chunkEnd | (last ? root : 0) : 0));
    at += n;
  } while (at < b.length);
  return cv;
}
function tree(b, counter, top) {
  if (b.length <= 1024) return chunk(b, counter, top);
  const left = 2 ** Math.floor(Math.log2((b.length - 1) / 1024)) * 1024; // the largest half that is whole
  const x = tree(b.subarray(0, left), counter, false), y = tree(b.subarray(left), counter + left / 1024, false), cv = iv.slice();
  m.set(x); m.set(y, 8);
  compress(cv, 0, 64, parent | (top ? root : 0));
  return cv;
}
/** @param {Uint8Array} b */
export function blake3(b) {
  const cv = tree(b, 0, true), out = new Uint8Array(32);
  cv.forEach((v, i) => { out[4 * i] = v; out[4 * i + 1] = v >>> 8; out[4 * i + 2] = v >>> 16; out[4 * i + 3] = v >>> 24; });
  return out;
}
