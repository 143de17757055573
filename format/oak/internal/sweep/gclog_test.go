package sweep

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall/format/oak/internal/segment"
)

func TestLogLines(t *testing.T) {
	const root = "486aa03b-5c65-4d55-ad28-72210ab8c5e7:5"
	id, err := segment.ParseRecordID(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text string
		want LogLine
	}{
		{"100,20,1795220663942,3,1,77," + root, LogLine{100, 20, 1795220663942, 3, 1, 77, id}},
		{"100,20,1795220663942,3,77," + root, LogLine{100, 20, 1795220663942, 3, 3, 77, id}},
		{"100,20,1795220663942,3,77", LogLine{100, 20, 1795220663942, 3, 3, 77, segment.RecordID{}}},
		{"-1,-1,-1,0,0,-1,00000000-0000-0000-0000-000000000000:0", LogLine{-1, -1, -1, 0, 0, -1, segment.RecordID{}}},
	} {
		got, err := ParseLogLine(c.text)
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", c.text, got, err)
		}
		if strings.Count(c.text, ",") == 6 && got.String() != c.text {
			t.Errorf("%s: written as %s", c.text, got)
		}
		if got.HasRoot() != strings.Contains(c.text, root) {
			t.Errorf("%s: has a root: %t", c.text, got.HasRoot())
		}
	}
	for _, text := range []string{"", "1,2,3,4", "1,2,3,4,5,6,7,8", "x,2,3,4,5,6," + root, "1,2,3,4,5,6,x", "1,2,3,4294967296,5,6," + root, "1,2,3,4,5,9223372036854775808," + root} {
		if l, err := ParseLogLine(text); err == nil || !strings.HasPrefix(err.Error(), "gc.log: ") {
			t.Errorf("%q: %+v, %v", text, l, err)
		}
	}
}

func TestLogIsBroughtInLine(t *testing.T) {
	s := newSample(seeded(t))
	line := func(gen string, p piece) string { return "9,8,7," + gen + ",6," + p.id.String() + ":3" }
	rest := "9,8,7,0,0,6," + "00000000-0000-0000-0000-000000000000:0"
	other := piece{id: randomID(seeded(t), true)}
	for _, compacted := range []bool{false, true} {
		s.head.gen.Compacted = compacted
		_, tars := s.store(t, "data00001a.tar")
		p := s.mark(t, tars, Options{Retain: 1})
		head := LogLine{RepoSize: 100, ReclaimedSize: 50, Millis: 1000, Nodes: 4, Root: segment.RecordID{Segment: segment.ID(s.head.id), Number: 3}}
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
		s := cleanup(t, dir, Options{}, nil)
		var old []byte
		if exists(filepath.Join(dir, "gc.log")) {
			old = content(t, storeOf(dir), "gc.log")
		}
		want := string(old)
		head := LogLine{Millis: 5, Root: s.root}
		if c.added {
			head.Generation, head.Full = s.plan.Head.Gen, s.plan.Head.Full
			want += head.String() + "\n"
		}
		if log, gone := s.plan.Log(old, LogLine{Millis: 5, Root: s.root}); string(log) != want || gone != 0 {
			t.Errorf("%s: %q, %d gone, expected %q", c.name, log, gone, want)
		}
	}
}
