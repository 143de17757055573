package main

import (
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) browseCommand() *cobra.Command {
	o := serving{addr: "127.0.0.1:0", maxRequests: 512, maxOpen: 32, browse: true}
	cmd := &cobra.Command{
		Use:   "browse ARCHIVE|FOLDER|PREFIX...",
		Short: "Look into archives in a browser",
		Long: `Opens the explorer in the system's browser: what is in archives, where it lies,
and what is wrong with it. It is served at a free port of this machine, to who
knows the address only, until this is interrupted.

$HOLDALL_BROWSER, or else $BROWSER, is the browser to start; none starts none.`,
		Example: `  holdall browse docs.caf
  holdall browse /data/archives
  HOLDALL_BROWSER=none holdall browse docs.caf`,
		Args: args(1, -1, "an archive"),
		RunE: run(func(ctx context.Context, args []string) error {
			o.token = rand.Text()
			return a.serve(ctx, args, o)
		}),
	}
	cmd.Flags().BoolVar(&o.files, "files", false, "the files of a folder that is no archive, not the archives in it")
	return cmd
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
