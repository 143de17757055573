// A table of NWB, of any length. Only the visible rows are requested.
import { el, ask, num, count, problem } from './base.js';
import { here, address, args } from './state.js';
import { Rows, Pages } from './rows.js';
import { placeOf } from './attributes.js';

const height = 28, page = 100, number = /^-?\d+(\.\d+)?(e[+-]?\d+)?$/i;
/** A shortened number. Its exact value is in the title. */
const short = t => number.test(t) && t.length > 12 && /[.e]/i.test(t) ? String(Number(Number(t).toPrecision(9))) : t;
/**
 * The value of a cell in one line: texts and links. In a column of numbers, numbers in lists are
 * shortened.
 */
function parts(c, numbers) {
  if (c.f !== undefined) return ['unreadable: ' + c.f];
  if (c.r !== undefined) return [placeOf(c.r)];
  if (c.n === undefined) return [c.t ?? ''];
  const one = x => x.n !== undefined ? ['(', ...parts(x, numbers), ')'] : numbers && x.f === undefined && number.test(x.t ?? '') ? [String(Number(Number(x.t).toPrecision(6)))] : parts(x);
  const some = (c.l ?? []).flatMap((x, i) => i ? [', ', ...one(x)] : one(x));
  return c.n > (c.l?.length ?? 0) ? [...some, some.length ? ', ' : '', `… ${num(c.n)} in all`] : some;
}
const textOf = list => list.map(x => x.textContent ?? x).join('');

