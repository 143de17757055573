// Where the page is: its address says it, and what changes the address changes the page.
// The page listens to "moved".
import { fileURL, parent } from './base.js';

/** The views of an archive: what an address calls it, its name, and its key. */
export const tabs = [
  ['list', 'Files', 'l'], ['map', 'Byte map', 'm'], ['treemap', 'Treemap', 't'], ['compare', 'Compare', 'c'], ['verify', 'Check', 'v'], ['about', 'About', 'i'],
];
/** What is shown of a folder, with the tree beside it. */
export const ofFolders = ['list', 'treemap', 'compare'];

/** An archive, a view of it, a path, and what is shown of that; before and after are revisions, show is how a list is shown. */
export const here = { archive: '', path: '', tab: 'list', view: '', from: undefined, to: undefined, sort: '', q: '', before: '', after: '', show: '' };
/** What the server says of the archive, and of the entry at the path unless that is its root. */
export let archive, entry;
export function opened(a) { archive = a; }
export function found(e) { entry = e; }

const part = s => encodeURIComponent(s).replaceAll('%5C', '\\');
export function address(to) {
  if (!to.archive) return '#/';
  const q = new URLSearchParams();
  if (to.tab && to.tab !== 'list') q.set('tab', to.tab);
  for (const k of ['view', 'sort', 'q', ...(to.tab ?? 'list') === 'list' ? ['show'] : [], ...to.tab === 'compare' ? ['before', 'after'] : []]) if (to[k]) q.set(k, to[k]);
  if (to.from !== undefined) { q.set('from', to.from); q.set('to', to.to); }
  return '#/' + part(to.archive) + (to.path ? '/' + to.path.split('/').map(part).join('/') : '') + (q.size ? '?' + q : '');
}
/** Takes the address of the page to be where it is. */
export function read() {
  const [where, query] = location.hash.replace(/^#\/?/, '').split('?');
  const [name, ...path] = where.split('/');
  const text = s => { try { return decodeURIComponent(s); } catch { return s; } };
  const q = new URLSearchParams(query ?? '');
  const n = k => /^\d{1,15}$/.test(q.get(k) ?? '') ? Number(q.get(k)) : undefined;
  const tab = tabs.some(t => t[0] === q.get('tab')) ? q.get('tab') : 'list';
  Object.assign(here, { archive: text(name), path: path.map(text).join('/'), tab, view: q.get('view') ?? '', sort: q.get('sort') ?? '', q: q.get('q') ?? '', show: q.get('show') === 'pictures' ? 'pictures' : '', before: q.get('before') ?? '', after: q.get('after') ?? '', from: n('from'), to: n('to') });
  if (here.to === undefined) here.from = undefined;
}
/** Goes where change says. replace keeps the way back short: for what changes step by step. */
export function go(change, { replace = false } = {}) {
  const to = { ...here, q: '', ...change };
  if ('path' in change && !('from' in change) && to.tab !== 'map') to.from = to.to = undefined;
  const hash = address(to);
  if (hash === (location.hash || '#/')) return;
  history[replace ? 'replaceState' : 'pushState'](null, '', hash);
  dispatchEvent(new Event('moved'));
}
/** Notes in the address what is shown already. */
export function note(change) {
  Object.assign(here, change);
  history.replaceState(null, '', address(here));
}

/** The folder that is shown: the path, or where the file is. */
export const folder = () => entry && entry.kind !== 'dir' ? (entry.odd ? '' : parent(here.path)) : here.path;
/** What a question about the archive has besides its own. */
export const args = more => ({ a: here.archive, view: here.view, ...more });
export const usual = () => !archive.static && (!here.view || here.view === archive.usual);
export const urlOf = path => fileURL(here.archive, path);
export const hasKind = what => archive.can.includes(what);
