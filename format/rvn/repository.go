package rvn

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/format/rvn/internal/ucl"
	"github.com/holdall/holdall/internal/base/blake3"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A repository is a folder of packages that is presented as an archive of archives:
//
//	catalog.rvn    an archive that holds catalog.ucl: a line for each package, its
//	               metadata with the length and the BLAKE3 of its file
//	catalog.sum    the BLAKE3 of catalog.rvn
//	files/*.rvn    packages, NAME~SUBPACKAGE~VARIANT~VERSION.rvn
const (
	catalogArchive = "catalog.rvn"
	catalogText    = "catalog.ucl"
	catalogSum     = "catalog.sum"
	packageFolder  = "files"
)

// repository presents the packages of a repository as entries.
type repository struct {
	*kit.Index
	catalog *archive
	st      store.Store
	name    string
	notes   []format.Problem
	entries kit.Entries
	surplus []string // files that the catalogue does not list
}

// orRepository opens a folder as a repository, if it is one; not is the error to return if it is
// not.
func orRepository(ctx context.Context, st store.Store, name string, o format.OpenOptions, not error) (*repository, error) {
	if _, isOne := errors.AsType[*format.CorruptError](not); isOne || ctx.Err() != nil {
		return nil, not
	}
	a, err := load(ctx, st, path.Join(name, catalogArchive), o)
	if errors.Is(err, format.ErrCorrupt) {
		return nil, err
	}
	if err != nil {
		return nil, not
	}
	r := &repository{catalog: a, st: st, name: name}
	if err := r.read(ctx); err != nil {
		a.obj.Close()
		return nil, err
	}
	r.Index = kit.NewIndex(r.entries)
	return r, nil
}

// read reads the catalogue, and lists which of its packages exist if the store can list.
func (r *repository) read(ctx context.Context) error {
	a := r.catalog
	row, ok := a.byName.Find(catalogText)
	if !ok || a.index.rec(row).kind() != typeFile {
		return a.corrupt(format.MissingIndex, "catalog", 0, "no %s in the archive", catalogText)
	}
	size := a.index.rec(row).size()
	if size > a.limits.Index {
		return a.corrupt(format.Limit, "catalog", 0, "a catalogue of %d bytes is more than the limit of %d", size, a.limits.Index)
	}
	var text bytes.Buffer
	src := a.newSource(ctx)
	defer src.close()
	sum, err := src.copyFile(a.index.start(row), size, func(p []byte) error {
		text.Write(p)
		return nil
	})
	if src.broken != nil {
		return src.broken
	}
	if err != nil || sum != string(a.index.rec(row).digest()) {
		return a.corrupt(format.BadChecksum, "catalog", a.block[contentBlock].off, "the catalogue is damaged")
	}
	n := 0
	for line := range bytes.Lines(text.Bytes()) {
		n++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		e, err := packageOf(line)
		if err != nil {
			r.notes = append(r.notes, a.problem(format.BadIndex, "catalog", format.Error, -1, "line %d of the catalogue: %v", n, err))
			continue
		}
		r.entries = append(r.entries, e)
	}
	return r.compare(ctx)
}

// packageOf returns the entry for a line of the catalogue.
func packageOf(line []byte) (format.Entry, error) {
	v, err := ucl.Parse(line)
	if err != nil {
		return format.Entry{}, err
	}
	var parts []string
	for _, key := range []string{"namebase", "subpackage", "variant", "version"} {
		s, ok := v.Get(key).Str()
		if !ok || s == "" {
			return format.Entry{}, fmt.Errorf("a package without a %s", key)
		}
		parts = append(parts, s)
	}
	size, ok := v.Get("rvnsize").Int()
	sum, _ := v.Get("rvndigest").Str()
	digest, err := hex.DecodeString(sum)
	if !ok || size < 0 || err != nil || len(digest) != len(zeroDigest) {
		return format.Entry{}, fmt.Errorf("%s has no size and digest", strings.Join(parts, "~"))
	}
	name := packageFolder + "/" + strings.Join(parts, "~") + ".rvn"
	if fault := naming.Fault(name); fault != "" {
		return format.Entry{}, fmt.Errorf("%q is not a valid name: %s", name, naming.Advice(fault))
	}
	return format.Entry{Name: name, Size: size, Digest: format.Digest{Algo: "blake3", Sum: string(digest)}}, nil
}

