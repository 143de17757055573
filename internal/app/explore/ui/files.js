// A table of any length: the contents of a folder, or the results of a search.
import { showName, $, el, ask, say, size, num, count, time, zipURL, parent, healthWord } from './base.js';
import { go, here, args, archive, urlOf, usual, searching, searches, asked, orderOf, sortedBy } from './state.js';
import { Shown } from './shown.js';
import { Listing, Lines, shareOf } from './listing.js';
import { Rows } from './rows.js';
import { Tiles } from './tiles.js';
import { makeTile, fillTile } from './tile.js';
import { Filters } from './filters.js';
import { Face } from './face.js';
import { wordsOf } from './words.js';

const columns = [['name', 'Name'], ['files'], ['size', 'Size'], ['time', 'Modified']];
const height = matchMedia('(pointer: coarse)').matches ? 42 : 32;
const paper = 3000; // rows that are printed
const button = (id, text, onclick, more) => el('button', { type: 'button', id, hidden: true, onclick, ...more }, text);

export class Files {
  listing; search; contents; tiled; failed; done; summed; printed; /** @type {any} */ rows;
  constructor(main) {
    this.shown = new Shown(); // what is listed
    this.dead = new AbortController();
    this.dir = undefined; this.sel = -1;
    this.picked = new Set(); // paths that are downloaded as one zip
    this.head = el('div', { role: 'row', class: 'head', 'aria-rowindex': '1' }, columns.map(([id, name]) => {
      const c = el('div', { role: 'columnheader', class: id }, id === 'files' ? wordsOf().column : el('button', { type: 'button', tabindex: '-1', onclick: () => this.sortBy(id) }, name));
      c.key = id;
      return c;
    }));
    this.grid = el('div', { id: 'grid', role: 'grid', tabindex: '0', 'aria-label': 'Files', 'aria-multiselectable': 'true' }, this.head);
    this.empty = el('p', { class: 'empty', hidden: true });
    this.what = el('span', { class: 'what', role: 'status' });
    this.zip = el('a', { class: 'button', id: 'zip' });
    this.about = button('folder-about', '');
    this.tiles = button('pictures', 'Pictures', () => go({ show: here.show ? '' : 'pictures' }, { replace: true }));
    this.everywhere = button('everywhere', 'Search all names', () => this.searchAll(), { title: 'Search all names; this reads the whole index' });
    this.filters = new Filters();
    this.sum = el('span', { class: 'sum' });
    const bar = el('div', { class: 'bar' }, el('p', {}, this.what, this.sum), el('div', { class: 'group' }, this.everywhere, this.tiles, this.about, this.zip));
    this.face = new Face();
    main.append(el('div', { class: 'files' }, bar, this.filters.box, this.grid, this.empty, this.face.box));
    this.grid.addEventListener('keydown', e => this.key(e));
    addEventListener('beforeprint', () => this.print(), { signal: this.dead.signal });
    addEventListener('afterprint', () => this.printed?.remove(), { signal: this.dead.signal });
    addEventListener('keydown', e => {
      if (!(e.ctrlKey || e.metaKey) || e.key !== 'p' || e.shiftKey || e.altKey) return;
      e.preventDefault();
      const { listing } = this;
      listing.shown.attempt(async () => { await listing.upTo(paper); window.print(); }, err => say(err.message));
    }, { signal: this.dead.signal });
    this.grid.addEventListener('click', e => this.click(e));
  }
  close() { document.body.dataset.tiled = ''; this.shown.end(); this.dead.abort(); this.face.hide(); this.rows?.close(); }
  focus() { this.grid.focus(); }

