package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/shelf"
	"github.com/holdall/holdall/internal/app/fleet"
	"github.com/holdall/holdall/internal/app/fleet/queue"
	"github.com/holdall/holdall/internal/base/screen"
	"github.com/holdall/holdall/internal/write/output"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/internal/write/repairs"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

type errorJSON struct {
	Code    string `json:"code"`
	Class   string `json:"class,omitempty"`
	Volume  string `json:"volume,omitempty"`
	Offset  *int64 `json:"offset,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
}

// report prints an error: one line for people, and one for programs on
// request.
func (a *app) report(err error) {
	line := a.prefix("error")
	text := err.Error()
	if path, ok := errors.AsType[*fs.PathError](err); ok && path.Op == "lookup" && errors.Is(path.Err, fs.ErrNotExist) {
		text = strings.Replace(text, path.Error(), "there is no entry "+path.Path, 1)
	}
	text = printable(strings.Join(strings.Fields(strings.ReplaceAll(text, "\n\nDid", "; did")), " "))
	text = strings.TrimSuffix(text, ": "+errors.ErrUnsupported.Error()) // the text says so
	if a.address != "" && !mentions(text, a.address) {
		line += a.address + ": "
	}
	line += text
	if h := a.hint(err); h != "" && !strings.Contains(h, "'holdall "+a.verb+"'") { // do not advise the command that just failed
		line += ": " + h
	}
	fmt.Fprintln(a.stderr, line)
	if a.json {
		b, _ := json.Marshal(map[string]errorJSON{"error": describe(err)})
		fmt.Fprintln(a.stderr, string(b))
	}
}

// mentions reports whether a text has a name, not only as a part of a word.
func mentions(text, name string) bool {
	word := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
	for rest := text; ; {
		before, after, found := strings.Cut(rest, name)
		if !found {
			return false
		}
		last, _ := utf8.DecodeLastRuneInString(text[:len(text)-len(rest)+len(before)])
		first, _ := utf8.DecodeRuneInString(after)
		if !word(last) && !word(first) {
			return true
		}
		rest = after
	}
}

// printable returns text without characters that a terminal would obey. Names
// in the text may come from anywhere.
func printable(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "�"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r < 0x20 || 0x7f <= r && r < 0xa0:
			for _, c := range []byte(string(r)) {
				fmt.Fprintf(&b, `\x%02x`, c)
			}
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func describe(err error) errorJSON {
	e := errorJSON{Code: "failed", Message: err.Error()}
	if c, ok := errors.AsType[*format.CorruptError](err); ok {
		e.Code, e.Class, e.Volume, e.Message = string(c.Code), c.Class, c.Volume, c.Message
		if c.Off >= 0 {
			e.Offset = &c.Off
		}
		e.Path = format.Escape(c.Entry)
		return e
	}
	if s, ok := errors.AsType[*store.Error](err); ok {
		e.Volume = s.Name
		if s.Off >= 0 {
			e.Offset = &s.Off
		}
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		e.Path = format.Escape(p.Path)
	}
	if d, ok := errors.AsType[*holdall.DigestError](err); ok {
		e.Path = format.Escape(d.Entry)
	}
	if p, ok := errors.AsType[*holdall.ProofError](err); ok {
		e.Path, e.Offset = format.Escape(p.Entry), &p.Off
	}
	for _, k := range []struct {
		is   error
		code string
	}{
		{format.ErrCorrupt, string(format.BadChecksum)},
		{format.ErrUnknown, string(format.BadMagic)},
		{store.ErrChanged, "changed"},
		{book.ErrBroken, string(format.BadData)},
		{fs.ErrNotExist, "not-found"},
		{fs.ErrPermission, "permission"},
		{fs.ErrExist, "exists"},
		{errors.ErrUnsupported, string(format.Unsupported)},
		{context.DeadlineExceeded, "timeout"},
	} {
		if errors.Is(err, k.is) {
			e.Code = k.code
			return e
		}
	}
	switch {
	case is[*usageError](err), is[*format.ParamError](err):
		e.Code = "usage"
	case is[*shelf.StaleError](err):
		e.Code = "changed"
	case is[*queue.VersionError](err):
		e.Code = string(format.Unsupported)
	case is[*store.LockedError](err):
		e.Code = "locked"
	case is[*holdall.ExternalError](err):
		e.Code = "external"
	case storekit.Temporary(err):
		e.Code = "network"
	}
	return e
}

func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// hint returns advice about an error. The library does not know flags, so all
// advice about them is here.
func (a *app) hint(err error) string {
	if c, ok := errors.AsType[*format.CorruptError](err); ok {
		return hintOfDamage(c)
	}
	if p, ok := errors.AsType[*format.ParamError](err); ok {
		return paramHint(p)
	}
	proof, _ := errors.AsType[*holdall.ProofError](err)
	written, _ := errors.AsType[*output.Error](err)
	meant, _ := errors.AsType[*misspeltError](err)
	path, _ := errors.AsType[*fs.PathError](err)
	switch {
	case meant != nil:
		return "did you mean " + meant.name + "?"
	case is[*usageError](err):
		return "try '" + a.path + " --help'"
	case written != nil && !written.Input:
		return "--force replaces it"
	case is[*holdall.ExternalError](err):
		return "--external allows it"
	case proof != nil && proof.None:
		return "--index none reads it without proof"
	case is[*holdall.ProofLostError](err):
		return "write the index again, or read without proof with --index none"
	case is[*noCatalogError](err):
		return "'holdall catalog init' creates one"
	case is[*shelf.StaleError](err):
		return "'holdall catalog add' records it again; 'holdall fleet repair' rebuilds it if a fleet packed it"
	case is[*shelf.LostError](err):
		return "'holdall fleet repair' rebuilds it if a fleet packed it"
	case is[*fleet.BehindError](err):
		return "use the newest copy of the catalogue; if it is lost, 'holdall catalog rebuild' makes a new one from the archives"
	case is[*fleet.UnmarkedError](err):
		return "--markers-lost confirms that this is the newest copy"
	case is[*fleet.CarelessError](err):
		return "--unconditional deletes there, too"
	case is[*fleet.ListError](err):
		return "'holdall fleet cancel' drops what waits; then plan again"
	case is[*fleet.RetiringError](err):
		return "'holdall fleet work' finishes them; 'holdall fleet cancel' drops them"
	case is[*fleet.ShareError](err):
		return "--yes deletes them"
	case is[*fleet.RecentError](err):
		return "--yes deletes them"
	case is[*fleet.UnknownError](err):
		return "if an erasure was interrupted, --yes finishes it"
	case is[*fleet.GoneError](err):
		return "if their owner deleted them, --gone 100% records that"
	case errors.Is(err, repairs.ErrNoProof):
		return "name one with --index; 'holdall index --chunk-digests' writes one for a sound archive"
	case errors.Is(err, format.ErrUnknown):
		return "set the format with --as, or inspect the file with 'holdall browse'"
	case errors.Is(err, pack.ErrImmutable):
		return "'holdall convert' writes a changed copy"
	case errors.Is(err, store.ErrChanged):
		return "run it again"
	case errors.Is(err, holdall.ErrDamaged):
		return "'holdall verify' lists all damage"
	case path != nil && path.Op == "lookup" && errors.Is(err, fs.ErrNotExist):
		return "'holdall find' searches for names"
	}
	return ""
}

// encrypted is the class of contents that are not read without a password.
const (
	encrypted      = "encrypted"
	passwordAdvice = "--password-file names a file with the password"
)

func hintOfDamage(c *format.CorruptError) string {
	switch h := oakHints[c.Format+" "+c.Class]; {
	case c.Class == "ambiguous-ends", strings.HasPrefix(c.Class, "name-"):
		return ""
	case c.Code == format.Limit && c.Class == "index-size":
		return "--max-index raises the limit"
	case c.Code == format.Limit:
		return "--max-entries, --max-bytes, --max-ratio and --max-depth raise the limits"
	case c.Class == encrypted, c.Class == "wrong-password":
		return passwordAdvice
	case c.Code == format.Unsupported, c.Code == format.MissingVolume && (c.Format == "zip" || c.Format == "tar"):
		return ""
	case h != "":
		return h
	}
	if f := format.All().ByName(c.Format); f != nil && f.Repair == nil {
		return "'holdall verify' lists the damage; 'holdall repair' repairs it if there is parity; otherwise copy the archive again from its source"
	}
	return "'holdall verify' lists the damage, 'holdall repair' recovers what it can"
}

type problemJSON struct {
	Severity string `json:"severity"`
	Code     string `json:"code"`
	Class    string `json:"class,omitempty"`
	Volume   string `json:"volume"`
	Offset   *int64 `json:"offset,omitempty"`
	Path     string `json:"path,omitempty"`
	PathHex  string `json:"path_hex,omitempty"`
	Message  string `json:"message"`
}

func problemAsJSON(p holdall.Problem) problemJSON {
	j := problemJSON{Severity: p.Severity.String(), Code: string(p.Code), Class: p.Class, Volume: p.Volume, Message: p.Message}
	if p.Off >= 0 {
		j.Offset = &p.Off
	}
	if p.HasEntry {
		j.Path, j.PathHex = shown(p.Entry)
	}
	return j
}

func problemLine(p holdall.Problem) string {
	s := p.Severity.String() + ": "
	if p.HasEntry {
		s += quoteEmpty(format.Escape(p.Entry)) + ": "
	}
	where := printable(p.Volume)
	if p.Off >= 0 {
		where += fmt.Sprintf(" at %d", p.Off)
	}
	return fmt.Sprintf("%s%s [%s, %s]", s, messageOf(p), kindOf(p), where)
}

func messageOf(p holdall.Problem) string {
	if p.Class == encrypted {
		return printable(p.Message) + ": " + passwordAdvice
	}
	return printable(p.Message)
}

func kindOf(p holdall.Problem) string { return cmp.Or(p.Class, string(p.Code)) }

// problem is problemLine for results.
func (a *app) problem(p holdall.Problem) string {
	sev := p.Severity.String() + ":"
	return a.colours(a.stdout, "", "").paint(p.Severity.String(), sev) + strings.TrimPrefix(problemLine(p), sev)
}

// wholeDigest is a digest that is too long for a terminal.
var wholeDigest = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\b([0-9a-f]{12})[0-9a-f]{20,}\b`) })

