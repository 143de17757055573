package explore

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
)

const (
	maxQuery   = 200
	maxHits    = 1000
	searchStep = 8192
)

// A pattern is a list of words that a name must contain, ignoring case.
type pattern struct {
	words [][]byte
	ascii bool
	low   []byte
}

func newPattern(s string) *pattern {
	p := &pattern{ascii: true}
	for w := range strings.FieldsSeq(s) {
		word := lower(nil, []byte(naming.Unescape(w)))
		p.words = append(p.words, word)
		for _, c := range word {
			p.ascii = p.ascii && c < utf8.RuneSelf
		}
	}
	return p
}

// lower appends name in lower case. Bytes that are not UTF-8 stay unchanged.
func lower(to, name []byte) []byte {
	for i := 0; i < len(name); {
		r, n := utf8.DecodeRune(name[i:])
		if r == utf8.RuneError && n == 1 {
			to = append(to, name[i])
		} else {
			to = utf8.AppendRune(to, unicode.ToLower(r))
		}
		i += n
	}
	return to
}

func (p *pattern) matches(name []byte) bool {
	if p.ascii { // no other letters are searched for
		p.low = p.low[:0]
		for _, c := range name {
			if 'A' <= c && c <= 'Z' {
				c |= 0x20
			}
			p.low = append(p.low, c)
		}
	} else {
		p.low = lower(p.low[:0], name)
	}
	return !slices.ContainsFunc(p.words, func(w []byte) bool { return !bytes.Contains(p.low, w) })
}

// below returns the prefix of the names in the requested folder.
func (q *question) below() string {
	if dir := q.path(); dir != "." {
		return dir + "/"
	}
	return ""
}

// lines starts a response of JSON lines, which are sent when flush is called.
func (q *question) lines() (lines *json.Encoder, flush func()) {
	q.w.Header().Set("Content-Type", "application/x-ndjson")
	out := bufio.NewWriterSize(q.w, 16<<10)
	return json.NewEncoder(out), func() {
		out.Flush()
		if f, ok := q.w.(interface{ Flush() }); ok {
			f.Flush()
		}
	}
}

// A finder finds entries by their names and by what a list shows of them.
type finder struct {
	asked        string
	words        *pattern
	re           *regexp.Regexp
	kinds        uint32 // a bit for each kind of file, and for folders; 0 means all
	min, max     int64  // bytes
	since, until int64  // in ms
}

const (
	folderBit = 1 << kinds
	anySize   = 1<<63 - 1
	lastTime  = 1<<63 - 1
)

// key is the same for the same search.
func (f *finder) key() string {
	if f == nil {
		return ""
	}
	return f.asked
}

