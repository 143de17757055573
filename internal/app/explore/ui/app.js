// The page shows what its address names. It connects the views; no other module imports it.
import { plainName, $, el, ask, say, size, count, problem, base, parent } from './base.js';
import { tabs, ofFolders, here, archive, entry, opened, found, address, read, go, folder, args, hasKind } from './state.js';
import { showArchives } from './archives.js';
import { Files } from './files.js';
import { Tree } from './tree.js';
import { Detail, covering } from './detail.js';
import { ByteMap } from './map.js';
import { Treemap } from './treemap.js';
import { Compare } from './compare.js';
import { Check } from './verify.js';
import { About } from './about.js';

let screen, detail, tree, turn = 0, showing, failed;

let shown = {}; // what the screen shows now
function show() { return showing = showNow(); }
async function showNow() {
  const mine = ++turn;
  failed = false;
  read();
  document.body.dataset.ready = '';
  try {
    if (!here.archive) {
      leave();
      await showArchives($('main'));
    } else {
      if (shown.archive !== here.archive || shown.view !== here.view) {
        leave();
        const a = await ask.json('archive', { a: here.archive, view: here.view });
        if (mine !== turn) return;
        opened(a);
        checked = a.verify.state;
        shown.archive = here.archive; shown.view = here.view;
        $('find').hidden = false;
        $('inside').hidden = !!a.static;
        detail = new Detail($('detail'), closeDetail);
        tree = new Tree($('tree'));
        follow();
      }
      const e = here.path ? await find(here.path) : undefined;
      if (mine !== turn) return;
      found(e);
      frame();
      await fill();
    }
    if (mine !== turn) return;
  } catch (err) {
    if (err.name === 'AbortError' || mine !== turn) return;
    leaveScreen();
    failed = true;
    $('main').replaceChildren(el('div', { class: 'empty' }, el('h1', {}, 'Cannot show this'), problem(err), err.code === 'offline' && el('p', {}, 'Is it still running? The archives reappear when the server is back.'),
      el('p', { class: 'group' }, err.code !== 'not-found' && el('button', { type: 'button', id: 'again', onclick: show }, 'Try again'), here.archive && here.view && el('a', { href: address({ archive: here.archive, tab: 'list' }) }, 'Show the archive in its default view'), el('a', { href: here.archive && shown.archive ? address({ archive: here.archive }) : '#/' }, 'Back to the start'))));
    say('');
  }
  document.body.dataset.ready = '1';
}

let known = {};
async function find(path) {
  const key = here.archive + '\n' + here.view + '\n' + path;
  if (known.key !== key) known = { key, entry: await ask.json('entry', { a: here.archive, view: here.view, path }) };
  return known.entry;
}

function leaveScreen() { screen?.close?.(); screen = undefined; shown.tab = undefined; shown.folder = undefined; }
function leave() {
  leaveScreen();
  clearTimeout(timer);
  detail?.close(); detail = undefined; tree?.close(); tree = undefined; opened(); found(); known = {};
  shown = {};
  for (const id of ['tabs', 'alarm', 'side', 'detail', 'find', 'title']) $(id).hidden = true;
  $('crumbs').replaceChildren(); $('q').value = '';
  document.title = 'holdall';
  document.body.dataset.tab = 'archives';
}

function frame() {
  document.title = (here.path ? base(here.path) + ' · ' : '') + plainName(here.archive) + ' · holdall';
  const crumbs = [el('a', { href: address({ archive: here.archive, view: here.view, tab: here.tab }) }, plainName(here.archive))];
  const parts = entry?.odd ? [here.path] : here.path.split('/').filter(Boolean);
  parts.forEach((p, i) => {
    const path = parts.slice(0, i + 1).join('/');
    crumbs.push(el('span', { class: 'sep', 'aria-hidden': 'true' }, '/'), i === parts.length - 1
      ? el('span', { class: 'here', 'aria-current': 'page', title: p }, p)
      : el('a', { href: address({ ...here, path, q: '', from: undefined }) }, p));
  });
  $('crumbs').replaceChildren(...crumbs);
  $('crumbs').scrollLeft = 1e6;
  const nav = $('tabs');
  nav.hidden = false;
  nav.replaceChildren(...tabs.filter(([id]) => ['map', 'verify', 'compare'].includes(id) || id === 'treemap' && archive.static ? hasKind(id) : true).map(([id, name, key]) =>
    el('a', { href: address({ ...here, tab: id, q: '', from: undefined }), 'aria-current': id === here.tab ? 'true' : undefined, data: { tab: id }, title: `${name} (${key})` }, name)),
  el('span', { class: 'grow' }));
  if (archive.views?.length > 1) {
    const pick = el('select', { id: 'views', 'aria-label': 'View of the archive', onchange: e => go({ view: e.target.value === archive.usual ? '' : e.target.value, path: '', from: undefined }) },
      archive.views.map(v => el('option', { value: v, selected: v === archive.view }, v)));
    nav.append(el('label', { class: 'pick' }, el('span', {}, 'View '), pick));
  }
  $('title').textContent = plainName(here.archive); $('title').hidden = here.tab === 'verify' || here.tab === 'about';
  $('side').hidden = !ofFolders.includes(here.tab);
  if (here.tab !== 'list') $('q').value = '';
  document.body.dataset.tab = here.tab;
  document.body.dataset.path = here.path;
}

