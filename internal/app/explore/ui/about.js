// The description of the archive as a whole.
import { plainName, el, ask, size, num, count, health } from './base.js';
import { here, args, address, hasKind } from './state.js';

export class About {
  constructor(main) { this.main = main; }
  close() { this.closed = true; }
  async show() {
    await about((box, a) => {
      if (this.closed) return;
      const top = this.main.scrollTop;
      this.main.replaceChildren(box);
      this.main.scrollTop = top;
      this.known = a.survey.state;
    });
  }
  focus() { this.main.querySelector('.about')?.focus(); }
  /** A survey or a check has ended: show its result. */
  surveyed(a) { if (a.survey.state !== 'running' && this.known === 'running') this.show(); }
  checked() { this.show(); }
}

async function about(put) {
  const a = await ask.json('archive', args({ about: 'yes' }));
  const row = (k, v) => v === undefined || v === '' || v === null ? [] : [el('dt', {}, k), el('dd', {}, v)];
  const s = a.survey, soFar = s.state === 'running' ? ' so far' : '';
  const list = el('dl', { class: 'list' },
    row('Address', a.address), row('Format', `${a.title} (${a.format})${a.version ? (/^\d/.test(a.version) ? ', version ' : ', ') + a.version : ''}`), row('View', a.views?.length ? a.view : ''),
    row('Entries', num(s.entries) + soFar), row('Files', [num(s.files) + soFar, ' ', el('a', { href: address({ archive: here.archive, view: here.view, tab: 'list' }) }, 'See them')]), row('Folders', num(s.folders)), row('Unreadable', s.unreadable ? num(s.unreadable) : ''),
    row('Content', size(s.bytes) + soFar), row('Stored', a.stored ? size(a.stored) + (a.volumes > 1 ? ` in ${count(a.volumes, 'volume')}` : '') : ''),
    row('Index', a.index_bytes ? size(a.index_bytes) : ''), row('Opened with index', a.by_index), row('Parity', a.parity), row('Incomplete', s.error),
    (a.notes ?? []).map(n => row('Note', n)));
  const facts = a.facts?.length ? [el('h2', {}, 'Properties'), el('dl', { class: 'list' }, a.facts.map(f => row(f.key, f.value)))] : [];
  const told = t => [el('h2', {}, t.title), table(t.columns, t.rows.map(r => r.map((v, i) => tableCell(v, t.columns[i].kind)))), t.note ? el('p', { class: 'hint' }, t.note) : ''];
  // The subject of the archive, such as a package or a recording, comes before the archive itself.
  const first = [...a.views?.includes('meta') ? [...facts.splice(0), ...await packageOf()] : [], ...(a.tables ?? []).flatMap(told)];
  const box = el('div', { class: 'sheet about', tabindex: '-1' }, el('h1', {}, plainName(a.name), ' ', health(a.verify)), first, first.length ? el('h2', {}, 'The archive') : '', list, facts, (a.made ?? []).map(told));
  put(box, a);
  if (!hasKind('arrays')) return;
  const { nwb, fault } = await ask.json('nwb', args({}));
  if (nwb) box.firstChild.after(...recording(nwb, row), fault ? el('p', { class: 'fault' }, fault) : '', el('h2', {}, 'The archive'));
  const { arrays, more } = await ask.json('arrays', args({}));
  box.append(el('h2', {}, count(arrays.length, 'array') + (more ? ' and more' : '')), table(['Array', 'Type', 'Shape', 'Codecs'], arrays.map(x => [place(x.path),
    ...x.fault ? [el('td', { class: 'fault', colspan: 3 }, x.fault)] : [cell(x.dtype || '?'), cell(shape(x)), cell(x.codecs, 'hint')]])));
}

const cell = (text, sort) => el('td', sort ? { class: sort } : {}, text ?? '');
const tableCell = (v, kind) => el('td', { class: (kind ? 'number' : '') + (kind === 'bad' && v > 0 ? ' fault' : '') }, v === null ? '–' : v?.text !== undefined ? el('a', { href: address({ archive: here.archive, view: here.view, path: v.path, tab: 'list' }) }, v.text)
  : kind === 'size' ? size(v) : kind ? num(v) : v);
