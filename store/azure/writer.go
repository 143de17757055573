package azure

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"sync"

	"github.com/holdall/holdall/store"
)

const (
	mib = 1 << 20

	// firstBlock is the size of the first blocks, and that up to which an object is
	// sent whole.
	firstBlock = 8 * mib

	// Blocks grow with what is written, to a 9000th of it: then 5 TiB take 47,000,
	// and an object of 30 GB has blocks of 8 MiB.
	growth    = 9000
	maxBlocks = 50_000
	maxSize   = 5 << 40

	// inMemory is how much of an object waits in memory to be sent, as long as that
	// is three blocks; of larger ones there are two.
	inMemory = 48 * mib

	// ownMark is what tells a writer that an object is its own.
	ownMark = "X-Ms-Meta-Holdallwriter"
)

// blockSize is the size of the block that begins where sent bytes are in blocks.
func blockSize(sent int64) int {
	return int(max(firstBlock, (sent/growth+mib-1)/mib*mib))
}

// CreateAs begins an object. It sends no request: what is no longer than one block is
// sent whole by Commit. ctx holds for all that the writer sends before that. What was
// sent of an object that was not finished is not gone on with: no two writers have
// blocks of the same names.
func (st *Store) CreateAs(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
	key, err := st.key(name)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, st.fail("create", name, err)
	}
	// Blocks that wait are the name's, not a writer's, so their ids are made to
	// differ from those of all others.
	w := &writer{st: st, name: name, key: key, id: rand.Text(), once: wish.Once}
	w.ctx, w.cancel = context.WithCancel(ctx)
	w.free = sync.NewCond(&w.mu)
	w.can.WriteRange = w.WriteRange
	return w, nil
}

// A writer sends blocks while the next is filled. Its methods belong to one
// goroutine; mu is for those that send.
type writer struct {
	st        *Store
	name, key string
	id        string
	once      bool
	can       store.WriterAbilities
	ctx       context.Context // of the blocks that are sent while more is written
	cancel    context.CancelFunc

	buf      []byte // the block that is being filled
	size     int64  // written in all
	inBlocks int64  // of these, given to blocks
	blocks   int
	copies   map[string]int64 // lengths of the blocks that the server copied
	done     bool
	sending  sync.WaitGroup

	mu     sync.Mutex
	free   *sync.Cond // memory was given back
	held   int        // bytes of blocks that are being sent
	spares [][]byte   // the memory of those that were sent
	failed error
}

func (w *writer) Can() store.WriterAbilities { return w.can }

func (w *writer) fail(op string, err error) error { return w.st.fail(op, w.name, err) }

func (w *writer) usable() error {
	if w.done {
		return fs.ErrClosed
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// Write fills blocks. A block is sent once more than it is there.
func (w *writer) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		if err := w.usable(); err != nil {
			return n, w.fail("write", err)
		}
		if w.size == maxSize {
			return n, w.fail("write", fmt.Errorf("more than %d bytes, the most that is written here", int64(maxSize)))
		}
		full := blockSize(w.inBlocks)
		if len(w.buf) >= full {
			if err := w.send(); err != nil {
				return n, w.fail("write", err)
			}
			continue
		}
		k := int(min(int64(len(p)-n), int64(full-len(w.buf)), maxSize-w.size))
		w.reserve(k, full)
		w.buf = append(w.buf, p[n:n+k]...)
		n += k
		w.size += int64(k)
	}
	return n, nil
}

// reserve makes room for k bytes more, without going beyond a block as append would.
func (w *writer) reserve(k, full int) {
	need := len(w.buf) + k
	if need <= cap(w.buf) {
		return
	}
	var grown []byte
	w.mu.Lock()
	if n := len(w.spares); n > 0 {
		grown, w.spares = w.spares[n-1], w.spares[:n-1]
	}
	if cap(grown) < full {
		w.spares = nil // blocks have grown, and do not shrink again
	}
	w.mu.Unlock()
	if cap(grown) < full {
		grown = make([]byte, 0, min(full, max(need, 2*cap(w.buf), 64<<10)))
	}
	w.buf = append(grown[:0], w.buf...)
}

