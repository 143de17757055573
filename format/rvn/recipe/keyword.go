package recipe

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/holdall/holdall/format/rvn/internal/ucl"
)

// phases are the times when a script runs. Those that end with -lua are Lua, the others are for a
// shell.
var phases = [...]string{
	"pre-install", "pre-install-lua", "pre-deinstall", "pre-deinstall-lua",
	"post-install", "post-install-lua", "post-deinstall", "post-deinstall-lua",
}

// occasions are the times when a message is shown, in the order of the metadata.
var occasions = [...]string{"install", "remove", "upgrade"}

// script is run by the package manager, never by this package.
type script struct{ code, args string }

// keyword is a parsed file from the folder of keywords.
type keyword struct {
	folders    []bool // whether the nth argument is a folder or a file
	attr       Attr   // of the arguments
	deprecated bool
	instead    string
	scripts    map[int]string // by phase
	messages   [len(occasions)][]string
	size       int   // approximate size of scripts and messages in the metadata
	err        error // the first error when it was read
}

func (w *whitelist) apply(word string, args []string) {
	k, known := w.known[word]
	if !known {
		var err error
		if k, err = w.readKeyword(word); err != nil {
			w.fault("keyword %s: %w", word, err)
			k = nil
		} else if k.deprecated {
			why := ""
			if k.instead != "" {
				why = ": " + k.instead
			}
			w.notice(w.line, "keyword %s: deprecated%s", word, why)
		}
		w.known[word] = k
	}
	if k == nil {
		return
	}
	// Each action takes an argument; further arguments are for the scripts. If there are no
	// actions and no scripts, one argument is required nevertheless.
	least := max(len(k.folders), 1)
	if len(args) < least || len(args) > least && len(k.scripts) == 0 {
		w.fault("keyword %s: expected %d arguments, found %d", word, least, len(args))
		return
	}
	for i, isFolder := range k.folders {
		if err := w.act(word, args[i], isFolder, k.attr); err != nil {
			w.fault("keyword %s: %w", word, err)
		}
	}
	joined := strings.Join(args, " ")
	if !w.tell(k.size + len(k.scripts)*len(joined)) { // a short line may expand to a long one
		return
	}
	for phase := range phases {
		code, ok := k.scripts[phase]
		if !ok {
			continue
		}
		if !strings.HasSuffix(phases[phase], "-lua") {
			if n := missingArgument(code, len(args)); n > 0 {
				w.fault("keyword %s: %s needs argument %d, found %d arguments", word, phases[phase], n, len(args))
			}
		}
		w.scripts[phase] = append(w.scripts[phase], script{code, joined})
	}
	for i, list := range k.messages {
		w.messages[i] = append(w.messages[i], list...)
	}
}

func (w *whitelist) act(word, p string, isFolder bool, a Attr) error {
	if !isFolder {
		return w.addFile(p, a)
	}
	name, err := w.name(p)
	if err != nil {
		return err
	}
	if w.packed[name] { // by an earlier line; later ones make no difference
		if a != (Attr{}) {
			w.notice(w.line, "keyword %s: %s: attributes not changed: the folder is packed already", word, shown(p))
		}
		return nil
	}
	return w.addFolder(p, a)
}

// shellArguments replaces %1 to %9, %0 and %@ by the names of a shell.
func shellArguments(code string) string {
	b := []byte(code)
	for i := range len(b) - 1 {
		if next := b[i+1]; b[i] == '%' && (next == '@' || '0' <= next && next <= '9') {
			b[i] = '$'
		}
	}
	return string(b)
}

// missingArgument returns the first argument after the nth that code uses, or 0. Like the
// reference, it also counts the $3 of an awk program.
func missingArgument(code string, n int) int {
	for i := n + 1; i <= 9; i++ {
		if strings.Contains(code, fmt.Sprintf("$%d", i)) {
			return i
		}
	}
	return 0
}

