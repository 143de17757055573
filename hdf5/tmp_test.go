package hdf5

import (
	"testing"
	"time"

	"github.com/holdall/holdall/store/local"
)

func TestLocalTmp(t *testing.T) {
	for _, name := range []string{"big_earliest", "big_latest", "many"} {
		for range 2 {
			st, n, err := local.Open(t.Context(), "/tmp/h5w/"+name+".h5")
			if err != nil {
				t.Fatal(err)
			}
			o, err := st.Open(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			f, err := Open(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			objs, chunks := 0, 0
			for o, err := range f.Walk(t.Context(), WalkOptions{Values: true}) {
				if err != nil || o.Err != nil {
					t.Fatal(err, o.Err)
				}
				objs++
				for _, err := range o.Chunks(t.Context()) {
					if err != nil {
						t.Fatal(err)
					}
					chunks++
				}
			}
			t.Log(name, objs, chunks, time.Since(begin))
		}
	}
}
