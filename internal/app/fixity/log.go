// Package fixity keeps a log of checks of archives. Each line is a JSON object that has the BLAKE3
// of the line before, so what was changed or left out in the middle is noticed.
package fixity

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/sysfile"
)

// A Line is what a log has of one check of one archive. Later versions may add fields, such as a
// root of the contents.
type Line struct {
	Time     time.Time `json:"time"` // when the check ended
	By       string    `json:"by"`
	Tool     string    `json:"tool"`
	Archive  string    `json:"archive"`
	Size     int64     `json:"size,omitempty"`
	Modified time.Time `json:"modified,omitzero"`
	Version  string    `json:"version,omitempty"` // ETag or generation
	Verdict  string    `json:"verdict"`           // that of Verified, or "error"
	Error    string    `json:"error,omitempty"`   // why it could not be checked
	holdall.Verified
	// Torn is the digest of what is between the last whole line and this one: lines whose writer was
	// killed.
	Torn string `json:"torn,omitempty"`
	// Prev is the digest of the last whole line, with its end; empty in the first line.
	Prev *string `json:"prev"`
}

const (
	// mostLine is the length of the longest line, and mostEnd how much of the end of a log is
	// searched for a whole line.
	mostLine = 64 << 10
	mostEnd  = 1 << 20
	patience = 30 * time.Second
	begin    = `{"time":"` // of each line
)

// whole reports whether b, without its end, is a line. A part of one is none.
func whole(b []byte) (l Line, ok bool) {
	return l, len(b) < mostLine && json.Unmarshal(b, &l) == nil && l.Prev != nil && !l.Time.IsZero()
}

func digest(h *blake3.Hasher) string {
	return format.Digest{Algo: "blake3", Sum: string(h.Sum(nil))}.String()
}

// open opens and locks the log at a path, and makes it if there is none.
func open(ctx context.Context, path string) (*os.File, error) {
	_, missing := os.Lstat(path)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|sysfile.DontWait, 0o666)
	if err != nil {
		return nil, err
	}
	if err = lock(ctx, f); err == nil && missing != nil {
		err = sysfile.SyncFolder(filepath.Dir(path))
	}
	if fi, serr := f.Stat(); err == nil && (serr != nil || !fi.Mode().IsRegular()) {
		err = errors.Join(serr, fmt.Errorf("%s: expected a regular file", path))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func lock(ctx context.Context, f *os.File) error {
	for pause, left := time.Millisecond, patience; ; pause, left = min(2*pause, 32*time.Millisecond), left-pause {
		held, err := sysfile.TryLock(f)
		switch {
		case err != nil:
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		case held:
			return nil
		case left < 0:
			return fmt.Errorf("%s: another process keeps it locked", f.Name())
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// end reads the end of a log, to which a line is to be added.
func end(f *os.File) (Checked, error) {
	fi, err := f.Stat()
	if err != nil {
		return Checked{}, err
	}
	from := max(0, fi.Size()-mostEnd)
	c, err := check(io.NewSectionReader(f, from, fi.Size()-from), from > 0)
	if err == nil && (c.Wrong > 0 || from > 0 && c.Lines == 0) {
		err = fmt.Errorf("%s: not a log of checks, or its end is damaged: choose another name", f.Name())
	}
	return c, err
}

// Ready returns an error if no line can be added to the log at a path. It makes the log.
func Ready(ctx context.Context, path string) error {
	f, err := open(ctx, path)
	if err != nil {
		return err
	}
	_, err = end(f)
	return errors.Join(err, f.Close())
}

// Append adds a line to the log at a path, and returns its digest when it is durable. Nothing that
// is there is changed: a line whose writer was killed gets its end, and the new line says that it
// is torn.
func Append(ctx context.Context, path string, l Line) (last string, err error) {
	f, err := open(ctx, path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	c, err := end(f)
	if err != nil {
		return "", err
	}
	l.Prev, l.Torn, l.Time = &c.Last, c.torn, time.Now().UTC()
	b, err := json.Marshal(l)
	if err != nil {
		return "", err
	}
	// A signature would be made of b here, and become its last field: what is signed is the line
	// without it. Prev then includes the signature of the line before.
	if b = append(b, '\n'); len(b) > mostLine {
		return "", fmt.Errorf("%s: a line of %d bytes, more than %d", path, len(b), mostLine)
	}
	if _, err = f.Write(append([]byte(c.rest), b...)); err == nil { // at once, at the end
		err = f.Sync()
	}
	h := blake3.New()
	h.Write(b)
	return digest(h), err
}

// A Checked is what Check has read of a log.
type Checked struct {
	Lines int64  `json:"lines,omitempty"`
	Torn  int64  `json:"torn,omitempty"` // lines whose writer was killed
	Last  string `json:"last"`           // digest of the last whole line
	// Wrong is the number of the first line that does not fit, counted from 1, and Why says why. 0
	// means that all fit.
	Wrong int64  `json:"wrong,omitempty"`
	Why   string `json:"why,omitempty"`

	torn string // digest of what follows the last whole line
	rest string // what the last line lacks: its end
}

// Check reads a log, and compares each line with the one before. It cannot know whether lines are
// missing at the end.
func Check(r io.Reader) (Checked, error) { return check(r, false) }

// check is Check. With later, r begins anywhere in a log, so its first line is not compared.
func check(r io.Reader, later bool) (c Checked, err error) {
	in := bufio.NewReaderSize(r, mostLine)
	between := blake3.New()
	for number := int64(1); ; number++ {
		b, err := in.ReadSlice('\n')
		switch {
		case err == io.EOF && len(b) == 0:
			return c, nil
		case err == io.EOF:
			c.rest = "\n"
			b = append(bytes.Clone(b), '\n')
		case err == bufio.ErrBufferFull:
			c.Wrong, c.Why = number, fmt.Sprintf("it is longer than %d bytes", mostLine)
			return c, nil
		case err != nil:
			return c, err
		}
		l, ok := whole(b[:len(b)-1])
		switch {
		case !ok && number == 1 && !later && !strings.HasPrefix(begin, string(b[:min(len(b)-1, len(begin))])):
			c.Why = "it is no line of a log of checks"
		case !ok && later && c.Lines == 0:
			continue
		case !ok:
			between.Write(b)
			c.torn = digest(between)
			c.Torn++
			continue
		case later && c.Lines == 0:
		case *l.Prev != c.Last:
			c.Why = fmt.Sprintf("it follows a line %q, but the one before is %q", *l.Prev, c.Last)
		case l.Torn != c.torn:
			c.Why = fmt.Sprintf("torn lines before it are %q, not %q", c.torn, l.Torn)
		}
		if c.Why != "" {
			c.Wrong = number
			return c, nil
		}
		between.Reset()
		between.Write(b)
		c.Lines, c.Last, c.torn = c.Lines+1, digest(between), ""
		between.Reset()
	}
}
