package oak

import (
	"cmp"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/oak/internal/transfer"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A Datastore is where stores keep binaries that are not in their segments. The zero value means
// no data store.
type Datastore struct {
	Store store.Store
	Dir   string
	// Cloud means the layout of S3DataStore and AzureDataStore, not of FileDataStore.
	Cloud bool
}

// IsCloud reports whether an address is that of a data store of objects.
func IsCloud(address string) bool {
	switch store.Scheme(address) {
	case "s3", "gs", "az":
		return true
	}
	return false
}

// blobPlace returns where a data store has the blob named ID#LENGTH: a FileDataStore in
// ID[0:2]/ID[2:4]/ID[4:6]/ID, a data store of objects in ID[0:4]-ID[4:]. If the name is invalid,
// what is the reason.
func blobPlace(name string, cloud bool) (size int64, object, what string) {
	id, length, ok := strings.Cut(name, "#")
	size, err := strconv.ParseInt(length, 10, 64)
	if !ok || err != nil || size < 0 {
		return 0, "", "expected a name that ends in # and a length"
	}
	// Anything else could lead out of the data store.
	if len(id) < 6 || len(id) > 255 || strings.Trim(id, "0123456789abcdef") != "" {
		return size, "", "expected a name in lower-case hex digits"
	}
	if cloud {
		return size, id[:4] + "-" + id[4:], ""
	}
	return size, path.Join(id[:2], id[2:4], id[4:6], id), ""
}

// Found returns an error if listing shows that there is no data store. Every blob would then seem
// to be missing.
func (d Datastore) Found(ctx context.Context) error {
	if d.Store.Can().Near {
		return nil // an empty folder may be a data store
	}
	for _, err := range storekit.List(ctx, d.Store, d.path("")) {
		if errors.Is(err, errors.ErrUnsupported) {
			return nil
		}
		return err
	}
	return fmt.Errorf("oak: data store %s: empty: %w", storekit.AddressOf(d.Store, d.Dir), fs.ErrNotExist)
}

// blobID is the inverse of blobPlace. It returns "" for an object that is not a binary's.
func (d Datastore) blobID(object string) string {
	id := path.Base(object)
	if d.Cloud {
		id = strings.Replace(object, "-", "", 1)
	}
	if _, place, _ := blobPlace(id+"#0", d.Cloud); place != object {
		return ""
	}
	return id
}

func (d Datastore) path(object string) string {
	if dir := strings.TrimSuffix(d.Dir, "/"); dir != "" {
		return dir + "/" + object
	}
	return object
}

// ask finds a used blob, and records why the data store cannot return it.
func (d Datastore) ask(ctx context.Context, b *Blob) error {
	size, object, what := blobPlace(b.ID, d.Cloud)
	if b.Problem = what; object == "" {
		return nil
	}
	if b.Length, b.Object = size, object; d.Store == nil {
		return nil
	}
	found, err := sizeOf(ctx, d.Store, d.path(object))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		b.Problem = "missing in the data store"
	case err != nil:
		return err
	case found != size:
		b.Problem = fmt.Sprintf("expected %d bytes, found %d", size, found)
	}
	return nil
}

// Copy copies a used blob to another data store, unless that has it. What differs from the digest that
// is its id is not copied: the blob then has a Problem.
func (d Datastore) Copy(ctx context.Context, to Datastore, b *Blob) (copied bool, err error) {
	there := Blob{ID: b.ID}
	if err := to.ask(ctx, &there); err != nil || there.Problem == "" || b.Problem != "" {
		return false, err
	}
	o, err := d.Store.Open(ctx, d.path(b.Object))
	if err != nil {
		return false, err
	}
	defer o.Close()
	id, _, _ := strings.Cut(b.ID, "#")
	var sum hash.Hash
	switch len(id) {
	case hex.EncodedLen(sha256.Size):
		sum = sha256.New()
	case hex.EncodedLen(sha1.Size): // of Jackrabbit 2
		sum = sha1.New()
	}
	w, err := storekit.Create(ctx, to.Store, to.path(there.Object))
	if err != nil {
		return false, err
	}
	defer w.Abort()
	out := io.Writer(w)
	if sum != nil {
		out = io.MultiWriter(w, sum)
	}
	if _, err := io.Copy(out, &kit.RangeReader{Ctx: ctx, Object: o, End: b.Length}); err != nil {
		return false, err
	}
	if sum != nil && hex.EncodeToString(sum.Sum(nil)) != id {
		b.Problem = "its content differs from the digest that is its id"
		return false, nil
	}
	_, err = w.Commit(ctx)
	return err == nil, err
}

