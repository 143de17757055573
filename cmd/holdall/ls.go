package main

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
)

func (a *app) lsCommand() *cobra.Command {
	var long, recursive bool
	cmd := &cobra.Command{
		Use:   "ls ARCHIVE [PATH...]",
		Short: "List the entries of an archive",
		Long: `Lists the top level of an archive, or the given folders. -R lists everything, in
stored order. Names are full paths, so you can pass them to other verbs. Bytes
that a terminal cannot show are printed as \xNN.

The exit code is 1 if damage hides an entry or its content, or if the index is
damaged.`,
		Example: `  holdall ls docs.caf
  holdall ls -l docs.caf guide
  holdall ls -R --json docs.caf | jq -r .path`,
		Args: args(1, -1, "an archive"),
		RunE: a.onArchive(func(ctx context.Context, in *holdall.Archive, names []string) error {
			print := a.entryPrinter(ctx, in, long)
			if len(names) == 0 {
				names = []string{"."}
			}
			return all(names, func(name string) error { return a.list(ctx, in, name, recursive, print) })
		}),
		ValidArgsFunction: a.completeMembers,
	}
	cmd.Flags().BoolVarP(&long, "long", "l", false, "also print kind, mode, size, time and digest")
	cmd.Flags().BoolVarP(&recursive, "recursive", "R", false, "list everything below")
	return cmd
}

// list prints what name is, or what is in it.
func (a *app) list(ctx context.Context, in *holdall.Archive, name string, recursive bool, print func(holdall.Entry) error) error {
	if name == "." && recursive {
		return each(in.Entries(ctx), print)
	}
	e, err := lookup(ctx, in, name)
	if err != nil {
		return err
	}
	if e.Kind != format.Dir {
		return print(e)
	}
	if !recursive {
		return each(in.ReadDir(ctx, e.Name), print)
	}
	return each(in.Below(ctx, e.Name), print)
}

