package lindi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/columns"
	"github.com/holdall/holdall/internal/arrays/zarr3"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

func open(ctx context.Context, st store.Store, name string, o format.OpenOptions) (format.Reader, error) {
	if o.View != "" && !slices.Contains(views, o.View) {
		return nil, fmt.Errorf("lindi has no view %q: %w", o.View, errors.ErrUnsupported)
	}
	a, err := openArchive(ctx, st, name, o)
	if err != nil {
		return nil, err
	}
	r, err := a.reader(ctx, o.View, o.Param[dropOrphans] == "true")
	if err != nil {
		a.close()
		return nil, err
	}
	return r, nil
}

func (a *archive) reader(ctx context.Context, view string, drop bool) (format.Reader, error) {
	switch view {
	case zarrView:
		return newKeys(ctx, a)
	case zarr3View:
		if err := a.loadRFS(ctx); err != nil {
			return nil, err
		}
		return a.inVersion3(), nil
	}
	switch a.form {
	case tarForm:
		if err := a.loadTable(ctx, false); err != nil {
			return nil, err
		}
		var err error
		if a.table.bare, err = a.bareRFS(ctx); err != nil {
			return nil, err
		}
		if err := a.findProofs(ctx); err != nil {
			return nil, err
		}
		if drop {
			if err := a.loadRFS(ctx); err != nil {
				return nil, err
			}
			referred := (&keys{a: a}).referred()
			kept := columns.Rows[uint64]{}
			for i := range a.table.Len() {
				if !isOrphan(a.table.Name(i), referred) {
					kept.Add(*a.table.rows.At(i))
				}
			}
			a.table.rows = kept
		}
		return &members{kit.NewIndex(a.table), a, nil}, nil
	case jsonForm:
		if err := a.loadRFS(ctx); err != nil {
			return nil, err
		}
		return newLoose(a, []loose{{rfsName, a.name, a.size}}), nil
	default:
		files, err := a.files(ctx)
		if err != nil {
			return nil, err
		}
		return newLoose(a, files), nil
	}
}

// inVersion3 returns the view zarr3 of an archive whose lindi.json is loaded.
func (a *archive) inVersion3() format.Reader {
	return zarr3.New(keysOf(a), a.st, "lindi", a.objectName())
}

// members is the view of a tar's members, whose Ref is the offset of their content. For a folder or a single JSON,
// Ref is an element of files.
type members struct {
	*kit.Index
	a     *archive
	files []loose // nil for a tar
}

// loose is a member that is an object of its own.
type loose struct {
	name   string
	object string
	size   int64
}

func newLoose(a *archive, files []loose) *members {
	entries := make(kit.Entries, len(files))
	for i, f := range files {
		entries[i] = format.Entry{Name: f.name, Size: f.size, Ref: f}
	}
	return &members{kit.NewIndex(entries), a, files}
}

// Can returns the optional functions of the reader.
func (r *members) Can() format.Abilities {
	can := r.Index.Can()
	can.Run, can.Doubt, can.Decoder = r.Run, r.a.doubts, r.Decoder
	return can
}

// Run returns the extent of a member.
func (r *members) Run(e format.Entry) (format.Extent, bool) {
	x := format.Extent{Size: e.Size, Object: r.a.name, Len: e.Size}
	switch at := e.Ref.(type) {
	case int64:
		x.Off = at
	case loose:
		x.Object = at.object
	default:
		return x, false
	}
	return x, e.Fault == nil && e.Size > 0
}

func (r *members) Extents(_ context.Context, e format.Entry, _, n int64) iter.Seq2[format.Extent, error] {
	return kit.RunExtents("lindi", r.Run, e, n)
}

func (r *members) Regions(ctx context.Context) iter.Seq2[format.Region, error] {
	if r.a.form != tarForm {
		return func(func(format.Region, error) bool) {}
	}
	return r.a.regions(ctx)
}

