package rescue

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

func TestATarWithNothingInItIsLeftOut(t *testing.T) {
	for _, b := range [][]byte{nil, {0}, make([]byte, 1024), make([]byte, 1<<20), bytes.Repeat([]byte("no tar "), 5000)} {
		x := recovered(t, map[string][]byte{"data00000a.tar": b}, nil)
		if x.plan.Action != Leave || !strings.Contains(x.plan.Words()[0], "the tar is empty") {
			t.Errorf("%d bytes: %v", len(b), x.plan.Words())
		}
		m := newMemory(nil)
		err := Write(t.Context(), m, "data00000a.tar", x.plan)
		o, openErr := m.Open(t.Context(), "data00000a.tar")
		if openErr == nil {
			_, openErr = o.Info(t.Context())
		}
		if !errors.Is(err, ErrNothing) || !errors.Is(openErr, fs.ErrNotExist) {
			t.Error(err, openErr)
		}
	}
}

func TestWhatNobodyCanReadIsLeftOut(t *testing.T) {
	r := testkit.Rand(t)
	for name, spoil := range map[string]func(b []byte){
		"version":    func(b []byte) { b[3] = 14 },
		"magic":      func(b []byte) { b[0] = '1' },
		"references": func(b []byte) { b[15] = 0xff },
		"generation": func(b []byte) { b[10] = 0xff },
	} {
		s := newSample(t, r, 0)
		i := slices.IndexFunc(s.order, func(id tarfile.ID) bool { return len(s.data[id]) == 1024 })
		id := s.order[i]
		sound := bytes.Clone(s.data[id])
		at := s.place(id)
		// The writer refuses some of these: so it is put in, with its checksum.
		other := s
		other.data = map[tarfile.ID][]byte{}
		for k, v := range s.data {
			other.data[k] = v
		}
		other.data[id] = bytes.Clone(sound)
		spoil(other.data[id])
		h := tarfile.AppendHeader(nil, fmt.Sprintf("%s.%08x", id, crc32.ChecksumIEEE(other.data[id])), 1024, someTime(i+1))
		b := bytes.Clone(s.file)
		copy(b[at-tarfile.BlockSize:], append(h, other.data[id]...))
		for _, n := range []int64{int64(len(b)), s.segments} {
			x := recovered(t, map[string][]byte{s.name: b[:n]}, nil)
			x.compare(t, s, id)
			x.only(t, s)
			if left := x.events.of(LeftOut); len(left) != 1 || left[0].Segment != id || x.plan.Counts.Proof[Foreign] != 1 || x.plan.Action != Rewrite {
				t.Errorf("%s: %v: %v", name, x.plan.Action, x.events)
			}
			// A sound copy of it counts more.
			x = recovered(t, map[string][]byte{s.name: b[:n], "data00000b.tar": s.file[:s.segments]}, nil)
			x.compare(t, s)
		}
	}
}

func TestCopiesInOtherTarsAreTaken(t *testing.T) {
	r := testkit.Rand(t)
	s := newSample(t, r, 0)
	other := s.without(t, 'a', s.order[1])
	b := bytes.Clone(s.file)
	clear(b[s.place(s.order[1])-tarfile.BlockSize:][:600]) // there is no copy of it
	clear(b[s.place(s.order[3])-tarfile.BlockSize:][:600]) // header and more
	copy(b[s.place(s.order[5])+500:], "something else")    // content
	files := map[string][]byte{s.name: b, "data00007a.tar": other.file}
	x := recovered(t, files, nil)
	x.compare(t, s, s.order[1])
	if c := x.plan.Counts; c.Replaced != 2 || c.Proof[Lost] != 1 || len(x.plan.Sources) != 2 || x.plan.Letters != 1 || c.LostBytes != int64(len(s.data[s.order[1]])) {
		t.Errorf("%+v %v", c, x.plan.Words())
	}
	for _, e := range x.events.of(OtherCopy) {
		if e.Object != "data00007a.tar" {
			t.Error(e)
		}
	}
	// Damaged copies are no copies.
	bad := bytes.Clone(other.file)
	for _, i := range []int{3, 5} {
		at := other.place(s.order[i])
		bad[at] ^= 1
		bad[at+1] ^= 1
		bad[at+2] ^= 1
	}
	files["data00007a.tar"] = bad
	x = recovered(t, files, nil)
	x.compare(t, s, s.order[1], s.order[3], s.order[5])
	if len(x.plan.Sources) != 1 || x.plan.Counts.Replaced != 0 {
		t.Error(x.plan.Words())
	}
}

