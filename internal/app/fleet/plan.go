package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Planned is the result of MakePlan.
type Planned struct {
	Plan    Plan  `json:"-"`
	Chunks  int   `json:"chunks"`  // that are new
	Objects int64 `json:"objects"` // in them
	Bytes   int64 `json:"bytes"`
	Known   int64 `json:"known"`             // objects that are packed, or that wait for it
	Missing int64 `json:"missing,omitempty"` // packed files whose originals were not found
	Ranges  int   `json:"ranges,omitempty"`  // that are handed out to be listed
	Skipped       // objects that are not to be packed
}

// Skipped counts the listed objects that are not planned.
type Skipped struct {
	Archives int64 `json:"archives"`          // objects of archives that the catalogue records, or that a plan makes
	Markers  int64 `json:"markers"`           // empty objects that represent folders
	Refused  int64 `json:"refused,omitempty"` // objects to which access is refused, or whose keys cannot be requested

	// These are only counted for lists.
	Vanished int64 `json:"vanished,omitempty"` // objects that do not exist
	Outside  int64 `json:"outside,omitempty"`  // objects outside the source
	Deleted  int64 `json:"deleted,omitempty"`  // delete markers
	Older    int64 `json:"older,omitempty"`    // versions that are not the newest
	Doubles  int64 `json:"doubles,omitempty"`  // further entries of the same name: the last one counts
}

// MakePlan lists the sources, and hands out chunks of what is new: objects that the catalogue does not have,
// or not in this version, and that do not wait to be packed. It also records which originals are missing.
// If it was interrupted, calling it again goes on.
//
// If progress is not nil, it is called now and then with what has been listed so far.
func MakePlan(ctx context.Context, f Fleet, s Spec, progress func(Planned)) (Planned, error) {
	r, err := ready(ctx, f.Book, s)
	p := Planned{Plan: r.plan}
	if err != nil {
		return p, err
	}
	l, err := r.takeList(ctx, s, &p.Skipped)
	if err != nil {
		return p, err
	}
	defer l.close()
	if s.Ranges > 0 {
		if err = r.mayHandOut(); err == nil {
			p.Ranges, err = f.handedOut(ctx, r.job)
		}
		if err != nil || p.Ranges > 0 {
			return p, err
		}
	}
	step := book.Step{Begins: s.Ranges == 0}
	if !r.there {
		stored, err := r.plan.stored()
		if err != nil {
			return p, err
		}
		step.Plans = []book.Plan{stored}
	}
	begun, err := f.Book.Do(ctx, step)
	if err != nil {
		return p, err
	}
	if s.Ranges > 0 {
		p.Ranges, err = f.handOut(ctx, r.job, begun.Number, s.Ranges, s.Gone)
		return p, err
	}
	waiting, err := f.waiting(ctx, r.job)
	if err != nil {
		return p, err
	}
	pl, err := f.planner(ctx, r.job, begun.Number, spansOf(s.Only), waiting, &p)
	if err != nil {
		return p, err
	}
	defer pl.close()
	pl.most = cmp.Or(s.Gone, 0.5)
	if progress != nil {
		pl.progress = progress
	}
	if err := pl.run(ctx); err != nil {
		return p, err
	}
	return p, pl.finish(ctx)
}

// A readiness is a plan that can be made, or planned again.
type readiness struct {
	*job
	there bool // the plan is in the catalogue
}

// ready reads the existing state of a plan, and returns an error if the plan cannot be made. Without a
// catalogue, the plan does not exist yet.
func ready(ctx context.Context, b *book.Book, s Spec) (r readiness, err error) {
	wish, err := s.planned()
	if err != nil {
		return readiness{job: &job{plan: wish}}, err
	}
	if r.job, err = open(ctx, wish); err != nil {
		return readiness{job: &job{plan: wish}}, err
	}
	r.tell = s.Tell
	is, err := Plan{}, fs.ErrNotExist
	if b != nil {
		if err := notWritten(ctx, b); err != nil {
			return r, err
		}
		is, err = PlanNamed(ctx, b, wish.Name)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// Otherwise a mistyped name would make an empty plan.
		for _, o := range r.origins {
			if s.listed() {
				break // each object is requested, and the user may not be allowed to list
			}
			if err := o.reachable(ctx); err != nil {
				return r, err
			}
		}
		return r, r.vacant(ctx)
	case err != nil:
		return r, err
	}
	if what := differs(is, wish); what != "" {
		return r, &DiffersError{wish.Name, what}
	}
	r.there = true
	return r, nil
}

