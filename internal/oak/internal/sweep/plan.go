package sweep

import (
	"bytes"
	"strings"

	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
)

// A Tar is an open tar of a store: for each number only the letter that is used.
type Tar struct {
	Name   string // without folder
	Number int
	Letter byte         // 'a' also if the name has none
	Object store.Object // the object of the tar
	*tarfile.Tar
}

// A Head is the segment of the newest revision, and its generation in the index.
type Head struct {
	Segment tarfile.ID
	tarfile.Generation
}

// Kind is the kind of the last compaction.
type Kind uint8

const (
	Full Kind = iota // or not known
	Tail
)

// Options are options of [Mark]. With the zero value, Mark works like Oak's offline cleanup, except
// for the root.
type Options struct {
	Kind   Kind
	Retain int // generations; 0 is 1, as in Oak's offline cleanup; online it is 2

	// Root is the segment of the newest root that is known to be intact. It is the head's, unless
	// a compaction has just been done. Compacted segments after it are garbage. Without Root,
	// none is garbage for that reason.
	Root *tarfile.ID
	// Keep reports whether a segment is to be kept although it is garbage. If it is nil, none is.
	// Segments to which only such a segment refers are still garbage.
	Keep func(tarfile.ID) bool
	// Taken reports whether a file of that name exists. If it is nil, there are only the tars. A
	// rewritten tar gets a letter after all others of its number.
	Taken func(name string) bool
	// Report is called for faults that are not errors. tar is the name of the tar.
	Report func(tar string, p tarfile.Problem)
}

type Action uint8

const (
	Keep           Action = iota + 1 // it has no garbage
	KeepGarbage                      // it has too little garbage: at most a quarter of the tar
	KeepLastLetter                   // no letter is left
	KeepDamaged                      // by its index it has segments that cannot be copied
	Rewrite                          // under the next letter, without the garbage
	Drop                             // it has only garbage
)

func (a Action) String() string {
	return segment.Word("Action", a, "", "keep", "keep-garbage", "keep-last-letter", "keep-damaged", "rewrite", "drop")
}

// A Plan describes the garbage in a store, and what is done with its tars.
type Plan struct {
	Head  Head
	Tars  []TarPlan // in the given order: the newest first
	Newer bool      // there is garbage of a newer generation than the head's

	report func(tar string, p tarfile.Problem)
}

// A TarPlan is the plan for one tar. Sizes are those of segments with their headers and zeros:
// Before is the size of all, After the size of those that are not garbage.
type TarPlan struct {
	Tar
	Action           Action
	NewName          string // of a Rewrite
	Entries, Garbage int
	Before, After    int64

	// Why Oak would not accept the graph or the binary references; nil if they are intact. A
	// Rewrite writes new ones.
	GraphDamage, BinariesDamage *tarfile.Error

	garbage tarfile.Bits
}

// IsGarbage reports whether entry i is garbage. A tar that is not rewritten still contains it.
func (t *TarPlan) IsGarbage(i int) bool { return t.garbage.Has(i) }

// Keeps reports whether any tar has the segment and it is not garbage there.
func (p *Plan) Keeps(id tarfile.ID) bool {
	for i := range p.Tars {
		t := &p.Tars[i]
		if k, ok := t.Index().Find(id); ok && !t.garbage.Has(k) {
			return true
		}
	}
	return false
}

// Removes reports whether entry i of a tar goes, and no other copy of it is kept.
func (p *Plan) Removes(tar, i int) bool {
	t := &p.Tars[tar]
	return t.IsGarbage(i) && (t.Action == Rewrite || t.Action == Drop) && !p.Keeps(t.Index().At(i).ID)
}

// Log converts a gc.log to one that matches the store after the plan has been applied. It returns
// how many lines were removed: those whose root is garbage or in no tar, and those that cannot be
// read. Because of such a line Oak would treat everything that was compacted as garbage, or fail.
//
// Log adds a line for the newest revision, which head describes, if Oak would add one: if its
// generation is not that of the last line. Oak itself adds none in a manual cleanup, and the next
// collection then removes what was compacted since the last line. A compacted revision that is
// the last line's root needs no other line.
func (p *Plan) Log(old []byte, head repo.GC) (log []byte, gone int) {
	head.Generation.Gen, head.Generation.Full = p.Head.Gen, p.Head.Full
	log, last, gone := Lines(old, p.Keeps)
	if Lacks(last, head, p.Head.Compacted) {
		log = append(append(log, head.String()...), '\n')
	}
	return log, gone
}

// Lines returns the lines of a gc.log that can be read and whose root is kept, the last of them, which
// is zero as in Oak if there is none, and how many others there are.
func Lines(old []byte, keeps func(root segment.ID) bool) (log []byte, last repo.GC, gone int) {
	for line := range bytes.Lines(old) {
		text := strings.TrimRight(string(line), "\r\n")
		l, err := repo.ParseGC(text)
		if err != nil || l.HasRoot && !keeps(l.Root.Segment) {
			gone++
			continue
		}
		last = l
		log = append(append(log, text...), '\n')
	}
	return log, last, gone
}

// Lacks reports whether a gc.log that ends with last lacks a line for the newest revision,
// which may be compacted. Without any line last is zero.
func Lacks(last, head repo.GC, compacted bool) bool {
	return last.Generation != head.Generation || compacted && last.Root != head.Root
}
