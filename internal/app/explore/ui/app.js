// The page shows what its address names. It connects the views; no other module imports it.
import { plainName, $, el, say, size, count, base, parent, isAlone, isDamage } from './base.js';
import { tabs, ofFolders, here, archive, entry, opened, found, address, read, go, folder, args, hasKind, searching, searches, noSearch, note } from './state.js';
import { errorPage, crumbs, tabLinks, viewPicker, propertiesOf, alarmsOf } from './frame.js';
import { Shown } from './shown.js';
import { help } from './keys.js';
import { showArchives } from './archives.js';
import { Files } from './files.js';
import { Tree } from './tree.js';
import { Detail, covering } from './detail.js';
import { ByteMap } from './map.js';
import { Treemap } from './treemap.js';
import { Compare } from './compare.js';
import { Check } from './verify.js';
import { About } from './about.js';
import { Damage } from './damage.js';

const screens = { list: Files, map: ByteMap, treemap: Treemap, compare: Compare, verify: Check, damage: Damage, about: About };

/**
 * What the page shows. Each address, the archive, and the progress of its survey and check are
 * shown until something else is, and so is all that was requested for them.
 */
class Page {
  shown = new Shown(); // the address
  open = new Shown(); // the archive in its view, called key
  following = new Shown();
  key = ''; tab = ''; news = ''; replaced = 0; failed = false;
  screen; detail; tree; checked; known;

  async show() {
    this.shown.end();
    const shown = this.shown = new Shown();
    read();
    this.failed = false;
    document.body.dataset.ready = '';
    this.showSearch();
    await shown.attempt(() => here.archive ? this.showArchive(shown) : this.showStart(shown), err => this.fail(err));
    if (!shown.ended) document.body.dataset.ready = '1';
  }
  async showStart(shown) {
    this.leave();
    await showArchives($('main'), shown);
  }
  async showArchive(shown) {
    const key = () => here.archive + '\n' + here.view;
    if (this.key !== key()) {
      this.leave();
      const a = await this.describe(shown);
      this.enter(key(), a);
    }
    found(here.path ? await this.find(shown, here.path) : undefined);
    this.frame();
    await this.fill(shown);
  }
  /** Of an archive that cannot be opened, the page shows what is left. */
  async describe(shown) {
    const { archive: a, view } = here;
    try {
      return await shown.json('archive', { a, view });
    } catch (err) {
      if (shown.ended || isAlone() || view === 'bytes' || !isDamage(err)) throw err;
      const left = await shown.json('archive', { a, view: 'bytes' }).catch(() => { throw err; });
      note({ ...noSearch, view: 'bytes', tab: 'damage', path: '', from: undefined, to: undefined });
      return left;
    }
  }
  enter(key, a) {
    opened(a);
    this.key = key; this.checked = a.verify.state;
    this.open = new Shown();
    $('find').hidden = false;
    $('inside').hidden = !!a.static;
    this.detail = new Detail($('detail'), () => this.closeDetail());
    this.tree = new Tree($('tree'));
    this.follow();
  }
  async find(shown, path) {
    if (this.known?.path !== path) this.known = { path, entry: await shown.json('entry', args({ path })) };
    return this.known.entry;
  }
  leaveScreen() { this.screen?.close?.(); this.screen = undefined; this.tab = ''; }
  leave() {
    this.leaveScreen();
    this.open.end();
    this.following.end();
    this.detail?.close(); this.tree?.close();
    this.detail = this.tree = this.known = undefined; this.key = '';
    opened(); found();
    for (const id of ['tabs', 'alarm', 'side', 'detail', 'find', 'title']) $(id).hidden = true;
    $('crumbs').replaceChildren();
    document.title = 'holdall';
    document.body.dataset.tab = 'archives';
  }
  /** Says what is wrong instead of showing it. A search of the archive, if there is one, leads out. */
  fail(err) {
    this.leaveScreen();
    this.failed = true;
    $('main').replaceChildren(errorPage(err, { again: () => this.show(), archive: archive && here.archive, view: here.archive && here.view }));
    say('');
  }

