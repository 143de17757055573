// Package autopsy opens archives that cannot be opened: as the bytes that they are, with what these look
// like, and as a repair would leave them. It decides which repair is tried, if nothing tells the format.
package autopsy

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// The views in which whatever is stored can be opened.
const (
	Bytes    = "bytes"
	Repaired = "repaired"
)

// Is reports whether a view is one of this package.
func Is(view string) bool { return view == Bytes || view == Repaired }

// ErrUntrusted means that trusted keys were given, which prove neither bytes nor repairs.
var ErrUntrusted = errors.New("no trusted key has signed what is left of it, so it is not shown: open it without trusted keys")

// planning limits the repairs that are planned at the same time.
var planning = make(chan struct{}, 2)

// Open opens an archive in one of the views. o are the options with which it cannot be opened.
func Open(ctx context.Context, st store.Store, name, view string, o holdall.OpenOptions) (*holdall.Archive, error) {
	if len(o.Trusted) > 0 {
		return nil, ErrUntrusted
	}
	o.Store, o.View, o.Index = st, "", holdall.UseIndex{}
	if view == Bytes {
		return holdall.Open(ctx, name, holdall.OpenOptions{Store: st, Formats: []*format.Format{raw}, Format: raw.Name, NoVerify: true})
	}
	select {
	case planning <- struct{}{}:
		defer func() { <-planning }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	in, err := repaired(ctx, name, o)
	if !errors.Is(err, format.ErrUnknown) {
		return in, err
	}
	formats, ferr := mayBe(ctx, st, name, o.Formats)
	if ferr != nil {
		return nil, ferr
	}
	for _, f := range formats {
		o.Format = f.Name
		in, ferr := repaired(ctx, name, o)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if ferr == nil {
			if n, known := in.Repair().Readable[kit.FilesAfter]; !known || n > 0 {
				return in, nil
			}
			in.Close()
		}
	}
	return nil, err
}

func repaired(ctx context.Context, name string, o holdall.OpenOptions) (*holdall.Archive, error) {
	plan, err := holdall.Repair(ctx, name, holdall.RepairOptions{OpenOptions: o})
	if err != nil {
		return nil, err
	}
	in, err := plan.Open(ctx)
	if err != nil {
		return nil, errors.Join(err, plan.Close())
	}
	return in, nil
}

// mostTried limits the formats whose repairs are tried.
const mostTried = 4

// mayBe returns the formats that an archive may have: by its name, and by what is found in it.
func mayBe(ctx context.Context, st store.Store, name string, formats format.Formats) (list []*format.Format, err error) {
	if formats == nil {
		formats = format.All()
	}
	in, err := Open(ctx, st, name, Bytes, holdall.OpenOptions{})
	if err != nil {
		return nil, err
	}
	defer in.Close()
	about, err := in.About(ctx)
	found := map[string]bool{}
	for _, fact := range about.Facts {
		found[fact[1]] = true
	}
	byName := func(f *format.Format) bool {
		return slices.ContainsFunc(f.Extensions, func(ext string) bool { return strings.HasSuffix(strings.ToLower(name), ext) })
	}
	for _, wanted := range []func(*format.Format) bool{byName, func(f *format.Format) bool { return found[f.Name] }} {
		for _, f := range formats {
			if f.Repair != nil && len(list) < mostTried && !slices.Contains(list, f) && wanted(f) {
				list = append(list, f)
			}
		}
	}
	return list, err
}

// Look returns what the bytes of an entry in the view Bytes look like, by its name.
func Look(entry string) string {
	if i := strings.LastIndex(entry, " at "); i >= 0 {
		entry = entry[i+len(" at "):]
	}
	_, look, _ := strings.Cut(strings.TrimSuffix(entry, path.Ext(entry)), " ")
	return look
}

// raw presents any objects as an archive. Its entries are runs of bytes, called after what they look like;
// zeros and headers are regions. Each byte is in one of them. A whole object can be looked up by its name.
var raw = &format.Format{Name: Bytes, Title: "Bytes as they are stored", Open: openRaw}

type rawReader struct {
	*kit.Index
	objects []store.Info
	regions []format.Region
	found   []string // formats of which something was found
}

// mostObjects limits the objects of a folder that are shown.
const mostObjects = 10_000

func openRaw(ctx context.Context, st store.Store, name string, _ format.OpenOptions) (format.Reader, error) {
	name = strings.TrimSuffix(name, "/")
	r := &rawReader{}
	obj, info, err := storekit.OpenInfo(ctx, st, name)
	if err == nil {
		obj.Close()
		info.Name = name
		r.objects = []store.Info{info}
	} else {
		for info, lerr := range storekit.List(ctx, st, name+"/") {
			if lerr != nil || len(r.objects) == mostObjects {
				break
			}
			r.objects = append(r.objects, info)
		}
		if len(r.objects) == 0 {
			return nil, err
		}
	}
	var entries kit.Entries
	for _, o := range r.objects {
		runs, err := look(ctx, st, o, int64(len(r.objects)))
		if err != nil {
			return nil, err
		}
		below := ""
		if o.Name != name {
			below = strings.TrimPrefix(o.Name, name+"/") + " at "
		}
		digits := max(6, len(fmt.Sprintf("%x", o.Size)))
		for _, x := range runs {
			if f := x.look.format; f != "" && !slices.Contains(r.found, f) {
				r.found = append(r.found, f)
			}
			switch {
			case x.look == zeros:
				r.regions = append(r.regions, format.Region{Object: o.Name, Off: x.off, Len: x.len, Use: format.Padding, Label: x.look.name})
			case x.look.header:
				r.regions = append(r.regions, format.Region{Object: o.Name, Off: x.off, Len: x.len, Use: format.Header, Label: x.look.name})
			default:
				called := fmt.Sprintf("%s%0*x %s%s", below, digits, x.off, x.look.name, x.look.ext)
				entries = append(entries, format.Entry{Name: called, Size: x.len, Ref: format.Region{Object: o.Name, Off: x.off, Len: x.len}})
			}
		}
	}
	r.Index = kit.NewIndex(entries)
	return r, nil
}

func (r *rawReader) Lookup(ctx context.Context, name string) (format.Entry, error) {
	e, err := r.Index.Lookup(ctx, name)
	for _, o := range r.objects {
		if err != nil && (name == path.Base(o.Name) || strings.HasSuffix(o.Name, "/"+name)) {
			return format.Entry{Name: name, Size: o.Size, Ref: format.Region{Object: o.Name, Len: o.Size}}, nil
		}
	}
	return e, err
}

func (r *rawReader) Extents(_ context.Context, e format.Entry, _, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		if at, ok := e.Ref.(format.Region); ok && n > 0 && at.Len > 0 {
			yield(format.Extent{Size: at.Len, Object: at.Object, Off: at.Off, Len: at.Len}, nil)
		}
	}
}

func (r *rawReader) Regions(context.Context) iter.Seq2[format.Region, error] {
	return func(yield func(format.Region, error) bool) {
		for _, x := range r.regions {
			if !yield(x, nil) {
				return
			}
		}
	}
}

func (r *rawReader) About(context.Context) (a format.About, _ error) {
	for _, o := range r.objects {
		a.Volumes = append(a.Volumes, o.Name)
		a.Stored += o.Size
	}
	for _, f := range r.found {
		a.Facts = append(a.Facts, [2]string{"Found in it", f})
	}
	return a, nil
}

func (r *rawReader) Close() error { return nil }
