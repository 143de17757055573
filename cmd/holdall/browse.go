package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/app/explore"
	"github.com/holdall/holdall/store"
)

func (a *app) browseCommand() *cobra.Command {
	o := serving{addr: "127.0.0.1:0", maxRequests: 512, maxOpen: 32, browse: true}
	var static string
	cmd := &cobra.Command{
		Use:   "browse ARCHIVE|FOLDER|PREFIX...",
		Short: "Look into archives in a browser",
		Long: `Opens the explorer in the system's browser: what is in archives, where it lies,
and what is wrong with it. It is served at a free port of this machine, to who
knows the address only, until this is interrupted.

$HOLDALL_BROWSER, or else $BROWSER, is the browser to start; none starts none.

--static DIR writes a page into a folder instead, and an index with digests of
all contents. Put the archive there, too: then any server of files, or a bucket,
shows it, if it gives ranges. Each piece of a content is compared with its digest
in the browser.`,
		Example: `  holdall browse docs.caf
  holdall browse /data/archives
  HOLDALL_BROWSER=none holdall browse docs.caf
  holdall browse --static site docs.caf`,
		Args: args(1, -1, "an archive"),
		RunE: run(func(ctx context.Context, args []string) error {
			if static != "" {
				if len(args) != 1 || o.files {
					return usage("--static: expected one archive")
				}
				return a.staticPage(ctx, args[0], static)
			}
			o.token = rand.Text()
			return a.serve(ctx, args, o)
		}),
	}
	cmd.Flags().StringVar(&static, "static", "", "write a page for any server of files into this folder")
	cmd.Flags().BoolVar(&o.files, "files", false, "the files of a folder that is no archive, not the archives in it")
	return cmd
}

// staticPage writes a page that shows an archive without a server of ours.
func (a *app) staticPage(ctx context.Context, address, dir string) error {
	st, name, err := a.locate(ctx, address)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	to, _, err := store.OpenAddress(ctx, filepath.Join(dir, "index.html"))
	if err != nil {
		return err
	}
	archive := path.Base(name)
	m := &holdall.Meter{}
	stop := a.showProgress(m, "read")
	sum, err := holdall.BuildIndexStore(ctx, st, name, to, archive+holdall.IndexSuffix, holdall.IndexOptions{OpenOptions: a.openOptions(), Chunk: 256 << 10, NoTable: true, OnError: a.tellProblem, Meter: m})
	stop()
	if err != nil {
		return err
	}
	err = explore.Static(archive, func(name string, content []byte) error {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		return writeFile(ctx, at, func(w io.Writer) error { _, err := w.Write(content); return err })
	})
	if err != nil {
		return err
	}
	a.say(struct {
		Page    string `json:"page"`
		Archive string `json:"archive"`
		Index   int64  `json:"index_bytes"`
	}{filepath.Join(dir, "index.html"), archive, sum.Index}, "%s\n", fmt.Sprintf("%s: a page for %s with %s; put %s there, too", dir, count(sum.Entries, "entry"), a.humanSize(sum.Index)+" of index", archive))
	return answer(sum.Unproven > 0)
}

// noBrowser is what starts none.
const noBrowser = "none"

// browsers are the commands that may open a page, the first choice first.
func browsers(goos string, env func(string) string) (list [][]string) {
	if own := strings.TrimSpace(env("HOLDALL_BROWSER")); own != "" {
		return [][]string{browserArgs(own)}
	}
	if env("BROWSER") != "" {
		for own := range strings.SplitSeq(env("BROWSER"), string(os.PathListSeparator)) {
			if own = strings.TrimSpace(own); own != "" {
				list = append(list, browserArgs(own))
			}
		}
		return list
	}
	switch goos {
	case "darwin":
		return [][]string{{"open"}}
	case "windows":
		return [][]string{{"rundll32", "url.dll,FileProtocolHandler"}} // as "start", without a shell
	}
	return [][]string{{"xdg-open"}, {"x-www-browser"}, {"wslview"}}
}

// browserArgs are the words of a command, unless all of it is the name of a program.
func browserArgs(own string) []string {
	if _, err := exec.LookPath(own); err == nil {
		return []string{own}
	}
	return strings.Fields(own)
}

// openBrowser starts a browser. It does not end with this program, nor by the terminal's
// Ctrl-C.
func (a *app) openBrowser(ctx context.Context, url string) {
	const soon = 5 * time.Second // one that fails has done so
	for _, words := range browsers(runtime.GOOS, os.Getenv) {
		if words[0] == noBrowser {
			return
		}
		placed := false
		for i, w := range words {
			if strings.Contains(w, "%s") {
				words[i], placed = strings.ReplaceAll(w, "%s", url), true
			}
		}
		if !placed {
			words = append(words, url)
		}
		cmd := exec.Command(words[0], words[1:]...)
		alone(cmd)
		if err := cmd.Start(); err != nil {
			continue
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }() // not waited for: it goes on as long as its user likes
		select {
		case err := <-ended:
			if err != nil {
				continue
			}
		case <-time.After(soon):
		case <-ctx.Done():
		}
		return
	}
	a.warn("no browser could be started: open the address in one")
}
