package book

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// appendKey appends a key that sorts rows by name and then by archive, the last first. A name may have
// any bytes.
func appendKey(b []byte, name string, archive int) []byte {
	for i := range len(name) {
		if b = append(b, name[i]); name[i] == 0 {
			b = append(b, 0xff)
		}
	}
	return binary.BigEndian.AppendUint32(append(b, 0, 1), ^uint32(archive))
}

const keyEnd = 6 // bytes after the name

func nameIn(key []byte) string {
	return string(bytes.ReplaceAll(key[:len(key)-keyEnd], []byte{0, 0xff}, []byte{0}))
}

// A runWriter writes a run into its object or, if it is small, into the commit that adds it.
type runWriter struct {
	b     *Book
	ctx   context.Context
	name  string
	small bytes.Buffer
	out   store.Writer
}

func (w *runWriter) Write(p []byte) (n int, err error) {
	if w.out == nil && w.small.Len()+len(p) <= w.b.o.inline {
		return w.small.Write(p)
	}
	if w.out == nil {
		if w.out, err = storekit.CreateAs(w.ctx, w.b.st, w.b.dir+w.name, store.Wishes{Once: true}); err != nil {
			return 0, err
		}
		if _, err := w.out.Write(w.small.Bytes()); err != nil {
			return 0, err
		}
		w.small = bytes.Buffer{}
	}
	return w.out.Write(p)
}

// writeRun writes rows, at most so many, and returns what a commit says of them. Nothing refers to its
// object before that.
func (b *Book) writeRun(ctx context.Context, base int64, most int64, about func(rows.ArchiveID) (rows.Archive, bool), all iter.Seq2[*rows.Row, error]) (ref RunRef, more []byte, err error) {
	w := &runWriter{b: b, ctx: ctx, name: fmt.Sprintf("runs/%d-%s", base, b.o.text())}
	defer func() {
		if w.out != nil {
			err = errors.Join(err, w.out.Abort())
		}
	}()
	x := rows.NewWriter(w, most, about)
	for r, err := range all {
		if err == nil {
			err = x.Add(r)
		}
		if err != nil {
			return ref, nil, err
		}
	}
	s, tail, err := x.Close()
	if err != nil {
		return ref, nil, err
	}
	ref.Summary = s
	if w.out == nil {
		return ref, w.small.Bytes(), nil
	}
	if _, err := w.out.Commit(ctx); err != nil {
		return ref, nil, b.fail(w.name, err)
	}
	ref.Object = w.name
	return ref, tail, nil
}

// Add records archives and their contents in one commit. It replaces earlier records of the same
// addresses. What it returns with an error is recorded.
func (b *Book) Add(ctx context.Context, all ...catalog.Addition) ([]catalog.Added, error) {
	return b.add(ctx, all, false)
}

// TryAdd does all the work of Add but the commit.
func (b *Book) TryAdd(ctx context.Context, all ...catalog.Addition) ([]catalog.Added, error) {
	return b.add(ctx, all, true)
}

func (b *Book) add(ctx context.Context, all []catalog.Addition, try bool) (done []catalog.Added, err error) {
	if len(all) > maxOrdinals {
		return nil, fmt.Errorf("expected at most %d archives at once, found %d", maxOrdinals, len(all))
	}
	if err := b.follow(ctx); err != nil {
		return nil, err
	}
	base := b.current().Number
	x := sorter.New(sorter.Options{Memory: 128 << 20, Scratch: sorter.TempFile, Duplicate: func([]byte) error { return nil }})
	defer x.Close()
	added, twice := make([]Archive, len(all)), map[string]bool{}
	n := int64(0)
	var key, value []byte
	for i, a := range all {
		if err := a.Check(); err != nil {
			return nil, err
		}
		if twice[a.Address] {
			return nil, fmt.Errorf("%s: twice in one step", format.Escape(a.Address))
		}
		twice[a.Address] = true
		added[i] = Archive{Address: b.relative(a.Address), Format: a.Format, Size: a.Size, Version: text(a.Version), Verified: a.Verified, Parity: a.Parity, Roots: a.Roots}
		for l, err := range a.Rows {
			if err == nil {
				err = l.Check(a.Size)
			}
			if err != nil {
				return nil, err
			}
			r := rows.Row{Archive: rows.ArchiveID{Ordinal: i}, Kind: l.Kind, Raw: l.Raw, Size: l.Size, Digest: l.Digest, Time: l.Modified, ETag: l.ETag, Headers: l.HeaderText}
			if l.Raw {
				r.Off = l.Off
			}
			key, value = appendKey(key[:0], l.Path, i), r.Append(value[:0])
			if err := x.Add(key, value); err != nil {
				return nil, err
			}
			n++
		}
	}
	var c Commit
	if n > 0 && !try {
		about := func(id rows.ArchiveID) (rows.Archive, bool) {
			a := &added[id.Ordinal]
			return a.shown(), true
		}
		ref, more, err := b.writeRun(ctx, base, n, about, func(yield func(*rows.Row, error) bool) {
			var r rows.Row
			for s, err := range x.Sorted() {
				if err == nil {
					err = r.Parse(nameIn(s.Key), s.Value)
				}
				if err == nil {
					a := &added[r.Archive.Ordinal]
					if a.Entries++; a.Entries == 1 {
						a.First = text(r.Name)
					}
					a.Last = text(r.Name)
				}
				if !yield(&r, err) || err != nil {
					return
				}
			}
		})
		if err != nil {
			return nil, err
		}
		c.Runs, c.inline = []RunRef{ref}, more
	}
	var replaced []catalog.Archive
	var recorded []Archive
	change := func(s *State) (*Commit, error) {
		k := c
		k.Base, k.Add, replaced = base, slices.Clone(added), nil
		at := make(map[text]*Archive, len(s.Archives))
		for i := range s.Archives {
			at[s.Archives[i].Address] = &s.Archives[i]
		}
		for i := range k.Add {
			a := &k.Add[i]
			a.Address = s.moved(added[i].Address, base)
			k.Entries, k.Bytes = k.Entries+a.Entries, k.Bytes+a.Size
			was := at[a.Address]
			if was == nil {
				replaced = append(replaced, catalog.Archive{})
				continue
			}
			k.Drop, k.Entries, k.Bytes = append(k.Drop, was.ID), k.Entries-was.Entries, k.Bytes-was.Size
			replaced = append(replaced, b.record(was))
			if a.Roots == "" {
				a.Roots = was.Roots
			}
			if a.Verified.IsZero() && a.Size == was.Size && a.Version == was.Version && a.Format == was.Format {
				a.Verified = was.Verified
			}
		}
		recorded = k.Add
		return &k, nil
	}
	var s *State
	if try {
		if s, err = b.full(ctx, b.current()); err == nil {
			_, err = change(s)
		}
	} else if s, err = b.commitNow(ctx, change); err == nil {
		err = b.merge(ctx)
	}
	if s == nil {
		return nil, err
	}
	for i, a := range recorded {
		if !try {
			a.ID = idOf(rows.ArchiveID{Commit: s.Number, Ordinal: i})
			a.Added = s.Time
		}
		done = append(done, catalog.Added{Archive: b.record(&a), Replaced: replaced[i]})
	}
	return done, err
}

