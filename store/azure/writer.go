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
	"github.com/holdall/holdall/store/storekit"
)

const (
	mib = 1 << 20

	// firstBlock is the size of the first blocks. Objects up to that size are sent as a whole.
	firstBlock = 8 * mib

	// Blocks grow with what has been written, to 1/9000 of it. So 5 TiB take 47,000 blocks, and
	// an object of 30 GB has blocks of 8 MiB.
	growth    = 9000
	maxBlocks = 50_000

	// ownMark is the header by which a writer recognises its own object.
	ownMark = "X-Ms-Meta-Holdallwriter"
)

func blockSize(sent int64) int {
	return int(max(firstBlock, (sent/growth+mib-1)/mib*mib))
}

// CreateAs begins an object. It sends no request: an object of at most one block is sent as a
// whole by Commit. Requests before that use ctx. Unfinished uploads cannot be resumed, because
// the blocks of each writer have names of their own.
func (st *Store) CreateAs(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
	key, err := st.key(name)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, st.fail("create", name, err)
	}
	// Uncommitted blocks belong to the object's name and not to a writer, so their IDs must
	// differ from those of all other writers.
	w := &writer{st: st, name: name, key: key, id: rand.Text(), once: wish.Once, headers: wish.Headers}
	w.Parts = far.Parts{Size: blockSize, Most: maxBlocks, Word: "block", Put: w.put, Fail: w.fail}
	w.Start(ctx)
	w.can.WriteRange = w.WriteRange
	return w, nil
}

type writer struct {
	far.Parts
	st        *Store
	name, key string
	id        string
	once      bool
	headers   map[string]string
	can       store.WriterAbilities
	copies    map[string]int64 // sizes of the blocks that the server copied
}

func (w *writer) Can() store.WriterAbilities { return w.can }

func (w *writer) fail(op string, err error) error { return w.st.fail(op, w.name, err) }

// blockID returns the ID of a block. All IDs of an object must have the same length.
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

func drop(resp *http.Response, err error) error {
	if err == nil {
		_ = resp.Body.Close() // only the status counts
	}
	return err
}

func sum(p []byte) string {
	s := md5.Sum(p)
	return base64.StdEncoding.EncodeToString(s[:])
}

// Commit sends what is left and makes the object appear. It fails if ctx or the context of
// CreateAs ends.
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
		if meta, ok := strings.CutPrefix(name, storekit.MetaHeader); ok {
			c.header[metaPrefix+meta] = value
		} else if name != "expires" { // the service does not have it
			c.header["X-Ms-Blob-"+name] = value
		}
	}
	if w.once {
		c.header["If-None-Match"] = "*"
		c.header[ownMark] = w.id
	}
	resp, err := w.st.do(ctx, c)
	if err == nil {
		_ = resp.Body.Close() // it is empty
		return resp.Header.Get("ETag"), nil
	}
	if w.once && (errors.Is(err, errThere) || errors.Is(err, errListGone) || errors.Is(err, store.ErrChanged)) {
		// If a response is lost, the request may have succeeded and created the blob.
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

// list returns the list of all blocks.
func (w *writer) list() []byte {
	var b bytes.Buffer
	b.WriteString(`<?xml version="1.0" encoding="utf-8"?><BlockList>`)
	for i := range w.Count {
		b.WriteString("<Latest>" + w.blockID(i) + "</Latest>")
	}
	b.WriteString("</BlockList>")
	return b.Bytes()
}

// Abort leaves the blocks on the server. The server removes them after a week, or when the next
// writer of the name commits.
func (w *writer) Abort() error {
	w.Stop()
	return nil
}
