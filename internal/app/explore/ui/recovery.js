// What a repair would give back, before anything is written.
import { el, size, count, num, ask, problem, commandLine } from './base.js';
import { here, address } from './state.js';

const first = 12; // lines that are shown at once

/** Shows a plan in box. The server drops the plan when the page shows something else. Returns the plan. */
export async function recovery(box, shown) {
  const a = here.archive, begun = Date.now(), waits = el('p', { class: 'told', role: 'status' }, 'Reading all of it, to find what can be recovered…');
  box.replaceChildren(waits);
  const tick = () => { waits.textContent = `Reading all of it, to find what can be recovered: ${Math.round((Date.now() - begun) / 1000)} s…`; shown.later(1000, tick); };
  shown.later(2000, tick);
  document.body.dataset.plan = '';
  const r = await shown.attempt(() => shown.json('repair', { a }), err => box.replaceChildren(problem(err)));
  if (shown.ended || !r) return undefined;
  const parts = r.nothing ? nothing(r) : r.changes ? something(a, r) : [el('p', {}, r.partial ? 'Nothing can be repaired: what can be read is read already.' : 'Nothing needs repair.'), ...lost(r)];
  box.replaceChildren(el('h2', {}, 'What can be recovered'), ...parts);
  if (!r.nothing) await shown.attempt(() => files(box.querySelector('.recovered'), a, r, shown), err => box.append(problem(err)));
  if (!shown.ended) document.body.dataset.plan = r.nothing ? 'nothing' : r.partial ? 'partial' : r.changes ? 'whole' : 'none';
  return r;
}

const lines = (list, all, what) => all > 0 && [el('h3', {}, what), el('ul', { class: 'lines' }, list.slice(0, first).map(t => el('li', {}, t))),
  all > first && el('details', {}, el('summary', {}, `${num(all - first)} more`), el('ul', { class: 'lines' }, list.slice(first).map(t => el('li', {}, t))),
    all > list.length && el('p', { class: 'hint' }, `These are the first ${num(list.length)} of ${num(all)}.`))];
const lost = r => [lines(r.lost, r.of_lost, 'What is lost')].flat(9).filter(Boolean);

function something(a, r) {
  const counted = r.after !== undefined && el('p', { class: 'counts' }, el('span', {}, el('b', {}, num(r.before)), ' readable before'), el('span', { 'aria-hidden': 'true' }, '·'), el('span', {}, el('b', {}, num(r.after)), ' after'));
  const save = r.saves && el('a', { class: 'button first', id: 'save-repaired', href: ask.url('repaired', { a }), download: r.name },
    `Save repaired copy${r.partial ? ', which is partial' : ''} (${size(r.size)})`);
  return [counted, r.partial && el('p', {}, `The copy is partial: ${count(r.of_lost, 'loss', 'losses')} below.`),
    el('p', { class: 'group' }, save, el('a', { class: 'button', id: 'look-recovered', href: address({ archive: a, view: 'repaired' }) }, 'Look at the recovered files')),
    !r.saves && el('p', { class: 'hint' }, 'The archive is stored encrypted, and a saved copy would not be. This command keeps it encrypted:'), commandLine(r.command),
    r.tar && r.saves && el('p', { class: 'hint' }, 'The archive is a folder: the copy is a tar of it.'),
    el('div', { class: 'recovered' }), lost(r),
    r.notes.length > 0 && el('details', {}, el('summary', {}, 'What the repair does'), el('ul', { class: 'lines' }, r.notes.map(t => el('li', {}, t))))].flat(9).filter(Boolean);
}

function nothing(r) {
  return [el('p', {}, el('b', {}, 'Nothing can be recovered as it is: '), r.nothing + '.'), el('h3', {}, 'What can still be tried'),
    el('ul', {}, el('li', {}, 'If you know its format, name it:', commandLine(r.command.replace('holdall repair ', 'holdall repair --as FORMAT '))),
      el('li', {}, 'If it is a part of something larger, such as the image of a disk, or one of several pieces, take it out of that:', commandLine('holdall repair --from IMAGE PIECE... -o ' + r.command.split(' -o ').pop())),
      el('li', {}, 'If there is parity for it, put it beside the archive, and open this page again.'))];
}

/** The first files that would be recovered. */
async function files(box, a, r, shown) {
  if (!box) return;
  const ls = await shown.json('ls', { a, view: 'repaired', limit: first });
  const link = x => el('a', { href: address({ archive: a, view: 'repaired', path: x.n }) }, x.n + (x.k === 'dir' ? '/' : ''));
  box.append(el('h3', {}, 'What is recovered'), el('ul', { class: 'lines' }, ls.items.map(x => el('li', {}, link(x), x.k !== 'dir' && el('span', { class: 'hint' }, ' ' + size(x.s))))),
    ls.total > ls.items.length ? el('p', {}, el('a', { href: address({ archive: a, view: 'repaired' }) }, `All ${count(ls.total, 'entry', 'entries')}`)) : '');
}
