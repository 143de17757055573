package rows

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/scan"
)

// A What says what a row tells of its name.
type What uint8

const (
	Put    What = iota // a file, and where it lies
	Delete             // what was there before Row.Seq is deleted
	Fate               // what became of the object that a file was packed from
)

// An Original is what became of the object that a file was packed from. It stands in a row of its own, so
// that a file can move to another archive without it.
type Original uint8

const (
	Stays   Original = iota // it is there again
	Leaving                 // it was proven, and is about to be removed, or has been
	Missing                 // the listing that began with Row.Seq did not find it, one before did
	Unseen                  // nor has any listing since it was packed
	Lingers                 // it was Leaving, and is still there: it may be removed at any time
)

// An ArchiveID names an archive: the commit that has added it, and its place in that commit. In a run,
// the commit that adds the run is 0.
type ArchiveID struct {
	Commit  int64
	Ordinal int
}

func (a ArchiveID) String() string { return fmt.Sprintf("%d.%d", a.Commit, a.Ordinal) }

// Compare returns which archive was added later: its places count. The commit 0 is later than all.
func (a ArchiveID) Compare(b ArchiveID) int {
	return cmp.Or(compareCommits(a.Commit, b.Commit), cmp.Compare(a.Ordinal, b.Ordinal))
}

func compareCommits(a, b int64) int { return cmp.Compare(uint64(a)-1, uint64(b)-1) }

// An Archive is what a reader needs of an archive to read a file in it.
type Archive struct {
	Address string // of any form; may be relative to the catalogue
	Format  string
	Size    int64
	Version string
}

// A Row is a version of a file.
type Row struct {
	Name string
	What What
	// Seq says which version of a name is newer. It is the commit that began the listing which found the
	// file, or the commit of the row itself; that is 0 in a run.
	Seq     int64
	Archive ArchiveID

	Kind   format.Kind
	Raw    bool // the content is one run of the archive's bytes, from Off
	Off    int64
	Size   int64
	Digest format.Digest
	Time   time.Time
	ETag   string
	// Of is the Seq of the file that a fate is about.
	Of       int64
	Original Original

	Headers string // what else a service stored with the object; empty, or a text that is equal for equal headers
}

// Compare returns the order of rows in a run: by name, the newest first.
func (r *Row) Compare(b *Row) int {
	return cmp.Or(strings.Compare(r.Name, b.Name), compareCommits(b.Seq, r.Seq), cmp.Compare(r.What, b.What), b.Archive.Compare(r.Archive), cmp.Compare(b.Of, r.Of))
}

// in returns the row as it is in a catalogue whose commit has added its run.
func (r *Row) in(commit int64) {
	if r.Seq == 0 {
		r.Seq = commit
	}
	if r.Archive.Commit == 0 && r.What == Put {
		r.Archive.Commit = commit
	}
}

// check returns an error if a row cannot be in a run.
func (r *Row) check() error {
	switch {
	case len(r.Name) > MostName:
		return fmt.Errorf("a name of %d bytes, expected at most %d", len(r.Name), MostName)
	case r.What > Fate, r.Of < 0, (r.What == Fate) != (r.Of > 0), r.Original > Lingers, r.Kind > format.Property, r.Seq < 0, r.Archive.Commit < 0, r.Archive.Commit > MostCommit, r.Archive.Ordinal < 0, r.Archive.Ordinal >= MostArchives, r.Size < 0, r.Off < 0, !r.Raw && r.Off != 0, len(r.Digest.Sum) > 255:
		return fmt.Errorf("%s: invalid row", format.Escape(r.Name))
	case len(r.Headers) > mostText, len(r.ETag) > mostText:
		return fmt.Errorf("%s: %d bytes of headers, expected at most %d", format.Escape(r.Name), len(r.Headers)+len(r.ETag), mostText)
	}
	return nil
}

// MostName is the length of the longest name. Services have names of up to 1,024 bytes.
const MostName = 64 << 10

const mostText = 1 << 20

// MostArchives is how many archives a commit can add. Commit and ordinal of an archive fit into 63 bits.
const (
	MostArchives = 1 << 20
	MostCommit   = 1<<43 - 1
)

// Append appends the row but for its name, for programs that sort rows.
func (r *Row) Append(b []byte) []byte {
	for _, n := range [...]int64{int64(r.What), r.Seq, r.Archive.Commit, int64(r.Archive.Ordinal), int64(r.Kind), r.Off, r.Size, r.Of, int64(r.Original)} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	raw, timed := byte(0), byte(0)
	if r.Raw {
		raw = 1
	}
	if !r.Time.IsZero() {
		timed = 2
	}
	b = append(b, raw|timed)
	if timed != 0 {
		b = binary.AppendUvarint(binary.AppendVarint(b, r.Time.Unix()), uint64(r.Time.Nanosecond()))
	}
	for _, s := range [...]string{r.Digest.Algo, r.Digest.Sum, r.ETag, r.Headers} {
		b = scan.AppendText(b, s)
	}
	return b
}

// Parse parses what Append has appended.
func (r *Row) Parse(name string, b []byte) error {
	c := &scan.Scanner{B: b}
	*r = Row{Name: name, What: What(c.Size()), Seq: c.Size(), Archive: ArchiveID{c.Size(), int(c.Size())}, Kind: format.Kind(c.Size()), Off: c.Size(), Size: c.Size(), Of: c.Size(), Original: Original(c.Byte())}
	bits := c.Bytes(1)
	if c.Bad {
		return errPage
	}
	r.Raw = bits[0]&1 != 0
	if bits[0]&2 != 0 {
		r.Time = time.Unix(c.Varint(), c.Size()).UTC()
	}
	for _, s := range [...]*string{&r.Digest.Algo, &r.Digest.Sum, &r.ETag, &r.Headers} {
		*s = string(c.Text())
	}
	if c.Bad {
		return errPage
	}
	return nil
}