// vacant returns an error if archives of a new plan could not be written: if there is no place for them, or
// if others are there already.
func (j *job) vacant(ctx context.Context) error {
	head, _ := j.around()
	mine := j.owns
	if j.format.Parts != nil {
		head = j.whole(j.plan.first, 0) + "/"
		mine = func(string) bool { return true }
	}
	for info, err := range storekit.List(ctx, j.target, head) {
		if errors.Is(err, errors.ErrUnsupported) {
			break
		}
		if err != nil {
			return err
		}
		if mine(info.Name) {
			return fmt.Errorf("%s: exists already, and is not part of this plan: %w", format.Escape(storekit.AddressOf(j.target, info.Name)), fs.ErrExist)
		}
	}
	if j.format.Parts != nil {
		once := storekit.NewStage(j.target)
		once.Wishes.Once = true
		w, err := j.format.Parts.Create(ctx, once, format.Part{Archive: j.whole(j.plan.first, 0)}, j.creating())
		if err == nil {
			err = w.Abort()
		}
		return err
	}
	w, err := storekit.CreateAs(ctx, j.target, j.chunk(0, 0), store.Wishes{Once: true})
	if err == nil {
		err = w.Abort()
	}
	return err
}

// A planner cuts what is new into chunks.
type planner struct {
	f         Fleet
	j         *job
	p         *Planned
	next      func() (Member, error, bool)
	stop      func()
	held      *Member // the first of the next chunk
	listing   int64
	number    int
	begun     []chunk        // that wait
	job       string         // that ends with the listing, if there is one
	spans     []span         // that are listed
	complete  bool           // the listing, and not a list
	seen      listings       // of them, before this one
	fates     *sorter.Sorter // of originals
	changed   bool           // there are some
	originals int64          // of packed files, that no retirement was about to remove
	most      float64        // the share of them that may be missing
	progress  func(Planned)
}

// planner returns a planner of a listing. Without a catalogue all objects are new.
func (f Fleet) planner(ctx context.Context, j *job, listing int64, spans []span, begun []chunk, p *Planned) (*planner, error) {
	pl := &planner{f: f, j: j, p: p, listing: listing, begun: begun, spans: spans, complete: j.origins[0].list == nil, progress: func(Planned) {}}
	made, all := archives{beside: append([]string{""}, kept.Beside...)}, pipe.All[known](nil)
	if f.Book != nil {
		var err error
		if made, err = j.made(ctx, f.Book); err != nil {
			return nil, err
		}
		s, err := f.Book.State(ctx) // before what is known is read
		if err != nil {
			return nil, err
		}
		pl.seen = j.listingsOf(s, spans)
		of, err := j.scope(ctx, f.Book)
		if err != nil {
			return nil, err
		}
		if l := j.origins[0].list; l != nil {
			spans = l.spans(s.Entries, f.finder(j, of))
		}
		all = f.known(ctx, j, of, pl.begun, spans)
		pl.fates = sorter.New(sorter.Options{Memory: 16 << 20, Scratch: sorter.TempFile})
	}
	pl.next, pl.stop = iter.Pull2(pl.fresh(j.listed(ctx, spans, made, &p.Skipped), all))
	return pl, nil
}

func (pl *planner) close() {
	pl.stop()
	if pl.fates != nil {
		pl.fates.Close()
	}
}

