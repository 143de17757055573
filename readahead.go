package holdall

import (
	"context"
	"hash"
	"io"
	"sync"
	"sync/atomic"

	"github.com/holdall/holdall/store"
)

// readAhead reads a stream a few blocks ahead of whoever takes them, and hashes
// them meanwhile: reading, hashing and writing go on side by side, so that on
// two cores a large file is packed about as fast as it can be copied.
type readAhead struct {
	full   chan *block // to whoever reads
	toHash chan *block
	empty  chan *block
	stop   chan struct{}
	wg     sync.WaitGroup

	cur  *block
	pos  int
	err  error
	algo string // of hash
	hash hash.Hash
	done chan struct{} // hashed to the end
}

type block struct {
	b     []byte
	n     int
	err   error        // after these bytes
	users atomic.Int32 // who still looks at it
}

const (
	aheadBlock  = 256 << 10 // stays in a level-2 cache until it is hashed and written
	aheadBlocks = 8
)

func newReadAhead(r io.Reader, algo string, m *Meter) *readAhead {
	a := &readAhead{
		full: make(chan *block, aheadBlocks), toHash: make(chan *block, aheadBlocks), empty: make(chan *block, aheadBlocks),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	for range aheadBlocks {
		a.empty <- &block{b: make([]byte, aheadBlock)}
	}
	if algo != "" {
		a.algo, a.hash = algo, newHash(algo)
		a.wg.Go(func() {
			defer close(a.done)
			for b := range a.toHash {
				a.hash.Write(b.b[:b.n])
				a.release(b)
			}
		})
	}
	a.wg.Go(func() {
		defer close(a.toHash)
		for {
			var b *block
			select {
			case b = <-a.empty:
			case <-a.stop:
				return
			}
			b.n, b.err = io.ReadFull(r, b.b)
			if b.err == io.ErrUnexpectedEOF {
				b.err = io.EOF
			}
			m.Add(0, int64(b.n))
			end := b.err != nil
			b.users.Store(1)
			if a.hash != nil {
				b.users.Store(2)
				a.toHash <- b // has room for all blocks there are
			}
			a.full <- b
			if end {
				return
			}
		}
	})
	return a
}

func (a *readAhead) release(b *block) {
	if b.users.Add(-1) == 0 {
		a.empty <- b
	}
}

func (a *readAhead) Read(p []byte) (int, error) {
	for {
		if a.cur != nil && a.pos < a.cur.n {
			n := copy(p, a.cur.b[a.pos:a.cur.n])
			a.pos += n
			return n, nil
		}
		if a.err != nil {
			return 0, a.err
		}
		a.take()
	}
}

// take makes the next block current.
func (a *readAhead) take() {
	if a.cur != nil {
		a.release(a.cur)
	}
	a.cur, a.pos = <-a.full, 0
	a.err = a.cur.err
}

// WriteTo hands the blocks on as they are.
func (a *readAhead) WriteTo(w io.Writer) (n int64, err error) {
	for {
		if a.cur != nil && a.pos < a.cur.n {
			k, err := w.Write(a.cur.b[a.pos:a.cur.n])
			n += int64(k)
			a.pos += k
			if err != nil {
				return n, err
			}
		}
		if a.err == io.EOF {
			return n, nil
		}
		if a.err != nil {
			return n, a.err
		}
		a.take()
	}
}

// ContentDigest returns the digest of all that was read, once it was.
func (a *readAhead) ContentDigest() (Digest, bool) {
	if a.hash == nil || a.err != io.EOF {
		return Digest{}, false
	}
	<-a.done
	return Digest{Algo: a.algo, Sum: string(a.hash.Sum(nil))}, true
}

// failed returns what kept the stream from being read, nil if nothing did.
func (a *readAhead) failed() error {
	if a.err == io.EOF {
		return nil
	}
	return a.err
}

// Close ends what is under way.
func (a *readAhead) Close() error {
	close(a.stop)
	a.wg.Wait()
	return nil
}

// sumAside computes the digest of the first n bytes of o on a goroutine of its
// own. wait gives it, stop ends it early.
func sumAside(ctx context.Context, o store.Object, algo string, n int64, m *Meter) (wait func() (Digest, error), stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	var d Digest
	var err error
	go func() {
		defer close(done)
		h := newHash(algo)
		buf := make([]byte, aheadBlock)
		for off := int64(0); off < n; off += int64(len(buf)) {
			buf = buf[:min(int64(len(buf)), n-off)]
			if err = o.ReadAt(ctx, buf, off); err != nil {
				return
			}
			h.Write(buf)
			m.Add(0, int64(len(buf)))
		}
		d = Digest{Algo: algo, Sum: string(h.Sum(nil))}
	}()
	wait = func() (Digest, error) {
		<-done
		return d, err
	}
	return wait, func() {
		cancel()
		<-done
	}
}
