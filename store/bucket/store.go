// Package bucket is a store of objects in buckets of S3, of servers with the same interface, and
// of Google Cloud Storage. Programs that open archives by address, s3://bucket/key or
// gs://bucket/key, only need to import store/all.
//
// Objects are read with package store/web over signed requests, so retries and the detection of
// changed objects work as described there. Objects are not changed in place: they are uploaded in
// parts, and appear with the last request.
package bucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/web"
)

// Options say where a bucket is and how to access it. Zero values come from the environment and
// from the user's profile, as for Amazon's own tools.
type Options struct {
	// Endpoint is the address of the server, as http://host:port or https://host.
	Endpoint string

	// Region is the expected region of the bucket. If the server names another one, that is used.
	Region string

	// PathStyle puts the bucket into the path instead of the host name.
	PathStyle bool

	// Google means that the bucket is Google's. Region and PathStyle then have no effect.
	Google bool

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
	// maxKey is the longest key that S3 allows, in bytes of UTF-8.
	maxKey = 1024

	maxRedirects = 10

	emptyETag = `"d41d8cd98f00b204e9800998ecf8427e"` // the MD5 of no bytes
)

// A Store is the objects of a bucket below a prefix. Their names are their keys without the
// prefix.
type Store struct {
	bucket string
	prefix string // "", or ends with a slash
	where  place
	signed *signer
	web    *web.Store
	root   *url.URL // address of the bucket
	client *http.Client
	sure   atomic.Bool // the region of the bucket has been requested

	part  int // size of the first parts
	tries int // of a request

	can      store.Abilities
	noCopies atomic.Bool // the server has shown that it does not copy parts
	lists    lists
}

// Open returns the store and the object's name for an s3:// or gs:// address. It can be passed to
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
	u, anonymous, err := far.ParseAddress(address, "s3://bucket/key or gs://bucket/key", "s3", "gs")
	if err != nil {
		return nil, "", err
	}
	key := u.Path
	if key == "" {
		return nil, "", far.Malformed(address, "expected %s://bucket/key, found no key", u.Scheme)
	}
	o.Anonymous = o.Anonymous || anonymous
	i := strings.LastIndexByte(key, '/') + 1
	o.Google = u.Scheme == "gs"
	st, err = New(u.Host, key[:i], o)
	if err != nil {
		return nil, "", far.Malformed(address, "%w", err)
	}
	return st, key[i:], nil
}

