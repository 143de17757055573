package databundle

import (
	"bytes"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// In an index in a header, which has no checksum, a wrong bit can make one name another. That
// entry cannot be read: here it would be empty, with the right checksum.
func TestANameWithSeveralRowsIsNotRead(t *testing.T) {
	st := &storetest.Mem{}
	dir := testkit.Tree(t, t.TempDir(), map[string]string{"a": "some text of a file", "e": ""})
	o := holdall.PackOptions{Store: st, Formats: []*format.Format{Format}, Param: map[string]string{"index": "inline", "index-copies": "0"}}
	if _, err := holdall.Pack(t.Context(), "x.bundle", []string{dir}, o); err != nil {
		t.Fatal(err)
	}
	const shard = "x.bundle/shard-00000000"
	b := st.Get(shard)
	key := appendFileKey(nil, "e")
	at := bytes.Index(b, key)
	if at < 0 {
		t.Fatal("there is no such key")
	}
	b[at+len(key)-1] ^= 'e' ^ 'a'
	st.Put(shard, b)
	a, err := holdall.Open(t.Context(), "x.bundle", holdall.OpenOptions{Store: st, Formats: []*format.Format{Format}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if b, err := a.Get(t.Context(), "a", 100); err == nil {
		t.Errorf("it reads as %q", b)
	}
	failed := 0
	to := holdall.PackOptions{Store: &storetest.Mem{}, Format: Format.Name, Formats: []*format.Format{Format}, OnError: func(string, error) { failed++ }}
	if _, err := holdall.Convert(t.Context(), a, "y.bundle", to); failed != 1 {
		t.Errorf("converted: %d failed, %v", failed, err)
	}
	sum, err := holdall.Verify(t.Context(), "x.bundle", holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Store: st, Formats: []*format.Format{Format}}}, func(holdall.Problem) {})
	if err != nil || sum.Errors == 0 {
		t.Errorf("verify: %+v, %v", sum, err)
	}
}
