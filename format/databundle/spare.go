package databundle

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/databundle/internal/sstable"
)

// spared has the rows of an index or, if it is damaged or lost, those of a copy.
type spared struct {
	a     *bundle
	first rows // nil if it cannot be opened

	mu    sync.Mutex
	copy  rows
	doubt *format.Problem // why the copy is used
}

// instead returns the copy if err is damage and there is one. Otherwise it returns err.
func (x *spared) instead(ctx context.Context, err error) (rows, error) {
	damage, damaged := errors.AsType[*format.CorruptError](err)
	if !damaged || damage.Code == format.Limit || damage.Code == format.Unsupported {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := 1; x.copy == nil && i <= mostCopies; i++ {
		d, oerr := openDirectory(ctx, x.a.st, sstable.Join(x.a.root, indexName(i)), sstable.Options{MaxLog: min(x.a.limits.Index, 1<<30)})
		if oerr != nil {
			continue
		}
		x.copy = d
		p := damage.Problem
		p.Message = "the index is damaged; using a copy of it: " + p.Message
		x.doubt = &p
	}
	if x.copy == nil {
		return nil, err
	}
	return x.copy, nil
}

func (x *spared) Get(ctx context.Context, key []byte) (value []byte, ok bool, err error) {
	err = x.lost()
	if err == nil {
		value, ok, err = x.first.Get(ctx, key)
	}
	if err != nil {
		other, err := x.instead(ctx, err)
		if err != nil {
			return nil, false, err
		}
		return other.Get(ctx, key)
	}
	return value, ok, nil
}

// lost returns an error if there is no first index.
func (x *spared) lost() error {
	if x.first == nil {
		return &format.CorruptError{Format: "databundle", Problem: *x.doubt}
	}
	return nil
}

func (x *spared) Scan(ctx context.Context, from, to []byte) iter.Seq2[sstable.Row, error] {
	return func(yield func(sstable.Row, error) bool) {
		err := x.lost()
		if err == nil {
			for row, rerr := range x.first.Scan(ctx, from, to) {
				if err = rerr; err != nil {
					break
				}
				from = append(bytes.Clone(row.Key), 0) // after that row
				if !yield(row, nil) {
					return
				}
			}
		}
		if err == nil {
			return
		}
		other, err := x.instead(ctx, err)
		if err != nil {
			yield(sstable.Row{}, err)
			return
		}
		for row, err := range other.Scan(ctx, from, to) {
			if !yield(row, err) {
				return
			}
		}
	}
}

func (x *spared) Close() error {
	var errs []error
	for _, r := range []rows{x.first, x.copy} {
		if r != nil {
			errs = append(errs, r.Close())
		}
	}
	return errors.Join(errs...)
}

// directory returns the index of the bundle, if it is a directory that can be opened.
func (a *bundle) directory() (directoryRows, bool) {
	r := a.rows
	if x, ok := r.(*spared); ok {
		r = x.first
	}
	d, ok := r.(directoryRows)
	return d, ok
}

// doubts returns why a copy of the index is used, or nil if none is.
func (a *bundle) doubts() *format.Problem {
	x, ok := a.rows.(*spared)
	if !ok {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.doubt
}
