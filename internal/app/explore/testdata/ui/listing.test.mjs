import { test } from 'node:test';
import assert from 'node:assert/strict';
import { Server, settled } from './page.mjs';
import { answeredBy } from './ui/base.js';
import { Shown } from './ui/shown.js';
import { Listing, Lines } from './ui/listing.js';

const items = (from, n, dir = '') => Array.from({ length: n }, (_, i) => ({ n: `${dir}item-${from + i}` }));
function search(args = { q: 'item' }) {
  const shown = new Shown(), told = [], x = new Listing(shown, { request: 'search', args }, err => told.push(err?.message));
  return { shown, told, x };
}

test('any row of the results can be asked for', async () => {
  const server = new Server(answeredBy), { x } = search(), loaded = x.load();
  let q = server.take('search');
  assert.deepEqual({ ...q.args }, { q: 'item', offset: 0, limit: 200 });
  q.answer({ total: 45739, complete: true, items: items(0, 200) });
  await loaded;
  assert.equal(x.total, 45739);
  assert.equal(x.at(199).n, 'item-199');
  x.pages.load(Math.floor(45738 / 200));
  q = server.take('search');
  q.answer({ total: 45739, complete: true, items: items(q.args.offset, 139) });
  await settled();
  assert.equal(x.pathOf(x.at(45738)), 'item-45738');
  assert.equal(x.index('item-45738'), 45738);
  const place = x.place('item-30000');
  q = server.take('search');
  assert.equal(q.args.find, 'item-30000');
  q.answer({ total: 45739, complete: true, items: [], at: 30000 });
  assert.equal(await place, 30000);
});

test('a late answer is never seen', async () => {
  for (let seed = 1; seed <= 200; seed++) {
    const server = new Server(answeredBy), list = [];
    for (let k = 0; k < 3; k++) {
      list.at(-1)?.shown.end();
      const s = search({ q: String(k) });
      s.loaded = s.x.load().catch(err => err);
      list.push(s);
    }
    const order = [0, 1, 2];
    for (let i = 2, r = seed; i > 0; i--) { r = r * 48271 % 0x7fffffff; const j = r % (i + 1); [order[i], order[j]] = [order[j], order[i]]; }
    const asked = server.asked.splice(0);
    for (const k of order) { asked[k].answer({ total: k + 1, complete: k !== 1, items: items(0, k + 1) }); await settled(); }
    assert.deepEqual(list.map(s => s.x.total), [0, 0, 3], `seed ${seed}`);
    for (const s of list.slice(0, 2)) { assert.equal((await s.loaded).name, 'AbortError'); assert.equal(s.told.length, 0); }
    list[2].shown.end();
  }
});

test('when a search is complete, its rows are in order and are asked for again', async t => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const server = new Server(answeredBy), { x, shown } = search(), loaded = x.load();
  server.take('search').answer({ total: 2, complete: false, items: items(5, 2) });
  await loaded;
  assert.equal(x.at(0).n, 'item-5');
  t.mock.timers.tick(300);
  let q = server.take('search');
  assert.equal(q.args.limit, 0);
  q.answer({ total: 3, complete: false, items: [] });
  await settled();
  t.mock.timers.tick(300);
  server.take('search').answer({ total: 4, complete: true, items: [] });
  await settled();
  assert.equal(x.total, 4);
  assert.equal(x.at(0), undefined);
  x.need(0, 4);
  t.mock.timers.tick(40);
  q = server.take('search');
  q.answer({ total: 4, complete: true, items: items(0, 4) });
  await settled();
  assert.equal(x.at(0).n, 'item-0');
  t.mock.timers.tick(1000);
  assert.equal(server.asked.length, 0, 'nothing more is asked for');
  shown.end();
});

test('nothing is asked for after the end', async t => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const server = new Server(answeredBy), { x, shown, told } = search(), loaded = x.load();
  server.take('search').answer({ total: 500, complete: false, items: items(0, 200) });
  await loaded;
  const n = told.length;
  shown.end();
  x.need(300, 320);
  x.renew();
  t.mock.timers.tick(5000);
  assert.equal(server.asked.length, 0);
  assert.equal(told.length, n);
});

test('an error is told once', async () => {
  const server = new Server(answeredBy), { x } = search(), loaded = x.load();
  server.take('search').fail(new Error('the server does not answer'));
  await assert.rejects(loaded, /does not answer/);
});

test('what ends above ends below', async () => {
  const above = new Shown(), below = new Shown(above), errors = [];
  above.end();
  assert.ok(below.ended && new Shown(above).ended);
  await below.attempt(() => { throw new Error('late'); }, err => errors.push(err));
  await new Shown().attempt(() => { throw new Error('now'); }, err => errors.push(err.message));
  assert.deepEqual(errors, ['now']);
  await assert.rejects(new Shown(above).json('ls'), { name: 'AbortError' });
});

test('lines are shown as they are found', async () => {
  const server = new Server(answeredBy), shown = new Shown(), seen = [], x = new Lines(shown, { args: { q: 'x' } }, () => seen.push(x.total)), loaded = x.load();
  const text = ['{"p":"a","line":1,"text":"x"}', '{"files":1,"bytes":3,"found":1}', '{"p":"b","line":2,"text":"xx"}', '{"files":2,"bytes":9,"found":2,"end":true}', ''].join('\n');
  server.take('grep').stream(new Blob([text.slice(0, 40), text.slice(40)]).stream());
  await loaded;
  assert.deepEqual(seen, [1, 1, 2, 2]);
  assert.ok(x.state.complete);
  assert.equal(x.index('b'), 1);
});
