package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhateverIsOpenedHasAFirstScreen opens what is left of archives, looks at a file before anything is
// written, and saves a copy that the command finds sound.
func TestWhateverIsOpenedHasAFirstScreen(t *testing.T) {
	chromium(t)
	dir, files := t.TempDir(), t.TempDir()
	for name, content := range album() {
		path := filepath.Join(files, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put := func(name string, content []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	whole := map[string][]byte{}
	for _, ext := range []string{"caf", "zip", "tar"} {
		path := filepath.Join(t.TempDir(), "x."+ext)
		run(t, "pack", "-o", path, files)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		whole[ext] = b
	}
	put("cut.zip", whole["zip"][:len(whole["zip"])*3/4])
	put("headless.zip", whole["zip"][300:])
	put("cut.caf", whole["caf"][:len(whole["caf"])/2])
	put("head.caf", whole["caf"][:len(whole["caf"])-4]) // without its footer
	put("cut.tar", whole["tar"][:len(whole["tar"])*2/3])
	put("empty.caf", nil)
	put("noise.caf", noise(200_000))
	b := open(t, started(t, dir))
	b.expect("422")
	saved := b.keeps()
	b.visit("")
	b.wait("document.querySelectorAll('.archives [role=alert]').length === 6")
	b.shot("damage-list-1440-light")
	for _, x := range []struct{ name, plan string }{{"cut.zip", "partial"}, {"headless.zip", "partial"}, {"head.caf", "whole"}, {"cut.caf", "nothing"}, {"noise.caf", "nothing"}, {"empty.caf", ""}} {
		b.size(1440, 1000)
		b.visit("#/" + x.name)
		b.wait("document.body.dataset.tab === 'damage' && document.body.dataset.damage === '1'")
		if x.plan != "" {
			b.wait("document.body.dataset.plan === '" + x.plan + "'")
		}
		if x.plan == "partial" || x.plan == "whole" {
			b.wait("document.body.dataset.places === 'repaired'")
		}
		if text := b.text("document.querySelector('.happened').innerText"); !strings.Contains(text, x.name) || !strings.Contains(text, ".") {
			t.Errorf("%s: it says %q", x.name, text)
		}
		if text := b.text("document.body.innerText"); strings.Contains(text, "Cannot show this") {
			t.Errorf("%s: it cannot be shown", x.name)
		}
		if x.name != "empty.caf" {
			b.wait("document.querySelector('.hex .line:not([hidden]) .code')?.innerText.trim()")
			b.wait("document.querySelector('.damage canvas.map').dataset.cells > 0")
		}
		b.shot("damage-" + x.name + "-1440-light")
		b.accessible("what is left of " + x.name)
		b.run("document.querySelector('#main').scrollTop = 1e6")
		b.shot("damage-" + x.name + "-1440-light-below")
		b.media("dark")
		b.size(390, 844)
		b.shot("damage-" + x.name + "-390-dark-below")
		b.run("document.querySelector('#main').scrollTop = 0")
		b.shot("damage-" + x.name + "-390-dark")
		b.accessible("what is left of " + x.name + ", narrow")
		if wide := b.text("document.querySelector('#main').scrollWidth - document.querySelector('#main').clientWidth"); wide != "0" {
			t.Errorf("%s: on a narrow screen it is %s pixels too wide", x.name, wide)
		}
		b.media("light")
	}
	b.size(1280, 900)
	// A click on the map shows the bytes there.
	b.visit("#/cut.zip")
	b.wait("document.body.dataset.places === 'repaired' && document.querySelector('.damage canvas.map').dataset.cells > 0")
	b.run("document.querySelector('.damage canvas.map').scrollIntoView()")
	b.click(".damage canvas.map")
	b.wait("Number(document.body.dataset.at) > 0")
	b.run("document.querySelector('#main').scrollTop = 0")
	// A file that the repair would give back.
	b.click("#look-recovered")
	b.wait("document.body.dataset.tab === 'list' && document.body.dataset.ready === '1' && document.body.dataset.alarm === 'warn'")
	b.shot("damage-recovered-1280-light")
	b.accessible("a preview of a repair")
	b.visit("#/cut.zip/data/tree.json?view=repaired")
	b.wait("document.body.dataset.preview === 'json'")
	b.visit("#/cut.zip?view=repaired&tab=map")
	b.wait("document.body.dataset.map")
	b.shot("damage-recovered-map-1280-light")
	// It is saved, and found sound.
	b.visit("#/cut.zip?view=bytes&tab=damage")
	b.wait("document.querySelector('#save-repaired')")
	b.click("#save-repaired")
	content := b.kept(saved, "cut-repaired.zip")
	copied := filepath.Join(t.TempDir(), "copy.zip")
	if err := os.WriteFile(copied, content, 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "verify", copied)
	out, err := holdallCommand(t, "cat", copied, "data/tree.json").Output()
	if err != nil || !bytes.Equal(out, album()["data/tree.json"]) {
		t.Errorf("the copy has %d bytes of data/tree.json: %v", len(out), err)
	}
	// An archive that opens leads there, too.
	b.visit("#/cut.tar?tab=verify")
	b.wait("document.body.dataset.check === 'none'")
	b.click("#check-full")
	b.wait("document.querySelector('#preview-repair')")
	b.run("document.querySelector('#preview-repair').click()")
	b.wait("document.body.dataset.plan === 'partial' && document.querySelector('#save-repaired')")
	b.shot("damage-check-1280-light")
	b.accessible("a preview of a repair below a check")
}
