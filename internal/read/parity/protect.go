package parity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"syscall"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/base/meter"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// IsFolder reports whether name in st is a folder of objects and not an object.
func IsFolder(ctx context.Context, st store.Store, name string) bool {
	objects, err := Find(ctx, st, name)
	return err == nil && len(objects) > 0 && objects[0].Name != ""
}

// Find returns the objects that an archive consists of: one, or those of a folder.
func Find(ctx context.Context, st store.Store, name string) (all []Object, err error) {
	info, err := storekit.Briefly(st, name).Info(ctx)
	if err == nil {
		return []Object{objectOf("", info)}, nil
	}
	prefix := strings.TrimSuffix(name, "/")
	for info, lerr := range storekit.List(ctx, st, prefix+"/") {
		if lerr != nil {
			if errors.Is(lerr, errors.ErrUnsupported) {
				break
			}
			return nil, lerr
		}
		all = append(all, objectOf(strings.TrimPrefix(info.Name, prefix), info))
	}
	switch {
	case len(all) > 0:
		return all, nil
	case errors.Is(err, syscall.EISDIR):
		return nil, fmt.Errorf("%s: the folder is empty", name)
	}
	return nil, err
}

func objectOf(name string, info store.Info) Object {
	return Object{Name: name, Size: info.Size, Modified: info.ModTime.UTC(), Version: info.Version}
}

// Beside returns the objects of a set that lie beside each other.
func Beside(ctx context.Context, st store.Store, names []string) (all []Object, err error) {
	for _, name := range names {
		found, err := Find(ctx, st, name)
		if err != nil {
			return nil, err
		}
		if len(found) != 1 || found[0].Name != "" {
			return nil, fmt.Errorf("%s is a folder and cannot be part of a set", name)
		}
		found[0].Name = path.Base(name)
		all = append(all, found...)
	}
	return all, nil
}

// NameBeside is the name of o in a store where the protected archive, or one file of the protected
// set, is called name.
func (o Object) NameBeside(name string) string {
	if o.Name == "" || o.Name[0] == '/' {
		return strings.TrimSuffix(name, "/") + o.Name
	}
	return path.Join(path.Dir(name), o.Name)
}

// isOf reports whether o belongs to the archive called name, and not to another one of a set.
func (o Object) isOf(name string) bool {
	at := o.NameBeside(name)
	return at == name || strings.HasPrefix(at, strings.TrimSuffix(name, "/")+"/")
}

// A Summary says how an archive is divided. Parity is the number of parity blocks.
type Summary struct {
	Bytes, Blocks, Groups, Parity int64
	Block, Objects                int
}

// Protect reads the objects of an archive, or of a set beside it, and writes their parity.
func Protect(ctx context.Context, st store.Store, name string, objects []Object, loss float64, m *meter.Meter, to io.Writer) (Summary, error) {
	total := int64(0)
	for _, o := range objects {
		total += o.Size
	}
	e, err := NewEncoder(ctx, total, loss)
	if err != nil {
		return Summary{}, err
	}
	defer e.Close()
	if m.WantsTotal() {
		m.Expect(int64(len(objects)), total)
	}
	for i := range objects {
		if err := objects[i].feed(ctx, st, name, e, m); err != nil {
			return Summary{}, err
		}
	}
	err = e.Finish(to, objects)
	return e.Summary(), err
}

// feed writes all of an object to w.
func (o *Object) feed(ctx context.Context, st store.Store, name string, w io.Writer, m *meter.Meter) error {
	at := o.NameBeside(name)
	m.At(at, o.Size)
	obj, err := st.Open(ctx, at)
	if err != nil {
		return err
	}
	defer obj.Close()
	workers, most := 2, int64(1<<20)
	if !st.Can().Near {
		workers, most = 6, 4<<20
	}
	type run struct {
		off int64
		b   []byte
		err error
	}
	spares := sync.Pool{New: func() any { return new(make([]byte, most)) }}
	runs := func(yield func(*run, error) bool) {
		for off := int64(0); off < o.Size; off += most {
			if !yield(&run{off: off}, nil) {
				return
			}
		}
	}
	err = pipe.Ordered(ctx, runs, workers, func(ctx context.Context, r *run) {
		r.b = (*spares.Get().(*[]byte))[:min(most, o.Size-r.off)]
		r.err = obj.ReadAt(ctx, r.b, r.off)
	}, func(r *run) error {
		defer spares.Put(&r.b)
		if r.err != nil {
			return r.err
		}
		m.Add(0, int64(len(r.b)))
		_, err := w.Write(r.b)
		return err
	}, func(*run) {})
	if err != nil {
		return err
	}
	// If the object changed while it was read, the parity would mix versions.
	info, err := obj.Info(ctx)
	if err == nil && info.Size != o.Size {
		err = store.ErrChanged
	}
	m.Add(1, 0)
	return err
}

// unnumbered returns the name of a chunk of a set without its number: a-12 and a-12.tar are chunks of a and a.tar.
func unnumbered(name string) string {
	for _, ext := range []string{path.Ext(name), ""} {
		stem := strings.TrimSuffix(name, ext)
		set, isNumbered := strings.CutSuffix(strings.TrimRight(stem, "0123456789"), "-")
		if isNumbered && len(set)+len("-") < len(stem) {
			return set + ext
		}
	}
	return name
}

// NameOf is the usual name of the parity of an archive or a set. For numbered chunks it is derived
// from the name of the set.
func NameOf(names []string) string {
	name := strings.TrimRight(names[0], "/")
	if len(names) > 1 {
		name = unnumbered(name)
	}
	return name + Suffix
}

// Names returns the names under which the parity of an archive may be found.
func Names(name string) []string {
	all := []string{NameOf([]string{name})}
	if set := NameOf([]string{name, name}); set != all[0] {
		all = append(all, set)
	}
	return all
}