  /** Shows the views, the path, and what else is around a view. */
  frame() {
    document.title = (here.path ? base(here.path) + ' · ' : '') + plainName(here.archive) + ' · holdall';
    $('crumbs').replaceChildren(...crumbs());
    $('crumbs').scrollLeft = 1e6;
    $('tabs').hidden = false;
    $('tabs').replaceChildren(...tabLinks(), el('span', { class: 'grow' }), archive.views?.length > 1 ? viewPicker() : '');
    $('title').textContent = plainName(here.archive);
    $('title').hidden = ['verify', 'damage', 'about'].includes(here.tab);
    $('side').hidden = !ofFolders.includes(here.tab);
    document.body.dataset.tab = here.tab;
    document.body.dataset.path = here.path;
  }
  async fill(shown) {
    const dir = folder(), isFile = entry && entry.kind !== 'dir';
    if (this.tab !== here.tab) {
      this.leaveScreen();
      $('main').replaceChildren();
      this.tab = here.tab;
      this.screen = new screens[here.tab]($('main'));
    }
    this.tree.select(dir);
    const special = here.tab === 'list' && (entry ? entry.array || entry.grouped || hasKind('node') : hasKind('node') && !here.path);
    // On a narrow screen, a folder's properties must not cover its list.
    const now = isFile || special && !covering.matches, open = () => this.detail.show(here.path, entry ?? { kind: 'dir', path: '' });
    this.screen.offer?.(special && !now ? open : undefined, propertiesOf(entry));
    this.tell();
    await Promise.all([this.screen.show(dir, isFile ? here.path : undefined, shown), now ? open() : this.detail.hide()]);
  }

  /** Shows the size of the archive at the foot of the page, and what is wrong with it above the view. */
  tell() {
    const alarms = alarmsOf(archive), s = archive.survey, soFar = s.state === 'running' ? '…' : '';
    $('alarm').replaceChildren(...alarms.map(([tone, ...text]) => el('p', { class: tone }, text)));
    $('alarm').hidden = !alarms.length;
    const content = `${count(s.entries, 'entry', 'entries')}${soFar} · ${size(s.bytes)}${soFar} of content`;
    say([content, archive.stored && `${size(archive.stored)} stored`, s.error].filter(Boolean).join(' · '), this.news || archive.title);
    Object.assign(document.body.dataset, { alarm: alarms.map(a => a[0]).join(' '), news: this.news, survey: s.state });
  }
  /** Asks for the progress of the survey and of the check, until both have ended. */
  follow() {
    this.following.end();
    if (!archive || archive.survey.state !== 'running' && archive.verify.state !== 'running') return;
    this.following = new Shown(this.open);
    this.following.later(400, () => this.progress(this.following));
  }
  async progress(shown) {
    try { opened(await shown.json('archive', args({}))); } catch { /* the next one reports it */ }
    if (shown.ended) return;
    if (!this.failed && this.screen) this.progressed();
    this.follow();
  }
  progressed() {
    this.tell();
    this.screen.surveyed?.(archive);
    if (this.checked === archive.verify.state) return;
    this.checked = archive.verify.state;
    this.screen.checked?.();
    this.tree.checked();
  }
  /** The shown archive was replaced: request everything again. */
  renew() {
    if (!archive || Date.now() - this.replaced < 1500) return;
    this.replaced = Date.now();
    this.leave();
    this.news = 'The archive was replaced; this is the new one.';
    setTimeout(() => { this.news = ''; if (archive && this.screen) this.tell(); }, 15000);
    this.show();
  }
  closeDetail() {
    if (entry && entry.kind !== 'dir') go({ ...searching(), path: folder() }); else this.detail.hide();
    this.screen?.focus?.();
  }