// regions yields what surrounds the members: headers, padding of blocks, abandoned places, the
// end.
func (a *archive) regions(ctx context.Context) iter.Seq2[format.Region, error] {
	return func(yield func(format.Region, error) bool) {
		region := func(off, n int64, use format.Use, label string) bool {
			return n <= 0 || yield(format.Region{Object: a.name, Off: off, Len: n, Use: use, Label: label}, nil)
		}
		rows := a.table.list()
		rows = slices.DeleteFunc(rows, func(r row) bool { return a.table.fault(r) != nil })
		slices.SortStableFunc(rows, func(x, y row) int { return cmp.Compare(x.o, y.o) })
		at := int64(0)
		for _, r := range rows {
			for g, err := range a.between(ctx, at, min(r.o, r.d, a.size)) {
				if !yield(g, err) || err != nil {
					return
				}
			}
			if r.d > r.o && r.o >= at && !region(r.o, r.d-r.o, format.Header, "tar header") {
				return
			}
			n, _ := a.table.used(r)
			if !region(max(at, r.d+n), min(r.d+r.s, a.size)-max(at, r.d+n), format.Padding, "room for a longer text") {
				return
			}
			if at = max(at, r.d+r.s); !region(at, min(r.end(), a.size)-at, format.Padding, "fills the block") {
				return
			}
			at = max(at, min(r.end(), a.size))
		}
		for g, err := range a.between(ctx, at, a.size) {
			if !yield(g, err) || err != nil {
				return
			}
		}
	}
}

// between yields what is in a run without rows of the index: members in the trash, members that
// are not listed, the end of the tar.
func (a *archive) between(ctx context.Context, from, to int64) iter.Seq2[format.Region, error] {
	return func(yield func(format.Region, error) bool) {
		for from < to {
			g := format.Region{Object: a.name, Off: from, Len: to - from, Use: format.Unknown, Label: "not in the index"}
			if from+blockLen <= to {
				b, err := a.read(ctx, from, blockLen)
				if err != nil {
					yield(g, err)
					return
				}
				h, ok := parseHeader(b)
				n := padded(h.size)
				switch {
				case ok && h.size >= 0 && n <= to-from-blockLen:
					g.Len, g.Use, g.Label = blockLen, format.Header, "tar header"
					if !yield(g, nil) {
						return
					}
					from += blockLen
					g.Off, g.Len, g.Use, g.Label = from, n, format.Trash, h.name
					if len(h.name) < len(trashDir) || h.name[:len(trashDir)] != trashDir {
						g.Use, g.Label = format.Unknown, h.name+", not in the index"
					}
				case zero(b) && to == a.size:
					g.Use, g.Label = format.Padding, "end of the tar"
				}
			}
			if g.Len > 0 && !yield(g, nil) {
				return
			}
			from = g.Off + g.Len
		}
	}
}

func (r *members) About(context.Context) (format.About, error) {
	a := r.a
	about := format.About{Facts: [][2]string{{"form", a.form.String()}}, Notes: a.notes}
	if a.form != tarForm {
		about.Version = a.rfs.version()
		for _, f := range r.files {
			about.Volumes = append(about.Volumes, f.object)
			if f.name == rfsName {
				about.IndexBytes += f.size
			}
		}
		return about, nil
	}
	about.Version, about.Volumes, about.IndexBytes = "ustar", []string{a.name}, a.table.indexBytes()
	if a.table.found {
		about.Facts = append(about.Facts, [2]string{"index", "not usable: members found by their headers"})
	}
	for row := range a.table.all {
		if row.sum != "" {
			about.Facts = append(about.Facts, [2]string{"digests", digestAlgo})
			break
		}
	}
	return about, nil
}

// indexBytes returns the size of the members that say where all others are.
func (t *memberTable) indexBytes() (n int64) {
	for row := range t.all {
		if row.name == indexName || row.name == rfsName || row.name == entryName {
			n += blockLen + row.s
		}
	}
	return n
}

func (r *members) Close() error { return r.a.close() }

// files lists the files in the folder. If the store cannot list, it returns those in lindi.json.
func (a *archive) files(ctx context.Context) ([]loose, error) {
	var files []loose
	for info, err := range storekit.List(ctx, a.st, a.name+"/") {
		if errors.Is(err, errors.ErrUnsupported) {
			return a.filesOfRefs(ctx)
		}
		if err != nil {
			return nil, err
		}
		files = append(files, loose{info.Name[len(a.name)+1:], info.Name, info.Size})
	}
	return files, nil
}

func (a *archive) filesOfRefs(ctx context.Context) ([]loose, error) {
	if err := a.loadRFS(ctx); err != nil {
		return nil, err
	}
	files := []loose{{rfsName, a.objectName(), a.size}}
	place := map[string]int{}
	for _, r := range a.rfs.refs {
		name, t, ok := a.rfs.inside(a.rfs.value(r))
		if !ok || !fs.ValidPath(name) {
			continue
		}
		i, known := place[name]
		if !known {
			i = len(files)
			place[name] = i
			files = append(files, loose{name, a.name + "/" + name, 0})
		}
		files[i].size = max(files[i].size, t.off+t.n)
	}
	return files, nil
}
