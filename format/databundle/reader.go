package databundle

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"sort"
	"strconv"
	"strings"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/databundle/internal/sstable"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/store"
)

func open(ctx context.Context, st store.Store, name string, o format.OpenOptions) (format.Reader, error) {
	a := bundleOf(name)
	a.spare = true
	return read(loadAs(ctx, st, a, o))
}

func read(a *bundle, err error) (format.Reader, error) {
	if err != nil {
		return nil, err
	}
	return &reader{a}, nil
}

// reader reads from the index, and keeps only what was requested.
type reader struct{ *bundle }

func (r *reader) Close() error { return r.close() }

// Entries yields the rows of files in the order of their keys, which is the order in which most
// writers store them.
func (r *reader) Entries(ctx context.Context) iter.Seq2[format.Entry, error] {
	return pipe.Told(func(tell func(format.Entry) error) error { return r.tell(ctx, fileTablePrefix, tell) })
}

// EntriesFrom yields entries from the one called name.
func (r *reader) EntriesFrom(ctx context.Context, name string) iter.Seq2[format.Entry, error] {
	return pipe.Told(func(tell func(format.Entry) error) error {
		row, ok, err := r.row(ctx, name)
		if err == nil && !ok {
			err = &fs.PathError{Op: "entries", Path: name, Err: fs.ErrNotExist}
		}
		if err != nil {
			return err
		}
		return r.tell(ctx, row.Key, tell)
	})
}

// tell yields the rows of files from a key on.
func (r *reader) tell(ctx context.Context, key []byte, tell func(format.Entry) error) error {
	last := ""
	for row, err := range r.rows.Scan(ctx, key, after(fileTablePrefix)) {
		if err != nil {
			return err
		}
		e := r.entryOf(row)
		// This avoids yielding a name twice if it has two keys.
		if isBundle(e) || e.Name == last && last != "" {
			continue
		}
		last = e.Name
		if err := tell(e); err != nil {
			return err
		}
	}
	return nil
}

// isBundle reports whether an entry is the bundle itself.
func isBundle(e format.Entry) bool { return e.Name == "" && e.Kind == format.Dir && e.Fault == nil }

// slashed determines whether directories begin with a slash, as some writers write them; see
// nameOf. It is called only if a name is not found by its own key.
func (a *bundle) slashed(ctx context.Context) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.odd != nil {
		return *a.odd, nil
	}
	_, odd, err := first(ctx, a.rows, append(bytes.Clone(fileTablePrefix), '/', 1), append(bytes.Clone(fileTablePrefix), '/'+1))
	if err == nil {
		a.odd = &odd
	}
	return odd, err
}

func (a *bundle) row(ctx context.Context, name string) (row sstable.Row, ok bool, err error) {
	dir, base := splitName(name)
	for _, front := range [...]string{"", "/"} {
		if front != "" {
			if odd, err := a.slashed(ctx); err != nil || !odd || dir == "" {
				return row, false, err
			}
		}
		for _, end := range [...]string{"", "\x00\x00"} {
			if got, okay := nameOf(front+dir+"/", base+end); !okay || got != name {
				continue
			}
			row.Key = append(appendBytes(bytes.Clone(fileTablePrefix), front+dir+"/"), base+end...)
			if row.Value, ok, err = a.rows.Get(ctx, row.Key); ok || err != nil {
				return row, ok, err
			}
		}
	}
	return row, false, nil
}

func (r *reader) Lookup(ctx context.Context, name string) (format.Entry, error) {
	if name == "." {
		return format.Entry{Name: ".", Kind: format.Dir}, nil
	}
	row, ok, err := r.row(ctx, name)
	if err != nil {
		return format.Entry{}, err
	}
	if ok && name != "" {
		return r.entryOf(row), nil
	}
	if naming.ValidPath(name) {
		if implied, err := r.impliedDir(ctx, name); implied || err != nil {
			return format.Entry{Name: name, Kind: format.Dir}, err
		}
	}
	return format.Entry{}, &fs.PathError{Op: "lookup", Path: name, Err: fs.ErrNotExist}
}

