// Package root computes the roots of archives, which stand for all of an archive, and reads and writes the
// statements that are signed.
package root

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/base/blake3"
	"github.com/holdall/holdall/internal/base/minisign"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Rows are what the root of contents is the BLAKE3 of: a line for each entry, sorted by name. They are the
// same for each format that an archive is converted to. So a file does not depend on how it is stored, a
// property of a node is a file, a hard link is the file that it links to, and only folders without
// anything in them have a row.
type Rows struct{ sort *sorter.Sorter }

// NewRows returns no rows. They must be closed.
func NewRows() *Rows {
	last := func([]byte) error { return nil } // the last entry of a name counts
	return &Rows{sorter.New(sorter.Options{Memory: 24 << 20, Scratch: sorter.TempFile, Duplicate: last})}
}

func (r *Rows) Close() { r.sort.Close() }

// Add adds a row for e. sum is the BLAKE3 of its content, if it has any.
func (r *Rows) Add(e format.Entry, sum [32]byte) error {
	if e.Name == "." {
		return nil
	}
	kind, size, key := e.Kind, int64(0), e.Name+"\x00"
	switch {
	case kind.HasContent():
		kind, size = format.File, e.Size
	case kind == format.Dir:
		key = e.Name + "/" // so that what is in it follows
		sum = blake3.Sum256(nil)
	default:
		size, sum = int64(len(e.Link)), blake3.Sum256([]byte(e.Link))
	}
	return r.sort.Add([]byte(key), fmt.Appendf(nil, "%s %d %x", kind, size, sum))
}

// Escapes are those of names in lines of sha256sum and b3sum.
var Escapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`)

// Write writes all rows.
func (r *Rows) Write(w io.Writer) error {
	b := bufio.NewWriterSize(w, 64<<10)
	folder, row := "", "" // a folder that may be empty, and its row
	for at, err := range r.sort.Sorted() {
		if err != nil {
			return err
		}
		key := string(at.Key)
		if !strings.HasPrefix(key, folder) {
			b.WriteString(row)
		}
		folder, row = "", ""
		name, is := strings.CutSuffix(key, "\x00")
		line := fmt.Sprintf("%s %s\n", at.Value, Escapes.Replace(name))
		if is {
			b.WriteString(line)
		} else {
			folder, row = key, line
		}
	}
	b.WriteString(row)
	return b.Flush()
}

// Sum returns the root of contents in hex.
func (r *Rows) Sum() (string, error) {
	h := blake3.New()
	err := r.Write(h)
	return hex.EncodeToString(h.Sum(nil)), err
}

// A Statement has the roots of an archive in hex.
type Statement struct {
	// Contents stands for the names, kinds, sizes and contents of all entries.
	Contents string `json:"contents,omitempty"`
	// Archive stands for all that an index with digests says. It is empty if there is none.
	Archive string `json:"root,omitempty"`
}

const first = "holdall 1"

// Text is what is signed.
func (s Statement) Text() []byte {
	b := fmt.Appendf(nil, "%s\ncontents %s\n", first, s.Contents)
	if s.Archive != "" {
		b = fmt.Appendf(b, "archive %s\n", s.Archive)
	}
	return b
}

// Comment is the statement in the trusted comment of its signature, which may say more.
func (s Statement) Comment(more string) string {
	text := strings.TrimSuffix(string(s.Text()), "\n")
	return strings.ReplaceAll(text, "\n", ", ") + "; " + more
}

// ErrStatement means that a signature is of something else.
var ErrStatement = errors.New("the signature is not of an archive's roots")

// ParseComment returns the statement in a trusted comment.
func ParseComment(c string) (s Statement, err error) {
	text, _, ok := strings.Cut(c, "; ")
	lines := strings.Split(text, ", ")
	if !ok || len(lines) < 2 || len(lines) > 3 || lines[0] != first {
		return s, ErrStatement
	}
	for i, into := range []*string{&s.Contents, &s.Archive}[:len(lines)-1] {
		what := []string{"contents ", "archive "}[i]
		sum, ok := strings.CutPrefix(lines[1+i], what)
		if b, err := hex.DecodeString(sum); !ok || err != nil || len(b) != 32 || sum != strings.ToLower(sum) {
			return Statement{}, ErrStatement
		}
		*into = sum
	}
	return s, nil
}

// Suffix is appended to the name of an archive to get the name of its signature.
const Suffix = ".minisig"

// Signed returns what one of the keys has signed of an archive, the ID of that key, and the signature.
func Signed(ctx context.Context, st store.Store, archive string, trusted []string) (s Statement, by string, file []byte, err error) {
	keys, err := minisign.ParseKeys(trusted)
	if err != nil {
		return s, "", nil, err
	}
	name := strings.TrimSuffix(archive, "/") + Suffix
	file, err = readSignature(ctx, st, name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) { // a bucket that may not be listed
		return s, "", nil, fmt.Errorf("there is no signature %s beside it", format.Escape(name))
	}
	if err != nil {
		return s, "", nil, err
	}
	sig, err := minisign.ParseSignature(file)
	if err == nil {
		s, err = ParseComment(sig.Comment)
	}
	if err == nil {
		var k minisign.Key
		k, err = sig.Verify(s.Text(), keys)
		by = k.ID()
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", format.Escape(name), err)
	}
	return s, by, file, err
}

func readSignature(ctx context.Context, st store.Store, name string) ([]byte, error) {
	o, err := st.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	b := make([]byte, minisign.MaxFile+1)
	n, err := storekit.ReadHead(ctx, o, b)
	return b[:n], err
}
