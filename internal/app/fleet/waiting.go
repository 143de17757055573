package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/internal/app/fleet/queue"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A chunk that waits to be packed has a list of its objects in the catalogue's folder:
// work/PLAN/LISTING-NUMBER. The list goes when the chunk is packed. If the queue is lost, the lists tell
// what was in it.

// idOf is the name of a plan in names of objects.
func idOf(plan string) string {
	sum := sha256.Sum256([]byte(plan))
	return hex.EncodeToString(sum[:6])
}

// A chunk is what a worker packs into one archive, or into a part of one.
type chunk struct {
	Listing int64 `json:"listing"` // the commit that began it
	Number  int   `json:"number"`  // from 0 on
	// Last makes an archive of so many parts before it.
	Last  int   `json:"last,omitempty"`
	Count int64 `json:"objects,omitempty"`
	Bytes int64 `json:"bytes,omitempty"`

	done bool // it is a part, whose archive is not complete
}

// name is that of its list, and of its job.
func (k chunk) name() string {
	if k.Last > 0 {
		return fmt.Sprintf("%016d-%06d-last", k.Listing, k.Last)
	}
	return fmt.Sprintf("%016d-%06d", k.Listing, k.Number)
}

// chunkNamed parses the name of a chunk.
func chunkNamed(name string) (k chunk, ok bool) {
	listing, number, _ := strings.Cut(name, "-")
	number, last := strings.CutSuffix(number, "-last")
	var err, nerr error
	k.Listing, err = strconv.ParseInt(listing, 10, 64)
	k.Number, nerr = strconv.Atoi(number)
	if last {
		k.Number, k.Last = 0, k.Number
	}
	return k, err == nil && nerr == nil && k.name() == name
}

// job is the name of a chunk's job in the catalogue.
func (j *job) job(k chunk) string { return j.id + "/" + k.name() }

// at returns the name of an object of a plan in the catalogue's folder.
func (f Fleet) at(kind string, j *job, name string) string {
	return path.Join(f.Book.Name(), kind, j.id, name)
}

const (
	workKind = "work" // lists of what is to be packed
	leftKind = "left" // what could not be
)

// writeList writes the list of a chunk.
func (f Fleet) writeList(ctx context.Context, j *job, k *chunk, members iter.Seq2[Member, error]) (err error) {
	name := f.at(workKind, j, k.name())
	w, err := storekit.CreateAs(ctx, f.Book.Store(), name, store.Wishes{Once: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Abort()) }()
	x := rows.NewWriter(w, 0, func(rows.ArchiveID) (rows.Archive, bool) { return rows.Archive{}, false })
	for m, err := range members {
		if err == nil {
			k.Count++
			k.Bytes += m.Size
			err = x.Add(&rows.Row{Name: m.Path, Size: m.Size, ETag: m.Version, Time: m.Modified})
		}
		if err != nil {
			return err
		}
	}
	if _, _, err = x.Close(); err == nil {
		_, err = w.Commit(ctx)
	}
	return err
}

// A ListError reports that the list of a chunk is damaged.
type ListError struct{ error }

func (e *ListError) Unwrap() error { return e.error }

// openList opens the list of a chunk. Without one, the error wraps errGone.
func (f Fleet) openList(ctx context.Context, j *job, k chunk) (*rows.Run, error) {
	name := f.at(workKind, j, k.name())
	o, err := f.Book.Store().Open(ctx, name)
	var r *rows.Run
	if err == nil {
		if r, err = rows.OpenAlone(ctx, o, name); err != nil {
			err = errors.Join(err, o.Close())
		}
	}
	return r, listError(ctx, name, err)
}

// listError says what an error of reading a list means.
func listError(ctx context.Context, name string, err error) error {
	_, list := errors.AsType[*rows.Error](err)
	_, unread := errors.AsType[*store.Error](err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: %w", format.Escape(name), errGone)
	case list && !unread && ctx.Err() == nil:
		return &ListError{err}
	}
	return err
}

// members yields the objects of a chunk, in byte order of their paths. Without a list, the error wraps
// errGone.
func (f Fleet) members(ctx context.Context, j *job, k chunk) iter.Seq2[Member, error] {
	return f.membersIn(ctx, j, k, span{})
}

// membersIn is members for the paths in a span.
func (f Fleet) membersIn(ctx context.Context, j *job, k chunk, of span) iter.Seq2[Member, error] {
	return pipe.Told(func(tell func(Member) error) error {
		r, err := f.openList(ctx, j, k)
		if err != nil {
			return err
		}
		defer r.Close()
		if !r.Within(of.from, of.before) {
			return nil
		}
		for x, err := range r.From(ctx, of.from) {
			if err != nil {
				return listError(ctx, f.at(workKind, j, k.name()), err)
			}
			if !of.has(x.Name) {
				return nil
			}
			if err := tell(Member{Path: x.Name, Origin: j.originOf(x.Name), Size: x.Size, Version: x.ETag, Modified: x.Time}); err != nil {
				return err
			}
		}
		return nil
	})
}

