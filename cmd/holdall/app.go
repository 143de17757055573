package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/app/catalog/shelf"
	"github.com/holdall/holdall/internal/oak"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storekit"
)

// app is the state that all verbs share: their outputs and the common flags.
type app struct {
	stdin  io.Reader
	out    *bufio.Writer // results
	stdout io.Writer
	stderr io.Writer
	outTTY bool
	inFull bool // problems are printed whole, also on a terminal
	errTTY bool

	json     bool
	quiet    bool
	strict   bool
	progress string
	color    string
	exact    bool // print sizes in bytes
	noSync   bool
	verbose  bool
	dryRun   bool
	former   []string // what has other names now
	force    bool
	patterns []string // of --include and --exclude
	single   string   // the only input of pack or add

	together map[string][]string // archives that are read as one, by the first of them

	opening
	catalogs
	doubting

	verb    string // the current one, for error lines
	path    string // the verb with its parent commands
	address string // the current one, for error lines
	cleanup []func()
}

// asked is the format and the view that an archive is opened in. Empty means
// that the archive decides.
type asked struct{ format, view string }

// opening is how flags say that archives are opened.
type opening struct {
	asked
	target     string // the format to write
	external   []string
	index      string // the index of an archive to use
	parity     string // the parity of an archive to repair it with
	maxIndex   sizeFlag
	password   string
	trusted    []string
	noVerify   bool
	whole      sizeFlag          // see OpenOptions.CompareWhole
	params     map[string]string // parameters of formats, by their flags
	several    bool              // there are several archives, and the parameters may be for some of them only
	cacheBytes int64             // for the cache of a remote archive; 0 is the usual
	cacheDir   string            // for blocks of remote archives
	cacheSize  sizeFlag          // the most of that, and of all kept indexes
	noBlocks   bool              // it was reported that cacheDir cannot be used
	stays      bool              // archives stay open for long, so an index is worth more
}

// catalogs are the catalogues of a verb.
type catalogs struct {
	catalog string                  // --catalog
	queue   string                  // --queue
	shelves map[string]*shelf.Shelf // those that are open as archives, by their addresses
	through []string                // buckets that the archives also show the objects of
}

// doubting is what a verb found that makes its results doubtful.
type doubting struct {
	opened     []*holdall.Archive // opened by the verb, not yet checked for doubts
	doubted    bool               // one of them has a damaged index, or damage hides entries of it
	losses     int                // number of such entries
	doubtsSaid map[string]bool    // the errors that were reported for that
	lastLine   string             // of a log of checks: its digest
}

func newApp(stdin io.Reader, stdout, stderr io.Writer) *app {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, out: bufio.NewWriterSize(stdout, 64<<10)}
	a.params, a.doubtsSaid = map[string]string{}, map[string]bool{}
	a.outTTY, a.errTTY = isTerminal(stdout), isTerminal(stderr)
	return a
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// columnsOf returns how wide a terminal is. Anything else is as wide as most of them.
func columnsOf(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 80
}

func (a *app) run(ctx context.Context, args []string) int {
	root := a.rootCommand(args)
	cmd := root
	ctx = storekit.Telling(ctx, func(line string) { a.warn("%s", line) })
	if len(args) == 1 && args[0] == "-v" {
		a.warn("-v is --version now; the next version will not know the old name")
		args = []string{"--version"}
	}
	args, err := verbFor(root, args)
	if err == nil {
		root.SetArgs(args)
		cmd, err = root.ExecuteContextC(ctx)
	}
	if _, ok := errors.AsType[*usageError](err); ok && cmd.HasParent() {
		a.verb = cmd.Name()
	}
	a.path = cmd.CommandPath()
	if ferr := a.out.Flush(); err == nil && ferr != nil {
		err = ferr
	}
	for _, f := range a.cleanup {
		f()
	}
	doubts := a.doubts(ctx)
	switch {
	case err == nil && !doubts:
		return exitOK
	case err == nil:
		return exitNo
	case errors.Is(err, errNo):
		return exitNo
	case errors.Is(err, errSaid):
		return exitFailed
	case errors.Is(err, holdall.ErrNothing):
		a.report(err)
		return exitNo
	case errors.Is(context.Cause(ctx), errInterrupted):
		fmt.Fprintln(a.stderr, "holdall: interrupted")
		return exitInterrupted
	}
	if !a.said(err) {
		a.report(err)
	}
	return exitFailed
}

