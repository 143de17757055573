package survey_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/facts"
	"github.com/holdall/holdall/internal/app/catalog/survey"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	_ "github.com/holdall/holdall/store/all"
)

// stored writes a file and returns where it is.
func stored(t testing.TB, name string, content []byte) (store.Store, string) {
	t.Helper()
	name = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(name, content, 0o666); err != nil {
		t.Fatal(err)
	}
	st, name, err := store.OpenAddress(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return st, name
}

var whole = catalog.Archive{Facts: catalog.FactsAt("sub/r.nwb")}

// A recording is recorded as one file: all of its bytes, with what it says of itself.
func TestARecordingIsOneFile(t *testing.T) {
	content := testkit.Read(t, "testdata/recording.nwb")
	st, name := stored(t, "r.nwb", content)
	s, err := survey.Open(t.Context(), st, name, whole, holdall.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if f := s.Said; f.Subject.Species != "Mus musculus" || len(f.Series) != 20 || f.Devices[0].Name != "Neuropixels" || f.Tables[len(f.Tables)-1].Rows != 150 || len(f.Missing) > 0 {
		t.Errorf("%+v", f)
	}
	n := 0
	for l, err := range s.Rows(t.Context(), nil) {
		if n++; err != nil || l.Path != "sub/r.nwb" || !l.Raw || l.Off != 0 || l.Size != int64(len(content)) || l.Modified.IsZero() || !l.HasFacts() {
			t.Errorf("%+v, %v", l, err)
		}
	}
	if n != 1 || s.In != nil || s.Known {
		t.Errorf("%d files, %+v", n, s)
	}
	s.ID = 1
	if again, err := survey.Open(t.Context(), st, name, s.Archive, holdall.OpenOptions{}); err != nil || !again.Known || again.Said != nil {
		t.Errorf("%+v, %v", again, err)
	}
}

func TestWhatIsNoRecording(t *testing.T) {
	for _, x := range []struct {
		name, content, facts, want string
	}{
		{"data.h5", string(testkit.Read(t, "../../../../format/hdf5/testdata/data.h5")), whole.Facts, survey.ErrNoRecording.Error()},
		{"r.nwb", "nothing", whole.Facts, "hdf5"},
		{"r.nwb", string(testkit.Read(t, "testdata/recording.nwb")), "eeg:r.nwb", `does not know: "eeg:r.nwb"`},
	} {
		st, name := stored(t, x.name, []byte(x.content))
		if _, err := survey.Open(t.Context(), st, name, catalog.Archive{Facts: x.facts}, holdall.OpenOptions{}); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", x.name, err)
		}
	}
}

// No damage of a recording does more than fail, or makes the facts say less.
func TestFactsOfDamagedRecordings(t *testing.T) {
	content := testkit.Read(t, "testdata/recording.nwb")
	rnd := testkit.Rand(t)
	for range 200 {
		bad := bytes.Clone(content)
		for range 1 + rnd.IntN(50) {
			bad[rnd.IntN(len(bad))] ^= byte(1 + rnd.IntN(255))
		}
		st, name := stored(t, "r.nwb", bad[:len(bad)-rnd.IntN(2)*rnd.IntN(len(bad))])
		s, err := survey.Open(t.Context(), st, name, whole, holdall.OpenOptions{})
		if err != nil {
			continue
		}
		for l := range s.Rows(t.Context(), nil) {
			if f, err := facts.Parse(l); err != nil || len(f.Missing) != len(s.Said.Missing) {
				t.Errorf("%+v, %v", f, err)
			}
		}
	}
}
