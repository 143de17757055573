package sstable

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"sort"
	"strings"
	"sync/atomic"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Options of reading. The zero value is for use.
type Options struct {
	BlockCache int64 // bytes of decoded blocks that are kept; 0 is 4 MiB
	IndexCache int64 // bytes of open tables that are kept; 0 is 16 MiB
	MaxLog     int64 // memory for rows that are only in logs; 0 is 256 MiB
}

const maxMaxLog = 1 << 31 // places in records are u32

func (o Options) maxLog() int64 { return min(cmp.Or(o.MaxLog, 256<<20), maxMaxLog) }

type Row struct{ Key, Value []byte }

// A DB is an open directory. Its methods may be called in parallel.
type DB struct {
	st     store.Store
	dir    string
	v      *version
	groups []group
	tables tables
	blocks blockCache
	files  []File // except tables
	mem    mem
	notes  []Problem
	suffix atomic.Int32 // the index of the suffix that the last table was found with
}

func Join(dir, name string) string {
	if dir == "" {
		return name
	}
	return strings.TrimSuffix(dir, "/") + "/" + name
}

// headLen is how many bytes of CURRENT, a manifest or a log are requested before its size is
// known.
const headLen = 64 << 10

// First returns the requests that Open and the first use of a table make for a directory that
// Writer wrote, where the names are always the same. In other directories these requests may find
// nothing.
func First(dir string) []store.Range {
	return []store.Range{
		{Name: Join(dir, currentName), Len: headLen},
		{Name: Join(dir, manifestName(manifestNumber)), Len: headLen},
		{Name: Join(dir, logName(logNumber)), Len: headLen},
		{Name: Join(dir, tableName(firstTable, tableSuffixes[0])), Len: wholeLen, Tail: true},
	}
}

// Open reads CURRENT, the manifest and the logs of a directory. Tables are opened when they are
// needed, so missing or damaged ones are found later.
func Open(ctx context.Context, st store.Store, dir string, o Options) (*DB, error) {
	db := &DB{st: st, dir: dir, mem: mem{limit: o.maxLog()}}
	db.tables.limit, db.blocks.limit = cmp.Or(o.IndexCache, 16<<20), cmp.Or(o.BlockCache, 4<<20)
	err := db.readManifest(ctx)
	if err == nil {
		err = db.readLogs(ctx)
	}
	return db, err
}

// Close closes the tables. Reads in progress are completed.
func (db *DB) Close() error {
	db.tables.close()
	return nil
}

func (db *DB) readManifest(ctx context.Context) error {
	w, err := openWindow(ctx, db.st, Join(db.dir, currentName), headLen)
	if err != nil {
		return err
	}
	defer w.close()
	current, err := w.at(ctx, 0, headLen)
	if err != nil {
		return err
	}
	name, f := parseCurrent(current)
	if f != nil {
		return f.at(w.name, 0)
	}
	m, err := openWindow(ctx, db.st, Join(db.dir, name), headLen)
	if err != nil {
		return err
	}
	defer m.close()
	if db.v, err = readVersion(ctx, m); err != nil {
		return err
	}
	db.v.num, _ = parseNumber(strings.TrimPrefix(name, "MANIFEST-"))
	db.files = []File{{w.name, w.size}, {m.name, m.size}}
	if db.groups, f = db.v.groups(); f != nil {
		return f.at(m.name, -1)
	}
	for _, g := range db.groups {
		if g.overlaps && g.level > 0 {
			db.note(corruptf(-1, "manifest: tables of level %d overlap", g.level).at(m.name, -1))
		}
	}
	return nil
}

// readLogs replays what is in no table yet: the previous log, and all logs from the current one
// on. The manifest does not name later logs, so the directory is listed to find them. If it
// cannot be listed, or if Writer wrote it, there are none.
func (db *DB) readLogs(ctx context.Context) error {
	nums := []uint64{db.v.prevLog, db.v.logNum} // 0 is none
	if !db.ours() {
		listed, err := listFiles(ctx, db.st, db.dir)
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
		for _, l := range listed {
			if l.suffix == ".log" && l.num >= db.v.logNum {
				nums = append(nums, l.num)
			}
		}
	}
	slices.Sort(nums)
	for _, num := range slices.Compact(nums) {
		if num == 0 {
			continue
		}
		if err := db.readLog(ctx, num); err != nil {
			return err
		}
	}
	db.mem.sort()
	return nil
}

// ours reports whether the manifest can only be Writer's.
func (db *DB) ours() bool {
	return db.v.num == manifestNumber && db.v.edits == 1 && db.v.logNum == logNumber &&
		len(db.groups) == 1 && db.groups[0].level == tableLevel
}

