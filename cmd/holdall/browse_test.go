package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/testkit"
)

// fakeBrowser FILE URL: writes its arguments and the response from the URL to
// FILE.
func fakeBrowser() {
	jar, err := cookiejar.New(nil)
	if err != nil {
		panic(err)
	}
	saw := browserSaw{Args: os.Args[1:]}
	client := &http.Client{Jar: jar}
	res, err := client.Get(os.Args[len(os.Args)-1])
	if err == nil {
		defer res.Body.Close()
		var body []byte
		body, err = io.ReadAll(res.Body)
		saw.Status, saw.At, saw.Body = res.StatusCode, res.Request.URL.String(), string(body)
	}
	if err == nil {
		res, err = client.Get(saw.At + "api/archives") // with the cookie alone
		if err == nil {
			defer res.Body.Close()
			saw.Asked = res.StatusCode
		}
	}
	if err != nil {
		saw.Body = err.Error()
	}
	b, err := json.Marshal(saw)
	if err != nil {
		panic(err)
	}
	if os.WriteFile(os.Args[1]+".new", b, 0o600) != nil || os.Rename(os.Args[1]+".new", os.Args[1]) != nil {
		os.Exit(3)
	}
}

type browserSaw struct {
	Args          []string
	Status, Asked int
	At, Body      string
}

func TestBrowseOpensTheExplorer(t *testing.T) {
	dir := toServe(t)
	fake, out := filepath.Join(dir, "fakebrowser"), filepath.Join(dir, "saw.json")
	if err := os.Symlink(os.Args[0], fake); err != nil {
		t.Skip(err)
	}
	t.Setenv("HOLDALL_BROWSER", fake+" "+out+" --new=%s")
	s := starting(t, "browse", filepath.Join(dir, "x.caf"))
	s.hasBegun(t)
	var saw browserSaw
	seen := func() {
		t.Helper()
		var b []byte
		testkit.Until(t, "a browser is started", func() (so bool) {
			var err error
			b, err = os.ReadFile(out)
			return err == nil
		})
		saw = browserSaw{}
		if err := json.Unmarshal(b, &saw); err != nil {
			t.Fatal(err)
		}
	}
	seen()
	if len(saw.Args) != 2 || saw.Args[1] != "--new="+s.explore {
		t.Errorf("it was started with %q, expected %s", saw.Args, s.explore)
	}
	// The page's URL does not work for the fake browser, but this one does.
	at, token, ok := strings.Cut(s.explore, "?token=")
	if !ok || len(token) < 26 || !strings.HasPrefix(at, "http://127.0.0.1:") {
		t.Fatalf("the address is %s", s.explore)
	}
	for path, want := range map[string]int{"": 401, "api/archives": 401, "f/x.caf/hello.txt": 401, "?token=" + token: 302, "?token=" + strings.ToLower(token): 401} {
		if answer, _ := fetch(t, at+path); answer.StatusCode != want {
			t.Errorf("%s: %s, expected %d", path, answer.Status, want)
		}
	}
	s.end(t)

	// With the address alone it gets in, and has a cookie from then on.
	if err := os.Remove(out); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOLDALL_BROWSER", "")
	t.Setenv("BROWSER", filepath.Join(dir, "nothing")+string(os.PathListSeparator)+fake+" "+out)
	s = starting(t, "browse", filepath.Join(dir, "x.caf"))
	s.hasBegun(t)
	if strings.HasSuffix(s.explore, token) {
		t.Error("the token is that of the one before")
	}
	seen()
	if len(saw.Args) != 2 || saw.Args[1] != s.explore || saw.Status != 200 || saw.Asked != 200 || !strings.Contains(saw.Body, "ui/app.js") || strings.Contains(saw.At, "token") {
		t.Errorf("it was started with %q and saw %+v", saw.Args, saw)
	}
	s.end(t)
}

