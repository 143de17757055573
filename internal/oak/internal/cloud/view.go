package cloud

import (
	"context"
	"crypto/md5"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

const (
	journal = "journal.log" // under which the parts of the journal are presented
	gcLog   = "gc.log"
	lock    = "repo.lock"
)

// View returns st with the archives of a listing of the folder dir as tars, and with one
// journal. dir is "" or ends in a slash. If st is [Leased], tars that are created become archives,
// and the journal can be replaced and appended to; otherwise it is only read. A view of a view is one of its store.
func View(st store.Store, dir string, l *Listing) store.Store {
	if v, ok := st.(*view); ok && v.dir == dir {
		st = v.Store
	}
	return &view{Store: st, dir: dir, l: l}
}

type view struct {
	store.Store
	dir string

	mu sync.Mutex
	l  *Listing
}

func (v *view) Can() store.Abilities {
	can := v.Store.Can()
	all := store.Abilities{Near: can.Near, Address: can.Address, List: can.List, ListHeaders: can.ListHeaders}
	if _, ok := v.Store.(*Leased); ok {
		all.Create, all.Remove, all.Amend = v.create, v.remove, v.amend
	}
	return all
}

func (v *view) archive(name string) *Archive {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.l.Archive(name)
}

// set replaces an archive; nil is none.
func (v *view) set(name string, a *Archive) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.l.archives == nil {
		v.l.archives = map[string]*Archive{}
	}
	if v.l.archives[name] = a; a == nil {
		delete(v.l.archives, name)
	}
}

// otherLetter reports whether there is an archive of the same number.
func (v *view) otherLetter(name string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	number, _, _ := tarfile.ParseName(name)
	for other := range v.l.archives {
		if n, _, _ := tarfile.ParseName(other); n == number {
			return true
		}
	}
	return false
}

func (v *view) parts() []File {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.l.Parts
}

func (v *view) Open(ctx context.Context, name string) (store.Object, error) {
	base, below := strings.CutPrefix(name, v.dir)
	parts := v.parts()
	switch a := v.archive(base); {
	case below && a != nil:
		return &made{st: v.Store, name: name, size: a.Size(), plan: a.plan(v.dir), a: a, dir: v.dir}, nil
	case below && base == journal && len(parts) > 0:
		o := &made{st: v.Store, name: name, size: JournalSize(parts)}
		o.plan = func(_, _ int64) (all []piece) {
			at := int64(0)
			for _, p := range parts {
				all = append(all, piece{at: at, n: p.Size, object: v.dir + p.Name})
				at += p.Size
			}
			return all
		}
		return o, nil
	}
	return v.Store.Open(ctx, name)
}

func JournalSize(parts []File) (n int64) {
	for _, p := range parts {
		n += p.Size
	}
	return n
}

// A piece of a generated object is a range of another object, or bytes, followed by zeros.
type piece struct {
	at, n  int64
	object string
	bytes  []byte
}

// made is an object that is composed of others.
type made struct {
	st   store.Store
	name string
	size int64
	// plan returns the pieces that contain n bytes from off on. It may return more pieces.
	plan   func(off, n int64) []piece
	closed bool

	a   *Archive // nil if it is none
	dir string
}

// Read reads a segment that is to be moved, with its header, into buf or a longer slice. In an archive that a view has opened, it
// has none, and gets one with a checksum if it has the MD5 that Azure computed when the blob was written.
// Another MD5 is an error, of the class [segment.Altered], with the segment and a header without a
// checksum.
func Read(ctx context.Context, from store.Object, e tarfile.Entry, buf []byte) (f segment.Finished, err error) {
	f = segment.Finished{ID: e.ID, Generation: e.Plain().Generation}
	b := slices.Grow(buf[:0], tarfile.BlockSize+e.Len)[:tarfile.BlockSize+e.Len]
	f.Header, f.Data = b[:tarfile.BlockSize], b[tarfile.BlockSize:]
	m, ok := from.(*made)
	if !ok || m.a == nil {
		return f, from.ReadAt(ctx, b, e.Pos-tarfile.BlockSize)
	}
	proven, err := m.prove(ctx, m.a.at(e.Pos), f.Data)
	if f.Header = tarfile.Unproven(e.ID, f.Data); proven {
		f.Header = tarfile.NewHeader(nil, e.ID, f.Data, time.Now())
	}
	return f, err
}

