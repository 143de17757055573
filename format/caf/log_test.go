package caf

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"testing"
	"time"

	"github.com/zeebo/blake3"
)

// logFile is a segment that is written as a gateway does.
type logFile struct {
	Log
	b      []byte
	number int64
	seq    int64
	ends   []int64 // of the header and the batches
	rows   []LogRow
}

func newLogFile(id byte) *logFile {
	f := &logFile{Log: Log{Number: 7, Seq: 100, Text: "of photos"}, seq: 100}
	f.ID = [logIDLen]byte{id, 1, 2}
	f.b = f.Append(nil)
	f.ends = []int64{int64(len(f.b))}
	return f
}

// put is a row with its content; a deletion if content is nil.
func put(name string, content []byte) (*LogRow, []byte) {
	r := &LogRow{Name: name, Deleted: content == nil}
	if r.Size = int64(len(content)); content != nil {
		r.Sum = blake3.Sum256(content)
	}
	return r, content
}

// batch appends a batch of names with their contents; no content is a deletion.
func (f *logFile) batch(t testing.TB, all ...string) {
	var rows []*LogRow
	var contents []byte
	for i := 0; i < len(all); i += 2 {
		var content []byte
		if all[i+1] != "" {
			content = []byte(all[i+1])
		}
		r, _ := put(all[i], content)
		if content != nil {
			r.ETag, r.Modified, r.Headers = someETag, time.UnixMilli(1_700_000_000_123).UTC(), `{"content-type":"text/plain"}`
		}
		rows, contents = append(rows, r), append(contents, content...)
	}
	f.add(t, rows, contents)
}

func (f *logFile) add(t testing.TB, rows []*LogRow, contents []byte) {
	b, err := f.AppendBatch(f.b, f.number, int64(len(f.b)), f.seq, rows)
	if err != nil {
		t.Fatal(err)
	}
	f.b = append(b, contents...)
	f.number, f.seq = f.number+1, f.seq+int64(len(rows))
	f.ends = append(f.ends, int64(len(f.b)))
	for _, r := range rows {
		f.rows = append(f.rows, *r)
	}
}

const someETag = `"0123456789abcdef0123456789abcdef"`

