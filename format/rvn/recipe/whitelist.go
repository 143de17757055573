package recipe

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/holdall/holdall/format/rvn/internal/ucl"
)

// Limits of a whitelist. Real ones have lines of a few hundred bytes.
const (
	maxLine   = 64 << 10
	maxList   = 16 << 20
	maxFaults = 20  // errors that are reported
	maxPerson = 32  // bytes of an owner or a group; an archive has no space for more
	maxWord   = 251 // bytes of a keyword, which is the name of a file with .ucl
)

// A LineError is an error in a line of a whitelist.
type LineError struct {
	File string
	Line int // from 1
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("%s: line %d: %v", e.File, e.Line, e.Err) }
func (e *LineError) Unwrap() error { return e.Err }

// whitelist is the result of the lines read so far.
type whitelist struct {
	file     string
	root     *os.Root
	prefix   string
	keywords string // folder of keywords
	said     *notices

	line   int // number of the current line
	faults []*LineError
	more   int // number of errors after maxFaults

	only    map[string]Attr
	dirs    map[string]Attr
	where   map[string]int  // line of each file in only
	packed  map[string]bool // folders that contain files of only
	folders []folder        // from @dir and keywords
	at      map[string]int  // position of each in folders

	known    map[string]*keyword // nil for one with an error, which has been reported
	scripts  [len(phases)][]script
	messages [len(occasions)][]string
	told     int // approximate bytes of scripts, messages and folders in the metadata
}

// folder is a folder that is created when the package is installed, and removed with it. If a
// folder is packed anyway, only its attributes change.
type folder struct {
	name string // relative to the root
	path string // as written in the whitelist
	attr Attr
	line int
}

// readWhitelist reads the whole list and reports all its errors together.
func readWhitelist(ctx context.Context, root *os.Root, o Options, prefix string, said *notices) (*whitelist, error) {
	if prefix != "" && prefix[0] != '/' {
		return nil, fmt.Errorf("prefix: expected a path that begins with /, found %s", shown(prefix))
	}
	f, err := os.Open(o.Whitelist)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	w := newWhitelist(o.Whitelist, root, prefix, o.Keywords, said)
	if err := w.read(ctx, f); err != nil {
		return nil, err
	}
	return w, nil
}

func newWhitelist(file string, root *os.Root, prefix, keywords string, said *notices) *whitelist {
	return &whitelist{
		file: file, root: root, prefix: prefix, keywords: cmp.Or(keywords, DefaultKeywords), said: said,
		only: map[string]Attr{}, dirs: map[string]Attr{},
		where: map[string]int{}, packed: map[string]bool{}, at: map[string]int{},
		known: map[string]*keyword{},
	}
}

