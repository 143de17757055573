package fleet

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/shelf"
	contents "github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A Reason is why an original is not removed.
type Reason string

// Reasons.
const (
	NotPacked       Reason = "not packed"       // the newest chunk that has it did not pack it in the archive's version
	NoVersion       Reason = "no version"       // the packed version is unknown
	TooYoung        Reason = "too young"        // it was packed too recently
	NoChecksum      Reason = "no checksum"      // its service has none, and it must not be read again
	OriginalChanged Reason = "original changed" // it has changed
	HeadersChanged  Reason = "headers changed"  // its headers or its time have, or were never packed
	Tags            Reason = "tags"             // it has some, which no archive keeps
	StorageClass    Reason = "storage class"    // it has another one than usual
	Redirect        Reason = "redirect"         // of a website
	Lock            Reason = "lock"             // it must be kept
	OriginalGone    Reason = "original gone"    // it does not exist, and was not retired
	Moved           Reason = "moved"            // its archive was rewritten meanwhile
	Refused         Reason = "refused"          // its service refuses to show or remove it
	ArchiveChanged  Reason = "archive changed"  // it differs from the one that the catalogue records, or is gone
	ArchiveDamaged  Reason = "archive damaged"  // the packed file differs from the catalogue's record
	Unreadable      Reason = "unreadable"       // the archive cannot be read
	Differs         Reason = "differs"          // the packed file differs from the checksum of the original's service
)

// Unkept are the reasons to leave originals with something that no archive
// keeps.
var Unkept = []Reason{Tags, StorageClass, Redirect, Lock}

// Fault reports whether a reason needs a person's attention.
func (r Reason) Fault() bool {
	switch r {
	case Refused, ArchiveChanged, ArchiveDamaged, Unreadable, Differs:
		return true
	}
	return false
}

// RetireOptions are options for a retirement.
type RetireOptions struct {
	// OlderThan leaves files that were packed more recently than that.
	OlderThan time.Duration
	// Limit and LimitBytes limit how much is retired; 0 means no limit.
	Limit, LimitBytes int64
	// NoReread leaves originals without a checksum, which are otherwise read
	// again.
	NoReread bool
	// Without are reasons of Unkept for which originals are not left.
	Without []Reason
	// Jobs is how many originals are requested or removed at once; 0 means 16.
	Jobs int
	// DryRun proves, but removes nothing.
	DryRun bool
	// Going is called with originals before they are removed. If it returns an
	// error, they are kept.
	Going func([]Retirement) error
	// Gone is called with each original that was removed, and Kept with each that
	// was checked and left. Calls are not concurrent.
	Gone func(Retirement)
	Kept func(Keeping)
	// Meter counts what was checked.
	Meter *holdall.Meter
}

// A Retirement is an original that is removed.
type Retirement struct {
	Path, Original string // Original is its address
	Version        string
	Size           int64
	Archive        string // the address of the archive that has it
	By             string // its proof: a checksum, "bytes" or "size"
}

// A Keeping is an original that is left, with the reason.
type Keeping struct {
	Retirement
	Why   Reason
	Err   error // details, if not nil
	Going bool  // it was passed to RetireOptions.Going
}

// Retired is the result of a retirement.
type Retired struct {
	Objects, Bytes int64 // that were removed
	Finished       int64 // that an earlier run had removed but not recorded
	Proven         map[string]int64
	Left           map[Reason]int64
	Limited        bool // there is more, beyond the limit
}

const (
	// retireBatch is how many originals are proven and removed together, and
	// retireBytes is their maximum total size. A single original may be larger.
	retireBatch = 500
	retireBytes = 64 << 20
)

// A retirer retires originals of a plan.
type retirer struct {
	c     *catalog.Catalog
	j     *job
	o     RetireOptions
	scope scope
	done  Retired
}

// An original is one that may be retired.
type original struct {
	liveFile
	st    store.Store
	name  string
	young bool
	sum   store.Sum // the checksum of its service
	has   bool
	mod   time.Time
	by    string
	why   Reason // it is left
	err   error

	gone   bool
	sure   bool // it exists, in this version or another one
	marked bool // by this run
	going  bool
}

func (x *original) leave(why Reason, err error) { x.why, x.err = why, err }

