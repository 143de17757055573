// What is around a view: the path, the views, what is wrong, and the page that is shown instead.
import { plainName, el, count, problem, isAlone, commandLine } from './base.js';
import { tabs, here, archive, entry, address, go, hasKind, noSearch } from './state.js';

/** What is shown instead of what an address names. */
export function errorPage(err, { again, archive: whole, view }) {
  return el('div', { class: 'empty' }, el('h1', {}, 'Cannot show this'), problem(err),
    err.code === 'offline' && el('p', {}, 'Is it still running? The archives reappear when the server is back.'),
    isAlone() && ['bad-data', 'bad-digest', 'changed', 'unreadable'].includes(err.code) && [el('p', {}, 'If the archive is damaged, this writes what can be recovered of it to a new one:'), commandLine(`holdall repair ${quoted(here.archive)} -o ${quoted(here.archive.replace(/^.[^.]*/, '$&-repaired'))}`)],
    el('p', { class: 'group' },
      err.code !== 'not-found' && el('button', { type: 'button', id: 'again', onclick: again }, 'Try again'),
      view && el('a', { href: address({ archive: here.archive, tab: 'list' }) }, 'Show the archive in its default view'),
      el('a', { href: whole ? address({ archive: whole }) : '#/' }, 'Back to the start')));
}
const quoted = s => /^[\w./+:,=@%][\w./+:,=@%-]*$/.test(s) ? s : `'${s.replaceAll("'", "'\\''")}'`;
/** The path, as links. */
export function crumbs() {
  const parts = entry?.odd ? [here.path] : here.path.split('/').filter(Boolean), to = { ...here, ...noSearch, from: undefined };
  const root = el('a', { href: address({ archive: here.archive, view: here.view, tab: here.tab }) }, plainName(here.archive));
  return [root, ...parts.flatMap((p, i) => [
    el('span', { class: 'sep', 'aria-hidden': 'true' }, '/'),
    i === parts.length - 1 ? el('span', { class: 'here', 'aria-current': 'page', title: p }, p)
      : el('a', { href: address({ ...to, path: parts.slice(0, i + 1).join('/') }) }, p),
  ])];
}
export function tabLinks() {
  const optional = id => ['map', 'verify', 'compare', 'damage'].includes(id) || id === 'treemap' && archive.static;
  return tabs.filter(([id]) => !optional(id) || hasKind(id)).map(([id, name, key]) => el('a', {
    href: address({ ...here, ...noSearch, tab: id, from: undefined }), 'aria-current': id === here.tab ? 'true' : undefined,
    data: { tab: id }, title: `${name} (${key})`,
  }, name));
}
export function viewPicker() {
  const pick = el('select', {
    id: 'views', 'aria-label': 'View of the archive',
    onchange: e => go({ view: e.target.value === archive.usual ? '' : e.target.value, path: '', from: undefined }),
  }, archive.views.map(v => el('option', { value: v, selected: v === archive.view }, v)));
  return el('label', { class: 'pick' }, el('span', {}, 'View '), pick);
}
const properties = { array: 'Array', series: 'Series', units: 'Spikes', table: 'Table', grouped: 'Attributes' };
/** What the properties of an entry are called. */
export const propertiesOf = e => properties[Object.keys(properties).find(k => e?.[k])] ?? 'Properties';

/** What is known to be wrong with the archive as a whole, and what to do about it. */
/** @param {Pick<Archive, "verify" | "survey" | "doubt" | "healed">} archive */
export function alarmsOf({ verify: v, survey, doubt, healed }) {
  const list = [], e = here.tab !== 'verify' && v.counts?.error, w = here.tab !== 'verify' && v.counts?.warning;
  const results = () => el('a', { href: address({ archive: here.archive, view: here.view, tab: 'verify' }) }, 'See the results');
  const what = () => el('a', { href: address({ archive: here.archive, view: 'bytes', tab: 'damage' }) }, 'See what can be recovered');
  if (archive.view === 'repaired') return [['warn', el('b', {}, 'A preview of the repair. '), 'Nothing is written yet: this is what a repaired copy would have. ', here.tab !== 'damage' && el('a', { href: address({ archive: here.archive, view: 'bytes', tab: 'damage' }) }, 'Back to the damage')]];
  if (archive.view === 'bytes') return here.tab === 'damage' ? [] : [['warn', 'These are the bytes as they are stored, by what they look like. ', what()]];
  const repair = '“holdall repair” writes the readable entries to a new archive.';
  if (survey.error) list.push(['bad', el('b', {}, 'Incomplete. '), `The archive cannot be read to its end: ${survey.error}. ${repair} `, !archive.static && what()]);
  if (doubt) list.push(['bad', el('b', {}, 'The index may be damaged: '), doubt, '. Names, sizes and offsets may be wrong. ', !archive.static && what()]);
  if (e) list.push(['bad', el('b', {}, 'Damaged. '), `The last check found ${count(e, 'error')}. `, results()]);
  else if (w) list.push(['warn', `The last check found ${count(w, 'warning')}. `, results()]);
  if (healed) {
    const were = `${count(healed, 'damaged block')} ${healed === 1 ? 'was' : 'were'} restored from parity.`;
    list.push(['warn', el('b', {}, 'Repaired while reading. '), `${were} “holdall repair” repairs the archive itself.`]);
  }
  return list;
}
