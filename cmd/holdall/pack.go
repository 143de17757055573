package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/app/catalog"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

// packFlags are the flags of the verbs that write archives.
type packFlags struct {
	out       string
	chunkSize sizeFlag
	chunkMax  sizeFlag
	jobs      int
	level     string
	sections  string
	timestamp string
	bundle    bundleFlags
	plain     bool
	verify    bool
	catalog   string
	resume    bool
}

func (f *packFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.Var(&f.chunkSize, "chunk-size", "roll over into OUT-00001, OUT-00002, … when the next file would take a chunk's content over this (30GB, 512MiB)")
	fs.Var(&f.chunkMax, "chunk-max", "most bytes of a whole chunk, index included (default 32GiB)")
	fs.StringVar(&f.level, "level", "", "compression level, where the format compresses")
	fs.StringVar(&f.sections, "sections", "", "rvn: what is compressed together, and read at random: 1MiB, 4MiB, or none, which is one piece as packrvn writes it")
	f.bundle.register(cmd)
	fs.StringVar(&f.timestamp, "timestamp", "", "give every entry this time, in seconds since 1970 (for rvn $SOURCE_DATE_EPOCH does so too)")
	fs.BoolVar(&f.plain, "plain", false, "write the bare format, without the digests that holdall adds")
	fs.BoolVar(&f.verify, "verify", false, "read what was written again, and check it")
	fs.Bool("deterministic", true, "the same bytes for the same files")
	fs.MarkHidden("deterministic")
}

func (f *packFlags) options(a *app, m *holdall.Meter) (holdall.PackOptions, error) {
	o := holdall.PackOptions{Format: a.format, ChunkSize: int64(f.chunkSize), ChunkMax: int64(f.chunkMax), Jobs: f.jobs, Plain: f.plain, Meter: m, OnError: a.entryFailed}
	o.Param = map[string]string{}
	if f.level != "" {
		o.Param["level"] = f.level
	}
	switch f.sections {
	case "":
	case "none":
		o.Param["sections"] = f.sections
	default:
		n, err := parseSize(f.sections)
		if err != nil {
			return o, fmt.Errorf("--sections: %w, or none", err)
		}
		o.Param["sections"] = strconv.FormatInt(n, 10)
	}
	if err := f.bundle.params(o.Param); err != nil {
		return o, err
	}
	if a.writes(f.out) == rvnFormat {
		if f.timestamp == "" {
			f.timestamp = os.Getenv("SOURCE_DATE_EPOCH")
		}
		// Encoders have tables of up to 35 MB each, and little else is allocated
		// while they work: twice the heap would be much for nothing.
		debug.SetGCPercent(25)
	}
	if f.timestamp != "" {
		n, err := strconv.ParseInt(f.timestamp, 10, 64)
		if err != nil || n < 0 {
			return o, fmt.Errorf("--timestamp: expected seconds since 1970, found %q", f.timestamp)
		}
		o.Time = time.Unix(n, 0).UTC()
	}
	return o, nil
}

// rvnFormat has flags of its own.
const rvnFormat = "rvn"

// writes is the name of the format that an archive called out will have.
func (a *app) writes(out string) string {
	if a.format != "" {
		return a.format
	}
	if f := format.ByExtension(format.All(), out); f != nil {
		return f.Name
	}
	return ""
}

// entryFailed tells of one entry that a verb had to leave out.
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
	if !strings.Contains(text, shownName) || shownName == "" {
		text = quoteEmpty(shownName) + ": " + text
	}
	fmt.Fprintf(a.stderr, "holdall: %s: %s\n", a.verb, text)
}

