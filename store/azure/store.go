// Package azure is a store of objects in containers of Azure Blob Storage. Programs that open
// archives by address, az://account/container/key, only need to import store/all.
//
// Objects are read with package store/web over signed requests. They are written as blocks, which
// are invisible until the list of blocks is sent. If no list is sent, the server removes the
// blocks after a week.
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

// Options say where an account is and how to access it. Zero values come from the environment.
type Options struct {
	// Endpoint is the server of the account, as http://host:port/account or https://account.host.
	Endpoint string

	// Anonymous sends requests without a signature.
	Anonymous bool

	// Client sends the requests; signed requests go through its Transport. The default is that of
	// package web.
	Client *http.Client

	// Tries is how often a request is sent; the default is 6.
	Tries int

	// Log gets a line at level debug for each read. If it is nil, nothing is logged.
	Log *slog.Logger
}

const (
	// maxKey is the largest number of characters in a key, and maxDepth that of its elements
	// between slashes.
	maxKey   = 1024
	maxDepth = 254

	// A listing has names of at most 4 KiB, escaped, and a few hundred bytes more for each.
	perPage    = 1000
	maxListing = 32 << 20

	// Metadata usually has 200 bytes and at most 8 KiB for each name. So a page has as many names
	// as the server returns.
	perFullPage    = 5000
	maxFullListing = 128 << 20
)

// A Store is the objects of a container below a prefix. Their names are their keys without the
// prefix.
type Store struct {
	account   string
	container string
	prefix    string   // "", or ends with a slash
	base      *url.URL // of the container, with a slash at the end
	signed    *signer
	client    *http.Client
	web       *web.Store
	tries     int

	noCopies atomic.Bool // the server has shown that it does not copy blocks
}

// Open returns the store and the object's name for an az:// address. It can be passed to
// [store.Register], and sends no request.
func Open(_ context.Context, address string) (store.Store, string, error) {
	st, name, err := At(address, Options{})
	if err != nil {
		return nil, "", err
	}
	return st, name, nil
}

// At is like [Open] with options. The store contains all objects beside the one at the address,
// whose name is the last element of its key.
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

// New returns the store of the objects of a container whose keys begin with prefix. The prefix
// must be empty or end with a slash.
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

// checkKey returns an error if an object cannot have this key. The server removes dots at the
// ends of a key's elements, and clients and proxies resolve elements that are only dots.
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

func (st *Store) key(name string) (string, error) {
	if err := far.CheckName(name); err != nil {
		return "", err
	}
	key := st.prefix + name
	return key, checkKey(key)
}

// address returns the address of an object for requests, escaped as in package web.
func (st *Store) address(key string) *url.URL { return far.Below(st.base, key) }

// Address returns the az:// address of the object called name.
func (st *Store) Address(name string) string {
	u := url.URL{Scheme: "az", Host: st.account, Path: "/" + st.container + "/" + st.prefix + name}
	return u.String()
}

// Can returns the abilities of containers.
func (st *Store) Can() store.Abilities {
	return store.Abilities{Address: st.Address, Identity: st.web.Can().Identity, List: st.List, ListHeaders: st.ListHeaders, Create: st.CreateAs, Remove: st.Remove, RemoveAs: st.RemoveAs, Append: st.Append, Lease: st.Lease}
}

// Open returns the object called name. It sends no request.
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

