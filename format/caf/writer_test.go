package caf

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// onward is a store whose writers cannot take back.
type onward struct{ *storetest.Mem }

func (o onward) Can() store.Abilities { return store.Abilities{Create: o.create} }

func (o onward) create(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
	w, err := o.Mem.CreateAs(ctx, name, wish)
	return onlyWriter{w}, err
}

// gocafIndex is an index as the reference reads it.
type gocafIndex struct {
	FormatVersion string `json:"format_version"`
	Files         map[string]struct {
		StartByte int64 `json:"start_byte"`
		EndByte   int64 `json:"end_byte"`
	} `json:"files"`
}

// wantGocafReads checks that the reference would read an archive: strict JSON,
// no row twice, every range within the data and, where want is not nil, the
// contents.
func wantGocafReads(t *testing.T, archive []byte, want map[string][]byte) (x gocafIndex, dataLen int64) {
	t.Helper()
	n := int64(binary.LittleEndian.Uint32(archive[len(archive)-4:]))
	dataLen = int64(len(archive)) - 4 - n
	if err := json.Unmarshal(archive[dataLen:len(archive)-4], &x); err != nil {
		t.Fatalf("encoding/json: %v", err)
	}
	if x.FormatVersion != "1.0" {
		t.Errorf("format_version %q", x.FormatVersion)
	}
	for name, r := range x.Files {
		if r.StartByte < 0 || r.EndByte < r.StartByte || r.EndByte > dataLen {
			t.Errorf("%q: bytes %d to %d of %d", name, r.StartByte, r.EndByte, dataLen)
		}
	}
	if want == nil {
		return x, dataLen
	}
	if len(x.Files) != len(want) {
		t.Errorf("the reference sees %d files, expected %d", len(x.Files), len(want))
	}
	for name, b := range want {
		r, ok := x.Files[string([]rune(name))]
		if !ok {
			t.Errorf("the reference does not see %q", name)
		} else if !bytes.Equal(archive[r.StartByte:r.EndByte], b) {
			t.Errorf("the reference reads bytes %d to %d for %q, which are not its %d bytes", r.StartByte, r.EndByte, name, len(b))
		}
	}
	return x, dataLen
}

// wantContents checks what our reader finds in an archive.
func wantContents(t *testing.T, archive []byte, want map[string][]byte) {
	t.Helper()
	r, err := open(t.Context(), mem(archive), "x.caf", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := 0
	for e, err := range r.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		b, err := content(t, r, e, archive)
		if w, ok := want[e.Name]; err != nil || !ok || !bytes.Equal(b, w) {
			t.Errorf("%q: %d bytes, %v; expected %d, %v", e.Name, len(b), err, len(w), ok)
		}
		if e.Digest.Algo != "" {
			if sum := blake3.Sum256(b); e.Digest.Sum != string(sum[:]) {
				t.Errorf("%q: digest %s is not that of its content", e.Name, e.Digest)
			}
		}
	}
	if n != len(want) {
		t.Errorf("%d entries, expected %d", n, len(want))
	}
}

type input struct {
	name    string
	content []byte
}

// add adds an input as a packer does.
func add(t *testing.T, w format.Writer, in input) error {
	t.Helper()
	return w.Add(t.Context(), format.Entry{Name: in.name, Size: int64(len(in.content))}, bytes.NewReader(in.content))
}

