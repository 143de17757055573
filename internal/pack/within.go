package pack

import (
	"context"
	"io"
	"iter"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/content"
	"github.com/holdall/holdall/internal/pipe"
)

const (
	// worthCopying is how much content has to lie in one run for the store to be asked
	// to copy it. Less is read sooner than that, with much else by the same requests.
	worthCopying = 16 << 20

	// mostWaiting is how many entries wait for it to be known what to do with them.
	mostWaiting = 4096
)

// storeCopy is a conversion between two places in one store.
type storeCopy struct {
	p   *packer
	src *content.Source

	few []format.Entry // to be read, before those in run

	run     []sectionOf
	size    int64 // of run, and of what was copied of it already
	copying bool  // run is long enough: what goes on with it is copied at once
}

// sectionOf is an entry and where it lies.
type sectionOf struct {
	e format.Entry
	s *format.Section // nil if it has no bytes
}

// convertWithin has the store copy what lies raw in long runs, in the order of the
// entries, and reads the others.
func (p *packer) convertWithin(ctx context.Context, src *content.Source, entries iter.Seq2[format.Entry, error]) error {
	w := &storeCopy{p: p, src: src}
	var last sectionOf
	for e, err := range entries {
		if err != nil {
			return err
		}
		next := sectionOf{e: e, s: w.section(ctx, e)}
		if e.Size == 0 && e.Fault == nil && e.Kind.HasContent() && len(w.run) > 0 {
			w.run = append(w.run, next) // it has no place, and is no gap
			continue
		}
		if next.s == nil || last.s == nil || !next.follows(last) {
			w.few = appendEntries(w.few, w.run)
			w.run, w.size, w.copying = nil, 0, false
		}
		if last = next; next.s == nil {
			w.few = append(w.few, e)
		} else {
			w.run = append(w.run, next)
			w.size += e.Size
		}
		if w.copying = w.copying || w.size >= worthCopying; w.copying || len(w.few)+len(w.run) >= mostWaiting {
			if err := w.read(ctx); err != nil {
				return err
			}
		}
		if w.copying || len(w.run) >= mostWaiting {
			if err := w.copy(ctx); err != nil {
				return err
			}
		}
	}
	w.few = appendEntries(w.few, w.run)
	return w.read(ctx)
}

func appendEntries(to []format.Entry, run []sectionOf) []format.Entry {
	for _, x := range run {
		to = append(to, x.e)
	}
	return to
}

// follows reports whether an entry lies right after y.
func (x sectionOf) follows(y sectionOf) bool {
	return x.s.Object == y.s.Object && x.s.Off == y.s.Off+y.s.N
}

// section is where e lies, nil if it has to be read: for its digest, or because its
// bytes are not stored as they are.
func (w *storeCopy) section(ctx context.Context, e format.Entry) *format.Section {
	if e.Fault != nil || !e.Kind.HasContent() || e.Size == 0 {
		return nil
	}
	if algo := w.p.digests(); algo != "" && e.Digest.Algo != algo {
		return nil
	}
	s, ok := w.src.Section(ctx, e)
	if !ok {
		return nil
	}
	s.Far = true
	return s
}

// read adds the entries that are to be read.
func (w *storeCopy) read(ctx context.Context) error {
	if len(w.few) == 0 {
		return nil
	}
	err := w.p.swept(ctx, w.src, pipe.All(w.few))
	w.few = w.few[:0]
	return err
}

// copy adds the entries of the run.
func (w *storeCopy) copy(ctx context.Context) error {
	for _, x := range w.run {
		var content io.Reader = &source{Reader: strings.NewReader("")}
		if x.s != nil {
			content = x.s
		}
		if err := w.p.add(ctx, x.e, content); err != nil {
			return err
		}
	}
	w.run = w.run[:0]
	return nil
}
