package explore

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"iter"
	"sort"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/bytemap"
	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/columns"
)

// A spanMap describes the use of each byte of an archive. Its volumes follow
// each other: an address counts from the first byte of the first volume.
type spanMap struct {
	volumes []volume
	held    []held // the contents of each volume
	base    map[string]int
	size    int64

	content, regions spans
	words            columns.Words
	coarse           *bytemap.Map // if there are too many spans to keep
	parity           string       // the archive's protection
}

type volume struct {
	Name string `json:"name"`
	Base int64  `json:"base"`
	Size int64  `json:"size"`
}

const (
	maxSpans   = 6 << 20
	maxVolumes = 2000 // that the page gets
	uses       = int(bytemap.Gap) + 1
)

// spans are runs of bytes in columns, by address.
type spans struct {
	off    columns.Rows[int64]
	len    columns.Rows[uint32]
	ref    columns.Rows[uint32] // content: the entry; regions: the use and the label
	packed columns.Rows[uint8]  // content: the class of its compression
	long   map[int64]int64      // lengths that do not fit in len, by address
	files  map[int64]uint32     // how many more entries share a run, by address
	most   int64                // the longest
	sorted bool
}

const longSpan = 1<<32 - 1

func newSpans() spans {
	return spans{long: map[int64]int64{}, files: map[int64]uint32{}, sorted: true}
}

func (s *spans) add(off, n int64, ref uint32, packed uint8) {
	if last := s.off.Len() - 1; last >= 0 {
		at := *s.off.At(last)
		if at == off && s.length(last) == n {
			s.files[off]++
			return
		}
		s.sorted = s.sorted && at <= off
	}
	s.off.Add(off)
	s.len.Add(uint32(min(n, longSpan)))
	if n >= longSpan {
		s.long[off] = max(n, s.long[off])
	}
	s.ref.Add(ref)
	s.packed.Add(packed)
	s.most = max(s.most, n)
}

// sort sorts spans by address. Data that several entries share becomes one
// run.
func (s *spans) sort() {
	if s.sorted {
		return
	}
	sort.Sort(s)
	was := *s
	*s = spans{long: was.long, files: was.files, most: was.most, sorted: true}
	for i := range was.Len() {
		s.add(*was.off.At(i), was.length(i), *was.ref.At(i), *was.packed.At(i))
	}
}

func (s *spans) length(i int) int64 {
	if n := *s.len.At(i); n != longSpan {
		return int64(n)
	}
	return s.long[*s.off.At(i)]
}

// Len, Less and Swap sort by address.
func (s *spans) Len() int { return s.off.Len() }
func (s *spans) Less(i, j int) bool {
	a, b := *s.off.At(i), *s.off.At(j)
	return a < b || a == b && s.length(i) < s.length(j)
}
func (s *spans) Swap(i, j int) {
	a, b := s.off.At(i), s.off.At(j)
	*a, *b = *b, *a
	c, d := s.len.At(i), s.len.At(j)
	*c, *d = *d, *c
	e, f := s.ref.At(i), s.ref.At(j)
	*e, *f = *f, *e
	g, h := s.packed.At(i), s.packed.At(j)
	*g, *h = *h, *g
}

// first returns the first span that may reach beyond from.
func (s *spans) first(from int64) int {
	return sort.Search(s.Len(), func(i int) bool { return *s.off.At(i) > from-s.most })
}

// within yields the spans that touch [from, to).
func (s *spans) within(from, to int64) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := s.first(from); i < s.Len(); i++ {
			off := *s.off.At(i)
			if off >= to {
				return
			}
			if off+s.length(i) > from && !yield(i) {
				return
			}
		}
	}
}