func (w *whitelist) readKeyword(word string) (*keyword, error) {
	if strings.ContainsAny(word, `/\`) {
		return nil, fmt.Errorf("expected a word, found a path")
	}
	file := filepath.Join(w.keywords, word+".ucl")
	text, err := readFile(file, "keyword")
	if err != nil {
		return nil, err
	}
	tree, err := ucl.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, plain(err))
	}
	if tree.Kind() != ucl.KindObject {
		return nil, fmt.Errorf("%s: expected keys and values, found %s", file, withArticle(tree.Kind()))
	}
	if tree.Get("prepackaging").Kind() != ucl.KindNull {
		return nil, errors.New("prepackaging runs Lua here: not supported")
	}
	k := &keyword{scripts: map[int]string{}}
	for _, m := range tree.Members() {
		known := k.set(m.Key, m.Value)
		if k.err != nil {
			return nil, fmt.Errorf("%s: %s%w", file, m.Key, k.err)
		}
		if !known {
			w.notice(w.line, "keyword %s: %s: ignored: no such key", word, shown(m.Key))
		}
	}
	for phase, code := range k.scripts {
		if !strings.HasSuffix(phases[phase], "-lua") {
			k.scripts[phase] = shellArguments(code)
		}
		k.size += len(code) + 1
	}
	for _, list := range k.messages {
		for _, m := range list {
			k.size += len(m) + 1
		}
	}
	return k, nil
}

// valueError reports where below a key a value is wrong, and why.
type valueError struct{ at, expected, found string }

func (e *valueError) Error() string {
	return fmt.Sprintf("%s: expected %s, found %s", e.at, e.expected, e.found)
}

func (k *keyword) wrong(at, expected, found string) {
	k.err = cmp.Or(k.err, error(&valueError{at, expected, found}))
}

// is checks the kind of v. The reference ignores values of the wrong kind.
func (k *keyword) is(kind ucl.Kind, at string, v ucl.Value) {
	if v.Kind() != kind {
		k.wrong(at, withArticle(kind), withArticle(v.Kind()))
	}
}

func (k *keyword) str(at string, v ucl.Value) string {
	k.is(ucl.KindString, at, v)
	s, _ := v.Str()
	return s
}

// set sets a key of a file.
func (k *keyword) set(key string, v ucl.Value) (known bool) {
	if phase := slices.Index(phases[:], key); phase >= 0 {
		k.scripts[phase] = k.str("", v)
		return true
	}
	switch key {
	case "actions":
		k.setActions(v)
	case "attributes":
		k.setAttributes(v)
	case "messages":
		k.setMessages(v)
	case "deprecated":
		k.is(ucl.KindBool, "", v)
		k.deprecated, _ = v.Bool()
	case "deprecation_message":
		k.instead = k.str("", v)
	default:
		return false
	}
	return true
}

func (k *keyword) setActions(v ucl.Value) {
	k.is(ucl.KindArray, "", v)
	for i, e := range v.Elems() {
		at := fmt.Sprintf("[%d]", i)
		action := k.str(at, e)
		if action != "file" && action != "dir" {
			k.wrong(at, "file or dir", strconv.Quote(action))
		}
		k.folders = append(k.folders, action == "dir")
	}
}

func (k *keyword) setAttributes(v ucl.Value) {
	k.is(ucl.KindObject, "", v)
	var owner, group, mode string
	for _, m := range v.Members() {
		into := map[string]*string{"owner": &owner, "group": &group, "mode": &mode}[m.Key]
		if into == nil {
			k.wrong("", "owner, group and mode", strconv.Quote(m.Key))
			return
		}
		*into = k.str("."+m.Key, m.Value)
	}
	var err error
	if k.attr, err = newAttr(owner, group, mode); err != nil {
		k.err = cmp.Or(k.err, fmt.Errorf(": %w", err))
	}
}

// setMessages keeps all messages of an occasion; the reference keeps the last.
func (k *keyword) setMessages(v ucl.Value) {
	k.is(ucl.KindArray, "", v)
	for i, e := range v.Elems() {
		at := fmt.Sprintf("[%d]", i)
		k.is(ucl.KindObject, at, e)
		message := k.str(at+".message", e.Get("message"))
		occasion := occasions[0]
		if t := e.Get("type"); t.Kind() != ucl.KindNull {
			occasion = k.str(at+".type", t)
		}
		when := slices.Index(occasions[:], occasion)
		if when < 0 {
			k.wrong(at+".type", strings.Join(occasions[:], ", "), strconv.Quote(occasion))
		} else if message != "" {
			k.messages[when] = append(k.messages[when], message)
		}
	}
}

func (w *whitelist) scriptValues() (out [len(phases)][]ucl.Value) {
	for phase, list := range w.scripts {
		for _, s := range list {
			out[phase] = append(out[phase], ucl.Object(
				ucl.Member{Key: "args", Value: ucl.String(s.args)},
				ucl.Member{Key: "code", Value: ucl.String(s.code)}))
		}
	}
	return out
}

func (w *whitelist) messageValues() (out []ucl.Value) {
	for i, list := range w.messages {
		for _, m := range list {
			out = append(out, ucl.Object(
				ucl.Member{Key: "type", Value: ucl.String(occasions[i])},
				ucl.Member{Key: "message", Value: ucl.String(m)}))
		}
	}
	return out
}
