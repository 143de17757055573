package content

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/kept"
)

// What is compared when a range is read is the same in Go and in Python, which has a test of the
// same cases.
func TestRangesAreComparedAsInOtherReaders(t *testing.T) {
	b, err := os.ReadFile("testdata/proof.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Size, Chunk, Start, End int64
		Digest                  string
		Compared                []int64 // from, to; nil is nothing
	}
	if err := json.Unmarshal(b, &cases); err != nil || len(cases) < 10 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, c := range cases {
		s := &Source{}
		if c.Chunk > 0 {
			s.proven = &prover{x: &kept.Index{Head: kept.Head{Chunk: c.Chunk}}}
		}
		p := s.proof(Entry{Kind: format.File, Size: c.Size, Digest: format.Digest{Algo: c.Digest}})
		if p.Whole() != (c.Digest != "" || c.Chunk > 0) {
			t.Errorf("%+v: %+v", c, p)
		}
		var from, to int64 = -1, -1
		switch {
		case p.pieces:
			from, to = c.Start-c.Start%c.Chunk, min((c.End+c.Chunk-1)/c.Chunk*c.Chunk, c.Size)
		case p.whole, p.digest && c.End-c.Start == c.Size:
			from, to = 0, c.Size
		}
		if len(c.Compared) == 0 {
			c.Compared = []int64{-1, -1}
		} else if all := c.Start == 0 && c.End == c.Size; !all && !p.Parts {
			t.Errorf("%+v: its parts are not compared: %+v", c, p)
		}
		if from != c.Compared[0] || to != c.Compared[1] {
			t.Errorf("%+v: compares bytes %d to %d", c, from, to)
		}
	}
}
