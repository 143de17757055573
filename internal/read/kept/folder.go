package kept

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdall/holdall/internal/base/blake3"
	"github.com/holdall/holdall/store"
)

// A Folder is a folder on a disk with indexes of archives that took long to open. Any number of
// programs may share it. An index appears complete, and a removed index remains usable by programs
// that have it open.
type Folder struct {
	Dir string
	// Most is the total size of the indexes to keep, in bytes; 0 means 4 GiB. The least recently
	// used indexes are removed first.
	Most int64
	// Expensive is how long an archive must take to open for its index to be kept; 0 means 0.3 s.
	Expensive time.Duration
}

const (
	defaultMostKept  = 4 << 30
	defaultExpensive = 300 * time.Millisecond
)

// of returns the object that has the index of an archive, if there is one. ok is false if the
// archive cannot be identified, or is encrypted: an index here would tell its names.
func (f *Folder) of(ctx context.Context, address string, w Wanted) (st store.Store, name string, ok bool) {
	if layer, _ := store.CutLayer(address); layer != "" || address == "" {
		return nil, "", false
	}
	if store.Scheme(address) == "" {
		abs, err := filepath.Abs(address)
		if err != nil {
			return nil, "", false
		}
		address = abs
	}
	which, err := json.Marshal([]any{address, w.Format, w.View, w.Param})
	if err != nil {
		return nil, "", false
	}
	sum := blake3.Sum256(which)
	st, name, err = store.OpenAddress(ctx, filepath.Join(f.Dir, hex.EncodeToString(sum[:16])+Suffix))
	return st, name, err == nil
}

// Keep writes the index of an archive by calling write, and then removes the least recently used
// indexes. took is how long the archive took to open. Keep reports whether it wrote an index: an
// archive that opens fast needs none.
func (f *Folder) Keep(ctx context.Context, address string, w Wanted, took time.Duration, write func(st store.Store, name string) error) (bool, error) {
	if took < cmp.Or(f.Expensive, defaultExpensive) {
		return false, nil
	}
	st, name, ok := f.of(ctx, address, w)
	if !ok {
		return false, nil
	}
	// Contents of archives may be private.
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return false, err
	}
	if err := write(st, name); err != nil {
		return false, err
	}
	_, _, err := f.trim(cmp.Or(f.Most, defaultMostKept))
	return true, err
}

// touch records that an index was used. It is enough to update the time once a day.
func (f *Folder) touch(name string) {
	path := filepath.Join(f.Dir, filepath.Base(name))
	if fi, err := os.Stat(path); err == nil && time.Since(fi.ModTime()) > 24*time.Hour {
		now := time.Now()
		_ = os.Chtimes(path, now, now) // it is a hint
	}
}

// A Listed is an index in a folder.
type Listed struct {
	Path    string    `json:"path"`
	Archive string    `json:"archive,omitempty"` // its address; empty if the index is damaged
	Entries int64     `json:"entries"`
	Size    int64     `json:"size"`
	Used    time.Time `json:"used"`
}

// List returns what is kept, most recently used first.
func (f *Folder) List(ctx context.Context) (all []Listed, err error) {
	files, err := f.files()
	if err != nil {
		return nil, err
	}
	for _, k := range files {
		if st, name, err := store.OpenAddress(ctx, k.Path); err == nil {
			if obj, err := st.Open(ctx, name); err == nil {
				if x, err := Open(ctx, obj, k.Path, "", 1, tailGuess, true); err == nil {
					k.Archive, k.Entries = x.Archive, x.Head.Entries
					x.Close()
				}
			}
		}
		all = append(all, k)
	}
	return all, nil
}

// files is List without opening the indexes.
func (f *Folder) files() (all []Listed, err error) {
	found, err := os.ReadDir(f.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range found {
		// A writer that was killed may have left its file.
		if !strings.Contains(e.Name(), Suffix) {
			continue
		}
		if fi, err := e.Info(); err == nil && fi.Mode().IsRegular() { // else it has been removed since
			all = append(all, Listed{Path: filepath.Join(f.Dir, e.Name()), Size: fi.Size(), Used: fi.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b Listed) int {
		return cmp.Or(b.Used.Compare(a.Used), strings.Compare(a.Path, b.Path))
	})
	return all, nil
}

// Clear removes all indexes, and returns how many there were and their size.
func (f *Folder) Clear() (n int, bytes int64, err error) { return f.trim(0) }

// trim removes the least recently used files, until at most most bytes are left.
func (f *Folder) trim(most int64) (n int, bytes int64, err error) {
	files, err := f.files()
	if err != nil {
		return 0, 0, err
	}
	held := int64(0)
	for _, k := range files {
		if held += k.Size; held <= most && most > 0 {
			continue
		}
		switch rerr := os.Remove(k.Path); {
		case rerr == nil:
			n, bytes = n+1, bytes+k.Size
		case !errors.Is(rerr, fs.ErrNotExist):
			err = errors.Join(err, rerr)
		}
	}
	return n, bytes, err
}
