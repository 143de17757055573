package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
)

// A Stage holds back the objects written through it: each is finished when its
// writer commits, but none is visible before Publish. It makes a set of objects
// (chunks, shards and their index) appear together, as nearly as the store
// below allows.
type Stage struct {
	Store

	// Wishes are those of all objects that are created through it. If Keeps is set,
	// what does not come to be published is kept, as by [Keep], not aborted.
	Wishes Wishes
	Keeps  bool

	mu    sync.Mutex
	ready []Writer
	names []string
	kept  int64

	copied, proven int64
}

// NewStage returns a stage over st.
func NewStage(st Store) *Stage { return &Stage{Store: st} }

// Create begins an object that Publish will make visible.
func (s *Stage) Create(ctx context.Context, name string) (Writer, error) {
	return s.CreateAs(ctx, name, Wishes{})
}

// CreateAs is Create with wishes beyond those of the stage.
func (s *Stage) CreateAs(ctx context.Context, name string, wish Wishes) (Writer, error) {
	w, err := CreateAs(ctx, s.Store, name, Wishes{Once: wish.Once || s.Wishes.Once, Resume: wish.Resume || s.Wishes.Resume})
	if err != nil {
		return nil, err
	}
	return &stagedWriter{Writer: w, stage: s, name: name}, nil
}

// Names are what was staged.
func (s *Stage) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.names)
}

// Publish commits what was staged, in the order in which it was finished. It
// stops at the first failure and discards the rest.
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
	return nil
}

// Discard aborts what was staged and not published. It may be deferred.
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
	return errors.Join(errs...)
}

// end is the end of a writer that does not commit. The caller holds the lock.
func (s *Stage) end(w Writer) error {
	if !s.Keeps {
		return w.Abort()
	}
	n, err := Keep(w)
	s.kept += n
	return err
}

// Kept is how many bytes wait in the store for a stage that wishes to Resume.
func (s *Stage) Kept() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept
}

// Saved sums up what the writers that were finished say as a [Saver].
func (s *Stage) Saved() (copied, proven int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copied, s.proven
}

type stagedWriter struct {
	Writer
	stage *Stage
	name  string
	size  int64
	done  bool
}

// closed says that what was staged stays as it is.
func (w *stagedWriter) closed(op string) error {
	if w.done {
		return &Error{Op: op, Name: w.name, Off: -1, Err: fs.ErrClosed}
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

func (w *stagedWriter) WriteRange(ctx context.Context, from Object, off, n int64) error {
	rw, ok := w.Writer.(RangeWriter)
	if !ok {
		return errors.ErrUnsupported
	}
	if err := w.closed("write"); err != nil {
		return err
	}
	err := rw.WriteRange(ctx, from, off, n)
	if err == nil {
		w.size += n
	}
	return err
}

func (w *stagedWriter) Rewind(to int64) error {
	r, ok := w.Writer.(Rewinder)
	if !ok {
		return fmt.Errorf("rewind %s: %w", w.name, errors.ErrUnsupported)
	}
	if err := w.closed("rewind"); err != nil {
		return err
	}
	if err := r.Rewind(to); err != nil {
		return err
	}
	w.size = to
	return nil
}

func (w *stagedWriter) Patch(ctx context.Context, p []byte, off int64) error {
	pw, ok := w.Writer.(Patcher)
	if !ok {
		return fmt.Errorf("patch %s: %w", w.name, errors.ErrUnsupported)
	}
	if err := w.closed("patch"); err != nil {
		return err
	}
	return pw.Patch(ctx, p, off)
}

func (w *stagedWriter) PatchLimit() int64 { return PatchLimit(w.Writer) }

// Commit has the writer send what is left: a set may be of many objects, and the end
// of each would wait in memory.
func (w *stagedWriter) Commit(ctx context.Context) (Info, error) {
	if err := w.closed("commit"); err != nil {
		return Info{}, err
	}
	if err := Finish(ctx, w.Writer); err != nil {
		return Info{}, err
	}
	w.done = true
	w.stage.mu.Lock()
	defer w.stage.mu.Unlock()
	if saver, ok := w.Writer.(Saver); ok {
		copied, proven := saver.Saved()
		w.stage.copied += copied
		w.stage.proven += proven
	}
	w.stage.ready = append(w.stage.ready, w.Writer)
	w.stage.names = append(w.stage.names, w.name)
	return Info{Name: w.name, Size: w.size}, nil
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

var _ Wisher = (*Stage)(nil)

// Vacant refuses to write where a folder is. An archive that is one object
// replaces another at once; one that is a folder of them cannot, and what is left
// of the older one beside it would be neither.
func (s *Stage) Vacant(ctx context.Context, name string) error {
	for info, err := range List(ctx, s.Store, strings.TrimSuffix(name, "/")+"/") {
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("%s is a folder with %s in it, which is not replaced: %w", name, path.Base(info.Name), fs.ErrExist)
	}
	return nil
}
