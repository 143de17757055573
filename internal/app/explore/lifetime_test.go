package explore_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/local"
)

// A shelf is a source of the archives in a folder. It counts how many are
// opened.
type shelf struct {
	dir    string
	stale  bool // the Mark of a source shows that its file was replaced
	opened atomic.Int64
}

func (s *shelf) mark(name string) string {
	info, err := os.Stat(filepath.Join(s.dir, name))
	if err != nil {
		return ""
	}
	return fmt.Sprint(info.Size(), info.ModTime().UnixNano())
}

func (s *shelf) list(context.Context) ([]serve.Source, error) {
	all, err := os.ReadDir(s.dir)
	var list []serve.Source
	for _, x := range all {
		name := x.Name()
		src := serve.Source{Name: name, Open: func(ctx context.Context, view string) (*holdall.Archive, string, error) {
			s.opened.Add(1)
			in, err := holdall.Open(ctx, name, holdall.OpenOptions{Store: local.New(s.dir), View: view, Formats: []*format.Format{caf.Format}})
			return in, s.mark(name), err
		}}
		if s.stale { // otherwise only reads show it
			src.Mark = s.mark(name)
		}
		list = append(list, src)
	}
	return list, err
}

// put writes an archive of one file: as a whole, or over the existing one.
func (s *shelf) put(t *testing.T, name, file, content string, whole bool) {
	t.Helper()
	b := packed(t, func(add func(name, content string)) { add(file, content) }).Get("x.caf")
	at := filepath.Join(s.dir, name)
	if whole {
		if err := os.WriteFile(at+".new", b, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(at+".new", at); err != nil {
			t.Fatal(err)
		}
	} else if err := os.WriteFile(at, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func shelved(t *testing.T, o serve.SetOptions) (*shelf, *site) {
	s := &shelf{dir: t.TempDir()}
	o.Log = slog.New(slog.DiscardHandler)
	set := serve.NewSet(o)
	set.AddFolder(serve.Folder{List: s.list, Every: 1})
	t.Cleanup(func() {
		if n := descriptors(t, s.dir); n != 0 {
			t.Errorf("%d descriptors are still open", n)
		}
	})
	return s, exploring(t, set)
}

func (s *site) content(name, path string) (int, string, string) {
	code, b, head := s.get("/api/content", "a", name, "path", path)
	return code, string(b), head.Get("Holdall-Archive")
}

func TestAReplacedArchiveIsOpenedAgain(t *testing.T) {
	src, s := shelved(t, serve.SetOptions{})
	src.stale = true
	src.put(t, "x.caf", "a", "the old one", true)
	code, text, was := s.content("x.caf", "a")
	if code != 200 || text != "the old one" || was == "" {
		t.Fatal(code, text, was)
	}
	each := descriptors(t, src.dir)
	s.check("x.caf")
	ask[struct{}](s, "/api/treemap", "a", "x.caf")
	src.put(t, "x.caf", "a", "and the new one", true)
	code, text, is := s.content("x.caf", "a")
	if code != 200 || text != "and the new one" || is == was {
		t.Errorf("%d %q, as %s after %s", code, text, is, was)
	}
	if p := ask[page](s, "/api/ls", "a", "x.caf"); p.Total != 1 || *p.Items[0].S != int64(len("and the new one")) {
		t.Errorf("it is listed as %+v", p)
	}
	if a := ask[struct{ Verify struct{ State string } }](s, "/api/archive", "a", "x.caf"); a.Verify.State != "none" {
		t.Errorf("a check of the old one is told: %+v", a)
	}
	if n := src.opened.Load(); n != 2 {
		t.Errorf("%d were opened", n)
	}
	testkit.Until(t, "the old one is closed", func() bool { return descriptors(t, src.dir) <= each })
	if err := os.Remove(filepath.Join(src.dir, "x.caf")); err != nil {
		t.Fatal(err)
	}
	if code, text, _ := s.content("x.caf", "a"); code != 404 {
		t.Errorf("one that is gone: %d %s", code, text)
	}
	testkit.Until(t, "it is released", func() bool { return descriptors(t, src.dir) == 0 })
}

// check runs a check of an archive to its end.
func (s *site) check(name string) {
	s.t.Helper()
	res, err := http.Post(s.srv.URL+"/api/verify?a="+name, "", nil)
	if err != nil || res.StatusCode != 200 {
		s.t.Fatal(res, err)
	}
	res.Body.Close()
	s.get("/api/verify", "a", name)
}

func TestAReadThatFindsAChangeOpensTheNewOne(t *testing.T) {
	src, s := shelved(t, serve.SetOptions{})
	src.put(t, "x.caf", "a", strings.Repeat("the old one ", 5000), false)
	if code, text, _ := s.content("x.caf", "a"); code != 200 || len(text) != 60_000 {
		t.Fatal(code, text)
	}
	each := descriptors(t, src.dir)
	src.put(t, "x.caf", "a", "short", false)
	if code, text, _ := s.content("x.caf", "a"); code != http.StatusConflict || !strings.Contains(text, `"changed"`) {
		t.Errorf("what is changed while it is open: %d %s", code, text)
	}
	if code, text, _ := s.content("x.caf", "a"); code != 200 || text != "short" {
		t.Errorf("asked again: %d %s", code, text)
	}
	if n := src.opened.Load(); n != 2 {
		t.Errorf("%d were opened", n)
	}
	testkit.Until(t, "the old one is closed", func() bool { return descriptors(t, src.dir) <= each })
}

func TestArchivesThatNobodyAsksAboutAreReleased(t *testing.T) {
	const n, most = 40, 3
	src, s := shelved(t, serve.SetOptions{MaxOpen: most})
	for i := range n {
		src.put(t, fmt.Sprintf("%02d.caf", i), "a", fmt.Sprint(i), true)
	}
	s.content("00.caf", "a")
	each := descriptors(t, src.dir) // of one archive
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range n {
				i := (i*7 + g*11) % n
				name := fmt.Sprintf("%02d.caf", i)
				if code, text, _ := s.content(name, "a"); code != 200 || text != fmt.Sprint(i) {
					t.Errorf("%s: %d %s", name, code, text)
				}
				if code, b, _ := s.get("/api/ls", "a", name); code != 200 {
					t.Errorf("%s: %d %s", name, code, b)
				}
				if code, b, _ := s.get("/api/archive", "a", name, "about", "yes"); code != 200 { // goes through it, too
					t.Errorf("%s: %d %s", name, code, b)
				}
			}
		})
	}
	all.Wait()
	testkit.Until(t, "all but a few are closed", func() bool { return descriptors(t, src.dir) <= most*each })
	// A check stays valid after the archive is released, because its bytes are the
	// same.
	s.check("01.caf")
	for i := 10; i < 10+2*most; i++ {
		s.content(fmt.Sprintf("%02d.caf", i), "a")
	}
	opened := src.opened.Load()
	if a := ask[struct {
		Verify struct{ State, Health string }
	}](s, "/api/archive", "a", "01.caf"); a.Verify.Health != "good" {
		t.Errorf("its check is %+v", a)
	}
	if src.opened.Load() != opened+1 {
		t.Error("it was not released")
	}
}

