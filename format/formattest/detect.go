package formattest

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

func testDescription(t *testing.T, s *suite) {
	f := s.f
	if f.Name == "" || f.Title == "" || f.Open == nil {
		t.Errorf("name %q, title %q, open %v: none may be missing", f.Name, f.Title, f.Open != nil)
	}
	if f.Name != strings.ToLower(f.Name) || strings.ContainsAny(f.Name, " /-_.") {
		t.Errorf("name %q is not one lower-case word", f.Name)
	}
	for _, ext := range f.Extensions {
		if !strings.HasPrefix(ext, ".") || ext != strings.ToLower(ext) {
			t.Errorf("extension %q is not a dot and lower-case letters", ext)
		}
	}
	if f.Chunked && (f.Create == nil || len(f.Extensions) == 0) {
		t.Error("chunked, but cannot create, or has no extension to number")
	}
	if p := f.Parts; p != nil && (p.Most < 1 || p.Object == nil || p.Decides == nil || p.Create == nil || p.Tries == nil || p.Open == nil || p.Merge == nil || p.Clear == nil) {
		t.Errorf("parts %+v: none may be missing", *p)
	}
	if plain := file("plain1", noise(1, 5000)); s.unfit(plain) {
		t.Errorf("it refuses a file of %d bytes called %q: %s", plain.Size, plain.Name, f.Refuses(plain.Entry))
	}
	for _, p := range f.Params {
		if p.Name == "" || p.For == 0 || p.Help == "" && p.Flag != "-" {
			t.Errorf("parameter %+v: expected a name, an operation and help", p)
		}
	}
	for _, op := range []format.Op{format.ToOpen, format.ToCreate} {
		if err := f.CheckParams(op, map[string]string{"no such parameter": ""}); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("an unknown parameter: %v", err)
		}
	}
}

// foreign returns files that are not archives of any of holdall's formats.
func foreign(t *testing.T, own string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{
		"empty": {},
		"text":  []byte(strings.Repeat("It was a dark and stormy night.\n", 100)),
		"json":  []byte(`{"format": "none", "files": {}}` + "\n"),
		"zeros": make([]byte, 10_000),
	}
	for i, n := range []int{1, 3, 4, 5, 16, 100, 4096, 70_000, 200_000} {
		all[fmt.Sprintf("%d random bytes", n)] = noise(uint64(i), n)
	}
	content := []byte(strings.Repeat("something to pack ", 1000))
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.Create("a")
	if err == nil {
		_, err = w.Write(content)
	}
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	all["zip"] = bytes.Clone(b.Bytes())
	b.Reset()
	g := gzip.NewWriter(&b)
	_, err = g.Write(content)
	if err = errors.Join(err, g.Close()); err != nil {
		t.Fatal(err)
	}
	all["gzip"] = bytes.Clone(b.Bytes())
	b.Reset()
	tw := tar.NewWriter(&b)
	err = tw.WriteHeader(&tar.Header{Name: "a", Mode: 0o644, Size: int64(len(content))})
	if err == nil {
		_, err = tw.Write(content)
	}
	if err = errors.Join(err, tw.Close()); err != nil {
		t.Fatal(err)
	}
	all["tar"] = bytes.Clone(b.Bytes())
	delete(all, own)
	return all
}

// probe returns the input of detection.
func probe(name string, objects map[string][]byte) format.Probe {
	b, ok := objects[name]
	if !ok {
		var names []string
		for _, n := range sortedNames(objects) {
			names = append(names, strings.TrimPrefix(n, name+"/"))
		}
		return format.Probe{Name: path.Base(name), Size: -1, Names: names}
	}
	return format.Probe{
		Name: path.Base(name), Size: int64(len(b)),
		Head: b[:min(len(b), kit.ProbeSize)], Tail: b[max(0, len(b)-kit.ProbeSize):],
	}
}

func testDetectForeign(t *testing.T, s *suite) {
	for what, b := range foreign(t, s.f.Name) {
		if m := s.f.Detect(probe("x", map[string][]byte{"x": b})); m != format.No {
			t.Errorf("%s: expected No, found %d", what, m)
		}
	}
	if m := s.f.Detect(format.Probe{Name: "x", Size: -1, Names: []string{"readme", "src/main.go"}}); m != format.No {
		t.Errorf("a folder of text: expected No, found %d", m)
	}
}

func testDetectOwn(t *testing.T, a *archive) {
	if a.f.Detect(probe(a.name, objects(t, a.st))) == format.No {
		t.Error("detect: found No")
	}
}

func testMissing(t *testing.T, s *suite) {
	st := &storetest.Mem{}
	if r, err := s.f.Open(t.Context(), st, "nothing", format.OpenOptions{}); err == nil {
		r.Close()
		t.Error("open: expected an error")
	} else if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open: expected fs.ErrNotExist, found %v", err)
	}
	for what, check := range s.checks() {
		if err := check(t.Context(), st, "nothing", func(format.Problem) {}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: expected fs.ErrNotExist, found %v", what, err)
		}
	}
}

// checks returns the Verify and Repair functions that the format has.
func (s *suite) checks() map[string]func(context.Context, store.Store, string, func(format.Problem)) error {
	all := map[string]func(context.Context, store.Store, string, func(format.Problem)) error{}
	if s.f.Verify != nil {
		all["verify"] = func(ctx context.Context, st store.Store, name string, report func(format.Problem)) error {
			return s.f.Verify(ctx, st, name, format.OpenOptions{}, report)
		}
	}
	if s.f.Repair != nil {
		all["repair"] = func(ctx context.Context, st store.Store, name string, report func(format.Problem)) error {
			_, err := s.f.Repair(ctx, st, name, format.OpenOptions{}, report)
			return err
		}
	}
	return all
}

func testNotAnArchive(t *testing.T, s *suite) {
	for what, b := range foreign(t, s.f.Name) {
		t.Run(what, func(t *testing.T) {
			st := &storetest.Mem{}
			st.Put("x", b)
			if s.survives(t, what, st, "x") {
				t.Errorf("%s opens", what)
			}
		})
	}
}
