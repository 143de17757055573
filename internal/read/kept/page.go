package kept

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sort"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/base/blake3"
	"github.com/holdall/holdall/internal/base/scan"
	"github.com/holdall/holdall/store"
)

const (
	magic     = "holdall index 3\n"
	endMagic  = "holdall3"
	footerLen = 32
	// maxPage is the longest page that is accepted. A page has at least one row, which may be as
	// long as the sorter accepts.
	maxPage = 16 << 20
	// maxRows is the maximum number of rows. Row numbers have four bytes.
	maxRows = 1<<32 - 1
	// maxDepth is the maximum number of nodes above a page.
	maxDepth = 8
)

// Is reports whether an object is an index, of any edition, as far as its ends show.
func Is(p format.Probe) bool {
	return bytes.HasPrefix(p.Head, []byte("holdall index ")) || bytes.HasSuffix(p.Tail, []byte(endMagic)) || bytes.HasSuffix(p.Tail, []byte(endMagic2))
}

// A ref is where a page or a node is, and what is in it.
type ref struct {
	first  []byte // no key in it is less than this one
	from   int64  // the number of its first item
	items  int64
	off    int64
	stored int
	long   int // decompressed
	sum    uint32
	hash   string // BLAKE3 of its stored bytes, if the index has those
}

// pressed is the decompressed length of a page that is compressed, and otherwise 0.
func (r *ref) pressed() int {
	if r.long == r.stored {
		return 0
	}
	return r.long
}

// refLeast is the minimum size of a ref in a node.
const refLeast = 9

// appendNode appends a node:
//
//	uvar number of the first item, uvar offset of the first child
//	for each child: uvar shared with the first key of the child before, uvar length,
//	the rest of the first key, uvar items, uvar length, uvar decompressed or 0, u32 CRC-32, and
//	if the index is sealed, the BLAKE3
func appendNode(b []byte, refs []ref) []byte {
	b = binary.AppendUvarint(b, uint64(refs[0].from))
	b = binary.AppendUvarint(b, uint64(refs[0].off))
	var last []byte
	for i := range refs {
		r := &refs[i]
		k := sorter.SharedLen(last, string(r.first))
		b = binary.AppendUvarint(b, uint64(k))
		b = scan.AppendText(b, string(r.first[k:]))
		b = binary.AppendUvarint(b, uint64(r.items))
		b = binary.AppendUvarint(b, uint64(r.stored))
		b = binary.AppendUvarint(b, uint64(r.pressed()))
		b = append(binary.LittleEndian.AppendUint32(b, r.sum), r.hash...)
		last = r.first
	}
	return b
}

var errNode = errors.New("invalid node")

func decodeNode(b []byte, sealed bool) ([]ref, error) {
	c := &scan.Scanner{B: b}
	from, off := c.Size(), c.Size()
	var refs []ref
	var last []byte
	keys := 0
	for c.At < len(b) && !c.Bad {
		k := c.Uvarint()
		rest := c.Text()
		if keys += int(min(k, maxPage)) + len(rest); c.Bad || k > uint64(len(last)) || keys > maxPage {
			return nil, errNode
		}
		r := ref{from: from, off: off}
		r.first = append(append(make([]byte, 0, int(k)+len(rest)), last[:k]...), rest...)
		r.items = c.Size()
		stored, long := c.Size(), c.Size()
		sum := c.Bytes(4)
		if sealed {
			r.hash = string(c.Bytes(DigestLen))
		}
		if c.Bad || r.items <= 0 || from+r.items > maxItems || stored > maxPage || long > maxPage || off+stored < 0 || string(r.first) < string(last) {
			return nil, errNode
		}
		r.stored, r.long, r.sum = int(stored), int(cmp.Or(long, stored)), binary.LittleEndian.Uint32(sum)
		refs = append(refs, r)
		last, from, off = r.first, from+r.items, off+stored
	}
	if c.Bad || len(refs) == 0 {
		return nil, errNode
	}
	return refs, nil
}

// maxItems is the maximum number of digests.
const maxItems = 1 << 48

// A tree leads to pages by their first keys, or by the numbers of their items.
type tree struct {
	Depth int  `json:"depth"` // nodes above a page; 0 is a tree of no pages
	Top   root `json:"top"`
}

