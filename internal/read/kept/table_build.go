package kept

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
)

// A tabler collects the table of an index while its rows are written.
type tabler struct {
	rows   int64
	hashes hashes
	places spool
	stored column
	skips  column
	times  times
	firsts column
	groups spool
	names  spool
	longs  spool

	sums      spool // bytes of digests before each group
	before    int64 // bytes of digests
	digests   []digestKind
	tooManyOf bool // there are more than maxSums

	hows    []how
	howOf   map[how]uint16
	lastHow uint16
	codecs  []string

	name    []byte
	texts   []byte // names of the last rows that were added, which are not in names yet
	ends    []int  // where each ends
	buf     []byte
	xs      []format.Extent
	volumes []int
}

func newTabler(scratch func() (sorter.Scratch, error)) *tabler {
	s := spool{scratch: scratch}
	c := column{spool: s, width: 4}
	return &tabler{hashes: hashes{scratch: scratch}, places: s, stored: c, skips: c, times: times{column: column{spool: s, width: 8}}, firsts: c, groups: s, names: s, longs: s, sums: s,
		howOf: map[how]uint16{}, codecs: []string{}}
}

func (t *tabler) close() {
	for _, s := range []*spool{&t.places, &t.stored.spool, &t.skips.spool, &t.times.spool, &t.firsts.spool, &t.groups, &t.names, &t.longs, &t.sums} {
		s.close()
	}
	if t.hashes.disk != nil {
		t.hashes.disk.Close()
	}
}

// add adds a row, with its entry, in the order of rows.
func (t *tabler) add(r *row) error {
	if err := t.addName(r.place); err != nil {
		return err
	}
	h, err := t.like(r)
	if err == nil {
		err = t.addPlace(r, h)
	}
	t.rows++
	return err
}

// like returns the how of r, without the place of its content. It also adds its time and the number
// of its first digest.
func (t *tabler) like(r *row) (h how, err error) {
	e := r.entry
	h = how{kind: e.Kind, implied: r.implied, ask: r.elsewhere, fault: e.Fault != nil, digest: -1}
	first := int64(0)
	if !r.implied {
		h.hasMode, h.mode, h.owner, h.group = e.HasMode, uint32(e.Mode), e.Owner, e.Group
		if h.digest = t.digestOf(e.Digest); r.proofs > 0 {
			first = r.proof
		}
		t.before += int64(len(e.Digest.Sum))
	}
	h.plain = e.Link == "" && len(e.Attr) == 0 && !e.Internal && !h.fault && !h.ask && first <= math.MaxUint32 && (e.HasMode || e.Mode == 0) &&
		(h.digest >= 0 || r.implied || e.Digest == (format.Digest{}))
	if h.time, err = t.times.add(e.ModTime); err != nil {
		return h, err
	}
	if !h.time && !e.ModTime.IsZero() {
		h.plain = false
	}
	if !t.has(h) {
		h.hasMode, h.mode, h.owner, h.group, h.plain = false, 0, "", "", false
	}
	return h, t.firsts.add(uint64(uint32(first)))
}

// digestOf returns the number of the kind of a digest, or -1 if it has none.
func (t *tabler) digestOf(d format.Digest) int {
	if d == (format.Digest{}) {
		return -1
	}
	k := digestKind{d.Algo, len(d.Sum)}
	i := slices.Index(t.digests, k)
	if i < 0 {
		if len(t.digests) == maxSums {
			t.tooManyOf = true
			return -1
		}
		i = len(t.digests)
		t.digests = append(t.digests, k)
	}
	return i
}

func (t *tabler) addName(at place) error {
	t.name = t.name[:0]
	if at.dir != "" {
		t.name = append(append(t.name, at.dir...), '/')
	}
	t.name = append(t.name, at.base...)
	if err := t.hashes.add(uint64(crc32.ChecksumIEEE(t.name))<<32 | uint64(t.rows)); err != nil {
		return err
	}
	if t.rows%namesGroup == 0 {
		if err := t.group(); err != nil {
			return err
		}
	}
	t.texts = append(t.texts, t.name...)
	t.ends = append(t.ends, len(t.texts))
	return nil
}

