package caf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/internal/finder"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// archives calls add for each fixture that is short enough to be mutated.
func archives(f *testing.F, add func(archive []byte)) {
	names, err := filepath.Glob("testdata/fixtures/*.caf")
	if err != nil || len(names) < 50 {
		f.Fatalf("%d fixtures, %v", len(names), err)
	}
	logs, err := filepath.Glob("testdata/logs/*")
	if err != nil || len(logs) < 3 {
		f.Fatalf("%d logs, %v", len(logs), err)
	}
	for _, n := range append(names, logs...) {
		b, err := os.ReadFile(n)
		if err != nil {
			f.Fatal(err)
		}
		if len(b) < 100_000 {
			add(b)
		}
	}
}

// FuzzScan holds our parser against encoding/json.
func FuzzScan(f *testing.F) {
	archives(f, func(b []byte) {
		if off, n, fault := parseFooter(b, int64(len(b))); fault == nil && n < 4096 {
			f.Add(b[off : off+n])
		}
	})
	f.Add([]byte(`{"format_version":"1.0","files":{"\ud800\ud800\udc00":{"start_byte":-0,"end_byte":1e3,"x":[1,]}}}`))
	f.Add([]byte(`{"format_version":"1.0","files":{"a":{"start_byte":0,"end_byte":9` + someObject + `},"b":{"start_byte":9,"end_byte":9,"object": {"etag":"x", "headers":{"expires":"\u000a"}}}}}`))
	f.Fuzz(func(t *testing.T, index []byte) {
		whole := scanIndex(index, 0)
		wantSameInBlocks(t, index, whole)
		if valid := json.Valid(index); !valid {
			if whole.err == nil && whole.top.trailingCommas == 0 && utf8.Valid(index) {
				t.Errorf("accepted, but encoding/json says it is not JSON: %q", index)
			}
			if c := whole.class(); c == "index-shape" && whole.top.trailingCommas == 0 {
				// Shape is judged as soon as it is seen; the rest is not read.
				return
			}
			return
		}
		if c := whole.class(); c == "index-depth" {
			return // a limit of ours
		}
		if comesTwice(index) {
			return // what counts then is tested elsewhere
		}
		want, right := rowsOf(index)
		switch {
		case right && whole.err != nil:
			t.Fatalf("refused: %v: %q", whole.err, index)
		case !right && whole.err == nil:
			t.Fatalf("accepted, but its shape is wrong: %q", index)
		case whole.class() == "index-json":
			t.Fatalf("called no JSON, but it is: %v: %q", whole.err, index)
		case !right:
			return
		}
		got := map[string]string{}
		for _, r := range whole.rows {
			got[string([]rune(r.name))] = fmt.Sprint(r.start, r.end, r.odd&unreadable != 0)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("expected %v\nfound %v\nin %q", want, got, index)
		}
		for _, r := range whole.rows {
			if r.object != "" && !json.Valid([]byte("{"+r.object[1:]+"}")) {
				t.Errorf("%q: made what is no JSON: %s", r.name, r.object)
			}
			if r.extra != "" && !json.Valid([]byte("{"+r.extra+"}")) {
				t.Errorf("%q: kept what is no JSON: %s", r.name, r.extra)
			}
		}
		if x := whole.top.extra; len(x) > 0 && !json.Valid([]byte("{"+string(x)+"}")) {
			t.Errorf("kept what is no JSON: %s", x)
		}
	})
}

// rowsOf reads an index with encoding/json, minding the case of keys. It says
// false if the shape is not that of an index.
func rowsOf(index []byte) (rows map[string]string, right bool) {
	var top, files map[string]json.RawMessage
	if json.Unmarshal(index, &top) != nil || top == nil {
		return nil, false
	}
	v, f := top["format_version"], top["files"]
	if len(v) == 0 || v[0] != '"' || len(f) == 0 || f[0] != '{' || json.Unmarshal(f, &files) != nil {
		return nil, false
	}
	rows = map[string]string{}
	for name, raw := range files {
		var row map[string]json.RawMessage
		if raw[0] != '{' {
			rows[name] = fmt.Sprint(0, 0, true)
			continue
		}
		if json.Unmarshal(raw, &row) != nil {
			return nil, false
		}
		odd := false
		offset := func(key string) int64 {
			raw := row[key]
			if len(raw) > 0 && raw[0] == '"' {
				right = true // for now: is a string
			}
			n, err := strconv.ParseInt(string(raw), 10, 64)
			if err != nil {
				odd = true
				return 0
			}
			return n
		}
		start, end := offset("start_byte"), offset("end_byte")
		if right {
			return nil, false
		}
		rows[name] = fmt.Sprint(start, end, odd)
	}
	return rows, true
}

