// A JSON value as a tree. A branch is made when it is opened.
import { el, count } from './base.js';

const step = 200;
export function jsonTree(v) {
  const box = el('div', { class: 'json' });
  box.append(branch(undefined, v, true));
  return box;
}
function branch(key, v, open) {
  const label = key === undefined ? [] : [el('span', { class: 'key' }, key), ': '];
  if (v === null || typeof v !== 'object') {
    const kind = v === null ? 'null' : typeof v;
    let text = kind === 'string' ? JSON.stringify(v) : String(v);
    if (text.length > 2000) text = text.slice(0, 2000) + '…';
    return el('div', { class: 'leaf' }, label, el('span', { class: kind }, text));
  }
  const isArray = Array.isArray(v), keys = isArray ? v : Object.keys(v);
  if (!keys.length) return el('div', { class: 'leaf' }, label, isArray ? '[]' : '{}');
  const d = el('details', {}, el('summary', {}, label, el('span', { class: 'hint' }, isArray ? `[${count(v.length, 'item')}]` : `{${count(keys.length, 'key')}}`)));
  let made = 0;
  const more = () => {
    d.querySelector(':scope > button')?.remove();
    for (const end = Math.min(made + step, keys.length); made < end; made++) d.append(isArray ? branch(String(made), v[made]) : branch(keys[made], v[keys[made]]));
    if (made < keys.length) d.append(el('button', { type: 'button', class: 'quiet', onclick: more }, count(keys.length - made, 'more', 'more')));
  };
  d.addEventListener('toggle', () => { if (d.open && !made) more(); });
  if (open) { d.open = true; more(); }
  return d;
}
