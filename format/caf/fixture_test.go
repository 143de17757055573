package caf

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// expect is what the notes beside a fixture specify.
type expect struct {
	Open       string   `json:"open"`
	ErrorClass string   `json:"error_class"`
	Ends       string   `json:"ends"`
	Warnings   []string `json:"warnings"`
	Count      int      `json:"count"`
	AllRead    string   `json:"all_members_read"`
	Members    []member `json:"members"`
	Repairable any      `json:"repairable"`
	Repaired   []member `json:"members_after_repair"`
	Drift      int64    `json:"drift"`
}

type member struct {
	Name     string `json:"name"`
	NameHex  string `json:"name_hex"`
	Start    int64  `json:"start"`
	End      int64  `json:"end"`
	SHA256   string `json:"sha256"`
	Extract  string `json:"extract"`
	Read     string `json:"read"`
	Shadowed bool   `json:"shadowed"`
}

func (m member) bytes() string {
	if m.NameHex == "" {
		return m.Name
	}
	b, _ := hex.DecodeString(m.NameHex)
	return string(b)
}

// fixtures calls test for each archive with notes.
func fixtures(t *testing.T, test func(t *testing.T, archive []byte, want expect)) {
	const dir = "testdata/fixtures"
	for _, name := range testkit.Names(t, dir, ".expect.json", 65) {
		if strings.HasPrefix(name, "set-") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			var want expect
			testkit.JSON(t, filepath.Join(dir, name+".expect.json"), &want)
			test(t, testkit.Read(t, filepath.Join(dir, name+".caf")), want)
		})
	}
}

func mem(b []byte) store.Store {
	m := &storetest.Mem{}
	m.Put("x.caf", b)
	return m
}

func class(err error) string {
	if c, ok := errors.AsType[*format.CorruptError](err); ok {
		return c.Class
	}
	return "not a CorruptError"
}

// content reads an entry by its extents, as a naive reader would.
func content(t *testing.T, r format.Reader, e format.Entry, archive []byte) ([]byte, error) {
	t.Helper()
	var out []byte
	for x, err := range r.Extents(t.Context(), e, 0, e.Size) {
		if err != nil {
			return nil, err
		}
		if x.Off < 0 || x.Len < 0 || x.Off+x.Len > int64(len(archive)) {
			t.Fatalf("%q lies at %d+%d, outside %d bytes", e.Name, x.Off, x.Len, len(archive))
		}
		out = append(out, archive[x.Off:x.Off+x.Len]...)
	}
	return out, nil
}

