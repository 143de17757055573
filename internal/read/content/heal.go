package content

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/outside"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// With parity, damaged content is computed again while it is read.
//
// Short content that has a digest is read as without parity, and again only if it does not match
// its digest. Other content is read block by block, and compared with the parity's digests of
// blocks. A parity file may be wrong, too. So if content has a digest of its own, computed
// content is only used after it has been compared with that digest.

// A healer heals the damaged content of a source.
type healer struct {
	s    *Source
	at   string
	on   func(by string)
	once sync.Once

	guard *parity.Guard
	found atomic.Bool
	why   atomic.Pointer[error] // why the parity is not used

	// For an archive that was opened before its parity was found:
	reopen func(ctx context.Context, st store.Store) (*Source, error)
	again  sync.Once
	anew   *Source // opened through the parity; nil if that fails

	checked *Source // returns an error for healed blocks
	healed  *Source // returns healed blocks
	plain   *Source // returns blocks as they are stored
}

// HealBy makes s heal what it reads with a guard. If g is nil, parity is searched when it is
// needed, at an address or beside the archive. The guard is closed with s. on, if it is not nil, is
// called once, when something is healed. reopen opens the archive again from a different store; it
// is nil if s was opened through the guard.
func (s *Source) HealBy(g *parity.Guard, at string, on func(by string), reopen func(context.Context, store.Store) (*Source, error)) {
	s.heal = &healer{s: s, at: at, on: on, reopen: reopen}
	if g != nil {
		s.heal.once.Do(func() { s.heal.use(g) })
	}
}

func (h *healer) use(g *parity.Guard) {
	if g.Suits != nil {
		h.why.Store(&g.Suits)
		if h.reopen == nil || g.Unsound == nil || !h.s.Store.Can().Near {
			_ = g.Close()
			return
		}
	}
	h.guard = g
	h.checked, h.healed, h.plain = h.s.Over(g.Checked()), h.s.Over(g.Store()), h.s.Over(h.s.Store)
	h.found.Store(g.Suits == nil && (h.reopen == nil || !g.IsShort()))
}

// known reports whether parity was found that has the blocks of the archive in their places.
func (h *healer) known() bool { return h != nil && h.found.Load() }

// ready reports whether there is parity. It looks for it the first time.
func (h *healer) ready(ctx context.Context) bool {
	if h == nil {
		return false
	}
	h.once.Do(func() {
		g, err := parity.Locate(ctx, h.s.Store, h.s.Name, h.at)
		if err != nil {
			h.why.Store(&err)
		}
		if g != nil {
			g.OnHeal = h.on
			h.use(g)
		}
	})
	return h.guard != nil
}

func (h *healer) close() error {
	if h == nil {
		return nil
	}
	h.once.Do(func() {})
	if h.guard == nil {
		return nil
	}
	h.again.Do(func() {})
	var errs []error
	if h.anew != nil {
		errs = append(errs, h.anew.Close())
	}
	return errors.Join(append(errs, h.checked.CloseObjects(), h.healed.CloseObjects(), h.plain.CloseObjects(), h.guard.Close())...)
}

// Healed returns how many blocks were healed while s was read, by which parity file, and why
// existing parity was not used.
func (s *Source) Healed() (blocks int64, by string, why error) {
	if s.heal == nil {
		return 0, "", nil
	}
	if s.heal.known() {
		blocks, by = s.heal.guard.Healed()
	}
	if p := s.heal.why.Load(); p != nil {
		why = *p
	}
	return blocks, by, why
}

// by returns the source to read an entry with. That is s, or if there is parity and nothing else
// verifies the entry, a source that verifies each block. If much is read, by looks for parity first.
func (s *Source) by(ctx context.Context, p Proof, much bool) *Source {
	if p.blocks || much && !p.before() && s.heal.ready(ctx) && s.heal.known() {
		return s.heal.checked
	}
	return s
}

