package far

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
)

const mib = 1 << 20

// sink takes the parts of an object.
type sink struct {
	mu    sync.Mutex
	parts map[int][]byte
	fail  func(number int) error
}

func (s *sink) put(p []byte, number int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		if err := s.fail(number); err != nil {
			return err
		}
	}
	s.parts[number] = bytes.Clone(p)
	return nil
}

func started(t *testing.T, s *sink, size, most int) *Parts {
	s.parts = map[int][]byte{}
	p := &Parts{
		Size: func(int64) int { return size }, Most: most, Word: "piece", Put: s.put,
		Fail: func(op string, err error) error { return fmt.Errorf("%s x: %w", op, err) },
	}
	p.Start(t.Context())
	return p
}

// memory is that of all parts: the one that is filled, those that are sent, and those
// that wait to be filled again.
func (p *Parts) memory() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.held + cap(p.Buf)
	for _, b := range p.spares {
		n += cap(b)
	}
	return n
}

func TestPartsAreTheBytesInOrder(t *testing.T) {
	var s sink
	p := started(t, &s, 100, 1000)
	var want, got []byte
	for i := range 300 {
		b := bytes.Repeat([]byte{byte(i)}, i%7*11)
		want = append(want, b...)
		if n, err := p.Write(b); n != len(b) || err != nil {
			t.Fatal(n, err)
		}
		clear(b) // io.Writer must not keep it
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range p.Count {
		if n := len(s.parts[i]); n != 100 && i < p.Count-1 || n == 0 {
			t.Errorf("part %d has %d bytes", i, n)
		}
		got = append(got, s.parts[i]...)
	}
	if !bytes.Equal(got, want) || p.Written != int64(len(want)) || p.Sent != p.Written || len(s.parts) != p.Count {
		t.Errorf("%d bytes in %d parts, expected %d; %d written, %d sent", len(got), len(s.parts), len(want), p.Written, p.Sent)
	}
	if n := p.memory(); n != 0 {
		t.Errorf("%d bytes are held at the end", n)
	}
	if _, err := p.Write([]byte("x")); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("write after the end: found %v", err)
	}
}

func TestPartsInMemoryAreBounded(t *testing.T) {
	var s sink
	p := started(t, &s, 8*mib, 1000)
	p.Put = func([]byte, int) error { return nil }
	b := make([]byte, mib)
	for range 120 {
		if _, err := p.Write(b); err != nil {
			t.Fatal(err)
		}
		if n := p.memory(); n > InMemory+8*mib {
			t.Fatalf("expected at most %d MiB, found %d", (InMemory+8*mib)/mib, n/mib)
		}
	}
	p.Stop()
	if n := p.memory(); n != 0 {
		t.Errorf("%d bytes are held at the end", n)
	}
}

func TestFailureOfAPartIsToldOnce(t *testing.T) {
	broken := errors.New("broken")
	s := sink{fail: func(number int) error {
		if number == 2 {
			return broken
		}
		return nil
	}}
	p := started(t, &s, 10, 1000)
	_, err := p.Write(make([]byte, 35))
	if err == nil {
		err = p.Flush(t.Context())
	}
	if !errors.Is(err, broken) || !errors.Is(p.Failed(), broken) {
		t.Errorf("found %v, then %v", err, p.Failed())
	}
	p.Stop()
}

func TestThereAreNoMorePartsThanThereMayBe(t *testing.T) {
	var s sink
	p := started(t, &s, 10, 3)
	n, err := p.Write(make([]byte, 100))
	if err == nil || !strings.Contains(err.Error(), "write x: more than 3 pieces") || n != 40 || p.Count != 3 {
		t.Errorf("wrote %d in %d parts: %v", n, p.Count, err)
	}
	p.Stop()
}

func TestCancelledFlushEndsWhatIsOnItsWay(t *testing.T) {
	var s sink
	p := started(t, &s, 10, 3)
	p.Put = func([]byte, int) error {
		<-p.Ctx.Done()
		return p.Ctx.Err()
	}
	if _, err := p.Write(make([]byte, 15)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Flush(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("found %v", err)
	}
}
