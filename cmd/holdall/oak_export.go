package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall/format/oak"
)

func (a *app) oakExportCommand() *cobra.Command {
	var o oak.ExportOptions
	var out string
	var resume bool
	cmd := &cobra.Command{
		Use:   "export STORE [PATH]",
		Short: "Write nodes as lines of JSON",
		Long: `Writes a node and all below it as lines of JSON, parents first, one line a node
with all its properties; what is too long for a line follows in lines of its own.
--revision and --checkpoint say of which tree. Damage is a line that says what is
lost, and makes the exit code 1.

--after goes on behind a node that was written. -o FILE appears when all is written;
until then it is FILE.part, with which --resume goes on after the export was broken
off. The revision must be the same.`,
		Example: `  holdall oak export segmentstore /content/site > site.jsonl
  holdall oak export --no-binaries -o all.jsonl segmentstore
  holdall oak export --no-binaries -o all.jsonl --resume segmentstore`,
		Args: args(1, 2, "a store and the path of a node"),
		RunE: run(func(ctx context.Context, args []string) error {
			switch {
			case resume && out == "":
				return usage("--resume: expected a file, by -o")
			case resume && o.After != "":
				return usage("--resume and --after: expected one of them")
			}
			return a.withTree(ctx, args[0], func(t *oak.Tree) error {
				name := argOr(args, 1, "/")
				if out == "" {
					return a.oakExport(ctx, t, a.out, name, o)
				}
				if isSpecial(out) && !resume {
					return writeFile(out, func(w io.Writer) error { return a.oakExport(ctx, t, w, name, o) })
				}
				return a.oakExportFile(ctx, t, out, name, o, resume)
			})
		}),
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "write into this file")
	cmd.Flags().IntVar(&o.Depth, "depth", -1, "how many levels below PATH; -1 is all")
	cmd.Flags().BoolVar(&o.NoBinaries, "no-binaries", false, "leave out what binaries contain")
	cmd.Flags().StringVar(&o.After, "after", "", "go on behind the node of this path")
	cmd.Flags().BoolVar(&resume, "resume", false, "go on where the file of -o ends")
	return cmd
}

// withTree opens the tree of a store that the flags say.
func (a *app) withTree(ctx context.Context, address string, do func(*oak.Tree) error) error {
	return a.withOak(ctx, address, false, func(s *oak.Store) error {
		t, err := s.Tree(ctx, a.openOptions().Param)
		if err != nil {
			return err
		}
		return do(t)
	})
}

// oakExportFile exports into a file, which is called so when it is whole.
func (a *app) oakExportFile(ctx context.Context, t *oak.Tree, out, name string, o oak.ExportOptions, resume bool) error {
	part := out + ".part"
	f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	w := &partWriter{File: f}
	if resume {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if o.From, w.at, err = oak.ResumeExport(f, info.Size()); err != nil {
			return err
		}
	}
	done := a.oakExport(ctx, t, w, name, o)
	if done != nil && done != errNo { // which is a whole answer
		if w.cut {
			a.warn("%s has what is written: --resume goes on", part)
		} else if info, err := f.Stat(); err == nil && info.Size() == 0 {
			os.Remove(part)
		}
		return done
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return errors.Join(os.Rename(part, out), done)
}

// A partWriter cuts a file when there is something to write, and goes on there: what
// was in it is not lost for a path that does not exist.
type partWriter struct {
	*os.File
	at  int64
	cut bool
}

func (w *partWriter) Write(b []byte) (int, error) {
	if !w.cut {
		if err := w.Truncate(w.at); err != nil {
			return 0, err
		}
		if _, err := w.Seek(w.at, io.SeekStart); err != nil {
			return 0, err
		}
		w.cut = true
	}
	return w.File.Write(b)
}

func (a *app) oakExport(ctx context.Context, t *oak.Tree, w io.Writer, name string, o oak.ExportOptions) error {
	x, err := t.Export(ctx, w, name, o)
	if err != nil {
		return err
	}
	return a.lostNodes(x.Lost)
}

// lostNodes is the end of a verb that met damage, and said where.
func (a *app) lostNodes(n int64) error {
	if n == 0 {
		return nil
	}
	a.out.Flush()
	a.warn("%d of what was to be read: lost by damage, as \"lost\" says", n)
	return errNo
}
