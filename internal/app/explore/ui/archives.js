// The list of archives.
import { plainName, el, say, size, num, count, problem, health, isDamage } from './base.js';
import { address } from './state.js';

const columns = [['name', 'Name'], ['format', 'Format'], ['entries', 'Entries'], ['content', 'Content'], ['stored', 'Stored'], ['health', 'Health']];
const worst = ['damaged', 'odd', 'unknown', 'unproven', 'structure', 'good'];

export async function showArchives(main, shown) {
  const { archives, total } = await shown.json('archives');
  if (archives.length === 1 && total === 1 && !location.hash) {
    const { front } = await shown.json('archive', { a: archives[0].name }).catch(err => { if (!isDamage(err)) throw err; return {}; });
    location.replace(address({ archive: archives[0].name, ...front }));
    return;
  }
  const safely = f => shown.attempt(f, err => say(err.message));
  const rows = archives.map(a => {
    const cells = Object.fromEntries(columns.slice(1).map(([k]) => [k, el('td', { class: k, 'data-label': k })]));
    const name = el('td', { class: 'name' }, el('a', { href: address({ archive: a.name }) }, plainName(a.name)));
    return { a, cells, name, tr: el('tr', {}, name, Object.values(cells)), known: { name: a.name } };
  });
  const body = el('tbody', {}, rows.map(r => r.tr));
  const all = el('button', { type: 'button', id: 'check-all', onclick: () => safely(() => checkAll(rows, shown, all)) }, 'Check all');
  let by = 'name', desc = false;
  const heads = columns.map(([k, name]) => {
    const th = el('th', { scope: 'col', class: k }, el('button', { type: 'button', class: 'quiet', onclick: () => sort(k) }, name));
    th.key = k;
    return th;
  });
  const sort = k => safely(async () => {
    desc = k === by ? !desc : ['entries', 'content', 'stored'].includes(k); // the largest first
    by = k;
    for (const th of heads) th.setAttribute('aria-sort', th.key === by ? desc ? 'descending' : 'ascending' : 'none');
    const place = () => {
      const v = r => by === 'health' ? worst.indexOf(r.known.health ?? 'unknown') : r.known[by];
      const order = [...rows].sort((x, y) => {
        const p = v(x), q = v(y);
        if (p === undefined || q === undefined) return Number(p === undefined) - Number(q === undefined); // unknown values come last
        return (desc ? -1 : 1) * (typeof p === 'string' ? p.localeCompare(q) : p - q);
      });
      body.replaceChildren(...order.map(r => r.tr));
      document.body.dataset.sorted = by + (desc ? '-desc' : '');
    };
    place();
    if (by === 'name') return;
    // This order needs the descriptions of all archives.
    for (const r of rows) { seen.unobserve(r.tr); await look(r, shown); }
    place();
  });
  const bar = el('div', { class: 'bar' }, el('p', { class: 'lead' }, count(total, 'archive')), archives.length ? all : '');
  main.replaceChildren(el('div', { class: 'sheet' }, el('h1', {}, 'Archives'), bar,
    archives.length === 0 ? el('p', { class: 'empty' }, 'No archives here.') : el('table', { class: 'archives' }, el('thead', {}, el('tr', {}, heads)), body)));
  say(total > archives.length ? `the first ${num(archives.length)} of ${num(total)}` : '', '');
  const seen = new IntersectionObserver(list => {
    for (const it of list.filter(i => i.isIntersecting)) {
      seen.unobserve(it.target);
      safely(() => look(rows.find(r => r.tr === it.target), shown));
    }
  });
  for (const r of rows) seen.observe(r.tr);
  main.querySelector('.archives')?.addEventListener('keydown', e => {
    const links = [...main.querySelectorAll('.archives a')], i = links.indexOf(document.activeElement);
    const to = i < 0 ? undefined : { ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: links.length - 1 }[e.key];
    if (to !== undefined && links[to]) { e.preventDefault(); links[to].focus(); }
  });
  main.querySelector('.archives a')?.focus({ preventScroll: true });
}

/** Requests the description of an archive until it does not change any more. */
const look = (r, shown, again) => again || !r.looked ? r.looked = watch(r, shown) : r.looked;
async function watch(r, shown) {
  for (;;) {
    let a;
    try {
      a = await shown.json('archive', { a: r.a.name });
    } catch (err) {
      if (shown.ended) throw err;
      if (err.code === 'busy') { await shown.pause(2000); continue; }
      r.failed = true;
      r.cells.format.replaceChildren(problem(err), isDamage(err) ? el('a', { href: address({ archive: r.a.name }) }, 'See what can be recovered') : '');
      r.cells.format.colSpan = 5;
      for (const k of ['entries', 'content', 'stored', 'health']) r.cells[k].remove();
      return;
    }
    const where = a.address && a.address !== plainName(a.name);
    if (where && r.name.childElementCount === 1) r.name.append(el('span', { class: 'where', title: a.address }, a.address));
    if (a.front) r.name.firstChild.href = address({ archive: a.name, ...a.front });
    const s = a.survey, soFar = s.state === 'running' ? '…' : '';
    Object.assign(r.known, { format: a.format, entries: s.entries, content: s.bytes, stored: a.stored, health: a.verify.health });
    r.cells.format.replaceChildren(el('span', { title: a.title }, a.format));
    r.cells.stored.textContent = size(a.stored);
    r.cells.entries.textContent = num(s.entries) + soFar;
    r.cells.content.textContent = size(s.bytes) + soFar;
    if (s.error) r.cells.entries.append(el('span', { class: 'badge bad', title: s.error }, 'incomplete'));
    r.cells.health.replaceChildren(health(a.doubt && a.verify.health === 'unknown' ? { health: 'damaged' } : a.verify));
    r.tr.dataset.state = s.state;
    if (s.state !== 'running' && a.verify.state !== 'running') return;
    await shown.pause(500);
  }
}

/** Checks all archives, one after the other. */
async function checkAll(rows, shown, button) {
  button.disabled = true;
  for (const [i, r] of rows.entries()) {
    await look(r, shown);
    while (!r.failed) {
      say(`checking ${num(i + 1)} of ${num(rows.length)}`);
      try { await shown.json('verify', { a: r.a.name, depth: 'full' }, { method: 'POST' }); } catch (err) {
        if (shown.ended) throw err;
        if (err.code === 'busy') { await shown.pause(1000); continue; }
        if (err.code !== 'usage') r.cells.health.replaceChildren(problem(err)); // a folder has nothing to compare it with
        break;
      }
      await look(r, shown, true);
      break;
    }
  }
  const bad = rows.filter(r => r.known.health === 'damaged').length;
  say(bad ? `${count(bad, 'archive')} of ${num(rows.length)} damaged` : 'all archives checked', '');
  button.disabled = false;
  document.body.dataset.checked = 'all';
}
