import { test } from 'node:test';
import assert from 'node:assert/strict';
import { Flat } from './ui/flat.js';

test('a page of an index that several want at the same time is read once', async () => {
  let asked = 0, fail = false;
  const text = new TextEncoder().encode('123456789');
  const flat = new Flat(async () => { asked++; if (fail) throw new Error('no answer'); return text; });
  Object.assign(flat, { size: 100, tailAt: 100 });
  const page = { off: 7, stored: 9, length: 9, crc: 0xcbf43926 };
  assert.deepEqual(await Promise.all([flat.page(page), flat.page(page), flat.page({ ...page })]), [text, text, text]);
  assert.equal(asked, 1);
  await flat.page(page); // what is kept is what was decoded
  assert.equal(asked, 2);
  fail = true;
  await assert.rejects(Promise.all([flat.page(page), flat.page(page)]), /no answer/);
  fail = false;
  assert.deepEqual(await flat.page(page), text); // a failure is not kept
});
