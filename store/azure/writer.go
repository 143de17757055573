package azure

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
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
	w := &writer{st: st, name: name, key: key, id: rand.Text(), once: wish.Once, headers: wish.Headers}
	w.Parts = far.Parts{Size: blockSize, Most: maxBlocks, Word: "block", Put: w.put, Fail: w.fail}
	w.Start(ctx)
	w.can.WriteRange = w.WriteRange
	return w, nil
}

// A writer's parts are blocks.
type writer struct {
	far.Parts
	st        *Store
	name, key string
	id        string
	once      bool
	headers   map[string]string
	can       store.WriterAbilities
	copies    map[string]int64 // lengths of the blocks that the server copied
}

func (w *writer) Can() store.WriterAbilities { return w.can }

func (w *writer) fail(op string, err error) error { return w.st.fail(op, w.name, err) }

// blockID is that of a block. All of one object's have the same length.
func (w *writer) blockID(number int) string {
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%s-%06d", w.id, number))
}

func (w *writer) put(p []byte, number int) error {
	u := w.st.address(w.key)
	u.RawQuery = url.Values{"comp": {"block"}, "blockid": {w.blockID(number)}}.Encode()
	err := drop(w.st.do(w.Ctx, call{method: http.MethodPut, url: u, body: p, header: map[string]string{"Content-Md5": sum(p)}}))
	if err != nil {
		return fmt.Errorf("block %d: %w", number, err)
	}
	return nil
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
	return w.Parts.Commit(ctx, w.name, func() (string, error) { return w.finish(ctx) })
}

func (w *writer) finish(ctx context.Context) (etag string, err error) {
	c := call{method: http.MethodPut, url: w.st.address(w.key), body: w.Buf, header: map[string]string{}}
	if w.Count == 0 {
		c.header["X-Ms-Blob-Type"] = "BlockBlob"
	} else {
		if err := w.Flush(ctx); err != nil {
			return "", err
		}
		if err := w.checkCopies(ctx); err != nil {
			return "", err
		}
		c.url.RawQuery = "comp=blocklist"
		c.body = w.list()
	}
	c.header["Content-Md5"] = sum(c.body)
	for name, value := range w.headers {
		if meta, ok := strings.CutPrefix(name, store.MetaHeader); ok {
			c.header[metaPrefix+meta] = value
		} else if name != "expires" { // which it does not know
			c.header["X-Ms-Blob-"+name] = value
		}
	}
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
	for i := range w.Count {
		b.WriteString("<Latest>" + w.blockID(i) + "</Latest>")
	}
	b.WriteString("</BlockList>")
	return b.Bytes()
}

// Abort leaves blocks that were sent to the server, which drops them after a week, or
// when the next writer of the name commits.
func (w *writer) Abort() error {
	w.Stop()
	return nil
}
