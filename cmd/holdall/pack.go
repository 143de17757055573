package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

type packing struct {
	o         holdall.PackOptions
	out       string
	chunkSize sizeFlag
	chunkMax  sizeFlag
	timestamp string
	verify    bool
	protect   shareFlag

	// Of pack alone.
	pkg       packageFlags
	unpack    bool
	filesFrom string
	names     selection
	stdinName string
}

func (p *packing) register(a *app, cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.Var(&p.chunkSize, "chunk-size", "start a new chunk, OUT-00001, OUT-00002, …, when content would exceed this (30GB, 512MiB)")
	fs.Var(&p.chunkMax, "chunk-max", "maximum size of a chunk, index included (default 32GiB)")
	ofFormat(fs, "caf", "chunk-max")
	fs.StringVar(&p.timestamp, "timestamp", "", "set the time of every entry, in seconds since 1970 (default for RVN: $SOURCE_DATE_EPOCH)")
	fs.BoolVar(&p.o.Plain, "plain", false, "write the bare format, without the digests that holdall adds")
	fs.Var(&p.protect, "protect", "write parity beside the archive that can restore this share of it: 5%")
	a.strictFlag(fs)
	fs.BoolVar(&p.verify, "verify", false, "read the archive back and verify it")
	p.names.register(fs)
	a.verboseFlag(fs)
	a.dryRunFlag(fs)
	a.forceFlag(fs)
	fs.Bool("deterministic", true, "write the same bytes for the same files")
	fs.MarkHidden("deterministic")
}

// options sets the library's options from the flags. The format must not be
// nil.
func (p *packing) options(a *app, f *format.Format) error {
	p.o.Format, p.o.ChunkSize, p.o.ChunkMax, p.o.Protect = a.target, int64(p.chunkSize), int64(p.chunkMax), float64(p.protect)
	if p.protect > 0 && (p.out == "-" || isFolderName(p.out) && f.Name == "") {
		return errors.New("--protect: expected an archive with a name, not standard output or a folder")
	}
	p.o.Meter, p.o.OnError, p.o.Param, p.o.NoVerify = a.newMeter(), a.entryFailed, a.given(format.ToCreate), a.noVerify
	p.o.Force = a.force
	var err error
	if p.o.Include, p.o.Exclude, err = p.names.patterns(a); err != nil {
		return err
	}
	if f.FromZarr != nil && f.Open == nil && (p.verify || p.protect > 0) {
		return fmt.Errorf("--verify and --protect are for archives, and %s is a folder", p.out)
	}
	if a.dryRun && (p.verify || p.protect > 0 || p.o.Resume) {
		return errors.New("--dry-run cannot be combined with --verify, --protect or --resume: they need what is written")
	}
	if f.DateEpoch && p.timestamp == "" {
		p.timestamp = os.Getenv("SOURCE_DATE_EPOCH")
	}
	if f.Steady {
		steadyGC(25)
	}
	if p.timestamp != "" {
		n, err := strconv.ParseInt(p.timestamp, 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("--timestamp: expected seconds since 1970, found %q", p.timestamp)
		}
		p.o.Time = time.Unix(n, 0).UTC()
	}
	return nil
}

// writes returns the format of an archive called out. If that is unknown, it
// returns a format without abilities.
func (a *app) writes(out string) *format.Format { return formatNamed(out, a.target) }

// formatNamed returns a format by its name, or that of an archive by its extension.
func formatNamed(archive, name string) *format.Format {
	f := format.All().ByExtension(archive)
	if name != "" {
		f = format.All().ByName(name)
	}
	if f == nil {
		return &format.Format{}
	}
	return f
}

func (a *app) entryFailed(name string, err error) {
	if a.json {
		d := describe(err)
		if d.Path == "" {
			d.Path, _ = shown(name)
		}
		a.printJSON(map[string]errorJSON{"error": d})
	}
	shownName, _ := shown(name)
	text := printable(err.Error())
	if !strings.Contains(text, shownName+":") || shownName == "" {
		text = quoteEmpty(shownName) + ": " + text
	}
	fmt.Fprintln(a.stderr, a.prefix("error")+text)
}

