package rescue

import (
	"bytes"
	"slices"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/testkit"
)

// at returns the segment that contains a byte of the file, including its header and zeros.
func (s sample) at(off int64) (id tarfile.ID, header bool) {
	for _, id := range s.order {
		from := s.place(id) - tarfile.BlockSize
		if off >= from && off < from+tarfile.BlockSize+padded(int32(len(s.data[id]))) {
			return id, off < from+tarfile.BlockSize
		}
	}
	return tarfile.ID{}, false
}

func TestOneBitCostsNothingWhileThereIsAnIndex(t *testing.T) {
	r := testkit.Rand(t)
	s := newSample(t, r, 0)
	turned := 0
	for off := r.Int64N(16); off < s.segments; off += 1 + r.Int64N(31) {
		b := bytes.Clone(s.file)
		b[off] ^= 1 << r.IntN(8)
		x := recovered(t, map[string][]byte{s.name: b}, nil)
		x.compare(t, s)
		x.only(t, s)
		turned += len(x.events.of(BitTurned))
		if x.plan.Action == Nothing || len(x.events) == 0 {
			t.Errorf("byte %d: nothing was found", off)
		}
		if !bytes.Equal(x.file[tarfile.BlockSize:s.segments], s.file[tarfile.BlockSize:s.segments]) && len(x.events.of(BitTurned)) > 0 {
			t.Errorf("byte %d: not all is as it was", off)
		}
		if t.Failed() {
			t.Fatal(off, x.events)
		}
	}
	if turned < 50 {
		t.Errorf("%d bits turned back", turned)
	}
}

func TestADamagedByteCostsItsSegmentAtMost(t *testing.T) {
	r := testkit.Rand(t)
	s := newSample(t, r, 0)
	for _, indexed := range []bool{true, false} {
		for off := r.Int64N(16); off < int64(len(s.file)); off += 1 + r.Int64N(31) {
			b := bytes.Clone(s.file)
			b[off] ^= byte(1 + r.IntN(255))
			if !indexed {
				b = b[:s.segments]
				if off >= s.segments {
					break
				}
			}
			x := recovered(t, map[string][]byte{s.name: b}, nil)
			id, header := s.at(off)
			if header && indexed {
				x.compare(t, s) // the index has the header's segment
			} else {
				x.compare(t, s, id)
			}
			if (!header || indexed) && off < s.segments {
				x.only(t, s)
			}
			if _, there := x.data[id]; indexed && off < s.segments && !there && x.plan.Counts.Proof[Lost]+x.plan.Counts.Proof[Foreign] == 0 {
				t.Error("a segment is neither kept nor lost")
			}
			if t.Failed() {
				t.Fatal(indexed, off, x.events)
			}
		}
	}
}

func TestWhatIsBeforeACutIsSaved(t *testing.T) {
	s := newSample(t, testkit.Rand(t), 0)
	for n := int64(0); n < int64(len(s.file)); n += 128 {
		x := recovered(t, map[string][]byte{s.name: s.file[:n]}, nil)
		var lost []tarfile.ID
		for _, id := range s.order {
			if s.place(id)+int64(len(s.data[id])) > n {
				lost = append(lost, id)
			}
		}
		x.compare(t, s, lost...)
		x.only(t, s)
		want := Tail
		if len(lost) == len(s.order) {
			want = Leave
		}
		if x.plan.Action != want || x.plan.Base != -1 {
			t.Errorf("cut at %d: %d, expected %d", n, x.plan.Action, want)
		}
		// The truncated segment is reported by name if its header exists.
		if told := len(x.events.of(SegmentLost)); len(lost) > 0 && (told == 1) != (s.place(lost[0]) <= n) {
			t.Errorf("cut at %d: %d lost segments are told of%v", n, told, x.events)
		}
	}
}

