package repo

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
)

type GC struct {
	RepoSize   int64              // bytes, afterwards
	Reclaimed  int64              // bytes
	Millis     int64              // since 1970
	Generation tarfile.Generation // never compacted, though what was written is
	Nodes      int64              // that were compacted
	Root       Revision
	HasRoot    bool  // Oak 1.6 did not always write it
	Offset     int64 // of the line
	Text       string
}

// GCs gives the lines of a log of garbage collections, the newest first, which is the
// one that counts. A line that is none is an [*Error], and others
// follow; any other error is of the store and the last.
func GCs(ctx context.Context, log store.Object) iter.Seq2[GC, error] {
	return func(yield func(GC, error) bool) {
		for l, err := range backwards(ctx, log) {
			if err != nil {
				yield(GC{}, err)
				return
			}
			if !yield(parseGC(string(l.text), l.off)) {
				return
			}
		}
	}
}

func ParseGC(text string) (GC, error) { return parseGC(text, -1) }

// String is the line as Oak writes it since 1.8.
func (g GC) String() string {
	return fmt.Sprintf("%d,%d,%d,%d,%d,%d,%s", g.RepoSize, g.Reclaimed, g.Millis, g.Generation.Gen, g.Generation.Full, g.Nodes, g.Root)
}

func parseGC(text string, off int64) (GC, error) {
	bad := func(format string, a ...any) (GC, error) {
		return GC{}, &Error{Object: GCLog, Offset: off, What: "line: " + fmt.Sprintf(format, a...), Text: text}
	}
	fields := strings.Split(text, ",")
	n := len(fields)
	if n < 5 || n > 7 {
		return bad("%.80q: expected 5 to 7 fields, found %d", text, n)
	}
	g := GC{Offset: off, Text: text}
	var gen, full int64
	into := []*int64{&g.RepoSize, &g.Reclaimed, &g.Millis, &gen, &full, &g.Nodes}
	if n < 7 {
		into = []*int64{&g.RepoSize, &g.Reclaimed, &g.Millis, &gen, &g.Nodes}
	}
	for i, to := range into {
		bits := 64
		if to == &gen || to == &full {
			bits = 32
		}
		v, err := strconv.ParseInt(fields[i], 10, bits)
		if err != nil {
			return bad("field %d: expected a number of %d bits, found %.40q", i+1, bits, fields[i])
		}
		*to = v
	}
	if n < 7 {
		full = gen
	}
	g.Generation = tarfile.Generation{Gen: int32(gen), Full: int32(full)}
	if n > 5 {
		var err error
		if g.Root, err = ParseRevision(fields[n-1]); err != nil {
			return bad("field %d: %v", n, err)
		}
		g.HasRoot = g.Root != Revision{} // Oak's own word for none is all zeros
	}
	return g, nil
}
