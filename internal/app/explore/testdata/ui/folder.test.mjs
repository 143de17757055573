import { test } from 'node:test';
import assert from 'node:assert/strict';
import { Server } from './page.mjs';
import { answeredBy } from './ui/base.js';
import { opened } from './ui/state.js';
import { Shown } from './ui/shown.js';
import { Listing, shareOf } from './ui/listing.js';
import { typeOf, wordsOf } from './ui/words.js';
import { apart } from './ui/treemap.js';
import { Picture } from './ui/picture.js';
import { markdown } from './ui/markdown.js';

test('a list knows which columns have something in them', async () => {
  const server = new Server(answeredBy), x = new Listing(new Shown(), { request: 'ls', args: {} }, () => {}), loaded = x.load();
  server.take('ls').answer({ total: 2, complete: true, items: [{ n: 'a', k: 'dir' }, { n: 'b', s: 0 }] });
  await loaded;
  assert.deepEqual(x.has, { s: true });
  x.took({ total: 3, complete: true, items: [{ n: 'c', s: 1, t: 0 }, { n: 'd', k: 'dir', s: 5, c: 2 }] });
  assert.deepEqual(x.has, { s: true, t: true, c: true });
});

test('the share of a row is known when the size of the folder is', () => {
  assert.equal(shareOf({ s: 25 }, { s: 100, c: 3 }), 0.25);
  assert.equal(shareOf({ s: 25 }, undefined), undefined);
  assert.equal(shareOf({ k: 'dir' }, { s: 100 }), undefined);
  assert.equal(shareOf({ s: 0 }, { s: 0 }), undefined);
});

test('objects of HDF5 have the names that h5dump gives them', () => {
  opened({ can: ['arrays'], view: 'zarr' });
  assert.equal(wordsOf().files(2), '2 files');
  assert.equal(typeOf('<i2'), '<i2');
  opened({ can: ['arrays'], view: 'objects' });
  assert.equal(wordsOf().folders(1), '1 group');
  assert.equal(wordsOf().kinds.property, 'attribute');
  const names = { '<i2': 'H5T_STD_I16LE', '>f8': 'H5T_IEEE_F64BE', '|u1': 'H5T_STD_U8LE' };
  for (const [type, name] of Object.entries(names)) assert.equal(typeOf(type), `${type} (${name})`);
  assert.equal(typeOf('|O'), '|O');
  opened();
});

test('addresses in Markdown may have parentheses', () => {
  const page = text => markdown(text, { dir: 'docs', link: p => p, image: p => p });
  const links = text => page(text).all(e => e.tag === 'a').map(a => [a.attributes.href, a.textContent]);
  assert.deepEqual(links('see [a](b(c)) and [d](e).'), [['docs/b(c)', 'a'], ['docs/e', 'd']]);
  assert.deepEqual(links('([a](b))'), [['docs/b', 'a']]);
  assert.equal(page('see [a](b(c)) there').textContent, 'see a there');
  assert.deepEqual(page('![x](y(1).png)').all(e => e.tag === 'img').map(i => i.attributes.src), ['docs/y(1).png']);
});

test('names of boxes are shortened to what differs', () => {
  const short = apart(['item-001.bin', 'item-002.bin', 'item-013.bin']);
  assert.equal(short('item-013.bin'), '…13');
  assert.equal(apart(['a1', 'a2', 'a3'])('a1'), '', 'they do not begin alike for long');
  assert.equal(apart(['same', 'same', 'same'])('same'), '');
  assert.equal(apart([])('x'), '');
});

test('on a map without a server, adjacent files have different shades too', async () => {
  const p = new Picture({ size: 80, volumes: [{ name: '', base: 0, size: 80 }], regions: [], labels: [] }, [{ name: '' }]);
  // Three files, the second in two pieces that follow each other, and a fourth that is less than a cell.
  const pieces = [[0, 0, 20], [1, 20, 20], [1, 40, 20], [2, 60, 17], [3, 77, 3]];
  for (const [i, off, len] of pieces) p.add({ extents: [{ volume: 0, off, len, size: len, unit: len }] }, i);
  const b = await p.finish({ kind: [] }).cells({ cells: 8 }).arrayBuffer(), n = new DataView(b).getUint32(0, true), cells = new Uint8Array(b, 4 + n);
  assert.deepEqual([0, 1, 2, 3, 4, 5, 6, 7].map(i => cells[8 * i + 2]), [0, 0, 1, 1, 1, 1, 0, 0]);
});
