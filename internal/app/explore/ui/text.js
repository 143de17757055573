// Text with line numbers, and bytes as hexadecimal. Both may have any length: only a small part is
// kept in memory.
import { el, count, size } from './base.js';
import { Rows } from './rows.js';
import { parts } from './colours.js';

const chunk = 64 << 10, held = 24, longest = 4000; // bytes; chunks in memory; characters shown of a line

export class Text {
  /** @param {object} [language] from colours.js */
  constructor(box, content, language) {
    this.content = content; this.language = language;
    this.chunks = []; // {off, end, line, lines, text?, used}
    this.clock = 0;
    this.box = el('div', { class: 'text', tabindex: '0', role: 'region', 'aria-label': 'Text' });
    this.note = el('p', { class: 'hint' });
    box.append(this.box, this.note);
    this.rows = new Rows(this.box, { height: 20, make: () => el('div', { class: 'line' }, el('span', { class: 'no', 'aria-hidden': 'true' }), el('span', { class: 'words' })), fill: (r, i) => this.fill(r, i), need: (a, b) => this.need(a, b) });
    scrollKeys(this.box, this.rows);
  }
  close() { this.rows.close(); }
  async show() { await this.next(); }
  get known() { const c = this.chunks.at(-1); return c ? c.line + c.lines : 0; }
  get done() { return (this.chunks.at(-1)?.end ?? 0) >= this.content.size; }
  /** Reads the next chunk. It ends at a line end, unless the line is too long. */
  async next() {
    if (this.done && this.chunks.length) return;
    return this.reading ??= (async () => {
      const off = this.chunks.at(-1)?.end ?? 0;
      const b = await this.content.read(off, chunk);
      let n = b.length;
      if (off + n < this.content.size) {
        const line = b.lastIndexOf(10);
        if (line >= 0) n = line + 1;
        else while (n > 1 && n > b.length - 4 && (b[n - 1] & 0xc0) === 0x80) n--; // do not split a character
        if (n < b.length && line < 0 && b[n - 1] >= 0xc0) n--;
      }
      const text = decode(b.subarray(0, Math.max(1, n)));
      this.chunks.push({ off, end: off + Math.max(1, n), line: this.known, lines: text.length, text, used: ++this.clock });
      this.forget();
      this.reading = undefined;
      this.rows.grow(this.known);
      this.box.dataset.lines = this.known;
      this.note.textContent = this.done ? count(this.known, 'line') : `${count(this.known, 'line')} in the first ${size(this.chunks.at(-1).end)}; scroll down to read more`;
    })().catch(err => { this.reading = undefined; if (err.name !== 'AbortError') { this.note.textContent = err.message; if (!this.chunks.length) throw err; } });
  }
  forget() {
    const has = this.chunks.filter(c => c.text);
    if (has.length > held) has.sort((a, b) => a.used - b.used)[0].text = undefined;
  }
  of(i) {
    let lo = 0, hi = this.chunks.length - 1;
    while (lo < hi) { const m = (lo + hi + 1) >> 1; if (this.chunks[m].line <= i) lo = m; else hi = m - 1; }
    return this.chunks[lo];
  }
  need(first, end) {
    if (end > this.known - 200) this.next();
    for (const c of new Set([this.of(first), this.of(Math.max(first, end - 1))])) if (c && !c.text && !c.reading) {
      c.reading = this.content.read(c.off, c.end - c.off).then(b => { c.text = decode(b); c.used = ++this.clock; this.forget(); this.rows.draw(); }).catch(() => {}).finally(() => { c.reading = undefined; });
    }
  }
  fill(row, i) {
    const c = this.of(i);
    if (c) c.used = ++this.clock;
    const line = c?.text?.[i - c.line];
    row.firstChild.textContent = i + 1;
    if (this.language && line?.length <= longest / 2) row.lastChild.replaceChildren(...parts(line, this.language).map(([what, t]) => what ? el('span', { class: 'c-' + what }, t) : t));
    else row.lastChild.textContent = line === undefined ? '' : line.length > longest ? line.slice(0, longest) + '…' : line;
  }
}

const decoder = new TextDecoder();
function decode(b) {
  const lines = decoder.decode(b).split('\n');
  if (lines.length > 1 && lines.at(-1) === '') lines.pop();
  return lines.map(l => l.endsWith('\r') ? l.slice(0, -1) : l);
}

export function scrollKeys(box, rows) {
  box.addEventListener('keydown', e => {
    const to = { ArrowDown: rows.top + 1, ArrowUp: rows.top - 1, PageDown: rows.top + rows.fits - 1, PageUp: rows.top - rows.fits + 1, Home: 0, End: rows.last, ' ': rows.top + rows.fits - 1 }[e.key];
    if (to === undefined || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    rows.go(to);
  });
}

export class Hex {
  constructor(box, content) {
    this.content = content;
    this.box = el('div', { class: 'hex', tabindex: '0', role: 'region', 'aria-label': 'Bytes' });
    this.parts = new Map(); // 4 KiB each
    this.per = box.clientWidth < 610 ? 8 : 16;
    this.digits = Math.max(6, content.size.toString(16).length);
    const columns = Array.from({ length: this.per }, (_, k) => (k === 8 ? ' ' : '') + k.toString(16).padStart(2, '0')).join(' ');
    box.append(el('div', { class: 'ruler', 'aria-hidden': 'true' }, el('span', { class: 'no' }, ''.padStart(this.digits)), columns), this.box);
    this.rows = new Rows(this.box, { height: 20, make: () => el('div', { class: 'line' }, el('span', { class: 'no' }), el('span', { class: 'code' }), el('span', { class: 'chars' })), fill: (r, i) => this.fill(r, i), need: (a, b) => this.need(a, b) });
    scrollKeys(this.box, this.rows);
  }
  close() { this.rows.close(); }
  async show() { await this.load(0); this.rows.set(Math.ceil(this.content.size / this.per)); this.box.dataset.rows = this.rows.total; }
  async load(p) {
    if (this.parts.has(p)) return;
    this.parts.set(p, undefined);
    try {
      this.parts.set(p, await this.content.read(p * 4096, 4096));
    } catch (err) { if (p === 0) throw err; return; }
    if (this.parts.size > 200) for (const k of this.parts.keys()) { if (Math.abs(k - p) > 60) this.parts.delete(k); }
    this.rows.draw();
  }
  need(a, b) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { for (let p = Math.floor(a * this.per / 4096); p <= Math.floor(b * this.per / 4096); p++) if (p * 4096 < this.content.size) this.load(p).catch(() => {}); }, 30);
  }
  fill(row, i) {
    const off = i * this.per, p = this.parts.get(Math.floor(off / 4096)), [no, code, chars] = row.children;
    no.textContent = off.toString(16).padStart(this.digits, '0');
    if (!p) { code.textContent = chars.textContent = ''; return; }
    const b = p.subarray(off % 4096, off % 4096 + this.per);
    let h = '', c = '';
    for (let k = 0; k < this.per; k++) {
      h += (k === 8 ? ' ' : '') + (k < b.length ? b[k].toString(16).padStart(2, '0') : '  ') + ' ';
      if (k < b.length) c += b[k] >= 32 && b[k] < 127 ? String.fromCharCode(b[k]) : '·';
    }
    code.textContent = h; chars.textContent = c;
  }
}
