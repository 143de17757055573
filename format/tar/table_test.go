package tar

import (
	"bytes"
	"math"
	"reflect"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/columns"
)

// What is packed is what an archive shows that is read only once.
func TestTableReturnsWhatWasAdded(t *testing.T) {
	long := bytes.Repeat([]byte("long/"), 60_000)
	var all table
	var members []member
	for i, at := range []int64{0, 512, 1 << 40, math.MaxInt64} {
		for _, name := range [][]byte{nil, []byte("a"), []byte("d/b\xff"), long} {
			for _, sec := range []int64{0, -1, math.MinInt64 / 1_000_000_000, 1 << 33} {
				m := member{name: name, at: at, size: at / 2, sec: sec, nsec: int32(at % 1_000_000_000), mode: uint16(i * 01777), kind: format.Kind(i),
					owner: name[:min(len(name), 1)], group: []byte("staff")}
				switch i {
				case 1:
					m.link = []byte("to/" + string(name))
				case 2:
					m.fault = &format.Problem{Code: format.BadHeader, Off: at}
				case 3:
					m.sparse = &sparse{at: at}
				}
				members = append(members, m)
				all.add(&m)
			}
		}
	}
	var people columns.Words
	for i := range members {
		if got, want := all.Entry(i), members[i].entry("", &people); !reflect.DeepEqual(got, want) {
			t.Fatalf("member %d: found %+v, expected %+v", i, got, want)
		}
		if got := all.Name(i); got != string(members[i].name) {
			t.Fatalf("member %d: found the name %q", i, got)
		}
	}
}
