package sweep

import (
	"bytes"
	"strings"

	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
)

// A Tar is one tar of a store, open: of each number only the letter that counts.
type Tar struct {
	Name   string // without folder
	Number int
	Letter byte         // 'a' also if the name has none
	Object store.Object // what the tar was opened from
	*tarfile.Tar
}

// A Head is the segment of the newest revision, and its generation by the index.
type Head struct {
	Segment tarfile.ID
	tarfile.Generation
}

// Kind is that of the last compaction.
type Kind uint8

const (
	Full Kind = iota // or not known
	Tail
)

// Options of [Mark]. The zero value is what Oak does offline, but for the root.
type Options struct {
	Kind   Kind
	Retain int // generations; 0 is 1, as Oak has it offline; it is 2 online

	// Root is the segment of the newest root that is known to be whole: that of the
	// head where nothing was compacted just now. Compacted segments behind it are
	// garbage. Without it none is for that reason.
	Root *tarfile.ID
	// Keep reports whether a segment is to be kept though it is garbage; nil is that none
	// is. What only it refers to is garbage nevertheless.
	Keep func(tarfile.ID) bool
	// Taken reports whether there is a file of that name; nil is that there are only
	// the tars. What is rewritten gets a letter behind all of its number.
	Taken func(name string) bool
	// Report is told what is wrong and is no error: tar is the name of one.
	Report func(tar string, p tarfile.Problem)
}

type Action uint8

const (
	Keep           Action = iota + 1 // there is nothing to remove
	KeepGarbage                      // it is too little: a quarter of the tar, or less
	KeepLastLetter                   // no letter is left
	KeepDamaged                      // by its index it has segments that cannot be copied
	Rewrite                          // under the next letter, without what is garbage
	Drop                             // there is nothing to keep
)

func (a Action) String() string {
	return segment.Word("Action", a, "", "keep", "keep-garbage", "keep-last-letter", "keep-damaged", "rewrite", "drop")
}

// A Plan is what is garbage in a store, and what becomes of its tars.
type Plan struct {
	Head Head
	Tars []TarPlan // as they were given: the newest first

	report func(tar string, p tarfile.Problem)
}

// A TarPlan is what becomes of one tar. Sizes are those of segments with their
// headers and zeros; Before is of all, After of what is not garbage.
type TarPlan struct {
	Tar
	Action           Action
	NewName          string // of a Rewrite
	Entries, Garbage int
	Before, After    int64

	// Why there is no graph, or there are no binary references, that Oak would take;
	// nil if they are sound. A Rewrite makes them anew.
	GraphDamage, BinariesDamage *tarfile.Error

	garbage bitmap
}

// IsGarbage reports whether entry i is garbage, which a tar that is kept still has.
func (t *TarPlan) IsGarbage(i int) bool { return t.garbage.has(i) }

// Keeps reports whether some tar has a segment as one that is not garbage.
func (p *Plan) Keeps(id tarfile.ID) bool {
	for i := range p.Tars {
		t := &p.Tars[i]
		if k, ok := t.Index().Find(id); ok && !t.garbage.has(k) {
			return true
		}
	}
	return false
}

// bitmap has a bit for each entry of an index.
type bitmap []uint64

func newBitmap(n int) bitmap    { return make(bitmap, (n+63)/64) }
func (b bitmap) has(i int) bool { return b[i/64]>>(i%64)&1 != 0 }
func (b bitmap) set(i int)      { b[i/64] |= 1 << (i % 64) }
func (b bitmap) unset(i int)    { b[i/64] &^= 1 << (i % 64) }

// Log makes of a gc.log the one that suits the store once the plan is carried out,
// and returns how many lines had to go: those whose root is garbage or in no tar, and
// those that cannot be read. By such a line Oak would take all that was compacted for
// garbage, or fail.
//
// A line for the newest revision is added, which head describes, where Oak would add
// one: if its generation is not that of the last line. Oak itself adds none in a
// cleanup by hand, after which the next collection removes what was compacted since
// the last line. A compacted revision that is the last line's root needs no other.
func (p *Plan) Log(old []byte, head repo.GC) (log []byte, gone int) {
	head.Generation.Gen, head.Generation.Full = p.Head.Gen, p.Head.Full
	var last repo.GC // as Oak has it: without one it is generation 0, which is not compacted
	for line := range bytes.Lines(old) {
		text := strings.TrimRight(string(line), "\r\n")
		l, err := repo.ParseGC(text)
		if err != nil || l.HasRoot && !p.Keeps(l.Root.Segment) {
			gone++
			continue
		}
		last = l
		log = append(append(log, text...), '\n')
	}
	if Lacks(last, head, p.Head.Compacted) {
		log = append(append(log, head.String()...), '\n')
	}
	return log, gone
}

// Lacks reports whether a gc.log that ends with last lacks a line for the newest revision,
// which may be compacted. Without any line last is zero.
func Lacks(last, head repo.GC, compacted bool) bool {
	return last.Generation != head.Generation || compacted && last.Root != head.Root
}
