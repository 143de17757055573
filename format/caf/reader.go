package caf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// reader is an open archive. Its index is loaded when all of it is needed first. Until then, if
// only a few names of a large index are looked up, or all are listed, it is read as a stream.
type reader struct {
	obj    store.Object
	name   string
	size   int64
	off, n int64  // place of the index
	tail   []byte // the end of the object, from the first request
	limits format.Limits
	said   ends
	isSaid bool

	few    bool
	once   bool
	near   bool // its index can be read twice
	mu     sync.Mutex
	looked int // names that were looked up
	seen   *survey
	table  *table
	kit.LateIndex
	index   *kit.Index
	loadErr error
	doubted atomic.Bool
}

// searchedIndex is the smallest index that is searched with FewLookups.
const searchedIndex = 4 << 20

func open(ctx context.Context, st store.Store, name string, o format.OpenOptions) (format.Reader, error) {
	r, err := openReader(ctx, st, name, o)
	if err != nil {
		return nil, err
	}
	if r.near = st.Can().Near; r.n > searchedIndex && (o.FewLookups || o.Once) && (r.near || r.n <= r.limits.Index) {
		r.few, r.once = o.FewLookups, o.Once
		return r, nil
	}
	if _, err := r.load(ctx); err != nil {
		r.obj.Close()
		return nil, err
	}
	return r, nil
}

// openReader reads the footer, and what the first request returns with it.
func openReader(ctx context.Context, st store.Store, name string, o format.OpenOptions) (_ *reader, err error) {
	r := &reader{name: name, limits: o.Limits.OrDefault()}
	r.said, r.isSaid = endsOf(o.Param["ends"])
	if r.obj, r.tail, r.size, err = kit.OpenPart(ctx, st, name, kit.ProbeSize, storekit.ReadTail); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.obj.Close()
		}
	}()
	r.Load = func(ctx context.Context) (*kit.Index, error) {
		_, err := r.load(ctx)
		return r.index, err
	}
	var f *fault
	if r.off, r.n, f = parseFooter(r.tail, r.size); f != nil {
		return nil, r.unsealed(ctx, r.corrupt(f))
	}
	return r, nil
}

// corrupt converts a fault of the parser to an error with its offset in the object; other errors
// are unchanged.
func (r *reader) corrupt(err error) error { return corrupt(r.name, err) }

// tooLarge returns the error for an index of n bytes, which is not damage.
func tooLarge(name string, off, n, limit int64) error {
	p := (&fault{"index-size", off, fmt.Sprintf("%d bytes of index are more than the limit of %d", n, limit)}).problem(name)
	p.Code = format.Limit
	return &format.CorruptError{Format: "caf", Problem: p}
}

func corrupt(name string, err error) error {
	if f, ok := errors.AsType[*fault](err); ok {
		return &format.CorruptError{Format: "caf", Problem: f.problem(name)}
	}
	return err
}

// scanner returns a scanner over the index.
func (r *reader) scanner(ctx context.Context, onRow func(*row) error) *scanner {
	if inTail := int64(len(r.tail)) - footerLen - r.n; inTail >= 0 {
		return scanBytes(r.tail[inTail:len(r.tail)-footerLen], r.off, r.limits.Depth, onRow)
	}
	fetch := func(p []byte, off int64) error { return r.obj.ReadAt(ctx, p, off) }
	return scanRange(fetch, r.off, r.off+r.n, r.limits.Depth, onRow)
}

// scan reads an index, whose version must be known.
func (r *reader) scan(s *scanner) error {
	err := s.scan()
	if f := checkVersion(s.top.version, r.off); err == nil && f != nil && f.class == "version" {
		err = f
	}
	if s.top.unproven {
		r.doubted.Store(true)
	}
	return r.corrupt(err)
}

// load reads the whole index into memory, once.
func (r *reader) load(ctx context.Context) (*table, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.table != nil || r.loadErr != nil {
		return r.table, r.loadErr
	}
	if r.n > r.limits.Index {
		return nil, tooLarge(r.name, r.off, r.n, r.limits.Index)
	}
	t := &table{volume: r.name, dataLen: r.off, maxEnd: noEndYet}
	s := r.scanner(ctx, func(row *row) error {
		if len(t.rows) == enoughToGuess {
			t.guess(row.off-r.off, r.n)
		}
		return t.add(row)
	})
	if err := r.scan(s); err != nil {
		err = r.unsealed(ctx, err)
		if errors.Is(err, format.ErrCorrupt) || errors.Is(err, errors.ErrUnsupported) {
			r.loadErr = err // damage is permanent, but not a broken connection
		}
		return nil, err
	}
	t.top = s.top
	t.finish(r.said, r.isSaid)
	r.table, r.index = t, kit.NewIndex(t)
	return t, nil
}

// checkVersion compares versions as numbers: "10.0" is not "1.0" with a suffix.
func checkVersion(v string, off int64) *fault {
	major, minor, ok := strings.Cut(v, ".")
	if !ok || major != "1" || minor == "" || strings.Trim(minor, "0123456789") != "" {
		return &fault{"version", off, fmt.Sprintf("format_version %q is not 1.x", v)}
	}
	if strings.TrimLeft(minor, "0") != "" {
		return &fault{"unknown-minor-version", off, fmt.Sprintf("format_version %q is newer than 1.0", v)}
	}
	return nil
}