// was reports whether an earlier run was about to remove the original, and may
// have removed it.
func (x *original) was() bool { return x.Original == catalog.OriginalLeaving }

func (x *original) info() store.Info {
	return store.Info{Name: x.name, Size: x.m.Size, Version: x.m.Version}
}

// Retire removes those originals of a plan that are proven. A proof reads the
// packed file back, and compares it with the current checksum of the
// original's service, or with the original. Originals without a proof are
// left. If Retire is killed, the next run finds and finishes its work.
func Retire(ctx context.Context, c *catalog.Catalog, p catalog.Plan, o RetireOptions) (Retired, error) {
	r := &retirer{c: c, o: o, done: Retired{Proven: map[string]int64{}, Left: map[Reason]int64{}}}
	r.o.Jobs = cmp.Or(o.Jobs, 16)
	var err error
	if r.j, err = openToDelete(ctx, c, p); err != nil {
		return r.done, err
	}
	if !o.DryRun {
		if err := c.SetRoots(ctx, p.ID, r.j.roots()); err != nil {
			return r.done, err
		}
	}
	// If a source cannot be listed, its objects are not gone.
	for _, origin := range r.j.origins {
		for _, err := range storekit.List(ctx, origin.st, origin.begin) {
			if err != nil {
				return r.done, err
			}
			break
		}
	}
	if r.scope, err = r.j.scope(ctx, c); err != nil {
		return r.done, err
	}
	err = r.run(ctx)
	return r.done, err
}

// run takes batch after batch.
func (r *retirer) run(ctx context.Context) error {
	var batch []*original
	size := int64(0)
	flush := func() error {
		err := r.retire(ctx, batch)
		batch, size = nil, 0
		return err
	}
	for f, err := range r.j.live(ctx, r.c, r.scope.has) {
		if err != nil {
			return err
		}
		if f.Original == catalog.OriginalLeft || !f.Kind.HasContent() {
			continue
		}
		x := &original{liveFile: f}
		switch {
		case f.m.Outcome != catalog.Packed || f.m.Origin >= len(r.j.origins):
			x.why = NotPacked
		case f.m.Version == "":
			x.why = NoVersion
		case r.o.OlderThan > 0 && time.Since(r.scope[f.Archive].Added) < r.o.OlderThan:
			if x.young = true; !x.was() {
				x.why = TooYoung
			}
		}
		if x.why != "" {
			r.done.Left[x.why]++
			continue
		}
		if r.beyond(len(batch), size+f.Size) {
			// Some of the batch may be left.
			if err := flush(); err != nil {
				return err
			}
			if r.beyond(0, f.Size) {
				r.done.Limited = true
				return nil
			}
		}
		if len(batch) > 0 && (len(batch) == retireBatch || size+f.Size > retireBytes) {
			if err := flush(); err != nil {
				return err
			}
		}
		origin := r.j.origins[f.m.Origin]
		x.st, x.name = origin.st, strings.TrimPrefix(f.Path, origin.prefix)
		batch, size = append(batch, x), size+f.Size
	}
	return flush()
}

// beyond reports whether one more original after n would exceed the limits.
// bytes is their total size, including that one.
func (r *retirer) beyond(n int, bytes int64) bool {
	return r.o.Limit > 0 && r.done.Objects+int64(n) >= r.o.Limit || r.o.LimitBytes > 0 && r.done.Bytes+bytes > r.o.LimitBytes
}

// retire proves a batch, and removes the proven originals.
func (r *retirer) retire(ctx context.Context, batch []*original) error {
	if len(batch) == 0 {
		return nil
	}
	if err := pipe.Each(ctx, pipe.All(batch), r.o.Jobs, r.ask); err != nil {
		return err
	}
	if err := r.prove(ctx, batch); err != nil {
		return err
	}
	if r.o.DryRun {
		for _, x := range batch {
			x.gone = x.gone || x.why == ""
		}
		r.tell(batch)
		return nil
	}
	err := r.remove(ctx, batch)
	// Record what was done, even if the run was ended: otherwise the next run has
	// to find out.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = cmp.Or(err, r.record(ctx, batch))
	r.tell(batch)
	return err
}

