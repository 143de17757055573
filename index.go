package holdall

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/internal/write/output"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// UseIndex says where to look for a kept index of an archive. An index that is damaged or belongs
// to another version of the archive is not used.
type UseIndex struct {
	// At is the address of an index. If it is set, no other index is looked for.
	At string `json:"at,omitempty"`
	// Beside looks for an index that was published beside the archive. For a remote archive this
	// takes a request.
	Beside bool `json:"beside,omitempty"`
	// Folder is a local folder of kept indexes.
	Folder *IndexFolder `json:"-"`

	sizeOnly bool // accepts an index of any archive of the same size
}

func (u UseIndex) inner() kept.Use {
	return kept.Use{At: u.At, Beside: u.Beside, Folder: u.Folder.inner(), SizeOnly: u.sizeOnly}
}

// An IndexState says which index an archive is read by, and why another index was ignored.
type IndexState struct {
	Used    string // the location of the index in use; empty if there is none
	Ignored string // the location of an index that was found but not used
	Why     error
}

// Index returns which index the archive is read by. An index that turns out to be damaged while it
// is used is ignored from then on.
func (a *Archive) Index() IndexState {
	if k, ok := a.src.Reader.(*kept.Reader); ok {
		if err := k.Damage(); err != nil {
			return IndexState{Ignored: a.index.Used, Why: err}
		}
	}
	return IndexState(a.index)
}

// An IndexFolder is a folder on a disk with kept indexes of archives that took long to open. Any
// number of programs may share it. An index appears as a whole, and a removed index remains
// usable by programs that have it open.
type IndexFolder struct {
	Dir string
	// Most is the total size of the indexes to keep, in bytes; 0 means 4 GiB. The least recently
	// used indexes are removed first.
	Most int64
	// Expensive is how long an archive must take to open for its index to be kept; 0 means 0.3 s.
	Expensive time.Duration
}

func (f *IndexFolder) inner() *kept.Folder { return (*kept.Folder)(f) }

// A KeptIndex describes an index in an [IndexFolder].
type KeptIndex struct {
	Path    string    `json:"path"`
	Archive string    `json:"archive,omitempty"` // the archive's address; empty if the index is damaged
	Entries int64     `json:"entries"`
	Size    int64     `json:"size"`
	Used    time.Time `json:"used"`
}

// List returns the kept indexes, most recently used first.
func (f *IndexFolder) List(ctx context.Context) (all []KeptIndex, err error) {
	found, err := f.inner().List(ctx)
	for _, k := range found {
		all = append(all, KeptIndex(k))
	}
	return all, err
}

// Clear removes all kept indexes. It returns their number and total size.
func (f *IndexFolder) Clear() (n int, bytes int64, err error) { return f.inner().Clear() }

// IndexOptions are the options of [BuildIndex].
type IndexOptions struct {
	OpenOptions
	// To is a store in which the index is written. If it is nil, that is decided by the address.
	To store.Store `json:"-"`
	// Chunk is the size of the pieces of content that get a digest in the index, so that every
	// read can be compared. It must be a power of two from 64 KiB to 1 MiB, or 0 for no digests.
	// Making digests requires reading all contents.
	Chunk int64
	// Force also replaces an object that is not an index.
	Force bool `json:"force,omitempty"`
	// OnError is called for each content that gets no digests, because it cannot be read or does
	// not match the digest in the archive.
	OnError func(Problem)
	// Meter, if not nil, counts progress.
	Meter *Meter
}

// An IndexSummary is the result of [BuildIndex].
type IndexSummary struct {
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`       // size of all contents
	Index   int64 `json:"index_bytes"` // size of the index
	Digests int64 `json:"digests,omitempty"`
	// Unproven counts the files without digests because they are damaged.
	Unproven int64 `json:"unproven,omitempty"`
	// Statement has the roots of the archive, if the index has digests of all contents.
	Statement
}

// BuildIndex writes an index of the archive at address to the address to. If to is empty, the index
// is written beside the archive, where UseIndex.Beside finds it.
func BuildIndex(ctx context.Context, address, to string, o IndexOptions) (IndexSummary, error) {
	st, name, err := at(ctx, o.Store, address)
	if err != nil {
		return IndexSummary{}, err
	}
	if to == "" {
		if to = strings.TrimRight(name, "/") + kept.Suffix; o.To == nil {
			o.To = st
		}
	}
	toStore, toName, err := at(ctx, o.To, to)
	if err != nil {
		return IndexSummary{}, err
	}
	if o.Chunk != 0 && !kept.IsChunk(o.Chunk) {
		return IndexSummary{}, fmt.Errorf("chunk size %d: expected a power of two from %d to %d", o.Chunk, kept.MinChunk, kept.MaxChunk)
	}
	g := output.Guard{Inputs: []string{storekit.AddressOf(st, name)}, Kind: "an index", Ours: kept.Is, Force: o.Force}
	if err := g.Check(ctx, toStore, toName); err != nil {
		return IndexSummary{}, err
	}
	o.Index, o.Trusted, o.FewLookups = UseIndex{}, nil, false // the archive itself is read
	o.once = o.Chunk == 0 // with digests, contents are read some time after they are listed
	a, err := open(ctx, st, name, o.OpenOptions)
	if err != nil {
		return IndexSummary{}, err
	}
	defer a.Close()
	sum, err := a.src.WriteIndex(ctx, toStore, toName, content.IndexOptions{
		View: o.View, Param: o.Param, Chunk: o.Chunk, Points: true, Once: o.once, OnError: o.OnError, Meter: o.Meter,
	})
	return IndexSummary{sum.Entries, sum.Bytes, sum.Index, sum.Digests, sum.Unproven, sum.Statement}, err
}

// KeepIndex keeps an index of the archive in the folder of OpenOptions.Index, if there is one and
// the archive took long to open without an index. It reports whether it did. If points is true,
// content that is compressed in long units is decoded again for points from which reads can
// start.
func (a *Archive) KeepIndex(ctx context.Context, points bool) (bool, error) {
	f := a.asked.Index.Folder
	if f == nil || a.index.Used != "" {
		return false, nil
	}
	return f.inner().Keep(ctx, storekit.AddressOf(a.src.Store, a.src.Name), a.asked.wanted(), a.took, func(st store.Store, name string) error {
		_, err := a.src.WriteIndex(ctx, st, name, content.IndexOptions{View: a.asked.View, Param: a.asked.Param, Points: points, Private: true})
		return err
	})
}