const place = path => el('td', {}, el('a', { href: address({ archive: here.archive, view: here.view, path, tab: 'list' }) }, ...(path || '/').split(/(?<=\/)/).flatMap(part => [part, el('wbr')])));
const shape = x => x.shape?.map(num).join(' × ') ?? '';
const table = (heads, rows) => el('div', { class: 'wide', tabindex: '0', role: 'group', 'aria-label': heads[0].name ?? heads[0] }, el('table', { class: 'props' }, el('thead', {}, el('tr', {}, heads.map(t => el('th', { scope: 'col', class: t.kind && 'number' }, t.name ?? t)))), el('tbody', {}, rows.map(r => el('tr', {}, r)))));
const list = (...words) => words.filter(Boolean).join(', ');
const seconds = v => Math.round(v * 1000) / 1000 + ' s';
const decimal = v => String(Number(v.toPrecision(7)));

/** The parts of a package's metadata that are too long for facts. Scripts are only shown. */
async function packageOf() {
  let m;
  try {
    m = await (await ask.raw('content', { a: here.archive, view: 'meta', path: 'metadata.json', n: 1 << 20 })).json();
  } catch (err) {
    if (err.code === 'not-found') return []; // the metadata is not structured
    return [el('p', { class: 'fault' }, err instanceof SyntaxError ? 'The metadata is too long to show here.' : 'Damaged: ' + err.message)];
  }
  const out = [], text = v => typeof v === 'string' ? v : JSON.stringify(v, null, 1), all = v => Array.isArray(v) ? v : v === undefined || v === null ? [] : [v];
  const pairs = v => v && typeof v === 'object' ? Object.entries(v) : [];
  const part = (title, list, shown) => { if (list.length) out.push(el('h2', {}, title), ...shown(list)); };
  part('Description', all(m.desc), list => [el('p', { class: 'plain' }, list.map(text).join('\n'))]);
  part('Dependencies', pairs(m.deps), list => [table(['Package', 'Version'], list.map(([name, version]) => [cell(name), cell(text(version))]))]);
  part('Scripts', pairs(m.scripts), list => [el('p', { class: 'hint' }, 'Package managers run these. holdall only shows them.'),
    ...list.flatMap(([phase, scripts]) => [el('h3', {}, phase), ...all(scripts).map(s => [el('pre', { class: 'plain' }, text(s?.code ?? s)), s?.args ? el('p', { class: 'hint' }, 'for ' + text(s.args)) : ''])].flat())]);
  part('Messages', all(m.messages), list => list.map(x => el('p', { class: 'plain' }, x?.type ? el('span', { class: 'hint' }, text(x.type) + ' ') : '', text(x?.message ?? x))));
  return out;
}

/** The session, the subject, the devices and the data of a recording. */
function recording(n, row) {
  const s = n.session, w = n.subject, called = (what, v) => v ? what + ' ' + v : '';
  const out = [el('h2', {}, 'The recording'), el('dl', { class: 'list nwb' }, row('Description', s.description), row('Identifier', s.identifier), row('Session', s.session_id), row('Started', s.start_time),
    row('Experiment', s.experiment_description), row('Experimenter', s.experimenter?.join('; ')), row('Institution', s.institution), row('Lab', s.lab), row('Keywords', s.keywords?.join(', ')),
    row('Subject', w && list(w.subject_id, w.species, called('strain', w.strain), called('genotype', w.genotype), called('sex', w.sex), called('age', w.age), called('born', w.date_of_birth), called('weight', w.weight), w.description)),
    (n.devices ?? []).map(d => row('Device', list(d.name, d.description, called('by', d.manufacturer)))), row('NWB', n.version))];
  const { series = [], tables = [] } = n;
  if (series.length) out.push(el('h2', {}, `${num(series.length)} time series`), table(['Series', 'Kind', 'Shape', 'Unit', 'Sampled', 'Time'], series.slice(0, most).map(x => [place(x.path), cell(x.type),
    ...x.shape ? [cell(shape(x)), cell(list(x.unit && (x.conversion ?? 1) !== 1 ? `${x.unit} × ${decimal(x.conversion)}` : x.unit)),
      cell(x.rate !== undefined ? decimal(x.rate) + ' Hz' : x.timestamps !== undefined ? count(x.timestamps, 'timestamp') : ''), x.error ? cell(x.error, 'fault') : cell(list(x.duration !== undefined && seconds(x.duration), x.start !== undefined && `from ${seconds(x.start)}`))]
      : [el('td', { class: 'fault', colspan: 4 }, x.error ?? '')]])), rest(series));
  if (tables.length) out.push(el('h2', {}, count(tables.length, 'table')), table(['Table', 'Kind', 'Rows', 'Columns'], tables.slice(0, most).map(x => [place(x.path), cell(x.type), cell(num(x.rows)), cell(x.columns?.join(', '), 'words')])), rest(tables));
  return out;
}
const most = 100; // rows of a table
const rest = all => all.length > most ? el('p', { class: 'hint' }, `and ${num(all.length - most)} more`) : '';