// send gives the buffer to a goroutine of its own, and waits until there is memory for
// the block after it.
func (w *writer) send() error {
	if w.blocks == maxBlocks {
		return fmt.Errorf("more than %d blocks", maxBlocks)
	}
	block, number := w.buf, w.blocks
	w.buf = nil
	w.blocks++
	w.inBlocks += int64(len(block))
	next := blockSize(w.inBlocks)

	w.mu.Lock()
	w.held += len(block)
	w.mu.Unlock()
	w.sending.Go(func() {
		err := w.put(w.ctx, block, number)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.held -= len(block)
		if err == nil {
			w.spares = append(w.spares, block) // the server has all of it, so nobody reads it any more
		} else if w.failed == nil {
			w.failed = fmt.Errorf("block %d: %w", number, err)
		}
		w.free.Signal()
	})

	w.mu.Lock()
	defer w.mu.Unlock()
	for w.held > 0 && w.held+next > inMemory && w.failed == nil {
		if w.held <= len(block) && next > inMemory/3 {
			break // one on its way and one to be filled are the least
		}
		w.free.Wait()
	}
	return w.failed
}

// blockID is that of a block. All of one object's have the same length.
func (w *writer) blockID(number int) string {
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%s-%06d", w.id, number))
}

func (w *writer) put(ctx context.Context, p []byte, number int) error {
	u := w.st.address(w.key)
	u.RawQuery = url.Values{"comp": {"block"}, "blockid": {w.blockID(number)}}.Encode()
	return drop(w.st.do(ctx, call{method: http.MethodPut, url: u, body: p, header: map[string]string{"Content-Md5": sum(p)}}))
}

// drop ends an answer that has nothing to say.
func drop(resp *http.Response, err error) error {
	if err == nil {
		_ = resp.Body.Close() // what counts is its status
	}
	return err
}

// sum is what the server compares a body with.
func sum(p []byte) string {
	s := md5.Sum(p)
	return base64.StdEncoding.EncodeToString(s[:])
}

// Commit sends what is left and makes the object appear. It fails if ctx ends, or
// the context of Create.
func (w *writer) Commit(ctx context.Context) (store.Info, error) {
	err := w.usable()
	if err == nil {
		err = ctx.Err()
	}
	var etag string
	if err == nil {
		etag, err = w.finish(ctx)
	}
	if err != nil {
		return store.Info{}, w.fail("commit", err)
	}
	w.done = true
	w.release()
	return store.Info{Name: w.name, Size: w.size, Version: etag}, nil
}

func (w *writer) finish(ctx context.Context) (etag string, err error) {
	c := call{method: http.MethodPut, url: w.st.address(w.key), body: w.buf, header: map[string]string{}}
	if w.blocks == 0 {
		c.header["X-Ms-Blob-Type"] = "BlockBlob"
	} else {
		stop := context.AfterFunc(ctx, w.cancel)
		defer stop()
		if len(w.buf) > 0 {
			if err := w.send(); err != nil {
				return "", err
			}
		}
		w.sending.Wait()
		if err := errors.Join(w.usable(), ctx.Err()); err != nil {
			return "", err
		}
		if err := w.checkCopies(ctx); err != nil {
			return "", err
		}
		c.url.RawQuery = "comp=blocklist"
		c.body = w.list()
	}
	c.header["Content-Md5"] = sum(c.body)
	if w.once {
		c.header["If-None-Match"] = "*"
		c.header[ownMark] = w.id
	}
	resp, err := w.st.do(ctx, c)
	if err == nil {
		_ = resp.Body.Close() // it has nothing to say
		return resp.Header.Get("ETag"), nil
	}
	if w.once && (errors.Is(err, errThere) || errors.Is(err, errListGone) || errors.Is(err, store.ErrChanged)) {
		// An answer that was lost may have been a yes, which made it be there.
		switch h, headErr := w.st.head(ctx, w.key); {
		case headErr != nil:
			return "", err
		case h.Get(ownMark) == w.id:
			return h.Get("ETag"), nil
		default:
			return "", errThere
		}
	}
	return "", err
}

// list is the list of all blocks.
func (w *writer) list() []byte {
	var b bytes.Buffer
	b.WriteString(`<?xml version="1.0" encoding="utf-8"?><BlockList>`)
	for i := range w.blocks {
		b.WriteString("<Latest>" + w.blockID(i) + "</Latest>")
	}
	b.WriteString("</BlockList>")
	return b.Bytes()
}

func (w *writer) release() {
	w.cancel()
	w.buf = nil
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spares = nil
}

// Abort leaves blocks that were sent to the server, which drops them after a week, or
// when the next writer of the name commits.
func (w *writer) Abort() error {
	if w.done {
		return nil
	}
	w.done = true
	w.release()
	w.sending.Wait()
	return nil
}
