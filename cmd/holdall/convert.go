package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog/shelf"
	"github.com/holdall/holdall/internal/base/glob"
	"github.com/holdall/holdall/internal/write/bag"
	"github.com/holdall/holdall/internal/write/unpack"
	"github.com/holdall/holdall/store"
)

func (a *app) convertCommand() *cobra.Command {
	var p packing
	cmd := &cobra.Command{
		Use:   "convert SRC DST -f FORMAT",
		Short: "Convert an archive to another format, or to a folder",
		Long: `Writes the entries of SRC, an archive or a folder, to DST. The extension of DST
selects the format, or --format does. DST becomes a folder if --format is dir,
or if the name ends in a slash or is a folder already; files that are already
there stay, and are reported. With --format bag DST becomes a new folder, a bag
(BagIt, RFC 8493). If SRC is a bag, all its files are first compared with its
manifests.

Content is compared with its digests. A damaged file is left out and reported,
and the exit code is 1; --keep-damaged writes what it can read of such a file
as NAME.damaged. Content that both formats store uncompressed is copied
by the file system where it can. holdall reports everything that DST cannot
store.`,
		Example: `  holdall convert old.caf new.caf
  holdall convert docs.caf docs/
  holdall convert -f bag docs.caf bag
  holdall convert big.caf part.caf --chunk-size 1GB`,
		Args: args(2, 2, "SRC and DST"),
		RunE: run(func(ctx context.Context, args []string) error {
			p.out = args[1]
			if a.target == "" && a.writes(p.out).Name == "" && !isFolderName(p.out) {
				return usage("%s: no format has this extension: name the format with -f, or a folder as %s/", p.out, p.out)
			}
			if err := p.options(a, a.writes(p.out)); err != nil {
				return &usageError{err}
			}
			return a.convert(ctx, args[0], p)
		}),
	}
	p.register(a, cmd)
	fs := cmd.Flags()
	fs.BoolVar(&p.o.KeepDamaged, "keep-damaged", false, "write the readable parts of a damaged file as NAME.damaged")
	a.formatFlag(cmd, fs, "format of DST (default from its extension): dir, bag, ", writable(true))
	var as pflag.FlagSet
	as.StringVar(&a.format, "as", "", "")
	a.formerly(fs, "from", "", as.Lookup("as"))
	fs.BoolVar(&p.o.Embed, "embed", false, "copy content that SRC only refers to into DST")
	fs.StringVar(&p.o.Refer, "refer", "", "refer to the content of SRC at this address; here is its current one")
	cmd.MarkFlagsMutuallyExclusive("embed", "refer")
	ofFormat(fs, "lindi", "embed", "refer")
	return cmd
}

// convert writes the contents of src as p.out. --format is the format of p.out
// here.
func (a *app) convert(ctx context.Context, src string, p packing) error {
	to, dst := a.target, a.writes(p.out)
	in, refers := a.openLinked(ctx, src, dst, &p)
	var err error
	if !refers {
		few := store.Scheme(src) == "" // an index far away is fetched once
		in, err = a.openAs(ctx, src, a.asked, few)
	}
	var unseen []format.Problem
	if !refers && err == nil && a.view == "" && keysWanted(in, dst, src, p.out, &p.o) {
		same := in.Format().Name == dst.Name
		bare := dst.Bare != nil && dst.Bare(p.out)
		if in, err = a.openToRefer(ctx, in, bare && !p.o.Embed, p.o.Refer); err == nil && same {
			unseen = a.warnOfUnseen(ctx, in)
		}
	}
	if err != nil {
		return err
	}
	defer in.Close()
	base, declared := "", ""
	if !refers { // there are arrays in it
		base, declared = bag.Find(ctx, in.Source())
	}
	if declared != "" && !a.noVerify {
		if bad, err := bag.Check(ctx, in.Source(), base, declared, p.o.Meter, a.tellProblem); bad || err != nil {
			return cmp.Or(err, answer(bad))
		}
	}
	if to == "bag" {
		if declared != "" && base != "" {
			return fmt.Errorf("it has the bag %s: 'holdall convert' to a folder writes that: %w", format.Escape(base), errors.ErrUnsupported)
		}
		return a.bagTo(ctx, in, declared != "", p)
	}
	if to == "dir" || to == "" && isFolderName(p.out) {
		if err := ofAFolder(p.o.Param); err != nil {
			return err
		}
		return a.extractTo(ctx, in, p.out, holdall.ExtractOptions{Include: p.o.Include, Exclude: p.o.Exclude, KeepDamaged: p.o.KeepDamaged, Meter: p.o.Meter})
	}
	st, name, err := a.locateOut(ctx, p.out)
	if err == nil {
		err = a.isNoneOf(ctx, src, st, name)
	}
	if err != nil {
		return err
	}
	stop := a.showProgress(p.o.Meter, "converted")
	p.o.Store = st
	sum, err := holdall.Convert(ctx, in, name, p.o)
	stop()
	if err != nil {
		return a.nothing(sum, err)
	}
	if sum.Referred > 0 && joins(dst, &p.o) {
		a.warn("%s to external content not joined: --embed copies the content", count(sum.Referred, "reference"))
	}
	sum.LeftOut = append(sum.LeftOut, unseen...)
	return cmp.Or(a.packed(ctx, st, sum, p), answer(len(unseen) > 0))
}

