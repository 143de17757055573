package bytemap

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/base/screen"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// small is a map of two volumes with all that can occur, and names that mean
// mischief.
func small() *Map {
	return Build([]Volume{{"a&b<c>.tar", 100_000}, {"escape\x1b[31m\xff.tar", 30_000}}, slices.Values([]Span{
		{"a&b<c>.tar", 0, 512, Header, "tar header"},
		{"a&b<c>.tar", 512, 20_000, Content, `dir/"quoted" & <b>bold</b>.txt`},
		{"a&b<c>.tar", 20_512, 9_000, Content, "dir/日本語の名前.txt"},
		{"a&b<c>.tar", 29_512, 11_000, Content, "control\x1b]0;title\x07\nnewline"},
		{"a&b<c>.tar", 40_512, 3_000, Padding, ""},
		{"a&b<c>.tar", 50_000, 15_000, Trash, "old/content"},
		{"a&b<c>.tar", 62_000, 8_000, Content, "over the trash"},
		{"a&b<c>.tar", 70_000, 4_000, Unknown, ""},
		{"a&b<c>.tar", 74_000, 6_000, Journal, "journal"},
		{"a&b<c>.tar", 80_000, 20_000, IndexData, "index"},
		{"escape\x1b[31m\xff.tar", 0, 30_000, Content, "all of it"},
		{"escape\x1b[31m\xff.tar", 30_000, 10, Content, "too far"},
	}))
}

// renderers are the ways to draw a map.
var renderers = map[string]func(*Map, io.Writer) error{
	"small.svg":        (*Map).SVG,
	"small.png":        (*Map).PNG,
	"small.json":       (*Map).JSON,
	"small.txt":        func(m *Map, w io.Writer) error { return m.Terminal(w, 80, false) },
	"small_colour.txt": func(m *Map, w io.Writer) error { return m.Terminal(w, 80, true) },
	"small_narrow.txt": func(m *Map, w io.Writer) error { return m.Terminal(w, 30, false) },
}

// draw draws m in every way and checks what must hold for any map.
func draw(t *testing.T, m *Map) {
	t.Helper()
	for name, render := range renderers {
		var b bytes.Buffer
		if err := render(m, &b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		switch filepath.Ext(name) {
		case ".svg":
			wellFormed(t, b.Bytes())
		case ".png":
			if _, err := png.Decode(&b); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case ".json":
			if !json.Valid(b.Bytes()) {
				t.Errorf("%s is not JSON", name)
			}
		}
	}
}

func wellFormed(t *testing.T, svg []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Fatalf("not XML: %v", err)
		}
	}
}

func TestDrawingsAreAsBefore(t *testing.T) {
	for name, render := range renderers {
		if name == "small.png" || name == "small.json" {
			continue // tested by what they say
		}
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := render(small(), &got); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name)
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("differs from %s (-update rewrites it):\n%s", golden, got.Bytes())
			}
		})
	}
}

func TestEmptyMapsAreDrawn(t *testing.T) {
	none := func(func(Span) bool) {}
	for _, volumes := range [][]Volume{nil, {{"empty", 0}}, {{"one byte", 1}}, {{"", 5}, {"", 7}}} {
		draw(t, Build(volumes, none))
	}
}

func TestSVGNamesSpansAndEscapesThem(t *testing.T) {
	var b strings.Builder
	if err := small().SVG(&b); err != nil {
		t.Fatal(err)
	}
	svg := b.String()
	wellFormed(t, []byte(svg))
	for _, want := range []string{
		"a&amp;b&lt;c&gt;.tar",
		`dir/&#34;quoted&#34; &amp; &lt;b&gt;bold&lt;/b&gt;.txt&#xA;bytes 512 – 20,512, 19.5 KiB`,
		`control\x1b]0;title\x07\x0anewline`,
		`escape\x1b[31m\xff.tar`,
		"prefers-color-scheme:dark",
		"index (index)",
		"overlap: bytes 62,0",
		"out of their volume&#39;s bounds: 1 span",
	} {
		if !strings.Contains(svg, want) {
			t.Errorf("%q does not occur", want)
		}
	}
	if strings.Contains(svg, "http") && strings.Count(svg, "http") != 1 {
		t.Error("refers to something outside itself")
	}
}

func TestManyVolumesStaySmall(t *testing.T) {
	volumes := make([]Volume, 3000)
	for i := range volumes {
		volumes[i] = Volume{fmt.Sprint("shard-", i), 1 << 20}
	}
	m := Build(volumes, func(func(Span) bool) {})
	var b strings.Builder
	if err := m.SVG(&b); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "not shown: 2,800 more volumes") || b.Len() > 300_000 {
		t.Errorf("expected a note and at most 300 kB, found %d bytes", b.Len())
	}
}

