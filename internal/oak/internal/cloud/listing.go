package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// mostListed limits how many segments are listed: some 2 TB of them, in a gigabyte of memory.
const mostListed = 8 << 20

const atOnce = 16

// A Listing lists the objects below the folder of a store. The zero value is empty.
type Listing struct {
	Parts []File // of the journal, the oldest first; after Settle
	Next  int    // a number that no archive has, nor what is left of one; after Settle

	archives map[string]*Archive
	segments int
}

type File struct {
	Name string // below it
	Size int64

	Marked bool // a part of the journal has its last line among its metadata, too
}

// An Archive is presented as a tar. Its segments are in the order of their numbers.
type Archive struct {
	Name   string
	Closed bool

	// Unseen are segments without the metadata by which Oak finds them in Azure.
	Unseen int
	// Gap is the number of the first missing segment that others follow, or -1.
	Gap int
	// Ignored is how many blobs look like segments but are not.
	Ignored int

	segments         []blob
	end              int64            // after the last of them, in the tar
	sizes            map[string]int64 // of other blobs, by name
	deleted          bool
	lacksGenerations bool
}

type blob struct {
	tarfile.Entry
	number int32
	known  bool // its generation
	unseen bool // it was listed with metadata that do not match it
	begun  bool // a first segment, of an archive that counts when it is closed
	sure   bool // its writer had a proof of it, or was Oak
}

// Add adds an object's name, below the folder of the store, if the object belongs to an archive
// or is a part of the journal. headers is nil if a listing has none.
func (l *Listing) Add(name string, size int64, headers map[string]string) (taken bool, err error) {
	dir, base, below := strings.Cut(name, "/")
	if !below {
		if journalPart().MatchString(name) {
			_, marked := headers[lastEntry]
			l.Parts = append(l.Parts, File{name, size, marked})
			return true, nil
		}
		return false, nil
	}
	if _, _, ok := tarfile.ParseName(dir); !ok || strings.Contains(base, "/") {
		return false, nil
	}
	number, id, isSegment := ParseBlobName(base)
	other := base == Closed || base == deleted || strings.TrimPrefix(base, dir) == Binaries || strings.TrimPrefix(base, dir) == Graph || strings.TrimPrefix(base, dir) == Index
	if !isSegment && !other {
		return false, nil
	}
	if l.archives == nil {
		l.archives = map[string]*Archive{}
	}
	a := l.archives[dir]
	if a == nil {
		a = &Archive{Name: dir, Gap: -1, sizes: map[string]int64{}}
		l.archives[dir] = a
	}
	switch {
	case base == Closed:
		a.Closed = true
	case base == deleted:
		a.deleted = true
	case other:
		a.sizes[base] = size
	case size < 1 || size > tarfile.MaxSegment:
		a.Ignored++ // as in Oak's recovery, if they are empty
	default:
		if l.segments++; l.segments > mostListed {
			return true, fmt.Errorf("store of more than %d segments", mostListed)
		}
		b := blob{Entry: tarfile.Entry{ID: id, Len: int(size)}, number: int32(number)}
		b.Generation, b.known = parseMetadata(headers, number, id)
		b.sure = headers != nil && headers[storekit.MetaHeader+strings.ToLower(metaUnproven)] == ""
		b.begun = headers[storekit.MetaHeader+strings.ToLower(metaPending)] != ""
		if b.unseen = !b.known && headers != nil; b.unseen {
			a.Unseen++
		}
		b.known = b.known || !id.IsData() // other segments have none
		a.segments = append(a.segments, b)
	}
	return true, nil
}

