package fleet

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/base/scan"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

const (
	// lists is how many list requests run at once.
	lists = 16

	// listPage is how many objects are passed on at a time: one response of a
	// bucket.
	listPage = 1000

	// listHeld is how many objects are held in memory until those before them are
	// done. Further ones are held in a file.
	listHeld = 100_000

	// maxBranches is the largest number of branches directly below one prefix for
	// a parallel listing. Finding out takes sequential requests.
	maxBranches = 10_000
)

// A forest lists a store in parallel, in byte order. It begins with one
// listing of everything. When a lister is idle, another one, at the end of its
// page, finds the branches directly below its prefix. It continues with the
// branch that it is in, and leaves the later ones to the idle listers.
type forest struct {
	st   store.Store
	of   span // what is listed
	page int

	mu      sync.Mutex
	changed *sync.Cond
	first   *twig // that has not been read to its end
	idle    int
	waiting int // twigs not yet started
	active  int
	ended   bool
	held    int // objects in memory
	most    int // of these

	scratch sorter.Scratch
	size    int64
}

// A twig is a part of the listing: known objects, or all objects with a
// prefix.
type twig struct {
	next   *twig
	prefix string
	begun  bool
	done   bool // all its objects are in blocks
	blocks []block
	err    error
}

// A block is a page of objects, in memory or in the file.
type block struct {
	all  []store.Info
	off  int64
	size int
}

// branches yields the objects of a store whose names begin with a prefix and are in a span, in
// byte order. If the store can list one level, the listing runs in parallel.
func branches(ctx context.Context, st store.Store, prefix string, of span, page, most int) iter.Seq2[store.Info, error] {
	if can := st.Can(); can.List == nil || can.Level == nil {
		return func(yield func(store.Info, error) bool) {
			for info, err := range storekit.ListFrom(ctx, st, prefix, of.from) {
				if err == nil && !of.has(info.Name) || !yield(info, err) {
					return
				}
			}
		}
	}
	return func(yield func(store.Info, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		f := &forest{st: st, of: of, page: page, most: most, first: &twig{prefix: prefix}, waiting: 1}
		f.changed = sync.NewCond(&f.mu)
		var wg sync.WaitGroup
		defer func() {
			if f.scratch != nil {
				f.scratch.Close()
			}
		}()
		defer wg.Wait()
		defer f.end()
		defer cancel()
		for range lists {
			wg.Go(func() {
				for w := f.take(); w != nil; w = f.take() {
					f.list(ctx, w)
				}
			})
		}
		for {
			all, err, more := f.read()
			for _, info := range all {
				if !yield(info, nil) {
					return
				}
			}
			if err != nil {
				yield(store.Info{}, err)
			}
			if err != nil || !more {
				return
			}
		}
	}
}

// take returns the first twig that has not been started, or nil when there
// will be no more.
func (f *forest) take() *twig {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.idle++
	for f.waiting == 0 && f.active > 0 && !f.ended {
		f.changed.Wait()
	}
	f.idle--
	if f.waiting == 0 || f.ended {
		f.changed.Broadcast()
		return nil
	}
	w := f.first
	for w.begun {
		w = w.next
	}
	w.begun = true
	f.waiting--
	f.active++
	return w
}

func (f *forest) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	f.changed.Broadcast()
}

func (f *forest) hungry() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.idle > 0 && f.waiting == 0
}

