// Package far has what stores on a network share: errors and retries, addresses of services,
// checks of listings, and uploads in parts.
package far

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/holdall/holdall/internal/base/sigv4"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A Passing error may pass by itself.
type Passing struct {
	Err   error
	After time.Duration // what the server asks to wait
	Now   bool          // there is no reason to wait
}

// Refused reports whether nothing listens at the address of a server.
func Refused(err error) bool {
	const windows = syscall.Errno(10061) // WSAECONNREFUSED, which package syscall does not map
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, windows)
}

func (p *Passing) Error() string { return p.Err.Error() }

func (p *Passing) Unwrap() error { return p.Err }

// Fail makes err the error of a request for the object at an address, nil if it is. off
// is -1 where there is none.
func Fail(op, address string, off, n int64, err error) error {
	if err == nil {
		return nil
	}
	e := &store.Error{Op: op, Name: address, Off: off, Len: n, Err: err}
	if p, ok := errors.AsType[*Passing](err); ok {
		e.Retry, e.Err = true, p.Err
	}
	return e
}

// ErrDropped is what net/http reports as EOF, which callers would take for the end of
// the object.
var ErrDropped = errors.New("connection closed before an answer")

// Unaddressed removes the address from a transport's error, as it may hold a token. The error
// around it has the request's name.
func Unaddressed(err error) error {
	for {
		ue, ok := errors.AsType[*url.Error](err)
		if !ok {
			return err
		}
		err = ue.Err
	}
}

// Dropped is err, or says what an EOF means that came instead of an answer.
func Dropped(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrDropped
	}
	return err
}

// Hopeless reports whether a transport error is permanent.
func Hopeless(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.IsNotFound
	}
	// A transport that signs requests may have no credentials.
	return errors.Is(err, http.ErrSchemeMismatch) || errors.Is(err, fs.ErrPermission)
}

// IsWord reports whether code is a word, as the codes of errors are.
func IsWord(code string) bool {
	return code != "" && len(code) <= 64 && !strings.ContainsFunc(code, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9')
	})
}

// Malformed is the error of an address.
func Malformed(address, format string, a ...any) error {
	return fmt.Errorf("%s: "+format, append([]any{store.Redact(address)}, a...)...)
}

// ParseAddress parses the address of an object of a service, which looks like form and has one of
// the schemes. Its query must be empty, or request anonymous access.
func ParseAddress(address, form string, schemes ...string) (u *url.URL, anonymous bool, err error) {
	u, err = url.Parse(address)
	if err != nil {
		return nil, false, Malformed(address, "malformed address: a %% that belongs to the key is written %%25")
	}
	switch {
	case !slices.Contains(schemes, strings.ToLower(u.Scheme)) || u.Host == "":
		err = Malformed(address, "expected %s: %w", form, errors.ErrUnsupported)
	case u.User != nil:
		err = Malformed(address, "an address must not contain credentials")
	case strings.Contains(address, "#"):
		err = Malformed(address, "address with a #: write it %%23 if it belongs to the key")
	case u.RawQuery != "" && u.RawQuery != "anonymous":
		err = Malformed(address, "expected ?anonymous or nothing after the key; a ? that belongs to it is written %%3F")
	}
	// Slashes at the end do not matter, as with folders on a disk.
	u.Path = strings.TrimRight(strings.TrimPrefix(u.Path, "/"), "/")
	return u, u.RawQuery == "anonymous", err
}

// ParseEndpoint reads the address of a server, which looks like form and has a path only
// if that is allowed.
func ParseEndpoint(s, form string, path bool) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		!path && strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		// It is not shown: it may hold a password, or a token.
		return nil, fmt.Errorf("endpoint: expected %s: %w", form, fs.ErrInvalid)
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimRight(u.Path, "/")}, nil
}

// IsLocal reports whether host is this machine, or an address of numbers.
func IsLocal(host string) bool { return host == "localhost" || net.ParseIP(host) != nil }

