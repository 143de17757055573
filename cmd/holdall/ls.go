package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/base/glob"
)

func (a *app) lsCommand() *cobra.Command {
	l := lister{app: a}
	var human, helped bool
	cmd := &cobra.Command{
		Use:   "ls ARCHIVE [PATH...]",
		Short: "List the entries of an archive",
		Long: `Lists the top level of an archive, or the given folders. -R lists everything, in
stored order. Names are full paths, so you can pass them to other verbs. Bytes
that a terminal cannot show are printed as \xNN. PATH may be a pattern: see
'holdall help patterns'. 'holdall ARCHIVE' is short for 'holdall ls ARCHIVE'.

The exit code is 1 if damage hides an entry or its content, or if the index is
damaged.`,
		Example: `  holdall ls docs.caf
  holdall ls -l docs.caf guide
  holdall ls -RlS docs.caf | head
  holdall ls -R --json docs.caf | jq -r .path`,
		Args: func(cmd *cobra.Command, given []string) error {
			if human && len(given) == 0 { // for other verbs it means help
				return nil
			}
			return args(1, -1, "an archive")(cmd, given)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			a.exact = a.exact && !human
			var err error
			if l.names, err = l.sel.filter(a); err != nil {
				return err
			}
			if args, err = a.withTogether(cmd.Context(), args); err != nil {
				return err
			}
			few := l.recursive && len(args) == 1
			return a.compared(l.names, a.use(cmd.Context(), args[0], few, func(in *holdall.Archive) error { return l.list(cmd.Context(), in, args[1:]) }))
		},
		ValidArgsFunction: a.completeMembers,
	}
	f := cmd.Flags()
	f.BoolVarP(&l.long, "long", "l", false, "also print kind, mode, size, time, and digest or unproven")
	f.BoolVarP(&l.recursive, "recursive", "R", false, "list everything below")
	f.BoolVarP(&l.self, "directory", "d", false, "list folders themselves, not what is in them")
	f.BoolVarP(&l.bySize, "by-size", "S", false, "sort by size, largest first")
	f.BoolVarP(&l.byTime, "by-time", "t", false, "sort by time, newest first")
	f.BoolVarP(&l.reverse, "reverse", "r", false, "reverse the order")
	f.BoolVarP(&human, "human-readable", "h", false, "print sizes as 12.3 MiB (the default without --bytes)")
	f.BoolVar(&helped, "help", false, "help for ls")
	for long, short := range map[string]string{"all": "a", "one-per-line": "1"} { // as ls(1) has them; it is so anyway
		f.BoolP(long, short, false, "")
		f.MarkHidden(long)
	}
	l.sel.register(f)
	cmd.MarkFlagsMutuallyExclusive("by-size", "by-time")
	cmd.MarkFlagsMutuallyExclusive("directory", "recursive")
	return cmd
}

type lister struct {
	app                                            *app
	long, recursive, self, bySize, byTime, reverse bool
	sel                                            selection
	names                                          *glob.Filter
}

func (l *lister) list(ctx context.Context, in *holdall.Archive, paths []string) error {
	print := l.app.entryPrinter(ctx, in, l.long)
	if len(paths) == 0 && l.recursive {
		// Nothing is looked up, so that a large index can be read as a stream.
		if !l.sorts() {
			return l.app.printAll(ctx, in, l)
		}
		return l.inOrder(print, func(print func(holdall.Entry) error) error {
			return l.one(ctx, in, holdall.Entry{Name: ".", Kind: format.Dir}, print)
		})
	}
	if len(paths) == 0 {
		paths = []string{"."}
	}
	return all(paths, func(path string) error {
		entries, err := expand(ctx, in, path)
		if err != nil {
			return err
		}
		return l.inOrder(print, func(print func(holdall.Entry) error) error {
			return all(entries, func(e holdall.Entry) error { return l.one(ctx, in, e, print) })
		})
	})
}

func (l *lister) one(ctx context.Context, in *holdall.Archive, e holdall.Entry, print func(holdall.Entry) error) error {
	selected := func(e holdall.Entry) error {
		if !l.names.Wants(e.Name) {
			return nil
		}
		return print(e)
	}
	switch {
	case e.Kind != format.Dir || l.self:
		return selected(e)
	case !l.recursive:
		return each(in.ReadDir(ctx, e.Name), selected)
	case e.Name == ".":
		return each(in.Entries(ctx), selected)
	}
	return each(in.Below(ctx, e.Name), selected)
}

