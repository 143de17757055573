package serve_test

import (
	"cmp"
	"context"
	"encoding/base32"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/formattest/tiny"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// A mem is a Keeper in memory. Its buckets are sources of a site.
type mem struct {
	mu      sync.Mutex
	buckets map[string]*memBucket
	n       int             // versions, uploads and buckets so far
	archive map[string]bool // names of buckets that are read-only
	fail    error           // of every write, if not nil
	takes   time.Duration   // each write
}

type memBucket struct {
	*mem
	mark    string
	data    storetest.Mem // by version
	objects map[string]memObject
	old     map[string][]memObject // the newest first
	loses   bool                   // old versions, when they have been looked up
	unread  error                  // at the end of lists
	uploads map[string]*memUpload
}

type memObject struct {
	version string
	size    int64
	etag    string
	headers map[string]string
	time    time.Time
}

type memUpload struct {
	serve.Begun
	headers map[string]string
	parts   map[int]memObject
}

func (m *mem) next() string {
	m.n++
	return fmt.Sprintf("%06d", m.n)
}

func (m *mem) Elsewhere(context.Context, string) http.Handler { return nil }

func (m *mem) Make(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.buckets[name] != nil || m.archive[name] {
		return serve.ErrBucketExists
	}
	if m.buckets == nil {
		m.buckets = map[string]*memBucket{}
	}
	b := &memBucket{mem: m, mark: m.next(), objects: map[string]memObject{}, old: map[string][]memObject{}, uploads: map[string]*memUpload{}}
	b.data.Put("x", nil)
	m.buckets[name] = b
	return nil
}

func (m *mem) Remove(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch b := m.buckets[name]; {
	case m.archive[name]:
		return serve.ErrReadOnly
	case b == nil:
		return serve.ErrNoArchive
	case len(b.objects) > 0:
		return serve.ErrBucketNotEmpty
	}
	delete(m.buckets, name)
	return nil
}

func (m *mem) Bucket(_ context.Context, name string) (serve.Bucket, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.archive[name]:
		return nil, serve.ErrReadOnly
	case m.buckets[name] == nil:
		return nil, serve.ErrNoArchive
	}
	return m.buckets[name], nil
}

// list returns the buckets as sources.
func (m *mem) list(context.Context) (all []serve.Source, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.buckets)) {
		b := m.buckets[name]
		f := *tiny.Format
		f.Open = func(context.Context, store.Store, string, format.OpenOptions) (format.Reader, error) {
			return memReader{b}, nil
		}
		all = append(all, serve.Source{Name: name, Mark: b.mark, ModTime: kept, Open: func(ctx context.Context, _ string) (*holdall.Archive, string, error) {
			a, err := holdall.Open(ctx, "x", holdall.OpenOptions{Store: &b.data, Format: f.Name, Formats: []*format.Format{&f}})
			return a, "", err
		}})
	}
	return all, nil
}

// read reads an upload and keeps its content.
func (b *memBucket) read(u *serve.Upload) (o memObject, err error) {
	content, err := io.ReadAll(u.Body)
	time.Sleep(b.takes)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		err = b.fail
	}
	if err == nil && int64(len(content)) != u.Size {
		err = fmt.Errorf("%d bytes of %d", len(content), u.Size)
	}
	if err != nil {
		return o, err
	}
	o = memObject{version: b.next(), size: u.Size, time: time.Now()}
	o.etag, o.headers = u.End()
	o.headers = maps.Clone(o.headers)
	b.data.Put(o.version, content)
	return o, nil
}