func (w *whitelist) read(ctx context.Context, r io.Reader) error {
	limited := &io.LimitedReader{R: r, N: maxList + 1}
	lines := bufio.NewReaderSize(limited, maxLine+1) // with its newline
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		text, err := lines.ReadSlice('\n')
		if len(text) > 0 {
			w.line++
			if err == bufio.ErrBufferFull {
				w.fault("expected at most %d bytes, found more", maxLine)
			} else {
				text := strings.Trim(strings.TrimSuffix(string(text), "\n"), " ")
				if err := w.take(text); err != nil {
					w.fault("%w", err)
				}
			}
		}
		for err == bufio.ErrBufferFull {
			_, err = lines.ReadSlice('\n')
		}
		if limited.N == 0 {
			w.fault("expected at most %d bytes of whitelist, found more", maxList)
			break
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	w.settle()
	return w.verdict()
}

// verdict returns all errors, sorted by line.
func (w *whitelist) verdict() error {
	slices.SortStableFunc(w.faults, func(a, b *LineError) int { return a.Line - b.Line })
	var all []error
	for _, f := range w.faults {
		all = append(all, f)
	}
	if w.more > 0 {
		all = append(all, fmt.Errorf("%s: %d more faults", w.file, w.more))
	}
	return errors.Join(all...)
}

func (w *whitelist) fault(format string, args ...any) {
	if len(w.faults) == maxFaults {
		w.more++
		return
	}
	w.faults = append(w.faults, &LineError{w.file, w.line, fmt.Errorf(format, args...)})
}

// tell adds to the size of the metadata, which must not become as long as a list may be. It
// returns false if there is no space left.
func (w *whitelist) tell(bytes int) bool {
	had := w.told <= ucl.MaxText
	w.told += bytes
	if had && w.told > ucl.MaxText {
		w.fault("expected folders, scripts and messages of at most %d bytes in all, found more", ucl.MaxText)
	}
	return w.told <= ucl.MaxText
}

func (w *whitelist) notice(line int, format string, args ...any) {
	w.said.add("%s: line %d: %s", w.file, line, fmt.Sprintf(format, args...))
}

// take processes a line:
//
//	path                           file
//	@(owner,group,mode) path       file with attributes
//	@dir path                      folder
//	@dir(owner,group,mode) path    folder with attributes
//	@keyword argument...           as KEYWORD.ucl specifies
//	@comment...                    nothing
//
// The path of a file may contain spaces; arguments are separated by spaces.
func (w *whitelist) take(text string) error {
	if text == "" || strings.HasPrefix(text, "@comment") {
		return nil
	}
	if text[0] != '@' {
		return w.addFile(text, Attr{})
	}
	if attrs, ok := strings.CutPrefix(text, "@("); ok {
		attrs, name, closed := strings.Cut(attrs, ")")
		if !closed || !strings.HasPrefix(name, " ") {
			return fmt.Errorf("expected @(owner,group,mode) and a path, found %s", shown(text))
		}
		a, err := parseAttr(attrs)
		if err != nil {
			return err
		}
		return w.addFile(strings.TrimLeft(name, " "), a)
	}
	word, rest, _ := strings.Cut(text[1:], " ")
	args := strings.FieldsFunc(rest, func(r rune) bool { return r == ' ' })
	if word == "" || len(args) == 0 {
		return fmt.Errorf("expected @keyword and an argument, found %s", shown(text))
	}
	if len(word) > maxWord {
		return fmt.Errorf("expected a keyword of at most %d bytes, found %s", maxWord, shown(word))
	}
	attrs, withAttrs := strings.CutPrefix(word, "dir(")
	if word != "dir" && !withAttrs {
		w.apply(word, args)
		return nil
	}
	var a Attr
	if withAttrs {
		attrs, closed := strings.CutSuffix(attrs, ")")
		if !closed {
			return fmt.Errorf("expected @dir(owner,group,mode) and a path, found %s", shown(text))
		}
		var err error
		if a, err = parseAttr(attrs); err != nil {
			return err
		}
	}
	if len(args) > 1 {
		return fmt.Errorf("expected one path after @%s, which can have no spaces, found %s", word, shown(rest))
	}
	return w.addFolder(args[0], a)
}

// parseAttr parses owner,group,mode. Each of them may be omitted.
func parseAttr(s string) (Attr, error) {
	f := strings.Split(s, ",")
	if len(f) != 3 {
		return Attr{}, fmt.Errorf("expected (owner,group,mode), found %s", shown("("+s+")"))
	}
	return newAttr(f[0], f[1], f[2])
}

func newAttr(owner, group, mode string) (Attr, error) {
	a := Attr{Owner: owner, Group: group}
	for _, person := range []struct{ is, name string }{{"owner", owner}, {"group", group}} {
		for i := range len(person.name) {
			if c := person.name[i]; c <= ' ' || c == 0x7f {
				return Attr{}, fmt.Errorf("%s: expected a name without spaces, found %s", person.is, shown(person.name))
			}
		}
		if len(person.name) > maxPerson {
			return Attr{}, fmt.Errorf("%s: expected at most %d bytes, found %s", person.is, maxPerson, shown(person.name))
		}
	}
	if mode == "" {
		return a, nil
	}
	octal, err := strconv.ParseUint(mode, 8, 12)
	if err != nil || len(mode) < 3 || len(mode) > 4 {
		return Attr{}, fmt.Errorf("mode: expected 3 or 4 octal digits, found %s", shown(mode))
	}
	a.Mode, a.HasMode = fs.FileMode(octal)&fs.ModePerm, true
	for _, b := range beyondPerm {
		if fs.FileMode(octal)&b.octal != 0 {
			a.Mode |= b.mode
		}
	}
	return a, nil
}

// beyondPerm are the bits of a mode that package fs has at other positions.
var beyondPerm = []struct{ octal, mode fs.FileMode }{
	{0o4000, fs.ModeSetuid}, {0o2000, fs.ModeSetgid}, {0o1000, fs.ModeSticky},
}

func (a Attr) octal() int64 {
	octal := a.Mode & fs.ModePerm
	for _, b := range beyondPerm {
		if a.Mode&b.mode != 0 {
			octal |= b.octal
		}
	}
	return int64(octal)
}

// name returns the name below the root of a path in the whitelist. Paths that do not begin with a
// slash are relative to the prefix.
func (w *whitelist) name(p string) (string, error) {
	full := p
	if !strings.HasPrefix(p, "/") {
		full = w.prefix + "/" + p
	}
	for elem := range strings.SplitSeq(full, "/") {
		if elem == ".." {
			return "", fmt.Errorf("%s: expected a path without .., found %s", shown(p), shown(full))
		}
	}
	name := path.Clean("/" + full)[1:]
	if name == "" {
		return "", fmt.Errorf("%s: expected a path below the top, found the top", shown(p))
	}
	return name, nil
}

func (w *whitelist) addFile(p string, a Attr) error {
	name, err := w.name(p)
	if err != nil {
		return err
	}
	if err := w.checkParents(name); err != nil {
		return fmt.Errorf("%s: %w", shown(p), err)
	}
	info, err := w.root.Lstat(name)
	if err != nil {
		return fmt.Errorf("%s: %w", shown(p), cause(err))
	}
	t := info.Mode().Type()
	switch {
	case t.IsDir():
		return fmt.Errorf("%s: expected a file, found a folder", shown(p))
	case strings.HasSuffix(p, "/"):
		return fmt.Errorf("%s: expected a folder, as the slash says, found a file", shown(p))
	case t != 0 && t != fs.ModeSymlink && t != fs.ModeNamedPipe:
		return fmt.Errorf("%s: expected a file, a symlink or a FIFO, found a socket or device", shown(p))
	}
	if first, again := w.where[name]; again {
		return fmt.Errorf("%s: listed already, on line %d", shown(p), first)
	}
	if i, is := w.at[name]; is {
		return fmt.Errorf("%s: expected a folder, as line %d says, found a file", shown(p), w.folders[i].line)
	}
	w.only[name], w.where[name] = a, w.line
	for dir := path.Dir(name); dir != "." && !w.packed[dir]; dir = path.Dir(dir) {
		w.packed[dir] = true
	}
	return nil
}

// checkParents checks that the parents of a file will be packed. A symbolic link is packed as a
// link. The reference follows a link to a file when it reads the list, but not when it packs,
// and reports nothing.
func (w *whitelist) checkParents(name string) error {
	if w.packed[path.Dir(name)] {
		return nil
	}
	for i := range len(name) {
		if name[i] != '/' || w.packed[name[:i]] {
			continue
		}
		info, err := w.root.Lstat(name[:i])
		if err != nil {
			return cause(err)
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("expected only folders on the way, found the symlink %s", shown(name[:i]))
		}
		if !info.IsDir() {
			return fmt.Errorf("expected only folders on the way, found the file %s", shown(name[:i]))
		}
	}
	return nil
}

// shown returns a text for errors; a long line is shortened.
func shown(s string) string {
	const most = 200
	if len(s) > most {
		return strconv.Quote(s[:most]) + "…"
	}
	return strconv.Quote(s)
}

// cause removes the name from an error of the system, because the name is shown as it was
// written.
func cause(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}

func (w *whitelist) addFolder(p string, a Attr) error {
	name, err := w.name(p)
	if err != nil {
		return err
	}
	if first, is := w.where[name]; is {
		return fmt.Errorf("%s: expected a file, as line %d says, found a folder", shown(p), first)
	}
	if i, again := w.at[name]; again {
		w.notice(w.line, "%s: ignored: the folder is on line %d already", shown(p), w.folders[i].line)
		return nil
	}
	w.at[name] = len(w.folders)
	w.folders = append(w.folders, folder{name, p, a, w.line})
	return nil
}

// settle separates folders that are packed anyway from those that are only created.
func (w *whitelist) settle() {
	made := w.folders[:0]
	for _, f := range w.folders {
		switch {
		case !w.packed[f.name]:
			w.line = f.line
			if !w.tell(len(f.path)) {
				continue
			}
			if f.attr.HasMode && f.attr.Mode == 0 {
				w.fault("%s: expected a mode other than 0, which in metadata means no mode", shown(f.path))
			}
			made = append(made, f)
		case f.attr == Attr{}:
			w.notice(f.line, "%s: not needed: the folder is packed anyway", shown(f.path))
		default:
			w.dirs[f.name] = f.attr
		}
	}
	w.folders = made
}

func (w *whitelist) folderValues() []ucl.Value {
	orFalse := func(s string) ucl.Value {
		if s == "" {
			return ucl.Bool(false)
		}
		return ucl.String(s)
	}
	var list []ucl.Value
	for _, f := range w.folders {
		perms := ucl.Bool(false)
		if f.attr.HasMode {
			perms = ucl.Int(f.attr.octal())
		}
		list = append(list, ucl.Object(
			ucl.Member{Key: "path", Value: ucl.String(f.path)},
			ucl.Member{Key: "owner", Value: orFalse(f.attr.Owner)},
			ucl.Member{Key: "group", Value: orFalse(f.attr.Group)},
			ucl.Member{Key: "perms", Value: perms}))
	}
	return list
}

// sayLost adds a notice for metadata without a namebase, in which folders, scripts and messages
// are not stored.
func (w *whitelist) sayLost(said *notices) {
	scripts, messages := 0, 0
	for _, list := range w.scripts {
		scripts += len(list)
	}
	for _, list := range w.messages {
		messages += len(list)
	}
	if len(w.folders)+scripts+messages > 0 {
		said.add("%s: the metadata has no namebase, so these are not stored: %d folders, %d scripts, %d messages", w.file, len(w.folders), scripts, messages)
	}
}
