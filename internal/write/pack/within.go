package pack

import (
	"context"
	"io"
	"iter"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/read/content"
)

const (
	// worthCopying is the least size of a run that the store is requested to copy. Reading a
	// smaller one is faster, since one request also reads its neighbours.
	worthCopying = 16 << 20

	// mostWaiting is how many entries wait for the decision to read or copy them.
	mostWaiting = 4096
)

// storeCopy is a conversion between two places in one store.
type storeCopy struct {
	p   *packer
	src *content.Source

	few []format.Entry // to be read, before those of run

	run     []sectionOf
	size    int64 // of run, including entries that were already copied
	copying bool  // run is long enough: entries that continue it are copied at once
}

// sectionOf is an entry and its place.
type sectionOf struct {
	e format.Entry
	s *kit.Section // nil if it is empty or must be read
}

// convertWithin has the store copy long runs of uncompressed content, and reads the other entries.
// It keeps the order of the entries.
func (p *packer) convertWithin(ctx context.Context, src *content.Source, entries iter.Seq2[format.Entry, error]) error {
	w := &storeCopy{p: p, src: src}
	var last sectionOf
	for e, err := range entries {
		if err != nil {
			return err
		}
		next := sectionOf{e: e, s: w.section(ctx, e)}
		if e.Size == 0 && e.Fault == nil && e.Kind.HasContent() && len(w.run) > 0 {
			w.run = append(w.run, next) // an empty file has no place, and does not end a run
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

// follows reports whether x is stored right after y.
func (x sectionOf) follows(y sectionOf) bool {
	return x.s.Object == y.s.Object && x.s.Off == y.s.Off+y.s.N
}

// section returns the place of e. It returns nil if e must be read: to compute its digest, or
// because it is not stored as raw bytes.
func (w *storeCopy) section(ctx context.Context, e format.Entry) *kit.Section {
	if e.Fault != nil || w.src.Doubtful(e) != nil || !e.Kind.HasContent() || e.Size == 0 {
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

// read adds the entries in few.
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