func TestRunsOfZerosCostWhatTheyCover(t *testing.T) {
	r := testkit.Rand(t)
	for range 300 {
		s := newSample(t, r, 0)
		b := bytes.Clone(s.file)
		from := r.Int64N(s.segments / tarfile.BlockSize)
		to := min(from+1+r.Int64N(6), s.segments/tarfile.BlockSize)
		clear(b[from*tarfile.BlockSize : to*tarfile.BlockSize])
		var hit []tarfile.ID
		for at := from; at < to; at++ {
			if id, _ := s.at(at * tarfile.BlockSize); !slices.Contains(hit, id) {
				hit = append(hit, id)
			}
		}
		for _, n := range []int64{int64(len(b)), s.segments} {
			x := recovered(t, map[string][]byte{s.name: b[:n]}, nil)
			x.compare(t, s, hit...)
			x.only(t, s)
			if len(x.events) == 0 && !bytes.Equal(b, s.file) { // the content may be one byte, a zero
				t.Error("nothing was found")
			}
		}
		if t.Failed() {
			t.FailNow()
		}
	}
}

func TestTwoLettersAreWholeTogether(t *testing.T) {
	r := testkit.Rand(t)
	for range 100 {
		a := newSample(t, r, 0)
		b := a.without(t, 'b')
		bad := r.Perm(len(a.order))
		broken := func(s sample, ids ...int) []byte {
			file := bytes.Clone(s.file)
			for _, i := range ids {
				at := s.place(s.order[i])
				if len(s.data[s.order[i]]) < 3 || r.IntN(2) == 0 {
					clear(file[at-tarfile.BlockSize : at+1])
				} else {
					file[at] ^= 0x55
					file[at+2] ^= 0x55
				}
			}
			return file
		}
		fa, fb := broken(a, bad[:3]...), broken(b, bad[3:6]...)
		for cut := range 4 { // whether there is an index in one, the other, both, none
			files := map[string][]byte{a.name: fa, b.name: fb}
			if cut&1 != 0 {
				files[a.name] = fa[:a.segments]
			}
			if cut&2 != 0 {
				files[b.name] = fb[:b.segments]
			}
			x := recovered(t, files, nil)
			if cut < 3 {
				x.compare(t, a)
				x.only(t, a)
			} else if len(x.data) < len(a.order) || !holds(x, a) {
				// Without any index the order is that in which they are met.
				t.Errorf("%d segments, expected %d%v", len(x.data), len(a.order), x.events)
			}
			if want := []int{1, 1, 0, -1}[cut]; x.plan.Base != want {
				t.Errorf("base %d, expected %d", x.plan.Base, want)
			}
		}
		if t.Failed() {
			t.FailNow()
		}
	}
}

func holds(x outcome, s sample) bool {
	for id, data := range s.data {
		if !bytes.Equal(x.data[id], data) {
			return false
		}
	}
	return true
}

func TestAnythingMayBeInAFile(t *testing.T) {
	r := testkit.Rand(t)
	for range 400 {
		s := newSample(t, r, 0)
		files := map[string][]byte{s.name: s.file, "data00000b.tar": s.without(t, 'b', s.order[1]).file}
		for name, b := range files {
			b = bytes.Clone(b)
			for range 1 + r.IntN(5) {
				at, n := r.IntN(len(b)), 1+r.IntN(1500)
				part := b[at:min(at+n, len(b))]
				switch r.IntN(5) {
				case 0:
					clear(part)
				case 1:
					for i := range part {
						part[i] = byte(r.Uint32())
					}
				case 2:
					copy(part, b[r.IntN(len(b)):])
				case 3:
					b = slices.Delete(b, at, min(at+n, len(b)))
				case 4:
					b = slices.Insert(b, at, make([]byte, n)...)
				}
				if len(b) == 0 {
					break
				}
			}
			files[name] = b
		}
		x := recovered(t, files, nil)
		for _, c := range x.plan.Segments {
			if want, ok := s.data[c.ID]; ok && c.Proof >= Repaired && !bytes.Equal(x.data[c.ID], want) {
				t.Fatalf("segment %s is not what was written%v", c.ID, x.events)
			}
		}
	}
}