// list lists a twig, without the parts that splits have given to others.
func (f *forest) list(ctx context.Context, w *twig) {
	var page []store.Info
	end := w.prefix // the twig's objects are those with this prefix
	whole := false  // it has no branches that others could list
	var err error
	for info, lerr := range storekit.ListFrom(ctx, f.st, w.prefix, f.of.from) {
		if err = lerr; err != nil || !strings.HasPrefix(info.Name, end) || !f.of.has(info.Name) {
			break
		}
		if page = append(page, info); len(page) < f.page {
			continue
		}
		if err = f.put(w, page); err != nil {
			break
		}
		page = nil
		over := false
		for !whole && !over && f.hungry() {
			var below string
			if below, over = f.split(ctx, w, end, info.Name); below == end {
				whole = !over
			} else {
				end = below
			}
		}
		if over {
			break
		}
	}
	if perr := f.put(w, page); err == nil {
		err = perr
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w.err, w.done = err, true
	f.active--
	f.changed.Broadcast()
}

// split gives the part of a twig after the name at to others. It returns the
// prefix of the branch that contains the name, which the twig keeps, or over if
// nothing remains of the twig. If it returns the same prefix, there was nothing
// to give away.
func (f *forest) split(ctx context.Context, w *twig, prefix, at string) (below string, over bool) {
	all, more, err := f.st.Can().Level(ctx, prefix, maxBranches)
	if more || err != nil {
		return prefix, false // the listing continues, and reports the error
	}
	below = prefix
	var twigs []*twig
	var known *twig
	for _, b := range all {
		switch {
		case b.All && strings.HasPrefix(at, b.Name):
			below = b.Name
		case b.Name <= at || f.of.before != "" && b.Name >= f.of.before:
		case b.All:
			twigs, known = append(twigs, &twig{prefix: b.Name}), nil
		default:
			if known == nil || len(known.blocks[len(known.blocks)-1].all) >= f.page {
				known = &twig{begun: true, done: true, blocks: []block{{}}}
				twigs = append(twigs, known)
			}
			last := &known.blocks[len(known.blocks)-1]
			last.all = append(last.all, b.Info)
		}
	}
	if below == prefix && !slices.ContainsFunc(twigs, func(n *twig) bool { return !n.begun }) {
		return prefix, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range slices.Backward(twigs) {
		n.next, w.next = w.next, n
		if n.begun {
			f.held += len(n.blocks[0].all)
		} else {
			f.waiting++
		}
	}
	f.changed.Broadcast()
	return below, below == prefix
}

func (f *forest) put(w *twig, page []store.Info) error {
	if len(page) == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b := block{all: page}
	if f.held+len(page) > f.most {
		var err error
		if b, err = f.spill(page); err != nil {
			return err
		}
	} else {
		f.held += len(page)
	}
	w.blocks = append(w.blocks, b)
	f.changed.Broadcast()
	return nil
}

func (f *forest) spill(page []store.Info) (block, error) {
	if f.scratch == nil {
		scratch, err := pack.NewScratch()
		if err != nil {
			return block{}, err
		}
		f.scratch = scratch
	}
	var p []byte
	for _, o := range page {
		p = binary.AppendVarint(scan.AppendText(p, o.Name), o.Size)
		p = binary.AppendUvarint(binary.AppendVarint(p, o.ModTime.Unix()), uint64(o.ModTime.Nanosecond()))
		p = scan.AppendText(p, o.Version)
	}
	b := block{off: f.size, size: len(p)}
	f.size += int64(b.size)
	_, err := f.scratch.Seek(b.off, io.SeekStart)
	if err == nil {
		_, err = f.scratch.Write(p)
	}
	return b, err
}

// spilled reads what spill has written.
func spilled(p []byte) (page []store.Info, err error) {
	s := scan.Scanner{B: p}
	for s.At < len(p) && !s.Bad {
		o := store.Info{Name: string(s.Text()), Size: s.Varint()}
		o.ModTime = time.Unix(s.Varint(), int64(s.Uvarint())).UTC()
		o.Version = string(s.Text())
		page = append(page, o)
	}
	if s.Bad {
		err = errors.New("the file of a listing is damaged")
	}
	return page, err
}

func (f *forest) read() (all []store.Info, err error, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.first != nil {
		w := f.first
		switch {
		case len(w.blocks) > 0:
			b := w.blocks[0]
			w.blocks = w.blocks[1:]
			if b.size == 0 {
				f.held -= len(b.all)
				return b.all, nil, true
			}
			_, err := f.scratch.Seek(b.off, io.SeekStart)
			p := make([]byte, b.size)
			if err == nil {
				_, err = io.ReadFull(f.scratch, p)
			}
			if err == nil {
				all, err = spilled(p)
			}
			return all, err, true
		case w.done && w.err != nil:
			return nil, w.err, false
		case w.done:
			f.first = w.next
		default:
			f.changed.Wait()
		}
	}
	return nil, nil, false
}
