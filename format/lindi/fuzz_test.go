package lindi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store/storetest"
)

// seeds adds the contents of the fixtures: those that are short completely, or the part that pick
// returns.
func seeds(f *testing.F, pick func(name string, b []byte) []byte) {
	names, err := filepath.Glob("testdata/*.lindi.*")
	if err != nil || len(names) < 22 {
		f.Fatal(names, err)
	}
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil || strings.HasSuffix(n, ".expect.json") || len(b) > 100_000 {
			continue
		}
		if b = pick(filepath.Base(n), b); b != nil {
			f.Add(b)
		}
	}
}

func FuzzEntry(f *testing.F) {
	seeds(f, func(_ string, b []byte) []byte {
		if len(b) < frontLen {
			return nil
		}
		return b[entryData:frontLen]
	})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := parseEntry(b, 50)
		if err != nil {
			return
		}
		again, err := parseEntry(appendEntry(nil, e), 50)
		if err != nil || again != e {
			t.Errorf("%+v is written and read as %+v, %v", e, again, err)
		}
	})
}

func FuzzIndex(f *testing.F) {
	seeds(f, func(_ string, b []byte) []byte {
		e, err := parseEntry(b[min(entryData, len(b)):min(frontLen, len(b))], 50)
		if err != nil || e.d+e.s > int64(len(b)) {
			return nil
		}
		return bytes.TrimRight(b[e.d:e.d+e.s], " ")
	})
	f.Add([]byte(`{"files": [{"d": 1, "n": "\ud800", "o": 2, "s": 3, "x": NaN}, 7, {"n": 5}], "files": []}`))
	f.Add(append(appendRow([]byte(indexHead), row{name: "a", o: 1536, d: 2048, s: 5, sum: string(make([]byte, digestLen))}), indexTail...))
	f.Fuzz(func(t *testing.T, b []byte) {
		x := &memberTable{keep: true, size: 1 << 40}
		err := x.parse(scannerOf(b, 50))
		// A text that is read in blocks means the same.
		at := 0
		y := &memberTable{keep: true, size: 1 << 40}
		blocks := scannerOf(nil, 50)
		blocks.More = func(from int) ([]byte, error) {
			rest := blocks.Buf[from:]
			p := append(bytes.Clone(rest), b[at:min(at+max(3, len(rest)), len(b))]...)
			at += len(p) - len(rest)
			clear(rest) // it may be overwritten
			return p, nil
		}
		berr := y.parse(blocks)
		if (err == nil) != (berr == nil) {
			t.Fatalf("%v, in blocks %v", err, berr)
		}
		if err != nil {
			return
		}
		if !slices.Equal(x.list(), y.list()) || !reflect.DeepEqual(x.extra, y.extra) || !reflect.DeepEqual(x.odd, y.odd) {
			t.Fatalf("%+v, in blocks %+v", x, y)
		}
		for i, r := range x.list() {
			// The fast parser must return the same as the slow one.
			s := scannerOf([]byte(x.texts[i]), 50)
			if slow, ok := parseRow(s, new([digestLen]byte)); s.Err != nil || !ok || slow != r {
				t.Fatalf("%q is %+v, slowly %+v, %v", x.texts[i], r, slow, s.Err)
			}
			if r.o < 0 || r.d < 0 || r.s < 0 {
				t.Fatalf("row %+v", r)
			}
			x.Entry(i)
		}
	})
}

