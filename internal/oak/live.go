package oak

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Other programs may write to a store while it is read. Oak writes segments first, and then the
// line of the journal that needs them. It only appends to files. A cleanup writes tars again with
// another letter, and removes the previous ones. So the journal is read first, which determines
// the revision, and then the tars. What is open then does not change. A tar that is still being
// written has no index; its complete segments are found by a scan.

// mostTries is how often a store is reopened because it changed while it was opened.
const mostTries = 16

// mostListings is how often a remote store is listed for a revision whose segment was not found.
// Its journal may be newer than the list, or than the first pages of the list.
const mostListings = 3

// openMoment opens the store in a folder in a single consistent state.
func (r *repository) openMoment(ctx context.Context, dir string) error {
	st := r.st
	for try := 1; ; try++ {
		r.st = st // a view of blobs is made again each time
		err := r.openOnce(ctx, dir)
		settled := err == nil
		if settled && r.st.Can().Near && !r.list.Guessed {
			settled, err = r.settled(ctx, dir)
		} else if settled && !r.list.Guessed && r.list.Journal != nil && try < mostListings {
			settled, err = r.newestThere(ctx)
		}
		gone := errors.Is(err, fs.ErrNotExist) && len(r.list.Tars) > 0 // listed, and not there
		if try == mostTries || err == nil && settled || err != nil && !gone {
			return err
		}
		if err := r.close(); err != nil {
			return err
		}
		r.shadowed, r.list, r.tarsBefore, r.held = nil, repo.Listing{}, nil, 0
	}
}

func (r *repository) openOnce(ctx context.Context, dir string) error {
	r.list.Dir, r.moment = repo.Dir(dir), map[string]store.Object{}
	names := []string{repo.Journal}
	switch can := r.st.Can(); {
	case can.Near: // in a remote store each costs a request
		names = append(names, repo.GCLog, repo.Manifest)
		if r.writer = r.lockedBy(ctx); r.writer != "" {
			before, err := repo.List(ctx, r.st, dir)
			if err != nil {
				return err
			}
			defer before.Release()
			r.tarsBefore = slices.Clone(before.Tars)
		}
	case can.List != nil:
		names = nil // the list shows whether there is a journal, and what kind
	}
	for _, name := range names {
		if err := r.hold(ctx, name); err != nil {
			return err
		}
	}
	if err := r.find(ctx, dir); err != nil {
		return err
	}
	if r.list.Journal != nil && r.moment[repo.Journal] == nil {
		hold := r.holdParts
		if r.list.Blobs == nil {
			hold = func(ctx context.Context) error { return r.hold(ctx, repo.Journal) }
		}
		if err := hold(ctx); err != nil {
			return err
		}
	}
	for _, f := range []*repo.File{r.list.Journal, r.list.GCLog, r.list.Manifest} {
		if f == nil || r.moment[f.Name] == nil {
			continue
		}
		info, err := r.moment[f.Name].Info(ctx)
		if err != nil {
			return err
		}
		f.Size = info.Size
	}
	return r.openTars(ctx)
}