func (a *app) packCommand() *cobra.Command {
	var p packing
	cmd := &cobra.Command{
		Use:   "pack -o OUT INPUT...",
		Short: "Make an archive from files and folders, or from a bucket",
		Long: `Makes an archive from files and folders, or from the objects in a bucket.

If the only INPUT is a folder, its content is packed without the folder's name:
'pack -o x.caf docs' stores intro.md, not docs/intro.md. --prefix docs/ adds the
name. With several inputs, each keeps its own name. INPUT - is standard input.
An INPUT that is an address stands for all objects below it, or for one object.

The extension of OUT selects the format. Without an extension and without -f,
holdall chooses the format and names it: lindi for arrays, tar for links, empty
folders and executable files, otherwise caf.

If the only INPUT is an HDF5 file and OUT is a LINDI archive, the file is
converted as by 'holdall convert'. HDF5 files among several inputs or in a
folder are packed unchanged.

The archive appears under its name whole or not at all. An existing archive
stays until then. An input is never replaced, and a file that is not an archive
of the same format only with --force. If there is nothing to pack, nothing is
written. A file that cannot be read, or that the format cannot store, is
reported, and the others are packed. The exit code is 1 in all these cases.
--files-from FILE packs the paths in FILE under their whole names; a folder in
the list does not bring its content.

With --resume, data that was already sent to a bucket stays there if the pack
fails or is interrupted. Run the same command again to continue: it reads all
inputs again, but sends only the missing data.`,
		Example: `  holdall pack -o docs.caf docs
  find . -name '*.log' | holdall pack -o logs.tar.zst --files-from -
  holdall pack -o s3://out/photos --chunk-size 30GB --resume s3://in/photos
  pg_dump db | holdall pack -o dump.caf --stdin-name db.sql -`,
		RunE: run(func(ctx context.Context, inputs []string) error {
			var err error
			if p.out, err = a.choose(ctx, p.out, inputs); err != nil {
				return err
			}
			f := a.writes(p.out)
			inputs, err = p.check(a, inputs, f)
			if err != nil {
				return err
			}
			if err := p.pkg.apply(ctx, a, f, inputs, &p.o); err != nil {
				return err
			}
			if p.unpack {
				a.warn("'holdall pack --unpack' is 'holdall convert' now; the next version will not know the old name")
				return a.convert(ctx, inputs[0], p)
			}
			if i := slices.Index(inputs, "-"); i >= 0 {
				if inputs[i], err = a.spool(ctx, p.stdinName); err != nil {
					return err
				}
			}
			if f.Refers && slices.Contains(f.Views, zarrView) {
				if len(inputs) == 1 && !p.o.Listed && a.hasKeys(ctx, inputs[0]) != nil {
					if a.catalog != "" || p.o.Prefix != "" || p.names.given() {
						return usage("%s is converted: --catalog, --prefix, --include and --exclude do not apply", store.Redact(inputs[0]))
					}
					return a.convert(ctx, inputs[0], p)
				}
				a.warnOfKeys(ctx, inputs, &p.o)
			}
			if store.Scheme(p.out) != "" || slices.ContainsFunc(inputs, func(in string) bool { return store.Scheme(in) != "" }) {
				// Most of the memory is buffers for sending and reading ahead, which are
				// reused. The default setting would add half as much again as garbage.
				steadyGC(25)
			}
			if a.catalog == "" {
				return a.pack(ctx, nil, inputs, p)
			}
			// Open it before packing: afterwards it would be too late to report that it
			// does not exist.
			return a.withCatalog(ctx, forWriting, func(c *book.Book) error { return a.pack(ctx, c, inputs, p) })
		}),
	}
	p.register(a, cmd)
	fs := cmd.Flags()
	a.formatFlag(cmd, fs, "format of OUT (default from its extension): ", writable(false))
	fs.IntVarP(&p.o.Jobs, "jobs", "j", 0, "files to read at once (default depends on the machine; 16 requests for a bucket)")
	fs.StringVarP(&p.out, "output", "o", "", "archive to write; - is standard output")
	fs.BoolVar(&p.o.Follow, "follow", false, "pack the files that symbolic links point to")
	fs.BoolVar(&p.unpack, "unpack", false, "")
	fs.MarkHidden("unpack")
	fs.StringVar(&p.filesFrom, "files-from", "", "read the paths to pack from this file, one per line; - is standard input")
	fs.BoolVar(&p.o.Resume, "resume", false, "continue an interrupted pack, and keep the sent data if this one is interrupted")
	fs.StringVar(&a.catalog, "catalog", "", "record the archive in this catalogue")
	fs.StringVar(&p.o.Prefix, "prefix", "", "put this in front of every name")
	fs.StringVar(&p.stdinName, "stdin-name", "stdin", "name of the entry for input -")
	p.pkg.register(cmd)
	return cmd
}

