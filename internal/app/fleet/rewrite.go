package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/survey"
	"github.com/holdall/holdall/internal/app/fleet/queue"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// rewriteKind is the kind of jobs that make one archive of the visible files of others.
const rewriteKind = "rewrite"

// A rewriting is the arguments of such a job.
type rewriting struct {
	Begun    int64   `json:"begun"` // by which commit
	Number   int     `json:"number"`
	Archives []int64 `json:"archives"`
	Repairs  bool    `json:"repairs,omitempty"` // they may be damaged
}

func (r rewriting) name() string { return fmt.Sprintf("rewrite-%016d-%06d", r.Begun, r.Number) }

// rewrite hands out chunks that rewrite some archives, and returns how many. If earlier ones are still handed
// out, it returns these, and hands out no others.
func (f Fleet) rewrite(ctx context.Context, j *job, archives []*old, repairs bool) (n int, err error) {
	for k, err := range f.Queue.Jobs(ctx, j.plan.Name) {
		switch {
		case err != nil:
			return 0, err
		case k.Kind != rewriteKind:
		case k.Status != queue.SetAside:
			n++
		case !repairs:
			return 0, fmt.Errorf("the rewrite %s is set aside (%s): 'holdall fleet retry' tries it again", k.Name, k.Problem)
		}
	}
	if n > 0 {
		return n, nil
	}
	begun, err := f.Book.Do(ctx, book.Step{Begins: true})
	if err != nil {
		return 0, err
	}
	// Archives whose names are near each other go together.
	first := map[int64]string{}
	for _, a := range archives {
		if first[a.ID], _, err = f.Book.Bounds(ctx, a.ID); err != nil {
			return 0, err
		}
	}
	slices.SortFunc(archives, func(a, b *old) int { return cmp.Or(strings.Compare(first[a.ID], first[b.ID]), cmp.Compare(a.ID, b.ID)) })
	var jobs []queue.Job
	r := rewriting{Begun: begun.Number, Repairs: repairs}
	files, bytes, index := int64(0), int64(0), int64(0)
	flush := func() error {
		if len(r.Archives) == 0 {
			return nil
		}
		args, err := json.Marshal(r)
		jobs = append(jobs, queue.Job{Plan: j.plan.Name, Kind: rewriteKind, Name: r.name(), Args: args, Long: long(files, bytes)})
		r.Number, r.Archives, files, bytes, index = r.Number+1, nil, 0, 0, 0
		return err
	}
	for _, a := range archives {
		row := (a.Size - a.All) * a.Files / max(a.Entries, 1)
		if len(r.Archives) > 0 && (files+a.Files > j.set.ChunkObjects || bytes+a.Bytes > j.set.ChunkSize || index+row > maxIndex/4*3) {
			if err := flush(); err != nil {
				return 0, err
			}
		}
		r.Archives, files, bytes, index = append(r.Archives, a.ID), files+a.Files, bytes+a.Bytes, index+row
	}
	if err := flush(); err != nil {
		return 0, err
	}
	return f.Queue.Add(ctx, jobs...)
}