/** The shown archive was replaced: request everything again. */
let again = 0, news = '';
addEventListener('replaced', () => {
  if (!archive || Date.now() - again < 1500) return;
  again = Date.now();
  leave();
  news = 'The archive was replaced; this is the new one.';
  setTimeout(() => { news = ''; if (archive) tell(); }, 15000);
  show();
});

/** What is known to be wrong with the archive as a whole, and what to do about it. */
function alarm() {
  const v = archive.verify, e = v.counts?.error, w = v.counts?.warning, list = [];
  const check = text => el('a', { href: address({ archive: here.archive, view: here.view, tab: 'verify' }) }, text);
  if (archive.survey.error) list.push(['bad', el('b', {}, 'Incomplete. '), `The archive cannot be read to its end: ${archive.survey.error}. “holdall repair” writes the readable entries to a new archive.`]);
  if (archive.doubt) list.push(['bad', el('b', {}, 'The index may be damaged: '), archive.doubt, '. Names, sizes and offsets may be wrong.']);
  if (e && here.tab !== 'verify') list.push(['bad', el('b', {}, 'Damaged. '), `The last check found ${count(e, 'error')}. `, check('See the results')]);
  else if (w && here.tab !== 'verify') list.push(['warn', `The last check found ${count(w, 'warning')}. `, check('See the results')]);
  if (archive.healed) list.push(['warn', el('b', {}, 'Repaired while reading. '), `${count(archive.healed, 'damaged block')} ${archive.healed === 1 ? 'was' : 'were'} restored from parity. “holdall repair” repairs the archive itself.`]);
  $('alarm').replaceChildren(...list.map(([tone, ...text]) => el('p', { class: tone }, text)));
  $('alarm').hidden = !list.length;
  document.body.dataset.alarm = list.map(l => l[0]).join(' ');
}

/** Shows the size of the archive at the foot of the page. */
function tell() {
  alarm();
  const s = archive.survey, soFar = s.state === 'running' ? '…' : '';
  say(`${count(s.entries, 'entry', 'entries')}${soFar} · ${size(s.bytes)}${soFar} of content · ${size(archive.stored)} stored${s.error ? ' · ' + s.error : ''}`, news || archive.title);
  document.body.dataset.news = news;
  document.body.dataset.survey = s.state;
}

async function fill() {
  const dir = folder();
  if (shown.tab !== here.tab) {
    leaveScreen();
    const main = $('main');
    main.replaceChildren();
    shown.tab = here.tab;
    screen = { list: () => new Files(main), map: () => new ByteMap(main), treemap: () => new Treemap(main), compare: () => new Compare(main), verify: () => new Check(main), about: () => new About(main) }[here.tab]();
  }
  tree.select(dir);
  const isFile = entry && entry.kind !== 'dir';
  const special = entry && (entry.array || entry.grouped || hasKind('node')) && here.tab === 'list';
  const panel = isFile || special || hasKind('node') && !here.path && here.tab === 'list';
  // On a narrow screen, a folder's properties must not cover its list.
  const now = panel && (isFile || !covering.matches), open = () => detail.show(here.path, entry ?? { kind: 'dir', path: '' });
  screen.offer?.(panel && !now ? open : undefined, entry?.array ? 'Array' : entry?.series ? 'Series' : entry?.units ? 'Spikes' : entry?.table ? 'Table' : entry?.grouped ? 'Attributes' : 'Properties');
  tell();
  await Promise.all([screen.show(dir, isFile ? here.path : undefined), now ? open() : detail.hide()]);
}

/** Polls the progress of the survey and of the check. */
let timer, checked;
addEventListener('checking', follow);
function follow() {
  clearTimeout(timer);
  if (!archive || archive.survey.state !== 'running' && archive.verify.state !== 'running') return;
  timer = setTimeout(async () => {
    try {
      const now = await ask.json('archive', args({}));
      if (!archive || now.name !== archive.name) return;
      opened(now);
      tell();
      screen?.surveyed?.(archive);
      if (checked !== archive.verify.state) { checked = archive.verify.state; screen?.checked?.(); tree?.checked(); }
    } catch { /* the next poll reports it */ }
    follow();
  }, 400);
}