  /** Shows the search of the address where it is typed. */
  showSearch() {
    if ($('q').value !== here.q) $('q').value = here.q;
    if (here.q) this.searchIn(here.match === 'contents');
  }
  get inside() { return $('inside').getAttribute('aria-pressed') === 'true'; }
  searchIn(contents) {
    $('inside').setAttribute('aria-pressed', String(contents));
    $('q').placeholder = contents ? 'Search contents (Enter)' : 'Search names  /';
  }
  /** Searches names while the user types, and contents when it is asked for. */
  typed() {
    this.typing?.end();
    if (this.inside && $('q').value.trim()) return;
    this.typing = new Shown(this.shown);
    this.typing.later(90, () => this.search());
  }
  search() {
    const q = $('q').value, { match, ...filters } = searching();
    const change = q.trim() ? { q } : {};
    if (this.inside) Object.assign(change, q.trim() && { match: 'contents' });
    else Object.assign(change, filters, { q: change.q ?? '', match: match === 'regexp' ? match : '' });
    const path = this.failed ? '' : here.tab === 'list' ? here.path : folder();
    go({ tab: 'list', path, ...change }, { replace: here.tab === 'list' && !this.failed });
  }
  toggleInside() {
    this.searchIn(!this.inside);
    $('q').focus();
    if ($('q').value) this.typed();
  }
  endSearch() {
    $('q').value = '';
    this.typing?.end();
    go({ ...noSearch }, { replace: true });
    this.screen?.focus?.();
  }
}

const page = new Page();

function escape(e) {
  if ($('q').value || searches(searching())) { e.preventDefault(); page.endSearch(); }
  else if (document.activeElement === $('q')) page.screen?.focus?.();
  else if (!$('detail').hidden) { e.preventDefault(); page.closeDetail(); }
}
addEventListener('keydown', e => {
  const at = /** @type {Element} */ (e.target);
  if (e.key === 'Escape' && !at.closest?.('dialog')) return escape(e);
  if (at.closest?.('input, select, textarea, dialog') || e.ctrlKey || e.metaKey || e.altKey) return;
  const tab = tabs.find(t => t[2] === e.key), act = f => { e.preventDefault(); f(); };
  if (e.key === '?') act(help);
  else if (!archive) return;
  else if (e.key === '/') act(() => { $('q').focus(); $('q').select(); });
  else if (tab && document.querySelector(`#tabs a[data-tab=${tab[0]}]`)) act(() => go({ tab: tab[0], from: undefined, to: undefined }));
  else if (e.key === 'Backspace' && here.path) act(() => go({ path: entry?.kind !== 'dir' ? folder() : parent(here.path) }));
  else if ('123'.includes(e.key) && here.tab === 'list') page.screen?.sortBy?.(['name', 'size', 'time'][Number(e.key) - 1]);
});
$('help').addEventListener('click', help);
$('theme').addEventListener('click', () => window.toggleTheme());
$('skip').addEventListener('click', e => { e.preventDefault(); (page.screen?.focus ? page.screen : $('main')).focus(); });
$('inside').addEventListener('click', () => page.toggleInside());
$('q').addEventListener('input', () => page.typed());
$('q').addEventListener('keydown', e => {
  if (e.key === 'Enter' && page.inside) { e.preventDefault(); page.search(); }
  else if (e.key === 'ArrowDown' || e.key === 'Enter') { e.preventDefault(); page.screen?.focus?.(); }
});
// A frame shows where keys lead. What has the focus by itself needs none before a key is pressed.
addEventListener('keydown', () => document.body.classList.add('keyed'), true);
addEventListener('pointerdown', () => document.body.classList.remove('keyed'), true);
addEventListener('theme', () => page.screen?.repaint?.());
addEventListener('replaced', () => page.renew());
addEventListener('checking', () => page.follow());
addEventListener('moved', () => page.show());
addEventListener('popstate', () => page.show());
addEventListener('hashchange', () => { if (address(here) !== location.hash) page.show(); });
addEventListener('error', e => { document.body.dataset.error = e.message; });
addEventListener('unhandledrejection', e => {
  if (e.reason?.name === 'AbortError') e.preventDefault(); else document.body.dataset.error = String(e.reason);
});
page.show();