func TestPNGShowsWhatLiesWhere(t *testing.T) {
	m := Build([]Volume{{"v", 12_288}}, slices.Values([]Span{
		{"v", 0, 1024, Header, ""},
		{"v", 1024, 2048, Content, "a"},
		{"v", 3072, 2048, Content, "b"},
		{"v", 6144, 6144, IndexData, ""},
	}))
	var b bytes.Buffer
	if err := m.PNG(&b); err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	l := newLayout(m, pngRows)
	for off, want := range map[int64]string{
		500: palette[Header].light, 1500: darker.light, 4000: lighter.light, 5500: palette[Gap].light, 7000: palette[IndexData].light, 12_000: palette[IndexData].light,
	} {
		x := pngMargin + int(off%l.rowSize*pngStrip/l.rowSize)
		y := pngMargin + int(off/l.rowSize)*pngRowStep + pngRow/2
		if got := img.At(x, y); got != rgb(want) {
			t.Errorf("byte %d, at %v: expected %s, found %v", off, image.Pt(x, y), want, got)
		}
	}
}

func TestLettersWriteEveryUse(t *testing.T) {
	for u := Content; u <= Overlap; u++ {
		for _, r := range u.String() {
			if letters[r] == [letterHeight]uint8{} {
				t.Errorf("%s: no letter %c", u, r)
			}
		}
	}
}

func TestTerminalKeepsToItsWidthAndSendsNothingElse(t *testing.T) {
	codes := regexp.MustCompile("\x1b\\[[0-9;]*m")
	for _, colour := range []bool{false, true} {
		for _, width := range []int{0, 1, 12, 20, 39, 40, 41, 80, 200} {
			var b strings.Builder
			if err := small().Terminal(&b, width, colour); err != nil {
				t.Fatal(err)
			}
			text := b.String()
			if colour {
				text = codes.ReplaceAllString(text, "")
			}
			for line := range strings.Lines(text) {
				line = strings.TrimSuffix(line, "\n")
				if n := screen.Width(line); n > max(width, minTerminal) {
					t.Errorf("width %d: line of %d columns: %q", width, n, line)
				}
				for _, r := range line {
					if r < 0x20 || r == 0x7f || r == utf8.RuneError {
						t.Errorf("width %d: control character in %q", width, line)
					}
				}
			}
		}
	}
}

func TestJSONTellsTheMap(t *testing.T) {
	var b bytes.Buffer
	m := small()
	if err := m.JSON(&b); err != nil {
		t.Fatal(err)
	}
	var got jsonMap
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Size != 130_000 || got.Outside != 1 || len(got.Volumes) != 2 || len(got.Largest) != 11 {
		t.Errorf("found size %d, %d outside, %d volumes, %d largest", got.Size, got.Outside, len(got.Volumes), len(got.Largest))
	}
	for i, v := range got.Volumes {
		if name := naming.Unescape(v.Name); name != m.Volumes[i].Name {
			t.Errorf("volume %d: expected %q, found %q", i, m.Volumes[i].Name, name)
		}
		for use, cells := range v.Cells {
			var sum int64
			for _, n := range cells {
				sum += n
			}
			if sum != v.Uses[use].Bytes {
				t.Errorf("%s: %s: cells sum up to %d, the total is %d", v.Name, use, sum, v.Uses[use].Bytes)
			}
		}
	}
}

func TestWriteErrorsComeUp(t *testing.T) {
	for name, render := range renderers {
		if err := render(small(), brokenWriter{}); !errors.Is(err, errBroken) {
			t.Errorf("%s: found %v", name, err)
		}
	}
}

var errBroken = errors.New("broken")

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestNumbersAreWrittenForPeople(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 10_000: "9.77 KiB", 1<<20 - 1: "1 MiB", 1 << 20: "1 MiB",
		100 << 20: "100 MiB", 5 << 40: "5 TiB", math.MaxInt64: "8 EiB",
	} {
		if got := human(n); got != want {
			t.Errorf("%d: expected %s, found %s", n, want, got)
		}
	}
	for x, want := range map[[2]int64]string{
		{0, 100}: "0 %", {1, 100_000}: "< 0.1 %", {1, 3}: "33.3 %", {99_999, 100_000}: "> 99.9 %", {5, 5}: "100.0 %", {1, 0}: "0 %",
	} {
		if got := percent(x[0], x[1]); got != want {
			t.Errorf("%v: expected %s, found %s", x, want, got)
		}
	}
}

// An index may claim the same bytes thousands of times.
func TestOverlappingSpansMakeNoBiggerPicture(t *testing.T) {
	const size = 1 << 20
	m := Build([]Volume{{"v", size}}, func(yield func(Span) bool) {
		for i := range int64(5000) {
			if !yield(Span{"v", i, size - 5000, Content, "again"}) {
				return
			}
		}
	})
	var b bytes.Buffer
	if err := m.SVG(&b); err != nil {
		t.Fatal(err)
	}
	if b.Len() > 20_000 {
		t.Errorf("expected at most 20 kB, found %d", b.Len())
	}
}