func (a *app) packCommand() *cobra.Command {
	var f packFlags
	var pkg packageFlags
	var exclude []string
	var follow, unpack bool
	var filesFrom, prefix, stdinName string
	cmd := &cobra.Command{
		Use:   "pack -f FORMAT -o OUT INPUT...",
		Short: "Make an archive from files and folders, or from a bucket",
		Long: `Makes an archive from files and folders, or from what lies below addresses.

One folder alone gives its contents: 'pack -o x.caf docs' has intro.md, not
docs/intro.md (--prefix docs/ puts it there). Several inputs are told apart by
their own names. INPUT - is standard input. Of an address, all objects below
it are packed as they are listed, or the one that it names.

The archive appears under its name whole, or not at all; one that is there
already stays until then. A file that cannot be read is reported, the others
are packed, and the exit code is 1.

With --resume, what was sent to a bucket before the pack was interrupted, or
failed, stays there, and the same command goes on with it: inputs are read
again, and what the bucket has is not sent again. Without it nothing stays.`,
		Example: `  holdall pack -f caf -o docs.caf docs
  holdall pack -f caf -o photos.caf --chunk-size 30GB /mnt/photos
  find . -name '*.log' | holdall pack -f caf -o logs.caf --files-from -
  holdall pack -f caf -o s3://out/photos --chunk-size 30GB --resume s3://in/photos
  pg_dump db | holdall pack -f caf -o dump.caf --stdin-name db.sql -`,
		RunE: func(cmd *cobra.Command, inputs []string) error {
			if f.out == "" {
				return &usageError{cmd, errors.New("-o OUT is missing")}
			}
			if filesFrom != "" {
				listed, err := a.readList(filesFrom)
				if err != nil {
					return err
				}
				if len(inputs) > 0 {
					return &usageError{cmd, errors.New("inputs and --files-from do not go together")}
				}
				inputs = listed
			} else if len(inputs) == 0 {
				return &usageError{cmd, errors.New("expected something to pack")}
			}
			m := &holdall.Meter{}
			o, err := f.options(a, m)
			if err != nil {
				return &usageError{cmd, err}
			}
			o.Exclude, o.Follow, o.Prefix, o.Listed, o.Resume = exclude, follow, prefix, filesFrom != "", f.resume
			if a.writes(f.out) == rvnFormat {
				if err := pkg.apply(cmd.Context(), a, inputs, &o); err != nil {
					return err
				}
			}
			if f.catalog != "" && (unpack || f.out == "-") {
				return &usageError{cmd, errors.New("--catalog does not go together with --unpack and -o -")}
			}
			if unpack {
				return a.packUnpacked(cmd, inputs, f, o)
			}
			if i := slices.Index(inputs, "-"); i >= 0 {
				if filepath.Base(stdinName) != stdinName {
					return &usageError{cmd, errors.New("--stdin-name is one name, without folders")}
				}
				file, err := a.spool(cmd.Context(), stdinName)
				if err != nil {
					return err
				}
				inputs[i] = file
			}
			if store.Scheme(f.out) != "" || slices.ContainsFunc(inputs, func(in string) bool { return store.Scheme(in) != "" }) {
				// What waits to be sent, or was read ahead, is most of the memory, and
				// is used again and again: half as much would be garbage beside it.
				debug.SetGCPercent(25)
			}
			ctx := cmd.Context()
			st, name, err := a.locateOut(ctx, f.out)
			if err != nil {
				return err
			}
			pack := func(c *catalog.Catalog) error {
				stop := a.showProgress(m, "packed")
				sum, err := holdall.PackStore(ctx, st, name, inputs, o)
				stop()
				if err != nil {
					a.kept(sum, f)
					return err
				}
				return a.packedInto(ctx, c, st, name, sum, f)
			}
			if f.catalog == "" {
				return pack(nil)
			}
			a.db = f.catalog
			// Opened before anything is packed: it would be too late afterwards to
			// learn that it is not there.
			return a.withCatalog(ctx, catalog.Options{}, pack)
		},
	}
	f.register(cmd)
	fs := cmd.Flags()
	fs.IntVarP(&f.jobs, "jobs", "j", 0, "files read at once (default: what suits the machine; 16 requests of a bucket)")
	fs.StringVarP(&f.out, "output", "o", "", "the archive to make; - is standard output")
	fs.StringArrayVar(&exclude, "exclude", nil, "leave out names like this: '*.tmp', 'cache/*'; may come several times")
	fs.BoolVar(&follow, "follow", false, "pack the files that symlinks point to")
	fs.BoolVar(&unpack, "unpack", false, "the input is an archive: pack what is in it")
	fs.StringVar(&filesFrom, "files-from", "", "read what to pack from a file, a line each; - is standard input")
	fs.BoolVar(&f.resume, "resume", false, "go on with what was sent before the last try broke off, and keep what was sent if this one does")
	fs.StringVar(&f.catalog, "catalog", "", "record what was written in this catalogue")
	fs.StringVar(&prefix, "prefix", "", "put this in front of every name")
	fs.StringVar(&stdinName, "stdin-name", "stdin", "name of the entry that input - becomes")
	pkg.register(cmd)
	return cmd
}

// kept tells what stays in the bucket of a pack that failed.
func (a *app) kept(sum holdall.Summary, f packFlags) {
	if f.resume && sum.Kept > 0 {
		a.warn("%s stay in the bucket, unseen: the same command goes on with them", humanSize(sum.Kept))
	}
}

// locateOut finds the store to write into.
func (a *app) locateOut(ctx context.Context, out string) (store.Store, string, error) {
	if out == "-" {
		if a.outTTY {
			return nil, "", errors.New("an archive is not written to a terminal")
		}
		out = "/dev/stdout"
	}
	return a.locate(ctx, out)
}

