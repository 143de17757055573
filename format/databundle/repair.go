package databundle

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"slices"
	"sort"
	"strings"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/databundle/internal/sstable"
	"github.com/holdall/holdall/store"
)

// repair plans a new index, of all rows whose content is there, and new headers
// for shards that have lost theirs. Records stay where they are.
func repair(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) (format.Plan, error) {
	m := &mending{bad: map[int]bool{}, headers: map[uint64]bool{}, good: map[uint64]bool{}, places: map[uint64][]place{}, reached: map[uint64]int64{}}
	faults, indexFaults := 0, 0
	note := func(p format.Problem) {
		report(p)
		if p.Severity == format.Error {
			faults++
			if strings.HasPrefix(p.Class, "index-") || p.Class == badConfig || p.Class == notABundle {
				indexFaults++
			}
		}
	}
	a, err := load(ctx, st, name, o)
	damage, damaged := errors.AsType[*format.CorruptError](err)
	switch {
	case damaged && damage.Code == format.Unsupported:
		return format.Plan{}, err
	case damaged:
		note(damage.Problem)
		a = newBundle(st, name, o)
	case err != nil:
		return format.Plan{}, err
	default:
		v := &check{bundle: a, report: note, streams: map[uint64]*stream{}}
		if err := v.run(ctx); err != nil {
			a.close()
			return format.Plan{}, err
		}
	}
	m.bundle = a
	defer a.close()
	if damaged {
		if ok, err := m.hasIndex(ctx); err != nil {
			return format.Plan{}, err
		} else if !ok {
			return format.Plan{}, damage
		}
	}
	m.reopen = func(ctx context.Context) (rows, error) {
		if a.single {
			return a.rows, nil
		}
		d, err := openDirectory(ctx, st, a.root, sstable.Options{})
		return d, err
	}
	if damaged || indexFaults > 0 {
		if err := m.recover(ctx, damage); err != nil {
			return format.Plan{}, err
		}
	}
	if err := m.judge(ctx); err != nil {
		return format.Plan{}, err
	}
	plan := format.Plan{Notes: m.notes, Lost: m.lost, Partial: len(m.lost) > 0}
	if faults == 0 && len(m.lost) == 0 && len(m.places) == 0 && !m.sums {
		return plan, nil
	}
	plan.Notes = append(plan.Notes, "the index is made again")
	objects, err := a.objects(ctx)
	if err != nil {
		return plan, err
	}
	for _, o := range objects {
		switch {
		case !o.isShard:
			plan.Replaces = append(plan.Replaces, o.name)
			plan.Drops = append(plan.Drops, o.name)
		default:
			empty, err := m.emptied(ctx, o.shard)
			if err != nil {
				return plan, err
			}
			if empty || m.headers[o.shard] {
				plan.Replaces = append(plan.Replaces, o.name)
			}
		}
	}
	notes := *m
	plan.Build = func(ctx context.Context, to store.Store, name string, inPlace bool) error {
		again := newBundle(st, a.name, o)
		again.cfg, again.single = a.cfg, a.single
		x := notes
		x.bundle = again
		defer again.close()
		rows, err := m.reopen(ctx) // it was closed with the plan
		if err != nil {
			return err
		}
		again.rows = rows
		return x.build(ctx, to, strings.TrimSuffix(name, "/"), objects, inPlace)
	}
	return plan, nil
}

// newBundle is a bundle of which nothing was read.
func newBundle(st store.Store, name string, o format.OpenOptions) *bundle {
	a := &bundle{st: st, name: name, root: strings.TrimSuffix(name, "/"), limits: o.Limits.OrDefault(), shards: map[uint64]*shard{}, release: func() {}}
	return a
}

// mending is a bundle as it should be.
type mending struct {
	*bundle
	reopen  func(context.Context) (rows, error)
	bad     map[int]bool // rows of files, by their number, that are left out
	headers map[uint64]bool
	good    map[uint64]bool    // shards of which a file can be read
	places  map[uint64][]place // of shards whose rows were wrong, by what is stored
	reached map[uint64]int64   // where the streams of shards end
	sums    bool               // empty files have checksums that those of nothing are not
	rescue  bool               // rows are lost: what no file covers is worth keeping
	notes   []string
	lost    []string
}