// each does something with each of what comes, until there is an error.
func each[T any](seq iter.Seq2[T, error], do func(T) error) error {
	for x, err := range seq {
		if err == nil {
			err = do(x)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// all is each of what is in a list.
func all[T any](list []T, do func(T) error) error {
	for _, x := range list {
		if err := do(x); err != nil {
			return err
		}
	}
	return nil
}

// entryPrinter returns what prints an entry on a line.
func (a *app) entryPrinter(ctx context.Context, in *holdall.Archive, long bool) func(holdall.Entry) error {
	var b []byte
	modeWidth := 1 // only the kind, where the format keeps no modes
	if in.Format().Keeps&format.KeepsModes != 0 {
		modeWidth = len("drwxrwxrwx")
	}
	return func(e holdall.Entry) (err error) {
		switch {
		case a.json:
			if b, err = appendEntry(ctx, b[:0], in, &e); err != nil {
				return err
			}
		case long:
			b = append(append(b[:0], a.longLine(e, modeWidth)...), '\n')
		default:
			b = append(append(b[:0], quoteEmpty(format.Escape(e.Name))...), suffix(e)...)
			b = append(b, '\n')
		}
		a.lost(in, e)
		_, err = a.out.Write(b)
		return err
	}
}

// lost says of an entry that damage hides what it is, or what it holds, on a line of its own.
// Then the verb's answer is no.
func (a *app) lost(in *holdall.Archive, e holdall.Entry) {
	const most = 1000
	if p := e.Fault; p == nil || p.Severity != format.Error || p.Code == format.Unsupported || p.Class == "external-blob" {
		return
	}
	a.doubted = true
	switch a.losses++; {
	case a.losses <= most:
		c := &format.CorruptError{Format: in.Format().Name, Problem: *e.Fault}
		c.Entry, c.HasEntry = e.Name, true
		fmt.Fprintf(a.stderr, "holdall: %s: %s\n", a.verb, printable(c.Error()))
	case a.losses == most+1:
		a.warn("more than %d entries are lost; the others are not listed here", most)
	}
}

// suffix marks what is no file.
func suffix(e holdall.Entry) string {
	switch e.Kind {
	case format.Dir:
		return "/"
	case format.Symlink:
		return " -> " + format.Escape(e.Link)
	case format.HardLink:
		return " => " + format.Escape(e.Link)
	}
	return ""
}

// longLine is an entry with what the archive keeps of it.
func (a *app) longLine(e holdall.Entry, modeWidth int) string {
	mode := cmp.Or(map[format.Kind]string{format.Dir: "d", format.Symlink: "l", format.HardLink: "h", format.Fifo: "p", format.Property: "="}[e.Kind], "-")
	if e.HasMode {
		mode += e.Mode.Perm().String()[1:]
	}
	size := a.humanSize(e.Size)
	if e.Kind == format.Dir {
		size = "-"
	}
	if e.Fault != nil {
		size = "?"
	}
	line := fmt.Sprintf("%-*s %10s", modeWidth, mode, size)
	if !e.ModTime.IsZero() {
		line += "  " + e.ModTime.UTC().Format(time.DateTime)
	}
	if e.Owner != "" || e.Group != "" {
		line += "  " + format.Escape(e.Owner) + ":" + format.Escape(e.Group)
	}
	if d := e.Digest.String(); d != "" {
		algo, sum, _ := strings.Cut(d, ":")
		line += "  " + algo + ":" + sum[:min(12, len(sum))] + "…"
	}
	line += "  " + quoteEmpty(format.Escape(e.Name)) + suffix(e)
	if e.Fault != nil {
		line += "  (unreadable: " + e.Fault.Message + ")"
	}
	return line
}

func (a *app) treeCommand() *cobra.Command {
	depth := 0
	cmd := &cobra.Command{
		Use:     "tree ARCHIVE [PATH]",
		Short:   "Draw the folders and files of an archive as a tree",
		Long:    "Draws the folders and files of an archive, or of one folder in it, as a tree.",
		Example: "  holdall tree docs.caf\n  holdall tree -L 2 docs.caf guide",
		Args:    args(1, 2, "an archive and optionally a folder in it"),
		RunE: a.onArchive(func(ctx context.Context, in *holdall.Archive, names []string) error {
			top := "."
			if len(names) == 1 {
				e, err := lookup(ctx, in, names[0])
				if err != nil {
					return err
				}
				top = e.Name
			}
			t := &treeDrawing{app: a, in: in, depth: depth, print: a.entryPrinter(ctx, in, false)}
			if !a.json {
				fmt.Fprintln(a.out, format.Escape(top))
			}
			err := t.draw(ctx, top, "", 1)
			if err == nil && !a.json {
				fmt.Fprintf(a.out, "\n%s, %s, %s\n", count(t.dirs, "folder"), count(t.files, "file"), a.humanSize(t.bytes))
			}
			return err
		}),
		ValidArgsFunction: a.completeMembers,
	}
	cmd.Flags().IntVarP(&depth, "depth", "L", 0, "number of levels to draw (default all)")
	return cmd
}

// treeDrawing draws an archive's folders.
type treeDrawing struct {
	app                *app
	in                 *holdall.Archive
	depth              int
	print              func(holdall.Entry) error
	dirs, files, bytes int64
}

// draw draws what is in dir, with lead before each line.
func (t *treeDrawing) draw(ctx context.Context, dir, lead string, level int) error {
	var entries []holdall.Entry
	err := each(t.in.ReadDir(ctx, dir), func(e holdall.Entry) error {
		entries = append(entries, e)
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b holdall.Entry) int { return strings.Compare(a.Name, b.Name) })
	for i, e := range entries {
		branch, below := "├── ", "│   "
		if i == len(entries)-1 {
			branch, below = "└── ", "    "
		}
		if t.app.json {
			if err := t.print(e); err != nil {
				return err
			}
		} else {
			t.app.lost(t.in, e)
			name := e.Name
			if dir != "." {
				name = strings.TrimPrefix(name, dir+"/")
			}
			fmt.Fprintf(t.app.out, "%s%s%s%s\n", lead, branch, quoteEmpty(format.Escape(name)), suffix(e))
		}
		if e.Kind != format.Dir {
			t.files++
			t.bytes += e.Size
			continue
		}
		t.dirs++
		if e.Fault != nil {
			continue
		}
		if t.depth == 0 || level < t.depth {
			if err := t.draw(ctx, e.Name, lead+below, level+1); err != nil {
				return err
			}
		}
	}
	return nil
}
