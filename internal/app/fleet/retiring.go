package fleet

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/internal/app/fleet/queue"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// maxJobs is how many requests of a range there may be at once.
const maxJobs = 1024

// A retirement retires the originals of a range.
type retirement struct {
	f     Fleet
	j     *job
	a     retireArgs
	meter *holdall.Meter
	scope scope
}

// An original is one that may be retired.
type original struct {
	catalog.Location
	st      store.Store
	name    string
	version string // to be removed
	leaving bool   // a commit of this job says so
	asked   time.Time
	sum     store.Sum // the checksum of its service
	has     bool
	by      string
	why     Reason // it is left
	err     error

	sure  bool // it existed at the last look, in this version or another one
	going bool // it is in the log
	gone  bool
	took  time.Duration // since it was asked
}

func (x *original) leave(why Reason, err error) { x.why, x.err = why, err }

func (x *original) info() store.Info {
	return store.Info{Name: x.name, Size: x.Size, Version: x.version}
}

// retire does a job. An attempt begins anew, whatever those before it have done, but it also takes what they
// said was leaving.
func (w *worker) retire(ctx context.Context, j *job, k queue.Job) error {
	t := &retirement{f: w.Fleet, j: j, meter: w.o.Meter}
	if err := json.Unmarshal(k.Args, &t.a); err != nil || t.a.name() != k.Name || t.a.Jobs < 1 || t.a.Jobs > maxJobs {
		return queue.Never(fmt.Errorf("job %s: not that of a range of originals", k.Name))
	}
	err := t.run(ctx)
	if _, behind := errors.AsType[*BehindError](err); behind {
		err = queue.Never(err)
	}
	return err
}

func (t *retirement) run(ctx context.Context) error {
	_, err := t.j.current(ctx, t.f.Book)
	if err == nil {
		t.scope, err = t.j.scope(ctx, t.f.Book)
	}
	if err != nil {
		return err
	}
	all, err := t.candidates(ctx)
	if err == nil {
		err = pipe.Each(ctx, pipe.All(all), t.a.Jobs, t.ask)
	}
	if err == nil {
		err = t.prove(ctx, all)
	}
	if err == nil && !t.a.DryRun {
		err = t.remove(ctx, all)
	}
	if err == nil {
		err = t.tell(ctx, all)
	}
	return err
}

// candidates returns the originals in the range that may be retired.
func (t *retirement) candidates(ctx context.Context) (all []*original, err error) {
	s, err := t.f.Book.Full(ctx)
	if err != nil {
		return nil, err
	}
	mine, n := map[int64]bool{}, int64(0) // commits of earlier attempts
	for _, d := range s.Jobs {
		mine[d.Commit] = mine[d.Commit] || strings.HasPrefix(d.Job, t.job(""))
	}
	of := unescapedSpan(t.a.From, t.a.Before)
	for l, err := range t.f.Book.Between(ctx, of.from, of.before, t.scope.has) {
		if err != nil {
			return nil, err
		}
		leaving := l.Original == catalog.OriginalLeaving && mine[l.Since]
		if !leaving {
			if why, counts := t.j.mayRetire(l, t.scope, t.a.Until); why != "" || !counts || n == t.a.Objects {
				continue
			}
			n++
		}
		origin := t.j.origins[t.j.originOf(l.Path)]
		all = append(all, &original{Location: l, st: origin.st, name: strings.TrimPrefix(l.Path, origin.prefix), version: l.ETag, leaving: leaving})
	}
	return all, nil
}

// job names what a commit of an attempt ends.
func (t *retirement) job(attempt string) string {
	return t.j.id + "/" + t.a.name() + "/" + attempt
}

// remove removes the proven originals.
func (t *retirement) remove(ctx context.Context, all []*original) error {
	attempt := rand.Text()
	going, err := t.mark(ctx, attempt, all)
	if err == nil && len(going) > 0 {
		err = t.j.raise(ctx, t.f.Book, 0)
	}
	if err == nil && len(going) > 0 {
		err = t.log(ctx, attempt, going)
	}
	if err == nil {
		err = t.removeAll(ctx, going)
	}
	// Those that are there may be retired again. That they are not taken for deleted by their owner remains.
	linger := those(all, func(x *original) bool { return x.leaving && x.sure && !x.gone })
	if err == nil && len(linger) > 0 {
		_, err = t.f.Book.Do(ctx, book.Step{Rows: fates(linger, rows.Lingers)})
	}
	return err
}

func fates(all []*original, is rows.Original) iter.Seq2[*rows.Row, error] {
	return func(yield func(*rows.Row, error) bool) {
		for _, x := range all {
			if !yield(&rows.Row{Name: x.Path, What: rows.Fate, Of: x.Seq, Original: is}, nil) {
				return
			}
		}
	}
}

