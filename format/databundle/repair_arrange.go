package databundle

import (
	"context"
	"hash/crc32"
	"io"
	"slices"

	"github.com/holdall/holdall/format/internal/finder"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Records and contents can be elsewhere in a shard than the index says: bytes were inserted before
// them or lost, or parts of the shard were exchanged. A repair arranges them as the index has them.

// A piece of a shard is n bytes that are stored at from, and belong to at.
type piece struct{ at, from, n int64 }

// arrange returns a shard with its pieces where they belong, sorted and without overlaps. Other bytes
// are where they are, and zeros fill what is beyond their end.
func arrange(obj store.Object, stored int64, pieces []piece) *storekit.Pieced {
	a := &storekit.Pieced{Closer: obj}
	add := func(from, n int64) {
		there := max(min(n, stored-from), 0)
		a.Add(obj, from, there)
		a.Add(nil, 0, n-there)
	}
	for _, p := range pieces {
		add(a.Size(), p.at-a.Size())
		add(p.from, p.n)
	}
	a.Add(obj, a.Size(), stored-a.Size())
	return a
}

// rearrange arranges a shard that was opened.
func (a *bundle) rearrange(s *shard) {
	if pieces := a.arranged[s.index]; pieces != nil {
		x := arrange(s.obj, s.size, pieces)
		s.obj, s.size, s.records, s.loaded, s.wrong = x, x.Size(), nil, false, nil
	}
}

// copyShard writes a shard as it is arranged, with a new header if it lost its own.
func (m *repairer) copyShard(ctx context.Context, to store.Store, name string, s *shard) error {
	var head []byte
	if m.headers[s.index] {
		head = m.headerOf(s.index)
	}
	_, err := storekit.Write(ctx, to, name, func(w store.Writer) error {
		_, err := w.Write(head)
		if err == nil {
			_, err = io.Copy(struct{ io.Writer }{w}, &kit.RangeReader{Ctx: ctx, Object: s.obj, Off: int64(len(head)), End: s.size})
		}
		return err
	})
	return err
}

// arrangeShard finds the records of a shard, or the contents of one without compression, that are
// not where the index says. It reports whether it found any, and returns a function that undoes it.
func (m *repairer) arrangeShard(ctx context.Context, s *shard) (found bool, undo func(), _ error) {
	f := finder.Finder{End: s.size, Read: func(b []byte, off int64) error { return s.obj.ReadAt(ctx, b, off) }}
	var err error
	if s.decode != nil {
		return false, nil, nil
	} else if length := methods[s.header.compression].length; length == nil {
		err = m.wantContents(ctx, s, &f)
	} else {
		err = m.wantRecords(ctx, s, length, &f)
	}
	if err != nil || len(f.Contents) == 0 {
		return false, nil, err
	}
	// Shards end where a block does, so their length shows how much is too much or missing.
	align, end := int64(max(s.header.align, 1)), int64(0)
	for _, c := range f.Contents {
		end = max(end, c.Start+c.Len)
	}
	over := s.size % align
	if err := f.Find(ctx, s.size-end, over, over-align, over-2*align, -int64(len(m.headerOf(s.index)))); err != nil {
		return false, nil, err
	}
	var pieces []piece
	moved := false
	for i, c := range f.Contents {
		if at := f.At[i]; at != finder.Nowhere {
			moved = moved || at != c.Start
			pieces = append(pieces, piece{c.Start, at, c.Len})
		}
	}
	if !moved {
		return false, nil, nil
	}
	slices.SortFunc(pieces, func(a, b piece) int { return int(min(max(a.at-b.at, -1), 1)) })
	for i := range pieces[1:] { // rows may overlap
		p := &pieces[i]
		p.n = min(p.n, pieces[i+1].at-p.at)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	was := *s
	m.arranged[s.index] = pieces
	m.rearrange(s)
	return true, func() {
		*s = was
		delete(m.arranged, s.index)
	}, nil
}

// wantContents adds the contents of the files of a shard without compression.
func (m *repairer) wantContents(ctx context.Context, s *shard, f *finder.Finder) error {
	var sums []uint32
	for row, err := range m.rows.Scan(ctx, fileTablePrefix, after(fileTablePrefix)) {
		if err != nil {
			return err
		}
		if x, err := parseMeta(row.Value); err == nil && x.shard == s.index && x.size > 0 && x.size < 1<<40 && x.offset < 1<<60 {
			f.Contents = append(f.Contents, finder.Content{Start: s.dataOff + int64(x.offset), Len: int64(x.size)})
			sums = append(sums, x.crc)
		}
	}
	f.Weak = true
	f.Is = func(i int, b []byte) bool { return crc32.Checksum(b, castagnoli) == sums[i] }
	f.Right = func(i int, off int64) (bool, error) {
		n := f.Contents[i].Len
		if off < 0 || off > s.size-n {
			return false, nil
		}
		h := crc32.New(castagnoli)
		_, err := io.Copy(h, &kit.RangeReader{Ctx: ctx, Object: s.obj, Off: off, End: off + n})
		return h.Sum32() == sums[i], err
	}
	return nil
}

// wantRecords adds the records of a shard.
func (m *repairer) wantRecords(ctx context.Context, s *shard, length func([]byte) (size, stored int, err error), f *finder.Finder) error {
	said, err := m.saidPlaces(ctx, s, m.ends[s.index])
	if err != nil {
		return err
	}
	var sizes []int64
	offs := make([]int64, 0, len(said))
	for off, p := range said {
		if p.at >= 0 {
			offs = append(offs, off)
		}
	}
	slices.Sort(offs)
	for _, off := range offs {
		p := said[off]
		n := mostStored(p.end - off)
		if p.next > p.at {
			n = min(n, p.next-p.at)
		}
		f.Contents = append(f.Contents, finder.Content{Start: s.dataOff + p.at, Len: n, Least: leastRecord})
		sizes = append(sizes, p.end-off)
	}
	last := len(sizes) - 1
	f.Is = func(i int, b []byte) bool {
		n, _, err := length(b)
		return err == nil && (int64(n) == sizes[i] || i == last && int64(n) > sizes[i])
	}
	f.Right = func(i int, off int64) (bool, error) {
		if off < 0 || off > s.size-leastRecord {
			return false, nil
		}
		b := make([]byte, min(f.Contents[i].Len, s.size-off))
		err := s.obj.ReadAt(ctx, b, off)
		return err == nil && f.Is(i, b), err
	}
	return nil
}

// leastRecord is no more than the length of any record.
const leastRecord = 4