// cure returns the source and entry to read instead after an error, or nil if the error stands.
func (s *Source) cure(ctx context.Context, e Entry, err error) (*Source, Entry) {
	if s.heal == nil || e.Fault != nil || !curable(ctx, err) || !s.heal.ready(ctx) {
		return nil, e
	}
	h := s.heal
	var stands *Source // reads what is stored, if that may be right
	if errors.Is(err, parity.ErrComputed) {
		stands = h.plain
	}
	// On a network this check takes too long. It is not needed: content computed from blocks of a
	// different version does not have its digest.
	if s.Store.Can().Near {
		if why := h.guard.Look(ctx); why != nil {
			h.why.Store(&why)
			return stands, e
		}
		h.why.Store(nil)
	}
	digest := s.HasDigest(e)
	if !h.known() { // in what is stored, contents may lie elsewhere
		if x, ok := h.lookAgain(ctx, e); ok && h.anew.goesThrough(ctx, x) {
			return h.anew, x
		}
		return nil, e
	}
	if !digest && stands != nil && s.hasChecksums(ctx, e) && stands.goesThrough(ctx, e) {
		return stands, e
	}
	h.hasten(ctx, e)
	if !digest && h.reopen == nil || h.healed.goesThrough(ctx, e) {
		return h.healed, e
	}
	if x, ok := h.lookAgain(ctx, e); ok && h.anew.goesThrough(ctx, x) {
		return h.anew, x
	}
	if digest { // the parity is wrong, or more is damaged
		if stands == nil && h.plain.goesThrough(ctx, e) { // blocks of a wrong one are nowhere
			stands = h.plain
		}
		return stands, e
	}
	return h.healed, e
}

// lookAgain finds e in the archive as the parity restores it, if the archive was opened as it is
// stored: the damage may be in the index that says where contents lie.
func (h *healer) lookAgain(ctx context.Context, e Entry) (Entry, bool) {
	if h.reopen == nil {
		return e, false
	}
	h.again.Do(func() { h.anew, _ = h.reopen(ctx, h.guard.Store()) })
	if h.anew == nil {
		return e, false
	}
	x, err := h.anew.Reader.Lookup(ctx, e.Name)
	return x, err == nil && x.Kind == e.Kind && x.Size == e.Size && x.Digest == e.Digest
}

// hasChecksums reports whether e's content is compared with checksums of its parts.
func (s *Source) hasChecksums(ctx context.Context, e Entry) bool {
	by, _ := s.units(ctx, e)
	return s.proof(e).reader || by >= format.Summed
}

// goesThrough reports whether all of e's content can be read, and matches its digest, if it has
// one.
func (s *Source) goesThrough(ctx context.Context, e Entry) bool { return s.Settle(ctx, e) == nil }

// curable reports whether an error may be about stored bytes.
func curable(ctx context.Context, err error) bool {
	if err == nil || err == io.EOF || ctx.Err() != nil || storekit.Temporary(err) {
		return false
	}
	for _, other := range []error{store.ErrChanged, fs.ErrClosed, fs.ErrInvalid, fs.ErrPermission, errors.ErrUnsupported} {
		if errors.Is(err, other) {
			return false
		}
	}
	_, forbidden := errors.AsType[*outside.Error](err)
	return !forbidden
}

// hastenMost is the longest content for which hasten fetches anything.
const hastenMost = 1 << 20

// hasten fetches all that healing e may need from a network, in parallel.
func (h *healer) hasten(ctx context.Context, e Entry) {
	if h.s.Store.Can().Near || e.Size > hastenMost {
		return
	}
	var wg sync.WaitGroup
	for x, err := range h.s.Extents(ctx, e) {
		if err != nil || x.External {
			continue
		}
		wg.Go(func() { h.guard.Fetch(ctx, x.Object, x.Off, x.Len) })
	}
	wg.Wait()
}

// whole is readWhole, but heals the content if it is damaged.
func (s *Source) whole(ctx context.Context, e Entry, p []byte, off int64) error {
	err := s.readWhole(ctx, e, p, off)
	if err != nil {
		if h, e := s.cure(ctx, e, err); h != nil {
			return h.readWhole(ctx, e, p, off)
		}
	}
	return err
}

// A healingReader continues with healed content after damage.
type healingReader struct {
	s   *Source
	ctx context.Context
	e   Entry
	r   io.Reader
	own io.Closer // nil if r belongs to the caller
	at  int64
	did bool
}

func (r *healingReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.at += int64(n)
	if n > 0 || err == nil || r.did {
		return n, err
	}
	h, e := r.s.cure(r.ctx, r.e, err)
	if h == nil {
		return 0, err
	}
	r.did = true
	err = r.Close()
	c := h.Open(r.ctx, e, r.at)
	r.r, r.own = c, c
	if err != nil {
		return 0, err
	}
	return r.Read(p)
}

func (r *healingReader) Close() error {
	if r.own == nil {
		return nil
	}
	return r.own.Close()
}

// healing returns c, which begins at off, such that damage is healed while it is read.
func (s *Source) healing(ctx context.Context, c Content, off int64, own bool) Content {
	if s.heal == nil {
		return c
	}
	r := &healingReader{s: s, ctx: ctx, e: c.Entry, r: c.r, at: off}
	if closer, ok := c.r.(io.Closer); ok && own {
		r.own = closer
	}
	c.r = r
	return c
}
