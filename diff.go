package holdall

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"

	"github.com/holdall/holdall/format"
)

// A Difference is one entry that differs between two archives.
type Difference struct {
	Name string
	Kind string // "added": only in the second archive; "removed": only in the first; or "changed"
	A, B Entry  // the entry in the first and in the second archive
	// Why says what differs in a changed entry: "kind", "size", "content", "link", "mode" or
	// "unreadable".
	Why string
}

// Diff compares the entries of a and b by name, and calls report for each difference in order of
// names. If wanted is not nil, only entries are compared for whose names it returns true. Contents
// are compared by their digests if both archives have digests of the same kind, and byte by byte
// otherwise, unless indexes of both have the same root of contents. Modes are compared if both archives have them. Times are not compared. An error that
// report returns ends the comparison. Diff returns how many entries are the same.
func Diff(ctx context.Context, a, b *Archive, wanted func(name string) bool, m *Meter, report func(Difference) error) (same int64, err error) {
	as, err := byName(ctx, a, wanted)
	if err != nil {
		return 0, err
	}
	bs, err := byName(ctx, b, wanted)
	if err != nil {
		return 0, err
	}
	root := a.indexed().Contents
	read := root == "" || root != b.indexed().Contents // otherwise no contents differ
	for len(as) > 0 || len(bs) > 0 {
		if ctx.Err() != nil {
			return same, context.Cause(ctx)
		}
		switch {
		case len(bs) == 0 || len(as) > 0 && as[0].Name < bs[0].Name:
			err = report(Difference{Name: as[0].Name, Kind: "removed", A: as[0]})
			as = as[1:]
		case len(as) == 0 || bs[0].Name < as[0].Name:
			err = report(Difference{Name: bs[0].Name, Kind: "added", B: bs[0]})
			bs = bs[1:]
		default:
			m.At(as[0].Name, as[0].Size)
			why, derr := differ(ctx, a, as[0], b, bs[0], read)
			switch {
			case derr != nil:
				return same, derr
			case why != "":
				err = report(Difference{Name: as[0].Name, Kind: "changed", A: as[0], B: bs[0], Why: why})
			default:
				same++
			}
			m.Add(1, as[0].Size)
			as, bs = as[1:], bs[1:]
		}
		if err != nil {
			return same, err
		}
	}
	return same, nil
}

// byName returns the wanted entries of a, sorted by name. It omits folders that have entries in
// them, because the other archive may only imply them.
func byName(ctx context.Context, a *Archive, wanted func(name string) bool) ([]Entry, error) {
	var es []Entry
	for e, err := range a.src.Packed(ctx) {
		if err != nil {
			return nil, err
		}
		if wanted == nil || wanted(e.Name) {
			es = append(es, e)
		}
	}
	slices.SortStableFunc(es, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	parents := map[string]bool{}
	for _, e := range es {
		for i := strings.LastIndexByte(e.Name, '/'); i > 0; i = strings.LastIndexByte(e.Name[:i], '/') {
			if parents[e.Name[:i]] {
				break
			}
			parents[e.Name[:i]] = true
		}
	}
	return slices.DeleteFunc(es, func(e Entry) bool { return e.Kind == format.Dir && parents[e.Name] }), nil
}

// differ returns what differs between two entries of the same name, or "" if nothing does. Unless read is
// set, their contents are known to be equal.
func differ(ctx context.Context, a *Archive, ea Entry, b *Archive, eb Entry, read bool) (string, error) {
	// If a file has several names, which of them is the file and which are hard links depends on
	// the archive.
	if (ea.Kind == format.HardLink) != (eb.Kind == format.HardLink) || ea.Kind == format.HardLink && ea.Link != eb.Link {
		ea, eb = a.linked(ctx, ea), b.linked(ctx, eb)
	}
	asFile := func(k format.Kind) format.Kind {
		if k == format.Property { // properties become files in most formats
			return format.File
		}
		return k
	}
	switch {
	case asFile(ea.Kind) != asFile(eb.Kind):
		return "kind", nil
	case ea.Fault != nil || eb.Fault != nil:
		return "unreadable", nil
	case ea.Link != eb.Link:
		return "link", nil
	case ea.Size != eb.Size:
		return "size", nil
	case ea.HasMode && eb.HasMode && ea.Mode != eb.Mode:
		return "mode", nil
	case !read || !ea.Kind.HasContent() || ea.Size == 0:
		return "", nil
	}
	if ea.Digest.Algo != "" && eb.Digest.Algo == ea.Digest.Algo {
		if ea.Digest != eb.Digest {
			return "content", nil
		}
		return "", nil
	}
	same, err := sameContent(a.src.Open(ctx, ea, 0), b.src.Open(ctx, eb, 0))
	if err != nil || same {
		return "", err
	}
	return "content", nil
}

// linked returns the file that a hard link refers to, or e if there is none.
func (a *Archive) linked(ctx context.Context, e Entry) Entry {
	if e.Kind != format.HardLink {
		return e
	}
	if to, err := a.Lookup(ctx, e.Link); err == nil && to.Kind == format.File {
		return to
	}
	return e
}

func sameContent(a, b io.ReadCloser) (bool, error) {
	defer a.Close()
	defer b.Close()
	pa, pb := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		na, erra := io.ReadFull(a, pa)
		nb, errb := io.ReadFull(b, pb)
		if !bytes.Equal(pa[:na], pb[:nb]) {
			return false, nil
		}
		for _, err := range []error{erra, errb} {
			if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
				return false, err
			}
		}
		if erra != nil || errb != nil {
			return (erra != nil) == (errb != nil), nil
		}
	}
}
