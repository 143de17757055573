// Package recipe makes the parts of a Ravenports package other than its files: the selection of
// files of a folder with their attributes, and the metadata. Its input is a packing list (the
// whitelist), a text about the package, and the keywords of the list. To pack a folder as it is,
// no recipe is needed.
//
// whitelist.go reads the list line by line, and keyword.go its keywords. library.go finds shared
// libraries. recipe.go reads the metadata and adds the results of the others.
package recipe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/holdall/holdall/format/rvn/internal/ucl"
)

// DefaultKeywords is the folder of keywords of Ravenports' packer.
const DefaultKeywords = "/var/ravenports/conspiracy/Mk/Keywords"

// Options are the inputs of [Make].
type Options struct {
	Root      string // folder to pack
	Whitelist string // file; without it all of Root is packed
	Metadata  string // file with UCL, JSON or plain text; may be empty
	Keywords  string // folder; empty means DefaultKeywords
	Prefix    string // where the package is installed, as an absolute path such as /raven
	ABI       string // the ABI that the package runs on
}

// An Attr replaces attributes of an entry. An empty name leaves the attribute unchanged.
type Attr struct {
	Owner, Group string
	Mode         fs.FileMode // permissions and the three special bits, as in package fs
	HasMode      bool
}

// A Recipe has the parts of a package other than its files.
type Recipe struct {
	// Only has the files to pack, by their slash-separated names below Root. The folders that
	// contain them are packed too, and no others. If Only is nil, everything is packed; if it is
	// empty, nothing is.
	Only map[string]Attr
	// Dirs has the packed folders whose attributes are replaced.
	Dirs map[string]Attr
	// Metadata is UCL text for the writer. It has the prefix and the ABI of the Options, unless
	// the metadata file has its own, which take precedence. So do not give the writer a prefix
	// and an ABI.
	Metadata []byte
	// Notices are sentences for the user about what was done differently from what they may
	// expect.
	Notices []string
}

// Make reads all inputs that o names, and searches the files of Root for libraries. Errors in the
// whitelist are returned together, each as a [LineError].
//
// As in the packer of Ravenports, a library that a program needs is not in shlibs_required if the
// packing machine has it in /lib or /usr/lib, because it then belongs to the system and not to a
// package. So the metadata of the same files may differ between machines. The tools of Ravenports
// expect that.
func Make(ctx context.Context, o Options) (*Recipe, error) {
	return makeOn(ctx, o, []string{"/lib", "/usr/lib"})
}

// makeOn is like Make on a machine with its own libraries in the given folders.
func makeOn(ctx context.Context, o Options, system []string) (*Recipe, error) {
	root, err := os.OpenRoot(o.Root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var said notices
	p, err := readPackage(o, &said)
	if err != nil {
		return nil, err
	}
	r := &Recipe{}
	var w *whitelist
	if o.Whitelist != "" {
		if w, err = readWhitelist(ctx, root, o, p.prefix, &said); err != nil {
			return nil, err
		}
		r.Only, r.Dirs = w.only, w.dirs
	}
	if p.named {
		libs := &libraries{root: root, list: w, besides: p.hasSisters, system: system, said: &said, ofSystem: map[string]bool{}}
		if err := libs.folder(ctx, "."); err != nil {
			return nil, err
		}
		if err := p.add(w, libs, &said); err != nil {
			return nil, err
		}
	} else if w != nil {
		w.sayLost(&said)
	}
	if r.Metadata, err = p.text(); err != nil {
		return nil, err
	}
	r.Notices = said.list()
	return r, nil
}

// about is the metadata of a package.
type about struct {
	file       string // "" if there is none
	tree       ucl.Value
	prefix     string
	named      bool // it has a namebase; hasSisters is only known then
	hasSisters bool // other packages are made from the same folder
}

// whole are the subpackages that need no libraries of their sisters.
var whole = map[string]bool{
	"complete": true, "primary": true, "single": true, "dev": true, "man": true,
	"nls": true, "docs": true, "lang": true, "info": true, "examples": true,
}

const unset = "unset" // what the reference writes for a missing name

func readPackage(o Options, said *notices) (*about, error) {
	p := &about{file: o.Metadata, tree: ucl.Object()}
	if o.Metadata != "" {
		if err := p.read(said); err != nil {
			return nil, err
		}
	}
	for _, given := range []struct{ key, value string }{{"prefix", o.Prefix}, {"abi", o.ABI}} {
		old := p.tree.Get(given.key)
		switch s, _ := old.Str(); {
		case given.value == "" || s == given.value:
		case old.Kind() == ucl.KindNull:
			p.tree = p.tree.With(given.key, ucl.String(given.value))
		default:
			said.add("%s: %s kept, not replaced by %q", p.file, given.key, given.value)
		}
	}
	var namebase, subpackage string
	for _, word := range []struct {
		key  string
		into *string
	}{{"prefix", &p.prefix}, {"namebase", &namebase}, {"subpackage", &subpackage}} {
		v := p.tree.Get(word.key)
		s, ok := v.Str()
		if !ok && v.Kind() != ucl.KindNull {
			return nil, fmt.Errorf("%s: %s: expected a string, found %s", p.file, word.key, withArticle(v.Kind()))
		}
		*word.into = s
	}
	p.named = p.tree.Get("namebase").Kind() != ucl.KindNull && namebase != unset
	p.hasSisters = !whole[subpackage]
	return p, nil
}

// read treats text that is not UCL as a description, as the reference does.
func (p *about) read(said *notices) error {
	text, err := readFile(p.file, "metadata")
	if err != nil {
		return err
	}
	tree, err := ucl.Parse(text)
	if err == nil && tree.Kind() != ucl.KindObject {
		err = fmt.Errorf("expected keys and values, found %s", withArticle(tree.Kind()))
	}
	if err != nil {
		said.add("%s: not UCL, so all of it becomes desc: %v", p.file, plain(err))
		p.tree = ucl.Object(ucl.Member{Key: "desc", Value: ucl.String(string(text))})
		return nil
	}
	var nulls int
	if p.tree, nulls = tree.WithoutNulls(); nulls > 0 {
		said.add("%s: null is not stored: left out %d times", p.file, nulls)
	}
	return nil
}

// readFile reads a file of UCL; what describes it.
func readFile(name, what string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, ucl.MaxText+1))
	if err != nil {
		return nil, err
	}
	if len(text) > ucl.MaxText {
		return nil, fmt.Errorf("%s: expected at most %d bytes of %s, found more", name, ucl.MaxText, what)
	}
	return text, nil
}

