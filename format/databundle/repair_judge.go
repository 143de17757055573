package databundle

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/databundle/internal/sstable"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store/storekit"
)

// outcome is the result of reading the files of a shard.
type outcome struct {
	good   int        // files with correct content
	files  int        // all correct files, including empty ones
	beside int        // number of these in damaged records
	bad    []int      // numbers of rows of the other files
	lost   []lostFile // the first of these files
}

type lostFile struct {
	row  int
	text string
}

// noShard is used for rows without content.
const noShard = ^uint64(0)

// judge reads the content of each file, to decide which rows to keep.
func (m *repairer) judge(ctx context.Context) error {
	var err error
	if m.ends, err = m.findEnds(ctx); err == nil && m.rescue {
		err = m.survey(ctx)
	}
	if err != nil {
		return err
	}
	all, err := m.try(ctx, nil)
	if err != nil {
		return err
	}
	// If something is wrong, the cause may be the header or the rows of records. What is stored
	// shows where records are.
	undo := map[uint64]func(){}
	again := map[uint64]bool{}
	for _, i := range slices.Sorted(maps.Keys(all)) {
		if i == noShard || len(all[i].bad) == 0 {
			continue
		}
		repaired, back, err := m.repairShard(ctx, i, all[i].good > 0)
		if err != nil {
			return err
		}
		if repaired {
			again[i], undo[i] = true, back
		}
	}
	if len(again) > 0 {
		better, err := m.try(ctx, again)
		if err != nil {
			return err
		}
		for i := range again {
			if now := better[i]; now != nil && now.good > all[i].good {
				all[i] = now
			} else {
				undo[i]()
			}
		}
	}
	var lost []lostFile
	for i, o := range all {
		for _, n := range o.bad {
			m.bad[n] = true
		}
		lost = append(lost, o.lost...)
		m.beside += o.beside
		m.files += o.files
		if i != noShard && m.headers[i] {
			m.note("wrote a new header for shard %d", i)
		}
		if i != noShard && m.arranged[i] != nil {
			m.note("put what shard %d has at other offsets back to where the index says", i)
		}
		if i != noShard && m.places[i] != nil {
			m.note("found the offsets of the records of shard %d from their content", i)
		}
	}
	slices.Sort(m.notes)
	slices.SortFunc(lost, func(a, b lostFile) int { return cmp.Compare(a.row, b.row) })
	for _, x := range lost {
		m.lose("%s", x.text)
	}
	return nil
}

// try reads the files of some shards, or of all.
func (m *repairer) try(ctx context.Context, only map[uint64]bool) (map[uint64]*outcome, error) {
	all := map[uint64]*outcome{}
	r := &recordReader{repairer: m}
	n := -1
	for row, err := range m.rows.Scan(ctx, fileTablePrefix, after(fileTablePrefix)) {
		if err != nil {
			return nil, err
		}
		n++
		e := m.entryOf(row)
		shard := noShard
		at, hasContent := e.Ref.(stretch)
		if hasContent {
			shard = at.shard
		}
		if only != nil && !only[shard] {
			continue
		}
		if all[shard] == nil {
			all[shard] = &outcome{}
		}
		o, why := all[shard], ""
		switch {
		case e.Fault != nil && e.Fault.Class != shardMissing:
			why = e.Fault.Message
		case e.Kind == format.Dir || !hasContent:
		default:
			r.amiss = false
			err := r.check(ctx, e, row)
			if broken, ok := errors.AsType[*storeError](err); ok {
				return nil, broken.error
			}
			if err != nil {
				why = err.Error()
			} else if e.Size > 0 {
				o.good++
				if r.amiss {
					o.beside++
				}
			}
		}
		if why == "" {
			if e.Kind.HasContent() {
				o.files++
			}
			continue
		}
		o.bad = append(o.bad, n)
		if len(o.lost) <= kit.MostSaid {
			o.lost = append(o.lost, lostFile{n, format.Escape(e.Name) + ": " + why})
		}
	}
	return all, nil
}

// findEnds reads all rows of files.
func (m *repairer) findEnds(ctx context.Context) (map[uint64]int64, error) {
	ends := map[uint64]int64{}
	for row, err := range m.rows.Scan(ctx, fileTablePrefix, after(fileTablePrefix)) {
		if err != nil {
			return nil, err
		}
		if f, err := parseMeta(row.Value); err == nil && f.size > 0 {
			ends[f.shard] = max(ends[f.shard], int64(f.offset+f.size))
		}
	}
	return ends, nil
}