// prove reads the i-th segment of an archive.
func (m *made) prove(ctx context.Context, i int, p []byte) (proven bool, err error) {
	o, err := m.st.Open(ctx, m.dir+m.a.BlobOf(i))
	if err != nil {
		return false, err
	}
	defer o.Close()
	if err := o.ReadAt(ctx, p, 0); err != nil {
		return false, err
	}
	sums := o.Can().Sums
	if sums == nil || !m.a.segments[i].sure {
		return false, nil
	}
	all, err := sums(ctx)
	for _, s := range all {
		if s.Algo != "md5" || s.Part > 0 {
			continue
		}
		if is := md5.Sum(p); s.Value != string(is[:]) {
			return false, &segment.Error{Class: segment.Altered, Segment: m.a.segments[i].ID, Record: -1, Off: -1, What: fmt.Sprintf("MD5 %x, expected %x as the blob was written", is, s.Value)}
		}
		return true, nil
	}
	return false, err
}

func (m *made) Info(context.Context) (store.Info, error) {
	return store.Info{Name: m.name, Size: m.size}, nil
}

func (m *made) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

func (m *made) Close() error { m.closed = true; return nil }

func (m *made) ReadAt(ctx context.Context, p []byte, off int64) error {
	fail := func(err error) error {
		return &store.Error{Op: "read", Name: m.name, Off: off, Len: int64(len(p)), Err: err}
	}
	switch {
	case len(p) == 0:
		return nil
	case m.closed:
		return fail(fs.ErrClosed)
	case off < 0 || int64(len(p)) > m.size-off:
		return fail(io.ErrUnexpectedEOF)
	}
	clear(p)
	var far []piece // ranges of objects, and where they go
	for _, x := range m.plan(off, int64(len(p))) {
		from, to := max(x.at, off), min(x.at+x.n, off+int64(len(p)))
		if from >= to {
			continue
		}
		dst := p[from-off : to-off]
		if x.object == "" {
			copy(dst, x.bytes[min(from-x.at, int64(len(x.bytes))):])
			continue
		}
		far = append(far, piece{at: from - x.at, object: x.object, bytes: dst})
	}
	read := func(ctx context.Context, x piece) error {
		return storekit.Briefly(m.st, x.object).ReadAt(ctx, x.bytes, x.at)
	}
	if len(far) == 1 {
		return read(ctx, far[0])
	}
	return pipe.Each(ctx, pipe.All(far), min(atOnce, len(far)), read)
}

// parts returns what follows the segments in the tar of a closed archive: headers and contents,
// and where those are. Zeros precede a content, up to a block.
func (a *Archive) parts(dir string) (all []piece, end int64) {
	end = a.end
	for _, ext := range [...]string{Binaries, Graph} {
		n := a.SizeOf(ext)
		if n <= 0 {
			continue
		}
		all = append(all, piece{at: end, n: tarfile.BlockSize, bytes: tarfile.AppendHeader(nil, a.Name+ext, blocks(n), epoch)})
		end += tarfile.BlockSize + blocks(n)
		all = append(all, piece{at: end - n, n: n, object: dir + path.Join(a.Name, a.Name+ext)})
	}
	return all, end
}

// openTail is what follows the segments of an archive that is not closed: zeros.
const openTail = 2 * tarfile.BlockSize

// TailLen returns how many bytes at a closed archive's end are not read from blobs.
func (a *Archive) TailLen() int {
	const footer = 16
	return tarfile.BlockSize + int(blocks(int64(len(a.segments)*indexRow+footer))) + 2*tarfile.BlockSize
}

// Size returns the size of the tar that presents the archive.
func (a *Archive) Size() int64 {
	if !a.Closed {
		return a.end + openTail
	}
	_, end := a.parts("")
	return end + int64(a.TailLen())
}

// plan returns a function that returns the pieces of a range of the tar.
func (a *Archive) plan(dir string) func(off, n int64) []piece {
	return func(off, n int64) (all []piece) {
		for i := a.at(off); i < len(a.segments) && a.segments[i].Pos-tarfile.BlockSize < off+n; i++ {
			b := a.segments[i]
			if off < b.Pos {
				all = append(all, piece{at: b.Pos - tarfile.BlockSize, n: tarfile.BlockSize, bytes: tarfile.AppendHeader(nil, b.ID.String(), int64(b.Len), epoch)})
			}
			all = append(all, piece{at: b.Pos, n: int64(b.Len), object: dir + a.BlobOf(i)})
		}
		if off+n <= a.end || !a.Closed {
			return all
		}
		parts, end := a.parts(dir)
		all = append(all, parts...)
		if off+n > end {
			b := tarfile.AppendIndexTail(nil, a.Name, a.Entries())
			all = append(all, piece{at: end, n: int64(len(b)), bytes: b})
		}
		return all
	}
}