func newSpanMap(ctx context.Context, in *holdall.Archive) (*spanMap, error) {
	m := &spanMap{base: map[string]int{}, content: newSpans(), regions: newSpans()}
	list, err := in.Volumes(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range list {
		size, err := in.VolumeSize(ctx, name)
		if err != nil {
			size = 0 // it is missing: verify reports that
		}
		if _, twice := m.base[name]; twice {
			continue
		}
		m.base[name] = len(m.volumes)
		m.volumes = append(m.volumes, volume{name, m.size, size})
		m.held = append(m.held, held{})
		m.size += size
	}
	if p := in.Protection(ctx); p != nil {
		m.parity = format.Escape(p.String())
	}
	return m, nil
}

// place returns the address of a run in a volume, clipped to the volume.
func (m *spanMap) place(name string, off, n int64) (int64, int64) {
	i, ok := m.base[name]
	if !ok || off < 0 || n <= 0 {
		return 0, 0
	}
	v := m.volumes[i]
	if off >= v.Size {
		return 0, 0
	}
	return v.Base + off, min(n, v.Size-off)
}

func (m *spanMap) addContent(x format.Extent, row uint32) {
	// Inline content is in the index, which has a region of its own.
	if x.External || x.Codec == codec.Inline || m.content.Len() > maxSpans {
		return
	}
	if off, n := m.place(x.Object, x.Off, x.Len); n > 0 {
		m.content.add(off, n, row, packedTo(x))
	}
}

func (m *spanMap) addRegion(r format.Region) {
	if m.content.Len()+m.regions.Len() > maxSpans {
		return
	}
	if off, n := m.place(r.Object, r.Off, r.Len); n > 0 {
		word := m.words.ID([]byte(r.Label))
		m.regions.add(off, n, uint32(r.Use)<<24|min(word, 1<<24-1), 0)
	}
}

// finish sorts the added spans. If there were too many, they are replaced by a
// map of a few thousand cells.
func (m *spanMap) finish(ctx context.Context, in *holdall.Archive) error {
	if m.content.Len()+m.regions.Len() > maxSpans {
		m.content, m.regions = newSpans(), newSpans()
		return m.draw(ctx, in)
	}
	m.content.sort()
	m.regions.sort()
	return nil
}

func (m *spanMap) draw(ctx context.Context, in *holdall.Archive) error {
	var volumes []bytemap.Volume
	for _, v := range m.volumes {
		volumes = append(volumes, bytemap.Volume{Name: v.Name, Size: v.Size})
	}
	m.coarse = bytemap.Build(volumes, func(yield func(bytemap.Span) bool) {
		for s, err := range bytemap.Spans(ctx, in) {
			if err != nil || !yield(s) {
				return
			}
		}
	})
	return context.Cause(ctx)
}

// A picture is a part of an archive in cells.
type picture struct {
	from, to int64
	cells    int
	by       *colouring
	share    [][]float64 // bytes of each use, and then of each class of content, cell by cell
	full     [][]int32   // where spans begin and end to cover cells completely
	spans    []uint32    // that begin in the cell
	parity   []byte      // that of the content that has most of the cell
	widest   []float64   // how much of the cell that is
	problem  []bool
}

func newPicture(from, to int64, cells int, by *colouring) *picture {
	p := &picture{from: from, to: to, cells: cells, by: by, spans: make([]uint32, cells), parity: make([]byte, cells), widest: make([]float64, cells), problem: make([]bool, cells)}
	for range uses + len(by.classes) {
		p.share = append(p.share, make([]float64, cells))
		p.full = append(p.full, make([]int32, cells+1))
	}
	return p
}

func (p *picture) cellSize() float64 { return float64(p.to-p.from) / float64(p.cells) }

// where returns the cell of an address, and the position in the cell.
func (p *picture) where(at int64) (cell int, into float64) {
	size := p.cellSize()
	cell = min(int(float64(at-p.from)/size), p.cells-1)
	return cell, float64(at-p.from) - float64(cell)*size
}

// add adds a span. Its time does not depend on the span's length.
func (p *picture) add(use int, off, end int64) {
	begins := off >= p.from
	off, end = max(off, p.from), min(end, p.to)
	first, into := p.where(off)
	last, upTo := p.where(end)
	if begins {
		p.spans[first]++
	}
	if first == last {
		p.share[use][first] += upTo - into
	} else {
		p.share[use][first] += p.cellSize() - into
		p.share[use][last] += upTo
		p.full[use][first+1]++
		p.full[use][last]--
	}
}

// shade gives the cells of a content the parity of its file, so that adjacent
// files have different ones.
func (p *picture) shade(off, end int64, parity byte) {
	off, end = max(off, p.from), min(end, p.to)
	first, into := p.where(off)
	last, upTo := p.where(end)
	for c := first; c <= last; c++ {
		from, to := 0.0, p.cellSize()
		if c == first {
			from = into
		}
		if c == last {
			to = upTo
		}
		if to-from > p.widest[c] {
			p.widest[c], p.parity[c] = to-from, parity
		}
	}
}

func (p *picture) mark(off, n int64) {
	end := off + max(n, 1)
	if end <= p.from || off >= p.to {
		return
	}
	first, _ := p.where(max(off, p.from))
	last, _ := p.where(min(end, p.to) - 1)
	for c := first; c <= last; c++ {
		p.problem[c] = true
	}
}

func (m *spanMap) picture(from, to int64, cells int, by *colouring) *picture {
	p := newPicture(from, to, cells, by)
	if m.coarse != nil {
		for i, v := range m.coarse.Volumes {
			base := m.volumes[i].Base
			for c, cell := range v.Cells {
				at := base + int64(c)*v.CellSize
				for u := range uses {
					if n := cell.Bytes[u]; n > 0 && at+n > from && at < to {
						p.add(u, at, at+n)
						at += n
					}
				}
			}
		}
	}
	covered := int64(0) // each byte counts once
	file, parity := uint32(0), byte(0)
	for i := range m.content.within(from, to) {
		off := *m.content.off.At(i)
		if end := off + m.content.length(i); end > max(covered, from) {
			use := int(bytemap.Content)
			if len(by.classes) > 0 {
				use = uses + min(by.of(m, i), len(by.classes)-1)
			}
			if at := *m.content.ref.At(i); at != file {
				file, parity = at, parity^1
			}
			off = max(off, min(covered, end))
			p.add(use, off, end)
			p.shade(off, end, parity)
			covered = end
		}
	}
	for i := range m.regions.within(from, to) {
		off := *m.regions.off.At(i)
		p.add(min(int(*m.regions.ref.At(i)>>24), int(bytemap.Unknown)), off, off+m.regions.length(i))
	}
	size := p.cellSize()
	for u := range p.share {
		depth := int32(0)
		for c := range cells {
			depth += p.full[u][c]
			p.share[u][c] += float64(depth) * size
		}
	}
	for c := range cells {
		sum := 0.0
		for u := range p.share {
			if u != int(bytemap.Gap) {
				sum += p.share[u][c]
			}
		}
		p.share[bytemap.Gap][c] += max(0, size-sum)
	}
	return p
}

// cellLen is the number of bytes that encode a cell:
//
//	u8   the use that takes most of it, or classCode plus the class of content
//	u8   the share of that use, in 255ths
//	u8   flags: 1 distinguishes adjacent entries, 2 is a problem
//	u8   the use that takes most of the rest, in the same form; 255 if none
//	u32  how many spans begin in it
const (
	cellLen   = 8
	classCode = 32
)

func code(share int) byte {
	if share >= uses {
		return byte(classCode + share - uses)
	}
	return byte(share)
}

func (p *picture) bytes(out []byte) []byte {
	size := p.cellSize()
	for c := range p.cells {
		best, second := 0, -1
		for u := 1; u < len(p.share); u++ {
			if p.share[u][c] > p.share[best][c] {
				best = u
			}
		}
		for u := range p.share {
			if u != best && p.share[u][c] > size/64 && (second < 0 || p.share[u][c] > p.share[second][c]) {
				second = u
			}
		}
		flags := p.parity[c]
		if p.problem[c] {
			flags |= 2
		}
		rest := byte(255)
		if second >= 0 {
			rest = code(second)
		}
		out = append(out, code(best), byte(min(255, 255*p.share[best][c]/size)), flags, rest)
		out = binary.LittleEndian.AppendUint32(out, p.spans[c])
	}
	return out
}

// totals returns how many bytes each use has, with all content as one use, and
// how many each class has.
func (p *picture) totals() (byUse, byClass map[string]int64) {
	byUse, byClass = map[string]int64{}, map[string]int64{}
	content := 0.0
	for u := range p.share {
		sum := 0.0
		for _, n := range p.share[u] {
			sum += n
		}
		switch {
		case u >= uses:
			content += sum
			if sum >= 0.5 {
				byClass[p.by.classes[u-uses]] = int64(sum + 0.5)
			}
		case u == int(bytemap.Content):
			content += sum
		case sum >= 0.5:
			byUse[bytemap.Use(u).String()] = int64(sum + 0.5)
		}
	}
	if content >= 0.5 {
		byUse[bytemap.Content.String()] = int64(content + 0.5)
	}
	return byUse, byClass
}

// drawn returns the requested archive's view for the map, and its survey.
func (q *question) drawn() (v *view, d *surveyed) {
	v = q.view()
	if q.err == nil {
		// Some formats show the whole archive in another view.
		if over := v.in.Format().Overview; over != "" && v.in.Store() != nil {
			v, q.err = q.inView(v, over)
		}
	}
	if q.err == nil {
		d, q.err = q.h.surveyed(q.ctx(), v)
	}
	if q.err == nil && (d.spans == nil || d.spans.size == 0) {
		q.err = bad("this archive has no bytes of its own")
	}
	return v, d
}

// drawnPart is drawn with the bounds of the requested part.
func (q *question) drawnPart() (v *view, d *surveyed, from, to int64) {
	if v, d = q.drawn(); q.err == nil {
		from = q.number("from", 0, 0, d.spans.size-1)
		to = q.number("to", d.spans.size, from+1, d.spans.size)
	}
	return v, d, from, to
}

// byteMap responds with cells: the length of a JSON object, the object, and
// the cells.
func (q *question) byteMap() error {
	defer q.busy()()
	cells := q.number("cells", 4096, 1, 1<<16)
	by := q.word("by", colourings...)
	v, d, from, to := q.drawnPart()
	if q.err != nil {
		return q.err
	}
	m := d.spans
	p := m.picture(from, to, int(min(cells, to-from)), d.colouring(by))
	for _, at := range q.h.marks(v.Name, m) {
		p.mark(at[0], at[1])
	}
	shown := m.volumes[:min(len(m.volumes), maxVolumes)]
	volumes := make([]volume, len(shown))
	for i, v := range shown {
		volumes[i] = volume{format.Escape(v.Name), v.Base, v.Size}
	}
	byUse, byClass := p.totals()
	head, err := json.Marshal(map[string]any{
		"from": from, "to": to, "size": m.size, "cells": p.cells, "uses": useNames(), "totals": byUse, "by": by, "classes": p.by.classes, "class_totals": byClass,
		"volumes": volumes, "coarse": m.coarse != nil, "spans": m.content.Len() + m.regions.Len(), "view": v.name, "parity": m.parity,
	})
	if err != nil {
		return err
	}
	for len(head)%4 != 0 {
		head = append(head, ' ')
	}
	out := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(head)+p.cells*cellLen), uint32(len(head)))
	out = p.bytes(append(out, head...))
	q.w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = q.w.Write(out) // an error means that the client is gone
	return nil
}