const mostSaid = 20 // files that are named one by one

func (m *mending) lose(msg string, args ...any) {
	if len(m.lost) < mostSaid {
		m.lost = append(m.lost, fmt.Sprintf(msg, args...))
	} else if len(m.lost) == mostSaid {
		m.lost = append(m.lost, "and more")
	}
}

func (m *mending) note(msg string, args ...any) { m.notes = append(m.notes, fmt.Sprintf(msg, args...)) }

// indexFolders are where rows may be found: the index, and copies of it.
func indexFolders() iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		for i := range 10 {
			dir := indexDir
			if i > 0 {
				dir = fmt.Sprintf("%s-copy-%d", indexDir, i)
			}
			if !yield(i, dir) {
				return
			}
		}
	}
}

// hasIndex reports whether there is anything of an index.
func (m *mending) hasIndex(ctx context.Context) (bool, error) {
	for _, err := range store.List(ctx, m.st, below(m.root, indexDir)) {
		return err == nil, err
	}
	return false, nil
}

// recover finds rows without the index as it is: in a copy of it, or in what is
// left of its files.
func (m *mending) recover(ctx context.Context, damage *format.CorruptError) error {
	if m.rows != nil {
		m.rows.Close()
		m.rows = nil
	}
	for i, dir := range indexFolders() {
		if i == 0 {
			continue
		}
		open := func(ctx context.Context) (rows, error) {
			db, err := sstable.Open(ctx, m.st, below(m.root, dir), sstable.Options{})
			return directoryRows{db}, indexError(err)
		}
		r, err := open(ctx)
		if _, damaged := errors.AsType[*format.CorruptError](err); damaged {
			continue
		}
		if err != nil {
			return err
		}
		sound := true
		if _, err := r.(directoryRows).Check(ctx, func(p sstable.Problem) { sound = sound && !p.Rows }); err != nil {
			return indexError(err)
		}
		if m.rows = r; sound && m.configure(ctx) == nil {
			m.reopen = open
			m.note("the index is taken from %s", dir)
			return nil
		}
		r.Close()
		m.rows = nil
	}
	first := true
	m.reopen = func(context.Context) (rows, error) { return salvaged{st: m.st, dir: below(m.root, indexDir)}, nil }
	m.rows = salvaged{st: m.st, dir: below(m.root, indexDir), report: func(p sstable.Problem) {
		if !first || !p.Rows {
			return
		}
		m.rescue = true
		m.lose("rows of the index: %v", p.Err)
	}}
	any := false
	for _, err := range m.rows.Scan(ctx, nil, nil) {
		if err != nil {
			return err
		}
		any = true
	}
	first = false
	if !any {
		if damage != nil {
			return damage
		}
		return fault(notABundle, m.name, -1, "no row of its index can be read")
	}
	if err := m.configure(ctx); err != nil {
		if _, damaged := errors.AsType[*format.CorruptError](err); !damaged {
			return err
		}
		return m.inferConfig(ctx)
	}
	return nil
}

// salvaged is what is left of an index. It is read from the beginning each time.
type salvaged struct {
	st     store.Store
	dir    string
	report func(sstable.Problem)
}

func (s salvaged) Close() error { return nil }

func (s salvaged) Get(ctx context.Context, key []byte) ([]byte, bool, error) {
	for row, err := range s.Scan(ctx, key, append(bytes.Clone(key), 0)) {
		return bytes.Clone(row.Value), err == nil, err
	}
	return nil, false, nil
}

func (s salvaged) Scan(ctx context.Context, from, to []byte) iter.Seq2[sstable.Row, error] {
	report := s.report
	if report == nil {
		report = func(sstable.Problem) {}
	}
	return func(yield func(sstable.Row, error) bool) {
		for row, err := range sstable.Salvage(ctx, s.st, s.dir, sstable.Options{}, report) {
			if err != nil {
				yield(row, indexError(err))
				return
			}
			if bytes.Compare(row.Key, from) < 0 {
				continue
			}
			if to != nil && bytes.Compare(row.Key, to) >= 0 || !yield(row, nil) {
				return
			}
		}
	}
}

