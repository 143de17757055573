package transfer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"slices"
	"testing"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store/storetest"
)

var user, other = segment.ID{6: 0x40, 8: 0xa0}, segment.ID{6: 0x40, 8: 0xa0, 15: 1}

// naming is a data segment that refers to another one and names binaries.
func naming(names ...string) []byte {
	b := make([]byte, 1024)
	copy(b, "0aK\x0d")
	binary.BigEndian.PutUint32(b[14:], 1)
	binary.BigEndian.PutUint32(b[18:], uint32(len(names)))
	copy(b[32:], other[:])
	at := len(b)
	for i, name := range names {
		row := b[48+9*i:]
		at = (at - 2 - len(name)) &^ 3
		binary.BigEndian.PutUint32(row, uint32(i))
		row[4] = byte(segment.BlobID)
		binary.BigEndian.PutUint32(row[5:], uint32(segment.MaxSize-len(b)+at))
		binary.BigEndian.PutUint16(b[at:], 0xe000|uint16(len(name)))
		copy(b[at+2:], name)
	}
	return b
}

func none(context.Context, segment.ID) (*segment.Segment, error) { return nil, fs.ErrNotExist }

func TestNamesAreThoseOfTheSegment(t *testing.T) {
	f := segment.Finished{ID: user, Data: naming("one#1", "two#2", "one#1")}
	if err := NewNames("t", none).Describe(t.Context(), &f, nil); err != nil || !slices.Equal(f.Refs, []segment.ID{other}) || !slices.Equal(f.BlobIDs, []string{"one#1", "two#2"}) {
		t.Errorf("%v, %q, %v", f.Refs, f.BlobIDs, err)
	}
	small := NewNames("t", none)
	small.most = 9
	err := small.Describe(t.Context(), &segment.Finished{ID: user, Data: f.Data}, func(err error) { t.Error(err) })
	if e, ok := errors.AsType[*tarfile.Error](err); !ok || e.Class != tarfile.Limit || e.Object != "t" {
		t.Errorf("more names than fit: %v", err)
	}
	b := naming("one#1", "two#2")
	copy(b[len(b)-8:], "\xf0\x00\x01\x00\x00\x00\x05") // a name that is a record of the other one
	lost := 0
	f = segment.Finished{ID: user, Data: b}
	if err := NewNames("t", none).Describe(t.Context(), &f, func(error) { lost++ }); err != nil || lost != 1 || !slices.Equal(f.BlobIDs, []string{"two#2"}) {
		t.Errorf("%d lost, %q, %v", lost, f.BlobIDs, err)
	}
	if err := NewNames("t", none).Describe(t.Context(), &segment.Finished{ID: user, Data: b}, nil); !tarfile.IsDamage(err) {
		t.Errorf("a lost name is no error: %v", err)
	}
	broken := errors.New("broken")
	fails := NewNames("t", func(context.Context, segment.ID) (*segment.Segment, error) { return nil, broken })
	if err := fails.Describe(t.Context(), &segment.Finished{ID: user, Data: b}, func(error) { t.Error("what a store fails to read is not lost") }); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// Segments come in their order, whatever is read first. An error leaves no tar.
func TestATarHasItsSegmentsInOrder(t *testing.T) {
	all := make([]int, 100)
	for i := range all {
		all[i] = i
	}
	id := func(i int) segment.ID { return segment.ID{6: 0x40, 8: 0xb0, 15: byte(i)} }
	broken := errors.New("broken")
	for _, fail := range []int{-1, 50} {
		st := &storetest.Mem{}
		read := func(_ context.Context, i int, buf []byte) (f segment.Finished, err error) {
			if i == fail {
				err = broken
			}
			data := append(buf[:0], bytes.Repeat([]byte{byte(i)}, 10+i)...)
			return segment.Finished{ID: id(i), Data: data}, err
		}
		_, err := Tar[int]{Read: read}.Write(t.Context(), st, "data00000a.tar", all)
		if fail >= 0 {
			if !errors.Is(err, broken) || st.Get("data00000a.tar") != nil {
				t.Errorf("%v, %d bytes", err, len(st.Get("data00000a.tar")))
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		o, err := st.Open(t.Context(), "data00000a.tar")
		if err != nil {
			t.Fatal(err)
		}
		x, err := tarfile.Open(t.Context(), o, "data00000a.tar", tarfile.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i, k := range x.Index().ByPosition() {
			b, err := x.Read(t.Context(), int(k), nil)
			if e := x.Index().At(int(k)); err != nil || e.ID != id(i) || !bytes.Equal(b, bytes.Repeat([]byte{byte(i)}, 10+i)) {
				t.Errorf("segment %d is %s of %d bytes, %v", i, e.ID, e.Len, err)
			}
		}
	}
	taken := 0
	err := Each(t.Context(), pipe.All(all), func(context.Context, int, []byte) (segment.Finished, error) { return segment.Finished{}, nil },
		func(i int, _ segment.Finished) error {
			if taken++; i == 3 {
				return broken
			}
			return nil
		})
	if !errors.Is(err, broken) || taken != 4 {
		t.Errorf("%d were taken, %v", taken, err)
	}
}
