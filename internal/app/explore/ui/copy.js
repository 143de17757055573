// Buttons that copy a text.
import { el, say } from './base.js';

/** Makes buttons of names and texts. The name and the foot of the page say that a text was copied. */
export function copies(list) {
  return el('div', { class: 'copies', role: 'group', 'aria-label': 'Copy' }, 'Copy', list.map(([name, text]) => {
    const b = el('button', { type: 'button', data: { copy: name }, onclick: async () => {
      const done = await copy(text());
      b.textContent = done ? 'Copied' : 'Not copied';
      say(done ? `The ${name.toLowerCase()} was copied.` : 'This browser does not let the page copy.');
      setTimeout(() => { b.textContent = name; }, 1500);
    } }, name);
    return b;
  }));
}

async function copy(text) {
  try { await navigator.clipboard.writeText(text); return true; } catch { /* only pages of this machine and of https may do this */ }
  const area = el('textarea', { class: 'unseen', 'aria-hidden': 'true' }, text), was = document.activeElement;
  document.body.append(area);
  area.select();
  const done = document.execCommand('copy');
  area.remove();
  /** @type {HTMLElement} */ (was)?.focus();
  return done;
}
