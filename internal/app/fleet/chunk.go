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
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/survey"
	"github.com/holdall/holdall/internal/app/fleet/queue"
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

// pack packs a chunk, and records it.
func (w *worker) pack(ctx context.Context, j *job, k chunk, attempt int) error {
	done, err := w.done(ctx)
	if err != nil {
		return err
	}
	switch {
	case k.Last > 0:
		return w.merge(ctx, j, k, done)
	case done[j.job(k)]:
		return w.ended(ctx, j, k)
	}
	name, part := j.chunk(k.Listing, k.Number), []*format.Format(nil)
	adopt := func() (Chunk, error) { return w.adopt(ctx, j, k, name) }
	if of := j.format.Parts; of != nil {
		p := j.part(k)
		name, part = of.Object(p.Archive, p.Number), []*format.Format{j.writing(p)}
		adopt = func() (Chunk, error) { return w.adoptPart(ctx, j, k, p) }
	}
	if attempt > 1 { // an earlier one may have got this far
		c, err := adopt()
		if err == nil {
			w.became(j.plan.Name, k.name(), c)
			return w.ended(ctx, j, k)
		}
		if !errors.Is(err, fs.ErrNotExist) || errors.Is(err, errGone) {
			return err
		}
	}
	made, sum, err := w.write(ctx, j, k, name, attempt, part)
	c := Chunk{Archive: storekit.AddressOf(j.target, name), Objects: int64(sum.Entries), Bytes: sum.Content, Resent: sum.Resumed, Left: missed(made.left)}
	switch {
	case errors.Is(err, fs.ErrExist):
		c, err = adopt()
	case err != nil:
	case part != nil || sum.Entries == 0:
		err = w.finish(ctx, j, k, nil, made, attempt)
	default:
		err = w.record(ctx, j, k, name, made, attempt)
	}
	if err != nil {
		return err
	}
	if w.became(j.plan.Name, k.name(), c); attempt > 1 { // otherwise no earlier try has sent anything
		j.tidy(ctx, name)
	}
	return w.ended(ctx, j, k)
}

// ended does what follows the commit of a chunk.
func (f Fleet) ended(ctx context.Context, j *job, k chunk) error {
	if j.format.Parts != nil { // the list stays until the archive is complete
		return f.joinDone(ctx, j, k.Listing)
	}
	return f.drop(ctx, j, k)
}

// drop removes the list of a chunk that is done, or that is not to be packed.
func (f Fleet) drop(ctx context.Context, j *job, k chunk) error {
	err := storekit.Remove(ctx, f.Book.Store(), f.at(workKind, j, k.name()))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return err
}

// missed returns the members that were left out and are not in another archive.
func missed(left []Member) []Member {
	return slices.DeleteFunc(slices.Clone(left), func(m Member) bool { return m.Outcome == Elsewhere })
}

type made struct {
	left   []Member // that are not in its archive, in byte order
	proven string   // how many of the others were compared with which checksum
}

// counted returns counts as a text.
func counted(proven map[string]int64) string {
	kinds := slices.SortedFunc(maps.Keys(proven), func(a, b string) int {
		return cmp.Or(cmp.Compare(proven[b], proven[a]), strings.Compare(a, b))
	})
	for i, by := range kinds {
		kinds[i] = fmt.Sprintf("%s:%d", by, proven[by])
	}
	return strings.Join(kinds, " ")
}

// write packs the objects of a chunk, and returns the outcomes. If the chunk is a part, formats has the
// format that writes the part. A part exists even if it is empty.
func (w *worker) write(ctx context.Context, j *job, k chunk, name string, attempt int, formats []*format.Format) (done made, sum pack.Summary, err error) {
	last := attempt >= w.o.Tries
	var forbidden []Member
	judge := func(path string, err error) error {
		l := Member{Path: path, Origin: j.originOf(path), Outcome: SetAside, Note: format.Escape(err.Error())}
		_, refused := errors.AsType[entryError](err)
		_, wrong := errors.AsType[*pack.SumError](err)
		switch {
		case errors.Is(err, store.ErrChanged):
			l.Outcome = Changed
		case errors.Is(err, fs.ErrNotExist):
			l.Outcome = Vanished
		case wrong:
			l.Outcome = Damaged
		case errors.Is(err, fs.ErrPermission) && !last:
			forbidden = append(forbidden, l) // it is requested again after all the others are read
		case !last && !refused && !errors.Is(err, fs.ErrInvalid):
			// Neither will ever succeed: an entry that the format cannot store, or a key
			// that cannot be requested, such as one with "..".
			return &poisonError{path, err}
		}
		done.left = append(done.left, l)
		return nil
	}
	sum, err = pack.Objects(ctx, j.target, name, w.objects(ctx, j, k), pack.Options{
		Formats: formats, Format: j.plan.Format, IndexMax: maxIndex, Plain: j.set.Plain, Param: j.set.Param, Jobs: w.o.Jobs,
		Once: true, Keep: true, Resume: attempt > 1, NoEmpty: formats == nil, Lenient: last, Stale: true, Judge: judge, NoVerify: w.o.NoVerify, Copy: !w.o.NoCopy, Protect: j.set.Protect, Meter: w.o.Meter,
		Confirm: func(ctx context.Context) error {
			if err := j.believe(ctx, done.left); err != nil {
				return err
			}
			return j.stillForbidden(ctx, forbidden)
		},
	})
	if err != nil {
		return made{}, sum, err
	}
	slices.SortFunc(done.left, func(a, b Member) int { return strings.Compare(a.Path, b.Path) })
	done.proven = counted(sum.Proven)
	return done, sum, w.describe(ctx, j, k, done.left)
}

