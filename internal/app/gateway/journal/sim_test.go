package journal

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
)

// A simDisk is a disk that can be killed between any two calls and in the middle of a write, lose
// its power, be full, and fail to sync.
type simDisk struct {
	rng     *rand.Rand
	names   map[string]*inode // as programs see them
	durable map[string]*inode // as they are after a power cut
	changes []func(names map[string]*inode)
	locked  bool

	calls   int   // that are left before it dies; negative means that it does not
	badSync int   // syncs that are left before one fails; negative means none
	badIO   int   // the same for writes
	room    int64 // bytes that files may take in all
	sparse  bool  // room is taken by writes, and not reserved
}

type inode struct {
	view    []byte
	disk    []byte
	changes []change // of view, that are not on the disk
	used    int64    // of the room
}

// A change is a write at an offset, or another size if it has no bytes.
type change struct {
	off   int64
	bytes []byte
}

var errDead = errors.New("the process is dead")

func newSim(rng *rand.Rand) *simDisk {
	return &simDisk{rng: rng, names: map[string]*inode{}, durable: map[string]*inode{}, calls: -1, badSync: -1, badIO: -1, room: 1 << 20}
}

func (c change) on(b []byte) []byte {
	end := c.off + int64(len(c.bytes))
	if c.bytes == nil && end < int64(len(b)) {
		return b[:end:end]
	}
	if grow := end - int64(len(b)); grow > 0 {
		b = append(b, make([]byte, grow)...)
	}
	copy(b[c.off:], c.bytes)
	return b
}

// dead counts a call.
func (d *simDisk) dead() bool {
	if d.calls > 0 {
		d.calls--
	}
	return d.calls == 0
}

// bad counts down to a failure.
func bad(n *int) bool {
	if *n > 0 {
		*n--
	}
	if *n == 0 {
		*n = -1
		return true
	}
	return false
}

// some keeps any of the changes: all, a first part, sizes alone, or any sectors of any of them. A sector may be
// torn.
func (d *simDisk) some(b []byte, all []change) []byte {
	how, keep := d.rng.IntN(5), d.rng.IntN(3)
	for i, c := range all {
		switch {
		case how == 0:
			b = c.on(b)
		case how == 1 && i < len(all)*keep/2:
			b = c.on(b)
		case how == 2 && d.rng.IntN(2) == 0:
			b = c.on(b)
		case how == 3 && c.bytes == nil && d.rng.IntN(2) == 0, how == 4 && c.bytes == nil:
			b = c.on(b)
		case how == 3 || how == 1 && i == len(all)*keep/2:
			for at := int64(0); at < int64(len(c.bytes)); {
				n := min(sector-(c.off+at)%sector, int64(len(c.bytes))-at)
				part := change{c.off + at, c.bytes[at : at+n]}
				if at += n; how == 1 {
					if d.rng.IntN(3) > 0 {
						b = part.on(b)
						continue
					}
					part.bytes = part.bytes[:d.rng.IntN(len(part.bytes)+1)]
					b = part.on(b)
					break
				}
				if d.rng.IntN(9) == 0 {
					part.bytes = part.bytes[:d.rng.IntN(len(part.bytes)+1)]
				}
				if d.rng.IntN(2) == 0 && len(part.bytes) > 0 {
					b = part.on(b)
				}
			}
		}
	}
	return b
}