// check validates the combination of flags before any work, and returns the
// inputs to pack.
func (p *packing) check(a *app, inputs []string, f *format.Format) ([]string, error) {
	listed, err := []string(nil), error(nil)
	if p.out != "" && p.filesFrom != "" {
		p.o.Listed = true
		if listed, err = a.readList(p.filesFrom); err != nil {
			return nil, err
		}
	}
	others := slices.Sorted(maps.Keys(a.given(^format.ToCreate)))
	wrong := ""
	switch {
	case p.out == "":
		wrong = "-o OUT is missing"
	case p.o.Listed && len(inputs) > 0:
		wrong = "expected either inputs or --files-from"
	case !p.o.Listed && len(inputs) == 0:
		wrong = "expected an INPUT"
	case a.catalog != "" && (p.unpack || p.out == "-"):
		wrong = "--catalog cannot be combined with --unpack or -o -"
	case p.unpack && len(inputs)+len(listed) != 1:
		wrong = "--unpack: expected one archive"
	case !p.unpack && len(others) > 0:
		wrong = others[0] + " is a parameter for reading an archive: 'holdall convert' takes it"
	case slices.Contains(inputs, "-") && !p.unpack && filepath.Base(p.stdinName) != p.stdinName:
		wrong = "--stdin-name: expected a name without folders"
	}
	if wrong != "" {
		return nil, usage("%s", wrong)
	}
	if err := p.options(a, f); err != nil {
		return nil, &usageError{err}
	}
	return append(inputs, listed...), nil
}

func (a *app) pack(ctx context.Context, c *book.Book, inputs []string, p packing) error {
	st, name, err := a.locateOut(ctx, p.out)
	if err != nil {
		return err
	}
	if len(inputs) == 1 && !p.o.Listed {
		a.single = inputs[0]
	}
	stop := a.showProgress(p.o.Meter, "packed")
	p.o.Store = st
	sum, err := holdall.Pack(ctx, name, inputs, p.o)
	stop()
	if err != nil {
		if p.o.Resume && sum.Kept > 0 {
			a.warn("%s stay in the bucket as an unfinished upload: run the same command to continue", humanSize(sum.Kept))
		}
		return a.nothing(sum, err)
	}
	// Entries that could not be packed do not prevent the recording of the others.
	err = a.packed(ctx, st, sum, p)
	if c == nil || a.dryRun || err != nil && (!errors.Is(err, errNo) || errors.Is(err, errUnsound)) {
		return err
	}
	volumes := []string{name}
	if p.chunkSize > 0 {
		volumes = sum.Volumes
	}
	if rerr := a.recordPacked(ctx, c, st, volumes, p.verify); rerr != nil {
		return fmt.Errorf("the archive is written but not in the catalogue; 'holdall catalog add' records it: %w", rerr)
	}
	return err
}

