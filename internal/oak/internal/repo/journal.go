package repo

import (
	"bufio"
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A Revision names a record: a root of the tree.
type Revision = segment.RecordID

// ParseRevision parses the same form as [segment.ParseRecordID].
func ParseRevision(s string) (Revision, error) {
	r, err := segment.ParseRecordID(s)
	if err != nil {
		err = fmt.Errorf("revision: %w", err)
	}
	return r, err
}

type Entry struct {
	Revision
	Millis int64  // since 1970; -1 if the line does not record it
	Offset int64  // of the line
	Text   string // of the line, as far as 4096 bytes
	Ended  bool   // the line has an end, as the last one has not that is just being written
	Doubt  string // why a part of this line or newer lines may be lost; empty if nothing shows that
}

func AppendLine(b []byte, r Revision, millis int64) []byte {
	return fmt.Appendf(b, "%s root %d\n", r, millis)
}

// WriteJournal writes a journal, the oldest line first.
func WriteJournal(ctx context.Context, st store.Store, name string, lines iter.Seq[Entry]) (size int64, err error) {
	info, err := storekit.Write(ctx, st, name, func(out store.Writer) error {
		w := bufio.NewWriterSize(out, 64<<10)
		for e := range lines {
			w.Write(AppendLine(w.AvailableBuffer(), e.Revision, max(e.Millis, 0)))
		}
		return w.Flush() // returns earlier errors too
	})
	return info.Size, err
}

// Entries yields the lines of a journal, the newest first. A line that Oak skips is an [*Error],
// and others follow. Any other error comes from the store and is the last. Empty lines, which
// Oak's compaction writes, are ignored.
func Entries(ctx context.Context, journal store.Object) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		var newest *Entry // until the line before it is known
		release := func(older int64) bool {
			e := newest
			newest = nil
			if e != nil && e.cut(older) {
				e.Doubt = fmt.Sprintf("line: %.80q: expected a time like that of the line before it, found the beginning of one", e.Text)
			}
			return e == nil || yield(*e, nil)
		}
		first := true
		for l, err := range backwards(ctx, journal) {
			if err != nil {
				if release(-1) {
					yield(Entry{}, err)
				}
				return
			}
			if len(l.text) == 0 {
				continue
			}
			e, err := parseEntry(string(l.text), l.off)
			e.Ended = !l.torn && err == nil
			if bad, ok := err.(*Error); ok && l.torn {
				bad.What += ", in an incomplete last line"
			}
			if first && err == nil {
				newest = &e
			} else if !release(e.Millis) || !yield(e, err) {
				return
			}
			first = false
		}
		release(-1)
	}
}

// cut reports whether the newest line lacks digits of its time: it is much earlier than that of
// the line before it or, if the line has no end, than 2001, since when times have 13 digits.
func (e *Entry) cut(older int64) bool { return e.Millis < older/2 || !e.Ended && e.Millis < 1e12 }

func parseEntry(text string, off int64) (Entry, error) {
	bad := func(what string) (Entry, error) {
		return Entry{}, &Error{Object: Journal, Offset: off, What: what, Text: text}
	}
	name, rest, ok := strings.Cut(text, " ")
	if !ok {
		return bad(fmt.Sprintf("line: %.80q: expected a revision and a space", text))
	}
	r, err := ParseRevision(name)
	if err != nil {
		return bad(err.Error())
	}
	e := Entry{Revision: r, Millis: -1, Offset: off, Text: text}
	if _, rest, ok = strings.Cut(rest, " "); ok {
		field, _, _ := strings.Cut(rest, " ")
		if n, err := strconv.ParseInt(field, 10, 64); err == nil {
			e.Millis = n
		}
	}
	if said := text[len(name)+1:]; said != "root" && said != fmt.Sprintf("root %d", e.Millis) {
		e.Doubt = fmt.Sprintf("line: %.160q: expected a revision and a time, found other text, which may be a newer line", text)
	}
	return e, nil
}

// NoHead returns the error for a store without a revision to begin with.
func NoHead(what string) *Error { return &Error{Object: Journal, Offset: -1, What: what} }

// A Head is where reading a store begins.
type Head struct {
	Entry
	Rewound int // newer entries whose segments are not there
	Bad     int // newer lines that could not be read, and the line itself if it is in doubt
}

// FindHead returns the newest entry whose segment exists according to has. Oak checks only the
// indexes, and does not read the segment. An [*Error] means that there is no such entry; Oak then
// begins a new repository if it may write.
func FindHead(ctx context.Context, journal store.Object, has func(tarfile.ID) (bool, error)) (Head, error) {
	var h Head
	for e, err := range Entries(ctx, journal) {
		if _, bad := err.(*Error); bad {
			h.Bad++
			continue
		}
		if err != nil {
			return Head{}, err
		}
		ok, err := has(e.Segment)
		if err != nil {
			return Head{}, err
		}
		if ok {
			if h.Entry = e; e.Doubt != "" {
				h.Bad++
			}
			return h, nil
		}
		h.Rewound++
	}
	return h, NoHead(fmt.Sprintf("journal: expected a line with an existing revision, found %d lines with missing ones and %d invalid lines", h.Rewound, h.Bad))
}

type GC struct {
	RepoSize   int64              // bytes, afterwards
	Reclaimed  int64              // bytes
	Millis     int64              // since 1970
	Generation tarfile.Generation // never marked as compacted, though the written segments are
	Nodes      int64              // number of compacted nodes
	Root       Revision
	HasRoot    bool  // Oak 1.6 did not always write it
	Offset     int64 // of the line
	Text       string
}

// GCs yields the lines of a log of garbage collections, the newest first; that one counts. An
// invalid line is an [*Error], and other lines follow it. Any other error comes from the store
// and is the last.
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

// String returns the line as Oak writes it since 1.8.
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
		g.HasRoot = g.Root != Revision{} // for Oak, all zeros mean none
	}
	return g, nil
}

// An Error reports where a file violates its format, and how. Errors of the store are
// returned as they come.
type Error struct {
	Object string
	Offset int64 // -1 if it has no place
	What   string
	Text   string // the line, if it is one, as far as 4096 bytes
}

func (e *Error) Error() string {
	if e.Offset < 0 {
		return e.Object + ": " + e.What
	}
	return fmt.Sprintf("%s at %d: %s", e.Object, e.Offset, e.What)
}
