package holdall

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync/atomic"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/meter"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/internal/read/listing"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/internal/write/repairs"
	"github.com/holdall/holdall/store"
)

// These aliases let most programs import only package holdall.
type (
	Entry   = format.Entry
	Problem = format.Problem
)

// A Meter counts finished work. Pass one in the options of a function, and call its method
// Snapshot at any time, from any goroutine. Snapshot returns the finished Entries and Bytes, and
// TotalEntries and TotalBytes, which are zero while the totals are unknown. If WantTotal is set,
// the totals are counted before the work or during it. The zero value is ready to use.
type Meter = meter.Meter

// An Archive is an archive open for reading. Its methods may be called from several goroutines at
// once.
type Archive struct {
	src   *content.Source
	index kept.State
	asked OpenOptions
	took  time.Duration // the time that opening took

	parity   error  // why existing parity was not opened
	signedBy string // ID of a key

	guard *atomic.Pointer[parity.Guard] // of the parity below a layer

	plan    *RepairPlan // that leaves it so
	planned *repairs.Planned
}

// below returns the guard of the parity below a layer, if it was needed.
func (a *Archive) below() *parity.Guard {
	if a.guard == nil {
		return nil
	}
	return a.guard.Load()
}

// Source returns the archive as other packages of this module read it.
func (a *Archive) Source() *content.Source { return a.src }

// Format returns the archive's format.
func (a *Archive) Format() *format.Format { return a.src.Format }

// Name returns the archive's name within its store.
func (a *Archive) Name() string { return a.src.Name }

// Store returns the store that contains the archive under [Archive.Name]. It is nil for a folder
// that was opened with the format "dir", and for a set.
func (a *Archive) Store() store.Store {
	if a.IsDir() || a.IsSet() {
		return nil
	}
	return a.src.Store
}

// IsNear reports whether the archive is on this machine, so that reading it takes no network
// requests.
func (a *Archive) IsNear() bool { return a.src.Store.Can().Near }

// Options returns the options that the archive was opened with.
func (a *Archive) Options() OpenOptions { return a.asked }

// ModTime returns the time when the archive was last modified. It is zero if the time is not
// known, as for a folder.
func (a *Archive) ModTime(ctx context.Context) time.Time {
	if o, err := a.src.Object(ctx, a.src.Name); err == nil {
		if info, err := o.Info(ctx); err == nil {
			return info.ModTime
		}
	}
	return time.Time{}
}

// Entries yields all entries in stored order.
func (a *Archive) Entries(ctx context.Context) iter.Seq2[Entry, error] {
	return a.src.Reader.Entries(ctx)
}

// Below yields all entries below a directory, in stored order; "." is the root. For some formats
// this iterates over all entries of the archive.
func (a *Archive) Below(ctx context.Context, dir string) iter.Seq2[Entry, error] {
	return a.src.Below(ctx, dir)
}

// Lookup returns the entry called name. If there is none, the error wraps [fs.ErrNotExist].
func (a *Archive) Lookup(ctx context.Context, name string) (Entry, error) {
	return a.src.Reader.Lookup(ctx, name)
}

// ReadDir yields the entries directly in dir; "." is the root.
func (a *Archive) ReadDir(ctx context.Context, dir string) iter.Seq2[Entry, error] {
	return a.src.Reader.ReadDir(ctx, dir)
}

// Keys yields the entries whose names begin with prefix, without directories, in byte order of
// their names as a bucket lists keys. It starts at the first name that is not less than from.
func (a *Archive) Keys(ctx context.Context, prefix, from string) iter.Seq2[Entry, error] {
	if keys := a.src.Reader.Can().Keys; keys != nil {
		return keys(ctx, prefix, from)
	}
	return listing.ReadDir(a.src.ReadDirFrom).Keys(ctx, prefix, from)
}

// Extents yields the places where e's content is stored.
func (a *Archive) Extents(ctx context.Context, e Entry) iter.Seq2[format.Extent, error] {
	return a.src.Extents(ctx, e)
}

