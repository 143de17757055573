package blocks

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/holdall/holdall/internal/base/sysfile"
)

const (
	usual = 10 << 30
	// A process that was stopped, not killed, keeps its locks. Others then do without.
	patienceToWrite = 2 * time.Second
	patienceToFetch = 30 * time.Second
)

// files are the open files of a cache. A process has them once, because locks may be of a process.
type files struct {
	dir         string
	table, lock *os.File

	writing sync.Mutex // held with the lock of the table
	limit   int64      // as the header said last
	mu      sync.Mutex
	fetched map[int64]chan struct{} // blocks that this process fetches, by their locks
}

var opened struct {
	sync.Mutex
	in map[string]*files
}

// open returns the files in a folder, and makes them if there are none. If most is not 0, a cache of
// another size is emptied.
func open(ctx context.Context, dir string, most int64) (*files, error) {
	if most != 0 && (most < leastSize || most > mostSize) {
		return nil, fmt.Errorf("a cache of %d bytes: expected at least %d and at most %d", most, leastSize, int64(mostSize))
	}
	// Contents of archives may be private.
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return nil, err
	}
	opened.Lock()
	defer opened.Unlock()
	f := opened.in[dir]
	if f != nil && f.present() {
		if h, err := f.head(); err == nil && (most == 0 || most == h.limit) {
			return f, nil
		}
	} else {
		f = &files{dir: dir, fetched: map[int64]chan struct{}{}}
		if f.table, err = openRegular(filepath.Join(dir, "blocks.table")); err != nil {
			return nil, err
		}
		if f.lock, err = openRegular(filepath.Join(dir, "blocks.lock")); err != nil {
			f.table.Close()
			return nil, err
		}
	}
	if err := f.prepare(ctx, most); err != nil {
		return nil, err
	}
	if opened.in == nil {
		opened.in = map[string]*files{}
	}
	opened.in[dir] = f
	return f, nil
}

// openRegular opens or makes a file. Others may have put something else in its place.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|sysfile.DontWait, 0o600)
	if err != nil {
		return nil, err
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		f.Close()
		return nil, cmp.Or(err, fmt.Errorf("%s: expected a regular file", path))
	}
	return f, nil
}

