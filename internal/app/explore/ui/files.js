// A table of any length: the contents of a folder, or the results of a search.
import { showName, $, el, ask, say, size, num, count, time, join, zipURL, quiet, parent, healthWord } from './base.js';
import { go, here, args, archive, urlOf, usual, hasKind, note, address } from './state.js';
import { Rows, Pages } from './rows.js';
import { Tiles } from './tiles.js';

const columns = [['name', 'Name'], ['size', 'Size'], ['time', 'Modified']];
const largest = 8 << 20; // bytes of a picture that a tile shows
const height = matchMedia('(pointer: coarse)').matches ? 42 : 32;

export class Files {
  constructor(main) {
    this.dir = undefined; this.q = ''; this.hits = undefined; this.sel = -1;
    this.picked = new Set(); // paths that are downloaded as one zip
    this.head = el('div', { role: 'row', class: 'head', 'aria-rowindex': '1' }, columns.map(([id, name]) => {
      const c = el('div', { role: 'columnheader', class: id }, el('button', { type: 'button', tabindex: '-1', onclick: () => this.sortBy(id) }, name));
      c.key = id;
      return c;
    }));
    this.grid = el('div', { id: 'grid', role: 'grid', tabindex: '0', 'aria-label': 'Files', 'aria-multiselectable': 'true' }, this.head);
    this.empty = el('p', { class: 'empty', hidden: true });
    this.zip = el('a', { class: 'button', id: 'zip', title: 'Download this folder as a zip' }, 'Download folder');
    this.about = el('button', { type: 'button', id: 'folder-about', hidden: true });
    this.tiles = el('button', { type: 'button', id: 'pictures', hidden: true, onclick: () => go({ show: here.show ? '' : 'pictures' }, { replace: true }) }, 'Pictures');
    this.everywhere = el('button', { type: 'button', id: 'everywhere', hidden: true, title: 'Search all names; this reads the whole index', onclick: () => { this.ask($('q').value, 'yes'); this.focus(); } }, 'Search all names');
    this.bar = el('div', { class: 'bar' }, this.what = el('span', { class: 'what' }), el('div', { class: 'group' }, this.everywhere, this.tiles, this.about, this.zip));
    main.append(el('div', { class: 'files' }, this.bar, this.grid, this.empty));
    this.shape();
    this.pages = new Pages((o, n, signal) => this.get(o, n, signal), err => { if (err) say(err.message); this.rows.draw(); this.mark(); });
    this.grid.addEventListener('keydown', e => this.key(e));
    this.grid.addEventListener('click', e => {
      const r = e.target.closest('.row, .tile');
      if (!r || e.target.closest('a')) return;
      if (e.ctrlKey || e.metaKey || e.shiftKey) { e.preventDefault(); this.pick(e.shiftKey && this.sel >= 0 ? this.sel : r.i, r.i, e.shiftKey); return; }
      this.select(r.i); this.open(r.i);
    });
  }
  /**
   * Begins to show a folder, or with q the results of a search. Whatever was requested for something
   * else is aborted here, so that a late answer is never shown. Each request has this signal, or that
   * of a page.
   */
  begin(q = '') {
    this.turn?.abort(); clearTimeout(this.timer); clearTimeout(this.typing);
    if (q) this.pages.stop(); else { this.pages.clear(); this.grid.classList.remove('found'); }
    this.q = q; this.turn = new AbortController();
    return this.turn.signal;
  }
  /** Chooses rows, or tiles for pictures. Results of a search are always rows. */
  shape() {
    const tiled = here.show === 'pictures' && !this.hits && usual();
    if (this.rows && tiled === this.tiled) return;
    this.tiled = tiled;
    this.rows?.close();
    const need = (a, b) => { this.point(); if (!this.q) this.pages.need(a, b); };
    this.rows = tiled ? new Tiles(this.grid, { head: 33, make: () => this.makeTile(), fill: (t, i) => this.fillTile(t, i), need, chosen: () => this.sel })
      : new Rows(this.grid, { height, head: 33, make: () => this.make(), fill: (r, i) => this.fill(r, i), need });
    document.body.dataset.tiled = tiled || '';
  }
  close() { document.body.dataset.tiled = ''; this.rows.close(); this.begin(); this.turn.abort(); }
  focus() { this.grid.focus(); }
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
  /** Sets what the button above the list downloads: the folder, or the selection. */
  offerZip() {
    const n = this.picked.size, dir = this.hits ? '' : this.dir;
    this.zip.hidden = !usual() || !!this.hits && !n;
    this.zip.textContent = n ? `Download ${num(n)} as zip` : 'Download folder';
    this.zip.title = n ? 'Download the selection as a zip' : 'Download this folder as a zip';
    this.zip.href = zipURL(here.archive, dir, [...this.picked].map(p => dir ? p.slice(dir.length + 1) : p));
    document.body.dataset.picked = n || '';
  }
  /** Offers a button for the folder's properties, if they are not shown beside the list. */
  offer(open, name) { this.about.hidden = !open; this.about.textContent = name; this.about.onclick = open; }
  get only() { return this.tiled ? 'pictures' : undefined; }
  get order() { const [by, dir] = (here.sort || 'name').split('-'); return { by: columns.some(c => c[0] === by) ? by : 'name', desc: dir === 'desc' }; }
  sortBy(id) {
    const { by, desc } = this.order;
    const down = by === id ? !desc : id !== 'name'; // the largest and the newest first
    go({ sort: id === 'name' && !down ? '' : id + (down ? '-desc' : '') }, { replace: true });
  }
  async show(dir, file) {
    const sort = here.sort + here.show;
    if (this.dir !== dir || this.sort !== sort) {
      const moved = this.dir !== dir, from = this.dir;
      this.dir = dir; this.sort = sort; this.hits = undefined; this.picked.clear();
      if (document.activeElement !== $('q')) $('q').value = ''; // the user may be typing in it
      const signal = this.begin();
      this.shape();
      await this.load(signal);
      if (signal.aborted) return;
      if (moved && !file) this.select(from !== undefined && parent(from) === dir ? this.index(from) : -1);
    }
    if (here.q && here.q !== $('q').value) { $('q').value = here.q; await this.ask(here.q); }
    if (file) await this.reveal(file);
    if (!document.activeElement || document.activeElement === document.body) this.grid.focus({ preventScroll: true });
  }
  /** Selects the row of a path, wherever it is in the list. */
  async reveal(path) {
    let i = this.index(path);
    if (i < 0 && !this.q) {
      const { by, desc } = this.order, { signal } = this.turn;
      try { i = (await ask.json('ls', args({ path: this.dir, limit: 0, sort: by, dir: desc ? 'desc' : 'asc', only: this.only, find: path }), { signal })).at; } catch { return; }
      if (signal.aborted) return;
    }
    if (i >= 0) this.select(i);
  }
  /** A check has begun or ended: rows show its findings. */
  checked() { if (!this.q) { this.pages.clear(); this.rows.draw(); } }
  index(path) {
    if (this.hits) return this.hits.findIndex(h => h.p === path);
    for (const [p, items] of this.pages.pages) {
      const k = items.findIndex(r => join(this.dir, r) === path);
      if (k >= 0) return p * this.pages.page + k;
    }
    return -1;
  }
  async get(offset, limit, signal) {
    const { by, desc } = this.order;
    const r = await ask.json('ls', args({ path: this.dir, offset, limit, sort: by, dir: desc ? 'desc' : 'asc', only: this.only }), { signal });
    signal.throwIfAborted();
    this.took(r);
    return r.items;
  }
  took(r) {
    this.state = r;
    const were = this.rows.total;
    this.rows.grow(r.total);
    this.grid.setAttribute('aria-rowcount', Math.ceil(r.total / (this.rows.cols ?? 1)) + 1);
    document.body.dataset.total = r.total;
    if (were !== r.total) this.tell();
    clearTimeout(this.timer);
    if (!r.complete) this.timer = setTimeout(() => this.more(), 300);
  }
  /** Requests the number of rows known so far. When all are known, folders come first. */
  async more() {
    const { signal } = this.turn;
    try {
      const r = await ask.json('ls', args({ path: this.dir, limit: 0, only: this.only }), { signal });
      if (signal.aborted) return;
      this.took(r);
      if (r.complete) { this.pages.clear(); this.rows.draw(); }
      this.tell();
    } catch { /* the next page reports it */ }
  }
  async load(signal) {
    this.rows.set(0);
    this.empty.hidden = true;
    for (const c of this.head.children) {
      const { by, desc } = this.order;
      c.setAttribute('aria-sort', c.key === by ? (desc ? 'descending' : 'ascending') : 'none');
    }
    this.offerZip();
    const { under } = this.pages;
    let items;
    try { items = await this.get(0, this.pages.page, signal); } catch (err) { if (signal.aborted) return; throw err; }
    if (under !== this.pages.under) return;
    this.pages.pages.set(0, items);
    this.tell();
    this.rows.draw();
  }
  tell() {
    const s = this.state;
    if (this.q || !s) return;
    const more = s.complete ? '' : '…';
    this.tiles.hidden = !usual() || !s.pictures && !this.tiled;
    this.tiles.setAttribute('aria-pressed', String(this.tiled));
    this.what.textContent = this.tiled ? [s.dirs && count(s.dirs, 'folder'), count(s.total - s.dirs, 'picture') + (s.files > s.total - s.dirs ? ` in ${count(s.files, 'file')}` : '')].filter(Boolean).join(', ')
      : [s.dirs && count(s.dirs, 'folder'), s.total - s.dirs > 0 && (hasKind('node') ? count(s.total - s.dirs, 'property', 'properties') : count(s.total - s.dirs, 'file'))].filter(Boolean).join(', ') + more;
    this.empty.hidden = s.total > 0;
    this.empty.textContent = this.tiled ? 'No pictures in this folder.' : 'This folder is empty.';
    this.surveyed(archive);
  }
  surveyed(a) {
    const v = a.survey;
    if (v.state !== 'running' && !this.summed) { // folders have sizes now
      this.summed = true;
      if (!this.q && this.state?.dirs && this.dir !== undefined) { this.pages.clear(); this.rows.draw(); }
    }
  }
  make() {
    const name = el('div', { role: 'gridcell', class: 'name' }, el('i', { class: 'icon', 'aria-hidden': 'true' }), el('span', { class: 'word' }), el('span', { class: 'note' }));
    return el('div', { role: 'row', class: 'row' }, name, el('div', { role: 'gridcell', class: 'size' }), el('div', { role: 'gridcell', class: 'time' }));
  }
  makeTile() {
    const t = el('div', { role: 'gridcell', class: 'tile' }, el('div', { class: 'thumb' }, el('i', { class: 'icon', 'aria-hidden': 'true' }), el('img', { alt: '', decoding: 'async', hidden: true })),
      el('div', { class: 'caption' }, el('span', { class: 'word' })), el('div', { class: 'hint note' }));
    const [icon, img] = t.firstChild.children;
    img.onload = () => { img.hidden = false; icon.hidden = true; t.dataset.picture = 'shown'; };
    img.onerror = () => { if (!img.getAttribute('src')) return; t.dataset.picture = 'failed'; t.lastChild.firstChild.textContent = 'cannot be shown'; t.lastChild.classList.add('bad'); };
    return t;
  }
  fillTile(t, i) {
    const r = this.at(i), [thumb, caption, noted] = t.children, [icon, img] = thumb.children, path = r && this.pathAt(i);
    t.i = i; t.id = 'row-' + i;
    t.setAttribute('aria-selected', String(i === this.sel || this.picked.size > 0 && this.picked.has(path)));
    t.dataset.health = r ? r.bad ? 'damaged' : r.health ?? (r.below ? 'inside' : '') : '';
    t.classList.toggle('waiting', !r);
    const key = r && [path, t.dataset.health, r.below, r.c].join('\n');
    if (t.key === key) return;
    t.key = key;
    clearTimeout(t.timer);
    img.hidden = true; img.removeAttribute('src'); icon.hidden = false; t.dataset.picture = '';
    noted.classList.toggle('bad', !!r?.health || !!r?.below); noted.replaceChildren();
    icon.className = 'icon ' + (r?.k === 'dir' ? 'dir' : 'k' + (r?.h ?? 0));
    caption.firstChild.textContent = r?.n ?? ''; caption.firstChild.title = r?.n ?? '';
    if (!r) return;
    if (r.k === 'dir') { t.dataset.picture = 'none'; noted.textContent = r.below ? `${num(r.below)} damaged inside` : r.c ? count(r.c, 'file') : ''; return; }
    const stem = r.n.indexOf('.');
    noted.append(r.health ? healthWord(r.health) : size(r.s), ...(r.with ?? []).flatMap(n => [' · ', el('a', { href: address({ ...here, path: this.dir ? this.dir + '/' + n : n }), title: n }, n.slice(stem + 1))]));
    if (r.s > largest) { t.dataset.picture = 'large'; return; }
    // Fast scrolling must not request every picture that passes.
    t.timer = setTimeout(() => { img.src = urlOf(path); }, 60);
  }
  at(i) { return this.hits ? this.hits[i] : this.pages.at(i); }
  pathAt(i) { const r = this.at(i); return r && (this.hits ? r.p : join(this.dir, r)); }
  fill(row, i) {
    const r = this.at(i), [name, bytes, when] = row.children, [icon, word, noted] = name.children;
    row.i = i; row.id = 'row-' + i;
    row.setAttribute('aria-rowindex', i + 2);
    row.setAttribute('aria-selected', String(i === this.sel || this.picked.size > 0 && this.picked.has(this.pathAt(i))));
    row.classList.toggle('waiting', !r);
    if (!r) { word.textContent = noted.textContent = bytes.textContent = when.textContent = ''; icon.className = 'icon'; row.dataset.health = ''; return; }
    icon.className = 'icon ' + (r.k && r.k !== 'hardlink' ? r.k : 'k' + (r.h ?? 0));
    row.dataset.health = r.bad ? 'damaged' : r.health ?? (r.below ? 'inside' : '');
    word.title = this.hits ? r.p : r.n;
    showName(word, word.title);
    if (r.text !== undefined) word.title += `:${r.line}: ${r.text}`;
    noted.textContent = r.text !== undefined ? `${num(r.line)}: ${r.text}` : r.bad ? 'unreadable' : r.health ? healthWord(r.health) : r.below ? `${num(r.below)} damaged inside` : r.own ? 'internal' : r.k && r.k !== 'dir' ? r.k : '';
    noted.classList.toggle('bad', !!r.bad || r.health === 'damaged' || !!r.below);
    noted.classList.toggle('odd', r.health === 'odd');
    bytes.textContent = r.k === 'dir' && r.s === undefined ? '' : r.k === 'dir' && !r.c ? '–' : size(r.s);
    bytes.title = r.s === undefined ? '' : count(r.s, 'byte') + (r.c ? ', ' + count(r.c, 'file') : '');
    when.textContent = this.hits ? '' : time(r.t);
  }
  mark() {
    this.point();
    document.body.dataset.sel = this.sel < 0 ? '' : this.pathAt(this.sel) ?? '';
  }
  /** Tells screen readers which row is selected, if that row exists now. */
  point() {
    if (this.sel >= 0 && $('row-' + this.sel)) this.grid.setAttribute('aria-activedescendant', 'row-' + this.sel); else this.grid.removeAttribute('aria-activedescendant');
  }
  select(i) {
    this.sel = Math.max(-1, Math.min(i, this.rows.total - 1));
    if (this.sel >= 0) this.rows.show(this.sel); else this.rows.draw();
    this.mark();
  }
  open(i) {
    const path = this.pathAt(i);
    if (path === undefined || path === '') return;
    if (this.hits && !this.hits[i].line) note({ q: $('q').value });
    go({ path });
  }
  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const page = Math.max(1, this.rows.fits - 1), line = this.rows.cols ?? 1;
    const to = { ...this.tiled && { ArrowRight: this.sel + 1, ArrowLeft: this.sel - 1 }, ArrowDown: this.sel < 0 ? 0 : this.sel + line, ArrowUp: this.sel - line, PageDown: this.sel + page, PageUp: this.sel - page, Home: 0, End: this.rows.total - 1 }[e.key];
    if (to !== undefined) { e.preventDefault(); this.select(Math.max(0, to)); return; }
    if (e.key === ' ' && !e.target.closest('button')) { e.preventDefault(); if (this.sel >= 0) this.pick(this.sel, this.sel); return; }
    if (e.key === 'Enter' && !e.target.closest('button') && this.sel >= 0) { e.preventDefault(); this.open(this.sel); }
    else if (e.key === 'd' && this.sel >= 0 && usual()) {
      const r = this.at(this.sel), path = this.pathAt(this.sel);
      if (path) el('a', { href: r.k === 'dir' ? zipURL(here.archive, path) : urlOf(path) + '?download', download: '' }).click();
    }
  }

  /** Searches while the user types: an earlier search is aborted. */
  search(q, inside) {
    if (this.q) this.turn.abort();
    clearTimeout(this.typing);
    if (!inside || !q.trim()) this.typing = setTimeout(() => this.ask(q), 90);
  }
  /** Searches in the contents of the files below the folder. */
  async searchInside(q) {
    document.body.dataset.search = '';
    if (!q.trim()) return;
    const signal = this.begin(q), hits = [], whole = archive.survey;
    let t = { files: 0, bytes: 0, found: 0 };
    this.rows.top = 0; this.sel = -1; this.picked.clear();
    const paint = () => {
      if (signal.aborted) return;
      this.hits = hits; this.shape();
      this.grid.classList.add('found');
      this.rows.grow(hits.length);
      this.grid.setAttribute('aria-rowcount', hits.length + 1);
      this.what.textContent = t.end ? `${count(t.found, 'line')} in ${count(t.files, 'file')}, ${size(t.bytes)}` + (t.failed ? `; ${count(t.failed, 'file')} could not be read` : '') + (t.error ? '; ' + t.error : '')
        : `${count(t.found, 'line')} so far, ${size(t.bytes)}${whole.state === 'complete' && !this.dir ? ' of ' + size(whole.bytes) : ''} searched…`;
      this.empty.hidden = !t.end || hits.length > 0;
      this.empty.textContent = `No file contains “${q}”.`;
      this.offerZip();
    };
    paint();
    try {
      for await (const x of lines(await ask.raw('grep', args({ q, path: this.dir, limit: 500 }), { signal }))) { if (x.p !== undefined) hits.push(x); else t = x; paint(); }
      paint();
      if (hits.length) this.select(0);
      document.body.dataset.search = q;
    } catch (err) { if (!signal.aborted) say(err.message); quiet(signal.aborted ? { name: 'AbortError' } : err); }
  }
  /**
   * Searches names. Without a server, a long index is first searched only for names that begin with
   * the text, unless all is set.
   */
  async ask(q, all) {
    this.everywhere.hidden = true;
    document.body.dataset.search = '';
    if (!q.trim()) {
      if (this.q) { const signal = this.begin(); this.hits = undefined; this.shape(); this.sel = -1; this.picked.clear(); note({ q: '' }); await this.load(signal); }
      return;
    }
    const signal = this.begin(q);
    const hits = [];
    let seen = 0, found = 0, failed = '', fresh = true, begin = false;
    const paint = end => {
      if (signal.aborted) return;
      if (fresh) { this.rows.top = 0; this.sel = -1; this.picked.clear(); fresh = false; }
      this.hits = hits; this.shape();
      this.grid.classList.add('found');
      this.rows.grow(hits.length);
      this.grid.setAttribute('aria-rowcount', hits.length + 1);
      this.everywhere.hidden = !begin;
      this.what.textContent = end ? (begin ? found < 500 ? `${count(found, 'name begins', 'names begin')} with this` : `The first ${num(found)} names that begin with this` : `${num(found)} found`) + (found > hits.length ? `, the first ${num(hits.length)}` : '') + (failed && ': ' + failed) : `${num(found)} found among ${num(seen)}…`;
      this.empty.hidden = !end || hits.length > 0;
      this.empty.textContent = `No names match “${q.trim()}”.`;
      this.offerZip();
    };
    try {
      const r = await ask.raw('search', args({ q, limit: 500, all }), { signal });
      for await (const x of lines(r)) {
        if (x.p !== undefined) { hits.push(x); found = Math.max(found, hits.length); } else { seen = x.seen; found = x.found; failed = x.error ?? ''; begin = !!x.begin; }
        paint(false);
      }
      paint(true);
      note({ q });
      if (hits.length) this.select(0);
      document.body.dataset.search = q;
    } catch (err) { if (!signal.aborted) { say(err.message); } quiet(signal.aborted ? { name: 'AbortError' } : err); }
  }
}

/** The lines of a response as they arrive, each parsed as JSON. */
async function* lines(r) {
  let rest = '';
  const text = r.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await text.read();
    if (done) return;
    const all = (rest + value).split('\n');
    rest = all.pop();
    for (const line of all) yield JSON.parse(line);
  }
}
