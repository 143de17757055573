// The filters of a search, in a row above its results. They are part of the address.
import { el, size } from './base.js';
import { go, here, searching, bytesIn, archive } from './state.js';
import { kindNames } from './kinds.js';

const set = change => go({ ...searching(), ...change }, { replace: true });

export class Filters {
  constructor() {
    const kinds = [['', 'Any kind'], ...[...kindNames, 'folders'].map(k => [k, k])];
    const options = kinds.map(([v, text]) => el('option', { value: v }, text));
    this.kind = el('select', { 'aria-label': 'Kind', onchange: e => set({ kind: e.target.value }) }, options);
    this.min = this.bytes('min', 'At least');
    this.max = this.bytes('max', 'At most');
    this.since = this.day('since', 'From');
    this.until = this.day('until', 'To');
    this.match = el('button', {
      type: 'button', id: 'regexp', 'aria-pressed': 'false', title: 'The text is a regular expression (RE2)',
      onclick: () => set({ match: here.match ? '' : 'regexp' }),
    }, 'Expression');
    const unfilter = () => go({ q: here.q, match: here.match }, { replace: true });
    this.none = el('button', { type: 'button', class: 'quiet', id: 'unfilter', onclick: unfilter }, 'No filters');
    const pair = (name, ...inputs) => el('span', { class: 'pair' }, el('span', {}, name), inputs);
    this.box = el('div', { class: 'filters', role: 'group', 'aria-label': 'Filters', hidden: true },
      this.kind, pair('Size', this.min, this.max), pair('Modified', this.since, this.until), this.match, this.none);
  }
  bytes(key, name) {
    const input = el('input', { type: 'text', inputmode: 'decimal', autocomplete: 'off', placeholder: name, 'aria-label': `${name}, for example 10 MiB` });
    input.addEventListener('change', () => {
      const n = bytesIn(input.value);
      input.setAttribute('aria-invalid', String(!!input.value.trim() && n === undefined));
      if (n !== undefined || !input.value.trim()) set({ [key]: n === undefined ? '' : String(n) });
    });
    return input;
  }
  day(key, name) {
    return el('input', { type: 'date', 'aria-label': 'Modified ' + name.toLowerCase(), onchange: e => set({ [key]: e.target.value }) });
  }
  /** Shows what the address says. */
  show(active) {
    this.box.hidden = !active;
    for (const k of ['kind', 'since', 'until']) if (this[k].value !== here[k]) this[k].value = here[k];
    for (const k of ['min', 'max']) {
      const n = here[k] && Number(here[k]);
      if (bytesIn(this[k].value) !== (here[k] ? n : undefined)) this[k].value = here[k] && (bytesIn(size(n)) === n ? size(n) : here[k]);
    }
    this.match.setAttribute('aria-pressed', String(here.match === 'regexp'));
    this.match.hidden = !!archive.static; // a browser's expressions are others, and may never end
    this.none.hidden = !['kind', 'min', 'max', 'since', 'until'].some(k => here[k]);
  }
}
