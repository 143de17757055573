// Helpers for all modules: elements, formatting of numbers and names, and requests to the server.

/** Makes an element. Strings become text, never markup: names in archives may be anything. */
export function el(tag, props = {}, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(props)) {
    if (v === undefined || v === null || v === false) continue;
    if (k.startsWith('on')) e.addEventListener(k.slice(2), v);
    else if (k === 'class') e.className = v;
    else if (k === 'data') Object.assign(e.dataset, v);
    else e.setAttribute(k, v === true ? '' : v);
  }
  e.append(...children.flat(9).filter(c => c !== undefined && c !== null && c !== false));
  return e;
}

/** @returns {any} */
export const $ = id => document.getElementById(id);

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
export function size(n) {
  if (n === undefined || n === null) return '';
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return (i ? n.toFixed(n < 10 ? 2 : n < 100 ? 1 : 0) : n) + ' ' + units[i];
}
const numbers = new Intl.NumberFormat('en');
export const num = n => numbers.format(n);
export const count = (n, one, many = one + 's') => `${num(n)} ${n === 1 ? one : many}`;
export const hex = n => '0x' + n.toString(16);
export function time(ms) {
  if (ms === undefined) return '';
  return new Date(ms).toISOString().replace('T', ' ').slice(0, 16);
}
export function duration(s) {
  return s < 0.05 ? 'less than 0.1 s' : s < 10 ? s.toFixed(1) + ' s' : s < 90 ? Math.round(s) + ' s' : Math.round(s / 60) + ' min';
}

/** Shortens a long name in its middle. */
export function middle(s, most) {
  if (s.length <= most) return s;
  const tail = Math.floor(most * 0.55);
  return s.slice(0, most - tail - 1) + '…' + s.slice(-tail);
}

/** Shows a name so that one that is too long is cut in its middle: the end often matters. */
export function showName(e, name) {
  const tail = 12;
  if (name.length < 28 || !/^[\x20-\x7e]*$/.test(name)) e.textContent = name; // other scripts may run from right to left
  else e.replaceChildren(el('span', { class: 'start' }, name.slice(0, -tail)), el('span', { class: 'end' }, name.slice(-tail)));
  e.classList.toggle('parted', e.childElementCount > 0);
}

/** The shown name of an archive: controls that would reverse or break a line appear as \xNN. */
export const plainName = name => name.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g,
  c => [...new TextEncoder().encode(c)].map(b => '\\x' + b.toString(16).padStart(2, '0')).join(''));

export class Failed extends Error {
  constructor(code, message) { super(message); this.code = code; }
}
/** What a page without a server does when something needs one. */
export function unavailable() { throw new Failed('unsupported', 'not available on this page: use “holdall browse”'); }

/** Notifies the page if an archive is not the same as at the last request. */
const bytes = new Map();
function noteBytes(archive, id) {
  if (!id) return;
  const was = bytes.get(archive);
  bytes.set(archive, id);
  if (was && was !== id) dispatchEvent(new Event('replaced'));
}

const question = (path, args) => {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(args)) if (v !== undefined && v !== null && v !== '') q.set(k, v);
  return 'api/' + path + (q.size ? '?' + q : '');
};
let answer;
/** Replaces the server: f takes the parameters of ask.raw, and returns a Response. */
export function answeredBy(f) { answer = f; }
export const isAlone = () => !!answer;
export const ask = {
  url: question,
  /** @param {string} path @param {any} args @param {RequestInit} o @returns {Promise<Response>} */
  async raw(path, args = {}, o = {}) {
    if (answer) { o.signal?.throwIfAborted(); return answer(path, args, o); }
    let r;
    try {
      r = await fetch(question(path, args), o);
    } catch (err) {
      if (err.name === 'AbortError') throw err;
      throw new Failed('offline', 'the server does not answer');
    }
    noteBytes(args.a, r.headers.get('Holdall-Archive'));
    if (!r.ok) {
      let e;
      try { e = (await r.json()).error; } catch { /* the response is not from holdall */ }
      if (e?.code === 'changed') dispatchEvent(new Event('replaced'));
      throw new Failed(e?.code ?? 'http', e?.message ?? 'the server responds with status ' + r.status);
    }
    return r;
  },
  /** @template {string} P @param {P} path @param {object} [args] @param {RequestInit} [o] @returns {Promise<Answer<P>>} */
  async json(path, args, o) {
    const v = await (await ask.raw(path, args, o)).json();
    o?.signal?.throwIfAborted(); // what answers without a server does not look at it
    return v;
  },
};

