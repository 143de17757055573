package cloud

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

func idOf(n int, data bool) (id segment.ID) {
	binary.BigEndian.PutUint64(id[:], uint64(n)*0x9e3779b97f4a7c15)
	id[8], id[15] = 0xb0, byte(n)
	if data {
		id[8] = 0xa0
	}
	return id
}

func TestNamesOfBlobs(t *testing.T) {
	id := idOf(7, true)
	for _, c := range []struct {
		name   string
		number int
		ok     bool
	}{
		{"0000." + id.String(), 0, true},
		{"ffff." + id.String(), 0xffff, true},
		{"FFFF." + id.String(), 0, false},
		{"10000." + id.String(), 0, false},
		{"+001." + id.String(), 0, false},
		{"000." + id.String(), 0, false},
		{"0000." + strings.ToUpper(id.String()), 0, false},
		{"0000." + id.String() + ".x", 0, false},
		{"0000.", 0, false},
		{"closed", 0, false},
		{"", 0, false},
	} {
		number, got, ok := ParseBlobName(c.name)
		if ok != c.ok || ok && (number != c.number || got != id || BlobName(number, got) != c.name) {
			t.Errorf("%q: %d %s %t", c.name, number, got, ok)
		}
	}
	for _, name := range []string{"journal.log.001", "journal.log.1000"} {
		if n := PartNumber(name); JournalPart(n) != name || !journalPart().MatchString(name) {
			t.Errorf("%s: number %d", name, n)
		}
	}
	for _, name := range []string{"journal.log", "journal.log.01", "journal.log.bak.001", "journal.log.00a"} {
		if journalPart().MatchString(name) {
			t.Errorf("%s is a part", name)
		}
	}
}

func small(headers map[string]string) map[string]string {
	all := map[string]string{}
	for k, v := range headers {
		all[strings.ToLower(k)] = v
	}
	return all
}

func TestMetadataThatAreNotASegmentsOwnAreNone(t *testing.T) {
	e := tarfile.Entry{ID: idOf(3, true), Len: 1, Generation: segment.Generation{Gen: 5, Full: 2, Compacted: true}}
	if g, ok := parseMetadata(small(Metadata(300, e, true)), 300, e.ID); !ok || g != e.Generation {
		t.Errorf("%v %t", g, ok)
	}
	for k, v := range map[string]string{metaType: "x", metaUUID: idOf(4, true).String(), metaPosition: "301", metaGeneration: "-1", metaFull: "2147483648"} {
		headers := small(Metadata(300, e, true))
		headers[storekit.MetaHeader+strings.ToLower(k)] = v
		if g, ok := parseMetadata(headers, 300, e.ID); ok {
			t.Errorf("%s is %s: %v", k, v, g)
		}
	}
}

// An archive of random segments is a tar to the byte, wherever a read begins and ends.
func TestAViewIsATarToTheByte(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 20 {
		st, l := &storetest.Mem{}, Listing{}
		var want []byte
		closed := round%4 > 0
		const name = "data00000a.tar"
		put := func(base string, b []byte) {
			st.Put("d/"+name+"/"+base, b)
			if taken, err := l.Add(name+"/"+base, int64(len(b)), nil); !taken || err != nil {
				t.Fatalf("%s: %t %v", base, taken, err)
			}
		}
		var entries []tarfile.Entry
		for i := range 1 + r.IntN(20) {
			b := bytes.Repeat([]byte{byte(i + 1)}, 1+r.IntN(3000))
			id := idOf(i+1, i%2 == 0)
			put(BlobName(i, id), b)
			want = tarfile.AppendHeader(want, id.String(), int64(len(b)), epoch)
			entries = append(entries, tarfile.Entry{ID: id, Pos: int64(len(want)), Len: len(b)})
			want = append(want, b...)
			want = append(want, make([]byte, blocks(int64(len(b)))-int64(len(b)))...)
		}
		if closed {
			put(Closed, nil)
			for _, ext := range []string{Binaries, Graph}[:round%3] {
				b := bytes.Repeat([]byte(ext), 1+r.IntN(400))
				put(name+ext, b)
				n := blocks(int64(len(b)))
				want = tarfile.AppendHeader(want, name+ext, n, epoch)
				want = append(append(want, make([]byte, n-int64(len(b)))...), b...)
			}
			want = tarfile.AppendIndexTail(want, name, entries)
		} else {
			want = append(want, make([]byte, openTail)...)
		}
		all := l.Settle()
		if len(all) != 1 || all[0].Size() != int64(len(want)) {
			t.Fatalf("%d archives, expected one of %d bytes", len(all), len(want))
		}
		if got := all[0].Entries(); !slices.Equal(got, entries) {
			t.Fatalf("entries %v, expected %v", got, entries)
		}
		o, err := View(st, "d/", &l).Open(t.Context(), "d/"+name)
		if err != nil {
			t.Fatal(err)
		}
		for range 200 {
			off := r.IntN(len(want))
			p := bytes.Repeat([]byte{0xee}, 1+r.IntN(min(len(want)-off, 1+r.IntN(len(want)))))
			if err := o.ReadAt(t.Context(), p, int64(off)); err != nil || !bytes.Equal(p, want[off:][:len(p)]) {
				t.Fatalf("%d bytes at %d of %d: %v", len(p), off, len(want), err)
			}
			object, at := all[0].At(int64(off))
			if b := st.Get("d/" + object); at >= 0 && (b == nil || at > int64(len(b))) {
				t.Fatalf("%d lies at %d of %s", off, at, object)
			}
		}
		if o.ReadAt(t.Context(), make([]byte, 2), int64(len(want)-1)) == nil || o.ReadAt(t.Context(), make([]byte, 1), -1) == nil {
			t.Error("a read beyond an end")
		}
		o.Close()
		if o.ReadAt(t.Context(), make([]byte, 1), 0) == nil {
			t.Error("a read of what is closed")
		}
	}
}