// nothing says what was left out if nothing was packed, and returns the error.
func (a *app) nothing(sum holdall.Summary, err error) error {
	if errors.Is(err, holdall.ErrNothing) {
		a.tellLeftOut(sum)
	}
	return err
}

func (a *app) locateOut(ctx context.Context, out string) (store.Store, string, error) {
	if out == "-" && !a.dryRun {
		if a.outTTY {
			return nil, "", errors.New("refusing to write an archive to a terminal")
		}
		out = "/dev/stdout"
	}
	if out == "-" {
		out = os.DevNull
	}
	st, name, err := a.locate(ctx, out)
	if err == nil && st.Can().Create == nil {
		err = usage("%s: holdall cannot write there: write to a disk or a bucket", store.Redact(out))
	}
	if err != nil {
		return nil, "", err
	}
	return a.dry(st, false), name, nil
}

func (a *app) readList(file string) ([]string, error) {
	r := a.stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	var paths []string
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		if line := s.Text(); line != "" {
			paths = append(paths, line)
		}
	}
	return paths, s.Err()
}

// errUnsound ends a pack if its archive turns out to be damaged.
var errUnsound = fmt.Errorf("%w: the written archive is damaged", errNo)

func (a *app) packed(ctx context.Context, st store.Store, sum holdall.Summary, p packing) error {
	a.tellLeftOut(sum)
	a.tellUnmatched(sum.Unmatched)
	a.tellAgain(sum.Again)
	if index := sum.Stored - sum.Content; len(sum.Volumes) == 1 && index > (format.Limits{}).OrDefault().Index {
		a.warn("the index has %s: to read the archive, use --max-index; a smaller --chunk-size avoids this", humanSize(index))
	}
	if sum.Older != "" {
		a.warn("%s remains from an older set with more chunks", sum.Older)
	}
	if sum.Parity == "" && !a.dryRun {
		a.tellStaleParity(ctx, st, sum, p)
	}
	if a.json {
		a.printJSON(packedJSON{sum, leftOut(sum)})
	} else if p.out != "-" {
		a.printPacked(sum, p)
	}
	if p.verify {
		volumes := sum.Volumes
		if p.chunkSize == 0 {
			var err error
			var name string
			if st, name, err = a.locate(ctx, p.out); err != nil {
				return err
			}
			volumes = []string{name}
		}
		if err := a.verifyQuietly(ctx, st, volumes, a.written()); errors.Is(err, errNo) {
			return errUnsound
		} else if err != nil {
			return err
		}
	}
	if sum.Failed > 0 {
		a.warn("%s could not be packed", count(sum.Failed, "entry"))
	}
	return answer(sum.Failed > 0 || len(sum.Dropped) > 0 || a.strict && len(sum.Lost) > 0)
}

// packedJSON is the result of pack and convert for programs.
type packedJSON struct {
	holdall.Summary
	LeftOut []leftOutJSON `json:"left_out,omitempty"`
}

type leftOutJSON struct {
	Path    string `json:"path"`
	PathHex string `json:"path_hex,omitempty"`
	Reason  string `json:"reason"`
}

func leftOut(sum holdall.Summary) (all []leftOutJSON) {
	for _, p := range sum.LeftOut {
		j := leftOutJSON{Reason: printable(p.Message)}
		j.Path, j.PathHex = shown(p.Entry)
		all = append(all, j)
	}
	return all
}

