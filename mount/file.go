//go:build linux || darwin || freebsd

package mount

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
)

// file is a file that is being read. It is an open file or, if the kernel does not report when
// files are opened, a sequence of reads. All reads are from the version in which it began.
type file struct {
	f    *filesystem
	n    *node
	v    *version
	e    holdall.Entry
	run  bool // its content is a range of a local file
	slow bool // reading ahead helps

	long bool // it is compared with its digest while it is read, if it is read from its beginning

	mu     sync.Mutex
	end    int64 // of the last read
	steps  int   // number of sequential reads
	first  int64 // where the first of them began
	asked  int64 // how far the disk has been asked to read
	ahead  *ahead
	along  *along
	closed bool
	used   time.Time // time of the last use, for readings
}

// newFile returns a file. If it succeeds, the file owns a use of v.
func (f *filesystem) newFile(ctx context.Context, n *node, v *version, e holdall.Entry) (*file, error) {
	_, _, run, err := v.a.Source().File(ctx, e, false)
	if _, damaged := errors.AsType[*holdall.DigestError](err); err != nil && !damaged {
		return nil, err // damage is reported when the file is read
	}
	parts, whole := v.a.Compares(ctx, e)
	if f.o.Log != nil && e.Size > 0 && v.a.Unproven(ctx, e) {
		v.tree.doubt.Do(func() {
			f.o.Log.Info("unproven: damage in this file, and in others like it, would not be seen", slog.String("archive", v.tree.shownName()), slog.String("entry", format.Escape(e.Name)))
		})
	}
	x := &file{f: f, n: n, v: v, e: e, run: run, long: whole && !parts}
	x.slow = !x.run && e.Kind.HasContent() && e.Size > worthAhead
	return x, nil
}

// Init checks the kernel's features before it sends requests. If possible, the kernel is told not
// to report when files are opened and closed, which takes longer than most reads. All readers of
// a file then share one state, so archives must not change below them.
func (f *filesystem) Init(s *fuse.Server) {
	f.unopened = mayGoUnopened && !f.o.opens && s.KernelSettings().Flags64()&fuse.CAP_NO_OPEN_SUPPORT != 0
	for _, t := range f.trees {
		f.unopened = f.unopened && t.Reopen == nil
	}
}

func (f *filesystem) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if f.unopened {
		return fuse.ENOSYS // the kernel opens the file anyway, and does not ask again
	}
	if in.Flags&syscall.O_ACCMODE != syscall.O_RDONLY {
		return fuse.EROFS
	}
	ctx, e, code := f.about(cancel, in.NodeId, fuse.Status(syscall.EISDIR))
	if code != fuse.OK {
		return code
	}
	defer ctx.end()
	var x *file
	err := faultOf(&e)
	if err == nil {
		x, err = f.newFile(ctx, ctx.n, ctx.v, e)
	}
	if err != nil {
		return f.gone(ctx.v, ctx.n, err)
	}
	ctx.v = nil // the file uses it now
	out.Fh = f.handles.add(x)
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE | fuse.FOPEN_NOFLUSH
	return fuse.OK
}

func (f *filesystem) Release(_ <-chan struct{}, in *fuse.ReleaseIn) { f.handles.close(in.Fh) }

// Flush is sent when a file is closed. There is nothing to write, so it is not implemented, and
// the kernel sends it only once.
func (f *filesystem) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.ENOSYS }

// Write is sent only if somebody has made the mount writable and opened a file that the kernel
// did not report.
func (f *filesystem) Write(<-chan struct{}, *fuse.WriteIn, []byte) (uint32, fuse.Status) {
	return 0, fuse.EROFS
}

func (x *file) Close() error {
	x.mu.Lock()
	a, along := x.ahead, x.along
	x.ahead, x.along, x.closed = nil, nil, true
	x.mu.Unlock()
	if a != nil {
		x.f.aheads.drop(a)
		a.close()
	}
	if along != nil {
		along.close()
	}
	x.v.done()
	return nil
}

// worthHandingOn is the size of a read from which it is faster to let the kernel copy from file
// to file than to read and write. Shorter reads cost more that way.
const worthHandingOn = 64 << 10