  /** Shows a folder, or the search in the address, and selects a file in it. */
  async show(dir, file, page) {
    const search = searching(), found = searches(search), key = JSON.stringify([found ? search : dir, here.sort, here.show]);
    if (this.asks !== key) {
      const from = this.dir, moved = !found && this.of !== dir;
      this.asks = key; this.all = false; this.dir = dir; this.of = found ? undefined : dir;
      await this.list(found ? search : undefined);
      if (page.ended) return;
      if (moved && !file) this.select(from !== undefined && parent(from) === dir ? this.listing.index(from) : -1);
    }
    this.dir = dir;
    if (file && !this.search) await this.reveal(file, page);
    if (!page.ended && (!document.activeElement || document.activeElement === document.body)) this.grid.focus({ preventScroll: true });
  }
  /** Begins a list. What was requested for the one before ends here. */
  async list(search) {
    this.shown.end();
    const shown = this.shown = new Shown();
    const of = { search, searched: !!this.search, contents: search?.match === 'contents' };
    this.filters.show(!!search && !of.contents);
    document.body.dataset.search = '';
    const changed = err => this.changed(listing, of, err);
    const listing = of.contents ? new Lines(shown, { args: args({ q: search.q, path: this.dir }) }, changed)
      : new Listing(shown, this.request(search), changed);
    // While someone types, the results of one text stay until there are those of the next one.
    if (!search || of.contents || !this.listing) this.take(listing, of);
    await shown.attempt(() => listing.load(), err => { if (!search) throw err; changed(err); });
  }
  /** Shows a list instead of the one before. */
  take(listing, { search, searched, contents }) {
    Object.assign(this, { listing, search, contents, failed: undefined, done: false });
    if (search || searched) this.sel = -1;
    this.picked.clear();
    this.grid.classList.toggle('found', !!search);
    this.grid.classList.toggle('lines', contents);
    this.shape();
    this.rows.set(0);
    this.showOrder();
    this.tell();
  }
  /** What is requested for the list. */
  request(search) {
    const order = orderOf(here.sort);
    if (search) return { request: 'search', args: args({ ...asked(search), ...order, all: this.all ? 'yes' : undefined }) };
    return { request: 'ls', dir: this.dir, args: args({ path: this.dir, ...order, only: inTiles() ? 'pictures' : undefined }) };
  }
  /** Searches all names in a page without a server, which does not do so by itself if that takes long. */
  searchAll() { this.all = true; this.focus(); return this.list(this.search); }
  /** There are more rows, or other ones. */
  changed(listing, of, err) {
    if (listing.shown.ended) return;
    if (this.listing !== listing) this.take(listing, of);
    if (err) { if (this.search && !this.listing.total) this.failed = err; else say(err.message); }
    const { total, state } = this.listing;
    document.body.dataset.total = total;
    this.rows.grow(total);
    this.grid.setAttribute('aria-rowcount', Math.ceil(total / (this.rows.cols ?? 1)) + 1);
    this.showColumns();
    this.tell();
    this.mark();
    if (this.search && state.complete && !this.done) {
      this.done = true;
      if (total && this.sel < 1) this.select(0);
      document.body.dataset.search = this.search.q;
    }
  }
  /** Shows the columns that have something in them, and what shows the folder if nothing is selected. */
  showColumns() {
    const { has, state, total, shown } = this.listing;
    for (const [k, row] of [['files', 'c'], ['size', 's'], ['time', 't']]) this.grid.classList.toggle('no-' + k, !has[row]);
    if (this.search || this.tiled) this.face.hide(); else this.face.show(this.dir, state, shown);
    this.grid.style.maxHeight = this.face.box.hidden ? '' : `max(55%, 100% - 360px)`;
    this.grid.style.flexBasis = this.face.box.hidden ? '' : 35 + total * height + 'px';
  }
  /** Chooses rows, or tiles for pictures. Results of a search are always rows. */
  shape() {
    const tiled = !this.search && inTiles();
    if (this.rows && tiled === this.tiled) return;
    this.tiled = tiled;
    this.rows?.close();
    const need = (a, b) => { this.point(); this.listing.need(a, b); };
    this.rows = tiled ? new Tiles(this.grid, { head: 33, make: makeTile, fill: (t, i) => fillTile(t, i, this), need, chosen: () => this.sel })
      : new Rows(this.grid, { height, head: 33, make: () => this.make(), fill: (r, i) => this.fill(r, i), need });
    document.body.dataset.tiled = tiled ? 'true' : '';
  }
  sortBy(id) { if (!this.contents) go({ ...searching(), sort: sortedBy(id, orderOf(here.sort)) }, { replace: true }); }
  showOrder() {
    const { sort, dir } = orderOf(here.sort);
    for (const c of this.head.children) c.setAttribute('aria-sort', c.key === sort && !this.contents ? dir + 'ending' : 'none');
  }
  /** Selects the row of a path, wherever it is in the list. */
  async reveal(path, page) {
    const { listing } = this;
    let i;
    try { i = await listing.place(path); } catch { return; }
    if (i >= 0 && !listing.shown.ended && !page.ended) this.select(i);
  }

