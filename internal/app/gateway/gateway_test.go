package gateway

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/survey"
	"github.com/holdall/holdall/internal/app/fleet"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	_ "github.com/holdall/holdall/store/all"
	"github.com/holdall/holdall/store/local"
)

// A world is a folder with one bucket, and what should be in it.
type world struct {
	t   *testing.T
	st  store.Store
	dir string
	set *serve.Set
	g   *Gateway
	b   serve.Bucket
	is  map[string]entry

	there bool
	only  string

	log, address string
	through      string
	adopt        bool
	source       *originals
}

type entry struct {
	data    string
	headers map[string]string
}

func (e entry) etag() string {
	sum := md5.Sum([]byte(e.data))
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

func newWorld(t *testing.T, there bool) *world {
	w := &world{t: t, dir: t.TempDir(), is: map[string]entry{}, there: there, only: "b"}
	st := local.New(w.dir)
	w.st = st
	c, err := book.Create(t.Context(), st, "b.catalog")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	w.start()
	t.Cleanup(func() { w.end() })
	return w
}

func (w *world) start() {
	w.t.Helper()
	w.set = serve.NewSet(serve.SetOptions{})
	var err error
	if w.g, err = New(w.t.Context(), w.st, "", w.only, w.set, w.options()); err != nil {
		w.t.Fatal(err)
	}
	if w.b, err = w.g.Bucket(w.t.Context(), "b"); err != nil && w.log == "" {
		w.t.Fatal(err)
	}
}

func (w *world) options() Options {
	return Options{Log: cmp.Or(w.log, w.dir), Address: w.address, InBucket: w.there, Through: w.through, Adopt: w.adopt, Packing: func(ctx context.Context, bucket string) (fleet.Packing, error) {
		return fleet.OfGateway(ctx, bucket, w.dir+"/"+bucket+".caf", 0)
	}, Find: func(*book.Book) Find {
		return func(_ context.Context, address string) (store.Store, string, error) {
			return w.st, strings.TrimPrefix(address, w.dir+"/"), nil
		}
	}, Source: func(context.Context, string) (store.Store, error) { return w.source, nil }}
}

func (w *world) end() {
	w.t.Helper()
	if w.set.Close(); w.g == nil {
		return
	}
	if err := w.g.Close(); err != nil {
		w.t.Error(err)
	}
}

func upload(e entry, c serve.Condition) *serve.Upload {
	return &serve.Upload{Body: bytes.NewReader([]byte(e.data)), Size: int64(len(e.data)), End: func() (string, map[string]string) { return e.etag(), e.headers }, If: c}
}

func (w *world) put(key string, e entry, c serve.Condition) error {
	_, err := w.b.Put(w.t.Context(), key, upload(e, c))
	if err == nil {
		w.is[key] = e
	}
	return err
}

func (w *world) remove(keys ...string) {
	w.t.Helper()
	var all []serve.Deletion
	for _, key := range keys {
		all = append(all, serve.Deletion{Key: key})
		delete(w.is, key)
	}
	if err := errors.Join(w.b.Delete(w.t.Context(), all)...); err != nil {
		w.t.Fatal(err)
	}
}

// look compares everything that the bucket has with what it should have.
func (w *world) look() {
	w.t.Helper()
	ctx := w.t.Context()
	a, err := w.set.Use(ctx, "b", "")
	if err != nil {
		w.t.Fatal(err)
	}
	defer a.Release()
	var names []string
	for e, err := range a.Keys(ctx, "", "") {
		if err != nil {
			w.t.Fatal(err)
		}
		names = append(names, e.Name)
	}
	if want := slices.Sorted(maps.Keys(w.is)); !slices.Equal(names, want) {
		w.t.Fatalf("lists %q, expected %q", names, want)
	}
	if w.source != nil {
		for key := range w.source.all {
			if _, err := a.Lookup(ctx, key); w.is[key].data == "" && errors.Is(err, fs.ErrNotExist) == slices.Contains(names, key) {
				w.t.Fatalf("%s: %v", key, err)
			}
		}
	}
	for key, is := range w.is {
		e, err := a.Lookup(ctx, key)
		if err != nil {
			w.t.Fatalf("%s: %v", key, err)
		}
		f, err := a.OpenEntry(ctx, e)
		if err != nil {
			w.t.Fatalf("%s: %v", key, err)
		}
		data, err := io.ReadAll(f)
		f.Close()
		headers := maps.Clone(e.Attr)
		delete(headers, kit.ETagAttr)
		if err != nil || string(data) != is.data || e.Attr[kit.ETagAttr] != is.etag() || !maps.Equal(headers, is.headers) && len(headers)+len(is.headers) > 0 {
			w.t.Fatalf("%s: %.40q %v %v, expected %.40q %v", key, data, e.Attr, err, is.data, is.headers)
		}
	}
}

func TestABucketKeepsWhatItIsGiven(t *testing.T) {
	for _, there := range []bool{false, true} {
		for _, source := range []bool{false, true} {
			t.Run(map[bool]string{false: "on a disk", true: "in the bucket"}[there]+map[bool]string{true: ", with a source"}[source], func(t *testing.T) { keeps(t, there, source) })
		}
	}
}

func keeps(t *testing.T, there, source bool) {
	rnd := testkit.Rand(t)
	w := newWorld(t, there)
	key := func() string { return fmt.Sprintf("%c/%d", 'a'+rnd.IntN(3), rnd.IntN(5)) }
	if source {
		all := map[string]entry{}
		for range 10 {
			all[key()] = random(rnd)
		}
		w.from(all)
	}
	for range testkit.Rounds(t, 60) {
		switch rnd.IntN(13) {
		case 12:
			w.forgets()
		case 0:
			w.remove(key())
		case 1:
			w.remove(key(), key(), key())
		case 2:
			if err := w.g.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		case 3:
			if rnd.IntN(2) == 0 {
				if err := w.g.Leave(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			w.end()
			w.adopt = source && rnd.IntN(2) == 0
			w.start()
		case 4:
			k := key()
			was, is := w.is[k]
			err := w.put(k, random(rnd), serve.Condition{NoneMatch: "*"})
			if is != errors.Is(err, serve.ErrCondition) || !is && err != nil {
				t.Fatalf("%s with %v: %v", k, was, err)
			}
		case 5:
			k := key()
			was, is := w.is[k]
			switch err := w.put(k, random(rnd), serve.Condition{Match: was.etag()}); {
			case is && err != nil, !is && !errors.Is(err, fs.ErrNotExist):
				t.Fatalf("%s with %v: %v", k, was, err)
			}
		case 6:
			k := key()
			was, is := w.is[k]
			err := w.b.Change(t.Context(), k, func(map[string]string) (map[string]string, error) {
				return map[string]string{"x-amz-tagging": "a=1"}, nil
			})
			if is != (err == nil) {
				t.Fatalf("%s with %v: %v", k, was, err)
			}
			if is {
				was.headers = map[string]string{"x-amz-tagging": "a=1"}
				w.is[k] = was
			}
		default:
			if err := w.put(key(), random(rnd), serve.Condition{}); err != nil {
				t.Fatal(err)
			}
		}
		w.look()
	}
}

func TestLargeObjectsHaveTheirHeaders(t *testing.T) {
	for _, there := range []bool{false, true} {
		w := newWorld(t, there)
		large := entry{data: strings.Repeat("text", large/4), headers: map[string]string{"content-type": "text/plain"}}
		if err := w.put("large", large, serve.Condition{}); err != nil {
			t.Fatal(err)
		}
		w.look()
		if err := w.put("large", large, serve.Condition{Match: large.etag()}); err != nil {
			t.Fatal(err)
		}
		if err := w.g.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.look()
	}
}

// An object that was packed without a digest, and has no ETag, has the one of its digest when its tags were changed.
func TestTagsGiveNoStrangeETags(t *testing.T) {
	for _, there := range []bool{false, true} {
		ctx, w := t.Context(), newWorld(t, there)
		w.end()
		var b bytes.Buffer
		in := tar.NewWriter(&b)
		if err := errors.Join(in.WriteHeader(&tar.Header{Name: "k", Size: 4, Mode: 0o644}), write(in, "text"), in.Close(), os.WriteFile(filepath.Join(w.dir, "x.tar"), b.Bytes(), 0o666)); err != nil {
			t.Fatal(err)
		}
		s, err := survey.Open(ctx, w.st, "x.tar", catalog.Archive{}, holdall.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := book.Open(ctx, w.st, "b.catalog", book.Options{Write: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Add(ctx, catalog.Addition{Archive: s.Archive, Rows: s.Rows(ctx, nil)}); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.In.Close(), c.Close()); err != nil {
			t.Fatal(err)
		}
		w.start()
		srv := w.server()
		for range 2 {
			if code, got := w.asked("PUT", srv.URL+"/b/k?tagging", "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>"); code != 200 {
				t.Fatal(code, got)
			}
			if _, got := w.asked("GET", srv.URL+"/b/k?tagging", ""); !strings.Contains(got, "<Value>b<") {
				t.Fatal(got)
			}
			answer, err := http.Get(srv.URL + "/b/k")
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			sum := blake3.Sum256([]byte("text"))
			if tag := serve.TagOf(blake3Of(sum)); err != nil || string(text) != "text" || answer.Header.Get("ETag") != tag {
				t.Fatal(answer.Header, tag, err)
			}
		}
		srv.Close()
	}
}

func write(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

func TestBucketsAreMadeAndRemoved(t *testing.T) {
	ctx, w := t.Context(), newWorld(t, false)
	w.end()
	w.only = ""
	w.start()
	if err := w.g.Make(ctx, "b"); !errors.Is(err, serve.ErrBucketExists) {
		t.Fatal(err)
	}
	before, began := files(t, w.dir), time.Now()
	for range 2 {
		if err := w.g.Make(ctx, "c"); err != nil {
			t.Fatal(err)
		}
		b, err := w.g.Bucket(ctx, "c")
		if err != nil {
			t.Fatal(err)
		}
		all, err := w.set.List(ctx)
		for _, x := range all {
			if x.Name == "c" && (x.ModTime.Before(began.Add(-time.Minute)) || x.ModTime.After(time.Now())) || err != nil {
				t.Fatal(x.ModTime, err)
			}
		}
		if _, err := b.Put(ctx, "k", upload(entry{data: "text"}, serve.Condition{})); err != nil {
			t.Fatal(err)
		}
		if err := w.g.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Put(ctx, "l", upload(entry{data: strings.Repeat("text", large)}, serve.Condition{})); err != nil {
			t.Fatal(err)
		}
		if err := w.g.Remove(ctx, "c"); !errors.Is(err, serve.ErrBucketNotEmpty) {
			t.Fatal(err)
		}
		if err := errors.Join(b.Delete(ctx, []serve.Deletion{{Key: "k"}, {Key: "l"}})...); err != nil {
			t.Fatal(err)
		}
		if err := w.g.Remove(ctx, "c"); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Put(ctx, "k", upload(entry{data: "text"}, serve.Condition{})); !errors.Is(err, serve.ErrNoArchive) {
			t.Fatal(err)
		}
		if _, err := w.set.Use(ctx, "c", ""); !errors.Is(err, serve.ErrNoArchive) {
			t.Fatal(err)
		}
		if after := files(t, w.dir); !slices.Equal(after, before) {
			t.Fatalf("left %q of %q", after, before)
		}
	}
	w.look()
	// A removal that was begun goes on when the bucket is made again.
	if err := w.g.Make(ctx, "c"); err != nil {
		t.Fatal(err)
	}
	w.end()
	c, err := book.Open(ctx, w.st, "c.catalog", book.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before = files(t, w.dir)
	marker := c.Marker().String()
	for _, x := range []struct {
		text string
		goes bool
	}{
		// An old one, and damaged ones, beside a catalogue that is good.
		{`{"marker":"` + marker[:len(marker)-1] + `","names":[]}`, false},
		{`{"marker":"` + strings.Replace(marker, "/0", "/1", 1) + `","names":[]}`, false},
		{`{"marker":"` + marker + `","names":[""]}`, false},
		{`{"marker":"` + marker + `","names":["b.catalog/head"]}`, false},
		{`[]`, false},
		{``, false},
		{`{"marker":"` + marker + `","names":["c-00000-1.caf"]}`, true},
	} {
		removed := filepath.Join(w.dir, "c.catalog.removed")
		if err := os.WriteFile(removed, []byte(x.text), 0o666); err != nil {
			t.Fatal(err)
		}
		g, err := New(ctx, w.st, "", "b", serve.NewSet(serve.SetOptions{}), w.g.o)
		if err != nil {
			t.Fatal(err)
		}
		g.only = ""
		if err := g.Make(ctx, "c"); x.goes != (err == nil) {
			t.Errorf("%s: %v", x.text, err)
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		if !x.goes {
			if err := os.Remove(removed); err != nil {
				t.Fatal(err)
			}
			if after := files(t, w.dir); !slices.Equal(after, before) {
				t.Errorf("%s: left %q of %q", x.text, after, before)
			}
		} else if now, err := book.Open(ctx, w.st, "c.catalog", book.Options{}); err != nil || now.ID() == c.ID() {
			t.Errorf("it is the old one: %v", err)
		}
	}
	w.start()
}

// What says that a bucket was removed may be damaged. Only that bucket cannot be used then.
func TestADamagedMarkerSetsItsBucketAside(t *testing.T) {
	ctx, w := t.Context(), newWorld(t, false)
	w.end()
	w.only = ""
	w.start()
	if err := w.g.Make(ctx, "bad"); err != nil {
		t.Fatal(err)
	}
	w.end()
	removed := filepath.Join(w.dir, "bad.catalog.removed")
	before := files(t, w.dir)
	for _, text := range []string{"", "{", "[]", "{}", `{"marker":"x"}`, strings.Repeat(" ", mostBegun)} {
		if err := os.WriteFile(removed, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		w.start()
		at := w.server()
		if err := w.put("k", entry{data: text}, serve.Condition{}); err != nil {
			t.Fatal(err)
		}
		w.look()
		for _, c := range [][2]string{{"GET", "/bad"}, {"GET", "/bad/k"}, {"PUT", "/bad/k"}, {"PUT", "/bad"}, {"DELETE", "/bad"}} {
			code, answer := w.asked(c[0], at.URL+c[1], "")
			if code != http.StatusInternalServerError || !strings.Contains(answer, "bad.catalog.removed is damaged") {
				t.Errorf("%.10q: %s: %d %s", text, c, code, answer)
			}
		}
		at.Close()
		if err := w.g.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		w.end()
	}
	if err := os.Remove(removed); err != nil {
		t.Fatal(err)
	}
	for _, name := range before {
		if _, err := os.Stat(name); err != nil && strings.Contains(name, "bad") {
			t.Error(err)
		}
	}
	w.start()
	if _, err := w.g.Bucket(ctx, "bad"); err != nil {
		t.Fatal(err)
	}
	w.look()
}

// server answers S3 clients.
func (w *world) server() *httptest.Server {
	return httptest.NewServer(serve.NewS3(serve.NewSite(w.set, serve.SiteOptions{}), serve.S3Options{Keeper: w.g}))
}

func (w *world) asked(method, url, body string) (code int, answer string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return a.StatusCode, string(b)
}

func TestOthersForwardToTheOwner(t *testing.T) {
	one := newWorld(t, false)
	first := one.server()
	one.end()
	one.address = first.URL
	one.start()
	first.Config.Handler = serve.NewS3(serve.NewSite(one.set, serve.SiteOptions{}), serve.S3Options{Keeper: one.g})
	two := &world{t: t, st: one.st, dir: one.dir, log: t.TempDir(), only: "b", is: map[string]entry{}}
	two.start()
	t.Cleanup(two.end)
	second := two.server()
	defer second.Close()
	for _, at := range []string{first.URL, second.URL} {
		if code, text := one.asked(http.MethodPut, at+"/b/"+at[len(at)-4:], at); code != http.StatusOK {
			t.Fatal(code, text)
		}
	}
	for _, at := range []string{first.URL, second.URL} {
		for _, of := range []string{first.URL, second.URL} {
			if code, text := one.asked(http.MethodGet, at+"/b/"+of[len(of)-4:], ""); code != http.StatusOK || text != of {
				t.Fatal(code, text)
			}
		}
	}
	// When the owner has left, another takes its place.
	if err := one.g.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.Close()
	one.end()
	one.g = nil
	if code, _ := one.asked(http.MethodGet, second.URL+"/b/x", ""); code != http.StatusServiceUnavailable {
		t.Fatal(code)
	}
	if code, text := one.asked(http.MethodGet, second.URL+"/b/"+first.URL[len(first.URL)-4:], ""); code != http.StatusOK || text != first.URL {
		t.Fatal(code, text)
	}
	if code, text := one.asked(http.MethodPut, second.URL+"/b/x", "y"); code != http.StatusOK {
		t.Fatal(code, text)
	}
}

func TestAWrittenCatalogueIsNotPlannedInto(t *testing.T) {
	w := newWorld(t, false)
	w.end()
	w.g = nil
	c, err := book.Open(t.Context(), w.st, "b.catalog", book.Options{Write: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = fleet.MakePlan(t.Context(), fleet.Fleet{Book: c}, fleet.Spec{Sources: []string{t.TempDir()}, Target: w.dir + "/c.caf"}, nil)
	if _, is := errors.AsType[*fleet.WrittenError](err); !is {
		t.Fatal(err)
	}
}

// files are the names below a folder.
func files(t *testing.T, dir string) (all []string) {
	if err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			all = append(all, name)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func random(rnd *rand.Rand) entry {
	e := entry{data: string(testkit.Noise(rnd, rnd.IntN(200)))}
	if rnd.IntN(2) == 0 {
		e.headers = map[string]string{"content-type": "text/plain"}
	}
	return e
}
