package repairs_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store/storetest"
)

// An archive is taken whole out of an image that has other bytes around it, among them some with
// which an archive could begin, and out of two pieces.
func TestAnArchiveIsTakenOutOfAnImage(t *testing.T) {
	rnd := testkit.Rand(t)
	files := map[string]string{}
	for i := range 9 {
		files[fmt.Sprintf("d%d/f%d", i%2, i)] = string(testkit.Noise(rnd, 200+rnd.IntN(5000)))
	}
	for _, name := range []string{"x.caf", "x.lindi.tar", "x.rvn", "x.zip", "x.tar", "x.tar.zst", "x.tar.gz"} {
		t.Run(name, func(t *testing.T) {
			st := &storetest.Mem{}
			if _, err := pack.Pack(t.Context(), st, name, []string{testkit.Tree(t, t.TempDir(), files)}, pack.Options{}); err != nil {
				t.Fatal(err)
			}
			f := format.All().ByExtension(name)
			noise := func() []byte {
				b := testkit.Noise(rnd, 1000+rnd.IntN(1<<21))
				for _, m := range f.Marks {
					copy(b[rnd.IntN(len(b)-100):], m)
				}
				return b
			}
			image := slices.Concat(noise(), st.Get(name), noise())
			cut := rnd.IntN(len(image))
			for what, at := range map[string]int{"one": len(image), "two": cut} {
				in := &storetest.Mem{}
				in.Put("image", image[:at])
				o := holdall.RepairOptions{OpenOptions: holdall.OpenOptions{Store: in, Format: f.Name}, Image: true}
				if at < len(image) {
					o.Pieces = []string{filepath.Join(testkit.Tree(t, t.TempDir(), map[string]string{"rest": string(image[at:])}), "rest")}
				}
				plan, err := holdall.Repair(t.Context(), "image", o)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				out := &storetest.Mem{}
				if err := plan.ApplyStore(t.Context(), out, name); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if err := plan.Close(); err != nil {
					t.Error(err)
				}
				a, err := holdall.Open(t.Context(), name, holdall.OpenOptions{Store: out})
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				for name, want := range files {
					if got, err := a.Get(t.Context(), name, 1<<20); err != nil || string(got) != want {
						t.Errorf("%s: %s: %d bytes, %v", what, name, len(got), err)
					}
				}
				a.Close()
				if len(out.Get(name)) > len(st.Get(name))+2048 {
					t.Errorf("%s: %d bytes, it had %d", what, len(out.Get(name)), len(st.Get(name)))
				}
				if !bytes.Equal(in.Get("image"), image[:at]) {
					t.Errorf("%s: the image is changed", what)
				}
			}
		})
	}
}

// What is in front of an archive is a loss, unless it is an image. An archive that is only over a
// limit is not taken for what surrounds another one.
func TestWhatIsInFrontOfAnArchiveIsALoss(t *testing.T) {
	rnd := testkit.Rand(t)
	many := map[string]string{}
	for i := range 300 {
		many[fmt.Sprintf("a rather long name %03d", i)] = fmt.Sprint(i)
	}
	small, large := packedAs(t, "rvn", nil, map[string]string{"a": "b"}).Get("x"), packedAs(t, "rvn", nil, many).Get("x")
	st := &storetest.Mem{}
	st.Put("x", slices.Concat(testkit.Noise(rnd, 50), small))
	o := holdall.RepairOptions{OpenOptions: holdall.OpenOptions{Store: st, Format: "rvn"}}
	plan, err := holdall.Repair(t.Context(), "x", o)
	if err != nil || !plan.Partial || !slices.Contains(plan.Lost, "the 50 bytes before it") {
		t.Errorf("%+v, %v", plan, err)
	}
	if err == nil {
		plan.Close()
	}
	st.Put("x", slices.Concat(large, small))
	o.Limits.Index = 8 << 10
	if plan, err := holdall.Repair(t.Context(), "x", o); err == nil {
		t.Errorf("%q, %q", plan.Notes, plan.Lost)
		plan.Close()
	}
}

func TestWhatIsNoImageOfAnArchiveIsRefused(t *testing.T) {
	st := &storetest.Mem{}
	st.Put("image", testkit.Noise(testkit.Rand(t), 3<<20))
	for _, kind := range []string{"caf", "lindi", "rvn", "tar", ""} {
		_, err := holdall.Repair(t.Context(), "image", holdall.RepairOptions{OpenOptions: holdall.OpenOptions{Store: st, Format: kind}, Image: true})
		if err == nil {
			t.Errorf("%q: an archive of noise", kind)
		}
	}
}
