package repo

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

func TestManifestIsReadAsJavaReadsProperties(t *testing.T) {
	for _, c := range []struct {
		text    string
		version int
		assumed bool
		bad     bool
	}{
		{"#Sat Nov 21 15:10:57 UTC 2026\nstore.version=2\n", 2, false, false},
		{"store.version=1", 1, false, false},
		{"store.version = 1\r\n", 1, false, false},
		{"  store.version:1\r", 1, false, false},
		{"store.version 1\n", 1, false, false},
		{"store.version\t=\f1\n", 1, false, false},
		{"store.\\\n   version=1\n", 1, false, false},
		{"store.\\\r\n   version=1\n", 1, false, false},
		{"store.\\u0076ersion=\\u0031\n", 1, false, false},
		{"store.version=1\nstore.version=2\n", 2, false, false},
		{"! store.version=1\n\n", 2, true, false},
		{"", 2, true, false},
		{"store.version=1 \n", 2, true, false}, // the blank belongs to the value
		{"store.version=one\n", 2, true, false},
		{"store.version\n", 2, true, false},
		{"store\\.version\\=1\n", 2, true, false},
		{"store.version=99999999999\n", 2, true, false},
		{"store.version=0\n", 0, false, true},
		{"store.version=-1\n", -1, false, true},
		{"store.version=3\n", 3, false, true},
		{"store.version=2\nx=\\u00g0\n", 2, true, true},
		{"store.version=2\nx=\\u00", 2, true, true},
	} {
		p, err := ReadManifest(t.Context(), object(t, []byte(c.text)))
		_, bad := errors.AsType[*Error](err)
		if err != nil && !bad {
			t.Fatal(err)
		}
		if p.Version != c.version || p.Assumed != c.assumed || bad != c.bad {
			t.Errorf("%q: %+v %v, expected %+v", c.text, p, err, c)
		}
	}
}

func TestManifestHasAllProperties(t *testing.T) {
	all, err := parseProperties([]byte("a=1\nb\\ c : d e \nlong=x\\\n \\\n  y\\\\\n\\:=\\t\\q\ntrail=\\"))
	want := map[string]string{"a": "1", "b c": "d e ", "long": "xy\\", ":": "\tq", "trail": ""}
	if err != nil || !reflect.DeepEqual(all, want) {
		t.Errorf("%q %v, expected %q", all, err, want)
	}
}

func TestManifestIsNoLongerThanMayBeBelieved(t *testing.T) {
	_, err := ReadManifest(t.Context(), object(t, []byte(strings.Repeat("#", maxManifest+1))))
	if _, ok := errors.AsType[*Error](err); !ok {
		t.Error(err)
	}
}

func TestManifestAndGCLogOfFixtures(t *testing.T) {
	testkit.Serial(t)
	fixtures(t, func(t *testing.T, st *storetest.Mem, want expected) {
		p, err := ReadManifest(t.Context(), opened(t, st, "segmentstore/manifest"))
		version := 2
		if strings.HasSuffix(t.Name(), "/v12") {
			version = 1
		}
		if err != nil || p.Assumed || p.Version != version {
			t.Errorf("%+v %v", p, err)
		}
		if want.GCLog == nil {
			return
		}
		var lines []string
		for g, err := range GCs(t.Context(), opened(t, st, "segmentstore/gc.log")) {
			if err != nil {
				t.Fatal(err)
			}
			again := fmt.Sprintf("%d,%d,%d,%d", g.RepoSize, g.Reclaimed, g.Millis, g.Generation.Gen)
			if g.HasRoot {
				again += fmt.Sprintf(",%d,%d,%s", g.Generation.Full, g.Nodes, g.Root)
			} else {
				again += fmt.Sprintf(",%d", g.Nodes)
			}
			if again != g.Text {
				t.Errorf("%q is read as %q", g.Text, again)
			}
			lines = append([]string{g.Text}, lines...)
		}
		if !reflect.DeepEqual(lines, want.GCLog) {
			t.Errorf("%q, expected %q", lines, want.GCLog)
		}
	})
}

func TestGCLogLinesHaveFiveToSevenFields(t *testing.T) {
	for s, want := range map[string]string{
		"1,2,3,4,5":                                          "1 2 3 4,4,false 5 false",
		"1,2,3,4,5," + someID + ":9":                         "1 2 3 4,4,false 5 true",
		"1,2,3,4,5,6," + someID + ".00000009":                "1 2 3 4,5,false 6 true",
		"1,2,3,4,5,6,00000000-0000-0000-0000-000000000000:0": "1 2 3 4,5,false 6 false",
	} {
		g, err := parseGC(s, 0)
		if got := fmt.Sprint(g.RepoSize, g.Reclaimed, g.Millis, g.Generation, g.Nodes, g.HasRoot); err != nil || strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
			t.Errorf("%s: %s %v, expected %s", s, got, err, want)
		}
	}
	for _, s := range []string{"", "1,2,3,4", "1,2,3,4,5,6,7,8", "1,2,3,4,x", "1,2,3,4,5,6", "1,2,3,4,5,6,7", "1,2,3,4294967296,5", " 1,2,3,4,5"} {
		_, err := parseGC(s, 42)
		if e, ok := errors.AsType[*Error](err); !ok || e.Offset != 42 || e.Text != s {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte("#Sat\nstore.version=2\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := ReadManifest(t.Context(), object(t, b)); err != nil {
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Error(err)
			}
		}
	})
}

func FuzzGCLog(f *testing.F) {
	f.Add("1,2,3,4,5,6," + someID + ":9")
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := parseGC(s, 0); err != nil {
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Error(err)
			}
		}
	})
}
