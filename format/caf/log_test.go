package caf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/testkit"
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
			if from < last || to < from {
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

// A sealed log is a CAF for all readers, and verify finds nothing.
func TestASealedLogIsACAF(t *testing.T) {
	f := someLog(t)
	b := f.sealed(t)
	want := map[string][]byte{"a": []byte("second"), "b": []byte("stays"), "empty": {}, "empty/of": []byte("x")}
	wantGocafReads(t, b, want)
	if !bytes.Equal(b, f.sealed(t)) {
		t.Error("sealing again gives other bytes")
	}
	if got := problemsOf(t, b); len(got) != 1 || got[0].Class != "name-conflict" {
		t.Errorf("verify says %v", got)
	}
	st := mem(b)
	r, err := open(t.Context(), st, "x.caf", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := r.Lookup(t.Context(), "a")
	if err != nil || e.Attr[kit.ETagAttr] != someETag || e.Attr["content-type"] != "text/plain" || !e.ModTime.Equal(time.UnixMilli(1_700_000_000_123)) {
		t.Errorf("%+v, %v", e, err)
	}
	uses := map[format.Use]int64{}
	for x, err := range r.Regions(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		uses[x.Use] += x.Len
	}
	if uses[format.Trash] != int64(len("first")+len("goes")) || uses[format.Unknown] != 0 {
		t.Errorf("regions %v", uses)
	}
}

func problemsOf(t testing.TB, b []byte) (all []format.Problem) {
	t.Helper()
	if err := verify(t.Context(), mem(b), "x.caf", format.OpenOptions{}, func(p format.Problem) { all = append(all, p) }); err != nil {
		t.Fatal(err)
	}
	return all
}

// Each damage to a frame is a finding, and so is a content that the index lacks.
func TestVerifyAcceptsOnlyGapsThatTheLogExplains(t *testing.T) {
	f := newLogFile(1)
	f.batch(t, "a", "first", "b", "stays")
	f.batch(t, "a", "second")
	b := f.sealed(t)
	if got := problemsOf(t, b); len(got) > 0 {
		t.Fatalf("%v", got)
	}
	for i := int64(0); i < f.ends[2]; i++ {
		in := false
		for _, r := range f.rows {
			in = in || i >= r.Off && i < r.Off+r.Size
		}
		damaged := bytes.Clone(b)
		if damaged[i] ^= 0x10; len(problemsOf(t, damaged)) == 0 && !in {
			t.Errorf("damage at %d is not found", i)
		}
	}
	// The index of a log that had only the first batch lacks the second version.
	short := f.rows
	f.rows = f.rows[:2]
	b = f.sealed(t)
	f.rows = short
	if got := problemsOf(t, b); len(got) != 1 || got[0].Class != "tail-gap" || got[0].Off != f.rows[2].Off {
		t.Errorf("%v", got)
	}
}

// What repair makes of logs.
func TestRepairTakesFilesOutOfALog(t *testing.T) {
	f := newLogFile(1)
	for i := range 9 {
		f.batch(t, fmt.Sprint("file ", i), fmt.Sprintf("content %d", i), "same", fmt.Sprint("version ", i))
	}
	f.batch(t, "file 3", "")
	all := map[string]string{"same": "version 8"}
	for i := range 9 {
		all[fmt.Sprint("file ", i)] = fmt.Sprintf("content %d", i)
	}
	delete(all, "file 3")
	less := func(from map[string]string, names ...string) map[string]string {
		m := maps.Clone(from)
		for _, name := range names {
			delete(m, name)
		}
		return m
	}
	before := less(all)
	before["file 3"] = "content 3"
	zeros := make([]byte, 3000)
	caf := f.sealed(t)
	// A CAF whose index is where that of the log would be, as content: its rows are of another file.
	inner := newLogFile(1)
	inner.batch(t, "x", `{"format_version":"1.0","files":{"wrong":{"start_byte":0,"end_byte":147}}}`)
	for _, c := range []struct {
		what  string
		b     []byte
		want  map[string]string
		lost  int
		wrong int // problems of the result
	}{
		{"as a crash leaves it", append(bytes.Clone(f.b), zeros...), all, 0, 0},
		{"no batch", append(newLogFile(1).b, zeros...), map[string]string{}, 0, 0},
		{"a torn frame", append(bytes.Clone(f.b[:f.ends[10]-5]), zeros...), before, 1, 0},
		{"a torn frame behind which there is nothing", f.b[:f.ends[10]-5], before, 1, 0},
		{"the last contents are torn", append(slicesOf(f.b[:f.ends[9]], f.ends[9]-1, f.ends[9]), zeros...), map[string]string{
			"same": "version 7", "file 0": "content 0", "file 1": "content 1", "file 2": "content 2", "file 3": "content 3", "file 4": "content 4", "file 5": "content 5", "file 6": "content 6", "file 7": "content 7"}, 1, 0},
		{"a frame is damaged", append(slicesOf(f.b, f.ends[4], f.ends[4]+2), zeros...), less(all, "file 4"), 1, 1},
		{"the header is damaged", append(slicesOf(f.b, 9, 12), zeros...), all, 1, 1},
		{"the index is cut off", caf[:len(f.b)+30], all, 0, 0},
		{"the end of the index is damaged", slicesOf(caf, int64(len(caf)-300), int64(len(caf)-4)), all, 0, 0},
		{"the footer is damaged", slicesOf(caf, int64(len(caf)-4), int64(len(caf))), all, 0, 0},
		{"an index as content", append(bytes.Clone(inner.b), zeros...), map[string]string{"x": string(inner.b[inner.rows[0].Off:])}, 0, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			st := mem(c.b)
			told := 0
			p, err := repair(t.Context(), st, "x.caf", format.OpenOptions{}, func(format.Problem) { told++ })
			if err != nil {
				t.Fatal(err)
			}
			if told == 0 || len(p.Lost) != c.lost || p.Partial != (c.lost > 0) || len(p.Edits) != 1 {
				t.Fatalf("%d problems, plan %+v", told, p)
			}
			w := bytes.NewBuffer(bytes.Clone(c.b[:p.Edits[0].Off]))
			if err := p.Edits[0].Write(w); err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for name, content := range contentsOf(t, w.Bytes()) {
				got[name] = string(content)
			}
			if !maps.Equal(got, c.want) {
				t.Errorf("the result has %q, expected %q", got, c.want)
			}
			if got := problemsOf(t, w.Bytes()); len(got) < c.wrong || c.wrong == 0 && len(got) > 0 {
				t.Errorf("verify says %v", got)
			}
		})
	}
}

// contentsOf returns what an archive has.
func contentsOf(t testing.TB, b []byte) map[string][]byte {
	t.Helper()
	r, err := open(t.Context(), mem(b), "x.caf", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for e, err := range r.Entries(t.Context()) {
		if err != nil || e.Fault != nil {
			t.Fatalf("%+v, %v", e, err)
		}
		from := e.Ref.(int64)
		all[e.Name] = b[from : from+e.Size]
	}
	return all
}

// A log that was not sealed says so, and what to do. A CAF that has it as its first file is a CAF.
func TestALogSaysThatItIsNotSealed(t *testing.T) {
	f := someLog(t)
	for _, b := range [][]byte{f.b, append(bytes.Clone(f.b), make([]byte, 100_000)...), f.b[:len(f.b)-1], f.sealed(t)[:len(f.b)+9]} {
		st := mem(b)
		_, err := open(t.Context(), st, "x.caf", format.OpenOptions{})
		if e, ok := errors.AsType[*format.CorruptError](err); !ok || e.Class != "unsealed-log" {
			t.Errorf("%v", err)
		}
		if got := problemsOf(t, b); len(got) != 1 || got[0].Class != "unsealed-log" || got[0].Severity != format.Error {
			t.Errorf("%v", got)
		}
	}
	end := strconv.Itoa(len(f.b))
	b := append(bytes.Clone(f.b), `{"format_version":"1.0","files":{"log":{"start_byte":0,"end_byte":`+end+`}}}`...)
	b = appendFooter(b, int64(len(b)-len(f.b)))
	if got := contentsOf(t, b); !bytes.Equal(got["log"], f.b) {
		t.Errorf("%q", got)
	}
	if got := problemsOf(t, b); len(got) > 0 {
		t.Errorf("%v", got)
	}
	// Also if its footer is wrong.
	p, err := repair(t.Context(), mem(append(b, 0)), "x.caf", format.OpenOptions{}, func(format.Problem) {})
	if err != nil || len(p.Edits) != 1 || p.Edits[0].Off != int64(len(f.b)) {
		t.Fatalf("%+v, %v", p, err)
	}
	var w bytes.Buffer
	if err := p.Edits[0].Write(&w); err != nil || !strings.Contains(w.String(), `"log":{"start_byte":0,"end_byte":`+end) {
		t.Errorf("%s, %v", &w, err)
	}
}

// A repaired archive whose files have moved is no sealed log any more.
func TestMovedFilesAreOfNoLog(t *testing.T) {
	f := newLogFile(1)
	f.batch(t, "a", "first", "b", "second")
	b := append([]byte("in front"), f.sealed(t)...)
	p, err := repair(t.Context(), mem(b), "x.caf", format.OpenOptions{}, func(format.Problem) {})
	if err != nil || len(p.Edits) != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	var w bytes.Buffer
	if err := p.Edits[0].Write(&w); err != nil || strings.Contains(w.String(), `"log"`) {
		t.Errorf("%s, %v", &w, err)
	}
}

// The bytes of logs stay the same. $FIXTURES of the command's scripts has these, too.
func TestTheBytesOfALogStay(t *testing.T) {
	f := newLogFile(1)
	f.batch(t, "a.txt", "first\n", "b.txt", "stays\n", "gone.txt", "x\n")
	f.batch(t, "a.txt", "second\n", "gone.txt", "")
	unsealed := append(bytes.Clone(f.b), make([]byte, 2000)...)
	sealed := f.sealed(t)
	f.batch(t, "a.txt", "third\n")
	for name, b := range map[string][]byte{"unsealed.log": unsealed, "sealed.caf": sealed, "torn.log": append(bytes.Clone(f.b[:len(f.b)-9]), make([]byte, 2000)...)} {
		if want := testkit.Read(t, "testdata/logs/"+name); !bytes.Equal(b, want) {
			t.Errorf("%s is %q, and was %q", name, b, want)
		}
	}
}
