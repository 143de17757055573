package content

import (
	"context"
	"errors"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/digest"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A Refusal is an error that can be reported as a problem.
type Refusal struct{ Told format.Problem }

func (e *Refusal) Error() string { return format.Escape(e.Told.Entry) + ": " + e.Told.Message }

// Damage describes an error with which a store shows that what it has is damaged.
func Damage(err error) (p format.Problem, ok bool) {
	d, ok := errors.AsType[*store.Error](err)
	if !ok || !errors.Is(err, storekit.ErrDamaged) {
		return p, false
	}
	return format.Problem{Code: format.BadData, Severity: format.Error, Volume: d.Name, Off: d.Off, Message: d.Err.Error()}, true
}

// Problem describes an error that kept e from being read or written.
func (s *Source) Problem(ctx context.Context, e Entry, err error) format.Problem {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.Told
	}
	if c, ok := errors.AsType[*format.CorruptError](err); ok {
		return c.Problem
	}
	if s.Parts != nil {
		if p, oerr := ofPart(ctx, s, e, func(m *Source, own Entry) (format.Problem, error) { return m.Problem(ctx, own, err), nil }); oerr == nil {
			return p
		}
	}
	if p, ok := Damage(err); ok {
		p.Entry, p.HasEntry = e.Name, true
		return p
	}
	p := format.Problem{Code: format.BadData, Severity: format.Error, Volume: s.Name, Off: -1, Entry: e.Name, HasEntry: true, Message: err.Error()}
	off, n := int64(0), e.Size
	if d, ok := errors.AsType[*digest.Error](err); ok {
		p.Code, p.Message = format.BadChecksum, d.What()
	} else if d, ok := errors.AsType[*ProofError](err); ok {
		p.Code, p.Message = format.BadChecksum, d.What()
		off, n = d.Off, d.Len
	} else {
		return p
	}
	if x, ok := s.first(context.WithoutCancel(ctx), e, off, n); ok {
		p.Volume, p.Off = x.Object, x.Off
		if x.Codec == codec.Raw {
			p.Off += max(off-x.At, 0)
		}
	}
	return p
}
