package kept

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/format/kit/sorter"
)

// A Head says which archive an index belongs to, and how it was read.
type Head struct {
	Format string            `json:"format"`
	View   string            `json:"view,omitempty"`
	Param  map[string]string `json:"param,omitempty"`
	Bound  Bound             `json:"bound,omitzero"`
	// Archive is the address of the archive. Only an index that stays on this machine has it.
	Archive string `json:"archive,omitempty"`

	// Counts and sizes of the archive, so that they need not be computed.
	Version string   `json:"version,omitempty"` // of the format
	Objects []string `json:"objects"`           // the archive's own, as Volume.Name
	Entries int64    `json:"entries"`
	Files   int64    `json:"files"`
	Dirs    int64    `json:"dirs"`
	Bytes   int64    `json:"bytes"`

	// Volumes are where contents lie.
	Volumes []Volume `json:"volumes,omitempty"`
	// Chunk is the number of content bytes per digest; 0 means no digests.
	Chunk int64 `json:"chunk,omitempty"`
	// Contents is the root of the archive's contents in hex, if each has a digest.
	Contents string `json:"contents,omitempty"`
	// Root is the root of the archive in hex: the BLAKE3 of all that indexes of equal archives have in
	// common, if the index has digests.
	Root string `json:"-"`
}

// Bound identifies the version of the archive that an index belongs to. Fields that are not known
// are zero.
type Bound struct {
	Size    int64     `json:"size"`
	ModTime time.Time `json:"mtime,omitzero"`
	Version string    `json:"version,omitempty"` // as the store reports it
	Head    string    `json:"head,omitempty"`    // digest of its first bytes
	Tail    string    `json:"tail,omitempty"`    // of its last ones, or of the list of its objects
	Whole   string    `json:"whole,omitempty"`   // of all of it, if it is short and an index was made with it

	// For programs in languages that have no BLAKE3.
	HeadSHA256  string `json:"head_sha256,omitempty"`
	TailSHA256  string `json:"tail_sha256,omitempty"`
	WholeSHA256 string `json:"whole_sha256,omitempty"`

	Objects []BoundObject `json:"objects,omitempty"` // all of a folder
}

// A BoundObject is one of the objects of a folder.
type BoundObject struct {
	Name    string    `json:"name"` // as Volume.Name
	Size    int64     `json:"size"`
	ModTime time.Time `json:"mtime,omitzero"`
	Version string    `json:"version,omitempty"`
}

// A Volume is an object that contents lie in: the archive if its name is empty, an object below the
// archive if it begins with a slash, or any other object if it is External.
type Volume struct {
	Name     string `json:"name"`
	External bool   `json:"external,omitempty"`
}

// Options of Build.
type Options struct {
	Scratch func() (sorter.Scratch, error)
	Memory  int64 // for rows that are sorted; 0 is 24 MiB
	// Digests yields the digests of the pieces of all contents, of Head.Chunk bytes each, in the
	// order of Entries. A piece that could not be verified has zeros. They are read while Entries
	// is. Without Head.Chunk it is not used.
	Digests iter.Seq2[[DigestLen]byte, error]
	// Contents returns Head.Contents, when all Digests were read.
	Contents func() (string, error)
	// Stored is called for units that are to have points, from which they can be decoded without
	// the bytes before. If it is nil, no units have points.
	Stored StoredBytes
	// Pieces are those of stored bytes, or nil.
	Pieces iter.Seq2[Piece, error]
}

// DigestLen is the length of the digest of a piece, which is a BLAKE3.
const DigestLen = 32

const (
	pageStored = 12 << 10 // about how long a page of rows becomes; a third longer without digests
	pageLong   = 1 << 20  // the limit for a page, except for its last row
	pageRows   = 2048
	pageNames  = 4 << 20 // bytes of names; a page stores few of them if they are alike
	orderItems = 8192
	proofItems = 512
)

