// The attributes of a group or an array.
import { el, ask, num } from './base.js';
import { here, address, args } from './state.js';
import { jsonTree } from './json.js';

const long = 12; // values of a list that is shown in one line
const refersTo = v => v && typeof v === 'object' && typeof v._REFERENCE?.path === 'string' ? v._REFERENCE.path.replace(/^\/+/, '').replaceAll('\\x', '\\x5cx') : undefined;
/** A link to a group or an array of the same archive. */
export const placeOf = path => el('a', { href: address({ archive: here.archive, view: here.view, path }) }, '/' + path);
const word = v => typeof v === 'string' ? v : typeof v === 'number' ? String(v) : v === null ? 'null' : typeof v === 'boolean' ? String(v) : undefined;

function value(v) {
  const to = refersTo(v);
  if (to !== undefined) return placeOf(to);
  const text = word(v);
  if (text !== undefined) return text.length > 4000 ? text.slice(0, 4000) + '…' : text;
  if (Array.isArray(v) && v.length <= long && v.every(x => word(x) !== undefined)) return v.length ? v.map(word).join(', ') : 'an empty list';
  return jsonTree(v);
}

/** A list of attributes; those that people want to read come first. */
export function attributes(attrs, fault) {
  const first = ['neurodata_type', 'description', 'comments', 'unit'], names = Object.keys(attrs ?? {}).sort((a, b) => (first.indexOf(a) + 1 || 99) - (first.indexOf(b) + 1 || 99));
  return el('div', {}, fault && el('p', { class: 'fault' }, 'Cannot show the attributes: ' + fault), names.length > 0 && el('dl', { class: 'list attributes' }, names.map(k => [el('dt', {}, k), el('dd', {}, value(attrs[k]))])));
}

export async function showAttributes(area, entry) {
  const a = await ask.json('attributes', args({ path: entry.path })), n = Object.keys(a.attrs ?? {}).length;
  area.append(el('div', { class: 'pad' }, a.path !== entry.path && el('p', { class: 'hint' }, 'Link to ', placeOf(a.path)), el('p', { class: 'hint' }, n ? `${num(n)} attribute${n === 1 ? '' : 's'}` : 'No attributes.'), attributes(a.attrs, a.attrs_fault)));
}
