package serve_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/internal/app/explore"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/internal/testkit"
	_ "github.com/holdall/holdall/store/all"
)

// siteOf serves an archive of a folder as docs.tar. api answers what the page asks.
func siteOf(t *testing.T, dir string) (site *serve.Site, api http.Handler) {
	t.Helper()
	testkit.Tree(t, dir, map[string]string{"a.txt": "hello, world", "d/b.html": "<p>b", "d/c-d": "1", "d/c/e": strings.Repeat("x", 1<<20), "d/ü & %": "odd", "empty": ""})
	archive := filepath.Join(t.TempDir(), "docs.tar")
	if _, err := holdall.Pack(t.Context(), archive, []string{dir}, holdall.PackOptions{Format: "tar"}); err != nil {
		t.Fatal(err)
	}
	set := serve.NewSet(serve.SetOptions{})
	t.Cleanup(set.Close)
	set.Add(serve.Source{Name: "docs.tar", Open: func(ctx context.Context, view string) (*holdall.Archive, string, error) {
		a, err := holdall.Open(ctx, archive, holdall.OpenOptions{View: view})
		return a, "1", err
	}})
	log := slog.New(slog.DiscardHandler)
	page := explore.New(set, explore.Options{Log: log})
	t.Cleanup(page.Close)
	return serve.NewSite(set, serve.SiteOptions{Log: log}), page
}

// run runs a program and returns what it says.
func run(t *testing.T, dir string, env []string, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestAnswersAreAsDescribed(t *testing.T) {
	python := testkit.Needs(t, "HOLDALL_SERVE_PYTHON")
	site, api := siteOf(t, t.TempDir())
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/") {
			api.ServeHTTP(w, r)
		} else { // without the page, / is a list
			site.ServeHTTP(w, r)
		}
	}))
	defer srv.Close()
	config, err := filepath.Abs("schemathesis.toml")
	if err != nil {
		t.Fatal(err)
	}
	out, err := run(t, t.TempDir(), nil, filepath.Join(filepath.Dir(python), "schemathesis"), "--config-file", config, "run", srv.URL+"/openapi.yaml",
		"--phases", "examples,coverage,fuzzing", "--max-examples", "25", "--seed", "1", "--request-timeout", "10")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(out, "23 selected / 23 total") {
		t.Errorf("not all were tried:\n%s", out)
	}
}

// rclone lists, compares and copies a bucket, with a signature and without.
func TestRcloneReadsBuckets(t *testing.T) {
	rclone := testkit.Program(t, "rclone")
	for _, key := range []serve.Key{{}, {ID: "me", Secret: "a secret of mine"}} {
		in := t.TempDir()
		site, _ := siteOf(t, in)
		srv := httptest.NewServer(serve.NewS3(site, serve.S3Options{Key: key}))
		config := filepath.Join(t.TempDir(), "rclone.conf")
		text := fmt.Sprintf("[h]\ntype = s3\nprovider = Other\nendpoint = %s\nforce_path_style = true\naccess_key_id = %s\nsecret_access_key = %s\n", srv.URL, key.ID, key.Secret)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		// It takes no certificates of the environment beside a transport of its own.
		env := []string{"AWS_CA_BUNDLE=", "RCLONE_CONFIG=" + config, "RCLONE_RETRIES=1", "RCLONE_LOW_LEVEL_RETRIES=1"}
		do := func(args ...string) string {
			t.Helper()
			out, err := run(t, "", env, rclone, args...)
			if err != nil {
				t.Errorf("rclone %s: %v\n%s", strings.Join(args, " "), err, out)
			}
			return out
		}
		if got := do("lsf", "h:"); got != "docs.tar/\n" {
			t.Errorf("buckets: %q", got)
		}
		if got := do("lsf", "h:docs.tar/d"); got != "b.html\nc/\nc-d\nü & %\n" {
			t.Errorf("keys: %q", got)
		}
		copied := t.TempDir()
		do("copy", "h:docs.tar", copied)
		for _, dir := range []string{in, copied} {
			do("check", "--download", "h:docs.tar", dir)
		}
		if out, err := run(t, "", env, rclone, "touch", "h:docs.tar/new"); err == nil {
			t.Errorf("it can be written to: %s", out)
		}
		srv.Close()
	}
}
