package hdf5

import (
	"bytes"
	"context"
	"sync"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// DefaultLimit is the default of File.Limit.
const DefaultLimit = 1 << 30

const (
	signature = "\x89HDF\r\n\x1a\n"
	headSize  = 16 << 10 // read first: the superblock, and what often follows it
	maxUser   = 1 << 30  // how far the signature is searched
)

// A File is an open HDF5 file. Its methods may be called from several goroutines at once.
type File struct {
	// Limit is the memory that one call may use for its result and for chunks that are being
	// decoded.
	Limit int64

	// Outside opens another file that has elements of this one, by a path from the folder of this one. If it is
	// nil, such elements cannot be read. The caller of Open sets it, and closes what it has opened.
	Outside func(ctx context.Context, name string) (store.Object, error)

	// Err says what of the file as a whole, apart from objects, could not be read.
	Err error

	Superblock
	obj   store.Object
	name  string
	size  int64
	cache cache

	planning sync.Mutex
	spare    int64 // see joined
	ahead    int64 // how much is read when little is needed
	small    int64
	far      bool  // a request takes time
	credit   int64 // see joined
	margin   int64
	page     int64 // structures are in pages of this size; 0 if they are not
	earn     int64 // how much credit may still be given

	shared []sharedHeap
	opened []Region // what Open has read

	mu    sync.Mutex
	types map[string]*Datatype // committed and shared types, by the messages that refer to them
}

// A Superblock has properties of the file as a whole.
type Superblock struct {
	Version int
	// End is the end of the file when it was written. A shorter file was truncated.
	End int64
	// Root is the address of the root group's object header.
	Root int64
	// Base is the address of the signature, after a user block if there is one. All addresses
	// that this package returns are offsets from the start of the file.
	Base int64

	offsets, lengths int   // bytes of an address and of a length
	leafK, groupK    int   // half of the number of entries in nodes of old groups
	chunkK           int   // half of the number of entries in nodes of chunks
	extension        int64 // address of an object header
	table            table // of the root group, as the superblock says
}

// Open reads the superblock of the file o. If the file has no signature, the error wraps
// [ErrNotHDF5]. The caller must keep o open while it uses the File, and close it afterwards.
func Open(ctx context.Context, o store.Object) (*File, error) {
	head := make([]byte, headSize)
	n, err := storekit.ReadHead(ctx, o, head)
	if err != nil {
		return nil, err
	}
	info, err := o.Info(ctx)
	if err != nil {
		return nil, err
	}
	f := &File{Limit: DefaultLimit, obj: o, name: info.Name, size: info.Size, spare: spare, ahead: shortFew, small: small, far: o.Can().ReadEnd != nil, earn: min(mostCredit, info.Size/3), margin: mostMargin, types: map[string]*Datatype{}}
	f.cache.near = !f.far
	f.cache.add(0, head[:n])
	w := f.wave(ctx)
	w.seen = func(r Region) { f.opened = append(f.opened, r) }
	at, err := w.findSignature()
	if err != nil {
		return nil, err
	}
	if err := w.superblock(at); err != nil {
		return nil, f.place("superblock", at, err)
	}
	if f.extension != undefined {
		if err := w.superblockExtension(); err != nil && !ofFile(err) {
			return nil, err
		} else {
			f.Err = f.place("superblock extension", f.extension, err)
		}
	}
	return f, nil
}

// Size returns the size of the file in bytes.
func (f *File) Size() int64 { return f.size }

// findSignature searches at 0, 512, 1024, 2048 and so on, which are the possible sizes of user
// blocks.
func (w *wave) findSignature() (int64, error) {
	for at := int64(0); at <= maxUser && at+int64(len(signature)) <= w.f.size; at = max(512, 2*at) {
		b, err := w.read(at, int64(len(signature)))
		if err != nil {
			return 0, err
		}
		if string(b) == signature {
			return at, nil
		}
	}
	return 0, &Error{File: w.f.name, What: "superblock", Off: -1, Err: ErrNotHDF5}
}

// HasSignature reports whether head, the beginning of a file, is that of an HDF5 file. A file
// with a user block has none there.
func HasSignature(head []byte) bool {
	for at := 0; at < len(head); at = max(512, 2*at) {
		if bytes.HasPrefix(head[at:], []byte(signature)) {
			return true
		}
	}
	return false
}

// superblock parses all versions:
//
//	0, 1  signature, version, three versions of parts and a reserved byte, bytes of an
//	      address, bytes of a length, reserved, leaf K, group K (u16), flags (u32), in
//	      version 1 chunk K (u16) and 2 reserved bytes, four addresses (base, free space,
//	      end, driver), the root group's symbol table entry
//	2, 3  signature, version, bytes of an address, bytes of a length, flags, four
//	      addresses (base, extension, end, root group), checksum
func (w *wave) superblock(at int64) error {
	f := w.f
	b, err := w.read(at, min(128, f.size-at))
	if err != nil {
		return err
	}
	c := f.cursor(b)
	c.skip(int64(len(signature)))
	f.Superblock = Superblock{Version: int(c.u8()), Base: at, leafK: 4, groupK: 16, chunkK: 32, extension: undefined}
	switch {
	case f.Version > 3:
		return unsupported("version %d is not supported", f.Version)
	case f.Version < 2:
		c.skip(4)
	}
	f.offsets, f.lengths = int(c.u8()), int(c.u8())
	for _, n := range []int{f.offsets, f.lengths} {
		if n != 2 && n != 4 && n != 8 {
			return corrupt("expected addresses and lengths of 2, 4 or 8 bytes, found %d and %d", f.offsets, f.lengths)
		}
	}
	c.skip(1)
	if f.Version >= 2 {
		c.skip(int64(f.offsets)) // a base address; that of the signature is used
		f.extension, f.End, f.Root = c.addr(), c.size(f.offsets), c.addr()
		if err := c.err(); err != nil {
			return err
		}
		_, err := summed(b[:min(len(b), c.at+4)])
		w.saw("superblock", at, int64(c.at+4))
		return err
	}
	f.leafK, f.groupK = int(c.u16()), int(c.u16())
	c.skip(4)
	if f.Version == 1 {
		f.chunkK = int(c.u16())
		c.skip(2)
	}
	c.skip(2 * int64(f.offsets))
	f.End = c.size(f.offsets)    // from the start of the file
	c.skip(2 * int64(f.offsets)) // includes the offset of the root group's name in a heap
	f.Root = c.addr()
	if kind := c.u32(); kind == 1 {
		f.table, _ = f.parseTable(b[min(len(b), c.at+4):])
	}
	c.skip(20)
	w.saw("superblock", at, int64(c.at))
	if f.leafK == 0 || f.groupK == 0 || f.chunkK == 0 {
		return corrupt("expected K above 0, found %d, %d and %d", f.leafK, f.groupK, f.chunkK)
	}
	return c.err()
}

// superblockExtension reads the size of the nodes of version 1 B-trees, and where shared messages
// are.
func (w *wave) superblockExtension() error {
	h, err := w.header(w.f.extension)
	if err != nil {
		return err
	}
	for _, m := range h.messages {
		if m.kind == msgSharedTable {
			if err := w.sharedTable(m); err != nil {
				return err
			}
		}
		if m.kind == msgFileSpace {
			w.f.page = w.f.pageSize(m.data)
		}
		if m.kind != msgBTreeK {
			continue
		}
		c := w.f.cursor(m.data)
		if v := c.u8(); v != 0 {
			return unsupported("version %d of B-tree sizes is not supported", v)
		}
		w.f.chunkK, w.f.groupK, w.f.leafK = int(c.u16()), int(c.u16()), int(c.u16())
		if err := c.err(); err != nil {
			return err
		}
	}
	return nil
}

// pageSize parses a file space message of version 1: version, strategy, a flag, a threshold (length),
// and bytes of a page (length). It returns 0 if the file does not consist of pages, or of large ones.
func (f *File) pageSize(b []byte) int64 {
	c := f.cursor(b)
	version, strategy := c.u8(), c.u8()
	c.skip(1 + int64(f.lengths))
	if n := c.length(); version == 1 && strategy == 1 && n <= mostAhead {
		return n
	}
	return 0
}
