// Tables stored as text: CSV and TSV.
import { el, num, count } from './base.js';

/** Parses rows of fields. A quoted field may contain separators, doubled quotes and line ends. */
export function rowsOf(text, sep, most = Infinity) {
  const rows = [];
  let row = [], at = 0;
  while (at < text.length && rows.length < most) {
    let field = '';
    if (text[at] === '"') {
      for (at++; at < text.length; at++) {
        if (text[at] !== '"') field += text[at];
        else if (text[at + 1] === '"') { field += '"'; at++; } else { at++; break; }
      }
    }
    let end = at;
    while (end < text.length && text[end] !== sep && text[end] !== '\n') end++;
    row.push(field + text.slice(at, end).replace(/\r$/, ''));
    if (end >= text.length || text[end] === '\n') { rows.push(row); row = []; }
    at = end + 1;
  }
  return rows;
}

const first = 2 << 20, step = 200, wide = 200; // bytes; rows; columns

export class TableView {
  constructor(area, content) { this.area = area; this.content = content; }
  async show(ext) {
    const n = Math.min(this.content.size, first), parts = [];
    for (let at = 0; at < n; at += 1 << 20) parts.push(await this.content.read(at, Math.min(1 << 20, n - at)));
    let text = new TextDecoder().decode(await new Blob(parts).arrayBuffer());
    const whole = n === this.content.size;
    if (!whole) text = text.slice(0, text.lastIndexOf('\n') + 1);
    const head = text.slice(0, text.indexOf('\n') < 0 ? text.length : text.indexOf('\n'));
    const sep = ext === 'tsv' ? '\t' : [',', ';', '\t'].reduce((a, b) => head.split(b).length > head.split(a).length ? b : a);
    const rows = rowsOf(text, sep), names = rows.shift() ?? [], cols = Math.min(wide, Math.max(names.length, ...rows.slice(0, 100).map(r => r.length), 1));
    const numeric = Array.from({ length: cols }, (_, k) => rows.length > 0 && rows.slice(0, 100).every(r => !r[k] || Number.isFinite(Number(r[k]))));
    const body = el('tbody'), more = el('button', { type: 'button', onclick: () => add() });
    let made = 0;
    const add = () => {
      for (const end = Math.min(made + step, rows.length); made < end; made++) {
        body.append(el('tr', {}, el('th', { scope: 'row' }, num(made + 1)), Array.from({ length: cols }, (_, k) => el('td', { class: numeric[k] ? 'number' : undefined }, (rows[made][k] ?? '').slice(0, 500)))));
      }
      more.hidden = made >= rows.length;
      more.textContent = count(rows.length - made, 'more row', 'more rows');
    };
    add();
    this.area.append(el('div', { class: 'pad' }, el('p', { class: 'hint' }, `${count(rows.length, 'row')}${whole ? '' : ' in the first 2 MiB'}, ${count(names.length, 'column')}`),
      el('div', { class: 'wide' }, el('table', { class: 'cells' }, el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, '#'), Array.from({ length: cols }, (_, k) => el('th', { scope: 'col' }, names[k] ?? '')))), body)), more));
  }
}