func (f *filesystem) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	if f.unopened {
		ctx, e, code := f.about(cancel, in.NodeId, fuse.Status(syscall.EISDIR))
		if code != fuse.OK {
			return nil, code
		}
		defer ctx.end()
		var x *file
		err := faultOf(&e)
		if err == nil && e.Size > worthAhead {
			x, err = f.readings.of(ctx, f, ctx.n, ctx.v, e, int64(in.Offset))
		}
		if err != nil {
			return nil, f.gone(ctx.v, ctx.n, err)
		}
		return f.read(ctx, ctx.v, e, x, in, buf)
	}
	ctx := f.request(cancel)
	defer ctx.end()
	x, ok := f.handles.get(in.Fh).(*file)
	if !ok {
		return nil, fuse.EBADF
	}
	if !x.v.isCurrent() {
		// The kernel caches pages for each file, not for each program that opened it. Pages of
		// the old version must not be mixed with new ones.
		return nil, fuse.Status(syscall.ESTALE)
	}
	return f.read(ctx, x.v, x.e, x, in, buf)
}

// read reads an entry. x is the state of its reader, or nil if there is none.
func (f *filesystem) read(ctx *request, v *version, e holdall.Entry, x *file, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	off := int64(in.Offset)
	if off < 0 {
		return nil, fuse.EINVAL
	}
	n := min(int64(in.Size), int64(len(buf)), e.Size-off)
	if n <= 0 {
		return fuse.ReadResultData(nil), fuse.OK
	}
	r, err := f.content(ctx, v, e, x, off, buf[:n])
	if err == nil || err == io.EOF {
		err = x.compare(ctx, off, off+n)
	}
	if err != nil {
		return nil, f.status(v, e.Name, err)
	}
	return r, fuse.OK
}

// content reads content at off. If that is a part of a long file, it has not been compared yet.
func (f *filesystem) content(ctx context.Context, v *version, e holdall.Entry, x *file, off int64, p []byte) (fuse.ReadResult, error) {
	n := int64(len(p))
	from, ahead := x.next(off, n)
	if n >= worthHandingOn && canSplice && (x == nil || x.run) {
		fd, at, ok, err := v.a.Source().File(ctx, e, false)
		if err != nil {
			return nil, err
		}
		if ok {
			if ahead > 0 {
				willNeed(fd, at+from, ahead)
			}
			return fuse.ReadResultFd(fd.Fd(), at+off, len(p)), nil
		}
	}
	if a := x.sequential(off, n); a != nil {
		if got, ok := a.read(ctx, p, off); ok {
			return filled(p[:got]), nil
		}
	}
	got, err := v.a.ReadAt(ctx, e, p, off)
	return filled(p[:got]), err
}

// filled returns a result that is in memory. As a vector it is written directly. The library
// would put any other kind into a pipe first, which costs three system calls, and then notice
// that it should not.
func filled(b []byte) fuse.ReadResult { return fuse.ReadResultVector([][]byte{b}) }

// readings are the most recent sequences of reads of large files. They are used if the kernel
// does not report when files are opened. A file may have several sequences, at different offsets.
type readings struct {
	after  time.Duration // how long an unused sequence is kept
	mu     sync.Mutex
	all    []*file // the last used one is at the end
	sweep  *time.Timer
	closed bool
}

const (
	mostReadings = 64 // of all files
	mostOfOne    = 4  // of one file
	// restAfter is how long data that was read ahead is kept without reads.
	restAfter = 5 * time.Second
)

// of returns the sequence that a read of a file belongs to, or a new one. It may be closed before
// it is used.
func (rs *readings) of(ctx context.Context, f *filesystem, n *node, v *version, e holdall.Entry, off int64) (*file, error) {
	rs.mu.Lock()
	x := rs.find(n, off)
	rs.mu.Unlock()
	if x != nil {
		return x, nil
	}
	v.uses.Add(1)
	x, err := f.newFile(ctx, n, v, e)
	if err != nil {
		v.done()
		return nil, err
	}
	x.end, x.first, x.used = off, off, time.Now()
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if other := rs.find(n, off); other != nil { // another request has added it
		v.done()
		return other, nil
	}
	if rs.all = append(rs.all, x); len(rs.all) > mostReadings {
		rs.close(0)
	}
	if rs.sweep == nil {
		rs.sweep = time.AfterFunc(rs.after, rs.rest)
	}
	return x, nil
}

// find returns the sequence that a read continues. If there is none and the file has the maximum
// number of sequences, it returns the oldest, which the read replaces. Otherwise it returns nil.
// mu must be held.
func (rs *readings) find(n *node, off int64) *file {
	at, oldest, many := -1, -1, 0
	for i, x := range rs.all {
		if x.n.ino != n.ino {
			continue
		}
		if many++; oldest < 0 {
			oldest = i
		}
		if x.isNear(off) {
			at = i
		}
	}
	if at < 0 && many >= mostOfOne {
		at = oldest
	}
	if at < 0 {
		return nil
	}
	x := rs.all[at]
	x.used = time.Now()
	rs.all = append(slices.Delete(rs.all, at, at+1), x)
	return x
}

