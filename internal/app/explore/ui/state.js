// The state of the page, which is in its address. Changing the address changes the page, which
// listens to "moved".
import { fileURL, parent } from './base.js';

/** The views of an archive: the name in addresses, the shown name, and the key. */
export const tabs = [
  ['list', 'Files', 'l'], ['map', 'Byte map', 'm'], ['treemap', 'Treemap', 't'],
  ['compare', 'Compare', 'c'], ['verify', 'Check', 'v'], ['damage', 'Damage', 'x'], ['about', 'About', 'i'],
];
/** The views that show one folder, with the tree beside them. */
export const ofFolders = ['list', 'treemap', 'compare'];

/** A search: a text, whether that is an expression or in contents, and filters. */
export const noSearch = { q: '', match: '', kind: '', min: '', max: '', since: '', until: '' };
const forms = {
  match: /^(regexp|contents)$/, kind: /^[a-z]{1,20}$/, min: /^\d{1,15}$/, max: /^\d{1,15}$/,
  since: /^\d{4}-\d\d-\d\d$/, until: /^\d{4}-\d\d-\d\d$/,
};
const day = 86400000;

/**
 * The archive, its view, the path, and the tab; before and after are revisions, show is the form of
 * a list, and the others are a search.
 */
export const here = {
  archive: '', path: '', tab: 'list', view: '', from: undefined, to: undefined, sort: '', before: '', after: '', show: '', ...noSearch,
};
/**
 * The server's descriptions of the archive, and of the entry at the path unless that is the root.
 * @type {Archive}
 */
export let archive;
/** @type {Entry | undefined} */
export let entry;
export function opened(a) { archive = a; }
export function found(e) { entry = e; }

const part = s => encodeURIComponent(s).replaceAll('%5C', '\\');
export function address(to) {
  if (!to.archive) return '#/';
  const q = new URLSearchParams(), tab = to.tab || 'list', list = tab === 'list';
  if (!list) q.set('tab', tab);
  const keys = ['view', 'sort', ...list ? [...Object.keys(noSearch), 'show'] : [], ...tab === 'compare' ? ['before', 'after'] : []];
  for (const k of keys) if (to[k]) q.set(k, to[k]);
  if (to.from !== undefined) { q.set('from', to.from); q.set('to', to.to); }
  const path = to.path ? '/' + to.path.split('/').map(part).join('/') : '';
  return '#/' + part(to.archive) + path + (q.size ? '?' + q : '');
}
/** Returns what an address names. What has no meaning is left out. */
export function parse(hash) {
  const [where, query] = hash.replace(/^#\/?/, '').split('?');
  const [name, ...path] = where.split('/');
  const text = s => { try { return decodeURIComponent(s); } catch { return s; } };
  const q = new URLSearchParams(query ?? ''), get = k => q.get(k) ?? '';
  const n = k => /^\d{1,15}$/.test(get(k)) ? Number(get(k)) : undefined;
  const to = {
    archive: text(name), path: path.map(text).join('/'), tab: tabs.some(t => t[0] === get('tab')) ? get('tab') : 'list',
    view: get('view'), sort: get('sort'), show: get('show') === 'pictures' ? 'pictures' : '', before: get('before'), after: get('after'),
    from: n('from'), to: n('to'), q: get('q'),
  };
  for (const [k, form] of Object.entries(forms)) to[k] = form.test(get(k)) ? get(k) : '';
  for (const k of ['since', 'until']) if (isNaN(Date.parse(to[k]))) to[k] = '';
  if (to.tab !== 'list') Object.assign(to, noSearch);
  if (to.to === undefined) to.from = undefined;
  return to;
}
/** Sets here from the address of the page. */
export function read() { Object.assign(here, parse(location.hash)); }
/** Applies change to the address. A search ends unless it is part of that. With replace, it adds no step to the history. */
export function go(change, { replace = false } = {}) {
  const to = { ...here, ...noSearch, ...change };
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

/** The search in the address. */
export const searching = (to = here) => Object.fromEntries(Object.keys(noSearch).map(k => [k, to[k]]));
/** Whether that is one: an expression or a text by itself needs letters. */
export const searches = s => !!s.q.trim() || s.match !== 'contents' && !!(s.kind || s.min || s.max || s.since || s.until);
/** The parameters by which the server is asked for a search. Days are whole ones, of UTC. */
export const asked = s => ({
  q: s.q, match: s.match, kind: s.kind, min: s.min, max: s.max,
  since: s.since && Date.parse(s.since), until: s.until && Date.parse(s.until) + day,
});
/** The number of bytes that a text like "1.5 MiB" means, or undefined. */
export function bytesIn(text) {
  const m = /^\s*(\d{1,12}(?:\.\d{1,6})?)\s*(?:([kmgtp])i?)?b?\s*$/i.exec(text);
  return m ? Math.round(Number(m[1]) * 1024 ** (' kmgtp'.indexOf((m[2] ?? ' ').toLowerCase()))) : undefined;
}
/** How a list is sorted: by one of these columns, up or down. */
export function orderOf(sort, columns = ['name', 'size', 'time']) {
  const [by, dir] = (sort || 'name').split('-');
  return { sort: columns.includes(by) ? by : 'name', dir: dir === 'desc' ? 'desc' : 'asc' };
}
/** How it is sorted after a click on a column: the largest and the newest first. */
export function sortedBy(id, { sort, dir }) {
  const down = sort === id ? dir === 'asc' : id !== 'name';
  return id === 'name' && !down ? '' : id + (down ? '-desc' : '');
}

/** The shown folder: the one at the path, or the one that contains the file. */
export const folder = () => entry && entry.kind !== 'dir' ? (entry.odd ? '' : parent(here.path)) : here.path;
/** The parameters of a request about the archive. */
export const args = more => ({ a: here.archive, view: here.view, ...more });
export const usual = () => !archive.static && (!here.view || here.view === archive.usual);
export const urlOf = path => fileURL(here.archive, path);
export const hasKind = what => archive.can.includes(what);