func (l *lister) sorts() bool { return l.bySize || l.byTime || l.reverse }

// inOrder has print write entries, and sorts the lines in the requested order.
func (l *lister) inOrder(print func(holdall.Entry) error, do func(print func(holdall.Entry) error) error) error {
	if !l.sorts() {
		return do(print)
	}
	rows := sorter.New(sorter.Options{Scratch: sorter.TempFile})
	defer rows.Close()
	var line bytes.Buffer
	out := l.app.out
	n := uint64(0)
	var key []byte
	err := do(func(e holdall.Entry) error {
		line.Reset()
		l.app.out = bufio.NewWriter(&line)
		err := print(e)
		err = cmp.Or(err, l.app.out.Flush())
		l.app.out = out
		if err != nil {
			return err
		}
		n++
		first, name := n, ""
		switch {
		case l.bySize:
			first, name = ^uint64(e.Size), e.Name
		case l.byTime:
			first, name = ^(uint64(e.ModTime.Unix()) ^ 1<<63), e.Name // without a time: last
		}
		if l.reverse {
			first = ^first
		}
		key = binary.BigEndian.AppendUint64(key[:0], first)
		if l.byTime {
			nano := uint32(e.ModTime.Nanosecond())
			if !l.reverse {
				nano = ^nano
			}
			key = binary.BigEndian.AppendUint32(key, nano)
		}
		key = binary.BigEndian.AppendUint64(append(append(key, name...), 0), n)
		return rows.Add(key, line.Bytes())
	})
	if err != nil {
		return err
	}
	return each(rows.Sorted(), func(r sorter.Row) error {
		_, err := out.Write(r.Value)
		return err
	})
}

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

func all[T any](list []T, do func(T) error) error {
	for _, x := range list {
		if err := do(x); err != nil {
			return err
		}
	}
	return nil
}

// lineOf returns a function that appends the line of an entry. It may be called by several
// goroutines.
func (a *app) lineOf(ctx context.Context, in *holdall.Archive, long bool) func([]byte, *holdall.Entry) ([]byte, error) {
	modeWidth := 1 // only the type if the format stores no modes
	if in.Format().Keeps&format.KeepsModes != 0 {
		modeWidth = len("drwxrwxrwx")
	}
	run, c := in.Source().Reader.Can().Run, a.colours(a.stdout, fileColours, "LS_COLORS")
	return func(b []byte, e *holdall.Entry) ([]byte, error) {
		switch {
		case a.json:
			return appendEntry(ctx, b, in, run, e)
		case long:
			b = append(b, a.longLine(*e, c, modeWidth, in.Unproven(ctx, *e))...)
		default:
			b = append(append(b, c.name(e, quoteEmpty(format.Escape(e.Name)))...), suffix(*e)...)
		}
		return append(b, '\n'), nil
	}
}

func (a *app) entryPrinter(ctx context.Context, in *holdall.Archive, long bool) func(holdall.Entry) error {
	var b []byte
	line := a.lineOf(ctx, in, long)
	return func(e holdall.Entry) (err error) {
		if b, err = line(b[:0], &e); err != nil {
			return err
		}
		a.lost(in, e)
		_, err = a.out.Write(b)
		return err
	}
}

// printAll prints all entries that are wanted. It makes lines while the next entries are read.
func (a *app) printAll(ctx context.Context, in *holdall.Archive, l *lister) error {
	type batch struct {
		entries []holdall.Entry
		ends    []int // of their lines
		lines   []byte
		err     error // after the last of them
	}
	most := 256                     // the first lines come soon
	printed := make(chan *batch, 4) // their room is used again
	next := func() *batch {
		select {
		case t := <-printed:
			t.entries, t.ends, t.lines = t.entries[:0], t.ends[:0], t.lines[:0]
			return t
		default:
			return &batch{}
		}
	}
	batches := func(yield func(*batch, error) bool) {
		t := next()
		for e, err := range in.Entries(ctx) {
			if t.err = err; err != nil {
				break
			}
			if !l.names.Wants(e.Name) {
				continue
			}
			if t.entries = append(t.entries, e); len(t.entries) == most {
				if !yield(t, nil) {
					return
				}
				t, most = next(), min(2*most, 1024)
			}
		}
		yield(t, nil)
	}
	line := a.lineOf(ctx, in, l.long)
	return pipe.Ordered(ctx, batches, 1, func(_ context.Context, t *batch) {
		for i := range t.entries {
			var err error
			if t.lines, err = line(t.lines, &t.entries[i]); err != nil {
				t.err = err
				break
			}
			t.ends = append(t.ends, len(t.lines))
		}
	}, func(t *batch) error {
		at := 0
		for i, end := range t.ends {
			a.lost(in, t.entries[i])
			if _, err := a.out.Write(t.lines[at:end]); err != nil {
				return err
			}
			at = end
		}
		err := t.err
		select {
		case printed <- t:
		default:
		}
		return err
	}, func(*batch) {})
}

