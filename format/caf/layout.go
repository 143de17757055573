package caf

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/zeebo/blake3"
)

const (
	footerLen = 4 // uint32 LE: length of the index, the footer not counted
	version   = "1.0"
	writer    = "holdall" // "writer" at the top of an index of ours

	// maxIndexLen is what the footer can say.
	maxIndexLen = 1<<32 - 1
	digestLen   = 32 // blake3
)

// A fault is something wrong with an archive or a row, by the format's own
// word for it.
type fault struct {
	class string
	off   int64 // in the object; -1 if it has no place
	msg   string
}

func (f *fault) Error() string { return f.msg }

// parseFooter returns where the index lies in an object of the given size, of
// which tail is the end.
func parseFooter(tail []byte, size int64) (off, n int64, _ *fault) {
	if size < footerLen || len(tail) < footerLen {
		return 0, 0, &fault{"too-short", 0, fmt.Sprintf("%d bytes are too short for a footer of %d", size, footerLen)}
	}
	at := size - footerLen
	n = int64(binary.LittleEndian.Uint32(tail[len(tail)-footerLen:]))
	switch {
	case n == 0:
		return 0, 0, &fault{"no-index", at, "the footer has an index size of 0"}
	case n > at:
		return 0, 0, &fault{"index-size", at, fmt.Sprintf("the footer says %d bytes of index, the file has %d", n, at)}
	}
	return at - n, n, nil
}

func appendFooter(b []byte, indexLen int64) []byte {
	return binary.LittleEndian.AppendUint32(b, uint32(indexLen))
}

// The index we write, around its rows. Other writers' own fields (extra) are
// raw JSON members and go where they were: at the top, or in the row.
func appendHead(b []byte, extra string, plain bool) []byte {
	b = append(b, `{"format_version":"`+version+`"`...)
	if !plain {
		b = append(b, `,"writer":"`+writer+`","`+promiseKey+`":"`+promised+`"`...)
	}
	if extra != "" {
		b = append(append(b, ','), extra...)
	}
	return append(b, `,"files":{`...)
}

// An index of ours ends with a digest of all that is before, which it announces in its
// head: so neither can be damaged unseen. Other readers ignore both.
const (
	tailOfIndex = "}}"
	promiseKey  = "index_digest"
	promised    = "blake3"
	sumKey      = "index_blake3"

	// provenTail is how long the end of such an index is.
	provenTail = len(`},"":""}`) + len(sumKey) + 2*digestLen
)

// indexText writes the text of an index.
type indexText struct {
	put  func([]byte) error
	hash *blake3.Hasher // nil if it is plain
	n    int64
}

func newIndexText(plain bool, put func([]byte) error) *indexText {
	x := &indexText{put: put}
	if !plain {
		x.hash = blake3.New()
	}
	return x
}

// add writes what comes next.
func (x *indexText) add(b []byte) error {
	if x.hash != nil {
		x.hash.Write(b)
	}
	x.n += int64(len(b))
	return x.put(b)
}

// end writes what is behind the rows, and the footer.
func (x *indexText) end() error {
	tail := []byte(tailOfIndex)
	if x.hash != nil {
		tail = append(tail[:1], ',')
		x.hash.Write(tail)
		tail = fmt.Appendf(tail, `"%s":"%x"}`, sumKey, x.hash.Sum(nil))
	}
	x.n += int64(len(tail))
	if x.n > maxIndexLen {
		return errIndexLen
	}
	return x.put(appendFooter(tail, x.n))
}

var errIndexLen = errors.New("the index would exceed the 4 GiB limit of the footer")

// maxRowRest is how long a row is at most besides its name: quotes, comma and
// braces, two keys with numbers of 19 digits, and the digest.
const maxRowRest = 3 + len(`:{"start_byte":,"end_byte":`) + 2*19 + len(`,"blake3":""`) + 2*digestLen + 3

// appendRow appends a row without a comma. What it says of an object begins with one.
func appendRow(b []byte, name string, start, end int64, digest string, extra string, object []byte) []byte {
	b = appendString(b, name)
	b = append(b, `:{"start_byte":`...)
	b = strconv.AppendInt(b, start, 10)
	b = append(b, `,"end_byte":`...)
	b = strconv.AppendInt(b, end, 10)
	if digest != "" {
		b = append(b, `,"blake3":"`...)
		b = hex.AppendEncode(b, []byte(digest))
		b = append(b, '"')
	}
	if extra != "" {
		b = append(append(b, ','), extra...)
	}
	return append(append(b, object...), '}')
}

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string. Bytes that are no UTF-8 are kept as
// they are: a reader that minds replaces them, a reader like ours gets the
// file's true name back.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			switch {
			case c == '"' || c == '\\':
				b = append(b, '\\', c)
			case c < 0x20:
				b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			default:
				b = append(b, c)
			}
			i++
			continue
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		b = append(b, s[i:i+n]...)
		i += n
	}
	return append(b, '"')
}