// run writes the lists of the chunks, and hands them out.
func (pl *planner) run(ctx context.Context) error {
	// What an earlier run has begun.
	for _, k := range pl.begun {
		k, err := pl.f.sized(ctx, pl.j, k)
		if errors.Is(err, errGone) || k.Last > 0 || k.done {
			continue
		}
		if err == nil {
			err = pl.f.enqueue(ctx, pl.j, k)
		}
		if err != nil {
			return err
		}
	}
	if err := pl.joinBegun(ctx); err != nil {
		return err
	}
	for {
		cut := &cutter{pl: pl}
		first, more, err := cut.one()
		if err != nil {
			return err
		}
		if of := pl.j.format.Parts; of != nil && (!more || pl.number > 0 && pl.number%of.Most == 0) {
			if err := pl.join(ctx, pl.listing, pl.number); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
		k := chunk{Listing: pl.listing, Number: pl.number}
		if err := pl.f.writeList(ctx, pl.j, &k, cut.rest(first)); err != nil {
			return err
		}
		if err := pl.f.enqueue(ctx, pl.j, k); err != nil {
			return err
		}
		pl.number++
		pl.p.Chunks++
		pl.p.Objects += k.Count
		pl.p.Bytes += k.Bytes
		pl.progress(*pl.p)
	}
}

// finish records what became of originals, and that the listing was complete.
func (pl *planner) finish(ctx context.Context) error {
	if n := pl.p.Missing; n > 1 && float64(n) > pl.most*float64(pl.originals) {
		return &GoneError{pl.j.plan.Name, n, pl.originals}
	}
	spans := pl.spans
	if !pl.complete {
		spans = nil
	}
	told := false
	for len(spans) > 0 {
		var left []span
		step := book.Step{
			Listed: book.NewListing(pl.listing, pl.j.listedAs(), spans[0].from, spans[0].before),
			If: func(s *book.State) error {
				if left = pl.alone(s, spans[:1]); !slices.Equal(left, spans[:1]) {
					return book.ErrConflict
				}
				return nil
			},
		}
		err := pl.record(ctx, step, spans[:1], !told)
		if errors.Is(err, book.ErrConflict) {
			spans = append(left, spans[1:]...)
			continue
		}
		if err != nil {
			return err
		}
		spans, told = spans[1:], true
	}
	if !told && (pl.changed || pl.job != "") {
		if err := pl.record(ctx, book.Step{}, nil, true); err != nil {
			return err
		}
	}
	s, err := pl.f.Book.State(ctx)
	if err != nil || !pl.complete {
		return err
	}
	return pl.f.forgetLeft(ctx, pl.j, pl.j.listingsOf(s, []span{{}}).whole())
}

// record commits which originals in some spans are missing and, if back is set, which ones are there anywhere.
func (pl *planner) record(ctx context.Context, step book.Step, spans []span, back bool) error {
	step.Since = pl.listing
	if back {
		step.Job = pl.job
	}
	step.Rows = func(yield func(*rows.Row, error) bool) {
		for x, err := range pl.fates.Sorted() {
			var r rows.Row
			if err == nil {
				err = r.Parse(string(x.Key), x.Value)
			}
			is := back
			if r.Original == rows.Missing || r.Original == rows.Unseen {
				is = haveName(spans, r.Name)
			}
			if (is || err != nil) && !yield(&r, err) || err != nil {
				return
			}
		}
	}
	_, err := pl.f.Book.Do(ctx, step)
	if errors.Is(err, book.ErrDone) {
		err = nil
	}
	return err
}

// A cutter yields the members of one chunk. The next chunk begins with the object that would make this one
// too large, unless that is its first object.
type cutter struct {
	pl      *planner
	meet    func(Member) // called with each, if not nil
	objects int64
	bytes   int64
	index   int64 // bytes of it, if the chunk becomes an archive
}

// one returns the next member of the chunk, if there is one.
func (c *cutter) one() (m Member, ok bool, err error) {
	if held := c.pl.held; held != nil {
		m, ok = *held, true
		c.pl.held = nil
	} else if m, err, ok = c.pl.next(); err != nil || !ok {
		return m, false, err
	}
	set, row := c.pl.j.set, int64(0)
	if c.pl.j.format.Parts == nil {
		row = indexBytes(m)
	}
	if c.objects > 0 && (c.objects == set.ChunkObjects || m.Size > set.ChunkSize-c.bytes || c.index+row > maxIndex/4*3) {
		c.pl.held = &m
		return m, false, nil
	}
	c.objects++
	c.bytes += m.Size
	c.index += row
	if c.meet != nil {
		c.meet(m)
	}
	return m, true, nil
}

// rest yields the first member and the others of the chunk.
func (c *cutter) rest(first Member) iter.Seq2[Member, error] {
	return func(yield func(Member, error) bool) {
		for m, ok, err := first, true, error(nil); ok || err != nil; m, ok, err = c.one() {
			if !yield(m, err) || err != nil {
				return
			}
		}
	}
}

// A known is a version of an object that is packed or waits for it.
type known struct {
	Member
	seq int64 // of the packed file; 0 if it waits
	was catalog.Location
}

// is reports whether it is this version of an object.
func (k known) is(m Member) bool {
	if k.seq > 0 {
		return m.isPacked(k.was)
	}
	return k.Size == m.Size && k.Version == m.Version && !later(m.Modified, k.Modified)
}

// packed is what is known of a packed file.
func (j *job) packed(l catalog.Location) known {
	return known{Member{Path: l.Path, Origin: j.originOf(l.Path), Size: l.Size, Version: l.ETag, Modified: l.Modified}, l.Seq, l}
}

// finder finds what is packed of a name, if anything is.
func (f Fleet) finder(j *job, of scope) func(ctx context.Context, name string) (*known, error) {
	return func(ctx context.Context, name string) (*known, error) {
		found, err := f.Book.NewestIn(ctx, name, of.has)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		k := j.packed(found.Location)
		return &k, err
	}
}

// known yields what is packed or waits, in byte order. What waits comes first. It yields packed files only if they are in
// one of the spans.
func (f Fleet) known(ctx context.Context, j *job, of scope, begun []chunk, spans []span) iter.Seq2[known, error] {
	all := []iter.Seq2[known, error]{}
	for _, k := range begun {
		if k.Last > 0 {
			continue
		}
		all = append(all, func(yield func(known, error) bool) {
			for m, err := range f.members(ctx, j, k) {
				if errors.Is(err, errGone) { // it was packed meanwhile
					return
				}
				if !yield(known{Member: m}, err) {
					return
				}
			}
		})
	}
	all = append(all, func(yield func(known, error) bool) {
		for _, s := range spans {
			for l, err := range f.Book.Between(ctx, s.from, s.before, of.has) {
				if !yield(j.packed(l), err) {
					return
				}
			}
		}
	})
	return merged(all)
}

// merged merges sequences that are in byte order of the paths.
func merged(all []iter.Seq2[known, error]) iter.Seq2[known, error] {
	type head struct {
		known
		next func() (known, error, bool)
	}
	return func(yield func(known, error) bool) {
		var heads []*head
		advance := func(h *head) (more bool, err error) {
			h.known, err, more = h.next()
			return more && err == nil, err
		}
		for _, s := range all {
			next, stop := iter.Pull2(s)
			defer stop()
			h := &head{next: next}
			more, err := advance(h)
			if err != nil {
				yield(known{}, err)
				return
			}
			if more {
				heads = append(heads, h)
			}
		}
		for len(heads) > 0 {
			least := 0
			for i, h := range heads {
				if h.Path < heads[least].Path {
					least = i
				}
			}
			h := heads[least]
			if !yield(h.known, nil) {
				return
			}
			more, err := advance(h)
			if err != nil {
				yield(known{}, err)
				return
			}
			if !more {
				heads = slices.Delete(heads, least, least+1)
			}
		}
	}
}

// fresh yields the listed objects that are not known in this version, and counts the others. It notes what
// became of the originals of packed files. A list says nothing of those that it does not have.
func (pl *planner) fresh(listed iter.Seq2[Member, error], all iter.Seq2[known, error]) iter.Seq2[Member, error] {
	return func(yield func(Member, error) bool) {
		next, stop := iter.Pull2(all)
		defer stop()
		was, kerr, more := next()
		advance := func() { was, kerr, more = next() }
		for m, err := range listed {
			for ; err == nil && kerr == nil && more && was.Path < m.Path; advance() {
				if pl.complete {
					kerr = pl.missed(was)
				}
			}
			is := false
			meet := func(was known) {
				if was.is(m) {
					is, kerr = true, pl.back(was)
				}
			}
			for ; err == nil && kerr == nil && more && was.Path == m.Path; advance() {
				meet(was)
			}
			if l := pl.j.origins[0].list; err == nil && kerr == nil && l != nil && l.was != nil {
				meet(*l.was)
			}
			if err = errors.Join(err, kerr); err == nil && is {
				pl.p.Known++
				continue
			}
			if !yield(m, err) || err != nil {
				return
			}
		}
		for ; kerr == nil && more && pl.complete; advance() {
			kerr = pl.missed(was)
		}
		if kerr != nil {
			yield(Member{}, kerr)
		}
	}
}

// missed notes that the original of a packed file was not found.
func (pl *planner) missed(was known) error {
	if was.seq == 0 || was.was.Original != catalog.OriginalStays || pl.fates == nil || was.seq > pl.listing || pl.j.names.Excluded(was.Path) {
		return nil
	}
	pl.originals++
	pl.p.Missing++
	if was.was.Missing {
		return nil // since another listing
	}
	is := rows.Unseen
	if pl.seen.of(was.Path) > was.seq { // and it was found then
		is = rows.Missing
	}
	return pl.fate(was, is)
}

// back notes that the original of a packed file is there again, or that it was to be removed and is still
// there. What is being removed never counts as missing.
func (pl *planner) back(was known) error {
	is := rows.Stays
	switch {
	case was.seq == 0 || pl.fates == nil || was.seq > pl.listing:
		return nil
	case was.was.Original == catalog.OriginalLeaving:
		is = rows.Lingers
	case !was.was.Missing:
		pl.originals++
		return nil
	}
	pl.originals++
	return pl.fate(was, is)
}

func (pl *planner) fate(was known, is rows.Original) error {
	pl.changed = true
	r := rows.Row{Name: was.Path, What: rows.Fate, Seq: pl.listing, Of: was.seq, Original: is}
	return pl.fates.Add([]byte(was.Path), r.Append(nil))
}
