package repairs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/base/meter"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Healed reports what a repair from a second copy took.
type Healed struct {
	Damaged int64 // pieces of contents
	Healed  int64 // of these
	Fetched int64 // bytes from the other copy
}

// ErrNoProof means that there is no index that shows what is damaged.
var ErrNoProof = errors.New("no index with digests of pieces")

// From plans the repair of the damaged pieces of an archive from a second copy of it, which mirror
// has under mirrorName. s must have an index with digests, which show what is damaged and verify
// what is fetched. The plan needs what was fetched until closer is closed.
func From(ctx context.Context, s *content.Source, mirror store.Store, mirrorName string, m *meter.Meter) (_ format.Plan, sum Healed, closer io.Closer, err error) {
	h := &healing{Store: s.Store, s: s, mirror: mirror, mirrorName: strings.TrimSuffix(mirrorName, "/"), fetched: map[string]*patches{}}
	if x := s.Index(); len(x.Objects) == 1 && x.Objects[0] == "" {
		if _, err := h.of(ctx, s.Name); err != nil {
			return format.Plan{}, sum, nil, err
		}
	}
	defer func() {
		if err != nil {
			h.Close()
		}
	}()
	wanted, err := h.damage(ctx, m, &sum)
	if err != nil {
		return format.Plan{}, sum, nil, err
	}
	plan, err := h.heal(ctx, wanted, &sum)
	if err != nil {
		return format.Plan{}, sum, nil, err
	}
	objects := slices.Sorted(maps.Keys(h.fetched))
	if len(objects) == 1 && objects[0] == s.Name {
		plan.Edits = h.edits(s.Name)
		return plan, sum, h, nil
	}
	for _, o := range objects {
		if len(h.fetched[o].ranges) > 0 {
			plan.Replaces, plan.Build = append(plan.Replaces, o), h.build
		}
	}
	return plan, sum, h, nil
}

// damage finds the pieces that are damaged, in the order of their offsets.
func (h *healing) damage(ctx context.Context, m *meter.Meter, sum *Healed) (wanted []damagedPiece, err error) {
	err = h.s.CheckPieces(ctx, m, func(e format.Entry, p *content.ProofError) {
		sum.Damaged++
		if len(wanted) <= maxWanted {
			wanted = append(wanted, damagedPiece{e, p})
		}
	}, func(format.Entry) {})
	if err == nil && len(wanted) > maxWanted {
		err = fmt.Errorf("more than %d damaged pieces: copy the whole archive", maxWanted)
	}
	slices.SortStableFunc(wanted, func(x, y damagedPiece) int { return cmp.Compare(x.p.Off, y.p.Off) })
	return wanted, err
}

// heal fetches the bytes that repair damaged pieces. It then reads each piece from the archive with
// these bytes laid over it, to verify the repair.
func (h *healing) heal(ctx context.Context, wanted []damagedPiece, sum *Healed) (plan format.Plan, err error) {
	healed := h.s.Over(h)
	defer healed.CloseObjects()
	for _, w := range wanted {
		before := h.end
		err := h.fetch(ctx, w)
		if err == nil {
			_, err = healed.ReadAt(ctx, w.e, make([]byte, w.p.Len), w.p.Off)
		}
		switch {
		case err == nil:
			sum.Healed++
			continue
		case ctx.Err() != nil:
			return plan, context.Cause(ctx)
		case storekit.Temporary(err):
			return plan, err
		}
		h.forget(before)
		plan.Partial = true
		plan.Lost = append(plan.Lost, fmt.Sprintf("%s: bytes %d to %d: not repaired from the other copy: %v", format.Escape(w.e.Name), w.p.Off, w.p.Off+w.p.Len, err))
	}
	sum.Fetched = h.end
	return plan, nil
}

func (h *healing) edits(object string) (all []format.Edit) {
	p := h.fetched[object]
	if p == nil {
		return nil
	}
	for _, r := range p.ranges {
		all = append(all, format.Edit{Object: object, Off: r.off, Len: r.n, Write: func(w io.Writer) error { return h.copy(w, r) }})
	}
	return all
}

// build writes the objects of an archive that has several: all of them, or if inPlace only those
// that change.
func (h *healing) build(ctx context.Context, st store.Store, name string, inPlace bool) error {
	own, to := strings.TrimSuffix(h.s.Name, "/"), strings.TrimSuffix(name, "/")
	for info, err := range storekit.List(ctx, h.Store, own+"/") {
		if err != nil {
			return err
		}
		edits := h.edits(info.Name)
		if inPlace && len(edits) == 0 {
			continue
		}
		if err := Apply(ctx, h.Store, info.Name, format.Plan{Edits: edits}, st, to+strings.TrimPrefix(info.Name, own)); err != nil {
			return err
		}
	}
	return nil
}

// block is how much is fetched at once.
const block = 4 << 20

// maxWanted is how many damaged pieces can be repaired: at 64 KiB each, a quarter of a terabyte.
const maxWanted = 1 << 22

type damagedPiece struct {
	e format.Entry
	p *content.ProofError
}

// A patch is a range of an object that was fetched.
type patch struct {
	off, n int64
	at     int64 // in scratch
}

// patches are those of one object, and where they come from.
type patches struct {
	from   store.Object
	size   int64
	ranges []patch // by off
}

// at returns the index of the first range that ends after off.
func (p *patches) at(off int64) int {
	return sort.Search(len(p.ranges), func(i int) bool { return p.ranges[i].off+p.ranges[i].n > off })
}

// healing is a store that shows an archive with what was fetched in its place.
type healing struct {
	store.Store
	s          *content.Source
	mirror     store.Store
	mirrorName string
	fetched    map[string]*patches // by the name of the archive's object

	mu   sync.Mutex
	disk sorter.Scratch
	end  int64
}

