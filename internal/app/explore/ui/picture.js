// The byte map for a page without a holdall server. It makes the server's responses from the places
// of contents in the index and from a list of the other regions of the archive.
import { shown } from './flat.js';
import { useNames, colourings, kindNames } from './kinds.js';

const content = useNames.indexOf('content'), hole = useNames.indexOf('gap'), classCode = 32, cellLen = 8, day = 86400e3;

/** Runs of bytes by address, and what they contain. */
class Spans {
  off = []; len = []; ref = []; more = []; // ref is a file's number, or a region's use and label; more is how many more files share it
  most = 0;
  add(off, len, ref) { if (len > 0) { this.off.push(off); this.len.push(len); this.ref.push(ref); this.most = Math.max(this.most, len); } }
  sort() {
    const { off, len, ref } = this, order = Uint32Array.from(off.keys()).sort((a, b) => off[a] - off[b] || len[a] - len[b] || ref[a] - ref[b]);
    this.off = []; this.len = []; this.ref = [];
    for (const i of order) {
      const last = this.off.length - 1;
      if (last >= 0 && this.off[last] === off[i] && this.len[last] === len[i]) { this.more[last]++; continue; }
      this.off.push(off[i]); this.len.push(len[i]); this.ref.push(ref[i]); this.more.push(0);
    }
  }
  /** The runs that touch [from, to). */
  *within(from, to) {
    let lo = 0, hi = this.off.length;
    while (lo < hi) { const m = (lo + hi) >> 1; if (this.off[m] > from - this.most) hi = m; else lo = m + 1; }
    for (let i = lo; i < this.off.length && this.off[i] < to; i++) if (this.off[i] + this.len[i] > from) yield i;
  }
}

