package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"strings"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/app/catalog/survey"
	"github.com/holdall/holdall/internal/app/fleet/queue"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// An archive that is written in parts has a chunk for each part, and a last chunk that merges them. The
// archive of the plan's first listing has the name of the target. Others have numbers.

// whole returns the name of the archive of some parts of a listing, from 0 on.
func (j *job) whole(listing int64, number int) string {
	name := strings.TrimSuffix(j.name, "/")
	ext := ""
	for _, e := range j.format.Extensions {
		if strings.EqualFold(path.Ext(name), e) {
			ext = e
		}
	}
	if listing != j.plan.first {
		name = pack.ChunkName(name, int(listing), ext)
	}
	if number > 0 {
		name = pack.ChunkName(name, number+1, ext)
	}
	return name
}

// part returns the place of a chunk.
func (j *job) part(k chunk) format.Part {
	most := j.format.Parts.Most
	return format.Part{Archive: j.whole(k.Listing, k.Number/most), Number: k.Number % most, Try: time.Now().UnixNano()}
}

// lastOf returns the chunk that makes an archive of parts before a number.
func lastOf(listing int64, number int) chunk { return chunk{Listing: listing, Last: number} }

// join hands out the chunk that makes an archive of the parts since the one before. Its list, which is
// empty, says that no part is missing.
func (pl *planner) join(ctx context.Context, listing int64, number int) error {
	if number == 0 || pl.j.format.Parts == nil {
		return nil
	}
	k := lastOf(listing, number)
	err := pl.f.writeList(ctx, pl.j, &k, pipe.All[Member](nil))
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if err == nil {
		err = pl.f.joinDone(ctx, pl.j, listing)
	}
	pl.p.Chunks++
	return err
}