// survey finds the records of all shards from what is stored, and the end of the last one,
// because the rows that would show it are lost.
func (m *repairer) survey(ctx context.Context) error {
	for s, err := range m.opened(ctx) {
		if err != nil {
			return err
		}
		if s.decode != nil {
			continue // repairShard handles it
		}
		if s.codec == codec.Raw {
			if places, err := m.placesOf(ctx, s); err == nil && len(places) == 0 {
				m.ends[s.index] = max(m.ends[s.index], s.size-s.dataOff)
			}
			continue
		}
		if _, _, err := m.findRecords(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// repairShard makes a header for a shard that lost its own, and finds its records if their rows are
// wrong. It reports whether anything changed, and returns a function that undoes it.
func (m *repairer) repairShard(ctx context.Context, i uint64, someGood bool) (repaired bool, undo func(), _ error) {
	s, err := m.shard(ctx, i)
	switch {
	case err != nil:
	case s.decode != nil:
		err = s.decode
	// The header differs from those that shards of this bundle should have.
	case !someGood && (s.dataOff != int64(len(m.headerOf(s.index))) || s.header.compression != m.cfg.compression):
		err = fault(badShard, s.name, 0, "no file of it can be read")
	}
	var unassume func()
	if c, damaged := err.(*format.CorruptError); damaged {
		if c.Class != badShard && c.Class != badMethod && c.Class != shardShort {
			return false, nil, nil
		}
		if s, err = m.assume(ctx, i); s == nil || err != nil {
			return false, nil, err
		}
		m.headers[i], repaired = true, true
		unassume = func() {
			delete(m.headers, i)
			delete(m.shards, i)
			s.obj.Close()
		}
	} else if err != nil {
		return false, nil, err
	}
	moved, unmove, err := m.arrangeShard(ctx, s)
	if err != nil {
		return false, nil, err
	}
	found, unfind, err := m.findRecords(ctx, s)
	undo = func() {
		if unfind != nil {
			unfind()
		}
		if unmove != nil {
			unmove()
		}
		if unassume != nil {
			unassume()
		}
	}
	return repaired || found || moved, undo, err
}

// findRecords uses the records of a shard from what is stored, if they can be found and differ
// from the rows.
func (m *repairer) findRecords(ctx context.Context, s *shard) (found bool, undo func(), _ error) {
	places, end, err := m.rescan(ctx, s)
	if err != nil || places == nil {
		return false, nil, err
	}
	// If the rows are correct, they are now in the shard for comparison.
	if _, err := m.placesOf(ctx, s); err != nil {
		if _, damaged := err.(*format.CorruptError); !damaged {
			return false, nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ends[s.index] = max(m.ends[s.index], end)
	if s.wrong == nil && slices.Equal(s.records, places) {
		return false, nil, nil
	}
	records, wrong, before := s.records, s.wrong, m.places[s.index]
	s.records, s.wrong, m.places[s.index] = places, nil, places
	return true, func() {
		s.records, s.wrong = records, wrong
		if m.places[s.index] = before; before == nil {
			delete(m.places, s.index)
		}
	}, nil
}

// assume opens a shard as if it had the header of the others.
func (m *repairer) assume(ctx context.Context, i uint64) (*shard, error) {
	s := &shard{index: i, name: m.shardName(i)}
	obj, info, err := storekit.OpenInfo(ctx, m.st, s.name)
	if err != nil {
		return nil, err
	}
	s.obj = obj
	b := m.headerOf(i)
	s.size, s.dataOff = info.Size, int64(len(b))
	s.header, err = parseHeader(b[prefixLen:][:binary.LittleEndian.Uint32(b[4:])])
	method, known := methods[s.header.compression]
	if s.codec = method.codec; err != nil || s.dataOff > s.size || !known {
		return nil, s.obj.Close()
	}
	m.rearrange(s)
	if old := m.shards[i]; old != nil {
		old.obj.Close()
	}
	m.shards[i] = s
	return s, nil
}

// headerOf returns the beginning of a shard of the bundle.
func (m *repairer) headerOf(i uint64) []byte {
	w := writer{o: options{kind: m.cfg.compression, recordSize: int(min(m.cfg.recordSize, maxRecord)), align: int64(min(m.cfg.blockSize, maxAlign)), shards: int(min(m.cfg.shards, 1<<31-1))}}
	if m.cfg.rawPacked {
		w.o.align = 0
	}
	return w.header(i, nil)
}

// rescan finds the records of a shard by decoding one after the other, up to the end of its
// files. If rows that may have shown a later end are lost, it continues to the last record. It
// returns nil if it cannot reach that end.
//
// It relies on rows for what cannot be found in this way: records that are all zeros, and records
// that cannot be decoded.
func (m *repairer) rescan(ctx context.Context, s *shard) (_ []storedAt, end int64, _ error) {
	length := methods[s.header.compression].length
	if length == nil {
		return nil, 0, nil
	}
	end = m.ends[s.index]
	said, err := m.saidPlaces(ctx, s, end)
	if err != nil {
		return nil, 0, err
	}
	scan := recordScan{s: s, length: length, usual: mostStored(int64(max(m.cfg.recordSize, defaultRecord)))}
	align := int64(max(s.header.align, 1))
	out := []storedAt{}
	off, at := int64(0), int64(0)
	for off < end || m.rescue {
		p, known := said[off]
		if known && p.at < 0 {
			out = append(out, storedAt{off: off, at: -1})
			off = p.end
			continue
		}
		size, stored, err := scan.measure(ctx, at)
		switch {
		case err != nil:
			return nil, 0, err
		case size > 0:
			out = append(out, storedAt{off: off, at: at})
			off, at = off+size, at+roundUp(stored, align)
			continue
		case known && p.at == at && p.next > at:
			out = append(out, storedAt{off: off, at: at})
			off, at = p.end, p.next
			continue
		}
		break
	}
	if off < end {
		return nil, 0, nil
	}
	measure(out, s.size-s.dataOff)
	return out, off, nil
}

// saidPlace is what the rows say about a record.
type saidPlace struct {
	at   int64 // as in place
	next int64 // where the next stored record is; 0 means unknown
	end  int64 // of the record in the stream
}

// saidPlaces returns the rows of a shard's records that can be read, by offset.
func (m *repairer) saidPlaces(ctx context.Context, s *shard, end int64) (map[int64]saidPlace, error) {
	var rows []storedAt
	from, to := shardKeys(s.index)
	for row, err := range m.rows.Scan(ctx, from, to) {
		if err != nil {
			return nil, err
		}
		if _, p, err := parsePlace(row); err == nil {
			rows = append(rows, p)
		}
	}
	all := make(map[int64]saidPlace, len(rows))
	next := int64(0)
	for _, p := range slices.Backward(rows) {
		if end > p.off {
			all[p.off] = saidPlace{at: p.at, next: next, end: end}
		}
		if end = p.off; p.at >= 0 {
			next = p.at
		}
	}
	return all, nil
}

// recordScan measures what is stored in a shard.
type recordScan struct {
	s      *shard
	length func([]byte) (size, stored int, err error)
	usual  int64 // largest stored size of a record
	buf    []byte
}

// measure returns the uncompressed and the stored size of the record that is stored at an offset;
// 0 if there is none.
func (r *recordScan) measure(ctx context.Context, at int64) (size, stored int64, _ error) {
	room := r.s.size - r.s.dataOff - at
	for guess := min(room, r.usual); guess > 0; guess = min(room, guess*4) {
		if int64(cap(r.buf)) < guess {
			r.buf = make([]byte, guess)
		}
		r.buf = r.buf[:guess]
		if err := r.s.obj.ReadAt(ctx, r.buf, r.s.dataOff+at); err != nil {
			return 0, 0, err
		}
		n, k, err := r.length(r.buf)
		if err == nil && n > 0 {
			return int64(n), int64(k), nil
		}
		if guess == room || guess > mostStored(maxRecord) {
			break
		}
	}
	return 0, 0, nil
}

// recordReader reads contents, and caches the records that it decoded last, because files come
// mostly in stored order.
type recordReader struct {
	*repairer
	kept  []decoded // the last used one is first
	amiss bool      // a record of the last file is damaged
}

type decoded struct {
	x     format.Extent // without At, Skip and Size
	unit  []byte
	fault error
}

const (
	mostKept      = 32
	mostKeptBytes = 16 << 20
)

// record returns the record that contains x.
func (r *recordReader) record(ctx context.Context, x format.Extent) (*decoded, error) {
	x.At, x.Skip, x.Size = 0, 0, 0
	if i := slices.IndexFunc(r.kept, func(d decoded) bool {
		return d.x.Object == x.Object && d.x.Off == x.Off && d.x.Len == x.Len && d.x.Unit == x.Unit
	}); i >= 0 {
		d := r.kept[i]
		copy(r.kept[1:i+1], r.kept[:i])
		r.kept[0] = d
		return &r.kept[0], nil
	}
	s, err := r.shardNamed(x.Object)
	if err != nil {
		return nil, err
	}
	stored := make([]byte, min(x.Len, s.size-x.Off))
	if err := s.obj.ReadAt(ctx, stored, x.Off); err != nil {
		return nil, &storeError{err}
	}
	total := x.Unit
	for i, d := range r.kept {
		if total += int64(cap(d.unit)); i == mostKept-1 || total > mostKeptBytes {
			r.kept = slices.Delete(r.kept, i, len(r.kept))
			break
		}
	}
	z, _ := codec.Lookup(x.Codec)
	d := decoded{x: x}
	if x.Unit > 0 {
		d.unit, d.fault = z.Append(nil, stored, int(x.Unit))
	}
	if x.Unit == 0 || d.fault != nil {
		var err error
		if d.unit, err = frontOf(z, stored, cmp.Or(x.Unit, maxRecord)); d.fault == nil {
			d.fault = err
		}
	}
	r.kept = slices.Insert(r.kept, 0, d)
	return &r.kept[0], nil
}

// frontOf decodes as much of a record as possible, if it is damaged or its size is not known.
// Checksums of files show what is correct.
func frontOf(c codec.Codec, stored []byte, most int64) ([]byte, error) {
	d, err := c.Decode(bytes.NewReader(stored))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return io.ReadAll(io.LimitReader(d, most))
}

// check compares a file's content with its checksum.
func (r *recordReader) check(ctx context.Context, e format.Entry, row sstable.Row) error {
	m, err := parseMeta(row.Value)
	if err != nil {
		return err
	}
	if m.size == 0 {
		r.sums = r.sums || m.crc != 0
		return nil
	}
	// In the bare format, links have content too.
	plain := e
	plain.Kind, plain.Size, plain.Fault = format.File, int64(m.size), nil
	sum := uint32(0)
	err = r.read(ctx, plain, func(b []byte) { sum = crc32.Update(sum, castagnoli, b) })
	if err == nil && sum != m.crc {
		err = errors.New("the content does not match its checksum")
	}
	return err
}

// storeError is an error of the store, and not about the bundle.
type storeError struct{ error }

func (r *recordReader) read(ctx context.Context, e format.Entry, take func([]byte)) error {
	view := &reader{r.bundle}
	for x, err := range view.Extents(ctx, e, 0, e.Size) {
		if _, damaged := err.(*format.CorruptError); err != nil && !damaged {
			return &storeError{err}
		}
		if err != nil {
			return err
		}
		if err := r.extent(ctx, x, take); err != nil {
			return err
		}
	}
	return nil
}

var nothing [64 << 10]byte

func (r *recordReader) extent(ctx context.Context, x format.Extent, take func([]byte)) error {
	switch x.Codec {
	case codec.Zero:
		for n := x.Size; n > 0; n -= int64(len(nothing)) {
			take(nothing[:min(n, int64(len(nothing)))])
		}
		return nil
	case codec.Raw:
		s, err := r.shardNamed(x.Object)
		if err != nil {
			return err
		}
		buf := make([]byte, min(x.Size, 256<<10))
		for at := int64(0); at < x.Size; at += int64(len(buf)) {
			buf = buf[:min(int64(len(buf)), x.Size-at)]
			if err := s.obj.ReadAt(ctx, buf, x.Off+at); err != nil {
				return &storeError{err}
			}
			take(buf)
		}
		return nil
	}
	d, err := r.record(ctx, x)
	if err == nil {
		r.amiss = r.amiss || d.fault != nil
		switch {
		case x.Skip+x.Size <= int64(len(d.unit)):
		case d.fault != nil:
			err = fmt.Errorf("cannot decode a record of its content: %w", d.fault)
		default:
			err = errors.New("a record of its content is too short")
		}
	}
	if err == nil {
		take(d.unit[x.Skip : x.Skip+x.Size])
	}
	return err
}

func (r *recordReader) shardNamed(name string) (*shard, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.shards {
		if s.name == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("%s is not open", name)
}
