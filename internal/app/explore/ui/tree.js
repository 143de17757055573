// The tree of folders beside a list. A folder is read when it is opened.
import { plainName, el, ask, count, join } from './base.js';
import { go, here, args, ofFolders } from './state.js';

const most = 300; // folders of a branch that are listed at once

export class Tree {
  constructor(box) {
    this.box = box; this.nodes = new Map(); this.dead = new AbortController();
    this.root = this.node('', plainName(here.archive), 1);
    box.replaceChildren(this.root.el);
    box.onkeydown = e => this.key(e);
    box.onclick = e => {
      const item = e.target.closest('[role=treeitem]');
      if (!item) return;
      const n = item.node;
      if (n.more) { this.fill(n.of, n.of.count); return; }
      if (e.target.classList.contains('twist')) { if (n.open) this.shut(n); else this.open(n); return; }
      go({ path: n.path, tab: ofFolders.includes(here.tab) ? here.tab : 'list' });
    };
  }
  close() { this.dead.abort(); this.box.replaceChildren(); }
  node(path, name, level) {
    const group = el('div', { role: 'group', hidden: true });
    const label = el('span', { class: 'label' }, el('span', { class: 'twist', 'aria-hidden': 'true' }), el('span', { class: 'word' }, name));
    const item = el('div', { role: 'treeitem', 'aria-level': level, 'aria-expanded': 'false', tabindex: '-1' }, label, group);
    label.style.paddingInlineStart = (level - 1) * 14 + 4 + 'px';
    const n = { path, name, level, el: item, group, open: false, count: 0 };
    item.node = n;
    this.nodes.set(path, n);
    return n;
  }
  async open(n) {
    n.open = true; n.el.setAttribute('aria-expanded', 'true'); n.group.hidden = false;
    n.reading ??= this.fill(n, 0);
    await n.reading;
  }
  /** A check has ended: mark the folders in which it found damage. */
  async checked() {
    for (const n of [...this.nodes.values()].filter(n => n.open && n.count)) {
      let r;
      try { r = await ask.json('ls', args({ path: n.path, only: 'dirs', limit: n.count }), { signal: this.dead.signal }); } catch { return; }
      for (const row of r.items) this.nodes.get(join(n.path, row))?.el.classList.toggle('hurt', !!row.below);
    }
  }
  shut(n) { n.open = false; n.el.setAttribute('aria-expanded', 'false'); n.group.hidden = true; }
  async fill(n, offset) {
    let r;
    try {
      r = await ask.json('ls', args({ path: n.path, only: 'dirs', offset, limit: most }), { signal: this.dead.signal });
    } catch { n.reading = undefined; return; }
    n.moreItem?.remove(); n.moreItem = undefined;
    for (const row of r.items) {
      const { el: item } = this.node(join(n.path, row), row.n, n.level + 1);
      item.classList.toggle('hurt', !!row.below);
      n.group.append(item);
    }
    n.count = offset + r.items.length;
    if (n.count < r.total) {
      const label = el('span', { class: 'label more' }, count(r.total - n.count, 'more', 'more') + '…');
      label.style.paddingInlineStart = n.level * 14 + 20 + 'px';
      n.moreItem = el('div', { role: 'treeitem', 'aria-level': n.level + 1, tabindex: '-1' }, label);
      n.moreItem.node = { more: true, of: n, el: n.moreItem };
      n.group.append(n.moreItem);
    }
    if (!r.total && n !== this.root) n.el.removeAttribute('aria-expanded');
  }
  async select(path) {
    if (this.selected === path && this.nodes.has(path)) return;
    this.selected = path;
    const mark = () => {
      for (const i of this.box.querySelectorAll('[aria-selected]')) { i.removeAttribute('aria-selected'); i.tabIndex = -1; }
      const n = this.nodes.get(path) ?? this.root;
      n.el.setAttribute('aria-selected', 'true'); n.el.tabIndex = 0;
      n.el.firstChild.scrollIntoView({ block: 'nearest' });
    };
    mark();
    let at = this.root;
    await this.open(at);
    for (const p of path.split('/').filter(Boolean)) {
      const next = this.nodes.get(at.path ? at.path + '/' + p : p);
      if (!next || this.selected !== path) break;
      await this.open(next);
      at = next;
    }
    if (this.selected === path) mark();
  }
  key(e) {
    const item = e.target.closest('[role=treeitem]');
    if (!item) return;
    const n = item.node, all = [...this.box.querySelectorAll('[role=treeitem]')].filter(i => i.offsetParent), i = all.indexOf(item);
    const to = x => { if (x) { item.tabIndex = -1; x.tabIndex = 0; x.focus(); } };
    switch (e.key) {
      case 'ArrowDown': to(all[i + 1]); break;
      case 'ArrowUp': to(all[i - 1]); break;
      case 'Home': to(all[0]); break;
      case 'End': to(all.at(-1)); break;
      case 'ArrowRight': if (n.more) break; if (!n.open) this.open(n); else to(n.group.firstElementChild); break;
      case 'ArrowLeft': if (n.open && !n.more) this.shut(n); else to(item.parentElement.closest('[role=treeitem]')); break;
      case 'Enter': case ' ': if (n.more) this.fill(n.of, n.of.count); else go({ path: n.path, tab: ofFolders.includes(here.tab) ? here.tab : 'list' }); break;
      default: return;
    }
    e.preventDefault(); e.stopPropagation();
  }
}