func (h *healing) Close() error {
	var errs []error
	for _, p := range h.fetched {
		errs = append(errs, p.from.Close())
	}
	if h.disk != nil {
		errs = append(errs, h.disk.Close())
	}
	return errors.Join(errs...)
}

// of returns the patches of an object of the archive. The other copy must have an object of the
// same name and length.
func (h *healing) of(ctx context.Context, object string) (*patches, error) {
	if p := h.fetched[object]; p != nil {
		return p, nil
	}
	own := strings.TrimSuffix(h.s.Name, "/")
	rest, ok := strings.CutPrefix(object, own)
	if !ok || rest != "" && rest[0] != '/' {
		return nil, fmt.Errorf("stored in %s: %w", object, errors.ErrUnsupported)
	}
	size, err := sizeIn(ctx, h.Store, object)
	if err != nil {
		return nil, err
	}
	from, info, err := storekit.OpenInfo(ctx, h.mirror, h.mirrorName+rest)
	if err != nil {
		return nil, err
	}
	if info.Size != size {
		from.Close()
		return nil, fmt.Errorf("%s is not a copy: %d bytes, expected %d", h.mirrorName+rest, info.Size, size)
	}
	p := &patches{from: from, size: size}
	h.fetched[object] = p
	return p, nil
}

func sizeIn(ctx context.Context, st store.Store, name string) (int64, error) {
	info, err := storekit.Briefly(st, name).Info(ctx)
	return info.Size, err
}

// forget drops what was fetched from a place in scratch on.
func (h *healing) forget(from int64) {
	for _, p := range h.fetched {
		p.ranges = slices.DeleteFunc(p.ranges, func(r patch) bool { return r.at >= from })
	}
}

// fetch fetches the correct stored bytes of a damaged piece.
func (h *healing) fetch(ctx context.Context, w damagedPiece) error {
	if w.p.None {
		return w.p
	}
	for x, err := range h.s.Reader.Extents(ctx, w.e, w.p.Off, w.p.Len) {
		if err != nil {
			return err
		}
		off, end := x.Off, x.Off+x.Len
		switch {
		case x.Codec == codec.Inline || x.Codec == codec.Zero:
			continue
		case x.External:
			return fmt.Errorf("stored in %s: %w", x.Object, errors.ErrUnsupported)
		case x.Codec == codec.Raw:
			off += max(w.p.Off-x.At, 0)
			end = x.Off + min(x.Size, w.p.Off+w.p.Len-x.At)
		}
		p, err := h.of(ctx, x.Object)
		if err != nil {
			return err
		}
		if off < 0 || end > p.size {
			return fmt.Errorf("bytes %d to %d are outside the object of %d bytes", off, end, p.size)
		}
		if err := h.fetchRange(ctx, p, off, end); err != nil {
			return err
		}
	}
	return nil
}

// fetchRange fetches the parts of [off, end) that are missing.
func (h *healing) fetchRange(ctx context.Context, p *patches, off, end int64) error {
	for off < end {
		to := end
		i := p.at(off)
		if i < len(p.ranges) {
			if r := p.ranges[i]; r.off <= off {
				off = r.off + r.n
				continue
			} else if r.off < to {
				to = r.off
			}
		}
		to = min(to, off+block)
		b := make([]byte, to-off)
		if err := p.from.ReadAt(ctx, b, off); err != nil {
			return err
		}
		if err := h.keep(p, b, off); err != nil {
			return err
		}
		off = to
	}
	return nil
}

func (h *healing) keep(p *patches, b []byte, off int64) (err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.disk == nil {
		h.disk, err = sorter.TempFile()
	}
	if err == nil {
		_, err = h.disk.Seek(h.end, io.SeekStart)
	}
	if err == nil {
		_, err = h.disk.Write(b)
	}
	if err != nil {
		return err
	}
	p.ranges = slices.Insert(p.ranges, p.at(off), patch{off, int64(len(b)), h.end})
	h.end += int64(len(b))
	return nil
}

// read fills b with fetched bytes from a place in scratch.
func (h *healing) read(b []byte, at int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return readScratch(h.disk, b, at)
}

func readScratch(disk sorter.Scratch, b []byte, at int64) error {
	_, err := disk.Seek(at, io.SeekStart)
	if err == nil {
		_, err = io.ReadFull(disk, b)
	}
	return err
}

func (h *healing) copy(w io.Writer, r patch) error {
	b := make([]byte, r.n) // of block at most
	if err := h.read(b, r.at); err != nil {
		return err
	}
	_, err := w.Write(b)
	return err
}

// Can returns only abilities to read, so that nothing bypasses what was fetched.
func (h *healing) Can() store.Abilities { return store.Abilities{} }

// Open opens an object of the archive with what was fetched in its place.
func (h *healing) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := h.Store.Open(ctx, name)
	if err == nil {
		o = &repaired{o, h, name}
	}
	return o, err
}

type repaired struct {
	store.Object
	h    *healing
	name string
}

func (o *repaired) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

func (o *repaired) ReadAt(ctx context.Context, b []byte, off int64) error {
	if err := o.Object.ReadAt(ctx, b, off); err != nil {
		return err
	}
	p := o.h.fetched[o.name]
	if p == nil {
		return nil
	}
	end := off + int64(len(b))
	for _, r := range p.ranges[p.at(off):] {
		from, to := max(r.off, off), min(r.off+r.n, end)
		if from >= to {
			break
		}
		if err := o.h.read(b[from-off:to-off], r.at+from-r.off); err != nil {
			return err
		}
	}
	return nil
}