// Regions yields the ranges of the archive that are not content, with their uses.
func (a *Archive) Regions(ctx context.Context) iter.Seq2[format.Region, error] {
	return a.src.Reader.Regions(ctx)
}

// About returns properties of the archive as a whole.
func (a *Archive) About(ctx context.Context) (format.About, error) { return a.src.Reader.About(ctx) }

// Volumes returns the names of the objects that the archive consists of.
func (a *Archive) Volumes(ctx context.Context) ([]string, error) { return a.src.Volumes(ctx) }

// VolumeSize returns the size of one of the archive's volumes in bytes.
func (a *Archive) VolumeSize(ctx context.Context, volume string) (int64, error) {
	return a.src.VolumeSize(ctx, volume)
}

// StoredSize returns the total size of the archive's volumes in bytes.
func (a *Archive) StoredSize(ctx context.Context) (int64, error) { return a.src.StoredSize(ctx) }

// ReadAt reads len(p) bytes of e's content from offset off. It reads fewer bytes only at the end
// of the content, and then returns [io.EOF]. Content for which [Archive.Compares] reports parts
// is compared before any of it is copied to p.
func (a *Archive) ReadAt(ctx context.Context, e Entry, p []byte, off int64) (int, error) {
	return a.src.ReadAt(ctx, e, p, off)
}

// Compares reports how e's content is compared with digests or checksums before it is returned.
// If parts is true, every part that is read is compared. If whole is true, the content is
// compared when it is read from beginning to end; if it is damaged, the last read returns a
// [*DigestError]. If both are false, damage may go undetected.
func (a *Archive) Compares(ctx context.Context, e Entry) (parts, whole bool) {
	p := a.src.Proof(ctx, e)
	return p.Parts, p.Whole()
}

// Unproven reports whether nothing detects damage in e's content: neither reading all of it nor
// [Verify].
func (a *Archive) Unproven(ctx context.Context, e Entry) bool {
	if !e.Kind.HasContent() || e.Fault != nil || a.src.ReadsAll(ctx, e) {
		return false
	}
	_, whole := a.Compares(ctx, e)
	return !whole
}

// Doubt returns an error if the archive's index does not match its own digest, as far as the
// index has been read. Names and offsets in the index may then be wrong. It returns nil if no
// damage is known.
func (a *Archive) Doubt() error { return a.src.Doubt() }

// Contents calls each with the content of every entry for which wanted returns true, one at a
// time and in stored order. If an entry cannot be read, each gets the error. An error that each
// returns ends the call. Contents reads many entries at once and joins reads of neighbouring
// entries.
func (a *Archive) Contents(ctx context.Context, wanted func(Entry) bool, each func(e Entry, content io.Reader, err error) error) error {
	return a.ContentsOf(ctx, listing.Only(a.Entries(ctx), wanted), each)
}

// ContentsOf is like [Archive.Contents] for the given entries, in their order. The entries can be
// a list or the result of [Archive.Shuffled]. Reads of entries that are neighbours both in the
// archive and in entries are joined.
func (a *Archive) ContentsOf(ctx context.Context, entries iter.Seq2[Entry, error], each func(e Entry, content io.Reader, err error) error) error {
	return a.src.Sweep(ctx, entries, content.Compared, func(c content.Content, err error) error { return each(c.Entry, c.Checked(), err) })
}

// Repair returns the plan that was opened as the archive, or nil.
func (a *Archive) Repair() *RepairPlan { return a.plan }

// Origin yields where bytes of a volume lie in the archive before it is repaired, if the archive is
// an opened plan. What the repair makes lies nowhere.
func (a *Archive) Origin(volume string, off, n int64) iter.Seq[format.Region] {
	if a.planned == nil || a.plan.guard != nil && a.plan.guard.Moved() {
		return func(func(format.Region) bool) {}
	}
	return a.planned.Origin(volume, off, n)
}

// Close closes the archive. Later reads fail.
func (a *Archive) Close() error {
	err := a.src.Close()
	if a.planned != nil {
		err = errors.Join(err, a.planned.Close(), a.plan.Close())
	}
	if g := a.below(); g != nil {
		err = errors.Join(err, g.Close())
	}
	return err
}