// restart is what the next process finds. After a power cut, that is what is on the disk.
func (d *simDisk) restart(powerCut bool) {
	if powerCut {
		seen := map[*inode]bool{}
		names := maps.Clone(d.durable)
		how := d.rng.IntN(3)
		for _, change := range d.changes {
			if how == 0 || how == 1 && d.rng.IntN(2) == 0 {
				change(names)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if n := names[name]; !seen[n] {
				seen[n] = true
				n.disk = d.some(n.disk, n.changes)
				n.view, n.changes, n.used = slices.Clone(n.disk), nil, int64(len(n.disk))
			}
		}
		d.names, d.durable, d.changes = names, maps.Clone(names), nil
	}
	d.locked, d.calls, d.badSync, d.badIO = false, -1, -1, -1
}

// used is how much room files take.
func (d *simDisk) used() (n int64) {
	for _, x := range d.names {
		n += x.used
	}
	return n
}

func (d *simDisk) change(do func(names map[string]*inode)) {
	do(d.names)
	d.changes = append(d.changes, do)
}

func (d *simDisk) Create(name string) (file, error) {
	if d.dead() {
		return nil, errDead
	}
	if d.used() >= d.room {
		return nil, syscall.ENOSPC
	}
	n := &inode{}
	d.change(func(names map[string]*inode) { names[name] = n })
	return &simFile{d, n}, nil
}

func (d *simDisk) Open(name string) (file, error) {
	if d.dead() {
		return nil, errDead
	}
	if n := d.names[name]; n != nil {
		return &simFile{d, n}, nil
	}
	return nil, fs.ErrNotExist
}

func (d *simDisk) List() ([]string, error) {
	if d.dead() {
		return nil, errDead
	}
	return slices.Sorted(maps.Keys(d.names)), nil
}

func (d *simDisk) Rename(from, to string) error {
	if d.dead() {
		return errDead
	}
	n := d.names[from]
	d.change(func(names map[string]*inode) {
		delete(names, from)
		names[to] = n
	})
	return nil
}

func (d *simDisk) Remove(name string) error {
	if d.dead() {
		return errDead
	}
	d.change(func(names map[string]*inode) { delete(names, name) })
	return nil
}

func (d *simDisk) Sync() error {
	if d.dead() {
		return errDead
	}
	if bad(&d.badSync) {
		return syscall.EIO
	}
	d.durable, d.changes = maps.Clone(d.names), nil
	return nil
}

func (d *simDisk) Lock() (io.Closer, error) {
	if d.locked {
		return nil, &LockedError{}
	}
	d.locked = true
	return unlock{d}, nil
}

type unlock struct{ d *simDisk }

func (u unlock) Close() error {
	u.d.locked = false
	return nil
}

type simFile struct {
	d *simDisk
	n *inode
}

func (f *simFile) ReadAt(p []byte, off int64) (int, error) {
	if f.d.calls == 0 {
		return 0, errDead
	}
	n := copy(p, f.n.view[min(off, int64(len(f.n.view))):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *simFile) apply(c change) {
	f.n.view = c.on(f.n.view)
	f.n.changes = append(f.n.changes, c)
}

func (f *simFile) WriteAt(p []byte, off int64) (n int, err error) {
	n = len(p)
	if f.d.calls == 0 {
		return 0, errDead
	}
	if f.d.dead() {
		n, err = f.d.rng.IntN(len(p)+1), errDead
	} else if bad(&f.d.badIO) {
		n, err = f.d.rng.IntN(len(p)+1), syscall.EIO
	}
	if room := f.d.room - f.d.used() + f.n.used - off; int64(n) > room && off+int64(n) > f.n.used {
		n, err = int(max(0, room, f.n.used-off)), syscall.ENOSPC
	}
	if n > 0 {
		f.apply(change{off, slices.Clone(p[:n])})
		f.n.used = max(f.n.used, off+int64(n))
	}
	return n, err
}

func (f *simFile) Size() (int64, error) {
	if f.d.dead() {
		return 0, errDead
	}
	return int64(len(f.n.view)), nil
}

func (f *simFile) Allocate(size int64) error {
	if f.d.dead() {
		return errDead
	}
	if size <= int64(len(f.n.view)) {
		return nil
	}
	var err error
	if all := f.d.room - f.d.used() + f.n.used; size > all && !f.d.sparse {
		err = syscall.ENOSPC
		if size = all / sector * sector; size <= int64(len(f.n.view)) || f.d.rng.IntN(2) == 0 {
			return err
		}
	}
	if f.apply(change{off: size}); !f.d.sparse {
		f.n.used = size
	}
	return err
}

func (f *simFile) Truncate(size int64) error {
	if f.d.dead() {
		return errDead
	}
	f.apply(change{off: size})
	f.n.used = min(f.n.used, size)
	return nil
}

func (f *simFile) Datasync() error {
	if f.d.dead() {
		return errDead
	}
	if bad(&f.d.badSync) {
		// The kernel has dropped what it could not write: nobody will write it later.
		f.n.disk, f.n.changes = f.d.some(f.n.disk, f.n.changes), nil
		return syscall.EIO
	}
	for _, c := range f.n.changes {
		f.n.disk = c.on(f.n.disk)
	}
	f.n.changes = nil
	return nil
}

func (f *simFile) Sync() error  { return f.Datasync() }
func (f *simFile) Close() error { return nil }
