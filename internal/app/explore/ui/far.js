// Files that are read in ranges, from a plain file server or from within the page.
import { Failed } from './base.js';

/** A file on a server. */
class Far {
  constructor(name) { this.url = name.split('/').map(encodeURIComponent).join('/'); }
  async get(range) {
    let r;
    try { r = await fetch(this.url, { headers: { Range: range } }); } catch { throw new Failed('offline', 'the server does not answer'); }
    if (r.status === 404) throw new Failed('not-found', `${this.url} was not found next to this page`);
    if (r.status !== 206) { r.body?.cancel(); throw new Failed('http', r.status === 200 ? 'the server does not support range requests' : 'the server responds with status ' + r.status); }
    const m = /\/(\d+)$/.exec(r.headers.get('Content-Range') ?? '');
    this.etag = r.headers.get('ETag'); this.time = r.headers.get('Last-Modified');
    const tag = this.etag ?? this.time;
    if (this.tag !== undefined && tag !== this.tag) throw new Failed('changed', 'the file was replaced while it was read');
    this.tag = tag;
    return { bytes: new Uint8Array(await r.arrayBuffer()), size: m ? Number(m[1]) : undefined };
  }
  async read(off, n) {
    if (!n) return new Uint8Array();
    const { bytes } = await this.get(`bytes=${off}-${off + n - 1}`);
    if (bytes.length !== n) throw new Failed('unreadable', `${this.url} ends before byte ${off + n}`);
    return bytes;
  }
  async tail(n) {
    const t = await this.get('bytes=-' + n);
    if (t.size === undefined) throw new Failed('http', 'the server does not report the length of the file');
    return t;
  }
  async whole() { return this.get('bytes=0-'); }
  /** Whether it has the version or the time that an index names, after it was read. */
  is({ version, mtime }) {
    if (version && this.etag) return version === this.etag;
    return Math.floor(Date.parse(mtime) / 1000) === Date.parse(this.time) / 1000;
  }
}

/** A file within the page, as base64. Only the requested part is decoded. */
class Held {
  constructor(name, text) {
    this.name = name; this.text = text;
    this.length = text.length / 4 * 3 - (text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0);
  }
  async read(off, n) {
    if (off + n > this.length) throw new Failed('unreadable', `${this.name} ends before byte ${off + n}`);
    const first = Math.floor(off / 3), s = atob(this.text.slice(4 * first, 4 * Math.ceil((off + n) / 3))), out = new Uint8Array(n);
    for (let i = 0, at = off - 3 * first; i < n; i++) out[i] = s.charCodeAt(at + i);
    return out;
  }
  async tail(n) { n = Math.min(n, this.length); return { bytes: await this.read(this.length - n, n), size: this.length }; }
  async whole() { return this.tail(this.length); }
  is() { return true; }
}

const held = new Map();
for (const e of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll('script[data-file]'))) { held.set(e.dataset.file, new Held(e.dataset.file, e.textContent)); e.remove(); }
/** The file with a name. A page that contains files uses no others. */
export function file(name) {
  if (!held.size) return new Far(name);
  if (!held.has(name)) throw new Failed('not-found', `${name} is missing from this page`);
  return held.get(name);
}