// comesTwice reports whether any object of valid JSON has a key twice.
func comesTwice(index []byte) bool {
	d := json.NewDecoder(bytes.NewReader(index))
	d.UseNumber()
	type level struct {
		keys map[string]bool // nil in an array
		key  bool            // a key comes next
	}
	var open []level
	for {
		tok, err := d.Token()
		if err != nil {
			return false
		}
		var in *level
		if len(open) > 0 {
			in = &open[len(open)-1]
		}
		if s, ok := tok.(string); ok && in != nil && in.keys != nil && in.key {
			if in.keys[s] {
				return true
			}
			in.keys[s], in.key = true, false
			continue
		}
		switch tok {
		case json.Delim('{'):
			open = append(open, level{map[string]bool{}, true})
			continue
		case json.Delim('['):
			open = append(open, level{})
			continue
		case json.Delim('}'), json.Delim(']'):
			if open = open[:len(open)-1]; len(open) == 0 {
				continue
			}
			in = &open[len(open)-1]
		}
		if in != nil {
			in.key = true
		}
	}
}

func FuzzFooter(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00"), int64(4))
	f.Add([]byte("\xff\xff\xff\xff"), int64(1<<62))
	f.Add([]byte("{}\x02\x00\x00\x00"), int64(6))
	f.Fuzz(func(t *testing.T, tail []byte, size int64) {
		off, n, fault := parseFooter(tail, size)
		if fault == nil && (off < 0 || n < 1 || off+n+footerLen != size || size < 0) {
			t.Errorf("%q of %d bytes: index at %d+%d", tail, size, off, n)
		}
		// Detection sees at most what there is.
		p := format.Probe{Name: "x", Size: size, Head: tail, Tail: tail}
		if detect(p) != format.No && fault != nil {
			t.Errorf("%q of %d bytes is detected, although: %s", tail, size, fault.msg)
		}
	})
}

func FuzzOpen(f *testing.F) {
	archives(f, func(b []byte) { f.Add(b, "") })
	f.Add([]byte("\x00\x00\x00\x00"), "inclusive")
	index := `{"format_version":"1.0","files":{"a":{"start_byte":0,"end_byte":5` + someObject + `},"b":{"start_byte":5,"end_byte":10}}}`
	f.Add(appendFooter([]byte("0123456789"+index), int64(len(index))), "")
	f.Fuzz(func(t *testing.T, archive []byte, said string) {
		o := format.OpenOptions{}
		if said == "inclusive" || said == "exclusive" {
			o.Param = map[string]string{"ends": said}
		}
		st := mem(archive)
		faults := 0
		if err := verify(t.Context(), st, "x.caf", o, func(p format.Problem) {
			if p.Severity == format.Error {
				faults++
			}
			if p.Off > int64(len(archive)) {
				t.Errorf("a problem at byte %d of %d: %s", p.Off, len(archive), p.Message)
			}
		}); err != nil {
			t.Fatalf("verify: %v", err)
		}
		r, err := open(t.Context(), st, "x.caf", o)
		if err != nil {
			if _, ok := errors.AsType[*format.CorruptError](err); !ok {
				t.Errorf("expected a *format.CorruptError, found %v", err)
			}
			if faults == 0 {
				t.Errorf("open says %v, verify finds no error", err)
			}
			return
		}
		defer r.Close()
		dataLen := r.(*reader).off
		names := []string{"no such name", ""}
		for e, err := range r.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Fault != nil && faults == 0 {
				t.Errorf("%q has a fault that verify does not find: %s", e.Name, e.Fault.Message)
			}
			for x, err := range r.Extents(t.Context(), e, 0, e.Size) {
				if (err != nil) != (e.Fault != nil) {
					t.Errorf("%q: fault %v, extents say %v", e.Name, e.Fault, err)
				}
				if x.Off < 0 || x.Len < 0 || x.Off+x.Len > dataLen || x.Size != e.Size {
					t.Errorf("%q of %d bytes lies at %d+%d in %d bytes of data", e.Name, e.Size, x.Off, x.Len, dataLen)
				}
			}
			if len(names) < 12 {
				names = append(names, e.Name, e.Name+"/")
			}
		}
		end := int64(0)
		for g, err := range r.Regions(t.Context()) {
			if err != nil || g.Off < 0 || g.Len <= 0 || g.Off+g.Len > int64(len(archive)) {
				t.Errorf("region %+v of %d bytes: %v", g, len(archive), err)
			}
			end = max(end, g.Off+g.Len)
		}
		if end != int64(len(archive)) {
			t.Errorf("regions end at %d of %d bytes", end, len(archive))
		}
		for _, n := range names {
			wantSearchAgrees(t, archive, n, o)
		}
	})
}