// hold opens a file besides the tars that are used, if it exists, and fixes how much of it is
// read.
func (r *repository) hold(ctx context.Context, name string) error {
	o, err := storekit.OpenGrowing(ctx, r.st, r.list.Path(name))
	if err == nil && !r.st.Can().Near {
		// Read only what would be requested next in any case.
		_, err = storekit.ReadTail(ctx, o, make([]byte, tailGuess))
	}
	if err != nil {
		if o != nil {
			err = errors.Join(err, o.Close())
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	r.moment[name] = o
	return nil
}

// holdParts opens a journal that is in parts, as listed, and stores its end.
func (r *repository) holdParts(ctx context.Context) error {
	o, err := r.st.Open(ctx, r.list.Path(repo.Journal))
	if err != nil {
		return err
	}
	end := &remembered{Object: o, end: make([]byte, min(tailGuess, r.list.Journal.Size))}
	end.at = r.list.Journal.Size - int64(len(end.end))
	r.moment[repo.Journal] = end
	return o.ReadAt(ctx, end.end, end.at)
}

// remembered is an object whose end was read.
type remembered struct {
	store.Object
	at  int64
	end []byte
}

func (m *remembered) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off < m.at || off+int64(len(p)) > m.at+int64(len(m.end)) {
		return m.Object.ReadAt(ctx, p, off)
	}
	copy(p, m.end[off-m.at:])
	return nil
}

func (m *remembered) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

// holdShadowed opens the tars that are not used, if that costs nothing, because they may be
// removed at any time. It drops those that have been removed.
func (r *repository) holdShadowed(ctx context.Context) error {
	if !r.st.Can().Near || len(r.shadowed) == 0 {
		return nil
	}
	var there []repo.Tar
	for _, t := range r.shadowed {
		if err := r.hold(ctx, t.Name); err != nil {
			return err
		}
		if r.moment[t.Name] != nil {
			there = append(there, t)
		}
	}
	r.shadowed = there
	return nil
}

// file opens a file beside the tars, in the state in which it was when the store was opened.
func (r *repository) file(ctx context.Context, name string) (store.Object, error) {
	if o := r.moment[name]; o != nil {
		return lent{o}, nil
	}
	return storekit.OpenGrowing(ctx, r.st, r.list.Path(name))
}

// shownFile is file for files that were listed. If the list is guessed, as in a remote store, it
// opens others too.
func (r *repository) shownFile(ctx context.Context, name string) (store.Object, error) {
	if !r.list.Guessed && !slices.ContainsFunc(r.shown(), func(f repo.File) bool { return f.Name == name }) {
		return nil, &fs.PathError{Op: "open", Path: r.list.Path(name), Err: fs.ErrNotExist}
	}
	return r.file(ctx, name)
}

// lent is an object that its owner closes.
type lent struct{ store.Object }

func (l lent) Close() error { return nil }

func (l lent) Can() store.ObjectAbilities {
	can := l.Object.Can()
	return store.ObjectAbilities{ReadEnd: can.ReadEnd, File: can.File, Inner: l.Object}
}

// objectNamed returns an open object of the store.
func (r *repository) objectNamed(name string) store.Object {
	if dir, base := path.Split(name); repo.Dir(dir) == r.list.Dir && r.moment[base] != nil {
		return r.moment[base]
	}
	if t := r.byPath[name]; t != nil {
		return t.obj
	}
	return nil
}

// lockedBy returns the owner of the lock by which Oak keeps other writers out. It returns "" if
// there is none, or if that cannot be determined.
func (r *repository) lockedBy(ctx context.Context) string {
	locked := r.st.Can().Locked
	if locked == nil {
		return ""
	}
	by, err := locked(ctx, r.list.Path(repo.Lock))
	if err != nil {
		return "" // there is no such file, or no such lock here
	}
	return by
}

// anotherProgram is the writer's name if it is not known.
const anotherProgram = "another program"

// settled reports whether everything was opened in the same state of the store: no tar was
// removed or got another letter in between, and the newest revision exists. If no program writes
// to the store, everything that is missing is lost.
func (r *repository) settled(ctx context.Context, dir string) (bool, error) {
	now, err := repo.List(ctx, r.st, dir)
	if err != nil {
		return false, err
	}
	defer now.Release()
	if changed(r.list.Tars, now.Tars) {
		r.writer = r.lockedBy(ctx)
		return false, nil
	}
	if changed(r.tarsBefore, now.Tars) { // a cleanup may have removed what the journal needed when it was opened
		return false, nil
	}
	if r.writer == "" {
		r.writer = r.lockedBy(ctx)
	}
	if r.writer == "" && r.grown(now) {
		r.writer = anotherProgram
	}
	journal := r.moment[repo.Journal]
	if r.writer == "" || journal == nil {
		return r.writer == "" || now.Journal == nil, nil
	}
	if err := r.cutLines(ctx); err != nil {
		return false, err
	}
	return r.newestThere(ctx)
}

// newestThere reports whether the newest line of the journal leads to an existing segment.
func (r *repository) newestThere(ctx context.Context) (bool, error) {
	for e, err := range r.journal(ctx) {
		if _, bad := err.(*repo.Error); bad {
			continue
		}
		_, _, there := r.locate(e.Segment)
		return there, err
	}
	return true, nil
}

// cutLines makes each file of lines end after its last complete line. What follows is still being
// written.
func (r *repository) cutLines(ctx context.Context) error {
	for _, f := range []*repo.File{r.list.Journal, r.list.GCLog} {
		if f == nil || r.moment[f.Name] == nil {
			continue
		}
		o := r.moment[f.Name]
		tail := make([]byte, min(tailGuess, f.Size))
		if err := o.ReadAt(ctx, tail, f.Size-int64(len(tail))); err != nil {
			return err
		}
		if i := bytes.LastIndexByte(tail, '\n'); i+1 < len(tail) && (i >= 0 || len(tail) < tailGuess) {
			f.Size -= int64(len(tail) - i - 1)
			r.moment[f.Name] = &beginning{o, f.Size}
		}
	}
	return nil
}

// beginning is an object that ends at some size.
type beginning struct {
	store.Object
	size int64
}

func (b *beginning) Info(ctx context.Context) (store.Info, error) {
	info, err := b.Object.Info(ctx)
	info.Size = b.size
	return info, err
}

func (b *beginning) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

// changed reports whether tars were removed or rewritten. Newer tars are not a change, because
// the revision that is read does not need them.
func changed(was, now []repo.Tar) bool {
	newest := -1
	for _, t := range was {
		newest = max(newest, t.Number)
	}
	names := func(tars []repo.Tar) (all []string) {
		for _, t := range tars {
			if t.Number <= newest {
				all = append(all, t.Name)
			}
		}
		return all
	}
	return !slices.Equal(names(was), names(now))
}

// grown reports whether journal or tars are longer than when they were opened, or more.
func (r *repository) grown(now repo.Listing) bool {
	if len(now.Tars) != len(r.list.Tars) || changed(r.list.Tars, now.Tars) {
		return true
	}
	if was, is := r.list.Journal, now.Journal; (was == nil) != (is == nil) || was != nil && is.Size != was.Size {
		return true
	}
	for _, t := range r.tars {
		i := slices.IndexFunc(now.Tars, func(o repo.Tar) bool { return o.Name == t.Name })
		if i < 0 || now.Tars[i].Size != t.size {
			return true
		}
	}
	return false
}

// writtenBy returns which program is writing to the store, or "" if none is known. In a remote
// store only growth shows that.
func (r *repository) writtenBy(ctx context.Context) (string, error) {
	if r.writer != "" || r.list.Guessed || !slices.ContainsFunc(r.tars, func(t *segmentTar) bool { return t.none != nil }) {
		return r.writer, nil
	}
	now, err := repo.List(ctx, r.st, r.list.Dir)
	if err != nil {
		return "", err
	}
	defer now.Release()
	if r.single {
		now.Journal = nil
		now.Tars = slices.DeleteFunc(now.Tars, func(t repo.Tar) bool { return t.Name != r.list.Tars[0].Name })
	}
	if r.grown(now) {
		r.writer = anotherProgram
	}
	return r.writer, nil
}

// beingWritten returns a problem if another program is writing to the store; otherwise nil.
func (r *repository) beingWritten(ctx context.Context) (*format.Problem, error) {
	by, err := r.writtenBy(ctx)
	if by == "" || err != nil {
		return nil, err
	}
	c := fault(beingWritten, r.list.Dir, -1, "%s is writing to the store: this is its state when it was opened", by)
	c.Severity = format.Note
	return &c.Problem, nil
}

// again returns a tar that is already open and has not changed.
func (r *repository) again(l repo.Tar) *segmentTar {
	t := r.had[l.Name]
	if t == nil || t.file == nil || t.size != l.Size {
		return nil
	}
	delete(r.had, l.Name)
	r.held += int64(t.Len()) * 33
	return t
}

// before returns what an earlier scan of a tar found; the new scan begins after that.
func (r *repository) before(t *segmentTar) (found []tarfile.Entry) {
	was := r.had[t.Name]
	if was == nil || was.file != nil || was.scanned == 0 || was.scanned > t.size {
		return nil
	}
	t.scanned = was.scanned
	for _, e := range was.All() {
		if e.Pos < t.scanned {
			found = append(found, e)
		}
	}
	r.held += int64(len(found)) * scannedLen
	return found
}
