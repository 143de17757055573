package kept

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"strconv"
	"testing"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/testkit"
)

// solid is an archive of files in two gzip members, one of them long.
func solid(t testing.TB) (l *listed, stored, content []byte) {
	t.Helper()
	for i := uint64(0); len(content) < 10<<20; i++ {
		content = strconv.AppendUint(append(content, ' '), i*i*2654435761, 36)
	}
	var b bytes.Buffer
	for _, part := range [][]byte{content[:1000], content} {
		z, err := gzip.NewWriterLevel(&b, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := z.Write(part); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		if stored == nil {
			stored = bytes.Clone(b.Bytes())
		}
	}
	first := int64(len(stored))
	stored = b.Bytes()
	xs := map[string][]format.Extent{"short": {{Size: 1000, Object: "dir/x", Len: first, Codec: codec.Gzip, Unit: 1000}}}
	entries := []format.Entry{{Name: "short", Size: 1000}}
	for i := range int64(10) {
		e := format.Entry{Name: "d/" + strconv.FormatInt(i, 10), Size: 1 << 20}
		entries = append(entries, e)
		xs[e.Name] = []format.Extent{{Size: e.Size, Object: "dir/x", Off: first, Len: int64(len(stored)) - first, Codec: codec.Gzip, Skip: i << 20}}
	}
	return &listed{kit.NewIndex(kit.Entries(entries)), xs}, stored, content
}

func storedIn(b []byte) StoredBytes {
	return func(_ context.Context, object string, off, n int64) (io.ReadCloser, error) {
		if object != "dir/x" {
			return nil, errors.New("no such object")
		}
		return io.NopCloser(bytes.NewReader(b[off:][:n])), nil
	}
}

func TestPointsOfLongUnitsAreKept(t *testing.T) {
	testkit.Long(t)
	l, stored, content := solid(t)
	b, _ := build(t, l, Head{Format: "list"}, Options{Stored: storedIn(stored)})
	again, _ := build(t, l, Head{Format: "list"}, Options{Stored: storedIn(stored)})
	if !bytes.Equal(b, again) {
		t.Error("two indexes of one archive differ")
	}
	x := opened(t, b)
	if !x.HasPoints() || x.points.t.Top.Items != 2 {
		t.Fatalf("%d points, expected 2", x.points.t.Top.Items)
	}
	c, _ := codec.Lookup(codec.Gzip)
	last := int64(0)
	for e, err := range x.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		for v, err := range x.Extents(t.Context(), e, 0, e.Size) {
			if err != nil {
				t.Fatal(err)
			}
			at := x.Before(t.Context(), v)
			if at > v.Skip || v.Skip-at > pointEvery+1<<20 {
				t.Errorf("%s: a point at %d for what is at %d", e.Name, at, v.Skip)
			}
			if at == 0 {
				if _, err := x.Point(t.Context(), v, at); err == nil {
					t.Error("a point at the beginning")
				}
				continue
			}
			last = at
			p, err := x.Point(t.Context(), v, at)
			if err != nil || p.At != at {
				t.Fatalf("%+v, %v", p.At, err)
			}
			d, err := c.DecodeFrom(bytes.NewReader(stored[v.Off+p.Off:]), p)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(d); err != nil || !bytes.Equal(got, content[at:]) {
				t.Errorf("%s: %d bytes from %d on, %v", e.Name, len(got), at, err)
			}
			for name, other := range map[string]format.Extent{
				"of another length": {Object: v.Object, Off: v.Off, Len: v.Len - 1, Codec: v.Codec}, "of another codec": {Object: v.Object, Off: v.Off, Len: v.Len, Codec: codec.Zstd},
				"elsewhere": {Object: v.Object, Off: v.Off + 1, Len: v.Len, Codec: v.Codec}, "of another object": {Object: "dir/y", Off: v.Off, Len: v.Len, Codec: v.Codec},
				"outside": {Object: v.Object, External: true, Off: v.Off, Len: v.Len, Codec: v.Codec},
			} {
				if _, err := x.Point(t.Context(), other, at); err == nil {
					t.Errorf("a unit %s has the point", name)
				}
			}
		}
	}
	if last == 0 {
		t.Error("no point was used")
	}

	// A damaged unit has none: it may only become clear at the end of the unit that what follows
	// the damage is not content.
	bad := bytes.Clone(stored)
	copy(bad[len(bad)*6/10:], make([]byte, 1000))
	b, _ = build(t, l, Head{Format: "list"}, Options{Stored: storedIn(bad)})
	if n := opened(t, b).points.t.Top.Items; n != 0 {
		t.Errorf("%d points of a damaged unit", n)
	}
	b, _ = build(t, l, Head{Format: "list"}, Options{})
	if opened(t, b).HasPoints() {
		t.Error("points that nobody wished for")
	}
	var none bytes.Buffer
	if _, err := Build(t.Context(), &none, l, "dir/x", Head{}, Options{Stored: func(context.Context, string, int64, int64) (io.ReadCloser, error) {
		return nil, errors.New("gone")
	}}); err == nil {
		t.Error("an archive that cannot be read: expected an error")
	}
}
