package rvn

import (
	"bytes"
	"math/rand/v2"
	"os"
	"regexp"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/internal/testkit"
)

// testedCompress is the version of the encoder for which the condition at openFrame was verified,
// with the contents in this file and others. Before you allow another version, read its encoders
// again: they may use repeated offsets in a sequence only after the first three of a block
// (canRepeat).
const testedCompress = "v1.20.3"

func TestTheEncoderIsTheOneThatWasTested(t *testing.T) {
	b, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`github\.com/klauspost/compress (\S+)`).FindSubmatch(b)
	if m == nil || string(m[1]) != testedCompress {
		t.Errorf("klauspost/compress is %s: sections were tested with %s only; see testedCompress", m[1], testedCompress)
	}
}

// adversarial are runs of content that begin with what an encoder would like to
// code as a repeated offset: of 1, 4 and 8, as it believes they are at the
// beginning, and of others.
func adversarial(rnd *rand.Rand) (all [][]byte) {
	for _, period := range []int{1, 2, 3, 4, 5, 7, 8, 12, 16, 100, 1000} {
		for _, lead := range []int{0, 1, 4, 8, 9, 33} {
			for _, n := range []int{5, 20, 300, 70_000} {
				b := make([]byte, 0, n+lead)
				for range lead {
					b = append(b, byte(rnd.Uint32()))
				}
				unit := make([]byte, period)
				for i := range unit {
					unit[i] = byte(rnd.Uint32())
				}
				for len(b) < n+lead {
					b = append(b, unit...)
				}
				all = append(all, b[:n+lead])
			}
		}
	}
	// Few symbols, so that any offset is a match for a few bytes.
	for _, symbols := range []int{1, 2, 3, 5} {
		for _, n := range []int{1, 2, 3, 10, 1000, 140_000} {
			b := make([]byte, n)
			for i := range b {
				b[i] = byte(rnd.IntN(symbols))
			}
			all = append(all, b)
		}
	}
	words := []string{"func ", "return ", "err ", "if ", "nil\n", "\t", "package ", "{\n", "}\n", "bytes"}
	for range 20 {
		var b bytes.Buffer
		for n := 1 + rnd.IntN(200_000); b.Len() < n; {
			b.WriteString(words[rnd.IntN(len(words))])
		}
		all = append(all, b.Bytes())
		noise := make([]byte, 1+rnd.IntN(150_000))
		for i := range noise {
			noise[i] = byte(rnd.Uint32())
		}
		all = append(all, noise)
	}
	return all
}

// A section is decoded correctly whatever precedes it.
func TestSectionsStandBehindAnyOthers(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	all := adversarial(rnd)
	d, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	alone, _ := codec.Lookup(codec.ZstdBlocks)
	for _, level := range []string{"", "fastest", "fast", "better", "best"} {
		t.Run("level "+level, func(t *testing.T) {
			if level == "better" || level == "best" {
				testkit.Long(t)
			}
			c, err := newCompressor(level, 1, 256<<10)
			if err != nil {
				t.Fatal(err)
			}
			defer c.close()
			made := make([][]byte, len(all))
			for i, content := range all {
				if made[i], err = c.section(0, nil, content); err != nil {
					t.Fatal(err)
				}
				if got, err := alone.Append(nil, made[i], len(content)); err != nil || !bytes.Equal(got, content) {
					t.Fatalf("section %d of %d bytes, alone: %v, or it differs", i, len(content), err)
				}
			}
			for round := range 6 {
				order := rnd.Perm(len(all))
				frame := frameHeader(windowLog(256 << 10))
				var want []byte
				for _, i := range order {
					frame = append(frame, made[i]...)
					want = append(want, all[i]...)
				}
				frame = append(frame, lastBlock...)
				got, err := d.DecodeAll(frame, nil)
				if err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				if !bytes.Equal(got, want) {
					at := 0
					for at < min(len(got), len(want)) && got[at] == want[at] {
						at++
					}
					off := 0
					for k, i := range order {
						if off += len(all[i]); at < off {
							t.Fatalf("round %d: section %d, of %d bytes, differs behind one of %d", round, k, len(all[i]), len(all[order[max(k-1, 0)]]))
						}
					}
					t.Fatalf("round %d: %d bytes, not %d", round, len(got), len(want))
				}
			}
		})
	}
}