// Remove removes an archive and its entries from the catalogue.
func (b *Book) Remove(ctx context.Context, address string) (was catalog.Archive, err error) {
	_, err = b.Commit(ctx, func(s *State) (*Commit, error) {
		a := s.archiveAt(b.relative(address))
		if a == nil {
			return nil, catalog.Absent(address)
		}
		was = b.record(a)
		return &Commit{Drop: []ID{a.ID}, Entries: -a.Entries, Bytes: -a.Size}, nil
	})
	return was, err
}

// Verified records that an archive was found sound.
func (b *Book) Verified(ctx context.Context, id int64, _ time.Time) error {
	_, err := b.Commit(ctx, func(s *State) (*Commit, error) {
		if _, ok := s.at[ID(id)]; !ok {
			return nil, catalog.Absent(fmt.Sprintf("archive %d", id))
		}
		return &Commit{Verified: []ID{ID(id)}}, nil
	})
	return err
}

// Protected records which parity archives have now, by their IDs.
func (b *Book) Protected(ctx context.Context, parity map[int64]string) error {
	_, err := b.Commit(ctx, func(s *State) (*Commit, error) {
		c := &Commit{}
		for _, a := range s.Archives {
			if p, ok := parity[int64(a.ID)]; ok && p != a.Parity {
				c.Parity = append(c.Parity, Parity{a.ID, p})
			}
		}
		if len(c.Parity) == 0 {
			return nil, nil
		}
		return c, nil
	})
	return err
}

// Delete deletes files in all archives that there are now. It returns how many were visible.
//
// Roots and last are for catalogues in databases.
func (b *Book) Delete(ctx context.Context, _ catalog.Roots, paths []string, _ int64) (n int64, err error) {
	paths = slices.Compact(slices.Sorted(slices.Values(paths)))
	var visible []string
	for _, p := range paths {
		all, err := b.Holders(ctx, p)
		if err != nil {
			return 0, err
		}
		if len(all) > 0 {
			visible = append(visible, p)
		}
	}
	for len(visible) > 0 && err == nil {
		k, size := 0, 0
		for ; k < len(visible) && (k == 0 || size+len(visible[k]) <= mostDeleted); k++ {
			size += len(visible[k])
		}
		if err = b.delete(ctx, visible[:k]); err == nil {
			n += int64(k)
		}
		visible = visible[k:]
	}
	if err == nil {
		err = b.merge(ctx)
	}
	return n, err
}

// mostDeleted is how many bytes of names a commit deletes.
const mostDeleted = 128 << 10

func (b *Book) delete(ctx context.Context, names []string) error {
	base := b.current().Number
	ref, more, err := b.writeRun(ctx, base, int64(len(names)), func(rows.ArchiveID) (rows.Archive, bool) { return rows.Archive{}, false }, func(yield func(*rows.Row, error) bool) {
		for _, p := range names {
			if !yield(&rows.Row{Name: p, What: rows.Delete}, nil) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	_, err = b.Commit(ctx, func(*State) (*Commit, error) {
		return &Commit{Base: base, Runs: []RunRef{ref}, inline: more, Deletes: true}, nil
	})
	return err
}
