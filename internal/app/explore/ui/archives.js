// The list of archives.
import { plainName, el, ask, say, size, num, count, problem, health } from './base.js';
import { address } from './state.js';

let round = 0;
export async function showArchives(main) {
  const mine = ++round;
  const { archives, total } = await ask.json('archives');
  if (archives.length === 1 && total === 1 && !location.hash) {
    location.replace(address({ archive: archives[0].name }));
    return;
  }
  const rows = archives.map(a => {
    const cells = Object.fromEntries(['format', 'entries', 'content', 'stored', 'health'].map(k => [k, el('td', { class: k, 'data-label': k })]));
    const name = el('td', { class: 'name' }, el('a', { href: address({ archive: a.name }) }, plainName(a.name)));
    const tr = el('tr', {}, name, cells.format, cells.entries, cells.content, cells.stored, cells.health);
    return { a, tr, cells, name };
  });
  const sum = el('p', { class: 'lead' }, count(total, 'archive'));
  main.replaceChildren(el('div', { class: 'sheet' }, el('h1', {}, 'Archives'), sum,
    archives.length === 0 ? el('p', { class: 'empty' }, 'There is no archive here.')
      : el('table', { class: 'archives' }, el('thead', {}, el('tr', {}, ['Name', 'Format', 'Entries', 'Content', 'Stored', 'Health'].map(t => el('th', { scope: 'col', class: t.toLowerCase() }, t)))), el('tbody', {}, rows.map(r => r.tr)))));
  say(total > archives.length ? `the first ${num(archives.length)} of ${num(total)}` : '', '');
  const seen = new IntersectionObserver(list => {
    for (const it of list) if (it.isIntersecting) { seen.unobserve(it.target); watch(rows.find(r => r.tr === it.target), mine); }
  });
  for (const r of rows) seen.observe(r.tr);
  main.querySelector('.archives')?.addEventListener('keydown', e => {
    const links = [...main.querySelectorAll('.archives a')], i = links.indexOf(document.activeElement);
    const to = { ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: links.length - 1 }[e.key];
    if (to !== undefined && links[to]) { e.preventDefault(); links[to].focus(); }
  });
  main.querySelector('.archives a')?.focus({ preventScroll: true });
}

async function watch(r, mine) {
  for (;;) {
    let a;
    try {
      a = await ask.json('archive', { a: r.a.name });
    } catch (err) {
      if (err.code === 'busy' && mine === round && r.tr.isConnected) { await new Promise(ok => setTimeout(ok, 2000)); continue; }
      r.cells.format.replaceChildren(problem(err));
      r.cells.format.colSpan = 5;
      for (const k of ['entries', 'content', 'stored', 'health']) r.cells[k].remove();
      return;
    }
    if (mine !== round || !r.tr.isConnected) return;
    if (a.address && a.address !== plainName(a.name) && r.name.childElementCount === 1) r.name.append(el('span', { class: 'where', title: a.address }, a.address));
    r.cells.format.replaceChildren(el('span', { title: a.title }, a.format));
    r.cells.stored.textContent = size(a.stored);
    const s = a.survey, soFar = s.state === 'running' ? '…' : '';
    r.cells.entries.textContent = num(s.entries) + soFar;
    r.cells.content.textContent = size(s.bytes) + soFar;
    if (s.error) r.cells.entries.append(el('span', { class: 'badge bad', title: s.error }, 'cut off'));
    r.cells.health.replaceChildren(health(a.verify));
    r.tr.dataset.state = s.state;
    if (s.state !== 'running' && a.verify.state !== 'running') return;
    await new Promise(ok => setTimeout(ok, 500));
  }
}