export class DynamicTable {
  constructor(area, entry) { this.area = area; this.entry = entry; this.dead = new AbortController(); this.faults = new Map(); }
  close() { this.dead.abort(); this.rows?.close(); this.pages?.clear(); }
  get(offset, limit, signal) { return ask.json('table', args({ path: this.entry.path, from: offset, n: limit }), { signal: signal ?? this.dead.signal }); }
  async show() {
    const t = this.t = await this.get(0, page);
    if (this.dead.signal.aborted) return;
    this.ids = t.fault === undefined;
    const first = this.rowsIn(t, 0), hurt = t.columns.filter(c => c.fault);
    this.note(0, first);
    this.widths = [Math.max(48, 9 * String(num(t.rows)).length + 20), ...t.columns.map((c, k) => {
      const longest = Math.max(c.name.length + 2 + (c.table ? 2 : 0), ...first.slice(0, 40).map(r => Math.min(34, r.cells[k] ? (c.number ? short : String)(textOf(parts(r.cells[k], c.number || c.fields))).length : 0)));
      return Math.round(Math.min(280, Math.max(64, 7.4 * longest + 26)));
    })];
    const columns = this.widths.map(w => w + 'px').join(' '), wide = this.widths.reduce((a, b) => a + b, 0);
    this.columns = columns;
    const head = el('div', { role: 'row', class: 'head', 'aria-rowindex': '1' }, el('div', { role: 'columnheader', class: 'no', title: this.ids ? 'Row ids' : 'Row numbers' }, this.ids ? 'id' : '#'), t.columns.map(c => el('div', { role: 'columnheader', class: c.number && !c.nested && !c.inner ? 'number' : '', title: this.about(c) }, c.name, c.unit ? el('span', { class: 'hint' }, ` (${c.unit})`) : '', c.fault ? el('span', { class: 'fault' }, ' !') : '')));
    head.style.gridTemplateColumns = columns; head.style.width = wide + 'px';
    this.wide = wide;
    this.box = el('div', { class: 'dynamic', role: 'table', tabindex: '0', 'aria-label': 'Rows of ' + (this.entry.path || 'the table'), 'aria-rowcount': t.rows + 1, 'aria-colcount': this.widths.length }, head);
    const to = el('input', { type: 'number', min: 1, max: t.rows, id: 'row-number', 'aria-label': 'Go to row' });
    to.addEventListener('change', () => { const n = Number(to.value); if (n >= 1) { this.rows.go(n - 1); this.pick(Math.min(t.rows, n) - 1); } });
    this.told = el('p', { class: 'fault', role: 'status' });
    this.whole = el('div', { class: 'whole', hidden: true, tabindex: '0', role: 'region', 'aria-label': 'The selected row' });
    this.area.append(el('div', { class: 'about-table' },
      el('p', {}, el('b', {}, t.type || 'Table'), t.description ? ' – ' + t.description : ''),
      el('div', { class: 'tell' }, el('span', { class: 'hint' }, `${count(t.rows, 'row')}, ${count(t.columns.length + (t.more ?? 0), 'column')}` + (t.more ? `, the first ${num(t.columns.length)} shown` : '')), t.rows > 50 && el('label', {}, 'Row ', to)),
      t.fault && el('p', { class: 'fault' }, t.fault), hurt.map(c => el('p', { class: 'fault' }, el('b', {}, c.name), ': ' + c.fault)), this.told), this.box, this.whole);
    if (!t.rows) { this.area.append(el('p', { class: 'empty' }, 'The table has no rows.')); return; }
    this.pages = new Pages(async (o, n, signal) => { const rows = this.rowsIn(await this.get(o, n, signal), o); this.note(o, rows); return rows; }, err => { if (err) this.told.textContent = err.message; this.rows.draw(); this.showWhole(); }, page);
    this.pages.pages.set(0, first);
    this.rows = new Rows(this.box, { height, head: 34, make: () => this.make(), fill: (r, i) => this.fill(r, i), need: (a, b) => this.pages.need(a, b) });
    this.rows.set(t.rows);
    this.box.addEventListener('click', e => { const r = e.target.closest('.row'); if (r && !e.target.closest('a')) this.pick(r.i); });
    this.box.addEventListener('keydown', e => {
      const r = this.rows, to = { ArrowDown: r.top + 1, ArrowUp: r.top - 1, PageDown: r.top + r.fits - 1, PageUp: r.top - r.fits + 1, Home: 0, End: r.total }[e.key];
      if (to !== undefined && !e.ctrlKey && !e.metaKey && !e.altKey) { e.preventDefault(); e.stopPropagation(); r.go(to); }
    });
    this.tell();
  }
  /** Shows a complete row below the table. */
  pick(i) { this.sel = i; this.drawn = undefined; this.rows.draw(); this.showWhole(); }
  showWhole() {
    const r = this.sel === undefined ? undefined : this.pages.at(this.sel);
    if (!r || this.drawn === r) return;
    this.drawn = r;
    const shown = (c, of) => c ? el('dd', { class: c.f !== undefined ? 'fault' : '' }, ...parts(c, of.number)) : el('dd', { class: 'hint' }, 'no value');
    this.whole.hidden = false;
    this.whole.replaceChildren(el('div', { class: 'bar' }, el('b', {}, `Row ${num(this.sel + 1)}` + (this.ids ? `, id ${textOf(parts(r.id))}` : '')), el('button', { type: 'button', class: 'quiet close', 'aria-label': 'Close the row', onclick: () => { this.sel = this.drawn = undefined; this.whole.hidden = true; this.rows.draw(); this.box.focus(); } }, '×')),
      el('dl', { class: 'list' }, this.t.columns.map((c, k) => [el('dt', { title: this.about(c) }, c.name), shown(r.cells[k], c)])));
  }
  about(c) {
    return [c.name, c.description, c.type && (c.nested ? 'lists of ' : '') + c.type + (c.inner ? ', ' + c.inner.map(num).join(' × ') : ''), c.unit && 'in ' + c.unit, c.fields && 'of ' + c.fields.join(', '), c.table !== undefined && 'rows of /' + c.table, c.fault].filter(Boolean).join('\n');
  }
  /** Converts a response, which has columns, to rows. */
  rowsIn(t, from) {
    const n = Math.max(0, Math.min(page, t.rows - from));
    return Array.from({ length: n }, (_, i) => ({ id: t.ids?.[i] ?? { t: String(from + i) }, cells: t.cells.map(c => c[i]) }));
  }
  /** Counts the cells of a page that cannot be read. */
  note(from, rows) {
    let n = 0, why;
    for (const r of rows) for (const c of [r.id, ...r.cells]) { const f = c?.f ?? c?.l?.find(x => x.f !== undefined)?.f; if (f !== undefined) { n++; why ??= f; } }
    if (n) this.faults.set(from, [n, why]);
    this.tell();
  }
  tell() {
    if (!this.told) return;
    const n = [...this.faults.values()].reduce((a, [k]) => a + k, 0);
    this.told.textContent = n ? `${count(n, 'cell')} in the rows read so far cannot be shown: ${[...this.faults.values()][0][1]}` : '';
    document.body.dataset.cells = n ? 'damaged' : 'whole';
  }
  make() {
    const r = el('div', { role: 'row', class: 'row' }, this.widths.map((_, k) => el('div', { role: k ? 'cell' : 'rowheader' })));
    r.style.gridTemplateColumns = this.columns; r.style.width = this.wide + 'px';
    return r;
  }
  fill(row, i) {
    const r = this.pages.at(i);
    row.setAttribute('aria-rowindex', i + 2);
    row.classList.toggle('waiting', !r);
    row.i = i;
    row.classList.toggle('chosen', i === this.sel);
    for (const [k, cell] of [...row.children].entries()) {
      const c = k ? r?.cells[k - 1] : r?.id, of = this.t.columns[k - 1];
      if (cell.shown === c && c) continue;
      cell.shown = c;
      if (!c) { cell.textContent = ''; cell.title = ''; cell.className = ''; continue; }
      const inside = parts(c, of?.number || of?.fields), text = textOf(inside), hurt = c.f !== undefined || c.l?.some(x => x.f !== undefined);
      cell.className = hurt ? 'fault' : !k ? 'no' : c.n === undefined && of?.number ? 'number' : c.n !== undefined ? 'list' : '';
      cell.title = text;
      if (of?.table !== undefined && c.n === undefined && !hurt) cell.replaceChildren(el('a', { href: address({ archive: here.archive, view: here.view, path: of.table }), title: `row ${text} of /${of.table}` }, text));
      else cell.replaceChildren(...(of?.number && c.n === undefined ? [short(text)] : inside));
    }
  }
}