// finder returns what the parameters of a search ask for. Without any, that is
// every entry.
func (q *question) finder() *finder {
	text := q.q.Get("q")
	if n := utf8.RuneCountInString(text); n > maxQuery {
		q.err = bad("q: expected at most %d characters, found %d", maxQuery, n)
	}
	f := &finder{min: q.number("min", 0, 0, anySize), max: q.number("max", anySize, 0, anySize),
		since: q.number("since", noTime, noTime, lastTime), until: q.number("until", lastTime, noTime, lastTime)}
	switch match := q.word("match", "words", "regexp"); {
	case q.err != nil:
	case match == "words":
		f.words = newPattern(text)
	default:
		_, err := regexp.Compile(text)
		if err == nil {
			f.re, err = regexp.Compile("(?i)" + text)
		}
		if err != nil {
			q.err = bad("q: expected a regular expression of RE2: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		}
	}
	for name := range strings.FieldsFuncSeq(q.q.Get("kind"), func(r rune) bool { return r == ',' }) {
		k := slices.Index(kindNames[:], name)
		if name == "folders" {
			k = int(kinds)
		}
		if k < 0 && q.err == nil {
			q.err = bad("kind: expected some of %s, folders, found %q", strings.Join(kindNames[:], ", "), cut(name, 40))
		}
		f.kinds |= 1 << max(k, 0)
	}
	f.asked = fmt.Sprintln(f.kinds, f.min, f.max, f.since, f.until, f.re != nil, text)
	return f
}

func (f *finder) anySize() bool { return f.min == 0 && f.max == anySize }
func (f *finder) anyTime() bool { return f.since == noTime && f.until == lastTime }

// finds reports whether an entry is searched for. Entries of unknown size or
// time have none.
func (f *finder) finds(name []byte, k format.Kind, size, time int64) bool {
	switch {
	case !f.anySize() && (!k.HasContent() || size < f.min || size > f.max):
		return false
	case !f.anyTime() && (time == noTime || time < f.since || time >= f.until):
		return false
	case f.re != nil && !f.re.Match(name) || f.words != nil && !f.words.matches(name):
		return false
	case f.kinds == 0:
		return true
	case k == format.Dir:
		return f.kinds&folderBit != 0
	}
	return k.HasContent() && f.kinds&(1<<kindOf(string(name))) != 0
}

// search responds with rows of what is found. Each search is a folder that is
// read in the background.
func (q *question) search() error {
	of := q.finder()
	if q.err != nil {
		return q.err
	}
	return q.list(of)
}

// searchZip sends what is found as a zip.
func (q *question) searchZip() error {
	of, v := q.finder(), q.view()
	if q.err != nil {
		return q.err
	}
	below := q.below()
	v.SendZip(q.w, q.r, q.h.log, func(e holdall.Entry) bool {
		name, in := strings.CutPrefix(e.Name, below)
		return in && of.finds([]byte(name), e.Kind, e.Size, millis(e.ModTime))
	})
	return nil
}

// search finds the rows of f. What is beyond maxFound is only counted.
func (h *Handler) search(ctx context.Context, f *folder) {
	select {
	case h.searching <- struct{}{}:
		defer func() { <-h.searching }()
	case <-ctx.Done():
		f.add(true, context.Cause(ctx), func() {})
		return
	}
	below := ""
	if f.key.dir != "." {
		below = f.key.dir + "/"
	}
	type hit struct {
		name       string
		kind       uint8
		size, time int64
	}
	var hits []hit
	seen, fault := 0, ""
	flush := func(end bool, err error) {
		f.add(end, err, func() {
			f.fault = fault
			for _, x := range hits {
				if f.text += int64(len(x.name)) + rowCost; f.text > maxFound {
					f.left++
				} else {
					f.put(x.name, x.kind, x.size, x.time)
				}
			}
			hits = hits[:0]
		})
	}
	try := func(name []byte, kind uint8, size, time int64) error {
		if seen++; seen%searchStep == 0 {
			flush(false, nil)
			if err := context.Cause(ctx); err != nil {
				return err
			}
		}
		own, in := bytes.CutPrefix(name, []byte(below))
		if !in || !f.of.finds(own, format.Kind(kind&kindMask), size, time) {
			return nil
		}
		if naming.Fault(string(name)) != "" {
			own, kind = name, kind|wholeBit
		}
		hits = append(hits, hit{string(own), kind, size, time})
		return nil
	}
	err := f.v.entries(ctx, try)
	if _, corrupt := errors.AsType[*format.CorruptError](err); corrupt { // what was found is good
		fault, err = surveyUnasked, nil
	}
	flush(true, err)
}

// entries calls f for each entry: from the survey if that has them all, or
// from the archive.
func (v *view) entries(ctx context.Context, f func(name []byte, kind uint8, size, time int64) error) error {
	v.survey.mu.Lock()
	d, failed := v.survey.data, v.survey.err
	v.survey.mu.Unlock()
	if d == nil || d.full || d.names.len() == 0 {
		for e, err := range v.in.Entries(ctx) {
			if err == nil {
				err = f([]byte(e.Name), kindBits(e), e.Size, millis(e.ModTime))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	c := d.names.from(0)
	for i := range d.names.len() {
		if err := f(c.next(), *d.kind.At(i), *d.size.At(i), *d.time.At(i)); err != nil {
			return err
		}
	}
	return failed
}
