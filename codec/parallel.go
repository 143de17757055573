package codec

import (
	"runtime"
	"sync"
)

// A Parallel does work on blocks on several goroutines and hands the results on
// in order. It is for formats that compress what they write, which start no
// goroutines of their own. What is under way is bounded: a block for each
// goroutine, and as many that wait. Its methods belong to one goroutine.
type Parallel struct {
	work  func(worker int, dst, src []byte) ([]byte, error)
	take  func(src, out []byte) error
	todo  chan *block
	queue chan *block
	spare chan []byte // that were src
	outs  chan []byte // that were out
	wg    sync.WaitGroup

	mu    sync.Mutex
	err   error
	taken sync.Cond
	open  int // blocks that are not taken yet
}

type block struct {
	src, out []byte
	err      error
	done     chan struct{}
}

// NewParallel begins. Work makes of each src what is appended to dst; worker
// says which goroutine it is on, below workers, for state of its own. Take gets
// the results one by one; out is its own only until it returns.
func NewParallel(workers int, work func(worker int, dst, src []byte) ([]byte, error), take func(src, out []byte) error) *Parallel {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	p := &Parallel{work: work, take: take, todo: make(chan *block), queue: make(chan *block, workers), spare: make(chan []byte, workers), outs: make(chan []byte, workers)}
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

// Buffer returns an empty buffer that was a src before, if there is one.
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

// Add takes src over, and waits while too much is under way. Its error is the
// first of any block, and stays.
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

// Wait returns when all that was added has been taken.
func (p *Parallel) Wait() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.open > 0 {
		p.taken.Wait()
	}
	return p.err
}

// Close waits, and ends the goroutines.
func (p *Parallel) Close() error {
	close(p.todo)
	close(p.queue)
	p.wg.Wait()
	return p.err
}
