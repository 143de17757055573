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

	mu     sync.Mutex
	vacant string  // the folder that Vacant found free
	folder *Folder // it, if the store makes folders that appear whole
	ready  []Writer
	names  []string
	kept   int64

	copied, proven int64
}

// NewStage returns a stage over st.
func NewStage(st Store) *Stage { return &Stage{Store: st} }

// Can says that a stage creates objects, which Publish will make visible, and that is all.
func (s *Stage) Can() Abilities { return Abilities{Create: s.create} }

// create begins an object with wishes beyond those of the stage.
func (s *Stage) create(ctx context.Context, name string, wish Wishes) (Writer, error) {
	out, err := s.begin(ctx, name, Wishes{Once: wish.Once || s.Wishes.Once, Resume: wish.Resume || s.Wishes.Resume})
	if err != nil {
		return nil, err
	}
	w := &stagedWriter{Writer: out, stage: s, name: name}
	below := out.Can()
	w.can.PatchLimit = below.PatchLimit
	ranges := func(write func(ctx context.Context, from Object, off, n int64) error) func(ctx context.Context, from Object, off, n int64) error {
		if write == nil {
			return nil
		}
		return func(ctx context.Context, from Object, off, n int64) error {
			err := w.closed("write")
			if err == nil {
				err = write(ctx, from, off, n)
			}
			if err == nil {
				w.size += n
			}
			return err
		}
	}
	w.can.WriteRange, w.can.CopyRange = ranges(below.WriteRange), ranges(below.CopyRange)
	if rewind := below.Rewind; rewind != nil {
		w.can.Rewind = func(to int64) error {
			err := w.closed("rewind")
			if err == nil {
				err = rewind(to)
			}
			if err == nil {
				w.size = to
			}
			return err
		}
	}
	if patch := below.Patch; patch != nil {
		w.can.Patch = func(ctx context.Context, p []byte, off int64) error {
			if err := w.closed("patch"); err != nil {
				return err
			}
			return patch(ctx, p, off)
		}
	}
	return w, nil
}

// begin begins an object, in the folder that appears whole if it lies there.
func (s *Stage) begin(ctx context.Context, name string, wish Wishes) (Writer, error) {
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
		s.vacant = "" // once one of its objects is there by itself, all are
	}
	s.mu.Unlock()
	if folder == nil {
		return CreateAs(ctx, s.Store, name, wish)
	}
	return folder.Create(ctx, name, wish)
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
	if s.folder == nil {
		return nil
	}
	f := s.folder
	s.folder, s.vacant = nil, ""
	return f.Commit(ctx)
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
	if s.folder != nil {
		errs = append(errs, s.folder.Abort())
		s.folder, s.vacant = nil, ""
	}
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

// Saved sums up what the writers that were finished say that they saved.
func (s *Stage) Saved() (copied, proven int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copied, s.proven
}

type stagedWriter struct {
	Writer
	can   WriterAbilities
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

func (w *stagedWriter) Can() WriterAbilities { return w.can }

// Commit has the writer send what is left: a set may be of many objects, and the end
// of each would wait in memory. It tells of the object what Finish does.
func (w *stagedWriter) Commit(ctx context.Context) (Info, error) {
	if err := w.closed("commit"); err != nil {
		return Info{}, err
	}
	info, below := Info{}, w.Writer.Can()
	if below.Finish != nil {
		var err error
		if info, err = below.Finish(ctx); err != nil {
			return Info{}, err
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

// Vacant refuses to write where a folder is. An archive that is one object
// replaces another at once; one that is a folder of them cannot, and what is left
// of the older one beside it would be neither. What is written there then appears whole,
// if the store can do that.
func (s *Stage) Vacant(ctx context.Context, name string) error {
	folder := strings.TrimRight(name, "/") + "/"
	for info, err := range List(ctx, s.Store, folder) {
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("%s is a folder with %s in it, and is not replaced: %w", name, path.Base(info.Name), fs.ErrExist)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vacant = folder
	return nil
}