func (b *memBucket) Put(_ context.Context, key string, u *serve.Upload) (serve.Written, error) {
	o, err := b.read(u)
	if err != nil {
		return serve.Written{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := u.If.Check(b.objects[key].etag); err != nil {
		return serve.Written{}, err
	}
	b.replace(key)
	b.objects[key] = o
	return serve.Written{Time: o.time}, nil
}

// replace makes an object an old version.
func (b *memBucket) replace(key string) {
	if o, ok := b.objects[key]; ok {
		b.old[key] = append([]memObject{o}, b.old[key]...)
		delete(b.objects, key)
	}
}

func (o memObject) id() string {
	return base32.StdEncoding.EncodeToString(fmt.Appendf(nil, "%015s", o.version))
}

func (b *memBucket) Versions(_ context.Context, prefix, from string) iter.Seq2[serve.Version, error] {
	return func(yield func(serve.Version, error) bool) {
		b.mu.Lock()
		var all []serve.Version
		keys := slices.AppendSeq(slices.Collect(maps.Keys(b.objects)), maps.Keys(b.old))
		slices.Sort(keys)
		for _, key := range slices.Compact(keys) {
			if !strings.HasPrefix(key, prefix) || key < from {
				continue
			}
			if o, ok := b.objects[key]; ok {
				all = append(all, serve.Version{Key: key, Entry: o.entry(key), ID: o.id(), Newest: true})
			} else {
				all = append(all, serve.Version{Key: key, Newest: true, Deleted: true})
			}
			for _, o := range b.old[key] {
				all = append(all, serve.Version{Key: key, Entry: o.entry(key), ID: o.id()})
			}
		}
		if b.loses {
			clear(b.old)
			for _, v := range all[1:] {
				b.data.Remove(context.Background(), v.Entry.Ref.(string))
			}
		}
		unread := b.unread
		b.mu.Unlock()
		for _, v := range all {
			if !yield(v, nil) {
				return
			}
		}
		if unread != nil {
			yield(serve.Version{}, unread)
		}
	}
}

func (b *memBucket) Delete(_ context.Context, all []serve.Deletion) (errs []error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range all {
		err := d.If.Check(b.objects[d.Key].etag)
		if errs = append(errs, err); err == nil {
			b.replace(d.Key)
		}
	}
	return errs
}

func (b *memBucket) Change(_ context.Context, key string, change func(map[string]string) (map[string]string, error)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.objects[key]
	if !ok {
		return serve.ErrNoObject
	}
	headers, err := change(maps.Clone(o.headers))
	if err != nil {
		return err
	}
	o.headers = headers
	b.objects[key] = o
	return nil
}

func (b *memBucket) Begin(_ context.Context, key string, headers map[string]string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(headers) == 0 {
		headers = nil // as keepers may
	}
	id := b.next()
	b.uploads[id] = &memUpload{serve.Begun{Key: key, ID: id, Time: time.Now()}, maps.Clone(headers), map[int]memObject{}}
	return id, nil
}

func (b *memBucket) upload(key, id string) (*memUpload, error) {
	if u := b.uploads[id]; u != nil && u.Key == key {
		return u, nil
	}
	return nil, serve.ErrNoUpload
}

func (b *memBucket) Part(_ context.Context, key, id string, number int, u *serve.Upload) (serve.Written, error) {
	o, err := b.read(u)
	if err != nil {
		return serve.Written{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	x, err := b.upload(key, id)
	if err == nil {
		x.parts[number] = o
	}
	return serve.Written{Time: o.time}, err
}

func (b *memBucket) Parts(_ context.Context, key, id string) (map[string]string, []serve.Part, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x, err := b.upload(key, id)
	if err != nil {
		return nil, nil, err
	}
	var all []serve.Part
	for _, n := range slices.Sorted(maps.Keys(x.parts)) {
		o := x.parts[n]
		all = append(all, serve.Part{Number: n, Size: o.size, ETag: o.etag, Time: o.time, Headers: o.headers})
	}
	return maps.Clone(x.headers), all, nil
}

func (b *memBucket) Finish(_ context.Context, key, id string, parts []serve.Part, u *serve.Upload) (serve.Written, error) {
	o := memObject{time: time.Now()}
	o.etag, o.headers = u.End()
	time.Sleep(b.takes)
	b.mu.Lock()
	defer b.mu.Unlock()
	x, err := b.upload(key, id)
	if err != nil {
		return serve.Written{}, err
	}
	var content []byte
	for _, p := range parts {
		is := x.parts[p.Number]
		if is.etag != p.ETag {
			return serve.Written{}, serve.ErrPart
		}
		content = append(content, b.data.Get(is.version)...)
	}
	if err := u.If.Check(b.objects[key].etag); err != nil {
		return serve.Written{}, err
	}
	o.version, o.size = b.next(), int64(len(content))
	b.data.Put(o.version, content)
	b.replace(key)
	b.objects[key] = o
	delete(b.uploads, id)
	return serve.Written{Time: o.time}, nil
}

func (b *memBucket) Abandon(_ context.Context, key, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err := b.upload(key, id)
	delete(b.uploads, id)
	return err
}

func (b *memBucket) Uploads(context.Context) (all []serve.Begun, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(b.uploads)) {
		all = append(all, b.uploads[id].Begun)
	}
	slices.SortStableFunc(all, func(x, y serve.Begun) int { return cmp.Or(strings.Compare(x.Key, y.Key), x.Time.Compare(y.Time)) })
	return all, nil
}

// A memReader reads a bucket.
type memReader struct{ b *memBucket }

func (r memReader) entry(name string) format.Entry { return r.b.objects[name].entry(name) }

func (o memObject) entry(name string) format.Entry {
	attr := maps.Clone(o.headers)
	if attr == nil {
		attr = map[string]string{}
	}
	attr[kit.ETagAttr] = o.etag
	return format.Entry{Name: name, Size: o.size, ModTime: o.time, Attr: attr, Ref: o.version}
}

func (r memReader) keys(_ context.Context, prefix, from string) iter.Seq2[format.Entry, error] {
	return func(yield func(format.Entry, error) bool) {
		r.b.mu.Lock()
		var all []format.Entry
		for _, name := range slices.Sorted(maps.Keys(r.b.objects)) {
			if strings.HasPrefix(name, prefix) && name >= from {
				all = append(all, r.entry(name))
			}
		}
		unread := r.b.unread
		r.b.mu.Unlock()
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
		if unread != nil {
			yield(format.Entry{}, unread)
		}
	}
}

func (r memReader) Entries(ctx context.Context) iter.Seq2[format.Entry, error] {
	return r.keys(ctx, "", "")
}

func (r memReader) Lookup(_ context.Context, name string) (format.Entry, error) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	if _, ok := r.b.objects[name]; !ok {
		return format.Entry{}, &fs.PathError{Op: "lookup", Path: name, Err: fs.ErrNotExist}
	}
	return r.entry(name), nil
}

func (r memReader) ReadDir(context.Context, string) iter.Seq2[format.Entry, error] {
	return func(func(format.Entry, error) bool) {}
}

func (r memReader) Extents(_ context.Context, e format.Entry, _, _ int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		if e.Size > 0 {
			yield(format.Extent{Size: e.Size, Object: e.Ref.(string), Len: e.Size}, nil)
		}
	}
}

func (r memReader) Regions(context.Context) iter.Seq2[format.Region, error] {
	return func(func(format.Region, error) bool) {}
}
func (r memReader) About(context.Context) (format.About, error) { return format.About{}, nil }
func (r memReader) Can() format.Abilities                       { return format.Abilities{Keys: r.keys} }
func (r memReader) Close() error                                { return nil }
