package hdf5

import (
	"bytes"
	"context"
	"iter"
	"maps"
	"slices"
)

// What is guessed is bounded, so that a file cannot be made that takes long: the number of structures
// that are found by their signatures, how often one of them is tried, and the chunks of all.
const (
	maxGuessed = 1 << 12
	maxTries   = 1 << 14
	maxChunks  = 1 << 20
)

// guesses are structures that were found by their signatures in what was read, before the walk
// came to them. What these refer to is read together with the next structures: a round of requests
// costs more than some bytes. A guess that is wrong costs no more than that.
type guesses struct {
	objects map[int64]table // addresses of headers, and what is known of them
	nodes   []wish          // of symbol tables
	count   int
	tries   int
	chunks  int64
}

// scan looks for structures in bytes that were read.
func (l *loader) scan(off int64, b []byte) {
	f, g := l.f, &l.guesses
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.objects == nil {
		g.objects = map[int64]table{}
	}
	object := func(at int64, t table) {
		if _, known := g.objects[at]; !known && g.count < maxGuessed {
			g.objects[at] = t
			g.count++
		}
	}
	for _, c := range f.signed(b, "TREE") {
		kind, level, n := c.u8(), c.u8(), int(c.u16())
		if kind != 0 || n > 2*f.groupK {
			continue
		}
		c.skip(2 * int64(f.offsets))
		for ; n > 0 && g.count < maxGuessed; n-- {
			c.skip(int64(f.lengths))
			s := span{c.addr(), f.symbolNodeSize()}
			if level > 0 {
				s.n = f.groupNodeSize()
			}
			g.nodes = append(g.nodes, wish{s, inSymbolNode, s.off})
			g.count++
		}
	}
	for _, c := range f.signed(b, "SNOD") {
		c.skip(2)
		for n := min(int(c.u16()), 2*f.leafK); n > 0 && !c.short; n-- {
			c.skip(int64(f.offsets))
			at, kind, rest := f.symbol(c)
			var t table
			if kind == 1 {
				t, _ = f.parseTable(rest)
			}
			if kind != 2 && !c.short {
				object(at, t)
			}
		}
	}
	for at := range f.signed(b, "OHDR") {
		object(off+int64(at), table{})
	}
}

// signed yields the places of a signature in b, and a cursor behind each.
func (f *File) signed(b []byte, signature string) iter.Seq2[int, *cursor] {
	return func(yield func(int, *cursor) bool) {
		for from := 0; ; {
			i := bytes.Index(b[from:], []byte(signature))
			if i < 0 || !yield(from+i, f.cursor(b[from+i+len(signature):])) {
				return
			}
			from += i + len(signature)
		}
	}
}

// hints returns what the guessed structures refer to that was not read.
func (l *loader) hints(ctx context.Context) (all []wish) {
	l.mu.Lock()
	all, l.guesses.nodes = l.guesses.nodes, nil
	objects := map[int64]table{}
	for at, t := range l.guesses.objects {
		if l.seen[at] || l.ahead[at] != nil {
			delete(l.guesses.objects, at)
		} else {
			objects[at] = t
		}
	}
	l.mu.Unlock()
	try := &loader{f: l.f, opt: l.opt}
	for _, at := range slices.Sorted(maps.Keys(objects)) {
		if l.tries++; l.tries > maxTries {
			break
		}
		n := len(all)
		w := l.f.wave(ctx)
		w.misses = &all
		w.room = room{records: maxGuessed, headers: 1 << 20, values: 1 << 20}
		try.chunks = min(l.opt.Chunks, maxChunks-l.guesses.chunks)
		left := try.chunks
		w.object(&Object{Addr: at, table: objects[at]}, try)
		l.guesses.chunks += left - try.chunks
		if len(all) == n {
			l.mu.Lock()
			delete(l.guesses.objects, at)
			l.mu.Unlock()
		}
	}
	var out []wish
	for _, s := range all {
		if l.f.holds(s.span) == nil && l.f.cache.find(s.span) == nil {
			out = append(out, wish{l.f.cache.unknown(s.span), s.lead, s.last})
		}
	}
	return out
}

// scanCached looks for structures in what was read before the walk.
func (l *loader) scanCached() {
	l.f.cache.mu.Lock()
	pieces := append([]piece{}, l.f.cache.pieces...)
	l.f.cache.mu.Unlock()
	for _, p := range pieces {
		l.scan(p.off, p.b)
	}
}
