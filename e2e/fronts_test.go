package e2e

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// copyOf copies an archive, a file or a folder, and flips bits in each of its files that is
// larger than 1 kB, if they are to be damaged.
func copyOf(t *testing.T, from, to string, flip bool) string {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(from, path)
		at := filepath.Join(to, rel)
		if err != nil || e.IsDir() {
			return errors.Join(err, os.MkdirAll(at, 0o755))
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if flip && len(b) > 1000 {
			for i := 1; i < 8; i++ {
				b[len(b)*i/9] ^= 0x41
			}
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		return os.WriteFile(at, b, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// Each format opens on what its people look for, whole and damaged, wide and narrow, in light
// and in dark. The pictures are there to be looked at.
func TestTheFrontOfEachFormat(t *testing.T) {
	chromium(t)
	dir := t.TempDir()
	fronts := map[string]string{
		"album.caf":         albumFile(t, "album.caf"),
		"album.tar.zst":     filepath.Join(dir, "album.tar.zst"),
		"bundle.databundle": filepath.Join(dir, "album.databundle"),
		"package.rvn":       filepath.Join(dir, "album.rvn"),
		"session.nwb":       hdf5File(t, "../internal/app/explore/testdata/session.nwb"),
		"arrays.lindi.tar":  "../format/lindi/testdata/p07_from_hdf5.lindi.tar",
		"chunks.h5":         hdf5File(t, "../hdf5/testdata/chunks_latest.h5"),
		"segmentstore":      filepath.Join(testkit.Unpacked(t, "../internal/oak/testdata/types.tar.gz"), "segmentstore"),
	}
	for _, name := range []string{"bundle.databundle", "package.rvn", "album.tar.zst"} {
		run(t, "convert", fronts["album.caf"], fronts[name])
	}
	// What the arrays are of lies beside the archive; one array of the session has no shape, which
	// is an error of its own.
	beside := testkit.Read(t, "../format/lindi/testdata/p07_source.h5")
	for name, from := range fronts {
		for state, flip := range map[string]bool{"whole": false, "damaged": true} {
			t.Run(name+"/"+state, func(t *testing.T) {
				at := copyOf(t, from, filepath.Join(t.TempDir(), name), flip)
				if name == "arrays.lindi.tar" {
					if err := os.WriteFile(filepath.Join(filepath.Dir(at), "p07_source.h5"), beside, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				bad := flip || name == "session.nwb"
				b := open(t, started(t, at)) // it logs what is damaged
				b.expect("")                 // and cannot give all that it is asked for
				b.visit("#/" + filepath.Base(at) + "?tab=verify")
				b.wait("document.body.dataset.check === 'none'")
				b.click("#check-full")
				b.wait("document.body.dataset.check === 'complete' || document.body.dataset.check === 'failed'")
				if health := b.text("document.body.dataset.health"); (health == "damaged") != bad {
					t.Errorf("it is said to be %s", health)
				}
				b.visit("")
				if said := b.text("document.body.dataset.alarm + (document.body.dataset.damage ?? '')"); (said != "") != bad {
					t.Errorf("the alarm of it says %q", said)
				}
				for _, way := range []struct {
					name, scheme string
					w, h         int64
				}{{"1440-light", "light", 1440, 900}, {"1440-dark", "dark", 1440, 900}, {"390-dark", "dark", 390, 844}, {"390-light", "light", 390, 844}} {
					checked := way.name == "1440-dark" || way.name == "390-light"
					if !checked && os.Getenv("HOLDALL_ARTIFACTS") == "" {
						continue // it is for the picture alone
					}
					b.media(way.scheme)
					b.size(way.w, way.h)
					b.visit("")
					b.wait("!document.querySelector('#grid .row.waiting:not([hidden])')")
					b.shot("front-" + strings.ReplaceAll(name, ".", "-") + "-" + state + "-" + way.name)
					if checked {
						b.accessible(way.name)
					}
					if wide := b.text("document.documentElement.scrollWidth"); way.w == 390 && wide != "390" {
						t.Errorf("the page is %s wide", wide)
					}
				}
			})
		}
	}
}
