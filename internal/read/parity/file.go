package parity

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A File is an open parity file. Its damaged parts are not used.
type File struct {
	// At is its name or address.
	At string
	// Loss is the requested share.
	Loss float64
	// Objects are the protected objects, in order.
	Objects []Object
	// Total is their total size.
	Total int64

	obj    store.Object
	h      header
	shifts []int64 // distances that records may be from where they should be

	mu        sync.Mutex
	directory map[int64][]byte // cached directory records
	computed  map[int64]error  // directory groups that were computed: nil or errLost
	whole     room             // directory records that were computed
}

// errLost means that a record of the parity file is not there or is damaged.
var errLost = errors.New("a part of the parity file is damaged")

// tailLen is how many bytes at the end are read at once. For most files that is all that Open
// needs.
const tailLen = 128 << 10

// Open opens the parity file called name in st. shown is used as At.
func Open(ctx context.Context, st store.Store, name, shown string) (*File, error) {
	o, err := st.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	f := &File{At: shown, obj: o, directory: map[int64][]byte{}, computed: map[int64]error{}, whole: room{limit: 4 << 20}}
	if err := f.open(ctx); err != nil {
		f.Close()
		if errors.Is(err, format.ErrCorrupt) && storekit.IsPage(ctx, st, name) {
			err = fmt.Errorf("%s: the server sent a web page: %w", shown, fs.ErrNotExist)
		}
		return nil, err
	}
	return f, nil
}

// Summary says how the archive is divided.
func (f *File) Summary() Summary { return f.h.summary(f.Total, len(f.Objects)) }

// Size is the length of the file if nothing is missing.
func (f *File) Size() int64 { return f.h.size() }

func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.whole.close()
	return f.obj.Close()
}

// corrupt returns an error about the parity file.
func (f *File) corrupt(off int64, text string, args ...any) error {
	return &format.CorruptError{Format: "parity", Problem: format.Problem{
		Code: format.BadData, Severity: format.Error, Volume: f.At, Off: off, Message: fmt.Sprintf(text, args...),
	}}
}

// mostLost limits how much of the file may be missing. A file with less than 1/mostLost of its
// bytes is of no use: that is less than the neighbour sums and the directory take.
const mostLost = 256

func (f *File) open(ctx context.Context) error {
	tail := make([]byte, tailLen)
	n, err := storekit.ReadTail(ctx, f.obj, tail)
	if err != nil {
		if passing(ctx, err) || errors.Is(err, fs.ErrNotExist) {
			return err
		}
		n = 0
	}
	tail = tail[:n]
	info, err := f.obj.Info(ctx)
	if err != nil {
		return err
	}
	if err := f.find(ctx, info.Size, tail); err != nil {
		return err
	}
	// This keeps what is allocated because of a header in proportion to the file.
	if f.h.size()/mostLost > info.Size {
		return f.corrupt(0, "only %d of %d bytes are left: too few", info.Size, f.h.size())
	}
	f.shifts = []int64{0}
	if by := info.Size - f.h.size(); by != 0 {
		f.shifts = append(f.shifts, by)
	}
	return f.about(ctx)
}

// mostPlaces is how many parts of a long file are searched for a record.
const mostPlaces = 32