// ask requests the current state of an original, and the checksum of its
// service.
func (r *retirer) ask(ctx context.Context, x *original) error {
	o, err := x.st.Open(ctx, x.name)
	var is store.Info
	if err == nil {
		defer o.Close()
		if headers := o.Can().Headers; x.m.Size == 0 && headers != nil {
			_, err = headers(ctx) // a response about a range of an empty object has none
		}
	}
	if err == nil {
		is, err = o.Info(ctx)
	}
	if err == nil && (is.Size != x.m.Size || x.m.Size > 0 && is.Version != x.m.Version) { // a response about an empty object may have no version
		x.leave(OriginalChanged, nil)
		return nil
	}
	if err == nil {
		x.sure, x.mod = true, is.ModTime
		if why, err := r.besides(ctx, x, o); err != nil {
			return x.amiss(ctx, err)
		} else if why != "" {
			x.leave(why, nil)
			return nil
		}
		if x.m.Size > 0 {
			x.sum, x.has, err = pack.SumOf(ctx, o)
		}
	}
	switch {
	case err == nil && x.young:
		x.leave(TooYoung, nil)
	case err == nil && x.m.Size == 0:
		x.by = "size"
	case err == nil && x.has:
		x.by = pack.ProvenBy(x.sum)
	case err == nil && r.o.NoReread:
		x.leave(NoChecksum, nil)
	case err == nil:
		x.by = "bytes"
	default:
		return x.amiss(ctx, err)
	}
	return nil
}

// besides returns a reason to leave an original because of what its service
// stores besides its bytes. An archive without an ETag keeps nothing of that.
func (r *retirer) besides(ctx context.Context, x *original, o store.Object) (Reason, error) {
	can := o.Can()
	if can.Headers == nil {
		return "", nil
	}
	now, err := can.Headers(ctx)
	was := now
	if err == nil && x.ETag != "" {
		was, err = r.c.Headers(ctx, x.Headers)
	}
	if err == nil && (!maps.Equal(was, now) || !x.Modified.IsZero() && x.Modified.Sub(x.mod).Abs() >= time.Second) {
		return HeadersChanged, nil
	}
	if err == nil && can.Unkept != nil {
		for _, why := range Unkept {
			if slices.Contains(can.Unkept(), string(why)) && !slices.Contains(r.o.Without, why) {
				return why, nil
			}
		}
	}
	return "", err
}

// amiss leaves an original that cannot be requested, unless the error may be
// temporary.
func (x *original) amiss(ctx context.Context, err error) error {
	x.sure = false
	switch {
	case ctx.Err() != nil || storekit.Temporary(err):
		return err
	case errors.Is(err, store.ErrChanged):
		x.leave(OriginalChanged, nil)
	case !errors.Is(err, fs.ErrNotExist):
		x.leave(Refused, err)
	case x.was():
		x.leave(OriginalGone, nil)
		x.gone = true
	default:
		x.leave(OriginalGone, nil)
	}
	return nil
}

// prove reads the packed files of a batch back, and compares them.
func (r *retirer) prove(ctx context.Context, batch []*original) error {
	var all []*original
	of := map[string]*original{}
	for _, x := range batch {
		if x.why == "" && x.Size > 0 {
			all = append(all, x)
			of[x.Path] = x
		}
	}
	if len(all) == 0 {
		return nil
	}
	// Neighbours are read together.
	slices.SortFunc(all, func(a, b *original) int {
		return cmp.Or(cmp.Compare(a.Archive, b.Archive), cmp.Compare(a.Off, b.Off), strings.Compare(a.Path, b.Path))
	})
	// Each batch opens the archives again: an archive that is lost meanwhile
	// proves nothing.
	sh, err := shelf.New(ctx, r.c, shelf.Options{})
	if err != nil {
		return err
	}
	defer sh.Close()
	in, err := holdall.Open(ctx, shelf.Tree, holdall.OpenOptions{Store: sh, Format: shelf.Format.Name, Formats: []*format.Format{shelf.Format}, Parity: parity.None})
	if err != nil {
		return err
	}
	defer in.Close()
	entries := func(yield func(format.Entry, error) bool) {
		for _, x := range all {
			if !yield(format.Entry{Name: x.Path, Kind: x.Kind, Size: x.Size, Digest: x.Digest, Ref: x.Location}, nil) {
				return
			}
		}
	}
	met := map[string]bool{}
	var mu sync.Mutex
	err = in.Source().Sweep(ctx, entries, contents.AnyOrder, func(c contents.Content, err error) error {
		x := of[c.Entry.Name]
		mu.Lock()
		met[x.Path] = true
		mu.Unlock()
		if err == nil {
			err = x.compare(ctx, c.Checked())
		}
		r.o.Meter.Add(1, x.Size)
		return x.judge(ctx, err)
	})
	if err == nil && len(met) < len(all) {
		err = fmt.Errorf("%d of %d files were read", len(met), len(all))
	}
	return err
}

