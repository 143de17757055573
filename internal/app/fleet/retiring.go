package fleet

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/internal/app/catalog/shelf"
	"github.com/holdall/holdall/internal/app/fleet/queue"
	contents "github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// An attempt at a range leaves this in the catalogue's folder, in retired/PLAN/RUN: NUMBER-RANDOM.jsonl.gz, the
// log of what it is about to remove, written before it removes anything, and NUMBER.json, which says what became
// of the range, when that is done.
const (
	retiredKind = "retired"
	logSuffix   = ".jsonl.gz"
)

// maxJobs is how many requests of a range there may be at once.
const maxJobs = 1024

func (a retireArgs) summary() string { return fmt.Sprintf("%s/%06d.json", a.Run, a.Number) }

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

// ask requests the current state of an original, and the checksum of its service.
func (t *retirement) ask(ctx context.Context, x *original) error {
	x.asked = time.Now().Round(0) // also counts while the machine sleeps
	o, err := x.st.Open(ctx, x.name)
	if err != nil {
		return x.amiss(ctx, err)
	}
	defer o.Close()
	can := o.Can()
	var headers map[string]string
	if can.Headers != nil { // this one request also has what follows
		headers, err = can.Headers(ctx)
	}
	var is store.Info
	if err == nil {
		is, err = o.Info(ctx)
	}
	if err != nil {
		return x.amiss(ctx, err)
	}
	x.sure = true
	if x.ETag == "" { // what is compared byte by byte may be removed
		x.version = is.Version
	}
	later := !x.Modified.IsZero() && x.Modified.Sub(is.ModTime).Abs() >= time.Second
	if is.Size != x.Size || is.Version != x.version || x.ETag == "" && later {
		x.leave(OriginalChanged, nil)
		return nil
	}
	var unkept []string
	if can.Unkept != nil {
		unkept = can.Unkept()
	}
	if can.Headers != nil {
		was, err := t.f.Book.HeadersOf(ctx, x.Location)
		if err != nil {
			return err
		}
		if has, waived := was[storekit.TagsHeader] != "", slices.Contains(t.a.Without, Tags); waived || !has && headers[storekit.TagsHeader] != "" {
			headers = maps.Clone(headers)
			delete(was, storekit.TagsHeader)
			delete(headers, storekit.TagsHeader)
			unkept = append(unkept, string(Tags))
		}
		of := format.All().ByName(t.scope[x.Archive].Format)
		keeps := of != nil && of.Keeps&format.KeepsHeaders != 0
		if later || keeps && !maps.Equal(was, headers) {
			x.leave(HeadersChanged, nil)
			return nil
		}
		if !keeps && len(headers) > 0 && !slices.Contains(t.a.Without, Headers) {
			x.leave(Headers, nil)
			return nil
		}
	}
	for _, why := range Unkept {
		if slices.Contains(unkept, string(why)) && !slices.Contains(t.a.Without, why) {
			x.leave(why, nil)
			return nil
		}
	}
	if can.Shared != nil && !slices.Contains(t.a.Without, ACL) {
		shared, err := can.Shared(ctx)
		if shared || errors.Is(err, fs.ErrPermission) {
			x.leave(ACL, err)
			return nil
		} else if err != nil {
			return x.amiss(ctx, err)
		}
	}
	if x.Size > 0 {
		if x.sum, x.has, err = pack.SumOf(ctx, o); err != nil {
			return x.amiss(ctx, err)
		}
	}
	switch {
	case x.Size == 0:
		x.by = "size"
	case x.has:
		x.by = pack.ProvenBy(x.sum)
	case t.a.NoReread:
		x.leave(NoChecksum, nil)
	default:
		x.by = "bytes"
	}
	return nil
}

// amiss leaves an original that cannot be requested, unless the error may be temporary.
func (x *original) amiss(ctx context.Context, err error) error {
	x.sure = false
	switch {
	case ctx.Err() != nil || storekit.Temporary(err):
		return err
	case errors.Is(err, store.ErrChanged):
		x.leave(OriginalChanged, nil)
	case !errors.Is(err, fs.ErrNotExist):
		x.leave(Refused, err)
	default:
		x.leave(OriginalGone, nil)
		x.gone = x.leaving || x.Original == catalog.OriginalLingers // it was retired
	}
	return nil
}

// stands returns an error unless the archive of an empty original is the one in the catalogue. Of one with several
// objects, only its own index tells.
func (t *retirement) stands(ctx context.Context, sh *shelf.Shelf, a *archive, x *original) error {
	if of := format.All().ByName(a.Format); of == nil || of.Parts == nil {
		return a.stands(ctx)
	}
	own, err := sh.Own(ctx, x.Location)
	if err == nil && own.Size > 0 {
		err = store.ErrChanged
	}
	return err
}