// FuzzRepair also makes the repair: what comes out must open, verify without an
// error and need no other.
func FuzzRepair(f *testing.F) {
	archives(f, func(b []byte) { f.Add(b) })
	digest := strings.Repeat("0f", digestLen)
	for _, index := range []string{
		// The rows that prove ends exclusive go; the others would tile inclusively.
		`{"format_version":"1.0","files":{"a":{"start_byte":0,"end_byte":9},"b":{"start_byte":11,"end_byte":10}}}`,
		`{"format_version":"1.0","files":{"a":{"start_byte":0,"end_byte":4},"c":{"start_byte":5,"end_byte":9},"b":{"start_byte":11,"end_byte":10}}}`,
		`{"format_version":"1.0","files":{"a":{"start_byte":0,"end_byte":9},"b":{"start_byte":9,"end_byte":10},"b":{"start_byte":0,"end_byte":4}}}`,
		// What is kept unchanged must not be what is repaired.
		`{"format_version":"1.0","writer":"me","x":1,"x":[2,],"files":{"a":{"start_byte":0,"end_byte":10,"blake3":"` + digest + `"}}}`,
		`{"format_version":"1.0","writer":5,"files":{"a":{"start_byte":0,"end_byte":10,"blake3":"` + digest + `","q":[1,],},}}`,
		// Broken off, and broken within.
		`{"format_version":"1.0","files":{"a":{"start_byte":0,"end_byte":5},"b":{"start_byte":5,"end_byte":10},"c":{"start_byte":9`,
		`{"format_version":"1.0","files":{"a":{"start_byte":0,"end_byte":5},"b"!{"start_byte":5,"end_byte":9},"c":{"start_byte":9,"end_byte":10}}}`,
		// Rows say what objects they were.
		`{"format_version":"1.0","files":{"a":{"start_byte":0,"end_byte":5` + someObject + `},"b":{"start_byte":5,"end_byte":19` + someObject + `},}}`,
		// Its beginning is gone.
		"\x00\x00\x00\x00" + `:0,"end_byte":5},"b":{"start_byte":5,"end_byte":10}}}`,
	} {
		f.Add(appendFooter(append([]byte("0123456789"), index...), int64(len(index))))
	}
	f.Fuzz(func(t *testing.T, archive []byte) {
		var read atomic.Int64
		st := storetest.Fault(mem(archive), func(op, _ string, _, n int64) error {
			read.Add(n)
			return nil
		})
		ignore := func(format.Problem) {}
		plan, err := repair(t.Context(), st, "x.caf", format.OpenOptions{}, ignore)
		if limit := int64(64*len(archive) + 32<<20); read.Load() > limit {
			t.Errorf("%d bytes were read to repair %d", read.Load(), len(archive))
		}
		if err != nil {
			if _, ok := errors.AsType[*format.CorruptError](err); !ok {
				t.Errorf("expected a *format.CorruptError, found %v", err)
			}
			return
		}
		at := int64(0)
		for _, e := range plan.Edits {
			if e.Object != "x.caf" || e.Off < at || e.Len < 0 || e.Off+e.Len > int64(len(archive)) {
				t.Fatalf("edit at %d+%d of %d bytes, after %d", e.Off, e.Len, len(archive), at)
			}
			at = e.Off + e.Len
		}
		if len(plan.Edits) == 0 {
			return
		}
		repaired := apply(t, archive, plan)
		if err := verify(t.Context(), mem(repaired), "x.caf", format.OpenOptions{}, func(p format.Problem) {
			if p.Severity == format.Error {
				t.Errorf("after repair: %s: %s", p.Class, p.Message)
			}
		}); err != nil {
			t.Errorf("after repair: %v", err)
		}
		wantGocafReads(t, repaired, nil)
		again, err := repair(t.Context(), mem(repaired), "x.caf", format.OpenOptions{}, ignore)
		if err != nil || len(again.Edits) > 0 {
			t.Errorf("a second repair: %v, %q\nfirst %q\nthen  %q", err, again.Notes, archive, repaired)
		}
	})
}

