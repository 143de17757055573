package fleet

import (
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"encoding/csv"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest/s3test"
)

func (s *site) file(name, content string) string {
	s.T.Helper()
	path := filepath.Join(s.T.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		s.T.Fatal(err)
	}
	return path
}

// TestPlansAreMadeOfAListOfKeys checks that a list of keys need not be sorted,
// and that missing objects are reported.
func TestPlansAreMadeOfAListOfKeys(t *testing.T) {
	s := newSite(t)
	s.some(60, 3000)
	var lines []string
	for name := range s.Want { // in any order
		lines = append(lines, name)
	}
	s.put("a b+c%41\r", 7)
	s.S3.Put("from", "unlisted", []byte("x"))
	lines = append(lines, "a b+c%41\r", "", "gone/1", lines[0]+"\r", "gone/2", lines[1])
	var listing atomic.Bool
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("list-type") != "" && strings.HasPrefix(r.URL.Path, "/from") {
			listing.Store(true)
		}
		return false
	})
	with := spec
	with.List = s.file("keys", strings.ReplaceAll(strings.Join(lines, "\n"), "a b+c%41\r", "a b+c%41\r\r"))
	var missing []string
	with.Tell = func(path string, err error) { missing = append(missing, path) }
	p := s.plan(with)
	if p.Objects != 61 || p.Skipped != (Skipped{Vanished: 2, Doubles: 2}) || strings.Join(missing, " ") != "gone/1 gone/2" {
		t.Errorf("planned %+v, missing %q", p, missing)
	}
	if listing.Load() {
		t.Error("the source was listed")
	}
	s.work(WorkOptions{Workers: 2})
	s.Check()
	// By listing, these are the same versions, and the same plan.
	if p = s.plan(spec); p.Known != 61 || p.Objects != 1 {
		t.Errorf("listed %+v", p)
	}
	with.List = s.file("others", "unlisted\n")
	if e := s.dry(s.B, with, 0); e.Known != 1 || e.Objects != 0 || e.Requests.Get != 1 || e.Requests.List != 0 {
		t.Errorf("another list %+v", e)
	}
	other := with
	other.Exclude = []string{"x"}
	if _, err := MakePlan(t.Context(), s.f, other, nil); err == nil {
		t.Error("another setting is taken for another list")
	}
}

func TestPlansAreMadeOfLinesOfJSON(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(10, 3000)
	var b strings.Builder
	i := 0
	for name, content := range s.Want {
		switch i++; i % 3 {
		case 0:
			fmt.Fprintf(&b, `{"key":%q,"size":%d,"etag":"%x","last_modified":"2026-05-01T00:00:00Z"}`+"\n", name, len(content), md5.Sum(content))
		case 1:
			fmt.Fprintf(&b, `{"Key":%q,"Size":%d,"ETag":"\"%x\""}`+"\r\n\n", name, len(content), md5.Sum(content))
		default:
			fmt.Fprintf(&b, `{"key":%q}`+"\n", name)
		}
	}
	with := spec
	with.List = s.file("keys.jsonl", b.String())
	e := s.dry(s.B, with, 0)
	if e.Objects != 10 {
		t.Errorf("%+v", e)
	}
	s.S3.Took()
	s.plan(with)
	asked := 0
	for _, r := range s.S3.Took() {
		if strings.HasPrefix(r, "HEAD /from/") || strings.HasPrefix(r, "GET /from/data") {
			asked++
		}
	}
	if asked != 3 {
		t.Errorf("%d objects were asked for, of 3 of which not all is known", asked)
	}
	if p := s.plan(spec); p.Known != 10 {
		t.Errorf("listed %+v", p)
	}
	s.work(WorkOptions{})
	s.Check()
}

// TestListsAreNotBelieved checks that the values in a list are compared when
// the object is read.
func TestListsAreNotBelieved(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.put("x", 100)
	s.put("y", 100)
	with := spec
	with.List = s.file("keys.jsonl", `{"key":"x","size":99,"etag":"e"}`+"\n"+`{"key":"y","size":100,"etag":"another"}`)
	s.plan(with)
	s.work(WorkOptions{})
	if n := s.status().Left[Changed]; n != 2 {
		t.Errorf("%d objects have changed", n)
	}
	for _, bad := range []string{`{"key":"x","size":-1}`, `{"key":"x","size":1e40}`, `{"size":1}`, `{"key":""}`, `{"key":"x","etag":"a b"}`, "[", "{\"key\":\"\xff\"}",
		`{"key":"` + strings.Repeat("x", maxLine) + `"}`} {
		with.List = s.file("bad.jsonl", "{\"key\":\"y\"}\n"+bad)
		if _, err := MakePlan(t.Context(), s.f, with, nil); err == nil || !strings.Contains(err.Error(), "line 2") || !strings.Contains(err.Error(), "bad.jsonl") {
			t.Errorf("%.50s: %v", bad, err)
		}
	}
	with.Sources = []string{"s3://from", "s3://out"}
	if _, err := MakePlan(t.Context(), s.f, with, nil); err == nil {
		t.Error("a list of two sources")
	}
}

