package databundle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/databundle/internal/sstable"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// FuzzMessages decodes messages, encodes the result, and decodes that again.
func FuzzMessages(f *testing.F) {
	f.Add(config{version: versionMagic, blockSize: 4096, recordSize: 1 << 18, compression: zlib, shards: 3}.append(nil))
	f.Add(header{shard: 1, align: 512, compression: snappy, hasInline: true, inline: []byte{10, 0}}.append(nil))
	f.Add(meta{kind: regularFile, offset: 9, size: 7, crc: 5, user: userData{attributesURL, attributes{mode: 0o755, hasMode: true, symlink: "x"}.append(nil)}, hasUser: true}.append(nil))
	f.Add(record{shard: 1, offset: 2, stored: true}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := parseConfig(b); err == nil {
			if again, err := parseConfig(c.append(nil)); err != nil || again != c {
				t.Errorf("config %+v became %+v, %v", c, again, err)
			}
		}
		if h, err := parseHeader(b); err == nil {
			h.inline = bytes.Clone(h.inline)
			again, err := parseHeader(h.append(nil))
			if err != nil || again.shard != h.shard || again.compression != h.compression || !bytes.Equal(again.inline, h.inline) {
				t.Errorf("header %+v became %+v, %v", h, again, err)
			}
		}
		if m, err := parseMeta(b); err == nil {
			again, err := parseMeta(m.append(nil))
			if err != nil || again.offset != m.offset || again.size != m.size || again.user.url != m.user.url || !bytes.Equal(again.user.value, m.user.value) {
				t.Errorf("file %+v became %+v, %v", m, again, err)
			}
		}
		if r, err := parseRecord(b); err == nil {
			r.at = map[bool]uint64{true: r.at, false: 0}[r.stored]
			if again, err := parseRecord(r.append(nil)); err != nil || again != r {
				t.Errorf("record %+v became %+v, %v", r, again, err)
			}
		}
		if a, err := parseAttributes(b); err == nil {
			again, err := parseAttributes(a.append(nil))
			if err != nil || !again.time.Equal(a.time) || again.mode != a.mode || again.hardLink != a.hardLink {
				t.Errorf("attributes %+v became %+v, %v", a, again, err)
			}
		}
		if x, _, err := parseInline(b); err == nil {
			for i := range x[:max(len(x)-1, 0)] {
				if bytes.Compare(x[i].Key, x[i+1].Key) >= 0 {
					t.Errorf("row %d is not before the next", i)
				}
			}
		}
	})
}

// FuzzKeys decodes keys, and checks that the result is encoded to the same keys.
func FuzzKeys(f *testing.F) {
	f.Add(appendFileKey(nil, "a/b\xff/c"))
	f.Add(appendRecordKey(nil, 1<<40, 1<<60))
	f.Add([]byte{2, 'x', 0, 0xFF, '/', 0, 0, 'n', 0, 0})
	f.Fuzz(func(t *testing.T, key []byte) {
		table, rest, err := varuint(key)
		if err != nil {
			return
		}
		if got := append(appendVaruint(nil, table), rest...); !bytes.Equal(got, key) {
			t.Errorf("%x became %x", key, got)
		}
		if dir, base, err := cutFileKey(rest); err == nil {
			if got := append(appendBytes(nil, dir), base...); !bytes.Equal(got, rest) {
				t.Errorf("%x became %x", rest, got)
			}
			if name, ok := nameOf(dir, base); ok && len(name) > len(rest) {
				t.Errorf("%x is called %q", rest, name)
			}
		}
		if _, p, err := parsePlace(sstable.Row{Key: key, Value: record{stored: true}.append(nil)}); err == nil && p.off < 0 {
			t.Errorf("%x is at %d", key, p.off)
		}
	})
}

// FuzzOpen opens a bundle of a shard and an index whose rows the fuzzer chose, and
// does everything with it.
func FuzzOpen(f *testing.F) {
	testkit.Serial(f)
	for _, name := range fixtures(f) {
		st := fixture(f, name)
		shard := st.Get("b/shard-00000000")
		if len(shard) > 200<<10 {
			continue
		}
		var table []byte
		db, err := sstable.Open(f.Context(), st, "b/index", sstable.Options{})
		if err != nil {
			continue
		}
		for row, err := range db.Scan(f.Context(), nil, nil) {
			if err == nil {
				table = inlineRows{row}.append(table)
			}
		}
		f.Add(shard, table)
	}
	f.Add([]byte(nil), []byte(nil))
	f.Fuzz(func(t *testing.T, shard, table []byte) {
		x, _, err := parseInline(table)
		if err != nil || len(shard) > 1<<20 || len(x) > 1000 {
			return
		}
		ctx := t.Context()
		st := &storetest.Mem{}
		st.Put("b/shard-00000000", shard)
		w := sstable.NewWriter(st, "b/index", sstable.WriterOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range x {
			if err := w.Add(ctx, row.Key, row.Value); err != nil {
				return
			}
		}
		if err := w.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		use := func(st *storetest.Mem, repaired bool) {
			r, err := open(ctx, st, "b", format.OpenOptions{})
			if err != nil {
				if repaired {
					t.Errorf("the repaired bundle: %v", err)
				}
				wantTyped(t, err)
				return
			}
			defer r.Close()
			m := &recordReader{repairer: &repairer{bundle: r.(*reader).bundle}}
			for e, err := range r.Entries(ctx) {
				if err != nil {
					wantTyped(t, err)
					return
				}
				if got, err := r.Lookup(ctx, e.Name); e.Fault == nil && naming.ValidPath(e.Name) && (err != nil || got.Name != e.Name) {
					t.Errorf("lookup %q: %q, %v", e.Name, got.Name, err)
				}
				if e.Fault == nil && e.Kind == format.File && e.Size <= 1<<20 {
					n, sum := int64(0), uint32(0)
					err := m.read(ctx, e, func(b []byte) { n += int64(len(b)); sum = crc32.Update(sum, castagnoli, b) })
					if err == nil && n != e.Size {
						t.Errorf("%q: %d bytes of %d, without an error", e.Name, n, e.Size)
					}
					if repaired && (err != nil || e.Digest.Sum != string(binary.BigEndian.AppendUint32(nil, sum))) {
						t.Errorf("%q of the repaired bundle: %v, or other content", e.Name, err)
					}
				}
			}
			for _, dir := range []string{".", "a", "d"} {
				for _, err := range r.ReadDir(ctx, dir) {
					if err != nil && !errors.Is(err, fs.ErrNotExist) {
						wantTyped(t, err)
					}
				}
			}
			for _, err := range r.Regions(ctx) {
				if err != nil {
					wantTyped(t, err)
				}
			}
		}
		use(st, false)
		if err := verify(ctx, st, "b", format.OpenOptions{}, func(format.Problem) {}); err != nil {
			wantTyped(t, err)
		}
		plan, err := repair(ctx, st, "b", format.OpenOptions{}, func(format.Problem) {})
		if err != nil {
			wantTyped(t, err)
			return
		}
		if !plan.Changes() {
			return
		}
		out := &storetest.Mem{}
		if err := plan.Build(ctx, out, "b", false); err != nil {
			t.Fatalf("repair: %v", err)
		}
		use(out, true)
	})
}

func wantTyped(t *testing.T, err error) {
	t.Helper()
	if _, ok := errors.AsType[*format.CorruptError](err); !ok && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an error of no type: %T %v", err, err)
	}
}