func useNames() (all []string) {
	for u := range uses {
		all = append(all, bytemap.Use(u).String())
	}
	return all
}

type spanJSON struct {
	Use    string `json:"use"`
	Name   string `json:"name"` // the name of the entry, or a description
	Entry  bool   `json:"entry,omitempty"`
	At     int64  `json:"at"`
	Len    int64  `json:"len"`
	Volume string `json:"volume"`
	Off    int64  `json:"off"`
	Files  int64  `json:"files,omitempty"` // how many files share it, if there are several
}

// mapAt responds with the spans that touch a part of the archive, and their
// number.
func (q *question) mapAt() error {
	limit := q.number("limit", 20, 1, maxPage)
	_, d, from, to := q.drawnPart()
	if q.err != nil {
		return q.err
	}
	m := d.spans
	list, count := []spanJSON{}, 0
	take := func(s *spans, i int, use, name string, entry bool) {
		if count++; len(list) >= int(limit) {
			return
		}
		at := *s.off.At(i)
		v := m.volumes[sort.Search(len(m.volumes), func(k int) bool { return m.volumes[k].Base+m.volumes[k].Size > at })]
		x := spanJSON{use, format.Escape(name), entry, at, s.length(i), format.Escape(v.Name), at - v.Base, 0}
		if more := s.files[at]; more > 0 {
			x.Files = int64(more) + 1
		}
		list = append(list, x)
	}
	for i := range m.content.within(from, to) {
		name, row := "", int(*m.content.ref.At(i))
		if len(list) < int(limit) && row < d.names.len() {
			name = d.names.at(row)
		}
		take(&m.content, i, bytemap.Content.String(), name, row < d.names.len())
	}
	for i := range m.regions.within(from, to) {
		ref := *m.regions.ref.At(i)
		take(&m.regions, i, bytemap.Use(ref>>24).String(), m.words.At(ref&(1<<24-1)), false)
	}
	return q.json(map[string]any{"count": count, "spans": list})
}

func (q *question) mapOf() error {
	v, d := q.drawn()
	if q.err != nil {
		return q.err
	}
	list := [][2]int64{}
	e, err := v.in.Lookup(q.ctx(), q.path())
	if err == nil && e.Kind.HasContent() && e.Fault == nil {
		for x, err := range v.in.Extents(q.ctx(), e) {
			if err != nil || len(list) >= 1000 {
				break
			}
			for r := range v.lies(x.Object, x.Off, x.Len) {
				if off, n := d.spans.place(r.Object, r.Off, r.Len); n > 0 && !x.External {
					list = append(list, [2]int64{off, n})
				}
			}
		}
	}
	return q.json(map[string]any{"spans": list})
}
