package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/app/hierarchy"
)

type infoJSON struct {
	Format      string            `json:"format"`
	Title       string            `json:"title"`
	Version     string            `json:"version"`
	Views       []string          `json:"views,omitempty"`
	Entries     int64             `json:"entries"`
	Files       int64             `json:"files"`
	Dirs        int64             `json:"dirs"`
	Unreadable  int64             `json:"unreadable,omitempty"`
	Digests     int64             `json:"digests"`
	Unproven    int64             `json:"unproven,omitempty"`        // files without a checksum
	Ranges      int64             `json:"unproven_ranges,omitempty"` // files that are compared only when the whole file is read
	Bytes       int64             `json:"bytes"`
	Shared      int64             `json:"shared_bytes,omitempty"` // stored as the content of another entry
	StoredBytes int64             `json:"stored_bytes"`
	IndexBytes  int64             `json:"index_bytes"`
	Ratio       float64           `json:"ratio"`
	Volumes     []string          `json:"volumes"`
	Facts       map[string]string `json:"facts,omitempty"`
	Unusual     []problemJSON     `json:"unusual,omitempty"`
	Written     bool              `json:"being_written,omitempty"` // another program is writing it now
	NWB         *hierarchy.NWB    `json:"nwb,omitempty"`
	Arrays      []*arrayJSON      `json:"arrays,omitempty"`

	Parity *holdall.Protection `json:"parity,omitempty"`

	facts [][2]string
	notes []holdall.Problem
}

func (a *app) infoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "info ARCHIVE",
		Short: "Show what an archive is, and anything unusual about it",
		Long: `Shows the format, size, index and parity of an archive, and anything unusual
about it. If the archive is a Zarr hierarchy, it also shows the arrays; of an
NWB file, the session and its series. The exit code does not depend on what is
unusual: use 'holdall verify' to check an archive.`,
		Example: "  holdall info docs.caf\n  holdall info --json https://example.org/docs.caf",
		Args:    args(1, 1, "an archive"),
		RunE: run(func(ctx context.Context, args []string) error {
			in, err := a.openOverview(ctx, args[0])
			if err != nil {
				return err
			}
			defer in.Close()
			i, err := gatherInfo(ctx, in)
			if err != nil {
				return err
			}
			if f := in.Format(); f != nil && f.Overview != "" && a.view == "" {
				if err := a.usualFacts(ctx, args[0], i); err != nil {
					i.cannot(err)
				}
			}
			i.Parity = in.Protection(ctx)
			if err := i.look(ctx, a, in.Archive); err != nil {
				i.cannot(err)
			}
			a.tell(i, func() {
				a.printInfo(i)
				a.printNWB(i.NWB)
				a.printArrays(i)
			})
			return nil
		}),
	}
}

// cannot records that a view of the archive cannot be shown.
func (i *infoJSON) cannot(err error) {
	p := holdall.Problem{Code: format.Code(describe(err).Code), Severity: format.Error, Off: -1, Volume: i.Volumes[0], Message: err.Error()}
	if c, ok := errors.AsType[*format.CorruptError](err); ok {
		p = c.Problem
	}
	i.Unusual, i.notes = append(i.Unusual, problemAsJSON(p)), append(i.notes, p)
}

// usualFacts adds facts that only the archive's usual view shows, not the view
// of the whole archive.
func (a *app) usualFacts(ctx context.Context, address string, i *infoJSON) error {
	in, err := a.openBare(ctx, address, a.view, true)
	if err != nil {
		return err
	}
	defer in.Close()
	about, err := in.About(ctx)
	if err != nil {
		return err
	}
	i.addFacts(about.Facts)
	return nil
}

func (i *infoJSON) addFacts(facts [][2]string) {
	i.facts = facts
	for _, f := range facts {
		i.Facts[f[0]] = f[1]
	}
}

