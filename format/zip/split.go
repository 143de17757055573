package zip

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// parts are the objects of a split archive, and all of them as one object. The parts of x.zip are
// x.z01, x.z02, …, and x.zip itself, which is the last one.
type parts struct {
	whole  *storekit.Pieced
	names  []string
	objs   []store.Object
	starts []int64 // where each part begins, and where the last one ends
}

// splitMagic is at the beginning of the first part.
const splitMagic = behindMagic + localMagic

// partName returns the name of a part other than the last, by its number from 1.
func partName(name string, number int) string {
	ext, z := path.Ext(name), "z"
	if strings.HasPrefix(ext, ".Z") {
		z = "Z"
	}
	return fmt.Sprintf("%s.%s%02d", strings.TrimSuffix(name, ext), z, number)
}

// partNumber is the inverse of partName: x.z01 is part 1 of x.zip. For any other name the number is
// 0.
func partNumber(name string) (number int, of string) {
	ext := path.Ext(name)
	if len(ext) < 4 || ext[1]|0x20 != 'z' {
		return 0, ""
	}
	number, err := strconv.Atoi(ext[2:])
	of = strings.TrimSuffix(name, ext) + ext[:2] + "ip"
	if ext[1] == 'Z' {
		of = strings.TrimSuffix(name, ext) + ".ZIP"
	}
	if err != nil || number < 1 || number > mostParts || partName(of, number) != name {
		return 0, ""
	}
	return number, of
}

const (
	mostParts = 1<<16 - 1
	// mostOpen is the number of parts that are kept open.
	mostOpen = 100
)

// join opens the parts before the last one, which is r.obj, and reads from all of them from then on.
// A damaged end record may claim that there are parts: an archive that begins with an entry, and has
// no first part beside it, has none.
func (r *reader) join(ctx context.Context, before int) (err error) {
	p := &parts{}
	defer func() {
		if r.parts == nil {
			for _, o := range p.objs {
				o.Close()
			}
		}
	}()
	at := int64(0)
	for number := 1; number <= before; number++ {
		name := partName(r.name, number)
		o, info, err := storekit.OpenInfo(ctx, r.st, name)
		if errors.Is(err, fs.ErrNotExist) {
			var head [4]byte
			if number == 1 && r.size >= 4 {
				if err := r.obj.ReadAt(ctx, head[:], 0); err != nil {
					return err
				}
			}
			if string(head[:]) == localMagic {
				return nil
			}
			return r.corrupt(format.MissingVolume, -1, "part %d of %d of this split zip is missing: %s", number, before+1, format.Escape(name))
		}
		if err != nil {
			return err
		}
		if len(p.objs) >= mostOpen {
			o.Close()
			o = storekit.Briefly(r.st, name)
		}
		p.names, p.objs, p.starts = append(p.names, name), append(p.objs, o), append(p.starts, at)
		at += info.Size
	}
	p.names, p.objs, p.starts = append(p.names, r.name), append(p.objs, r.obj), append(p.starts, at, at+r.size)
	p.whole = &storekit.Pieced{Name: r.name, Closer: p}
	for i, o := range p.objs {
		p.whole.Add(o, 0, p.starts[i+1]-p.starts[i])
	}
	r.parts, r.obj, r.size = p, p.whole, p.whole.Size()
	return nil
}

// partAlone returns the error of opening a part other than the last, or nil if r is none.
func (r *reader) partAlone(ctx context.Context) error {
	number, of := partNumber(r.name)
	var head [len(splitMagic)]byte
	if number == 0 && r.size > int64(len(head)) {
		if err := r.obj.ReadAt(ctx, head[:], 0); err != nil {
			return err
		}
	}
	switch {
	case number > 0:
		return r.corrupt(format.MissingVolume, -1, "part %d of a split zip: open %s, its last part, which has the directory", number, format.Escape(of))
	case string(head[:]) == splitMagic:
		return r.corrupt(format.MissingVolume, -1, "the first part of a split zip: open its last part, which has the directory")
	}
	return nil
}

// in returns the part with the byte at an offset.
func (p *parts) in(off int64) int {
	i := len(p.objs) - 1
	for i > 0 && p.starts[i] > off {
		i--
	}
	return i
}

// from returns an offset in a part as one in all of them.
func (p *parts) from(part uint64, off uint64) (uint64, bool) {
	if p == nil {
		return off, true
	}
	if part >= uint64(len(p.objs)) || off > uint64(p.starts[part+1]-p.starts[part]) {
		return 0, false
	}
	return uint64(p.starts[part]) + off, true
}

// split returns the runs of n bytes at an offset, one in each part.
func (p *parts) split(off, n int64, yield func(part int, off, n int64) bool) bool {
	for i := p.in(off); n > 0 && i < len(p.objs); i++ {
		k := min(n, p.starts[i+1]-off)
		if k > 0 && !yield(i, off-p.starts[i], k) {
			return false
		}
		off, n = off+k, n-k
	}
	return true
}

// joined is what the parts are called as one object, for content that is decoded as one but lies in
// several. No store has an object of that name.
func (r *reader) joined() string { return r.name + " with its parts" }

// places yields an extent as it lies in parts.
func (r *reader) places(x format.Extent, yield func(format.Extent, error) bool) bool {
	if r.parts == nil {
		return yield(x, nil)
	}
	if first := r.parts.in(x.Off); x.Codec == codec.Raw || x.Off+x.Len <= r.parts.starts[first+1] {
		return r.parts.split(x.Off, x.Len, func(part int, off, n int64) bool {
			y := x
			y.Object, y.Off, y.Len = r.parts.names[part], off, n
			if x.Codec == codec.Raw {
				y.At, y.Size = r.parts.starts[part]+off-x.Off, n
			}
			return yield(y, nil)
		})
	}
	x.Object = r.joined()
	return yield(x, nil)
}

func (p *parts) Close() error {
	var errs []error
	for _, o := range p.objs {
		errs = append(errs, o.Close())
	}
	return errors.Join(errs...)
}