// plain removes the word metadata from an error of package ucl, because not all UCL is metadata.
func plain(err error) error {
	if at, ok := errors.AsType[*ucl.SyntaxError](err); ok {
		return fmt.Errorf("line %d, column %d: expected %s, found %s", at.Line, at.Col, at.Expected, at.Found)
	}
	return err
}

func withArticle(k ucl.Kind) string {
	s := k.String()
	if strings.ContainsRune("aeiou", rune(s[0])) {
		return "an " + s
	}
	return "a " + s
}

// add adds the results of the others to the metadata. Existing values are kept: lists of folders
// and libraries unchanged, scripts and messages first.
func (p *about) add(w *whitelist, libs *libraries, said *notices) error {
	var folders []ucl.Value
	var scripts [len(phases)][]ucl.Value
	var messages []ucl.Value
	if w != nil {
		folders, scripts, messages = w.folderValues(), w.scriptValues(), w.messageValues()
	}
	for _, list := range []struct {
		key    string
		values []ucl.Value
	}{
		{"directories", folders},
		{"shlibs_provided", libs.provided.values()},
		{"shlibs_required", libs.required.values()},
		{"shlibs_adjacent", libs.adjacent.values()},
	} {
		if p.tree.Get(list.key).Kind() == ucl.KindNull {
			p.tree = p.tree.With(list.key, ucl.Array(list.values...))
		} else if len(list.values) > 0 {
			said.add("%s: %s kept; %d that were found are not added", p.file, list.key, len(list.values))
		}
	}
	all := p.tree.Get("scripts")
	if all.Kind() == ucl.KindNull {
		all = ucl.Object()
	}
	for i, list := range scripts {
		if len(list) == 0 {
			continue
		}
		if all.Kind() != ucl.KindObject {
			return p.mismatch("scripts", "an object", all)
		}
		merged, err := p.joined("scripts."+phases[i], all.Get(phases[i]), list)
		if err != nil {
			return err
		}
		all = all.With(phases[i], merged)
	}
	p.tree = p.tree.With("scripts", all)
	told := p.tree.Get("messages")
	if len(messages) > 0 || told.Kind() == ucl.KindNull {
		merged, err := p.joined("messages", told, messages)
		if err != nil {
			return err
		}
		p.tree = p.tree.With("messages", merged)
	}
	return nil
}

func (p *about) joined(key string, first ucl.Value, rest []ucl.Value) (ucl.Value, error) {
	switch first.Kind() {
	case ucl.KindNull:
		return ucl.Array(rest...), nil
	case ucl.KindArray:
		return ucl.Array(slices.Concat(first.Elems(), rest)...), nil
	}
	return ucl.Value{}, p.mismatch(key, "an array", first)
}

// mismatch returns an error where the reference silently omits what the whitelist adds.
func (p *about) mismatch(key, expected string, found ucl.Value) error {
	return fmt.Errorf("%s: %s: expected %s, because the whitelist adds to it, found %s", p.file, key, expected, withArticle(found.Kind()))
}

func (p *about) text() ([]byte, error) {
	text, err := ucl.Append(nil, p.tree)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.file, err)
	}
	if len(text) > ucl.MaxText {
		return nil, fmt.Errorf("metadata: with all that belongs to it: expected at most %d bytes, found %d", ucl.MaxText, len(text))
	}
	return text, nil
}

// notices collects Recipe.Notices. A folder with a million unreadable files causes a single
// notice.
type notices struct {
	said []string
	more int
}

const maxNotices = 100

func (n *notices) add(format string, args ...any) {
	if len(n.said) == maxNotices {
		n.more++
		return
	}
	n.said = append(n.said, fmt.Sprintf(format, args...))
}

func (n *notices) list() []string {
	if n.more > 0 {
		return append(n.said, fmt.Sprintf("and %d more of these", n.more))
	}
	return n.said
}
