package holdall

import (
	"context"
	"fmt"
	"time"

	"github.com/holdall/holdall/internal/content"
	"github.com/holdall/holdall/internal/kept"
	"github.com/holdall/holdall/store"
)

// IndexSuffix is what the name of a published index has after its archive's.
const IndexSuffix = kept.Suffix

// UseIndex says where an index of an archive may be that was kept. An index that is
// not of this very version of the archive, or is damaged, is never believed.
type UseIndex struct {
	// At is the address of one; where it is set no other is looked for.
	At string `json:"at,omitempty"`
	// Beside looks for one that is published beside the archive. Of an archive behind a
	// network that is a request.
	Beside bool `json:"beside,omitempty"`
	// Folder is a folder of indexes that were kept here.
	Folder *IndexFolder `json:"-"`

	sizeOnly bool // one of any archive of this length is believed
}

func (u UseIndex) inner() kept.Use {
	return kept.Use{At: u.At, Beside: u.Beside, Folder: u.Folder.inner(), SizeOnly: u.sizeOnly}
}

// An IndexState says which index an archive is read by, and why another is not.
type IndexState struct {
	Used    string // where it is; empty if there is none
	Ignored string // where one is that was not believed
	Why     error
}

// Index says which index the archive is read by.
func (a *Archive) Index() IndexState { return IndexState(a.index) }

// An IndexFolder is a folder on a disk where indexes of archives are kept that took
// long to open. Any number of programs may share it: an index appears whole, and one
// that is taken away is still there for who reads it.
type IndexFolder struct {
	Dir string
	// Most is how many bytes are kept, those that were used last; 0 is 4 GiB.
	Most int64
	// Expensive is how long an archive takes to open whose index is kept; 0 is 0.3 s.
	Expensive time.Duration
}

func (f *IndexFolder) inner() *kept.Folder { return (*kept.Folder)(f) }

// A KeptIndex is an index in a folder.
type KeptIndex struct {
	Path    string    `json:"path"`
	Archive string    `json:"archive,omitempty"` // its address; empty if the index is damaged
	Entries int64     `json:"entries"`
	Size    int64     `json:"size"`
	Used    time.Time `json:"used"`
}

// List returns what is kept, most recently used first.
func (f *IndexFolder) List(ctx context.Context) (all []KeptIndex, err error) {
	found, err := f.inner().List(ctx)
	for _, k := range found {
		all = append(all, KeptIndex(k))
	}
	return all, err
}

// Clear removes all that is kept, and returns how much that was.
func (f *IndexFolder) Clear() (n int, bytes int64, err error) { return f.inner().Clear() }

// IndexOptions are wishes for an index.
type IndexOptions struct {
	OpenOptions
	// Chunk is how many bytes of content a digest shall be of, by which every read is
	// proven: a power of two from 64 KiB to 1 MiB. All contents are read for that; 0 is
	// no digests.
	Chunk int64
	// NoTable leaves out the table, by which names are looked up without decoding. It has
	// 30 to 50 bytes for each of them.
	NoTable bool
	// OnError hears of content that gets no proof: it cannot be read, or is not what the
	// archive says it is.
	OnError func(Problem)
	// Meter counts.
	Meter *Meter
}

// An IndexSummary says what an index has.
type IndexSummary struct {
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`       // of contents
	Index   int64 `json:"index_bytes"` // its own length
	Digests int64 `json:"digests,omitempty"`
	// Unproven counts the files that have none, because they are damaged.
	Unproven int64 `json:"unproven,omitempty"`
}

// BuildIndex writes an index of the archive at address to another address.
func BuildIndex(ctx context.Context, address, to string, o IndexOptions) (IndexSummary, error) {
	st, name, err := store.OpenAddress(ctx, address)
	if err != nil {
		return IndexSummary{}, err
	}
	toStore, toName, err := store.OpenAddress(ctx, to)
	if err != nil {
		return IndexSummary{}, err
	}
	return BuildIndexStore(ctx, st, name, toStore, toName, o)
}

// BuildIndexStore is BuildIndex of the archive called name in st to a given store.
func BuildIndexStore(ctx context.Context, st store.Store, name string, to store.Store, toName string, o IndexOptions) (IndexSummary, error) {
	if o.Chunk != 0 && !kept.IsChunk(o.Chunk) {
		return IndexSummary{}, fmt.Errorf("chunk size %d: expected a power of two from %d to %d", o.Chunk, kept.MinChunk, kept.MaxChunk)
	}
	if at := store.AddressOf(to, toName); at != "" && at == store.AddressOf(st, name) {
		return IndexSummary{}, fmt.Errorf("%s: the index cannot replace its archive", store.Redact(at))
	}
	o.Index, o.FewLookups = UseIndex{}, false
	o.once = o.Chunk == 0 // contents are read some time after they are listed
	a, err := OpenStore(ctx, st, name, o.OpenOptions)
	if err != nil {
		return IndexSummary{}, err
	}
	defer a.Close()
	sum, err := a.src.WriteIndex(ctx, to, toName, content.IndexOptions{
		View: o.View, Param: o.Param, Chunk: o.Chunk, Points: true, NoTable: o.NoTable, Once: o.once, OnError: o.OnError, Meter: o.Meter,
	})
	return IndexSummary(sum), err
}

// KeepIndex keeps an index of the archive, if it took long to open it without one and
// its options have a folder for that. It reports whether it did. With points it takes the
// time to decode all that is compressed in long units once more.
func (a *Archive) KeepIndex(ctx context.Context, points bool) (bool, error) {
	f := a.asked.Index.Folder
	if f == nil || a.index.Used != "" || a.asked.FewLookups {
		return false, nil
	}
	return f.inner().Keep(ctx, store.AddressOf(a.src.Store, a.src.Name), a.asked.wanted(), a.took, func(st store.Store, name string) error {
		_, err := a.src.WriteIndex(ctx, st, name, content.IndexOptions{View: a.asked.View, Param: a.asked.Param, Points: points, Private: true})
		return err
	})
}
