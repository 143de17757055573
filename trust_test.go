package holdall_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/internal/base/minisign"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// signed signs the archive x in a store, with an index or without one.
func signed(t *testing.T, st *storetest.Mem, secret minisign.Secret, index bool) holdall.Statement {
	t.Helper()
	o := holdall.OpenOptions{Store: st}
	if index {
		sum, err := holdall.BuildIndex(t.Context(), "x", "", holdall.IndexOptions{OpenOptions: o, Chunk: 64 << 10})
		if err != nil || sum.Contents == "" || sum.Archive == "" {
			t.Fatal(sum, err)
		}
		st.Put("x.minisig", secret.Sign(sum.Text(), sum.Comment("file:x")))
		return sum.Statement
	}
	a, err := holdall.Open(t.Context(), "x", o)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	s, err := a.Roots(t.Context(), nil)
	if err != nil || s.Archive != "" {
		t.Fatal(s, err)
	}
	st.Put("x.minisig", secret.Sign(s.Text(), s.Comment("file:x")))
	return s
}

func newSecret(t *testing.T) minisign.Secret {
	t.Helper()
	s, err := minisign.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// trustedContents reads all of an archive in several ways. It returns what was not refused.
func trustedContents(t *testing.T, a *holdall.Archive, rnd *rand.Rand) (map[string]string, error) {
	t.Helper()
	got := map[string]string{}
	var first error
	for e, err := range a.Entries(t.Context()) {
		if err != nil {
			return got, err
		}
		if e.Internal || e.Kind == format.Dir {
			continue
		}
		if e.Kind == format.Symlink {
			got[e.Name] = "-> " + e.Link
			continue
		}
		var b strings.Builder
		if err := a.WriteContent(t.Context(), &b, e); err != nil {
			first = errors.Join(first, err)
			continue
		}
		got[e.Name] = b.String()
		if e.Size > 0 {
			p, off := make([]byte, 1+rnd.Int64N(e.Size)), rnd.Int64N(e.Size)
			n, err := a.ReadAt(t.Context(), e, p, off)
			if err != nil && err != io.EOF {
				first = errors.Join(first, err)
			} else if string(p[:n]) != b.String()[off:off+int64(n)] {
				t.Errorf("%s: ReadAt and WriteContent differ", e.Name)
			}
		}
	}
	return got, first
}

var signable = []string{"caf", "lindi", "rvn", "databundle", "tar", "zip"}

// TestWhatIsSignedIsRead has archives of each format, with an index, without one, and with a parity file.
func TestWhatIsSignedIsRead(t *testing.T) {
	secret := newSecret(t)
	trusted := []string{newSecret(t).Public().String(), secret.Public().String()}
	roots := map[string]string{}
	for _, f := range signable {
		st := packedAs(t, f, nil, sample)
		roots[signed(t, st, secret, true).Contents] = f
		a, err := holdall.Open(t.Context(), "x", holdall.OpenOptions{Store: st, Trusted: trusted})
		if err != nil {
			t.Fatal(f, err)
		}
		if got, err := trustedContents(t, a, testkit.Rand(t)); err != nil || !maps.Equal(got, sample) || a.SignedBy() != secret.Public().ID() {
			t.Errorf("%s: %d files, %v, %s", f, len(got), err, a.SignedBy())
		}
		a.Close()
		v, err := holdall.Verify(t.Context(), "x", holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Store: st, Trusted: trusted}}, func(p holdall.Problem) { t.Log(f, p) })
		if err != nil || v.Verdict() != "sound" || v.SignedBy != secret.Public().ID() {
			t.Errorf("%s: %+v, %v", f, v, err)
		}
		st.Remove(t.Context(), "x.holdall")
		a, err = holdall.Open(t.Context(), "x", holdall.OpenOptions{Store: st, Trusted: trusted})
		if withList := f == "caf" || f == "rvn" || f == "lindi"; withList != (err == nil) {
			t.Errorf("%s without an index: %v", f, err)
		}
		if err == nil {
			if got, err := trustedContents(t, a, testkit.Rand(t)); err != nil || !maps.Equal(got, sample) {
				t.Errorf("%s: %d files, %v", f, len(got), err)
			}
			a.Close()
		}
	}
	if len(roots) != 1 {
		t.Errorf("the contents have several roots: %v", roots)
	}
}