// bagTo writes an archive as a bag.
func (a *app) bagTo(ctx context.Context, in *holdall.Archive, isBag bool, p packing) error {
	info := fmt.Sprintf("Bag-Software-Agent: holdall %s\nBagging-Date: %s\n", versionString(), time.Now().Format(time.DateOnly))
	st, name, err := a.locateOut(ctx, p.out)
	names, nerr := glob.NewFilter(p.o.Include, p.o.Exclude)
	if err = cmp.Or(ofAFolder(p.o.Param), err, nerr); err != nil {
		return err
	}
	stop := a.showProgress(p.o.Meter, "extracted")
	done, err := bag.Write(ctx, in.Source(), st, name, isBag, info, unpack.Options{Filter: names, DryRun: a.dryRun, NoVerify: a.noVerify, Meter: p.o.Meter})
	stop()
	if err != nil {
		return err
	}
	return a.tellExtracted(holdall.Extracted(done))
}

// openToRefer reopens an archive that is to be converted key by key. Unless a
// flag says otherwise, references link to arrays of many chunks, as LINDI's
// own do.
func (a *app) openToRefer(ctx context.Context, in *holdall.Archive, bare bool, refer string) (*holdall.Archive, error) {
	unsaid := linksOf(in.Format(), refer)
	if !bare {
		unsaid = nil
	}
	if unsaid == nil && in.Format().ViewOf(in.Options().View) == zarrView {
		return in, nil
	}
	defer in.Close()
	return a.openAgain(ctx, in, unsaid)
}

// linksOf returns the parameters with which arrays of many chunks are links to the file at the
// address refer. It returns nil if the format has no such links.
func linksOf(f *format.Format, refer string) map[string]string {
	const arrays, address, many = "link-arrays", "link-address", "1000"
	if f.Param(format.ToOpen, arrays) == nil {
		return nil
	}
	unsaid := map[string]string{arrays: many}
	if refer != "here" {
		unsaid[address] = refer
	}
	return unsaid
}

// openLinked opens a file whose arrays of many chunks become links, if its name shows that it is
// one. It reports false if the archive must be opened to know how to convert it. No index is used,
// because an index of the file has no links.
func (a *app) openLinked(ctx context.Context, src string, to *format.Format, p *packing) (*holdall.Archive, bool) {
	f := format.All().ByExtension(src)
	if f == nil || f == to || f.ViewOf("") != zarrView || !to.Refers || to.Bare == nil || !to.Bare(p.out) || p.o.Embed || a.format != "" || a.view != "" || a.index != "" {
		return nil, false
	}
	refer := cmp.Or(p.o.Refer, "here")
	unsaid := linksOf(f, refer)
	if unsaid == nil {
		return nil, false
	}
	a.address = store.Redact(src)
	st, name, err := a.locateIn(ctx, src)
	if err != nil {
		return nil, false
	}
	o := a.openOptions()
	maps.Copy(unsaid, o.Param)
	o.Format, o.Param = "", unsaid
	in, err := a.openIn(ctx, st, name, o)
	if err != nil || in.Format() != f {
		if err == nil {
			in.Close()
		}
		return nil, false
	}
	a.opened, p.o.Refer = append(a.opened, in), refer
	return in, true
}

