package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"path"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/internal/app/catalog/survey"
	"github.com/holdall/holdall/internal/app/gateway/journal"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/store/storekit"
)

// A large object is an archive of its own, which is in the store before the log has a row of it. A place says where,
// in the log. The content begins with the archive.
type place struct {
	Name    string `json:"name"` // beside the catalogue
	Size    int64  `json:"size"` // of the archive
	Version string `json:"version"`
}

func (b *bucket) putLarge(ctx context.Context, key string, u *serve.Upload, at time.Time, of int64) (done serve.Written, err error) {
	name := b.in(b.packing.Name(nameStep*nameStep + rand.Int64N(math.MaxInt64-nameStep*nameStep)))
	c := &change{}
	b.makes(path.Base(name), true)
	defer func() { b.makes(path.Base(name), c.unknown && !b.g.o.InBucket) }()
	in := &counted{r: u.Body, attr: map[string]string{}, end: u.End}
	w, err := caf.Format.Create(ctx, b.book.Store(), name, format.CreateOptions{Scratch: sorter.TempFile})
	if err != nil {
		return done, err
	}
	// A reader has the attributes at its end, and a writer takes them then.
	err = w.Add(ctx, format.Entry{Name: key, Kind: format.File, Size: u.Size, ModTime: at, Attr: in.attr}, in)
	if err != nil {
		return done, errors.Join(err, w.Abort())
	}
	if _, err := w.Commit(ctx); err != nil {
		return done, err
	}
	if err = b.placed(ctx, name, key, c); err == nil {
		c.Modified, c.if_, c.of = at, u.If, of
		err = b.write(ctx, c)[0]
	}
	if err != nil {
		if !c.unknown { // then no log has it
			b.discardArchive(ctx, name)
		}
		return done, err
	}
	return serve.Written{Time: at}, nil
}

// makes notes whether an archive is being made.
func (b *bucket) makes(name string, now bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.making[name] = true; !now {
		delete(b.making, name)
	}
}

func (b *bucket) isMade() map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.making)
}

// placed makes a change one that makes an archive an object.
func (b *bucket) placed(ctx context.Context, name, key string, c *change) error {
	s, err := survey.Open(ctx, b.book.Store(), name, catalog.Archive{}, reading())
	if err != nil {
		return err
	}
	defer s.In.Close()
	e, err := s.In.Lookup(ctx, key)
	if err != nil {
		return err
	}
	l, err := s.Locate(ctx, e)
	if err != nil {
		return err
	}
	text, err := json.Marshal(place{path.Base(name), s.Size, s.Version})
	c.Record = journal.Record{LogRow: caf.LogRow{Name: key, Size: l.Size, Off: l.Off, ETag: l.ETag, Headers: l.HeaderText, Elsewhere: string(text)}}
	copy(c.Sum[:], l.Digest.Sum)
	return err
}

// counted adds the attributes of an object at the end of its content.
type counted struct {
	r    io.Reader
	attr map[string]string
	end  func() (string, map[string]string)
}

func (c *counted) Read(p []byte) (n int, err error) {
	n, err = c.r.Read(p)
	if err == io.EOF && c.end != nil {
		etag, headers := c.end()
		maps.Copy(c.attr, headers)
		(catalog.Location{ETag: etag}).Attributes(c.attr)
		c.end = nil
	}
	return n, err
}

// elsewhere has a layer know the archive of a large object, and returns its ID.
func (b *bucket) elsewhere(l *layer, text string) (id rows.ArchiveID, err error) {
	var p place
	if err := json.Unmarshal([]byte(text), &p); err != nil || p.Name != path.Base(p.Name) {
		return id, fmt.Errorf("segment %d of the log: %.100q is no place of an object", l.seg.Log().Number, text)
	}
	return l.know(catalog.Archive{Address: storekit.AddressOf(b.book.Store(), b.in(p.Name)), Format: "caf", Size: p.Size, Version: p.Version, Entries: 1}), nil
}