type page struct {
	XMLName xml.Name `xml:"EnumerationResults"`
	Blobs   []struct {
		Name struct {
			Encoded bool   `xml:"Encoded,attr"` // names that XML cannot contain
			Text    string `xml:",chardata"`
		}
		Properties struct {
			Size     string `xml:"Content-Length"`
			ETag     string `xml:"Etag"`
			Modified string `xml:"Last-Modified"`
			Type     string `xml:"ResourceType"`

			// Headers stored with the blob.
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

// List yields the objects whose names begin with prefix in byte order, with one request for a
// thousand. It also yields keys that cannot be opened, such as those with "..".
func (st *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		for h, err := range st.list(ctx, prefix, false) {
			if !yield(h.Info, err) {
				return
			}
		}
	}
}

// ListHeaders is like List with headers and metadata, with one request for five thousand.
func (st *Store) ListHeaders(ctx context.Context, prefix string) iter.Seq2[store.Headed, error] {
	return st.list(ctx, prefix, true)
}

func (st *Store) list(ctx context.Context, prefix string, full bool) iter.Seq2[store.Headed, error] {
	var headers map[string]string // of the next object to yield
	infos := far.Listed(st.prefix, prefix, func(yield func(store.Info, error) bool) {
		if utf8.RuneCountInString(st.prefix+prefix) > maxKey || !utf8.ValidString(prefix) || strings.IndexByte(prefix, 0) >= 0 {
			return // no valid key begins like that
		}
		for marker := ""; ; {
			p, err := st.page(ctx, st.prefix+prefix, marker, full)
			if err != nil {
				yield(store.Info{}, err)
				return
			}
			for _, b := range p.Blobs {
				if b.Properties.Type == "directory" { // of an account with hierarchical directories
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
				info.ModTime, _ = http.ParseTime(b.Properties.Modified) // zero if it is invalid
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
	again := far.Retrier{Tries: st.tries, Jitter: far.Jitter}
	for {
		resp, err := st.do(ctx, call{method: http.MethodGet, url: &container})
		if err != nil {
			return nil, err
		}
		var p page
		body := &io.LimitedReader{R: resp.Body, N: limit}
		err = xml.NewDecoder(body).Decode(&p)
		_ = resp.Body.Close()
		switch {
		case err == nil:
			return &p, nil
		case body.N <= 0:
			return nil, fmt.Errorf("listing of more than %d bytes", limit)
		}
		if err := again.Again(ctx, &far.Passing{Err: errors.New("invalid or incomplete listing from the server")}, 0); err != nil {
			return nil, err
		}
	}
}

// Remove deletes the object called name.
func (st *Store) Remove(ctx context.Context, name string) error {
	key, err := st.key(name)
	if err == nil {
		err = drop(st.do(ctx, call{method: http.MethodDelete, url: st.address(key)}))
	}
	return st.fail("remove", name, err)
}

// RemoveAs deletes a blob if it is still the version of info.
func (st *Store) RemoveAs(ctx context.Context, info store.Info) error {
	key, err := st.key(info.Name)
	if err == nil {
		err = drop(st.do(ctx, call{method: http.MethodDelete, url: st.address(key), header: map[string]string{"If-Match": info.Version}}))
	}
	if errors.Is(err, store.ErrChanged) { // the emulator says so of a blob that does not exist, too
		if _, gone := st.head(ctx, key); errors.Is(gone, fs.ErrNotExist) {
			err = gone
		}
	}
	return st.fail("remove", info.Name, err)
}

// object is an object of package web whose errors have az:// addresses.
type object struct {
	far.Object
	st  *Store
	key string
}

// Info sends another request for an empty object, because the refusal of a range of it does not
// contain its version.
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

// headersOf returns what the server stores with a blob, from a response.
func headersOf(h http.Header) map[string]string { return far.Headers(h, metaPrefix) }

// metaPrefix is the prefix of headers with metadata.
const metaPrefix = "x-ms-meta-"

// headers returns the headers that came with a read. If nothing was read, it requests the header
// of the blob.
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

func (st *Store) head(ctx context.Context, key string) (http.Header, error) {
	resp, err := st.do(ctx, call{method: http.MethodHead, url: st.address(key)})
	if err != nil {
		return nil, err
	}
	_ = resp.Body.Close() // it is empty
	return resp.Header, nil
}

func (o *object) Can() store.ObjectAbilities {
	below := o.Object.Can()
	return store.ObjectAbilities{ReadEnd: o.readEnd, Sums: below.Sums, Headers: o.headers, Unkept: below.Unkept}
}

// sumsOf returns the MD5 that the writer of a blob may have given for it. In a response for a
// range, the usual header would have the MD5 of the range.
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

// readEnd requests the size before it reads the end, because the server does not support ranges
// from the end.
func (o *object) readEnd(ctx context.Context, p []byte, tail bool) (int, error) {
	if tail && len(p) > 0 {
		if _, err := o.Object.Info(ctx); err != nil {
			return 0, o.Named(err)
		}
	}
	return o.ReadEnd(ctx, p, tail)
}
