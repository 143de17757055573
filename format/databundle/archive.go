package databundle

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/databundle/internal/sstable"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// bundle is an open bundle. Shards are opened when they are first read.
type bundle struct {
	st   store.Store
	name string // as given
	root string // prefix of its objects
	// part is set if only a single shard is opened, by its own list.
	part *format.Part
	rows rows
	cfg  config
	// single means that the index is in the header of the only shard.
	single  bool
	twice   map[string]bool // its keys with several rows
	limits  format.Limits
	release func() // drops what was fetched in advance

	mu       sync.Mutex
	shards   map[uint64]*shard
	arranged map[uint64][]piece // of shards that a repair has arranged
	odd      *bool              // the result of slashed
	spare    bool               // a copy of the index may be used
}

// load opens the bundle called name: a folder, or the shard of a bundle with its index.
func load(ctx context.Context, st store.Store, name string, o format.OpenOptions) (*bundle, error) {
	return loadAs(ctx, st, bundleOf(name), o)
}

func bundleOf(name string) *bundle {
	root := strings.TrimSuffix(name, "/")
	if base := path.Base(name); base == shardName(0) {
		root = strings.TrimSuffix(strings.TrimSuffix(name, base), "/")
	}
	return &bundle{name: name, root: root}
}

// loadAs opens the bundle that a describes.
func loadAs(ctx context.Context, st store.Store, a *bundle, o format.OpenOptions) (_ *bundle, err error) {
	a.st, a.limits, a.shards = st, o.Limits.OrDefault(), map[uint64]*shard{}
	// For a bundle with one shard and few files, everything is requested at once; for other
	// bundles the beginning of it. holdall's indexes always have these names.
	a.release = kit.Fetch(ctx, st, append(sstable.First(a.indexDir()), store.Range{Name: a.shardName(a.firstShard()), Len: headerGuess}))
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	d, err := openDirectory(ctx, st, a.indexDir(), sstable.Options{MaxLog: min(a.limits.Index, 1<<30)})
	switch {
	case err == nil:
		a.rows = d
	case err == errNoIndex && a.part == nil:
		if err = a.openSingle(ctx); err != nil && a.inParts(ctx) {
			return nil, err // the index appears after its copies, so the bundle is incomplete
		}
	}
	if err == nil {
		err = a.checkSize(o.Limits.Index)
	}
	if err == nil {
		err = a.configure(ctx)
	}
	if a.spare && a.part == nil && !a.single {
		x := &spared{a: a}
		if x.first = a.rows; err != nil {
			if _, cerr := x.instead(ctx, err); cerr != nil {
				return nil, err
			}
			if x.first != nil {
				x.first.Close()
				x.first = nil
			}
			a.rows = x
			err = a.configure(ctx)
		}
		a.rows = x
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

// checkSize applies a limit that the user has set. The default limit is for indexes in memory,
// and this index is not loaded.
func (a *bundle) checkSize(limit int64) error {
	if d, ok := a.directory(); ok && limit > 0 && d.Size() > limit {
		return fault(indexLimit, a.indexName(), -1, "index of %d bytes: more than the limit of %d", d.Size(), limit)
	}
	return nil
}

// openSingle looks for an index in the header of shard 0.
func (a *bundle) openSingle(ctx context.Context) error {
	s, err := a.shard(ctx, 0)
	if errors.Is(err, fs.ErrNotExist) {
		there, err := a.anything(ctx)
		if err != nil {
			return err
		}
		if !there {
			return &fs.PathError{Op: "open", Path: a.name, Err: fs.ErrNotExist}
		}
		return fault(notABundle, a.name, -1, "found neither %s nor a shard with an inline index", currentName)
	}
	if err != nil {
		return err
	}
	switch {
	case s.header.atEOF:
		return fault(indexForeign, s.name, prefixLen, "the header places the index at the end of the shard: this layout is undefined")
	case !s.header.hasInline:
		return fault(notABundle, a.name, -1, "found no %s, and the shard has no inline index", currentName)
	case int64(len(s.header.inline)) > a.limits.Index:
		return fault(indexLimit, s.name, prefixLen, "index of %d bytes: more than the limit of %d", len(s.header.inline), a.limits.Index)
	}
	x, twice, err := parseInline(s.header.inline)
	if err != nil {
		return fault(indexCorrupt, s.name, prefixLen, "cannot decode the table in the header")
	}
	a.rows, a.single, a.twice = x, true, twice
	return nil
}

// inParts reports whether there are lists of parts that have not been merged.
func (a *bundle) inParts(ctx context.Context) bool {
	for _, err := range storekit.List(ctx, a.st, sstable.Join(a.root, partsDir)+"/") {
		return err == nil
	}
	return false
}

func (a *bundle) anything(ctx context.Context) (bool, error) {
	for _, err := range storekit.List(ctx, a.st, sstable.Join(a.root, "")) {
		if err == nil || !errors.Is(err, errors.ErrUnsupported) {
			return err == nil, err
		}
	}
	_, err := storekit.Briefly(a.st, a.name).Info(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (a *bundle) configure(ctx context.Context) error {
	value, ok, err := a.rows.Get(ctx, configKey)
	if err != nil {
		return err
	}
	if !ok {
		return fault(notABundle, a.indexName(), -1, "the index has no row for the bundle itself")
	}
	if a.cfg, err = parseConfig(value); err != nil {
		return fault(badConfig, a.indexName(), -1, "cannot decode the bundle's own row")
	}
	if a.cfg.version != versionMagic {
		return fault(badConfig, a.indexName(), -1, "version %q, expected %q", a.cfg.version, versionMagic)
	}
	return nil
}

// indexName returns the object to which faults of the index are assigned.
func (a *bundle) indexName() string {
	if a.single {
		return a.shardName(0)
	}
	return a.indexDir()
}

func (a *bundle) indexDir() string {
	if a.part != nil {
		return partDir(*a.part)
	}
	return sstable.Join(a.root, indexDir)
}

func (a *bundle) firstShard() uint64 {
	if a.part != nil {
		return uint64(a.part.Number)
	}
	return 0
}

func (a *bundle) shardName(i uint64) string { return sstable.Join(a.root, shardName(i)) }

func (a *bundle) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for _, s := range a.shards {
		if s.obj != nil {
			errs = append(errs, s.obj.Close())
		}
	}
	a.shards = map[uint64]*shard{}
	a.release()
	a.release = func() {}
	if a.rows != nil {
		errs = append(errs, a.rows.Close())
	}
	return errors.Join(errs...)
}

// shard is an open shard. Its records are loaded when content is read.
type shard struct {
	index   uint64
	name    string
	obj     store.Object
	size    int64
	dataOff int64
	header  header
	codec   string
	records []storedAt // nil if not loaded
	loaded  bool
	wrong   *format.CorruptError // why its records cannot be read
	decode  error                // why its content cannot be decoded
	last    storedAt             // the record whose end is in end
	end     int64
}

// storedAt is where a record is stored, from the rows of the index, sorted by uncompressed offset.
type storedAt struct {
	off int64 // offset of its first byte in the shard's stream
	at  int64 // where it is stored, relative to dataOff; -1 if it is all zeros
	len int64 // size up to the next stored record or the end of the shard
}

func (a *bundle) shard(ctx context.Context, i uint64) (*shard, error) {
	a.mu.Lock()
	s := a.shards[i]
	a.mu.Unlock()
	if s != nil {
		return s, nil
	}
	s, err := a.openShard(ctx, i)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if other := a.shards[i]; other != nil {
		return other, s.obj.Close()
	}
	a.shards[i] = s
	return s, nil
}

func (a *bundle) openShard(ctx context.Context, i uint64) (_ *shard, err error) {
	s := &shard{index: i, name: a.shardName(i)}
	var head []byte
	s.obj, head, s.size, err = kit.OpenPart(ctx, a.st, s.name, headerGuess, storekit.ReadHead)
	if err != nil {
		return nil, missingShard(s.name, err)
	}
	defer func() {
		if err != nil {
			s.obj.Close()
		}
	}()
	length, dataOff, ok := parsePrefix(head)
	switch {
	case !ok && len(head) < prefixLen && bytes.HasPrefix([]byte(shardMagic), head[:min(len(head), 4)]):
		return nil, fault(shardShort, s.name, 0, "%d bytes, shorter than the header", len(head))
	case !ok:
		return nil, fault(badShard, s.name, 0, "begins with %x, expected %x", head[:min(len(head), 4)], shardMagic)
	case length > maxHeader || prefixLen+length > dataOff:
		return nil, fault(badShard, s.name, 4, "header of %d bytes, but data from %d on", length, dataOff)
	case dataOff > s.size:
		return nil, fault(shardShort, s.name, 8, "data from %d on, but the shard ends at %d", dataOff, s.size)
	}
	s.dataOff = dataOff
	if prefixLen+length > int64(len(head)) {
		head = make([]byte, prefixLen+length)
		if err := s.obj.ReadAt(ctx, head, 0); err != nil {
			return nil, err
		}
	}
	if s.header, err = parseHeader(head[prefixLen : prefixLen+length]); err != nil {
		return nil, fault(badShard, s.name, prefixLen, "cannot decode the header")
	}
	if s.header.shard != i {
		return nil, fault(badShard, s.name, prefixLen, "the header is that of shard %d", s.header.shard)
	}
	a.rearrange(s)
	method, ok := methods[s.header.compression]
	if s.codec = method.codec; !ok {
		s.decode = fault(badMethod, s.name, prefixLen, "unknown compression of records: %v", s.header.compression)
	}
	return s, nil
}

// missingShard returns an error that a shard is missing, if that is the reason of err.
func missingShard(name string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	c := fault(shardMissing, name, -1, "there is no such shard")
	c.Err = err
	return c
}

// placesOf returns the records of a shard, or none if it is not compressed.
func (a *bundle) placesOf(ctx context.Context, s *shard) ([]storedAt, error) {
	a.mu.Lock()
	loaded, records, wrong := s.loaded, s.records, s.wrong
	a.mu.Unlock()
	if !loaded {
		var err error
		if records, wrong, err = a.loadPlaces(ctx, s); err != nil {
			return nil, err
		}
		a.mu.Lock()
		s.loaded, s.records, s.wrong = true, records, wrong
		a.mu.Unlock()
	}
	if wrong != nil {
		return records, wrong
	}
	return records, nil
}

// shardKeys returns the range of the keys of a shard's records.
func shardKeys(i uint64) (from, to []byte) {
	from = appendVaruint(appendVaruint(nil, recordTable), i)
	return from, after(from)
}

// parsePlace parses a row of a shard's records. Its value must agree with its key.
func parsePlace(row sstable.Row) (shard uint64, p storedAt, err error) {
	_, rest, err := varuint(row.Key)
	if err != nil {
		return 0, p, err
	}
	shard, rest, err = varuint(rest)
	if err != nil {
		return 0, p, err
	}
	off, rest, err := varuint(rest)
	if err != nil || len(rest) > 0 || off > math.MaxInt64 {
		return shard, p, errKey
	}
	r, err := parseRecord(row.Value)
	if err != nil {
		return shard, p, err
	}
	if r.shard != 0 && r.shard != shard || r.offset != 0 && r.offset != off {
		return shard, p, fmt.Errorf("the value is for shard %d, offset %d", r.shard, r.offset)
	}
	p = storedAt{off: int64(off), at: int64(r.at)}
	if r.allZeros {
		p.at = -1
	}
	return shard, p, nil
}

func (a *bundle) loadPlaces(ctx context.Context, s *shard) ([]storedAt, *format.CorruptError, error) {
	from, to := shardKeys(s.index)
	records := []storedAt{}
	for row, err := range a.rows.Scan(ctx, from, to) {
		if err != nil {
			return nil, nil, err
		}
		_, p, err := parsePlace(row)
		if err != nil {
			// Without this row, the ends of its neighbours are not known.
			return nil, fault(recordBounds, a.indexName(), -1, "row %s of the records of shard %d: %v", hex.EncodeToString(row.Key), s.index, err), nil
		}
		if int64(len(records)) >= a.limits.Index/24 {
			return nil, fault(indexLimit, a.indexName(), -1, "shard %d has more than %d records", s.index, len(records)), nil
		}
		records = append(records, p)
	}
	if len(records) > 0 && records[0].off != 0 {
		return nil, fault(recordBounds, a.indexName(), -1, "the first record of shard %d begins at %d, not at 0", s.index, records[0].off), nil
	}
	measure(records, s.size-s.dataOff)
	return slices.Clip(records), nil, nil
}

// measure determines the stored sizes of records: up to where the next record is stored. In most
// bundles that is the next one in order, but writers may store them in any order.
func measure(records []storedAt, end int64) {
	next, ordered := end, true
	for i := len(records) - 1; i >= 0; i-- {
		if p := &records[i]; p.at >= 0 {
			ordered = ordered && (next == end || p.at < next)
			p.len, next = next-p.at, p.at
		}
	}
	if ordered {
		return
	}
	var all []int64
	for _, p := range records {
		if p.at >= 0 {
			all = append(all, p.at)
		}
	}
	slices.Sort(all)
	for i := range records {
		if p := &records[i]; p.at >= 0 {
			p.len = end - p.at
			if k := sort.Search(len(all), func(k int) bool { return all[k] > p.at }); k < len(all) {
				p.len = all[k] - p.at
			}
		}
	}
}

// endOf returns the end of the stream of a shard whose last record is p. No row contains it, and
// files may end before it, because the last file may have been replaced by one in another shard.
// The end follows from the length of the record, which is not known if the record is damaged.
func (a *bundle) endOf(ctx context.Context, s *shard, p storedAt) (end int64, known bool, err error) {
	length := methods[s.header.compression].length
	if p.at < 0 || length == nil {
		return p.off + p.len, false, nil
	}
	a.mu.Lock()
	last, end := s.last, s.end
	a.mu.Unlock()
	if last != p {
		scan := recordScan{s: s, length: length, usual: mostStored(int64(max(a.cfg.recordSize, defaultRecord)))}
		size, _, err := scan.measure(ctx, p.at)
		if err != nil {
			return 0, false, err
		}
		end = p.off + size
		a.mu.Lock()
		s.last, s.end = p, end
		a.mu.Unlock()
	}
	return end, end > p.off, nil
}

var fileTablePrefix = appendVaruint(nil, fileTable)

// stretch is where an entry's content is in a shard's stream.
type stretch struct {
	shard uint64
	off   int64
}

// entryOf converts a row to an entry. If the row cannot be parsed, the entry has a fault.
func (a *bundle) entryOf(row sstable.Row) format.Entry {
	dir, base, err := cutFileKey(row.Key[len(fileTablePrefix):])
	if err != nil {
		return a.oddEntry(hex.EncodeToString(row.Key), fmt.Sprintf("row %x: %v", row.Key, err))
	}
	name, ok := nameOf(dir, base)
	if !ok {
		return a.oddEntry(name, fmt.Sprintf("the directory %q does not end with a slash", dir))
	}
	if strings.Contains(base, "/") {
		p := of(fault(slashInName, a.indexName(), -1, "the file name %q contains a slash", base), name).Problem
		return format.Entry{Name: name, Fault: &p}
	}
	m, err := parseMeta(row.Value)
	if err != nil {
		return a.oddEntry(name, err.Error())
	}
	e := format.Entry{Name: name, Kind: format.Dir}
	if m.kind == regularFile {
		e.Kind, e.Size = format.File, int64(m.size)
		e.Ref = stretch{m.shard, int64(m.offset)}
		e.Digest = format.Digest{Algo: "crc32c", Sum: string(binary.BigEndian.AppendUint32(nil, m.crc))}
		if a.cfg.shards > 0 && m.shard >= a.cfg.shards && m.size > 0 {
			p := of(fault(shardMissing, a.shardName(m.shard), -1, "in shard %d of only %d", m.shard, a.cfg.shards), name).Problem
			e.Fault = &p
		}
	}
	if m.hasUser {
		describe(&e, m.user)
	}
	if a.twice[string(row.Key)] {
		// This index has no checksum. A wrong bit may have made another name this one.
		p := of(fault(doubleName, a.indexName(), -1, "the index has several rows of this name"), name).Problem
		e.Fault = &p
	}
	return e
}

// Attributes of entries whose user data holdall did not write.
const (
	userTypeAttr  = "user_data_type"
	userValueAttr = "user_data"
)

// describe sets the attributes of e from user data that holdall wrote and that can be
// represented. Other user data is kept as a whole.
func describe(e *format.Entry, u userData) {
	if u.url == attributesURL {
		x, err := parseAttributes(u.value)
		if err == nil && bytes.Equal(x.append(nil), u.value) {
			e.Mode, e.HasMode, e.ModTime = x.mode, x.hasMode, x.time
			e.Owner, e.Group = x.owner, x.group
			if e.Owner == "" && x.hasUID {
				e.Owner = strconv.FormatUint(x.uid, 10)
			}
			if e.Group == "" && x.hasGID {
				e.Group = strconv.FormatUint(x.gid, 10)
			}
			switch {
			case e.Kind == format.File && x.hardLink != "":
				e.Kind, e.Link, e.Size, e.Digest, e.Fault = format.HardLink, x.hardLink, 0, format.Digest{}, nil
			case e.Kind == format.File && x.symlink != "":
				e.Kind, e.Link = format.Symlink, x.symlink
				e.Size, e.Digest, e.Fault = 0, format.Digest{}, nil
			}
			return
		}
	}
	e.Attr = map[string]string{userTypeAttr: u.url, userValueAttr: hex.EncodeToString(u.value)}
}

func (a *bundle) oddEntry(name, why string) format.Entry {
	p := of(fault(badMetadata, a.indexName(), -1, "%s", why), name).Problem
	return format.Entry{Name: name, Fault: &p}
}

// short returns the error for a range beyond the end of a shard.
func (s *shard) short(off, n int64) *format.CorruptError {
	c := fault(shardShort, s.name, off, "ends at %d, but %d bytes are expected from %d on", s.size, n, off)
	c.Err = io.ErrUnexpectedEOF
	return c
}