// Switch is the value of a variable of the environment that is 1 or 0, or what is chosen
// already where that is true or there is none.
func Switch(chosen bool, variable string) (bool, error) {
	v := os.Getenv(variable)
	if v == "" || chosen {
		return chosen, nil
	}
	yes, err := strconv.ParseBool(v)
	if err != nil {
		return false, fmt.Errorf("%s is %.20q: expected 1 or 0: %w", variable, v, fs.ErrInvalid)
	}
	return yes, nil
}

// IsName reports whether s is a name of small letters, digits and what may stand
// between them, as those of buckets are.
func IsName(s, between string) bool {
	for i, c := range []byte(s) {
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alnum && (strings.IndexByte(between, c) < 0 || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return true
}

// CheckKey returns an error if no object of any service can have this key.
func CheckKey(key string) error {
	switch {
	case !utf8.ValidString(key):
		// A signer would replace such a byte with a different character, and request a different
		// object.
		return fmt.Errorf("key %.100q is not UTF-8: %w", key, fs.ErrInvalid)
	case strings.IndexByte(key, 0) >= 0:
		return fmt.Errorf("key %.100q holds a NUL byte: %w", key, fs.ErrInvalid)
	}
	return nil
}

// CheckName says why there is no such name below a store's address.
func CheckName(name string) error {
	if name == "" || name[0] == '/' {
		return fmt.Errorf("not a name below the store's address: %w", fs.ErrInvalid)
	}
	return nil
}

// A DotsError means that a key cannot be requested: clients, proxies and servers on the way may
// resolve it, and answer with a different object.
type DotsError struct{ Element string }

func (e *DotsError) Error() string {
	return fmt.Sprintf("a key with a '%s' element cannot be requested over HTTP", e.Element)
}

func (e *DotsError) Unwrap() error { return fs.ErrInvalid }

// CheckDots refuses keys with an element that is "." or "..".
func CheckDots(key string) error {
	for part := range strings.SplitSeq(key, "/") {
		if part == "." || part == ".." {
			return &DotsError{part}
		}
	}
	return nil
}

// EscapeDots escapes the elements of an escaped path that are "." or "..". Nothing that
// keeps to the letter of a path resolves them then.
func EscapeDots(path string) string {
	if CheckDots(path) == nil {
		return path
	}
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if p == "." || p == ".." {
			parts[i] = strings.ReplaceAll(p, ".", "%2E")
		}
	}
	return strings.Join(parts, "/")
}

// Below returns the address of what lies below base, which ends in a slash, by a plain
// name. S3 takes a plus sign in a path for a space.
func Below(base *url.URL, name string) *url.URL {
	if base.RawPath == "" && sigv4.Path(name) == name && CheckDots(name) == nil { // nothing is escaped
		u := *base
		u.Path += name
		return &u
	}
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = strings.ReplaceAll(url.PathEscape(p), "+", "%2B")
	}
	u := *base
	u.Path += name
	u.RawPath = base.EscapedPath() + EscapeDots(strings.Join(parts, "/"))
	return &u
}

// Quoted returns an ETag as the header of an object has it.
func Quoted(etag string) string {
	if etag == "" || strings.HasPrefix(etag, `"`) {
		return etag
	}
	return `"` + etag + `"`
}

// Sum is a checksum as headers have it, in base64 where it is not in hexadecimal digits:
// that of the sums of n parts if it ends in -n. The length of the parts is not known; Part
// is their number then, below 0.
func Sum(algo, value string, hexadecimal bool) (sum store.Sum, ok bool) {
	value, parts, several := strings.Cut(strings.Trim(value, `"`), "-")
	decode := base64.StdEncoding.DecodeString
	if hexadecimal {
		decode = hex.DecodeString
	}
	b, err := decode(value)
	n := 0
	if several {
		var nerr error
		if n, nerr = strconv.Atoi(parts); n < 1 {
			err = cmp.Or(nerr, fs.ErrInvalid)
		}
	}
	length := map[string]int{"sha256": 32, "sha1": 20, "md5": 16, "crc64nvme": 8, "crc32c": 4, "crc32": 4}[algo]
	return store.Sum{Algo: algo, Value: string(b), Part: -int64(n)}, err == nil && len(b) == length
}