// treePrefixes returns the prefixes of the keys of rows in a directory, and of rows further below
// it.
func (a *bundle) treePrefixes(ctx context.Context, dir string) ([][]byte, error) {
	odd, err := a.slashed(ctx)
	if err != nil {
		return nil, err
	}
	// The directory of rows in the root is "/"; other directories may begin with anything.
	own := ""
	if dir != "." {
		own = dir + "/"
	}
	all := [][]byte{append(bytes.Clone(fileTablePrefix), escaped(own)...)}
	if odd {
		all = append(all, append(bytes.Clone(fileTablePrefix), escaped("/"+own)...))
	}
	return all, nil
}

// escaped returns s as the beginning of a string in a key.
func escaped(s string) []byte { return bytes.TrimSuffix(appendBytes(nil, s), []byte{0, 0}) }

// impliedDir reports whether there is a path below name.
func (r *reader) impliedDir(ctx context.Context, name string) (bool, error) {
	prefixes, err := r.treePrefixes(ctx, name)
	if err != nil {
		return false, err
	}
	for _, prefix := range prefixes {
		for row, err := range r.rows.Scan(ctx, prefix, after(prefix)) {
			if err != nil {
				return false, err
			}
			if e := r.entryOf(row); naming.ValidPath(e.Name) && strings.HasPrefix(e.Name, name+"/") {
				return true, nil
			}
		}
	}
	return false, nil
}

// ReadDir yields the rows of a directory, and then the directories in it without a row of their
// own. Names that are not paths are yielded where they are stored.
func (r *reader) ReadDir(ctx context.Context, dir string) iter.Seq2[format.Entry, error] {
	return pipe.Told(func(tell func(format.Entry) error) error { return r.readDir(ctx, dir, tell) })
}

func (r *reader) readDir(ctx context.Context, dir string, tell func(format.Entry) error) error {
	if dir != "." {
		e, err := r.Lookup(ctx, dir)
		if err == nil && e.Kind != format.Dir {
			// It is a file that also has names below it.
			implied, ierr := r.impliedDir(ctx, dir)
			if err = ierr; err == nil && !implied {
				err = fmt.Errorf("not a directory: %w", fs.ErrNotExist)
			}
		}
		if err != nil {
			return &fs.PathError{Op: "readdir", Path: dir, Err: err}
		}
	}
	prefixes, err := r.treePrefixes(ctx, dir)
	if err != nil {
		return err
	}
	own := prefixes
	if dir == "." {
		own = [][]byte{append(bytes.Clone(fileTablePrefix), '/')}
	}
	shown := map[string]bool{} // directories with a row
	for _, prefix := range own {
		prefix := append(bytes.Clone(prefix), 0, 0)
		for row, err := range r.rows.Scan(ctx, prefix, after(prefix)) {
			if err != nil {
				return err
			}
			e := r.entryOf(row)
			if isBundle(e) {
				continue
			}
			if e.Kind == format.Dir {
				shown[e.Name] = true
			}
			if err := tell(e); err != nil {
				return err
			}
		}
	}
	for _, prefix := range prefixes {
		if err := r.readSubdirs(ctx, dir, prefix, shown, tell); err != nil {
			return err
		}
	}
	return nil
}