// inferConfig makes the bundle's own row from the headers of its shards.
func (m *mending) inferConfig(ctx context.Context) error {
	objects, err := m.objects(ctx)
	if err != nil {
		return err
	}
	m.cfg = config{version: versionMagic}
	for _, o := range objects {
		if !o.isShard {
			continue
		}
		s, err := m.shard(ctx, o.shard)
		if _, damaged := err.(*format.CorruptError); damaged {
			continue
		}
		if err != nil {
			return err
		}
		m.cfg.blockSize, m.cfg.recordSize, m.cfg.compression = s.header.align, s.header.recordSize, s.header.compression
		m.cfg.shards = max(m.cfg.shards, o.shard+1, s.header.shards)
	}
	if m.cfg.compression == 0 {
		return fault(badConfig, m.indexName(), -1, "neither the bundle's own row nor the header of a shard can be read")
	}
	m.note("the bundle's own row is made from the headers of its shards")
	return nil
}

// judge reads the content of every file, to find out which rows are worth keeping.
func (m *mending) judge(ctx context.Context) error {
	ends, err := m.findEnds(ctx)
	if err != nil {
		return err
	}
	m.ends = ends
	wrong := map[uint64]bool{}
	why := map[int]string{}
	names := map[int]string{}
	try := func(only map[uint64]bool) error {
		r := &recordReader{mending: m}
		n := -1
		for row, err := range m.rows.Scan(ctx, fileTablePrefix, after(fileTablePrefix)) {
			if err != nil {
				return err
			}
			n++
			e := m.entryOf(row)
			at, hasContent := e.Ref.(stretch)
			if only != nil && (!hasContent || !only[at.shard]) {
				continue
			}
			delete(why, n)
			delete(m.bad, n)
			switch {
			case e.Fault != nil && e.Fault.Class != shardMissing:
				why[n] = e.Fault.Message
			case e.Kind == format.Dir || !hasContent:
				continue
			default:
				err := r.check(ctx, e, row)
				if broken, ok := errors.AsType[*storeError](err); ok {
					return broken.error
				}
				if err != nil {
					why[n] = err.Error()
					wrong[at.shard] = true
				} else if e.Size > 0 {
					m.good[at.shard] = true
				}
			}
			if why[n] != "" {
				m.bad[n] = true
				names[n] = e.Name
			}
		}
		return nil
	}
	if err := try(nil); err != nil {
		return err
	}
	// Where something is wrong, the header or the rows of records may be: what is
	// stored says itself where records are.
	for shard := range wrong {
		mended, err := m.mendShard(ctx, shard)
		if err != nil {
			return err
		}
		if !mended {
			delete(wrong, shard)
		}
	}
	if len(wrong) > 0 {
		if err := try(wrong); err != nil {
			return err
		}
	}
	order := make([]int, 0, len(why))
	for n := range why {
		order = append(order, n)
	}
	slices.Sort(order)
	for _, n := range order {
		m.lose("%s: %s", format.Escape(names[n]), why[n])
	}
	return nil
}

// mendShard makes a header for a shard that has lost its own, and finds its records
// where the rows of them are wrong. It reports whether there is something new.
func (m *mending) mendShard(ctx context.Context, i uint64) (bool, error) {
	s, err := m.shard(ctx, i)
	mended := false
	switch {
	case err != nil:
	case s.decode != nil:
		err = s.decode
	case !m.good[i] && m.unlike(s):
		err = fault(badShard, s.name, 0, "none of its files can be read")
	}
	if c, damaged := err.(*format.CorruptError); damaged {
		if c.Class != badShard && c.Class != badMethod && c.Class != shardShort {
			return false, nil
		}
		if s, err = m.assume(ctx, i); s == nil || err != nil {
			return false, err
		}
		m.headers[i] = true
		m.note("shard %d has a new header", i)
		mended = true
	} else if err != nil {
		return false, err
	}
	found, err := m.rescan(ctx, s)
	if err != nil {
		return false, err
	}
	if found != nil {
		m.mu.Lock()
		same := s.wrong == nil && slices.Equal(s.records, found)
		s.loaded, s.records, s.wrong = true, found, nil
		m.mu.Unlock()
		if !same {
			m.places[i] = found
			m.note("where the records of shard %d are was found by what is stored", i)
			mended = true
		}
	}
	return mended, nil
}