// prove reads the packed files back, and compares them.
func (t *retirement) prove(ctx context.Context, batch []*original) error {
	var all, empty []*original
	of := map[string]*original{}
	for _, x := range batch {
		switch {
		case x.why != "":
		case x.Size > 0:
			all = append(all, x)
			of[x.Path] = x
		default:
			empty = append(empty, x)
		}
	}
	if len(all)+len(empty) == 0 {
		return nil
	}
	// Neighbours are read together.
	slices.SortFunc(all, func(a, b *original) int {
		return cmp.Or(cmp.Compare(a.Archive, b.Archive), cmp.Compare(a.Off, b.Off), strings.Compare(a.Path, b.Path))
	})
	// Each attempt opens the archives again: an archive that is lost meanwhile proves nothing.
	sh, err := shelf.New(ctx, t.f.Book, shelf.Options{})
	if err != nil {
		return err
	}
	defer sh.Close()
	known := map[int64]*archive{}
	for _, x := range empty { // there is nothing to read back
		a := known[x.Archive]
		if a == nil {
			a = &archive{Archive: t.scope[x.Archive]}
			known[x.Archive] = a
		}
		if err := x.judge(ctx, t.stands(ctx, sh, a, x)); err != nil {
			return err
		}
	}
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
		t.meter.Add(1, x.Size)
		return x.judge(ctx, err)
	})
	if err == nil && len(met) < len(all) {
		err = fmt.Errorf("%d of %d files were read", len(met), len(all))
	}
	if err != nil || !slices.ContainsFunc(all, func(x *original) bool { return x.why == ArchiveChanged }) {
		return err
	}
	now, err := t.j.scope(ctx, t.f.Book)
	for _, x := range all {
		if x.why == ArchiveChanged && err == nil && !now.has(x.Archive) {
			x.leave(Moved, nil)
		}
	}
	return err
}

// judge leaves an original whose proof failed, unless the failure may be temporary.
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

// compare reads a packed file to its end, and compares it with the checksum of the original's service, or with
// the original.
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

func (t *retirement) told(x *original) Retirement {
	return Retirement{format.Escape(x.Path), format.Escape(storekit.AddressOf(x.st, x.name)), format.Escape(x.version), x.Size, format.Escape(t.scope[x.Archive].Address), x.by}
}

// plain is the inverse of the escapes of told.
func (r Retirement) plain() Retirement {
	return Retirement{naming.Unescape(r.Path), naming.Unescape(r.Original), naming.Unescape(r.Version), r.Size, naming.Unescape(r.Archive), r.By}
}

// log writes what is about to be removed.
func (t *retirement) log(ctx context.Context, attempt string, going []*original) error {
	name := fmt.Sprintf("%s/%06d-%s%s", t.a.Run, t.a.Number, attempt, logSuffix)
	_, err := storekit.Write(ctx, t.f.Book.Store(), t.f.at(retiredKind, t.j, name), func(w store.Writer) error {
		z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			return err
		}
		to := json.NewEncoder(z)
		for _, x := range going {
			if err := to.Encode(t.told(x)); err != nil {
				return err
			}
			x.going = true
		}
		return z.Close()
	})
	return err
}

// tell writes what became of the range.
func (t *retirement) tell(ctx context.Context, all []*original) error {
	sum := Retired{Run: t.a.Run, Proven: map[string]int64{}, Left: map[Reason]int64{}}
	sum.estimate(all, !t.j.target.Can().Near, !t.f.Book.Near())
	for _, x := range all {
		sum.Window = max(sum.Window, x.took)
		switch {
		case x.gone && x.why == OriginalGone:
			sum.Finished++
			sum.Bytes += x.Size
		case x.gone || x.why == "":
			sum.Objects++
			sum.Bytes += x.Size
			sum.Proven[x.by]++
		default:
			if sum.Left[x.why]++; len(sum.Kept) < mostKept {
				k := Keeping{Retirement: t.told(x), Why: x.why, Going: x.going}
				if x.err != nil {
					k.Note = format.Escape(x.err.Error())
				}
				sum.Kept = append(sum.Kept, k)
			}
		}
	}
	_, err := storekit.Write(ctx, t.f.Book.Store(), t.f.at(retiredKind, t.j, t.a.summary()), func(w store.Writer) error {
		return json.NewEncoder(w).Encode(sum)
	})
	return err
}

// RetirementLog yields the originals that were about to be removed in a run. One that is twice there was so in
// two attempts. Retired.Kept has those that were not removed then.
func RetirementLog(ctx context.Context, f Fleet, p Plan, run string) iter.Seq2[Retirement, error] {
	return pipe.Told(func(tell func(Retirement) error) error {
		st, at := f.Book.Store(), f.at(retiredKind, &job{id: idOf(p.Name)}, run)+"/"
		for info, err := range storekit.List(ctx, st, at) {
			if err != nil {
				return err
			}
			if !strings.HasSuffix(path.Base(info.Name), logSuffix) {
				continue
			}
			in, err := readWhole(ctx, st, info.Name)
			if err != nil {
				return err
			}
			err = readLog(in, info.Name, tell)
			if err := errors.Join(err, in.Close()); err != nil {
				return err
			}
		}
		return nil
	})
}

func readLog(in io.Reader, name string, tell func(Retirement) error) error {
	z, err := gzip.NewReader(in)
	if err != nil {
		return fmt.Errorf("%s: %w", format.Escape(name), err)
	}
	return eachLine(z, name, func(line []byte) error {
		var r Retirement
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		return tell(r.plain())
	})
}
