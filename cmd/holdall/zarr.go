package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/app/hierarchy"
	"github.com/holdall/holdall/internal/arrays/zarrkey"
	"github.com/holdall/holdall/internal/base/glob"
	"github.com/holdall/holdall/internal/write/tree"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/zarr"
)

// zarrView is the view of an archive whose files are the keys of a Zarr
// hierarchy.
const zarrView = "zarr"

// openKeys opens an archive by its keys, if it has such a view and no other is
// asked for.
func (a *app) openKeys(ctx context.Context, address string, as asked, few bool) (*holdall.Archive, error) {
	in, err := a.openAs(ctx, address, as, few)
	if err != nil || as.view != "" {
		return in, err
	}
	keys, err := a.keysOf(ctx, in, "")
	switch {
	case keys == nil && err == nil:
		return in, nil
	case keys != in:
		in.Close()
	}
	return keys, err
}

// openAgain opens an already open archive by its keys, and reuses the bytes
// that the store has cached. unsaid are parameters that apply where no flag
// sets one.
func (a *app) openAgain(ctx context.Context, in *holdall.Archive, unsaid map[string]string) (*holdall.Archive, error) {
	o := in.Options()
	o.View = zarrView
	if unsaid != nil {
		maps.Copy(unsaid, o.Param)
		o.Param = unsaid
	}
	keys, err := a.openIn(ctx, in.Store(), in.Name(), o)
	if err == nil {
		a.opened = append(a.opened, keys)
	}
	return keys, err
}

// hasKeys returns the format of the data at an address, if its first bytes
// show a file of groups and arrays, such as HDF5. It returns nil if they do
// not, or cannot be read.
func (a *app) hasKeys(ctx context.Context, address string) *format.Format {
	st, name, err := store.OpenAddress(ctx, address)
	if err != nil {
		return nil
	}
	o, err := st.Open(ctx, name)
	if err != nil {
		return nil
	}
	defer o.Close()
	head := make([]byte, kit.ProbeSize)
	n, err := storekit.ReadHead(ctx, o, head)
	if err != nil {
		return nil
	}
	p := format.Probe{Name: path.Base(name), Size: int64(n), Head: head[:n]}
	for _, f := range format.All() {
		if f.ViewOf("") == zarrView && f.Detect != nil && f.Detect(p) == format.Certain {
			return f
		}
	}
	return nil
}

// hasArrays reports whether a file or a folder has groups and arrays.
func (a *app) hasArrays(ctx context.Context, local string) bool {
	if !isFolder(local) {
		return a.hasKeys(ctx, local) != nil
	}
	in, err := holdall.Open(ctx, local, holdall.OpenOptions{Format: "dir"})
	if err != nil {
		return false
	}
	defer in.Close()
	return hierarchy.Is(ctx, in)
}

// warnOfKeys warns of the first local file that has groups and arrays but is
// packed unchanged.
func (a *app) warnOfKeys(ctx context.Context, inputs []string, o *holdall.PackOptions) {
	roots, _, err := tree.Roots(inputs, o.Listed)
	if err != nil {
		return // the pack reports it
	}
	names, err := glob.NewFilter(o.Include, o.Exclude)
	if err != nil {
		return
	}
	for n := range tree.Walk(ctx, roots, tree.Options{Names: names, Follow: o.Follow}) {
		if n.Err != nil || !n.Type.IsRegular() {
			continue
		}
		if f := format.All().ByExtension(n.Path); f == nil || f.ViewOf("") != zarrView {
			continue
		}
		if f := a.hasKeys(ctx, n.Path); f != nil {
			shown, _ := shown(n.Path)
			a.warn("%s is packed unchanged, although it is %s: 'holdall convert' makes an archive of its groups and arrays, 'holdall lindi add --from' adds them to one", shown, f.Title)
			return
		}
	}
}

