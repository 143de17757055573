package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/survey"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// An archive that is written in parts has a chunk for each part, and a last
// chunk that merges them. If such a plan is planned again, the new objects go
// into a further archive.

// whole returns the name of an archive of a plan that is written in parts. The
// first has the name of the target; the others have numbers.
func (j *job) whole(archive int) string {
	name := strings.TrimSuffix(j.name, "/")
	if archive == 0 {
		return name
	}
	ext := ""
	for _, e := range j.format.Extensions {
		if strings.EqualFold(path.Ext(name), e) {
			ext = e
		}
	}
	return pack.ChunkName(name, archive+1, ext)
}

// A seat is a chunk's place: its archive, and the earlier parts of that
// archive.
type seat struct {
	archive int // from 0 on
	name    string
	parts   []catalog.Chunk
}

func (s seat) next(k catalog.Chunk) seat {
	if k.Last {
		return seat{archive: s.archive + 1}
	}
	return seat{archive: s.archive, parts: append(s.parts, k)}
}

// seatOf returns the seat of a chunk. If there is no chunk of that number yet,
// it is the seat of the next one to be planned.
func (j *job) seatOf(ctx context.Context, c *catalog.Catalog, number int) (s seat, err error) {
	if j.format.Parts == nil {
		return s, nil
	}
	for k, err := range c.Chunks(ctx, j.plan.ID) {
		if err != nil {
			return s, err
		}
		if k.Number >= number {
			break
		}
		s = s.next(k)
	}
	s.name = j.whole(s.archive)
	return s, nil
}

func (s seat) part(k catalog.Chunk) format.Part {
	return format.Part{Archive: s.name, Number: len(s.parts), Try: k.Fence}
}

func (j *job) creating() format.CreateOptions {
	return format.CreateOptions{NoDigests: j.set.Plain, Param: j.set.Param, Scratch: pack.NewScratch}
}

func (j *job) writing(p format.Part) *format.Format {
	f := *j.format
	f.Create = func(ctx context.Context, st store.Store, _ string, o format.CreateOptions) (format.Writer, error) {
		return j.format.Parts.Create(ctx, st, p, o)
	}
	return &f
}

// openPart opens a part with the list of a try.
func (j *job) openPart(ctx context.Context, p format.Part) (*holdall.Archive, error) {
	return holdall.Open(ctx, j.format.Parts.Object(p.Archive, p.Number), j.readingPart(p).In(j.target))
}

func (j *job) readingPart(p format.Part) holdall.OpenOptions {
	f := *j.format
	f.Open = func(ctx context.Context, st store.Store, _ string, o format.OpenOptions) (format.Reader, error) {
		return j.format.Parts.Open(ctx, st, p, o)
	}
	f.Verify = nil
	return holdall.OpenOptions{Format: f.Name, Formats: []*format.Format{&f}}
}

// adoptPart records a part that an earlier claim of the chunk made. If there
// is none, its error wraps fs.ErrNotExist.
func (w *worker) adoptPart(ctx context.Context, j *job, k catalog.Chunk, p format.Part, e *Event) error {
	name := j.format.Parts.Object(p.Archive, p.Number)
	if err := isThere(ctx, j.target, name); err != nil {
		return err
	}
	fit, err := j.fitting(ctx, p.Archive, p.Number)
	if err == nil {
		none := fmt.Errorf("%s: exists already, and does not match the lists of %d attempts: %w", format.Escape(name), len(fit), fs.ErrExist)
		p, err = theOne(fit, none, func(p format.Part) (bool, error) { return j.sound(ctx, p) })
	}
	if err != nil {
		return err
	}
	in, err := j.openPart(ctx, p)
	if err != nil {
		return err
	}
	defer in.Close()
	return w.takeOver(ctx, j, k, name, e, in, nil)
}

// isThere requests an object. If the object does not exist, the error wraps
// fs.ErrNotExist.
func isThere(ctx context.Context, st store.Store, name string) error {
	_, err := storekit.Briefly(st, name).Info(ctx)
	return err
}