// remake makes one archive of the visible files of others, and replaces those of which it has all.
func (w *worker) remake(ctx context.Context, j *job, r rewriting, k queue.Job) error {
	job := j.id + "/" + r.name()
	done, err := w.done(ctx)
	if err != nil || done[job] {
		return err
	}
	p := &packed{w: w, j: j, repairs: r.Repairs, known: map[int64]*archive{}}
	defer p.close()
	for i, id := range r.Archives {
		a, err := w.Book.ArchiveOf(ctx, id)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another has replaced it
		}
		if err != nil {
			return err
		}
		first, last, err := w.Book.Bounds(ctx, id)
		if err != nil {
			return err
		}
		p.known[id] = &archive{Archive: a}
		if i == 0 || first < p.from {
			p.from = first
		}
		p.before = max(p.before, last+"\x00")
	}
	of, err := j.scope(ctx, w.Book)
	if err != nil {
		return err
	}
	p.in = of.has
	c := Chunk{Archive: storekit.AddressOf(j.target, j.chunk(r.Begun, r.Number))}
	judge := func(path string, err error) error {
		_, wrong := errors.AsType[*pack.SumError](err)
		_, digest := errors.AsType[*holdall.DigestError](err)
		damaged := wrong || digest || errors.Is(err, format.ErrCorrupt) || errors.Is(err, fs.ErrNotExist)
		if !r.Repairs || !damaged && k.Attempt < w.o.Tries {
			return &poisonError{path, err}
		}
		l := Member{Path: path, Outcome: Damaged, Note: format.Escape(err.Error())}
		if errors.Is(err, fs.ErrNotExist) {
			l.Outcome = Vanished
		}
		c.Left = append(c.Left, l)
		return nil
	}
	name := j.chunk(r.Begun, r.Number)
	sum, err := pack.Objects(ctx, j.target, name, p.objects(ctx), pack.Options{
		Format: j.plan.Format, IndexMax: maxIndex, Plain: j.set.Plain, Param: j.set.Param, Jobs: w.o.Jobs,
		Once: true, Keep: true, Resume: k.Attempt > 1, NoEmpty: true, Lenient: r.Repairs, Stale: true, Judge: judge, Copy: !w.o.NoCopy, Protect: j.set.Protect, Meter: w.o.Meter,
	})
	there := errors.Is(err, fs.ErrExist) // an earlier try has made it
	if err != nil && !there {
		return err
	}
	c.Objects, c.Bytes, c.Resent = int64(sum.Entries), sum.Content, sum.Resumed
	step := book.Step{Job: job, Since: r.Begun}
	var s survey.Survey
	if there {
		if err := j.protected(ctx, name); err != nil {
			return err
		}
	}
	if there || sum.Entries > 0 {
		if s, err = survey.Open(ctx, j.target, name, catalog.Archive{}, holdall.OpenOptions{}); err != nil {
			return err
		}
		defer s.In.Close()
		s.Roots = j.roots()
		if err := j.withParity(ctx, &s); err != nil {
			return err
		}
	}
	versions, stay, err := p.compare(ctx, s)
	if err != nil {
		return err
	}
	s.Proven = p.proven(versions.n)
	for _, id := range r.Archives {
		if !stay[id] {
			step.Instead = append(step.Instead, id)
		}
	}
	if s.In != nil {
		step.Add = []catalog.Addition{{Archive: s.Archive, Rows: versions.of(s.Rows(ctx, nil))}}
	}
	if len(step.Add)+len(step.Instead) == 0 {
		return queue.Never(fmt.Errorf("nothing in %d archives can be read", len(r.Archives)))
	}
	switch _, err = w.Book.Do(ctx, step); {
	case errors.Is(err, book.ErrDone), errors.Is(err, book.ErrConflict), errors.Is(err, book.ErrLate): // the next one begins anew
		return nil
	case err == nil:
		w.became(k.Plan, k.Name, c)
	}
	return err
}

// packed is the visible files of some archives, in a range of names.
type packed struct {
	w            *worker
	j            *job
	in           catalog.Scope
	repairs      bool
	from, before string
	known        map[int64]*archive
}

// An archive is one that is rewritten.
type archive struct {
	catalog.Archive
	st   store.Store
	name string
	info store.Info  // its current state
	err  error       // why it cannot be read
	open store.Store // the files of an archive that may be damaged
}

func (p *packed) close() {
	for _, a := range p.known {
		if o, ok := a.open.(opened); ok {
			o.in.Close()
		}
	}
}

// find locates and opens an archive, once.
func (a *archive) find(ctx context.Context) {
	if a.st != nil || a.err != nil {
		return
	}
	if a.st, a.name, a.err = store.OpenAddress(ctx, a.Address); a.err == nil {
		a.info, a.err = storekit.Briefly(a.st, a.name).Info(ctx)
	}
}

