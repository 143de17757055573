// What shows a folder below its list: the file that describes it, and its first picture.
import { el, join, size } from './base.js';
import { here, address, urlOf, usual } from './state.js';
import { Content } from './content.js';
import { markdown } from './markdown.js';

const most = { readme: 256 << 10, picture: 8 << 20 };

export class Face {
  constructor() { this.box = el('section', { class: 'face', 'aria-label': 'About this folder', tabindex: '0', hidden: true }); }
  hide() { this.key = undefined; this.box.hidden = true; this.box.replaceChildren(); }
  /** Shows the face of a folder, which the server knows with its rows. */
  show(dir, { readme, picture }, shown) {
    const key = JSON.stringify([here.archive, here.view, dir, readme?.n, picture?.n]);
    if (this.key === key) return;
    this.hide();
    this.key = key;
    if (!readme && !picture) return;
    const at = row => join(dir, row), to = path => address({ archive: here.archive, view: here.view, path });
    const part = row => el('div', { class: 'part' }, el('h2', {}, el('a', { href: to(at(row)) }, row.n)));
    if (readme) {
      const box = part(readme);
      this.box.append(box);
      shown.attempt(async () => {
        const body = await describe({ path: at(readme), size: readme.s }, dir, to);
        if (this.key === key) box.append(body);
      }, err => box.append(el('p', { class: 'hint' }, err.message)));
    }
    if (picture && usual()) {
      const box = part(picture), img = el('img', { alt: picture.n, decoding: 'async' });
      box.classList.add('shows');
      img.onerror = () => { box.remove(); this.box.hidden = !this.box.childElementCount; };
      box.append(picture.s > most.picture ? el('p', { class: 'hint' }, 'too large to show here: ' + size(picture.s)) : img);
      if (picture.s <= most.picture) img.src = urlOf(at(picture));
      this.box.append(box);
    }
    this.box.hidden = !this.box.childElementCount;
  }
}

/** A file of text as a page. Nothing in it is executed. */
async function describe(entry, dir, link) {
  if (entry.size > most.readme) return el('p', { class: 'hint' }, 'too long to show here: ' + size(entry.size));
  const text = new TextDecoder().decode(await new Content(entry).all(most.readme));
  return /\.(md|markdown)$/i.test(entry.path) ? markdown(text, { dir, link, image: path => usual() ? urlOf(path) : undefined }) : el('pre', { class: 'plain' }, text);
}
