// Package azure keeps objects in containers of Azure Blob Storage.
//
// It is for programs that build a store themselves; those that only have an
// address, az://account/container/key, leave it to package store/all.
//
// Objects are read by package store/web, over requests signed here. What is written
// goes up in blocks, which nobody sees before the list of them is sent; those of
// which no list comes are dropped by the server after a week.
package azure

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
	"github.com/holdall/holdall/store/web"
)

// Options are where an account is and how it is spoken to. What is zero comes from
// the environment.
type Options struct {
	// Endpoint is the server of the account, as http://host:port/account or
	// https://account.host.
	Endpoint string

	// Anonymous sends requests without a signature.
	Anonymous bool

	// Client sends the requests; its Transport is what signed requests go
	// through. The default is that of package web.
	Client *http.Client

	// Tries is how often a request is sent; 6 by default.
	Tries int

	// Log gets a line at level debug for each read; silent by default.
	Log *slog.Logger
}

const (
	// maxKey is how many characters a key may have, and maxDepth how many parts
	// between slashes.
	maxKey   = 1024
	maxDepth = 254

	// A listing has names of at most 4 KiB, escaped, and some hundred bytes more
	// for each.
	perPage    = 1000
	maxListing = 32 << 20

	// With metadata, which have some 200 bytes and may have 8 KiB for each, as many are asked for
	// as the server gives.
	perFullPage    = 5000
	maxFullListing = 128 << 20
)

// A Store is what lies below one prefix of a container: names are keys without it.
type Store struct {
	account   string
	container string
	prefix    string   // "" or ending in a slash
	base      *url.URL // of the container, with a slash at the end
	signed    *signer
	client    *http.Client
	web       *web.Store
	tries     int

	noCopies atomic.Bool // the server has shown that it does not copy blocks
}

// Open finds the store and the object's name behind an az:// address. It is a
// for store.Register, and sends no request.
func Open(_ context.Context, address string) (store.Store, string, error) {
	st, name, err := At(address, Options{})
	if err != nil {
		return nil, "", err
	}
	return st, name, nil
}

// At is Open with options. The store is that of all objects beside the one
// addressed, whose name is the last part of its key.
func At(address string, o Options) (st *Store, name string, err error) {
	u, anonymous, err := far.ParseAddress(address, "az://account/container/key", "az")
	if err != nil {
		return nil, "", err
	}
	container, key, _ := strings.Cut(u.Path, "/")
	if container == "" || key == "" {
		return nil, "", far.Malformed(address, "expected az://account/container/key, found no key")
	}
	o.Anonymous = o.Anonymous || anonymous
	i := strings.LastIndexByte(key, '/') + 1
	st, err = New(u.Host, container, key[:i], o)
	if err != nil {
		return nil, "", far.Malformed(address, "%w", err)
	}
	return st, key[i:], nil
}

// New returns the store of the objects of a container whose keys begin with prefix,
// which is empty or ends in a slash.
func New(account, container, prefix string, o Options) (*Store, error) {
	switch {
	case len(account) < 3 || len(account) > 24 || !far.IsName(account, ""):
		return nil, fmt.Errorf("account name %.50q: expected 3 to 24 small letters and digits: %w", account, fs.ErrInvalid)
	case container != "$root" && container != "$web" && (len(container) < 3 || len(container) > 63 || !far.IsName(container, "-")):
		return nil, fmt.Errorf("container name %.70q: expected 3 to 63 small letters, digits and hyphens: %w", container, fs.ErrInvalid)
	case prefix != "" && !strings.HasSuffix(prefix, "/"):
		return nil, fmt.Errorf("prefix %q does not end in a slash: %w", prefix, fs.ErrInvalid)
	}
	if err := checkKey(prefix + "x"); err != nil {
		return nil, err
	}
	endpoint, keys, err := find(account, o)
	if err != nil {
		return nil, err
	}
	client := http.Client{}
	if o.Client != nil {
		client = *o.Client
	}
	signed := &signer{next: cmp.Or[http.RoundTripper](client.Transport, web.Transport()), endpoint: endpoint, credentials: keys}
	client.Transport = signed
	tries := cmp.Or(max(0, o.Tries), far.DefaultTries)
	st := &Store{account: account, container: container, prefix: prefix, signed: signed, client: &client, tries: tries}
	st.base = endpoint.JoinPath(container, "/")
	below := st.base
	if prefix != "" {
		below = st.address(prefix)
	}
	st.web = web.New(below, web.Options{Client: &client, Tries: tries, Log: o.Log, Explain: signed.explain, Sums: sumsOf, Headers: headersOf})
	return st, nil
}

// checkKey says why an object cannot have this key. The server takes dots off the
// ends of a key's parts, and clients and proxies resolve those that are nothing else.
func checkKey(key string) error {
	switch {
	case utf8.RuneCountInString(key) > maxKey:
		return fmt.Errorf("key of %d characters: expected at most %d: %w", utf8.RuneCountInString(key), maxKey, fs.ErrInvalid)
	case strings.Count(key, "/") >= maxDepth:
		return fmt.Errorf("key of more than %d parts: %w", maxDepth, fs.ErrInvalid)
	}
	for part := range strings.SplitSeq(key, "/") {
		if strings.HasSuffix(part, ".") {
			return fmt.Errorf("key with a part %.100q that ends in a dot: %w", part, fs.ErrInvalid)
		}
	}
	return far.CheckKey(key)
}