// Whatever is listed, an archive is made of it or none, with an index that can be read.
func FuzzListing(f *testing.F) {
	e := tarfile.Entry{ID: idOf(1, true), Len: 5, Generation: segment.Generation{Gen: 1, Full: 1}}
	f.Add("data00000a.tar/"+BlobName(0, e.ID), "data00000a.tar/"+BlobName(1, idOf(2, false)), "data00000a.tar/closed", "data00000a.tar/data00000a.tar.gph", "1", int64(5))
	f.Add("data00000a.tar/"+BlobName(0, e.ID), "data00000a.tar/"+BlobName(3, e.ID), "data00001b.tar/deleted", "journal.log.001", "0", int64(300000))
	f.Fuzz(func(t *testing.T, a, b, c, d, position string, size int64) {
		var l Listing
		headers := small(Metadata(0, e, true))
		headers[storekit.MetaHeader+metaPosition] = position
		for i, name := range []string{a, b, c, d} {
			h := headers
			if i%2 == 1 {
				h = nil
			}
			if _, err := l.Add(name, max(size, 0), h); err != nil {
				t.Fatal(err)
			}
		}
		st := &storetest.Mem{}
		for _, x := range l.Settle() {
			v := View(st, "", &l)
			o, err := v.Open(t.Context(), x.Name)
			if err != nil {
				t.Fatal(err)
			}
			if !x.Closed {
				continue
			}
			tar, err := tarfile.Open(t.Context(), o, x.Name, tarfile.Options{Tail: x.TailLen(), Blobs: true})
			if err != nil {
				t.Fatalf("%v of %+v", err, x)
			}
			if tar.Index().Len() != len(x.Entries()) {
				t.Fatalf("%d entries, expected %d", tar.Index().Len(), len(x.Entries()))
			}
			for off := int64(0); off < tar.Size(); off += 100 {
				x.At(off)
			}
		}
	})
}

func FuzzIndex(f *testing.F) {
	var b []byte
	for i := range 3 {
		b = AppendRow(b, i, tarfile.Entry{ID: idOf(i, true), Len: 100, Generation: segment.Generation{Gen: 2, Full: 1, Compacted: i == 1}})
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []byte
		n := 0
		parseIndex(b, func(number int, e tarfile.Entry) {
			again = AppendRow(again, number, e)
			n++
		})
		m := 0
		parseIndex(again, func(int, tarfile.Entry) { m++ })
		if n != m || n > len(b)/indexRow {
			t.Fatal(fmt.Sprint(n, " rows, and then ", m))
		}
	})
}

func FuzzBlobName(f *testing.F) {
	f.Add(BlobName(255, idOf(1, true)))
	f.Fuzz(func(t *testing.T, name string) {
		if number, id, ok := ParseBlobName(name); ok && BlobName(number, id) != name {
			t.Errorf("%q is also %q", name, BlobName(number, id))
		}
	})
}
