package content

import (
	"testing"

	"github.com/holdall/holdall/store/storetest"
)

// Of more objects than may be open at once, the rest is opened for each read.
func TestManyObjectsAreReadWithFewOpen(t *testing.T) {
	st := &storetest.Mem{}
	x := newObjects(st, "x", nil)
	for i := range maxOpen + 10 {
		name := string(rune('a'+i%26)) + string(rune('a'+i/26))
		st.Put(name, []byte(name))
		o, err := x.open(t.Context(), name, false)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 2)
		info, err := o.Info(t.Context())
		if err == nil {
			err = o.ReadAt(t.Context(), b, 0)
		}
		if err != nil || string(b) != name || info.Size != 2 {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if len(x.m) != maxOpen {
		t.Errorf("%d objects are open", len(x.m))
	}
	if err := x.close(); err != nil {
		t.Error(err)
	}
}
