package journal

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/disktest"
)

// whole is a disk with a log of two segments that was closed, or left as a crash does.
func whole(t *testing.T, closed bool) *disktest.Disk {
	d := disktest.New(testkit.Rand(t))
	j, _, err := open(t.Context(), "log", d, Options{Room: 4096})
	must(t, err)
	for range 3 {
		must(t, j.Append([]*Record{record("a", strings.Repeat("content ", 90)), record("b", "x")}))
	}
	_, err = j.Roll()
	must(t, err)
	for range 3 {
		must(t, j.Append([]*Record{record("c", strings.Repeat("content ", 90)), record("d", "x")}))
	}
	if closed {
		must(t, j.Close())
	}
	d.Restart(false)
	return d
}

// files returns what all files have.
func files(d *disktest.Disk) map[string]string {
	all := map[string]string{}
	for name, n := range d.Names {
		all[name] = string(n.View)
	}
	return all
}

// Damage that a crash does not leave is an error that says what to do, and changes nothing. Only the last
// batch can be taken for one that was not acknowledged, and only if the log was not closed.
func TestDamageIsNotTakenForACrash(t *testing.T) {
	d := whole(t, false)
	all := files(d)
	rng := rand.New(rand.NewPCG(1, 2))
	first, second := nameOf(1), nameOf(2)
	try := func(name string, at int, last bool) {
		t.Helper()
		for n, content := range all {
			d.Names[n].View = []byte(content)
		}
		d.Restart(false)
		b := d.Names[name].View
		if b[at] ^= byte(1 + rng.IntN(255)); at >= len(b) {
			t.Fatal("outside")
		}
		damaged := files(d)
		_, segments, err := open(t.Context(), "log", d, Options{})
		if e, ok := errors.AsType[*format.CorruptError](err); ok && !last {
			if !strings.Contains(e.Error(), "holdall repair") || e.Volume == "" || !maps.Equal(files(d), damaged) {
				t.Fatalf("%s, byte %d: %v", name, at, err)
			}
			return
		}
		if err != nil {
			t.Fatalf("%s, byte %d: %v", name, at, err)
		}
		// The damage is in a content, which a reader compares, or in the last batch.
		wrong, rows := 0, 0
		for _, s := range segments {
			for r, err := range s.Rows(t.Context()) {
				must(t, err)
				rows++
				content := make([]byte, r.Size)
				_, err := s.ReadAt(content, r.Off)
				must(t, err)
				if want := all[name][min(r.Off, int64(len(all[name]))):]; s.Log().Number == map[string]int64{first: 1, second: 2}[name] && !strings.HasPrefix(want, string(content)) {
					wrong++
				}
			}
		}
		if rows != 12 && !(last && rows == 10) || wrong > 1 || rows == 12 && wrong == 0 {
			t.Fatalf("%s, byte %d: %d rows, %d wrong", name, at, rows, wrong)
		}
	}
	// Where the last batch begins.
	from := bytes.LastIndex([]byte(all[second]), []byte("\x89CAFbat1"))
	end := len(strings.TrimRight(all[second], "\x00"))
	for at := range all[first] {
		try(first, at, false)
	}
	for at := range end {
		try(second, at, at >= from)
	}
	// After a Close, nothing is taken for a batch that was not acknowledged.
	d = whole(t, true)
	all = files(d)
	for at := range end {
		try(second, at, false)
	}
	if n := len(all[second]); all[second][n-4:] != "\x00\x00\x00\x00" || !slices.Contains([]int{4, 5}, n-end) {
		t.Errorf("the log ends with %q", all[second][end:])
	}
}