func TestBrowseSaysWhereWithoutABrowser(t *testing.T) {
	dir := toServe(t)
	t.Setenv("HOLDALL_BROWSER", "none")
	s := starting(t, "browse", "--quiet", filepath.Join(dir, "x.caf"))
	s.hasBegun(t)
	if !strings.Contains(s.explore, "/?token=") {
		t.Errorf("it says %q", s.explore)
	}
	s.end(t)
	t.Setenv("HOLDALL_BROWSER", filepath.Join(dir, "nothing"))
	s = starting(t, "browse", filepath.Join(dir, "x.caf"))
	s.hasBegun(t)
	s.url(t)
	if line := <-s.stderr.to; line != "holdall: browse: cannot start a browser: open the address yourself" {
		t.Errorf("it says %q", line)
	}
	s.end(t)
}

func TestBrowsersAreChosen(t *testing.T) {
	for _, tt := range []struct {
		goos, own, all string
		want           [][]string
	}{
		{"linux", "", "", [][]string{{"xdg-open"}, {"x-www-browser"}, {"wslview"}}},
		{"darwin", "", "", [][]string{{"open"}}},
		{"linux", "a -b %s", "c", [][]string{{"a", "-b", "%s"}}},
		{"linux", "", "a -b" + string(os.PathListSeparator) + " c", [][]string{{"a", "-b"}, {"c"}}},
	} {
		env := map[string]string{"HOLDALL_BROWSER": tt.own, "BROWSER": tt.all}
		if got := browsers(tt.goos, func(k string) string { return env[k] }); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s, %v: %q, expected %q", tt.goos, env, got, tt.want)
		}
	}
}

// TestServeEndsQuietlyWhileItIsExplored checks that a server that ends during
// use by a browser logs no error.
func TestServeEndsQuietlyWhileItIsExplored(t *testing.T) {
	dir := toServe(t)
	big := filepath.Join(dir, "big")
	if err := os.Mkdir(big, 0o777); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		f, err := os.Create(filepath.Join(big, fmt.Sprint(i)))
		if err == nil {
			err = f.Truncate(64 << 20)
			f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	command(t, "pack", "-o", filepath.Join(dir, "big.caf"), big)
	s := startServing(t, filepath.Join(dir, "big.caf"))
	at := s.explore
	s.url(t)
	if answer, err := http.Post(at+"api/verify?a=big.caf", "", nil); err != nil || answer.StatusCode != 200 {
		t.Fatal(answer, err)
	} else {
		answer.Body.Close()
	}
	events, err := http.Get(at + "api/verify?a=big.caf") // progress is sent as events
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	if _, err := events.Body.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	fetch(t, at+"api/archive?a=big.caf") // starts the survey
	began := time.Now()
	s.end(t)
	if took := time.Since(began); took > shutdownGrace {
		t.Errorf("it ended after %v", took)
	}
	if text := s.stderr.String(); strings.Count(text, "\n") != 3 {
		t.Errorf("it says %s", text)
	}
}

func TestBrowseShowsWhatIsLeft(t *testing.T) {
	t.Setenv("HOLDALL_BROWSER", "none")
	dir := t.TempDir()
	for name, content := range map[string]string{"cut.caf": "no end of it", "empty.caf": "", "noise": strings.Repeat("no archive", 100)} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		s := starting(t, "browse", path)
		if line := <-s.stderr.to; !strings.HasPrefix(line, "holdall: browse: ") {
			t.Errorf("%s: it says %q", name, line)
		}
		s.hasBegun(t)
		at, token, _ := strings.Cut(s.explore, "?token=")
		if answer, body := fetch(t, at+"api/damage?a="+name, "Authorization", "Bearer "+token); answer.StatusCode != http.StatusOK || !strings.Contains(body, "happened") {
			t.Errorf("%s: %s %s", name, answer.Status, body)
		}
		if answer, _ := fetch(t, at+"f/"+name+"/", "Authorization", "Bearer "+token); answer.StatusCode != http.StatusInternalServerError {
			t.Errorf("%s: %s", name, answer.Status)
		}
		s.end(t)
	}
	var said bytes.Buffer
	if code := newApp(nil, io.Discard, &said).run(t.Context(), []string{"browse", filepath.Join(dir, "missing.caf")}); code == exitOK || !strings.Contains(said.String(), "missing.caf") {
		t.Errorf("%d: %s", code, &said)
	}
}