// find finds an intact record and sets f.h from it.
func (f *File) find(ctx context.Context, size int64, tail []byte) error {
	h, err := parse(tail[max(0, len(tail)-headerLen):])
	if f.h = h; err == nil {
		return nil
	}
	head := make([]byte, min(headerLen, size))
	if rerr := f.obj.ReadAt(ctx, head, 0); rerr != nil && passing(ctx, rerr) {
		return rerr
	}
	if h, herr := parse(head); herr == nil {
		f.h = h
		return nil
	} else if bytes.HasPrefix(head, []byte(magic)) {
		err = herr
	}
	// Both ends are damaged, so any record will do. Records do not overlap, so the search parses at
	// most as many bytes as the file has. A long file, which may be anything, is only sampled.
	const most = headerLen + maxBlock
	step := max(most, size/mostPlaces)
	b := make([]byte, min(2*most, size))
	for off, looked := int64(0), int64(0); off < size; off += step {
		b = b[:min(int64(cap(b)), size-off)]
		if rerr := f.obj.ReadAt(ctx, b, off); rerr != nil {
			if passing(ctx, rerr) {
				return rerr
			}
			continue
		}
		for at := 0; at < most && looked <= size; at++ {
			i := bytes.Index(b[at:], []byte(magic))
			if i < 0 {
				break
			}
			at += i
			h, herr := parseHeader(b[at:])
			if n := headerLen + h.payload(); herr == nil && n <= len(b)-at {
				looked += int64(n)
				if f.h, herr = parse(b[at : at+n]); herr == nil {
					return nil
				}
			}
		}
	}
	if err == nil || errors.Is(err, errNoRecord) {
		return f.corrupt(0, "not a parity file, or too damaged")
	}
	return f.corrupt(0, "%v", err)
}

// record reads a record into b, which has room for it, and returns its payload.
func (f *File) record(ctx context.Context, k kind, number int64, b []byte) ([]byte, error) {
	b = b[:f.h.stride()]
	info, err := f.obj.Info(ctx)
	if err != nil {
		return nil, err
	}
	for _, by := range f.shifts {
		off := f.h.at(k, number) + by
		if off < 0 || off+int64(len(b)) > info.Size {
			continue
		}
		if err := f.obj.ReadAt(ctx, b, off); err != nil {
			if passing(ctx, err) {
				return nil, err
			}
			continue
		}
		if f.is(b, k, number) {
			return b[headerLen:], nil
		}
	}
	return nil, errLost
}

// each calls do for each record of a kind. there is false if the record is missing or damaged.
func (f *File) each(ctx context.Context, k kind, do func(number int64, there bool)) error {
	stride, count := f.h.stride(), f.h.count(k)
	run := make([]byte, max(1, min(count, sweepLen/stride))*stride)
	one := make([]byte, stride)
	for i := int64(0); i < count; {
		n := min(count-i, int64(len(run))/stride)
		ahead := n > 1 && f.obj.ReadAt(ctx, run[:n*stride], f.h.at(k, i)) == nil
		for at := range n {
			there := ahead && f.is(run[at*stride:(at+1)*stride], k, i+at)
			if !there {
				_, err := f.record(ctx, k, i+at, one)
				if err != nil && err != errLost {
					return err
				}
				there = err == nil
			}
			do(i+at, there)
		}
		i += n
	}
	return nil
}

// is reports whether b is the record of a kind and a number.
func (f *File) is(b []byte, k kind, number int64) bool {
	h, err := parse(b)
	return err == nil && h.kind == k && h.number == number && h.id == f.h.id && h.geometry == f.h.geometry
}

// passing reports whether an error is not about the stored data, and may not occur the next time.
func passing(ctx context.Context, err error) bool {
	return ctx.Err() != nil || storekit.Temporary(err) || errors.Is(err, store.ErrChanged) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrClosed)
}

// mostKept is how many bytes of the directory are kept in memory.
const mostKept = 8 << 20

func (f *File) piece(ctx context.Context, i int64) ([]byte, error) {
	f.mu.Lock()
	b := f.directory[i]
	f.mu.Unlock()
	if b != nil {
		return b, nil
	}
	b, err := f.record(ctx, kindDirectory, i, make([]byte, f.h.stride()))
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == errLost {
		b = make([]byte, f.h.block)
		err = f.recover(ctx, i, b)
	}
	if err != nil {
		return nil, err
	}
	if len(f.directory)*f.h.block >= mostKept {
		clear(f.directory)
	}
	f.directory[i] = b
	return b, nil
}

