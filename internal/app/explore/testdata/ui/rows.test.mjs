import { test } from 'node:test';
import assert from 'node:assert/strict';
import { draw, settled } from './page.mjs';
import { Rows, Pages } from './ui/rows.js';

function list(total) {
  const box = document.createElement('div'), need = [];
  box.clientHeight = 320 + 33;
  const rows = new Rows(box, { height: 32, head: 33, make: () => document.createElement('p'), fill: (row, i) => { row.i = i; }, need: (a, b) => need.push([a, b]) });
  rows.set(total);
  draw();
  return { box, rows, need, seen: () => rows.pool.filter(r => !r.hidden).map(r => r.i) };
}

test('only rows that can be seen exist, also of a billion', () => {
  for (const total of [0, 3, 10, 11, 1000, 1e9]) {
    const { rows, box, seen } = list(total);
    assert.equal(seen().length, Math.min(11, total));
    rows.show(total - 1);
    draw();
    if (total) assert.ok(seen().includes(total - 1), `the last of ${total}: ${seen()}`);
    assert.ok(rows.pool.length <= 11);
    assert.ok(parseFloat(rows.sizer.style.height) <= 8e6);
    rows.close();
    assert.equal(box.children.length, 0);
    assert.equal(box.listeners.scroll.length, 0);
  }
});

test('the scroll bar leads anywhere', () => {
  for (const total of [1000, 5e6]) {
    const { rows, box, seen } = list(total);
    box.scrollTop = (rows.tall - rows.view) / 2;
    box.send('scroll');
    draw();
    assert.ok(Math.abs(seen()[0] - total / 2) < total / 100 + 6, `${seen()[0]} of ${total}`);
    rows.grow(5);
    draw();
    assert.deepEqual(seen(), [0, 1, 2, 3, 4]);
  }
});

function pages() {
  const asked = [], told = [];
  const p = new Pages((offset, n, signal) => new Promise((ok, no) => {
    asked.push({ offset, signal, ok: () => ok(Array.from({ length: n }, (_, i) => offset + i)), no });
    signal.addEventListener('abort', () => no(signal.reason));
  }), err => told.push(err?.message), 10);
  return { p, asked, told };
}

test('an answer that comes after the list was emptied is dropped', async () => {
  const { p, asked, told } = pages();
  p.load(0); p.load(1);
  asked[0].ok();
  await settled();
  assert.equal(p.at(3), 3);
  p.clear();
  assert.ok(asked[1].signal.aborted);
  asked[1].ok();
  await settled();
  assert.equal(p.at(13), undefined);
  assert.equal(p.at(3), undefined);
  assert.deepEqual(told, [undefined]);
});

test('distant pages are dropped and a failed one is asked for once', async () => {
  const { p, asked, told } = pages();
  p.load(7);
  asked[0].no(new Error('no'));
  await settled();
  assert.deepEqual(told, ['no']);
  assert.ok(p.failed.has(7));
  p.load(1);
  p.need(500, 510);
  assert.ok(asked[1].signal.aborted);
  for (let i = 0; i < 60; i++) { p.load(i); asked.at(-1).ok(); }
  await settled();
  assert.ok(p.pages.size <= 41, `${p.pages.size} pages`);
  assert.equal(p.at(595), 595);
  p.stop();
});
