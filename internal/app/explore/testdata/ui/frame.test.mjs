import { test } from 'node:test';
import assert from 'node:assert/strict';
import './page.mjs';
import { Failed } from './ui/base.js';
import { here, opened, found, read } from './ui/state.js';
import { errorPage, crumbs, alarmsOf, tabLinks } from './ui/frame.js';

const links = e => e.all(x => x.tag === 'a').map(a => [a.textContent, a.attributes.href]);

test('a page that cannot be shown says why, and leads out', () => {
  location.hash = '#/x/no/such?view=zarr';
  read();
  let again = 0;
  const page = errorPage(new Failed('offline', 'the server does not answer'), { again: () => again++, archive: undefined, view: 'zarr' });
  assert.ok(page.textContent.includes('the server does not answer') && page.textContent.includes('Is it still running?'));
  assert.deepEqual(links(page), [['Show the archive in its default view', '#/x'], ['Back to the start', '#/']]);
  page.all(x => x.attributes.id === 'again')[0].send('click');
  assert.equal(again, 1);
  const gone = errorPage(new Failed('not-found', 'no entry with this name'), { archive: 'x' });
  assert.equal(gone.all(x => x.tag === 'button').length, 0, 'trying again would not help');
  assert.deepEqual(links(gone), [['Back to the start', '#/x']]);
  assert.equal(gone.all(x => x.attributes.role === 'alert').length, 1);
});

test('names are text, whatever they are', () => {
  location.hash = '#/x/' + encodeURIComponent('<img src=x onerror=alert(1)>') + '/b?q=word';
  read();
  opened({ can: ['map'], verify: {}, survey: {} }); found({ kind: 'dir' });
  const path = crumbs().map(c => c.textContent);
  assert.deepEqual(path, ['x', '/', '<img src=x onerror=alert(1)>', '/', 'b']);
  assert.equal(links({ all: f => crumbs().filter(f) })[1][1], '#/x/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E', 'a link ends the search');
  assert.deepEqual(tabLinks().map(a => a.textContent), ['Files', 'Byte map', 'Treemap', 'About']);
});

test('what is wrong with an archive is said above it', () => {
  here.tab = 'list';
  const tones = a => alarmsOf({ verify: {}, survey: {}, ...a }).map(([tone, ...text]) => tone + ': ' + text.map(t => t.textContent ?? t).join(''));
  assert.deepEqual(tones({}), []);
  assert.deepEqual(tones({ verify: { counts: { error: 1, warning: 2 } } }), ['bad: Damaged. The last check found 1 error. See the results']);
  assert.deepEqual(tones({ verify: { counts: { warning: 2 } } }), ['warn: The last check found 2 warnings. See the results']);
  assert.match(tones({ survey: { error: 'cut' }, healed: 2, doubt: 'old' }).join('\n'), /Incomplete.*cut.*repair[^]*may be damaged: old[^]*2 damaged blocks were restored/);
  here.tab = 'verify';
  assert.deepEqual(tones({ verify: { counts: { error: 1, warning: 1 } } }), []);
});
