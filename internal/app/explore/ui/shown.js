// What is shown at a place of the page, with all that was requested for it. When something else is
// shown there, its requests and timers end, and what waits for them gets an AbortError. So an answer
// that comes late is never seen.
import { ask } from './base.js';

export class Shown {
  /** It ends at the latest with what is above it. */
  constructor(above) {
    this.control = new AbortController();
    this.signal = this.control.signal;
    if (above?.ended) this.end();
    else above?.signal.addEventListener('abort', () => this.end(), { once: true, signal: this.signal });
  }
  get ended() { return this.signal.aborted; }
  end() { this.control.abort(); }
  /** @param {string} path @param {object} [args] @param {RequestInit} [o] */
  raw(path, args, o) { return ask.raw(path, args, { ...o, signal: this.signal }); }
  /** @template {string} P @param {P} path @param {object} [args] @param {RequestInit} [o] @returns {Promise<Answer<P>>} */
  json(path, args, o) { return ask.json(path, args, { ...o, signal: this.signal }); }
  /** Calls f after ms, unless this ends before. */
  later(ms, f) {
    const t = setTimeout(() => { if (!this.ended) f(); }, ms);
    this.signal.addEventListener('abort', () => clearTimeout(t), { once: true });
    return t;
  }
  pause(ms) {
    return new Promise((ok, no) => {
      this.later(ms, ok);
      this.signal.addEventListener('abort', () => no(this.signal.reason), { once: true });
    });
  }
  /** Awaits f. Errors of what is not shown any more are nobody's; others go to failed. */
  async attempt(f, failed) {
    try { return await f(); } catch (err) { if (!this.ended && err.name !== 'AbortError') failed(err); }
  }
}
