package holdall_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/internal/testkit"
)

// A damaged index is never worse than none. Each bit of the end of an index with digests is
// turned, where the digests are, and some of the others: every file of the sound archive is listed
// and read as it is, and a check finds no damage in it.
func TestNoBitOfAnIndexMakesASoundArchiveUnreadable(t *testing.T) {
	testkit.Serial(t)
	ctx, rnd := t.Context(), testkit.Rand(t)
	files := map[string]string{}
	for i := range 6 {
		files[fmt.Sprintf("d%d/f%d", i%2, i)] = string(testkit.Noise(rnd, 80))
	}
	for _, f := range []string{"caf", "lindi", "rvn", "zip", "tar"} {
		st := packedAs(t, f, nil, files)
		if _, err := holdall.BuildIndex(ctx, "x", "x"+kept.Suffix, holdall.IndexOptions{To: st, Chunk: 64 << 10, OpenOptions: holdall.OpenOptions{}.In(st)}); err != nil {
			t.Fatal(err)
		}
		sound := st.Get("x" + kept.Suffix)
		o := holdall.OpenOptions{Store: st, Index: holdall.UseIndex{Beside: true}}
		used := 0
		try := func(at, bit int) {
			damaged := bytes.Clone(sound)
			damaged[at] ^= 1 << bit
			st.Put("x"+kept.Suffix, damaged)
			bad := func(format string, args ...any) {
				t.Errorf("%s, bit %d of byte %d of %d: %s", f, bit, at, len(sound), fmt.Sprintf(format, args...))
			}
			a, err := holdall.Open(ctx, "x", o)
			if err != nil {
				bad("%v", err)
				return
			}
			defer a.Close()
			if a.Index().Used != "" {
				used++
			}
			listed := 0
			for e, err := range a.Entries(ctx) {
				if err != nil {
					bad("the list: %v", err)
				} else if _, ours := files[e.Name]; ours {
					listed++
				}
			}
			if listed != len(files) {
				bad("%d of %d files are listed", listed, len(files))
			}
			for name, want := range files {
				if got, err := a.Get(ctx, name, 1000); err != nil || string(got) != want {
					bad("%s: %d bytes, %v", name, len(got), err)
				}
			}
			if x := a.Index(); (x.Used == "") != (x.Ignored != "" && x.Why != nil) {
				bad("%+v", x)
			}
			if at%8 == bit {
				if _, err := holdall.Verify(ctx, "x", holdall.VerifyOptions{OpenOptions: o}, func(p holdall.Problem) {
					if p.Severity == format.Error {
						bad("verify: %s", p.Message)
					}
				}); err != nil {
					bad("verify: %v", err)
				}
			}
		}
		tail := len(sound) * 95 / 100
		for at := tail; at < len(sound); at++ {
			for bit := range 8 {
				try(at, bit)
			}
		}
		for range testkit.Rounds(t, 200) {
			try(rnd.IntN(tail), rnd.IntN(8))
		}
		t.Logf("%s: an index of %d bytes, used %d times", f, len(sound), used)
	}
}
