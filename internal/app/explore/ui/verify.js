// A check of the archive: its progress and its findings.
import { el, ask, size, num, count, hex, duration, problem, health } from './base.js';
import { here, args, address, archive, hasKind } from './state.js';
import { recovery } from './recovery.js';

export class Check {
  constructor(main) {
    const button = (id, text, f) => el('button', { type: 'button', id, onclick: f }, text);
    this.full = button('check-full', 'Check everything', () => this.start('full'));
    this.quick = button('check-quick', 'Check structure only', () => this.start('quick'));
    this.stop = button('check-stop', 'Cancel', () => this.cancel());
    this.full.classList.add('first');
    this.stop.hidden = true;
    this.badge = el('span');
    this.told = el('p', { class: 'told', role: 'status' });
    this.bar = el('progress', { max: '1', 'aria-label': 'Progress of the check', hidden: true });
    this.list = el('ol', { class: 'problems' });
    this.moreButton = el('button', { type: 'button', class: 'quiet', hidden: true, onclick: () => this.more() }, 'More');
    this.help = el('div');
    main.append(el('div', { class: 'sheet check' }, el('h1', {}, 'Check ', this.badge), el('p', { class: 'lead' }, 'Reads the archive and compares it with its own checksums. Nothing is changed.'),
      el('div', { class: 'group' }, this.full, this.quick, this.stop), this.bar, this.told, this.list, this.moreButton, this.help));
    this.problems = [];
  }
  close() { this.events?.close(); document.body.dataset.check = ''; }
  focus() { (this.full.hidden ? this.stop : this.full).focus(); }
  async show(dir, file, shown) { this.page = shown; if (!this.events) this.listen(); this.focus(); }
  listen() {
    this.events?.close();
    this.problems = []; this.list.replaceChildren(); this.shown = 0;
    const s = this.events = new EventSource(ask.url('verify', args({})));
    s.addEventListener('progress', e => this.state(JSON.parse(e.data)));
    s.addEventListener('problems', e => { this.problems.push(...JSON.parse(e.data)); if (this.shown < 200) this.more(); else this.tellMore(); });
    s.addEventListener('done', e => { s.close(); this.state(JSON.parse(e.data)); });
    s.onerror = () => { if (s.readyState === EventSource.CLOSED) this.told.textContent = 'The server does not answer.'; };
  }
  async start(depth) {
    try { await ask.json('verify', args({ depth }), { method: 'POST' }); } catch (err) { this.told.replaceChildren(problem(err)); return; }
    document.body.dataset.check = '';
    this.listen();
    archive.verify.state = 'running';
    dispatchEvent(new Event('checking'));
  }
  async cancel() { try { await ask.json('verify/cancel', args({}), { method: 'POST' }); } catch (err) { this.told.textContent = err.message; } }
  state(v) {
    archive.verify = v;
    const runs = v.state === 'running', had = this.stop.hidden === false;
    this.full.hidden = this.quick.hidden = runs; this.stop.hidden = this.bar.hidden = !runs;
    if (runs && document.activeElement === document.body || had !== runs && document.activeElement === document.body) this.focus();
    const f = v.of_bytes ? v.bytes / v.of_bytes : v.of_entries ? v.entries / v.of_entries : undefined;
    if (f === undefined) this.bar.removeAttribute('value'); else this.bar.value = f;
    this.badge.replaceChildren(v.state === 'none' ? '' : health(v));
    const found = ['error', 'warning', 'note'].filter(k => v.counts?.[k]).map(k => count(v.counts[k], k)).join(', ');
    const by = { ...v.proven, nothing: v.unproven };
    const proven = Object.keys(by).filter(k => by[k]).map(k => `${k}: ${num(by[k])}`).join(', ');
    const looked = `${count(v.entries, 'entry', 'entries')}, ${size(v.bytes)}`;
    this.told.textContent = {
      none: 'Not checked since the server was started.',
      running: `${looked}${v.of_bytes ? ' of ' + size(v.of_bytes) : ''} so far` + (found ? ': ' + found : ''),
      complete: `${found || 'No problems'}. ${looked} in ${duration(v.seconds)}${v.quick ? ', structure only' : proven && `; proven by ${proven}`}.` + (v.health === 'unproven' ? ` Damage in ${count((v.unproven ?? 0) + v.proven.decoding, 'file')} would not be seen: an index with digests or parity makes it visible from now on.` : ''),
      cancelled: `Cancelled after ${duration(v.seconds)}${found ? ': ' + found : ''}.`,
      failed: 'The check failed: ' + v.why,
    }[v.state];
    if (v.state === 'complete' && !found) this.list.replaceChildren();
    const bad = v.state === 'complete' && v.counts?.error;
    if (!bad) this.help.replaceChildren();
    else if (!this.help.firstChild) this.help.append(el('button', { type: 'button', id: 'preview-repair', onclick: () => recovery(this.help, this.page) }, 'See what can be recovered'));
    document.body.dataset.check = v.state;
    document.body.dataset.health = v.health;
  }
  more() {
    this.list.append(...this.problems.slice(this.shown, this.shown + 200).map(p => this.item(p)));
    this.shown = Math.min(this.problems.length, this.shown + 200);
    this.tellMore();
  }
  tellMore() {
    const left = this.problems.length - this.shown;
    this.moreButton.hidden = left <= 0;
    this.moreButton.textContent = count(left, 'more', 'more');
  }
  item(p) {
    const where = [p.volume, p.off !== undefined && hex(p.off)].filter(Boolean).join(' at ');
    return el('li', { class: p.severity, data: { code: p.code } }, el('span', { class: 'badge ' + { error: 'bad', warning: 'warn' }[p.severity] }, p.severity), el('div', { class: 'what' },
      el('div', {}, el('code', {}, p.class || p.code), ' ', p.message),
      el('div', { class: 'hint' }, p.path !== undefined && p.path !== '' && el('a', { href: address({ archive: here.archive, view: here.view, path: p.path, tab: 'list' }) }, p.path), where && ' ' + where)),
    hasKind('map') && el('a', { class: 'button', href: this.mapLink(p) }, 'Show on map'));
  }
  mapLink(p) {
    const to = { archive: here.archive, view: here.view, tab: 'map', path: p.path ?? '' };
    return address(to);
  }
}
