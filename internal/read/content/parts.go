package content

import (
	"context"
	"errors"
	"iter"
	"strings"
)

// Parts are several archives that are read as one source. Each content is read and proven by the
// source of its own archive. Entries of the same archive have an equal Ref.
type Parts interface {
	// Of returns the source of the archive that has e, and e as that archive has it. The source
	// stays open until release is called.
	Of(ctx context.Context, e Entry) (s *Source, own Entry, release func(), err error)
	// Doubts returns Source.Doubt of the archives, and which of them cannot be read.
	Doubts() []error
}

// joined returns several errors as one, in one line.
func joined(all []error) error {
	if len(all) < 2 {
		return errors.Join(all...)
	}
	return several(all)
}

type several []error

func (s several) Unwrap() []error { return s }

func (s several) Error() string {
	var texts []string
	for _, err := range s {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

// ofPart returns what do returns for the archive that has e.
func ofPart[T any](ctx context.Context, s *Source, e Entry, do func(m *Source, own Entry) (T, error)) (none T, err error) {
	m, own, release, err := s.Parts.Of(ctx, e)
	if err != nil {
		return none, ReadError(e, err)
	}
	defer release()
	return do(m, own)
}

// ReadsAll is Format.ReadsAll of the archive that has e.
func (s *Source) ReadsAll(ctx context.Context, e Entry) bool {
	if s.Parts == nil {
		return s.Format.ReadsAll
	}
	all, _ := ofPart(ctx, s, e, func(m *Source, _ Entry) (bool, error) { return m.Format.ReadsAll, nil })
	return all
}

// sweepParts sweeps entries of the same archive that follow each other together.
func (s *Source) sweepParts(ctx context.Context, entries iter.Seq2[Entry, error], order Order, each Each) error {
	next, stop := iter.Pull2(entries)
	defer stop()
	e, err, more := next()
	for more && err == nil {
		m, own, release, oerr := s.Parts.Of(ctx, e)
		ref := e.Ref
		if oerr != nil {
			if err := each(Content{Entry: e}, ReadError(e, oerr)); err != nil {
				return err
			}
			e, err, more = next()
			continue
		}
		same := func(yield func(Entry, error) bool) {
			for yield(own, nil) {
				if e, err, more = next(); !more || err != nil || e.Ref != ref {
					return
				}
				var again func()
				if _, own, again, oerr = s.Parts.Of(ctx, e); oerr != nil {
					return
				}
				again() // m stays open
			}
		}
		serr := m.Sweep(ctx, same, order, func(c Content, err error) error {
			c.Entry.Ref = ref
			return each(c, err)
		})
		release()
		if serr != nil {
			return serr
		}
	}
	return err
}
