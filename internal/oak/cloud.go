package oak

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/cloud"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// openTar opens a tar, or an archive of blobs. name is its name in the folder, and called the name
// for messages.
func (r *repository) openTar(ctx context.Context, obj store.Object, name, called string) (*tarfile.Tar, error) {
	a := r.list.Blobs.Archive(name)
	if a == nil {
		return tarfile.Open(ctx, obj, called, tarfile.Options{Tail: tailGuess})
	}
	if !a.Closed {
		return nil, &tarfile.NoIndex{Reason: tarfile.UnknownMagic, Object: called, Offset: -1, What: "the archive is not closed"}
	}
	return tarfile.Open(ctx, obj, called, tarfile.Options{Tail: a.TailLen(), Blobs: true})
}

// errBlobs means that a store of blobs cannot be changed in place.
var errBlobs = fmt.Errorf("a store with one blob per segment can be changed only in Azure, where it has a lock: 'holdall oak copy' copies it to tars: %w", errors.ErrUnsupported)

// Fixed returns why the store cannot be changed in place, or nil if it can.
func (s *Store) Fixed() error {
	if s.r.list.Blobs != nil && s.r.st.Can().Create == nil {
		return errBlobs
	}
	return nil
}

func unlocked() error { return nil }

// Lock takes Oak's lock of a store in the cloud, and returns st as it is changed under the lock.
// Whatever is not such a store has no lock here, and is returned as it is.
func Lock(ctx context.Context, st store.Store, name string) (locked store.Store, unlock func() error, err error) {
	if !cloud.Keeps(st) {
		return st, unlocked, nil
	}
	l := repo.Listing{Dir: repo.Dir(name)}
	const enough = 1000 // names of blobs are among the first
	n := 0
	for info, err := range storekit.List(ctx, st, l.Path("")) {
		if n++; err != nil || n > enough {
			return st, unlocked, err
		}
		if isBlob(strings.TrimPrefix(info.Name, l.Path(""))) {
			return lease(ctx, st, l.Path(""))
		}
	}
	return st, unlocked, nil
}

func lease(ctx context.Context, st store.Store, dir string) (store.Store, func() error, error) {
	leased, release, err := cloud.Lease(ctx, st, dir)
	if err != nil {
		return nil, nil, err
	}
	return leased, release, nil
}

// place returns where tars and files of the store in a folder are written: st itself, or where Oak
// keeps segments in blobs, a view that makes blobs of them under Oak's lock. A store that has tars
// there stays one of tars, which Oak does not open.
func place(ctx context.Context, st store.Store, name string) (_ store.Store, release func() error, err error) {
	if _, leased := st.(*cloud.Leased); !leased && !cloud.Keeps(st) {
		return st, unlocked, nil
	}
	dir := repo.Listing{Dir: repo.Dir(name)}
	leased, release, err := lease(ctx, st, dir.Path(""))
	if err != nil {
		return nil, nil, err
	}
	l, err := repo.List(ctx, leased, dir.Dir)
	if err != nil || len(l.Tars) > 0 && l.Blobs == nil {
		return st, unlocked, errors.Join(err, release())
	}
	if l.Blobs == nil {
		l.Blobs = &cloud.Listing{}
	}
	return cloud.View(leased, dir.Path(""), l.Blobs), release, nil
}

// complete adds what reading nodes does not need: the generations of segments that are listed
// without them. No other goroutine may read at the same time.
func (r *repository) complete(ctx context.Context) error {
	if r.list.Blobs == nil {
		return nil
	}
	v := r.list.Path("")
	changed, err := r.list.Blobs.Complete(ctx, r.st, v)
	if err != nil {
		return err
	}
	for _, t := range r.tars {
		if !changed[t.Name] {
			continue
		}
		if t.file == nil {
			t.Index = tarfile.NewIndex(t.blobs.Entries())
			continue
		}
		if t.file, err = r.openTar(ctx, t.obj, t.Name, t.path); err != nil {
			return r.storeFault(err)
		}
		t.Index = t.file.Index()
	}
	return nil
}

// lies returns where a position in the tar is stored: an object, and an offset in it.
func (t *segmentTar) lies(pos int64) (object string, off int64) {
	if t.blobs == nil {
		return t.path, pos
	}
	name, off := t.blobs.At(pos)
	return t.path[:len(t.path)-len(t.Name)] + name, off
}

// liesAt is lies for a problem. A position that is not in a blob has the offset -1.
func (r *repository) liesAt(tar string, pos int64) (object string, off int64) {
	for _, t := range r.tars {
		if t.blobs != nil && t.Name == tar {
			if pos < 0 || pos >= t.size {
				return t.path, -1
			}
			return t.lies(pos)
		}
	}
	if r.list.Blobs.Archive(tar) != nil {
		pos = -1
	}
	return r.list.Path(tar), pos
}

// journalParts returns the parts of the journal, if it is in parts.
func (r *repository) journalParts() []cloud.File {
	if r.list.Blobs == nil {
		return nil
	}
	return r.list.Blobs.Parts
}

// blobs returns the objects of archives that are presented as tars.
func (r *repository) blobs() (all []repo.File) {
	for _, l := range r.list.Tars {
		if a := r.list.Blobs.Archive(l.Name); a != nil {
			for _, f := range a.Blobs() {
				all = append(all, repo.File{Name: f.Name, Size: f.Size})
			}
		}
	}
	return all
}

// blobRegions yields the blobs of an archive that are not segments.
func (t *segmentTar) blobRegions(tell func(format.Region) error) error {
	dir := t.path[:len(t.path)-len(t.Name)]
	for _, f := range t.blobs.Beside() {
		if f.Size == 0 {
			continue
		}
		if err := tell(format.Region{Object: dir + f.Name, Len: f.Size, Use: format.IndexData, Label: f.Name[len(t.Name)+1:]}); err != nil {
			return err
		}
	}
	return nil
}

// Faults of an archive of blobs that a tar cannot have.
const (
	unseenBlobs  = "unseen-blobs"
	ignoredBlobs = "ignored-blobs"
	missingBlobs = "missing-blobs"
)

// blobProblems reports how Oak interprets the names and metadata of blobs.
func (r *repository) blobProblems(report func(format.Problem)) {
	for _, l := range r.list.Tars {
		a := r.list.Blobs.Archive(l.Name)
		if a == nil {
			continue
		}
		tell := func(class string, s format.Severity, msg string, args ...any) {
			p := fault(class, r.list.Path(l.Name), -1, "%s", fmt.Sprintf(msg, args...)).Problem
			p.Severity = s
			report(p)
		}
		if a.Unseen > 0 {
			tell(unseenBlobs, format.Error, "Oak does not see %d segments, because they lack metadata; 'holdall oak copy' to another place rewrites them", a.Unseen)
		}
		if a.Ignored > 0 {
			tell(ignoredBlobs, format.Warning, "%d blobs have names of segments but are not: they are empty, too long, or duplicates", a.Ignored)
		}
		if a.Gap >= 0 {
			s, what := format.Warning, ""
			if !a.Closed {
				s, what = format.Error, ": Oak's recovery ignores everything after it"
			}
			tell(missingBlobs, s, "segment number %d is missing, but later ones exist%s", a.Gap, what)
		}
	}
}
