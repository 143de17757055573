package autopsy

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

func looked(t testing.TB, b []byte) []run {
	t.Helper()
	m := &storetest.Mem{}
	m.Put("x", b)
	list, err := look(t.Context(), nearby{m}, infoOf(t, m), 1)
	if err != nil {
		t.Fatal(err)
	}
	end := int64(0)
	for _, x := range list {
		if x.off != end || x.len <= 0 || x.look == nil {
			t.Fatalf("a run of %d at %d, the one before ends at %d", x.len, x.off, end)
		}
		end += x.len
	}
	if end != int64(len(b)) {
		t.Fatalf("the runs end at %d of %d", end, len(b))
	}
	return list
}

func TestWhatBytesLookLike(t *testing.T) {
	rnd := testkit.Rand(t)
	var gz, z, tarred bytes.Buffer
	g := gzip.NewWriter(&gz)
	g.Write(testkit.Noise(rnd, 20_000))
	g.Close()
	w := zip.NewWriter(&z)
	f, err := w.Create("a.txt")
	if err != nil {
		t.Fatal(err)
	}
	f.Write(testkit.Noise(rnd, 20_000))
	w.Close()
	tw := tar.NewWriter(&tarred)
	tw.WriteHeader(&tar.Header{Name: "a", Size: 5000, Mode: 0o644})
	tw.Write(bytes.Repeat([]byte("text\n"), 1000))
	tw.Close()
	text := strings.Repeat("some text, é\n", 1000)
	for want, b := range map[string][]byte{
		"zeros": make([]byte, 10_000), "text": []byte(text), "JSON": []byte(`{"a": [` + strings.Repeat(`{"b": "c"},`, 1000) + `1]}`), "compressed, encrypted or random": testkit.Noise(rnd, 30_000),
		"binary data": bytes.Repeat([]byte{1, 2, 3, 0}, 3000), "gzip": gz.Bytes(), "zip header, compressed, encrypted or random, zip directory, end of a zip": z.Bytes(),
		"tar header, text, zeros": tarred.Bytes(), "compressed, encrypted or random, gzip": append(testkit.Noise(rnd, 5000), gz.Bytes()...), "text, zeros, text": []byte(text + string(make([]byte, 100)) + text),
	} {
		var got []string
		for _, x := range looked(t, b) {
			if x.look.name != "binary data" || want == x.look.name { // a few bytes between others
				got = append(got, x.look.name)
			}
		}
		if s := strings.Join(got, ", "); s != want {
			t.Errorf("it looks like %q, expected %q", s, want)
		}
	}
}

func TestSamplesStandForALongObject(t *testing.T) {
	m := &storetest.Mem{}
	m.Put("x", make([]byte, farRead*sample+1)) // a store that is far
	list, err := look(t.Context(), m, infoOf(t, m), 1)
	if err != nil || len(list) != 1 || list[0].look != zeros || list[0].len != farRead*sample+1 {
		t.Errorf("%v, %v", list, err)
	}
}

func FuzzLook(f *testing.F) {
	for _, s := range []string{"", "PK\x03\x04", "PK\x05\x06" + strings.Repeat("\x00", 30), "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03", strings.Repeat("{\"a\":1}", 900), strings.Repeat("\x00", 300) + "ustar", "\xc8d2" + strings.Repeat("\x01", 80)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) { looked(t, b) })
}

// nearby says that a store is on this machine.
type nearby struct{ *storetest.Mem }

func (n nearby) Can() store.Abilities {
	can := n.Mem.Can()
	can.Near = true
	return can
}

func infoOf(t testing.TB, m *storetest.Mem) store.Info {
	t.Helper()
	obj, info, err := storekit.OpenInfo(t.Context(), m, "x")
	if err != nil {
		t.Fatal(err)
	}
	obj.Close()
	info.Name = "x"
	return info
}
