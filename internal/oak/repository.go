package oak

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/oak/internal/cloud"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/sweep"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

type repository struct {
	st         store.Store
	name       string // as given
	single     bool   // one tar
	list       repo.Listing
	tarsBefore []repo.Tar    // that there were before the journal was opened, if a program is writing
	tars       []*segmentTar // the tars in use, newest number first
	byPath     map[string]*segmentTar
	shadowed   []repo.Tar // the tars not in use
	limits     format.Limits
	trust      trust  // how segments are read for users
	onHeal     func() // called when a bit of a segment was corrected; or nil
	held       int64  // bytes of indexes
	release    func() // of tails that were fetched ahead

	moment map[string]store.Object // used files besides the tars, as they were when the store was opened
	had    map[string]*segmentTar  // of an earlier opening, to be reused
	writer string                  // the program that is writing to it, if known

	doubt   atomic.Pointer[format.Problem] // whether the newest revision is the newest, and names are proven
	certain atomic.Bool                    // nothing is guessed

	asking sync.Mutex
	asked  bool // files beside the tars were requested, in a store that cannot list
}

type segmentTar struct {
	repo.Tar
	*tarfile.Index                // or the result of a scan
	path           string         // of the object
	blobs          *cloud.Archive // presented as a tar at path, or nil
	obj            store.Object
	size           int64
	file           *tarfile.Tar // nil if it has no index
	none           *tarfile.NoIndex
	trash          []tarfile.Problem // found by the scan
	scanned        int64             // where the next scan begins
	onHeal         func()            // of the repository
}

// fetchedAhead is how many tails are requested at once.
const fetchedAhead = 32

