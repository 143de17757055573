package kit_test

import (
	"errors"
	"testing"

	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

func TestObjectsAreWrittenWholeOrNotAtAll(t *testing.T) {
	st := &storetest.Mem{}
	broken := errors.New("broken")
	if err := kit.WriteBytes(t.Context(), st, "a", []byte("abcdef")); err != nil || string(st.Get("a")) != "abcdef" {
		t.Error(err)
	}
	if err := kit.Copy(t.Context(), st, "b", st, "a", []byte("xy"), []byte("z")); err != nil || string(st.Get("b")) != "xycdefz" {
		t.Errorf("%q, %v", st.Get("b"), err)
	}
	if err := kit.Copy(t.Context(), st, "c", st, "a", nil, nil); err != nil || string(st.Get("c")) != "abcdef" {
		t.Errorf("%q, %v", st.Get("c"), err)
	}
	_, err := storekit.Write(t.Context(), st, "d", func(w store.Writer) error {
		w.Write([]byte("half"))
		return broken
	})
	if err != broken || st.Get("d") != nil {
		t.Errorf("%q, %v", st.Get("d"), err)
	}
	if err := kit.Copy(t.Context(), st, "e", st, "missing", nil, nil); err == nil || st.Get("e") != nil {
		t.Error(err)
	}
}