// stands returns an error unless the archive is there, and is the one in the catalogue.
func (a *archive) stands(ctx context.Context) error {
	if a.find(ctx); a.err == nil && !survey.Is(a.info, a.st.Can().Near, a.Archive) {
		return &store.Error{Op: "read", Name: a.name, Off: -1, Err: store.ErrChanged}
	}
	return a.err
}

// files yields the visible files, in byte order.
func (p *packed) files(ctx context.Context) iter.Seq2[catalog.Location, error] {
	return func(yield func(catalog.Location, error) bool) {
		for l, err := range p.w.Book.Between(ctx, p.from, p.before, p.in) {
			if err == nil && p.known[l.Archive] == nil {
				continue
			}
			if !yield(l, err) || err != nil {
				return
			}
		}
	}
}

// objects yields the files as objects to be packed.
func (p *packed) objects(ctx context.Context) iter.Seq2[pack.Object, error] {
	return func(yield func(pack.Object, error) bool) {
		for l, err := range p.files(ctx) {
			var x pack.Object
			if err == nil {
				x, err = p.object(ctx, l)
			}
			if !yield(x, err) || err != nil {
				return
			}
		}
	}
}

// versions are those of the files of a new archive, in its order. Of files from disks, the archive may have
// rounded the time.
type versions struct {
	all   book.Versions
	times map[int64]time.Time // by place
	n     int64
}

func (v *versions) add(l catalog.Location) {
	v.all.Add(l.Seq)
	if v.n++; l.ETag == "" && !l.Modified.IsZero() {
		v.times[v.n] = l.Modified
	}
}

func (v versions) of(files iter.Seq2[catalog.Location, error]) iter.Seq2[catalog.Location, error] {
	return func(yield func(catalog.Location, error) bool) {
		next, place := v.all.Next(), int64(0)
		for l, err := range files {
			if place++; err == nil {
				at, ok := v.times[place]
				if ok {
					l.Modified = at
				}
				if l.Seq, ok = next(); !ok {
					err = fmt.Errorf("%s: more files than before", format.Escape(l.Path))
				}
			}
			if !yield(l, err) || err != nil {
				return
			}
		}
	}
}

// oldest is the version of a file that was deleted or replaced since it was copied.
const oldest = 1

// compare compares a new archive with what it is made of. It returns the versions of its files, and the
// archives with a visible file that the new one does not have: these must stay.
func (p *packed) compare(ctx context.Context, s survey.Survey) (v versions, stay map[int64]bool, err error) {
	stay, v.times = map[int64]bool{}, map[int64]time.Time{}
	next, stop := iter.Pull2(p.files(ctx))
	defer stop()
	l, err, more := next()
	if s.In != nil {
		last := ""
		for x, xerr := range s.Rows(ctx, nil) {
			for ; err == nil && xerr == nil && more && l.Path < x.Path; l, err, more = next() {
				stay[l.Archive] = true
			}
			other := more && l.Path == x.Path && (l.Size != x.Size || x.ETag != "" && l.ETag != x.ETag || !p.repairs && x.ETag != "" && l.HeaderText != x.HeaderText)
			if err = cmp.Or(xerr, err); err == nil && (x.Path <= last && v.n > 0 || other) {
				err = fmt.Errorf("%s: %s is not what was to be written: %w", format.Escape(s.Address), format.Escape(x.Path), fs.ErrExist)
			}
			if err != nil {
				return v, nil, err
			}
			if last = x.Path; !more || l.Path != x.Path {
				v.add(catalog.Location{Seq: oldest})
				continue
			}
			v.add(l)
			l, err, more = next()
		}
	}
	for ; err == nil && more; l, err, more = next() {
		stay[l.Archive] = true
	}
	return v, stay, err
}

