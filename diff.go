package holdall

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"

	"github.com/holdall/holdall/format"
)

// A Difference is one entry that two archives do not have alike.
type Difference struct {
	Name string
	Kind string // "added" if only the second archive has it, "removed" if only the first has, else "changed"
	A, B Entry  // as each side has it
	// Why says in what they differ: "kind", "size", "content", "link", "mode",
	// "unreadable".
	Why string
}

// Compared counts what a comparison looked at.
type Compared struct {
	Same, Added, Removed, Changed int64
}

// Diff reports the entries that a and b do not have alike, by name. Contents
// are compared by their digests where both sides record the same kind, and byte
// by byte otherwise. Modes are compared where both keep them; times never.
func Diff(ctx context.Context, a, b *Archive, m *Meter, report func(Difference) error) (Compared, error) {
	return DiffSome(ctx, a, b, func(string) bool { return true }, m, report)
}

// DiffSome is Diff of the entries that are wanted by their names.
func DiffSome(ctx context.Context, a, b *Archive, wanted func(name string) bool, m *Meter, report func(Difference) error) (Compared, error) {
	var sum Compared
	as, err := byName(ctx, a, wanted)
	if err != nil {
		return sum, err
	}
	bs, err := byName(ctx, b, wanted)
	if err != nil {
		return sum, err
	}
	tell := func(d Difference) error {
		switch d.Kind {
		case "added":
			sum.Added++
		case "removed":
			sum.Removed++
		default:
			sum.Changed++
		}
		return report(d)
	}
	for len(as) > 0 || len(bs) > 0 {
		if ctx.Err() != nil {
			return sum, context.Cause(ctx)
		}
		var err error
		switch {
		case len(bs) == 0 || len(as) > 0 && as[0].Name < bs[0].Name:
			err = tell(Difference{Name: as[0].Name, Kind: "removed", A: as[0]})
			as = as[1:]
		case len(as) == 0 || bs[0].Name < as[0].Name:
			err = tell(Difference{Name: bs[0].Name, Kind: "added", B: bs[0]})
			bs = bs[1:]
		default:
			why, derr := differ(ctx, a, as[0], b, bs[0])
			switch {
			case derr != nil:
				return sum, derr
			case why != "":
				err = tell(Difference{Name: as[0].Name, Kind: "changed", A: as[0], B: bs[0], Why: why})
			default:
				sum.Same++
			}
			m.Add(1, as[0].Size)
			as, bs = as[1:], bs[1:]
		}
		if err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// byName returns a's entries by name. Folders that only names imply are not
// entries; one that has an entry of its own counts only where nothing is in it,
// since the other side may imply it.
func byName(ctx context.Context, a *Archive, wanted func(name string) bool) ([]Entry, error) {
	var es []Entry
	for e, err := range a.src.Packed(ctx) {
		if err != nil {
			return nil, err
		}
		if wanted(e.Name) {
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

// differ says in what two entries of one name differ, "" if in nothing.
func differ(ctx context.Context, a *Archive, ea Entry, b *Archive, eb Entry) (string, error) {
	// Which of a file's names is the file, and which are hard links to it, is
	// nothing that the file knows.
	if (ea.Kind == format.HardLink) != (eb.Kind == format.HardLink) || ea.Kind == format.HardLink && ea.Link != eb.Link {
		ea, eb = a.linked(ctx, ea), b.linked(ctx, eb)
	}
	asFile := func(k format.Kind) format.Kind {
		if k == format.Property { // what it becomes in most formats
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
	case !ea.Kind.HasContent() || ea.Size == 0:
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

// linked returns the file that a hard link leads to, or what it is given.
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