// key returns the key of the named object.
func (st *Store) key(name string) (string, error) {
	if err := far.CheckName(name); err != nil {
		return "", err
	}
	key := st.prefix + name
	return key, checkKey(key)
}

// address returns where an object is asked for, escaped as package web does it.
func (st *Store) address(key string) *url.URL { return far.Below(st.base, key) }

// Address returns the az:// address of the named object.
func (st *Store) Address(name string) string {
	u := url.URL{Scheme: "az", Host: st.account, Path: "/" + st.container + "/" + st.prefix + name}
	return u.String()
}

// Can returns what containers can do.
func (st *Store) Can() store.Abilities {
	return store.Abilities{Address: st.Address, List: st.List, ListHeaders: st.ListHeaders, Create: st.CreateAs, Remove: st.Remove, Append: st.Append, Lease: st.Lease}
}

// Open returns the named object. It sends no request.
func (st *Store) Open(ctx context.Context, name string) (store.Object, error) {
	key, err := st.key(name)
	if err != nil {
		return nil, st.fail("open", name, err)
	}
	o := &object{far.Object{Name: name, Address: st.Address}, st, key}
	if o.Object.Object, err = st.web.Open(ctx, name); err != nil {
		return nil, o.Named(err)
	}
	return o, nil
}

// A page is what the server lists at once.
type page struct {
	XMLName xml.Name `xml:"EnumerationResults"`
	Blobs   []struct {
		Name struct {
			Encoded bool   `xml:"Encoded,attr"` // where XML cannot say it
			Text    string `xml:",chardata"`
		}
		Properties struct {
			Size     string `xml:"Content-Length"`
			ETag     string `xml:"Etag"`
			Modified string `xml:"Last-Modified"`
			Type     string `xml:"ResourceType"`

			// What is kept with the blob.
			ContentType        string `xml:"Content-Type"`
			CacheControl       string `xml:"Cache-Control"`
			ContentDisposition string `xml:"Content-Disposition"`
			ContentEncoding    string `xml:"Content-Encoding"`
			ContentLanguage    string `xml:"Content-Language"`
		}
		Metadata struct {
			All []struct {
				XMLName xml.Name
				Value   string `xml:",chardata"`
			} `xml:",any"`
		}
	} `xml:"Blobs>Blob"`
	Next string `xml:"NextMarker"`
}

// List enumerates the objects whose names begin with prefix, in the order of their
// bytes, a thousand for a request. A key that cannot be opened, as one with a "..",
// is listed all the same.
func (st *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		for h, err := range st.list(ctx, prefix, false) {
			if !yield(h.Info, err) {
				return
			}
		}
	}
}

// ListHeaders is List with headers and metadata, five thousand for a request.
func (st *Store) ListHeaders(ctx context.Context, prefix string) iter.Seq2[store.Headed, error] {
	return st.list(ctx, prefix, true)
}

func (st *Store) list(ctx context.Context, prefix string, full bool) iter.Seq2[store.Headed, error] {
	var headers map[string]string // of what is yielded next
	infos := far.Listed(st.prefix, prefix, func(yield func(store.Info, error) bool) {
		if utf8.RuneCountInString(st.prefix+prefix) > maxKey || !utf8.ValidString(prefix) || strings.IndexByte(prefix, 0) >= 0 {
			return // no key can begin like that
		}
		for marker := ""; ; {
			p, err := st.page(ctx, st.prefix+prefix, marker, full)
			if err != nil {
				yield(store.Info{}, err)
				return
			}
			for _, b := range p.Blobs {
				if b.Properties.Type == "directory" { // of an account with real ones
					continue
				}
				info := store.Info{Name: b.Name.Text, Version: far.Quoted(b.Properties.ETag)}
				if b.Name.Encoded {
					if info.Name, err = url.PathUnescape(b.Name.Text); err != nil {
						err = fmt.Errorf("server listed %.200q with invalid escapes", b.Name.Text)
					}
				}
				var none error
				if info.Size, none = strconv.ParseInt(b.Properties.Size, 10, 64); none != nil {
					info.Size = -1
				}
				info.ModTime, _ = http.ParseTime(b.Properties.Modified) // zero if it is none
				if full {
					h := http.Header{}
					for k, v := range map[string]string{
						"Content-Type": b.Properties.ContentType, "Cache-Control": b.Properties.CacheControl, "Content-Disposition": b.Properties.ContentDisposition,
						"Content-Encoding": b.Properties.ContentEncoding, "Content-Language": b.Properties.ContentLanguage,
					} {
						if v != "" {
							h.Set(k, v)
						}
					}
					for _, m := range b.Metadata.All {
						h.Set(metaPrefix+m.XMLName.Local, m.Value)
					}
					if headers = headersOf(h); headers == nil {
						headers = map[string]string{}
					}
				}
				if !yield(info, err) {
					return
				}
			}
			switch p.Next {
			case "":
				return
			case marker:
				yield(store.Info{}, errors.New("server continues its listing where it began"))
				return
			}
			marker = p.Next
		}
	}, func(err error) error { return st.fail("list", prefix, err) })
	return func(yield func(store.Headed, error) bool) {
		for info, err := range infos {
			if !yield(store.Headed{Info: info, Headers: headers}, err) {
				return
			}
		}
	}
}