// GarbageOptions specify what is garbage in a data store.
type GarbageOptions struct {
	Datastore
	// Scratch opens temporary room for ids that do not fit in memory.
	Scratch func() (sorter.Scratch, error)
	// Before is a time. A blob that was stored or requested after it is not garbage.
	Before time.Time
}

// Garbage yields the blobs in a data store that no revision, no checkpoint and no remaining segment
// of the stores uses. It examines all segments; for damaged ones it uses the lists in their tars.
// If it cannot determine everything that is used, it returns an error.
func Garbage(ctx context.Context, stores []*Store, o GarbageOptions) iter.Seq2[Blob, error] {
	return pipe.Told(func(tell func(Blob) error) error {
		rows := sorter.New(sorter.Options{Scratch: o.Scratch})
		defer rows.Close()
		n := uint64(0)
		for _, s := range stores {
			err := s.uses(ctx, func(id string) error {
				_, object, what := blobPlace(id, o.Cloud)
				if what != "" {
					return fmt.Errorf("oak: %s: blob %.200q: %s: its use of the data store is unknown", s.r.name, id, what)
				}
				n++
				return rows.Add(fmt.Appendf(nil, "%s\x00%016x", object, n), nil)
			})
			if err != nil {
				return err
			}
		}
		next, stop := iter.Pull2(rows.Sorted())
		defer stop()
		used := "" // the first used object that is not less than the current one
		more := true
		prefix := o.path("")
		for info, err := range storekit.List(ctx, o.Store, prefix) {
			if err != nil {
				return err
			}
			object := strings.TrimPrefix(info.Name, prefix)
			if o.blobID(object) == "" || !info.ModTime.Before(o.Before) {
				continue
			}
			for more && used < object {
				row, err, there := next()
				if err != nil {
					return err
				}
				if more = there; there {
					used, _, _ = strings.Cut(string(row.Key), "\x00")
				}
			}
			if used == object {
				continue
			}
			at := info.ModTime.UTC()
			if err := tell(Blob{Length: info.Size, Object: object, Problem: "unused", Modified: &at, info: info}); err != nil {
				return err
			}
		}
		return nil
	})
}

