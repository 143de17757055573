import { test } from 'node:test';
import assert from 'node:assert/strict';
import { steps } from './page.mjs';
import { address, parse, go, here, read, note, noSearch, searches, searching, asked, bytesIn, orderOf, sortedBy } from './ui/state.js';

test('an address is read as it is written', () => {
  const search = { q: 'a b+c%&?#', match: 'regexp', kind: 'pictures', min: '10', max: '2000', since: '2024-02-29', until: '2025-01-01' };
  for (const change of [
    {}, { path: 'a/b c/ü/%2F' }, { path: 'raw\\xff' }, { tab: 'map', from: 0, to: 10 }, { tab: 'compare', before: 'x', after: 'y' },
    { view: 'zarr', sort: 'size-desc' }, { show: 'pictures' }, { ...search, path: 'dir' }, { q: 'only' },
  ]) {
    const to = { ...here, archive: 'a b/c?.caf', ...change }, back = parse(address(to));
    for (const k of Object.keys(to)) assert.equal(back[k], to[k], `${k} of ${address(to)}`);
  }
});

test('what means nothing in an address is left out', () => {
  const to = parse('#/x?tab=nonsense&match=glob&kind=A%20B&min=-1&max=1e9&since=yesterday&until=2024-99-99&show=all&from=3');
  for (const [k, v] of Object.entries({ ...noSearch, tab: 'list', show: '', from: undefined, to: undefined })) assert.equal(to[k], v, k);
  assert.equal(parse('#/%E0%A4%A').archive, '%E0%A4%A');
  assert.equal(parse('#/x?tab=map&q=word').q, '', 'only lists are searched');
});

test('a search ends when the page goes elsewhere', () => {
  location.hash = '#/x/dir?q=word&kind=text';
  read();
  assert.ok(searches(searching()));
  go({ path: 'dir/file' });
  assert.equal(location.hash, '#/x/dir/file');
  assert.equal(steps.pop(), 'push');
  location.hash = '#/x/dir?q=word&kind=text';
  read();
  go({ ...searching(), sort: 'size' }, { replace: true });
  assert.equal(location.hash, '#/x/dir?sort=size&q=word&kind=text');
  assert.equal(steps.pop(), 'replace');
  read();
  const n = steps.length;
  go({ ...searching() });
  assert.equal(steps.length, n, 'what is shown already adds nothing to the history');
  note({ q: '' });
  assert.equal(location.hash, '#/x/dir?sort=size&kind=text');
});

test('a search is words, or filters', () => {
  assert.ok(!searches(noSearch));
  assert.ok(!searches({ ...noSearch, q: '  ' }));
  assert.ok(searches({ ...noSearch, min: '0' }));
  assert.ok(!searches({ ...noSearch, match: 'contents', kind: 'text' }));
  const { since, until } = asked({ ...noSearch, since: '1970-01-02', until: '1970-01-02' });
  assert.deepEqual([since, until], [86400000, 2 * 86400000]);
  assert.equal(asked(noSearch).since, '');
});

test('sizes are read as they are shown', () => {
  for (const [text, n] of Object.entries({ '0': 0, '10': 10, '1.5 KiB': 1536, '2m': 2 << 20, ' 1 GB ': 1 << 30, '3 b': 3 })) assert.equal(bytesIn(text), n, text);
  for (const text of ['', '-1', 'x', '1 XB', '1e3', '1.5.5']) assert.equal(bytesIn(text), undefined, text);
});

test('a list is sorted by its columns', () => {
  assert.deepEqual(orderOf(''), { sort: 'name', dir: 'asc' });
  assert.deepEqual(orderOf('colour-desc'), { sort: 'name', dir: 'desc' });
  let sort = '';
  const seen = ['size', 'size', 'name', 'name', 'name', 'time'].map(id => sort = sortedBy(id, orderOf(sort)));
  assert.deepEqual(seen, ['size-desc', 'size', '', 'name-desc', '', 'time-desc']);
});