// Settle ends a listing and returns its archives. An archive without a first segment does not
// count, as in Oak, nor one that this program has begun to write or to remove.
func (l *Listing) Settle() (all []*Archive) {
	slices.SortFunc(l.Parts, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	for name, a := range l.archives {
		number, _, _ := tarfile.ParseName(name)
		l.Next = max(l.Next, number+1)
		a.settle()
		if len(a.segments) == 0 || a.segments[0].number != 0 || a.deleted || a.segments[0].begun && !a.Closed {
			delete(l.archives, name)
			continue
		}
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b *Archive) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// settle puts the segments in order. Of two with one id the later counts, as for Oak.
func (a *Archive) settle() {
	slices.SortFunc(a.segments, func(x, y blob) int { return cmp.Or(cmp.Compare(x.number, y.number), x.ID.Compare(y.ID)) })
	last, before := make(map[segment.ID]int32, len(a.segments)), int32(-1)
	for _, b := range a.segments {
		if b.number > before+1 && a.Gap < 0 {
			a.Gap = int(before) + 1
		}
		last[b.ID], before = b.number, b.number
	}
	n := len(a.segments)
	a.segments = slices.Clip(slices.DeleteFunc(a.segments, func(b blob) bool { return last[b.ID] != b.number }))
	a.Ignored += n - len(a.segments)
	at := int64(0)
	for i := range a.segments {
		b := &a.segments[i]
		b.Pos = at + tarfile.BlockSize
		at = b.Pos + blocks(int64(b.Len))
		a.lacksGenerations = a.lacksGenerations || !b.known
	}
	a.end = at
}

// blocks returns how many bytes n bytes take in a tar.
func blocks(n int64) int64 {
	return (n + tarfile.BlockSize - 1) / tarfile.BlockSize * tarfile.BlockSize
}

func (l *Listing) Archive(name string) *Archive {
	if l == nil {
		return nil
	}
	return l.archives[name]
}

// Any reports whether the listing has any part of such a store.
func (l *Listing) Any() bool { return len(l.archives) > 0 || len(l.Parts) > 0 }

// Entries returns the segments in the order in which they were written, with their places in the
// tar that presents the archive.
func (a *Archive) Entries() []tarfile.Entry {
	all := make([]tarfile.Entry, len(a.segments))
	for i, b := range a.segments {
		all[i] = b.Entry
	}
	return all
}

// Number returns the number of the i-th segment. seen reports whether Oak finds it by its
// metadata; it is also true if listings have no metadata.
func (a *Archive) Number(i int) (number int, seen bool) {
	return int(a.segments[i].number), !a.segments[i].unseen
}

// Has reports whether the archive has these segments and no others, where Oak finds them: repaired, it
// needs nothing but what is beside them.
func (a *Archive) Has(all []tarfile.Entry) bool {
	for i, e := range all {
		if !a.has(i, e) {
			return false
		}
	}
	return len(all) == len(a.segments)
}

func (a *Archive) has(i int, e tarfile.Entry) bool {
	if i >= len(a.segments) {
		return false
	}
	b := a.segments[i]
	return int(b.number) == i && b.ID == e.ID && b.Len == e.Len && !b.unseen
}

func (a *Archive) BlobOf(i int) string {
	return a.Name + "/" + BlobName(int(a.segments[i].number), a.segments[i].ID)
}

// At returns where a place in the tar is stored: the name of a blob in the folder of the store,
// and an offset in it. For generated bytes it returns the folder of the archive, and -1.
func (a *Archive) At(pos int64) (name string, off int64) {
	if i := a.at(pos); i < len(a.segments) {
		return a.BlobOf(i), min(max(pos-a.segments[i].Pos, 0), int64(a.segments[i].Len))
	}
	parts, _ := a.parts("")
	for _, p := range parts {
		if p.object != "" && pos >= p.at && pos < p.at+p.n {
			return p.object, pos - p.at
		}
	}
	return a.Name, -1
}

// at returns the segment at pos, or the next one.
func (a *Archive) at(pos int64) int {
	i, _ := slices.BinarySearchFunc(a.segments, pos, func(b blob, pos int64) int {
		if b.Pos+blocks(int64(b.Len)) <= pos {
			return -1
		}
		return 1
	})
	return i
}

// Beside returns the blobs of an archive that are not segments.
func (a *Archive) Beside() (all []File) {
	for base, size := range a.sizes {
		all = append(all, File{Name: a.Name + "/" + base, Size: size})
	}
	slices.SortFunc(all, func(x, y File) int { return cmp.Compare(x.Name, y.Name) })
	return all
}

func (a *Archive) Blobs() []File {
	all := a.Beside()
	if a.Closed {
		all = append(all, File{Name: a.Name + "/" + Closed})
	}
	for i, b := range a.segments {
		all = append(all, File{Name: a.BlobOf(i), Size: int64(b.Len)})
	}
	return all
}

func (a *Archive) SizeOf(end string) int64 {
	if n, ok := a.sizes[a.Name+end]; ok {
		return n
	}
	return -1
}

// Complete finds the generations of segments that were listed without metadata, in the index of
// their archive, if it has one, and in their own headers. It returns which archives it has changed.
func (l *Listing) Complete(ctx context.Context, st store.Store, dir string) (changed map[string]bool, err error) {
	changed = map[string]bool{}
	var lacking []*Archive
	for _, a := range l.archives {
		if a.lacksGenerations {
			lacking = append(lacking, a)
			changed[a.Name] = true
		}
	}
	err = pipe.Each(ctx, pipe.All(lacking), atOnce, func(ctx context.Context, a *Archive) error { return a.readIndex(ctx, st, dir) })
	if err != nil {
		return nil, err
	}
	var blobs []*blob
	names := map[*blob]string{}
	for _, a := range lacking {
		for i := range a.segments {
			if b := &a.segments[i]; !b.known {
				blobs = append(blobs, b)
				names[b] = dir + a.BlobOf(i)
			}
		}
		a.lacksGenerations = false
	}
	return changed, pipe.Each(ctx, pipe.All(blobs), atOnce, func(ctx context.Context, b *blob) error {
		head := make([]byte, min(segment.GenerationLen, b.Len))
		if err := storekit.Briefly(st, names[b]).ReadAt(ctx, head, 0); err != nil {
			return err
		}
		if g, ok := segment.GenerationOf(head); ok {
			b.Generation = g
		}
		b.known = true
		return nil
	})
}

func (a *Archive) readIndex(ctx context.Context, st store.Store, dir string) error {
	size := a.SizeOf(Index)
	if size < indexRow || size > tarfile.MostSegments*indexRow {
		return nil
	}
	b := make([]byte, size)
	err := storekit.Briefly(st, dir+a.Name+"/"+a.Name+Index).ReadAt(ctx, b, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, store.ErrChanged) {
		return nil // its writer has just rewritten it: the segments have the generations
	}
	if err != nil {
		return err
	}
	parseIndex(b, func(number int, e tarfile.Entry) {
		i, ok := slices.BinarySearchFunc(a.segments, int32(number), func(b blob, n int32) int { return cmp.Compare(b.number, n) })
		if ok && a.segments[i].ID == e.ID && a.segments[i].Len == e.Len && !a.segments[i].known && e.ID.IsData() {
			a.segments[i].Generation, a.segments[i].known = e.Generation, true
		}
	})
	return nil
}

// epoch is the time in generated headers.
var epoch = time.Unix(0, 0)