// group writes the names of a group of rows, and how many bytes of digests come before the next
// one.
func (t *tabler) group() error {
	if err := t.sums.write(binary.LittleEndian.AppendUint64(t.buf[:0], uint64(t.before))); err != nil {
		return err
	}
	if len(t.ends) == 0 {
		return nil
	}
	var shares, lens [namesGroup]int
	width, at := 1, uint64(t.names.n)
	begin := 0
	for i, end := range t.ends {
		if i > 0 {
			shares[i] = sorter.SharedLen(t.texts[:t.ends[0]], t.texts[begin:end])
		}
		if lens[i] = end - begin - shares[i]; max(shares[i], lens[i]) > math.MaxUint8 {
			width, at = 4, uint64(t.names.n)|wideNames
		}
		begin = end
	}
	if err := t.groups.write(binary.LittleEndian.AppendUint64(t.buf[:0], at)); err != nil {
		return err
	}
	b := t.buf[:0]
	for _, numbers := range [][namesGroup]int{shares, lens} {
		for _, n := range numbers {
			if b = append(b, byte(n)); width == 4 {
				b = append(b, byte(n>>8), byte(n>>16), byte(n>>24))
			}
		}
	}
	begin = 0
	for i, end := range t.ends {
		b = append(b, t.texts[begin+shares[i]:end]...)
		begin = end
	}
	t.buf, t.texts, t.ends = b, t.texts[:0], t.ends[:0]
	return t.names.write(b)
}

// addPlace adds where a row's content lies.
func (t *tabler) addPlace(r *row, h how) error {
	e := r.entry
	t.xs, t.volumes = t.xs[:0], t.volumes[:0]
	if r.one && !r.implied {
		t.xs, t.volumes = append(t.xs, format.Extent{Off: r.off, Len: e.Size, Size: e.Size}), append(t.volumes, r.volume)
	} else if !r.implied && !r.elsewhere {
		if err := decodeExtents(r.extents, func(x format.Extent, volume int) {
			if x.Codec != codec.Zero { // bytes without an extent are zeros
				t.xs, t.volumes = append(t.xs, x), append(t.volumes, volume)
			}
			h.ask = h.ask || x.Codec == codec.Inline && (x.Skip > int64(len(x.Data)) || x.Size > int64(len(x.Data))-x.Skip)
		}); err != nil {
			return err
		}
	}
	if r.implied {
		return t.put(h, 0, 0, 0, 0)
	}
	if h.ask {
		t.xs, t.volumes, h.plain = nil, nil, false
	}
	empty := len(t.xs) == 0 && (e.Size == 0 || h.ask)
	if len(t.xs) == 1 && t.isShort(&t.xs[0], e.Size) {
		x := &t.xs[0]
		h.placed, h.volume, h.codec = true, t.volumes[0], t.codec(x.Codec)
		h.whole = x.Codec != codec.Raw && x.Skip == 0 && x.Unit == x.Size
		if t.has(h) {
			return t.put(h, x.Off, x.Len, e.Size, x.Skip)
		}
		h.placed, h.volume, h.codec, h.whole = false, 0, 0, false
	}
	if empty && e.Size <= math.MaxUint32 {
		return t.put(h, 0, 0, e.Size, 0)
	}
	h.long = true
	at, err := t.addLong(e.Size)
	if err != nil {
		return err
	}
	return t.put(h, at, 0, 0, 0)
}

// isShort reports whether an extent with all of a content of that size fits in a place.
func (t *tabler) isShort(x *format.Extent, size int64) bool {
	return x.Codec != codec.Inline && x.At == 0 && x.Size == size && x.Off < 1<<offBits && max(x.Len, x.Size, x.Skip) <= math.MaxUint32 &&
		(x.Codec != codec.Raw || isPlain(x, size))
}

// codec returns the number of a codec, or -1 for raw.
func (t *tabler) codec(name string) int {
	if name == codec.Raw {
		return -1
	}
	i := slices.Index(t.codecs, name)
	if i < 0 {
		i = len(t.codecs)
		t.codecs = append(t.codecs, name)
	}
	return i
}

// has reports whether there is room for a how that has a volume.
func (t *tabler) has(h how) bool {
	if len(t.hows) < maxPlacedHow {
		return true
	}
	_, ok := t.howOf[h]
	return ok
}

// put writes a place.
func (t *tabler) put(h how, off, stored, length, skip int64) error {
	n := t.lastHow
	if int(n) >= len(t.hows) || t.hows[n] != h {
		var ok bool
		if n, ok = t.howOf[h]; !ok {
			n = uint16(len(t.hows))
			t.hows = append(t.hows, h)
			t.howOf[h] = n
		}
		t.lastHow = n
	}
	b := binary.LittleEndian.AppendUint64(t.buf[:0], uint64(off)|uint64(n)<<offBits)
	b = binary.LittleEndian.AppendUint32(b, uint32(length))
	t.buf = b
	if !h.placed || h.codec < 0 {
		stored = 0
	}
	return errors.Join(t.places.write(b), t.stored.add(uint64(stored)), t.skips.add(uint64(skip)))
}

