package sweep

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

func TestLogIsBroughtInLine(t *testing.T) {
	s := newSample(testkit.Rand(t))
	line := func(gen string, p piece) string { return "9,8,7," + gen + ",6," + p.id.String() + ":3" }
	rest := "9,8,7,0,0,6," + "00000000-0000-0000-0000-000000000000:0"
	other := piece{id: randomID(testkit.Rand(t), true)}
	for _, compacted := range []bool{false, true} {
		s.head.gen.Compacted = compacted
		_, tars := s.store(t, "data00001a.tar")
		p := s.mark(t, tars, Options{Retain: 1})
		head := repo.GC{RepoSize: 100, Reclaimed: 50, Millis: 1000, Nodes: 4, Root: repo.Revision{Segment: s.head.id, Number: 3}}
		added := "100,50,1000,1,1,4," + s.head.id.String() + ":3"
		for _, c := range []struct {
			what     string
			old, new []string
			gone     int
		}{
			{"nothing", nil, []string{added}, 0},
			{"a line of another generation", []string{line("0,0", s.keep)}, []string{line("0,0", s.keep), added}, 0},
			{"a line that is garbage", []string{line("0,0", s.old)}, []string{added}, 1},
			{"a line that leads nowhere", []string{line("0,0", s.keep), line("1,1", other)}, []string{line("0,0", s.keep), added}, 1},
			{"a line without a root", []string{rest}, []string{rest, added}, 0},
			{"no line", []string{"", "nonsense"}, []string{added}, 2},
			{"the head's line", []string{line("1,1", s.head)}, []string{line("1,1", s.head)}, 0},
		} {
			old := ""
			for _, l := range c.old {
				old += l + "\n"
			}
			log, gone := p.Log([]byte(old), head)
			if want := strings.Join(c.new, "\n") + "\n"; string(log) != want || gone != c.gone {
				t.Errorf("%s: compacted %t: %q, %d gone, expected %q, %d", c.what, compacted, log, gone, want, c.gone)
			}
			again, gone := p.Log(log, head)
			if string(again) != string(log) || gone != 0 {
				t.Errorf("%s: compacted %t: the second time %q", c.what, compacted, again)
			}
			if crlf, _ := p.Log([]byte(strings.ReplaceAll(strings.TrimSuffix(old, "\n"), "\n", "\r\n")), head); string(crlf) != string(log) {
				t.Errorf("%s: with other ends of lines %q", c.what, crlf)
			}
		}
		// What is there of the same generation is enough, unless the head is compacted.
		same := line("1,1", s.keep) + "\n"
		want := same
		if compacted {
			want += added + "\n"
		}
		if log, _ := p.Log([]byte(same), head); string(log) != want {
			t.Errorf("compacted %t: %q, expected %q", compacted, log, want)
		}
	}
}

func TestLogsOfStores(t *testing.T) {
	for _, c := range []struct {
		name  string
		added bool
	}{
		{"gc-online", false},
		{"compacted-offline", true}, // by a program that writes no line
	} {
		dir := filepath.Join(unpack(t, c.name), "segmentstore")
		s := cleanup(t, dir, Options{})
		var old []byte
		if exists(filepath.Join(dir, "gc.log")) {
			old = storetest.Get(t, storeOf(dir), "gc.log")
		}
		want := string(old)
		root := s.root
		head := repo.GC{Millis: 5, Root: root}
		if c.added {
			head.Generation = tarfile.Generation{Gen: s.plan.Head.Gen, Full: s.plan.Head.Full}
			want += head.String() + "\n"
		}
		if log, gone := s.plan.Log(old, repo.GC{Millis: 5, Root: root}); string(log) != want || gone != 0 {
			t.Errorf("%s: %q, %d gone, expected %q", c.name, log, gone, want)
		}
	}
}