// What is JSON for Go means the same to us, and what Python makes of it is JSON
// again, with the same meaning.
func FuzzRFS(f *testing.F) {
	seeds(f, func(name string, b []byte) []byte {
		i := bytes.Index(b, []byte(`"refs"`))
		if i < 0 {
			return nil
		}
		i = bytes.LastIndexByte(b[:i], 0) + 1
		j := bytes.IndexByte(b[i:], 0)
		if j < 0 {
			j = len(b) - i
		}
		return bytes.TrimRight(b[i:i+j], " ")
	})
	f.Add([]byte(`{"refs": {"a/.zattrs": {"x": [1, -0, 1e400, 1.0, 1e-7, NaN, "\u00e9\ud83d\ude00\ud800"]}, "b": "base64:AAE=", "c": ["{{u}}/x", 1, 2], "d": 5, "z/.zarray": "{\"zarr_format\":2,\"shape\":[4],\"chunks\":[2],\"dtype\":\"|O\",\"order\":\"C\",\"compressor\":{\"id\":\"blosc\"},\"filters\":[{\"id\":\"json2\"}],\"fill_value\":null}", "z/1": "base64:AAE="}, "templates": {"u": "http://h"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := parseRFS(b, 50)
		if err != nil {
			return
		}
		k := keysOf(&archive{form: jsonForm, name: "x.lindi.json", rfs: x, limits: format.Limits{}.OrDefault(), size: int64(len(b))})
		decoder, err := k.Decoder(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for e, err := range k.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if decode := decoder(e); decode != nil && e.Fault == nil && e.Size < 1<<20 {
				if _, err := decode(t.Context(), bytes.NewReader(b[:min(e.Size, int64(len(b)))]), func(format.Problem) {}); err != nil && e.Size <= int64(len(b)) {
					t.Fatalf("%q: %v", e.Name, err)
				}
			}
			n := int64(0)
			for ext, err := range k.Extents(t.Context(), e, 0, e.Size) {
				if (err != nil) != (e.Fault != nil) {
					t.Fatalf("%q: fault %+v, extents say %v", e.Name, e.Fault, err)
				}
				if n += ext.Size; ext.Size < 0 || n > e.Size {
					t.Fatalf("%q: extents of %d bytes for %d", e.Name, n, e.Size)
				}
			}
			if e.Fault == nil && n != e.Size {
				t.Fatalf("%q: extents of %d bytes for %d", e.Name, n, e.Size)
			}
		}
		// A change that touches nothing changes no meaning.
		again, err := parseRFS(newRefset(x).appendText(nil), 50)
		index, _ := k.Load(t.Context())
		if err != nil || again.Len() != index.Len() {
			t.Fatalf("%d keys become %v, %v", index.Len(), again, err)
		}
		for _, r := range x.refs {
			v := x.value(r)
			if v[0] != '{' || !json.Valid(v) {
				continue
			}
			made, err := inline(v)
			if err != nil {
				t.Fatalf("%.100q: %v", v, err)
			}
			for _, c := range made {
				if c >= 0x80 || c < ' ' {
					t.Fatalf("%.100q becomes %.100q", v, made)
				}
			}
			if json.Valid(made) == bytes.ContainsAny(made, "IN") && !bytes.Contains(made, []byte(`"`)) {
				t.Fatalf("%.100q becomes %.100q", v, made)
			}
			if twice, err := inline(made); err != nil || !bytes.Equal(made, twice) {
				t.Fatalf("%.100q becomes %.100q and then %.100q", v, made, twice)
			}
		}
	})
}

// A walk over headers ends, whatever it walks over.
func FuzzHeaders(f *testing.F) {
	seeds(f, func(name string, b []byte) []byte {
		if formOf(name) != tarForm {
			return nil
		}
		return b[:min(len(b), 40_000)]
	})
	f.Add(append(appendHeader(nil, "././@LongLink", 5), "name\x00"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		st := &storetest.Mem{}
		st.Put("x", b)
		obj, err := st.Open(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		a := &archive{st: st, name: "x", obj: obj, size: int64(len(b)), limits: format.Limits{}.OrDefault()}
		w, err := a.walk(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		last := int64(-1)
		for _, m := range w.members {
			if m.o <= last || m.s < 0 || m.d <= m.o || m.d > a.size || !m.cut && m.d+m.s > a.size {
				t.Fatalf("member %+v behind %d in %d bytes", m, last, a.size)
			}
			last = m.o
		}
		if w.end < 0 || w.end > a.size || w.zeros < 0 {
			t.Fatalf("end %d, %d zeros, in %d bytes", w.end, w.zeros, a.size)
		}
	})
}

// Nothing that is done with an archive panics or contradicts the rest.
func FuzzOpen(f *testing.F) {
	seeds(f, func(_ string, b []byte) []byte {
		if len(b) > 60_000 {
			return nil
		}
		return b
	})
	f.Fuzz(func(t *testing.T, b []byte) {
		const name = "x.lindi.tar"
		ctx := t.Context()
		st := &storetest.Mem{}
		st.Put(name, b)
		known := func(err error) bool {
			return errors.Is(err, format.ErrCorrupt) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrNotExist)
		}
		for _, view := range Format.Views {
			r, err := Format.Open(ctx, st, name, format.OpenOptions{View: view, Limits: format.Limits{Depth: 100}})
			if err != nil {
				if !known(err) {
					t.Fatalf("%s: %v", view, err)
				}
				continue
			}
			for e, err := range r.Entries(ctx) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Fault != nil || e.Size > 1<<20 {
					continue
				}
				if _, err := content(ctx, st, r, e, func(string) string { return "outside" }); err != nil && !known(err) {
					t.Fatalf("%s: %q: %v", view, e.Name, err)
				}
			}
			for _, err := range r.Regions(ctx) {
				if err != nil {
					t.Fatal(err)
				}
			}
			r.Close()
		}
		plan, err := repair(ctx, st, name, format.OpenOptions{}, func(format.Problem) {})
		if err != nil {
			if !known(err) {
				t.Fatal(err)
			}
			return
		}
		left := applied(t, st, name, plan)
		m, err := Format.Amend(ctx, left, name, format.OpenOptions{})
		if err != nil {
			if !known(err) {
				t.Fatal(err)
			}
			return
		}
		defer m.Close()
		if err := put(ctx, m, "added", []byte("content")); err != nil {
			if !known(err) {
				t.Fatal(err)
			}
			return // a lindi.json alone has no members
		}
		if _, err := m.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		r, err := Format.Open(ctx, left, name, format.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		e, err := r.Lookup(ctx, "added")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := content(ctx, left, r, e, nil); err != nil || string(got) != "content" {
			t.Fatalf("%q, %v", got, err)
		}
	})
}