// keysWanted reports whether an archive is to be converted key by key, to a
// format that is made of keys, or to one that can refer to the stored bytes.
// The latter is so where members cannot be copied unchanged, or where there are
// none. It is also so for remote archives when only the keys are wanted, whose
// data then stays remote, and for data that has arrays but is not an archive of
// that format.
func keysWanted(in *holdall.Archive, to *format.Format, src, dst string, o *holdall.PackOptions) bool {
	f := in.Format()
	switch {
	case f == nil || !slices.Contains(f.Views, zarrView):
		return false
	case !to.Refers:
		return to.FromZarr != nil
	}
	bare, other := refers(in, to, src, dst, o.Embed, &o.Refer)
	return bare || other || o.Embed || o.Refer != "" || joins(to, o)
}

// refers makes the archive dst refer to the data that it does not copy, unless
// the user chose otherwise. It reports whether dst holds references alone, and
// whether src is of another format.
func refers(in *holdall.Archive, to *format.Format, src, dst string, embed bool, refer *string) (bare, other bool) {
	bare, other = to.Bare != nil && to.Bare(dst), in.Format().Name != to.Name
	if s := store.Scheme(src); bare && (other || s != "" && s != "file") && !embed && *refer == "" {
		*refer = "here"
	}
	return bare, other
}

// warnOfUnseen warns of entries that are not visible in a view that the user
// did not ask for, and returns the warnings.
func (a *app) warnOfUnseen(ctx context.Context, in *holdall.Archive) (unseen []format.Problem) {
	about, err := in.About(ctx)
	if err != nil {
		return nil // any later reading meets the same error
	}
	for _, p := range about.Notes {
		if p.Severity == format.Note {
			a.warn("left out: %s", p.Message)
			unseen = append(unseen, p)
		}
	}
	return unseen
}

// joins reports whether contents are joined in an archive of that format.
func joins(f *format.Format, o *holdall.PackOptions) bool {
	return f.Joined != nil && f.Joined(o.Param) != nil
}

func isFolderName(dst string) bool {
	if strings.HasSuffix(dst, "/") {
		return true
	}
	if store.Scheme(dst) != "" || format.All().ByExtension(dst) != nil {
		return false
	}
	info, err := os.Stat(dst)
	return err == nil && info.IsDir()
}

func (a *app) extractTo(ctx context.Context, in *holdall.Archive, dir string, o holdall.ExtractOptions) error {
	stop := a.showProgress(o.Meter, "extracted")
	sum, err := a.extractBelow(ctx, in, dir, o)
	stop()
	if err != nil {
		return err
	}
	return a.tellExtracted(sum)
}

// extractBelow extracts into dir, which it creates, and reports what it cannot
// extract.
func (a *app) extractBelow(ctx context.Context, in *holdall.Archive, dir string, o holdall.ExtractOptions) (holdall.Extracted, error) {
	o.DryRun = a.dryRun
	if !o.DryRun {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return holdall.Extracted{}, err
		}
	}
	root, err := os.OpenRoot(dir)
	switch {
	case err == nil:
		defer root.Close()
	case !o.DryRun || !errors.Is(err, fs.ErrNotExist):
		return holdall.Extracted{}, err
	}
	if in.Format() == shelf.Format {
		o.Max.Ratio = -1 // the total size of its archives is unknown
	}
	o.OnError = func(p holdall.Problem, err error) {
		if a.json {
			a.printJSON(problemAsJSON(p))
			return
		}
		if a.quiet && p.Severity < format.Error {
			return
		}
		a.out.Flush()
		fmt.Fprintln(a.stderr, a.prefix(p.Severity.String())+problemLine(p))
	}
	return holdall.Extract(ctx, in, root, o)
}

func (a *app) tellExtracted(sum holdall.Extracted) error {
	a.tellUnmatched(sum.Unmatched)
	if sum.Stripped > 0 {
		a.warn("removed the leading slash from %s", count(sum.Stripped, "name"))
	}
	if a.json {
		a.printJSON(sum)
	} else if !a.quiet {
		line := count(sum.Entries, "entry") + ", " + a.humanSize(sum.Bytes)
		if sum.Unchanged > 0 {
			line += "; " + count(sum.Unchanged, "file") + " there already"
		}
		if sum.Failed > 0 {
			line += "; " + count(sum.Failed, "entry") + " not extracted"
		}
		line += a.didNot()
		a.out.WriteString(line + "\n")
	}
	return answer(sum.Failed > 0)
}
