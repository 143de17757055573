package explore

import (
	"bufio"
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
)

const (
	maxQuery   = 200
	maxHits    = 1000
	searchStep = 8192
)

type hitJSON struct {
	Path  string `json:"p"`
	Kind  string `json:"k,omitempty"`
	Size  int64  `json:"s"`
	Holds kind   `json:"h,omitempty"`
	healthJSON
}

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

// search responds with the names that contain all words of q, as they are
// found. Each is a line of JSON; the last line has the number of matches.
func (q *question) search() error {
	text := q.q.Get("q")
	if len(text) > maxQuery {
		return bad("q: expected at most %d bytes, found %d", maxQuery, len(text))
	}
	limit := q.number("limit", 200, 1, maxHits)
	if q.err != nil {
		return q.err
	}
	p := newPattern(text)
	if len(p.words) == 0 {
		return bad("q: expected words, found none")
	}
	defer q.busy()()
	v := q.view()
	if q.err != nil {
		return q.err
	}
	below := q.below()
	lines, flush := q.lines()
	var seen, found int64
	health := q.h.health(v)
	last := time.Now()
	try := func(name []byte, k format.Kind, size int64) (err error) {
		if seen++; seen%searchStep == 0 {
			if err := q.ctx().Err(); err != nil {
				return err
			}
			if time.Since(last) > 150*time.Millisecond {
				_ = lines.Encode(map[string]int64{"seen": seen, "found": found})
				flush()
				last = time.Now()
			}
		}
		if len(name) < len(below) || string(name[:len(below)]) != below || !p.matches(name[len(below):]) {
			return nil
		}
		if found++; found > limit {
			return nil
		}
		hit := hitJSON{Path: format.Escape(string(name)), Size: size, healthJSON: health(string(name))}
		if k != format.File {
			hit.Kind = k.String()
		}
		if k.HasContent() {
			hit.Holds = kindOf(hit.Path)
		}
		return lines.Encode(hit)
	}
	v.survey.mu.Lock()
	d := v.survey.data
	v.survey.mu.Unlock()
	var err error
	if d != nil && !d.full && d.names.len() > 0 {
		c := d.names.from(0)
		for i := range d.names.len() {
			if err = try(c.next(), format.Kind(*d.kind.At(i)), *d.size.At(i)); err != nil {
				break
			}
		}
	} else {
		for e, eerr := range v.in.Entries(q.ctx()) {
			if err = eerr; err == nil {
				err = try([]byte(e.Name), e.Kind, e.Size)
			}
			if err != nil {
				break
			}
		}
	}
	end := map[string]any{"end": true, "seen": seen, "found": found}
	if err != nil {
		if q.r.Context().Err() != nil && q.ctx().Err() != nil {
			return nil // the user has typed on
		}
		end["error"] = surveyUnasked
	}
	_ = lines.Encode(end) // an error means that the client is gone
	flush()
	return nil
}