func (db *DB) readLog(ctx context.Context, num uint64) error {
	name := Join(db.dir, logName(num))
	w, err := openWindow(ctx, db.st, name, headLen)
	if errors.Is(err, fs.ErrNotExist) {
		// An empty log may never have been created.
		db.note(faultf(Missing, -1, "log: the manifest names it; it may have been empty").at(name, -1))
		return nil
	}
	if err != nil {
		return err
	}
	defer w.close()
	if w.size > db.mem.limit {
		return faultf(Limit, -1, "log: %d bytes, expected at most %d", w.size, db.mem.limit).at(name, -1)
	}
	db.files = append(db.files, File{name, w.size})
	db.mem.records = slices.Grow(db.mem.records, int(w.size))
	return db.mem.replay(ctx, &logReader{w: w, report: func(e *Error) error {
		if e.Class != Torn {
			return e
		}
		db.note(e)
		return nil
	}})
}

func (db *DB) note(e *Error) { db.notes = append(db.notes, Problem{Err: e}) }

// Notes returns what was unusual but did not prevent opening the directory: an incomplete log, a
// missing log, tables that overlap.
func (db *DB) Notes() []Problem { return slices.Clone(db.notes) }

// listed is a log or table of a directory.
type listed struct {
	name   string // in the store
	num    uint64
	suffix string
	size   int64
}

// listFiles lists logs and tables by number. Where the store cannot list, the error
// wraps errors.ErrUnsupported.
func listFiles(ctx context.Context, st store.Store, dir string) ([]listed, error) {
	prefix := Join(dir, "")
	var all []listed
	for info, err := range storekit.List(ctx, st, prefix) {
		if err != nil {
			return nil, err
		}
		if num, suffix, ok := parseName(strings.TrimPrefix(info.Name, prefix)); ok {
			all = append(all, listed{info.Name, num, suffix, info.Size})
		}
	}
	slices.SortStableFunc(all, func(a, b listed) int { return cmp.Compare(a.num, b.num) })
	return all, nil
}

// Get returns a copy of the value of a key, and whether the key is there.
func (db *DB) Get(ctx context.Context, key []byte) (value []byte, ok bool, err error) {
	h, err := db.find(ctx, key)
	if err != nil || !h.ok || byte(h.trailer) == kindDeleted {
		return nil, false, err
	}
	return append([]byte{}, h.val...), true, nil
}

// find searches the logs, then one level after another. Higher levels are newer.
func (db *DB) find(ctx context.Context, key []byte) (hit, error) {
	if i := db.mem.search(key); i < len(db.mem.rows) && bytes.Equal(db.mem.key(i), key) {
		return hit{true, db.mem.rows[i].trailer, db.mem.val(i)}, nil
	}
	for i := range db.groups {
		h, err := db.findIn(ctx, &db.groups[i], key)
		if h.ok || err != nil {
			return h, err
		}
	}
	return hit{}, nil
}

func (db *DB) findIn(ctx context.Context, g *group, key []byte) (newest hit, err error) {
	candidates := g.tables
	if !g.overlaps {
		// Where the largest key of a table is the smallest of the next, the newer
		// row is in the first.
		i := sort.Search(len(candidates), func(i int) bool { return bytes.Compare(userKey(candidates[i].largest), key) >= 0 })
		candidates = candidates[i:min(i+1, len(candidates))]
	}
	for _, t := range candidates {
		if bytes.Compare(userKey(t.smallest), key) > 0 || bytes.Compare(userKey(t.largest), key) < 0 {
			continue
		}
		o, err := db.acquire(ctx, t)
		if err != nil {
			return hit{}, err
		}
		h, err := o.find(ctx, &db.blocks, key)
		db.tables.release(o)
		if err != nil {
			return hit{}, err
		}
		if h.ok && (!newest.ok || h.trailer>>8 > newest.trailer>>8) {
			newest = h
		}
	}
	return newest, nil
}

// A File is one of the files of the directory.
type File struct {
	Name string // in the store
	Size int64
}

// Files returns the files that are in use and exist: manifest, logs and tables. It makes a
// request to the store for each table.
func (db *DB) Files(ctx context.Context) ([]File, error) {
	files := slices.Clone(db.files)
	for _, g := range db.groups {
		for _, t := range g.tables {
			name, obj, _, size, err := db.object(ctx, t.num, 1)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			obj.Close()
			files = append(files, File{name, size})
		}
	}
	return files, nil
}

// Size returns the total size of all files of the directory, with the sizes of tables from the
// manifest.
func (db *DB) Size() (n int64) {
	for _, g := range db.groups {
		for _, t := range g.tables {
			n += t.size
		}
	}
	for _, f := range db.files {
		n += f.Size
	}
	return n
}