// close closes a sequence; mu must be held. The end of the mount waits for it.
func (rs *readings) close(i int) {
	x := rs.all[i]
	rs.all = slices.Delete(rs.all, i, i+1)
	x.f.aheads.ending.Go(func() { x.Close() })
}

// rest closes unused sequences.
func (rs *readings) rest() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for len(rs.all) > 0 && (rs.closed || time.Since(rs.all[0].used) >= rs.after) {
		rs.close(0)
	}
	if rs.sweep = nil; len(rs.all) > 0 {
		rs.sweep = time.AfterFunc(rs.after, rs.rest)
	}
}

// drop closes the sequences of a node that the kernel has forgotten.
func (rs *readings) drop(ino uint64) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for i := len(rs.all) - 1; i >= 0; i-- {
		if rs.all[i].n.ino == ino {
			rs.close(i)
		}
	}
}

// closeAll closes all sequences after the last request.
func (rs *readings) closeAll() {
	rs.mu.Lock()
	rs.closed = true
	if rs.sweep != nil {
		rs.sweep.Stop()
	}
	rs.mu.Unlock()
	rs.rest()
}

// faultOf returns why an entry cannot be read, or nil if it can.
func faultOf(e *holdall.Entry) error {
	switch {
	case e.Fault != nil:
		return &faultError{e.Fault}
	case e.Kind == format.HardLink:
		return errLink
	}
	return nil
}

type faultError struct{ p *holdall.Problem }

func (e *faultError) Error() string { return e.p.Message }

const (
	// worthAhead is the size of the smallest file that is read ahead.
	worthAhead = 256 << 10
	// stepsAhead is the number of sequential reads that start reading ahead.
	stepsAhead = 3
	// nearby is the largest distance between reads of a sequence. The kernel has several in
	// progress, which arrive in any order.
	nearby = 4 << 20
	// askAhead is how far ahead of reads the disk is asked to read, at least.
	askAhead = 2 << 20
)

// near reports whether a read may be the next one of a sequence; mu must be held.
func (x *file) near(off int64) bool { return off >= x.end-nearby && off <= x.end+nearby }

func (x *file) isNear(off int64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.near(off)
}

