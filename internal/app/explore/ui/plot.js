// Helpers for plots: scales, units, the frame.
import { num, css } from './base.js';

// Units that take a prefix, with their symbols.
const units = { volts: 'V', volt: 'V', v: 'V', amperes: 'A', ampere: 'A', a: 'A', seconds: 's', second: 's', s: 's', meters: 'm', metres: 'm', hertz: 'Hz', hz: 'Hz', ohms: 'Ω', siemens: 'S', farads: 'F', watts: 'W', newtons: 'N', pascals: 'Pa', tesla: 'T' };
/** @type {[number, string][]} */
const prefixes = [[1e9, 'G'], [1e6, 'M'], [1e3, 'k'], [1, ''], [1e-3, 'm'], [1e-6, 'µ'], [1e-9, 'n'], [1e-12, 'p']];
/** Round numbers from a to b, about n of them. */
export function ticks(a, b, n) {
  const raw = (b - a) / Math.max(1, n), mag = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map(k => k * mag).find(s => s >= raw * 0.999);
  if (!Number.isFinite(step) || step <= 0) return [a];
  const out = [];
  // Numbers may be so large that adding a step changes nothing.
  for (let v = Math.ceil(a / step - 1e-9) * step; v <= b + step * 1e-9 && out.length < 200; v += step) out.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return out;
}
export const short = v => Number.isFinite(v) ? String(Number(v.toPrecision(6))) : String(v);
/** The unit that suits numbers up to most: the divisor, and the unit's name. */
export function scaled(most, unit) {
  const sign = units[unit.toLowerCase()];
  if (!sign || !(most > 0)) return [1, sign ?? unit];
  const [p, word] = prefixes.find(([p]) => most >= p * 0.999) ?? prefixes.at(-1);
  return [p, word + sign];
}
/** Draws the frame and the scales of a plot, and returns its geometry. */
export function frame(g, W, H, lo, hi, x0, x1, xUnit, unit, labels) {
  const L = 58, R = 10, T = 22, B = 26, w = W - L - R, h = H - T - B;
  g.font = '11px system-ui, sans-serif'; g.lineWidth = 1; g.strokeStyle = css('--line'); g.fillStyle = css('--soft');
  const Y = v => T + h - (v - lo) / (hi - lo || 1) * h, X = v => L + (v - x0) / (x1 - x0 || 1) * w;
  g.textAlign = 'right'; g.textBaseline = 'middle';
  for (const [v, text] of labels ?? ticks(lo, hi, h / 40).map(v => [v, short(v)])) { g.beginPath(); g.moveTo(L, Math.round(Y(v)) + 0.5); g.lineTo(L + w, Math.round(Y(v)) + 0.5); g.stroke(); g.fillText(text, L - 6, Y(v)); }
  g.textBaseline = 'alphabetic'; g.textAlign = 'center';
  for (const v of ticks(x0, x1, w / 90)) { const at = Math.round(X(v)) + 0.5; g.beginPath(); g.moveTo(at, T + h); g.lineTo(at, T + h + 4); g.stroke(); g.fillText(xUnit ? short(v) : num(v), Math.max(L + 8, Math.min(W - R - 12, at)), H - 9); }
  g.textAlign = 'left'; if (unit) g.fillText(unit, 4, 13);
  g.textAlign = 'right'; g.fillText(xUnit || 'index', W - R, 13); g.textAlign = 'left';
  g.strokeRect(L + 0.5, T + 0.5, w, h);
  return { L, T, w, h, X, Y };
}