// Keys of the whole page.
const keys = [
  ['/', 'search names (or contents, with “in contents”)'], ['l m t c v i', 'files, byte map, treemap, compare, check, about'], ['↑ ↓ PgUp PgDn Home End', 'move in a list'],
  ['Enter', 'open a folder or file'], ['Backspace', 'go to the parent folder'], ['→ ←', 'in the tree: expand, collapse'], ['1 2 3', 'sort by name, size, time'],
  ['d', 'download the selection'], ['Space', 'select several; also Ctrl+click or Shift+click'], ['+ −', 'on the map: zoom in, zoom out'], ['← → ↑ ↓', 'on the map: move the cursor; with Shift, scroll'],
  ['0', 'on the map: show the whole archive'], ['Esc', 'close the preview, clear the search'], ['?', 'show these shortcuts'],
];
function help() {
  const d = $('keys');
  if (d.open) return d.close();
  d.replaceChildren(el('h2', { id: 'keys-title' }, 'Keyboard shortcuts'),
    el('dl', {}, keys.map(([k, what]) => [el('dt', {}, k.split(' ').map(x => el('kbd', {}, x))), el('dd', {}, what)]).flat()),
    el('form', { method: 'dialog' }, el('button', { type: 'submit', autofocus: true }, 'Close')));
  // The page's policy allows no form submission, so the dialog is closed here.
  d.querySelector('form').addEventListener('submit', e => { e.preventDefault(); d.close(); });
  d.showModal();
}
addEventListener('keydown', e => {
  const typing = e.target.closest?.('input, select, textarea, dialog');
  if (e.key === 'Escape' && !e.target.closest?.('dialog')) {
    if ($('q').value) { $('q').value = ''; $('q').dispatchEvent(new Event('input')); screen?.focus?.(); e.preventDefault(); return; }
    if (document.activeElement === $('q')) { screen?.focus?.(); return; }
    if (!$('detail').hidden) { e.preventDefault(); closeDetail(); }
    return;
  }
  if (typing || e.ctrlKey || e.metaKey || e.altKey) return;
  const tab = tabs.find(t => t[2] === e.key);
  if (e.key === '?') { e.preventDefault(); help(); }
  else if (!archive) return;
  else if (e.key === '/') { e.preventDefault(); $('q').focus(); $('q').select(); }
  else if (tab && document.querySelector(`#tabs a[data-tab=${tab[0]}]`)) { e.preventDefault(); go({ tab: tab[0], from: undefined, to: undefined }); }
  else if (e.key === 'Backspace' && here.path) { e.preventDefault(); go({ path: entry?.kind !== 'dir' ? folder() : parent(here.path) }); }
  else if ('123'.includes(e.key) && here.tab === 'list') screen?.sortBy?.(['name', 'size', 'time'][e.key - 1]);
});
function closeDetail() {
  if (entry && entry.kind !== 'dir') go({ path: folder() }); else detail.hide();
  screen?.focus?.();
}

$('help').addEventListener('click', help);
$('theme').addEventListener('click', () => window.toggleTheme());
$('skip').addEventListener('click', e => { e.preventDefault(); (screen?.focus ? screen : $('main')).focus(); });
$('q').addEventListener('input', async () => {
  if (failed || here.tab !== 'list') go({ tab: 'list', path: failed ? '' : folder() });
  for (let last; last !== showing;) await (last = showing);
  screen?.search?.($('q').value, $('inside').getAttribute('aria-pressed') === 'true');
});
$('inside').addEventListener('click', () => {
  const on = $('inside').getAttribute('aria-pressed') !== 'true';
  $('inside').setAttribute('aria-pressed', String(on));
  $('q').placeholder = on ? 'Search contents (Enter)' : 'Search names  /';
  $('q').focus();
  if ($('q').value) $('q').dispatchEvent(new Event('input'));
});
$('q').addEventListener('keydown', e => { if (e.key === 'Enter' && screen?.search && $('inside').getAttribute('aria-pressed') === 'true') { e.preventDefault(); screen.searchInside($('q').value); } });
$('q').addEventListener('keydown', e => { if (e.key === 'ArrowDown' || e.key === 'Enter' && $('inside').getAttribute('aria-pressed') !== 'true') { e.preventDefault(); screen?.focus?.(); } });
addEventListener('theme', () => screen?.repaint?.());
addEventListener('moved', show);
addEventListener('popstate', show);
addEventListener('hashchange', () => { if (address(here) !== location.hash) show(); });
addEventListener('error', e => { document.body.dataset.error = e.message; });
addEventListener('unhandledrejection', e => { if (e.reason?.name === 'AbortError') e.preventDefault(); else document.body.dataset.error = String(e.reason); });
show();