// next records a read of a local file. If reads are sequential, it returns the range that the
// disk should start to read. The kernel's own read-ahead is defeated by several reads at a time.
func (x *file) next(off, n int64) (from, size int64) {
	if x == nil || !x.run {
		return 0, 0
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.near(off) {
		x.steps, x.asked, x.first = 0, 0, off
	} else {
		x.steps, x.first = x.steps+1, min(x.first, off) // several may be in progress, in any order
	}
	x.end = max(x.end, off+n)
	if x.steps == 0 {
		x.end = off + n
	}
	if x.steps < stepsAhead || x.asked > x.end+askAhead {
		return 0, 0
	}
	from = max(x.asked, x.end)
	x.asked = min(x.end+2*askAhead, x.e.Size)
	return from, x.asked - from
}

// sequential records a read. If reads are sequential, it returns what reads ahead.
func (x *file) sequential(off, n int64) *ahead {
	if x == nil || !x.slow {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil
	}
	if !x.near(off) {
		x.steps, x.first = 0, off
		if x.ahead != nil {
			x.f.aheads.drop(x.ahead)
			x.f.aheads.ending.Go(x.ahead.close)
			x.ahead = nil
		}
	} else {
		x.first = min(x.first, off)
		if off >= x.end-n {
			x.steps++
		}
	}
	x.end = off + n
	if x.ahead != nil && x.ahead.ctx.Err() != nil {
		x.ahead, x.steps = nil, 0
	}
	if x.ahead == nil && x.steps >= stepsAhead && x.e.Size-off > worthAhead {
		if x.long && x.first == 0 && off <= aheadWindow {
			off = 0 // a file that is read from its beginning is compared with its digest
		}
		x.ahead = x.f.aheads.begin(x.f.ctx, x.v, x.e, off)
	}
	return x.ahead
}

// aheads are the files that are read ahead, the most recent ones.
type aheads struct {
	mu  sync.Mutex
	all []*ahead // the last used one is at the end
	// ending waits for those that are being closed.
	ending sync.WaitGroup
}

const mostAheads = 8

func (as *aheads) begin(ctx context.Context, v *version, e holdall.Entry, off int64) *ahead {
	a := newAhead(ctx, v, e, off)
	as.mu.Lock()
	as.all = append(as.all, a)
	var old *ahead
	if len(as.all) > mostAheads {
		old, as.all = as.all[0], slices.Delete(as.all, 0, 1)
	}
	as.mu.Unlock()
	if old != nil {
		as.ending.Go(old.close)
	}
	return a
}

func (as *aheads) drop(a *ahead) {
	as.mu.Lock()
	defer as.mu.Unlock()
	as.all = slices.DeleteFunc(as.all, func(o *ahead) bool { return o == a })
}

// ahead reads a file sequentially before it is requested, with holdall.File, which joins reads
// and decodes on several goroutines.
type ahead struct {
	v     *version
	ctx   context.Context // ends when the ahead is closed
	close func()          // closes the ahead and waits
	done  chan struct{}

	mu     sync.Mutex
	blocks []*block      // contiguous
	from   int64         // offset of the first block
	end    int64         // end of the last block
	wanted int64         // end of the requests so far
	err    error         // the error at end
	more   chan struct{} // closed when there is another block
	room   chan struct{} // has a token when there is room again
}

type block struct {
	b     []byte
	given int // bytes that were read; the kernel usually reads each byte once
}

const (
	aheadBlock  = 256 << 10
	aheadWindow = 1 << 20 // read ahead of the last request
	aheadBehind = 4 << 20 // kept before it for late requests, unless it was read
	aheadWait   = 8 << 20 // a request this far ahead of what was read waits for it
)

func newAhead(ctx context.Context, v *version, e holdall.Entry, off int64) *ahead {
	ctx, cancel := context.WithCancel(ctx)
	off -= off % 4096
	a := &ahead{v: v, ctx: ctx, done: make(chan struct{}), from: off, end: off, wanted: off, more: make(chan struct{}), room: make(chan struct{}, 1)}
	v.uses.Add(1)
	a.close = sync.OnceFunc(func() {
		cancel()
		<-a.done
		v.done()
	})
	go a.run(e)
	return a
}

func (a *ahead) run(e holdall.Entry) {
	defer close(a.done)
	in, err := a.v.a.OpenEntry(a.ctx, e)
	if err == nil {
		defer in.Close()
		_, err = in.Seek(a.end, io.SeekStart)
	}
	for err == nil {
		var b []byte
		a.mu.Lock()
		full := a.end-a.wanted >= aheadWindow
		for len(a.blocks) > 0 {
			first := a.blocks[0]
			n := int64(len(first.b))
			if first.given < len(first.b) && a.from+n >= a.wanted-aheadBehind {
				break
			}
			b = first.b[:cap(first.b)]
			a.from += n
			a.blocks = a.blocks[1:]
		}
		a.mu.Unlock()
		if full {
			select {
			case <-a.room:
			case <-a.ctx.Done():
				err = a.ctx.Err()
			}
			continue
		}
		if b == nil {
			b = make([]byte, aheadBlock)
		}
		var n int
		n, err = io.ReadFull(in, b)
		a.mu.Lock()
		a.blocks = append(a.blocks, &block{b: b[:n]})
		a.end += int64(n)
		close(a.more)
		a.more = make(chan struct{})
		a.mu.Unlock()
	}
	a.mu.Lock()
	a.err = err
	close(a.more)
	a.more = make(chan struct{})
	a.mu.Unlock()
}

// read fills p from off. It returns false if it does not have the data; it must then be read
// directly, which also returns any error.
func (a *ahead) read(ctx context.Context, p []byte, off int64) (int, bool) {
	end := off + int64(len(p))
	for {
		a.mu.Lock()
		if a.ctx.Err() != nil || off < a.from || off > a.end+aheadWait || a.err != nil && end > a.end {
			a.mu.Unlock()
			return 0, false
		}
		if end > a.wanted {
			a.wanted = end
			select {
			case a.room <- struct{}{}:
			default:
			}
		}
		if end <= a.end {
			at := a.from
			for _, b := range a.blocks {
				if next := at + int64(len(b.b)); next > off && at < end {
					b.given += copy(p[max(at-off, 0):], b.b[max(off-at, 0):])
				}
				at += int64(len(b.b))
			}
			a.mu.Unlock()
			return len(p), true
		}
		more := a.more
		a.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return 0, false
		}
	}
}
