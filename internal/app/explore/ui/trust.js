// Signatures of archives, by keys of minisign: docs/signing.md describes what is signed.
import { Failed } from './base.js';

const mask = (1n << 64n) - 1n, rotr = (x, n) => (x >> BigInt(n) | x << BigInt(64 - n)) & mask;
const iv = ['6a09e667f3bcc908', 'bb67ae8584caa73b', '3c6ef372fe94f82b', 'a54ff53a5f1d36f1', '510e527fade682d1', '9b05688c2b3e6c1f', '1f83d9abfb41bd6b', '5be0cd19137e2179'].map(h => BigInt('0x' + h));
const sigma = ['0123456789abcdef', 'ea489fd61c02b753', 'b8c052fdae367194', '7931dcbe265a40f8', '905724afe1bc683d', '2c6a0b834d75fe19', 'c51fed4a0763928b', 'db7ec13950f4862a', '6fe9b308c2d714a5', 'a2847615fb9e3cd0'].map(s => [...s].map(c => parseInt(c, 16)));

/** The BLAKE2b-512 of a few bytes. @param {Uint8Array} b */
export function blake2b(b) {
  const h = [...iv];
  h[0] ^= 0x01010040n;
  for (let at = 0; at === 0 || at < b.length; at += 128) {
    const block = new Uint8Array(128), end = Math.min(at + 128, b.length);
    block.set(b.subarray(at, end));
    const view = new DataView(block.buffer), m = Array.from({ length: 16 }, (_, i) => view.getBigUint64(8 * i, true)), v = [...h, ...iv];
    v[12] ^= BigInt(end);
    if (end === b.length) v[14] ^= mask;
    const mix = (i, j, k, l, x, y) => {
      v[i] = v[i] + v[j] + x & mask; v[l] = rotr(v[l] ^ v[i], 32); v[k] = v[k] + v[l] & mask; v[j] = rotr(v[j] ^ v[k], 24);
      v[i] = v[i] + v[j] + y & mask; v[l] = rotr(v[l] ^ v[i], 16); v[k] = v[k] + v[l] & mask; v[j] = rotr(v[j] ^ v[k], 63);
    };
    for (let r = 0; r < 12; r++) {
      const s = sigma[r % 10].map(i => m[i]);
      mix(0, 4, 8, 12, s[0], s[1]); mix(1, 5, 9, 13, s[2], s[3]); mix(2, 6, 10, 14, s[4], s[5]); mix(3, 7, 11, 15, s[6], s[7]);
      mix(0, 5, 10, 15, s[8], s[9]); mix(1, 6, 11, 12, s[10], s[11]); mix(2, 7, 8, 13, s[12], s[13]); mix(3, 4, 9, 14, s[14], s[15]);
    }
    for (let i = 0; i < 8; i++) h[i] ^= v[i] ^ v[i + 8];
  }
  const out = new DataView(new ArrayBuffer(64));
  h.forEach((x, i) => out.setBigUint64(8 * i, x, true));
  return new Uint8Array(out.buffer);
}

/** Bytes in base64 after two letters. */
function after(kind, text, length) {
  let s;
  try { s = atob(text.trim()); } catch { return undefined; }
  return s.startsWith(kind) && s.length === kind.length + length ? Uint8Array.from(s.slice(kind.length), c => c.charCodeAt(0)) : undefined;
}

/** The root of an archive, in hex, that one of the keys has signed. @param {Uint8Array} file @param {string[]} keys */
export async function signedRoot(file, keys) {
  const refuse = why => { throw new Failed('untrusted', 'the signature of this archive ' + why); };
  const lines = new TextDecoder().decode(file).trimEnd().split('\n').map(l => l.replace(/\r$/, ''));
  const sig = after('ED', lines[1] ?? '', 72), all = after('', lines[3] ?? '', 64), enc = new TextEncoder();
  const comment = lines[2]?.startsWith('trusted comment: ') ? lines[2].slice(17) : '';
  const m = /^holdall 1, contents [0-9a-f]{64}, archive ([0-9a-f]{64}); /.exec(comment);
  if (lines.length !== 4 || !sig || !all || !m) refuse('is none, or covers no index');
  const key = keys.map(k => after('Ed', k, 40)).find(k => k && k.subarray(0, 8).every((x, i) => x === sig[i])) ?? refuse('is by another key');
  if (!globalThis.crypto?.subtle) refuse('cannot be verified here: open this page over https');
  const verifies = await crypto.subtle.importKey('raw', key.subarray(8), 'Ed25519', false, ['verify']).catch(() => refuse('cannot be verified by this browser'));
  const text = enc.encode(comment.slice(0, comment.indexOf('; ')).replaceAll(', ', '\n') + '\n'), own = sig.subarray(8), rest = enc.encode(comment), both = new Uint8Array(64 + rest.length);
  both.set(own); both.set(rest, 64);
  for (const [s, message] of [[own, blake2b(text)], [all, both]]) {
    if (!await crypto.subtle.verify('Ed25519', verifies, s, message)) refuse('is wrong');
  }
  return m[1];
}
