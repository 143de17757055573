// The state of the page, which is in its address. Changing the address changes the page, which
// listens to "moved".
import { fileURL, parent } from './base.js';

/** The views of an archive: the name in addresses, the shown name, and the key. */
export const tabs = [
  ['list', 'Files', 'l'], ['map', 'Byte map', 'm'], ['treemap', 'Treemap', 't'], ['compare', 'Compare', 'c'], ['verify', 'Check', 'v'], ['about', 'About', 'i'],
];
/** The views that show one folder, with the tree beside them. */
export const ofFolders = ['list', 'treemap', 'compare'];

/**
 * The archive, its view, the path, and the tab; before and after are revisions, show is the form of
 * a list.
 */
export const here = { archive: '', path: '', tab: 'list', view: '', from: undefined, to: undefined, sort: '', q: '', before: '', after: '', show: '' };
/**
 * The server's descriptions of the archive, and of the entry at the path unless that is the root.
 */
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
/** Sets here from the address of the page. */
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
/** Applies change to the address. With replace, it adds no step to the history. */
export function go(change, { replace = false } = {}) {
  const to = { ...here, q: '', ...change };
  if ('path' in change && !('from' in change) && to.tab !== 'map') to.from = to.to = undefined;
  const hash = address(to);
  if (hash === (location.hash || '#/')) return;
  history[replace ? 'replaceState' : 'pushState'](null, '', hash);
  dispatchEvent(new Event('moved'));
}
/** Records in the address what is shown already. */
export function note(change) {
  Object.assign(here, change);
  history.replaceState(null, '', address(here));
}

/** The shown folder: the one at the path, or the one that contains the file. */
export const folder = () => entry && entry.kind !== 'dir' ? (entry.odd ? '' : parent(here.path)) : here.path;
/** The parameters of a request about the archive. */
export const args = more => ({ a: here.archive, view: here.view, ...more });
export const usual = () => !archive.static && (!here.view || here.view === archive.usual);
export const urlOf = path => fileURL(here.archive, path);
export const hasKind = what => archive.can.includes(what);