// tellLeftOut names what the format cannot store: of each kind of entry the
// first and a count, and with -v all of them. Attributes are in one line.
func (a *app) tellLeftOut(sum holdall.Summary) {
	for _, kind := range slices.Sorted(maps.Keys(sum.Dropped)) {
		first := ""
		for _, p := range slices.Backward(sum.LeftOut) {
			if p.Class == kind {
				first = quoteEmpty(format.Escape(p.Entry))
			}
		}
		if n := sum.Dropped[kind]; n > 1 {
			first += fmt.Sprintf(", and %s more", thousands(n-1))
		}
		extra := ""
		if kind == "symlink" && a.verb == "pack" {
			extra = "; --follow packs the files they point to"
		}
		a.warn("left out %s, which the format cannot store: %s%s", count(sum.Dropped[kind], kindWords[kind]), first, extra)
	}
	for _, p := range sum.LeftOut {
		if a.verbose && p.Class != "" { // failures were reported when they happened
			a.warn("left out: %s", quoteEmpty(format.Escape(p.Entry)))
		}
	}
	a.tellLost(sum.Lost)
}

func (a *app) tellLost(attributes []string) {
	if len(attributes) > 0 {
		a.warn("the format does not keep %s", strings.Join(attributes, ", "))
	}
}

func (a *app) strictFlag(fs *pflag.FlagSet) {
	fs.BoolVar(&a.strict, "strict", false, "exit with 1 also if the format does not keep an attribute, such as times")
}

var kindWords = map[string]string{"dir": "empty folder", "symlink": "symbolic link", "hardlink": "hard link", "fifo": "FIFO"}

// tellStaleParity warns of a parity file of an earlier archive: it cannot
// repair this one. Remote stores are not checked.
func (a *app) tellStaleParity(ctx context.Context, st store.Store, sum holdall.Summary, p packing) {
	if p.out == "-" || !st.Can().Near || len(sum.Volumes) == 0 {
		return
	}
	name := sum.Volumes[0]
	if p.chunkSize == 0 {
		var err error
		if _, name, err = a.locate(ctx, p.out); err != nil {
			return
		}
	}
	g, err := parity.Seek(ctx, storekit.Under(st), name, "", nil)
	if err != nil || g == nil {
		return
	}
	defer g.Close()
	if g.Suits != nil {
		a.warn("the parity file of %s belongs to an older version: 'holdall protect' writes a new one", name)
	}
}

func (a *app) printPacked(sum holdall.Summary, p packing) {
	name, what := p.out, ""
	if n := len(sum.Volumes); p.chunkSize > 0 && n > 0 { // otherwise it is one archive, even if it is a folder of many objects
		name = sum.Volumes[0]
		if n > 1 {
			name, what = name+" … "+sum.Volumes[n-1], fmt.Sprintf(" in %d chunks", n)
		}
	}
	thing := "file"
	if a.writes(p.out).Keeps&format.KeepsDirs != 0 {
		thing = "entry" // folders count too
	}
	if sum.Copied > 0 {
		what += fmt.Sprintf(", %s copied by the store", a.humanSize(sum.Copied))
	}
	what += provenBy(sum.Proven)
	if sum.Parity != "" {
		what += ", parity " + a.humanSize(sum.ParityBytes)
	}
	if sum.Base != "" {
		what += ", names relative to " + printable(sum.Base)
	}
	fmt.Fprintf(a.out, "%s: %s, %s%s%s\n", name, count(sum.Entries, thing), a.humanSize(sum.Stored), what, a.didNot())
}

func count(n int64, what string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(what, "y") && !strings.HasSuffix(what, "ay"):
		what = strings.TrimSuffix(what, "y") + "ies"
	case strings.HasSuffix(what, "x"):
		what += "es"
	default:
		what += "s"
	}
	return fmt.Sprintf("%s %s", thousands(n), what)
}

// thousands groups digits: 1,234,567.
func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func (a *app) verifyQuietly(ctx context.Context, st store.Store, names []string, o holdall.OpenOptions) error {
	for _, name := range names {
		sum, err := holdall.Verify(ctx, name, holdall.VerifyOptions{OpenOptions: o.In(st)}, func(p holdall.Problem) { a.warn("%s", problemLine(p)) })
		if err != nil {
			return err
		}
		if sum.Errors > 0 {
			return errNo
		}
	}
	return nil
}