// joinDone hands out the chunks that make archives of the parts of a listing, if all these parts are done.
func (f Fleet) joinDone(ctx context.Context, j *job, listing int64) error {
	if j.format.Parts == nil {
		return nil
	}
	done, err := f.done(ctx)
	if err != nil {
		return err
	}
	all, err := f.waiting(ctx, j)
	if err != nil {
		return err
	}
	for _, k := range all {
		if k.Listing == listing && k.Last > 0 && j.partsDone(k, done) {
			if err := f.enqueue(ctx, j, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// partsDone reports whether all parts before a last chunk are done.
func (j *job) partsDone(k chunk, done map[string]bool) bool {
	for n := j.firstPart(k); n < k.Last; n++ {
		if !done[j.job(chunk{Listing: k.Listing, Number: n})] {
			return false
		}
	}
	return true
}

// firstPart returns the number of the first part before a last chunk.
func (j *job) firstPart(k chunk) int { return (k.Last - 1) / j.format.Parts.Most * j.format.Parts.Most }

// joinBegun joins the parts of listings that were interrupted. If the lists of some are gone, the listing was
// cancelled.
func (pl *planner) joinBegun(ctx context.Context) error {
	if pl.j.format.Parts == nil {
		return nil
	}
	parts, joined := map[int64]map[int]bool{}, map[int64]int{} // by listing
	for _, k := range pl.begun {
		if k.Last > 0 {
			joined[k.Listing] = max(joined[k.Listing], k.Last)
			continue
		}
		if parts[k.Listing] == nil {
			parts[k.Listing] = map[int]bool{}
		}
		parts[k.Listing][k.Number] = true
	}
	for listing, has := range parts {
		end := 0
		for n := range has {
			end = max(end, n+1)
		}
		whole := end > joined[listing]
		for n := pl.j.firstPart(lastOf(listing, end)); n < end; n++ {
			whole = whole && has[n]
		}
		if !whole {
			continue
		}
		if err := pl.join(ctx, listing, end); err != nil {
			return err
		}
	}
	return nil
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

// adoptPart records a part that an earlier try has made. If there is none, its error wraps fs.ErrNotExist.
func (w *worker) adoptPart(ctx context.Context, j *job, k chunk, p format.Part) (Chunk, error) {
	name := j.format.Parts.Object(p.Archive, p.Number)
	if err := isThere(ctx, j.target, name); err != nil {
		return Chunk{}, err
	}
	p, err := j.complete(ctx, p.Archive, p.Number)
	if err != nil {
		return Chunk{}, err
	}
	in, err := j.openPart(ctx, p)
	if err != nil {
		return Chunk{}, err
	}
	defer in.Close()
	return w.takeOver(ctx, j, k, name, in, nil)
}

// complete returns the try whose list is that of an existing part.
func (j *job) complete(ctx context.Context, archive string, number int) (format.Part, error) {
	fit, err := j.fitting(ctx, archive, number)
	if err != nil {
		return format.Part{}, err
	}
	none := fmt.Errorf("%s: exists already, and does not match the lists of %d attempts: %w", format.Escape(j.format.Parts.Object(archive, number)), len(fit), fs.ErrExist)
	return theOne(fit, none, func(p format.Part) (bool, error) { return j.sound(ctx, p) })
}

// isThere requests an object. If the object does not exist, the error wraps
// fs.ErrNotExist.
func isThere(ctx context.Context, st store.Store, name string) error {
	_, err := storekit.Briefly(st, name).Info(ctx)
	return err
}

// fitting returns the tries whose lists may belong to the existing part. There
// is usually one. There are several if a try ended between writing the list
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

func nothingElse(ctx context.Context, name string, in *holdall.Archive, n int64) error {
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
		return fmt.Errorf("%s: expected %d planned objects, found %d: not part of this plan: %w", format.Escape(name), n, found, fs.ErrExist)
	}
	return nil
}

// lists yields the objects of a chunk, or those of the parts before a last chunk.
func (f Fleet) lists(ctx context.Context, j *job, k chunk) iter.Seq2[Member, error] {
	if k.Last == 0 {
		return f.members(ctx, j, k)
	}
	var all []iter.Seq2[known, error]
	for n := j.firstPart(k); n < k.Last; n++ {
		all = append(all, func(yield func(known, error) bool) {
			for m, err := range f.members(ctx, j, chunk{Listing: k.Listing, Number: n}) {
				if !yield(known{Member: m}, err) {
					return
				}
			}
		})
	}
	return func(yield func(Member, error) bool) {
		for m, err := range merged(all) {
			if !yield(m.Member, err) {
				return
			}
		}
	}
}

// merge makes an archive of the parts before a last chunk, and records it. If some are missing, it is handed
// out again when the last of them is done.
func (w *worker) merge(ctx context.Context, j *job, k chunk, done map[string]bool) error {
	of := j.format.Parts
	if of == nil {
		return queue.Never(fmt.Errorf("%s has no parts", j.format.Name))
	}
	first := j.firstPart(k)
	name := j.whole(k.Listing, first/of.Most)
	clear := func() error {
		j.clear(ctx, name)
		for n := first; n < k.Last; n++ {
			if err := w.drop(ctx, j, chunk{Listing: k.Listing, Number: n}); err != nil {
				return err
			}
		}
		return w.drop(ctx, j, k)
	}
	if done[j.job(k)] {
		return clear()
	}
	if !j.partsDone(k, done) {
		return nil
	}
	err := isThere(ctx, j.target, of.Decides(name))
	if errors.Is(err, fs.ErrNotExist) {
		var parts []format.Part
		for n := range k.Last - first {
			p, err := j.complete(ctx, name, n)
			if err != nil {
				return err
			}
			parts = append(parts, p)
		}
		_, err = of.Merge(ctx, j.target, name, parts, j.creating())
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	proven := map[string]int64{}
	if err := w.eachLeft(ctx, j, func(part chunk, l leftLine) error {
		if part.Listing == k.Listing && part.Last == 0 && part.Number >= first && part.Number < k.Last {
			countProven(proven, l.Proven)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := w.record(ctx, j, k, name, made{proven: counted(proven)}, 1); err != nil {
		return err
	}
	return clear()
}

// clear removes leftovers beside a finished archive. It is optional: nothing depends on it.
func (j *job) clear(ctx context.Context, archive string) {
	j.tidy(ctx, archive+"/")
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_ = j.format.Parts.Clear(ctx, j.target, archive)
}
