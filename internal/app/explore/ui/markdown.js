// Markdown as a page. HTML in it stays text. Links within the archive work; other links only show
// their address.
import { el } from './base.js';

/**
 * Makes a page from a text.
 * @param {string} text @param {{link:(path:string)=>string, image:(path:string)=>string|undefined, dir:string}} o
 */
export function markdown(text, o) {
  const box = el('div', { class: 'markdown' }), lines = text.replace(/\r\n?/g, '\n').split('\n');
  blocks(lines, box, o);
  return box;
}

const deepest = 20, longest = 2000; // levels; characters of a paragraph that is parsed

function blocks(lines, box, o, depth = 0) {
  if (depth > deepest) { box.append(el('pre', { tabindex: '0' }, lines.join('\n'))); return; }
  for (let i = 0; i < lines.length;) {
    const line = lines[i];
    let m;
    if (!line.trim()) { i++; continue; }
    if ((m = /^\s{0,3}(```+|~~~+)/.exec(line))) {
      const body = [];
      for (i++; i < lines.length && !lines[i].trimStart().startsWith(m[1]); i++) body.push(lines[i]);
      i++;
      box.append(el('pre', { tabindex: '0' }, body.join('\n')));
    } else if ((m = /^(#{1,6})\s+(.*?)\s*#*\s*$/.exec(line))) {
      box.append(el('h' + Math.min(6, m[1].length + 2), {}, inline(m[2], o)));
      i++;
    } else if (/^\s{0,3}([-*_])(\s*\1){2,}\s*$/.test(line)) { box.append(el('hr')); i++; }
    else if (/^\s{0,3}>/.test(line)) {
      const body = [];
      for (; i < lines.length && /^\s{0,3}>/.test(lines[i]); i++) body.push(lines[i].replace(/^\s{0,3}> ?/, ''));
      const q = el('blockquote');
      blocks(body, q, o, depth + 1);
      box.append(q);
    } else if ((m = /^(\s{0,3})([-*+]|\d+[.)])\s+/.exec(line))) {
      const list = el(/\d/.test(m[2]) ? 'ol' : 'ul'), item = /^(\s{0,3})([-*+]|\d+[.)])\s+/;
      while (i < lines.length && item.test(lines[i])) {
        const body = [lines[i].replace(item, '')];
        for (i++; i < lines.length && (/^\s{2,}\S/.test(lines[i]) || !lines[i].trim() && /^\s{2,}\S/.test(lines[i + 1] ?? '') || lines[i].trim() && !item.test(lines[i]) && !/^\s{0,3}(#|>|```|~~~)/.test(lines[i])); i++) body.push(lines[i].replace(/^\s{2,4}/, ''));
        while (i < lines.length && !lines[i].trim() && item.test(lines[i + 1] ?? '')) i++;
        const li = el('li');
        if (body.length === 1) li.append(...inline(body[0], o)); else blocks(body, li, o, depth + 1);
        list.append(li);
      }
      box.append(list);
    } else if (line.includes('|') && /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/.test(lines[i + 1] ?? '')) {
      const cells = s => s.trim().replace(/^\||\|$/g, '').split(/(?<!\\)\|/).map(c => c.trim().replaceAll('\\|', '|'));
      const head = cells(line), rows = [];
      for (i += 2; i < lines.length && lines[i].includes('|') && lines[i].trim(); i++) rows.push(cells(lines[i]));
      box.append(el('div', { class: 'wide' }, el('table', {}, el('thead', {}, el('tr', {}, head.map(c => el('th', { scope: 'col' }, inline(c, o))))), el('tbody', {}, rows.map(r => el('tr', {}, head.map((_, k) => el('td', {}, inline(r[k] ?? '', o)))))))));
    } else if (/^ {4}\S/.test(line)) {
      const body = [];
      for (; i < lines.length && (/^ {4}/.test(lines[i]) || !lines[i].trim()); i++) body.push(lines[i].slice(4));
      box.append(el('pre', { tabindex: '0' }, body.join('\n').trimEnd()));
    } else {
      const body = [];
      do { body.push(lines[i]); i++; } while (i < lines.length && lines[i].trim() && !/^\s{0,3}(#{1,6}\s|>|```|~~~|[-*+]\s|\d+[.)]\s)/.test(lines[i]) && !/^(=+|-+)\s*$/.test(lines[i]));
      if (/^=+\s*$/.test(lines[i] ?? '')) { box.append(el('h3', {}, inline(body.join(' '), o))); i++; }
      else if (/^-+\s*$/.test(lines[i] ?? '')) { box.append(el('h4', {}, inline(body.join(' '), o))); i++; }
      else box.append(el('p', {}, inline(body.join('\n'), o)));
    }
  }
}

const span = /(`+)(.+?)\1(?!`)|!\[([^\]]*)\]\(\s*<?((?:\([^()\s>]*\)|[^()\s>])+)>?[^)]*\)|\[((?:[^[\]]|\[[^\]]*\])*)\]\(\s*<?((?:\([^()\s>]*\)|[^()\s>])*)>?[^)]*\)|(\*\*|__)(?=\S)(.+?)\7|([*_])(?=\S)(.+?)\9(?![\w*])|<(https?:[^>\s]+)>|\\([\\`*_{}[\]()#+\-.!|<>~])/s;
function inline(text, o) {
  const out = [];
  if (text.length > longest) return [text];
  for (let m; (m = span.exec(text)); text = text.slice(m.index + m[0].length)) {
    if (m.index) out.push(text.slice(0, m.index));
    if (m[1]) out.push(el('code', {}, m[2].trim()));
    else if (m[4] !== undefined) { const src = within(m[4], o.dir), url = src !== undefined && o.image(src); out.push(url ? el('img', { src: url, alt: m[3], loading: 'lazy' }) : `[${m[3]}]`); }
    else if (m[6] !== undefined) { const to = within(m[6], o.dir); out.push(to !== undefined ? el('a', { href: o.link(to) }, inline(m[5], o)) : el('span', { class: 'away', title: m[6] }, inline(m[5], o))); }
    else if (m[7]) out.push(el('strong', {}, inline(m[8], o)));
    else if (m[9]) out.push(el('em', {}, inline(m[10], o)));
    else if (m[11]) out.push(m[11]);
    else out.push(m[12]);
  }
  if (text) out.push(text);
  return out;
}

/** The path in the archive that an address leads to; undefined if it leads elsewhere. */
function within(to, dir) {
  if (/^[a-z][a-z0-9+.-]*:|^\/\/|^#/i.test(to)) return undefined;
  let path;
  try { path = decodeURIComponent(to.replace(/[?#].*$/, '')); } catch { return undefined; }
  const parts = path.startsWith('/') ? [] : dir.split('/').filter(Boolean);
  for (const p of path.split('/')) {
    if (p === '..') { if (!parts.length) return undefined; parts.pop(); } else if (p && p !== '.') parts.push(p);
  }
  return parts.join('/');
}