func gatherInfo(ctx context.Context, in overview) (*infoJSON, error) {
	about, err := in.About(ctx)
	if err != nil {
		return nil, err
	}
	i := &infoJSON{Format: in.Format().Name, Title: in.Format().Title, Views: in.Format().Views, Version: about.Version,
		IndexBytes: about.IndexBytes, Shared: about.Shared, Volumes: about.Volumes, notes: about.Notes, Facts: map[string]string{}}
	if i.StoredBytes, err = in.StoredSize(ctx); err != nil {
		return nil, err
	}
	dirs := map[string]bool{}
	lastDir := ""
	for e, err := range in.Entries(ctx) {
		if err != nil {
			return nil, err
		}
		i.Entries++
		switch {
		case e.Kind == format.Dir:
			dirs[e.Name] = true
		case e.Internal: // counts as index
			continue
		case e.Kind.HasContent():
			i.Files++
			i.Bytes += e.Size
			switch parts, _ := in.Compares(ctx, e); {
			case in.Unproven(ctx, e):
				i.Unproven++
			case !parts && e.Fault == nil && !in.Format().ReadsAll: // its checksums do not cover entries
				i.Ranges++
			}
		}
		if e.Fault != nil {
			i.Unreadable++
		}
		if e.Digest.Algo != "" {
			i.Digests++
		}
		if naming.Fault(e.Name) != "" {
			continue
		}
		for d := path.Dir(e.Name); d != "." && d != lastDir && !dirs[d]; d = path.Dir(d) {
			dirs[d] = true
		}
		lastDir = path.Dir(e.Name)
	}
	i.Dirs = int64(len(dirs))
	if i.StoredBytes > 0 {
		i.Ratio = float64(i.Bytes-i.Shared) / float64(i.StoredBytes)
	}
	i.addFacts(about.Facts)
	for _, p := range about.Notes {
		i.Unusual = append(i.Unusual, problemAsJSON(p))
		i.Written = i.Written || p.Code == format.BeingWritten
	}
	return i, nil
}

func (a *app) printInfo(i *infoJSON) {
	line, number := a.line, func(s string) string { return s }
	if a.outTTY {
		number = func(s string) string { return fmt.Sprintf("%10s", s) }
	}
	line("format", "%s (%s) %s", i.Format, i.Title, i.Version)
	if len(i.Views) > 0 {
		line("views", "%s", strings.Join(i.Views, ", "))
	}
	line("entries", "%s", number(thousands(i.Entries)))
	line("files", "%s", number(thousands(i.Files)))
	line("folders", "%s", number(thousands(i.Dirs)))
	line("content", "%s", number(a.humanSize(i.Bytes)))
	if i.Shared > 0 {
		line("shared", "%s", number(a.humanSize(i.Shared)))
	}
	once := i.Bytes - i.Shared // size of the content, with shared data counted once
	line("stored", "%s in %s", number(a.humanSize(i.StoredBytes)), count(int64(len(i.Volumes)), "volume"))
	perEntry := ""
	if i.Entries > 0 {
		perEntry = fmt.Sprintf(" (%.1f bytes an entry)", float64(i.IndexBytes)/float64(i.Entries))
	}
	line("index", "%s%s", number(a.humanSize(i.IndexBytes)), perEntry)
	switch {
	case i.StoredBytes > 0 && i.StoredBytes < once:
		line("compressed", "to %.1f%%", 100*float64(i.StoredBytes)/float64(once))
	case i.StoredBytes > 0:
		line("overhead", "%s (%.2f%%)", number(a.humanSize(i.StoredBytes-once)), 100*float64(i.StoredBytes-once)/float64(i.StoredBytes))
	}
	if p := i.Parity; p != nil && p.Unused == "" {
		line("parity", "%s, %s", format.Escape(p.String()), a.humanSize(p.Parity))
	} else if p != nil {
		line("parity", "%s", format.Escape(p.String()))
	}
	for _, f := range i.facts {
		line(f[0], "%s", format.Escape(f[1]))
	}
	if i.Unproven > 0 {
		line("unproven", "%s", count(i.Unproven, "file"))
	}
	if i.Ranges > 0 {
		line("unproven", "ranges of %s", count(i.Ranges, "file"))
	}
	if i.Unreadable > 0 {
		line("unreadable", "%s", count(i.Unreadable, "entry"))
	}
	for _, p := range i.notes {
		line("unusual", "%s", a.problem(p))
	}
}