var zeros [tableBlock]byte

// addLong writes a record of where a content lies, and returns its offset.
func (t *tabler) addLong(size int64) (at int64, err error) {
	b := binary.LittleEndian.AppendUint64(nil, uint64(size))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(t.xs)))
	b = binary.LittleEndian.AppendUint32(b, 0)
	for i := range t.xs {
		x := &t.xs[i]
		off, stored, skip, volume, number := x.Off, x.Len, x.Skip, uint32(t.volumes[i]), uint32(noNumber)
		if x.Codec == codec.Inline {
			data := x.Data[x.Skip:][:x.Size]
			off, stored, skip, volume = t.longs.n, x.Size, 0, noNumber
			if err := t.longs.write(data); err != nil {
				return 0, err
			}
		} else if n := t.codec(x.Codec); n >= 0 {
			number = uint32(n)
		}
		for _, v := range []int64{x.At, x.Size, off, stored, skip} {
			b = binary.LittleEndian.AppendUint64(b, uint64(v))
		}
		b = binary.LittleEndian.AppendUint32(b, volume)
		b = binary.LittleEndian.AppendUint32(b, number)
	}
	if err := t.longs.write(zeros[:-t.longs.n&7]); err != nil {
		return 0, err
	}
	at = t.longs.n
	return at, t.longs.write(b)
}

// write writes the table, and returns its head. runs are the positions of digests in the pages
// that will be written after it.
func (t *tabler) write(w *binder, of Head, runs []sumRun) (tableHead, error) {
	h := tableHead{Format: of.Format, View: of.View, Param: of.Param, Objects: of.Bound.objects, Volumes: append([]Volume{}, of.Volumes...), Codecs: t.codecs,
		Rows: t.rows, Files: of.Files, Bytes: of.Bytes, Bits: max(bits.Len64(uint64(t.rows)/4)-1, 0), Digests: t.digests, Chunk: of.Chunk, How: t.hows,
		Bound: tableBound{Size: of.Bound.Size, ModTime: of.Bound.ModTime, Version: of.Bound.Version, Head: of.Bound.headSum, Tail: of.Bound.tailSum}}
	if err := w.write(zeros[:-w.off&(tableBlock-1)]); err != nil {
		return h, err
	}
	if err := t.group(); err != nil {
		return h, err
	}
	if err := t.groups.write(binary.LittleEndian.AppendUint64(t.buf[:0], uint64(t.names.n))); err != nil {
		return h, err
	}
	if t.times.n > 0 && t.times.short() {
		h.Since = t.times.least
	}
	if t.before == 0 || t.tooManyOf {
		t.sums.drop()
		runs = nil
	}
	h.Start = w.off
	c := &checker{w: w}
	for _, s := range []struct {
		at    *section
		has   bool
		write func(io.Writer) error
	}{
		{&h.Sections.Slots, true, func(w io.Writer) error { return t.hashes.writeSlots(w, h.Bits) }},
		{&h.Sections.Hashes, true, t.hashes.writeTo},
		{&h.Sections.Places, true, t.places.writeTo},
		{&h.Sections.Stored, t.stored.n > 0, t.stored.writeTo},
		{&h.Sections.Skips, t.skips.n > 0, t.skips.writeTo},
		{&h.Sections.Times, t.times.n > 0, t.times.writeTo},
		{&h.Sections.Firsts, t.firsts.n > 0, t.firsts.writeTo},
		{&h.Sections.Groups, true, t.groups.writeTo},
		{&h.Sections.Names, true, t.names.writeTo},
		{&h.Sections.Longs, true, t.longs.writeTo},
		{&h.Sections.Sums, t.sums.n > 0, t.sums.writeTo},
		{&h.Sections.Runs, len(runs) > 0, func(w io.Writer) error { return writeRuns(w, runs, t.before) }},
	} {
		if !s.has {
			continue
		}
		if err := c.section(s.at, s.write); err != nil {
			return h, err
		}
	}
	sums := make([]byte, 0, 4*len(c.sums))
	for _, sum := range c.sums {
		sums = binary.LittleEndian.AppendUint32(sums, sum)
	}
	h.Sum = crc32.ChecksumIEEE(sums)
	err := c.section(&h.Sections.Checks, func(w io.Writer) error {
		_, err := w.Write(sums)
		return err
	})
	h.Pages = w.off
	return h, err
}

