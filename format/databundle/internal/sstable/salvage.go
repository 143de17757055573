package sstable

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"iter"
	"slices"

	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Salvage yields, in order, all rows of a directory that can be recovered without CURRENT and
// without a manifest. They come from all tables and logs that exist. If a key has several rows,
// the one with the highest sequence number is used. What cannot be read is reported.
//
// There may be more rows than the directory had: a table that was to be deleted may still have
// rows whose deletion was compacted away.
//
// A directory that cannot be listed is searched by number, until [guesses] consecutive numbers do
// not exist.
func Salvage(ctx context.Context, st store.Store, dir string, o Options, report func(Problem)) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		s := &salvage{st: st, dir: dir, report: report, at: map[*table]listed{}}
		s.mem.limit = o.maxLog()
		m := merge{ctx: ctx}
		defer m.close()
		files, err := s.find(ctx)
		if err == nil {
			err = s.survey(ctx, files, &m)
		}
		if err != nil {
			yield(Row{}, err)
			return
		}
		m.run(yield)
	}
}

// guesses is how many consecutive missing numbers are tried. LevelDB numbers all files of a
// directory from one counter, and deletes old ones.
const guesses = 64

type salvage struct {
	st     store.Store
	dir    string
	report func(Problem)
	mem    mem
	at     map[*table]listed
}

// find lists the directory, or tries the names that there may be.
func (s *salvage) find(ctx context.Context) ([]listed, error) {
	all, err := listFiles(ctx, s.st, s.dir)
	if !errors.Is(err, errors.ErrUnsupported) {
		return all, err
	}
	for num, misses := uint64(1), 0; misses < guesses; num++ {
		misses++
		for _, suffix := range [...]string{".sst", ".ldb", ".log"} {
			name := Join(s.dir, tableName(num, suffix))
			info, err := storekit.Briefly(s.st, name).Info(ctx)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			all = append(all, listed{name, num, suffix, info.Size})
			misses = 0
		}
	}
	return all, nil
}

// survey replays the logs, and finds out with which key each table begins, so that
// those that do not overlap are open one at a time.
func (s *salvage) survey(ctx context.Context, files []listed, m *merge) error {
	for _, f := range files {
		if f.suffix == ".log" {
			if err := s.replay(ctx, f); err != nil {
				return err
			}
		}
	}
	s.mem.sort()
	if len(s.mem.rows) > 0 {
		m.add(&stream{order: -1, it: &memIter{&s.mem, -1}})
	}
	slices.SortStableFunc(files, func(a, b listed) int { return cmp.Compare(b.num, a.num) })
	for i, f := range files {
		if f.suffix == ".log" {
			continue
		}
		t, err := s.begin(ctx, f)
		if err != nil {
			return err
		}
		if t != nil {
			s.at[t] = f
			m.add(&stream{order: i, tables: []*table{t}, open: s.iterate})
		}
	}
	return nil
}

// replay adds the readable rows of a log.
func (s *salvage) replay(ctx context.Context, f listed) error {
	w, err := openWindow(ctx, s.st, f.name, headLen)
	if err != nil {
		return s.problem(err)
	}
	defer w.close()
	return s.problem(s.mem.replay(ctx, &logReader{w: w, report: func(e *Error) error {
		if e.Class == Limit {
			return e
		}
		s.report(Problem{Err: e, Rows: true})
		return nil
	}}))
}

// problem reports an error of the directory, and returns one of the store.
func (s *salvage) problem(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	s.report(Problem{Err: e, Rows: true})
	return nil
}

// begin returns a table that begins with its first row, or nil if it has none. It reports what is
// wrong with the table only if it has none; otherwise that will be found again.
func (s *salvage) begin(ctx context.Context, f listed) (*table, error) {
	var found []Problem
	it, err := s.openTable(ctx, f, 0, func(p Problem) { found = append(found, p) })
	if it == nil || err != nil {
		return nil, s.problem(err)
	}
	defer it.close()
	ok, err := it.next(ctx)
	if err != nil {
		return nil, s.problem(err)
	}
	if ok {
		key := slices.Clone(it.row.key)
		return &table{num: f.num, size: f.size, smallest: key, largest: key}, nil
	}
	for _, p := range found {
		s.report(p)
	}
	return nil, nil
}

func (s *salvage) iterate(t *table, m *merge) (rowIter, error) {
	it, err := s.openTable(m.ctx, s.at[t], m.ahead, s.report)
	if err != nil {
		return nil, err
	}
	return it, nil
}

// openTable begins to read a table, by its index or, if that is damaged, without it.
func (s *salvage) openTable(ctx context.Context, f listed, ahead int, report func(Problem)) (*salvageIter, error) {
	obj, tail, size, err := kit.OpenPart(ctx, s.st, f.name, int(firstRead(f.size)), storekit.ReadTail)
	if err != nil {
		return nil, readError(f.name, -1, err)
	}
	w := &window{obj: obj, name: f.name, size: size, ahead: max(ahead, searchRun)}
	it := &salvageIter{w: w, report: report}
	o, err := openTail(ctx, obj, f.name, size, tail)
	if err == nil {
		it.blocks = &walk{w: w, index: blockIter{b: &o.index}}
		return it, nil
	}
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Class == Unsupported {
		obj.Close()
		return nil, err
	}
	report(Problem{Err: e})
	it.blocks = &chain{w: w, end: dataEnd(tail, size)}
	return it, nil
}

// dataEnd returns an upper bound for the end of a table's data blocks, as far as its last bytes
// show that. It is before index and metaindex if the footer has them next to each other at the
// end, where all known programs write them.
func dataEnd(tail []byte, size int64) int64 {
	if len(tail) < footerLen {
		return size
	}
	foot, f := parseFooter(tail[len(tail)-footerLen:], size)
	if f != nil {
		return size - footerLen
	}
	a, b := foot.meta, foot.index
	if a.off > b.off {
		a, b = b, a
	}
	if a.end() != b.off || b.end() != uint64(size-footerLen) {
		return size - footerLen
	}
	return int64(a.off)
}