// New returns the store of the objects of a bucket whose keys begin with prefix. The prefix must
// be empty or end with a slash.
func New(bucket, prefix string, o Options) (*Store, error) {
	if err := checkBucket(bucket, o.Google); err != nil {
		return nil, err
	}
	if prefix != "" && !strings.HasSuffix(prefix, "/") {
		return nil, fmt.Errorf("prefix %q does not end in a slash: %w", prefix, fs.ErrInvalid)
	}
	if err := checkKey(prefix + "x"); err != nil {
		return nil, err
	}
	where, creds, err := find(bucket, o)
	if err != nil {
		return nil, err
	}
	client := http.Client{}
	if o.Client != nil {
		client = *o.Client
	}
	tries := cmp.Or(max(0, o.Tries), far.DefaultTries)
	st := &Store{bucket: bucket, prefix: prefix, where: where, part: firstPart, tries: tries}
	st.noCopies.Store(where.google != nil)
	st.signed = &signer{next: cmp.Or[http.RoundTripper](client.Transport, web.Transport()), where: where, creds: creds}
	st.signed.region.Store(&where.region)
	client.Transport = st.signed
	st.root = where.base(bucket)
	base := *st.root
	base.Path += prefix
	st.web = web.New(&base, web.Options{Client: &client, Tries: tries, Log: o.Log, Explain: st.signed.explain, Sums: st.sumsOf, Headers: st.headersOf, Keys: true})
	st.client = &http.Client{Transport: st.signed, CheckRedirect: func(_ *http.Request, via []*http.Request) error {
		if m := via[0].Method; m != http.MethodGet && m != http.MethodHead || len(via) >= maxRedirects {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	st.can = st.abilities()
	return st, nil
}

// checkBucket returns an error if a bucket cannot have this name. The name becomes part of a host
// name.
func checkBucket(name string, google bool) error {
	most := 63
	if google && strings.Contains(name, ".") {
		most = maxGoogleBucket
	}
	if len(name) < 3 || len(name) > most {
		return fmt.Errorf("bucket name of %d bytes: expected 3 to %d: %w", len(name), most, fs.ErrInvalid)
	}
	if !far.IsName(name, "-._") {
		return fmt.Errorf("bucket name %q: expected small letters, digits, dots and hyphens: %w", name, fs.ErrInvalid)
	}
	if strings.Contains(name, "..") {
		return fmt.Errorf("bucket name %q: two dots together: %w", name, fs.ErrInvalid)
	}
	return nil
}

// checkKey returns an error if an object cannot have this key, or cannot be requested by it
// alone.
func checkKey(key string) error {
	if len(key) > maxKey {
		return fmt.Errorf("key of %d bytes: expected at most %d: %w", len(key), maxKey, fs.ErrInvalid)
	}
	if err := far.CheckDots(key); err != nil {
		return err
	}
	return far.CheckKey(key)
}

// key returns the key of an object that is written or removed.
func (st *Store) key(name string) (string, error) {
	if err := far.CheckName(name); err != nil {
		return "", err
	}
	key := st.prefix + name
	return key, checkKey(key)
}

// keyOf returns the key of an object that is read. A slash at its beginning is part of it. A key
// with an element of dots may be resolved on the way, so it is requested only together with its
// version, which no other object has.
func (st *Store) keyOf(info store.Info) (key string, err error) {
	if info.Name == "" {
		return "", far.CheckName(info.Name)
	}
	key = st.prefix + info.Name
	err = checkKey(key)
	if _, dots := errors.AsType[*far.DotsError](err); dots && info.Size > 0 && strings.HasPrefix(info.Version, `"`) {
		err = far.CheckKey(key)
	}
	return key, err
}

// Address returns the s3:// or gs:// address of the object called name.
func (st *Store) Address(name string) string {
	u := url.URL{Scheme: st.where.scheme(), Host: st.bucket, Path: "/" + st.prefix + name}
	return u.String()
}

// identity is the address without escapes, and the server unless it is Amazon's, whose buckets have names of
// their own: docs/bytes/cache.md. Programs that know no region have the same.
func (st *Store) identity(name string) string {
	id := st.where.scheme() + "://" + st.bucket + "/" + st.prefix + name
	if !st.where.amazon {
		id += " " + st.where.endpoint.String()
	}
	return id
}

// Can returns the abilities of buckets.
func (st *Store) Can() store.Abilities { return st.can }

func (st *Store) abilities() store.Abilities {
	can := store.Abilities{Address: st.Address, Identity: st.identity, List: st.List, ListFrom: st.ListFrom, Level: st.Level, OpenAs: st.OpenAs, OpenGrowing: st.OpenGrowing, Create: st.CreateAs, Remove: st.Remove, RemoveAs: st.RemoveAs, RemoveIf: st.RemoveIf,
		Unfinished: st.Unfinished, CopiesFrom: st.CopiesFrom}
	if st.where.google == nil {
		can.RemoveMany = st.removeMany
	}
	return can
}

// Open returns the object called name. It sends no request.
func (st *Store) Open(ctx context.Context, name string) (store.Object, error) {
	return st.open(store.Info{Name: name}, func() (store.Object, error) { return st.web.Open(ctx, name) })
}

// OpenGrowing returns an object whose later versions only have more bytes. It sends no request.
func (st *Store) OpenGrowing(ctx context.Context, name string) (store.Object, error) {
	return st.open(store.Info{Name: name}, func() (store.Object, error) { return st.web.OpenGrowing(ctx, name) })
}

// OpenAs returns the version of an object that info describes. It sends no request.
func (st *Store) OpenAs(ctx context.Context, info store.Info) (store.Object, error) {
	return st.open(info, func() (store.Object, error) { return st.web.OpenAs(ctx, info) })
}

func (st *Store) open(info store.Info, open func() (store.Object, error)) (store.Object, error) {
	name := info.Name
	key, err := st.keyOf(info)
	if err != nil {
		return nil, st.fail("open", name, err)
	}
	o := &object{Object: far.Object{Name: name, Address: st.Address}, st: st, key: key}
	if o.Object.Object, err = open(); err != nil {
		return nil, o.Named(err)
	}
	return o, nil
}

// List yields the objects whose names begin with prefix in byte order, with one request for a
// thousand. It also yields keys that cannot be opened, such as those with "..".
func (st *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	return st.list(ctx, prefix, "")
}

// ListFrom is like List, but starts at the first name that is not less than from.
func (st *Store) ListFrom(ctx context.Context, prefix, from string) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		for info, err := range st.list(ctx, prefix, beginAt(from)) {
			if err == nil && info.Name < from {
				continue
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// beginAt returns a key after which a listing can start so that it contains the given name. S3
// does not list the start key itself. Few keys are between the two.
func beginAt(name string) string {
	if short, ok := strings.CutSuffix(name, "\x00"); ok {
		return short
	}
	last := len(name) - 1
	if last < 0 || name[last] <= ' ' || name[last] >= utf8.RuneSelf {
		return name[:max(last, 0)]
	}
	return name[:last] + string(rune(name[last]-1)) + string(utf8.MaxRune)
}

func (st *Store) list(ctx context.Context, prefix, after string) iter.Seq2[store.Info, error] {
	if after = st.prefix + after; len(after) == len(st.prefix) || !utf8.ValidString(after) || len(after) > maxKey {
		after = ""
	}
	return far.Listed(st.prefix, prefix, st.listed(ctx, st.prefix+prefix, "", after), func(err error) error { return st.fail("list", prefix, err) })
}

// listed yields the objects whose keys begin with prefix, page after page. With a delimiter, it yields
// what keys have in common up to that instead of the keys, after the objects of a page.
func (st *Store) listed(ctx context.Context, prefix, delimiter, after string) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		if len(prefix) > maxKey || !utf8.ValidString(prefix) {
			return // no valid key begins like that
		}
		q := url.Values{"list-type": {"2"}, "encoding-type": {"url"}, "prefix": {prefix}, "delimiter": {delimiter}}
		if after != "" {
			q.Set("start-after", after)
		}
		for {
			var p page
			_, err := st.do(ctx, call{method: http.MethodGet, query: q, into: &p})
			all, uerr := p.infos()
			if err = cmp.Or(err, uerr); err != nil {
				yield(store.Info{}, err)
				return
			}
			for _, info := range all {
				if !yield(info, nil) {
					return
				}
			}
			if !p.IsTruncated {
				return
			}
			if p.NextContinuationToken == "" || p.NextContinuationToken == q.Get("continuation-token") {
				yield(store.Info{}, fmt.Errorf("%w: its list continues nowhere", errDocument))
				return
			}
			q.Set("continuation-token", p.NextContinuationToken)
		}
	}
}

// unescape replaces names in a document by what they stand for.
func unescape(encoding string, names ...*string) error {
	for _, name := range names {
		if encoding == "url" {
			plain, err := url.QueryUnescape(*name)
			if err != nil {
				return fmt.Errorf("%w: name %.200q", errDocument, *name)
			}
			*name = plain
		}
	}
	return nil
}

// Level returns what is directly below a prefix, with one request for a thousand.
func (st *Store) Level(ctx context.Context, prefix string, most int) (all []store.Branch, more bool, err error) {
	whole := st.prefix + prefix
	for found, err := range st.listed(ctx, whole, "/", "") {
		if err != nil {
			return nil, false, st.fail("list", prefix, err)
		}
		key := found.Name
		name, ok := strings.CutPrefix(key, st.prefix)
		slash := strings.Index(strings.TrimPrefix(name, prefix), "/") + 1
		found.Name = name
		all = append(all, store.Branch{All: slash > 0, Info: found})
		switch {
		case !ok || !strings.HasPrefix(name, prefix):
			err = fmt.Errorf("server listed %.200q, which does not begin with %q", key, whole)
		case slash > 0 && slash != len(name)-len(prefix):
			err = fmt.Errorf("server listed %.200q directly below %q", key, whole)
		case found.Size < 0:
			err = fmt.Errorf("server listed %.200q with size %d", name, found.Size)
		case len(all) > most, slash > 0 && !utf8.ValidString(name): // List could not be called for it
			return nil, true, nil
		case name == "": // the prefix itself
			all = all[:len(all)-1]
		}
		if err != nil {
			return nil, false, st.fail("list", prefix, err)
		}
	}
	// Each page of the response has objects first, and then prefixes.
	slices.SortFunc(all, func(a, b store.Branch) int { return strings.Compare(a.Name, b.Name) })
	for i := range all[min(1, len(all)):] {
		if all[i].Name == all[i+1].Name {
			return nil, false, st.fail("list", prefix, fmt.Errorf("server listed %.200q twice", all[i].Name))
		}
	}
	return all, false, nil
}

// Remove deletes the object called name. S3 reports no error if there is none, so Remove first
// requests its header.
func (st *Store) Remove(ctx context.Context, name string) error {
	key, err := st.key(name)
	if err == nil {
		_, err = st.do(ctx, call{method: http.MethodHead, key: key})
	}
	if err != nil {
		return st.fail("remove", name, err)
	}
	return st.remove(ctx, name, nil)
}

// RemoveAs deletes an object if it is still the version of info, by a request with that
// condition. Some servers ignore the condition, so RemoveAs first requests the version. Google has
// conditions of its own, also for the headers, for which that request tells the values.
func (st *Store) RemoveAs(ctx context.Context, info store.Info) error {
	o, err := st.Open(ctx, info.Name)
	if err != nil {
		return err
	}
	defer o.Close()
	resp, err := o.(*object).head(ctx, "", nil)
	if err != nil {
		return err
	}
	h := resp.Header
	err = storekit.Unchanged(info, store.Info{Size: resp.ContentLength, Version: h.Get("ETag")})
	written, _ := http.ParseTime(h.Get("Last-Modified"))
	if err == nil && !info.ModTime.IsZero() && written.Sub(info.ModTime).Abs() >= time.Second {
		err = store.ErrChanged // its headers were replaced, which leaves the version as it is
	}
	if err != nil {
		return st.fail("remove", info.Name, err)
	}
	condition := http.Header{"If-Match": {info.Version}}
	if generation := h.Get("X-Goog-Generation"); generation != "" {
		condition = http.Header{"X-Goog-If-Generation-Match": {generation}, "X-Goog-If-Metageneration-Match": {h.Get("X-Goog-Metageneration")}}
	}
	return st.remove(ctx, info.Name, condition)
}

// RemoveIf deletes an object by a single request, with the condition that it still has the version
// of info. Google has no such condition.
func (st *Store) RemoveIf(ctx context.Context, info store.Info) error {
	switch {
	case st.where.google != nil:
		return st.RemoveAs(ctx, info)
	case info.Version == "":
		return st.fail("remove", info.Name, fs.ErrInvalid)
	}
	return st.remove(ctx, info.Name, http.Header{"If-Match": {info.Version}})
}

func (st *Store) remove(ctx context.Context, name string, condition http.Header) error {
	key, err := st.key(name)
	if err == nil {
		_, err = st.do(ctx, call{method: http.MethodDelete, key: key, header: condition})
	}
	if isConflict(err) {
		err = store.ErrChanged
	}
	return st.fail("remove", name, err)
}

// object is an object of package web whose errors have s3:// or gs:// addresses.
type object struct {
	far.Object
	st  *Store
	key string

	tagsKnown atomic.Bool // they are among the headers

	headed atomic.Bool // the first response was one to a HEAD request, with all checksums
}

func (o *object) Info(ctx context.Context) (store.Info, error) {
	info, err := o.Object.Info(ctx)
	if err == nil && info.Size == 0 && info.Version == "" {
		// A range of an empty object is refused, and a refusal has no ETag.
		info.Version = emptyETag
	}
	return info, o.Named(err)
}

// settle finds out the bucket's region before a request whose body could not be sent again.
func (st *Store) settle(ctx context.Context) error {
	if st.sure.Load() || st.signed.heard.Load() {
		return nil
	}
	// The response may be a refusal, because credentials may allow writing but not this request.
	// Only the response to the next request counts.
	_, _ = st.do(ctx, call{method: http.MethodHead})
	st.sure.Store(true)
	return ctx.Err()
}