// A root is where a topmost node is.
type root struct {
	Items  int64  `json:"items"`
	Off    int64  `json:"offset"`
	Stored int    `json:"stored"`
	Long   int    `json:"length"`
	Sum    uint32 `json:"crc32"`
	Hash   string `json:"blake3,omitempty"` // in hex
	OldSum uint32 `json:"crc32c,omitzero"`  // of edition 2
}

func (r root) ref() ref {
	hash, _ := hex.DecodeString(r.Hash) // if it is none, no page has it
	return ref{items: r.Items, off: r.Off, stored: r.Stored, long: r.Long, sum: r.Sum | r.OldSum, hash: string(hash)}
}

// Error says what is wrong with an index.
type Error struct {
	Name string
	Off  int64 // -1 if it has no place
	Err  error
}

func (e *Error) Error() string {
	if e.Off < 0 {
		return fmt.Sprintf("%s: index: %v", format.Escape(e.Name), e.Err)
	}
	return fmt.Sprintf("%s: index: at %d: %v", format.Escape(e.Name), e.Off, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// pages reads pages of an index.
type pages struct {
	obj  store.Object
	name string
	size int64
	old  bool // it is of edition 2

	sealed  bool // pages have a BLAKE3
	trusted bool // which must be right

	tail   []byte // the end of the index, which was read to open it
	tailAt int64
}

func (p *pages) fail(off int64, err error) error { return &Error{Name: p.name, Off: off, Err: err} }

func (p *pages) stored(ctx context.Context, off int64, n int) ([]byte, error) {
	if off < 0 || n < 0 || off+int64(n) > p.size {
		return nil, p.fail(off, fmt.Errorf("%d bytes, expected to end before %d", n, p.size))
	}
	if off >= p.tailAt {
		return p.tail[off-p.tailAt:][:n], nil
	}
	b := make([]byte, n)
	if err := p.obj.ReadAt(ctx, b, off); err != nil {
		return nil, p.fail(off, err)
	}
	return b, nil
}

// page reads and decompresses the page at r.
func (p *pages) page(ctx context.Context, r *ref, dst []byte) ([]byte, error) {
	b, err := p.stored(ctx, r.off, r.stored)
	if err != nil {
		return nil, err
	}
	return p.unpack(r, b, dst)
}

func (p *pages) checksum(b []byte) uint32 {
	if p.old {
		return crc32.Checksum(b, castagnoli)
	}
	return crc32.ChecksumIEEE(b)
}

func hashOf(b []byte) string {
	sum := blake3.Sum256(b)
	return string(sum[:])
}

// unpack compares a page with its checksum, and decompresses it. A page that is not compressed is
// returned as it is.
func (p *pages) unpack(r *ref, stored, dst []byte) ([]byte, error) {
	if got := p.checksum(stored); got != r.sum {
		return nil, p.fail(r.off, fmt.Errorf("a page is damaged: expected CRC-32 %08x, found %08x", r.sum, got))
	}
	if p.trusted && hashOf(stored) != r.hash {
		return nil, p.fail(r.off, errors.New("a page is not what was signed"))
	}
	if r.pressed() == 0 && !p.old {
		return stored, nil
	}
	z, _ := codec.Lookup(codec.Zstd)
	b, err := z.Append(dst[:0], stored, r.long)
	if err != nil {
		return nil, p.fail(r.off, fmt.Errorf("a page: %w", err))
	}
	return b, nil
}

// A shelf is a tree that keeps the nodes that were read.
type shelf struct {
	p *pages
	t tree

	mu    sync.Mutex
	nodes map[int64][]ref
	held  int
}

// maxNodes is how many refs of nodes are kept. If there are more, all are dropped at once.
const maxNodes = 200_000

func (s *shelf) node(ctx context.Context, r *ref) ([]ref, error) {
	s.mu.Lock()
	refs, ok := s.nodes[r.off]
	s.mu.Unlock()
	if ok {
		return refs, nil
	}
	b, err := s.p.page(ctx, r, nil)
	if err != nil {
		return nil, err
	}
	refs, err = decodeNode(b, s.p.sealed)
	if err == nil {
		if last := refs[len(refs)-1]; refs[0].from != r.from || last.from+last.items != r.from+r.items || last.off+int64(last.stored) > s.p.size {
			err = errNode
		}
	}
	if err != nil {
		return nil, s.p.fail(r.off, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held += len(refs); s.held > maxNodes || s.nodes == nil {
		s.nodes, s.held = map[int64][]ref{}, len(refs)
	}
	s.nodes[r.off] = refs
	return refs, nil
}

// A step is a node on the path to a page, and the child that leads on.
type step struct {
	refs []ref
	at   int
}

// find returns the path to the last page for which before is false, or to the first page. before
// reports whether the ref is after what is searched for.
func (s *shelf) find(ctx context.Context, before func(*ref) bool) ([]step, error) {
	if s.t.Depth == 0 {
		return nil, nil
	}
	steps := make([]step, 0, s.t.Depth)
	top := s.t.Top.ref()
	r := &top
	for range s.t.Depth {
		refs, err := s.node(ctx, r)
		if err != nil {
			return nil, err
		}
		i := max(sort.Search(len(refs), func(i int) bool { return before(&refs[i]) })-1, 0)
		steps = append(steps, step{refs, i})
		r = &refs[i]
	}
	return steps, nil
}

// findKey finds the page that has the first key not less than key, or the one before.
func (s *shelf) findKey(ctx context.Context, key []byte) ([]step, error) {
	return s.find(ctx, func(r *ref) bool { return string(r.first) > string(key) })
}

// findItem finds the page that has an item.
func (s *shelf) findItem(ctx context.Context, n int64) ([]step, error) {
	return s.find(ctx, func(r *ref) bool { return r.from > n })
}

// next goes to the next page, and reports whether there is one.
func (s *shelf) next(ctx context.Context, steps []step) (bool, error) {
	for i := len(steps) - 1; i >= 0; i-- {
		if steps[i].at+1 == len(steps[i].refs) {
			continue
		}
		steps[i].at++
		for i++; i < len(steps); i++ {
			refs, err := s.node(ctx, &steps[i-1].refs[steps[i-1].at])
			if err != nil {
				return false, err
			}
			steps[i] = step{refs, 0}
		}
		return true, nil
	}
	return false, nil
}

func leaf(steps []step) *ref {
	last := steps[len(steps)-1]
	return &last.refs[last.at]
}

// A binder writes consecutive pages, and the nodes that lead to them.
type binder struct {
	w   io.Writer
	off int64
	z   *zstd.Encoder
	buf []byte
	// sealed says that pages get a BLAKE3.
	sealed bool
}

func (w *binder) write(b []byte) error {
	n, err := w.w.Write(b)
	w.off += int64(n)
	return err
}

// page writes a page of items, beginning with number from. With press, it is compressed if it
// becomes shorter.
func (w *binder) page(b, first []byte, from, items int64, press bool) (ref, error) {
	long := len(b)
	if long > maxPage {
		return ref{}, fmt.Errorf("a page of %d bytes, expected at most %d", long, maxPage)
	}
	if press {
		if w.buf = w.z.EncodeAll(b, w.buf[:0]); len(w.buf) < long {
			b = w.buf
		}
	}
	r := ref{first: first, from: from, items: items, off: w.off, stored: len(b), long: long, sum: crc32.ChecksumIEEE(b)}
	if w.sealed {
		r.hash = hashOf(b)
	}
	return r, w.write(b)
}

// nodeLen is about how long a node becomes.
const nodeLen = 4 << 10

// nodes writes the nodes above pages.
func (w *binder) nodes(refs []ref) (tree, error) {
	if len(refs) == 0 {
		return tree{}, nil
	}
	for depth := 1; ; depth++ {
		var above []ref
		for len(refs) > 0 {
			n, room := 0, nodeLen
			for n < len(refs) && (n < 2 || room > 0) {
				room -= refLeast + len(refs[n].hash) + len(refs[n].first)/2 + 5
				n++
			}
			last := refs[n-1]
			r, err := w.page(appendNode(nil, refs[:n]), refs[0].first, refs[0].from, last.from+last.items-refs[0].from, false)
			if err != nil {
				return tree{}, err
			}
			above, refs = append(above, r), refs[n:]
		}
		if len(above) == 1 {
			a := above[0]
			return tree{depth, root{Items: a.items, Off: a.off, Stored: a.stored, Long: a.long, Sum: a.sum, Hash: hex.EncodeToString([]byte(a.hash))}}, nil
		}
		refs = above
	}
}
