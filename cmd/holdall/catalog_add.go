package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/shelf"
	"github.com/holdall/holdall/internal/app/catalog/survey"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

func (a *app) catalogAddCommand() *cobra.Command {
	var o adding
	var from, kind string
	cmd := &cobra.Command{
		Use:   "add ARCHIVE...",
		Short: "Record the entries of archives",
		Long: `Records the entries of archives. Each archive is recorded whole or not at all.
An archive that the catalogue has in the same version is skipped, unless you
give --again. If the catalogue has another version of it, the new one replaces
that.

--from names the bucket that the files were packed from. 'holdall ls
catalog:s3://photos' and 'holdall serve --s3' then show this bucket. The names
in the archive must be those in the bucket, below the prefix if you give one.
The catalogue keeps --from when an archive is added again.

With --facts nwb, an archive is a recording. It is recorded as one file, with
its metadata: session, subject, devices, series and tables. 'holdall catalog
find --where' searches this metadata. A folder, or a prefix of a bucket, stands
for all recordings below it, and their paths begin below it. Files there that
are not NWB are left out. The catalogue keeps --facts when an archive is added
again.

The exit code is 1 if one of several archives could not be added.`,
		Example: `  holdall catalog add photos-*.caf
  holdall catalog add --facts nwb s3://recordings
  holdall catalog add --verify https://example.org/docs.caf
  holdall catalog add --from s3://photos/2026 s3://packed/2026.caf`,
		Args: args(1, -1, "an archive"),
		RunE: a.onCatalog(forWriting, func(ctx context.Context, c *book.Book, args []string) error {
			if from != "" {
				root, err := shelf.RootOf(from)
				if err != nil {
					return usage("--from: %v", err)
				}
				o.roots = catalog.RootsOf([]catalog.Root{root})
			}
			if kind != "" {
				if o.verify || from != "" {
					return usage("--facts cannot be combined with --verify or --from")
				}
				return a.addRecordings(ctx, c, args, o.again)
			}
			failed := false
			for some := range slices.Chunk(args, addsAtOnce) {
				err := a.catalogAdd(ctx, c, some, o, func(address string, err error) error {
					if len(args) == 1 || ctx.Err() != nil {
						return err
					}
					if failed = true; !errors.Is(err, errNo) {
						a.entryFailed(store.Redact(address), err)
					}
					return nil
				})
				if err != nil {
					return err
				}
			}
			return answer(failed)
		}),
	}
	cmd.Flags().BoolVar(&o.again, "again", false, "read archives again even if their version is unchanged")
	cmd.Flags().BoolVar(&o.verify, "verify", false, "verify archives first, and record only sound ones")
	cmd.Flags().StringVar(&from, "from", "", "the `bucket` that the files were packed from, with a prefix if not from all of it: s3://photos/2026")
	cmd.Flags().Var(newChoice(&kind, "", catalog.NWB), "facts", "record archives as files, with their metadata: nwb")
	a.dryRunFlag(cmd.Flags())
	return cmd
}

// adding says how archives are added.
type adding struct {
	again, verify bool
	roots         catalog.Roots // if they are given
}

// addsAtOnce is how many archives are recorded in one step, if none fails.
const addsAtOnce = 64

// catalogAdd records archives. It calls failed for each that cannot be recorded.
func (a *app) catalogAdd(ctx context.Context, c *book.Book, addresses []string, o adding, failed func(address string, err error) error) error {
	m := &holdall.Meter{}
	stop := a.showProgress(m, "added")
	defer func() { stop() }()
	var all []survey.Survey
	var from, later []string // later are those that are named twice
	defer func() {
		for _, s := range all {
			s.Close()
		}
	}()
	for _, address := range addresses {
		s, err := a.surveyed(ctx, c, address, o)
		if err == nil && s.Known {
			if o.verify && !a.dryRun {
				err = c.Verified(ctx, s.ID, s.Verified)
			}
			did, was := "unchanged", s.Parity
			if err == nil {
				err = findParity(ctx, &s)
			}
			if err == nil && s.Parity != "" && s.Parity != was {
				if did = "parity recorded"; !a.dryRun {
					err = c.Protected(ctx, map[int64]string{s.ID: s.Parity})
				}
			} else {
				s.Parity = was // what is lost stays recorded, for check
			}
			if err == nil {
				a.tellAdded(did, s.Archive)
				continue
			}
		}
		if err != nil {
			if err := failed(address, err); err != nil {
				return err
			}
			continue
		}
		if slices.ContainsFunc(all, func(x survey.Survey) bool { return x.Address == s.Address }) {
			later = append(later, address)
			s.Close()
			continue
		}
		all, from = append(all, s), append(from, address)
	}
	add := func(some []survey.Survey) (n int, err error) {
		var additions []catalog.Addition
		for _, s := range some {
			additions = append(additions, catalog.Addition{Archive: s.Archive, Rows: s.Rows(ctx, m)})
		}
		done, err := a.addNow(ctx, c, additions)
		stop()
		stop = func() {}
		a.tellAdditions(done)
		return len(done), err
	}
	if len(all) == 0 {
		return nil
	}
	n, err := add(all)
	if ctx.Err() != nil || n > 0 && err != nil {
		return err
	}
	for i := 0; i < len(all) && err != nil; i++ { // which of them cannot be recorded
		one := err
		if len(all) > 1 {
			_, one = add(all[i : i+1])
		}
		if one != nil {
			if err := failed(from[i], one); err != nil {
				return err
			}
		}
	}
	if len(later) > 0 {
		return a.catalogAdd(ctx, c, later, o, failed)
	}
	return nil
}

