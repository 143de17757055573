package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog/shelf"
)

// These are the groups of verbs in the help, in their order.
var (
	making   = &cobra.Group{ID: "make", Title: "Make and change:"}
	reading  = &cobra.Group{ID: "read", Title: "Read:"}
	checking = &cobra.Group{ID: "check", Title: "Check and repair:"}
)

// A verbSpec describes a command below the root that is not built yet.
type verbSpec struct {
	name  string
	group *cobra.Group // nil for a verb that the help does not list
	ops   format.Op    // what it does with an archive: the formats' flags for that are its flags
	once  format.Op    // what it did in the edition before: it takes those flags, but does not list them
	make  func(*app) *cobra.Command
}

func verbs() []verbSpec {
	const open = format.ToOpen
	return []verbSpec{
		{"pack", making, format.ToCreate, open, (*app).packCommand},
		{"convert", making, open | format.ToCreate, 0, (*app).convertCommand},
		{"index", making, open, 0, (*app).indexCommand},
		{"sync", making, open, 0, (*app).syncCommand},
		{"protect", making, 0, 0, (*app).protectCommand},
		{"sign", making, open, 0, (*app).signCommand},
		{"lindi", making, 0, 0, (*app).lindiCommand},
		{"fleet", making, 0, 0, (*app).fleetCommand},
		{"ls", reading, open, 0, (*app).lsCommand},
		{"tree", reading, open, 0, (*app).treeCommand},
		{"cat", reading, open, 0, (*app).catCommand},
		{"extract", reading, open, 0, (*app).extractCommand},
		{"find", reading, open, 0, (*app).findCommand},
		{"grep", reading, open, 0, (*app).grepCommand},
		{"browse", reading, open, 0, (*app).browseCommand},
		{"serve", reading, open, 0, (*app).serveCommand},
		{"mount", reading, open, 0, (*app).mountCommand},
		{"catalog", reading, 0, 0, (*app).catalogCommand},
		{"info", checking, open, 0, (*app).infoCommand},
		{"map", checking, open, 0, (*app).mapCommand},
		{"diff", checking, open, 0, (*app).diffCommand},
		{"sum", checking, open, 0, (*app).sumCommand},
		{"verify", checking, open | format.ToVerify, 0, (*app).verifyCommand},
		{"repair", checking, open | format.ToRepair, 0, (*app).repairCommand},
		{"oak", checking, 0, 0, (*app).oakCommand},
		{"cache", reading, 0, 0, (*app).cacheCommand},
		{"formats", nil, 0, 0, (*app).formatsCommand},
		{"version", nil, 0, 0, (*app).versionCommand},
		{"man", nil, 0, 0, (*app).manCommand},
		{"add", nil, 0, open, formerly("lindi add", (*app).addCommand)},
		{"rm", nil, 0, open, formerly("lindi rm", (*app).rmCommand)},
		{"mv", nil, 0, open, formerly("lindi mv", (*app).mvCommand)},
	}
}

// openingFlags say how archives are opened. Verbs that open archives take them.
const openingFlags = "as view index parity external password-file trusted no-verify compare-whole max-index cache-dir cache-size"

// commonFlags are those that every verb takes.
const commonFlags = "json quiet color"

// taken names the flags of the root that a verb takes, besides commonFlags. "opening" stands for
// openingFlags. An entry of a group is that of its verbs without one of their own.
var taken = map[string]string{
	"pack":    "progress bytes no-sync no-verify",
	"convert": "opening progress bytes no-sync",
	"index":   "opening progress bytes no-sync",
	"sync":    "opening progress bytes no-sync",
	"protect": "progress bytes no-sync",
	"sign":    "opening progress bytes no-sync",

	"lindi":     "as view max-index bytes no-sync",
	"lindi add": "opening progress bytes no-sync",

	"fleet": "progress bytes no-sync no-verify trusted",

	"ls":      "opening bytes",
	"tree":    "opening bytes",
	"cat":     "opening",
	"extract": "opening progress bytes",
	"find":    "opening bytes",
	"grep":    "opening",
	"browse":  "opening progress bytes",
	"serve":   "opening bytes",
	"mount":   "opening",

	"catalog":         "trusted no-verify max-index cache-dir cache-size bytes",
	"catalog add":     "opening progress bytes",
	"catalog check":   "opening bytes",
	"catalog cat":     "opening",
	"catalog extract": "opening progress bytes",
	"catalog rebuild": "opening bytes",

	"info":   "opening bytes",
	"map":    "opening bytes",
	"diff":   "opening progress bytes",
	"sum":    "opening progress",
	"verify": "opening progress bytes no-sync",
	"repair": "opening progress bytes no-sync",

	"oak":   "as max-index no-verify external progress bytes no-sync",
	"cache": "cache-dir cache-size bytes",
}

// takenBy returns the flags of the root that a verb takes.
func takenBy(cmd *cobra.Command) []string {
	if !cmd.HasParent() {
		return strings.Fields(commonFlags + " progress")
	}
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	if now := cmd.Annotations[formerVerb]; now != "" {
		path = now
	}
	list, ok := taken[path]
	if group, _, sub := strings.Cut(path, " "); sub && !ok {
		list = taken[group]
	}
	return strings.Fields(commonFlags + " " + strings.ReplaceAll(list, "opening", openingFlags))
}