/** The bytes of a name as the server shows it: \xNN stands for a byte. */
export function bytesOf(name) {
  const out = [], enc = new TextEncoder();
  for (const part of name.split(/(\\x[0-9a-f]{2})/)) {
    if (/^\\x[0-9a-f]{2}$/.test(part)) out.push(parseInt(part.slice(2), 16));
    else out.push(...enc.encode(part));
  }
  return out;
}
const plain = c => c >= 97 && c <= 122 || c >= 65 && c <= 90 || c >= 48 && c <= 57 || c === 45 || c === 46 || c === 95 || c === 126 || c === 47;
const encoded = name => bytesOf(name).map(c => plain(c) ? String.fromCharCode(c) : '%' + c.toString(16).toUpperCase().padStart(2, '0')).join('');
export const fileURL = (archive, path) => 'f/' + encoded(archive).replaceAll('/', '%2F') + '/' + encoded(path);
export const zipURL = (archive, dir, only = []) => 'zip/' + encoded(archive).replaceAll('/', '%2F') + '/' + (dir ? encoded(dir) + '/' : '') + (only.length ? '?' + only.map(p => 'only=' + encoded(p)).join('&') : '');

export const base = path => path.slice(path.lastIndexOf('/') + 1);
export const parent = path => path.includes('/') ? path.slice(0, path.lastIndexOf('/')) : '';
export const join = (dir, row) => row.whole || !dir ? row.n : dir + '/' + row.n;

/** Returns a function that calls f once it has not been called for ms. */
export function later(f, ms) {
  let t;
  return (...args) => { clearTimeout(t); t = setTimeout(() => f(...args), ms); };
}

export const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export function say(text, aside) {
  $('status').textContent = text;
  if (aside !== undefined) $('aside').textContent = aside;
}
/** Whether an error is about what is stored, which can be looked at nevertheless. */
export const isDamage = err => !['offline', 'not-found', 'busy', 'closed', 'slow', 'forbidden', 'usage', 'changed', 'http'].includes(err.code);
/** A command line, and a button that copies it. */
export function commandLine(text) {
  const line = el('code', { tabindex: '0', role: 'group', 'aria-label': 'Command' }, text);
  const copy = async e => {
    try { await navigator.clipboard.writeText(text); } catch { // only secure pages may
      getSelection().selectAllChildren(line);
      document.execCommand('copy');
    }
    e.target.textContent = 'Copied';
  };
  return el('div', { class: 'command' }, line, el('button', { type: 'button', onclick: copy }, 'Copy'));
}
export const problem = err => el('p', { class: 'fault', role: 'alert' }, err.message);
export const quiet = err => { if (err.name !== 'AbortError') throw err; };

const healths = { unknown: ['not checked', ''], good: ['sound', 'good'], structure: ['structure sound, contents not compared', 'doubt'], unproven: ['unproven', 'doubt'], odd: ['warning', 'warn'], damaged: ['damaged', 'bad'] };
export const healthWord = h => (healths[h] ?? healths.unknown)[0];
/** The result of a check of an archive, in a word. */
export function health(verify) {
  const [, tone] = healths[verify.health] ?? healths.unknown;
  return el('span', { class: 'badge ' + tone, data: { health: verify.health } }, verify.state === 'running' ? 'checking…' : healthWord(verify.health));
}