// An index whose beginning is gone gives the rows that are left.
func TestRepairOfAnIndexWithoutBeginning(t *testing.T) {
	index := `{"format_version":"1.0","files":{"a":{"start_byte":0,"end_byte":4},"b":{"start_byte":4,"end_byte":7},"c":{"start_byte":7,"end_byte":10}}}`
	for lost, want := range map[int]string{40: "bc", 60: "bc", 75: "c"} {
		archive := appendFooter(append([]byte("0123456789"), strings.Repeat("\x00", lost)+index[lost:]...), int64(len(index)))
		plan, err := repair(t.Context(), mem(archive), "x.caf", format.OpenOptions{}, func(format.Problem) {})
		if err != nil || !plan.Partial || len(plan.Lost) == 0 {
			t.Fatalf("%d bytes lost: %v, %+v", lost, err, plan)
		}
		r, err := open(t.Context(), mem(apply(t, archive, plan)), "x.caf", format.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for e, err := range r.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			got += e.Name
		}
		r.Close()
		if got != want {
			t.Errorf("%d bytes lost: %q, expected %q", lost, got, want)
		}
	}
}

// Rows that all claim all of the data, with digests that are wrong everywhere,
// must not make a small archive a day's work.
func TestRepairSearchesWithinBounds(t *testing.T) {
	b := make([]byte, 200_000)
	at := len(b)
	b = append(b, `{"format_version":"1.0","files":{`...)
	for i := range 300 {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendRow(b, strconv.Itoa(i), 0, int64(at-1000), strings.Repeat("x", digestLen), "", nil)
	}
	b = append(b, tailOfIndex...)
	b = appendFooter(b, int64(len(b)-at))
	obj, err := mem(b).Open(t.Context(), "x.caf")
	if err != nil {
		t.Fatal(err)
	}
	defer obj.Close()
	m := &repairer{ctx: t.Context(), obj: obj, name: "x.caf", size: int64(len(b)), limits: format.Limits{}.OrDefault()}
	if _, err := m.plan(b[len(b)-footerLen:]); err != nil {
		t.Fatal(err)
	}
	if m.searched == 0 || m.searched > finder.MaxHashed {
		t.Errorf("%d bytes were hashed in search of files", m.searched)
	}
}

// FuzzWriter writes entries of random names and sizes, some of which fail, to stores that can and
// cannot undo writes.
func FuzzWriter(f *testing.F) {
	f.Add(uint64(1), "a\nb/c\nb\n\nü\n\xff\n\xfe\n\ufffd\n<&>\n\u2028", true, false)
	f.Add(uint64(2), "../x\nC:\\y\n\x00\n\x1f\n\x7f\na\na\n\"\\\n", false, true)
	f.Fuzz(func(t *testing.T, seed uint64, names string, back, plain bool) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		m := &storetest.Mem{}
		var st store.Store = m
		if !back {
			st = onward{m}
		}
		w, err := create(t.Context(), st, "x.caf", format.CreateOptions{NoDigests: plain})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Abort()
		want := map[string][]byte{}
		for n := range strings.SplitSeq(names, "\n") {
			size := rnd.IntN(300)
			if rnd.IntN(30) == 0 {
				size = rnd.IntN(3 * 128 << 10)
			}
			content := make([]byte, size)
			for i := range content {
				content[i] = byte(rnd.Uint32())
			}
			e := format.Entry{Name: n, Size: int64(size)}
			if rnd.IntN(4) == 0 {
				e.Attr = map[string]string{kit.ETagAttr: n, "content-type": names}
			}
			var src io.Reader = bytes.NewReader(content)
			fails := rnd.IntN(4) == 0
			if fails {
				switch rnd.IntN(3) {
				case 0:
					e.Size++
				case 1:
					e.Size = max(0, e.Size-1)
					fails = size > 0
				case 2:
					src = io.MultiReader(bytes.NewReader(content[:rnd.IntN(size+1)]), iotest.ErrReader(fs.ErrClosed))
				}
			}
			err := w.Add(t.Context(), e, src)
			var refused *kit.RefusedError
			_, taken := want[n]
			switch {
			case errors.As(err, &refused):
				if !taken && utf8.ValidString(n) && !strings.Contains(n, "\ufffd") {
					t.Errorf("refused: %v", err)
				}
			case fails != (err != nil):
				t.Errorf("%q of %d bytes, fails %v: %v", n, e.Size, fails, err)
			case err == nil && taken:
				t.Errorf("%q is taken twice", n)
			case err == nil:
				want[n] = content
			}
		}
		sum, err := w.Commit(t.Context())
		if err != nil || sum.Entries != int64(len(want)) {
			t.Fatalf("commit: %+v, %v; expected %d entries", sum, err, len(want))
		}
		archive := m.Get("x.caf")
		wantContents(t, archive, want)
		wantGocafReads(t, archive, want)
		if err := verify(t.Context(), m, "x.caf", format.OpenOptions{}, func(p format.Problem) {
			if p.Severity == format.Error {
				t.Errorf("%s: %s", p.Class, p.Message)
			}
		}); err != nil {
			t.Error(err)
		}
	})
}