// readSubdirs visits the directories below prefix without visiting their contents.
func (r *reader) readSubdirs(ctx context.Context, dir string, prefix []byte, shown map[string]bool, tell func(format.Entry) error) error {
	end := after(prefix)
	for at := prefix; at != nil && (end == nil || bytes.Compare(at, end) < 0); {
		row, ok, err := first(ctx, r.rows, at, end)
		if !ok || err != nil {
			return err
		}
		// behind returns prefix followed by rest.
		behind := func(rest ...byte) []byte { return append(bytes.Clone(prefix), rest...) }
		rest := row.Key[len(prefix):]
		i := bytes.IndexByte(rest, '/')
		nul := bytes.Index(rest, []byte{0, 0})
		switch {
		case nul == 0:
			// These are rows of the directory itself, which have been yielded.
			at = after(behind(0, 0))
			continue
		case i < 0 || nul >= 0 && nul < i:
			// The directory of this row has no slash at its end.
			if e := r.entryOf(row); e.Fault != nil {
				err = tell(e)
			}
			at = append(bytes.Clone(row.Key), 0)
		case i == 0 && dir == "." && len(prefix) == len(fileTablePrefix):
			// Directories that begin with a slash have the rows of the root, and those of the
			// other prefix.
			at = behind('/' + 1)
		case !naming.ValidPath(string(rest[:i])):
			err = tell(r.entryOf(row))
			at = append(bytes.Clone(row.Key), 0)
		default:
			at = behind(append(bytes.Clone(rest[:i]), '/'+1)...)
			sub := path.Join(dir, string(rest[:i]))
			if shown[sub] {
				continue
			}
			shown[sub] = true
			var own bool
			if _, own, err = r.row(ctx, sub); err == nil && !own {
				err = tell(format.Entry{Name: sub, Kind: format.Dir})
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) Can() format.Abilities {
	return format.Abilities{Run: r.Run, EntriesFrom: r.EntriesFrom, Doubt: r.doubts, Carry: r.carry}
}

// Run returns the extent of e, if it is a single uncompressed run.
func (r *reader) Run(e format.Entry) (format.Extent, bool) {
	at, ok := e.Ref.(stretch)
	if !ok || e.Fault != nil || e.Size == 0 || e.Kind != format.File {
		return format.Extent{}, false
	}
	r.mu.Lock()
	s := r.shards[at.shard]
	plain := s != nil && s.loaded && s.wrong == nil && len(s.records) == 0 && s.decode == nil && s.codec == codec.Raw
	r.mu.Unlock()
	if !plain || s.dataOff+at.off+e.Size > s.size {
		return format.Extent{}, false
	}
	return format.Extent{Size: e.Size, Object: s.name, Off: s.dataOff + at.off, Len: e.Size}, true
}

// Extents yields the parts of records that contain a file.
func (r *reader) Extents(ctx context.Context, e format.Entry, off, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		fail := func(x format.Extent, err error) {
			if c, ok := err.(*format.CorruptError); ok {
				err = of(c, e.Name)
			}
			yield(x, err)
		}
		at, ok := e.Ref.(stretch)
		switch {
		case e.Fault != nil:
			yield(format.Extent{}, e.Unreadable("databundle"))
			return
		case !e.Kind.HasContent() || e.Size == 0 || n <= 0 || off >= e.Size:
			return
		case !ok:
			yield(format.Extent{}, e.Unreadable("databundle"))
			return
		}
		s, err := r.shard(ctx, at.shard)
		if err == nil {
			err = s.decode
		}
		if err != nil {
			fail(format.Extent{}, err)
			return
		}
		places, err := r.placesOf(ctx, s)
		if err != nil {
			fail(format.Extent{}, err)
			return
		}
		if len(places) == 0 {
			x, err := s.linear(at.off, e.Size)
			if err != nil {
				fail(x, err)
				return
			}
			yield(x, nil)
			return
		}
		off = max(off, 0)
		from, to := at.off+off, at.off+min(off+n, e.Size)
		k := sort.Search(len(places), func(k int) bool { return places[k].off > from }) - 1
		for ; from < to; k++ {
			x, err := r.extentOf(ctx, s, places, k, at, e.Size)
			if err != nil {
				fail(x, err)
				return
			}
			if !yield(x, nil) {
				return
			}
			from = at.off + x.At + x.Size
		}
	}
}

// linear returns the extent of a file in a shard without compression.
func (s *shard) linear(off, n int64) (format.Extent, error) {
	if s.codec != codec.Raw {
		return format.Extent{Object: s.name}, fault(recordBounds, s.name, -1, "the shard is compressed, but the index has no row of its records")
	}
	x := format.Extent{Size: n, Object: s.name, Off: s.dataOff + off, Len: n}
	if x.Off > s.size-n {
		return x, s.short(x.Off, n)
	}
	return x, nil
}

// extentOf returns the part of a file in the record numbered k.
func (a *bundle) extentOf(ctx context.Context, s *shard, places []storedAt, k int, at stretch, size int64) (format.Extent, error) {
	p := places[k]
	end, known := int64(0), true
	if k+1 < len(places) {
		end = places[k+1].off
	} else {
		var err error
		if end, known, err = a.endOf(ctx, s, p); err != nil {
			return format.Extent{}, err
		}
		end = max(end, at.off+size) // the row says so
	}
	first, last := max(p.off, at.off), min(end, at.off+size)
	x := format.Extent{At: first - at.off, Size: last - first, Object: s.name, Codec: s.codec, Skip: first - p.off, Unit: end - p.off}
	switch {
	case last <= first:
		return x, fault(recordBounds, a.indexName(), -1, "shard %d has no record for offset %d", s.index, at.off)
	case x.Unit > maxRecord:
		return x, fault(recordLarge, a.indexName(), -1, "record %d of shard %d has %d bytes, more than %d", k, s.index, x.Unit, maxRecord)
	case p.at < 0:
		return format.Extent{At: x.At, Size: x.Size, Codec: codec.Zero}, nil
	}
	x.Off, x.Len = s.dataOff+p.at, p.len
	if p.at >= s.size-s.dataOff {
		return x, s.short(x.Off, max(x.Len, 1))
	}
	if s.codec == codec.Raw {
		x.Off, x.Len = x.Off+x.Skip, x.Size
		x.Skip, x.Unit = 0, 0
		if x.Off+x.Len > s.dataOff+p.at+p.len {
			return x, s.short(x.Off, x.Len)
		}
		return x, nil
	}
	if known {
		x.Len = min(x.Len, mostStored(x.Unit))
	} else {
		x.Unit = 0
	}
	return x, nil
}

// About returns the properties of the bundle.
func (r *reader) About(ctx context.Context) (format.About, error) {
	about := format.About{Version: r.cfg.version}
	objects, err := r.objects(ctx)
	if err != nil {
		return about, err
	}
	shards, copies := 0, 0
	for _, o := range objects {
		about.Volumes = append(about.Volumes, o.name)
		switch {
		case o.isShard:
			shards++
		case o.copy > 0:
			copies = max(copies, o.copy)
		default:
			about.IndexBytes += o.size
		}
	}
	if r.single {
		s, err := r.shard(ctx, 0)
		if err != nil {
			return about, err
		}
		about.IndexBytes = s.dataOff
	}
	fact := func(key, value string) { about.Facts = append(about.Facts, [2]string{key, value}) }
	said := strconv.Itoa(shards)
	if r.cfg.shards > 0 && r.cfg.shards != uint64(shards) {
		said += fmt.Sprintf(" of %d", r.cfg.shards)
	}
	fact("shards", said)
	fact("compression", r.cfg.compression.String())
	if r.cfg.compression != none {
		fact("record size", strconv.FormatUint(r.cfg.recordSize, 10))
	}
	fact("alignment", strconv.FormatUint(r.cfg.blockSize, 10))
	if r.cfg.rawPacked {
		fact("raw packed", "yes: files end to end")
	}
	where := "index/"
	if r.single {
		where = "in the header of the shard"
	}
	fact("index", where)
	if copies > 0 {
		fact("copies of the index", strconv.Itoa(copies))
	}
	about.Notes = r.notes()
	return about, nil
}

// carry returns the bundle's own user data.
func (r *reader) carry(ctx context.Context) (carry [][2]string, _ error) {
	row, ok, err := r.rows.Get(ctx, appendFileKey(nil, ""))
	if err != nil || !ok {
		return nil, err
	}
	if m, err := parseMeta(row); err == nil && m.hasUser {
		carry = append(carry, [2]string{carryRoot, m.user.url + "\n" + hex.EncodeToString(m.user.value)})
	}
	return carry, nil
}

// carryRoot is the key of the bundle's own user data.
const carryRoot = "user_data"

// notes returns what was unusual about the index but did not prevent reading it.
func (a *bundle) notes() (all []format.Problem) {
	d, ok := a.directory()
	if !ok {
		return nil
	}
	for _, n := range d.Notes() {
		c := fault(indexClass(n.Err), n.Err.Object, n.Err.Offset, "%s", n.Err.What)
		c.Severity = format.Warning
		all = append(all, c.Problem)
	}
	return all
}
