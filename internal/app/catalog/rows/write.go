package rows

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/base/blake3"
	"github.com/holdall/holdall/internal/base/scan"
)

const (
	magic     = "holdall run 1\n"
	endMagic  = "holdrun1"
	footerLen = 24

	nodeRefs = 4096 // of an index or a node
)

// A root says what a run has.
type root struct {
	Rows   int64    `json:"rows"`
	Names  int64    `json:"names"`
	Pages  int64    `json:"pages"`
	Filter [2]int64 `json:"filter"` // where it begins, and how many blocks it has
	Levels int      `json:"levels"` // 1: the index has the pages; 2: the nodes that have them
	Sums   *sums    `json:"sums,omitempty"`
}

// sums are BLAKE3 digests of pages. They lie apart from the refs, since most readers need none.
type sums struct {
	At     int64    `json:"at"`     // where the blocks begin, one after the other
	Per    int      `json:"per"`    // how many digests a block has, unless it is the last
	Blocks [][]byte `json:"blocks"` // the digest of each
	Nodes  [][]byte `json:"nodes,omitempty"`
	Each   int      `json:"each"` // how many pages a node has, unless it is the last
}

const sumLen = 32

// perBlock returns how many digests a block of sums has, so that there are not many.
func perBlock(pages int64) int {
	per := 256
	for pages > int64(per)*512 {
		per *= 2
	}
	return per
}

// A Summary is what a catalogue records of a run.
type Summary struct {
	Size int64 `json:"size"`
	Tail int64 `json:"tail"` // bytes at its end without which nothing is found
	Rows int64 `json:"rows"`
	// Sum is the BLAKE3 of the end, in hex. Old runs have none.
	Sum string `json:"sum,omitempty"`
}

// A ref says where a page or a node is.
type ref struct {
	first string // a text that is not greater than its first name, and greater than all names before
	off   int64
	n     int
	again bool // the name before is its first name, too
	k     int  // its number among all pages, or among all nodes
}

func appendRefs(b []byte, refs []ref) []byte {
	if len(refs) == 0 {
		return binary.AppendUvarint(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(refs)))
	b = binary.AppendUvarint(b, uint64(refs[0].off))
	last := ""
	for _, r := range refs {
		bit := uint64(0)
		if r.again {
			bit = 1
		}
		shared := sorter.SharedLen(last, r.first)
		b = binary.AppendUvarint(b, uint64(r.n)<<1|bit)
		b = scan.AppendText(binary.AppendUvarint(b, uint64(shared)), r.first[shared:])
		last = r.first
	}
	return b
}

// parseRefs parses refs to what lies in [from, to). The first is of page or node k.
func parseRefs(c *scan.Scanner, k int, from, to int64) (refs []ref, err error) {
	n := c.Count()
	if n == 0 {
		if c.Bad {
			return nil, errPage
		}
		return nil, nil
	}
	off, last := c.Size(), ""
	refs = make([]ref, 0, min(n, nodeRefs))
	for range n {
		size := c.Uvarint()
		shared := c.Uvarint()
		if c.Bad || shared > uint64(len(last)) {
			return nil, errPage
		}
		first := last[:shared] + string(c.Text())
		r := ref{first: first, off: off, n: int(size >> 1 & (1<<40 - 1)), again: size&1 != 0, k: k + len(refs)}
		if c.Bad || off < from || size>>1 > mostPage || int64(r.n) > to-off || len(first) > MostName || len(refs) > 0 && first < last {
			return nil, errPage
		}
		refs = append(refs, r)
		off, last = off+int64(r.n), first
	}
	return refs, nil
}

// mostPage is how long a page or a node can be: a last row with headers, and tables.
const mostPage = 64 << 20

// A Writer writes a run.
type Writer struct {
	w     io.Writer
	about func(ArchiveID) (Archive, bool)
	page  pageWriter
	root  root
	sums  []byte // of pages
	at    int64
	refs  []ref
	last  Row
	bits  [][]byte // of the filter
	err   error
	nodes int // how many refs a node has
}

// NewWriter begins a run of at most so many rows. about describes archives, as far as it is known.
func NewWriter(w io.Writer, most int64, about func(ArchiveID) (Archive, bool)) *Writer {
	x := &Writer{w: w, about: about, nodes: nodeRefs}
	for range filterBlocks(most) {
		x.bits = append(x.bits, nil)
	}
	x.write([]byte(magic))
	return x
}

