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

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/blake3"
	"github.com/holdall/holdall/internal/base/minisign"
	"github.com/holdall/holdall/internal/base/sysfile"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
)

// A Result is what a check of an archive has found.
type Result struct {
	Archive string `json:"archive"`
	Verdict string `json:"verdict"`         // that of Verified, or "error"
	Error   string `json:"error,omitempty"` // why it could not be checked
	holdall.Verified
}

// A Line is what a log has of one check of one archive. Later versions may add fields.
type Line struct {
	Time time.Time `json:"time"` // when the check ended
	By   string    `json:"by"`
	Tool string    `json:"tool"`
	Result
	// Prev is the digest of all from the last whole line to this one: that line with its end, and
	// what killed writers have left after it. In the first line of a log it is empty.
	Prev *string `json:"prev"`
	// Sig is a signature in minisign's format of the line without it. It is the last field.
	Sig string `json:"sig,omitempty"`
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
func open(ctx context.Context, path string) (store.Amendment, error) {
	if f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o666); err == nil {
		if err := errors.Join(f.Close(), sysfile.SyncFolder(filepath.Dir(path))); err != nil {
			return nil, err
		}
	}
	st := local.New(filepath.Dir(path))
	for pause, left := time.Millisecond, patience; ; pause, left = min(2*pause, 32*time.Millisecond), left-pause {
		a, err := st.Amend(ctx, filepath.Base(path))
		if _, locked := errors.AsType[*store.LockedError](err); !locked || left < 0 {
			return a, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// end reads the end of a log, to which a line is to be added.
func end(ctx context.Context, a store.Amendment, path string) (Checked, error) {
	b := make([]byte, min(a.Size(), mostEnd))
	later := a.Size() > mostEnd
	if err := a.ReadAt(ctx, b, a.Size()-int64(len(b))); err != nil {
		return Checked{}, err
	}
	c, err := check(bytes.NewReader(b), later, nil)
	if err == nil && (c.Wrong > 0 || later && c.Lines == 0) {
		err = fmt.Errorf("%s: not a log of checks, or its end is damaged: choose another name", path)
	}
	return c, err
}

// Ready returns an error if no line can be added to the log at a path. It makes the log.
func Ready(ctx context.Context, path string) error {
	a, err := open(ctx, path)
	if err != nil {
		return err
	}
	_, err = end(ctx, a, path)
	return errors.Join(err, a.Close())
}

// Append adds a line to the log at a path, and returns its digest when it is durable. Nothing that
// is there is changed: a line whose writer was killed gets its end, and the new line says that it
// is torn.
// With a key, it is signed.
func Append(ctx context.Context, path string, l Line, key *minisign.Secret) (last string, err error) {
	a, err := open(ctx, path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	c, err := end(ctx, a, path)
	if err != nil {
		return "", err
	}
	l.Prev, l.Time = &c.prev, time.Now().UTC()
	b, err := json.Marshal(l)
	if err != nil {
		return "", err
	}
	if key != nil {
		b = fmt.Appendf(b[:len(b)-1], "%s%s\"}", beforeSig, key.SignOnly(b))
	}
	if b = append(b, '\n'); len(b) > mostLine {
		return "", fmt.Errorf("%s: a line of %d bytes, more than %d", path, len(b), mostLine)
	}
	if err = a.WriteAt(ctx, append([]byte(c.rest), b...), a.Size()); err == nil {
		err = a.Sync(ctx)
	}
	h := blake3.New()
	h.Write(b)
	return digest(h), err
}

// A Checked is what Check has read of a log.
type Checked struct {
	Log   string `json:"log"` // for callers
	Lines int64  `json:"lines,omitempty"`
	Torn  int64  `json:"torn,omitempty"` // lines whose writer was killed
	Last  string `json:"last"`           // digest of the last whole line
	// Wrong is the number of the first line that does not fit, counted from 1, and Why says why. 0
	// means that all fit.
	Wrong int64  `json:"wrong,omitempty"`
	Why   string `json:"why,omitempty"`

	prev string // what the next line gets as Prev
	rest string // what the last line lacks: its end
}

// beforeSig is what a signature stands behind in its line.
const beforeSig = `,"sig":"`

// signed returns an error unless one of the keys has signed a line. Without keys, none need be signed.
func signed(b []byte, sig string, keys []minisign.Key) error {
	if len(keys) == 0 {
		return nil
	}
	line, ok := strings.CutSuffix(string(b), beforeSig+sig+"\"}")
	if !ok || sig == "" {
		return errors.New("it is not signed")
	}
	return minisign.VerifyOnly(sig, []byte(line+"}"), keys)
}

// Check reads a log, and compares each line with the one before. With keys, one of these must have signed it.
// It cannot know whether lines are missing at the end.
func Check(r io.Reader, keys []minisign.Key) (Checked, error) { return check(r, false, keys) }

// check is Check. With later, r begins anywhere in a log, so its first line is not compared.
func check(r io.Reader, later bool, keys []minisign.Key) (c Checked, err error) {
	in, since := bufio.NewReaderSize(r, mostLine), blake3.New()
	for number := int64(1); c.Why == ""; number++ {
		b, err := in.ReadSlice('\n')
		switch {
		case err == io.EOF && len(b) == 0:
			return c, nil
		case err == io.EOF:
			c.rest = "\n"
			b = append(bytes.Clone(b), '\n')
		case err == bufio.ErrBufferFull:
			c.Wrong, c.Why = number, fmt.Sprintf("it is longer than %d bytes", mostLine)
			continue
		case err != nil:
			return c, err
		}
		l, ok := whole(b[:len(b)-1])
		began := !later || c.Lines > 0
		switch bad := signed(b[:len(b)-1], l.Sig, keys); {
		case !ok && number == 1 && !later && !strings.HasPrefix(begin, string(b[:min(len(b)-1, len(begin))])):
			c.Wrong, c.Why = number, "it is no line of a log of checks"
		case ok && began && *l.Prev != c.prev:
			c.Wrong, c.Why = number, fmt.Sprintf("it follows %q, but before it is %q", *l.Prev, c.prev)
		case ok && bad != nil:
			c.Wrong, c.Why = number, bad.Error()
		case ok:
			since.Reset()
			since.Write(b)
			c.Lines, c.prev = c.Lines+1, digest(since)
			c.Last = c.prev
		case began:
			since.Write(b)
			c.Torn, c.prev = c.Torn+1, digest(since)
		}
	}
	return c, nil
}
