package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/survey"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A poisonError reports that an object could not be read. Further tries may
// succeed.
type poisonError struct {
	path string
	err  error
}

func (e *poisonError) Error() string {
	if name := format.Escape(e.path); !strings.Contains(e.err.Error(), name) {
		return name + ": " + e.err.Error()
	}
	return e.err.Error()
}

func (e *poisonError) Unwrap() error { return e.err }

// An entryError reports an entry that a format cannot store.
type entryError interface {
	error
	EntryName() string
}

func (w *worker) pack(ctx context.Context, k catalog.Chunk, e *Event, m *holdall.Meter) error {
	j, err := w.job(ctx, k.Plan)
	if err != nil {
		return err
	}
	if k.Last && j.format.Parts != nil {
		return w.merge(ctx, j, k)
	}
	name, part := j.chunk(k.Number), []*format.Format(nil)
	adopt := func() error { return w.adopt(ctx, j, k, name, e) }
	if k.Part && j.format.Parts != nil {
		s, err := j.seatOf(ctx, w.c, k.Number)
		if err != nil {
			return err
		}
		p := s.part(k)
		name, part = j.format.Parts.Object(p.Archive, p.Number), []*format.Format{j.writing(p)}
		adopt = func() error { return w.adoptPart(ctx, j, k, p, e) }
	}
	if err := j.named(k, name); err != nil {
		return err
	}
	if k.Attempts > 1 {
		// An earlier claim may have got this far.
		if err := adopt(); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	made, sum, err := w.write(ctx, j, k, name, m, part)
	e.Resent = sum.Resumed
	switch {
	case errors.Is(err, fs.ErrExist):
		return adopt()
	case err != nil:
		return err
	case part != nil || sum.Entries == 0:
		err = w.finish(ctx, k, nil, made)
	default:
		err = w.record(ctx, j, k, name, made)
	}
	if err == nil {
		e.Left, e.Bytes = missed(made.left), sum.Content
		if k.Attempts > 1 { // otherwise no earlier claim has sent anything
			j.tidy(ctx, name)
		}
	}
	return err
}

// missed returns the members that were left out and are not in another
// archive.
func missed(left []catalog.Member) []catalog.Member {
	return slices.DeleteFunc(slices.Clone(left), func(m catalog.Member) bool { return m.Outcome == catalog.Elsewhere })
}

// named returns an error unless the chunk has the name that this plan gives
// it.
func (j *job) named(k catalog.Chunk, name string) error {
	if storekit.AddressOf(j.target, name) != k.Name {
		return fmt.Errorf("%s: expected a chunk of %s", format.Escape(k.Name), format.Escape(j.plan.Target))
	}
	return nil
}

type made struct {
	left   []catalog.Member // that are not in its archive, in byte order
	proven string           // in the form of Chunk.Proven
	// proofs has one byte for each of the other members, in byte order: its index
	// in kinds. There may be millions.
	kinds  []string
	proofs []byte
}

// all yields the members that must be reported to the catalogue: those that
// are not packed, and those that were compared with another checksum than
// most.
func (m made) all(members iter.Seq2[catalog.Member, error]) iter.Seq2[catalog.Member, error] {
	if len(m.kinds) < 2 {
		return pipe.All(m.left)
	}
	most, _, _ := strings.Cut(m.proven, ":")
	return func(yield func(catalog.Member, error) bool) {
		left, proofs := m.left, m.proofs
		for x, err := range members {
			switch {
			case err != nil:
			case len(left) > 0 && left[0].Path == x.Path:
				x, left = left[0], left[1:]
			case len(proofs) == 0: // it is in no archive: Finish reports it
				continue
			default:
				x.Outcome, x.Proof, proofs = catalog.Packed, m.kinds[proofs[0]], proofs[1:]
				if x.Proof == most {
					continue
				}
			}
			if !yield(x, err) || err != nil {
				return
			}
		}
	}
}

// counted returns counts in the form of Chunk.Proven.
func counted(proven map[string]int64) string {
	kinds := slices.SortedFunc(maps.Keys(proven), func(a, b string) int {
		return cmp.Or(cmp.Compare(proven[b], proven[a]), strings.Compare(a, b))
	})
	for i, by := range kinds {
		kinds[i] = fmt.Sprintf("%s:%d", by, proven[by])
	}
	return strings.Join(kinds, " ")
}

// write packs the objects of a chunk, and returns the outcomes. If the chunk
// is a part, formats has the format that writes the part. A part exists even
// if it is empty.
func (w *worker) write(ctx context.Context, j *job, k catalog.Chunk, name string, m *holdall.Meter, formats []*format.Format) (done made, sum pack.Summary, err error) {
	last := k.Failures+1 >= w.o.Tries
	var forbidden []catalog.Member
	judge := func(path string, err error) error {
		l := catalog.Member{Path: path, Origin: j.originOf(path), Outcome: catalog.SetAside, Note: format.Escape(err.Error())}
		_, refused := errors.AsType[entryError](err)
		_, wrong := errors.AsType[*pack.SumError](err)
		if _, damaged := errors.AsType[*holdall.DigestError](err); damaged && k.Rewrites {
			wrong = true
		}
		switch {
		case errors.Is(err, store.ErrChanged):
			l.Outcome = catalog.Changed
		case errors.Is(err, fs.ErrNotExist):
			l.Outcome = catalog.Vanished
		case wrong, k.Rewrites && errors.Is(err, format.ErrCorrupt): // further tries cannot repair an archive
			l.Outcome = catalog.Damaged
		case errors.Is(err, fs.ErrPermission) && !last && !k.Rewrites:
			forbidden = append(forbidden, l) // it is requested again after all the others are read
		case !last && !refused && !errors.Is(err, fs.ErrInvalid):
			// Neither will ever succeed: an entry that the format cannot store, or a key
			// that cannot be requested, such as one with "..".
			return &poisonError{path, err}
		}
		done.left = append(done.left, l)
		return nil
	}
	proven := func(by string) {
		i := slices.Index(done.kinds, by)
		if i < 0 {
			i, done.kinds = len(done.kinds), append(done.kinds, by)
		}
		done.proofs = append(done.proofs, byte(i))
	}
	objects := w.objects(ctx, j, k)
	if k.Rewrites {
		src, err := w.packed(ctx, j)
		if err != nil {
			return made{}, sum, err
		}
		defer src.close()
		objects = src.objects(ctx, k, func(m catalog.Member) { done.left = append(done.left, m) })
	}
	sum, err = pack.Objects(ctx, j.target, name, objects, pack.Options{
		Formats: formats, Format: j.plan.Format, IndexMax: maxIndex, Plain: j.set.Plain, Param: j.set.Param, Jobs: w.o.Jobs,
		Once: true, Keep: true, Resume: k.Attempts > 1, NoEmpty: formats == nil, Lenient: last, Stale: true, Judge: judge, Proven: proven, NoVerify: w.o.NoVerify, Copy: !w.o.NoCopy, Protect: j.set.Protect, Meter: m,
		Confirm: func(ctx context.Context) error {
			if k.Rewrites {
				return nil // most of its input is in archives
			}
			if err := j.believe(ctx, done.left); err != nil {
				return err
			}
			return j.stillForbidden(ctx, forbidden)
		},
	})
	if err != nil {
		return made{}, sum, err
	}
	slices.SortFunc(done.left, func(a, b catalog.Member) int { return strings.Compare(a.Path, b.Path) })
	done.proven = counted(sum.Proven)
	return done, sum, nil
}

// stillForbidden returns an error if one of the objects that could not be read
// can be read now, so that the whole chunk is tried again. Objects that are
// still refused are left out, and do not affect the others.
func (j *job) stillForbidden(ctx context.Context, all []catalog.Member) error {
	for _, m := range all {
		o, err := j.source(ctx, m)
		if err == nil {
			err = o.ReadAt(ctx, make([]byte, 1), 0)
			o.Close()
		}
		if !errors.Is(err, fs.ErrPermission) {
			return &poisonError{m.Path, cmp.Or(err, errors.New("it could not be read before, but can be read now"))}
		}
	}
	return nil
}

func (j *job) source(ctx context.Context, m catalog.Member) (store.Object, error) {
	from := j.origins[m.Origin]
	name := strings.TrimPrefix(m.Path, from.prefix)
	o, err := from.st.Open(ctx, name)
	if errors.Is(err, fs.ErrInvalid) { // a key that can be requested only with its version
		return storekit.OpenAs(ctx, from.st, store.Info{Name: name, Size: m.Size, Version: m.Version})
	}
	return o, err
}

func (j *job) originOf(path string) int {
	return max(0, slices.IndexFunc(j.origins, func(o origin) bool { return strings.HasPrefix(path, o.prefix) }))
}

// believe returns an error if a whole source is gone: then unreadable objects
// have not necessarily vanished.
func (j *job) believe(ctx context.Context, left []catalog.Member) error {
	asked := map[int]bool{}
	for _, l := range left {
		if l.Outcome == catalog.Changed || l.Outcome == catalog.Damaged || l.Outcome == catalog.Elsewhere || asked[l.Origin] {
			continue
		}
		asked[l.Origin] = true
		if err := j.origins[l.Origin].reachable(ctx); err != nil {
			return err
		}
	}
	return nil
}

// record records the archive in the catalogue in its current state, and that
// the chunk is done.
func (w *worker) record(ctx context.Context, j *job, k catalog.Chunk, name string, done made) error {
	s, err := survey.Open(ctx, j.target, name, catalog.Archive{}, holdall.OpenOptions{})
	if err != nil {
		return err
	}
	defer s.In.Close()
	s.Roots = j.roots()
	return w.finish(ctx, k, &s, done)
}

// finish reports the outcome of a chunk to the catalogue; s is nil if there is
// no archive. If the answer to a success was lost, another try returns that
// success.
func (w *worker) finish(ctx context.Context, k catalog.Chunk, s *survey.Survey, done made) error {
	k.Proven = done.proven
	return w.steady(ctx, func(func()) error {
		var a *catalog.Addition
		if s != nil {
			a = &catalog.Addition{Archive: s.Archive, Rows: s.Rows(ctx, nil)}
		}
		_, err := w.c.Finish(ctx, k, a, done.all(w.members(ctx, k)))
		return err
	})
}

// steady repeats an action while the database is away or busy and the claim is
// valid, because packed data is worth the wait. Each call of getsOn restarts
// the time limit.
func (w *worker) steady(ctx context.Context, do func(getsOn func()) error) error {
	var end time.Time
	getsOn := func() { end = time.Now().Add(patience) }
	for getsOn(); ; w.sleep(ctx, w.o.Look) {
		if err := do(getsOn); !passing(err) || ctx.Err() != nil || time.Now().After(end) {
			return err
		}
	}
}

// passing reports whether an error of the catalogue may be temporary.
func passing(err error) bool {
	return errors.Is(err, catalog.ErrAway) || errors.Is(err, catalog.ErrBusy)
}

// members yields the members of a chunk. When the database comes back after an
// outage, it continues at the same place.
func (w *worker) members(ctx context.Context, k catalog.Chunk) iter.Seq2[catalog.Member, error] {
	return func(yield func(catalog.Member, error) bool) {
		last, some, enough := "", false, false
		err := w.steady(ctx, func(getsOn func()) error {
			for m, err := range w.c.Members(ctx, k.ID) {
				if err != nil {
					return err
				}
				if some && m.Path <= last {
					continue
				}
				last, some = m.Path, true
				if enough = !yield(m, nil); enough {
					return nil
				}
				getsOn()
			}
			return nil
		})
		if err != nil && !enough {
			yield(catalog.Member{}, err)
		}
	}
}

// adopt records an archive that an earlier claim of the chunk made. If there
// is none, its error wraps fs.ErrNotExist.
func (w *worker) adopt(ctx context.Context, j *job, k catalog.Chunk, name string, e *Event) error {
	s, err := survey.Open(ctx, j.target, name, catalog.Archive{}, holdall.OpenOptions{})
	if err != nil {
		return err
	}
	defer s.In.Close()
	s.Roots = j.roots()
	if err := j.protected(ctx, name); err != nil {
		return err
	}
	return w.takeOver(ctx, j, k, name, e, s.In, &s)
}

// protected ensures that an archive of an earlier claim has its parity, if the
// plan asks for it. A worker that died in between has not written it.
func (j *job) protected(ctx context.Context, name string) error {
	if j.set.Protect == 0 {
		return nil
	}
	g, err := parity.Seek(ctx, j.target, name, "", nil)
	if err == nil && g != nil {
		defer g.Close()
		if g.Same {
			return nil
		}
	}
	_, err = holdall.Protect(ctx, []string{name}, parity.NameOf([]string{name}), holdall.ProtectOptions{Store: j.target, To: j.target, Loss: j.set.Protect})
	return err
}

// takeOver records the result of an earlier claim as the result of the chunk;
// s is nil if that is a part.
func (w *worker) takeOver(ctx context.Context, j *job, k catalog.Chunk, name string, e *Event, in *holdall.Archive, s *survey.Survey) error {
	left, bytes, err := w.compare(ctx, j, k, in)
	if err == nil && s == nil {
		err = nothingElse(ctx, k, in, k.Objects-int64(len(left)))
	}
	if err == nil {
		err = w.finish(ctx, k, s, made{left: left})
	}
	if err == nil {
		e.Left, e.Bytes = missed(left), bytes
		j.tidy(ctx, name)
	}
	return err
}

// compare returns the chunk's planned members that an archive lacks, and how
// many of their bytes it has.
func (w *worker) compare(ctx context.Context, j *job, k catalog.Chunk, in *holdall.Archive) (left []catalog.Member, bytes int64, err error) {
	for m, err := range w.members(ctx, k) {
		if err != nil {
			return nil, 0, err
		}
		switch is, err := in.Lookup(ctx, m.Path); {
		case err == nil && is.Size == m.Size:
			bytes += m.Size
		case errors.Is(err, fs.ErrNotExist) && k.Rewrites:
			m.Outcome = catalog.Elsewhere // or it is still in its old archive
			left = append(left, m)
		case errors.Is(err, fs.ErrNotExist):
			left = append(left, j.missing(ctx, m))
		case err != nil:
			return nil, 0, err
		default:
			return nil, 0, fmt.Errorf("%s: %s has %d bytes, expected %d: not an archive of this plan: %w", format.Escape(k.Name), format.Escape(m.Path), is.Size, m.Size, fs.ErrExist)
		}
	}
	return left, bytes, j.believe(ctx, left)
}

// missing returns the member with the reason why an earlier claim did not pack
// it.
func (j *job) missing(ctx context.Context, m catalog.Member) catalog.Member {
	m.Outcome, m.Note = catalog.SetAside, "an earlier attempt could not read it"
	o, err := j.source(ctx, m)
	if err == nil {
		var info store.Info
		if info, err = o.Info(ctx); err == nil && (info.Size != m.Size || info.Version != m.Version) {
			m.Outcome, m.Note = catalog.Changed, store.ErrChanged.Error()
		}
		o.Close()
	}
	if errors.Is(err, fs.ErrNotExist) {
		m.Outcome, m.Note = catalog.Vanished, format.Escape(err.Error())
	}
	return m
}

// tidy removes uploads of the archive by other claims, as the archive now
// exists. It is optional: nothing depends on it.
func (j *job) tidy(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	// Other names may begin in the same way.
	_, _ = storekit.Abandon(ctx, j.target, name, func(u store.Upload) bool { return strings.TrimSuffix(u.Name, parity.Suffix) == name })
}

func (w *worker) objects(ctx context.Context, j *job, k catalog.Chunk) iter.Seq2[pack.Object, error] {
	return func(yield func(pack.Object, error) bool) {
		for m, err := range w.members(ctx, k) {
			if err == nil && m.Origin >= len(j.origins) {
				err = fmt.Errorf("%s: expected one of %d sources, found number %d", format.Escape(m.Path), len(j.origins), m.Origin)
			}
			if err != nil {
				yield(pack.Object{}, err)
				return
			}
			o := j.origins[m.Origin]
			x := pack.Object{From: o.st, Name: m.Path, Info: store.Info{Name: strings.TrimPrefix(m.Path, o.prefix), Size: m.Size, Version: m.Version}}
			if !yield(x, nil) {
				return
			}
		}
	}
}