func (r *reader) Entries(ctx context.Context) iter.Seq2[format.Entry, error] {
	return func(yield func(format.Entry, error) bool) {
		r.mu.Lock()
		stream := (r.few && r.near || r.once) && r.table == nil
		r.mu.Unlock()
		if stream {
			ok, err := r.streams(ctx)
			if err != nil {
				yield(format.Entry{}, err)
				return
			}
			if ok {
				r.stream(ctx, yield)
				return
			}
		}
		r.LateIndex.Entries(ctx)(yield)
	}
}

func (r *reader) Lookup(ctx context.Context, name string) (format.Entry, error) {
	r.mu.Lock()
	r.looked++
	search := r.few && r.table == nil && (r.looked == 1 || r.near && (r.looked <= mostSearches || r.n > r.limits.Index))
	r.mu.Unlock()
	if search {
		if e, ok, err := r.search(ctx, name); err != nil || ok {
			return e, err
		}
	}
	return r.LateIndex.Lookup(ctx, name)
}

// mostSearches is how many names are searched on a disk before the index is loaded. Elsewhere it is one.
const mostSearches = 2

// search looks up a name in a single pass that keeps only its row. It returns false if the whole
// index is needed: if ends may be inclusive, or if the name is that of a directory.
func (r *reader) search(ctx context.Context, name string) (e format.Entry, found bool, _ error) {
	t := &table{}
	want, below, isDir := []byte(name), []byte(name+"/"), name == "."
	r.mu.Lock()
	seen := r.seen
	r.mu.Unlock()
	maxEnd, sorted := int64(noEndYet), seen != nil && seen.sorted
	err := r.scan(r.scanner(ctx, func(row *row) error {
		maxEnd = max(maxEnd, inData(span{row.start, row.end}, row.odd, r.off))
		if !bytes.Equal(row.name, want) {
			if isDir = isDir || bytes.HasPrefix(row.name, below); sorted && bytes.Compare(row.name, below) > 0 {
				maxEnd = seen.maxEnd
				return errEnough
			}
			return nil
		}
		*t = table{volume: r.name, dataLen: r.off, maxEnd: noEndYet} // the last row of a name counts
		return t.add(row)
	}))
	switch {
	case err != nil && err != errEnough:
		return e, false, err
	case len(t.rows) == 0 && !isDir:
		return e, false, kit.NoEntry(name)
	case len(t.rows) == 0 || !r.isSaid && couldBeInclusive(maxEnd, r.off):
		return e, false, nil
	}
	t.finish(r.said, true)
	return t.Entry(0), true, nil
}

// errEnough ends a scan.
var errEnough = errors.New("enough")

// A survey is what a pass over the index shows without keeping rows.
type survey struct {
	top     topLevel
	maxEnd  int64
	ordered bool // rows are in stored order
	sorted  bool // names are in byte order, so that none occurs twice
}

// surveyed iterates over the index without keeping it, once.
func (r *reader) surveyed(ctx context.Context) (*survey, error) {
	r.mu.Lock()
	v := r.seen
	r.mu.Unlock()
	if v != nil {
		return v, nil
	}
	v, last := &survey{maxEnd: noEndYet, ordered: true, sorted: true}, span{-1 << 63, 0}
	var name []byte
	s := r.scanner(ctx, func(row *row) error {
		now := span{row.start, row.end}
		v.maxEnd = max(v.maxEnd, inData(now, row.odd, r.off))
		v.ordered = v.ordered && (now.start > last.start || now.start == last.start && now.end >= last.end)
		if last = now; v.sorted {
			v.sorted = name == nil || bytes.Compare(name, row.name) < 0
			name = append(append(name[:0], row.name...), 0)[:len(row.name)] // never nil again
		}
		return nil
	})
	if err := r.scan(s); err != nil {
		return nil, err
	}
	v.top = s.top
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = v
	return v, nil
}

// streams reports whether rows can be yielded as they come. They cannot if they are not in stored
// order, if all of them are needed to decide about ends, or, unless the caller can cope with that,
// if a name occurs twice.
func (r *reader) streams(ctx context.Context) (ok bool, _ error) {
	v, err := r.surveyed(ctx)
	if err != nil || !v.ordered || !r.isSaid && couldBeInclusive(v.maxEnd, r.off) {
		return false, err
	}
	if r.once || v.sorted {
		return true, nil
	}
	var order kit.Rising
	err = r.scan(r.scanner(ctx, func(row *row) error {
		if order.Next(row.name); !order.Holds() {
			return errEnough
		}
		return nil
	}))
	if err != errEnough {
		return err == nil, err
	}
	var names kit.Names
	again := false
	err = r.scan(r.scanner(ctx, func(row *row) (err error) {
		if name := string(row.name); !again {
			if again, err = names.Has(name); err == nil {
				err = names.Add(name, format.File)
			}
		}
		return err
	}))
	return !again, err
}

