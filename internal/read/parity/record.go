package parity

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A Recorder computes the parity of an archive, or of a set of archives, while it is written
// through Store. The archive is not read again unless its bytes come in an order that the encoder
// cannot follow. In that case Commit reads it.
type Recorder struct {
	ctx    context.Context
	stage  *storekit.Stage
	root   string
	expect int64
	loss   float64

	mu     sync.Mutex
	e      *Encoder // nil before the first object
	all    []*recorded
	behind bool         // the encoder could not follow
	out    store.Writer // the parity file, until Commit
}

// A recorded is an object that is being written.
type recorded struct {
	store.Writer
	can  store.WriterAbilities
	r    *Recorder
	from int64 // offset in all bytes, or -1 before the first write
	info store.Info
	done bool
}

// Record returns a Recorder for an archive called root that will be written to a stage as an
// object, a folder or chunks. The archive will have about expect bytes. The parity survives the
// loss of any share loss of them.
func Record(ctx context.Context, stage *storekit.Stage, root string, expect int64, loss float64) *Recorder {
	return &Recorder{ctx: ctx, stage: stage, root: strings.TrimRight(root, "/"), expect: expect, loss: loss}
}

func (r *Recorder) Close() {
	if r.e != nil {
		r.e.Close()
	}
	if r.out != nil {
		r.out.Abort()
	}
}

// Store is the stage. The archive must be written through it.
func (r *Recorder) Store() store.Store { return recording{r.stage, r} }

type recording struct {
	*storekit.Stage
	r *Recorder
}

func (s recording) Can() store.Abilities { return store.Abilities{Create: s.create} }

func (s recording) create(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
	out, err := storekit.CreateAs(ctx, s.Stage, name, wish)
	if err != nil {
		return nil, err
	}
	w := &recorded{Writer: out, r: s.r, info: store.Info{Name: name}, from: -1}
	below := out.Can()
	// Bytes that a store copies itself would bypass the recorder.
	w.can = store.WriterAbilities{PatchLimit: below.PatchLimit}
	if below.Rewind != nil {
		w.can.Rewind = func(to int64) error {
			err := below.Rewind(to)
			w.pass(func() bool { return err == nil && w.rewind(to) })
			return err
		}
	}
	if below.Patch != nil {
		w.can.Patch = func(ctx context.Context, p []byte, off int64) error {
			err := below.Patch(ctx, p, off)
			w.pass(func() bool { return err == nil && off >= 0 && w.from >= 0 && w.r.e.Patch(p, w.from+off) })
			return err
		}
	}
	return w, nil
}

// pass calls do, which repeats in the encoder what was done to the object. do returns false if the
// encoder cannot follow.
func (w *recorded) pass(do func() bool) {
	r := w.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.behind {
		return
	}
	if !do() && (r.e == nil || r.e.err == nil) {
		r.behind = true
		if r.e != nil {
			r.e.Close()
		}
	}
}

// last reports whether w is the current object. A new object becomes the current one.
func (w *recorded) last() bool {
	r := w.r
	if r.e == nil {
		var err error
		if r.e, err = NewEncoder(r.ctx, r.expect, r.loss); err != nil {
			return false
		}
	}
	if w.from < 0 {
		w.from = r.e.size
		r.all = append(r.all, w)
	}
	return r.all[len(r.all)-1] == w
}

func (w *recorded) rewind(to int64) bool {
	if !w.last() || !w.r.e.Rewind(w.from+to) {
		return false
	}
	w.info.Size = to
	return true
}

func (w *recorded) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.pass(func() bool {
		if !w.last() {
			return false
		}
		w.info.Size += int64(n)
		_, err := w.r.e.Write(p[:n])
		return err == nil
	})
	return n, err
}

func (w *recorded) Can() store.WriterAbilities { return w.can }

func (w *recorded) Commit(ctx context.Context) (store.Info, error) {
	info, err := w.Writer.Commit(ctx)
	w.pass(func() bool {
		w.done = err == nil
		ok := w.from >= 0 || w.last() // it may be empty
		ok = ok && info.Size == w.info.Size
		w.info = info
		return ok
	})
	return info, err
}

func (w *recorded) Abort() error {
	w.pass(func() bool {
		if w.done || w.from < 0 {
			return true
		}
		if !w.rewind(0) {
			return false
		}
		w.r.all = w.r.all[:len(w.r.all)-1]
		w.from = -1
		return true
	})
	return w.Writer.Abort()
}

// objects returns the objects that were written, as the parity file names them, the name that these
// are relative to, and the name of the parity file.
func (r *Recorder) objects() (objects []Object, base, name string) {
	names := r.stage.Names()
	if !r.behind {
		names = names[:0]
		for _, w := range r.all {
			names = append(names, w.info.Name)
		}
	}
	base, name = r.root, NameOf([]string{r.root})
	for i, n := range names {
		o := Object{Name: path.Base(n)}
		if rest, below := strings.CutPrefix(n, r.root+"/"); below {
			o.Name = "/" + rest
		} else if len(names) == 1 {
			o.Name, base, name = "", n, NameOf(names)
		} else {
			name = NameOf(names)
		}
		if !r.behind {
			info := r.all[i].info
			o = objectOf(o.Name, info)
		}
		objects = append(objects, o)
	}
	return objects, base, name
}

// Finish writes the parity. Call it when all of the archive is written but not yet published. The
// parity is not visible before Commit.
func (r *Recorder) Finish(ctx context.Context) error {
	if r.e == nil && !r.behind {
		return errors.New("nothing was written, so there is nothing to protect")
	}
	for _, w := range r.all {
		r.behind = r.behind || !w.done
	}
	if r.behind {
		return nil
	}
	objects, _, name := r.objects()
	err := r.put(ctx, name, func(w store.Writer) error { return r.e.Finish(w, objects) })
	if r.behind = errors.Is(err, ErrTooMuch); r.behind {
		return nil
	}
	r.e.Close()
	return err
}

// put writes a parity file that becomes visible at Commit. It replaces an existing parity file,
// which belongs to the archive that is being replaced.
func (r *Recorder) put(ctx context.Context, name string, write func(store.Writer) error) (err error) {
	out, err := storekit.Create(ctx, r.stage.Store, name)
	if err != nil {
		return err
	}
	err = write(out)
	if finish := out.Can().Finish; err == nil && finish != nil {
		_, err = finish(ctx)
	}
	if err != nil {
		return errors.Join(err, out.Abort())
	}
	r.out = out
	return nil
}

// Commit makes the parity file visible and returns its Info. Call it when the archive is published.
func (r *Recorder) Commit(ctx context.Context) (store.Info, error) {
	if r.behind {
		objects, base, name := r.objects()
		err := r.put(ctx, name, func(w store.Writer) error {
			for i := range objects {
				info, err := storekit.Briefly(r.stage.Store, objects[i].NameBeside(base)).Info(ctx)
				if err != nil {
					return err
				}
				objects[i] = objectOf(objects[i].Name, info)
			}
			_, err := Protect(ctx, r.stage.Store, base, objects, r.loss, nil, w)
			return err
		})
		if err != nil {
			return store.Info{}, err
		}
	}
	out := r.out
	r.out = nil
	info, err := out.Commit(ctx)
	if err != nil {
		err = errors.Join(err, out.Abort())
	}
	return info, err
}
