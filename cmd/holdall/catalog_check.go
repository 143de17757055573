package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/shelf"
	"github.com/holdall/holdall/internal/app/catalog/survey"
)

func (a *app) catalogCheckCommand() *cobra.Command {
	var quick, contents bool
	cmd := &cobra.Command{
		Use:   "check [ARCHIVE...]",
		Short: "Compare a catalogue with its archives",
		Long: `Compares the entries in the catalogue with those in the archives, in both
directions. Without an ARCHIVE it checks all archives and the catalogue itself.

The exit code is 1 if anything differs. 'holdall catalog add --again' updates
the catalogue. Content is read only with --contents, which also verifies each
archive and reports the damage.`,
		Example: `  holdall catalog check
  holdall catalog check --contents s3://packed/photos-00001.caf`,
		RunE: a.onCatalog(forReading, func(ctx context.Context, c *book.Book, args []string) error {
			if quick && contents {
				return usage("expected one of --quick and --contents")
			}
			k := &catalogCheck{app: a, c: c, quick: quick, contents: contents}
			archives, err := k.which(ctx, args)
			if err != nil {
				return err
			}
			if err := all(archives, func(x catalog.Archive) error { return k.archive(ctx, x) }); err != nil {
				return err
			}
			return k.end()
		}),
	}
	cmd.Flags().BoolVar(&quick, "quick", false, "compare only the versions of the archives")
	cmd.Flags().BoolVar(&contents, "contents", false, "also read and verify all content, as 'holdall verify' does")
	return cmd
}

type catalogCheck struct {
	app      *app
	c        *book.Book
	quick    bool
	contents bool

	archives, entries, differences int64
}

type differenceJSON struct {
	Difference string `json:"difference"`
	Archive    string `json:"archive,omitempty"`
	Path       string `json:"path,omitempty"`
	PathHex    string `json:"path_hex,omitempty"`
	Message    string `json:"message"`
}

// differs reports a difference. "missing" and "extra" are from the catalogue's
// point of view.
func (k *catalogCheck) differs(what, archive string, path *string, text string, args ...any) {
	k.differences++
	d := differenceJSON{Difference: what, Archive: format.Escape(archive), Message: fmt.Sprintf(text, args...)}
	line := ifAny("%s: ", d.Archive)
	if path != nil {
		d.Path, d.PathHex = shown(*path)
		line += quoteEmpty(d.Path) + ": "
	}
	k.app.tell(d, func() { fmt.Fprintf(k.app.out, "%s%s [%s]\n", line, printable(d.Message), what) })
}

// which returns the archives to check. If that is all of them, it also checks
// the catalogue.
func (k *catalogCheck) which(ctx context.Context, addresses []string) (archives []catalog.Archive, err error) {
	if len(addresses) == 0 {
		if !k.quick {
			err = k.c.Check(ctx, func(problem string) { k.differs("damage", "", nil, "%s", problem) })
		}
		if err == nil {
			archives, err = k.c.Archives(ctx)
		}
		return archives, err
	}
	for _, address := range addresses {
		x, err := k.app.knownArchive(ctx, k.c, address)
		if errors.Is(err, fs.ErrNotExist) {
			k.differs("missing", address, nil, "not in the catalogue")
			continue
		} else if err != nil {
			return nil, err
		}
		archives = append(archives, x)
	}
	return archives, nil
}