// compare finds packages that are missing, have another size, or are not listed.
func (r *repository) compare(ctx context.Context) error {
	there := map[string]int64{}
	prefix := path.Join(r.name, packageFolder) + "/"
	for info, err := range storekit.List(ctx, r.st, prefix) {
		if errors.Is(err, errors.ErrUnsupported) {
			return nil // reading the packages shows it
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if name := strings.TrimPrefix(info.Name, prefix); err == nil && strings.HasSuffix(name, ".rvn") {
			there[packageFolder+"/"+name] = info.Size
		}
	}
	for i := range r.entries {
		e := &r.entries[i]
		size, ok := there[e.Name]
		fault := format.Problem{Class: "package", Severity: format.Error, Volume: path.Join(r.name, e.Name), Off: -1, Entry: e.Name, HasEntry: true}
		delete(there, e.Name)
		switch {
		case !ok:
			fault.Code, fault.Message = format.MissingVolume, "listed in the catalogue, but missing"
		case size != e.Size:
			fault.Code, fault.Message = format.OutOfBounds, fmt.Sprintf("%d bytes, but %d in the catalogue", size, e.Size)
		default:
			continue
		}
		e.Fault = &fault
	}
	r.surplus = slices.AppendSeq(r.surplus, maps.Keys(there))
	slices.Sort(r.surplus)
	return nil
}

func (r *repository) Close() error { return r.catalog.obj.Close() }

func (r *repository) Extents(_ context.Context, e format.Entry, off, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		if e.Fault == nil && e.Kind.HasContent() && n > 0 && off < e.Size {
			yield(format.Extent{Size: e.Size, Object: path.Join(r.name, e.Name), Len: e.Size}, nil)
		}
	}
}

func (r *repository) Regions(context.Context) iter.Seq2[format.Region, error] {
	return pipe.All([]format.Region{{Object: r.catalog.name, Len: r.catalog.size, Use: format.IndexData, Label: "catalogue"}})
}

func (r *repository) About(context.Context) (format.About, error) {
	about := format.About{
		Version: "repository", IndexBytes: r.catalog.size, Volumes: []string{r.catalog.name}, Notes: r.notes,
		Facts: [][2]string{{"packages", fmt.Sprint(len(r.entries))}},
	}
	for _, e := range r.entries {
		about.Volumes = append(about.Volumes, path.Join(r.name, e.Name))
	}
	return about, nil
}

// check reports differences between the catalogue and the folder.
func (r *repository) check(ctx context.Context, report func(format.Problem)) error {
	if err := r.catalog.check(ctx, report); err != nil {
		return err
	}
	for _, p := range r.notes {
		report(p)
	}
	for _, e := range r.entries {
		if e.Fault != nil {
			report(*e.Fault)
		}
	}
	for _, name := range r.surplus {
		report(format.Problem{Code: format.MissingIndex, Class: "package", Severity: format.Warning, Volume: path.Join(r.name, name), Off: -1,
			Entry: name, HasEntry: true, Message: "not listed in the catalogue"})
	}
	return r.checkSum(ctx, report)
}

// checkSum compares the catalogue with the digest beside it.
func (r *repository) checkSum(ctx context.Context, report func(format.Problem)) error {
	name := path.Join(r.name, catalogSum)
	said, k := make([]byte, 2*len(zeroDigest)), 0
	obj, err := r.st.Open(ctx, name)
	if err == nil {
		defer obj.Close()
		k, err = storekit.ReadHead(ctx, obj, said)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	h := blake3.New()
	if _, err := io.Copy(h, &kit.RangeReader{Ctx: ctx, Object: r.catalog.obj, End: r.catalog.size}); err != nil {
		return err
	}
	if sum := hex.EncodeToString(h.Sum(nil)); sum != string(said[:k]) {
		p := r.catalog.problem(format.BadChecksum, "catalog-sum", format.Error, -1, "found digest %s, expected %[3]s as in %[2]s", sum, catalogSum, format.Escape(string(said[:k])))
		report(p)
	}
	return nil
}