func TestWhatACleanupReclaimedStaysAway(t *testing.T) {
	a := newSample(t, testkit.Rand(t), 0)
	b := a.without(t, 'b', a.order[0], a.order[4])
	files := map[string][]byte{a.name: a.file, b.name: b.file}
	x := recovered(t, files, nil)
	x.compare(t, b)
	if x.plan.Action != Nothing || x.plan.Base != 1 || len(x.data) != len(b.order) {
		t.Error(x.plan.Words())
	}
}

func TestHeadersKeepTheirTimes(t *testing.T) {
	s := newSample(t, testkit.Rand(t), 0)
	x := recovered(t, map[string][]byte{s.name: s.file[:s.segments]}, nil)
	if !bytes.Equal(x.file, s.file) {
		t.Error("the file is not what it was")
	}
	b := bytes.Clone(s.file)
	clear(b[s.place(s.order[2])-tarfile.BlockSize:][45:tarfile.BlockSize]) // all but id and checksum
	p, _ := newMemory(map[string][]byte{s.name: b}).survey(t, 0, nil)
	out := write(t, p, s.name)
	tar, b := out.open(t, s.name), out.bytes(t, s.name)
	for i, id := range s.order {
		k, _ := tar.Index().Find(id)
		h, err := tarfile.ParseHeader(b[tar.Index().At(k).Pos-tarfile.BlockSize:][:tarfile.BlockSize])
		expect := someTime(i + 1)
		if i == 2 {
			expect = someTime(2) // of the one before
		}
		if err != nil || !h.ModTime.Equal(expect) {
			t.Errorf("segment %d: %v, expected %v; %v", i, h.ModTime, expect, err)
		}
	}
}