export class Picture {
  /** @param {object} told volumes, and the regions in them that are not content. @param {{name:string, external?:boolean}[]} volumes those of the index */
  constructor(told, volumes) {
    this.told = told; this.contents = new Spans(); this.others = new Spans();
    const base = new Map(told.volumes.map(v => [v.name, v]));
    this.places = volumes.map(v => v.external ? undefined : base.get(shown(v.name)));
    this.days = []; this.packed = []; this.proofs = [];
    let end = 0;
    for (let i = 0; i < told.regions.length; i += 4) {
      const [use, label, gap, len] = told.regions.slice(i, i + 4);
      this.others.add(end + gap, len, [use, label]);
      end += gap + len;
    }
  }
  /** Adds file number i. */
  add(r, i) {
    this.days[i] = r.time; this.proofs[i] = r.proof !== undefined ? 0 : r.sum?.length ? 1 : 2;
    for (const x of r.extents ?? []) {
      const v = this.places[x.volume];
      if (!v || x.data || x.codec === 'zero' || x.off >= v.size) continue;
      const share = x.len / Math.max(x.unit, x.size);
      this.packed[i] = !x.codec ? 0 : share > 0.8 ? 1 : share > 0.5 ? 2 : share > 0.2 ? 3 : 4;
      this.contents.add(v.base + x.off, Math.min(x.len, v.size - x.off), i);
    }
  }
  finish(survey) { this.survey = survey; this.contents.sort(); return this; }
  classOf(by, today) {
    const at = this.contents;
    return {
      kind: s => this.survey.kind[at.ref[s]], packing: s => this.packed[at.ref[s]] ?? 0, proof: s => this.proofs[at.ref[s]],
      age: s => { const t = this.days[at.ref[s]], k = [1, 7, 31, 366, 5 * 366].findIndex(most => today - Math.floor(t / day) <= most); return t === undefined ? 6 : k < 0 ? 5 : k; },
      sharing: s => { const n = at.more[s]; return n === 0 ? 0 : n === 1 ? 1 : n < 9 ? 2 : 3; },
    }[by];
  }
  /** Returns cells in the server's form: the length of a JSON object, the object, and the cells. */
  cells({ from = 0, to = this.told.size, cells = 4096, by = 'use' }) {
    from = Math.max(0, Math.min(from, this.told.size - 1)); to = Math.max(from + 1, Math.min(to, this.told.size)); cells = Math.min(cells, to - from);
    const names = by === 'use' ? [] : by === 'kind' ? kindNames : colourings[by], classOf = this.classOf(by, Math.floor(Date.now() / day)), size = (to - from) / cells, uses = useNames.length;
    const share = Array.from({ length: uses + names.length }, () => new Float64Array(cells)), full = share.map(() => new Int32Array(cells + 1)), begin = new Uint32Array(cells), odd = new Uint8Array(cells), widest = new Float64Array(cells);
    const where = at => { const c = Math.min(Math.floor((at - from) / size), cells - 1); return [c, at - from - c * size]; };
    const add = (use, a, b) => {
      const begins = a >= from, [first, into] = where(Math.max(a, from)), [last, upTo] = where(Math.min(b, to));
      if (begins) begin[first]++;
      if (first === last) share[use][first] += upTo - into;
      else { share[use][first] += size - into; share[use][last] += upTo; full[use][first + 1]++; full[use][last]--; }
    };
    // Adjacent files have different shades. A cell has that of the file that has most of it.
    const shade = (a, b, parity) => {
      const [first, into] = where(Math.max(a, from)), [last, upTo] = where(Math.min(b, to));
      for (let c = first; c <= last; c++) {
        const n = (c === last ? upTo : size) - (c === first ? into : 0);
        if (n > widest[c]) { widest[c] = n; odd[c] = parity; }
      }
    };
    let covered = 0, file = 0, parity = 0; // each byte counts once
    for (const s of this.contents.within(from, to)) {
      const b = this.contents.off[s] + this.contents.len[s], a = Math.max(this.contents.off[s], Math.min(covered, b));
      if (b <= Math.max(covered, from)) continue;
      if (this.contents.ref[s] !== file) { file = this.contents.ref[s]; parity ^= 1; }
      add(names.length ? uses + classOf(s) : content, a, b);
      shade(a, b, parity);
      covered = b;
    }
    for (const s of this.others.within(from, to)) add(this.others.ref[s][0], this.others.off[s], this.others.off[s] + this.others.len[s]);
    const totals = {}, classTotals = {}, out = new Uint8Array(cells * cellLen), view = new DataView(out.buffer), code = u => u >= uses ? classCode + u - uses : u;
    share.forEach((row, u) => { let depth = 0; for (let c = 0; c < cells; c++) row[c] += (depth += full[u][c]) * size; });
    for (let c = 0; c < cells; c++) {
      let sum = 0, best = 0, second = -1;
      share.forEach((row, u) => { if (u !== hole) sum += row[c]; });
      share[hole][c] += Math.max(0, size - sum);
      share.forEach((row, u) => { if (row[c] > share[best][c]) best = u; });
      share.forEach((row, u) => { if (u !== best && row[c] > size / 64 && (second < 0 || row[c] > share[second][c])) second = u; });
      out.set([code(best), Math.min(255, 255 * share[best][c] / size), odd[c], second < 0 ? 255 : code(second)], c * cellLen);
      view.setUint32(c * cellLen + 4, begin[c], true);
    }
    share.forEach((row, u) => {
      const sum = Math.round(row.reduce((a, b) => a + b, 0));
      if (!sum) return;
      if (u >= uses) classTotals[names[u - uses]] = sum;
      const use = u >= uses ? 'content' : useNames[u];
      totals[use] = (totals[use] ?? 0) + sum;
    });
    const head = new TextEncoder().encode(JSON.stringify({ from, to, size: this.told.size, cells, uses: useNames, totals, by, classes: names, class_totals: classTotals, volumes: this.told.volumes, coarse: false, spans: this.contents.off.length + this.others.off.length, parity: this.told.parity }));
    const length = new Uint8Array(4);
    new DataView(length.buffer).setUint32(0, head.length, true);
    return new Blob([length, head, out]);
  }
  /** The runs in a part of the archive, and their number. */
  at({ from, to, limit = 20 }) {
    const spans = [];
    let count = 0;
    const take = (list, i, what) => {
      if (++count > limit) return;
      const at = list.off[i], v = this.told.volumes.findLast(v => v.base <= at);
      spans.push({ ...what(list.ref[i]), at, len: list.len[i], volume: v.name, off: at - v.base, ...list.more[i] && { files: list.more[i] + 1 } });
    };
    for (const i of this.contents.within(from, to)) take(this.contents, i, ref => ({ use: 'content', name: this.survey.pathOf(ref), entry: true }));
    for (const i of this.others.within(from, to)) take(this.others, i, ([use, label]) => ({ use: useNames[use], name: this.told.labels[label] }));
    return { count, spans };
  }
  /** The runs of an entry's content. */
  of(row) {
    return { spans: (row.extents ?? []).filter(x => this.places[x.volume] && !x.data && x.codec !== 'zero').slice(0, 1000).map(x => [this.places[x.volume].base + x.off, x.len]) };
  }
}
