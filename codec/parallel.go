package codec

import (
	"runtime"
	"sync"
)

// A Parallel processes blocks on several goroutines and returns the results in order. It is for
// formats that compress what they write, because these start no goroutines themselves. The number
// of blocks in progress is bounded: one for each goroutine, and as many that wait. Its methods
// must be called from one goroutine.
type Parallel struct {
	work  func(worker int, dst, src []byte) ([]byte, error)
	take  func(src, out []byte) error
	todo  chan *block
	queue chan *block
	spare chan []byte // former src buffers
	outs  chan []byte // former out buffers
	wg    sync.WaitGroup

	mu    sync.Mutex
	err   error
	taken sync.Cond
	open  int // blocks that have not been taken yet
}

type block struct {
	src, out []byte
	err      error
	done     chan struct{}
}

// NewParallel starts a Parallel with the given number of workers; 0 or less means GOMAXPROCS. The
// function work appends the result for src to dst and returns it. Its argument worker is the
// number of its goroutine, less than workers, so that each can have its own state. The function
// take gets the results one at a time, and may use out only until it returns. The caller must
// call Close.
func NewParallel(workers int, work func(worker int, dst, src []byte) ([]byte, error), take func(src, out []byte) error) *Parallel {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	inUse := workers + 3 // blocks in the queue, added, being taken, and filled by the caller
	p := &Parallel{work: work, take: take, todo: make(chan *block), queue: make(chan *block, workers), spare: make(chan []byte, inUse), outs: make(chan []byte, inUse)}
	p.taken.L = &p.mu
	for worker := range workers {
		p.wg.Go(func() {
			for b := range p.todo {
				if p.failed() == nil {
					b.out, b.err = p.work(worker, from(p.outs), b.src)
				}
				close(b.done)
			}
		})
	}
	p.wg.Go(func() {
		for b := range p.queue {
			<-b.done
			err := b.err
			if err == nil && p.failed() == nil {
				err = p.take(b.src, b.out)
			}
			to(p.spare, b.src)
			to(p.outs, b.out)
			p.mu.Lock()
			if p.err == nil {
				p.err = err
			}
			p.open--
			p.taken.Broadcast()
			p.mu.Unlock()
		}
	})
	return p
}

func (p *Parallel) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Buffer returns an empty buffer that was used as src before, or nil if there is none.
func (p *Parallel) Buffer() []byte { return from(p.spare) }

func from(spare chan []byte) []byte {
	select {
	case b := <-spare:
		return b[:0]
	default:
		return nil
	}
}

func to(spare chan []byte, b []byte) {
	select {
	case spare <- b:
	default:
	}
}

// Add adds a block. The Parallel owns src from then on. Add waits while too many blocks are in
// progress. It returns the first error of any earlier block.
func (p *Parallel) Add(src []byte) error {
	if err := p.failed(); err != nil {
		return err
	}
	b := &block{src: src, done: make(chan struct{})}
	p.mu.Lock()
	p.open++
	p.mu.Unlock()
	p.queue <- b
	p.todo <- b
	return nil
}

// Wait waits until all blocks that were added have been taken. It returns the first error of any
// block.
func (p *Parallel) Wait() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.open > 0 {
		p.taken.Wait()
	}
	return p.err
}

// Close waits like Wait, and ends the goroutines.
func (p *Parallel) Close() error {
	close(p.todo)
	close(p.queue)
	p.wg.Wait()
	return p.err
}