// descriptors returns how many files below a folder are open, or 0 if the
// system cannot report it.
func descriptors(t *testing.T, dir string) (n int) {
	if runtime.GOOS != "linux" {
		return 0
	}
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range all {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, dir) {
			n++
		}
	}
	return n
}

func TestIdleArchivesAreReleased(t *testing.T) {
	src, s := shelved(t, serve.SetOptions{Idle: 30 * time.Millisecond})
	src.put(t, "x.caf", "a", "x", true)
	for range 3 {
		_, _, was := s.content("x.caf", "a")
		testkit.Until(t, "it is released", func() bool { return descriptors(t, src.dir) == 0 })
		if _, _, is := s.content("x.caf", "a"); is != was {
			t.Errorf("the same bytes are told to be others: %s, then %s", was, is)
		}
	}
}

// TestACheckOfWhatIsReplacedFails checks that an archive that is replaced
// during a check is reported neither sound nor damaged.
func TestACheckOfWhatIsReplacedFails(t *testing.T) {
	src, s := shelved(t, serve.SetOptions{})
	src.stale = true
	files := func(seed byte) {
		b := packed(t, func(add func(name, content string)) {
			for i := range 400 {
				add(fmt.Sprintf("f%03d", i), strings.Repeat(string(rune(seed)), 200_000))
			}
		}).Get("x.caf")
		at := filepath.Join(src.dir, "x.caf")
		if err := os.WriteFile(at+".new", b, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(at+".new", at); err != nil {
			t.Fatal(err)
		}
	}
	files('a')
	res, err := http.Post(s.srv.URL+"/api/verify?a=x.caf", "", nil)
	if err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	res.Body.Close()
	if err := os.Remove(filepath.Join(src.dir, "x.caf")); err != nil {
		t.Fatal(err)
	}
	src.put(t, "x.caf", "a", "another", true)
	s.content("x.caf", "a")
	type state struct {
		Verify struct{ State, Health, Why string }
	}
	var a state
	testkit.Until(t, "the check ends", func() bool {
		a = ask[state](s, "/api/archive", "a", "x.caf")
		return a.Verify.State != "running"
	})
	if a.Verify.Health != "unknown" || a.Verify.State == "complete" {
		t.Errorf("it ends as %+v", a)
	}
}
