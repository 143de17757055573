package tarfile

import (
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/testkit"
)

func TestIDsHaveOneText(t *testing.T) {
	r := testkit.Rand(t)
	for range 100 {
		id := randomID(r, r.IntN(2) == 0)
		if got, err := segment.ParseID(id.String()); err != nil || got != id {
			t.Errorf("%s: %s, %v", id, got, err)
		}
	}
	const sound = "486aa03b-5c65-4d55-ad28-72210ab8c5e7"
	if id := mustID(t, sound); id.String() != sound || !id.IsData() || id.IsBulk() {
		t.Error(id)
	}
	for _, s := range []string{"", sound[1:], sound + "0", strings.ToUpper(sound), strings.Replace(sound, "-", "0", 1),
		strings.Replace(sound, "4", "-", 1), "7bbb0ade-4163-45c1-a861-9408f3-b9661", "--------------------------------" + "----", strings.Replace(sound, "4", "g", 1), strings.ReplaceAll(sound, "-", ""), " " + sound[1:]} {
		if id, err := segment.ParseID(s); err == nil {
			t.Errorf("%q is %s", s, id)
		}
	}
}

func TestIDsAreOrderedAsSignedNumbers(t *testing.T) {
	order := []string{
		"80000000-0000-0000-0000-000000000000",
		"ffffffff-ffff-ffff-7fff-ffffffffffff",
		"00000000-0000-0000-8000-000000000000",
		"00000000-0000-0000-ffff-ffffffffffff",
		"00000000-0000-0000-0000-000000000000",
		"00000000-0000-0001-8000-000000000000",
		"7fffffff-ffff-ffff-7fff-ffffffffffff",
	}
	for i := range order {
		for k := range order {
			want := 0
			if i < k {
				want = -1
			} else if i > k {
				want = 1
			}
			if got := mustID(t, order[i]).Compare(mustID(t, order[k])); got != want {
				t.Errorf("%s, %s: %d, expected %d", order[i], order[k], got, want)
			}
		}
	}
}

func TestNamesOfTarsAreThoseThatOakReads(t *testing.T) {
	for _, c := range []struct {
		name   string
		number int
		letter byte
	}{
		{"data00000a.tar", 0, 'a'},
		{"data00003a.tar", 3, 'a'},
		{"data99999z.tar", 99999, 'z'},
		{"data123456b.tar", 123456, 'b'},
		{"data2147483647c.tar", 2147483647, 'c'},
		{"data00001.tar", 1, 'a'}, // without a letter
	} {
		n, l, ok := ParseName(c.name)
		if !ok || n != c.number || l != c.letter {
			t.Errorf("%s: %d, %c, %v", c.name, n, l, ok)
		}
		if got := Name(n, l); got != c.name && c.name != "data00001.tar" {
			t.Errorf("%s, expected %s", got, c.name)
		}
	}
	for _, name := range []string{"", "data", ".tar", "data.tar", "dataa.tar", "data0000a.tar", "data012345a.tar", "data00000A.tar", "data00000ab.tar",
		"data00000a.tar.bak", "data00000a.ro.bak", "data00000axtar", "data00000atar", "data00000a.TAR", "data-0000a.tar", "data+0000a.tar",
		"data2147483648a.tar", "data99999999999999999999a.tar", "Data00000a.tar", " data00000a.tar", "data0000\u0661a.tar"} {
		if n, l, ok := ParseName(name); ok {
			t.Errorf("%q is %d, %c", name, n, l)
		}
	}
	for _, bad := range []func(){func() { Name(-1, 'a') }, func() { Name(0, 'A') }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a name for what has none")
				}
			}()
			bad()
		}()
	}
}

func TestNamesOfEntries(t *testing.T) {
	const id = "486aa03b-5c65-4d55-ad28-72210ab8c5e7"
	for name, want := range map[string]EntryName{
		id:                           {},
		id + ".0a1b2c3d":             {CRC: 0x0a1b2c3d, HasCRC: true},
		id + ".0a1b2c3d.":            {CRC: 0x0a1b2c3d, HasCRC: true},
		id + ".0a1b2c3d.more.\u00e4": {CRC: 0x0a1b2c3d, HasCRC: true},
		id + ".":                     {},
		id + ".0a1b2c3":              {},
		id + ".0a1b2c3d4":            {},
		id + ".0A1B2C3D":             {},
		id + ".0a1b2c3g":             {},
		id + "..0a1b2c3d":            {},
	} {
		want.ID = mustID(t, id)
		if got, ok := ParseEntryName(name); !ok || got != want {
			t.Errorf("%q: %v, %v, expected %v", name, got, ok, want)
		}
	}
	for _, name := range []string{"", id[1:], id + "0", id + "-0a1b2c3d", id + "0a1b2c3d", strings.ToUpper(id), "data00000a.tar.idx", id + ".a\nb", id + ".0a1b2c3d.\u2028"} {
		if got, ok := ParseEntryName(name); ok {
			t.Errorf("%q is %v", name, got)
		}
	}
}

func TestHeadersAreReadBack(t *testing.T) {
	long := strings.Repeat("x", 120)
	for _, c := range []struct {
		name string
		size int64
		time time.Time
		want Header
	}{
		{"a", 0, someTime(), Header{"a", 0, someTime(), true}},
		{long, maxOctal, time.Unix(maxOctal+1, 0), Header{long[:nameLen], maxOctal, time.Unix(maxOctal, 0), true}},
		{"data00000a.tar.idx", 512, time.Unix(-1, 0), Header{"data00000a.tar.idx", 512, time.Unix(0, 0), true}},
	} {
		b := AppendHeader([]byte("before"), c.name, c.size, c.time)
		if len(b) != 6+BlockSize {
			t.Fatal(len(b))
		}
		if h, err := ParseHeader(b[6:]); err != nil || h != c.want {
			t.Errorf("%v, %v, expected %v", h, err, c.want)
		}
	}
	for _, b := range [][]byte{nil, make([]byte, BlockSize-1), make([]byte, BlockSize), make([]byte, BlockSize+1)} {
		if h, err := ParseHeader(b); err == nil {
			t.Errorf("%d bytes: %v", len(b), h)
		}
	}
}