func sha(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

func TestFixturesReadAsTheReferenceDoesOrBetter(t *testing.T) {
	testkit.Serial(t)
	fixtures(t, func(t *testing.T, archive []byte, want expect) {
		ctx := context.Background()
		r, err := open(ctx, mem(archive), "x.caf", format.OpenOptions{})
		if want.Open == "error" {
			if err == nil {
				t.Fatalf("opens; want %s", want.ErrorClass)
			}
			if got := class(err); got != want.ErrorClass {
				t.Fatalf("class %s (%v), want %s", got, err, want.ErrorClass)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		about, err := r.About(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if got := about.Facts[0][1]; got != want.Ends {
			t.Errorf("ends %s, want %s", got, want.Ends)
		}
		n := 0
		for e, err := range r.Entries(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			n++
			if want.AllRead != "" && (e.Fault == nil || e.Fault.Class != want.AllRead) {
				t.Fatalf("%q: fault %v, want %s", e.Name, e.Fault, want.AllRead)
			}
		}
		live := slices.DeleteFunc(slices.Clone(want.Members), func(m member) bool { return m.Shadowed })
		if expected := max(want.Count, len(live)); n != expected {
			t.Errorf("%d entries, want %d", n, expected)
		}
		for _, m := range live {
			for _, few := range []bool{false, true} {
				e := lookup(t, archive, m.bytes(), few)
				if m.Read != "" {
					if e.Fault == nil || e.Fault.Class != m.Read {
						t.Errorf("%q: fault %v, want %s", m.Name, e.Fault, m.Read)
					}
					continue
				}
				b, err := content(t, r, e, archive)
				if err != nil {
					t.Errorf("%q: %v", m.Name, err)
				} else if e.Size != m.End-m.Start || sha(b) != m.SHA256 {
					t.Errorf("%q: %d bytes, sha256 %s; want %d, %s", m.Name, e.Size, sha(b), m.End-m.Start, m.SHA256)
				}
			}
			fault := naming.Fault(m.bytes())
			if m.Extract != "ok" && m.Extract != "name-conflict" && m.Read == "" && fault != m.Extract || m.Extract == "ok" && fault != "" {
				t.Errorf("%q: name fault %q, want %q", m.Name, fault, m.Extract)
			}
		}
	})
}

// lookup finds a name in a fresh reader, by searching or by loading.
func lookup(t *testing.T, archive []byte, name string, search bool) format.Entry {
	t.Helper()
	r, err := openReader(t.Context(), mem(archive), "x.caf", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.few = search
	e, err := r.Lookup(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestFixturesVerifyNamesWhatIsWrong(t *testing.T) {
	fixtures(t, func(t *testing.T, archive []byte, want expect) {
		found := map[string]bool{}
		err := verify(t.Context(), mem(archive), "x.caf", format.OpenOptions{}, func(p format.Problem) {
			found[p.Class] = true
			if p.Code == "" || p.Severity == 0 || p.Message == "" || p.Volume != "x.caf" {
				t.Errorf("incomplete problem %+v", p)
			}
			if p.Class != "gap" && p.Class != "shared" && p.Severity < format.Warning {
				t.Errorf("%s is only a note", p.Class)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		expected := map[string]bool{}
		for _, w := range want.Warnings {
			expected[w] = true
		}
		if want.Open == "error" {
			expected[want.ErrorClass] = true
		}
		for c := range expected {
			if !found[c] {
				t.Errorf("%s is not reported", c)
			}
		}
		for c := range found {
			if !expected[c] {
				t.Errorf("%s is reported and not there", c)
			}
		}
	})
}

// apply returns the archive with a plan applied.
func apply(t *testing.T, archive []byte, p format.Plan) []byte {
	t.Helper()
	var out bytes.Buffer
	at := int64(0)
	for _, e := range p.Edits {
		out.Write(archive[at:e.Off])
		if err := e.Write(&out); err != nil {
			t.Fatal(err)
		}
		at = e.Off + e.Len
	}
	out.Write(archive[at:])
	return out.Bytes()
}

func TestFixturesRepairToWhatCanBeSaved(t *testing.T) {
	fixtures(t, func(t *testing.T, archive []byte, want expect) {
		p, err := repair(t.Context(), mem(archive), "x.caf", format.OpenOptions{}, func(format.Problem) {})
		if want.Open == "error" && (want.Repairable == false || want.Repairable == nil && err != nil) {
			if err == nil {
				t.Fatalf("repaired, though there is nothing to go by: %v", p.Notes)
			}
			return
		}
		if want.Ends == "ambiguous" {
			if class(err) != "ambiguous-ends" {
				t.Fatalf("err %v, want ambiguous-ends", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if p.Partial != (len(p.Lost) > 0) {
			t.Errorf("partial %v, lost %q", p.Partial, p.Lost)
		}
		if want.Repairable == "partial" && !p.Partial {
			t.Error("not said to be partial")
		}
		fixed := apply(t, archive, p)
		if want.Drift == 0 {
			for _, m := range want.Repaired {
				r, err := open(t.Context(), mem(fixed), "x.caf", format.OpenOptions{})
				if err != nil {
					t.Fatal(err)
				}
				e, err := r.Lookup(t.Context(), m.bytes())
				if err != nil {
					t.Fatal(err)
				}
				b, err := content(t, r, e, fixed)
				if err != nil || sha(b) != m.SHA256 {
					t.Errorf("%q: %d bytes, %v", m.Name, len(b), err)
				}
			}
		}
		// What is left to complain about must not be new.
		before := map[string]bool{}
		verify(t.Context(), mem(archive), "x.caf", format.OpenOptions{}, func(p format.Problem) { before[p.Class] = true })
		err = verify(t.Context(), mem(fixed), "x.caf", format.OpenOptions{}, func(p format.Problem) {
			if !before[p.Class] && p.Class != "gap" && p.Class != "tail-gap" || strings.HasPrefix(p.Class, "range-") || p.Class == "trailing-comma" {
				t.Errorf("after repair: %s: %s", p.Class, p.Message)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		again, err := repair(t.Context(), mem(fixed), "x.caf", format.OpenOptions{}, func(format.Problem) {})
		if err != nil || len(again.Edits) > 0 {
			t.Errorf("a second repair finds work: %v, %v", again.Notes, err)
		}
	})
}
