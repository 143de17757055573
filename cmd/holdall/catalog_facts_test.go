package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest/s3test"
)

const aRecording = "../../internal/app/catalog/survey/testdata/recording.nwb"

// running returns a function that runs a command, which must end with that exit code.
func running(t *testing.T) func(code int, args ...string) (out, errs string) {
	return func(code int, args ...string) (string, string) {
		t.Helper()
		var out, errs bytes.Buffer
		if is := newApp(nil, &out, &errs).run(t.Context(), args); is != code {
			t.Fatalf("%v: exit code %d, expected %d: %s", args, is, code, errs.String())
		}
		return out.String(), errs.String()
	}
}

// Recordings of a bucket are read with few requests, and those that are known with none.
func TestRecordingsOfABucket(t *testing.T) {
	testkit.Serial(t)
	s := s3test.New("dandiset")
	srv := httptest.NewServer(s)
	defer srv.Close()
	s3test.Setenv(t, srv.URL)
	t.Setenv("HOLDALL_CATALOG", "s3://dandiset/all.catalog")
	content := testkit.Read(t, aRecording)
	for i := range 20 {
		s.Put("dandiset", fmt.Sprintf("sub-%02d/a b.nwb", i), content)
	}
	s.Put("dandiset", "sub-00/data.h5", testkit.Read(t, "../../format/hdf5/testdata/data.h5"))
	run := running(t)
	run(0, "catalog", "init")
	asked := func(of string) (n int) {
		for _, r := range s.Took() {
			if strings.Contains(r, of) {
				n++
			}
		}
		return n
	}
	asked("")
	out, errs := run(0, "catalog", "add", "--facts", "nwb", "s3://dandiset")
	if strings.Count(out, "added, 1 entry") != 20 || !strings.Contains(errs, "1 file left out, not NWB") {
		t.Errorf("%s%s", out, errs)
	}
	// Two to read it, one for its version afterwards, one for its parity, and one that records it beside.
	if n := asked("/sub-07/"); n != 5 {
		t.Errorf("%d requests for a recording", n)
	}
	if _, errs = run(0, "catalog", "add", "--facts", "nwb", "s3://dandiset/"); !strings.Contains(errs, "20 recordings unchanged") {
		t.Error(errs)
	}
	if n := asked("a%20b.nwb"); n != 0 {
		t.Errorf("%d requests for what is known", n)
	}
	// A recording that was cut off is not taken for a file of something else.
	s.Put("dandiset", "sub-99/cut.nwb", content[:5000])
	if _, errs = run(1, "catalog", "add", "--facts", "nwb", "s3://dandiset/sub-99/"); !strings.Contains(errs, "sub-99/cut.nwb: hdf5: ") {
		t.Error(errs)
	}
	s.Put("dandiset", "sub-03/a b.nwb", testkit.Read(t, "../../internal/app/explore/testdata/session.nwb"))
	if out, errs = run(0, "catalog", "add", "--facts", "nwb", "s3://dandiset/sub-00/", "s3://dandiset/sub-03"); !strings.Contains(errs, "1 recording unchanged") || !strings.Contains(out, "sub-03/a%20b.nwb: replaced") {
		t.Error(out, errs)
	}
	if out, _ = run(0, "catalog", "find", "--where", "device.manufacturer = nobody"); !strings.HasPrefix(out, "sub-03/a b.nwb: ") || strings.Count(out, "\n") != 1 {
		t.Error(out)
	}
	if out, _ = run(0, "catalog", "cat", "sub-04/a b.nwb"); out != string(content) {
		t.Errorf("%d bytes", len(out))
	}
	run(0, "catalog", "check")
}

// Facts that are damaged, or by other programs, fail by name. All others are found.
func TestOddFacts(t *testing.T) {
	dir := t.TempDir()
	db := filepath.Join(dir, "x.catalog")
	run := running(t)
	run(0, "catalog", "init", "--catalog", db)
	texts := map[string]string{
		"sound":  catalog.FactsText(`{"version":"2.7.0","session":{"lab":"A"},"newer":{"x":[1]},"series":[null,{"shape":[-5],"unit":"\u001b[2J"}]}`),
		"json":   catalog.FactsText("{"),
		"list":   catalog.FactsText("[]"),
		"number": catalog.FactsText(`{"version":5}`),
		"deep":   catalog.FactsText(strings.Repeat("[", 100_000)),
		"outer":  `{"nwb":`,
		"object": `{"nwb":{}}`,
	}
	a := newApp(nil, &bytes.Buffer{}, &bytes.Buffer{})
	a.catalog = db
	err := a.withCatalog(t.Context(), forWriting, func(c *book.Book) error {
		for name, text := range texts {
			at := catalog.FactsAt(name)
			if name == "sound" {
				at = "eeg:sound"
			}
			x := catalog.Archive{Address: filepath.ToSlash(filepath.Join(dir, name+".nwb")), Format: "hdf5", Size: 10, Version: "v", Facts: at}
			_, err := c.Add(context.Background(), catalog.Addition{Archive: x, Rows: func(yield func(catalog.Location, error) bool) {
				yield(catalog.Location{Path: name, Size: 10, Raw: true, HeaderText: text}, nil)
			}})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	out, errs := run(1, "catalog", "find", "--catalog", db, "--where", "session.lab = A")
	if out != "sound: 2 series\n" {
		t.Errorf("%q", out)
	}
	for name := range texts {
		if name != "sound" && strings.Count(errs, "holdall: find: "+name+": the facts in the catalogue cannot be read") != 1 {
			t.Errorf("%s is not named once: %s", name, errs)
		}
	}
	if out, _ = run(0, "ls", "--json", db); strings.Contains(out, `"nwb"`) || strings.Count(out, "\n") != len(texts) {
		t.Error(out)
	}
	run(0, "catalog", "export", "--catalog", db, "sqlite:"+filepath.Join(dir, "x.db"))
	if err := os.WriteFile(filepath.Join(dir, "sound.nwb"), testkit.Read(t, aRecording), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, errs = run(2, "catalog", "add", "--catalog", db, filepath.Join(dir, "sound.nwb")); !strings.Contains(errs, `does not know: "eeg:sound"`) {
		t.Error(errs)
	}
	if out, _ = run(1, "catalog", "check", "--catalog", db, filepath.Join(dir, "sound.nwb")); !strings.Contains(out, `does not know: "eeg:sound" [unreadable]`) {
		t.Error(out)
	}
}