func (a *app) decode(ctx context.Context, in *holdall.Archive, name, as, slice string) error {
	array, err := zarr.Open(ctx, in, strings.Trim(name, "/"))
	if err == nil && slice != "" {
		array, err = array.Slice(slice)
	}
	if err != nil {
		return err
	}
	if as == "npy" {
		return array.WriteNPY(ctx, a.out)
	}
	return array.WriteText(ctx, a.out)
}

type arrayJSON struct {
	Path    string  `json:"path"`
	Shape   []int64 `json:"shape"`
	Chunks  []int64 `json:"chunks"`
	DType   string  `json:"dtype"`
	Codec   string  `json:"codec"`
	Count   int64   `json:"chunk_count"`
	Present int64   `json:"chunks_present"`
	Stored  int64   `json:"stored_bytes"`
	Error   string  `json:"error,omitempty"`

	meta *zarr.Meta
}

// gatherArrays describes the arrays of a hierarchy, and counts how much of
// each is present.
func gatherArrays(ctx context.Context, in *holdall.Archive, arrays []hierarchy.Array) ([]*arrayJSON, error) {
	byPath := map[string]*arrayJSON{}
	var list []*arrayJSON
	for _, a := range arrays {
		x := &arrayJSON{Path: a.Path}
		if a.Err != nil {
			x.Error = a.Err.Error()
		} else {
			m := a.Meta
			x.Shape, x.Chunks, x.DType, x.Codec, x.Count, x.meta = m.Shape, m.Chunks, m.DType.String(), m.Codecs(), m.NumKeys(), m
		}
		byPath[x.Path] = x
		list = append(list, x)
	}
	return list, each(in.Entries(ctx), func(e holdall.Entry) error {
		if x := arrayOf(byPath, e.Name); x != nil && e.Kind.HasContent() {
			x.Present++
			x.Stored += e.Size
		}
		return nil
	})
}

// arrayOf returns the array that a key is a chunk of, or nil if it is not a
// chunk.
func arrayOf(byPath map[string]*arrayJSON, key string) *arrayJSON {
	for at := key; at != ""; {
		at, _ = zarrkey.Split(at)
		if x := byPath[at]; x != nil {
			if x.meta != nil && x.meta.IsChunk(strings.TrimPrefix(key[len(at):], "/")) {
				return x
			}
			return nil
		}
	}
	return nil
}

func (a *app) printArrays(i *infoJSON) {
	list := i.Arrays
	if len(list) == 0 {
		return
	}
	title := count(int64(len(list)), "array")
	if i.NWB != nil { // the NWB description has already printed these
		fmt.Fprintf(a.out, "\n%s; --json lists all\n", title)
		return
	}
	widest := 0
	for _, x := range list[:min(len(list), shownRows)] {
		widest = min(max(widest, len(format.Escape(x.Path))), 40)
	}
	rows(a, title, list, func(x *arrayJSON) {
		name := cmp.Or(format.Escape(x.Path), ".")
		if x.Error != "" {
			a.fitting(widest, name, printable(x.Error))
			return
		}
		chunks := count(x.Count, "chunk")
		if x.Present != x.Count {
			chunks = fmt.Sprintf("%s of %s", thousands(x.Present), chunks)
		}
		if x.Count > 1 {
			chunks += " " + shapeText(x.Chunks)
		}
		a.fitting(widest, name, fmt.Sprintf("%s %s  %s, %s, %s", x.DType, shapeText(x.Shape), x.Codec, chunks, a.humanSize(x.Stored)))
	})
}

// fitting writes a name and a text, on two lines if one is too long.
func (a *app) fitting(widest int, name, text string) {
	if line := fmt.Sprintf("  %-*s  %s", widest, name, text); len([]rune(line)) <= columnsOf(a.stdout) {
		fmt.Fprintln(a.out, line)
		return
	}
	fmt.Fprintf(a.out, "  %s\n    %s\n", name, text)
}

func shapeText(shape []int64) string { return strings.ReplaceAll(fmt.Sprint(shape), " ", "×") }

// errDecodeRange reports that --range was used with --decode, where it has no
// meaning.
var errDecodeRange = errors.New("--range cannot be combined with --decode: --slice selects elements")
