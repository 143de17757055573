// What is known of the archive as a whole.
import { plainName, el, ask, size, num, count } from './base.js';
import { here, args, address, hasKind } from './app.js';
import { health } from './archives.js';

export async function showAbout(main) {
  const a = await ask.json('archive', args({ about: 'yes' }));
  const row = (k, v) => v === undefined || v === '' || v === null ? [] : [el('dt', {}, k), el('dd', {}, v)];
  const s = a.survey, soFar = s.state === 'running' ? ' so far' : '';
  const box = el('div', { class: 'sheet about', tabindex: '-1' }, el('h1', {}, plainName(a.name), ' ', health(a.verify)), el('dl', { class: 'list' },
    row('Where', a.address), row('Format', `${a.title} (${a.format})${a.version ? ', version ' + a.version : ''}`), row('View', a.views?.length ? a.view : ''),
    row('Entries', num(s.entries) + soFar), row('Files', num(s.files) + soFar), row('Folders', num(s.folders)), row('Unreadable', s.unreadable ? num(s.unreadable) : ''),
    row('Content', size(s.bytes) + soFar), row('Stored', size(a.stored) + (a.volumes > 1 ? ` in ${count(a.volumes, 'volume')}` : '')),
    row('Index', a.index_bytes ? size(a.index_bytes) : ''), row('Read by', a.by_index), row('Parity', a.parity), row('Cut off', s.error),
    (a.notes ?? []).map(n => row('Unusual', n))));
  if (a.facts?.length) box.append(el('h2', {}, 'What it says of itself'), el('dl', { class: 'list' }, a.facts.map(f => row(f.key, f.value))));
  main.replaceChildren(box);
  if (!hasKind('arrays')) return;
  const { arrays, more } = await ask.json('arrays', args({}));
  box.append(el('h2', {}, count(arrays.length, 'array') + (more ? ' and more' : '')), el('table', { class: 'props' }, el('thead', {}, el('tr', {}, ['Array', 'Type', 'Shape', 'Stored by'].map(t => el('th', { scope: 'col' }, t)))),
    el('tbody', {}, arrays.map(x => el('tr', {}, el('td', {}, el('a', { href: address({ archive: here.archive, view: here.view, path: x.path, tab: 'list' }) }, x.path || '/')), el('td', {}, x.dtype ?? '?'), el('td', {}, x.shape?.map(num).join(' × ') ?? ''), el('td', { class: 'hint' }, x.codecs ?? ''))))));
}