// fitting returns the tries whose lists may belong to the existing part. There
// is usually one. There are several if a claim ended between writing the list
// and the object, or wrote its list too late.
func (j *job) fitting(ctx context.Context, archive string, number int) (fit []format.Part, err error) {
	tries, err := j.format.Parts.Tries(ctx, j.target, archive, number)
	if err != nil {
		return nil, err
	}
	for _, p := range tries {
		in, err := j.openPart(ctx, p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		fit = append(fit, p)
		in.Close()
	}
	if len(fit) == 0 {
		return nil, fmt.Errorf("%s: exists already, and none of the lists of %d attempts belongs to it: %w", format.Escape(j.format.Parts.Object(archive, number)), len(tries), fs.ErrExist)
	}
	return fit, nil
}

// theOne returns the only fitting try. If there are several, it returns the
// first one for which is returns true, or the error none.
func theOne(fit []format.Part, none error, is func(format.Part) (bool, error)) (format.Part, error) {
	if len(fit) == 1 {
		return fit[0], nil
	}
	for _, p := range fit {
		if yes, err := is(p); yes || err != nil {
			return p, err
		}
	}
	return format.Part{}, none
}

// sound reports whether a part is complete according to its list, by reading
// everything in it.
func (j *job) sound(ctx context.Context, p format.Part) (bool, error) {
	name := j.format.Parts.Object(p.Archive, p.Number)
	v, err := holdall.Verify(ctx, name, holdall.VerifyOptions{OpenOptions: j.readingPart(p).In(j.target)}, func(holdall.Problem) {})
	return v.Errors == 0, err
}

func nothingElse(ctx context.Context, k catalog.Chunk, in *holdall.Archive, n int64) error {
	found := int64(0)
	for e, err := range in.Entries(ctx) {
		if err != nil {
			return err
		}
		if survey.Catalogued(e) {
			found++
		}
	}
	if found != n {
		return fmt.Errorf("%s: expected %d planned objects, found %d: not part of this plan: %w", format.Escape(k.Name), n, found, fs.ErrExist)
	}
	return nil
}

// recorded returns the try of a finished part whose list matches what the
// catalogue records as packed. If two match, they are alike.
func (w *worker) recorded(ctx context.Context, j *job, k catalog.Chunk, archive string, number int) (format.Part, error) {
	fit, err := j.fitting(ctx, archive, number)
	if err != nil {
		return format.Part{}, err
	}
	none := fmt.Errorf("%s: none of the lists of %d attempts matches the catalogue", format.Escape(k.Name), len(fit))
	return theOne(fit, none, func(p format.Part) (bool, error) { return w.hasRecorded(ctx, j, k, p) })
}

func (w *worker) hasRecorded(ctx context.Context, j *job, k catalog.Chunk, p format.Part) (bool, error) {
	in, err := j.openPart(ctx, p)
	if err != nil {
		return false, err
	}
	defer in.Close()
	for m, err := range w.members(ctx, k) {
		if err != nil {
			return false, err
		}
		e, err := in.Lookup(ctx, m.Path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		if has := err == nil && e.Size == m.Size; has != (m.Outcome == catalog.Packed) {
			return false, nil
		}
	}
	return true, nil
}

// merge makes an archive of the parts before a last chunk, and records it.
func (w *worker) merge(ctx context.Context, j *job, k catalog.Chunk) error {
	s, err := j.seatOf(ctx, w.c, k.Number)
	if err != nil {
		return err
	}
	if err := j.named(k, s.name); err != nil {
		return err
	}
	of := j.format.Parts
	if err = isThere(ctx, j.target, of.Decides(s.name)); errors.Is(err, fs.ErrNotExist) {
		var parts []format.Part
		for i, part := range s.parts {
			p, err := w.recorded(ctx, j, part, s.name, i)
			if err != nil {
				return err
			}
			parts = append(parts, p)
		}
		_, err = of.Merge(ctx, j.target, s.name, parts, j.creating())
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// Whichever claim merged it, what is recorded is compared with the plan.
	if err := w.record(ctx, j, k, s.name, made{}); err != nil {
		return err
	}
	j.clear(ctx, s.name)
	return nil
}

// clear removes leftovers beside a finished archive. It is optional: nothing
// depends on it.
func (j *job) clear(ctx context.Context, archive string) {
	j.tidy(ctx, archive+"/")
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_ = j.format.Parts.Clear(ctx, j.target, archive)
}
