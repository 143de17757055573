package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whatever names are, they stay in their places, and what they say is theirs alone.
func TestOddNamesStayInTheirPlaces(t *testing.T) {
	chromium(t)
	long := strings.Repeat("a-very-long-name-", 15) + ".txt"
	rtl := "ملف\u202egpj.exe"
	names := []string{
		long, strings.Repeat("deep/", 40) + "end.txt", rtl, "שלום עולם.txt", "tab\there\nand a line.txt", "bell\x07\x1b[31mred.txt",
		"zero\u200bwidth.txt", "日本語のとても長いファイル名がここにあります.txt", "👩‍👩‍👧‍👦.txt", "  spaces  .txt", "-rf", `back\slash`, "raw\xff\xfe.bin", "e" + strings.Repeat("́", 80) + ".txt",
		".hidden", "C:\\x", "a\"b'c`d", "<b>bold</b>", "CON", "x" + strings.Repeat("W", 200),
	}
	path := written(t, "odd.caf", func(add func(string, []byte)) {
		for i, n := range names {
			add(n, []byte(fmt.Sprintf("content %d of something\n", i)))
		}
	})
	dir := t.TempDir()
	called := "archive " + strings.Repeat("of a long name ", 9) + "\u202efac.caf"
	if err := os.Rename(path, filepath.Join(dir, called)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(written(t, "y.caf", func(add func(string, []byte)) { add("x", []byte("y")) }), filepath.Join(dir, "y.caf")); err != nil {
		t.Fatal(err)
	}
	b := open(t, served(t, dir))
	for _, s := range []struct {
		name string
		w, h int64
	}{{"1280", 1280, 800}, {"360", 360, 740}} {
		b.size(s.w, s.h)
		b.visit("#/")
		b.wait("document.querySelectorAll('.archives tbody tr[data-state=complete]').length === 2")
		b.fits("archives", s.name)
		b.shot("odd-archives-" + s.name + "-light")
		b.run("document.querySelector('.archives a').click()")
		b.wait("document.body.dataset.tab === 'list' && document.body.dataset.ready === '1' && document.body.dataset.survey === 'complete'")
		b.fits("files", s.name)
		b.shot("odd-files-" + s.name + "-light")
		at := b.text("location.hash")
		for i, path := range []string{long, rtl, strings.Repeat("deep/", 40) + "end.txt"} {
			b.visit(at + "/" + escaped(strings.ReplaceAll(path, "\u202e", `\xe2\x80\xae`)))
			b.wait("document.body.dataset.preview === 'text'")
			b.fits(path, s.name)
			b.shot(fmt.Sprintf("odd-preview-%d-%s-light", i, s.name))
		}
		for _, tab := range []string{"map", "treemap", "verify", "about"} {
			b.visit(at + "?tab=" + tab)
			b.wait("document.body.dataset.tab === '" + tab + "' && document.body.dataset.ready === '1'")
			b.fits(tab, s.name)
			b.shot("odd-" + tab + "-" + s.name + "-light")
		}
	}
	b.accessible("odd names")
	// No sign of a name turns the text around it.
	b.visit("#/")
	b.wait("document.querySelectorAll('.archives tbody tr[data-state=complete]').length === 2")
	if text := b.text("document.body.innerText"); strings.Contains(text, "\u202e") {
		t.Errorf("a name turns what follows it: %q", text)
	}
}

// fits checks that nothing sticks out of the page.
func (b *tab) fits(what, at string) {
	b.t.Helper()
	if over := eval[int](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
		b.t.Errorf("%.40s at %s pixels sticks out by %d", what, at, over)
	}
}
