import { test } from 'node:test';
import assert from 'node:assert/strict';
import './page.mjs';
import { Search, finder } from './ui/find.js';

const rows = Array.from({ length: 3000 }, (_, i) => ({
  dir: 'd', base: `item-${String(i).padStart(4, '0')}.${i % 2 ? 'png' : 'txt'}`, kind: 'file', size: i % 100, time: i % 7 ? i * 1000 : undefined,
}));
const key = r => r.dir + '\0\x01' + r.base;
const flat = {
  count: rows.length,
  async seek(k) { const i = rows.findIndex(r => key(r) >= k); return i < 0 ? rows.length : i; },
  async range(a, b) { return rows.slice(a, b); },
};
const start = async (q, all = true) => { const s = new Search(flat, '', q, { all }); await s.done; return s; };

test('a page without a server filters as a server does', async () => {
  for (const [q, want] of [
    [{ q: 'ITEM 00 png' }, r => /00.*png$/.test(r.base)], [{ q: '', kind: 'pictures' }, r => r.base.endsWith('png')], [{ kind: 'folders' }, () => false],
    [{ min: '98' }, r => r.size >= 98], [{ min: 0, max: '0' }, r => r.size === 0], [{ since: 0, until: 5000 }, r => r.time < 5000], [{ q: 'nothing' }, () => false],
  ]) {
    const s = await start(q), wanted = rows.flatMap((r, i) => want(r) ? [i] : []);
    assert.deepEqual(s.order('name', 'asc'), wanted, JSON.stringify(q));
    assert.deepEqual(s.order('name', 'desc'), wanted.toReversed());
    const sizes = (await s.rows(s.order('size', 'desc').slice(0, 50))).map(r => r.size);
    assert.deepEqual(sizes, sizes.toSorted((a, b) => b - a));
  }
  assert.ok(finder({ kind: 'folders' })({ kind: 'dir', base: 'x' }, 'x'));
});

test('names that begin with the text are found without the others', async () => {
  const s = await start({ q: 'd/item-001' }, false);
  assert.ok(s.begin && s.complete);
  assert.equal(s.order('name', 'asc').length, 10);
  assert.deepEqual((await s.rows([10, 11, 19])).map(r => r.base), ['item-0010.txt', 'item-0011.png', 'item-0019.png']);
  const other = await start({ q: '001' }, false);
  assert.ok(!other.begin && other.order('name', 'asc').length > 10);
});

test('an index that cannot be read ends a search with the reason', async () => {
  const s = new Search({ ...flat, async range() { throw new Error('a page of the index is damaged'); } }, '', { q: 'x' }, { all: true });
  await s.done;
  assert.ok(s.complete);
  assert.match(s.error, /damaged/);
});