// tellUnused names the flags of the command line that the verb does not take, and those that have
// other names now. They work for one edition more.
func (a *app) tellUnused(cmd *cobra.Command) {
	if strings.HasPrefix(cmd.Name(), cobra.ShellCompRequestCmd) {
		return
	}
	for _, now := range a.former {
		a.warn("%s; the next version will not know the old name", now)
	}
	if now := cmd.Annotations[formerVerb]; now != "" {
		a.warn("'holdall %s' is 'holdall %s' now; the next version will not know the old name", cmd.Name(), now)
	}
	if _, opens := cmd.Annotations[opensAnArchive]; opens {
		return // it uses them all, also where its help is about fewer
	}
	list, opening := takenBy(cmd), strings.Fields(openingFlags) // others are habits, and harmless
	cmd.Root().PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && slices.Contains(opening, f.Name) && !slices.Contains(list, f.Name) && cmd.Runnable() {
			a.warn("'%s' does not use --%s; the next version will refuse it", cmd.CommandPath(), f.Name)
		}
	})
}

// formerVerb is the annotation of a verb by a name that it had. Its value is the verb now.
const formerVerb = "former verb"

func formerly(now string, make func(*app) *cobra.Command) func(*app) *cobra.Command {
	return func(a *app) *cobra.Command {
		cmd := make(a)
		cmd.Annotations = map[string]string{formerVerb: now}
		return cmd
	}
}

// A formerFlag is a flag by a name that it had in the edition before.
type formerFlag struct {
	pflag.Value
	app     *app
	was, is string
}

func (f *formerFlag) Set(s string) error {
	f.app.former = append(f.app.former, "--"+f.was+" is --"+f.is+" now")
	return f.Value.Set(s)
}

// formerly adds a flag by a name that it had.
func (a *app) formerly(fs *pflag.FlagSet, was, letter string, flag *pflag.Flag) {
	f := *flag
	f.Name, f.Shorthand, f.Hidden = was, letter, true
	f.Value = &formerFlag{flag.Value, a, was, flag.Name}
	fs.AddFlag(&f)
}

// A formerIndex is --index of verbs that write archives. It had a word of DataBundle, which is
// --index-place now; other values are where the index of an archive that is read lies.
type formerIndex struct {
	formerFlag
	words []string
}

func (f *formerIndex) Set(s string) error {
	if slices.Contains(f.words, s) {
		return f.formerFlag.Set(s)
	}
	f.app.index = s
	return nil
}

func (a *app) globalFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.BoolVar(&a.json, "json", false, "print results and errors as JSON")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "print results and errors only")
	f.Var(newChoice(&a.progress, "auto", "bar", "plain", "none"), "progress", "show progress: bar, plain (a line every 10 s), none, or auto (a bar on a terminal)")
	f.Var(newChoice(&a.color, "auto", "always", "never"), "color", "colour results and messages: always, never, or auto (on a terminal)")
	f.BoolVar(&a.exact, "bytes", false, "print sizes in bytes")
	f.BoolVar(&a.noSync, "no-sync", false, "do not sync to disk before an archive appears under its name")
	named := slices.DeleteFunc(format.All(), func(f *format.Format) bool { return f == shelf.Format || f.Open == nil }) // that one is recognised by its address
	names := namesOf(named)
	f.StringVar(&a.format, "as", "", "format to read the archive as, if detection fails: "+strings.Join(names, ", "))
	root.RegisterFlagCompletionFunc("as", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	f.StringVar(&a.view, "view", "", "show another view of the archive, if its format has several")
	f.StringSliceVar(&a.external, "external", nil, "where references may lead: addresses, any, or none (default the archive's own folder or server)")
	f.StringVar(&a.index, "index", "", "index to open the archive with, or none (default the one beside it or in the cache)")
	f.StringVar(&a.cacheDir, "cache-dir", "", "folder that caches blocks of remote archives, for all processes")
	f.Var(&a.cacheSize, "cache-size", "how much --cache-dir holds (default 10GiB)")
	f.StringVar(&a.parity, "parity", "", "parity file to repair reads with, or none (default the one beside the archive)")
	f.Var((*passwordFlag)(&a.password), "password-file", "file with the password of an encrypted archive, in its first line")
	f.StringSliceVar(&a.trusted, "trusted", nil, "public key, or a file of one: read only what it has signed")
	f.BoolVar(&a.noVerify, "no-verify", false, "do not compare what is read with recorded digests")
	f.Var(&a.whole, "compare-whole", "largest file to read and compare whole when only a part is read (default 1MiB)")
	f.Var(&a.maxIndex, "max-index", "largest index to accept (default 1GiB)")
	a.formerly(f, "format", "f", f.Lookup("as"))
}

func namesOf(formats []*format.Format) (names []string) {
	for _, f := range formats {
		names = append(names, f.Name)
	}
	return names
}

// catalogFlag adds the flag that names the catalogue of a verb.
func (a *app) catalogFlag(fs *pflag.FlagSet) {
	fs.StringVar(&a.catalog, "catalog", "", "the catalogue: FOLDER.catalog, on a disk or in a bucket (default $HOLDALL_CATALOG, or holdall/default.catalog in your data folder)")
	a.formerly(fs, "db", "", fs.Lookup("catalog"))
}
