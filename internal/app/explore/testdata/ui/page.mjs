// What tests need of a browser: an address, a history, and elements without a look.
class Element {
  constructor(tag) { this.tag = tag; this.children = []; this.attributes = {}; this.dataset = {}; this.style = {}; this.listeners = {}; this.scrollTop = 0; this.clientHeight = 0; }
  append(...c) { this.children.push(...c); for (const x of c) if (x instanceof Element) x.parent = this; }
  replaceChildren(...c) { this.children = []; this.append(...c); }
  remove() { const { children } = this.parent; children.splice(children.indexOf(this), 1); }
  setAttribute(k, v) { this.attributes[k] = String(v); }
  addEventListener(type, f, o) { (this.listeners[type] ??= []).push(f); o?.signal?.addEventListener('abort', () => { this.listeners[type] = this.listeners[type].filter(g => g !== f); }); }
  send(type, e = {}) { for (const f of this.listeners[type] ?? []) f(e); }
  set textContent(t) { this.children = [String(t)]; }
  get textContent() { return this.children.map(c => c.textContent ?? c).join(''); }
  /** All elements below that f accepts. */
  all(f) { return this.children.filter(c => c instanceof Element).flatMap(c => [...f(c) ? [c] : [], ...c.all(f)]); }
}
export const frames = [];
const moved = new EventTarget();
export const steps = [];
Object.assign(globalThis, {
  document: { createElement: tag => new Element(tag), getElementById: () => undefined },
  location: { hash: '' },
  history: {
    pushState(_, __, hash) { location.hash = hash; steps.push('push'); },
    replaceState(_, __, hash) { location.hash = hash; steps.push('replace'); },
  },
  addEventListener: moved.addEventListener.bind(moved), dispatchEvent: moved.dispatchEvent.bind(moved),
  requestAnimationFrame: f => frames.push(f), cancelAnimationFrame: () => {},
  matchMedia: () => ({ matches: false, addEventListener() {} }),
  ResizeObserver: class { observe() {} disconnect() {} },
});
/** Draws what waits to be drawn. */
export function draw() { for (const f of frames.splice(0)) f(); }

/** A server whose answers come when the test says so. */
export class Server {
  constructor(answeredBy) {
    this.asked = [];
    answeredBy((path, args) => new Promise((ok, no) => {
      this.asked.push({ path, args, answer: v => ok(new Response(JSON.stringify(v))), stream: body => ok(new Response(body)), fail: no });
    }));
  }
  take(path) {
    const i = this.asked.findIndex(q => q.path === path);
    if (i < 0) throw new Error(`${path} is not asked for, but ${this.asked.map(q => q.path)}`);
    return this.asked.splice(i, 1)[0];
  }
}
/** Waits until everything that can happen without a timer has happened. */
export const settled = () => new Promise(f => setImmediate(f));
