package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/read/root"
	"github.com/holdall/holdall/store"
)

// catalogAddress returns the address of the user's catalogue. usual is true if
// no address was given.
func (a *app) catalogAddress() (address string, usual bool, err error) {
	if named := cmp.Or(a.catalog, os.Getenv("HOLDALL_CATALOG")); named != "" {
		return named, false, nil
	}
	dir, err := dataFolder()
	return filepath.Join(dir, "default"+book.Suffix), true, err
}

// dataFolder returns where holdall keeps data of the user.
func dataFolder() (dir string, err error) {
	dir = os.Getenv("XDG_DATA_HOME")
	if !filepath.IsAbs(dir) { // the specification requires programs to ignore other paths
		if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
			dir, err = os.UserConfigDir() // on these systems it is for data, too
		} else if dir, err = os.UserHomeDir(); err == nil {
			dir = filepath.Join(dir, ".local", "share")
		}
	}
	return filepath.Join(dir, "holdall"), err
}

// shownCatalog returns an address of a catalogue for messages, without a
// password.
func shownCatalog(address string) string {
	return format.Escape(store.Redact(address))
}

type noCatalogError struct{ error }

func (e *noCatalogError) Unwrap() error { return e.error }

func (a *app) withCatalog(ctx context.Context, o access, do func(c *book.Book) error) error {
	address, _, err := a.catalogAddress()
	if err != nil {
		return err
	}
	c, err := a.openCatalog(ctx, address, o)
	if err != nil {
		return err
	}
	return errors.Join(do(c), c.Close())
}

// isBook reports whether an address is that of a catalogue.
func isBook(address string) bool {
	address, _ = atCommit(address)
	if store.Scheme(address) == "" {
		if info, err := os.Stat(address); err == nil && !info.IsDir() {
			return false
		}
	}
	layer, _ := store.CutLayer(address)
	return strings.HasSuffix(strings.TrimRight(address, "/"), book.Suffix) && layer == ""
}

// bookFresh is for how long a state of a catalogue is used.
const bookFresh = 2 * time.Second

// access is what a catalogue is opened for.
type access bool

const (
	forReading access = true
	forWriting access = false
)

func (a *app) openCatalog(ctx context.Context, address string, o access) (*book.Book, error) {
	address, when := atCommit(address)
	switch {
	case !isBook(address):
		return nil, usage("%s: expected a catalogue: a folder or a prefix in a bucket whose name ends in %s", shownCatalog(address), book.Suffix)
	case when != "" && o == forWriting:
		return nil, usage("%s@%s: an earlier state of a catalogue cannot be changed", shownCatalog(address), when)
	}
	st, name, err := store.OpenAddress(ctx, strings.TrimRight(address, "/"))
	if err != nil {
		return nil, err
	}
	bo := book.Options{Write: o == forWriting, Fresh: bookFresh}
	if len(a.trusted) > 0 {
		if bo.Signed, err = a.signedCatalog(ctx, st, name, when); err != nil {
			return nil, &holdall.UntrustedError{Archive: shownCatalog(address), Err: err}
		}
	}
	b, err := book.Open(ctx, st, name, bo)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &noCatalogError{err}
	}
	if err == nil && when != "" {
		err = goBack(ctx, b, when)
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// signedCatalog returns what a trusted key has signed of a catalogue.
func (a *app) signedCatalog(ctx context.Context, st store.Store, name, when string) (b book.Signed, err error) {
	switch {
	case when != "":
		return b, errors.New("only the last signed commit can be read, which has no @")
	case len(a.through) > 0:
		return b, errors.New("--through also shows what is not signed")
	}
	s, _, file, err := root.Signed(ctx, st, name, a.trusted)
	if err == nil && s.Archive == "" {
		err = root.ErrStatement
	}
	return book.Signed{Sum: s.Archive, File: file}, err
}

func (a *app) onCatalog(o access, do func(ctx context.Context, b *book.Book, args []string) error) func(*cobra.Command, []string) error {
	return run(func(ctx context.Context, args []string) error {
		return a.withCatalog(ctx, o, func(b *book.Book) error { return do(ctx, b, args) })
	})
}

// atCommit splits an address of a catalogue in a folder, as photos.catalog@42 or photos.catalog@2026-11-01.
func atCommit(address string) (catalog, when string) {
	if at, when, ok := strings.Cut(address, book.Suffix+"@"); ok && !strings.Contains(when, "/") {
		return at + book.Suffix, when
	}
	return address, ""
}

// goBack makes a catalogue what it was then.
func goBack(ctx context.Context, b *book.Book, when string) error {
	if n, err := strconv.ParseInt(when, 10, 64); err == nil {
		return b.At(ctx, n)
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, when); err == nil {
			return b.AtTime(ctx, at)
		}
	}
	return usage("%s: expected a commit, a date or a time, as 42, 2026-11-01 or 2026-11-01T12:00:00Z", when)
}