  /** Says above the list what it has. */
  tell() {
    const { state, total } = this.listing, told = this.contents ? lineTotals : this.search ? resultTotals : folderTotals;
    this.what.textContent = this.failed ? '' : told(state, total, this);
    this.sum.textContent = this.search || this.tiled || !state.all?.c ? '' : sumOf(state);
    this.everywhere.hidden = !this.search || !state.begin;
    this.tiles.hidden = !!this.search || !usual() || !state.pictures && !this.tiled;
    this.tiles.setAttribute('aria-pressed', String(!!this.tiled));
    this.empty.hidden = !this.failed && (!state.complete || total > 0);
    this.empty.replaceChildren(this.failed ? el('span', { class: 'fault', role: 'alert' }, this.failed.message) : this.nothing());
    this.offerZip();
    if (!this.search) this.surveyed(archive);
  }
  nothing() {
    if (!this.search) return this.tiled ? 'No pictures in this folder.' : 'This folder is empty.';
    const q = this.search.q.trim();
    if (this.contents) return `No file contains “${q}”.`;
    const filtered = ['kind', 'min', 'max', 'since', 'until'].some(k => this.search[k]);
    return (q ? `No names match “${q}”` : 'Nothing matches') + (filtered ? ' with these filters.' : '.');
  }
  /** Sets what the button above the list downloads: the folder, all results, or the selection. */
  offerZip() {
    const n = this.picked.size, dir = this.search ? '' : this.dir, { total, state } = this.listing;
    this.zip.hidden = !usual() || !n && !!this.search && (this.contents || !state.complete || !total);
    this.zip.textContent = n ? `Download ${num(n)} as zip` : this.search ? 'Download all' : 'Download folder';
    this.zip.title = n ? 'Download the selection as a zip' : this.search ? 'Download all results as a zip' : 'Download this folder as a zip';
    this.zip.href = !n && this.search ? ask.url('search.zip', args(asked(this.search)))
      : zipURL(here.archive, dir, [...this.picked].map(p => dir ? p.slice(dir.length + 1) : p));
    document.body.dataset.picked = n ? String(n) : '';
  }
  /** Offers a button for the folder's properties, if they are not shown beside the list. */
  offer(open, name) { this.about.hidden = !open; this.about.textContent = name; this.about.onclick = open; }
  /** A check has begun or ended: rows show its findings. */
  checked() { this.listing?.renew(); }
  surveyed(a) {
    if (a.survey.state === 'running' || this.summed) return; // folders have sizes now
    this.summed = true;
    if (!this.search && this.listing && !this.listing.state.all) this.listing.renew();
  }

