package main

import (
	"context"
	"crypto/rand"
	"errors"
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
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog/shelf"
	"github.com/holdall/holdall/internal/app/explore"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/internal/read/root"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

func (a *app) browseCommand() *cobra.Command {
	o := serving{addr: "127.0.0.1:0", maxRequests: 512, maxOpen: 32, browse: true}
	var static, single string
	cmd := &cobra.Command{
		Use:   "browse ARCHIVE|FOLDER|PREFIX...",
		Short: "Browse archives in a web browser",
		Long: `Opens the explorer in the system's browser. It shows the entries of archives,
the place of each byte, and any damage. It listens on a free port of this
machine until you interrupt the command. The address contains a token, and only
someone who has the address can read the archives. Other users of this machine
may see it in the command line of the browser.

$HOLDALL_BROWSER, or else $BROWSER, names the browser to start. The value none
starts no browser.

--static DIR writes a page into a folder instead, with an index that has digests
of all content. Copy the archive into the same folder. Any file server or bucket
that supports range requests can then serve the page. The browser compares each
piece of content with its digest. The page of a catalogue reads the archives
from where they lie beside it.

--single FILE writes one HTML file that contains the page, the index and the
archive, and can be opened from disk. The archive may have up to 64 MiB.

With --static and --single the exit code is 1 if some content is damaged.`,
		Example: `  holdall browse docs.caf
  holdall browse /data/archives
  holdall browse --static site docs.caf
  holdall browse --single docs.html docs.caf`,
		Args: args(1, -1, "an archive"),
		RunE: run(func(ctx context.Context, args []string) error {
			if static != "" || single != "" {
				switch {
				case single != "" && len(a.trusted) > 0:
					return usage("--trusted: a page that contains the archive contains the key, too: use --static")
				case static != "" && single != "":
					return usage("expected one of --static and --single")
				case len(args) != 1 || o.files:
					return usage("%s: expected one archive", map[bool]string{true: "--static", false: "--single"}[static != ""])
				case single != "":
					return a.singlePage(ctx, args[0], single)
				}
				return a.staticPage(ctx, args[0], static)
			}
			o.token = rand.Text()
			return a.serve(ctx, args, o)
		}),
	}
	cmd.Flags().StringVar(&static, "static", "", "write a page for any file server into this folder")
	a.forceFlag(cmd.Flags())
	cmd.Flags().StringVar(&single, "single", "", "write one HTML file that contains the page and the archive")
	cmd.Flags().BoolVar(&o.files, "files", false, "show the files of a plain folder, not the archives in it")
	return cmd
}

const kindOfPage = "a page of an archive"

// staticPage writes a page that shows an archive without a holdall server.
func (a *app) staticPage(ctx context.Context, address, dir string) error {
	st, name, err := a.locateIn(ctx, address)
	if err != nil {
		return err
	}
	// A page of ours in the folder has all other files with it.
	page, again := filepath.Join(dir, "index.html"), false
	ours := func(p format.Probe) bool { again = again || explore.IsPage(p); return again }
	if err := a.mayWrite(ctx, address, page, kindOfPage, ours); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	to, _, err := store.OpenAddress(ctx, filepath.Join(dir, "index.html"))
	if err != nil {
		return err
	}
	archive, chunk, also := path.Base(name), int64(pieceOfPage), "copy "+path.Base(name)+" there too"
	if s, is := st.(*shelf.Shelf); is { // it has digests, and its archives may be too many to read
		if len(a.trusted) > 0 {
			return usage("--trusted: the index in the page of a catalogue is not signed")
		}
		if err := s.Fix(ctx); err != nil {
			return err
		}
		if name == shelf.Tree {
			archive = path.Base(filepath.ToSlash(s.Called()))
		}
		chunk, also = 0, "it reads archives from where they lie beside the catalogue"
	}
	sum, err := a.staticIndex(ctx, st, name, to, archive+kept.Suffix, chunk)
	if err != nil {
		return err
	}
	var regions []byte // they are not signed
	if len(a.trusted) > 0 {
		err = a.signedIndex(ctx, st, name, to, archive, sum)
	} else {
		regions, err = a.regions(ctx, st, name)
	}
	if err != nil {
		return err
	}
	err = explore.Static(archive, regions, a.trusted, func(name string, content []byte) error {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := a.mayWrite(ctx, address, at, kindOfPage, ours); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		return writeFile(ctx, at, func(w io.Writer) error { _, err := w.Write(content); return err })
	})
	if err != nil {
		return err
	}
	a.say(pageJSON{filepath.Join(dir, "index.html"), archive, sum.Index}, "%s\n", fmt.Sprintf("%s: page for %s with %s; %s", dir, count(sum.Entries, "entry"), a.humanSize(sum.Index)+" of index", also))
	return answer(sum.Unproven > 0)
}

func (a *app) regions(ctx context.Context, st store.Store, name string) ([]byte, error) {
	in, err := a.openIn(ctx, st, name, a.openOptions())
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return explore.Regions(ctx, in)
}

// signedIndex returns an error unless the index of a page is one that a trusted key has signed. It puts the
// signature beside it.
func (a *app) signedIndex(ctx context.Context, st store.Store, name string, to store.Store, archive string, sum holdall.IndexSummary) error {
	s, _, file, err := root.Signed(ctx, st, name, a.trusted)
	if err == nil && (s.Archive == "" || s.Archive != sum.Archive) {
		err = errors.New("it is not what was signed")
	}
	if err != nil {
		return &holdall.UntrustedError{Archive: name, Err: err}
	}
	_, err = storekit.Write(ctx, to, archive+root.Suffix, func(w store.Writer) error {
		_, err := w.Write(file)
		return err
	})
	return err
}

type pageJSON struct {
	Page    string `json:"page"`
	Archive string `json:"archive"`
	Index   int64  `json:"index_bytes"`
}

// pieceOfPage is the length of the pieces of contents that a page compares.
const pieceOfPage = 256 << 10

// staticIndex writes an index with which a page reads an archive, and verifies
// what it shows.
func (a *app) staticIndex(ctx context.Context, st store.Store, name string, to store.Store, index string, chunk int64) (holdall.IndexSummary, error) {
	m := &holdall.Meter{}
	defer a.showProgress(m, "read")()
	return holdall.BuildIndex(ctx, name, index, holdall.IndexOptions{To: to, OpenOptions: a.openOptions().In(st), Chunk: chunk, Force: a.force, OnError: a.tellProblem, Meter: m})
}

// maxSingle is the largest archive that a page may contain.
const maxSingle = 64 << 20

func (a *app) singlePage(ctx context.Context, address, file string) error {
	if err := a.mayWrite(ctx, address, file, kindOfPage, explore.IsPage); err != nil {
		return err
	}
	in, err := a.openBare(ctx, address, a.view, false)
	if err != nil {
		return err
	}
	defer in.Close()
	if in.IsDir() {
		return fmt.Errorf("%s: expected an archive, found a folder", address)
	}
	if in.Format() == shelf.Format {
		return usage("--single: a page cannot contain the archives of a catalogue: use --static, with which it reads them")
	}
	st, name := in.Store(), in.Name()
	stored, err := in.StoredSize(ctx)
	if err != nil {
		return err
	}
	if stored > maxSingle {
		return fmt.Errorf("%s: the archive has %s, over the limit of %s for --single: use --static, which keeps the archive in a file of its own", address, a.humanSize(stored), a.humanSize(maxSingle))
	}
	dir, err := os.MkdirTemp("", "holdall-page-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	archive := path.Base(name)
	to, index, err := store.OpenAddress(ctx, filepath.Join(dir, "index"+kept.Suffix))
	if err != nil {
		return err
	}
	sum, err := a.staticIndex(ctx, st, name, to, index, pieceOfPage)
	if err != nil {
		return err
	}
	parts := []explore.Part{{Name: archive + kept.Suffix, Write: func(w io.Writer) error { return copyObject(ctx, w, to, index) }}}
	volumes, err := in.Volumes(ctx)
	if err != nil {
		return err
	}
	for _, v := range volumes {
		if below, ok := strings.CutPrefix(v, name); ok { // an index cannot refer to anything else
			parts = append(parts, explore.Part{Name: archive + below, Write: func(w io.Writer) error { return copyObject(ctx, w, st, v) }})
		}
	}
	regions, err := explore.Regions(ctx, in)
	if err != nil {
		return err
	}
	if err := writeFile(ctx, file, func(w io.Writer) error { return explore.Single(w, archive, regions, parts) }); err != nil {
		return err
	}
	a.say(pageJSON{file, archive, sum.Index}, "%s\n", fmt.Sprintf("%s: page with %s", file, count(sum.Entries, "entry")))
	return answer(sum.Unproven > 0)
}

func copyObject(ctx context.Context, w io.Writer, st store.Store, name string) error {
	o, info, err := storekit.OpenInfo(ctx, st, name)
	if err != nil {
		return err
	}
	defer o.Close()
	return storekit.CopyRange(ctx, w, o, 0, info.Size)
}

const noBrowser = "none"

// browsers returns the commands that may open a page, the preferred first.
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
		return [][]string{{"rundll32", "url.dll,FileProtocolHandler"}} // like "start", but without a shell
	}
	return [][]string{{"xdg-open"}, {"x-www-browser"}, {"wslview"}}
}

// browserArgs splits a command into words, unless the whole command is the
// name of a program.
func browserArgs(own string) []string {
	if _, err := exec.LookPath(own); err == nil {
		return []string{own}
	}
	return strings.Fields(own)
}

// openBrowser starts a browser. The browser continues after this program ends,
// and ignores Ctrl-C in the terminal.
func (a *app) openBrowser(ctx context.Context, url string) {
	const soon = 5 * time.Second // a command that fails has failed by then
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
		go func() { ended <- cmd.Wait() }() // do not wait: it runs as long as the user wants
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
	a.warn("cannot start a browser: open the address yourself")
}