func (k *catalogCheck) archive(ctx context.Context, x catalog.Archive) error {
	k.archives++
	st, name, err := k.app.locate(ctx, x.Address)
	var s survey.Survey
	if err == nil {
		known := x
		if !k.quick {
			known = catalog.Archive{Facts: x.Facts} // so that it is opened
		}
		o := k.app.openOptions()
		o.Param = k.app.paramsOf(x.Format)
		s, err = survey.Open(ctx, st, name, known, o)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, fs.ErrNotExist):
		k.differs("gone", x.Address, nil, "archive does not exist")
		return nil
	case err != nil:
		k.differs("unreadable", x.Address, nil, "%v", err)
		return nil
	}
	defer s.Close()
	if is := ""; x.Parity != "" {
		switch is, err = s.ParityNow(ctx); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			k.differs("parity", x.Address, nil, "%v", err)
		case is == "":
			k.differs("parity", x.Address, nil, "its parity does not exist any more, or does not belong to this version of the archive")
		case is != x.Parity:
			k.differs("parity", x.Address, nil, "expected the parity %s, found %s", x.Parity, is)
		}
	}
	if s.Known { // the same version
		return nil
	}
	if k.contents {
		o := holdall.VerifyOptions{OpenOptions: k.app.openOptions()}
		o.Param = k.app.paramsOf(x.Format)
		o.Store = st
		_, err := holdall.Verify(ctx, name, o, func(p holdall.Problem) {
			if p.Severity < format.Warning {
				return
			}
			var entry *string
			if p.HasEntry {
				entry = &p.Entry
			}
			k.differs("damaged", x.Address, entry, "%s", p.Message)
		})
		if err != nil {
			return err
		}
	}
	if s.Size != x.Size || s.Version != x.Version || s.Format != x.Format {
		k.differs("changed", x.Address, nil, "expected %s, %s, found %s, %s", x.Format, shelf.ShownVersion(x.Size, x.Version), s.Format, shelf.ShownVersion(s.Size, s.Version))
	}
	if k.quick {
		return nil
	}
	if s.Facts != "" {
		return k.compareFacts(ctx, x, s)
	}
	return k.compare(ctx, x, s)
}

// compareFacts compares a recording with the file that is recorded of it.
func (k *catalogCheck) compareFacts(ctx context.Context, x catalog.Archive, s survey.Survey) error {
	return each(k.c.Locations(ctx, x), func(l catalog.Location) error {
		k.entries++
		for now := range s.Rows(ctx, nil) {
			if now.Archive = l.Archive; !now.Same(l) {
				k.differs("differs", x.Address, &l.Path, "expected %s, found %s", shownLocation(l), shownLocation(now))
			} else if now.HeaderText != l.HeaderText {
				k.differs("differs", x.Address, &l.Path, "the recording says other facts of itself")
			}
		}
		return nil
	})
}

// compare looks up each location in the archive. If the archive has as many
// entries as were found, there are no others. Otherwise compare looks up each
// entry in the catalogue.
func (k *catalogCheck) compare(ctx context.Context, x catalog.Archive, s survey.Survey) error {
	found := int64(0)
	for l, err := range k.c.Locations(ctx, x) {
		if err != nil {
			return err
		}
		k.entries++
		e, err := s.In.Lookup(ctx, l.Path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !survey.Catalogued(e) {
			k.differs("extra", x.Address, &l.Path, "not in the archive")
			continue
		}
		var now catalog.Location
		if err == nil {
			now, err = s.Locate(ctx, e)
		}
		if err != nil {
			return err
		}
		found++
		if now.Archive = l.Archive; !now.Same(l) {
			k.differs("differs", x.Address, &l.Path, "expected %s, found %s", shownLocation(l), shownLocation(now))
		}
	}
	there := int64(0)
	err := each(s.In.Entries(ctx), func(e holdall.Entry) error {
		if survey.Catalogued(e) {
			there++
		}
		return nil
	})
	if err != nil || there == found {
		return err
	}
	return each(s.In.Entries(ctx), func(e holdall.Entry) error {
		if !survey.Catalogued(e) {
			return nil
		}
		holders, err := k.c.Holders(ctx, e.Name)
		if err == nil && !slices.ContainsFunc(holders, func(h catalog.Found) bool { return h.Archive == x.ID }) {
			k.differs("missing", x.Address, &e.Name, "not in the catalogue")
		}
		return err
	})
}

func shownLocation(l catalog.Location) string {
	s := fmt.Sprintf("%s of %d bytes", l.Kind, l.Size)
	if l.Raw {
		s += fmt.Sprintf(" at %d", l.Off)
	}
	return s + ifAny(" %s", l.Digest.String())
}

func (k *catalogCheck) end() error {
	if k.app.json {
		k.app.printJSON(map[string]int64{"archives": k.archives, "entries": k.entries, "differences": k.differences})
	} else if !k.app.quiet {
		fmt.Fprintf(k.app.out, "%s, %s: %s\n", count(k.archives, "archive"), count(k.entries, "entry"), count(k.differences, "difference"))
	}
	return answer(k.differences > 0)
}
