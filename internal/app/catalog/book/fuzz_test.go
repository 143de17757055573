package book

import (
	"testing"
	"time"

	"github.com/holdall/holdall/internal/app/catalog/rows"
)

// No object of a catalogue, whatever it says, does more than fail. The JSON in it and what follows are
// given apart, so that lengths and checksums are right.
func FuzzObjects(f *testing.F) {
	c := Commit{Catalog: "ID", Number: 2, Before: "00", Base: 1, Attempt: "x", Time: time.Unix(1, 0).UTC(), Add: []Archive{{Address: "./a.caf", Format: "caf", Size: 1}}, Drop: []ID{1 << 20}, Merged: []string{"runs/1-x+0"},
		Moved: []Move{{Old: "./a", New: "./b"}}, Runs: []RunRef{{Object: "runs/1-y", Summary: rows.Summary{Size: 100, Tail: 50, Rows: 1}}}}
	s := State{Catalog: "ID", Number: 1, Hash: "00", Archives: []Archive{{ID: 1 << 20, Address: "./a.caf"}}, Runs: []RunRef{{Object: "runs/1-x", Commit: 1, Summary: rows.Summary{Size: 60, Tail: 50}}}, Tails: []int{50}}
	for _, v := range []any{c, s, Record{Catalog: "ID", Commit: 1, Gone: []text{"./a.caf", "\xff"}}} {
		o, err := framed(Magic, v, nil)
		if err != nil {
			f.Fatal(err)
		}
		text, err := rows.Unpack(o[len(Magic)+4:len(o)-4], mostText)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, make([]byte, 50))
	}
	before := s
	before.number()
	f.Fuzz(func(t *testing.T, text, more []byte) {
		object := func(magic string) []byte { return frame(magic, rows.Pack(text), more) }
		if c, err := parseCommit(object(commitMagic), 2); err == nil {
			if n, err := before.after(c, "11"); err == nil {
				n.toMerge()
				if o, err := n.encode(1); err == nil {
					if _, err := parseState(o); err != nil {
						t.Fatalf("what was written cannot be read: %v", err)
					}
				}
			}
		}
		if s, err := parseState(object(Magic)); err == nil {
			s.moved("./a.caf", 0)
			s.archiveAt("./a.caf")
		}
		for _, gone := range []bool{false, true} {
			magic := map[bool]string{false: addedMagic, true: goneMagic}[gone]
			_, _ = parseRecord(object(magic), gone)
		}
	})
}
