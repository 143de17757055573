package audit

import (
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store/storetest"
)

// FuzzAudit changes some bytes of a small store, at both ends of its tars, and cuts
// them: an audit comes to an end and tells something, unless nothing was changed.
func FuzzAudit(f *testing.F) {
	m := newMade(f, segment.Generation{})
	files := map[string][]byte{}
	for _, name := range []string{oldest, newest} {
		parts := m.parts(name)
		m.write(name, parts[len(parts)-min(len(parts), 2):]) // the smallest
	}
	for _, name := range []string{oldest, newest, repo.Journal, repo.Manifest} {
		files[name] = m.Get(name)
	}
	files[repo.GCLog] = []byte("1,2,3,0,0,6," + m.head.String() + "\n")
	f.Add(uint8(0), uint32(1040), byte(1), uint32(0), uint16(0))
	f.Add(uint8(1), uint32(1100), byte(1), uint32(2000), uint16(0))
	f.Add(uint8(1), uint32(0), byte(0), uint32(0), uint16(513))
	f.Add(uint8(2), uint32(3), byte(7), uint32(0), uint16(3))
	f.Fuzz(func(t *testing.T, which uint8, back uint32, xor byte, front uint32, cut uint16) {
		st := &storetest.Mem{}
		for name, b := range files {
			st.Put(name, b)
		}
		name := []string{oldest, newest, repo.Journal, repo.Manifest, repo.GCLog}[which%5]
		b := st.Get(name)
		b[len(b)-1-int(back)%len(b)] ^= xor
		b[int(front)%len(b)] ^= xor << 1
		st.Put(name, b[:len(b)-int(cut)%len(b)])
		for _, full := range []bool{false, true} {
			for _, p := range problems(t, st, full) {
				if p.Off > int64(len(files[p.Tar])) && p.Tar != "" && files[p.Tar] != nil {
					t.Errorf("%v is behind the end at %d", p, len(files[p.Tar]))
				}
				if _, _, ok := tarfile.ParseName(p.Tar); p.HasSegment && !ok {
					t.Errorf("%v is in no tar", p)
				}
			}
		}
	})
}