// unpacked yields those objects of a chunk that the catalogue does not have in this version: two may have
// listed the sources at once.
func (f Fleet) unpacked(ctx context.Context, j *job, k chunk) iter.Seq2[Member, error] {
	return pipe.Told(func(tell func(Member) error) error {
		s, err := f.Book.State(ctx)
		var of scope
		if err == nil {
			of, err = j.scope(ctx, f.Book)
		}
		if err != nil {
			return err
		}
		if k.Count > 0 && k.Count < s.Entries/rowsRead {
			return f.unpackedOf(ctx, j, k, of, tell)
		}
		var next func() (catalog.Location, error, bool)
		var l catalog.Location
		more := false
		for m, err := range f.members(ctx, j, k) {
			if err == nil && next == nil {
				var stop func()
				next, stop = iter.Pull2(f.Book.Between(ctx, m.Path, "", of.has))
				defer stop()
				l, err, more = next()
			}
			for err == nil && more && l.Path < m.Path {
				l, err, more = next()
			}
			if err != nil {
				return err
			}
			if more && l.Path == m.Path && m.isPacked(l) {
				continue
			}
			if err := tell(m); err != nil {
				return err
			}
		}
		return nil
	})
}

// unpackedOf tells what unpacked yields, and looks each name up.
func (f Fleet) unpackedOf(ctx context.Context, j *job, k chunk, of scope, tell func(Member) error) error {
	type row struct {
		Member
		was *known
		err error
	}
	find := f.finder(j, of)
	rows := func(yield func(*row, error) bool) {
		for m, err := range f.members(ctx, j, k) {
			if !yield(&row{Member: m}, err) {
				return
			}
		}
	}
	return pipe.Ordered(ctx, rows, lists, func(ctx context.Context, x *row) { x.was, x.err = find(ctx, x.Path) }, func(x *row) error {
		if x.err != nil || x.was != nil && x.isPacked(x.was.was) {
			return x.err
		}
		return tell(x.Member)
	}, func(*row) {})
}

// isPacked reports whether a packed file is this version of the object.
func (m Member) isPacked(l catalog.Location) bool {
	if l.ETag == "" { // a file on a disk
		return l.Size == m.Size && !l.Modified.IsZero() && l.Modified.Equal(m.Modified)
	}
	return l.Size == m.Size && l.ETag == m.Version && !later(m.Modified, l.Modified)
}

// A worklist is the list of a chunk. If the chunk is done, a commit says so.
type worklist struct {
	plan string // its ID
	chunk
}

// worklists yields the lists of all plans, or those whose names begin in the same way.
func (f Fleet) worklists(ctx context.Context, begin string) iter.Seq2[worklist, error] {
	return pipe.Told(func(tell func(worklist) error) error {
		done, err := f.done(ctx)
		if err != nil {
			return err
		}
		for info, err := range storekit.List(ctx, f.Book.Store(), path.Join(f.Book.Name(), workKind)+"/"+begin) {
			if err != nil {
				return err
			}
			k, ok := chunkNamed(path.Base(info.Name))
			if !ok {
				continue
			}
			x := worklist{path.Base(path.Dir(info.Name)), k}
			x.done = done[x.plan+"/"+k.name()]
			if err := tell(x); err != nil {
				return err
			}
		}
		return nil
	})
}

// waits reports whether a chunk of a plan waits to be packed. Parts also wait for the others of their archive: their
// objects are not in the catalogue yet.
func (x worklist) waits(j *job) bool { return !x.done || j.format.Parts != nil && x.Last == 0 }

// waiting returns the chunks of a plan that wait.
func (f Fleet) waiting(ctx context.Context, j *job) (all []chunk, err error) {
	for x, err := range f.worklists(ctx, j.id+"/") {
		if err != nil {
			return nil, err
		}
		if x.waits(j) {
			all = append(all, x.chunk)
		}
	}
	return all, nil
}

// done returns the jobs that commits have ended.
func (f Fleet) done(ctx context.Context) (map[string]bool, error) {
	s, err := f.Book.Full(ctx)
	if err != nil {
		return nil, err
	}
	done := make(map[string]bool, len(s.Jobs))
	for _, d := range s.Jobs {
		done[d.Job] = true
	}
	return done, nil
}

// enqueue hands out chunks. Those that are handed out already are left as they are.
func (f Fleet) enqueue(ctx context.Context, j *job, all ...chunk) error {
	var jobs []queue.Job
	for _, k := range all {
		args, err := json.Marshal(k)
		if err != nil {
			return err
		}
		jobs = append(jobs, queue.Job{Plan: j.plan.Name, Kind: packKind, Name: k.name(), Args: args, Long: long(k.Count, k.Bytes)})
	}
	_, err := f.Queue.Add(ctx, jobs...)
	return err
}

// least is how long any job may take. Tests change it.
var least = time.Minute

// Hasten makes it less, for tests that kill the built command.
func Hasten(to time.Duration) { least = to }

// long is how long a job may take before it is taken for lost: a worker packs at least 25 MB and 800 objects
// a second. With each try it may take twice as long.
func long(objects, bytes int64) time.Duration {
	return max(least, time.Duration(float64(bytes)/25e6*float64(time.Second)), time.Duration(objects)*time.Second/800)
}

// sized counts the objects of a chunk that was not handed out.
func (f Fleet) sized(ctx context.Context, j *job, k chunk) (chunk, error) {
	k.Count, k.Bytes = 0, 0
	if k.Last > 0 {
		return k, nil
	}
	for m, err := range f.members(ctx, j, k) {
		if err != nil {
			return k, err
		}
		k.Count++
		k.Bytes += m.Size
	}
	return k, nil
}
