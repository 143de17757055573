// Package newstore writes the files of a new Apache Oak segment store: tars, manifest and
// journal. It can also add tars to an existing store. It does not create segments, and changes no
// existing file.
package newstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Options of New. The zero value is valid.
type Options struct {
	MaxTar int64            // size of a tar; 0 is 256 MiB, as in Oak
	First  int              // number of the first tar, for a store that has some
	Time   func() time.Time // of the headers; nil means the time of writing
}

type Summary struct {
	Files    []string
	Segments int64
	Bytes    int64
}

// A Writer writes one store. It ends in Commit or Abort. It belongs to one goroutine.
type Writer struct {
	st  store.Store
	dir repo.Listing // for names in the folder
	o   Options

	out store.Writer // of the open tar, or nil
	tar *tarfile.Writer
	n   int // number of the next tar
	sum Summary
}

// New returns a Writer of a store in the folder dir of st. It commits files one after another,
// with the journal last. If st is a [storekit.Stage], they appear together.
func New(st store.Store, dir string, o Options) *Writer {
	if o.MaxTar == 0 {
		o.MaxTar = 256 << 20
	}
	return &Writer{st: st, dir: repo.Listing{Dir: repo.Dir(dir)}, o: o, n: o.First}
}

// Write adds a segment. It must come after the segments that it refers to, because Oak's cleanup
// requires that order.
func (w *Writer) Write(ctx context.Context, f segment.Finished) error {
	if w.tar != nil && w.tar.Full(w.o.MaxTar) {
		if err := w.closeTar(ctx); err != nil {
			return err
		}
	}
	if w.n > math.MaxInt32 {
		return fmt.Errorf("%s is the last number of a tar", w.dir.Path(tarfile.Name(math.MaxInt32, 'a')))
	}
	if w.tar == nil {
		name := tarfile.Name(w.n, 'a')
		var err error
		if w.out, err = storekit.Create(ctx, w.st, w.dir.Path(name)); err != nil {
			return err
		}
		w.n++
		w.tar = tarfile.NewWriter(w.out, name, w.o.Time)
	}
	w.sum.Segments++
	return w.tar.Put(f)
}

func (w *Writer) closeTar(ctx context.Context) error {
	if err := w.tar.Close(); err != nil {
		return err
	}
	info, err := w.out.Commit(ctx)
	if err != nil {
		return err
	}
	w.out, w.tar = nil, nil
	w.made(tarfile.Name(w.n-1, 'a'), info.Size)
	return nil
}

func (w *Writer) made(name string, size int64) {
	w.sum.Files = append(w.sum.Files, w.dir.Path(name))
	w.sum.Bytes += size
}

// Tars ends the last tar. That is all that is needed in a store that has the other files.
func (w *Writer) Tars(ctx context.Context) (Summary, error) {
	if w.tar == nil {
		return w.sum, nil
	}
	return w.sum, w.closeTar(ctx)
}

// Commit ends the store with a manifest and a journal, the newest revision last.
func (w *Writer) Commit(ctx context.Context, journal ...repo.Entry) (Summary, error) {
	if w.tar == nil || len(journal) == 0 {
		return w.sum, errors.New("new store: expected segments and a revision, found none")
	}
	if err := w.closeTar(ctx); err != nil {
		return w.sum, err
	}
	if err := kit.WriteBytes(ctx, w.st, w.dir.Path(repo.Manifest), []byte(repo.NewManifest)); err != nil {
		return w.sum, err
	}
	w.made(repo.Manifest, int64(len(repo.NewManifest)))
	size, err := repo.WriteJournal(ctx, w.st, w.dir.Path(repo.Journal), slices.Values(journal))
	if err == nil {
		w.made(repo.Journal, size)
	}
	return w.sum, err
}

// Abort discards the open tar. The stage discards those before it.
func (w *Writer) Abort() error {
	if w.out == nil {
		return nil
	}
	out := w.out
	w.out, w.tar = nil, nil
	return out.Abort()
}