  make() {
    const icon = el('i', { class: 'icon', 'aria-hidden': 'true' });
    const name = el('div', { role: 'gridcell', class: 'name' }, icon, el('span', { class: 'word' }), el('span', { class: 'note' }));
    const cell = (id, ...more) => el('div', { role: 'gridcell', class: id }, more);
    return el('div', { role: 'row', class: 'row' }, name, cell('files'), cell('size', el('span', { class: 'share', 'aria-hidden': 'true' }, el('i')), el('span')), cell('time'));
  }
  at(i) { return this.listing.at(i); }
  pathAt(i) { const r = this.at(i); return r && this.listing.pathOf(r); }
  isChosen(i, path) { return i === this.sel || this.picked.size > 0 && this.picked.has(path); }
  fill(row, i) {
    const r = this.at(i), [name, files, bytes, when] = row.children, [icon, word, noted] = name.children, [bar, much] = bytes.children;
    row.i = i; row.id = 'row-' + i;
    row.setAttribute('aria-rowindex', i + 2);
    row.setAttribute('aria-selected', String(this.isChosen(i, this.pathAt(i))));
    row.classList.toggle('waiting', !r);
    row.dataset.health = r ? healthOf(r) : '';
    icon.className = 'icon ' + (!r ? '' : r.k && r.k !== 'hardlink' ? r.k : 'k' + (wordsOf().icon ?? r.h ?? 0));
    const share = r && !this.search && shareOf(r, this.listing.state.all);
    bar.hidden = !(share > 0);
    bar.firstChild.style.width = 100 * share + '%';
    if (!r) { word.textContent = noted.textContent = files.textContent = much.textContent = when.textContent = ''; return; }
    word.title = r.p ?? r.n;
    showName(word, word.title);
    if (r.text !== undefined) word.title += `:${r.line}: ${r.text}`;
    noted.textContent = noteOf(r);
    noted.classList.toggle('bad', !!r.bad || r.health === 'damaged' || !!r.below);
    noted.classList.toggle('odd', r.health === 'odd');
    files.textContent = r.c ? num(r.c) : '';
    much.textContent = r.k === 'dir' && r.s === undefined ? '' : r.k === 'dir' && !r.c ? '–' : size(r.s);
    bytes.title = r.s === undefined ? '' : [count(r.s, 'byte'), r.c && wordsOf().files(r.c), share >= 0 && `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} % of the folder`].filter(Boolean).join(', ');
    when.textContent = time(r.t);
  }

  /** Puts the rows that are known on paper, and the number of the others. */
  print() {
    this.printed?.remove();
    if (!this.listing) return;
    const { total } = this.listing, n = this.tiled ? 0 : Math.min(total, paper), list = [];
    while (list.length < n && this.at(list.length)) {
      const row = this.make();
      this.fill(row, list.length);
      row.removeAttribute('id');
      list.push(row);
    }
    const left = total - list.length;
    this.printed = el('div', { class: 'printed', role: 'presentation' }, list, left > 0 && !this.tiled && el('p', { class: 'hint' }, `${num(left)} more rows are not printed.`));
    this.grid.append(this.printed);
  }
  mark() {
    this.point();
    document.body.dataset.sel = this.sel < 0 ? '' : this.pathAt(this.sel) ?? '';
  }
  /** Tells screen readers which row is selected, if that row exists now. */
  point() {
    if (this.sel >= 0 && $('row-' + this.sel)) this.grid.setAttribute('aria-activedescendant', 'row-' + this.sel);
    else this.grid.removeAttribute('aria-activedescendant');
  }
  select(i) {
    this.sel = Math.max(-1, Math.min(i, this.listing.total - 1));
    if (this.sel >= 0) this.rows.show(this.sel); else this.rows.draw();
    this.mark();
  }
  /** Selects the rows from a to b. Without all, rows that are selected are deselected. */
  pick(a, b, all) {
    if (!usual()) return;
    for (let i = Math.min(a, b); i <= Math.max(a, b) && this.picked.size < 1000; i++) {
      const path = this.pathAt(i);
      if (path === undefined || this.at(i).whole) continue;
      if (!all && this.picked.has(path)) this.picked.delete(path); else this.picked.add(path);
    }
    this.sel = b;
    this.offerZip(); this.rows.draw(); this.mark();
  }
  open(i) {
    const path = this.pathAt(i);
    if (path) go({ path });
  }
  download(i) {
    const r = this.at(i), path = this.pathAt(i);
    if (path && usual()) el('a', { href: r.k === 'dir' ? zipURL(here.archive, path) : urlOf(path) + '?download', download: '' }).click();
  }
  click(e) {
    const r = e.target.closest('.row, .tile');
    if (!r || e.target.closest('a')) return;
    if (e.ctrlKey || e.metaKey || e.shiftKey) {
      e.preventDefault();
      this.pick(e.shiftKey && this.sel >= 0 ? this.sel : r.i, r.i, e.shiftKey);
      return;
    }
    this.select(r.i); this.open(r.i);
  }
  /** The row to which a key leads. */
  step(key) {
    const { sel, rows, tiled } = this, page = Math.max(1, rows.fits - 1), line = rows.cols ?? 1;
    return {
      ...tiled && { ArrowRight: sel + 1, ArrowLeft: sel - 1 }, ArrowDown: sel < 0 ? 0 : sel + line, ArrowUp: sel - line,
      PageDown: sel + page, PageUp: sel - page, Home: 0, End: rows.total - 1,
    }[key];
  }
  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const to = this.step(e.key), own = !e.target.closest('button');
    if (to !== undefined) { e.preventDefault(); this.select(Math.max(0, to)); }
    else if (e.key === ' ' && own) { e.preventDefault(); if (this.sel >= 0) this.pick(this.sel, this.sel); }
    else if (e.key === 'Enter' && own && this.sel >= 0) { e.preventDefault(); this.open(this.sel); }
    else if (e.key === 'd' && this.sel >= 0) this.download(this.sel);
  }
}