// openRepository opens the store in a folder, or a single tar, and finds all its files.
func openRepository(ctx context.Context, st store.Store, name string, o format.OpenOptions) (*repository, error) {
	r, err := openSegments(ctx, st, name, o)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(r.beside(ctx), r.complete(ctx)); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// beside finds the files that are not needed for reading.
func (r *repository) beside(ctx context.Context) (err error) {
	r.asking.Lock()
	defer r.asking.Unlock()
	if r.list.Guessed && !r.asked {
		err = r.list.Beside(ctx, r.st)
		r.asked = err == nil
	}
	return err
}

// openSegments opens what contains the segments, and only determines where they are.
func openSegments(ctx context.Context, st store.Store, name string, o format.OpenOptions) (_ *repository, err error) {
	r := &repository{st: st, name: name, limits: o.Limits.OrDefault(), onHeal: o.OnHeal, release: func() {}}
	if o.NoVerify {
		r.trust = asStored
	}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	dir := strings.TrimSuffix(name, "/")
	if number, letter, ok := tarfile.ParseName(path.Base(dir)); ok && dir == name {
		size, err := sizeOf(ctx, st, name)
		if err == nil {
			r.single = true
			r.list = repo.Listing{Dir: repo.Dir(path.Dir(name)), Tars: []repo.Tar{{File: repo.File{Name: path.Base(name), Size: size}, Number: number, Letter: letter}}}
			r.writer = r.lockedBy(ctx)
			return r, r.openTars(ctx)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return r, r.openMoment(ctx, dir)
}

// find lists the files of a store. It returns an error if the folder is not a store.
func (r *repository) find(ctx context.Context, dir string) (err error) {
	if r.list, err = repo.List(ctx, r.st, dir); err != nil {
		return err
	}
	if r.list.Blobs != nil {
		r.st = cloud.View(r.st, r.list.Path(""), r.list.Blobs)
	}
	if len(r.list.Tars) == 0 && r.list.Journal == nil {
		if err := r.beside(ctx); err != nil {
			return err
		}
	}
	if len(r.list.Tars) == 0 && r.list.Journal == nil && r.list.Manifest == nil {
		if err := r.missing(ctx, dir); err != nil {
			return err
		}
		return fault(notAStore, r.name, -1, "no tars named data00000a.tar and so on, no %s and no %s", repo.Journal, repo.Manifest)
	}
	return nil
}

// missing distinguishes a missing store from something else.
func (r *repository) missing(ctx context.Context, dir string) error {
	if len(r.list.Others)+len(r.list.Ignored)+len(r.list.Backups) > 0 {
		return nil
	}
	for _, err := range storekit.List(ctx, r.st, dir+"/") {
		if err == nil || !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
		break
	}
	_, err := sizeOf(ctx, r.st, r.name)
	if errors.Is(err, syscall.EISDIR) { // an empty folder
		err = nil
	}
	return err
}

func sizeOf(ctx context.Context, st store.Store, name string) (int64, error) {
	info, err := storekit.Briefly(st, name).Info(ctx)
	return info.Size, err
}

// openTars opens of each number the letters that count.
func (r *repository) openTars(ctx context.Context) error {
	numbers := r.list.Numbers()
	for len(numbers) > 0 {
		some := numbers[:min(len(numbers), fetchedAhead)]
		numbers = numbers[len(some):]
		if err := r.openNumbers(ctx, some); err != nil {
			return err
		}
	}
	if err := r.holdShadowed(ctx); err != nil {
		return err
	}
	r.byPath = map[string]*segmentTar{}
	for _, t := range r.tars {
		r.byPath[t.path] = t
	}
	return nil
}

func (r *repository) openNumbers(ctx context.Context, some [][]repo.Tar) (err error) {
	var ahead []store.Range
	first := make([]store.Object, len(some)) // of each number, opened as what grows
	defer func() {
		for _, o := range first {
			if o != nil {
				err = errors.Join(err, o.Close())
			}
		}
	}()
	for i, letters := range some {
		name := r.list.Path(letters[0].Name)
		if first[i], err = storekit.OpenGrowing(ctx, r.st, name); err != nil {
			return err
		}
		ahead = append(ahead, store.Range{Name: name, Tail: true, Len: tailGuess})
	}
	r.release()
	r.release = kit.Fetch(ctx, r.st, ahead)
	for _, letters := range some {
		if err := r.openNumber(ctx, letters); err != nil {
			return err
		}
	}
	return nil
}

// tailGuess is how much of a tar's end is read first.
const tailGuess = 64 << 10

// openNumber opens the newest letter with an intact index. If there is none, it scans all
// letters.
func (r *repository) openNumber(ctx context.Context, letters []repo.Tar) (err error) {
	var opened []*segmentTar // which r does not have yet
	defer func() {
		for _, t := range opened {
			t.obj.Close()
		}
	}()
	for i, l := range letters {
		if t := r.again(l); t != nil {
			r.tars = append(r.tars, t)
			r.shadowed = slices.Concat(r.shadowed, letters[:i], letters[i+1:])
			return nil
		}
		t := &segmentTar{Tar: l, path: r.list.Path(l.Name), blobs: r.list.Blobs.Archive(l.Name), onHeal: r.onHeal}
		if t.obj, err = storekit.OpenGrowing(ctx, r.st, t.path); err != nil {
			return err
		}
		opened = append(opened, t)
		t.file, err = r.openTar(ctx, t.obj, l.Name, t.path)
		if none, ok := errors.AsType[*tarfile.NoIndex](err); ok {
			info, err := t.obj.Info(ctx)
			if err != nil {
				return err
			}
			t.none, t.size = none, info.Size
			continue
		}
		if err != nil {
			return r.storeFault(err)
		}
		t.size, t.Index = t.file.Size(), t.file.Index()
		if r.held += int64(t.Len()) * 33; r.held > r.limits.Index {
			return fault(indexLimit, t.path, -1, "indexes of more than %d bytes", r.limits.Index)
		}
		r.tars, opened = append(r.tars, t), opened[:i]
		r.shadowed = slices.Concat(r.shadowed, letters[:i], letters[i+1:])
		return nil
	}
	some := opened
	r.tars, opened = append(r.tars, some...), nil
	for _, t := range some {
		if err := r.scan(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// mostNotes is how many findings of a scan are kept.
const mostNotes = 100

// scan finds the segments of a tar without an index.
func (r *repository) scan(ctx context.Context, t *segmentTar) error {
	if t.blobs != nil {
		t.Index = tarfile.NewIndex(t.blobs.Entries())
		r.held += scannedLen * int64(t.Len())
		return nil
	}
	report := func(p tarfile.Problem) {
		if len(t.trash) < mostNotes {
			t.trash = append(t.trash, p)
		}
	}
	found := r.before(t)
	for f, err := range tarfile.ScanFrom(ctx, t.obj, t.scanned, t.size, report) {
		if err != nil {
			return r.storeFault(err)
		}
		e := tarfile.Entry{ID: f.ID, Pos: f.DataPos, Len: f.Len}
		if h, ok := segment.ParseHead(f.Data); ok && f.ID.IsData() {
			e.Generation = h.Generation
		}
		if r.held += scannedLen; r.held > r.limits.Index {
			return fault(indexLimit, t.path, -1, "indexes of more than %d bytes", r.limits.Index)
		}
		found = append(found, e)
		if len(t.trash) == 0 {
			t.scanned = e.Whole().Off + e.Whole().Len
		}
	}
	t.Index = tarfile.NewIndex(found)
	return nil
}

// scannedLen is how much memory an entry takes that a scan has found.
const scannedLen = 56

// locate finds a segment: of several tars that have it, in the newest.
func (r *repository) locate(id tarfile.ID) (*segmentTar, tarfile.Entry, bool) {
	for _, t := range r.tars {
		if i, ok := t.Find(id); ok {
			return t, t.At(i), true
		}
	}
	return nil, tarfile.Entry{}, false
}

// head returns the revision that reading begins with. A *repo.Error means that there is none.
func (r *repository) head(ctx context.Context) (repo.Head, error) {
	if r.list.Journal == nil {
		return repo.Head{}, repo.NoHead("no journal")
	}
	o, err := r.file(ctx, repo.Journal)
	if err != nil {
		return repo.Head{}, err
	}
	defer o.Close()
	h, err := repo.FindHead(ctx, o, func(id tarfile.ID) (bool, error) {
		_, _, ok := r.locate(id)
		return ok, nil
	})
	if err == nil {
		r.rewound(h.Rewound + h.Bad)
	}
	return h, err
}

// rewound records how many lines of the journal after the revision that is read lead to no
// segment.
func (r *repository) rewound(lines int) {
	if lines > 0 && !r.guesses() {
		r.doubt.Store(&fault(headRewound, r.list.Path(repo.Journal), -1, "%d lines of the journal have no revision, or are cut off: reads may return an older state", lines).Problem)
	}
}

// doubted records that names and places are read from a damaged segment.
func (r *repository) doubted(why error) {
	if !r.guesses() {
		p := r.damage(why).Problem
		p.Message += ": names and places that it has are not proven, and its values are refused"
		r.doubt.Store(&p)
	}
}

// guesses reports whether names and places were read from a damaged segment.
func (r *repository) guesses() bool {
	p := r.doubt.Load()
	return p != nil && p.Class == badChecksum
}

// journal yields the lines of the journal, as [repo.Entries] does.
func (r *repository) journal(ctx context.Context) iter.Seq2[repo.Entry, error] {
	return func(yield func(repo.Entry, error) bool) {
		o, err := r.file(ctx, repo.Journal)
		if err != nil {
			yield(repo.Entry{}, err)
			return
		}
		defer o.Close()
		repo.Entries(ctx, o)(yield)
	}
}

func (r *repository) revisions(ctx context.Context) iter.Seq2[repo.Entry, error] {
	return func(yield func(repo.Entry, error) bool) {
		for e, err := range r.journal(ctx) {
			if _, bad := err.(*repo.Error); bad {
				r.rewound(1)
			} else if !yield(e, err) {
				return
			}
		}
	}
}

// wholeFile reads a file beside the tars, in the state in which it was when the store was opened.
// It returns nil if there is none.
func (r *repository) wholeFile(ctx context.Context, name string, most int64) ([]byte, error) {
	o, err := r.shownFile(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer o.Close()
	info, err := o.Info(ctx)
	if err == nil && info.Size > most {
		err = fault(indexLimit, r.list.Path(name), -1, "a file of more than %d bytes", most)
	}
	if err != nil {
		return nil, err
	}
	b := make([]byte, info.Size)
	return b, o.ReadAt(ctx, b, 0)
}

// gcLog returns gc.log for a copy, without last lines whose revisions do not exist. Because of
// such a line Oak would treat everything that was compacted as garbage. If the last compaction
// has not written a line yet because it is still cleaning up, the copy gets one. Otherwise Oak
// would treat what the compaction wrote as leftovers.
func (s *Store) gcLog(ctx context.Context) ([]byte, error) {
	b, err := s.r.wholeFile(ctx, repo.GCLog, maxLog)
	if err != nil {
		return nil, err
	}
	b, last, _ := s.r.rootedLog(b)
	h, err := s.r.head(ctx)
	if _, none := errors.AsType[*repo.Error](err); none || err == nil && h.Rewound > 0 {
		return b, nil
	}
	if err != nil {
		return nil, err
	}
	_, e, _ := s.r.locate(h.Segment)
	gc := repo.GC{Millis: max(h.Millis, 0), Root: h.Revision}
	gc.Generation.Gen, gc.Generation.Full = e.Generation.Gen, e.Generation.Full
	if !sweep.Lacks(last, gc, e.Generation.Compacted) {
		return b, nil
	}
	for _, t := range s.r.tars {
		gc.RepoSize += t.size
	}
	if len(b) > 0 && b[len(b)-1] != '\n' {
		b = append(b, '\n')
	}
	return append(append(b, gc.String()...), '\n'), nil
}

// rootedLog returns gc.log without its last lines whose revisions are in no tar, the last line that stays,
// zero if there is none, and how many do not stay.
func (r *repository) rootedLog(b []byte) (log []byte, last repo.GC, gone int) {
	for len(b) > 0 {
		line := bytes.TrimRight(b, "\r\n")
		start := bytes.LastIndexByte(line, '\n') + 1
		gc, err := repo.ParseGC(string(line[start:]))
		if _, _, there := r.locate(gc.Root.Segment); err == nil && (there || !gc.HasRoot) {
			return b, gc, gone
		}
		if b = b[:start]; len(line) > 0 {
			gone++
		}
	}
	return b, last, gone
}

func (r *repository) manifest(ctx context.Context) (repo.Properties, error) {
	o, err := r.file(ctx, repo.Manifest)
	if err != nil {
		return repo.Properties{}, err
	}
	defer o.Close()
	return repo.ReadManifest(ctx, o)
}

func (r *repository) close() error {
	r.release()
	r.list.Release()
	var errs []error
	for _, t := range r.tars {
		errs = append(errs, t.obj.Close())
	}
	for _, o := range r.moment {
		errs = append(errs, o.Close())
	}
	r.tars, r.moment = nil, nil
	return errors.Join(errs...)
}

// Classes of faults, and the general words for them.
const (
	notAStore    = "not-a-store"
	indexLimit   = "index-limit"
	tarFault     = "tar"
	noIndex      = "no-index"
	outOfBounds  = "bounds"
	beingWritten = "being-written"
)

var codes = map[string]format.Code{
	notAStore:    format.MissingIndex,
	indexLimit:   format.Limit,
	tarFault:     format.BadIndex,
	noIndex:      format.MissingIndex,
	outOfBounds:  format.OutOfBounds,
	beingWritten: format.BeingWritten,

	unseenBlobs:  format.MissingIndex,
	ignoredBlobs: format.BadIndex,
	missingBlobs: format.Dangling,

	noRoot:         format.Dangling,
	headRewound:    format.Dangling,
	missingSegment: format.Dangling,
	badRecord:      format.BadData,
	badChecksum:    format.BadChecksum,
	treeLimit:      format.Limit,
	externalBlob:   format.Dangling,
}

// fault makes a CorruptError.
var fault = kit.Classes{Format: "oak", Codes: codes}.Fault

func (r *repository) storeFault(err error) error {
	if e, ok := errors.AsType[*tarfile.Error](err); ok {
		object, off := e.Object, e.Offset
		if r.list.Blobs != nil {
			object, off = r.liesAt(path.Base(e.Object), e.Offset)
		}
		c := fault(tarFault, object, off, "%s", e.What)
		c.Err = e.Err
		return c
	}
	return err
}
