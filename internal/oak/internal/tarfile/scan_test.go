package tarfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// entry returns header, data and zeros of a segment.
func entry(name string, data []byte) []byte {
	b := append(AppendHeader(nil, name, int64(len(data)), someTime()), data...)
	return append(b, zeros[:pad(len(data))]...)
}

func sealed(id ID, data []byte) []byte { return entry(entryName(id, checksum(data)), data) }

func TestATarWithinASegmentIsNotScanned(t *testing.T) {
	r := testkit.Rand(t)
	inner, _ := small(t, r)
	outer, next := randomID(r, false), randomID(r, true)
	b := slices.Concat(sealed(outer, inner), sealed(next, randomSegment(r, next, Generation{}, 64)))
	found, problems := scanAll(t, b)
	if len(found) != 2 || found[0].ID != outer || found[1].ID != next || len(problems) > 0 {
		t.Errorf("%d found, %v", len(found), problems)
	}
	// A wrong bit is corrected, and reported.
	bad := bytes.Clone(b)
	bad[BlockSize+len(inner)/2] ^= 1
	found, problems = scanAll(t, bad)
	if len(found) != 2 || !bytes.Equal(found[0].Data, inner) || found[0].Bit != len(inner)/2 || found[0].Mask != 1 || found[1].Mask != 0 || len(problems) != 1 || problems[0].Class != BadChecksum || !problems[0].Healed {
		t.Errorf("%d found, %v", len(found), problems)
	}
	if what := fmt.Sprintf("bit 0 of the byte at %d", BlockSize+len(inner)/2); !strings.Contains(problems[0].What, what) {
		t.Errorf("%v, expected %s", problems, what)
	}
	// With a wrong byte it is lost, but what is in it is still not used as segments.
	bad[BlockSize+len(inner)/2] ^= 6
	found, problems = scanAll(t, bad)
	if len(found) != 1 || found[0].ID != next || found[0].Doubt != 0 || len(problems) != 1 || problems[0].Class != BadChecksum || problems[0].Healed {
		t.Errorf("%d found, %v", len(found), problems)
	}
	// Without its header this cannot be determined, and the doubt is reported.
	found, _ = scanAll(t, b[BlockSize:])
	if len(found) < 5 {
		t.Errorf("%d found", len(found))
	}
	clear(b[:BlockSize])
	found, _ = scanAll(t, b)
	for _, f := range found {
		if f.Doubt != DoubtPlace {
			t.Errorf("%s at %d: doubt %d", f.ID, f.HeaderPos, f.Doubt)
		}
	}
}

func TestSegmentsWithoutAChecksumInTheNameAreFound(t *testing.T) {
	r := testkit.Rand(t)
	a, b := randomID(r, true), randomID(r, false)
	data := randomSegment(r, a, Generation{}, 64)
	file := slices.Concat(entry(a.String(), data), entry(b.String()+".more", data), entry(entryName(a, checksum(data))+".more", data))
	found, problems := scanAll(t, file)
	if len(found) != 3 || len(problems) > 0 {
		t.Fatal(found, problems)
	}
	for i, id := range []ID{a, b, a} {
		if f := found[i]; f.ID != id || f.HasCRC != (i == 2) || f.CRC != checksum(data) || !bytes.Equal(f.Data, data) {
			t.Errorf("%d: %v", i, f)
		}
	}
	// If the header is damaged too, nothing shows that it is a segment.
	file[modeAt]++
	if found, problems = scanAll(t, file); len(found) != 2 || len(problems) != 1 || !problems[0].HasSegment || problems[0].Segment != a {
		t.Error(found, problems)
	}
}

func TestSoundHeadersWithSizesThatNoSegmentHasAreSkipped(t *testing.T) {
	r := testkit.Rand(t)
	for _, size := range []int64{0, MaxSegment + 1, maxOctal} {
		id, next := randomID(r, true), randomID(r, true)
		b := slices.Concat(AppendHeader(nil, entryName(id, 1), size, someTime()), sealed(next, make([]byte, 64)))
		found, problems := scanAll(t, b)
		if len(found) != 1 || found[0].ID != next || len(problems) != 1 || problems[0].Class != BadHeader || problems[0].Segment != id || problems[0].Len != BlockSize {
			t.Errorf("%d bytes: %v, %v", size, found, problems)
		}
	}
}