// proven counts the files of a new archive by what their originals were compared with, if that is the same
// for all files of the archives that it is made of.
func (p *packed) proven(files int64) string {
	kinds := map[string]int64{}
	for _, a := range p.known {
		sum := map[string]int64{}
		if countProven(sum, a.Proven) < a.Entries {
			return ""
		}
		for by, n := range sum {
			if n > 0 {
				kinds[by] = files
			}
		}
	}
	if len(kinds) != 1 {
		return ""
	}
	return counted(kinds)
}

// object returns a file as a packed object: a range of its archive. If that may be damaged, it is the
// original if this exists in the packed version, and otherwise what can be read of the archive.
func (p *packed) object(ctx context.Context, l catalog.Location) (pack.Object, error) {
	if p.repairs {
		o := p.j.origins[p.j.originOf(l.Path)]
		name := strings.TrimPrefix(l.Path, o.prefix)
		is, err := storekit.Briefly(o.st, name).Info(ctx)
		if err == nil && (Member{Size: is.Size, Version: is.Version, Modified: is.ModTime}).isPacked(l) {
			return pack.Object{From: o.st, Name: l.Path, Info: store.Info{Name: name, Size: is.Size, Version: is.Version}}, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return pack.Object{}, err
		}
	}
	x := pack.Object{Name: l.Path, Range: true, Size: l.Size, Digest: l.Digest, ModTime: l.Modified}
	headers, err := p.w.Book.HeadersOf(ctx, l)
	if err != nil {
		return x, err
	}
	x.Attr = l.Attributes(headers)
	a := p.known[l.Archive]
	a.find(ctx)
	if a.err != nil && !errors.Is(a.err, fs.ErrNotExist) {
		return x, a.err
	}
	if p.repairs {
		x.From, x.Info = a.files(ctx), store.Info{Name: l.Path, Size: l.Size}
		if _, no := x.From.(lost); !no || !l.Raw || a.err != nil || l.Digest.Algo == "" {
			return x, nil
		}
		// Its index is damaged: the proof by its digest suffices.
	} else if err := a.stands(ctx); errors.Is(err, store.ErrChanged) {
		return x, err
	}
	x.From, x.Info, x.Off = a.st, store.Info{Name: a.name, Size: a.Size, Version: a.info.Version}, l.Off
	return x, nil
}

// files returns the files of an archive. Reads are repaired with its parity.
func (a *archive) files(ctx context.Context) store.Store {
	if a.err != nil {
		return lost{a.err}
	}
	if a.open == nil {
		in, err := holdall.Open(ctx, a.name, holdall.OpenOptions{Store: a.st, Format: a.Format})
		if err != nil {
			a.open = lost{err}
		} else {
			a.open = opened{in}
		}
	}
	return a.open
}

// lost is the store of an archive that cannot be opened.
type lost struct{ err error }

func (l lost) Can() store.Abilities                               { return store.Abilities{} }
func (l lost) Open(context.Context, string) (store.Object, error) { return nil, l.err }

// opened is an archive in the form of a store of its files.
type opened struct{ in *holdall.Archive }

func (o opened) Can() store.Abilities { return store.Abilities{} }

func (o opened) Open(ctx context.Context, name string) (store.Object, error) {
	e, err := o.in.Lookup(ctx, name)
	if err != nil {
		return nil, err
	}
	return &content{o.in, e}, nil
}

// content is a file of an archive in the form of an object.
type content struct {
	in *holdall.Archive
	e  format.Entry
}

func (c *content) Info(context.Context) (store.Info, error) {
	return store.Info{Name: c.e.Name, Size: c.e.Size}, nil
}

func (c *content) ReadAt(ctx context.Context, p []byte, off int64) error {
	_, err := c.in.ReadAt(ctx, c.e, p, off)
	return err
}

func (c *content) Close() error               { return nil }
func (c *content) Can() store.ObjectAbilities { return store.ObjectAbilities{} }
