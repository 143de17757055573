package tarfile

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// reseal puts right the checksum of the index of a small tar.
func reseal(b []byte) []byte {
	end := len(b) - trailerLen
	f := parseFooter(b[:end])
	n := int(f.count) * entryV2
	binary.BigEndian.PutUint32(b[end-footerLen:], checksum(b[end-footerLen-n:end-footerLen]))
	return b
}

func TestNoIndexSaysWhy(t *testing.T) {
	sound, _ := small(t, testkit.Rand(t))
	end := len(sound) - trailerLen
	put := func(at int, v uint32) func([]byte) []byte {
		return func(b []byte) []byte {
			binary.BigEndian.PutUint32(b[at:], v)
			return b
		}
	}
	sealed := func(change func([]byte) []byte) func([]byte) []byte {
		return func(b []byte) []byte { return reseal(change(b)) }
	}
	first := end - footerLen - 7*entryV2
	for reason, change := range map[Reason]func([]byte) []byte{
		LengthNotBlocks:     func(b []byte) []byte { return b[:len(b)-1] },
		TooShort:            func(b []byte) []byte { return b[len(b)-minLen+BlockSize:] },
		UnknownMagic:        put(end-4, graphV1),
		NoEntries:           put(end-12, 0),
		SizeTooSmall:        put(end-8, 7*entryV1),
		SizeNotBlocks:       put(end-8, 513),
		CountTooLarge:       func(b []byte) []byte { return put(end-8, 1<<30)(put(end-12, 1<<20)(b)) },
		WrongChecksum:       put(first, 0),
		WrongOrder:          sealed(func(b []byte) []byte { copy(b[first+entryV2:], b[first:first+16]); return b }),
		NegativePosition:    sealed(put(first+16, 1<<31)),
		PositionNotAtABlock: sealed(put(first+16, 513)),
		NoLength:            sealed(put(first+20, 0)),
	} {
		_, err := open(t, change(bytes.Clone(sound)))
		e, ok := errors.AsType[*NoIndex](err)
		if !ok || e.Reason != reason || e.Offset < 0 || !strings.HasPrefix(err.Error(), fmt.Sprintf("data00000a.tar at %d: ", e.Offset)) {
			t.Errorf("%d: %v", reason, err)
		}
	}
	for _, n := range []int32{-1, 1<<31 - 1} {
		if _, err := open(t, put(end-12, uint32(n))(bytes.Clone(sound))); err == nil {
			t.Errorf("%d entries are taken", n)
		}
	}
	if _, none := locateIndex(sound, 1<<31); none == nil || none.Reason != TooLong {
		t.Error(none)
	}
}