func TestAnIndexThatIsCutOffIsTold(t *testing.T) {
	sound, all := small(t, testkit.Rand(t))
	l, err := mustOpen(t, sound).Layout(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found, problems := scanAll(t, sound[:l.Index.Off+BlockSize+100])
	if len(found) != len(all) || len(problems) != 1 || problems[0].Class != Truncated || problems[0].Off != l.Index.Off || problems[0].Len != BlockSize+100 {
		t.Errorf("%d found, %v", len(found), problems)
	}
}

// TestLengthsAreFoundByTheChecksum takes the size from headers of segments of many
// lengths and contents.
func TestLengthsAreFoundByTheChecksum(t *testing.T) {
	r := testkit.Rand(t)
	for _, n := range []int{1, 15, 16, 511, 512, 513, 1024, 5000, MaxSegment - 1, MaxSegment} {
		for _, zeroed := range []int{0, n / 2, n - 1} { // at the end
			for _, data := range []bool{true, false} {
				id := randomID(r, data)
				if data && (n%16 != 0 || n < 32) {
					continue
				}
				b := randomSegment(r, id, Generation{}, n)
				clear(b[n-zeroed:])
				file := slices.Concat(sealed(id, b), sealed(id, b))
				copy(file[sizeAt:], "xxxxxxxxxxx\x00")
				found, problems := scanAll(t, file)
				if len(found) != 2 || len(problems) != 1 || found[0].Doubt != 0 || !bytes.Equal(found[0].Data, b) {
					t.Errorf("%d bytes, %d zeros: %d found, %v", n, zeroed, len(found), problems)
				}
			}
		}
	}
}

func TestScanPassesOtherEntries(t *testing.T) {
	sound, _ := small(t, testkit.Rand(t))
	b := slices.Concat(entry("notes.txt", []byte("hello")), sound)
	var problems []Problem
	n := 0
	for _, err := range Scan(t.Context(), object(t, b), int64(len(b)), func(p Problem) { problems = append(problems, p) }) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != mustOpen(t, sound).Index().Len() || len(problems) != 1 || problems[0].Class != Gap || problems[0].Off != 0 {
		t.Errorf("%d segments, %v", n, problems)
	}
}

// long returns a tar of some MiB.
func long(t testing.TB, r *rand.Rand) []byte {
	var all []written
	for range 40 {
		id := randomID(r, r.IntN(2) == 0)
		all = append(all, written{id: id, data: randomSegment(r, id, Generation{}, 16*(2+r.IntN(MaxSegment/16-1)))})
	}
	return write(t, all)
}

func TestScanReadsForwardInLongRuns(t *testing.T) {
	b := long(t, testkit.Rand(t))
	for _, damage := range []int{-1, 0, len(b) / 2} {
		file := bytes.Clone(b)
		if damage >= 0 {
			clear(file[damage:min(len(b), damage+1<<20)])
		}
		st := &storetest.Mem{}
		st.Put("t", file)
		var trace strings.Builder
		obj, err := storetest.Trace(st, &trace).Open(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range Scan(t.Context(), obj, int64(len(b)), func(Problem) {}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		at := 0
		for line := range strings.Lines(trace.String()) {
			var off, n int
			if _, err := fmt.Sscanf(line, "read t at %d+%d\n", &off, &n); err != nil {
				t.Fatal(line, err)
			}
			if off != at || off+n < len(b) && n < scanRun || n > scanRun+scanWindow {
				t.Errorf("%q behind %d", line, at)
			}
			at = off + n
		}
		if at != len(b) {
			t.Errorf("read up to %d of %d", at, len(b))
		}
	}
}

func TestScanCanBeLeft(t *testing.T) {
	b := long(t, testkit.Rand(t))
	n := 0
	for _, err := range Scan(t.Context(), object(t, b), int64(len(b)), func(p Problem) { t.Error(p) }) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 3 {
			break
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	n = 0
	for _, err := range Scan(ctx, object(t, b), int64(len(b)), func(p Problem) { t.Error(p) }) {
		cancel()
		last = err
		n++
	}
	if !errors.Is(last, context.Canceled) || n > 40 {
		t.Errorf("%d, %v", n, last)
	}
}