// judge leaves an original whose proof failed, unless the failure may be
// temporary.
func (x *original) judge(ctx context.Context, err error) error {
	wrong, differs := errors.AsType[*differsError](err)
	_, stale := errors.AsType[*shelf.StaleError](err)
	asked, original := errors.AsType[*originalError](err)
	switch {
	case err == nil:
	case ctx.Err() != nil || storekit.Temporary(err):
		return err
	case original:
		return x.amiss(ctx, asked.error)
	case differs:
		x.leave(Differs, wrong)
	case stale || errors.Is(err, store.ErrChanged) || errors.Is(err, fs.ErrNotExist):
		x.leave(ArchiveChanged, err)
	case errors.Is(err, format.ErrCorrupt):
		x.leave(ArchiveDamaged, err)
	default:
		x.leave(Unreadable, err)
	}
	return nil
}

// A differsError reports that a packed file differs from its original.
type differsError struct{ what string }

func (e *differsError) Error() string { return e.what }

// An originalError is an error of an original, not of its packed copy.
type originalError struct{ error }

// compare reads a packed file to its end, and compares it with the checksum of
// the original's service, or with the original.
func (x *original) compare(ctx context.Context, packed io.Reader) error {
	var n int64
	var err, wrong error
	if x.has {
		w := pack.NewWitness(x.Path, x.sum, x.Size)
		n, err = io.Copy(w, packed)
		if wrong = w.Wrong(); wrong != nil {
			what := fmt.Sprintf("its service reports another %s", strings.ReplaceAll(x.by, "_", " "))
			wrong = &differsError{what}
		}
	} else {
		n, err = x.reread(ctx, packed)
	}
	if err == nil && n != x.Size {
		err = fmt.Errorf("%s: expected %d bytes, found %d: %w", format.Escape(x.Path), x.Size, n, format.ErrCorrupt)
	}
	return cmp.Or(err, wrong)
}

// rereadBlock is how many bytes of an original are read at once.
const rereadBlock = 1 << 20

// reread compares a packed file with the original, byte by byte.
func (x *original) reread(ctx context.Context, packed io.Reader) (n int64, err error) {
	o, err := storekit.OpenAs(ctx, x.st, x.info())
	if err != nil {
		return 0, &originalError{err}
	}
	defer o.Close()
	a, b := make([]byte, min(x.Size, rereadBlock)), make([]byte, min(x.Size, rereadBlock))
	var differs error
	for {
		k, err := io.ReadFull(packed, a)
		if k > 0 && differs == nil && n+int64(k) <= x.Size {
			if err := o.ReadAt(ctx, b[:k], n); err != nil {
				return n, &originalError{err}
			}
			if !bytes.Equal(a[:k], b[:k]) {
				differs = &differsError{fmt.Sprintf("the original differs, in the block from byte %d on", n)}
			}
		}
		n += int64(k)
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return n, differs
		default:
			return n, err
		}
	}
}

// remove removes the proven originals of a batch.
func (r *retirer) remove(ctx context.Context, batch []*original) error {
	going, err := r.mark(ctx, those(batch, func(x *original) bool { return x.why == "" }))
	if err != nil || len(going) == 0 {
		return err
	}
	if err := r.j.raise(ctx, r.c, r.j.sides()); err != nil {
		return err
	}
	if r.o.Going != nil {
		var all []Retirement
		for _, x := range going {
			all = append(all, r.told(x))
		}
		if err := r.o.Going(all); err != nil {
			return err
		}
	}
	for _, x := range going {
		x.sure, x.going = false, true
	}
	return pipe.Each(ctx, pipe.All(going), r.o.Jobs, func(ctx context.Context, x *original) error {
		info := x.info()
		info.ModTime = x.mod
		err := storekit.RemoveAs(ctx, x.st, info)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			x.gone = true
			return nil
		}
		return x.failed(ctx, err)
	})
}

