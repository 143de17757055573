package age

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"filippo.io/age"

	"github.com/holdall/holdall"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/internal/testkit"
	_ "github.com/holdall/holdall/store/all"
)

// The command decrypts what we have written to a plain archive, and we read what it has encrypted: with one
// recipient, with several of them, with keys of the kind that resists quantum computers, and however long it is.
func TestTheCommandAndWeReadEachOther(t *testing.T) {
	command := testkit.Needs(t, "HOLDALL_AGE")
	ours, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	hybrid, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	rnd := testkit.Rand(t)
	for what, c := range map[string]struct {
		key string
		to  []string
	}{
		"one":     {ours.String(), []string{ours.Recipient().String()}},
		"several": {ours.String(), []string{other.Recipient().String(), ours.Recipient().String()}},
		"hybrid":  {hybrid.String(), []string{hybrid.Recipient().String()}},
	} {
		for _, size := range []int{0, 1000, 64 << 10, 300_000} {
			dir := t.TempDir()
			t.Chdir(dir)
			save(t, "key", []byte(c.key+"\n"))
			save(t, "in/file", testkit.Noise(rnd, size))
			to, args := "", []string{"-e", "-o", "theirs.caf"}
			for _, r := range c.to {
				to, args = to+string(filepath.ListSeparator)+r, append(args, "-r", r)
			}
			t.Setenv("HOLDALL_AGE_RECIPIENTS", to[1:])
			t.Setenv("HOLDALL_AGE_IDENTITY", "key")

			if _, err := holdall.Pack(t.Context(), "age:ours.caf", []string{"in"}, holdall.PackOptions{}); err != nil {
				t.Fatal(err)
			}
			run(t, command, "-d", "-i", "key", "-o", "plain.caf", "ours.caf")
			run(t, command, append(args, "plain.caf")...)
			for _, address := range []string{"plain.caf", "age:theirs.caf"} {
				sum, err := holdall.Verify(t.Context(), address, holdall.VerifyOptions{}, func(p holdall.Problem) { t.Errorf("%s, %d bytes: %s: %v", what, size, address, p) })
				if err != nil || sum.Proven.Digest != 1 {
					t.Errorf("%s, %d bytes: %s: %+v, %v", what, size, address, sum, err)
				}
			}
			a, err := holdall.Open(t.Context(), "age:theirs.caf", holdall.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			e, err := a.Lookup(t.Context(), "file")
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if err := a.WriteContent(t.Context(), &got, e); err != nil || !bytes.Equal(got.Bytes(), load(t, "in/file")) {
				t.Errorf("%s, %d bytes: read %d, %v", what, size, got.Len(), err)
			}
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func run(t *testing.T, command string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), command, args...).CombinedOutput(); err != nil {
		t.Fatalf("age %q: %v\n%s", args, err, out)
	}
}

func save(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b, 0o666); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