// Delete removes garbage from the data store, if it is still the object that was listed. A
// program that begins to use it touches it; then Delete keeps it, and gone is false.
func (d Datastore) Delete(ctx context.Context, b Blob) (gone bool, err error) {
	err = storekit.RemoveAs(ctx, d.Store, b.info)
	if errors.Is(err, store.ErrChanged) || errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// uses calls tell with the IDs of all binaries to which segments of a store refer. An ID may be
// repeated.
func (s *Store) uses(ctx context.Context, tell func(id string) error) error {
	if s.r.single {
		return fmt.Errorf("oak: %s: one tar of a store does not show what the others use: %w", s.r.name, errors.ErrUnsupported)
	}
	if err := s.allThere(ctx); err != nil {
		return err
	}
	for _, t := range s.r.tars {
		listed, err := t.listed(ctx, tell)
		if err == nil {
			err = s.usesOf(ctx, t, listed, tell)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// listed calls tell with the IDs in the list of the tar, if it has an intact one.
func (t *segmentTar) listed(ctx context.Context, tell func(id string) error) (bool, error) {
	if t.file == nil {
		return false, nil
	}
	refs, err := t.file.Binaries(ctx)
	if err != nil {
		if _, damaged := errors.AsType[*tarfile.Error](err); damaged {
			err = nil
		}
		return false, err
	}
	for x := range refs.All() {
		for id := range x.Refs.All() {
			if err := tell(id); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// usesOf is uses for the records of a tar. listed reports whether the tar has a list of its own.
func (s *Store) usesOf(ctx context.Context, t *segmentTar, listed bool, tell func(id string) error) error {
	if p := t.left(); p != nil {
		return &format.CorruptError{Format: "oak", Problem: *p}
	}
	fail := func(e tarfile.Entry, err error) error {
		if err == nil || listed && s.r.damage(s.r.storeFault(err)) != nil { // its tar has listed them
			return nil
		}
		return fmt.Errorf("oak: %s: segment %s: its binaries are unknown: %w", t.path, e.ID, s.r.storeFault(err))
	}
	read := func(ctx context.Context, e tarfile.Entry, buf []byte) (f segment.Finished, err error) {
		f.ID = e.ID
		f.Data, err = t.read(ctx, e, buf, healing)
		return f, fail(e, err)
	}
	names := transfer.NewNames(t.path, (&parsed{r: s.r}).Segment)
	return transfer.Each(ctx, t.data(), read, func(e tarfile.Entry, f segment.Finished) error {
		var bad error
		err := names.Describe(ctx, &f, func(err error) { bad = cmp.Or(bad, err) })
		if err = fail(e, cmp.Or(err, bad)); err != nil {
			return err
		}
		for _, id := range f.BlobIDs {
			if err := tell(id); err != nil {
				return err
			}
		}
		return nil
	})
}

// allThere returns an error if the newest revision needs a segment that is in no tar, because
// that segment may use unknown binaries.
func (s *Store) allThere(ctx context.Context) error {
	head, err := s.r.head(ctx)
	if err != nil {
		return err
	}
	if head.Rewound+head.Bad > 0 {
		return refuse("%s: the newest %d revisions of the journal are lost: their binaries are unknown", s.r.name, head.Rewound+head.Bad)
	}
	r := &segmentReader{repository: s.r}
	seen := map[segment.ID]bool{head.Segment: true}
	for queue := []segment.ID{head.Segment}; len(queue) > 0; queue = queue[1:] {
		if err := ctx.Err(); err != nil {
			return err
		}
		t, e, ok := r.locate(queue[0])
		if !ok {
			return refuse("%s: segment %s, which the newest revision needs, is missing: its binaries are unknown", s.r.name, queue[0])
		}
		to, err := r.targets(ctx, t, e)
		if err != nil {
			return err
		}
		for id := range to.All() {
			if !seen[id] && id.IsData() {
				if seen[id] = true; int64(len(seen))*wayBytes > r.limits.Index {
					return fault(indexLimit, t.path, -1, "segments of the newest revision: more than %d bytes", r.limits.Index)
				}
				queue = append(queue, id)
			}
		}
	}
	return nil
}

const (
	clusterNode     = ":clusterConfig"
	clusterProperty = ":clusterId"
	repositoryMark  = "repository-"
)

// RepositoryID returns the store's ID in a data store that several stores share, or "" if it has
// none.
func (s *Store) RepositoryID(ctx context.Context) (string, error) {
	head, err := s.r.head(ctx)
	if err != nil {
		return "", err
	}
	n, missing, err := s.records.NodeAt(ctx, head.Revision, rootName, clusterNode)
	if missing != "" {
		return "", nil
	}
	var text string
	if err == nil {
		text, err = textProperty(ctx, n, clusterProperty, mostWords)
	}
	return text, s.r.corrupt(err, clusterNode)
}

// Strangers returns the repositories that are registered as users of the data store, except for the
// stores.
func (d Datastore) Strangers(ctx context.Context, stores []*Store) ([]string, error) {
	strange := map[string]bool{}
	for _, prefix := range []string{d.path(repositoryMark), d.path("META/" + repositoryMark)} {
		for info, err := range storekit.List(ctx, d.Store, prefix) {
			if err != nil {
				return nil, err
			}
			if id := strings.TrimPrefix(info.Name, prefix); !strings.Contains(id, "/") {
				id, _, _ = strings.Cut(id, "_")
				strange[id] = true
			}
		}
	}
	for _, s := range stores {
		id, err := s.RepositoryID(ctx)
		if err != nil {
			return nil, err
		}
		delete(strange, id)
	}
	return slices.Sorted(maps.Keys(strange)), nil
}