// mark records that originals are about to be removed, and returns those that
// may be removed.
func (r *retirer) mark(ctx context.Context, all []*original) ([]*original, error) {
	if len(all) == 0 {
		return nil, nil
	}
	if err := r.c.Mark(ctx, locations(all), catalog.OriginalLeaving); err != nil {
		return nil, err
	}
	unseen := map[string]*original{}
	first, last := all[0].Path, all[0].Path
	for _, x := range all {
		x.marked, unseen[x.Path] = true, x
		first, last = min(first, x.Path), max(last, x.Path)
	}
	// From now on a rewrite copies the mark. This scan finds files that were
	// rewritten before they had it.
	for l, err := range r.c.Between(ctx, first, last+"\x00", r.scope.has) {
		if err != nil {
			return nil, err
		}
		if x := unseen[l.Path]; x != nil && l.Archive == x.Archive && l.Original == catalog.OriginalLeaving {
			delete(unseen, l.Path)
		}
	}
	for _, x := range unseen {
		x.leave(Moved, nil)
	}
	return those(all, func(x *original) bool { return x.why == "" }), nil
}

// failed finds out what became of an original that was not removed. If that is
// unknown, it stays marked for the next run.
func (x *original) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil || storekit.Temporary(err) {
		return err
	}
	_, is := storekit.Briefly(x.st, x.name).Info(ctx)
	switch {
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

// record records the outcomes of a batch. An original that an earlier run was
// about to remove stays marked unless it is gone: its removal may still be
// under way.
func (r *retirer) record(ctx context.Context, batch []*original) error {
	gone := those(batch, func(x *original) bool { return x.gone })
	stay := those(batch, func(x *original) bool { return x.marked && x.sure && !x.gone && !x.was() })
	var err error
	if len(gone) > 0 {
		err = r.c.Mark(ctx, locations(gone), catalog.OriginalLeft)
	}
	if err == nil && len(stay) > 0 {
		err = r.c.Mark(ctx, locations(stay), catalog.OriginalStays)
	}
	return err
}

// tell counts a batch, and reports its outcomes.
func (r *retirer) tell(batch []*original) {
	for _, x := range batch {
		switch {
		case x.gone && x.why == OriginalGone:
			r.done.Finished++
		case x.gone:
			r.done.Objects++
			r.done.Bytes += x.Size
			r.done.Proven[x.by]++
			if r.o.Gone != nil {
				r.o.Gone(r.told(x))
			}
		case x.why != "":
			r.done.Left[x.why]++
			if r.o.Kept != nil {
				r.o.Kept(Keeping{r.told(x), x.why, x.err, x.going})
			}
		}
	}
}

func (r *retirer) told(x *original) Retirement {
	return Retirement{x.Path, storekit.AddressOf(x.st, x.name), x.m.Version, x.Size, r.scope[x.Archive].Address, x.by}
}

func those(all []*original, is func(*original) bool) (some []*original) {
	for _, x := range all {
		if is(x) {
			some = append(some, x)
		}
	}
	return some
}

func locations(all []*original) (some []catalog.Location) {
	for _, x := range all {
		some = append(some, x.Location)
	}
	return some
}

// Originals counts the outcomes for the originals of the visible files in a
// plan's archives.
type Originals struct {
	Stay    int64 `json:"there"`
	Leaving int64 `json:"leaving"` // an unfinished run was about to remove them, or has
	Retired int64 `json:"retired"`
}

// OriginalsOf reads all files of a plan's archives.
func OriginalsOf(ctx context.Context, c *catalog.Catalog, p catalog.Plan) (*Originals, error) {
	n := &Originals{}
	j, err := open(ctx, p)
	if err != nil {
		return n, err
	}
	scope, err := j.scope(ctx, c)
	if err != nil {
		return n, err
	}
	for l, err := range c.Between(ctx, "", "", scope.has) {
		if err != nil {
			return n, err
		}
		switch l.Original {
		case catalog.OriginalLeft:
			n.Retired++
		case catalog.OriginalLeaving:
			n.Leaving++
		default:
			n.Stay++
		}
	}
	return n, nil
}
