package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
)

// nearest returns the word of words that s most likely misspells, or "" if
// none is similar.
func nearest(s string, words []string) (best string) {
	most := min(2, len(s)/2) // letters that are wrong
	for _, w := range words {
		switch n := distance(strings.ToLower(s), strings.ToLower(w)); {
		case n <= most && n > 0:
			best, most = w, n-1
		case best == "" && len(s) > 2 && strings.HasPrefix(w, s):
			best = w
		}
	}
	return best
}

// distance returns how many letters must be changed, added, removed or swapped
// with their neighbour to turn a into b.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := range x {
		row[0] = i + 1
		for j := range y {
			cost := 1
			if x[i] == y[j] {
				cost = 0
			}
			row[j+1] = min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}

// otherVerbs maps the verbs of tar, restic, rclone, borg and others to
// holdall's.
var otherVerbs = map[string]string{
	"list": "ls", "dir": "ls", "l": "ls", "ll": "ls", "lsl": "ls", "lsf": "ls", "lsd": "ls", "t": "ls", "contents": "ls",
	"create": "pack", "c": "pack", "a": "pack", "e": "extract", "archive": "pack", "compress": "pack", "backup": "pack", "zip": "pack", "tar": "pack", "init": "pack", "save": "pack",
	"x": "extract", "unpack": "extract", "unzip": "extract", "untar": "extract", "restore": "extract", "decompress": "extract", "export": "extract",
	"dump": "cat", "print": "cat", "show": "cat", "read": "cat", "type": "cat", "get": "cat",
	"check": "verify", "test": "verify", "fsck": "verify", "scrub": "verify", "validate": "verify",
	"fix": "repair", "mend": "repair", "heal": "repair", "recover": "repair", "rebuild-index": "index",
	"copy": "convert", "cp": "convert", "transcode": "convert",
	"stat": "info", "stats": "info", "size": "info", "about": "info", "inspect": "info",
	"compare": "diff", "cmp": "diff", "delete": "lindi rm", "del": "lindi rm", "remove": "lindi rm", "purge": "lindi rm", "forget": "lindi rm",
	"rename": "lindi mv", "move": "lindi mv", "moveto": "lindi mv", "append": "lindi add", "put": "lindi add", "update": "lindi add",
	"search": "find", "locate": "find", "rg": "grep", "server": "serve", "http": "serve", "ui": "browse", "web": "browse", "open": "browse",
	"par2": "protect", "parity": "protect", "md5sum": "sum", "sha256sum": "sum", "hashsum": "sum",
	"ncdu": "tree", "umount": "mount", "unmount": "mount",
}

var tarWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^-?([cxtru])[vzjJap]*f?$`) })

// likeTar returns an error for a word that is a tar option, such as xvf, and
// nil for others.
func likeTar(word string) error {
	m := tarWord().FindStringSubmatch(word)
	if m == nil || len(word) < 2 {
		return nil
	}
	verb := map[string]string{"c": "pack -o", "x": "extract", "t": "ls", "r": "lindi add", "u": "lindi add"}[m[1]]
	return &misspeltError{usage("%s is an option of tar, and holdall has verbs", word), "'holdall " + verb + "'"}
}

func unknownVerb(cmd *cobra.Command, word string) error {
	var verbs []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand() || c.Name() == "help" {
			verbs = append(verbs, c.Name())
		}
	}
	meant := nearest(word, verbs)
	if tar := likeTar(word); !cmd.HasParent() && tar != nil {
		return tar
	}
	if other := otherVerbs[word]; !cmd.HasParent() && other != "" {
		meant = other
	}
	if meant == "" {
		return usage("unknown verb %q for %q", word, cmd.CommandPath())
	}
	return &misspeltError{usage("unknown verb %q for %q", word, cmd.CommandPath()), meant}
}

// otherFlags maps a flag to its names in other programs and verbs.
var otherFlags = map[string][]string{
	"target": {"directory", "output"}, "to": {"directory", "output"}, "dir": {"directory"}, "dest": {"directory", "output"}, "out": {"output"}, "file": {"output"},
	"threads": {"jobs"}, "transfers": {"jobs"}, "parallel": {"jobs"}, "workers": {"jobs"}, "recurse": {"recursive"}, "dryrun": {"dry-run"},
	"exclude-file": {"exclude-from"}, "only": {"include"}, "filter": {"include"}, "force": {"overwrite"}, "overwrite": {"force"}, "human": {"human-readable"},
	"compression-level": {"level"}, "dereference": {"follow"}, "same-owner": {"no-owner"}, "type": {"kind", "format"}, "files-with-match": {"files-with-matches"},
	"part-size": {"chunk-size"}, "volume-size": {"chunk-size"}, "no-check": {"no-verify"}, "silent": {"quiet"}, "debug": {"verbose"}, "max-depth": {"depth"},
	"listen": {"addr"}, "port": {"addr"}, "bind": {"addr"}, "address": {"addr"},
}

// otherLetters maps a letter of a verb in other programs to what does that here.
var otherLetters = map[string]string{
	"extract -o": "-C", "extract -d": "-C", "extract -f": "--as", "cat -o": "'> FILE'", "find -n": "'holdall find ARCHIVE PATTERN'", "pack -C": "'holdall pack -o OUT FOLDER'",
	"pack -r": "a folder, which is packed with all that is in it", "pack -z": "-o OUT.tar.gz", "ls -f": "--as",
}

// flagError explains an unknown flag: which flag was probably meant, and which
// verbs have it.
func flagError(cmd *cobra.Command, err error) error {
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		cause := wrong.Unwrap()
		if is[*strconv.NumError](cause) {
			cause = errors.New("expected a number")
			if wrong.GetFlag().Value.Type() == "bool" {
				cause = errors.New("expected true or false")
			}
		}
		return &usageError{fmt.Errorf("--%s %q: %w", wrong.GetFlag().Name, wrong.GetValue(), cause)}
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return &usageError{err}
	}
	name := unknown.GetSpecifiedName()
	if letters := unknown.GetSpecifiedShortnames(); letters != "" {
		if meant := otherLetters[cmd.Name()+" -"+name]; meant != "" {
			return &misspeltError{usage("unknown flag: -%s", name), meant}
		}
		return usage("unknown flag: -%s", letters)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	meant := nearest(name, names)
	for _, other := range otherFlags[name] {
		if slices.Contains(names, other) {
			meant = other
			break
		}
	}
	if meant != "" {
		return &misspeltError{&usageError{err}, "--" + meant}
	}
	var verbs []string
	for _, c := range wholeCommand().Commands() {
		if f := c.Flags().Lookup(name); f != nil && !f.Hidden {
			verbs = append(verbs, c.Name())
		}
	}
	if len(verbs) > 0 {
		return usage("%w; it is a flag of %s", err, inWords(verbs))
	}
	return &usageError{err}
}

// A misspeltError reports an unknown word, or a name that is not in an
// archive, and the word that was probably meant.
type misspeltError struct {
	error
	name string
}

func (e *misspeltError) Unwrap() error { return e.error }

// misspelt looks for a name in the same folder that is similar to a missing
// one. It does so only for an archive on this machine.
func misspelt(ctx context.Context, in *holdall.Archive, name string, err error) error {
	const most = 1000
	if !errors.Is(err, fs.ErrNotExist) || !in.Source().Store.Can().Near {
		return err
	}
	name = strings.Trim(strings.TrimPrefix(name, "./"), "/")
	var names []string
	each(in.ReadDir(ctx, path.Dir(name)), func(e holdall.Entry) error {
		if names = append(names, path.Base(e.Name)); len(names) == most {
			return errNo
		}
		return nil
	})
	base := path.Base(name)
	meant := nearest(base, names)
	if i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, base) }); i >= 0 {
		meant = names[i]
	}
	if meant == "" {
		return err
	}
	return &misspeltError{err, format.Escape(path.Join(path.Dir(name), meant))}
}