// addNow records archives, unless this is a dry run.
func (a *app) addNow(ctx context.Context, c *book.Book, additions []catalog.Addition) ([]catalog.Added, error) {
	if a.dryRun {
		return c.TryAdd(ctx, additions...)
	}
	return c.Add(ctx, additions...)
}

func (a *app) tellAdditions(done []catalog.Added) {
	for _, d := range done {
		did := "added"
		if d.Replaced.ID != 0 {
			did = "replaced"
		}
		a.tellAdded(did, d.Archive)
	}
}

// surveyed opens an archive that is to be recorded. It reports if it is known in this version.
func (a *app) surveyed(ctx context.Context, c *book.Book, address string, how adding) (s survey.Survey, err error) {
	st, name, err := a.locateCatalogued(ctx, address)
	if err != nil {
		return s, err
	}
	known, err := c.Archive(ctx, storekit.AddressOf(st, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	if how.roots != "" && known.Facts != "" {
		return s, errors.New("it is in the catalogue as a recording, which has no bucket: remove it first with 'holdall catalog rm'")
	}
	if how.again || how.roots != "" && how.roots != known.Roots {
		known = catalog.Archive{Facts: known.Facts}
	}
	o := a.openOptions()
	o.Index = a.useIndex()
	if s, err = survey.Open(ctx, st, name, known, o); err == nil && how.roots != "" {
		s.Roots = how.roots
	}
	if err == nil && !s.Known {
		err = findParity(ctx, &s)
	}
	if err != nil || !how.verify {
		return s, err
	}
	if err = a.verifyQuietly(ctx, st, []string{name}, a.openOptions()); err != nil {
		s.Close()
	}
	s.Verified = time.Now().UTC()
	return s, err
}

// findParity finds the parity of an archive. If it fails, it closes the archive.
func findParity(ctx context.Context, s *survey.Survey) (err error) {
	s.Parity, err = s.ParityNow(ctx)
	if err != nil {
		s.Close()
	}
	return err
}

// locateCatalogued finds an archive that is in a catalogue, or is to be added
// to it.
func (a *app) locateCatalogued(ctx context.Context, address string) (store.Store, string, error) {
	if address == "-" {
		return nil, "", errors.New("standard input has no address: a catalogue can only record archives with one")
	}
	return a.locate(ctx, address)
}

func (a *app) tellAdded(did string, x catalog.Archive) {
	a.tell(struct {
		Did    string `json:"did"`
		DryRun bool   `json:"dry_run,omitempty"`
		archiveJSON
	}{did, a.dryRun, archiveAsJSON(x)}, func() {
		fmt.Fprintf(a.out, "%s: %s, %s%s\n", format.Escape(x.Address), did, count(x.Entries, "entry"), a.didNot())
	})
}

// recordPacked records everything that a pack wrote, all its chunks in one
// step.
func (a *app) recordPacked(ctx context.Context, c *book.Book, st store.Store, volumes []string, verified bool) (err error) {
	var all []catalog.Addition
	for _, name := range volumes {
		s, err := survey.Open(ctx, st, name, catalog.Archive{}, a.written())
		if err == nil {
			err = findParity(ctx, &s)
		}
		if err != nil {
			return err
		}
		defer s.In.Close()
		if verified {
			s.Verified = time.Now()
		}
		all = append(all, catalog.Addition{Archive: s.Archive, Rows: s.Rows(ctx, nil)})
	}
	_, err = c.Add(ctx, all...)
	return err
}