// said reports whether err is a doubt that has been reported.
func (a *app) said(err error) bool { return a.doubtsSaid[err.Error()] }

// warn prints a line for the user that is not a result.
func (a *app) warn(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintln(a.stderr, a.prefix("warning")+fmt.Sprintf(format, args...))
	}
}

func (a *app) openOptions() holdall.OpenOptions {
	return holdall.OpenOptions{Format: a.format, View: a.view, CacheBytes: a.cacheBytes, External: a.mayLead(), Limits: format.Limits{Index: int64(a.maxIndex)}, Param: a.given(^format.ToCreate), Password: a.password, NoVerify: a.noVerify, Trusted: a.trusted, CompareWhole: int64(a.whole), Parity: a.parity, OnHeal: a.saysHealed(a.address), Blocks: a.blocks()}
}

// saysHealed returns a function that warns that an archive is damaged. It is
// called at the first repair while reading.
func (a *app) saysHealed(address string) func(by string) {
	return func(by string) { a.warn("%s: damaged, and healed with %s: 'holdall repair' repairs it", address, by) }
}

// written returns the options for opening an archive that the verb has
// written. The flags are about its input, so they do not apply.
func (a *app) written() holdall.OpenOptions {
	return holdall.OpenOptions{Format: a.target, External: a.external, Limits: format.Limits{Index: int64(a.maxIndex)}}
}

func (a *app) openIn(ctx context.Context, st store.Store, name string, o holdall.OpenOptions) (*holdall.Archive, error) {
	if _, ok := st.(*shelf.Shelf); ok {
		o = ofCatalog(o)
	}
	return withParams(a, o, func(o holdall.OpenOptions) (*holdall.Archive, error) { return holdall.Open(ctx, name, o.In(st)) })
}

// withParams opens an archive. If there are several, each gets the parameters
// that its format takes.
func withParams[T any](a *app, o holdall.OpenOptions, open func(holdall.OpenOptions) (T, error)) (T, error) {
	in, err := open(o)
	if p, ok := errors.AsType[*format.ParamError](err); ok && p.Want == "" && a.several {
		o.Param = a.paramsOf(p.Format)
		in, err = open(o)
	}
	return in, err
}

// locate returns the store at an address. "-" is standard input: it is first
// copied to a temporary file, because an archive is read from its end.
func (a *app) locate(ctx context.Context, address string) (store.Store, string, error) {
	a.address = store.Redact(address)
	if address == "-" {
		file, err := a.spool(ctx, "stdin")
		if err != nil {
			return nil, "", err
		}
		address = file
	}
	return a.storeOf(ctx, address)
}

// locateIn is locate for an archive to be read. A folder of AEM's repository stands for the
// segment store in it.
func (a *app) locateIn(ctx context.Context, address string) (store.Store, string, error) {
	if err := a.oneByOne(ctx, address); err != nil {
		return nil, "", err
	}
	st, name, err := a.locate(ctx, address)
	if err == nil && (a.format == "" || a.format == oak.Format.Name) {
		name = oak.StoreIn(ctx, st, name)
	}
	return st, name, err
}

// storeOf returns the store of an address that is not standard input. It may
// be called concurrently.
func (a *app) storeOf(ctx context.Context, address string) (store.Store, string, error) {
	if s, name, err := a.catalogued(ctx, address); s != nil || err != nil {
		return s, name, err
	}
	_, at := store.CutLayer(address)
	if _, host, _ := strings.Cut(at, "://"); strings.HasPrefix(store.Scheme(at), "http") && strings.Trim(host, "/") != "" {
		address = strings.TrimRight(address, "/") // the address of an archive that is a folder
	}
	if scheme, rest, ok := strings.Cut(at, ":"); ok && store.Scheme(at) == "" {
		meant := scheme + "://" + strings.TrimLeft(rest, "/")
		if _, err := os.Lstat(at); err != nil {
			if _, _, err := store.OpenAddress(ctx, meant); err == nil {
				return nil, "", &misspeltError{usage("%s: no such file", at), meant}
			}
		}
	}
	st, name, err := store.OpenAddress(ctx, address)
	if err == nil {
		if l, ok := storekit.Under(st).(*local.Store); ok {
			l.NoSync = a.noSync
		}
	}
	return st, name, err
}