// recover reads a lost record of the directory. It computes all lost records of the group. mu is
// held.
func (f *File) recover(ctx context.Context, i int64, b []byte) error {
	in := f.h.inDirectory()
	group := i % in.groups
	err, known := f.computed[group]
	if !known {
		if err = f.compute(ctx, in, group); err != nil && err != errLost {
			return err
		}
		f.computed[group] = err
	}
	if err == nil {
		err = f.whole.read(b, i*int64(f.h.block))
	}
	return err
}

func (f *File) compute(ctx context.Context, in shape, group int64) error {
	var c cure
	c.init(in, group, f.h.block)
	defer c.close()
	record := make([]byte, f.h.stride())
	data := func(do func(b []byte, err error) error) error {
		for i := group; i < in.blocks; i += in.groups {
			p, err := f.record(ctx, kindDirectory, i, record)
			if err != nil && err != errLost {
				return err
			}
			if err := do(p, err); err != nil {
				return err
			}
		}
		return nil
	}
	err := c.gather(ctx, data, func(i int64, b []byte) error {
		p, err := f.record(ctx, kindRecovery, i, make([]byte, f.h.stride()))
		copy(b, p)
		return err
	}, 4)
	if err != nil {
		return err
	}
	return c.solve(ctx, func(i int64, at int, b []byte) error { return f.whole.write(b, i*int64(f.h.block)+int64(at)) })
}

func (f *File) about(ctx context.Context) error {
	var a about
	r := &pieces{ctx: ctx, f: f, at: f.h.text(), end: f.h.directory * int64(f.h.block)}
	if err := json.NewDecoder(io.LimitReader(r, maxNames)).Decode(&a); err != nil {
		if r.err != nil && r.err != io.EOF && r.err != errLost {
			return r.err
		}
		return f.corrupt(f.h.at(kindDirectory, 0), "the description of the archive is damaged: %v", err)
	}
	f.Loss, f.Objects = a.Loss, a.Objects
	for _, o := range a.Objects {
		if o.Size < 0 || o.Size > f.h.blocks*int64(f.h.block)-f.Total {
			return f.corrupt(f.h.at(kindDirectory, 0), "%q cannot have %d bytes", o.Name, o.Size)
		}
		f.Total += o.Size
	}
	if (f.Total+int64(f.h.block)-1)/int64(f.h.block) != f.h.blocks {
		return f.corrupt(f.h.at(kindDirectory, 0), "%d blocks of %d bytes, but objects of %d", f.h.blocks, f.h.block, f.Total)
	}
	return nil
}

// plainName reports whether an object may have this name. It must not point outside the archive.
func plainName(name string) bool {
	rest := strings.TrimPrefix(name, "/")
	return name == "" || fs.ValidPath(rest) && rest != "." && (rest != name || !strings.Contains(name, "/"))
}

// pieces reads the directory.
type pieces struct {
	ctx     context.Context
	f       *File
	at, end int64
	err     error
}

func (r *pieces) Read(p []byte) (int, error) {
	if r.at >= r.end {
		return 0, io.EOF
	}
	block := int64(r.f.h.block)
	b, err := r.f.piece(r.ctx, r.at/block)
	if err != nil {
		r.err = err
		return 0, err
	}
	n := copy(p, b[r.at%block:])
	r.at += int64(n)
	return n, nil
}

// digest returns the digest of a block, or errLost if the digest is damaged.
func (f *File) digest(ctx context.Context, i int64) (uint64, error) {
	b, err := f.word(ctx, i*digestLen)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// rolling returns the rolling hash of a block, or errLost if it is damaged.
func (f *File) rolling(ctx context.Context, i int64) (uint32, error) {
	b, err := f.word(ctx, f.h.blocks*digestLen+i*rollLen)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

// word returns the directory from an offset to the end of its record.
func (f *File) word(ctx context.Context, at int64) ([]byte, error) {
	b, err := f.piece(ctx, at/int64(f.h.block))
	if err != nil {
		return nil, err
	}
	return b[at%int64(f.h.block):], nil
}
