package rvn

import (
	"bytes"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

func FuzzHeader(f *testing.F) {
	for _, name := range fixtures(f, "") {
		if b := fixture(f, name); len(b) >= headerLen {
			f.Add(b[:headerLen])
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerLen {
			return
		}
		h, swapped := parseHeader(b)
		if h.contentsOff() < headerLen || h.flatByCounts() < 0 {
			t.Errorf("%+v", h)
		}
		if !swapped {
			if again, _ := parseHeader(h.append(nil)); again != h {
				t.Errorf("%+v, written and read again %+v", h, again)
			}
		}
		for _, g := range guesses(h, int64(len(b))*32) {
			if g.flatByCounts() != int64(len(b))*32 {
				t.Errorf("%+v makes %d bytes, not %d", g, g.flatByCounts(), len(b)*32)
			}
		}
	})
}

func FuzzIndex(f *testing.F) {
	for _, name := range fixtures(f, "basic", "links", "names", "dmg-ix", "owners") {
		a, _, err := contentsOf(f, fixture(f, name))
		if a == nil || err != nil && a.index == nil {
			continue
		}
		x := a.index
		if flat := bytes.Join([][]byte{x.groups, x.owners, x.links, x.recs, x.names}, nil); len(flat) < 5000 {
			f.Add(a.h.Groups, a.h.Owners, a.h.LinkBlocks, a.h.Files, a.h.NameBlocks, flat)
		}
	}
	f.Fuzz(func(t *testing.T, groups, owners uint16, links, files, names uint32, flat []byte) {
		x, err := parseIndex("x", header{Groups: groups, Owners: owners, LinkBlocks: links, Files: files, NameBlocks: names}, flat, 1<<20)
		if err != nil {
			return
		}
		x.plausible()
		total := int64(0)
		for i := range x.Len() {
			e := x.Entry(i)
			if e.Size < 0 || len(e.Name) > maxPath+300 {
				t.Errorf("%+v", e)
			}
			if i < x.end && x.start(i) != total {
				t.Errorf("content of %d begins at %d, not %d", i, x.start(i), total)
			}
			total += x.rec(i).size()
		}
		if surplus := len(x.names) - x.namesUsed; surplus > 0 && surplus < 100 && x.Len() < 100 && len(x.lost) == 0 {
			x.align(surplus - trailingZeros(x.names[x.namesUsed:]))
		}
	})
}

func FuzzTable(f *testing.F) {
	f.Add(appendTable(nil, []section{{0, 6}, {1 << 20, 300_000}, {1<<20 + 5, 300_020}})[8:])
	f.Add(bytes.Repeat([]byte{0}, 36))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseTable(b)
		if err != nil && s != nil || s != nil && len(s) < 2 {
			t.Errorf("%+v, %v", s, err)
		}
		for i := 1; i < len(s); i++ {
			if s[i].flat <= s[i-1].flat || s[i].comp <= s[i-1].comp || s[i].flat-s[i-1].flat > maxSection {
				t.Errorf("section %d: %+v", i, s)
			}
		}
	})
}

func FuzzFrames(f *testing.F) {
	for _, name := range []string{"links", "basic", "ext-multiframe-small"} {
		b := fixture(f, name)
		h, _ := parseHeader(b)
		f.Add(b[h.contentsOff():])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if last, end, err := walkFrame(0, within(b)); err == nil && last+blockHeaderLen > min(end, int64(len(b))) {
			t.Errorf("a frame that ends at %d, with a block at %d, in %d bytes", end, last, len(b))
		}
		blocks, err := openFrame(bytes.Clone(b))
		if err == nil && len(blocks) >= len(b) {
			t.Errorf("%d bytes of blocks in %d", len(blocks), len(b))
		}
		st := &storetest.Mem{}
		st.Put("x", b)
		obj, err := st.Open(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		defer obj.Close()
		a := &archive{obj: obj, size: int64(len(b))}
		frames, err := a.frames(t.Context(), 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		end := int64(0)
		for _, f := range frames {
			if f.off < end || f.len < 0 || f.end() > int64(len(b)) {
				t.Errorf("%+v of %d bytes", frames, len(b))
			}
			end = f.end()
		}
	})
}

func FuzzOpen(f *testing.F) {
	testkit.Serial(f)
	for _, name := range fixtures(f, "") {
		if b := fixture(f, name); len(b) < 10_000 && name != "dmg-bomb-zeros" {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		st := &storetest.Mem{}
		st.Put("x.rvn", b)
		o := format.OpenOptions{Limits: format.Limits{Index: 1 << 20}}
		for _, view := range Format.Views {
			o.View = view
			r, err := open(t.Context(), st, "x.rvn", o)
			if err != nil {
				continue
			}
			for e, err := range r.Entries(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				for x, err := range r.Extents(t.Context(), e, 0, e.Size) {
					if err == nil && (x.Off < 0 || x.Off+x.Len > int64(len(b)) || x.Skip < 0 || x.Size < 0) {
						t.Errorf("%q: %+v", e.Name, x)
					}
				}
			}
			r.Close()
		}
		if err := verify(t.Context(), st, "x.rvn", o, func(format.Problem) {}); err != nil {
			t.Error(err)
		}
	})
}
