package main

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

func (a *app) convertCommand() *cobra.Command {
	var f packFlags
	var from string
	var refs refFlags
	cmd := &cobra.Command{
		Use:   "convert SRC DST -f FORMAT",
		Short: "Turn one kind of archive into another, or into a folder and back",
		Long: `Writes what is in SRC, an archive or a folder, as DST. The format is DST's
extension's, or --format's; "dir", or a name that ends in /, makes a folder.

Contents stream from one to the other; where both sides keep them raw, the file
system copies them itself. What DST has no place for is said.`,
		Example: `  holdall convert old.caf new.caf
  holdall convert docs.caf docs/
  holdall convert docs docs.caf
  holdall convert big.caf part.caf --chunk-size 1GB`,
		Args: args(2, 2, "SRC and DST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m := &holdall.Meter{}
			f.out = args[1]
			o, err := f.options(a, m)
			if err != nil {
				return &usageError{cmd, err}
			}
			o.Embed, o.Refer = refs.embed, refs.refer
			return a.convert(cmd.Context(), args[0], args[1], f, o, from, refs.dropOrphans)
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&from, "from", "", "format of SRC, if its bytes do not tell")
	refs.register(cmd)
	return cmd
}

// refFlags are about archives that hold references besides contents.
type refFlags struct {
	embed       bool
	refer       string
	dropOrphans bool
}

func (f *refFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVar(&f.embed, "embed", false, "lindi: take into DST what SRC only refers to")
	fs.StringVar(&f.refer, "refer", "", "lindi: do not copy contents, refer to them in SRC: where it lies now (here), or at this address, where it will lie")
	fs.BoolVar(&f.dropOrphans, "drop-orphans", false, "lindi: leave out blobs that no key leads to")
	cmd.MarkFlagsMutuallyExclusive("embed", "refer")
}

// convert writes what is in src as dst. --format is about dst here.
func (a *app) convert(ctx context.Context, src, dst string, f packFlags, o holdall.PackOptions, from string, dropOrphans bool) error {
	to, view := a.format, a.view
	a.format = from
	a.dropOrphans = dropOrphans
	in, err := a.open(ctx, src, false)
	if err == nil && view == "" && keysWanted(in, src, dst, &o) {
		in.Close()
		a.view = "zarr"
		in, err = a.open(ctx, src, false)
	}
	a.format, a.view, a.dropOrphans = to, view, false
	if err != nil {
		return err
	}
	defer in.Close()
	if to == "dir" || to == "" && isFolderName(dst) {
		return a.extractTo(ctx, in, dst, holdall.ExtractOptions{Meter: o.Meter})
	}
	st, name, err := a.locateOut(ctx, dst)
	if err != nil {
		return err
	}
	stop := a.showProgress(o.Meter, "converted")
	sum, err := holdall.ConvertStore(ctx, in, st, name, o)
	stop()
	if err != nil {
		return err
	}
	return a.packed(ctx, st, sum.Summary, sum.Lost, f)
}

// keysWanted reports whether a LINDI archive is to be converted key by key:
// where members cannot be copied as they are. What lies behind a network stays
// there when only its keys are wanted.
func keysWanted(in *holdall.Archive, src, dst string, o *holdall.PackOptions) bool {
	if f := in.Format(); f == nil || f.Name != "lindi" {
		return false
	}
	json := strings.HasSuffix(strings.ToLower(dst), ".lindi.json")
	if s := store.Scheme(src); json && s != "" && s != "file" && !o.Embed && o.Refer == "" {
		o.Refer = holdall.ReferHere
	}
	return json || o.Embed || o.Refer != ""
}

// isFolderName reports whether dst is meant to be a folder.
func isFolderName(dst string) bool {
	if strings.HasSuffix(dst, "/") {
		return true
	}
	if store.Scheme(dst) != "" || format.ByExtension(format.All(), dst) != nil {
		return false
	}
	info, err := os.Stat(dst)
	return err == nil && info.IsDir()
}

// extractTo extracts into a folder, which is made.
func (a *app) extractTo(ctx context.Context, in *holdall.Archive, dir string, o holdall.ExtractOptions) error {
	stop := a.showProgress(o.Meter, "extracted")
	sum, err := a.extractBelow(ctx, in, dir, o)
	stop()
	if err != nil {
		return err
	}
	return a.tellExtracted(sum)
}

// extractBelow extracts into dir, which it makes, and tells what it cannot.
func (a *app) extractBelow(ctx context.Context, in *holdall.Archive, dir string, o holdall.ExtractOptions) (holdall.Extracted, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return holdall.Extracted{}, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return holdall.Extracted{}, err
	}
	defer root.Close()
	o.OnError = func(p holdall.Problem, err error) {
		if a.json {
			a.printJSON(problemAsJSON(p))
			return
		}
		if a.quiet && p.Severity < format.Error {
			return
		}
		a.out.Flush()
		a.stderr.Write([]byte("holdall: " + a.verb + ": " + problemLine(p) + "\n"))
	}
	return holdall.Extract(ctx, in, root, o)
}

// tellExtracted tells what an extraction did.
func (a *app) tellExtracted(sum holdall.Extracted) error {
	if a.json {
		a.printJSON(sum)
	} else if !a.quiet {
		line := count(sum.Entries, "entry") + ", " + a.humanSize(sum.Bytes)
		if sum.Failed > 0 {
			line += "; " + count(sum.Failed, "entry") + " not extracted"
		}
		a.out.WriteString(line + "\n")
	}
	if sum.Failed > 0 {
		return errNo
	}
	return nil
}
