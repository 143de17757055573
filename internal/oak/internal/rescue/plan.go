package rescue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
)

// A Source is a tar, which may be damaged. The caller owns the object, and must keep it open while
// the plan is used.
type Source struct {
	Name   string
	Object store.Object
}

// A Place is where a segment is according to an index. Its header is a block before.
type Place struct {
	Source
	Pos int64
	Len int
}

// Copies yields the places of a segment in the tars of other numbers. It is called for segments
// that are damaged in these, and for the names of binaries.
type Copies func(ctx context.Context, id tarfile.ID) iter.Seq2[Place, error]

// Proof is how much is known about a segment, in ascending order.
type Proof uint8

const (
	Lost     Proof = iota // it existed; no copy can be used
	Foreign               // intact, but of an unknown version
	Kept                  // damaged, or its checksum is; Oak reads it, so it is kept, with its header
	Doubtful              // it never had a checksum and gets none, or its ID may be damaged
	Repaired              // intact after one bit was flipped
	Stray                 // intact, but it may belong to a tar that is stored in this one
	Proven                // intact, according to its checksum
)

// A Segment is a segment of the new tar, and where its bytes are now.
type Segment struct {
	ID    tarfile.ID
	Pos   int64 // of the segment itself; its header is a block before
	From  int32 // which of the plan's sources
	Len   int32
	CRC   uint32 // of what will be written
	bit   int32  // where the byte with the flipped bit is
	mask  byte   // which bit; 0 is none
	Proof Proof

	// intact means that header and zeros are correct too.
	intact bool
	// again means that an earlier copy was worse.
	again bool
}

func padded(n int32) int64 {
	return (int64(n) + tarfile.BlockSize - 1) / tarfile.BlockSize * tarfile.BlockSize
}

type Action uint8

const (
	Nothing Action = iota // one letter is intact: Plan.Base
	Tail                  // the segments of one letter are intact: it needs a new tail
	Rewrite               // a new tar
	Leave                 // the tar is empty: it should be removed
)

// A Plan describes a recovered tar. It takes some 100 bytes for each segment, and has no
// contents.
type Plan struct {
	Action Action

	// Base is the source whose index determined what belongs to the tar, or -1 if none did.
	Base int

	// Sources are the letters, then the tars of other numbers with segments of this plan.
	Sources []Source
	Letters int

	// Segments are the segments of the new tar, in their order.
	Segments []Segment

	// Keep is how many bytes the new tar shares with the beginning of the source KeepOf. With
	// Tail, these are all its segments. It is 0 if the first segment differs. Headers are assumed
	// to be those that Oak writes.
	Keep   int64
	KeepOf int

	// Gain reports whether the new tar has something that the base does not have. Otherwise
	// writing it would only omit what is damaged: Oak then reports it as missing, instead of
	// returning wrong bytes or failing.
	Gain bool

	Counts Counts

	copies Copies // or nil
	at     map[tarfile.ID]int32
}

func (p *Plan) Find(id tarfile.ID) (Segment, bool) {
	k, ok := p.at[id]
	if !ok {
		return Segment{}, false
	}
	return p.Segments[k], true
}

// Read reads a segment of the plan in its final form.
func (p *Plan) Read(ctx context.Context, c Segment) ([]byte, error) {
	f, err := p.finished(ctx, c, nil)
	return f.Data, err
}

type Counts struct {
	Bytes    int64 // of segments in the new tar
	Proof    [Proven + 1]int
	Replaced int // segments whose first copy was worse than the one used

	LostBytes    int64 // of segments that are lost
	UnknownBytes int64 // whose purpose is not known
	BlankBytes   int64 // zeros, or entries of no segment, where segments may have been
}

// ErrNothing means that there are no segments to write.
var ErrNothing = errors.New("no segment could be recovered")

// An Event is something that a survey found. Only damage has a class.
type Event struct {
	Kind   Kind
	Object string
	tarfile.Problem
}

// A Kind is what an event means for the new tar.
type Kind uint8

const (
	Damage       Kind = iota + 1 // something is wrong in a file; losses are separate events
	SegmentLost                  // a segment existed, but no good copy was found
	LeftOut                      // a segment of an unknown version is left out
	StaysDamaged                 // a segment is damaged, and is kept unchanged
	InDoubt                      // a segment is used that nothing proves
	BitTurned                    // a bit of a segment was corrected
	OtherCopy                    // a segment is damaged in one file, and taken from another
)

// Words describes the plan in a few lines.
func (p *Plan) Words() []string {
	c := p.Counts
	first := count(int64(len(p.Segments)), "segment") + " saved"
	if len(p.Segments) > 0 {
		first += ", " + count(c.Bytes, "byte")
	}
	lines := []string{first + ": " + p.does()}
	var from []string // how many segments come from which file
	n := make([]int, len(p.Sources))
	for _, c := range p.Segments {
		n[c.From]++
	}
	for i, source := range p.Sources {
		if n[i] > 0 {
			from = append(from, fmt.Sprintf("%d from %s", n[i], source.Name))
		}
	}
	if len(from) > 1 {
		lines = append(lines, strings.Join(from, ", "))
	}
	say := func(n int64, thing, what string) {
		if n > 0 {
			lines = append(lines, count(n, thing)+" "+what)
		}
	}
	say(int64(c.Replaced), "segment", "damaged in one file and copied from another")
	say(int64(c.Proof[Repaired]), "segment", "repaired by flipping one bit")
	say(int64(c.Proof[Doubtful]), "segment", "kept but not verified")
	say(int64(c.Proof[Kept]), "segment", "damaged and kept unchanged")
	say(int64(c.Proof[Stray]), "segment", "found after lost headers, intact")
	say(int64(c.Proof[Foreign]), "segment", "left out as unreadable")
	say(int64(c.Proof[Lost]), "segment", "lost")
	say(c.LostBytes, "byte", "of segments lost or left out")
	say(c.UnknownBytes, "byte", "not part of anything known")
	say(c.BlankBytes, "byte", "of zeros or foreign data where segments may have been")
	return lines
}

func (p *Plan) does() string {
	switch p.Action {
	case Nothing:
		return p.Sources[p.Base].Name + " is intact"
	case Tail:
		return fmt.Sprintf("%s is intact up to %d and needs only a new tail", p.Sources[p.KeepOf].Name, p.Keep)
	case Leave:
		return "the tar is empty"
	}
	if !p.Gain {
		return "the tar can only be rewritten without its damaged parts"
	}
	return "the tar must be rewritten"
}

func count(n int64, thing string) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if n != 1 {
		thing += "s"
	}
	return digits + " " + thing
}