func (st *Store) page(ctx context.Context, prefix, marker string, full bool) (*page, error) {
	most, limit := perPage, int64(maxListing)
	if full {
		most, limit = perFullPage, maxFullListing
	}
	q := url.Values{"restype": {"container"}, "comp": {"list"}, "maxresults": {strconv.Itoa(most)}}
	if full {
		q.Set("include", "metadata")
	}
	if prefix != "" {
		q.Set("prefix", prefix)
	}
	if marker != "" {
		q.Set("marker", marker)
	}
	container := *st.base
	container.Path = strings.TrimSuffix(container.Path, "/")
	container.RawQuery = q.Encode()
	resp, err := st.do(ctx, call{method: http.MethodGet, url: &container})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var p page
	body := &io.LimitedReader{R: resp.Body, N: limit}
	switch err := xml.NewDecoder(body).Decode(&p); {
	case err == nil:
		return &p, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case body.N <= 0:
		return nil, fmt.Errorf("listing of more than %d bytes", limit)
	default:
		return nil, errors.New("invalid or incomplete listing from the server")
	}
}

// Remove deletes the named object.
func (st *Store) Remove(ctx context.Context, name string) error {
	key, err := st.key(name)
	if err == nil {
		err = drop(st.do(ctx, call{method: http.MethodDelete, url: st.address(key)}))
	}
	return st.fail("remove", name, err)
}

// RemoveAs deletes a blob that is the version that info tells of.
func (st *Store) RemoveAs(ctx context.Context, info store.Info) error {
	key, err := st.key(info.Name)
	if err == nil {
		err = drop(st.do(ctx, call{method: http.MethodDelete, url: st.address(key), header: map[string]string{"If-Match": info.Version}}))
	}
	return st.fail("remove", info.Name, err)
}

// An object is one of package web's, whose errors say az://.
type object struct {
	far.Object
	st  *Store
	key string
}

// Info asks once more of an object without bytes: the refusal of a range of it does
// not tell its version.
func (o *object) Info(ctx context.Context) (store.Info, error) {
	info, err := o.Object.Info(ctx)
	if err != nil || info.Size > 0 || info.Version != "" {
		return info, o.Named(err)
	}
	if _, err := o.headers(ctx); err != nil {
		return info, err
	}
	info, err = o.Object.Info(ctx)
	return info, o.Named(err)
}

// headersOf is what the server keeps with a blob, of an answer about it.
func headersOf(h http.Header) map[string]string { return far.Headers(h, metaPrefix) }

// metaPrefix is how headers of metadata begin.
const metaPrefix = "x-ms-meta-"

// headers are those that came with a read. Of a blob of which nothing was read the header
// is asked for.
func (o *object) headers(ctx context.Context) (map[string]string, error) {
	known := o.Object.Can().Headers
	if all, err := known(ctx); all != nil || err != nil {
		return all, o.Named(err)
	}
	h, err := o.st.head(ctx, o.key)
	if err != nil {
		return nil, o.st.fail("head", o.Name, err)
	}
	if err := web.Heard(o.Object.Object, h); err != nil {
		return nil, o.Named(err)
	}
	all, err := known(ctx)
	return all, o.Named(err)
}

// head returns the header of an object.
func (st *Store) head(ctx context.Context, key string) (http.Header, error) {
	resp, err := st.do(ctx, call{method: http.MethodHead, url: st.address(key)})
	if err != nil {
		return nil, err
	}
	_ = resp.Body.Close() // there is none
	return resp.Header, nil
}

func (o *object) Can() store.ObjectAbilities {
	can := o.Object.Can()
	can.ReadEnd, can.Headers = o.readEnd, o.headers
	return can
}

// sumsOf is the MD5 that whoever wrote a blob may have said that it has. What an answer of
// a range has under the usual name would be that of the range.
func sumsOf(resp *http.Response) []store.Sum {
	text := resp.Header.Get("X-Ms-Blob-Content-Md5")
	if text == "" && resp.StatusCode == http.StatusOK {
		text = resp.Header.Get("Content-Md5")
	}
	if sum, ok := far.Sum("md5", text, false); ok && sum.Part == 0 {
		return []store.Sum{sum}
	}
	return nil
}

// readEnd learns the size before it reads the end: the server knows no ranges from there.
func (o *object) readEnd(ctx context.Context, p []byte, tail bool) (int, error) {
	if tail && len(p) > 0 {
		if _, err := o.Object.Info(ctx); err != nil {
			return 0, o.Named(err)
		}
	}
	return o.ReadEnd(ctx, p, tail)
}
