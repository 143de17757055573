package zarr3_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/lindi"
	"github.com/holdall/holdall/store/storetest"
)

// To know how long many chunks of strings are takes few requests.
func TestChunksOfStringsAreReadTogether(t *testing.T) {
	m := &storetest.Mem{}
	w, err := lindi.Format.Create(t.Context(), m, "x.lindi.tar", format.CreateOptions{Param: map[string]string{"as": "zarr"}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	add := func(name, text string) {
		if err := w.Add(t.Context(), format.Entry{Name: name, Size: int64(len(text))}, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	const chunks = 300
	add(".zgroup", `{"zarr_format":2}`)
	add("s/.zarray", fmt.Sprintf(`{"zarr_format":2,"shape":[%d],"chunks":[1],"dtype":"|O","order":"C","compressor":null,"filters":[{"id":"json2"}],"fill_value":""}`, chunks))
	for i := range chunks {
		add(fmt.Sprint("s/", i), fmt.Sprintf(`["%s","|O",[1]]`, strings.Repeat("x", 2000+i)))
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	a, err := holdall.Open(t.Context(), "x.lindi.tar", holdall.OpenOptions{Store: storetest.Trace(m, &log), View: "zarr3", Formats: []*format.Format{lindi.Format}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	found := 0
	for e, err := range a.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := strings.CutPrefix(e.Name, "s/c."); ok {
			var i int64
			fmt.Sscan(n, &i)
			if found++; e.Size != 8+2000+i {
				t.Errorf("%s: %d bytes", e.Name, e.Size)
			}
		}
	}
	if requests := strings.Count(log.String(), "\n"); found != chunks || requests > 12 {
		t.Errorf("%d chunks, %d requests", found, requests)
	}
}