// Build writes the index of the archive called name, that r has open, to w.
func Build(ctx context.Context, w io.Writer, r format.Reader, name string, head Head, o Options) (Head, error) {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return head, err
	}
	defer z.Close()
	memory := cmp.Or(o.Memory, 12<<20)
	again := func([]byte) error { return nil } // the last one counts
	b := &builder{ctx: ctx, r: r, name: name, head: head, w: &binder{w: w, z: z, sealed: head.Chunk > 0}, numbers: map[Volume]int{}, stored: o.Stored, units: map[unit]struct{}{}, algos: map[string]struct{}{},
		sort:    sorter.New(sorter.Options{Memory: memory, Scratch: o.Scratch, Duplicate: again}),
		implied: sorter.New(sorter.Options{Memory: 8 << 20, Scratch: o.Scratch, Duplicate: again})}
	defer b.sort.Close()
	defer b.implied.Close()
	if err := b.w.write([]byte(magic)); err != nil {
		return head, err
	}
	b.pieces = pieceDigests{w: b.w}
	if head.Chunk > 0 {
		next, stop := iter.Pull2(o.Digests)
		defer stop()
		b.pieces.next = next
	}
	if err := b.gather(); err != nil {
		return head, err
	}
	if head.Chunk > 0 {
		err := b.pieces.end()
		if err == nil && o.Contents != nil {
			b.head.Contents, err = o.Contents()
		}
		if err != nil {
			return head, err
		}
	}
	var root rootPage
	rows, err := b.rows()
	if err != nil {
		return head, err
	}
	order, err := b.orders()
	if err != nil {
		return head, err
	}
	points, err := b.points()
	if err != nil {
		return head, err
	}
	var stored []ref
	if o.Pieces != nil {
		if stored, err = b.storedPieces(o.Pieces); err != nil {
			return head, err
		}
	}
	for _, s := range []struct {
		into *tree
		refs []ref
	}{{&root.Stored, stored}, {&root.Points, points}, {&root.Proofs, b.pieces.refs}, {&root.Order, order}, {&root.Rows, rows}} {
		if *s.into, err = b.w.nodes(s.refs); err != nil {
			return head, err
		}
	}
	root.Head, root.Digests, root.Sealed = b.head, slices.Sorted(maps.Keys(b.algos)), b.w.sealed
	err = b.finish(root)
	return b.head, err
}

// rootPage is the content of the root.
type rootPage struct {
	Head
	Rows    tree `json:"rows"`
	Order   tree `json:"order,omitzero"`
	Listing tree `json:"listing,omitzero"` // of edition 2: all rows once more, in the archive's order
	Proofs  tree `json:"proofs,omitzero"`
	Points  tree `json:"points,omitzero"`
	Stored  tree `json:"stored,omitzero"`
	// Digests are the algorithms of the digests of entries.
	Digests []string `json:"digests,omitempty"`
	// Sealed says that nodes have the BLAKE3 of each page.
	Sealed bool `json:"sealed,omitempty"`
}

// A bond is the second line of the root: what differs between indexes of copies of an archive.
type bond struct {
	Bound   Bound  `json:"bound"`
	Archive string `json:"archive,omitempty"`
}

// finish writes the root, and finally
//
//	u64 where the root is, u32 its length, u32 its length, u32 CRC-32 of it,
//	u32 CRC-32 of the 20 bytes before, "holdall3"
func (b *builder) finish(root rootPage) error {
	apart, err := json.Marshal(bond{root.Bound, root.Archive})
	if err != nil {
		return err
	}
	root.Bound, root.Archive = Bound{}, ""
	text, err := json.Marshal(root)
	if err != nil {
		return err
	}
	if root.Sealed {
		b.head.Root = hex.EncodeToString([]byte(hashOf(text)))
	}
	text = append(append(text, '\n'), apart...)
	r, err := b.w.page(text, nil, 0, 1, false)
	if err != nil {
		return err
	}
	f := binary.LittleEndian.AppendUint64(nil, uint64(r.off))
	f = binary.LittleEndian.AppendUint32(f, uint32(r.stored))
	f = binary.LittleEndian.AppendUint32(f, uint32(r.long))
	f = binary.LittleEndian.AppendUint32(f, r.sum)
	f = binary.LittleEndian.AppendUint32(f, crc32.ChecksumIEEE(f))
	return b.w.write(append(f, endMagic...))
}

type builder struct {
	ctx  context.Context
	r    format.Reader
	name string
	head Head
	w    *binder
	// Entries are often in the order of rows already. The directories that they imply are not,
	// and would break that order.
	sort, implied *sorter.Sorter

	numbers  map[Volume]int
	lastName string // of the object of the last call of number
	lastOf   int

	xs      []format.Extent // of one entry
	volumes []int

	stored   StoredBytes
	units    map[unit]struct{} // that are to have points
	lastUnit unit

	pieces pieceDigests
	rank   int64
	sorted bool                // the order of rows is that of the archive
	algos  map[string]struct{} // of digests
	order  []uint32            // by rank: the number of the row plus 1, or 0 for none
}