// readList reads a list of paths.
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

// packUnpacked packs what is in an archive.
func (a *app) packUnpacked(cmd *cobra.Command, inputs []string, f packFlags, o holdall.PackOptions) error {
	if len(inputs) != 1 {
		return &usageError{cmd, errors.New("--unpack takes one archive")}
	}
	return a.convert(cmd.Context(), inputs[0], f.out, f, o, "", false)
}

// errUnsound ends a pack whose archive was found damaged.
var errUnsound = fmt.Errorf("%w: what was written is damaged", errNo)

// packedInto tells what was written, and records it in a catalogue if there is one.
// Entries that could not be packed are no reason not to.
func (a *app) packedInto(ctx context.Context, c *catalog.Catalog, st store.Store, name string, sum holdall.Summary, f packFlags) error {
	err := a.packed(ctx, st, sum, nil, f)
	if c == nil || err != nil && (!errors.Is(err, errNo) || errors.Is(err, errUnsound)) {
		return err
	}
	volumes := []string{name}
	if f.chunkSize > 0 {
		volumes = sum.Volumes
	}
	if rerr := a.recordPacked(ctx, c, st, volumes, f.verify); rerr != nil {
		return fmt.Errorf("the archive is written, but not in the catalogue: 'holdall catalog add' records it: %w", rerr)
	}
	return err
}

// packed tells what was written, and checks it if asked.
func (a *app) packed(ctx context.Context, st store.Store, sum holdall.Summary, lost []string, f packFlags) error {
	kinds := make([]string, 0, len(sum.Dropped))
	for kind := range sum.Dropped {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	for _, kind := range kinds {
		what := map[string]string{"dir": "empty folders", "symlink": "symbolic links", "hardlink": "hard links", "fifo": "FIFOs"}[kind]
		extra := ""
		if kind == "symlink" && a.verb == "pack" {
			extra = "; --follow packs the files they point to"
		}
		a.warn("%d %s left out: the format has no place for them%s", sum.Dropped[kind], what, extra)
	}
	if len(lost) > 0 {
		a.warn("the format does not keep %s", strings.Join(lost, ", "))
	}
	if index := sum.Stored - sum.Content; len(sum.Volumes) == 1 && index > format.DefaultMaxIndex {
		a.warn("the index has %s: reading it takes --max-index, or a smaller --chunk-size", humanSize(index))
	}
	if sum.Older != "" {
		a.warn("%s is there still, of an older set with more chunks", sum.Older)
	}
	if a.json {
		a.printJSON(holdall.Converted{Summary: sum, Lost: lost})
	} else if f.out != "-" {
		name, what := strings.Join(firstAndLast(sum.Volumes), " … "), ""
		if n := len(sum.Volumes); n > 1 {
			what = fmt.Sprintf(" in %d chunks", n)
		}
		if f.chunkSize == 0 { // one archive, even if it is a folder of many objects
			name, what = f.out, ""
		}
		thing := "file"
		if w := format.ByName(format.All(), a.writes(f.out)); w != nil && w.Keeps&format.KeepsDirs != 0 {
			thing = "entry" // folders count too
		}
		if sum.Copied > 0 {
			what += fmt.Sprintf(", of which the store copied %s", a.humanSize(sum.Copied))
		}
		fmt.Fprintf(a.out, "%s: %s, %s%s\n", name, count(sum.Entries, thing), a.humanSize(sum.Stored), what)
	}
	if f.verify {
		volumes := sum.Volumes
		if f.chunkSize == 0 {
			var err error
			var name string
			if st, name, err = a.locate(ctx, f.out); err != nil {
				return err
			}
			volumes = []string{name}
		}
		if err := a.verifyWritten(ctx, st, volumes); errors.Is(err, errNo) {
			return errUnsound
		} else if err != nil {
			return err
		}
	}
	if sum.Failed > 0 {
		a.warn("%s could not be packed", count(sum.Failed, "entry"))
		return errNo
	}
	return nil
}

func firstAndLast(s []string) []string {
	if len(s) < 2 {
		return s
	}
	return []string{s[0], s[len(s)-1]}
}

// count is a number of things.
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

func (a *app) verifyWritten(ctx context.Context, st store.Store, volumes []string) error {
	for _, v := range volumes {
		o := holdall.VerifyOptions{OpenOptions: a.openOptions()}
		sum, err := holdall.VerifyStore(ctx, st, v, o, func(p holdall.Problem) { a.warn("%s", problemLine(p)) })
		if err != nil {
			return err
		}
		if sum.Errors > 0 {
			return errNo
		}
	}
	return nil
}