// Listed yields by their names the objects that a server lists by their keys, which begin with
// below and then prefix. It does not trust the server: one that repeats itself would be listed
// for ever, and the objects of one that answers for a different prefix would be taken for these.
func Listed(below, prefix string, keys iter.Seq2[store.Info, error], fail func(error) error) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		last, begun := "", false
		for info, err := range keys {
			name, ok := strings.CutPrefix(info.Name, below)
			switch {
			case err != nil:
			case !ok || !strings.HasPrefix(name, prefix):
				err = fmt.Errorf("server listed %.200q, which does not begin with %q", info.Name, below+prefix)
			case begun && name <= last:
				err = fmt.Errorf("server listed %.200q after %.200q: expected the order of their bytes", name, last)
			case info.Size < 0:
				err = fmt.Errorf("server listed %.200q with size %d", name, info.Size)
			}
			if err != nil {
				yield(store.Info{}, fail(err))
				return
			}
			last, begun, info.Name = name, true, name
			// Consoles make an empty object for the prefix itself. It has no name here.
			if name != "" && !yield(info, nil) {
				return
			}
		}
	}
}

// An Object is one of package web, but its errors have the address that the user gave, not that
// of a server.
type Object struct {
	store.Object
	Name    string
	Address func(name string) string
}

// Named gives err the object's address.
func (o *Object) Named(err error) error {
	if e, ok := errors.AsType[*store.Error](err); ok {
		e.Name = o.Address(o.Name)
	}
	return err
}

// ReadAt is that of the object, with its address.
func (o *Object) ReadAt(ctx context.Context, p []byte, off int64) error {
	return o.Named(o.Object.ReadAt(ctx, p, off))
}

// Can says that the object reads its ends, and what its server vouches for and keeps.
func (o *Object) Can() store.ObjectAbilities {
	can := o.Object.Can()
	return store.ObjectAbilities{ReadEnd: o.ReadEnd, Sums: can.Sums, Headers: can.Headers, Unkept: can.Unkept}
}

// unkept has the ends of the names of headers that show what a service keeps with an object and
// archives do not, and the values that are usual.
var unkept = map[string][2]string{
	"tagging-count": {"0", "tags"}, "tag-count": {"0", "tags"}, "storage-class": {"STANDARD", "storage class"}, "access-tier": {"", "storage class"},
	"website-redirect-location": {"", "redirect"}, "object-lock-mode": {"", "lock"}, "object-lock-legal-hold": {"OFF", "lock"},
	"immutability-policy-mode": {"", "lock"}, "legal-hold": {"false", "lock"},
}

// Headers are what a service keeps with an object, of an answer about it. Names of what
// users keep begin with meta there. What no archive keeps has a name that is not a header's.
func Headers(h http.Header, meta string) map[string]string {
	all := map[string]string{}
	service := strings.TrimSuffix(meta, "meta-")
	for key, values := range h {
		name := strings.ToLower(key)
		if end, ok := strings.CutPrefix(name, service); ok {
			if u, ok := unkept[end]; ok && len(values) > 0 && values[0] != "" && values[0] != u[0] && h.Get(name+"-inferred") != "true" {
				all[u[1]] = values[0]
			}
		}
		if own, ok := strings.CutPrefix(name, meta); ok {
			name = storekit.MetaHeader + own
		} else if strings.HasPrefix(name, storekit.MetaHeader) {
			continue
		}
		if storekit.IsHeader(name) && !strings.HasPrefix(name, "x-amz-checksum-") && !strings.HasPrefix(name, "x-amz-mp-") { // those are the service's own
			all[name] = strings.Join(values, ",")
		}
	}
	return all
}

// ReadEnd is that of the object, with its address.
func (o *Object) ReadEnd(ctx context.Context, p []byte, tail bool) (int, error) {
	n, err := o.Object.Can().ReadEnd(ctx, p, tail)
	return n, o.Named(err)
}
