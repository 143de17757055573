package lindi

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// TestATextIsSealed: the digest is the last member of the text, what else is there stays, and a
// text that is sealed again is the same.
func TestATextIsSealed(t *testing.T) {
	for _, text := range []string{
		`{"refs": {}}`,
		`{"refs": {"a": "1"}, "templates": {"u": "http://x"}}`,
		"{\n  \"generationMetadata\": {\"by\": \"lindi\", \"n\": [1, {}] },\n  \"refs\": {\n    \"a\": \"1\"\n  }\n}",
		`{"generationMetadata": {}, "refs": {"a": ["x", 1, 2]}, "version": 1}`,
	} {
		got, err := sealed([]byte(text), 100)
		if err != nil {
			t.Fatal(err)
		}
		again, err := sealed(got, 100)
		if err != nil || !bytes.Equal(again, got) {
			t.Errorf("sealed again: %s", again)
		}
		a := archive{}
		if a.checkSeal(got); !a.rfsSummed || a.rfsWrong {
			t.Errorf("%s: its own digest does not prove it", got)
		}
		var was, is map[string]any
		if json.Unmarshal([]byte(text), &was) != nil || json.Unmarshal(got, &is) != nil {
			t.Fatalf("%s is not JSON", got)
		}
		notes, _ := is[noteKey].(map[string]any)
		delete(notes, sumsKey)
		if old, _ := was[noteKey].(map[string]any); len(notes) == 0 && len(old) == 0 {
			delete(is, noteKey)
			delete(was, noteKey)
		}
		want, _ := json.Marshal(was)
		if have, _ := json.Marshal(is); !bytes.Equal(have, want) {
			t.Errorf("%s has become %s", want, have)
		}
		plain, err := laidOut(got, 100)
		if err != nil || bytes.Contains(plain, []byte(sumsKey)) || !bytes.HasPrefix(plain, []byte(ourRFS)) {
			t.Errorf("in a tar: %s", plain)
		}
	}
	if got, err := sealed([]byte(`{"generationMetadata": 1, "refs": {}}`), 100); err != nil || bytes.Contains(got, []byte(sumsKey)) {
		t.Errorf("%s, %v", got, err)
	}
}

// TestEachBitOfASealedTextCounts turns each bit of a lindi.json. Then it does not open, or there is
// a doubt. If the bit is in the digest or beside it, the text may only be unproven.
func TestEachBitOfASealedTextCounts(t *testing.T) {
	testkit.Serial(t)
	text, err := sealed([]byte(`{"refs": {".zgroup": {"zarr_format": 2}, ".zattrs": {"session": "A"}, "x": "text"}}`), 100)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	const name = "x.lindi.json"
	for at := range text {
		for bit := range 8 {
			b := bytes.Clone(text)
			b[at] ^= 1 << bit
			st := &storetest.Mem{}
			st.Put(name, b)
			r, err := open(ctx, st, name, format.OpenOptions{View: "zarr"})
			if err != nil {
				continue
			}
			k := r.(*keys)
			if k.a.rfsSummed && string(b) != string(text) {
				t.Errorf("byte %d, bit %d: proven", at, bit)
			}
			inSeal := at >= len(text)-len(sealEnd)-64-len(`"holdall_blake3": "`)
			if !k.a.rfsWrong && !inSeal {
				t.Errorf("byte %d, bit %d: not seen", at, bit)
			}
			r.Close()
		}
	}
}
