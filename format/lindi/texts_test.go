package lindi_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/lindi"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store/storetest"
)

const textsName = "a.lindi.tar"

func openView(t *testing.T, st *storetest.Mem, name, view string) (*content.Source, error) {
	t.Helper()
	r, err := lindi.Format.Open(t.Context(), st, name, format.OpenOptions{View: view})
	if err != nil {
		return nil, err
	}
	s := content.New(st, name, nil, 0)
	s.Read(lindi.Format, r)
	return s, nil
}

// membersOf are the contents that can be read. If the reader doubts the index, there are none, unless
// members fail by themselves.
func membersOf(t *testing.T, st *storetest.Mem, name, view string, strict bool) map[string]string {
	t.Helper()
	s, err := openView(t, st, name, view)
	if err != nil {
		return nil
	}
	defer s.Close()
	found := map[string]string{}
	for e, err := range s.Reader.Entries(t.Context()) {
		if err != nil {
			break
		}
		var b bytes.Buffer
		if e.Kind.HasContent() && e.Fault == nil && e.Name != ".tar_entry.json" && s.Copy(t.Context(), &b, e) == nil {
			found[e.Name] = b.String()
		}
	}
	if s.Doubt() != nil && (view != "members" || !strict) {
		return nil
	}
	return found
}

// Bits of the texts of a LINDI archive are turned, one at a time. No member that is read has a wrong
// byte then, and neither has an archive that is made of it. A bit of one byte in five is chosen at
// random, and one of each byte with HOLDALL_LONG=5.
func TestADamagedTextIsNotCopied(t *testing.T) {
	testkit.Serial(t)
	keys := map[string]string{
		".zgroup": `{"zarr_format": 2}`, ".zattrs": `{"session": "A"}`, "a/.zarray": `{"chunks": [2], "compressor": null, "dtype": "|u1", "fill_value": 0, "filters": null, "order": "C", "shape": [2], "zarr_format": 2}`, "a/0": strings.Repeat("x", 2000),
	}
	st := &storetest.Mem{}
	formats := []*format.Format{lindi.Format}
	if _, err := pack.Pack(t.Context(), st, textsName, []string{testkit.Tree(t, t.TempDir(), keys)}, pack.Options{Format: "lindi", Param: map[string]string{"as": "zarr"}, Formats: formats}); err != nil {
		t.Fatal(err)
	}
	views := []string{"members", "zarr", "zarr3"}
	right := map[string]string{}
	for _, view := range views {
		for n, b := range membersOf(t, st, textsName, view, false) {
			right[view+" "+n] = b
		}
	}
	if len(right) < 10 {
		t.Fatalf("%d contents can be read", len(right))
	}
	intact := st.Get(textsName)
	rnd, share := testkit.Rand(t), min(testkit.Rounds(t, 1), 5)
	turned, places, copied := 0, 0, 0
	texts := []string{`{"files": [`, "{\n \"generationMetadata\"", "{\n \"refs\""}
	for _, begins := range texts {
		from := bytes.Index(intact, []byte(begins))
		if from < 0 {
			continue
		}
		strict := begins != texts[0] // members fail by themselves
		for at := from; intact[at] != 0 && !bytes.HasPrefix(intact[at:], []byte("        ")); at++ {
			places++
			if at-from > 8 && rnd.IntN(5) >= share {
				continue
			}
			for bit := range 8 {
				if bit != at%8 && at-from > 8 {
					continue // all bits only of how a text begins, which says whose it is
				}
				turned++
				b := bytes.Clone(intact)
				b[at] ^= 1 << bit
				damaged := &storetest.Mem{}
				damaged.Put(textsName, b)
				for _, view := range views {
					for n, b := range membersOf(t, damaged, textsName, view, strict) {
						if want, known := right[view+" "+n]; known && b != want {
							t.Fatalf("byte %d bit %d: %s of view %s is wrong: %.80q", at, bit, n, view, b)
						}
					}
				}
				if bit != at%8 || at%3 != 0 {
					continue
				}
				for _, view := range views[:2] {
					s, err := openView(t, damaged, textsName, view)
					if err != nil {
						continue
					}
					failed := 0
					_, err = pack.Convert(t.Context(), s, damaged, "copy.lindi.tar", pack.Options{Force: true, Formats: formats, OnError: func(string, error) { failed++ }})
					if s.Close(); err != nil {
						continue
					}
					copied++
					for n, b := range membersOf(t, damaged, "copy.lindi.tar", view, strict) {
						if want, known := right[view+" "+n]; known && b != want && n != ".tar_index.json" && failed == 0 && n != "lindi.json" {
							t.Fatalf("byte %d bit %d: the copy's %s is wrong: %.80q", at, bit, n, b)
						}
					}
					for n, b := range membersOf(t, damaged, "copy.lindi.tar", "zarr", strict) {
						if want, known := right["zarr "+n]; known && b != want {
							t.Fatalf("byte %d bit %d: the copy's key %s is wrong: %.80q", at, bit, n, b)
						}
					}
				}
			}
		}
	}
	t.Logf("of %d places bits were turned %d times, and %d archives copied", places, turned, copied)
	if turned < places*share/8 {
		t.Fatalf("only %d bits were turned, of %d places", turned, places)
	}
}

// A copy of an archive of another program, which records no digest of its lindi.json, has one: no
// turned bit of the text gives a wrong key that nobody doubts.
func TestACopyOfAnArchiveWithoutDigestsHasThem(t *testing.T) {
	testkit.Serial(t)
	from := &storetest.Mem{}
	from.Put(textsName, testkit.Read(t, "testdata/p06_attrs_groups_links.lindi.tar"))
	rnd, share := testkit.Rand(t), min(testkit.Rounds(t, 1), 5)
	for _, to := range []string{"copy.lindi.tar", "copy.lindi.json"} {
		st, view := from.Clone(), "members"
		if to == "copy.lindi.json" {
			view = "zarr"
		}
		s, err := openView(t, st, textsName, view)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pack.Convert(t.Context(), s, st, to, pack.Options{Formats: []*format.Format{lindi.Format}, Refer: "here"}); err != nil {
			t.Fatal(err)
		}
		s.Close()
		right, intact := membersOf(t, st, to, "zarr", false), st.Get(to)
		if len(right) < 5 {
			t.Fatalf("%s: %d keys", to, len(right))
		}
		begin := 1 + bytes.LastIndexByte(intact[:bytes.Index(intact, []byte(`"refs"`))], 0) // a header ends with zeros
		text, _, _ := bytes.Cut(intact[begin:], []byte{0})
		turned := 0
		for at := begin; at < begin+len(bytes.TrimRight(text, " ")); at++ {
			if rnd.IntN(5) >= share {
				continue
			}
			turned++
			b := bytes.Clone(intact)
			b[at] ^= 1 << rnd.IntN(8)
			st.Put(to, b)
			for n, b := range membersOf(t, st, to, "zarr", false) {
				if want, known := right[n]; known && b != want {
					t.Errorf("%s, byte %d: %s is wrong: %.80q", to, at, n, b)
				}
			}
		}
		if turned < 100 {
			t.Errorf("%s: only %d bits were turned", to, turned)
		}
	}
}