// spool copies standard input to a file of that name in a temporary folder,
// which is removed when the command ends. Archives are read from their end,
// and a writer must know the size of an entry before it begins it.
func (a *app) spool(ctx context.Context, name string) (string, error) {
	dir, err := os.MkdirTemp("", "holdall-stdin-")
	if err != nil {
		return "", err
	}
	a.cleanup = append(a.cleanup, func() { os.RemoveAll(dir) })
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return "", err
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(f, a.stdin)
		copied <- errors.Join(err, f.Close())
	}()
	select {
	case err := <-copied:
		return f.Name(), err
	case <-ctx.Done(): // a read of standard input cannot be cancelled, so end without it
		return "", context.Cause(ctx)
	}
}

// open opens an archive, with an index if there is one, or a folder as if it
// were an archive.
func (a *app) open(ctx context.Context, address string, few bool) (*holdall.Archive, error) {
	return a.openAs(ctx, address, a.asked, few)
}

// openAs is open, but as a verb asks for the archive, not as flags do.
func (a *app) openAs(ctx context.Context, address string, as asked, few bool) (*holdall.Archive, error) {
	in, err := a.openDoubted(ctx, address, as, few, a.useIndex())
	if err == nil {
		a.tellIgnored(in)
	}
	return in, err
}

// tellIgnored warns once that an index is not used.
func (a *app) tellIgnored(in *holdall.Archive) {
	if s := in.Index(); s.Ignored != "" && !a.doubtsSaid[s.Ignored] {
		a.doubtsSaid[s.Ignored] = true
		a.warn("%s: not used: %v", s.Ignored, s.Why)
	}
}

// doubts warns about each archive opened since the last call whose index is
// damaged, and names what its view leaves out. It reports whether there has been
// any so far.
func (a *app) doubts(ctx context.Context) bool {
	defer func(was string) { a.address = was }(a.address)
	a.address = "" // the error names the archive
	for _, in := range a.opened {
		for _, err := range doubtsOf(ctx, in) {
			if a.doubted = true; !a.said(err) {
				a.report(err)
			}
			a.doubtsSaid[err.Error()] = true
		}
		a.tellIgnored(in)
		if _, _, ignored := in.Healing(); ignored != nil {
			a.warn("%s: parity not used: %v", in.Name(), ignored)
		}
	}
	a.opened = nil
	return a.doubted
}

func doubtsOf(ctx context.Context, in *holdall.Archive) (all []error) {
	err := in.Doubt()
	if err == nil {
		return nil
	}
	if set, ok := err.(interface{ Unwrap() []error }); ok && in.IsSet() {
		return set.Unwrap()
	}
	all = append(all, err)
	if c, ok := errors.AsType[*format.CorruptError](err); ok && c.Problem.Code == format.Unsupported {
		about, _ := in.About(ctx) // its error would be that of the verb
		for _, p := range about.Notes {
			if p.Code == format.Unsupported && p.Severity > format.Note {
				all = append(all, &format.CorruptError{Format: c.Format, Problem: p})
			}
		}
	}
	return all
}

// openBare opens an archive for callers that examine its own index.
func (a *app) openBare(ctx context.Context, address, view string, few bool) (*holdall.Archive, error) {
	if err := a.oneByOne(ctx, address); err != nil {
		return nil, err
	}
	return a.openDoubted(ctx, address, asked{a.format, view}, few, holdall.UseIndex{})
}

// openDoubted opens an archive whose doubts are reported at the end.
func (a *app) openDoubted(ctx context.Context, address string, as asked, few bool, index holdall.UseIndex) (*holdall.Archive, error) {
	in, err := a.openBy(ctx, address, as, few, index)
	if err == nil {
		a.opened = append(a.opened, in)
	}
	return in, err
}

