package digest

import (
	"context"
	"hash"
	"io"
	"sync"
	"sync/atomic"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/base/blake3"
	"github.com/holdall/holdall/internal/base/meter"
	"github.com/holdall/holdall/store"
)

// A Piece is the digest of one block of content.
type Piece = [32]byte

// AheadOptions say what an Ahead reads and hashes.
type AheadOptions struct {
	// Algo is the algorithm for a digest of all that is read; "" means none.
	Algo string
	// Pieces says that each block is also hashed by itself.
	Pieces bool
	// Block is the length of a block; 0 means 256 KiB, which stays in a level-2 cache until it is
	// hashed and written.
	Block int64
	// Length is the number of bytes to read. If there are fewer, the error is io.ErrUnexpectedEOF.
	// A negative value means all that there are.
	Length int64
	// Meter counts what was read.
	Meter *meter.Meter
}

// Ahead reads a stream a few blocks ahead of its consumer, and hashes them at the same time.
// Reading, hashing and writing run in parallel, so that on two cores a large file is packed about
// as fast as it can be copied.
type Ahead struct {
	full   chan *Block // to the consumer, in order
	toHash chan *Block // for the digest of the stream
	toSum  chan *Block // for digests of blocks
	empty  chan *Block
	stop   chan struct{}
	wg     sync.WaitGroup

	cur  *Block
	rest []byte // of cur
	err  error
	algo string
	hash hash.Hash
	done chan struct{} // hashed to the end
}

// A Block is a run of content. It belongs to its consumer until the next one is taken.
type Block struct {
	Bytes []byte
	Sum   Piece // with AheadOptions.Pieces

	err   error // after these bytes
	users atomic.Int32
	sum   chan struct{} // has a token when Sum is set
	room  []byte
}

const (
	usualBlock  = 256 << 10
	aheadBlocks = 8
	hashers     = 2 // of pieces
)

var blocks sync.Pool // of *Block

func getBlock(size int64) *Block {
	if b, ok := blocks.Get().(*Block); ok && int64(len(b.room)) == size {
		return b
	}
	return &Block{room: make([]byte, size), sum: make(chan struct{}, 1)}
}

// NewAhead begins to read r.
func NewAhead(r io.Reader, o AheadOptions) *Ahead {
	size, count := o.Block, int64(aheadBlocks)
	if size == 0 {
		size = usualBlock
	}
	if o.Length >= 0 {
		count = min(count, max(o.Length-1, 0)/size+1)
	}
	a := &Ahead{
		full: make(chan *Block, count), toHash: make(chan *Block, count), toSum: make(chan *Block, count), empty: make(chan *Block, count),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	for range count {
		a.empty <- getBlock(size)
	}
	if o.Algo != "" {
		a.algo, a.hash = o.Algo, New(o.Algo)
		a.wg.Go(func() {
			defer close(a.done)
			for b := range a.toHash {
				a.hash.Write(b.Bytes)
				a.release(b)
			}
		})
	}
	if o.Pieces {
		for range min(hashers, count) {
			a.wg.Go(func() {
				for b := range a.toSum {
					b.Sum = blake3.Sum256(b.Bytes)
					b.sum <- struct{}{}
				}
			})
		}
	}
	a.wg.Go(func() { a.read(r, o) })
	return a
}

// read fills blocks. Each channel has room for all blocks that there are.
func (a *Ahead) read(r io.Reader, o AheadOptions) {
	defer close(a.toHash)
	defer close(a.toSum)
	for left := o.Length; ; {
		var b *Block
		select {
		case <-a.stop: // this comes first
			return
		default:
		}
		select {
		case b = <-a.empty:
		case <-a.stop:
			return
		}
		room := b.room
		if left >= 0 {
			room = room[:min(int64(len(room)), left)]
		}
		n, err := io.ReadFull(r, room)
		switch {
		case left >= 0:
			if left -= int64(n); err == io.EOF && left > 0 {
				err = io.ErrUnexpectedEOF
			}
			if err == nil && left == 0 {
				err = io.EOF
			}
		case err == io.ErrUnexpectedEOF:
			err = io.EOF
		}
		b.Bytes, b.err = b.room[:n], err
		o.Meter.Add(0, int64(n))
		b.users.Store(1)
		if a.hash != nil {
			b.users.Store(2)
			a.toHash <- b
		}
		if o.Pieces {
			a.toSum <- b
		} else {
			b.sum <- struct{}{}
		}
		a.full <- b
		if err != nil {
			return
		}
	}
}

func (a *Ahead) release(b *Block) {
	if b.users.Add(-1) == 0 {
		a.empty <- b
	}
}

// Next returns the next block that is not empty, or the error that ended the stream, which is
// io.EOF at its end.
func (a *Ahead) Next() (*Block, error) {
	for a.err == nil {
		if a.cur != nil {
			a.release(a.cur)
		}
		a.cur = <-a.full
		<-a.cur.sum
		a.rest, a.err = nil, a.cur.err
		if len(a.cur.Bytes) > 0 {
			return a.cur, nil
		}
	}
	return nil, a.err
}

// more sets rest to the bytes to be returned next.
func (a *Ahead) more() error {
	if len(a.rest) > 0 {
		return nil
	}
	b, err := a.Next()
	if err == nil {
		a.rest = b.Bytes
	}
	return err
}

func (a *Ahead) Read(p []byte) (int, error) {
	if err := a.more(); err != nil {
		return 0, err
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

// WriteTo writes the blocks without copying them.
func (a *Ahead) WriteTo(w io.Writer) (n int64, err error) {
	for {
		if err := a.more(); err == io.EOF {
			return n, nil
		} else if err != nil {
			return n, err
		}
		k, err := w.Write(a.rest)
		n += int64(k)
		a.rest = a.rest[k:]
		if err != nil {
			return n, err
		}
	}
}

// ContentDigest returns the digest of all that was read. It reports false before the end was
// reached.
func (a *Ahead) ContentDigest() (format.Digest, bool) {
	if a.hash == nil || a.err != io.EOF {
		return format.Digest{}, false
	}
	<-a.done
	return sumOf(a.algo, a.hash), true
}

// Failed returns the error that kept the stream from being read, or nil.
func (a *Ahead) Failed() error {
	if a.err == io.EOF {
		return nil
	}
	return a.err
}

// Close ends reading and hashing.
func (a *Ahead) Close() error {
	close(a.stop)
	a.wg.Wait()
	if a.cur != nil {
		a.full <- a.cur
	}
	for _, all := range []chan *Block{a.full, a.empty} {
		close(all)
		for b := range all {
			if b.users.Store(0); len(b.sum) > 0 {
				<-b.sum
			}
			blocks.Put(b)
		}
	}
	return nil
}

// Aside computes the digest of the first n bytes of o on a goroutine of its own. wait returns it;
// stop ends it early.
func Aside(ctx context.Context, o store.Object, algo string, n int64, m *meter.Meter) (wait func() (format.Digest, error), stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	r := NewReader(counted{kit.NewSection(ctx, o, 0, n), m}, algo)
	var err error
	go func() {
		defer close(done)
		_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, r, make([]byte, usualBlock))
	}()
	wait = func() (format.Digest, error) {
		<-done
		return r.Sum(), err
	}
	return wait, func() {
		cancel()
		<-done
	}
}

// counted counts the bytes that are read.
type counted struct {
	io.Reader
	m *meter.Meter
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.m.Add(0, int64(n))
	return n, err
}