func (f *logFile) sealed(t testing.TB) []byte {
	w := bytes.NewBuffer(bytes.Clone(f.b))
	if err := f.WriteIndex(w, func(yield func(*LogRow, error) bool) {
		for i := range f.rows {
			if !yield(&f.rows[i], nil) {
				return
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	return w.Bytes()
}

func readerOf(t testing.TB, b []byte) *LogReader {
	r, err := NewLogReader(readBytes(b), int64(len(b)), 64)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func readBytes(b []byte) func(p []byte, off int64) error {
	return func(p []byte, off int64) error {
		if off < 0 || off+int64(len(p)) > int64(len(b)) {
			return io.ErrUnexpectedEOF
		}
		copy(p, b[off:])
		return nil
	}
}

// rowsIn reads all rows of a segment, and the ranges between batches.
func rowsIn(t testing.TB, r *LogReader) (rows []LogRow, lost [][2]int64) {
	for x, err := range r.Batches(func(from, to int64) { lost = append(lost, [2]int64{from, to}) }) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, x.Rows...)
	}
	return rows, lost
}

func someLog(t testing.TB) *logFile {
	f := newLogFile(1)
	f.batch(t, "a", "first", "b", "stays", "c", "goes")
	f.batch(t, "a", "second", "c", "")
	r, _ := put("elsewhere", nil)
	r.Deleted, r.Elsewhere, r.Off, r.Size = false, "archive 7", 4096, 1<<40
	empty, _ := put("empty", []byte{})
	empty.ETag, empty.Headers = `"0123-2"`, `{"content-type":"a\"b","x-amz-meta-n":"é"}`
	last, content := put("empty/of", []byte("x"))
	last.Headers, last.Modified = empty.Headers, time.UnixMilli(-5).UTC()
	f.add(t, []*LogRow{r, empty, last}, content)
	return f
}

func TestWhatALogHasIsRead(t *testing.T) {
	f := someLog(t)
	for _, b := range [][]byte{f.b, append(bytes.Clone(f.b), make([]byte, 5000)...), f.sealed(t)} {
		r := readerOf(t, b)
		if r.Log != f.Log {
			t.Fatalf("the header is %+v, expected %+v", r.Log, f.Log)
		}
		rows, lost := rowsIn(t, r)
		if !reflect.DeepEqual(rows, f.rows) || lost != nil {
			t.Fatalf("read %+v, lost %v, expected %+v", rows, lost, f.rows)
		}
		if r.End != int64(len(f.b)) || r.Batch != f.number || r.Next != f.seq {
			t.Errorf("ends at %d, batch %d, sequence %d", r.End, r.Batch, r.Next)
		}
	}
}

// An object of 4 KiB with a usual name costs about 80 bytes.
func TestARowIsShort(t *testing.T) {
	f := newLogFile(1)
	f.batch(t, "photos/2026/0001.jpg", "x", "photos/2026/0002.jpg", "x")
	first := f.ends[1]
	f.batch(t, "photos/2026/0001.jpg", "x", "photos/2026/0002.jpg", "x", "photos/2026/0003.jpg", "x")
	if n := f.ends[2] - first - (first - f.ends[0]) - 1; n > 80 {
		t.Errorf("a row has %d bytes", n)
	}
}

func TestALogRefusesWhatAnIndexDoesNotHold(t *testing.T) {
	l := &Log{}
	for _, r := range []LogRow{
		{Headers: `{"content-type":"x","cache-control":"y"}`}, {Headers: `{"host":"x"}`}, {Headers: `{}`}, {Headers: `{"content-type":"x"} `}, {Headers: `x`},
		{Size: -1}, {Deleted: true, Size: 1}, {Deleted: true, Elsewhere: "x"}, {Elsewhere: "x", Off: -1},
		{Name: string(make([]byte, maxRowText+1))}, {Modified: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		if _, err := l.AppendBatch(nil, 0, 0, 0, []*LogRow{&r}); err == nil {
			t.Errorf("stored %.200v", r)
		}
	}
	if _, err := l.AppendBatch(nil, 0, 0, 0, make([]*LogRow, maxBatch+1)); err == nil {
		t.Error("stored too many rows")
	}
}

// Contents may be frames: of other logs, of this one, or of one with the same offset.
func TestContentsAreNotReadAsFrames(t *testing.T) {
	other := newLogFile(2)
	other.batch(t, "of another log", "x")
	f := newLogFile(1)
	f.batch(t, "a", "first")
	copied := bytes.Clone(f.b)
	f.batch(t, "a copy", string(copied), "another", string(other.b))
	copied = bytes.Clone(f.b)
	f.batch(t, "of more", string(copied))
	f.batch(t, "last", "x")
	rows, lost := rowsIn(t, readerOf(t, f.b))
	if !reflect.DeepEqual(rows, f.rows) || lost != nil {
		t.Fatalf("lost %v", lost)
	}
	// Also if what is before the copies is damaged.
	for i := f.ends[0]; i < f.ends[2]; i++ {
		b := bytes.Clone(f.b)
		b[i] ^= 0x20
		rows, lost := rowsIn(t, readerOf(t, b))
		if len(rows) < len(f.rows)-2 || len(lost) > 1 {
			t.Fatalf("damage at %d: %d rows, lost %v", i, len(rows), lost)
		}
		for _, r := range rows {
			if r != f.rows[r.Seq-f.Seq] {
				t.Fatalf("damage at %d: row %+v", i, r)
			}
		}
	}
}

func TestBatchesAreFoundAfterDamage(t *testing.T) {
	f := newLogFile(1)
	for i := range 9 {
		f.batch(t, fmt.Sprint(i), fmt.Sprintf("content %d", i))
	}
	for _, damage := range []struct {
		what  string
		b     []byte
		rows  int
		lost  int
		whole bool // the damage is a torn end
	}{
		{"two frames", slicesOf(f.b, f.ends[3]+1, f.ends[5]-3), 7, 1, false},
		{"bytes inserted", append(append(bytes.Clone(f.b[:f.ends[3]]), "inserted"...), f.b[f.ends[3]:]...), 9, 1, false},
		{"bytes deleted", append(bytes.Clone(f.b[:f.ends[3]]), f.b[f.ends[3]+9:]...), 8, 1, false},
		{"torn", f.b[:f.ends[9]-1], 8, 0, true},
		{"torn in a frame", f.b[:f.ends[8]+9], 8, 0, true},
	} {
		rows, lost := rowsIn(t, readerOf(t, damage.b))
		if len(rows) != damage.rows || len(lost) != damage.lost {
			t.Errorf("%s: %d rows, lost %v", damage.what, len(rows), lost)
		}
		for _, r := range rows {
			if got := string(damage.b[r.Off : r.Off+r.Size]); got != "content "+r.Name {
				t.Errorf("%s: %s has %q", damage.what, r.Name, got)
			}
		}
	}
}

// slicesOf zeroes a range.
func slicesOf(b []byte, from, to int64) []byte {
	b = bytes.Clone(b)
	clear(b[from:to])
	return b
}

func TestWholeComparesContents(t *testing.T) {
	f := newLogFile(1)
	f.batch(t, "a", "first", "b", "second")
	for i := f.ends[0]; i <= f.ends[1]; i++ {
		b := bytes.Clone(f.b)
		if i < f.ends[1] {
			b[i] ^= 1
		}
		r := readerOf(t, b)
		x, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		if x == nil {
			continue
		}
		whole, err := r.Whole(x)
		if err != nil || whole != (i == f.ends[1]) {
			t.Errorf("damage at %d: whole %v, %v", i, whole, err)
		}
	}
}

func FuzzLog(f *testing.F) {
	l := someLog(f)
	f.Add(l.b)
	f.Add(l.sealed(f))
	f.Add(l.b[:len(l.b)-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := NewLogReader(readBytes(b), int64(len(b)), 64)
		if err != nil {
			t.Fatal(err)
		}
		if r == nil {
			return
		}
		last := r.End
		for x, err := range r.Batches(func(from, to int64) {
			if from < last || to <= from {
				t.Fatalf("lost %d to %d after %d", from, to, last)
			}
		}) {
			if err != nil {
				t.Fatal(err)
			}
			if x.Off < last || x.End < x.Contents || x.End > int64(len(b)) {
				t.Fatalf("batch %+v after %d", x, last)
			}
			last = x.End
			var rows []*LogRow
			for i := range x.Rows {
				row := x.Rows[i]
				if row.Here() && (row.Off < x.Contents || row.Off+row.Size > x.End) {
					t.Fatalf("row %+v in %+v", row, x)
				}
				rows = append(rows, &row)
			}
			again, err := r.AppendBatch(nil, x.Number, x.Off, x.seq, rows)
			if err != nil {
				t.Fatal(err)
			}
			o := *r
			o.read, o.size, o.buf = readBytes(append(make([]byte, x.Off), again...)), x.Off+int64(len(again))+x.End-x.Contents, nil
			o.block = 1
			y, err := o.at(x.Off)
			if err != nil || y == nil || len(y.Rows) != len(x.Rows) {
				t.Fatalf("%+v cannot be read again: %v", x, err)
			}
			if _, err := r.Whole(x); err != nil {
				t.Fatal(err)
			}
		}
	})
}