// prepare makes the table, if there is none that can be used, and removes what killed processes left.
func (f *files) prepare(ctx context.Context, most int64) error {
	unlock, err := f.lockTable(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	h, err := f.head()
	fi, serr := f.table.Stat()
	switch {
	case serr != nil:
		return serr
	case err == nil && h.sound && (most == 0 || most == h.limit) && fi.Size() == h.size():
		f.limit = h.limit
		_, err := f.sweep(h.live)
		return err
	case err != nil && !errors.Is(err, errDamaged):
		return fmt.Errorf("%s: %w", f.table.Name(), err)
	case err == nil:
		f.limit = h.limit
	}
	_, err = f.make(cmp.Or(most, f.limit, usual))
	return err
}

// present reports whether the folder still has the files.
func (f *files) present() bool {
	now, err := os.Stat(f.table.Name())
	if err != nil {
		return false
	}
	fi, err := f.table.Stat()
	return err == nil && os.SameFile(fi, now)
}

// head reads the head of the table.
func (f *files) head() (head, error) {
	var b [slotsAt]byte
	n, err := f.table.ReadAt(b[:], 0)
	if err != nil && err != io.EOF {
		return head{}, err
	}
	h, err := parseHead(&b)
	if err == nil && n < len(b) {
		err = errDamaged
	}
	return h, err
}

// make empties the cache. The caller has the lock of the table.
func (f *files) make(limit int64) (h head, err error) {
	var id [16]byte
	rand.Read(id[:])
	h = newHead(limit, id)
	f.limit = limit
	if _, err = f.sweep(func(uint32) bool { return false }); err != nil {
		return h, err
	}
	// Until the header is there, other processes see a damaged table.
	if err = f.table.Truncate(0); err == nil {
		err = f.table.Truncate(h.size())
	}
	if err == nil {
		_, err = f.table.WriteAt(append(h.header(), h.state()...), 0)
	}
	return h, err
}

var segmentNamed = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^segment-([0-9a-f]{8})$`) })

// sweep removes the segments that keep does not want, and returns the size of the others.
func (f *files) sweep(keep func(uint32) bool) (bytes int64, err error) {
	all, err := os.ReadDir(f.dir)
	for _, e := range all {
		m := segmentNamed().FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		if n, _ := strconv.ParseUint(m[1], 16, 32); !keep(uint32(n)) {
			err = errors.Join(err, f.remove(uint32(n)))
		} else if fi, serr := e.Info(); serr == nil { // else it has been removed since
			bytes += fi.Size()
		}
	}
	return bytes, err
}

func (f *files) segment(n uint32) string { return filepath.Join(f.dir, segmentName(n)) }

func (f *files) remove(n uint32) error {
	if err := os.Remove(f.segment(n)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// find returns the slot of a block.
func (f *files) find(k key) (slot, bool) {
	h, err := f.head()
	if err != nil {
		return slot{}, false
	}
	first, second := h.at(k)
	for _, at := range []int64{first, second} {
		var b [bucket]byte
		if _, err := f.table.ReadAt(b[:], at); err != nil {
			return slot{}, false
		}
		for o := 0; o < bucket; o += record {
			if key(b[o:][:32]) != k {
				continue
			}
			if s, ok := h.parseSlot(b[o:][:record]); ok {
				return s, true
			}
		}
	}
	return slot{}, false
}

var buffers = sync.Pool{New: func() any { return new([block]byte) }}

// read fills p with the bytes at off of a block of length bytes, and reports whether they are there as they
// were written. It reads and compares only the pieces that p is in. Segments are opened for each read, so
// that a removed one takes no space.
func (f *files) read(k key, p []byte, off, length int64) bool {
	s, ok := f.find(k)
	if !ok || int64(s.length) != length {
		return false
	}
	file, err := os.OpenFile(f.segment(s.segment), os.O_RDONLY|sysfile.DontWait, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	buf := buffers.Get().(*[block]byte)
	defer buffers.Put(buf)
	n := sumsLen(length)
	var sums [block / piece * 4]byte
	from, to := off/piece*piece, min((off+int64(len(p))+piece-1)/piece*piece, length)
	if _, err := file.ReadAt(sums[:n], s.off); err != nil || crc32.ChecksumIEEE(sums[:n]) != s.crc {
		return false
	}
	b := buf[:to-from]
	if _, err := file.ReadAt(b, s.off+n+from); err != nil || !bytes.Equal(sumsOf(b), sums[from/piece*4:][:sumsLen(int64(len(b)))]) {
		return false
	}
	copy(p, b[off-from:])
	return true
}

// write keeps a block, or does not if that is not possible. Room is reserved first: a killed process
// leaves a hole, which goes with its segment.
func (f *files) write(ctx context.Context, k key, p []byte) {
	unlock, err := f.lockTable(ctx)
	if err != nil {
		return
	}
	defer unlock()
	if !f.present() {
		return
	}
	h, err := f.head()
	if errors.Is(err, errDamaged) || err == nil && !h.sound {
		h, err = f.make(f.limit)
	}
	if err != nil {
		return
	}
	sums := sumsOf(p)
	size := int64(len(sums) + len(p))
	if h.next+size > h.segment {
		h.current, h.next = h.current+1, 0
		if f.remove(h.current-h.segments) != nil || f.remove(h.current) != nil {
			return
		}
	}
	s := slot{key: k, segment: h.current, off: h.next, length: uint32(len(p)), crc: crc32.ChecksumIEEE(sums)}
	h.next += size
	if _, err := f.table.WriteAt(h.state(), record); err != nil || f.add(s, append(sums, p...)) != nil {
		return
	}
	places := [2]int64{}
	places[0], places[1] = h.at(k)
	var b [2][bucket]byte
	for i, at := range places {
		if _, err := f.table.ReadAt(b[i][:], at); err != nil {
			return
		}
	}
	in, off := h.choose(k, b[0][:], b[1][:])
	_, _ = f.table.WriteAt(h.slot(s), places[in]+off) // without its slot, a block is not found
}

// add writes a block with its checksums into its segment.
func (f *files) add(s slot, p []byte) error {
	file, err := openRegular(f.segment(s.segment))
	if err != nil {
		return err
	}
	_, err = file.WriteAt(p, s.off)
	return errors.Join(err, file.Close())
}

// lockTable takes the lock of all that is changed.
func (f *files) lockTable(ctx context.Context) (unlock func(), err error) {
	f.writing.Lock()
	held, err := f.await(ctx, 0, patienceToWrite)
	if err == nil && !held {
		err = fmt.Errorf("%s: another process keeps it locked", f.lock.Name())
	}
	if err != nil {
		f.writing.Unlock()
		return nil, err
	}
	return func() { _ = sysfile.UnlockRange(f.lock, 0, 1); f.writing.Unlock() }, nil
}

// await waits for a lock.
func (f *files) await(ctx context.Context, at int64, patience time.Duration) (held bool, err error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 32*time.Millisecond) {
		if held, err = sysfile.LockRange(f.lock, at, 1); held || err != nil || patience <= 0 {
			return held, err
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(pause):
			patience -= pause
		}
	}
}

// lockOf returns the byte of the lock file that is locked while a block is fetched. Byte 0 is that of the table.
func lockOf(k key) int64 { return int64(binary.LittleEndian.Uint64(k[:])>>2) + 1 }

// hold takes the lock of a block that is to be fetched. If another reader has it, hold waits and waited is
// true, or, if wait is not set, release is nil.
func (f *files) hold(ctx context.Context, k key, wait bool) (release func(), waited bool, err error) {
	at := lockOf(k)
	done := make(chan struct{})
	for {
		f.mu.Lock()
		other := f.fetched[at]
		if other == nil {
			f.fetched[at] = done
			f.mu.Unlock()
			break
		}
		f.mu.Unlock()
		if !wait {
			return nil, false, nil
		}
		waited = true
		select {
		case <-ctx.Done():
			return nil, true, context.Cause(ctx)
		case <-other:
		}
	}
	held, err := f.await(ctx, at, 0)
	if !held && err == nil && wait {
		waited = true
		held, _ = f.await(ctx, at, patienceToFetch) // without a lock, the block is fetched nevertheless
	}
	release = func() {
		if held {
			_ = sysfile.UnlockRange(f.lock, at, 1)
		}
		f.mu.Lock()
		delete(f.fetched, at)
		f.mu.Unlock()
		close(done)
	}
	if err = context.Cause(ctx); err != nil || !held && !wait {
		release()
		return nil, waited, err
	}
	return release, waited, nil
}
