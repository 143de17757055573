package holdall

import (
	"io"
	"sync"

	"github.com/zeebo/blake3"
)

// A hashed is a piece of content, with its digest.
type hashed struct {
	b   []byte
	n   int
	sum pieceSum
	err error
	// done has a token when the rest is set.
	done chan struct{}
}

var hashedPool sync.Pool // of *hashed

func getHashed(chunk int64) *hashed {
	if h, ok := hashedPool.Get().(*hashed); ok && int64(len(h.b)) == chunk {
		return h
	}
	return &hashed{b: make([]byte, chunk), done: make(chan struct{}, 1)}
}

func putHashed(h *hashed) {
	h.err = nil
	hashedPool.Put(h)
}

// hashAhead reads pieces of content a few ahead of whoever takes them and hashes them:
// reading, hashing and what is done with them go on side by side.
type hashAhead struct {
	queue  chan *hashed // to whoever takes them, in order
	toHash chan *hashed
	empty  chan *hashed
	stop   chan struct{}
	wg     sync.WaitGroup
}

const (
	piecesAhead = 6
	hashers     = 2
)

// newHashAhead reads the left bytes that r has still.
func newHashAhead(r io.Reader, chunk, left int64) *hashAhead {
	a := &hashAhead{queue: make(chan *hashed, piecesAhead), toHash: make(chan *hashed, piecesAhead), empty: make(chan *hashed, piecesAhead), stop: make(chan struct{})}
	n := min(piecesAhead, (left-1)/chunk+1)
	for range n {
		a.empty <- getHashed(chunk)
	}
	for range min(hashers, n) {
		a.wg.Go(func() {
			for h := range a.toHash {
				h.sum = blake3.Sum256(h.b[:h.n])
				h.done <- struct{}{}
			}
		})
	}
	a.wg.Go(func() {
		defer close(a.queue)
		defer close(a.toHash)
		for left > 0 {
			var h *hashed
			select {
			case <-a.stop:
				return
			default:
			}
			select {
			case h = <-a.empty:
			case <-a.stop:
				return
			}
			h.n = int(min(chunk, left))
			left -= int64(h.n)
			h.err = readAll(r, h.b[:h.n])
			// Both have room for all pieces there are.
			a.queue <- h
			if h.err != nil {
				h.done <- struct{}{}
				return
			}
			a.toHash <- h
		}
	})
	return a
}

// take returns the next piece, which there must be, once it is hashed.
func (a *hashAhead) take() *hashed {
	h := <-a.queue
	<-h.done
	return h
}

// give returns a piece that was taken.
func (a *hashAhead) give(h *hashed) { a.empty <- h }

// end waits for what is under way. last is a piece that was taken and not given back.
func (a *hashAhead) end(last *hashed) {
	close(a.stop)
	for h := range a.queue {
		<-h.done
		putHashed(h)
	}
	a.wg.Wait()
	if last != nil {
		putHashed(last)
	}
	close(a.empty)
	for h := range a.empty {
		putHashed(h)
	}
}
