package serve

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// A joined is a connection that can hold the beginning of a response until it
// is sent with what follows. net/http would send it alone, in its buffer of
// 4 KiB, so that a small file takes the system and the client two steps.
type joined struct {
	*net.TCPConn
	until time.Time // what is written must be taken by then
	holds bool
	begun []byte // what is held
	both  [2][]byte
	out   net.Buffers // of both
}

// mostBegun is enough for such a buffer as TLS encrypts it.
const mostBegun = 8 << 10

func (c *joined) Write(p []byte) (int, error) {
	n := len(c.begun)
	switch {
	case n == 0 && c.holds && len(p) <= mostBegun:
		c.begun = append(c.begun, p...)
		return len(p), nil
	case n == 0:
		return c.TCPConn.Write(p)
	}
	c.both = [2][]byte{c.begun, p}
	c.out, c.begun = c.both[:], c.begun[:0]
	sent, err := c.out.WriteTo(c.TCPConn)
	c.both = [2][]byte{}
	return max(int(sent)-n, 0), err
}

// hold holds what is written next, until something follows.
func (c *joined) hold() {
	if c != nil {
		c.holds = true
	}
}

// held ends that, and reports whether something is held.
func (c *joined) held() bool {
	if c == nil {
		return false
	}
	c.holds = false
	return len(c.begun) > 0
}

// send sends what is still held.
func (c *joined) send() (err error) {
	if len(c.begun) > 0 {
		_, err = c.Write(nil)
	}
	return err
}

// Joined returns a listener whose connections send small responses in one
// step, if the server has [JoinedContext].
func Joined(ln net.Listener) net.Listener { return joinedListener{ln} }

type joinedListener struct{ net.Listener }

func (l joinedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		return &joined{TCPConn: tcp}, err
	}
	return c, err
}

type joinedKey struct{}

// JoinedContext is the ConnContext of a server.
func JoinedContext(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, joinedKey{}, c)
}

// joinedOf returns the connection of a request, or nil if it cannot hold
// anything. That of HTTP/2 is not the request's alone.
func joinedOf(r *http.Request) *joined {
	if r.ProtoMajor != 1 {
		return nil
	}
	c, _ := r.Context().Value(joinedKey{}).(*joined)
	return c
}
