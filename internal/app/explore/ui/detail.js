// The panel of an entry: its content and its properties.
import { plainName, $, el, size, num, time, base, parent, count, hex, zipURL, problem, Failed } from './base.js';
import { here, archive, args, urlOf, usual, hasKind, address } from './state.js';
import { Shown } from './shown.js';
import { Content } from './content.js';
import { Text, Hex } from './text.js';
import { jsonTree } from './json.js';
import { language } from './colours.js';
import { TableView } from './table.js';
import { markdown } from './markdown.js';
import { ArrayView } from './array.js';
import { propertyText, propertyType } from './node.js';
import { DynamicTable } from './dynamic.js';
import { Raster } from './raster.js';
import { showAttributes } from './attributes.js';
import { copies } from './copy.js';

const types = {
  image: ['png', 'jpg', 'jpeg', 'gif', 'webp', 'avif', 'bmp', 'ico', 'svg'],
  audio: ['mp3', 'ogg', 'oga', 'wav', 'flac', 'm4a', 'aac', 'opus'],
  video: ['mp4', 'webm', 'mov', 'mkv', 'ogv'],
  json: ['json', 'geojson', 'jsonld', 'zarray', 'zattrs', 'zgroup', 'zmetadata', 'ipynb', 'map'],
  text: ['txt', 'md', 'markdown', 'csv', 'tsv', 'log', 'xml', 'html', 'htm', 'css', 'js', 'mjs', 'ts', 'go', 'py', 'c', 'h', 'cc', 'rs', 'java', 'sh', 'yaml', 'yml', 'toml', 'ini', 'conf', 'jsonl', 'ndjson', 'ucl', 'rst', 'tex', 'sql', 'diff', 'patch'],
};
const mimes = { svg: 'image/svg+xml', jpg: 'image/jpeg' };
const ext = path => { const b = base(path), i = b.lastIndexOf('.'); return i < 0 ? '' : b.slice(i + 1).toLowerCase(); };
const kindOf = path => Object.keys(types).find(k => types[k].includes(ext(path)));
/** Matches if the screen is so narrow that the panel covers the list. */
export const covering = matchMedia('(max-width: 860px)');
const most = { json: 4 << 20, page: 512 << 10, saved: 512 << 20, image: 64 << 20 };

/** Whether bytes look like text: no NUL, valid UTF-8, few control characters. */
function isText(b) {
  if (!b.length) return true;
  if (b.includes(0)) return false;
  let t;
  try { t = new TextDecoder('utf-8', { fatal: true }).decode(b.subarray(0, Math.max(0, b.length - 4))); } catch { return false; }
  let odd = 0;
  for (let i = 0; i < t.length; i++) { const c = t.charCodeAt(i); if (c < 32 && c !== 9 && c !== 10 && c !== 13 && c !== 27) odd++; }
  return odd <= t.length / 100;
}