// TestOpeningTakesOneRequest traces what is read: the tail, and a longer index with one more
// request.
func TestOpeningTakesOneRequest(t *testing.T) {
	r := testkit.Rand(t)
	var long bytes.Buffer
	w := NewWriter(&long, "t", someTime)
	var ids []ID
	for range 3000 {
		id := randomID(r, true)
		ids = append(ids, id)
		if err := w.Add(id, Generation{}, randomSegment(r, id, Generation{}, 32), pack(ids[:min(len(ids)-1, 5)]...), []string{id.String()}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	short, _ := small(t, r)
	index := long.Len() - trailerLen - footerLen - 3000*entryV2
	for _, c := range []struct {
		b    []byte
		tail int
		want string
	}{
		{short, 0, "tail t 65536\ninfo t\n"},
		{short, 1, "tail t 1040\ninfo t\n" + fmt.Sprintf("read t at %d+%d\n", len(short)-trailerLen-footerLen-7*entryV2, 7*entryV2)},
		{long.Bytes(), 0, "tail t 65536\ninfo t\n" + fmt.Sprintf("read t at %d+%d\n", index, long.Len()-65536-index)},
		{long.Bytes(), 1 << 20, "tail t 1048576\ninfo t\n"},
	} {
		st := &storetest.Mem{}
		st.Put("t", c.b)
		var trace strings.Builder
		obj, err := storetest.Trace(st, &trace).Open(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		x, err := Open(t.Context(), obj, "t", Options{Tail: c.tail})
		if err != nil {
			t.Fatal(err)
		}
		if trace.String() != c.want {
			t.Errorf("tail %d: %s, expected %s", c.tail, trace.String(), c.want)
		}
		for i, e := range x.Index().All() {
			trace.Reset()
			if k, ok := x.Index().Find(e.ID); !ok || k != i {
				t.Fatalf("%s is %d, %v, expected %d", e.ID, k, ok, i)
			}
			if b, err := x.Read(t.Context(), i, nil); err != nil || trace.String() != fmt.Sprintf("read t at %d+%d\n", e.Pos, len(b)) {
				t.Fatalf("%v, %s", err, trace.String())
			}
		}
		for range 100 {
			id := randomID(r, true)
			if i, ok := x.Index().Find(id); ok {
				t.Errorf("%s is %d", id, i)
			}
		}
	}
}

func TestSegmentsOutsideOfTheFileAreNotRead(t *testing.T) {
	sound, _ := small(t, testkit.Rand(t))
	first := len(sound) - trailerLen - footerLen - 7*entryV2
	for _, c := range []struct {
		pos, n uint32
	}{
		{uint32(len(sound)) - 512, 513},
		{1 << 30, 1},
		{512, MaxSegment + 1},
		{512, 1<<31 - 1},
		{1<<31 - 512, 1<<31 - 1},
	} {
		b := bytes.Clone(sound)
		binary.BigEndian.PutUint32(b[first+16:], c.pos)
		binary.BigEndian.PutUint32(b[first+20:], c.n)
		x := mustOpen(t, reseal(b))
		if _, err := x.Read(t.Context(), 0, nil); !outOfBounds(err) || !strings.HasPrefix(err.Error(), fmt.Sprintf("data00000a.tar at %d: segment ", c.pos)) {
			t.Errorf("%v: %v", c, err)
		}
		p := problemsOf(t, x)
		if !slices.ContainsFunc(p, func(p Problem) bool { return p.Class == OutOfBounds }) {
			t.Errorf("%v: %v", c, p)
		}
	}
}

func outOfBounds(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Class == OutOfBounds
}

func TestPartsOverTheLimitAreNotRead(t *testing.T) {
	b, _ := small(t, testkit.Rand(t))
	x, err := Open(t.Context(), object(t, b), "t", Options{MaxPart: 64})
	if err != nil {
		t.Fatal(err)
	}
	if e, ok := errors.AsType[*Error](second(x.Graph(t.Context()))); !ok || e.Class != Limit {
		t.Error(e)
	}
	if e, ok := errors.AsType[*Error](second(x.Binaries(t.Context()))); !ok || e.Class != Limit {
		t.Error(e)
	}
}

func second[T any](_ T, err error) error { return err }

func TestErrorsOfTheStoreAreReturnedAsTheyAre(t *testing.T) {
	b, _ := small(t, testkit.Rand(t))
	oops := errors.New("oops")
	st := &storetest.Mem{}
	st.Put("t", b)
	for k := 1; ; k++ {
		obj, err := storetest.Fault(st, storetest.Nth("", k, oops)).Open(t.Context(), "t")
		if err == nil {
			err = everything(t, obj, int64(len(b)))
		}
		if err == nil {
			if k < 10 {
				t.Errorf("only %d requests", k)
			}
			break
		}
		if !errors.Is(err, oops) {
			t.Errorf("request %d: %v", k, err)
		}
	}
}

// everything reads a tar in all ways.
func everything(t *testing.T, obj store.Object, size int64) error {
	x, err := Open(t.Context(), obj, "t", Options{Tail: 1})
	if err != nil {
		return err
	}
	ignore := func(Problem) {}
	_, err = x.CheckLayout(t.Context(), ignore)
	if err != nil {
		return err
	}
	for i := range x.Index().Len() {
		if _, err := x.Read(t.Context(), i, nil); err != nil {
			return err
		}
	}
	for _, err := range []error{second(x.Graph(t.Context())), second(x.Binaries(t.Context()))} {
		if err != nil {
			return err
		}
	}
	for _, err := range Scan(t.Context(), obj, size, ignore) {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestAnObjectThatBecameShorterIsTruncated(t *testing.T) {
	b, _ := small(t, testkit.Rand(t))
	st := &storetest.Mem{}
	st.Put("t", b)
	obj, err := storetest.Fault(st, func(op, _ string, off, n int64) error {
		if op == "read" {
			return io.ErrUnexpectedEOF
		}
		return nil
	}).Open(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	x, err := Open(t.Context(), obj, "t", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if e, ok := errors.AsType[*Error](second(x.Read(t.Context(), 0, nil))); !ok || e.Class != Truncated || !errors.Is(e, io.ErrUnexpectedEOF) {
		t.Error(e)
	}
	if _, err := Open(t.Context(), missing{}, "t", Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

type missing struct{ store.Object }

func (missing) Can() store.ObjectAbilities {
	return store.ObjectAbilities{ReadEnd: func(context.Context, []byte, bool) (int, error) { return 0, fs.ErrNotExist }}
}
