package oak

import (
	"bytes"
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/cloud"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
)

var Format = &format.Format{
	Name:       "oak",
	Title:      "Oak segment store",
	Views:      views[:],
	Overview:   segmentsView,
	Keeps:      format.KeepsTimes | format.KeepsDirs | format.KeepsProperties,
	StoredTime: func(t time.Time) time.Time { return t.Truncate(time.Millisecond) },
	Params: []format.Param{
		{Name: revisionParam, For: format.ToOpen, Help: "show this revision: UUID:NUMBER, or a time (the newest revision not after it)"},
		{Name: checkpointParam, For: format.ToOpen, Help: "show the checkpoint with this name"},
		{Name: superParam, Flag: "-", For: format.ToOpen, Kind: format.ParamSwitch},
		{Name: datastoreParam, For: format.ToOpen, Kind: format.ParamFolder, Help: "folder or address of the data store, for its binaries"},
		{Name: tarSizeParam, For: format.ToCreate, Kind: format.ParamSize, Least: leastTar, Most: mostTar, Help: "start a new tar after this length (default 256MiB)"},
		{Name: timeParam, For: format.ToCreate, Help: "time of the revision, as 2006-01-02T15:04:05Z (default the newest entry's)"},
	},
	Detect:   detect,
	Open:     open,
	Create:   create,
	Place:    place,
	Verify:   verify,
	ReadsAll: true,
	Repair:   repair,
}

// detect identifies a store by names in its folder, and a tar by its name, an entry or an index.
func detect(p format.Probe) format.Match {
	if p.Size < 0 {
		tars := slices.ContainsFunc(p.Names, isTar)
		said := slices.Contains(p.Names, repo.Journal) || slices.Contains(p.Names, repo.Manifest)
		switch {
		case slices.ContainsFunc(p.Names, isBlob):
			return format.Certain
		case tars && said:
			return format.Certain
		case tars:
			return format.Likely
		}
		return format.No
	}
	sure := 0
	if len(p.Head) >= tarfile.BlockSize {
		if h, err := tarfile.ParseHeader(p.Head[:tarfile.BlockSize]); err == nil && h.ChecksumOK {
			if _, ok := tarfile.ParseEntryName(h.Name); ok {
				sure++
			}
		}
	}
	if n := len(p.Tail) - 1024 - 4; n >= 0 && (bytes.Equal(p.Tail[n:][:4], []byte("\n0K\n")) || bytes.Equal(p.Tail[n:][:4], []byte("\n1K\n"))) {
		sure++
	}
	switch {
	case sure == 2 || sure == 1 && isTar(p.Name):
		return format.Certain
	case sure == 1:
		return format.Likely
	}
	return format.No
}

// StoreIn returns the name of the segment store in a folder of AEM's repository, or name itself if
// it is anything else. A store on a network is not asked.
func StoreIn(ctx context.Context, st store.Store, name string) string {
	isStore := func(dir string) bool {
		return slices.ContainsFunc([]string{repo.Journal, repo.Manifest, "data00000a.tar"}, func(file string) bool {
			_, err := sizeOf(ctx, st, path.Join(dir, file))
			return err == nil
		})
	}
	if inner := path.Join(name, "segmentstore"); st.Can().Near && isStore(inner) && !isStore(name) {
		return inner
	}
	return name
}

func isTar(name string) bool {
	_, _, ok := IsTar(name)
	return ok && !strings.Contains(name, "/")
}

// isBlob reports whether a name below a folder is that of a segment in an object of its own.
func isBlob(name string) bool {
	dir, base, _ := strings.Cut(name, "/")
	_, _, ok := cloud.ParseBlobName(base)
	return ok && isTar(dir)
}

func IsTar(name string) (number int, letter byte, ok bool) { return tarfile.ParseName(name) }

// Views of a store.
const (
	segmentsView = "segments" // as files, in a folder for each tar
	treeView     = "tree"     // of nodes, as folders, with their properties
	filesView    = "files"    // of a tree, as files
)

var views = [...]string{treeView, filesView, segmentsView} // the usual one first
