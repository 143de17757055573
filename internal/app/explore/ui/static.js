// The archive of a page that no server of ours answers: it is read by ranges of a plain server of
// files, by its index, and each piece of a content is proven before it is shown.
import { Failed, answeredBy } from './base.js';
import { Flat, rawOf, shown, Damaged } from './flat.js';
import { blake3 } from './blake3.js';
import { decompress } from './fzstd.js';

const say = text => new TextEncoder().encode(text);
const json = v => new Response(JSON.stringify(v), { headers: { 'Content-Type': 'application/json' } });

/** Reads ranges of a file that a server has. */
class Far {
  constructor(url) { this.url = url; }
  async get(range) {
    let r;
    try { r = await fetch(this.url, { headers: { Range: range } }); } catch { throw new Failed('offline', 'the server does not answer'); }
    if (r.status === 404) throw new Failed('not-found', `there is no ${this.url} beside this page`);
    if (r.status !== 206) { r.body?.cancel(); throw new Failed('http', r.status === 200 ? 'the server gives no parts of files' : 'the server answers ' + r.status); }
    const m = /\/(\d+)$/.exec(r.headers.get('Content-Range') ?? '');
    const tag = r.headers.get('ETag') ?? r.headers.get('Last-Modified');
    if (this.tag !== undefined && tag !== this.tag) throw new Failed('changed', 'the file was replaced while it was read');
    this.tag = tag;
    return { bytes: new Uint8Array(await r.arrayBuffer()), size: m ? Number(m[1]) : undefined };
  }
  async read(off, n) {
    if (!n) return new Uint8Array();
    const { bytes } = await this.get(`bytes=${off}-${off + n - 1}`);
    if (bytes.length !== n) throw new Failed('unreadable', `${this.url} ends before ${off + n}`);
    return bytes;
  }
  async tail(n) {
    const t = await this.get('bytes=-' + n);
    if (t.size === undefined) throw new Failed('http', 'the server does not say how long the file is');
    return t;
  }
}

/** What decodes a run. Sizes from an archive are looked at before anything is made of them. */
async function decode(codec, b, size) {
  if (codec === 'zstd') {
    const out = decompress(b);
    return out.subarray(0, size);
  }
  const format = { zlib: 'deflate', gzip: 'gzip', deflate: 'deflate-raw' }[codec];
  if (!format) throw new Failed('unsupported', `contents by ${codec} are not read in a browser: “holdall cat” reads them`);
  const out = new Uint8Array(size);
  let at = 0;
  const r = new Blob([b]).stream().pipeThrough(new DecompressionStream(format)).getReader();
  for (;;) {
    const { done, value } = await r.read();
    if (done) break;
    out.set(value.subarray(0, size - at), at);
    at = Math.min(size, at + value.length);
    if (at === size) { r.cancel().catch(() => {}); break; }
  }
  if (at < size) throw new Failed('bad-data', 'the content is shorter than it should be');
  return out;
}

const most = 64 << 20;