// number returns the number of the volume of an extent. ok is false if an index cannot refer to it.
func (b *builder) number(x *format.Extent) (n int, ok bool) {
	if !x.External && b.lastName != "" && x.Object == b.lastName {
		return b.lastOf, true
	}
	v := Volume{x.Object, x.External}
	if x.Codec == codec.Zero && x.Object == "" { // it lies nowhere
		v = Volume{}
	} else if !x.External {
		rest, ok := strings.CutPrefix(x.Object, b.name)
		if !ok || rest != "" && rest[0] != '/' {
			return 0, false
		}
		v.Name = rest
	}
	n, ok = b.numbers[v]
	if !ok {
		n = len(b.head.Volumes)
		b.head.Volumes = append(b.head.Volumes, v)
		b.numbers[v] = n
	}
	if !x.External {
		b.lastName, b.lastOf = x.Object, n
	}
	return n, true
}

// A batch is rows on their way to the sorter.
type batch struct {
	rows    []row
	entries []format.Entry
	keys    [][]byte
	values  [][]byte
	room    []byte // of both
	err     error
}

const batchRows = 512

// mostSeen is how many directories are remembered, so that each is implied once or a few times.
const mostSeen = 1 << 14

func newBatch() *batch {
	return &batch{rows: make([]row, 0, batchRows), entries: make([]format.Entry, 0, batchRows)}
}

// gather passes all rows to the sorter. Reading the archive, encoding rows and sorting them each
// have their own goroutine.
func (b *builder) gather() error {
	b.head.Volumes = nil
	lastDir, seen := "", map[string]bool{}
	return pipe.Ordered(b.ctx, b.batches(), 1, func(_ context.Context, t *batch) { t.encode() }, func(t *batch) error {
		if t.err != nil {
			return t.err
		}
		for i := range t.rows {
			if err := b.sort.Add(t.keys[i], t.values[i]); err != nil {
				return err
			}
			if dir := t.rows[i].dir; dir != lastDir && dir != "" && !seen[dir] {
				if len(seen) == mostSeen {
					clear(seen)
				}
				lastDir, seen[dir] = dir, true
				if err := b.imply(dir); err != nil {
					return err
				}
			}
		}
		return nil
	}, func(*batch) {})
}

// batches yields the rows of all entries.
func (b *builder) batches() iter.Seq2[*batch, error] {
	return pipe.Told(func(tell func(*batch) error) error {
		run := b.r.Can().Run
		t := newBatch()
		for e, err := range b.r.Entries(b.ctx) {
			if err == nil {
				err = check(&e)
			}
			if err == nil && b.rank == maxRows {
				err = fmt.Errorf("more than %d entries", int64(maxRows))
			}
			if err != nil {
				return err
			}
			t.entries = append(t.entries, e)
			t.rows = append(t.rows, row{place: placeOf(e.Name), entry: &t.entries[len(t.rows)]})
			r := &t.rows[len(t.rows)-1]
			if err := b.locate(r, run); err != nil {
				return err
			}
			r.rank = b.rank
			b.rank++
			if n := Pieces(r.entry, b.head.Chunk); n > 0 {
				if err := b.pieces.take(r, n); err != nil {
					return err
				}
			}
			if len(t.rows) == batchRows {
				if err := tell(t); err != nil {
					return err
				}
				t = newBatch()
			}
		}
		if len(t.rows) == 0 {
			return nil
		}
		return tell(t)
	})
}

// encode encodes rows as keys and values.
func (t *batch) encode() {
	var d record
	ends := make([]int, 0, 2*len(t.rows))
	for i := range t.rows {
		r := &t.rows[i]
		from := len(t.room)
		t.room = r.appendKey(t.room)
		ends = append(ends, len(t.room))
		d.take(r)
		t.room = d.append(t.room)
		ends = append(ends, len(t.room))
		if n := len(t.room) - from; n > maxPage/4 { // attributes, or a name, of megabytes
			t.err = fmt.Errorf("%s: %d bytes in an index", format.Escape(clip(r.entry.Name)), n)
			return
		}
	}
	t.keys, t.values = make([][]byte, len(t.rows)), make([][]byte, len(t.rows))
	at := 0
	for i := range t.rows {
		t.keys[i], t.values[i], at = t.room[at:ends[2*i]], t.room[ends[2*i]:ends[2*i+1]], ends[2*i+1]
	}
}

func clip(s string) string { return s[:min(len(s), 64)] }