// unlike reports whether a shard's header is not what it would be with others of
// the bundle.
func (m *mending) unlike(s *shard) bool {
	return s.dataOff != int64(len(m.headerOf(s.index))) || s.header.compression != m.cfg.compression
}

// assume opens a shard as if it had the header that others have.
func (m *mending) assume(ctx context.Context, i uint64) (*shard, error) {
	s := &shard{index: i, name: m.shardName(i)}
	var err error
	if s.obj, err = m.st.Open(ctx, s.name); err != nil {
		return nil, err
	}
	info, err := s.obj.Info(ctx)
	if err != nil {
		return nil, errors.Join(err, s.obj.Close())
	}
	b := m.headerOf(i)
	s.size, s.dataOff = info.Size, int64(len(b))
	if s.header, err = parseHeader(b[prefixLen:][:binary.LittleEndian.Uint32(b[4:])]); err != nil || s.dataOff > s.size {
		return nil, s.obj.Close()
	}
	var known bool
	if s.codec, known = codecOf(s.header.compression); !known {
		return nil, s.obj.Close()
	}
	if old := m.shards[i]; old != nil {
		old.obj.Close()
	}
	m.shards[i] = s
	return s, nil
}

// headerOf is what a shard of the bundle begins with.
func (m *mending) headerOf(i uint64) []byte {
	w := writer{o: options{kind: m.cfg.compression, recordSize: int(min(m.cfg.recordSize, maxRecord)), align: int64(min(m.cfg.blockSize, maxAlign)), shards: int(min(m.cfg.shards, 1<<31-1))}}
	if m.cfg.rawPacked {
		w.o.align = 0
	}
	return w.header(i, nil)
}

// rescan finds the records of a shard by decoding one after the other. Rows of
// records that are all zeros are believed, since there is nothing to find. It
// returns nil where that does not lead to where the files end.
func (m *mending) rescan(ctx context.Context, s *shard) ([]place, error) {
	var length func([]byte) (int, int, error)
	switch s.header.compression {
	case zlib:
		length = codec.ZlibRecordLen
	case snappy:
		length = codec.SnappyRecordLen
	case zstd:
		length = codec.ZstdRecordLen
	default:
		return nil, nil
	}
	zeros := map[int64]int64{}
	from, to := shardKeys(s.index)
	last := place{at: 0}
	for row, err := range m.rows.Scan(ctx, from, to) {
		if err != nil {
			return nil, err
		}
		_, p, perr := parsePlace(row)
		if perr != nil {
			continue
		}
		if last.at < 0 {
			zeros[last.off] = p.off
		}
		last = p
	}
	end := m.ends[s.index]
	if last.at < 0 {
		zeros[last.off] = end
	}
	align := int64(max(s.header.align, 1))
	out := []place{}
	off, at := int64(0), int64(0)
	buf := []byte(nil)
	for off < end {
		if next, ok := zeros[off]; ok && next > off {
			out = append(out, place{off: off, at: -1})
			off = next
			continue
		}
		room := s.size - s.dataOff - at
		if room <= 0 {
			break
		}
		n := int64(0)
		for guess := min(room, mostStored(int64(max(m.cfg.recordSize, defaultRecord)))); ; guess = min(room, guess*4) {
			if int64(cap(buf)) < guess {
				buf = make([]byte, guess)
			}
			buf = buf[:guess]
			if err := s.obj.ReadAt(ctx, buf, s.dataOff+at); err != nil {
				return nil, err
			}
			size, stored, err := length(buf)
			if err == nil && size > 0 {
				n = int64(size)
				out = append(out, place{off: off, at: at})
				at += roundUp(int64(stored), align)
				break
			}
			if guess == room || guess > mostStored(maxRecord) {
				break
			}
		}
		if n == 0 {
			break // what comes behind it may be found by nobody
		}
		off += n
	}
	if off < end {
		return nil, nil
	}
	measure(out, s.size-s.dataOff)
	return out, nil
}

