// A property of a node, as text.
import { count } from './base.js';

/** The values of a property, one per line. */
export function propertyText(p) {
  const { type: _, ...rest } = p, v = p.value ?? p.values ?? rest;
  const one = x => typeof x === 'string' ? x : JSON.stringify(x);
  return (Array.isArray(v) ? v.slice(0, 50).map(one).join('\n') + (v.length > 50 ? `\n… ${count(v.length - 50, 'more', 'more')}` : '') : one(v)).slice(0, 4000);
}
export const propertyType = p => (p.type ?? '') + (p.values || p.multiple ? '[]' : '');
