package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/survey"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

func (a *app) catalogRelocateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "relocate OLD NEW",
		Short: "Record new addresses of archives",
		Long: `Records that archives whose addresses begin with OLD have been moved: that part
of their addresses is now NEW. You do not need this if you move archives
together with a catalogue that lies in the same folder or above it.

The exit code is 1 if no archive has such an address.`,
		Example: `  holdall catalog relocate s3://old/ s3://new/`,
		Args:    args(2, 2, "the old and the new beginning of addresses"),
		RunE: a.onCatalog(forWriting, func(ctx context.Context, b *book.Book, names []string) error {
			n, err := b.Relocate(ctx, names[0], names[1])
			if err != nil {
				return err
			}
			a.tell(map[string]any{"did": "relocated", "archives": n}, func() { fmt.Fprintf(a.out, "%s relocated\n", count(int64(n), "archive")) })
			return answer(n == 0)
		}),
	}
	return cmd
}

func (a *app) catalogGCCommand() *cobra.Command {
	grace := 7 * 24 * time.Hour
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove parts of a catalogue that no reader needs any more",
		Long: `Removes parts of a catalogue that were merged into others, and what killed
programs have left. Readers that opened the catalogue within the grace time can
continue, and 'holdall ls photos.catalog@DATE' works for dates within it.
Changes that a program began before the grace time are refused; it must begin
again.

Archives are never removed.`,
		Example: `  holdall catalog gc --dry-run
  holdall catalog gc --grace 24h`,
		Args: args(0, 0, "no arguments"),
		RunE: a.onCatalog(forWriting, func(ctx context.Context, b *book.Book, _ []string) error {
			done, err := b.GC(ctx, grace, a.dryRun)
			if err != nil {
				return err
			}
			a.tell(struct {
				book.Swept
				DryRun bool `json:"dry_run,omitempty"`
			}{done, a.dryRun}, func() {
				fmt.Fprintf(a.out, "%s and %s removed, %s%s\n", count(int64(done.Runs), "run"), count(int64(done.States), "state"), a.humanSize(done.Bytes), a.didNot())
				if done.Waits {
					a.warn("waiting work of an older plan still needs older parts: 'holdall fleet work' does it, 'holdall fleet cancel' drops it")
				}
				if done.Signed {
					a.warn("the signature is of an older commit, which needs older parts: 'holdall sign' signs the newest commit")
				}
			})
			return nil
		}),
	}
	cmd.Flags().DurationVar(&grace, "grace", grace, "how long readers may use what they have opened")
	a.dryRunFlag(cmd.Flags())
	return cmd
}

func (a *app) catalogRebuildCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rebuild FOLDER|ARCHIVE...",
		Short: "Rebuild a lost catalogue from its archives",
		Long: `Makes a new catalogue at --catalog. It records each ARCHIVE, and the archives
below each FOLDER that an earlier catalogue had recorded, in the same order.
Files and archives that were removed from the earlier catalogue stay removed, as
far as the objects beside the archives (NAME.added-ID) and the old catalogue
(NAME.catalog.gone) show it. If there were several catalogues, the new one has
the archives of all.

The exit code is 1 if an archive cannot be read.`,
		Example: `  holdall catalog rebuild --catalog s3://packed/new.catalog s3://packed`,
		Args:    args(1, -1, "a folder or an archive"),
		RunE: run(func(ctx context.Context, names []string) error {
			address, _, err := a.catalogAddress()
			if err != nil {
				return err
			}
			var all []book.Record
			for _, name := range names {
				some, err := a.recordsIn(ctx, name)
				if err != nil {
					return err
				}
				all = append(all, some...)
			}
			if err := createBook(ctx, address); err != nil {
				return err
			}
			return a.withCatalog(ctx, forWriting, func(c *book.Book) error { return a.rebuild(ctx, c, all) })
		}),
	}
}

// recordsIn returns what is known of a folder, or the archive that an address names.
func (a *app) recordsIn(ctx context.Context, address string) ([]book.Record, error) {
	st, name, err := store.OpenAddress(ctx, strings.TrimRight(address, "/"))
	if err != nil { // a whole bucket
		folder, ferr := storekit.OpenFolder(ctx, address)
		if ferr != nil {
			return nil, err
		}
		st, name = folder, ""
	}
	mayBe := func(name string) bool { return format.All().ByExtension(name) != nil }
	all, unknown, err := book.Records(ctx, st, name, mayBe)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(r book.Record) bool { return r.Archive == "" && len(r.Dropped) == 0 && len(r.Deleted) == 0 })
	if len(all) == 0 {
		return []book.Record{{Archive: address}}, nil
	}
	of := map[string]bool{}
	for _, r := range all {
		of[r.Catalog] = true
	}
	if len(of) > 1 {
		a.warn("%s: archives there were in %d catalogues: the new one has all of them", format.Escape(store.Redact(address)), len(of))
	}
	if len(unknown) > 0 {
		a.warn("%s: %s in no catalogue, such as %s: to record them, name them", format.Escape(store.Redact(address)), count(int64(len(unknown)), "archive"), format.Escape(unknown[0]))
	}
	return all, nil
}

func (a *app) rebuild(ctx context.Context, c *book.Book, all []book.Record) error {
	failed := false
	if err := c.Follow(ctx, all); err != nil {
		return err
	}
	var some []catalog.Addition
	var opened []survey.Survey
	add := func() error {
		defer func() {
			for _, s := range opened {
				s.Close()
			}
			some, opened = nil, nil
		}()
		if len(some) == 0 {
			return nil
		}
		done, err := c.Add(ctx, some...)
		for _, d := range done {
			a.tellAdded("added", d.Archive)
		}
		return err
	}
	const atOnce = 256 // archives in a commit
	for _, r := range all {
		if r.Archive == "" || len(some) == atOnce {
			if err := add(); err != nil {
				return err
			}
		}
		if r.Archive == "" {
			for _, address := range r.Dropped {
				if _, err := c.Remove(ctx, address); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
			if len(r.Deleted) > 0 {
				if _, err := c.Do(ctx, book.Step{Rows: r.Deletions}); err != nil {
					return err
				}
			}
			continue
		}
		st, name, err := a.locateCatalogued(ctx, r.Archive)
		var s survey.Survey
		if err == nil {
			s, err = survey.Open(ctx, st, name, catalog.Archive{Facts: string(r.Facts)}, a.openOptions())
		}
		if err == nil {
			err = findParity(ctx, &s)
		}
		if errors.Is(err, fs.ErrNotExist) && r.Commit > 0 {
			continue // it was removed, and what lies beside it was not
		}
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			failed = true
			a.entryFailed(store.Redact(r.Archive), err)
			continue
		}
		s.Roots = r.Roots
		opened = append(opened, s)
		some = append(some, catalog.Addition{Archive: s.Archive, Rows: r.Numbered(s.Rows(ctx, nil))})
	}
	if err := add(); err != nil {
		return err
	}
	return answer(failed)
}
