// Two revisions side by side: the additions, changes and removals in a folder. A folder is compared
// when it is opened.
import { el, ask, base, problem, time } from './base.js';
import { here, args, go, address } from './state.js';
import { propertyText, propertyType } from './node.js';

const marks = { added: '+', removed: '−', changed: '~', lost: '?' };
const step = 200; // changes per request
const at = ms => ms < 0 ? '' : time(ms) + new Date(ms).toISOString().slice(16, 19);

export class Compare {
  before; after; all; pair;
  constructor(main) {
    const pick = (key, name) => {
      const s = el('select', { id: key, onchange: () => go({ [key]: s.value }, { replace: true }) });
      return [s, el('label', {}, name + ' ', s)];
    };
    let from, to;
    [this.before, from] = pick('before', 'Before');
    [this.after, to] = pick('after', 'After');
    this.told = el('p', { class: 'told', role: 'status' });
    this.box = el('div', { class: 'differs', tabindex: '0', role: 'region', 'aria-label': 'Differences' });
    this.choice = el('div', { class: 'group' }, from, to);
    main.append(el('div', { class: 'compare' }, el('div', { class: 'bar' }, this.choice), this.told, this.box));
    this.dead = new AbortController();
  }
  close() { this.dead.abort(); document.body.dataset.compared = ''; }
  focus() { this.box.focus(); }
  async show(dir) {
    document.body.dataset.compared = '';
    this.all ??= (await ask.json('revisions', args({}), { signal: this.dead.signal })).revisions;
    const good = this.all.filter(r => !r.lost), log = good.filter(r => !r.name);
    const after = here.after || log[0]?.id, before = here.before || log.find(r => r.id !== after)?.id;
    this.fill(this.before, before); this.fill(this.after, after);
    this.choice.hidden = good.length < 2;
    this.box.replaceChildren();
    if (!before || !after) { this.told.textContent = good.length ? 'There is only one revision to compare.' : 'No readable revision.'; document.body.dataset.compared = 'none'; return; }
    this.told.textContent = this.all.some(r => r.lost) ? 'Revisions that can no longer be read are disabled.' : '';
    const pair = this.pair = { from: before, to: after, head: after === log[0]?.id };
    try {
      await this.into(this.box, dir, pair, true);
    } catch (err) {
      if (err.name === 'AbortError' || pair !== this.pair) return;
      this.box.replaceChildren(problem(err));
    }
    if (pair === this.pair) document.body.dataset.compared = before + '..' + after;
  }
  fill(select, id) {
    const option = r => el('option', { value: r.id, selected: r.id === id, disabled: !!r.lost, title: r.id }, [at(r.millis), r.name ?? r.id.slice(0, 8) + '…' + r.id.slice(r.id.lastIndexOf(':')), r.lost && '(lost)'].filter(Boolean).join(' · '));
    const log = this.all.filter(r => !r.name), kept = this.all.filter(r => r.name);
    select.replaceChildren(!this.all.some(r => r.id === id) && id ? option({ id, millis: -1 }) : '', el('optgroup', { label: 'Revisions' }, log.map(option)), kept.length ? el('optgroup', { label: 'Checkpoints' }, kept.map(option)) : '');
  }
  /** Shows the differences in a folder. */
  async into(box, path, pair, top, offset = 0) {
    const r = await ask.json('changes', args({ path, from: pair.from, to: pair.to, offset, limit: step }), { signal: this.dead.signal });
    if (pair !== this.pair) return;
    const mine = (path ? '/' + path : '/'), own = c => c.property !== undefined || c.path === mine;
    const properties = r.changes.filter(c => c.property !== undefined), whole = r.changes.filter(c => c.property === undefined && c.path === mine);
    const nodes = r.changes.filter(c => !own(c)).sort((a, b) => a.path < b.path ? -1 : 1);
    for (const c of whole) box.append(el('p', { class: c.lost ? 'fault' : 'pad' }, c.lost ? 'Part of this node is damaged: ' + c.lost : `This node was ${c.change}, with everything below it.`));
    if (properties.length) box.append(this.table(properties));
    if (nodes.length) box.append(el('ul', { class: 'nodes' }, nodes.map(c => el('li', {}, this.node(c, pair)))));
    if (r.more) {
      const more = el('button', { type: 'button', class: 'quiet', onclick: async () => { more.disabled = true; try { await this.into(box, path, pair, top, offset + step); more.remove(); } catch (err) { more.replaceWith(problem(err)); } } }, 'More');
      box.append(more);
    }
    if (!r.changes.length && !offset) box.append(el('p', { class: 'hint' }, top ? 'No differences here.' : 'Only the storage differs.'));
  }
  node(c, pair) {
    const path = c.path.slice(1), label = [el('span', { class: 'mark ' + c.change, 'aria-hidden': 'true' }, marks[c.change]), el('span', { class: 'word' }, base(path)), el('span', { class: 'hint' }, ' ' + c.change)];
    if (c.lost) return el('div', { class: 'leaf' }, label, el('div', { class: 'fault' }, c.lost));
    if (c.change !== 'changed') return el('div', { class: 'leaf' }, label, c.change === 'added' && pair.head ? el('a', { href: address({ archive: here.archive, view: here.view, path, tab: 'list' }) }, 'Open') : '');
    const body = el('div', { class: 'below' }), d = el('details', { data: { path } }, el('summary', {}, label), body);
    d.addEventListener('toggle', async () => {
      if (!d.open || d.asked) return;
      d.asked = true;
      try { await this.into(body, path, pair); } catch (err) { if (err.name !== 'AbortError') { body.replaceChildren(problem(err)); d.asked = false; } }
    });
    return d;
  }
  table(list) {
    const side = (p, tone) => el('td', { class: 'value ' + tone }, p ? [el('span', { class: 'hint' }, propertyType(p)), ' ', propertyText(p)] : '');
    return el('div', { class: 'wide' }, el('table', { class: 'props sides' }, el('thead', {}, el('tr', {}, ['Property', 'Before', 'After'].map(t => el('th', { scope: 'col' }, t)))),
      el('tbody', {}, list.map(c => el('tr', { data: { change: c.change } }, el('th', { scope: 'row' }, el('span', { class: 'mark ' + c.change, 'aria-hidden': 'true' }, marks[c.change]), c.property, el('span', { class: 'unseen' }, ' ' + c.change)),
        c.lost ? el('td', { class: 'fault', colspan: 2 }, c.lost) : [side(c.before, 'was'), side(c.after, 'is')])))));
  }
}