// recordReader reads contents, and remembers the record that it decoded last:
// files mostly come in the order in which they are stored.
type recordReader struct {
	*mending
	at    format.Extent
	unit  []byte
	fault error
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
	// Links have content too, as far as the bare format goes.
	plain := e
	plain.Kind, plain.Size, plain.Fault = format.File, int64(m.size), nil
	sum := uint32(0)
	err = r.read(ctx, plain, func(b []byte) { sum = crc32.Update(sum, castagnoli, b) })
	if err == nil && sum != m.crc {
		err = errors.New("its content is not what its checksum says")
	}
	return err
}

// storeError is an error of the store, which says nothing about the bundle.
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
		b, err := r.extent(ctx, x, take)
		if err != nil {
			return err
		}
		if b != nil {
			take(b)
		}
	}
	return nil
}

var nothing [64 << 10]byte

// extent returns the bytes of an extent, or hands them on itself.
func (r *recordReader) extent(ctx context.Context, x format.Extent, take func([]byte)) ([]byte, error) {
	switch x.Codec {
	case codec.Zero:
		for n := x.Size; n > 0; n -= int64(len(nothing)) {
			take(nothing[:min(n, int64(len(nothing)))])
		}
		return nil, nil
	case codec.Raw:
		s, err := r.shardNamed(x.Object)
		if err != nil {
			return nil, err
		}
		buf := make([]byte, min(x.Size, 256<<10))
		for at := int64(0); at < x.Size; at += int64(len(buf)) {
			buf = buf[:min(int64(len(buf)), x.Size-at)]
			if err := s.obj.ReadAt(ctx, buf, x.Off+at); err != nil {
				return nil, &storeError{err}
			}
			take(buf)
		}
		return nil, nil
	}
	if r.at.Object != x.Object || r.at.Off != x.Off || r.at.Len != x.Len || r.at.Unit != x.Unit {
		s, err := r.shardNamed(x.Object)
		if err != nil {
			return nil, err
		}
		stored := make([]byte, min(x.Len, s.size-x.Off))
		if err := s.obj.ReadAt(ctx, stored, x.Off); err != nil {
			return nil, &storeError{err}
		}
		z, _ := codec.Lookup(x.Codec)
		r.at = x
		r.unit, r.fault = z.Append(r.unit[:0], stored, int(x.Unit))
	}
	if r.fault != nil {
		return nil, fmt.Errorf("a record that it lies in cannot be decoded: %w", r.fault)
	}
	return r.unit[x.Skip : x.Skip+x.Size], nil
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

// build writes the mended bundle: all of it, or in place what changes.
func (m *mending) build(ctx context.Context, to store.Store, root string, objects []object, inPlace bool) error {
	ends, err := m.findEnds(ctx)
	if err != nil {
		return err
	}
	m.ends = ends
	there := map[uint64]bool{}
	for _, o := range objects {
		if !o.isShard {
			continue
		}
		if empty, err := m.emptied(ctx, o.shard); err != nil {
			return err
		} else if empty {
			continue
		}
		there[o.shard] = true
		switch {
		case m.headers[o.shard]:
			s, err := m.assume(ctx, o.shard)
			if err != nil {
				return err
			}
			if err := m.copyShard(ctx, to, below(root, shardName(o.shard)), s.name, m.headerOf(o.shard)); err != nil {
				return err
			}
		case !inPlace:
			if err := m.copyShard(ctx, to, below(root, shardName(o.shard)), o.name, nil); err != nil {
				return err
			}
		}
	}
	// A shard that is not there becomes one of nothing.
	for i := range min(max(m.cfg.shards, 1), maxShards) {
		if there[i] {
			continue
		}
		if err := m.put(ctx, to, below(root, shardName(i)), m.headerOf(i)); err != nil {
			return err
		}
	}
	w, err := sstable.NewWriter(to, below(root, indexDir), sstable.WriterOptions{})
	if err != nil {
		return err
	}
	if err := m.writeRows(ctx, w); err != nil {
		return errors.Join(err, w.Abort(ctx))
	}
	return w.Commit(ctx)
}

// emptied reports whether a shard is given up: it cannot be opened, with no header
// at all.
func (m *mending) emptied(ctx context.Context, i uint64) (bool, error) {
	if m.headers[i] || i >= max(m.cfg.shards, 1) {
		return false, nil
	}
	s, err := m.shard(ctx, i)
	if err == nil && s.decode != nil && m.ends[i] == 0 {
		err = s.decode // with content it may be somebody's who knows more
	}
	if c, damaged := err.(*format.CorruptError); damaged {
		return c.Class != shardMissing, nil
	}
	return false, err
}

func (m *mending) put(ctx context.Context, to store.Store, name string, b []byte) (err error) {
	w, err := store.Create(ctx, to, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Abort()) }()
	if _, err := w.Write(b); err != nil {
		return err
	}
	_, err = w.Commit(ctx)
	return err
}

