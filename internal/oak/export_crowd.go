package oak

import (
	"context"
	"errors"
	"io"
	"runtime"

	"github.com/holdall/holdall/internal/oak/internal/nodejson"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/pipe"
)

// A crowd writes nodes as JSON, several at once, in the order in which they are told.
type crowd struct {
	records *segment.Reader
	how     nodejson.Options
	to      io.Writer
	lost    int64
}

// told is a node that is to be written, or is lost.
type told struct {
	path string
	id   segment.RecordID
	lost *nodejson.Lost
}

// A handful of nodes is encoded by one goroutine, ahead of its turn as far as
// exportPiece bytes go. The nodes after those are written when it is its turn.
type handful struct {
	nodes []told
	b     []byte
	lost  int64
	err   error
}

const (
	exportHandful = 64
	exportPiece   = 1 << 20
)

func (c *crowd) write(ctx context.Context, walk func(tell func(told) error) error) error {
	hands := pipe.Told(func(tell func(*handful) error) error {
		h := &handful{}
		err := walk(func(n told) error {
			if h.nodes = append(h.nodes, n); len(h.nodes) < exportHandful {
				return nil
			}
			full := h
			h = &handful{}
			return tell(full)
		})
		if err != nil {
			return err
		}
		return tell(h)
	})
	return pipe.Ordered(ctx, hands, runtime.GOMAXPROCS(0),
		func(ctx context.Context, h *handful) { h.err = c.encode(ctx, h, h) },
		func(h *handful) error {
			if h.err != nil && !errors.Is(h.err, errAhead) {
				return h.err
			}
			if _, err := c.to.Write(h.b); err != nil {
				return err
			}
			err := c.encode(ctx, h, c.to)
			c.lost += h.lost
			return err
		}, func(*handful) {})
}

// encode writes nodes of a handful, and drops those that are written.
func (c *crowd) encode(ctx context.Context, h *handful, to io.Writer) error {
	enc, before := nodejson.NewEncoder(to, c.how), h.lost
	for ; len(h.nodes) > 0; h.nodes = h.nodes[1:] {
		size, t := len(h.b), h.nodes[0]
		var err error
		if t.lost != nil {
			err = enc.LostNode(t.path, *t.lost)
		} else {
			var n segment.Node
			if n, err = c.records.Node(ctx, t.id); err == nil {
				err = enc.Node(ctx, t.path, n)
			}
		}
		if err != nil {
			h.b = h.b[:size]
			return err
		}
		h.lost = before + enc.Lost()
	}
	return nil
}

var errAhead = errors.New("too much ahead of its turn")

// Write takes what is encoded ahead.
func (h *handful) Write(b []byte) (int, error) {
	if len(h.b)+len(b) > exportPiece {
		return 0, errAhead
	}
	h.b = append(h.b, b...)
	return len(b), nil
}
