package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/app/fixity"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/store"
)

// logJSON is the state of a log of checks.
type logJSON struct {
	Log string `json:"log"`
	fixity.Checked
}

// logged verifies an archive, and adds the result to a log. That an archive cannot be checked is a
// result, too.
func (a *app) logged(ctx context.Context, log, address string, o holdall.VerifyOptions) (bad bool, err error) {
	was, before := a.bound(ctx, address)
	sum, err := a.verify(ctx, address, o)
	if now, after := a.bound(ctx, address); err == nil && before == nil && !sum.BeingWritten {
		copied, differs := was.Is(now)
		if copied {
			differs = errors.New("it has another time")
		}
		if differs = cmp.Or(after, differs); differs != nil {
			err = fmt.Errorf("%w: %w", store.ErrChanged, differs)
		}
	}
	if ctx.Err() != nil {
		return false, err // nothing is known
	}
	l := fixity.Line{By: whoami(), Tool: "holdall " + versionString(), Archive: store.Redact(address), Size: was.Size, Modified: was.ModTime, Version: was.Version, Verdict: sum.Verdict(), Verified: sum}
	if err != nil {
		l.Verdict, l.Error = "error", err.Error()[:min(len(err.Error()), 1<<10)]
	}
	last, lerr := fixity.Append(ctx, log, l)
	if a.lastLine = cmp.Or(last, a.lastLine); lerr != nil {
		return false, errors.Join(err, lerr)
	}
	return sum.Errors+sum.Warnings > 0, err
}

// bound returns the current version of an archive.
func (a *app) bound(ctx context.Context, address string) (kept.Bound, error) {
	st, name, err := a.locateIn(ctx, address)
	if err != nil {
		return kept.Bound{}, err
	}
	return kept.Bind(ctx, st, name)
}

// whoami returns USER@HOST.
func whoami() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	return name + "@" + cmp.Or(host, "unknown")
}

// checkLog reports whether the lines of a log fit each other.
func (a *app) checkLog(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	c, err := fixity.Check(f)
	if err != nil {
		return err
	}
	a.tell(logJSON{path, c}, func() {
		if c.Wrong > 0 {
			fmt.Fprintf(a.out, "%s: line %d does not fit: %s\n", path, c.Wrong, c.Why)
			return
		}
		torn := ""
		if c.Torn > 0 {
			torn = fmt.Sprintf(", %s torn", count(c.Torn, "line"))
		}
		fmt.Fprintf(a.out, "%s: %s in order%s; the last line is %s\n", path, count(c.Lines, "line"), torn, cmp.Or(c.Last, "none"))
	})
	return answer(c.Wrong > 0)
}