// writeRuns writes where the runs of digests lie, and finally their total size.
func writeRuns(w io.Writer, runs []sumRun, all int64) error {
	for _, r := range append(runs, sumRun{before: all}) {
		b := binary.LittleEndian.AppendUint64(nil, uint64(r.before))
		b = binary.LittleEndian.AppendUint64(b, uint64(r.off))
		b = binary.LittleEndian.AppendUint32(b, r.sum)
		if _, err := w.Write(binary.LittleEndian.AppendUint32(b, 0)); err != nil {
			return err
		}
	}
	return nil
}

// appendTableHead encodes the head of a table, followed by what leads to it.
func appendTableHead(h tableHead) ([]byte, error) {
	b, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	n, sum := len(b), crc32.ChecksumIEEE(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(n))
	b = binary.LittleEndian.AppendUint32(b, sum)
	return append(b, tableMagic...), nil
}

// A checker writes sections and computes the checksum of each block.
type checker struct {
	w    *binder
	n    int // bytes in the block
	sum  uint32
	sums []uint32
}

func (c *checker) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		k := min(len(rest), tableBlock-c.n)
		c.sum = crc32.Update(c.sum, crc32.IEEETable, rest[:k])
		rest = rest[k:]
		if c.n += k; c.n == tableBlock {
			c.sums = append(c.sums, c.sum)
			c.n, c.sum = 0, 0
		}
	}
	return len(b), c.w.write(b)
}

// section writes a section and pads its last block.
func (c *checker) section(at *section, write func(io.Writer) error) error {
	at.Off = c.w.off
	b := bufio.NewWriterSize(c, 64<<10)
	if err := write(b); err != nil {
		return err
	}
	if err := b.Flush(); err != nil {
		return err
	}
	at.Len = c.w.off - at.Off
	_, err := c.Write(zeros[:-at.Len&(tableBlock-1)])
	return err
}

// A column has a number for each row. It is empty while all numbers are 0.
type column struct {
	spool
	width int64
	rows  int64
}

func (c *column) add(v uint64) error {
	c.rows++
	if v == 0 && c.n == 0 {
		return nil
	}
	for before := c.width * (c.rows - 1); c.n < before; {
		if err := c.write(zeros[:min(before-c.n, tableBlock)]); err != nil {
			return err
		}
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	return c.write(b[:c.width])
}

// times are the times of rows: nanoseconds since 1970, minus leastTime, so that 0 means no time.
type times struct {
	column
	least, most int64 // in seconds
	parts       bool  // some have fractions of a second
}

// leastTime is the least time in nanoseconds since 1970. Times must be later.
const leastTime = math.MinInt64

// add adds the time of a row, and reports whether there is room for it.
func (c *times) add(t time.Time) (ok bool, err error) {
	sec := t.Unix()
	if t.IsZero() || sec <= leastTime/1_000_000_000 || sec >= math.MaxInt64/1_000_000_000 {
		return false, c.column.add(0)
	}
	if c.n == 0 {
		c.least, c.most = sec, sec
	}
	c.least, c.most = min(c.least, sec), max(c.most, sec)
	c.parts = c.parts || t.Nanosecond() != 0
	return true, c.column.add(uint64(t.UnixNano()) - 1<<63)
}

// short reports whether seconds in 4 bytes suffice.
func (c *times) short() bool { return !c.parts && c.most-c.least <= math.MaxUint32 }

// writeTo writes the times in the encoding of the table.
func (c *times) writeTo(w io.Writer) error {
	return c.spool.writeTo(&timeWriter{w: w, of: c})
}

// A timeWriter converts times from the encoding of the spool.
type timeWriter struct {
	w    io.Writer
	of   *times
	rest []byte
	out  []byte
}

func (w *timeWriter) Write(b []byte) (int, error) {
	in := append(w.rest, b...)
	w.out = w.out[:0]
	for ; len(in) >= 8; in = in[8:] {
		v := binary.LittleEndian.Uint64(in)
		ns := int64(v + 1<<63)
		switch {
		case v == 0 && w.of.short():
			w.out = binary.LittleEndian.AppendUint32(w.out, 0)
		case v == 0:
			w.out = binary.LittleEndian.AppendUint64(w.out, 0)
		case w.of.short():
			w.out = binary.LittleEndian.AppendUint32(w.out, uint32(ns/1_000_000_000-w.of.least))
		default:
			w.out = binary.LittleEndian.AppendUint64(w.out, uint64(ns))
		}
	}
	w.rest = append(w.rest[:0], in...)
	_, err := w.w.Write(w.out)
	return len(b), err
}