// TestObjectsOfAListThatAreRefused checks that one object to which access is
// refused is reported, and that the plan fails if all are.
func TestObjectsOfAListThatAreRefused(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(150, 100)
	var lines []string
	for name := range s.Want {
		lines = append(lines, name)
	}
	with := spec
	with.List = s.file("keys", strings.Join(lines, "\n")+"\n"+"\xff\n")
	refuse := lines[7]
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, refuse) && strings.HasPrefix(r.URL.Path, "/from/") {
			s3test.Refuse(w, r, http.StatusForbidden, "AccessDenied")
			return true
		}
		return false
	})
	if p := s.plan(with); p.Objects != 149 || p.Refused != 2 {
		t.Errorf("%+v", p)
	}
	refuse = ""
	with.Name = "all refused"
	with.Target = "s3://out/other.caf"
	if p, err := MakePlan(t.Context(), s.f, with, nil); err == nil || p.Objects != 0 {
		t.Errorf("all are refused: %+v, %v", p, err)
	}
}

// inventory writes an inventory in the form that S3 uses.
func (s *site) inventory(format, schema string, rows ...[]string) (manifest string) {
	var files []string
	for i, half := range [][][]string{rows[:len(rows)/2], rows[len(rows)/2:]} {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		for _, row := range half {
			for j, field := range row {
				if j > 0 {
					fmt.Fprint(z, ",")
				}
				fmt.Fprintf(z, `"%s"`, strings.ReplaceAll(field, `"`, `""`))
			}
			fmt.Fprint(z, "\n")
		}
		z.Close()
		key := fmt.Sprintf("lists/from/all/data/%d.csv.gz", i)
		s.S3.Put("out", key, b.Bytes())
		files = append(files, fmt.Sprintf(`{"key":%q,"size":%d,"MD5checksum":"%x"}`, key, b.Len(), md5.Sum(b.Bytes())))
	}
	text := fmt.Sprintf(`{"sourceBucket":"from","destinationBucket":"arn:aws:s3:::out","version":"2016-11-30","creationTimestamp":"1514944800000","fileFormat":%q,"fileSchema":%q,"files":[%s]}`,
		format, schema, strings.Join(files, ","))
	s.S3.Put("out", "lists/from/all/2026-05-01T01-00Z/manifest.json", []byte(text))
	return "s3://out/lists/from/all/2026-05-01T01-00Z/manifest.json"
}

const schema = "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag, StorageClass"

func (s *site) rows() (rows [][]string) {
	for name, content := range s.Want {
		rows = append(rows, []string{"from", url.QueryEscape(name), "v1", "true", "false", fmt.Sprint(len(content)), "2026-05-01T00:00:00.000Z", fmt.Sprintf("%x", md5.Sum(content)), "STANDARD"})
	}
	return rows
}

func TestPlansAreMadeOfAnInventory(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(40, 3000)
	s.put(`odd, "names" + ü%41`, 100)
	rows := s.rows()
	of := func(key, latest, deleted string) []string {
		return []string{"from", key, "v0", latest, deleted, "1", "", "e", ""}
	}
	rows = append(rows, of("data/000/00000", "false", "false"), of("deleted", "true", "true"), of("a/folder/", "true", "false"), of("packed/x", "true", "false"))
	rows[len(rows)-2][5] = "0"
	with := spec
	with.Exclude = []string{"packed/*"}
	with.Inventory = s.inventory("CSV", schema, rows...)
	s.S3.Took()
	p := s.plan(with)
	if p.Objects != 41 || p.Skipped != (Skipped{Older: 1, Deleted: 1, Markers: 1}) {
		t.Errorf("planned %+v", p)
	}
	for _, line := range s.S3.Took() {
		if strings.Contains(line, " /from") {
			t.Errorf("the source was asked: %s", line)
		}
	}
	s.work(WorkOptions{})
	s.Check()

	// For a folder of the bucket, and on a disk after it was downloaded.
	dir := t.TempDir()
	for _, name := range []string{"data/0.csv.gz", "data/1.csv.gz", "2026-05-01T01-00Z/manifest.json"} {
		at := filepath.Join(dir, "lists/from/all", name)
		os.MkdirAll(filepath.Dir(at), 0o700)
		os.WriteFile(at, s.S3.Get("out", "lists/from/all/"+name), 0o600)
	}
	below := Spec{Sources: []string{"s3://from/data/00*"}, Target: "s3://out/below.caf", Inventory: filepath.Join(dir, "lists/from/all/2026-05-01T01-00Z/manifest.json")}
	if p := s.plan(below); p.Objects != 40 || p.Outside != 3 {
		t.Errorf("of a folder %+v", p)
	}
	flat := t.TempDir()
	for _, name := range []string{"data/0.csv.gz", "data/1.csv.gz", "2026-05-01T01-00Z/manifest.json"} {
		os.WriteFile(filepath.Join(flat, filepath.Base(name)), s.S3.Get("out", "lists/from/all/"+name), 0o600)
	}
	below.Inventory = filepath.Join(flat, "manifest.json")
	if p := s.plan(below); p.Known != 40 {
		t.Errorf("beside its manifest %+v", p)
	}
}

