package storetest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/holdall/holdall/store"
)

// Run is the conformance suite of stores: a store that passes fulfils the contract of package
// store. Run calls open for each of its tests. The function open returns an empty store, and a
// function put that makes content the new version of an object. put must replace the object as a
// whole, so that no reader sees a part of it. If a name cannot exist in the store, the error of
// put must wrap errors.ErrUnsupported.
//
// Run also tests creating, listing, removing and amending if the store supports them.
func Run(t *testing.T, open func(t *testing.T) (st store.Store, put func(name string, content []byte) error)) {
	for _, c := range []check{
		{"read returns the bytes of every range", testRanges},
		{"read past the end is an unexpected EOF", testPastEnd},
		{"read at a negative offset is an error", testNegative},
		{"empty read is never an error", testEmptyRead},
		{"empty object has size 0 and no bytes", testEmptyObject},
		{"head and tail shorter, equal and longer than the object", testEnds},
		{"missing object is fs.ErrNotExist at open or first request", testMissing},
		{"info has size, time and version", testInfo},
		{"parallel reads of one object return its bytes", testParallel},
		{"read after close fails", testClosed},
		{"cancelled context stops a request", testCancelled},
		{"open object keeps its version or fails with ErrChanged", testChanged},
		{"reads during changes never mix versions", testChanging},
		{"names are plain text, not patterns or escapes", testNames},
		{"writer", testWriters},
		{"lister", testLister},
		{"Can returns each ability", testSaid},
		{"remover", testRemover},
		{"remover of one version", testRemoverAs},
		{"amendments", testAmendments},
	} {
		t.Run(c.name, func(t *testing.T) {
			st, put := open(t)
			c.test(t, &suite{st: st, putFunc: put})
		})
	}
}

// check is a part of the suite.
type check struct {
	name string
	test func(*testing.T, *suite)
}

// run runs checks on one store.
func (s *suite) run(t *testing.T, all []check) {
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
}

// suite is the store that a test of the suite uses.
type suite struct {
	st      store.Store
	putFunc func(name string, content []byte) error
}

func (s *suite) put(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := s.putFunc(name, content); err != nil {
		t.Fatalf("put %q: %v", name, err)
	}
}

func (s *suite) open(t *testing.T, name string) store.Object {
	t.Helper()
	o, err := s.st.Open(t.Context(), name)
	if err != nil {
		t.Fatalf("open %q: %v", name, err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Errorf("close %q: %v", name, err)
		}
	})
	return o
}

// content opens an object and reads all of it.
func (s *suite) content(t *testing.T, name string) []byte {
	t.Helper()
	o := s.open(t, name)
	info, err := o.Info(t.Context())
	if err != nil {
		t.Fatalf("info %q: %v", name, err)
	}
	p := make([]byte, info.Size)
	if err := o.ReadAt(t.Context(), p, 0); err != nil {
		t.Fatalf("read %q: %v", name, err)
	}
	return p
}

func (s *suite) wantContent(t *testing.T, name string, want []byte) {
	t.Helper()
	if got := s.content(t, name); !bytes.Equal(got, want) {
		t.Errorf("%q: expected %s, found %s", name, brief(want), brief(got))
	}
}

// wantMissing checks that the first request for name reports that it does not exist.
func (s *suite) wantMissing(t *testing.T, name string) {
	t.Helper()
	s.wantMissingBy(t, "read", name, func(o store.Object) error { return o.ReadAt(t.Context(), make([]byte, 1), 0) })
}

func (s *suite) wantMissingBy(t *testing.T, op, name string, ask func(store.Object) error) {
	t.Helper()
	o, err := s.st.Open(t.Context(), name)
	if err == nil {
		err = ask(o)
		if err := o.Close(); err != nil {
			t.Errorf("close %q: %v", name, err)
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s %q: expected an error wrapping fs.ErrNotExist, found %v", op, name, err)
	}
}

func brief(p []byte) string {
	if len(p) <= 32 {
		return fmt.Sprintf("%q", p)
	}
	return fmt.Sprintf("%d bytes beginning %q", len(p), p[:16])
}

// seeded returns a source of random numbers and prints its seed.
func seeded(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// noise returns n bytes in which no two ranges of some length are equal.
func noise(r *rand.Rand, n int) []byte {
	p := make([]byte, 0, n+8)
	for len(p) < n {
		p = binary.LittleEndian.AppendUint64(p, r.Uint64())
	}
	return p[:n]
}

// testSaid looks for methods that have the name and the type of an ability which Can does not return.
// Nothing would ever call them.
func testSaid(t *testing.T, s *suite) {
	can := reflect.ValueOf(s.st).MethodByName("Can").Call(nil)[0]
	for i := range can.NumField() {
		field := can.Type().Field(i)
		method := reflect.ValueOf(s.st).MethodByName(field.Name)
		if method.IsValid() && method.Type() == field.Type && can.Field(i).IsNil() {
			t.Errorf("it has a method %s, which its Can does not return", field.Name)
		}
	}
}
