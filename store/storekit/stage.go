package storekit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/holdall/holdall/store"
)

// A Stage is a store that holds back the objects written to it. An object is finished when its
// writer commits, but appears only at Publish. A Stage makes a set of objects, such as chunks, or
// shards and their index, appear together, as far as the underlying store supports that.
type Stage struct {
	store.Store

	// Wishes apply to all objects that are created in the stage. If Keeps is set, objects that
	// are not published are kept, as by [Keep], instead of aborted.
	Wishes store.Wishes
	Keeps  bool

	mu     sync.Mutex
	vacant string        // the folder that Vacant found to be free
	folder *store.Folder // vacant, if the store creates folders that appear as a whole
	ready  []store.Writer
	names  []string
	kept   int64

	copied, proven int64
}

// NewStage returns a stage of st. The caller must call Publish or Discard.
func NewStage(st store.Store) *Stage { return &Stage{Store: st} }

// Can returns the abilities of a stage, which can only create objects.
func (s *Stage) Can() store.Abilities { return store.Abilities{Create: s.create} }

// create begins an object with the wishes of the stage and its own.
func (s *Stage) create(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
	out, err := s.begin(ctx, name, store.Wishes{Once: wish.Once || s.Wishes.Once, Resume: wish.Resume || s.Wishes.Resume})
	if err != nil {
		return nil, err
	}
	w := &stagedWriter{Writer: out, stage: s, name: name}
	below := out.Can()
	w.can.PatchLimit = below.PatchLimit
	if write := below.WriteRange; write != nil {
		w.can.WriteRange = func(ctx context.Context, from store.Object, off, n int64) error {
			return w.change("write", w.size+n, func() error { return write(ctx, from, off, n) })
		}
	}
	if write := below.CopyRange; write != nil {
		w.can.CopyRange = func(ctx context.Context, from store.Object, off, n int64) error {
			return w.change("write", w.size+n, func() error { return write(ctx, from, off, n) })
		}
	}
	if rewind := below.Rewind; rewind != nil {
		w.can.Rewind = func(to int64) error {
			return w.change("rewind", to, func() error { return rewind(to) })
		}
	}
	if patch := below.Patch; patch != nil {
		w.can.Patch = func(ctx context.Context, p []byte, off int64) error {
			return w.change("patch", w.size, func() error { return patch(ctx, p, off) })
		}
	}
	return w, nil
}

// begin begins an object. If it is in the vacant folder, it is created in the folder that appears
// as a whole.
func (s *Stage) begin(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
	s.mu.Lock()
	if s.vacant == "" || !strings.HasPrefix(name, s.vacant) {
		s.mu.Unlock()
		return CreateAs(ctx, s.Store, name, wish)
	}
	if whole := s.Store.Can().Folder; s.folder == nil && whole != nil {
		f, err := whole(ctx, s.vacant)
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			s.mu.Unlock()
			return nil, err
		}
		s.folder = f
	}
	folder := s.folder
	if folder == nil {
		s.vacant = "" // if one object appears by itself, all must
	}
	s.mu.Unlock()
	if folder == nil {
		return CreateAs(ctx, s.Store, name, wish)
	}
	return folder.Create(ctx, name, wish)
}

// Names returns the names of the objects that were finished.
func (s *Stage) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.names)
}

// Publish commits the finished objects, in the order in which they were finished. At the first
// failure it discards the rest and returns the error.
func (s *Stage) Publish(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.ready) > 0 {
		w := s.ready[0]
		s.ready = s.ready[1:]
		if _, err := w.Commit(ctx); err != nil {
			return errors.Join(err, s.end(w), s.discard())
		}
	}
	if s.folder == nil {
		return nil
	}
	f := s.folder
	s.folder, s.vacant = nil, ""
	return f.Commit(ctx)
}

// Discard aborts the objects that were not published. It can be deferred.
func (s *Stage) Discard() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.discard()
}

func (s *Stage) discard() error {
	var errs []error
	for _, w := range s.ready {
		errs = append(errs, s.end(w))
	}
	s.ready = nil
	if s.folder != nil {
		errs = append(errs, s.folder.Abort())
		s.folder, s.vacant = nil, ""
	}
	return errors.Join(errs...)
}

// end ends a writer that is not committed. The caller holds the lock.
func (s *Stage) end(w store.Writer) error {
	if !s.Keeps {
		return w.Abort()
	}
	n, err := Keep(w)
	s.kept += n
	return err
}

// Kept returns the number of bytes that the store keeps for a later stage with Wishes.Resume.
func (s *Stage) Kept() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept
}

// Saved returns the sums of what the finished writers returned for [store.WriterAbilities.Saved].
func (s *Stage) Saved() (copied, proven int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copied, s.proven
}

type stagedWriter struct {
	store.Writer
	can   store.WriterAbilities
	stage *Stage
	name  string
	size  int64
	done  bool
}

// change makes a change, after which the object has size bytes.
func (w *stagedWriter) change(op string, size int64, change func() error) error {
	err := w.closed(op)
	if err == nil {
		err = change()
	}
	if err == nil {
		w.size = size
	}
	return err
}

// closed returns an error if the object is finished, because it can no longer be changed.
func (w *stagedWriter) closed(op string) error {
	if w.done {
		return &store.Error{Op: op, Name: w.name, Off: -1, Err: fs.ErrClosed}
	}
	return nil
}

func (w *stagedWriter) Write(p []byte) (int, error) {
	if err := w.closed("write"); err != nil {
		return 0, err
	}
	n, err := w.Writer.Write(p)
	w.size += int64(n)
	return n, err
}

func (w *stagedWriter) Can() store.WriterAbilities { return w.can }

// Commit makes the writer send what is left. In a large set of objects, the ends of all of them
// would otherwise remain in memory. It returns the Info that Finish returned.
func (w *stagedWriter) Commit(ctx context.Context) (store.Info, error) {
	if err := w.closed("commit"); err != nil {
		return store.Info{}, err
	}
	info, below := store.Info{}, w.Writer.Can()
	if below.Finish != nil {
		var err error
		if info, err = below.Finish(ctx); err != nil {
			return store.Info{}, err
		}
	}
	w.done = true
	w.stage.mu.Lock()
	defer w.stage.mu.Unlock()
	if below.Saved != nil {
		copied, proven := below.Saved()
		w.stage.copied += copied
		w.stage.proven += proven
	}
	w.stage.ready = append(w.stage.ready, w.Writer)
	w.stage.names = append(w.stage.names, w.name)
	info.Name, info.Size = w.name, w.size
	return info, nil
}

func (w *stagedWriter) Abort() error {
	if w.done {
		return nil
	}
	w.done = true
	w.stage.mu.Lock()
	defer w.stage.mu.Unlock()
	return w.stage.end(w.Writer)
}

// Vacant returns an error that wraps [fs.ErrExist] if there is a folder called name with objects
// in it. An archive that is a folder cannot replace another one in a single step, and old objects
// beside the new ones would belong to neither. Objects that are then written to the folder appear
// as a whole if the store supports that. Vacant returns nil if the store cannot list.
func (s *Stage) Vacant(ctx context.Context, name string) error {
	folder := strings.TrimRight(name, "/") + "/"
	for info, err := range List(ctx, s.Store, folder) {
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("%s is a folder with %s in it, and is not replaced: %w", name, strings.TrimPrefix(info.Name, folder), fs.ErrExist)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vacant = folder
	return nil
}