func archiveOf(t *testing.T, o format.CreateOptions, ins ...input) []byte {
	t.Helper()
	m := &storetest.Mem{}
	w, err := create(t.Context(), m, "x.caf", o)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range ins {
		if err := add(t, w, in); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m.Get("x.caf")
}

func TestWriterMakesExactlyTheseBytes(t *testing.T) {
	got := archiveOf(t, format.CreateOptions{NoDigests: true}, input{"b<\"\n", []byte("hello")}, input{"a", nil})
	const index = `{"format_version":"1.0","files":{"b<\"\u000a":{"start_byte":0,"end_byte":5},"a":{"start_byte":5,"end_byte":5}}}`
	if want := "hello" + index + string(appendFooter(nil, int64(len(index)))); string(got) != want {
		t.Errorf("expected %q\nfound    %q", want, got)
	}
	if got, want := archiveOf(t, format.CreateOptions{NoDigests: true}), "{\"format_version\":\"1.0\",\"files\":{}}\x23\x00\x00\x00"; string(got) != want {
		t.Errorf("empty: expected %q, found %q", want, got)
	}
	sum := blake3.Sum256([]byte("hello"))
	got = archiveOf(t, format.CreateOptions{}, input{"a", []byte("hello")})
	full := fmt.Sprintf(`{"format_version":"1.0","writer":"holdall","index_digest":"blake3","files":{"a":{"start_byte":0,"end_byte":5,"blake3":"%x"}},`, sum)
	full += fmt.Sprintf(`"index_blake3":"%x"}`, blake3.Sum256([]byte(full)))
	if want := "hello" + full + string(appendFooter(nil, int64(len(full)))); string(got) != want {
		t.Errorf("expected %q\nfound    %q", want, got)
	}
}

func TestReferenceReadsWhatWeWrite(t *testing.T) {
	want := map[string][]byte{}
	var ins []input
	for i := range 256 {
		n := fmt.Sprintf("%c/%s", i, string(rune(i)))
		want[n] = []byte(strings.Repeat(n, i))
		ins = append(ins, input{n, want[n]})
	}
	for _, n := range []string{"", "\xff", "\xff\xff", "x\u2028y", "</script>", "Start_Byte", "files", strings.Repeat("n", 5000), "😀"} {
		want[n] = []byte("content of " + n)
		ins = append(ins, input{n, want[n]})
	}
	for _, plain := range []bool{false, true} {
		archive := archiveOf(t, format.CreateOptions{NoDigests: plain}, ins...)
		wantGocafReads(t, archive, want)
		wantContents(t, archive, want)
	}
}

// set is what the notes beside a set of chunks specify.
type set struct {
	Limit  int64
	Inputs []struct {
		Name, SHA256 string
		Size         int64
	}
	Chunks []struct {
		File       string
		SHA256     string
		DataLength int64 `json:"data_length"`
		Members    []member
	}
	Catalogue []struct {
		Path, Chunk, SHA256 string
		Offset, Size        int64
	}
}

// TestRollOverAsTheReferenceSets replays sets of chunks: the reference's files
// must read as their notes say, and the same inputs must make the same chunks.
func TestRollOverAsTheReferenceSets(t *testing.T) {
	for _, name := range []string{"set-plain", "set-edges"} {
		t.Run(name, func(t *testing.T) {
			var want set
			notes, err := os.ReadFile("testdata/fixtures/" + name + ".expect.json")
			if err == nil {
				err = json.Unmarshal(notes, &want)
			}
			if err != nil {
				t.Fatal(err)
			}
			contents := map[string][]byte{}
			chunks := map[string][]byte{}
			for _, c := range want.Chunks {
				b, err := os.ReadFile(filepath.Join("testdata/fixtures", name, c.File))
				if err != nil || sha(b) != c.SHA256 {
					t.Fatalf("%s: sha256 %s, %v", c.File, sha(b), err)
				}
				chunks[c.File] = b
				members := map[string][]byte{}
				for _, m := range c.Members {
					if got := b[m.Start:m.End]; sha(got) != m.SHA256 {
						t.Fatalf("%s: %q is not where the notes say", c.File, m.Name)
					}
					members[m.Name] = b[m.Start:m.End]
					contents[m.Name] = b[m.Start:m.End]
				}
				wantContents(t, b, members)
			}
			for _, c := range want.Catalogue {
				if got := chunks[c.Chunk][c.Offset:][:c.Size]; sha(got) != c.SHA256 {
					t.Errorf("catalogue: %s is not at %s %d+%d", c.Path, c.Chunk, c.Offset, c.Size)
				}
			}
			if len(want.Chunks) == 0 || len(want.Catalogue) != len(want.Inputs) {
				t.Fatalf("%d chunks, %d inputs, %d in the catalogue", len(want.Chunks), len(want.Inputs), len(want.Catalogue))
			}

			m := &storetest.Mem{}
			var got []string // chunks made so far
			var w format.Writer
			next := func() {
				got = append(got, fmt.Sprintf("chunk-%05d.caf", len(got)+1))
				var err error
				if w, err = create(t.Context(), m, got[len(got)-1], format.CreateOptions{ChunkSize: want.Limit, NoDigests: true}); err != nil {
					t.Fatal(err)
				}
			}
			commit := func() {
				if _, err := w.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			next()
			for _, in := range want.Inputs {
				err := add(t, w, input{in.Name, contents[in.Name]})
				if errors.Is(err, format.ErrFull) {
					commit()
					next()
					err = add(t, w, input{in.Name, contents[in.Name]})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			commit()
			if len(got) != len(want.Chunks) {
				t.Fatalf("%d chunks, expected %d", len(got), len(want.Chunks))
			}
			for i, c := range want.Chunks {
				ours := m.Get(got[i])
				x, dataLen := wantGocafReads(t, ours, nil)
				if dataLen != c.DataLength || len(x.Files) != len(c.Members) {
					t.Errorf("%s: %d files in %d bytes of data, expected %d in %d", c.File, len(x.Files), dataLen, len(c.Members), c.DataLength)
				}
				for _, m := range c.Members {
					if r, ok := x.Files[m.Name]; !ok || r.StartByte != m.Start || r.EndByte != m.End {
						t.Errorf("%s: %q at %d to %d, expected %d to %d", c.File, m.Name, r.StartByte, r.EndByte, m.Start, m.End)
					}
				}
				if !bytes.Equal(ours[:dataLen], chunks[c.File][:c.DataLength]) {
					t.Errorf("%s: other data", c.File)
				}
			}
		})
	}
}

func TestChunkMaxBoundsTheWholeChunk(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for limit := int64(300); limit < 3000; limit += 77 {
		for _, plain := range []bool{false, true} {
			m := &storetest.Mem{}
			o := format.CreateOptions{ChunkSize: 1 << 40, ChunkMax: limit, NoDigests: plain}
			w, err := create(t.Context(), m, "0.caf", o)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string][]byte{}
			refused := 0
			for i := 0; ; i++ {
				in := input{fmt.Sprintf("%d\"%s", i, strings.Repeat("é", rnd.IntN(20))), make([]byte, rnd.IntN(int(limit)))}
				e := format.Entry{Name: in.name, Size: int64(len(in.content)), ModTime: time.Unix(int64(i), 5)}
				if limit > 1000 {
					e.Attr = map[string]string{kit.ETagAttr: `"x"`, "content-type": strings.Repeat("\n", rnd.IntN(20))}
				}
				err := w.Add(t.Context(), e, bytes.NewReader(in.content))
				if tooBig, ok := errors.AsType[*LimitError](err); ok {
					if len(want) > 0 || tooBig.EntryName() != in.name || tooBig.Size != int64(len(in.content)) {
						t.Fatalf("limit %d, %d files in the chunk: %v", limit, len(want), err)
					}
					refused++
					continue
				}
				if errors.Is(err, format.ErrFull) {
					if len(want) == 0 {
						t.Fatalf("limit %d: an empty chunk is full", limit)
					}
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				want[in.name] = in.content
			}
			sum, err := w.Commit(t.Context())
			if err != nil || sum.Stored > limit {
				t.Errorf("limit %d: %d bytes, %v, %d refused", limit, sum.Stored, err, refused)
			}
			wantContents(t, m.Get("0.caf"), want)
		}
	}
}

// An index is never longer than readers accept: what does not fit is refused, and the archive has
// the rest.
func TestIndexMaxBoundsTheIndex(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for limit := int64(400); limit < 6000; limit += 331 {
		for _, plain := range []bool{false, true} {
			m := &storetest.Mem{}
			w, err := create(t.Context(), m, "x.caf", format.CreateOptions{IndexMax: limit, NoDigests: plain})
			if err != nil {
				t.Fatal(err)
			}
			want, refused, smallest := map[string][]byte{}, 0, 1<<20
			for i := range 200 {
				in := input{fmt.Sprintf("%d\"%s", i, strings.Repeat("é", rnd.IntN(30))), make([]byte, rnd.IntN(2000))}
				err := w.Add(t.Context(), format.Entry{Name: in.name, Size: int64(len(in.content)), Attr: map[string]string{"content-type": strings.Repeat("\n", rnd.IntN(20))}}, bytes.NewReader(in.content))
				var bad kit.EntryError
				switch {
				case err == nil:
					want[in.name] = in.content
				case !errors.As(err, &bad) || bad.EntryName() != in.name:
					t.Fatalf("limit %d: %v", limit, err)
				default:
					refused++
					smallest = min(smallest, len(in.name))
				}
			}
			if _, err := w.Commit(t.Context()); err != nil || refused == 0 || len(want)+refused != 200 {
				t.Errorf("limit %d: %v, %d refused, %d packed", limit, err, refused, len(want))
			}
			archive := m.Get("x.caf")
			n := int64(binary.LittleEndian.Uint32(archive[len(archive)-4:]))
			if row := int64(smallest + 2*20*6 + maxRowRest + 200); n > limit || n+row < limit {
				t.Errorf("limit %d: an index of %d bytes, although a row of %d was refused", limit, n, row)
			}
			wantContents(t, archive, want)
		}
	}
}

// A name that other readers would confuse with another one is refused, and only that one.
func TestWriterRefusesNamesThatReadersConfuse(t *testing.T) {
	for _, tt := range []struct{ first, second string }{
		{"a", "a"}, {"", ""}, {"\xff", "\xfe"}, {"\xff", "\ufffd"}, {"\ufffd", "\xff"}, {"x\xffy", "x\xfey"}, {"\xff\xff", "\ufffd\ufffd"},
	} {
		m := &storetest.Mem{}
		w, err := create(t.Context(), m, "x.caf", format.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := add(t, w, input{tt.first, []byte("first")}); err != nil {
			t.Fatal(err)
		}
		err = add(t, w, input{tt.second, []byte("second")})
		if e, ok := errors.AsType[*kit.RefusedError](err); !ok || e.EntryName() != tt.second {
			t.Errorf("%q after %q: %v", tt.second, tt.first, err)
		}
		// Not the same to anyone.
		if err := add(t, w, input{tt.first + "\xff", []byte("third")}); err != nil {
			t.Errorf("%q after %q: %v", tt.first+"\xff", tt.first, err)
		}
		if _, err := w.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := map[string][]byte{tt.first: []byte("first"), tt.first + "\xff": []byte("third")}
		wantContents(t, m.Get("x.caf"), want)
		wantGocafReads(t, m.Get("x.caf"), want)
	}
}

// What other writers put into an index stays when the archive is rewritten.
func TestUnknownMembersSurviveACopy(t *testing.T) {
	const index = `{"made":{"by":["someone",{"n":1.50e3,}]},"format_version":"1.0","writer":"someone","files":{"a":{"start_byte":0,"mode":420,"end_byte":5,"tags":["x","y,]"]},"b":{"start_byte":5,"end_byte":5}},"last":null}`
	old := appendFooter([]byte("hello"+index), int64(len(index)))
	r, err := open(t.Context(), mem(old), "x.caf", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	carry, err := r.Can().Carry(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := &storetest.Mem{}
	w, err := create(t.Context(), m, "x.caf", format.CreateOptions{Carry: carry})
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range r.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		b, err := content(t, r, e, old)
		if err == nil {
			err = w.Add(t.Context(), e, bytes.NewReader(b))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	made := m.Get("x.caf")
	_, at := wantGocafReads(t, made, map[string][]byte{"a": []byte("hello"), "b": {}})
	var got map[string]any
	if err := json.Unmarshal(made[at:len(made)-4], &got); err != nil {
		t.Fatal(err)
	}
	a := got["files"].(map[string]any)["a"].(map[string]any)
	for _, x := range []struct{ got, want any }{
		{got["made"], map[string]any{"by": []any{"someone", map[string]any{"n": 1500.0}}}},
		{got["writer"], "holdall"}, {a["mode"], 420.0}, {a["tags"], []any{"x", "y,]"}},
	} {
		if fmt.Sprint(x.got) != fmt.Sprint(x.want) {
			t.Errorf("expected %v, found %v", x.want, x.got)
		}
	}
	if last, ok := got["last"]; !ok || last != nil {
		t.Errorf("last: %v, %v", last, ok)
	}
	if comesTwice(made[at : len(made)-4]) {
		t.Errorf("a key comes twice: %s", made[at:len(made)-4])
	}
}

// scratchFile is a scratch that counts.
type scratchFile struct {
	*os.File
	open *int
}

func (s scratchFile) Close() error {
	*s.open--
	return s.File.Close()
}

// Where rows wait for Commit, in memory or on disk, is not to be seen.
func TestRowsInScratchMakeTheSameBytes(t *testing.T) {
	var ins []input
	for i := range 3000 {
		ins = append(ins, input{fmt.Sprintf("folder %d/file %d", i%7, i), []byte(fmt.Sprint(i))})
	}
	want := archiveOf(t, format.CreateOptions{}, ins...)
	defer func(n int) { maxRowMem = n }(maxRowMem)
	for _, maxRowMem = range []int{1, 1000, 100_000} {
		open, opened := 0, 0
		got := archiveOf(t, format.CreateOptions{Scratch: func() (sorter.Scratch, error) {
			f, err := os.Create(filepath.Join(t.TempDir(), "rows"))
			open++
			opened++
			return scratchFile{f, &open}, err
		}}, ins...)
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes of rows in memory: another archive", maxRowMem)
		}
		if open != 0 || opened != 1 {
			t.Errorf("%d bytes of rows in memory: %d scratches opened, %d left open", maxRowMem, opened, open)
		}
	}
	// Without a scratch they stay in memory.
	if got := archiveOf(t, format.CreateOptions{}, ins...); !bytes.Equal(got, want) {
		t.Error("no scratch: another archive")
	}
	full := errors.New("no room")
	w, err := create(t.Context(), &storetest.Mem{}, "x.caf", format.CreateOptions{Scratch: func() (sorter.Scratch, error) { return nil, full }})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i := 0; err == nil && i < len(ins); i++ {
		err = add(t, w, ins[i])
	}
	if _, cerr := w.Commit(t.Context()); !errors.Is(err, full) || !errors.Is(cerr, full) {
		t.Errorf("scratch that cannot be opened: add %v, commit %v", err, cerr)
	}
}

// A digest that the source provides is used, not computed again.
func TestWriterBelievesDigests(t *testing.T) {
	told := format.Digest{Algo: "blake3", Sum: strings.Repeat("d", digestLen)}
	for what, c := range map[string]struct {
		e format.Entry
		r io.Reader
	}{
		"of the entry":  {format.Entry{Name: "a", Size: 5, Digest: told}, strings.NewReader("hello")},
		"of the source": {format.Entry{Name: "a", Size: 5}, digester{strings.NewReader("hello"), told}},
	} {
		m := &storetest.Mem{}
		w, err := create(t.Context(), m, "x.caf", format.CreateOptions{})
		if err == nil {
			err = w.Add(t.Context(), c.e, c.r)
		}
		if err == nil {
			_, err = w.Commit(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		if e := lookup(t, m.Get("x.caf"), "a", false); e.Digest != told {
			t.Errorf("%s: found %s", what, e.Digest)
		}
	}
}

type digester struct {
	io.Reader
	d format.Digest
}

func (d digester) ContentDigest() (format.Digest, bool) { return d.d, true }
