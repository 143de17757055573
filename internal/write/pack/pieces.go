package pack

import (
	"context"
	"hash"
	"io"
	"iter"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/base/meter"
	"github.com/holdall/holdall/internal/read/digest"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A piece is a range of an object that is read ahead.
type piece struct {
	of     *opened
	off    int64
	n      int
	last   bool
	buf    []byte
	digest format.Digest // of an object that is one piece
	err    error
	done   chan struct{}

	digests []format.Digest // of the ranges in it
	wrong   []error         // why a range is left out
}

// opened is an object, shared by its pieces.
type opened struct {
	item
	once sync.Once
	o    store.Object
	err  error
	sum  store.Sum // reported by its service; known with the first piece
	has  bool

	kept    map[string]string // its headers; known with the first piece
	written time.Time
}

func (o *opened) open(ctx context.Context) (store.Object, error) {
	o.once.Do(func() { o.o, o.err = storekit.OpenAs(ctx, o.st, o.info) })
	return o.o, o.err
}

// lookAtEmpty requests the headers kept with an empty object. If the object was listed a while
// ago, it also checks that it is still empty. Versions are not compared: a response about an
// empty object may have none.
func (o *opened) lookAtEmpty(ctx context.Context, headers, stale bool) error {
	is, err := o.st.Open(ctx, o.info.Name)
	if err != nil {
		return err
	}
	defer is.Close()
	if headers && is.Can().Headers != nil {
		err = o.keep(ctx, is)
	} else if !stale {
		return nil
	}
	var now store.Info
	if err == nil {
		now, err = is.Info(ctx)
	}
	if err == nil && now.Size != 0 {
		err = &store.Error{Op: "open", Name: o.info.Name, Off: -1, Err: store.ErrChanged}
	}
	return err
}

// keep stores the headers of an object. Part of the object must have been read before, unless it is
// empty.
func (o *opened) keep(ctx context.Context, is store.Object) error {
	headers := is.Can().Headers
	if headers == nil {
		return nil
	}
	all, err := headers(ctx)
	if err != nil {
		return err
	}
	info, err := is.Info(ctx)
	if err != nil {
		return err
	}
	o.kept, o.written = maps.Clone(all), info.ModTime
	if strings.HasPrefix(info.Version, `"`) {
		o.kept[kit.ETagAttr] = info.Version
	}
	return nil
}

// pieces reads objects ahead, several at once, and hands their pieces on in order.
type pieces struct {
	ctx            context.Context
	cancel         context.CancelCauseFunc
	jobs           int
	algo           string
	lenient, stale bool // as in Options
	trusting       bool // content is not compared with checksums of services
	headers        bool // headers of objects are wanted
	again          bool // this is the second read of an object whose checksum did not match
	ready          chan *piece
	room           room
	wg             sync.WaitGroup
}

func newPieces(ctx context.Context, jobs int, algo string) *pieces {
	q := &pieces{jobs: jobs, algo: algo, ready: make(chan *piece, 2*jobs)}
	q.ctx, q.cancel = context.WithCancelCause(ctx)
	q.room.most = inPieces
	q.room.freed = sync.NewCond(&q.room.mu)
	return q
}

// stop cancels everything that is running.
func (q *pieces) stop() {
	q.cancel(nil)
	q.room.close()
	for c := range q.ready {
		<-c.done
		q.done(c)
	}
	q.wg.Wait()
}

func (q *pieces) failed() error { return context.Cause(q.ctx) }

// start starts goroutines that list, request and read.
func (q *pieces) start(items iter.Seq2[item, error]) {
	listed, todo := make(chan item, listedAhead), make(chan *piece)
	q.wg.Go(func() {
		defer close(listed)
		for it, err := range items {
			if err != nil {
				q.cancel(err)
				return
			}
			select {
			case listed <- it:
			case <-q.ctx.Done():
				return
			}
		}
	})
	q.wg.Go(func() {
		defer close(q.ready)
		defer close(todo)
		for it := range listed {
			if !q.cut(it, todo) {
				return
			}
		}
	})
	for range q.jobs {
		q.wg.Go(func() {
			for c := range todo {
				q.read(c)
				close(c.done)
			}
		})
	}
}

// cut requests the pieces of an object, and reports whether to go on.
func (q *pieces) cut(it item, todo chan<- *piece) bool {
	of := &opened{item: it}
	size := it.all()
	if it.copy || it.misplaced() != nil {
		size = 0
	}
	for off := int64(0); ; {
		c := &piece{of: of, off: off, n: int(min(size-off, pieceSize)), done: make(chan struct{})}
		off += int64(c.n)
		c.last = off >= size
		if !q.room.reserve(len(it.more) * memberRoom) {
			return false
		}
		if c.buf = q.room.take(c.n); c.buf == nil && c.n > 0 {
			return false
		}
		select {
		case q.ready <- c:
		case <-q.ctx.Done():
			q.room.give(c.buf)
			return false
		}
		select {
		case todo <- c:
		case <-q.ctx.Done():
			c.err = context.Cause(q.ctx)
			close(c.done)
			return false
		}
		if c.last {
			return true
		}
	}
}

// read fills a piece. An object that was listed as empty is only requested if the listing is old,
// or if it has headers.
func (q *pieces) read(c *piece) {
	if c.err = q.ctx.Err(); c.err == nil {
		c.err = c.of.misplaced()
	}
	if c.err != nil || c.of.dir {
		return
	}
	if c.of.copy {
		if c.of.more != nil {
			c.err = c.of.stillThere(q.ctx)
		} else if q.headers && !c.of.ranged { // the headers of a range are already known
			var o store.Object
			if o, c.err = c.of.open(q.ctx); c.err == nil {
				c.err = c.of.keep(q.ctx, o)
			}
		}
		return
	}
	var err error
	if c.n > 0 {
		var o store.Object
		if o, err = c.of.open(q.ctx); err == nil {
			err = o.ReadAt(q.ctx, c.buf, c.of.off+c.off)
		}
		if err == nil && c.off == 0 && q.headers && !c.of.ranged {
			err = c.of.keep(q.ctx, o)
		}
		if err == nil && c.off == 0 && c.of.ranged {
			err = q.expect(c, o)
		} else if err == nil && c.off == 0 && !q.trusting {
			err = q.compare(c, o)
		}
	} else if c.of.ranged {
		c.digests, c.wrong = make([]format.Digest, len(c.of.more)), make([]error, len(c.of.more))
	} else if q.stale || q.headers {
		err = c.of.lookAtEmpty(q.ctx, q.headers, q.stale)
	}
	if c.err = err; err == nil && q.algo != "" && c.off == 0 && c.last && !c.of.ranged {
		c.digest, _ = digest.Of(q.algo, c.buf)
	}
}

// expect compares ranges of one piece with their digests. For a longer range it only records the
// expected digest.
func (q *pieces) expect(c *piece, o store.Object) error {
	if it := c.of.item; it.more == nil && c.of.comparable(it, q) {
		c.of.sum, c.of.has = store.Sum{Algo: it.digest.Algo, Value: it.digest.Sum}, true
	}
	if !c.last {
		return nil
	}
	return q.compareRanges(c, o)
}

// compare compares an object of one piece with the checksum of its service. If they differ, it
// reads the object again. For a longer object it only records the expected checksum.
func (q *pieces) compare(c *piece, o store.Object) (err error) {
	of := c.of
	if of.sum, of.has, err = SumOf(q.ctx, o); err != nil || !of.has || !c.last {
		return err
	}
	check := func() error {
		w := NewWitness(of.name, of.sum, of.info.Size)
		w.again = true
		w.Write(c.buf)
		return w.Wrong()
	}
	if check() == nil {
		return nil
	}
	if err := o.ReadAt(q.ctx, c.buf, 0); err != nil {
		return err
	}
	return check()
}

// done releases the memory of a piece, and closes the object after its last piece. The pieces of an
// object must be done in order.
func (q *pieces) done(c *piece) {
	q.room.give(c.buf)
	if c.last {
		q.room.release(len(c.of.more) * memberRoom)
	}
	c.buf = nil
	if c.last && c.of.o != nil {
		_ = c.of.o.Close() // it was only read
	}
}

// room limits the memory of pieces.
type room struct {
	most   int
	mu     sync.Mutex
	freed  *sync.Cond
	closed bool
	used   int              // lent
	idle   int              // kept for reuse
	free   map[int][][]byte // by length
}

// roomSizes are the sizes of buffers. Most objects are shorter than a piece.
var roomSizes = []int{64 << 10, 256 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, pieceSize}

// take waits for room for n bytes, and returns a buffer. It returns nil if the room was closed or n
// is 0.
func (r *room) take(n int) []byte {
	if n == 0 {
		return nil
	}
	size := roomSizes[0]
	for _, s := range roomSizes {
		if size = s; s >= n {
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.wait(size) {
		return nil
	}
	if f := r.free[size]; len(f) > 0 {
		r.free[size] = f[:len(f)-1]
		r.idle -= size
		return f[len(f)-1][:n]
	}
	if r.used+r.idle > r.most {
		r.free, r.idle = nil, 0
	}
	return make([]byte, n, size)
}

// wait waits for room for n bytes, and reserves them. It returns false if the room was closed. The
// caller holds the lock.
func (r *room) wait(n int) bool {
	for r.used > 0 && r.used+n > r.most && !r.closed {
		r.freed.Wait()
	}
	if !r.closed {
		r.used += n
	}
	return !r.closed
}

// reserve waits for room for n bytes that are allocated elsewhere, and reserves them until release.
// It returns false if the room was closed.
func (r *room) reserve(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return n == 0 || r.wait(n)
}

func (r *room) release(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= n
	r.freed.Broadcast()
}

func (r *room) give(p []byte) {
	if p == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	size := cap(p)
	r.used -= size
	r.idle += size
	if r.free == nil {
		r.free = map[int][][]byte{}
	}
	r.free[size] = append(r.free[size], p)
	r.freed.Broadcast()
}

func (r *room) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.freed.Broadcast()
}

// pieceReader reads the content of an object: its pieces from cur on. If there are several, it
// computes the digest as they are read.
type pieceReader struct {
	q     *pieces
	cur   *piece
	pos   int
	err   error
	end   bool // the last piece was read to its end
	algo  string
	hash  hash.Hash
	sum   *Witness // for an object of several pieces with a known checksum
	meter *meter.Meter
}

// next makes the next piece current, once this one is used up.
func (r *pieceReader) next() error {
	if r.err != nil {
		return r.err
	}
	if r.end {
		return io.EOF
	}
	r.meter.Add(0, int64(r.pos))
	if r.cur.last {
		r.end = true
		if r.sum != nil {
			if r.err = r.sum.Wrong(); r.err != nil {
				return r.err
			}
		}
		return io.EOF
	}
	r.q.done(r.cur)
	c, ok := <-r.q.ready
	if !ok {
		r.cur, r.err = nil, r.q.failed()
		return r.err
	}
	r.cur, r.pos = c, 0
	<-c.done
	r.err = c.err
	return r.err
}

func (r *pieceReader) Read(p []byte) (int, error) {
	for r.err == nil && !r.end {
		if r.pos < len(r.cur.buf) {
			n := copy(p, r.cur.buf[r.pos:])
			r.goOn(r.cur.buf[r.pos : r.pos+n])
			r.pos += n
			return n, nil
		}
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	return 0, r.next()
}

// WriteTo writes the pieces without a copy.
func (r *pieceReader) WriteTo(w io.Writer) (n int64, err error) {
	for r.err == nil && !r.end {
		if rest := r.cur.buf[r.pos:]; len(rest) > 0 {
			var wg sync.WaitGroup
			if r.hashes() {
				wg.Go(func() { r.goOn(rest) })
			}
			k, err := w.Write(rest)
			wg.Wait()
			n += int64(k)
			r.pos += k
			if err != nil {
				return n, err
			}
		}
		if err := r.next(); err != nil && err != io.EOF {
			return n, err
		}
	}
	return n, r.err
}

// hashes reports whether content is hashed as it is read. An object of one piece has been hashed
// already.
func (r *pieceReader) hashes() bool {
	return (r.algo != "" || r.sum != nil) && !(r.cur.last && r.cur.off == 0)
}

// goOn updates the digest of an object of several pieces.
func (r *pieceReader) goOn(p []byte) {
	if !r.hashes() {
		return
	}
	if r.sum != nil {
		r.sum.Write(p)
	}
	if r.algo == "" {
		return
	}
	if r.hash == nil {
		r.hash = digest.New(r.algo)
	}
	_, _ = r.hash.Write(p) // a hash never fails
}

// ContentDigest returns the digest of the content, once it has been read to its end.
func (r *pieceReader) ContentDigest() (format.Digest, bool) {
	if !r.end || r.cur == nil {
		return format.Digest{}, false
	}
	if r.hash == nil {
		return r.cur.digest, r.cur.digest.Algo != ""
	}
	return format.Digest{Algo: r.algo, Sum: string(r.hash.Sum(nil))}, true
}

// Failed returns the error that prevented only this object from being read. It returns nil if there
// was none, or if the error affects other objects too.
func (r *pieceReader) Failed() error {
	if r.err == nil || r.q.failed() != nil || storekit.Temporary(r.err) && !r.q.lenient {
		return nil
	}
	return r.err
}

// drain discards the remaining pieces of the object.
func (r *pieceReader) drain() {
	for r.cur != nil {
		c := r.cur
		r.q.done(c)
		if c.last {
			return
		}
		r.cur = <-r.q.ready
		if r.cur != nil {
			<-r.cur.done
		}
	}
}
