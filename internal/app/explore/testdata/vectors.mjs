// Has the page's reader of indexes read the test vectors: node vectors.mjs FLAT.JS ROWS WRONG PROOF. Prints what it reads in another way.
import { readFileSync, readdirSync } from 'node:fs';

const [flat, rows, wrong, proof] = process.argv.slice(2);
const { Flat, compared, raw } = await import('data:text/javascript;base64,' + readFileSync(flat, 'base64')); // node takes .js for a script

const hex = b => Buffer.from(b).toString('hex');
const opened = b => Flat.open(async (off, n) => b.subarray(off, off + n), async n => ({ bytes: b.subarray(Math.max(0, b.length - n)), size: b.length }));
const same = (what, is, wanted) => { if (JSON.stringify(is) !== JSON.stringify(wanted)) console.log(`${what}: ${JSON.stringify(is)}, expected ${JSON.stringify(wanted)}`); };
const bytes = (b, most = 1 << 20) => new Uint8Array(b.buffer, b.byteOffset, b.length).subarray(0, most);

for (const file of readdirSync(rows).filter(f => f.endsWith('.json'))) {
  const x = await opened(bytes(readFileSync(`${rows}/${file.replace('.json', '.holdall')}`)));
  const wanted = JSON.parse(readFileSync(`${rows}/${file}`)) ?? [], all = await x.range(0, x.count);
  same(`${file}: rows`, all.filter(r => !r.implied).length, wanted.length);
  for (const w of wanted) {
    const name = raw(Buffer.from(w.name_hex ?? hex(Buffer.from(w.name ?? '')), 'hex')), what = `${file}: ${JSON.stringify(name)}`, r = await x.find(name);
    if (!r) { console.log(`${what} is not found`); continue; }
    same(what, [r.kind, r.size, r.elsewhere, r.fault, r.mode, r.owner, r.group, r.rank, r.link, r.own, r.attr], [w.kind, w.size, w.ask ?? false, w.message, w.mode, w.owner ?? '', w.group ?? '', w.rank, w.link, w.own ?? false, w.attributes]);
    same(`${what}: digest`, r.sum.length ? `${r.algo}:${hex(r.sum)}` : undefined, w.digest);
    same(`${what}: time`, r.time, w.time && Date.parse(w.time));
    if (x.root.chunk && r.proof !== undefined) same(`${what}: pieces`, (await x.sums(r)).map(hex), w.pieces);
    else same(`${what}: pieces`, undefined, w.pieces);
    if (r.fault !== undefined || r.elsewhere) continue;
    same(`${what}: extents`, r.extents.filter(e => e.codec !== 'zero').map(e => {
      if (e.data) return { at: e.at, length: e.size, offset: 0, stored: 0, data_hex: hex(e.data.subarray(e.skip, e.skip + e.size)) };
      const { name: volume, external } = x.root.volumes[e.volume];
      return { at: e.at, length: e.size, volume: volume || undefined, external: external || undefined, offset: e.off, stored: e.len, skip: e.skip || undefined, codec: e.codec || undefined };
    }), w.extents ?? []);
  }
  same(`${file}: what is not there`, await x.find('nothing'), undefined);
}

for (const w of JSON.parse(readFileSync(wrong))) {
  const b = Buffer.concat([readFileSync(`${rows}/${w.of}.holdall`).subarray(0, w.cut), Buffer.from(w.then_hex, 'hex')]);
  Buffer.from(w.hex, 'hex').copy(b, w.at);
  try {
    const x = await opened(bytes(b));
    await x.range(0, x.count);
    console.log(`${w.what}: it is used`);
  } catch (err) { if (err.code !== 'bad-index') console.log(`${w.what}: ${err.stack}`); }
}

for (const c of JSON.parse(readFileSync(proof))) {
  if (c.digest && c.digest !== 'blake3') continue; // which pages do not compute
  same(JSON.stringify(c), compared({ size: c.size, algo: c.digest, proof: c.chunk ? 0 : undefined }, c.chunk, c.start, c.end), c.compared ?? undefined);
}