func (w *Writer) write(b []byte) {
	if w.err == nil {
		_, w.err = w.w.Write(b)
		w.at += int64(len(b))
	}
}

// Add adds a row. They must come in their order; a row that equals the one before is left out.
func (w *Writer) Add(r *Row) error {
	if w.err != nil {
		return w.err
	}
	if w.err = r.check(); w.err != nil {
		return w.err
	}
	again := false
	if w.root.Rows > 0 {
		switch c := w.last.Compare(r); {
		case c > 0:
			w.err = fmt.Errorf("%s comes before %s", format.Escape(r.Name), format.Escape(w.last.Name))
			return w.err
		case c == 0:
			return nil
		}
		again = w.last.Name == r.Name
	}
	if w.page.n == 0 {
		w.refs = append(w.refs, ref{first: between(w.last.Name, r.Name), again: again})
	}
	if !again {
		w.root.Names++
		if len(w.bits) > 0 {
			h := hash(r.Name)
			i := blockOf(h, len(w.bits))
			if w.bits[i] == nil {
				w.bits[i] = make([]byte, filterBlock-crcLen, filterBlock)
			}
			setBits(w.bits[i], h)
		}
	}
	w.root.Rows++
	w.page.add(r)
	w.last = *r
	if w.page.full() {
		w.flush()
	}
	return w.err
}

// between returns a short text that is greater than a, and not greater than b.
func between(a, b string) string {
	if n := sorter.SharedLen(a, b); n < len(b) {
		return b[:n+1]
	}
	return b
}

func (w *Writer) flush() {
	if w.page.n == 0 {
		return
	}
	b := w.page.page(w.about)
	r := &w.refs[len(w.refs)-1]
	r.off, r.n = w.at, len(b)
	w.sums = append(w.sums, sumOf(b)...)
	w.root.Pages++
	w.write(b)
}

func sumOf(b []byte) []byte {
	sum := blake3.Sum256(b)
	return sum[:]
}

// Close ends the run, and returns what the end of the file is.
func (w *Writer) Close() (s Summary, tail []byte, err error) {
	w.flush()
	w.root.Sums = &sums{At: w.at, Per: perBlock(w.root.Pages), Each: w.nodes}
	for b := range slices.Chunk(w.sums, w.root.Sums.Per*sumLen) {
		w.root.Sums.Blocks = append(w.root.Sums.Blocks, sumOf(b))
		w.write(b)
	}
	w.root.Filter = [2]int64{w.at, int64(len(w.bits))}
	var filter []byte // if it is part of the tail
	empty := make([]byte, filterBlock-crcLen, filterBlock)
	for _, b := range w.bits {
		if b == nil {
			b = empty
		}
		w.write(sealed(b))
		if b = b[:filterBlock]; len(w.bits) <= mostNear {
			filter = append(filter, b...)
		}
	}
	w.root.Levels = 1
	refs := w.refs
	if len(refs) > w.nodes {
		w.root.Levels, refs, filter = 2, nil, nil
		for from := 0; from < len(w.refs); from += w.nodes {
			some := w.refs[from:min(from+w.nodes, len(w.refs))]
			b := sealed(Pack(appendRefs(nil, some)))
			refs = append(refs, ref{first: some[0].first, off: w.at, n: len(b), again: some[0].again})
			w.root.Sums.Nodes = append(w.root.Sums.Nodes, sumOf(b))
			w.write(b)
		}
	}
	start := w.at
	index := Pack(scan.AppendText(appendRefs(nil, refs), w.last.Name))
	text, err := json.Marshal(w.root)
	if err != nil {
		return s, nil, err
	}
	tail = append(binary.AppendUvarint(nil, uint64(len(index))), index...)
	tail = append(tail, text...)
	sum := crc32.ChecksumIEEE(tail)
	tail = binary.LittleEndian.AppendUint64(tail, uint64(start))
	tail = binary.LittleEndian.AppendUint32(tail, uint32(len(text)))
	tail = append(binary.LittleEndian.AppendUint32(tail, sum), endMagic...)
	w.write(tail)
	tail = append(filter, tail...)
	return Summary{Size: w.at, Tail: int64(len(tail)), Rows: w.root.Rows, Sum: hex.EncodeToString(sumOf(tail))}, tail, w.err
}