// copyShard copies a shard, with another header if there is one.
func (m *mending) copyShard(ctx context.Context, to store.Store, name, from string, head []byte) (err error) {
	o, err := m.st.Open(ctx, from)
	if err != nil {
		return err
	}
	defer o.Close()
	info, err := o.Info(ctx)
	if err != nil {
		return err
	}
	w, err := store.Create(ctx, to, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Abort()) }()
	if _, err := w.Write(head); err != nil {
		return err
	}
	if err := store.WriteRange(ctx, w, o, int64(len(head)), info.Size-int64(len(head))); err != nil {
		return err
	}
	_, err = w.Commit(ctx)
	return err
}

// extraRow is one that the damaged index did not have.
type extraRow struct{ key, value []byte }

// writeRows writes the rows that are kept, and those that are new, in order.
func (m *mending) writeRows(ctx context.Context, w *sstable.Writer) error {
	if err := w.Add(ctx, configKey, m.cfg.append(nil)); err != nil {
		return err
	}
	extra, err := m.newRows(ctx)
	if err != nil {
		return err
	}
	n := -1
	for row, err := range m.rows.Scan(ctx, fileTablePrefix, after(fileTablePrefix)) {
		if err != nil {
			return err
		}
		if n++; m.bad[n] {
			continue
		}
		for len(extra) > 0 && bytes.Compare(extra[0].key, row.Key) < 0 {
			if err := w.Add(ctx, extra[0].key, extra[0].value); err != nil {
				return err
			}
			extra = extra[1:]
		}
		value := row.Value
		if f, err := parseMeta(value); m.sums && err == nil && f.size == 0 && f.crc != 0 {
			f.crc = 0
			value = f.append(nil)
		}
		if err := w.Add(ctx, row.Key, value); err != nil {
			return err
		}
	}
	for _, x := range extra {
		if err := w.Add(ctx, x.key, x.value); err != nil {
			return err
		}
	}
	shards, err := m.recordShards(ctx)
	if err != nil {
		return err
	}
	for _, i := range shards {
		if err := m.writeRecords(ctx, w, i); err != nil {
			return err
		}
	}
	return nil
}

