package explore

import (
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/read/grep"
)

type foundJSON struct {
	Path  string `json:"p"`
	Size  int64  `json:"s"`
	Holds kind   `json:"h,omitempty"`
	Line  int    `json:"line,omitempty"` // of text
	Text  string `json:"text,omitempty"`
	healthJSON
}

const (
	maxShown  = 300 // bytes of a line
	maxInFile = 5   // lines of a file
	grepPause = 200 * time.Millisecond
)

// grep responds with the lines below a path that contain a text, ignoring
// case, as they are found. Each is a line of JSON. Further lines report the
// progress from time to time, and at the end. grep stops when the client is
// gone.
func (q *question) grep() error {
	text := q.q.Get("q")
	if len(text) > maxQuery || strings.TrimSpace(text) == "" {
		return bad("q: expected a text of at most %d bytes", maxQuery)
	}
	limit := q.number("limit", 200, 1, maxHits)
	if q.err != nil {
		return q.err
	}
	re, err := regexp.Compile("(?i)" + regexp.QuoteMeta(naming.Unescape(text)))
	if err != nil {
		return bad("q: expected a text, found %q", text)
	}
	defer q.busy()()
	v := q.view()
	if q.err != nil {
		return q.err
	}
	below := q.below()
	lines, flush := q.lines()
	var told struct {
		Files  int64  `json:"files"` // that were searched
		Bytes  int64  `json:"bytes"`
		Found  int64  `json:"found"`
		Failed int64  `json:"failed,omitempty"` // that could not be read
		End    bool   `json:"end,omitempty"`
		Error  string `json:"error,omitempty"`
	}
	last := time.Now()
	tell := func() {
		_ = lines.Encode(told) // an error means that the client is gone
		flush()
		last = time.Now()
	}
	health := q.h.health(v)
	wanted := func(e holdall.Entry) bool { return e.Kind.HasContent() && strings.HasPrefix(e.Name, below) }
	err = v.in.Contents(q.ctx(), wanted, func(e holdall.Entry, content io.Reader, err error) error {
		told.Files++
		n := 0
		if err == nil {
			for m, merr := range grep.Lines(content, re.Match) {
				if err = merr; err != nil {
					break
				}
				f := foundJSON{Path: format.Escape(e.Name), Size: e.Size, Holds: kindOf(e.Name), healthJSON: health(e.Name)}
				if !m.Binary {
					f.Line, f.Text = m.Line, around(m.Text, re)
				}
				_ = lines.Encode(f)
				told.Found++
				if n++; m.Binary || n == maxInFile || told.Found >= limit {
					break
				}
			}
		}
		if q.ctx().Err() != nil {
			return q.ctx().Err()
		}
		if err != nil {
			told.Failed++
		}
		told.Bytes += e.Size
		if time.Since(last) > grepPause {
			tell()
		}
		if told.Found >= limit {
			return io.EOF
		}
		return nil
	})
	if q.asked.Err() != nil {
		return nil
	}
	if told.End = true; err != nil && err != io.EOF {
		told.Error = "the archive was not searched completely"
	}
	tell()
	return nil
}

func around(line []byte, re *regexp.Regexp) string {
	if at := re.FindIndex(line); len(line) > maxShown && at != nil {
		from := max(0, at[0]-maxShown/3)
		line = line[from:min(len(line), from+maxShown)]
	}
	return format.Escape(strings.ToValidUTF8(string(line), "\uFFFD"))
}
