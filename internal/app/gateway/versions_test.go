package gateway

import (
	"crypto/md5"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/fleet"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/internal/testkit"
)

// versions reads all versions, and compares the newest with what there should be. It returns the ETags of the others
// by key and ID, and of the newest.
func (w *world) versions() map[string]string {
	w.t.Helper()
	a, err := w.set.Use(w.t.Context(), "b", "")
	if err != nil {
		w.t.Fatal(err)
	}
	defer a.Release()
	all, newest, last := map[string]string{}, map[string]string{}, ""
	for v, err := range w.b.Versions(w.t.Context(), "", "") {
		if err != nil {
			w.t.Fatal(err)
		}
		if v.Key < last || v.Newest == (v.Key == last) || v.Deleted && !v.Newest {
			w.t.Fatalf("%+v after %s", v, last)
		}
		if last = v.Key; v.Deleted {
			if _, is := w.is[v.Key]; is {
				w.t.Fatalf("%s: not deleted", v.Key)
			}
			continue
		}
		tag := v.Entry.Attr[kit.ETagAttr]
		if v.Newest {
			newest[v.Key] = tag
		}
		all[v.Key+" "+v.ID] = tag
		f, err := a.OpenEntry(w.t.Context(), v.Entry)
		if err != nil {
			w.t.Fatalf("%+v: %v", v, err)
		}
		data, err := io.ReadAll(f)
		f.Close()
		if is := fmt.Sprintf(`"%x"`, md5.Sum(data)); err != nil || is != tag {
			w.t.Fatalf("%+v: read %s, %v", v, is, err)
		}
	}
	for key, e := range w.is {
		if newest[key] != e.etag() {
			w.t.Fatalf("%s: the newest is %s, expected %s", key, newest[key], e.etag())
		}
	}
	if len(newest) != len(w.is) {
		w.t.Fatalf("%d of %d objects", len(newest), len(w.is))
	}
	return all
}

func (w *world) compact() error {
	b, err := book.Open(w.t.Context(), w.st, "b.catalog", book.Options{Write: true, Fresh: -1})
	if err != nil {
		return err
	}
	defer b.Close()
	plan, err := fleet.PlanNamed(w.t.Context(), b, "b")
	if err != nil {
		return err
	}
	f := fleet.Fleet{Book: b, Queue: &jobs{}}
	if _, err = fleet.Compact(w.t.Context(), f, plan, fleet.CompactOptions{Dead: 0.01, Yes: true}); err == nil {
		_, err = fleet.Work(w.t.Context(), f, fleet.WorkOptions{Tries: 1})
	}
	return err
}

func TestVersionsStayWhatTheyAre(t *testing.T) {
	for _, there := range []bool{false, true} {
		t.Run(map[bool]string{false: "on a disk", true: "in the bucket"}[there], func(t *testing.T) {
			rnd := testkit.Rand(t)
			w := newWorld(t, there)
			was := map[string]string{}
			fresh := map[string]bool{} // keys that were written since all was packed: what they replace then is gone at once
			old := 0
			for range testkit.Rounds(t, 80) {
				key, may := fmt.Sprint(rnd.IntN(4)), "" // the key of which one may go
				if fresh[key] && !there {
					may = key
				}
				var err error
				what := rnd.IntN(10)
				switch what {
				case 0:
					w.remove(key)
				case 1, 2:
					err = w.g.Flush(t.Context())
					clear(fresh)
				case 3:
					if _, is := w.is[key]; is {
						err = w.b.Change(t.Context(), key, func(h map[string]string) (map[string]string, error) { return w.is[key].headers, nil })
					}
				case 4:
					w.end()
					w.start()
				case 5:
					err = w.compact()
					w.end()
					w.start() // which sees it at once
				default:
					err = w.put(key, random(rnd), serve.Condition{})
				}
				if err != nil {
					t.Fatal(err)
				}
				if what == 0 || what == 3 || what > 5 {
					fresh[key] = true
				}
				now := w.versions()
				gone := 0
				for id, tag := range was {
					if is, has := now[id]; has && is != tag {
						t.Fatalf("%s was %s, and is %s", id, tag, is)
					} else if !has && !strings.HasPrefix(id, may+" ") {
						gone++
					} else if !has {
						may = ""
					}
				}
				if gone > 0 && what != 5 {
					t.Fatalf("%d: %d versions are gone: %v, then %v", what, gone, was, now)
				}
				was, old = now, old+len(now)-len(w.is)
			}
			if old == 0 {
				t.Error("there was no older version")
			}
		})
	}
}

// Versions are read over HTTP, before and after they are packed, and compacted.
func TestClientsReadVersions(t *testing.T) {
	w := newWorld(t, false)
	srv := w.server()
	defer srv.Close()
	for _, text := range []string{"one", "two"} {
		if err := w.put("k", entry{data: text}, serve.Condition{}); err != nil {
			t.Fatal(err)
		}
		if err := w.g.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ids := map[string]string{}
	for v, err := range w.b.Versions(t.Context(), "k", "k") {
		if err != nil {
			t.Fatal(err)
		}
		ids[v.Entry.Attr[kit.ETagAttr]] = v.ID
	}
	one, two := ids[entry{data: "one"}.etag()], ids[entry{data: "two"}.etag()]
	read := func(id string, code int, text string) {
		t.Helper()
		if is, got := w.asked("GET", srv.URL+"/b/k?versionId="+id, ""); is != code || !strings.Contains(got, text) {
			t.Errorf("%s: %d %s, expected %d %s", id, is, got, code, text)
		}
	}
	read("null", 200, "two")
	read(two, 200, "two")
	read(one, 200, "one")
	if code, got := w.asked("DELETE", srv.URL+"/b/k?versionId="+one, ""); code != http.StatusNotImplemented || !strings.Contains(got, "forget-object") {
		t.Error(code, got)
	}
	if err := w.put("k", entry{data: "three"}, serve.Condition{}); err != nil { // into the log
		t.Fatal(err)
	}
	read(two, 200, "two")
	if err := w.compact(); err != nil {
		t.Fatal(err)
	}
	w.end()
	w.start()
	srv = w.server()
	defer srv.Close()
	read(one, 404, "NoSuchVersion")
	read("null", 200, "three")
	if code, got := w.asked("DELETE", srv.URL+"/b/k?versionId=null", ""); code != http.StatusNoContent {
		t.Error(code, got)
	}
	read(two, 200, "two")
	read("null", 405, "MethodNotAllowed")
	if _, got := w.asked("GET", srv.URL+"/b?versions", ""); !strings.Contains(got, "<DeleteMarker><Key>k</Key><VersionId>null</VersionId><IsLatest>true</IsLatest>") {
		t.Error(got)
	}
}