// TestWhatIsNotSignedIsRefused attacks signed archives. Each read returns what was signed, or an error.
func TestWhatIsNotSignedIsRefused(t *testing.T) {
	testkit.Long(t)
	secret := newSecret(t)
	trusted := []string{secret.Public().String()}
	rnd := testkit.Rand(t)
	other := maps.Clone(sample)
	other["a"], other["d/b"] = "ALPHA", strings.Repeat("BETA", 3000)
	other["more"] = "more"
	delete(other, "a.txt")
	for _, f := range signable {
		for _, index := range []bool{true, false} {
			if !index && f != "caf" && f != "rvn" && f != "lindi" {
				continue
			}
			st, forged := packedAs(t, f, nil, sample), packedAs(t, f, nil, other)
			signed(t, st, secret, index)
			signed(t, forged, newSecret(t), true)
			names := func(m *storetest.Mem) (all []string) {
				for info := range m.List(t.Context(), "") {
					all = append(all, info.Name)
				}
				return all
			}
			refused, whole := 0, 0
			rounds := testkit.Rounds(t, 300)
			for range rounds {
				bad := st.Clone()
				switch what := rnd.IntN(8); what {
				case 0: // an archive of others, with or without their index and signature
					for _, name := range names(forged) {
						if !strings.HasSuffix(name, ".minisig") && !strings.HasSuffix(name, ".holdall") || rnd.IntN(2) == 0 {
							bad.Put(name, forged.Get(name))
						}
					}
				case 1:
					bad.Put("x.holdall", forged.Get("x.holdall"))
				case 2:
					bad.Put("x.minisig", forged.Get("x.minisig"))
				case 3:
					bad.Remove(t.Context(), []string{"x.holdall", "x.minisig"}[rnd.IntN(2)])
				default: // damage, or parts of others in the place of the same parts
					all := names(bad)
					name := all[rnd.IntN(len(all))]
					b, from := slices.Clone(bad.Get(name)), forged.Get(name)
					if len(b) == 0 {
						continue
					}
					at := rnd.IntN(len(b))
					if n := rnd.IntN(200); what > 5 && at < len(from) {
						copy(b[at:min(at+n, len(b))], from[at:])
					} else {
						b[at] ^= byte(1 + rnd.IntN(255))
					}
					bad.Put(name, b)
				}
				a, err := holdall.Open(t.Context(), "x", holdall.OpenOptions{Store: bad, Trusted: trusted})
				if err != nil {
					refused++
					continue
				}
				got, err := trustedContents(t, a, rnd)
				for name, content := range got {
					if want, ok := sample[name]; !ok || want != content {
						t.Fatalf("%s: read %q of %s, which nobody has signed", f, content[:min(len(content), 20)], name)
					}
				}
				if err == nil && len(got) != len(sample) {
					t.Fatalf("%s: %d files are missing without an error", f, len(sample)-len(got))
				}
				if whole++; err != nil {
					refused++
				}
				a.Close()
			}
			if refused < rounds/3 || whole < rounds/10 {
				t.Errorf("%s: %d of %d refused, %d opened", f, refused, rounds, whole)
			}
		}
	}
}

// TestTrustedIsNeverLess tries what else could show something that was not signed.
func TestTrustedIsNeverLess(t *testing.T) {
	secret := newSecret(t)
	trusted := []string{secret.Public().String()}
	st := packedAs(t, "tar", nil, sample)
	signed(t, st, secret, true)
	open := func(change func(*holdall.OpenOptions)) (*holdall.Archive, error) {
		o := holdall.OpenOptions{Store: st, Trusted: trusted}
		change(&o)
		return holdall.Open(t.Context(), "x", o)
	}
	for what, change := range map[string]func(*holdall.OpenOptions){
		"without comparing": func(o *holdall.OpenOptions) { o.NoVerify = true },
		"with a password":   func(o *holdall.OpenOptions) { o.Password = "x" },
		"as another format": func(o *holdall.OpenOptions) { o.Format = "zip" },
		"with a parameter":  func(o *holdall.OpenOptions) { o.Param = map[string]string{"charset": "cp932"} },
		"with another key":  func(o *holdall.OpenOptions) { o.Trusted = []string{newSecret(t).Public().String()} },
		"with no key":       func(o *holdall.OpenOptions) { o.Trusted = []string{"none"} },
		"a folder": func(o *holdall.OpenOptions) {
			o.Store, o.Format = nil, "dir"
		},
	} {
		a, err := open(change)
		if u, ok := errors.AsType[*holdall.UntrustedError](err); !ok || strings.Contains(u.Error(), "\n") {
			t.Errorf("%s: %v, %v", what, a, err)
		}
	}
	a, err := open(func(*holdall.OpenOptions) {})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for range a.Regions(t.Context()) {
		if err == nil {
			break
		}
	}
	e, err := a.Lookup(t.Context(), "big")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Source().Salvage(t.Context(), e, io.Discard); err == nil {
		t.Error("salvaged")
	}
	if _, _, ok, err := a.Source().File(context.Background(), e, true); ok || err != nil {
		t.Error("a file of the disk", err)
	}
	if _, ok := a.Source().Section(t.Context(), e); ok {
		t.Error("a section")
	}
	// An index of the same archive that is damaged while it is used.
	b := slices.Clone(st.Get("x.holdall"))
	for i := range len(b) / 2 {
		b[i+16] ^= 0x55
	}
	st.Put("x.holdall", b)
	damaged, err := open(func(*holdall.OpenOptions) {})
	if err != nil {
		return
	}
	defer damaged.Close()
	for e, err := range damaged.Entries(t.Context()) {
		if _, ok := errors.AsType[*holdall.UntrustedError](err); !ok {
			t.Errorf("%s, %v", e.Name, err)
		}
	}
}

// TestWhatReadsWithoutSignaturesIsRefused has functions that would not compare all that they read.
func TestWhatReadsWithoutSignaturesIsRefused(t *testing.T) {
	secret := newSecret(t)
	st := packedAs(t, "tar", nil, sample)
	signed(t, st, secret, true)
	o := holdall.OpenOptions{Store: st, Trusted: []string{secret.Public().String()}}
	_, repair := holdall.Repair(t.Context(), "x", holdall.RepairOptions{OpenOptions: o})
	_, amend := holdall.Amend(t.Context(), "x", o)
	_, sync := holdall.Sync(t.Context(), "x", nil, filepath.Join(t.TempDir(), "y"), holdall.SyncOptions{OpenOptions: o})
	for what, err := range map[string]error{"repair": repair, "amend": amend, "sync": sync} {
		if _, ok := errors.AsType[*holdall.UntrustedError](err); !ok {
			t.Errorf("%s: %v", what, err)
		}
	}
}
