package holdall

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	_ "github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/internal/testkit"
	_ "github.com/holdall/holdall/store/local"
)

// missed returns the chance that none of n blocks out of all is one of the wrong ones, as a
// product of the chances of each draw.
func missed(all, wrong, n int64) float64 {
	p := 1.0
	for i := range n {
		p *= float64(all-wrong-i) / float64(all-i)
	}
	return max(p, 0)
}

func TestASampleIsAsLargeAsItMustBe(t *testing.T) {
	for _, c := range []struct {
		all              int64
		loss, confidence float64
	}{
		{1, 0.5, 0.9}, {10, 0.1, 0.95}, {100, 0.07, 0.99}, {1000, 0.01, 0.9999}, {1000, 1, 0.5}, {100_000, 0.001, 0.99}, {10_000, 1e-9, 0.999},
	} {
		wrong := int64(math.Ceil(c.loss*float64(c.all) - 1e-6))
		n := sampleOf(c.all, c.loss, c.confidence)
		if n < 1 || n > c.all || missed(c.all, wrong, n) > (1-c.confidence)*(1+1e-9) {
			t.Errorf("%v: %d blocks miss %d wrong ones with %g", c, n, wrong, missed(c.all, wrong, n))
		}
		if n > 1 && missed(c.all, wrong, n-1) <= (1-c.confidence)*(1-1e-9) {
			t.Errorf("%v: fewer than %d blocks would do", c, n)
		}
	}
	// Of many blocks it is the number that does not depend on how many there are.
	if n, want := sampleOf(400_000_000, 1e-4, 0.9999), math.Log(1e-4)/math.Log1p(-1e-4); math.Abs(float64(n)-want) > want/1000 {
		t.Errorf("%d blocks, expected about %.0f", n, want)
	}
	if n := sampleOf(0, 0.1, 0.9); n != 0 {
		t.Errorf("%d of no blocks", n)
	}
}

// Every block is chosen equally often, and exactly as many as are wanted.
func TestASampleIsFair(t *testing.T) {
	const all, want, rounds = 50, 20, 20_000
	times := make([]int, all)
	r := testkit.Rand(t)
	for range rounds {
		s, n := sampler{want, all, r}, 0
		for i := range times {
			if s.pick() {
				times[i]++
				n++
			}
		}
		if n != want {
			t.Fatalf("%d blocks of %d", n, want)
		}
	}
	p := float64(want) / all
	for i, n := range times {
		if off := math.Abs(float64(n)-rounds*p) / math.Sqrt(rounds*p*(1-p)); off > 6 {
			t.Errorf("block %d was chosen %d times, %.1f deviations away", i, n, off)
		}
	}
}

// If just the share that is to be found is wrong, as many samples find it as was promised.
func TestASampleFindsDamageAsOftenAsPromised(t *testing.T) {
	testkit.Long(t)
	const blocks, wrong, confidence, piece = 400, 8, 0.75, kept.MinChunk
	for _, indexed := range []bool{false, true} {
		t.Run(fmt.Sprintf("index %v", indexed), func(t *testing.T) {
			r := testkit.Rand(t)
			files, size, each := map[string]string{}, 600, 1
			if indexed { // files of several pieces
				size, each = 8*piece, 8
			}
			for i := range blocks / each {
				files[fmt.Sprintf("f%03d", i)] = string(testkit.Noise(r, size))
			}
			path := filepath.Join(t.TempDir(), "x.caf")
			if _, err := Pack(t.Context(), path, []string{testkit.Tree(t, t.TempDir(), files)}, PackOptions{}); err != nil {
				t.Fatal(err)
			}
			if indexed {
				if _, err := BuildIndex(t.Context(), path, path+kept.Suffix, IndexOptions{Chunk: piece}); err != nil {
					t.Fatal(err)
				}
			}
			b := testkit.Read(t, path)
			for _, i := range r.Perm(blocks)[:wrong] {
				b[i*size/each+size/each/2] ^= 1
			}
			fi, err := os.Stat(path)
			if err = errors.Join(err, os.WriteFile(path, b, 0o666), os.Chtimes(path, fi.ModTime(), fi.ModTime())); err != nil {
				t.Fatal(err)
			}
			o := VerifyOptions{OpenOptions: OpenOptions{Index: UseIndex{Beside: true}}}
			o.Sample.Loss, o.Sample.Confidence = float64(wrong)/blocks, confidence
			const rounds = 300
			found := 0
			var read int64
			for seed := range uint64(rounds) {
				o.Sample.Seed = seed + 1
				told := int64(0)
				sum, err := Verify(t.Context(), path, o, func(p Problem) { told++ })
				if err != nil {
					t.Fatal(err)
				}
				s := sum.Sampled
				if s.Of != blocks || s.Wrong != told || sum.Errors != told || (sum.Verdict() == "damaged") != (told > 0) || (s.Unit == "piece") != indexed {
					t.Fatalf("seed %d: %+v of %+v, %d problems", seed, s, sum, told)
				}
				if read = s.Read; told > 0 {
					found++
				}
			}
			p := 1 - missed(blocks, wrong, read)
			if off := math.Abs(float64(found)-rounds*p) / math.Sqrt(rounds*p*(1-p)); p < confidence || off > 5 {
				t.Errorf("%d of %d samples of %d blocks found damage, expected %.3f of them", found, rounds, read, p)
			}
			t.Logf("%d of %d samples of %d of %d blocks found %d wrong ones; promised %v, expected %.3f", found, rounds, read, blocks, wrong, confidence, p)
		})
	}
}

func TestASampleOfWhatHasNoDigestsProvesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.caf")
	if _, err := Pack(t.Context(), path, []string{testkit.Tree(t, t.TempDir(), map[string]string{"a": "abc", "empty": ""})}, PackOptions{Plain: true}); err != nil {
		t.Fatal(err)
	}
	o := VerifyOptions{}
	o.Sample.Loss, o.Sample.Confidence = 0.01, 0.99
	sum, err := Verify(t.Context(), path, o, func(Problem) {})
	if err != nil || sum.Verdict() != "unproven" || sum.Unproven != 1 || sum.Sampled.Of != 0 || sum.Bytes != 0 {
		t.Errorf("%v: %+v, %+v", err, sum, sum.Sampled)
	}
	o.Sample.Confidence = 1
	if _, err := Verify(t.Context(), path, o, func(Problem) {}); err == nil {
		t.Error("a sample proves nothing for certain")
	}
}
