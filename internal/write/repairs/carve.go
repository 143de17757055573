package repairs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// ErrNotFound means that no archive begins anywhere in an object.
var ErrNotFound = errors.New("no archive found in it")

// Carve plans to take an archive of format f out of an object that has something else before it,
// as a disk image has. It uses the first place where one begins that repair can plan for, and
// returns it. The caller closes held after the plan was applied.
func Carve(ctx context.Context, st store.Store, name string, f *format.Format, repair func(store.Store) (format.Plan, error)) (plan format.Plan, from int64, held io.Closer, err error) {
	obj, info, err := storekit.OpenInfo(ctx, st, name)
	if err != nil {
		return plan, 0, nil, err
	}
	defer obj.Close()
	tried := func(at int64) (found bool, err error) {
		cut := format.Edit{Object: name, Len: at}
		rest, err := NewPlanned(ctx, st, name, format.Plan{Edits: []format.Edit{cut}})
		if err != nil {
			return false, err
		}
		if plan, err = repair(rest); err != nil || plan.Build != nil {
			if _, corrupt := errors.AsType[*format.CorruptError](err); corrupt {
				err = nil
			}
			return false, errors.Join(err, rest.Close())
		}
		for i := range plan.Edits {
			plan.Edits[i].Off += at
		}
		plan.Edits = append([]format.Edit{cut}, plan.Edits...)
		plan.Notes = append([]string{fmt.Sprintf("found an archive at byte %d of %s", at, name)}, plan.Notes...)
		from, held = at, rest
		return true, nil
	}
	err = search(ctx, obj, info.Size, f.Marks, func(at int64, head []byte) (bool, error) {
		if at == 0 || f.Detect(format.Probe{Size: info.Size - at, Head: head, Tail: head}) < format.Likely {
			return false, nil
		}
		return tried(at)
	})
	if err == nil && held == nil {
		err = ErrNotFound
	}
	return plan, from, held, err
}

// Join returns a store in which the object called name is followed by the bytes of other objects.
func Join(ctx context.Context, st store.Store, name string, pieces []string) (*Planned, error) {
	p := &Planned{Store: st, name: name, objects: map[string]*storekit.Pieced{}, sources: map[string]store.Object{}}
	o := &storekit.Pieced{Name: name}
	add := func(key string, st store.Store, name string) error {
		obj, info, err := storekit.OpenInfo(ctx, st, name)
		if err == nil {
			p.sources[key] = obj
			o.Add(obj, 0, info.Size)
		}
		return err
	}
	err := add("", st, name)
	for i, at := range pieces {
		var in store.Store
		if err == nil {
			if in, at, err = store.OpenAddress(ctx, at); err == nil {
				err = add(strconv.Itoa(i), in, at)
			}
		}
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	p.objects[name] = o
	return p, nil
}

// searched is how much of an object is searched at once.
const searched = 1 << 20

// search calls found with each place of one of the marks, in order, and the bytes there, until it
// returns true.
func search(ctx context.Context, obj store.Object, size int64, marks []string, found func(at int64, head []byte) (bool, error)) error {
	head := 0
	for _, m := range marks {
		head = max(head, len(m))
	}
	head = max(head, kit.ProbeSize)
	buf := make([]byte, searched+head)
	for base := int64(0); base < size; base += searched {
		b := buf[:min(int64(len(buf)), size-base)]
		if err := obj.ReadAt(ctx, b, base); err != nil {
			return err
		}
		var at []int
		for _, m := range marks {
			for from := 0; m != ""; {
				i := bytes.Index(b[from:min(len(b), searched+len(m)-1)], []byte(m))
				if i < 0 {
					break
				}
				at = append(at, from+i)
				from += i + 1
			}
		}
		slices.Sort(at)
		for _, i := range at {
			if ok, err := found(base+int64(i), b[i:min(len(b), i+kit.ProbeSize)]); ok || err != nil {
				return err
			}
		}
	}
	return nil
}
