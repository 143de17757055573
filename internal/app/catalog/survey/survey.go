// Package survey lists the contents of an archive for a catalogue, because package catalog opens
// no archives.
package survey

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/facts"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A Survey is the current state of an archive, to be added to a catalogue.
type Survey struct {
	catalog.Archive
	// Known reports that the catalogue has this version already: then nothing was read.
	Known bool
	// In is the archive itself, which the caller of Open must close. It is nil if it is known, or if it is a
	// recording whose facts were read.
	In *holdall.Archive
	// Said is what a recording says of itself, if that was read.
	Said *facts.Facts

	st    store.Store
	name  string
	whole *catalog.Location // a recording, as one file
}

// Close closes the archive.
func (s Survey) Close() error {
	if s.In == nil {
		return nil
	}
	return s.In.Close()
}

// Open opens an archive for a catalogue. known is the catalogue's record of
// its address, or zero if there is none. If it has Facts, the archive is recorded as one file with its facts.
func Open(ctx context.Context, st store.Store, name string, known catalog.Archive, o holdall.OpenOptions) (s Survey, err error) {
	s = Survey{st: st, name: name, Archive: catalog.Archive{Facts: known.Facts}}
	if s.Address = storekit.AddressOf(st, name); s.Address == "" {
		return s, errors.New("no address to record it under")
	}
	var size int64
	var version string
	single := false
	if known.ID != 0 {
		size, version, err = objectVersion(ctx, st, name)
		single = err == nil
		if single && known.Size == size && known.Version == version && version != "" {
			s.Archive, s.Known = known, true
			return s, nil
		}
	}
	if s.Facts != "" {
		return s, s.readFacts(ctx, o)
	}
	if s.In, err = holdall.Open(ctx, name, o.In(st)); err != nil {
		return s, err
	}
	s.Format = s.In.Format().Name
	if !single {
		// The opened archive has these already.
		size, version, single = s.opened(ctx)
	}
	s.Size, s.Version = size, version
	if !single {
		if s.Size, s.Version, err = s.version(ctx); err != nil {
			s.In.Close()
			return s, err
		}
	}
	if s.Archive.Same(known) && s.Version != "" {
		err := s.In.Close()
		s.In, s.Archive, s.Known = nil, known, true
		return s, err
	}
	return s, nil
}

// ParityNow returns the identity of the archive's parity, or "" if none lies beside it that can be used.
func (s Survey) ParityNow(ctx context.Context) (string, error) {
	st, size := storekit.Under(s.st), s.Size
	if st != s.st {
		size, _, _ = objectVersion(ctx, st, s.name)
	}
	id, err := parity.Identity(ctx, st, s.name, size)
	if _, damaged := errors.AsType[*format.CorruptError](err); damaged {
		err = nil
	}
	return id, err
}

// opened returns the size and version of an archive of one object at the time
// it was opened.
func (s Survey) opened(ctx context.Context) (size int64, version string, ok bool) {
	volumes, err := s.In.Volumes(ctx)
	if err != nil || len(volumes) != 1 || volumes[0] != s.name {
		return 0, "", false
	}
	o, err := s.In.Source().Object(ctx, s.name)
	if err != nil {
		return 0, "", false
	}
	info, err := o.Info(ctx)
	return info.Size, Version(info, s.st.Can().Near), err == nil
}

func objectVersion(ctx context.Context, st store.Store, name string) (int64, string, error) {
	info, err := storekit.Briefly(st, name).Info(ctx)
	return info.Size, Version(info, st.Can().Near), err
}

// version requests the size and version of the archive. The version of several
// objects is a digest of their versions.
func (s Survey) version(ctx context.Context) (size int64, version string, err error) {
	volumes, err := s.In.Volumes(ctx)
	if err != nil {
		return 0, "", err
	}
	if len(volumes) == 1 && volumes[0] == s.name {
		return objectVersion(ctx, s.st, s.name)
	}
	h := sha256.New()
	for _, v := range volumes {
		n, version, err := objectVersion(ctx, s.st, v)
		if err != nil {
			return 0, "", err
		}
		size += n
		fmt.Fprintf(h, "%q %d %q\n", v, n, version)
	}
	return size, hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// Rows yields the catalogue's rows for the archive's entries. If the archive
// changes meanwhile, it yields an error.
func (s Survey) Rows(ctx context.Context, m *holdall.Meter) iter.Seq2[catalog.Location, error] {
	return func(yield func(catalog.Location, error) bool) {
		if s.whole != nil {
			yield(*s.whole, nil)
			m.Add(1, 0)
			return
		}
		for e, err := range s.In.Entries(ctx) {
			var l catalog.Location
			if err == nil {
				if !Catalogued(e) {
					continue
				}
				l, err = s.Locate(ctx, e)
			}
			if !yield(l, err) || err != nil {
				return
			}
			m.Add(1, 0)
		}
		if err := s.In.Doubt(); err != nil { // names in it may be wrong
			yield(catalog.Location{}, err)
			return
		}
		size, version, err := s.version(ctx)
		if err == nil && (size != s.Size || version != s.Version) {
			err = fmt.Errorf("%s: %w", store.Redact(s.Address), store.ErrChanged)
		}
		if err != nil {
			yield(catalog.Location{}, err)
		}
	}
}

// Catalogued reports whether an entry is recorded in catalogues. Folders are
// not: paths imply them.
func Catalogued(e holdall.Entry) bool { return e.Kind != format.Dir && !e.Internal }

// Locate returns the place of e. It records only a run of the archive's own
// object. Content that is spread, compressed or elsewhere must be found again
// through the format.
func (s Survey) Locate(ctx context.Context, e holdall.Entry) (catalog.Location, error) {
	l := catalog.Location{Path: e.Name, Kind: e.Kind, Size: max(e.Size, 0), Digest: e.Digest, Modified: e.ModTime, ETag: e.Attr[kit.ETagAttr]}
	if kit.HasObjectAttr(e) {
		headers := map[string]string{}
		for name, value := range e.Attr {
			if storekit.IsHeader(name) {
				headers[name] = value
			}
		}
		l.HeaderText = catalog.HeaderText(headers)
	}
	if !e.Kind.HasContent() || e.Fault != nil {
		return l, nil
	}
	n := 0
	for x, err := range s.In.Extents(ctx, e) {
		if err != nil {
			return l, err
		}
		n++
		l.Raw = n == 1 && x.Codec == codec.Raw && !x.External && x.Object == s.name && x.At == 0 && x.Skip == 0 && x.Size == e.Size && x.Len == e.Size
		if l.Off = x.Off; !l.Raw {
			break
		}
	}
	if !l.Raw {
		l.Off = 0
	}
	return l, nil
}

// Is reports whether an object is an archive in the version that a catalogue
// records.
func Is(info store.Info, near bool, a catalog.Archive) bool {
	return info.Size == a.Size && (Version(info, near) == a.Version || !near && sameTime(info.ModTime, a.Version))
}

// sameTime reports whether a server has a time that was recorded of a file, to the second.
func sameTime(is time.Time, recorded string) bool {
	was, err := time.Parse(time.RFC3339Nano, recorded)
	return err == nil && !is.IsZero() && is.Unix() == was.Unix()
}

// Version returns the part of an object's version that a catalogue records.
// For a file this is its time: the other information that a store has about a
// file changes when the file is restored or copied.
func Version(info store.Info, near bool) string {
	if (near || info.Version == "") && !info.ModTime.IsZero() {
		return info.ModTime.UTC().Format(time.RFC3339Nano)
	}
	return info.Version
}
