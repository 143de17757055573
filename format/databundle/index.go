package databundle

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"path"
	"slices"
	"sort"

	"github.com/holdall/holdall/format/databundle/internal/sstable"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
)

// rows is the index: a sorted map from keys to values.
type rows interface {
	Get(ctx context.Context, key []byte) (value []byte, ok bool, err error)
	// Scan yields the rows from the key from to before the key to; nil means the end. A row is
	// valid until the next one.
	Scan(ctx context.Context, from, to []byte) iter.Seq2[sstable.Row, error]
	Close() error
}

// first returns the first row from the key from to before the key to.
func first(ctx context.Context, x rows, from, to []byte) (sstable.Row, bool, error) {
	for row, err := range x.Scan(ctx, from, to) {
		return row, err == nil, err
	}
	return sstable.Row{}, false, nil
}

// directoryRows is an index in a directory of its own.
type directoryRows struct{ *sstable.DB }

func (d directoryRows) Get(ctx context.Context, key []byte) ([]byte, bool, error) {
	v, ok, err := d.DB.Get(ctx, key)
	return v, ok, indexError(err)
}

func (d directoryRows) Scan(ctx context.Context, from, to []byte) iter.Seq2[sstable.Row, error] {
	return told(d.DB.Scan(ctx, from, to), nil)
}

// told yields the rows of a directory, changed by do if that is not nil. Faults of the directory
// are converted to those of the format.
func told(rows iter.Seq2[sstable.Row, error], do func(*sstable.Row) error) iter.Seq2[sstable.Row, error] {
	return func(yield func(sstable.Row, error) bool) {
		for row, err := range rows {
			if err = indexError(err); err == nil && do != nil {
				err = do(&row)
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// together merges two sorted sequences of rows. If both have a row of the same key, that of
// others is omitted.
func together(rows, others iter.Seq2[sstable.Row, error]) iter.Seq2[sstable.Row, error] {
	return func(yield func(sstable.Row, error) bool) {
		next, stop := iter.Pull2(others)
		defer stop()
		other, oerr, more := next()
		for row, err := range rows {
			for ; err == nil && more && (oerr != nil || bytes.Compare(other.Key, row.Key) <= 0); other, oerr, more = next() {
				if oerr == nil && bytes.Equal(other.Key, row.Key) {
					continue
				}
				if !yield(other, oerr) || oerr != nil {
					return
				}
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
		for ; more; other, oerr, more = next() {
			if !yield(other, oerr) || oerr != nil {
				return
			}
		}
	}
}

// indexError converts an error of the index to one of the format.
func indexError(err error) error {
	e, ok := errors.AsType[*sstable.Error](err)
	if !ok {
		return err
	}
	c := fault(indexClass(e), e.Object, e.Offset, "%s", e.What)
	c.Err = e.Err
	return c
}

func indexClass(e *sstable.Error) string {
	switch e.Class {
	case sstable.Unsupported:
		return indexForeign
	case sstable.Limit:
		return indexLimit
	case sstable.Torn:
		return indexTorn
	}
	return indexCorrupt
}

var errNoIndex = errors.New("there is no " + currentName)

// openDirectory opens the index of a bundle, or returns errNoIndex.
func openDirectory(ctx context.Context, st store.Store, dir string, o sstable.Options) (directoryRows, error) {
	db, err := sstable.Open(ctx, st, dir, o)
	if e, ok := errors.AsType[*sstable.Error](err); ok && e.Class == sstable.Missing && e.Object == sstable.Join(dir, path.Base(currentName)) {
		return directoryRows{}, errNoIndex
	}
	return directoryRows{db}, indexError(err)
}

// indexWriter writes the index and its copies from sorted rows.
type indexWriter struct {
	st  store.Store
	all []*sstable.Writer
}

func newIndexWriter(st store.Store, root string, copies int, o sstable.WriterOptions) *indexWriter {
	w := &indexWriter{st: st}
	for i := range copies + 1 {
		w.all = append(w.all, sstable.NewWriter(st, sstable.Join(root, indexName(i)), o))
		o.Once = false // a copy that an interrupted writer left is overwritten
	}
	return w
}

func (w *indexWriter) add(ctx context.Context, key, value []byte) error {
	for _, x := range w.all {
		if err := x.Add(ctx, key, value); err != nil {
			return err
		}
	}
	return nil
}

// commit makes the index and its copies appear, and returns their names and total size.
func (w *indexWriter) commit(ctx context.Context) (names []string, size int64, err error) {
	// The index itself comes last, because it makes the bundle complete.
	for _, x := range slices.Backward(w.all) {
		if err := x.Commit(ctx); err != nil {
			return nil, 0, errors.Join(err, kit.Remove(ctx, w.st, names))
		}
		made, n := x.Files()
		names, size = append(names, made...), size+n
	}
	return names, size, nil
}

func (w *indexWriter) abort(ctx context.Context) error {
	var errs []error
	for _, x := range w.all {
		errs = append(errs, x.Abort(ctx))
	}
	return errors.Join(errs...)
}

// inlineRows is the index in the header of the only shard.
type inlineRows []sstable.Row

func (x inlineRows) from(key []byte) int {
	return sort.Search(len(x), func(i int) bool { return bytes.Compare(x[i].Key, key) >= 0 })
}

func (x inlineRows) Get(_ context.Context, key []byte) ([]byte, bool, error) {
	if i := x.from(key); i < len(x) && bytes.Equal(x[i].Key, key) {
		return x[i].Value, true, nil
	}
	return nil, false, nil
}

func (x inlineRows) Scan(ctx context.Context, from, to []byte) iter.Seq2[sstable.Row, error] {
	return func(yield func(sstable.Row, error) bool) {
		for _, row := range x[x.from(from):] {
			if ctx.Err() != nil {
				yield(sstable.Row{}, context.Cause(ctx))
				return
			}
			if to != nil && bytes.Compare(row.Key, to) >= 0 || !yield(row, nil) {
				return
			}
		}
	}
}

func (x inlineRows) Close() error { return nil }

// parseInline parses a BundleInlineTable. If several rows have the same key, the last one counts,
// and twice has that key.
func parseInline(b []byte) (x inlineRows, twice map[string]bool, err error) {
	sorted := true
	err = eachField(b, func(f field) error {
		if f.num != 1 || f.wire != wireBytes {
			return nil
		}
		m, err := parseMessage(f.bytes)
		if err != nil {
			return err
		}
		row := sstable.Row{Key: m.bytes[1], Value: m.bytes[2]}
		sorted = sorted && (len(x) == 0 || bytes.Compare(x[len(x)-1].Key, row.Key) < 0)
		x = append(x, row)
		return nil
	})
	if err != nil || sorted {
		return x, nil, err
	}
	sort.SliceStable(x, func(i, j int) bool { return bytes.Compare(x[i].Key, x[j].Key) < 0 })
	kept := x[:0]
	for i, row := range x {
		if i+1 == len(x) || !bytes.Equal(row.Key, x[i+1].Key) {
			kept = append(kept, row)
			continue
		}
		if twice == nil {
			twice = map[string]bool{}
		}
		twice[string(row.Key)] = true
	}
	return kept, twice, nil
}

func (x inlineRows) append(b []byte) []byte {
	for _, row := range x {
		b = appendMessage(b, 1, appendText(appendText(nil, 1, row.Key), 2, row.Value))
	}
	return b
}