func (a *app) openBy(ctx context.Context, address string, as asked, few bool, index holdall.UseIndex) (*holdall.Archive, error) {
	a.address = store.Redact(address)
	st, names, err := a.archivesOf(ctx, address)
	if err != nil {
		return nil, err
	}
	o := a.openOptions()
	o.Format, o.View, o.FewLookups, o.Index = as.format, as.view, few, index
	if len(names) > 0 {
		return a.openSet(ctx, address, st, names, o)
	}
	st, name, err := a.locateIn(ctx, address)
	if err != nil {
		return nil, err
	}
	in, err := a.openIn(ctx, st, name, o)
	if errors.Is(err, format.ErrUnknown) && store.Scheme(address) == "" && as == (asked{}) && isFolder(address) {
		if err := ofAFolder(o.Param); err != nil && !a.several {
			return nil, err
		}
		return holdall.Open(ctx, address, holdall.OpenOptions{Format: "dir"}) // an ordinary folder
	}
	return in, err
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// An overview is an archive as its own index shows it, and what a kept index
// proves of it.
type overview struct {
	*holdall.Archive
	indexed *holdall.Archive // by its kept index, if there is one
}

// proven returns an entry as it is proven best.
func (o overview) proven(ctx context.Context, e holdall.Entry) (*holdall.Archive, holdall.Entry) {
	if o.indexed != nil {
		if of, err := o.indexed.Lookup(ctx, e.Name); err == nil && of.Size == e.Size {
			return o.indexed, of
		}
	}
	return o.Archive, e
}

func (o overview) Unproven(ctx context.Context, e holdall.Entry) bool {
	in, e := o.proven(ctx, e)
	return in.Unproven(ctx, e)
}

func (o overview) Compares(ctx context.Context, e holdall.Entry) (parts, whole bool) {
	in, e := o.proven(ctx, e)
	return in.Compares(ctx, e)
}

func (o overview) Close() error {
	if o.indexed != nil {
		o.indexed.Close()
	}
	return o.Archive.Close()
}

// openOverview opens an archive in the view that shows it as a whole, even if
// it has no other view.
func (a *app) openOverview(ctx context.Context, address string) (o overview, err error) {
	u := a.useIndex()
	u.Folder = nil                                     // what is kept there has no digests
	u.Beside = u.Beside && store.Scheme(address) == "" // elsewhere it takes a request
	if o.Archive, err = a.openWhole(ctx, address, u); err != nil || o.Index().Used == "" {
		return o, err
	}
	o.indexed = o.Archive
	if o.Archive, err = a.openWhole(ctx, address, holdall.UseIndex{}); err != nil {
		o.indexed.Close()
	}
	return o, err
}

func (a *app) openWhole(ctx context.Context, address string, index holdall.UseIndex) (*holdall.Archive, error) {
	if err := a.oneByOne(ctx, address); err != nil {
		return nil, err
	}
	open := func(view string) (*holdall.Archive, error) {
		return a.openDoubted(ctx, address, asked{a.format, view}, false, index)
	}
	in, err := open(a.view)
	var f *format.Format
	if c, ok := errors.AsType[*format.CorruptError](err); ok {
		f = format.All().ByName(c.Format)
	} else if err == nil {
		f = in.Format()
	}
	if a.view != "" || f == nil || f.Overview == "" {
		return in, err
	}
	if err == nil {
		in.Close()
	}
	return open(f.Overview)
}

func (a *app) line(key, text string, args ...any) {
	fmt.Fprintf(a.out, "%-14s %s\n", key, fmt.Sprintf(text, args...))
}

// lookup finds the entry for a name that the user gave. It tries the name
// unchanged, then without a slash at its end, then as holdall shows names that
// a terminal cannot display.
func lookup(ctx context.Context, a *holdall.Archive, name string) (holdall.Entry, error) {
	e, err := a.Lookup(ctx, name)
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return e, err
	}
	// Paths in content repositories begin with a slash.
	plain := strings.TrimSuffix(name, "/")
	for _, other := range []string{strings.TrimPrefix(plain, "./"), strings.TrimPrefix(plain, "/"), naming.Unescape(name)} {
		if other != name && other != "" {
			if e, oerr := a.Lookup(ctx, other); oerr == nil {
				return e, nil
			}
		}
	}
	return e, misspelt(ctx, a, name, err)
}

// wholeCommand returns the command with all verbs. Its flags set nothing.
func wholeCommand() *cobra.Command {
	return newApp(strings.NewReader(""), io.Discard, io.Discard).rootCommand(nil)
}

