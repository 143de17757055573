package caf

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/holdall/holdall/internal/base/blake3"
)

const (
	footerLen = 4 // uint32 LE: length of the index without the footer
	version   = "1.0"
	writer    = "holdall" // "writer" at the top of an index written by holdall

	// maxIndexLen is the largest value of the footer.
	maxIndexLen = 1<<32 - 1
	digestLen   = 32 // blake3
)

// fault is something wrong with an archive or a row, in the format's own words.
type fault struct {
	class string
	off   int64 // in the object; -1 if it concerns no offset
	msg   string
}

func (f *fault) Error() string { return f.msg }

// parseFooter returns the place of the index in an object of the given size that ends with tail.
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

// The parts of the index around its rows. Fields of other writers (extra) are raw JSON members,
// and are written where they were: at the top or in the row.
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

// An index written by holdall ends with a digest of everything before, which its head announces,
// so damage to either is detected. Other readers ignore both.
const (
	tailOfIndex = "}}"
	promiseKey  = "index_digest"
	promised    = "blake3"
	sumKey      = "index_blake3"

	// provenTail is the length of the end of such an index.
	provenTail = len(`},"":""}`) + len(sumKey) + 2*digestLen
)

// indexText writes the text of an index.
type indexText struct {
	put  func([]byte) error
	hash *blake3.Hasher // nil for --plain
	n    int64
}

func newIndexText(plain bool, put func([]byte) error) *indexText {
	x := &indexText{put: put}
	if !plain {
		x.hash = blake3.New()
	}
	return x
}

// add writes the next part.
func (x *indexText) add(b []byte) error {
	if x.hash != nil {
		x.hash.Write(b)
	}
	x.n += int64(len(b))
	return x.put(b)
}

// end writes what follows the rows, and the footer.
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

// maxRowRest is the largest size of a row without its name: quotes, comma and braces, two keys
// with numbers of 19 digits, and the digest.
const maxRowRest = 3 + len(`:{"start_byte":,"end_byte":`) + 2*19 + len(`,"blake3":""`) + 2*digestLen + 3

// appendRow appends a row without a comma. The text of object begins with a comma.
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

// appendString appends s as a JSON string. Bytes that are not UTF-8 are kept: other readers
// replace them, and this package gets the file's original name back.
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
