// The archive of a page without a holdall server. It is read by its index, in ranges, from a plain
// file server or from the page itself. Each piece of content is verified before it is shown.
import { Failed, answeredBy, bytesOf, unavailable } from './base.js';
import { file } from './far.js';
import { Flat, compared, hexOf, inPieces, raw, shown } from './flat.js';
import { signedRoot } from './trust.js';
import { decode, mostUnit } from './decode.js';
import { blake3 } from './blake3.js';
import { kindOf } from './kinds.js';
import { Survey, step, baseOf as named } from './survey.js';
import { Picture } from './picture.js';
import { Search } from './find.js';

const json = v => new Response(JSON.stringify(v), { headers: { 'Content-Type': 'application/json' } });

const catalog = 'catalog'; // the format whose volumes are archives, with paths from this page if they begin with ./
const endLen = 4 << 10; // how much of each end of an archive an index is bound to
const same = (a, b) => a.length === b.length && a.every((x, i) => x === b[i]);
const most = { sorted: 5000, atOnce: 20000, surveyed: 2 << 20 }; // rows: of a folder that is sorted, of an archive that is surveyed before its first list, and that is surveyed at all

class Page {
  search; // the last one
  constructor(name, index, keys) {
    this.name = name;
    this.index = file(index);
    this.volumes = new Map();
    this.keys = keys;
  }
  open() {
    const signed = async () => {
      if (!this.keys) return undefined;
      this.copied = true; // nothing is shown that is not compared
      return { root: await signedRoot((await file(this.name + '.minisig').whole()).bytes, this.keys), blake3 };
    };
    return this.flat ??= signed().then(s => Flat.open((off, n) => this.index.read(off, n), n => this.index.tail(n), s)).then(x => { if (x.root.format === catalog) this.copied = true; return x; }).catch(err => { this.flat = undefined; throw err; });
  }
  /** Checks that an object is that which the index was made of. It may be a copy: docs/index.md has the rule. */
  async check(far, was) {
    const { bytes, size } = await far.tail(endLen), differs = (sum, b) => sum && sum !== hexOf(blake3(b)).slice(0, sum.length);
    if (size !== was.size || differs(was.tail, bytes) || was.head && differs(was.head, await far.read(0, Math.min(endLen, size)))) throw new Failed('changed', 'the archive next to this page does not match its index');
    if (far.is(was) || this.keys) return;
    if (!was.whole) this.copied = true;
    else if (differs(was.whole, (await far.whole()).bytes)) throw new Failed('changed', 'the archive next to this page does not match its index');
  }
  /** Surveys the archive: reads its whole index once. */
  survey() {
    return this.added ??= (async () => {
      const x = await this.open(), told = await this.regions;
      if (x.count > most.surveyed) throw new Failed('large', 'this archive has too many entries to do this in a browser: use “holdall browse”');
      const survey = new Survey(x), picture = told && new Picture(told, x.root.volumes ?? []);
      await survey.gather(picture && ((r, i) => picture.add(r, i)));
      this.summed = survey;
      return { survey, picture: picture?.finish(survey) };
    })().catch(err => { this.added = undefined; throw err; });
  }
  /** The byte map. It also needs the regions of the archive that are not content. */
  async picture() {
    if (!this.regions) {
      this.added = undefined;
      this.regions = (async () => { const { bytes } = await file(this.name + '.regions.json').whole(); return JSON.parse(new TextDecoder().decode(bytes)); })().catch(err => { this.regions = undefined; throw err; });
    }
    return (await this.survey()).picture;
  }
  async volume(i) {
    const x = await this.open(), v = x.root.volumes?.[i], beside = x.root.format === catalog && v?.name.startsWith('./');
    if (!v || v.external && !beside) throw new Failed('unsupported', 'stored outside the archive');
    if (!this.volumes.has(i)) {
      const far = file(beside ? v.name : this.name + v.name), { bound } = x.root, was = bound?.objects ? bound.objects.find(o => o.name === v.name) : v.name ? undefined : bound;
      this.volumes.set(i, (was?.size === undefined ? Promise.resolve() : this.check(far, was)).then(() => far).catch(err => { this.volumes.delete(i); throw err; }));
    }
    return this.volumes.get(i);
  }
  /** Reads bytes of a content without verifying them. */
  async part(row, from, to) {
    const out = new Uint8Array(to - from);
    if (row.elsewhere) throw new Failed('unsupported', 'the index does not record where its content is stored: use “holdall cat”');
    for (const x of row.extents ?? []) {
      const a = Math.max(from, x.at), b = Math.min(to, x.at + x.size);
      if (a >= b || x.codec === 'zero') continue;
      let piece;
      if (x.data) piece = x.data.subarray(a - x.at, b - x.at);
      else if (!x.codec || x.codec === 'raw') piece = await (await this.volume(x.volume)).read(x.off + x.skip + a - x.at, b - a);
      else {
        const key = `${x.volume} ${x.off}`, need = x.skip + x.size;
        if (this.unit?.key !== key || this.unit.bytes.length < need) {
          if (x.len > mostUnit) throw new Failed('large', 'its compressed parts are too large for a browser: use “holdall cat”');
          const stored = await (await this.volume(x.volume)).read(x.off, x.len); // content in the same unit is likely to be read next
          this.unit = { key, bytes: decode(x.codec, stored, x.unit >= need && x.unit <= mostUnit ? x.unit : need) };
        }
        piece = this.unit.bytes.subarray(x.skip + a - x.at, x.skip + b - x.at);
      }
      out.set(piece, a - from);
    }
    return out;
  }
  /** Reads bytes of a content. Pieces that have a digest are compared with it first. */
  async content(row, off, n) {
    const x = await this.open(), to = Math.min(row.size, off + n), chunk = x.root.chunk;
    if (off >= to) return new Uint8Array();
    if (this.whole?.row === row) return this.whole.bytes.subarray(off, to);
    const short = compared(row, chunk, off, to), long = !short && this.copied && row.algo === 'blake3' && row.size <= mostUnit, span = long ? [0, row.size] : short;
    if (!span) {
      const bytes = await this.part(row, off, to);
      if (this.copied) throw new Failed('changed', this.keys ? 'nothing proves this content, and this page shows only what is signed' : x.root.format === catalog ? 'the catalogue has no digest of it, or it is too long to be compared in a browser: use “holdall cat”' : 'the archive next to this page is a copy that is not as old as its index says, and nothing proves this content: make the page again');
      return bytes;
    }
    const pieces = inPieces(row, chunk), sums = pieces ? await x.sums(row) : [row.sum], len = pieces ? chunk : row.size;
    const [begin, end] = span, bytes = await this.part(row, begin, end);
    for (let at = begin; at < end; at += len) {
      if (!same(blake3(bytes.subarray(at - begin, at - begin + len)), sums[at / len])) throw new Failed('bad-digest', `its content is damaged ${pieces ? `from byte ${at} on` : 'or its digest is wrong'}`);
    }
    if (long) this.whole = { row, bytes }; // the rest of it is likely to be read next
    return bytes.subarray(off - begin, to - begin);
  }
}