// mark commits that the proven originals are leaving, and returns those that may be removed.
func (t *retirement) mark(ctx context.Context, attempt string, all []*original) ([]*original, error) {
	if marks := those(all, func(x *original) bool { return !x.leaving && (x.why == "" || x.gone) }); len(marks) > 0 {
		if _, err := t.f.Book.Do(ctx, book.Step{Job: t.job(attempt), Rows: fates(marks, rows.Leaving)}); err != nil {
			return nil, err
		}
	}
	unseen, going := map[string]*original{}, those(all, func(x *original) bool { return x.why == "" })
	for _, x := range going {
		x.leaving, unseen[x.Path] = true, x
	}
	later, err := t.listedLater(ctx, unseen)
	if err != nil {
		return nil, err
	}
	// A file that was packed again meanwhile is another one, and what was read back of an archive says nothing
	// of a new one.
	now, err := t.j.scope(ctx, t.f.Book)
	if err != nil {
		return nil, err
	}
	of := unescapedSpan(t.a.From, t.a.Before)
	for l, err := range t.f.Book.Between(ctx, of.from, of.before, now.has) {
		if err != nil {
			return nil, err
		}
		if x := unseen[l.Path]; x != nil && !later[l.Path] && l.Archive == x.Archive && l.Seq == x.Seq && l.Original == catalog.OriginalLeaving {
			delete(unseen, l.Path)
		}
	}
	for _, x := range unseen {
		x.leave(Moved, nil)
	}
	return those(going, func(x *original) bool { return x.why == "" }), nil
}

// listedLater returns the paths that a chunk of a later listing has, if it waits to be packed: its worker may have read
// an older version, or the same one, and that would hide the file whose original is removed. What is recorded
// meanwhile is visible before its list goes, so the lists come first.
func (t *retirement) listedLater(ctx context.Context, all map[string]*original) (map[string]bool, error) {
	later, least := map[string]bool{}, int64(math.MaxInt64)
	for _, x := range all {
		least = min(least, x.Seq)
	}
	if len(all) == 0 {
		return later, nil
	}
	for k, err := range t.f.worklists(ctx, "") {
		if err != nil {
			return nil, err
		}
		if k.Last > 0 || k.Listing <= least || k.plan == t.j.id && !k.waits(t.j) {
			continue
		}
		of := &job{id: k.plan, origins: t.j.origins}
		for m, err := range t.f.membersIn(ctx, of, k.chunk, unescapedSpan(t.a.From, t.a.Before)) {
			if errors.Is(err, errGone) {
				break
			}
			if err != nil {
				return nil, err
			}
			if x := all[m.Path]; x != nil && k.Listing > x.Seq {
				later[m.Path] = true
			}
		}
	}
	return later, nil
}

func those(all []*original, is func(*original) bool) (some []*original) {
	for _, x := range all {
		if is(x) {
			some = append(some, x)
		}
	}
	return some
}

// mostAsked is how old an answer about an original may be when it is removed. No service has a condition for
// headers. Tests change it.
var mostAsked = time.Minute

// manyAtOnce is how many objects one request may delete.
const manyAtOnce = 1000

// removeAll removes originals, many by one request where a service does so safely. What is not removed like that,
// for whatever reason, is removed alone.
func (t *retirement) removeAll(ctx context.Context, going []*original) error {
	for some := range slices.Chunk(going, manyAtOnce) {
		if t.a.Many {
			if err := t.removeMany(ctx, some); err != nil {
				return err
			}
			some = those(some, func(x *original) bool { return !x.gone && x.why == "" })
		}
		if err := pipe.Each(ctx, pipe.All(some), t.a.Jobs, t.removeOne); err != nil {
			return err
		}
	}
	return nil
}

func (t *retirement) removeMany(ctx context.Context, some []*original) error {
	err := pipe.Each(ctx, pipe.All(some), t.a.Jobs, t.askAgain)
	if err != nil {
		return err
	}
	for _, o := range t.j.origins {
		mine := those(some, func(x *original) bool { return x.st == o.st && x.why == "" && !x.gone })
		remove := o.st.Can().RemoveMany
		if remove == nil || len(mine) < 2 {
			continue
		}
		infos := make([]store.Info, len(mine))
		for i, x := range mine {
			x.sure = false
			infos[i] = x.info()
		}
		errs, err := remove(ctx, infos)
		for i, x := range mine {
			if x.gone = err == nil && errs[i] == nil; x.gone {
				x.took = time.Now().Round(0).Sub(x.asked)
			}
		}
	}
	return ctx.Err()
}

// askAgain asks for an original again if the answer is old.
func (t *retirement) askAgain(ctx context.Context, x *original) error {
	if time.Now().Round(0).Sub(x.asked) <= mostAsked {
		return nil
	}
	return t.ask(ctx, x)
}

func (t *retirement) removeOne(ctx context.Context, x *original) error {
	remove := storekit.RemoveIf
	if t.a.Careless {
		remove = storekit.RemoveAs
	}
	if err := t.askAgain(ctx, x); err != nil || x.why != "" {
		return err
	}
	x.sure = false
	info := x.info()
	if x.ETag != "" {
		info.ModTime = x.Modified
	}
	err := remove(ctx, x.st, info)
	x.took = time.Now().Round(0).Sub(x.asked)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		x.gone = true
		return nil
	}
	if ctx.Err() != nil || storekit.Temporary(err) {
		return err
	}
	_, is := storekit.Briefly(x.st, x.name).Info(ctx)
	switch {
	case ctx.Err() != nil || storekit.Temporary(is):
		return is
	case errors.Is(is, fs.ErrNotExist): // the response to an earlier try was lost
		x.gone = true
	case errors.Is(err, store.ErrChanged):
		x.leave(OriginalChanged, nil)
	default:
		x.leave(Refused, err)
	}
	x.sure = is == nil
	return nil
}
