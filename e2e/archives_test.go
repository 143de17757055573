package e2e

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	_ "github.com/holdall/holdall/store/all"
)

var stamped = time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)

// album is files of each kind that can be previewed.
func album() map[string][]byte {
	var text bytes.Buffer
	for i := range 30_000 {
		fmt.Fprintf(&text, "%s line %d of a long log, with some words in it\n", stamped.Add(time.Duration(i)*time.Second).Format(time.RFC3339), i+1)
	}
	img := image.NewRGBA(image.Rect(0, 0, 320, 200))
	for y := range 200 {
		for x := range 320 {
			img.Set(x, y, color.RGBA{uint8(x * 255 / 320), uint8(90 + y/2), uint8(200 - x/3), 255})
		}
	}
	var pic bytes.Buffer
	if err := png.Encode(&pic, img); err != nil {
		panic(err)
	}
	wav := append([]byte("RIFF\x24\x7d\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x80\x3e\x00\x00\x02\x00\x10\x00data\x00\x7d\x00\x00"), make([]byte, 32000)...)
	for i := range 16000 {
		binary.LittleEndian.PutUint16(wav[44+2*i:], uint16(int16(8000*math.Sin(float64(i)/9))))
	}
	tree, err := json.Marshal(map[string]any{"name": "a survey", "count": 3, "list": []any{1, 2.5, nil, true, "text"}, "deep": map[string]any{"x": map[string]any{"y": "z"}}})
	if err != nil {
		panic(err)
	}
	all := map[string][]byte{
		"README.md": []byte("# An album\n\nFiles of each kind.\n"), "logs/long.log": text.Bytes(), "logs/short.txt": []byte("one\r\ntwo\r\nthree"), "data/tree.json": tree, "data/broken.json": []byte("{\"a\": "),
		"pictures/sunset.png": pic.Bytes(), "pictures/mark.svg": []byte(`<svg xmlns="http://www.w3.org/2000/svg" width="80" height="60"><script>window.evil=1</script><circle cx="40" cy="30" r="25" fill="teal"/></svg>`),
		"sounds/tone.wav": wav, "data/random.bin": noise(300_000), "pages/page.html": []byte("<h1>hello</h1><script>window.evil=1</script>"),
		"docs/guide.md":  []byte("A guide\n=======\n\nSee [the tree](../data/tree.json), *or* **not**: `code <b>`, [away](https://example.org/).\n\n1. one\n2. two\n   - deeper\n\n| a | b |\n|---|--:|\n| 1 | <i>2</i> |\n\n> quoted\n\n```\n<script>window.evil=1</script>\n```\n\n![a mark](../pictures/mark.svg)\n"),
		"data/table.csv": []byte("name,n,said\n\"a, b\",1,\"two\nlines, \"\"quoted\"\"\"\nc,22,<b>x</b>\n"),
		"src/main.go":    []byte("package main\n\n// main says \"hello\"\nfunc main() {\n\tprintln(\"<b>hello</b>\", 42)\n}\n"),
		"odd/<img src=x onerror=window.evil=1>.txt": []byte("markup in a name"), "odd/a b?#%.txt": []byte("signs"), "odd/naïve été.txt": []byte("accents"), "empty": nil,
	}
	for i := range 300 {
		all[fmt.Sprintf("pictures/2026/raw/IMG_%04d.dng", i)] = noise(2000 + i*37%9000)
		all[fmt.Sprintf("model/layers/%02d/weights.bin", i)] = noise(800 + i*i%7000)
	}
	return all
}

// noise is bytes that look like chance, and are always the same.
func noise(n int) []byte {
	b := make([]byte, n)
	x := uint32(n)*2654435761 + 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return b
}

// written makes an archive of a format out of files, in the order of their names.
func written(t *testing.T, name string, each func(add func(name string, content []byte))) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	st, object, err := store.OpenAddress(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := format.All().ByExtension(name).Create(t.Context(), st, object, format.CreateOptions{Scratch: pack.NewScratch})
	if err != nil {
		t.Fatal(err)
	}
	each(func(name string, content []byte) {
		if err := w.Add(t.Context(), holdall.Entry{Name: name, Size: int64(len(content)), ModTime: stamped.Add(-time.Duration(len(content)) * time.Minute)}, bytes.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return path
}

func albumFile(t *testing.T, name string) string {
	t.Helper()
	files := album()
	return written(t, name, func(add func(string, []byte)) {
		for _, n := range sortedKeys(files) {
			add(n, files[n])
		}
	})
}

// damaged flips bits within the content of one file of an archive.
func damaged(t *testing.T, path string, content []byte) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, content)
	if at < 0 {
		t.Fatal("the content is not there as it is")
	}
	b[at+len(content)/2] ^= 0x40
	out := filepath.Join(t.TempDir(), "damaged.caf")
	if err := os.WriteFile(out, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return out
}
