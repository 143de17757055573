package fleet

import (
	"context"
	"fmt"
	"io/fs"
	"iter"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// archives are the addresses of the archives that the catalogue records, and of those that plans make.
type archives struct {
	all    map[string]bool
	beside []string // what names of objects beside them end in
}

// made returns the archives that may be below a source. If objects are packed
// into a folder of their own bucket, these would be packed again.
func (j *job) made(ctx context.Context, b *book.Book) (archives, error) {
	made := archives{map[string]bool{}, append([]string{""}, kept.Beside...)}
	below := func(address string) {
		for _, o := range j.origins {
			if strings.HasPrefix(address, storekit.AddressOf(o.st, "")) {
				made.all[address] = true
			}
		}
	}
	known, err := b.Archives(ctx)
	if err != nil {
		return made, err
	}
	for _, a := range known {
		below(a.Address)
	}
	folders, suffix := b.Beside()
	made.beside = append(made.beside, suffix)
	for _, at := range folders {
		below(at)
	}
	s, err := b.Full(ctx)
	if err != nil {
		return made, err
	}
	for _, r := range s.Removals {
		below(b.AddressOf(r))
	}
	plans, err := Plans(ctx, b)
	for _, p := range plans {
		if f := format.All().ByName(p.Format); f != nil && f.Parts != nil {
			below(p.Target) // which is the archive itself
		}
	}
	return made, err
}

// has reports whether an object is an archive, a part of one, or a file beside
// one.
func (a archives) has(address string) bool {
	if a.of(address, func(address string) bool { return a.all[address] }) {
		return true
	}
	for i, c := range address {
		if c == '/' && a.all[address[:i]] {
			return true
		}
	}
	return false
}

// of reports whether an address is that of an archive, or of an object beside one.
func (a archives) of(address string, is func(string) bool) bool {
	return slices.ContainsFunc(a.beside, func(beside string) bool {
		name, ok := strings.CutSuffix(address, beside)
		return ok && is(name)
	})
}

// own reports whether an address is that of an archive which the plan may make. The catalogue need not have
// it: parity may be left over from an archive that was removed.
func (j *job) own(address string) bool {
	if j.format.Parts != nil {
		return false
	}
	dir, _ := path.Split(j.name)
	base := address[strings.LastIndexAny(address, "/\\")+1:]
	plain, err := url.PathUnescape(base)
	for _, b := range []string{base, plain} {
		if name := dir + b; err == nil && j.owns(name) && storekit.AddressOf(j.target, name) == address {
			return true
		}
	}
	return false
}

// listed yields the objects of the sources in some spans, in byte order of the
// paths. It counts the objects that it skips.
func (j *job) listed(ctx context.Context, spans []span, made archives, skipped *Skipped) iter.Seq2[Member, error] {
	order := make([]int, len(j.origins))
	for i := range order {
		order[i] = i
	}
	// No prefix begins with another one, so the sources follow each other as a
	// whole.
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(j.origins[a].prefix, j.origins[b].prefix) })
	return func(yield func(Member, error) bool) {
		last, first := "", true
		for _, i := range order {
			o := j.origins[i]
			dots := dotted{from: o}
			for info, err := range o.objects(ctx, spans) {
				address := storekit.AddressOf(o.st, info.Name)
				m := Member{Path: o.prefix + info.Name, Origin: i, Size: info.Size, Version: info.Version, Modified: info.ModTime}
				switch {
				case err != nil:
					err = fmt.Errorf("list %s: %w", format.Escape(o.address), err)
				case j.names.Excluded(m.Path) || book.IsMarker(info.Name):
					continue
				case strings.HasSuffix(info.Name, "/") && info.Size == 0:
					skipped.Markers++ // its contents imply it
					continue
				case made.has(address) || made.of(address, j.own):
					skipped.Archives++
					continue
				case dots.refused(ctx, info, &err):
					skipped.Refused++
					if j.tell != nil {
						j.tell(m.Path, errDots(info.Name))
					}
					continue
				case err != nil:
				case !first && m.Path <= last:
					err = fmt.Errorf("list %s: expected a key after %s, found %s", format.Escape(o.address), format.Escape(last), format.Escape(m.Path))
				}
				last, first = m.Path, false
				if !yield(m, err) || err != nil {
					return
				}
			}
		}
	}
}

// dotted finds out which keys with an element of dots cannot be requested, by
// requesting the first of each kind.
type dotted struct {
	from  origin
	known map[string]bool // by kind: refused
}

// errDots returns why a key cannot be requested, or nil if it has no such
// element.
func errDots(key string) error {
	for e := range strings.SplitSeq(key, "/") {
		if e == "." || e == ".." {
			return fmt.Errorf("a key with a '%s' element cannot be requested over HTTP", e)
		}
	}
	return nil
}

// refused reports whether an object cannot be requested. It sets err to errors
// that are not about the key.
func (d *dotted) refused(ctx context.Context, info store.Info, err *error) bool {
	if errDots(info.Name) == nil || d.from.st.Can().Near {
		return false
	}
	if info.Size == 0 || info.Version == "" {
		return true // nothing would distinguish it from another one
	}
	// A path may be refused because of "..", because of "." only, or because it
	// leads out of its bucket.
	kind := "."
	depth := 0
	for e := range strings.SplitSeq(info.Name, "/") {
		switch {
		case e == ".." && depth == 0:
			kind = "out"
		case e == "..":
			depth--
			kind = max(kind, "..")
		case e != "." && e != "":
			depth++
		}
	}
	if refused, asked := d.known[kind]; asked {
		return refused
	}
	o, oerr := storekit.OpenAs(ctx, d.from.st, info)
	if oerr == nil {
		oerr = o.ReadAt(ctx, make([]byte, 1), 0)
		o.Close()
	}
	if oerr != nil && (ctx.Err() != nil || storekit.Temporary(oerr)) {
		*err = fmt.Errorf("list %s: %w", format.Escape(d.from.address), oerr)
		return false
	}
	if d.known == nil {
		d.known = map[string]bool{}
	}
	d.known[kind] = oerr != nil
	return oerr != nil
}

// later reports whether an object that was written at time a was written later
// than one at b, if both are known. Services round times to seconds in some
// responses.
func later(a, b time.Time) bool { return !a.IsZero() && !b.IsZero() && a.Sub(b) >= time.Second }

// reachable returns why a source cannot be listed, or nil if it can. If the
// whole source is gone, its objects have not vanished.
func (o origin) reachable(ctx context.Context) error {
	for _, err := range storekit.List(ctx, o.st, o.begin) {
		return err
	}
	return fmt.Errorf("%s: empty or missing: %w", format.Escape(o.address), fs.ErrNotExist)
}