/** Whether folders are shown as pictures. */
const inTiles = () => here.show === 'pictures' && usual();
const healthOf = r => r.bad ? 'damaged' : r.health ?? (r.below ? 'inside' : '');
function noteOf(r) {
  if (r.text !== undefined) return `${num(r.line)}: ${r.text}`;
  if (r.bad || r.health) return r.bad ? 'unreadable' : healthWord(r.health);
  return r.below ? `${num(r.below)} damaged inside` : r.own ? 'internal' : r.k && r.k !== 'dir' ? wordsOf().kinds[r.k] ?? r.k : '';
}

function folderTotals(s, total, { tiled }) {
  const files = total - s.dirs, words = wordsOf(), folders = s.dirs > 0 && words.folders(s.dirs), list = (...words) => words.filter(Boolean).join(', ');
  if (s.dirs === undefined) return '';
  if (tiled) return list(folders, count(files, 'picture') + (s.files > files ? ` in ${count(s.files, 'file')}` : ''));
  return list(folders, files > 0 && words.files(files)) + (s.complete ? '' : '…');
}
const sumOf = ({ all, dirs }) => ' · ' + (dirs > 0 ? wordsOf().files(all.c) + ' in all, ' : '') + size(all.s);
function resultTotals(s, total) {
  const found = s.found ?? total, failed = s.error ? ': ' + s.error : '';
  if (s.begin) return count(found, 'name begins', 'names begin') + ' with this' + failed;
  const more = found > total ? `, the first ${num(total)} are listed: narrow the search to see others` : '';
  return `${num(found)} found${s.complete ? '' : '…'}${more}${failed}`;
}
function lineTotals(s, total, { dir }) {
  const whole = archive.survey.state === 'complete' && !dir ? ' of ' + size(archive.survey.bytes) : '';
  if (!s.complete) return `${count(s.found, 'line')} so far, ${size(s.bytes)}${whole} searched…`;
  const failed = (s.failed ? `; ${count(s.failed, 'file')} could not be read` : '') + (s.error ? '; ' + s.error : '');
  return `${count(s.found, 'line')} in ${count(s.files, 'file')}, ${size(s.bytes)}${failed}`;
}
