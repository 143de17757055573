package catalog

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// FuzzOpen opens a file of any bytes, reads everything in it and checks it. It
// must not panic, read without end, or change the file.
func FuzzOpen(f *testing.F) {
	at := filepath.Join(f.TempDir(), "c.db")
	if err := Create(f.Context(), at); err != nil {
		f.Fatal(err)
	}
	c, err := Open(f.Context(), at, Options{})
	if err != nil {
		f.Fatal(err)
	}
	add(f, c, Archive{Address: "x"}, files("a", "d/b", "d/c"))
	p := newPlan(f, c, "plan")
	addChunks(f, c, p, NewChunk{Name: "0", Members: members("a", "b")})
	if err := c.Close(); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(at)
	if err != nil {
		f.Fatal(err)
	}
	// The header and the first bytes of pages describe the structure.
	f.Add(good, uint32(0), []byte{})
	f.Add(good, uint32(16), []byte{2, 0})
	f.Add(good, uint32(28), []byte{0xff, 0xff, 0xff, 0xff})
	f.Add(good, uint32(100), []byte{0x0d, 0xff, 0xff, 0xff, 0xff})
	f.Add(good, uint32(4096), []byte{0x05, 0, 0, 0xff, 0xff})
	f.Add(good[:len(good)/2], uint32(0), []byte{})
	f.Add([]byte("SQLite format 3\x00"), uint32(0), []byte{})
	f.Fuzz(func(t *testing.T, file []byte, off uint32, change []byte) {
		if len(file) > 1<<20 {
			return
		}
		bad := bytes.Clone(file)
		if int64(off) < int64(len(bad)) {
			copy(bad[off:], change)
		}
		at := filepath.Join(t.TempDir(), "c.db")
		if err := os.WriteFile(at, bad, 0o666); err != nil {
			t.Fatal(err)
		}
		c, err := Open(t.Context(), at, Options{ReadOnly: true})
		if err == nil {
			readAll(t, c)
			if err := c.Close(); err != nil {
				t.Log(err)
			}
		}
		if got, err := os.ReadFile(at); err != nil || !bytes.Equal(got, bad) {
			t.Errorf("the file changed: %v", err)
		}
	})
}

// readAll calls each method of a catalogue that reads. Each must return a
// result or an error.
func readAll(t *testing.T, c *Catalog) {
	ctx := t.Context()
	const enough = 10_000 // a page may lead to itself
	n := 0
	for l, err := range c.Below(ctx, "") {
		if n++; err != nil || n > enough {
			break
		}
		if _, err := c.Newest(ctx, l.Path); err != nil {
			break
		}
	}
	n = 0
	for _, err := range c.List(ctx, "") {
		if n++; err != nil || n > enough {
			break
		}
	}
	if all, err := c.Archives(ctx); err == nil {
		for _, a := range all {
			for _, err := range c.Locations(ctx, a) {
				if n++; err != nil || n > enough {
					break
				}
			}
		}
	}
	if all, err := c.Plans(ctx); err == nil {
		for _, p := range all {
			for _, err := range c.Planned(ctx, p.ID) {
				if n++; err != nil || n > enough {
					break
				}
			}
			if _, err := c.Totals(ctx, p.ID); err != nil {
				t.Log(err)
			}
		}
	}
	if err := c.Check(ctx, func(string) {}); err != nil {
		t.Log(err)
	}
}
