package rescue

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/testkit"
)

// TestRecoveryIsThatOfOakOrBetter recovers each tar of each fixture and compares
// what comes out with what Oak's opening of the store leaves.
func TestRecoveryIsThatOfOakOrBetter(t *testing.T) {
	actions, turned := map[Action]int{}, 0
	for _, name := range testkit.Names(t, testdata, ".tar.gz", 24) {
		t.Run(name, func(t *testing.T) {
			tars, want := tarsOf(t, name), expectation(t, name)
			m, known := newMemory(tars), sums(want, tars)
			loose := maps.Clone(known) // without those that Oak leaves damaged
			after := want.After.Tars
			if after == nil {
				after = want.Tars // it is sound
			}
			for _, number := range m.numbers() {
				p, e := m.survey(t, number, nil)
				actions[p.Action]++
				for _, x := range e.of(BitTurned) { // which Oak does not notice
					delete(loose, x.Segment.String())
					turned++
				}
				if lost := e.of(SegmentLost); len(lost) > 0 && name != "unclean-truncated" && name != "truncated-old-tar" && name != "two-letters" {
					t.Error(lost)
				}
				first := p.Sources[0].Name
				got := write(t, p, first)
				i := slices.IndexFunc(slices.Sorted(maps.Keys(after)), func(f string) bool { n, _, _ := tarfile.ParseName(f); return n == number })
				file := slices.Sorted(maps.Keys(after))[i]
				compare(t, file, readTar(t, got, first), after[file].tarball(t, known), loose)
			}
		})
	}
	t.Log(actions)
	if actions[Nothing] == 0 || actions[Tail] == 0 || actions[Rewrite] == 0 || turned != 2 {
		t.Error(actions, turned)
	}
}

// compare checks that all of Oak's segments are there and, if there are no others, that the parts
// are equal. sums has what is compared of segments.
func compare(t *testing.T, name string, got, want tarball, sums map[string]string) {
	t.Helper()
	for id := range want.Segments {
		if s, ok := got.Segments[id]; !ok || sums[id] != "" && s != sums[id] {
			t.Errorf("%s: %s is %q, expected %q", name, id, s, sums[id])
		}
	}
	if len(got.Segments) != len(want.Segments) {
		t.Logf("%s: %d segments, Oak has %d", name, len(got.Segments), len(want.Segments))
		return
	}
	if got.Index != want.Index && want.Index != "" {
		t.Errorf("%s: index\n%s, expected\n%s", name, got.Index, want.Index)
	}
	if got.Graph != want.Graph && want.Graph != "null" {
		t.Errorf("%s: graph\n%s, expected\n%s", name, got.Graph, want.Graph)
	}
	if got.Brf != want.Brf && want.Brf != "null" {
		t.Errorf("%s: binary references\n%s, expected\n%s", name, got.Brf, want.Brf)
	}
}

// TestALetterAloneIsRecoveredAsByAReadOnlyOpen has only the newest letter, as Oak when
// it opens a store to read.
func TestALetterAloneIsRecoveredAsByAReadOnlyOpen(t *testing.T) {
	n := 0
	for _, name := range testkit.Names(t, testdata, ".tar.gz", 24) {
		want, tars := expectation(t, name), tarsOf(t, name)
		known := sums(want, tars)
		for bak, w := range want.RoBak {
			n++
			file := bak[:len("data00000a.tar")]
			m := newMemory(tars)
			var e events
			p, err := Survey(t.Context(), []Source{m.source(t, file)}, nil, e.add)
			if err != nil {
				t.Fatal(err)
			}
			got := write(t, p, file)
			compare(t, name+"/"+file, readTar(t, got, file), w.tarball(t, known), known)
		}
	}
	if n == 0 {
		t.Error("no fixture")
	}
}

// TestSoundTarsAreWrittenAsTheyWere scans the intact tars of the fixtures without their tails.
// Each byte before the lists must be restored; the order of the lists is Oak's own.
func TestSoundTarsAreWrittenAsTheyWere(t *testing.T) {
	n := 0
	for _, name := range testkit.Names(t, testdata, ".tar.gz", 24) {
		for file, b := range tarsOf(t, name) {
			m := newMemory(map[string][]byte{file: b})
			number, _, _ := tarfile.ParseName(file)
			p, _ := m.survey(t, number, nil)
			if p.Action != Nothing {
				continue
			}
			n++
			layout, err := m.open(t, file).Layout(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			cut := newMemory(map[string][]byte{file: b[:layout.Segments.Len]})
			p, e := cut.survey(t, number, m.copies(t, -1))
			if p.Action != Tail || p.Keep != layout.Segments.Len || p.KeepOf != 0 {
				t.Errorf("%s/%s: %d, %d bytes kept; expected a tail behind %d; %v", name, file, p.Action, p.Keep, layout.Segments.Len, e)
			}
			got := write(t, p, file)
			a := got.bytes(t, file)
			if !bytes.Equal(a[:p.Keep], b[:p.Keep]) || len(a) != len(b) && m.open(t, file).Index().Version() == 2 {
				t.Errorf("%s/%s: %d bytes, expected %d", name, file, len(a), len(b))
			}
		}
	}
	if n < 20 {
		t.Errorf("%d tars", n)
	}
}
