package content

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/internal/read/digest"
	"github.com/holdall/holdall/internal/read/engine"
)

// If the checksum of a unit is wrong, it does not show which of the unit's bytes are wrong. But
// content with a digest of its own may be right. So it is read once more, by an engine that also
// returns such units, and is used if it matches its digest.

// A lateEngine is made when it is first needed.
type lateEngine struct {
	mu sync.Mutex
	g  *engine.Engine
}

func (l *lateEngine) of(first *engine.Engine) *engine.Engine {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.g == nil {
		l.g = first.Doubting()
	}
	return l.g
}

func (l *lateEngine) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.g != nil {
		l.g.Close()
	}
}

// hasSecond reports whether err, from a read of e, may be about bytes that are not e's.
func (s *Source) hasSecond(e Entry, err error) bool {
	return errors.Is(err, codec.ErrChecksum) && s.HasDigest(e)
}

// readSecond fills b with all of e's content, if it matches its digest.
func (s *Source) readSecond(ctx context.Context, e Entry, b []byte) error {
	if err := s.second.of(s.engine).ReadAt(ctx, s.Extents(ctx, e), b, 0); err != nil {
		return err
	}
	return digest.Check(e, b, nil)
}

// A guarded reads all of e's content. If a checksum around it is wrong, it uses what can be
// decoded, if all of that matches the content's digest.
type guarded struct {
	s   *Source
	ctx context.Context
	e   Entry
	io.Reader
	first io.Closer // nil if it belongs to the caller
	again io.Closer
	at    int64
	amiss error
}

func (g *guarded) Read(p []byte) (int, error) {
	n, err := g.Reader.Read(p)
	g.at += int64(n)
	if n > 0 || g.again != nil || !g.s.hasSecond(g.e, err) {
		return n, err
	}
	if g.second(g.e.Size) != nil || g.second(g.at) != nil {
		g.Reader = failed{err}
		return 0, err
	}
	g.amiss = err
	return g.Reader.Read(p)
}

// second opens the content again and skips its first n bytes. It verifies the content each time,
// because damaged data may decode differently.
func (g *guarded) second(n int64) error {
	if g.again != nil {
		g.again.Close()
	}
	r := g.s.second.of(g.s.engine).NewReader(g.ctx, g.s.Extents(g.ctx, g.e), g.e.Size)
	g.Reader, g.again = digest.NewChecked(r, g.e, nil), r
	_, err := io.CopyN(io.Discard, g.Reader, n)
	return err
}

type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }

func (g *guarded) Close() error {
	var err error
	if g.again != nil {
		err = g.again.Close()
	}
	if g.first != nil {
		err = errors.Join(err, g.first.Close())
	}
	return err
}
