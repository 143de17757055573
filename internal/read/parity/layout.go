package parity

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sort"

	"github.com/zeebo/xxh3"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/parity/gf16"
)

// Suffix is appended to the name of an archive to get the name of its parity file.
const Suffix = ".parity"

// Is reports whether an object is parity, as far as its ends show.
func Is(p format.Probe) bool {
	return bytes.HasPrefix(p.Head, []byte(magic)) || bytes.Contains(p.Tail, []byte(magic))
}

const (
	magic = "HPAR"
	// version is the version that is written. Version 1 has no rolling hashes.
	version = 2

	// headerLen is the length of the header that each record begins with.
	headerLen = 64
	// nearLen is the number of consecutive blocks that share one sum block.
	nearLen = 512
	// digestLen and rollLen are the lengths of a block's digest and of its rolling hash.
	digestLen, rollLen = 8, 4

	// minBlock is the smallest block size, a disk sector. Every block size is a multiple of it.
	minBlock = 4 << 10
	maxBlock = 1 << 20
	// sumMemory is the most bytes that the parity of one group may take.
	sumMemory = 32 << 20
	// aloneMemory is the same for an archive with a single group. Nothing of it is on disk then.
	aloneMemory = 56 << 20
	// maxCode is the maximum number of blocks in a group, parity included. A group is decoded in
	// transforms of this length.
	maxCode = 1 << 15

	maxBlocks = 1 << 40 / minBlock * 64 // 64 TiB in the shortest blocks
	maxNames  = 64 << 20
)

// MinLoss and MaxLoss are the smallest and largest shares of an archive that can be requested.
const (
	MinLoss = 0.0001
	MaxLoss = 1
)

// kind says what a record holds.
type kind byte

const (
	kindEnd       kind = 'E' // nothing; at both ends of the file
	kindRecovery  kind = 'Q' // parity of the directory
	kindNear      kind = 'N' // the sum of neighbours
	kindParity    kind = 'P'
	kindDirectory kind = 'D' // digests, and what the archive is
)

func (k kind) ok() bool {
	return k == kindEnd || k == kindRecovery || k == kindNear || k == kindParity || k == kindDirectory
}

// A shape is how blocks are divided into groups: block b belongs to group b mod groups. Each group
// has parity blocks of parity. The order of the code is a power of two, at least parity.
type shape struct {
	blocks, groups int64
	order, parity  int
}

// inGroup is the number of blocks in a group.
func (s shape) inGroup(group int64) int { return int((s.blocks - group + s.groups - 1) / s.groups) }

// all is the number of parity blocks.
func (s shape) all() int64 { return s.groups * int64(s.parity) }

// check returns an error if s is not a valid shape for blocks of the given length.
func (s shape) check(block int) error {
	switch {
	case s.blocks < 1 || s.blocks > maxBlocks:
		return fmt.Errorf("%d blocks", s.blocks)
	case s.groups < 1 || s.groups > s.blocks:
		return fmt.Errorf("%d groups of %d blocks", s.groups, s.blocks)
	case s.order < 1 || s.order > maxCode || s.order&(s.order-1) != 0 || s.parity < 1 || s.parity > s.order:
		return fmt.Errorf("%d blocks of parity, of %d", s.parity, s.order)
	case (s.blocks+s.groups-1)/s.groups > int64(1<<16-2*s.order):
		return fmt.Errorf("groups of %d blocks with parity of %d", s.inGroup(0), s.order)
	case s.order*block > 2*sumMemory:
		return fmt.Errorf("%d blocks of parity of %d bytes", s.order, block)
	}
	return nil
}

// A geometry is how an archive and its parity file are divided. Each record contains it.
type geometry struct {
	block int // bytes of each block
	shape
	directory int64 // number of directory records
	version   byte
}

// rolls reports whether the directory has the rolling hashes of the blocks.
func (g geometry) rolls() bool { return g.version > 1 }

// text is where the description of the archive begins in the directory: behind the digests of the
// blocks, and their rolling hashes.
func (g geometry) text() int64 {
	if g.rolls() {
		return g.blocks * (digestLen + rollLen)
	}
	return g.blocks * digestLen
}

// plan chooses a geometry for size bytes that survives the loss of any share loss of them.
func plan(size int64, loss float64) (geometry, error) {
	if !(loss >= MinLoss && loss <= MaxLoss) {
		return geometry{}, fmt.Errorf("a loss of %v: expected a share from %v to %v", loss, MinLoss, MaxLoss)
	}
	g := fit(size, loss, 1, aloneMemory)
	if g.groups > 1 {
		g = fit(size, loss, g.groups, sumMemory)
	}
	return g, g.check()
}

// fit chooses a geometry for size bytes. groups is about the number of groups it will have, each with
// that much memory.
func fit(size int64, loss float64, groups, memory int64) geometry {
	// Find the groups that hold the most data within the memory for their parity.
	most, order := 1, 1<<20
	for o := 1 << 4; o <= sumMemory/minBlock; o *= 2 {
		n := sort.Search(maxCode-o, func(n int) bool { return share(n+1, groups, loss) > o })
		if n*order > most*o {
			most, order = n, o
		}
	}
	g := geometry{block: minBlock, version: version}
	if need := (size + int64(most) - 1) / int64(most); need > minBlock {
		g.block = min(int((need+minBlock-1)/minBlock*minBlock), int(memory)/order/minBlock*minBlock, maxBlock)
	}
	g.groups = max((size+int64(g.block)*int64(most)-1)/(int64(g.block)*int64(most)), 1)
	// With this many groups, shorter blocks may suffice.
	if need := (size + g.groups*int64(most) - 1) / (g.groups * int64(most)); need > minBlock {
		g.block = min(g.block, int((need+minBlock-1)/minBlock*minBlock))
	}
	g.blocks = max((size+int64(g.block)-1)/int64(g.block), 1)
	g.parity = share(g.inGroup(0), g.groups, loss)
	g.order = gf16.Order(g.parity)
	return g
}