export class Detail {
  constructor(box, close) { this.box = box; this.closed = close; this.shown = new Shown(); this.wide = () => this.cover(); covering.addEventListener('change', this.wide); }
  close() { this.hide(); covering.removeEventListener('change', this.wide); }
  hide() {
    this.shown.end();
    this.drop(); this.path = undefined;
    this.box.hidden = true; this.box.replaceChildren();
    document.body.dataset.preview = '';
    document.body.classList.remove('detailed');
    this.cover();
  }
  /** On a narrow screen the panel covers the list, which then must not get the focus. */
  cover() {
    const covers = covering.matches && !this.box.hidden;
    for (const c of $('main').children) c.inert = covers; // main itself stays a landmark
    if (covers && (document.activeElement === document.body || document.activeElement?.closest('[inert]'))) this.box.querySelector('.close')?.focus();
  }
  drop() { this.body?.close?.(); this.body = undefined; this.content?.close(); this.content = undefined; if (this.blob) URL.revokeObjectURL(this.blob); this.blob = undefined; }
  async show(path, entry) {
    const key = here.archive + '\n' + here.view + '\n' + path;
    if (this.path === key) return;
    this.path = key;
    this.shown.end();
    const shown = this.shown = new Shown();
    this.drop();
    this.entry = entry;
    this.box.hidden = false;
    document.body.classList.add('detailed');
    document.body.dataset.preview = 'loading';
    const isDir = entry.kind === 'dir', file = entry.kind === 'file' || entry.kind === 'property';
    const kind = isDir || entry.array ? (entry.array ? 'array' : 'node') : kindOf(entry.path);
    this.tabs = el('div', { class: 'modes', role: 'group', 'aria-label': 'Ways to show it' });
    this.area = el('div', { class: 'area' });
    const name = base(entry.path) || plainName(here.archive);
    const links = [];
    if (file && usual() && !entry.odd) links.push(el('a', { class: 'button', id: 'download', href: urlOf(entry.path) + '?download', download: '' }, 'Download'));
    if (file && archive.static) links.push(el('button', { type: 'button', id: 'download', onclick: () => this.save() }, 'Download'));
    if (isDir && usual()) links.push(el('a', { class: 'button', href: zipURL(here.archive, entry.path) }, 'Download zip'));
    if (file && hasKind('map')) links.push(el('a', { class: 'button', href: address({ ...here, tab: 'map', path: entry.path, from: undefined }) }, 'Show on map'));
    this.box.replaceChildren(
      el('header', {}, el('h2', { title: entry.path }, name), el('button', { type: 'button', class: 'quiet close', 'aria-label': 'Close the preview', onclick: this.closed }, '×')),
      this.alarm = el('div', { class: 'alarm', hidden: true }), el('div', { class: 'tools' }, el('span', { class: 'facts' }, [file && size(entry.size), time(entry.t)].filter(Boolean).join(' · ')), links),
      copies([['Link', () => location.href], ...entry.path ? [['Path', () => entry.path]] : [], ...entry.digest ? [['Digest', () => entry.digest]] : []]), this.tabs, this.area);
    this.cover();
    this.warn(entry);
    let modes;
    if (entry.fault) modes = ['info'];
    else if (isDir) modes = entry.array ? ['array', 'info'] : entry.grouped ? [...entry.series ? ['series'] : [], ...entry.units ? ['raster'] : [], ...entry.table ? ['rows'] : [], 'attributes', 'info'] : ['node', ...hasKind('history') ? ['history'] : []];
    else if (!file) modes = ['info'];
    else {
      let first = kind;
      if (!first || first === 'text' || first === 'json') {
        this.content = new Content(entry);
        try {
          const head = await this.content.read(0, 4096);
          if (shown.ended) return;
          if (!isText(head)) first = 'hex';
          else if (kind !== 'json') first = 'text';
        } catch (err) {
          if (shown.ended || err.name === 'AbortError') return;
          this.wrong = err; first = 'hex';
        }
      } else this.content = new Content(entry);
      const page = first === 'text' && { md: 'markdown', markdown: 'markdown', csv: 'table', tsv: 'table' }[ext(entry.path)];
      modes = [...new Set([...page ? [page] : [], first, ...first === 'json' || ext(entry.path) === 'svg' ? ['text'] : [], 'hex', 'info'])];
    }
    const names = { text: 'Text', json: 'Tree', image: 'Image', audio: 'Audio', video: 'Video', hex: 'Bytes', info: 'Details', array: 'Array', markdown: 'Page', table: 'Table', rows: 'Table', raster: 'Spikes', series: 'Series', attributes: 'Attributes', node: 'Node', history: 'Revisions' };
    if (modes.length > 1) this.tabs.append(...modes.map(m => el('button', { type: 'button', data: { mode: m }, onclick: () => this.mode(m) }, names[m])));
    await this.mode(modes[0]);
  }
  /** Saves the content if no server has a URL for it. */
  async save() {
    const c = new Content(this.entry);
    try {
      const url = URL.createObjectURL(new Blob([await c.all(most.saved)]));
      el('a', { href: url, download: base(this.entry.path) }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60000);
    } catch (err) { this.warn(this.entry, err.message); }
  }
  /** Shows at the top what is wrong with the entry, and what that means. */
  warn(e, read) {
    const list = [];
    if (e.fault) list.push(['bad', el('b', {}, 'Cannot be read: '), e.fault]);
    else if (e.health === 'damaged' || read) list.push(['bad', el('b', {}, 'Damaged. '), e.problems?.find(p => p.severity === 'error')?.message ?? read ?? '', '. The content shown may be wrong or incomplete. A download stops at the damage; “holdall extract --keep-damaged” writes the readable parts.']);
    else if (e.health === 'odd') list.push(['warn', e.problems?.[0]?.message ?? 'The check has a warning for this entry.']);
    else if (e.below) list.push(['bad', `${count(e.below, 'damaged entry', 'damaged entries')} inside`]);
    this.alarm.replaceChildren(...list.map(([tone, ...text]) => el('p', { class: tone }, text)));
    this.alarm.hidden = !list.length;
    this.box.querySelector('#download')?.classList.toggle('bad', list.some(l => l[0] === 'bad'));
    document.body.dataset.harm = list[0]?.[0] ?? '';
  }
  async mode(m) {
    this.body?.close?.();
    this.body = undefined;
    for (const b of this.tabs.children) b.setAttribute('aria-pressed', String(b.dataset.mode === m));
    const { area, shown } = this;
    area.className = 'area as-' + m;
    this.box.classList.toggle('roomy', m === 'rows' || m === 'raster');
    area.replaceChildren();
    const scrolls = ['text', 'hex', 'rows'].includes(m) ? undefined : { tabindex: '0', role: 'region', 'aria-label': this.entry.path || 'Root' };
    for (const k of ['tabindex', 'role', 'aria-label']) if (scrolls) area.setAttribute(k, scrolls[k]); else area.removeAttribute(k);
    document.body.dataset.preview = 'loading';
    try {
      await this['show_' + m](area, this.entry);
    } catch (err) {
      if (shown.ended || err.name === 'AbortError') return;
      area.replaceChildren(problem(err));
      if (err.code === 'unreadable' || err.code?.startsWith('bad-')) this.warn(this.entry, err.message);
      document.body.dataset.preview = 'failed';
      return;
    }
    if (!shown.ended) document.body.dataset.preview = m;
  }
  async show_text(area, e) { this.body = new Text(area, this.content, language(ext(e.path) || base(e.path).toLowerCase())); await this.body.show(); }
  async show_table(area, e) { await new TableView(area, this.content).show(ext(e.path)); }
  async show_markdown(area, e) {
    if (e.size > most.page) { area.append(el('p', { class: 'hint' }, 'Too long to show as a page; this is the text.')); return this.show_text(area, e); }
    const text = new TextDecoder().decode(await this.content.all(most.page));
    area.append(markdown(text, { dir: parent(e.path), link: path => address({ archive: here.archive, view: here.view, path }), image: path => usual() ? urlOf(path) : undefined }));
  }
  async show_hex(area) { this.body = new Hex(area, this.content); await this.body.show(); }
  async show_json(area, e) {
    if (e.size > most.json) { area.append(el('p', { class: 'hint' }, 'Too long to show as a tree; this is the text.')); return this.show_text(area, e); }
    const text = new TextDecoder().decode(await this.content.all(most.json));
    let v;
    try { v = JSON.parse(text); } catch (err) {
      area.append(el('p', { class: 'hint' }, 'Not JSON: ' + err.message));
      return this.show_text(area, e);
    }
    area.append(jsonTree(v));
  }
  async show_image(area, e) {
    const img = el('img', { alt: base(e.path), class: 'picture' }), noted = el('p', { class: 'hint' });
    area.append(el('div', { class: 'ground' }, img), noted);
    await this.source(img, e, 'image');
    await new Promise((ok, no) => {
      img.onload = ok;
      img.onerror = () => this.unseen(e).then(no, no);
      if (img.complete && img.naturalWidth) ok();
    });
    noted.textContent = `${num(img.naturalWidth)} × ${num(img.naturalHeight)} pixels`;
  }
  /** Why an image cannot be shown: its content is damaged, or else the browser does not know it. */
  async unseen(e) {
    try { await this.content.all(most.image); } catch (err) {
      return err instanceof Failed ? err : new Failed('unreadable', 'cannot be read: the file or its archive is damaged');
    }
    if (e.health === 'damaged') return new Error('The content is damaged, and this browser cannot show it as an image. “Bytes” shows what is there.');
    return new Error(`This browser cannot show this image. ${e.proof ? 'Its content is as it was packed: the image is of a kind that the browser does not know, or was broken before.' : 'Nothing proves its content: it may be damaged, or of a kind that the browser does not know.'} “Bytes” shows what is there.`);
  }
  async show_audio(area, e) { await this.media(area, el('audio', { controls: true, preload: 'metadata', 'aria-label': base(e.path) }), e, 'audio'); }
  async show_video(area, e) { await this.media(area, el('video', { controls: true, preload: 'metadata', 'aria-label': base(e.path) }), e, 'video'); }
  async media(area, m, e, kind) {
    if (!this.content.url) throw new Error('audio and video can be played only in the default view');
    area.append(m);
    await this.source(m, e, kind);
    await new Promise((ok, no) => { m.onloadedmetadata = ok; m.onerror = () => no(new Error('this browser cannot play this file')); });
  }
  async source(x, e, kind) {
    if (e.size > most.image && kind === 'image') throw new Error('too large to show: ' + size(e.size));
    x.src = await this.content.address(mimes[ext(e.path)] ?? kind + '/' + ext(e.path), 16 << 20);
    if (x.src.startsWith('blob:')) this.blob = x.src;
  }
  async show_info(area, e) {
    const row = (k, v) => v === undefined || v === '' || v.length === 0 ? [] : [el('dt', {}, k), el('dd', {}, v)];
    const proofs = { parts: 'each part is compared with its checksum before it is shown', whole: 'compared with its digest when it is read completely', none: 'no: the archive has no checksum for it' };
    const fault = e.fault && el('p', { class: 'fault' }, 'Cannot be read: ' + e.fault);
    area.append(el('div', { class: 'pad' }, fault, el('dl', { class: 'list' },
      row('Path', e.path), row('Kind', e.kind), row('Size', e.kind === 'dir' ? '' : count(e.size, 'byte')), row('Modified', e.t === undefined ? '' : time(e.t) + ' UTC'), row('Mode', e.mode),
      row('Owner', [e.owner, e.group].filter(Boolean).join(' : ')), row('Target', e.link), row('Digest', e.digest), row('Verified', ['file', 'hardlink', 'property'].includes(e.kind) && !e.fault ? proofs[e.proof ?? 'none'] : ''), row('Check', (e.problems ?? []).map(p => el('div', { class: p.severity === 'error' ? 'fault' : '' }, p.message))), e.own ? row('Belongs to', 'the archive itself') : [], Object.entries(e.attr ?? {}).map(([k, v]) => row(k, v))),
    e.extents?.length && el('h3', {}, 'Location'),
    e.extents?.length && el('ul', { class: 'extents' }, e.extents.map(x => el('li', {}, `${size(x.len)} at ${hex(x.off)}`, el('span', { class: 'hint' }, ` of ${base(x.volume)}${x.codec ? ', ' + x.codec : ''}${x.external ? ', outside the archive' : ''}`)))),
    e.more_extents && el('p', { class: 'hint' }, 'and more parts')));
  }
  async show_array(area, e) { this.body = new ArrayView(area, e); await this.body.show(); }
  async show_series(area, e) { this.body = new ArrayView(area, { path: e.path + '/data' }); await this.body.show(); }
  async show_rows(area, e) { this.body = new DynamicTable(area, e); await this.body.show(); }
  async show_raster(area, e) { this.body = new Raster(area, e); await this.body.show(); }
  async show_attributes(area, e) { await showAttributes(area, e); }
  async show_node(area, e) {
    const n = await this.shown.json('node', args({ path: e.path }));
    const props = Object.entries(n.properties ?? {});
    area.append(el('div', { class: 'pad' }, el('p', { class: 'hint' }, `${count(props.length, 'property', 'properties')}, ${count(n.child_count ?? n.children?.length ?? 0, 'child', 'children')}`),
      props.length > 0 && el('table', { class: 'props' }, el('thead', {}, el('tr', {}, ['Property', 'Type', 'Value'].map(t => el('th', { scope: 'col' }, t)))),
        el('tbody', {}, props.map(([k, p]) => el('tr', {}, el('td', {}, k), el('td', { class: 'hint' }, propertyType(p)), el('td', { class: 'value' }, propertyText(p))))))));
  }
  async show_history(area, e) {
    const { steps } = await this.shown.json('history', args({ path: e.path }));
    const beside = (s, old) => old && s.change === 'changed' && hasKind('compare') && el('a', { href: address({ ...here, tab: 'compare', path: e.path === '.' ? '' : e.path, before: old.revision, after: s.revision }) }, 'Side by side');
    area.append(el('div', { class: 'pad' }, el('p', { class: 'hint' }, 'Changes to this node by revision, newest first.'), el('ol', { class: 'steps' }, steps.map((s, i) => el('li', {},
      el('strong', {}, s.change), s.revisions > 1 ? ` in ${num(s.revisions)} revisions` : '', s.millis >= 0 ? el('span', { class: 'hint' }, ' ' + time(s.millis)) : '',
      el('div', { class: 'rev' }, s.revision), beside(s, steps.slice(i + 1).find(o => !o.lost)), s.lost && el('div', { class: 'fault' }, s.lost),
      [...(s.properties ?? []).map(c => ['property', c]), ...(s.children ?? []).map(c => ['child', c])].map(([of, c]) => el('div', {}, `${c.change} ${of} `, el('code', {}, c.name))))))));
  }
}