// describe adds what the list says of members, which are in byte order.
func (f Fleet) describe(ctx context.Context, j *job, k chunk, left []Member) error {
	if len(left) == 0 {
		return nil
	}
	for m, err := range f.members(ctx, j, k) {
		if err != nil {
			return err
		}
		for len(left) > 0 && left[0].Path <= m.Path {
			if left[0].Path == m.Path {
				left[0].Size, left[0].Version, left[0].Modified = m.Size, m.Version, m.Modified
			}
			left = left[1:]
		}
	}
	return nil
}

// stillForbidden returns an error if one of the objects that could not be read
// can be read now, so that the whole chunk is tried again. Objects that are
// still refused are left out, and do not affect the others.
func (j *job) stillForbidden(ctx context.Context, all []Member) error {
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

func (j *job) source(ctx context.Context, m Member) (store.Object, error) {
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
func (j *job) believe(ctx context.Context, left []Member) error {
	asked := map[int]bool{}
	for _, l := range left {
		if l.Outcome == Changed || l.Outcome == Damaged || l.Outcome == Elsewhere || asked[l.Origin] {
			continue
		}
		asked[l.Origin] = true
		if err := j.origins[l.Origin].reachable(ctx); err != nil {
			return err
		}
	}
	return nil
}

// record records the archive of a chunk.
func (w *worker) record(ctx context.Context, j *job, k chunk, name string, done made, attempt int) error {
	s, err := survey.Open(ctx, j.target, name, catalog.Archive{}, holdall.OpenOptions{})
	if err != nil {
		return err
	}
	defer s.In.Close()
	return w.finish(ctx, j, k, &s, done, attempt)
}

// finish commits that a chunk is done; s is nil if there is no archive of it. If another has done it, it
// counts as done.
func (w *worker) finish(ctx context.Context, j *job, k chunk, s *survey.Survey, done made, attempt int) error {
	if err := w.note(ctx, j, k, done, attempt > 1); err != nil {
		return err
	}
	step := book.Step{Job: j.job(k), Since: k.Listing}
	if s != nil {
		s.Roots, s.Proven = j.roots(), done.proven
		if err := j.withParity(ctx, s); err != nil {
			return err
		}
		step.Add = []catalog.Addition{{Archive: s.Archive, Rows: listedAt(k.Listing, s.Rows(ctx, nil)), Originals: w.originals(ctx, j, k)}}
	}
	_, err := w.Book.Do(ctx, step)
	switch {
	case errors.Is(err, book.ErrDone):
		if of := j.format.Parts; of != nil {
			archive := j.whole(k.Listing, k.Number/of.Most)
			if k.Last == 0 && isThere(ctx, j.target, of.Decides(archive)) == nil {
				j.clear(ctx, archive)
			}
		}
		return nil
	case errors.Is(err, book.ErrLate): // the next plan has what is still there
		return errors.Join(queue.Never(err), w.drop(ctx, j, k))
	}
	return err
}

// withParity records the parity of an archive, if the plan asks for it.
func (j *job) withParity(ctx context.Context, s *survey.Survey) (err error) {
	if j.set.Protect > 0 {
		s.Parity, err = s.ParityNow(ctx)
	}
	return err
}

// listedAt gives files the version of a listing.
func listedAt(listing int64, files iter.Seq2[catalog.Location, error]) iter.Seq2[catalog.Location, error] {
	return func(yield func(catalog.Location, error) bool) {
		for l, err := range files {
			l.Seq = listing
			if !yield(l, err) {
				return
			}
		}
	}
}

// originals yields what the list of a chunk says of its objects. The version of a file on a disk is no ETag.
func (f Fleet) originals(ctx context.Context, j *job, k chunk) iter.Seq2[catalog.Location, error] {
	return func(yield func(catalog.Location, error) bool) {
		for m, err := range f.lists(ctx, j, k) {
			l := catalog.Location{Path: m.Path, Size: m.Size, Modified: m.Modified}
			if err == nil && !j.origins[m.Origin].st.Can().Near {
				l.ETag = m.Version
			}
			if !yield(l, err) {
				return
			}
		}
	}
}

// adopt records an archive that an earlier try has made. If there is none, its error wraps fs.ErrNotExist.
func (w *worker) adopt(ctx context.Context, j *job, k chunk, name string) (Chunk, error) {
	s, err := survey.Open(ctx, j.target, name, catalog.Archive{}, holdall.OpenOptions{})
	if err != nil {
		return Chunk{}, err
	}
	defer s.In.Close()
	if err := j.protected(ctx, name); err != nil {
		return Chunk{}, err
	}
	return w.takeOver(ctx, j, k, name, s.In, &s)
}

// protected ensures that an archive of an earlier try has its parity, if the
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

// takeOver records the result of an earlier try; s is nil if that is a part.
func (w *worker) takeOver(ctx context.Context, j *job, k chunk, name string, in *holdall.Archive, s *survey.Survey) (Chunk, error) {
	left, n, bytes, err := w.compare(ctx, j, k, name, in)
	if err == nil {
		err = w.finish(ctx, j, k, s, made{left: left}, 2)
	}
	if err == nil {
		j.tidy(ctx, name)
	}
	return Chunk{Archive: storekit.AddressOf(j.target, name), Objects: n, Bytes: bytes, Left: left}, err
}

// compare returns the planned members that an archive lacks, and how many it has, with how many bytes. It has
// nothing else: after an old copy of the catalogue was put back, an archive of other objects may have its name.
func (w *worker) compare(ctx context.Context, j *job, k chunk, name string, in *holdall.Archive) (left []Member, n, bytes int64, err error) {
	next, stop := iter.Pull2(w.unpacked(ctx, j, k))
	defer stop()
	wanted, werr, more := next()
	for m, err := range w.members(ctx, j, k) {
		if err = cmp.Or(err, werr); err != nil {
			return nil, 0, 0, err
		}
		is, err := in.Lookup(ctx, m.Path)
		etag := is.Attr[kit.ETagAttr]
		switch {
		case err == nil && is.Size == m.Size && (etag == "" || m.isPacked(catalog.Location{Size: is.Size, ETag: etag, Modified: is.ModTime})):
			n++
			bytes += m.Size
		case err == nil:
			return nil, 0, 0, fmt.Errorf("%s: has another version in the archive of %s, %d bytes: not an archive of this plan: %w", format.Escape(m.Path), k.name(), is.Size, fs.ErrExist)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, 0, 0, err
		case more && wanted.Path == m.Path:
			left = append(left, j.missing(ctx, m))
		}
		if more && wanted.Path == m.Path {
			wanted, werr, more = next()
		}
	}
	if err := cmp.Or(werr, nothingElse(ctx, name, in, n)); err != nil {
		return nil, 0, 0, err
	}
	return left, n, bytes, j.believe(ctx, left)
}

// missing returns the member with the reason why an earlier try did not pack
// it.
func (j *job) missing(ctx context.Context, m Member) Member {
	m.Outcome, m.Note = SetAside, "an earlier attempt could not read it"
	o, err := j.source(ctx, m)
	if err == nil {
		var info store.Info
		if info, err = o.Info(ctx); err == nil && (info.Size != m.Size || info.Version != m.Version) {
			m.Outcome, m.Note = Changed, store.ErrChanged.Error()
		}
		o.Close()
	}
	if errors.Is(err, fs.ErrNotExist) {
		m.Outcome, m.Note = Vanished, format.Escape(err.Error())
	}
	return m
}

// tidy removes uploads of the archive by other tries, as the archive now
// exists. It is optional: nothing depends on it.
func (j *job) tidy(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	// Other names may begin in the same way.
	_, _ = storekit.Abandon(ctx, j.target, name, func(u store.Upload) bool { return strings.TrimSuffix(u.Name, parity.Suffix) == name })
}

func (w *worker) objects(ctx context.Context, j *job, k chunk) iter.Seq2[pack.Object, error] {
	return func(yield func(pack.Object, error) bool) {
		for m, err := range w.unpacked(ctx, j, k) {
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