function main() {
  const meta = /** @type {HTMLMetaElement} */ (document.querySelector('meta[name=archive]')), name = meta.content, page = new Page(name, name + '.holdall', meta.dataset.trusted?.split(','));
  const find = async path => {
    const x = await page.open();
    if (!path) return { kind: 'dir', dir: '', base: '' };
    const row = await x.find(raw(Uint8Array.from(bytesOf(path))));
    if (!row) throw new Failed('not-found', 'no entry with this name');
    return row;
  };
  const isDir = r => r.kind === 'dir';
  const below = r => { const t = page.summed?.below((r.dir ? r.dir + '/' : '') + named(r)); return page.summed ? { s: t?.bytes ?? 0, c: t?.files || undefined } : {}; };
  const item = r => ({ n: shown(named(r)), ...isDir(r) ? { k: 'dir', ...below(r) } : { s: r.size, h: kindOf(r.base), ...r.kind === 'file' ? {} : { k: r.kind } }, ...r.time !== undefined && { t: r.time }, ...r.fault !== undefined && { bad: true }, ...r.whole && { whole: true }, ...r.own && { own: true } });
  const pathOf = r => shown((r.dir ? r.dir + '/' : '') + named(r));
  const folders = new Map();
  const sorted = async (dir, begin, end) => {
    if (!folders.has(dir)) { folders.set(dir, await (await page.open()).range(begin, end)); if (folders.size > 50) folders.delete(folders.keys().next().value); }
    return folders.get(dir);
  };
  const answers = {
    async archives() { return json({ archives: [{ name, can: [], survey: {}, verify: { state: 'none', health: 'unknown' } }], total: 1 }); },
    async archive() {
      const x = await page.open(), { root } = x;
      return json({ name, static: true, format: root.format, title: root.format, view: root.view, usual: root.view, stored: root.format === catalog ? 0 : root.bound?.size ?? 0, can: [...x.count <= most.surveyed ? ['treemap'] : [], ...meta.hasAttribute('data-mapped') && x.count <= most.surveyed ? ['map'] : []], index_bytes: x.size, by_index: name + '.holdall', version: root.version,
        survey: { state: 'complete', entries: root.entries, files: root.files, folders: root.dirs, bytes: root.bytes }, verify: { state: 'none', health: 'unknown' }, facts: root.chunk ? [{ key: 'proof', value: 'each piece of content is compared with a digest before it is shown' }] : [] });
    },
    async ls({ path = '', offset = 0, limit = 200, sort = 'name', dir: way = 'asc', only, find: wanted }) {
      const x = await page.open(), dir = raw(Uint8Array.from(bytesOf(path))), [begin, end] = await x.folder(dir), total = end - begin;
      if (x.count <= most.atOnce) await page.survey().catch(() => {}); // the list is shown even without sizes of folders
      if (total > most.sorted) { // unsorted
        if (only === 'dirs') return json({ total: 0, dirs: 0, bytes: 0, complete: true, items: [] });
        let at;
        if (wanted) at = ((await x.find(raw(Uint8Array.from(bytesOf(wanted)))))?.number ?? begin - 1) - begin;
        const rows = limit > 0 ? await x.range(begin + Math.min(total, offset), begin + Math.min(total, offset + limit)) : [];
        return json({ total, dirs: 0, bytes: 0, complete: true, items: rows.map(item), at });
      }
      let rows = await sorted(dir, begin, end);
      const by = { name: r => named(r), size: r => isDir(r) ? below(r).s ?? 0 : r.size ?? 0, time: r => r.time ?? -Infinity }[sort] ?? (r => named(r));
      rows = rows.toSorted((a, b) => Number(isDir(b)) - Number(isDir(a)) || (way === 'desc' ? -1 : 1) * (by(a) < by(b) ? -1 : by(a) > by(b) ? 1 : 0));
      const dirs = rows.filter(isDir).length;
      if (only === 'dirs') rows = rows.slice(0, dirs);
      const readme = rows.find(r => r.kind === 'file' && !r.whole && /^readme(\.(md|markdown|txt|rst))?$/i.test(named(r))), t = page.summed?.below(dir);
      return json({ total: rows.length, dirs, bytes: 0, complete: true, readme: readme && item(readme), all: t && { s: t.bytes, c: t.files }, items: rows.slice(offset, offset + limit).map(item), at: wanted === undefined ? undefined : rows.findIndex(r => pathOf(r) === wanted) });
    },
    async entry({ path }) {
      const r = await find(path), { chunk } = (await page.open()).root;
      return json({ path, kind: r.kind, size: r.size ?? 0, t: r.time, link: r.link && shown(r.link), owner: r.owner && shown(r.owner), group: r.group && shown(r.group), fault: r.fault && shown(r.fault), own: r.own,
        digest: r.sum?.length ? `${r.algo}:${hexOf(r.sum)}` : undefined, proof: compared(r, chunk, 0, 1) && 'parts',
        attr: r.attr && Object.fromEntries(Object.entries(r.attr).map(([k, v]) => [shown(k), shown(v)])), extents: r.extents?.slice(0, 32).map(e => ({ volume: name, off: e.off, len: e.len, codec: e.codec || undefined })) });
    },
    async content({ path, off = 0, n = 1 << 20 }) {
      const r = await find(path);
      if (r.fault !== undefined) throw new Failed('unreadable', 'cannot be read: ' + shown(r.fault));
      return new Response(await page.content(r, off, n));
    },
    async treemap({ path = '', by = 'size' }) { return json((await page.survey()).survey.treemap(raw(Uint8Array.from(bytesOf(path))), by)); },
    async map(q) { return new Response((await page.picture()).cells(q)); },
    async 'map/at'(q) { return json((await page.picture()).at(q)); },
    async 'map/of'({ path }) { const row = await find(path); return json((await page.picture()).of(row)); },
    async search({ offset = 0, limit = 200, sort = 'name', dir: way = 'asc', find: wanted, ...q }) {
      if (q.match) throw new Failed('unsupported', 'a page without a server does not search by expressions: use “holdall browse”');
      const x = await page.open(), key = JSON.stringify([q.q, q.kind, q.min, q.max, q.since, q.until, q.all]);
      if (page.search?.key !== key) {
        page.search?.end();
        page.search = new Search(x, key, q, { all: q.all || x.count <= most.atOnce });
      }
      const { search } = page; // another one may begin while this waits
      await search.some();
      const order = search.order(sort, way), rows = await search.rows(order.slice(offset, offset + limit));
      return json({
        total: order.length, dirs: 0, found: order.length, complete: search.complete, begin: search.begin, error: search.error,
        items: rows.map(r => ({ ...item(r), n: pathOf(r) })), at: wanted === undefined ? undefined : order.indexOf((await find(wanted)).number),
      });
    },
  };
  answeredBy(async (path, args, o) => (answers[path] ?? unavailable)(args, o));
}
main();