// recordShards are the shards of which there are rows of records.
func (m *mending) recordShards(ctx context.Context) ([]uint64, error) {
	var all []uint64
	for i := range m.places {
		all = append(all, i)
	}
	prefix := appendVaruint(nil, recordTable)
	for row, err := range m.rows.Scan(ctx, prefix, after(prefix)) {
		if err != nil {
			return nil, err
		}
		if i, _, err := parsePlace(row); err == nil && (len(all) == 0 || all[len(all)-1] != i) {
			all = append(all, i)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// writeRecords writes the rows of a shard's records. A record that is not there any
// more is said to be zeros: no file lies in it, and it says where the one before it
// ends.
func (m *mending) writeRecords(ctx context.Context, w *sstable.Writer, i uint64) error {
	s, err := m.shard(ctx, i)
	if _, damaged := err.(*format.CorruptError); damaged {
		return nil // none of its files is left
	}
	if err != nil {
		return err
	}
	places, ok := m.places[i]
	if !ok {
		if places, err = m.placesOf(ctx, s); err != nil {
			if _, damaged := err.(*format.CorruptError); damaged {
				return nil
			}
			return err
		}
	}
	for _, p := range places {
		r := record{shard: i, offset: uint64(p.off), at: uint64(max(p.at, 0)), stored: p.at >= 0 && p.at < s.size-s.dataOff}
		r.allZeros = !r.stored
		if r.allZeros {
			r.at = 0
		}
		if err := w.Add(ctx, appendRecordKey(nil, i, uint64(p.off)), r.append(nil)); err != nil {
			return err
		}
	}
	end := m.ends[i]
	if len(places) == 0 || end <= places[len(places)-1].off {
		return nil
	}
	kept, err := m.keptEnd(ctx, i)
	if err == nil && kept < end {
		r := record{shard: i, offset: uint64(end), allZeros: true}
		return w.Add(ctx, appendRecordKey(nil, i, uint64(end)), r.append(nil))
	}
	return err
}

// keptEnd is where the last file of a shard that is kept ends.
func (m *mending) keptEnd(ctx context.Context, i uint64) (end int64, _ error) {
	n := -1
	for row, err := range m.rows.Scan(ctx, fileTablePrefix, after(fileTablePrefix)) {
		if err != nil {
			return 0, err
		}
		n++
		if f, err := parseMeta(row.Value); err == nil && f.shard == i && f.size > 0 && !m.bad[n] {
			end = max(end, int64(f.offset+f.size))
		}
	}
	return end, nil
}

// newRows are files in lost+found: where rows are lost, what no file covers.
func (m *mending) newRows(ctx context.Context) ([]extraRow, error) {
	if !m.rescue {
		return nil, nil
	}
	used, err := m.used(ctx)
	if err != nil {
		return nil, err
	}
	shards, err := m.recordShards(ctx)
	if err != nil {
		return nil, err
	}
	var out []extraRow
	r := &recordReader{mending: m}
	for _, i := range shards {
		s, err := m.shard(ctx, i)
		if err != nil {
			continue
		}
		places, err := m.placesOf(ctx, s)
		if err != nil || len(places) == 0 {
			continue
		}
		var files runs
		if used[i] != nil {
			files = *used[i]
		}
		end := max(places[len(places)-1].off, m.ends[i])
		for _, gap := range gapsOf(files, end) {
			e := format.Entry{Kind: format.File, Size: gap.to - gap.from, Ref: stretch{i, gap.from}}
			sum, zeros := uint32(0), true
			if err := r.read(ctx, e, func(b []byte) {
				sum = crc32.Update(sum, castagnoli, b)
				zeros = zeros && allZeros(b)
			}); err != nil || zeros {
				continue
			}
			f := meta{kind: regularFile, shard: i, offset: uint64(gap.from), size: uint64(gap.to - gap.from), crc: sum}
			out = append(out, extraRow{appendFileKey(nil, fmt.Sprintf("lost+found/%08d-%d", i, gap.from)), f.append(nil)})
		}
	}
	if len(out) > 0 {
		if _, ok, err := m.row(ctx, "lost+found"); err == nil && !ok {
			out = append(out, extraRow{appendFileKey(nil, "lost+found"), meta{kind: directory}.append(nil)})
		}
	}
	slices.SortFunc(out, func(a, b extraRow) int { return bytes.Compare(a.key, b.key) })
	return out, nil
}

// gapsOf are the runs up to end that are in none of files.
func gapsOf(files runs, end int64) (gaps runs) {
	at := int64(0)
	i := sort.Search(len(files), func(i int) bool { return files[i].to > 0 })
	for _, x := range files[i:] {
		if x.from > at {
			gaps = append(gaps, struct{ from, to int64 }{at, min(x.from, end)})
		}
		at = max(at, x.to)
	}
	if at < end {
		gaps = append(gaps, struct{ from, to int64 }{at, end})
	}
	return gaps
}
