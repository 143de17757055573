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

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// appendKey appends a key that sorts rows as they are in a run. A name may have any bytes.
func appendKey(b []byte, r *rows.Row) []byte {
	for i := range len(r.Name) {
		if b = append(b, r.Name[i]); r.Name[i] == 0 {
			b = append(b, 0xff)
		}
	}
	b = binary.BigEndian.AppendUint64(append(b, 0, 1), ^uint64(r.Seq-1)) // 0 is that of the commit, which comes first
	b = binary.BigEndian.AppendUint32(append(b, byte(r.What)), ^uint32(r.Archive.Ordinal))
	return binary.BigEndian.AppendUint64(b, ^uint64(r.Of))
}

const keyEnd = 23 // bytes after the name

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
	done, err := b.Do(ctx, Step{Add: all})
	return done.Added, err
}

// TryAdd does all the work of Add but the commit.
func (b *Book) TryAdd(ctx context.Context, all ...catalog.Addition) ([]catalog.Added, error) {
	done, err := b.do(ctx, Step{Add: all}, true)
	return done.Added, err
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
func (b *Book) Delete(ctx context.Context, paths []string) (n int64, err error) {
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
	return n, err
}

// mostDeleted is how many bytes of names a commit deletes.
const mostDeleted = 128 << 10

func (b *Book) delete(ctx context.Context, names []string) error {
	_, err := b.Do(ctx, Step{Rows: func(yield func(*rows.Row, error) bool) {
		for _, p := range names {
			if !yield(&rows.Row{Name: p, What: rows.Delete}, nil) {
				return
			}
		}
	}})
	return err
}