// stream yields rows as they come.
func (r *reader) stream(ctx context.Context, yield func(format.Entry, error) bool) {
	t := &table{volume: r.name, dataLen: r.off, ends: r.said, rows: make([]record, 1)}
	n := 0
	s := r.scanner(ctx, func(row *row) error {
		if n++; n&0xfff == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t.only(row)
		e := t.Entry(0)
		x := row.object
		x.etag = bytes.Clone(x.etag)
		if x.tell(&e); !yield(e, nil) {
			return errEnough
		}
		return nil
	})
	if err := s.scan(); err != nil && err != errEnough {
		yield(format.Entry{}, r.corrupt(err))
	}
}

// only makes t a table with a single row. Slices that its entry shares with it are not reused.
func (t *table) only(row *row) {
	t.rows[0] = record{span: span{row.start, row.end}, nameLen: uint32(len(row.name)), odd: row.odd}
	if t.ends == inclusive {
		t.rows[0].exclude()
	}
	t.names, t.digests, t.extra = bytes.Clone(row.name), bytes.Clone(row.digest), nil
	if row.extra != nil {
		t.extra = map[uint32]string{0: string(row.extra)}
	}
}

// Can returns the optional functions of the reader.
func (r *reader) Can() format.Abilities {
	can := r.LateIndex.Can()
	can.Run, can.Carry = r.Run, r.carry
	can.Doubt = func() *format.Problem {
		if !r.doubted.Load() {
			return nil
		}
		p := doubt(r.name, r.off)
		return &p
	}
	return can
}

// Run returns the extent of e. An empty file has none.
func (r *reader) Run(e format.Entry) (format.Extent, bool) {
	return kit.Run(r.name, e)
}

func (r *reader) Extents(_ context.Context, e format.Entry, _, n int64) iter.Seq2[format.Extent, error] {
	return kit.RunExtents("caf", r.Run, e, n)
}

func (r *reader) Regions(ctx context.Context) iter.Seq2[format.Region, error] {
	return func(yield func(format.Region, error) bool) {
		t, err := r.load(ctx)
		if err != nil {
			yield(format.Region{}, err)
			return
		}
		for _, s := range t.shadowed {
			if t.rowFault(s) == nil && s.end > s.start &&
				!yield(format.Region{Object: r.name, Off: s.start, Len: s.end - s.start, Use: format.Trash, Label: "replaced " + t.nameOf(s)}, nil) {
				return
			}
		}
		if err := r.explain(ctx, t); err != nil {
			yield(format.Region{}, err)
			return
		}
		for _, x := range []struct {
			format.Use
			string
			kit.Ranges
		}{{format.IndexData, "frames of the log", t.frames}, {format.Trash, "replaced or deleted in the log", t.dead}} {
			for _, at := range x.All {
				if !yield(format.Region{Object: r.name, Off: at.From, Len: at.To - at.From, Use: x.Use, Label: x.string}, nil) {
					return
				}
			}
		}
		for _, gap := range t.gaps() {
			if !yield(format.Region{Object: r.name, Off: gap.From, Len: gap.To - gap.From, Use: format.Unknown, Label: "unreferenced"}, nil) {
				return
			}
		}
		_ = yield(format.Region{Object: r.name, Off: r.off, Len: r.n, Use: format.IndexData, Label: "index"}, nil) &&
			yield(format.Region{Object: r.name, Off: r.size - footerLen, Len: footerLen, Use: format.Header, Label: "footer"}, nil)
	}
}

func (r *reader) About(ctx context.Context) (format.About, error) {
	t, err := r.load(ctx)
	if err != nil {
		return format.About{}, err
	}
	a := format.About{Version: t.top.version, IndexBytes: r.n + footerLen, Volumes: []string{r.name}}
	a.Facts = append(a.Facts, [2]string{"ends", t.ends.String()})
	if t.top.writer != "" {
		a.Facts = append(a.Facts, [2]string{"writer", t.top.writer})
	}
	if n := t.top.chunk; n > 0 {
		said := strconv.Itoa(n)
		if t.top.chunks > 0 {
			said += fmt.Sprintf(" of %d", t.top.chunks)
		}
		a.Facts = append(a.Facts, [2]string{"chunk", said})
	}
	_, a.Shared = t.shared()
	if len(t.digests) > 0 {
		a.Facts = append(a.Facts, [2]string{"digests", "blake3"})
	}
	t.notes(func(p format.Problem) { a.Notes = append(a.Notes, p) })
	return a, nil
}

// carry returns the unknown members at the top.
func (r *reader) carry(ctx context.Context) (carry [][2]string, err error) {
	r.mu.Lock()
	t := r.table
	r.mu.Unlock()
	var top topLevel
	if t != nil {
		top = t.top
	} else if v, err := r.surveyed(ctx); err != nil {
		return nil, err
	} else {
		top = v.top
	}
	if len(top.extra) > 0 {
		carry = append(carry, [2]string{extraAttr, string(top.extra)})
	}
	return carry, nil
}

func (r *reader) Close() error { return r.obj.Close() }
