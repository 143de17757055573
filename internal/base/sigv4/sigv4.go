// Package sigv4 makes version 4 of Amazon's signatures, for a client and for a server. Google's
// signatures are the same with other words.
package sigv4

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
)

const (
	// Algorithm is the name of Amazon's signatures.
	Algorithm = "AWS4-HMAC-SHA256"

	// Time is the format of the time of a signature. It begins with the day, which has eight digits.
	Time = "20060102T150405Z"

	// Unsigned stands for the checksum of a body that is not signed.
	Unsigned = "UNSIGNED-PAYLOAD"

	// Empty is the checksum of no bytes.
	Empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// A Field is a header that is signed. Its name has small letters.
type Field struct{ Name, Value string }

// Names returns the list of the names of headers.
func Names(fields []Field) string { return string(appendNames(nil, fields)) }

func appendNames(b []byte, fields []Field) []byte {
	for i, f := range fields {
		if i > 0 {
			b = append(b, ';')
		}
		b = append(b, f.Name...)
	}
	return b
}

// A Request is what is signed of a request. The path is not escaped, the query is the result of
// [Query], and the fields are in the order of their names.
type Request struct {
	Method, Path, Query string
	Fields              []Field
	Payload             string // the checksum of the body
}

// Text returns the text whose [MAC] is the signature of a request. scope is what its key is for.
func (r Request) Text(algorithm, at, scope string) string {
	var room [1 << 10]byte
	b := append(append(room[:0], r.Method...), '\n')
	b = append(escape(b, r.Path), '\n')
	b = append(append(b, r.Query...), '\n')
	for _, f := range r.Fields {
		b = append(append(b, f.Name...), ':')
		before := len(b)
		for word := range strings.FieldsSeq(f.Value) {
			if len(b) > before {
				b = append(b, ' ')
			}
			b = append(b, word...)
		}
		b = append(b, '\n')
	}
	b = append(appendNames(append(b, '\n'), r.Fields), '\n')
	sum := sha256.Sum256(append(b, r.Payload...))
	return algorithm + "\n" + at + "\n" + scope + "\n" + hex.EncodeToString(sum[:])
}

// Query returns a query in the order and with the escapes in which it is signed.
func Query(q url.Values) string {
	pairs := make([]string, 0, len(q))
	for name, values := range q {
		for _, v := range values {
			pairs = append(pairs, Word(name)+"="+Word(v))
		}
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "&")
}

// Word writes all bytes except letters, digits and -._~ as %XX.
func Word(s string) string { return strings.ReplaceAll(Path(s), "/", "%2F") }

// Path is like [Word], except that it keeps slashes.
func Path(s string) string {
	for i := range len(s) {
		if !isPlain(s[i]) {
			return string(escape(make([]byte, 0, 3*len(s)), s))
		}
	}
	return s
}

func isPlain(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("-._~/", c) >= 0
}

func escape(b []byte, s string) []byte {
	const digits = "0123456789ABCDEF"
	for i := range len(s) {
		if c := s[i]; isPlain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return b
}

// Keys derives the keys of scopes. It keeps the last one, because most requests have the scope of
// the one before.
type Keys struct{ last atomic.Pointer[derived] }

type derived struct {
	secret, scope string
	key           []byte
}

// Of returns the key for a scope. The secret begins with the name of the version.
func (k *Keys) Of(secret, scope string) []byte {
	if last := k.last.Load(); last != nil && last.secret == secret && last.scope == scope {
		return last.key
	}
	key := []byte(secret)
	for part := range strings.SplitSeq(scope, "/") {
		key = MAC(key, part)
	}
	k.last.Store(&derived{secret, scope, key})
	return key
}

// MAC returns the signature of a text, or the key that follows from a key.
func MAC(key []byte, text string) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(text))
	return m.Sum(nil)
}
