package tar

import (
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

func TestNamesInACharacterSet(t *testing.T) {
	st := &storetest.Mem{}
	st.Put("x.tar", testkit.Read(t, "testdata/cp932.tar"))
	r, err := open(t.Context(), st, "x.tar", format.OpenOptions{Param: map[string]string{"charset": "cp932"}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Lookup(t.Context(), "日本/表.txt"); err != nil {
		t.Error(err)
	}
	if e, err := r.Lookup(t.Context(), strings.Repeat("日", 70)); err != nil || e.Link != strings.Repeat("本", 80) {
		t.Errorf("%+v, %v", e, err)
	}
}