// spare is the number of extra parity blocks in each group. They are needed because a lost run of
// bytes may begin and end inside a block.
const spare = 2

// share is the number of parity blocks in a group. Random losses are not spread evenly over several
// groups, so it adds six standard deviations. One group in a billion loses more than that.
func share(blocks int, groups int64, loss float64) int {
	lost := float64(blocks) * loss
	if groups > 1 {
		lost += 6 * math.Sqrt(lost*(1-loss))
	}
	return min(int(math.Ceil(lost)), blocks) + spare
}

func (g geometry) check() error {
	if g.block < minBlock || g.block > maxBlock || g.block%minBlock != 0 {
		return fmt.Errorf("blocks of %d bytes", g.block)
	}
	if err := g.shape.check(g.block); err != nil {
		return err
	}
	if most := g.text()/int64(g.block) + maxNames/minBlock; g.directory < 0 || g.directory > most {
		return fmt.Errorf("%d records of digests", g.directory)
	}
	return nil
}

func (g geometry) summary(size int64, objects int) Summary {
	return Summary{size, g.blocks, g.groups, g.all(), g.block, objects}
}

func (g geometry) near() int64 { return (g.blocks + nearLen - 1) / nearLen }

// inDirectory is the shape of the directory. The parity is useless without it, so it has more
// parity than records.
func (g geometry) inDirectory() shape {
	s := shape{blocks: g.directory, groups: (g.directory + nearLen - 1) / nearLen}
	n := s.inGroup(0)
	s.parity = 8 + min(3*n, 2*n+16)
	s.order = gf16.Order(s.parity)
	return s
}

func (g geometry) stride() int64 { return headerLen + int64(g.block) }

// size is the length of the parity file.
func (g geometry) size() int64 { return g.at(kindDirectory, g.directory) + headerLen }

// at is the offset of a record in a complete parity file.
func (g geometry) at(k kind, number int64) int64 {
	switch k {
	case kindDirectory:
		number += g.all()
		fallthrough
	case kindParity:
		number += g.near()
		fallthrough
	case kindNear:
		number += g.inDirectory().all()
	}
	return headerLen + number*g.stride()
}

// count is the number of records of a kind.
func (g geometry) count(k kind) int64 {
	switch k {
	case kindDirectory:
		return g.directory
	case kindParity:
		return g.all()
	case kindNear:
		return g.near()
	case kindRecovery:
		return g.inDirectory().all()
	}
	return 1
}

// A header is the beginning of each record.
type header struct {
	geometry
	kind   kind
	id     [16]byte
	number int64
}

// put writes h to the beginning of b, in front of the payload that b already holds.
func (h *header) put(b []byte) {
	clear(b[:headerLen])
	copy(b, magic)
	b[4], b[5], b[6] = h.version, byte(h.kind), byte(bits.TrailingZeros(uint(h.order)))
	copy(b[8:], h.id[:])
	le := binary.LittleEndian
	le.PutUint64(b[24:], uint64(h.number))
	le.PutUint64(b[32:], uint64(h.blocks))
	le.PutUint32(b[40:], uint32(h.block))
	le.PutUint32(b[44:], uint32(h.groups))
	le.PutUint32(b[48:], uint32(h.parity))
	le.PutUint32(b[52:], uint32(h.directory))
	le.PutUint64(b[56:], h.sum(b))
}

func (h *header) sum(b []byte) uint64 {
	var x xxh3.Hasher
	x.Write(b[:56])
	x.Write(b[headerLen:])
	return x.Sum64()
}

// errNoRecord means that some bytes are not a record of a parity file.
var errNoRecord = errors.New("not a record of a parity file")

// parseHeader parses a header. It does not verify the checksum.
func parseHeader(b []byte) (h header, err error) {
	if len(b) < headerLen || string(b[:4]) != magic {
		return h, errNoRecord
	}
	if h.version = b[4]; h.version < 1 || h.version > version {
		return h, fmt.Errorf("version: expected 1 to %[2]d, found %[1]d", b[4], version)
	}
	le := binary.LittleEndian
	h.kind, h.number = kind(b[5]), int64(le.Uint64(b[24:]))
	h.id = [16]byte(b[8:])
	h.block, h.directory = int(le.Uint32(b[40:])), int64(le.Uint32(b[52:]))
	h.shape = shape{int64(le.Uint64(b[32:])), int64(le.Uint32(b[44:])), 1 << min(b[6], 31), int(le.Uint32(b[48:]))}
	if !h.kind.ok() || b[7] != 0 {
		return h, errNoRecord
	}
	if err := h.check(); err != nil {
		return h, err
	}
	if h.directory*int64(h.block) < h.text() || h.number < 0 || h.number >= h.count(h.kind) {
		return h, errNoRecord
	}
	return h, nil
}

// payload is the number of bytes after the header.
func (h *header) payload() int {
	if h.kind == kindEnd {
		return 0
	}
	return h.block
}

// parse parses a record, which must be all of b, and verifies its checksum.
func parse(b []byte) (header, error) {
	h, err := parseHeader(b)
	if err == nil && (len(b) != headerLen+h.payload() || h.sum(b) != binary.LittleEndian.Uint64(b[56:])) {
		err = errNoRecord
	}
	return h, err
}

// digestOf is the digest of a block. The last block must be padded with zeros.
func digestOf(b []byte) uint64 { return xxh3.Hash(b) }
