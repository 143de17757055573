// A picture of a folder, as a tile.
import { el, size, num, count, healthWord } from './base.js';
import { here, urlOf, address } from './state.js';

const largest = 8 << 20; // bytes of a picture that a tile shows

export function makeTile() {
  const icon = el('i', { class: 'icon', 'aria-hidden': 'true' }), img = el('img', { alt: '', decoding: 'async', hidden: true });
  const t = el('div', { role: 'gridcell', class: 'tile' }, el('div', { class: 'thumb' }, icon, img),
    el('div', { class: 'caption' }, el('span', { class: 'word' })), el('div', { class: 'hint note' }));
  img.onload = () => { img.hidden = false; icon.hidden = true; t.dataset.picture = 'shown'; };
  img.onerror = () => {
    if (!img.getAttribute('src')) return;
    t.dataset.picture = 'failed';
    t.lastChild.firstChild.textContent = 'cannot be shown'; t.lastChild.classList.add('bad');
  };
  return t;
}

/** Fills a tile with row i of files. */
export function fillTile(t, i, files) {
  const r = files.at(i), path = r && files.pathAt(i);
  t.i = i; t.id = 'row-' + i;
  t.setAttribute('aria-selected', String(files.isChosen(i, path)));
  t.dataset.health = r ? r.bad ? 'damaged' : r.health ?? (r.below ? 'inside' : '') : '';
  t.classList.toggle('waiting', !r);
  const key = r && [path, t.dataset.health, r.below, r.c].join('\n');
  if (t.key === key) return;
  t.key = key;
  clearTimeout(t.timer);
  const [thumb, caption, noted] = t.children, [icon, img] = thumb.children;
  img.hidden = true; img.removeAttribute('src'); icon.hidden = false; t.dataset.picture = '';
  noted.classList.toggle('bad', !!r?.health || !!r?.below); noted.replaceChildren();
  icon.className = 'icon ' + (r?.k === 'dir' ? 'dir' : 'k' + (r?.h ?? 0));
  caption.firstChild.textContent = caption.firstChild.title = r?.n ?? '';
  if (!r) return;
  if (r.k === 'dir') {
    t.dataset.picture = 'none';
    noted.textContent = r.below ? `${num(r.below)} damaged inside` : r.c ? count(r.c, 'file') : '';
    return;
  }
  const stem = r.n.indexOf('.'), beside = n => address({ ...here, path: files.dir ? files.dir + '/' + n : n });
  const links = (r.with ?? []).flatMap(n => [' · ', el('a', { href: beside(n), title: n }, n.slice(stem + 1))]);
  noted.append(r.health ? healthWord(r.health) : size(r.s), ...links);
  if (r.s > largest) { t.dataset.picture = 'large'; return; }
  // Fast scrolling must not request every picture that passes.
  t.timer = setTimeout(() => { img.src = urlOf(path); }, 60);
}