// rootCommand returns the command for a command line. If its first word is a
// verb, the command has no other verbs: to build all of them takes longer
// than many verbs do.
func (a *app) rootCommand(args []string) *cobra.Command {
	root := &cobra.Command{
		Use:   "holdall",
		Short: "Pack many small files into few archives, and read each file alone",
		Long: `holdall packs many small files into few archives, and reads each file without
unpacking the others. It also verifies, repairs and converts archives: on disk,
over HTTP and in buckets.

ARCHIVE is a path, file:///…, http(s)://…, s3://…, gs://…, az://…, or - for
standard input. holdall detects the format from the content; 'holdall formats'
lists the formats. Verbs that read an archive also accept a folder, or a pattern
in quotes of several archives: 'd-*.caf'. 'holdall ARCHIVE' is short for
'holdall ls ARCHIVE'.`,
		Example: `  holdall pack -o docs.caf docs
  holdall ls -l docs.caf
  holdall cat https://example.org/docs.caf guide/intro.md
  holdall extract docs.caf -C out`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			a.verb = cmd.Name()
			err := a.environment(cmd)
			a.tellUnused(cmd)
			if err != nil || len(a.trusted) == 0 {
				return err
			}
			return a.trusts(cmd)
		},
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(a.helpCommand())
	a.globalFlags(root)
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		return a.writeUsage(cmd.OutOrStderr(), cmd, min(columnsOf(a.stdout), 100))
	})
	root.AddGroup(making, reading, checking)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.Flags().Bool("version", false, "print the version")
	used := verbs()
	word, _ := firstWord(root.PersistentFlags(), args)
	if i := slices.IndexFunc(used, func(v verbSpec) bool { return v.name == word }); i >= 0 {
		used = used[i : i+1]
	} else {
		root.Version = versionString()
		root.AddCommand(a.topicCommands()...)
	}
	for _, v := range used {
		cmd := v.make(a)
		if cmd.Hidden = v.group == nil; !cmd.Hidden {
			cmd.GroupID = v.group.ID
		}
		root.AddCommand(a.takes(v.ops|v.once, cmd, format.All()...))
		if v.once != 0 {
			hideOthers(cmd, v.ops)
		}
	}
	a.completions(root)
	return root
}

// writable returns the formats that can be written. Some are written only by convert.
func writable(converts bool) []*format.Format {
	return slices.DeleteFunc(format.All(), func(f *format.Format) bool { return f.Create == nil && (!converts || f.FromZarr == nil) })
}

func (a *app) formatFlag(cmd *cobra.Command, f *pflag.FlagSet, usage string, formats []*format.Format) {
	names := namesOf(formats)
	f.StringVarP(&a.target, "format", "f", "", usage+strings.Join(names, ", "))
	cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

func argOr(args []string, i int, usual string) string {
	if i < len(args) {
		return args[i]
	}
	return usual
}

// run adapts a verb's function for cobra.
func run(do func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error { return do(cmd.Context(), args) }
}

// answer returns the error that ends a verb with a yes-or-no answer: errNo if
// no is set.
func answer(no bool) error {
	if no {
		return errNo
	}
	return nil
}

// use opens an archive for do. If it took long to open, an index is kept for the next time.
func (a *app) use(ctx context.Context, address string, few bool, do func(*holdall.Archive) error) error {
	in, err := a.open(ctx, address, few)
	if err != nil {
		return err
	}
	defer a.close(ctx, in)
	return do(in)
}

// onArchive adapts a function on the archive that the first argument names.
func (a *app) onArchive(do func(ctx context.Context, in *holdall.Archive, args []string) error) func(*cobra.Command, []string) error {
	return run(func(ctx context.Context, args []string) error {
		args, err := a.withTogether(ctx, args)
		if err != nil {
			return err
		}
		return a.use(ctx, args[0], false, func(in *holdall.Archive) error { return do(ctx, in, args[1:]) })
	})
}

// tell prints a result: as JSON for programs, or with people.
func (a *app) tell(result any, people func()) {
	if a.json {
		a.printJSON(result)
	} else {
		people()
	}
}

// args checks the number of arguments, with holdall's own error messages.
func args(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || most >= 0 && len(args) > most {
			return usage("expected %s, found %s", what, count(int64(len(args)), "argument"))
		}
		return nil
	}
}