// lost warns that damage hides an entry's type or contents. The verb then
// exits with 1.
func (a *app) lost(in *holdall.Archive, e holdall.Entry) {
	most := 256 // the first lines come soon
	if p := e.Fault; p == nil || p.Severity != format.Error || p.Code == format.Unsupported || p.Class == "external-blob" {
		return
	}
	a.doubted = true
	switch a.losses++; {
	case a.losses <= most:
		c := &format.CorruptError{Format: in.Format().Name, Problem: *e.Fault}
		c.Entry, c.HasEntry = e.Name, true
		fmt.Fprintln(a.stderr, a.prefix("error")+printable(c.Error()))
	case a.losses == most+1:
		a.warn("more than %d entries are lost; the others are not listed here", most)
	}
}

// suffix returns the mark that shows the type of an entry; a file has none.
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

// longLine returns the line of an entry with its stored attributes, and says so where nothing
// would show damage in its content.
func (a *app) longLine(e holdall.Entry, c *colours, modeWidth int, unproven bool) string {
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
	sizeWidth := 10
	if a.exact && a.outTTY {
		sizeWidth = 15
	}
	line := fmt.Sprintf("%-*s %*s", modeWidth, mode, sizeWidth, size)
	if !e.ModTime.IsZero() {
		line += "  " + e.ModTime.UTC().Format(time.DateTime)
	}
	if e.Owner != "" || e.Group != "" {
		line += "  " + format.Escape(e.Owner) + ":" + format.Escape(e.Group)
	}
	if d := e.Digest.String(); d != "" {
		algo, sum, _ := strings.Cut(d, ":")
		line += "  " + algo + ":" + sum[:min(12, len(sum))] + "…"
	} else if unproven {
		line += "  " + c.paint("warning", "unproven")
	}
	line += "  " + c.name(&e, quoteEmpty(format.Escape(e.Name))) + suffix(e)
	if e.Fault != nil {
		line += c.paint("error", "  (unreadable: "+printable(e.Fault.Message)+")")
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
			t := &treeDrawing{app: a, in: in, depth: depth, print: a.entryPrinter(ctx, in, false), colours: a.colours(a.stdout, fileColours, "LS_COLORS")}
			if !a.json {
				fmt.Fprintln(a.out, t.colours.name(&holdall.Entry{Kind: format.Dir}, format.Escape(top)))
			}
			err := t.draw(ctx, top, "", 1)
			if err == nil && !a.json {
				fmt.Fprintf(a.out, "\n%s, %s, %s\n", count(t.dirs, "folder"), count(t.files, "file"), a.humanSize(t.bytes))
			}
			return err
		}),
		ValidArgsFunction: a.completeMembers,
	}
	cmd.Flags().IntVarP(&depth, "depth", "L", 0, "number of levels to draw; 0 or -1 is all")
	return cmd
}

type treeDrawing struct {
	app                *app
	in                 *holdall.Archive
	depth              int
	print              func(holdall.Entry) error
	colours            *colours
	dirs, files, bytes int64
}

// draw draws the contents of dir, with lead before each line.
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
			fmt.Fprintf(t.app.out, "%s%s%s%s\n", lead, branch, t.colours.name(&e, quoteEmpty(format.Escape(name))), suffix(e))
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
		if t.depth <= 0 || level < t.depth {
			if err := t.draw(ctx, e.Name, lead+below, level+1); err != nil {
				return err
			}
		}
	}
	return nil
}