// shortProblem prints a problem for a terminal: what is wrong with what, and
// below it the details, without the ends of digests.
func (a *app) shortProblem(p holdall.Problem) {
	sev, what, where := p.Severity.String(), printable(p.Volume), ""
	if p.HasEntry {
		what, where = quoteEmpty(format.Escape(p.Entry)), screen.Shorten(what, columnsOf(a.stdout)/2)
	}
	if p.Off >= 0 {
		where = strings.TrimSpace(fmt.Sprintf("%s at %d", where, p.Off))
	}
	first := a.colours(a.stdout, "", "").paint(sev, sev+":")
	room := columnsOf(a.stdout) - len(sev) - len(": : ") - len(kindOf(p))
	fmt.Fprintf(a.out, "%s %s: %s\n", first, screen.Shorten(what, room), kindOf(p))
	words := strings.Split(wholeDigest().ReplaceAllString(messageOf(p), "$1…")+ifAny(" [%s]", where), " ")
	for i := range words {
		words[i] = screen.Shorten(words[i], columnsOf(a.stdout)-len("     "))
	}
	a.wrap("    ", strings.Join(words, " "), math.MaxInt)
}

// sentence prints a line that is wrapped on a terminal.
func (a *app) sentence(text string, args ...any) {
	if text = fmt.Sprintf(text, args...); a.outTTY {
		a.wrap("", text, math.MaxInt)
	} else {
		fmt.Fprintln(a.out, text)
	}
}

// ifAny returns text formatted with shown, or "" if shown is empty.
func ifAny(text, shown string) string {
	if shown == "" {
		return ""
	}
	return fmt.Sprintf(text, printable(shown))
}

func quoteEmpty(s string) string { return cmp.Or(s, `""`) }

func (a *app) tellProblem(p holdall.Problem) {
	a.tell(problemAsJSON(p), func() { a.printProblem("", p) })
}

// printProblem prints a problem, after a word unless it is for a terminal.
func (a *app) printProblem(word string, p holdall.Problem) {
	if a.outTTY && !a.inFull {
		a.shortProblem(p)
	} else {
		fmt.Fprintln(a.out, word+a.problem(p))
	}
}

func (a *app) printJSON(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic("holdall: " + err.Error()) // holdall's own types always marshal
	}
	a.out.Write(b)
	a.out.WriteByte('\n')
}