func TestInventoriesThatAreWrongAreRefused(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(10, 300)
	with := spec
	refused := func(what, want string) {
		t.Helper()
		_, err := MakePlan(t.Context(), s.f, with, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	with.Inventory = s.inventory("ORC", schema, s.rows()...)
	refused("ORC", "ORC")
	if _, err := MakePlan(t.Context(), s.f, with, nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("ORC: %v", err)
	}
	with.Inventory = s.inventory("Parquet", "", s.rows()...)
	refused("CSV for Parquet", "data/0.csv.gz: Parquet: at ")
	with.Inventory = s.inventory("CSV", "Bucket, Size", s.rows()...)
	refused("no keys", "columns")
	with.Inventory = s.inventory("CSV", schema+", More", s.rows()...)
	refused("another number of columns", "line 1: expected 10 columns, found 9")
	rows := s.rows()
	rows[0][0] = "another"
	with.Inventory = s.inventory("CSV", schema, rows...)
	refused("another bucket in a row", "bucket")
	for column, bad := range map[int]string{1: "%zz", 5: "-1", 7: "a b"} {
		rows = s.rows()
		rows[7][column] = bad
		with.Inventory = s.inventory("CSV", schema, rows...)
		refused(bad, "data/1.csv.gz: line 3")
	}
	with.Inventory = s.inventory("CSV", schema, s.rows()...)
	s.S3.Rot("out", "lists/from/all/data/1.csv.gz", 4) // the time in gzip's header
	refused("a damaged file", "md5")
	with.Inventory = s.inventory("CSV", schema, s.rows()...)
	s.S3.Put("out", "lists/from/all/data/1.csv.gz", s.S3.Get("out", "lists/from/all/data/1.csv.gz")[:50])
	refused("a file that is too short", "bytes as in its manifest")
	with.Name, with.Sources = "other", []string{"s3://out"}
	with.Inventory = s.inventory("CSV", schema, s.rows()...)
	refused("another source", `inventory of bucket "from"`)
	with.Sources = []string{t.TempDir()}
	refused("a folder", "bucket of S3")
	if all, err := Plans(t.Context(), s.B); err != nil || len(all) != 0 {
		t.Errorf("plans of nothing are left: %v, %v", all, err)
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"sourceBucket":"b","fileFormat":"CSV","fileSchema":"Bucket, Key, Size","files":[{"key":"k","size":1,"MD5checksum":"d41d8cd98f00b204e9800998ecf8427e"}]}`))
	f.Add([]byte(`{"sourceBucket":"b","fileFormat":"ORC"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseManifest(b)
		if err != nil {
			return
		}
		if m.Bucket == "" || m.column("key") < 0 || m.column("key") >= len(m.columns) {
			t.Errorf("%+v", m)
		}
		for _, file := range m.Files {
			if at, err := beside("s3://out/a/manifest.json", file.Key); err == nil && !strings.HasPrefix(at, "s3://out/") {
				t.Errorf("%q is at %s", file.Key, at)
			}
		}
	})
}

func FuzzInventoryRow(f *testing.F) {
	f.Add(`"b","a%20b","","true","false","12","2026-05-01T00:00:00.000Z","e",""`)
	f.Add(`b,k,"a ""quoted"" one",`)
	f.Add(`"`)
	f.Fuzz(func(t *testing.T, line string) {
		fields, err := splitRow(line, nil)
		if strings.ContainsAny(line, "\r\n") || line == "" {
			return
		}
		want, werr := csv.NewReader(strings.NewReader(line)).Read()
		if (err == nil) != (werr == nil) || err == nil && strings.Join(fields, "\x00") != strings.Join(want, "\x00") {
			t.Errorf("%q: %q, %v; expected %q, %v", line, fields, err, want, werr)
		}
	})
}

func FuzzListedObject(f *testing.F) {
	f.Add([]byte(`{"key":"k","size":1,"etag":"e"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		name, size, version, err := parseObject(line)
		if err == nil && (size < -1 || size > maxListed || version != "" && (!strings.HasPrefix(version, `"`) || len(version) < 3)) {
			t.Errorf("%q: %q, %d, %q", line, name, size, version)
		}
	})
}