// TestLongNamesOfBinariesAreFoundWhereTheyAre has a name in a record of another segment: of the
// same tar, of another tar, and of none.
func TestLongNamesOfBinariesAreFoundWhereTheyAre(t *testing.T) {
	r := testkit.Rand(t)
	name := strings.Repeat("long name ", 500)
	text, user := randomID(r, true), randomID(r, true)
	textData, userData := longName(name, text)
	s := newSample(t, r, 0)
	with := func(ids ...tarfile.ID) sample {
		c := s
		c.order = append(slices.Clone(s.order), ids...)
		c.data = map[tarfile.ID][]byte{text: textData, user: userData}
		for id, b := range s.data {
			c.data[id] = b
		}
		c.names = map[tarfile.ID][]string{user: {name}}
		c.build(t)
		return c
	}
	both, one, other := with(text, user), with(user), with(text)
	other = other.without(t, 'a', user)
	damaged := bytes.Clone(one.file)
	damaged[s.place(s.order[2])] ^= 1
	for what, c := range map[string]struct {
		files map[string][]byte
		named bool
	}{
		"in the same tar":               {map[string][]byte{s.name: both.file[:both.segments]}, true},
		"in another tar":                {map[string][]byte{s.name: one.file[:one.segments], "data00001a.tar": other.file}, true},
		"nowhere":                       {map[string][]byte{s.name: one.file[:one.segments]}, false},
		"nowhere but in the references": {map[string][]byte{s.name: damaged}, true},
	} {
		x := recovered(t, c.files, nil)
		m := newMemory(map[string][]byte{s.name: x.file})
		refs, err := m.open(t, s.name).Binaries(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		named := false
		for g := range refs.All() {
			named = named || g.ID == user && slices.Contains(slices.Collect(g.Refs.All()), name)
		}
		if named != c.named {
			t.Errorf("%s: named is %t", what, named)
		}
	}
}

// longName returns a segment with the given ID that contains a name, and a segment that contains
// a binary of that name.
func longName(name string, id tarfile.ID) (text, user []byte) {
	text, user = make([]byte, 2+len(name)+1024), make([]byte, 256)
	text = text[:len(text)&^15]
	at := (len(text) - 2 - len(name)) &^ 3
	binary.BigEndian.PutUint16(text[at:], 0x8000|uint16(len(name)-128))
	copy(text[at+2:], name)
	record := func(b []byte, refs, at int, typ segment.Type) {
		copy(b, "0aK\x0d")
		binary.BigEndian.PutUint32(b[14:], uint32(refs))
		binary.BigEndian.PutUint32(b[18:], 1)
		row := b[32+16*refs:]
		row[4] = byte(typ)
		binary.BigEndian.PutUint32(row[5:], uint32(segment.MaxSize-len(b)+at))
	}
	record(text, 0, at, segment.ValueRecord)
	record(user, 1, 240, segment.BlobID)
	copy(user[32:], id[:])
	copy(user[240:], []byte{0xf0, 0, 1, 0, 0, 0, 0})
	return text, user
}

func TestChangedSegmentsAreNotWritten(t *testing.T) {
	s := newSample(t, testkit.Rand(t), 0)
	m := newMemory(map[string][]byte{s.name: s.file[:s.segments]})
	p, _ := m.survey(t, 0, nil)
	for _, b := range [][]byte{s.file[:s.segments-tarfile.BlockSize], append([]byte{1}, s.file...)} {
		other := newMemory(map[string][]byte{s.name: b})
		p.Sources[0] = other.source(t, s.name)
		out := newMemory(nil)
		if err := Write(t.Context(), out, s.name, p); !errors.Is(err, store.ErrChanged) {
			t.Error(err)
		}
		o, err := out.Open(t.Context(), s.name)
		if err == nil {
			_, err = o.Info(t.Context())
		}
		if !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
}

// TestFailuresOfAStoreAreNoDamage lets each request fail in turn.
func TestFailuresOfAStoreAreNoDamage(t *testing.T) {
	s := newSample(t, testkit.Rand(t), 0)
	b := bytes.Clone(s.file)
	b[s.place(s.order[1])+3] ^= 4
	clear(b[s.place(s.order[3]):][:9])
	broken := errors.New("broken")
	for _, files := range []map[string][]byte{
		{s.name: b, "data00003a.tar": s.without(t, 'a', s.order[1]).file},
		{s.name: b[:s.segments], "data00000b.tar": s.file},
	} {
		done := false
		for k := 1; !done; k++ {
			st := storetest.Fault(newMemory(files).Mem, storetest.Nth("read", k, broken))
			err := surveyAndWrite(t, st, files)
			switch {
			case err == nil:
				done = true
				if k < 10 {
					t.Errorf("only %d requests", k)
				}
			case !errors.Is(err, broken):
				t.Fatalf("request %d: %v", k, err)
			}
		}
	}
}

func surveyAndWrite(t *testing.T, st store.Store, files map[string][]byte) error {
	var letters []Source
	var others []Source
	m := newMemory(files)
	for _, name := range m.names {
		o, err := st.Open(t.Context(), name)
		if err != nil {
			return err
		}
		if n, _, _ := tarfile.ParseName(name); n == 0 {
			letters = append(letters, Source{name, o})
		} else {
			others = append(others, Source{name, o})
		}
	}
	copies := func(ctx context.Context, id tarfile.ID) iter.Seq2[Place, error] {
		return func(yield func(Place, error) bool) {
			for _, s := range others {
				x, err := tarfile.Open(ctx, s.Object, s.Name, tarfile.Options{})
				if err != nil {
					yield(Place{}, err)
					return
				}
				if k, ok := x.Index().Find(id); ok {
					e := x.Index().At(k)
					if !yield(Place{s, e.Pos, e.Len}, nil) {
						return
					}
				}
			}
		}
	}
	p, err := Survey(t.Context(), letters, copies, func(Event) {})
	if err != nil {
		return err
	}
	if len(p.Segments) < 6 {
		t.Errorf("%d segments", len(p.Segments))
	}
	err = Write(t.Context(), newMemory(nil), "data00000a.tar", p)
	return err
}
