// The keyboard shortcuts, in a dialog.
import { $, el } from './base.js';

const keys = [
  ['/', 'search names (or contents, with “in contents”)'], ['l m t c v x i', 'files, byte map, treemap, compare, check, damage, about'],
  ['↑ ↓ PgUp PgDn Home End', 'move in a list'], ['Enter', 'open a folder or file'], ['Backspace', 'go to the parent folder'],
  ['→ ←', 'in the tree: expand, collapse'], ['1 2 3', 'sort by name, size, time'], ['d', 'download the selection'],
  ['Space', 'select several; also Ctrl+click or Shift+click'], ['+ −', 'on the map: zoom in, zoom out'],
  ['← → ↑ ↓', 'on the map: move the cursor; with Shift, scroll'], ['0', 'on the map: show the whole archive'],
  ['Esc', 'close the preview, clear the search'], ['?', 'show these shortcuts'],
];

export function help() {
  const d = $('keys');
  if (d.open) return d.close();
  d.replaceChildren(el('h2', { id: 'keys-title' }, 'Keyboard shortcuts'),
    el('dl', {}, keys.map(([k, what]) => [el('dt', {}, k.split(' ').map(x => el('kbd', {}, x))), el('dd', {}, what)]).flat()),
    el('form', { method: 'dialog' }, el('button', { type: 'submit', autofocus: true }, 'Close')));
  // The page's policy allows no form submission, so the dialog is closed here.
  d.querySelector('form').addEventListener('submit', e => { e.preventDefault(); d.close(); });
  d.showModal();
}
