package holdall

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/minisign"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/internal/read/listing"
	"github.com/holdall/holdall/internal/read/root"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// SignatureSuffix is appended to the name of an archive to get the name of its signature.
const SignatureSuffix = ".minisig"

// An UntrustedError means that OpenOptions.Trusted is set, and no signature by one of the keys covers what
// would be read.
type UntrustedError struct {
	Archive string
	Err     error
}

func (e *UntrustedError) Error() string {
	return fmt.Sprintf("%s: not trusted: %v", format.Escape(e.Archive), e.Err)
}

func (e *UntrustedError) Unwrap() error { return e.Err }

// A Statement has the roots of an archive in hex; see [Archive.Roots].
type Statement = root.Statement

// Roots returns the roots that stand for the archive. That of its contents is the same in every format. If
// the archive is not opened by an index with digests, files without a BLAKE3 are read, and there is no
// root of the archive.
func (a *Archive) Roots(ctx context.Context, m *Meter) (s Statement, err error) {
	if x := a.src.Index(); x != nil && !x.Copied && x.Contents != "" {
		return Statement{Contents: x.Contents, Archive: x.Root}, nil
	}
	if err := a.src.Vouched(); err != nil {
		return s, err
	}
	rows := a.src.NewRows()
	defer rows.Close()
	for e, err := range a.src.Packed(ctx) {
		if err == nil && !e.Kind.HasContent() {
			err = rows.Add(e, [32]byte{})
		}
		if err != nil {
			return s, err
		}
	}
	err = a.Sums(ctx, "blake3", m, func(e Entry, d format.Digest, err error) error {
		if err != nil {
			return err
		}
		return rows.Add(e, [32]byte([]byte(d.Sum)))
	})
	if err == nil {
		s.Contents, err = rows.Sum(ctx)
	}
	return s, err
}

// SignedBy returns the ID of the key that has signed the archive; it is empty without OpenOptions.Trusted.
func (a *Archive) SignedBy() string { return a.signedBy }

// trusted returns what one of the keys in o.Trusted has signed of an archive.
func (p opening) trusted(ctx context.Context) (s Statement, by string, err error) {
	var keys []minisign.Key
	for _, text := range p.o.Trusted {
		k, err := minisign.ParseKey([]byte(text))
		if err != nil {
			return s, "", err
		}
		keys = append(keys, k)
	}
	name := strings.TrimSuffix(p.name, "/") + SignatureSuffix
	file, err := readShort(ctx, p.st, name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return s, "", fmt.Errorf("there is no signature %s beside it", format.Escape(name))
	}
	if err != nil {
		return s, "", err
	}
	sig, err := minisign.ParseSignature(file)
	if err == nil {
		s, err = root.ParseComment(sig.Comment)
	}
	if err == nil {
		var k minisign.Key
		k, err = sig.Verify(s.Text(), keys)
		by = k.ID()
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", format.Escape(name), err)
	}
	return s, by, err
}

// readShort reads an object of at most minisign.MaxFile bytes.
func readShort(ctx context.Context, st store.Store, name string) ([]byte, error) {
	o, err := st.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	b := make([]byte, minisign.MaxFile+1)
	n, err := storekit.ReadHead(ctx, o, b)
	return b[:n], err
}

// listed compares the root of an archive's contents with the list that r shows, without reading contents.
// What is read later is compared with the digests in that list.
func (a *Archive) listed(ctx context.Context, want string) error {
	rows := a.src.NewRows()
	defer rows.Close()
	for e, err := range a.src.Packed(ctx) {
		if err != nil {
			return err
		}
		var sum [32]byte
		if e.Kind.HasContent() && e.Size > 0 {
			if e.Digest.Algo != "blake3" || len(e.Digest.Sum) != len(sum) {
				return fmt.Errorf("%s has no BLAKE3, so an index with digests must be beside it, and be signed ('holdall sign')", format.Escape(e.Name))
			}
			copy(sum[:], e.Digest.Sum)
		} else {
			sum = [32]byte(emptySum)
		}
		if e.Fault != nil {
			return a.src.Fault(e)
		}
		if e.Kind == format.HardLink {
			return fmt.Errorf("%s is a hard link, so an index with digests must be beside it, and be signed ('holdall sign')", format.Escape(e.Name))
		}
		if err := rows.Add(e, sum); err != nil {
			return err
		}
	}
	got, err := rows.Sum(ctx)
	if err == nil && got != want {
		err = errors.New("its contents are not those that were signed")
	}
	return err
}

var emptySum, _ = hex.DecodeString("af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262")

// covered is a reader that shows what the root of contents covers. Modes, owners and times are not.
type covered struct{ format.Reader }

func cover(e Entry) Entry {
	e.HasMode, e.Mode, e.Owner, e.Group, e.Attr = false, 0, "", "", nil
	e.ModTime = Entry{}.ModTime
	return e
}

func covers(entries iter.Seq2[Entry, error]) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for e, err := range listing.Only(entries, func(e Entry) bool { return !e.Internal }) {
			if !yield(cover(e), err) {
				return
			}
		}
	}
}

func (c covered) Entries(ctx context.Context) iter.Seq2[Entry, error] {
	return covers(c.Reader.Entries(ctx))
}

func (c covered) ReadDir(ctx context.Context, dir string) iter.Seq2[Entry, error] {
	return covers(c.Reader.ReadDir(ctx, dir))
}

func (c covered) Lookup(ctx context.Context, name string) (Entry, error) {
	e, err := c.Reader.Lookup(ctx, name)
	if err == nil && e.Internal {
		return Entry{}, &fs.PathError{Op: "lookup", Path: name, Err: fs.ErrNotExist}
	}
	return cover(e), err
}

// Can leaves out what would show entries that are not covered.
func (c covered) Can() format.Abilities {
	can := c.Reader.Can()
	can.EntriesBelow, can.EntriesFrom, can.ReadDirFrom = nil, nil, nil
	return can
}

var errNotCovered = errors.New("no signed root covers it")

// trust opens the archive by what is signed: by the index whose root that is, or by a list of which the
// root of contents is.
func (p opening) trust(ctx context.Context, by store.Store, a *Archive) error {
	o := p.o
	if o.NoVerify || o.Index.sizeOnly {
		return errors.New("contents are not compared")
	}
	s, id, err := p.trusted(ctx)
	if err != nil {
		return err
	}
	a.signedBy = id
	a.src.Trust()
	if s.Archive != "" && o.Password == "" {
		u := kept.Use{At: o.Index.At, Beside: true, Root: s.Archive}
		if p.indexed(ctx, a, u, func(context.Context, *format.Format) (format.Reader, error) {
			return nil, &UntrustedError{p.name, errNotCovered}
		}) {
			return nil
		}
	}
	o.FewLookups, o.once, o.linked = false, false, nil
	f, r, err := recognise(ctx, by, p.name, o)
	if err != nil {
		return err
	}
	a.src.Read(f, covered{r})
	if err = a.listed(ctx, s.Contents); err != nil && a.index.Why != nil {
		err = fmt.Errorf("%w; its index %s is not used: %w", err, format.Escape(a.index.Ignored), a.index.Why)
	}
	return err
}