// locate sets where a row's content lies.
func (b *builder) locate(r *row, run func(format.Entry) (format.Extent, bool)) error {
	e := *r.entry
	if run != nil {
		if x, ok := run(e); ok && isPlain(&x, e.Size) && !x.External {
			if n, ok := b.number(&x); ok {
				r.one, r.off, r.volume = true, x.Off, n
				return nil
			}
		}
	}
	if e.Fault == nil && (!e.Kind.HasContent() || e.Size == 0) {
		return nil
	}
	b.xs, b.volumes = b.xs[:0], b.volumes[:0]
	inline := 0
	for x, err := range b.r.Extents(b.ctx, e, 0, e.Size) {
		if err != nil {
			if b.ctx.Err() != nil {
				return context.Cause(b.ctx)
			}
			r.elsewhere = true // reading the entry will return the error
			return nil
		}
		n, ok := b.number(&x)
		if x.Codec == codec.Inline {
			inline += len(x.Data)
		}
		if r.elsewhere = !ok || x.Make != nil || inline > maxInline || len(b.xs) == maxExtents || x.At < 0 || x.Size < 0 || x.Off < 0 || x.Len < 0 || x.Skip < 0 || x.Unit < 0 ||
			x.Off > math.MaxInt64-x.Len || x.At > math.MaxInt64-x.Size; r.elsewhere {
			return nil
		}
		b.xs, b.volumes = append(b.xs, x), append(b.volumes, n)
		b.note(&x, n)
	}
	if len(b.xs) == 1 && isPlain(&b.xs[0], e.Size) {
		r.one, r.off, r.volume = true, b.xs[0].Off, b.volumes[0]
		return nil
	}
	r.extents = appendExtents(nil, b.xs, b.volumes)
	return nil
}

// imply adds dir and all directories above it as implied directories.
func (b *builder) imply(dir string) error {
	var key, value []byte
	var d record
	for at := 0; ; at++ {
		k := strings.IndexByte(dir[at:], '/')
		if at += k; k < 0 {
			at = len(dir)
		}
		r := row{place: placeOf(dir[:at]), implied: true, entry: &format.Entry{Kind: format.Dir}}
		r.base += "/"
		d.take(&r)
		key, value = r.appendKey(key[:0]), d.append(value[:0])
		if err := b.implied.Add(key, value); err != nil {
			return err
		}
		if at == len(dir) {
			return nil
		}
	}
}

// merged yields the rows of both sorters, in order.
func (b *builder) merged() iter.Seq2[sorter.Row, error] {
	return func(yield func(sorter.Row, error) bool) {
		next, stop := iter.Pull2(b.implied.Sorted())
		defer stop()
		dir, err, more := next()
		for row, rerr := range b.sort.Sorted() {
			for more && err == nil && rerr == nil && bytes.Compare(dir.Key, row.Key) < 0 {
				if !yield(dir, nil) {
					return
				}
				dir, err, more = next()
			}
			if err = cmp.Or(err, rerr); !yield(row, err) || err != nil {
				return
			}
		}
		for more && yield(dir, err) && err == nil {
			dir, err, more = next()
		}
	}
}

// rows writes the pages of rows.
func (b *builder) rows() ([]ref, error) {
	b.order = make([]uint32, b.rank)
	b.sorted = true
	var (
		w            = rowPages{w: b.w, chunk: b.head.Chunk}
		d            record
		key, lastKey []byte
		number       int64
		own          []string // names of entries that the next names may begin with
		lastRank     int64    = -1
	)
	for at, err := range b.merged() {
		if err == nil && number&0xfff == 0 {
			err = context.Cause(b.ctx)
		}
		if err == nil {
			err = d.read(at.Value)
		}
		if err != nil {
			return nil, err
		}
		name := string(d.name)
		for len(own) > 0 && !strings.HasPrefix(name, own[len(own)-1]) {
			own = own[:len(own)-1]
		}
		if d.how.is(howImplied) && slices.Contains(own, name[:len(name)-1]) {
			continue // it is an entry
		}
		if number == maxRows {
			return nil, fmt.Errorf("more than %d rows", int64(maxRows))
		}
		key = append(key[:0], at.Key...)
		if err := w.add(&d, key[:min(sorter.SharedLen(lastKey, key)+1, len(key))]); err != nil {
			return nil, err
		}
		if number++; !d.how.is(howImplied) {
			if !d.how.is(howWhole) {
				own = append(own, name)
			}
			b.count(&d)
			rank := d.v[colRank]
			b.order[rank] = uint32(number)
			b.sorted = b.sorted && rank > lastRank
			lastRank = rank
		}
		key, lastKey = lastKey, key
	}
	err := w.flush() // it adds the last page
	return w.refs, err
}

func (b *builder) count(d *record) {
	b.head.Entries++
	if d.how.algo != "" {
		b.algos[d.how.algo] = struct{}{}
	}
	switch kind := d.how.kind(); {
	case kind == format.Dir:
		b.head.Dirs++
	case kind.HasContent():
		b.head.Files++
		b.head.Bytes += d.v[colSize]
	}
}
