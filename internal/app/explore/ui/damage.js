// The first screen of an archive that cannot be opened: what happened, what can be recovered, and all its bytes.
import { el, num, size, plainName, hex, problem } from './base.js';
import { here, address, archive } from './state.js';
import { ByteMap } from './map.js';
import { Hex } from './text.js';
import { recovery } from './recovery.js';

/** A byte map on which a click shows the bytes there. */
class Places extends ByteMap {
  jump; // is called with the place of a byte
  async open(i) { this.jump?.(this.range(i)[0]); }
}

export class Damage {
  constructor(main) {
    this.head = el('div', { class: 'happened' });
    this.plan = el('section', { class: 'plan', 'aria-label': 'What can be recovered' });
    this.map = el('div', { class: 'places' });
    this.at = el('p', { class: 'told', role: 'status' });
    this.bytes = el('div', { class: 'bytes' });
    this.looks = el('p', { class: 'hint' });
    this.places = el('section', { 'aria-label': 'Its bytes' }, el('h2', {}, 'Its bytes'), this.looks, this.map, this.at, this.bytes);
    main.append(el('div', { class: 'sheet damage' }, this.head, this.plan, this.places));
  }
  close() { this.picture?.close(); this.rows?.close(); document.body.dataset.damage = document.body.dataset.plan = ''; }
  focus() { this.head.querySelector('h1')?.focus(); }
  async show(dir, file, shown) {
    document.body.dataset.damage = '';
    const d = await shown.json('damage', { a: here.archive });
    this.volumes = d.volumes; this.page = shown;
    const technical = d.finding && el('details', {}, el('summary', {}, 'Technical finding'), el('p', {}, d.code && el('code', {}, d.code), ' ', d.finding));
    this.head.replaceChildren(...[el('h1', { tabindex: '-1' }, plainName(here.archive)), el('p', { class: 'said' }, el('b', {}, d.happened), ' ', d.cost, ' ', d.opens && el('a', { href: address({ archive: here.archive, tab: 'list' }) }, 'Show it in its default view')),
      technical].filter(Boolean));
    this.focus();
    this.places.hidden = !d.size;
    this.looks.textContent = 'They look like: ' + d.looks.map(x => `${x.look} ${size(x.bytes)}`).join(', ') + '.';
    const planned = d.size ? recovery(this.plan, shown) : this.plan.replaceChildren(el('p', {}, 'Perhaps there is another copy, or the file was created but never written.'));
    if (d.size) await shown.attempt(() => this.draw('bytes', 'kind'), err => this.map.replaceChildren(problem(err)));
    if (!shown.ended) document.body.dataset.damage = '1';
    if (d.size) this.jump(0);
    planned?.then(r => r && !r.nothing && !shown.ended && shown.attempt(() => this.draw('repaired', 'use'), () => {})); // the first map stays
  }
  /** Draws the map: by what bytes look like, or by what a repair uses them for. */
  async draw(view, by) {
    const was = document.activeElement;
    this.picture?.close();
    this.map.replaceChildren();
    const m = this.picture = new Places(this.map);
    m.of = { view }; m.by = m.pick.value = by; m.jump = at => this.jump(at);
    await m.show();
    if (document.activeElement === m.canvas && was?.isConnected) /** @type {HTMLElement} */ (was).focus({ preventScroll: true }); // the map is not what the user looks at
    document.body.dataset.places = view;
  }
  /** Shows the bytes from an address on. */
  async jump(at) {
    const v = this.volumes.findLast(v => v.base <= at && v.size > 0);
    if (!v) return;
    if (this.shownVolume !== v) {
      this.rows?.close();
      this.bytes.replaceChildren();
      this.shownVolume = v;
      const read = async (off, n) => new Uint8Array(await (await this.page.raw('content', { a: here.archive, view: 'bytes', path: v.name, off, n: Math.min(n, v.size - off) })).arrayBuffer());
      this.rows = new Hex(this.bytes, { size: v.size, read });
      await this.page.attempt(() => this.rows.show(), err => this.bytes.replaceChildren(problem(err)));
    }
    const off = at - v.base;
    this.rows.rows.go(Math.floor(off / this.rows.per));
    this.at.replaceChildren(`From byte ${num(off)} (${hex(off)})${this.volumes.length > 1 ? ' of ' + v.name : ''}. Click on the map to see the bytes there. `,
      el('a', { href: address({ archive: here.archive, view: 'bytes', path: v.name, tab: 'list' }) }, `All ${size(v.size)}`));
    document.body.dataset.at = at;
  }
}
