//go:build unix

package oak_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/format/zip"
	"github.com/holdall/holdall/internal/oak"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/oaktest"
	"github.com/holdall/holdall/internal/write/pack"
	_ "github.com/holdall/holdall/store/all"
	"github.com/holdall/holdall/store/local"
)

// content is what Vault.java makes below /content.
var content = []string{"/content/site", "/content/my:other", "/content/plain.dots", "/content/files", "/content/wide"}

// values are a property's values, after its type.
type values []string

// nodesBelow are all nodes of a store at and below paths, with their properties.
func nodesBelow(t *testing.T, dir string, paths ...string) map[string]map[string]values {
	t.Helper()
	all := map[string]map[string]values{}
	type value struct {
		Value, Base64, Text *string
		Blob                string
		Length              int64
		Follows             bool
	}
	textOf := func(v value) string {
		switch {
		case v.Value != nil:
			return *v.Value
		case v.Text != nil:
			return *v.Text
		case v.Base64 != nil:
			b, err := base64.StdEncoding.DecodeString(*v.Base64)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		return ""
	}
	array := func(list []json.RawMessage) (to values) {
		for _, raw := range list {
			var v value
			if raw[0] == '"' {
				v.Value = new(string)
				if err := json.Unmarshal(raw, v.Value); err != nil {
					t.Fatal(err)
				}
			} else if err := json.Unmarshal(raw, &v); err != nil {
				t.Fatal(err)
			}
			to = append(to, textOf(v))
		}
		return to
	}
	withStore(t, dir, func(s *oak.Store) {
		tree, err := s.Tree(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			var b bytes.Buffer
			if _, err := tree.Export(t.Context(), &b, path, oak.ExportOptions{Depth: -1}); err != nil {
				t.Fatal(err)
			}
			for in := bufio.NewReader(&b); ; {
				text, err := in.ReadBytes('\n')
				if err == io.EOF {
					break
				}
				var line struct {
					Path       string
					Properties map[string]json.RawMessage
					Property   string
					Index      int
					Values     []json.RawMessage
					value
				}
				if err := json.Unmarshal(text, &line); err != nil {
					t.Fatal(err)
				}
				if line.Property != "" {
					has := all[line.Path]
					if line.Values != nil {
						has[line.Property] = append(has[line.Property], array(line.Values)...)
					} else {
						has[line.Property][1+line.Index] += textOf(line.value)
					}
					continue
				}
				if all[line.Path] == nil {
					all[line.Path] = map[string]values{}
				}
				for name, raw := range line.Properties {
					var p struct {
						Type     string
						Multiple bool
						Values   []json.RawMessage
						value
					}
					if err := json.Unmarshal(raw, &p); err != nil {
						t.Fatal(err)
					}
					to := values{fmt.Sprint(p.Type, p.Multiple)}
					if p.Multiple {
						to = append(to, array(p.Values)...)
						if name == "jcr:mixinTypes" {
							slices.Sort(to[1:]) // as the reference does
						}
					} else {
						to = append(to, textOf(p.value))
					}
					all[line.Path][name] = to
				}
			}
		}
	})
	if len(all) == 0 {
		t.Fatal("there are no nodes")
	}
	return all
}

// sameNodes compares nodes, except for properties for which skip reports true: those that a
// package, or the program that installs it, sets differently.
func sameNodes(t *testing.T, got, want map[string]map[string]values, skip func(path, property string) bool) {
	t.Helper()
	wrong := 0
	report := func(msg string, args ...any) {
		t.Helper()
		if wrong++; wrong < 20 {
			t.Errorf(msg, args...)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(want)) {
		if got[path] == nil {
			report("%s: it is not there", path)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(want[path])) {
			if !skip(path, name) && !slices.Equal(got[path][name], want[path][name]) {
				report("%s property %s: got %.300q, want %.300q", path, name, got[path][name], want[path][name])
			}
		}
		for name := range got[path] {
			if want[path][name] == nil && !skip(path, name) {
				report("%s property %s: got %.300q, want none", path, name, got[path][name])
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(got)) {
		if want[path] == nil {
			report("%s: it is there, and should not be", path)
		}
	}
}

type packageFiles struct{ *holdall.Archive }

func (p packageFiles) Open(ctx context.Context, e format.Entry) (io.ReadCloser, error) {
	return p.OpenEntry(ctx, e)
}

func packageOf(t *testing.T, dir string, paths ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ours.zip")
	w, err := zip.Format.Create(t.Context(), local.New(filepath.Dir(file)), "ours.zip", format.CreateOptions{Scratch: pack.NewScratch})
	if err != nil {
		t.Fatal(err)
	}
	withStore(t, dir, func(s *oak.Store) {
		tree, err := s.Tree(t.Context(), nil)
		if err == nil {
			_, err = tree.Package(t.Context(), w, paths, oak.PackageOptions{Scratch: pack.NewScratch, Lost: func(path, what string) { t.Errorf("%s: lost: %s", path, what) }})
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	return file
}

func imported(t *testing.T, file string) string {
	t.Helper()
	in, err := holdall.Open(t.Context(), file, holdall.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	dir := t.TempDir()
	if _, err := oak.ImportPackage(t.Context(), packageFiles{in}, local.New(dir), "segmentstore", format.CreateOptions{Scratch: pack.NewScratch}); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "segmentstore")
}

// What we export can be installed with the reference, and comes back unchanged. What the
// reference packs is imported as the reference would import it. HOLDALL_LONG is how many packages.
func TestPackagesOfFileVault(t *testing.T) {
	testkit.Needs(t, oaktest.Var)
	for range testkit.Rounds(t, 1) {
		seed := rand.Int64()
		t.Run(strconv.FormatInt(seed, 10), func(t *testing.T) {
			dir := t.TempDir()
			oaktest.Well(t, "vault-make", dir, strconv.FormatInt(seed, 10))
			source := filepath.Join(dir, "segmentstore")
			want := nodesBelow(t, source, content...)
			ours := packageOf(t, source, content...)

			t.Run("our package, imported", func(t *testing.T) {
				got := imported(t, ours)
				sameNodes(t, nodesBelow(t, got, content...), want, func(string, string) bool { return false })
				oaktest.Well(t, "check", got)
			})
			t.Run("our package, installed by the reference", func(t *testing.T) {
				to := t.TempDir()
				oaktest.Well(t, "vault-install", to, ours)
				sameNodes(t, nodesBelow(t, filepath.Join(to, "segmentstore"), content...), want, func(path, name string) bool {
					// It sets anew what is protected, and when files came, and has no place for no binaries.
					return name == "jcr:created" || name == "jcr:createdBy" || name == "jcr:lastModified" && strings.HasSuffix(path, "/jcr:content") ||
						slices.Equal(want[path][name], values{"Binarytrue"})
				})
			})
			theirs := filepath.Join(t.TempDir(), "theirs.zip")
			oaktest.Well(t, append([]string{"vault-pack", dir, theirs}, content...)...)
			// The reference leaves out what is protected, and much of files: when they came,
			// their id, what goes without saying, and other binaries.
			made := func(path, name string) bool {
				switch name {
				case "jcr:created", "jcr:createdBy", "jcr:lastModified", "jcr:mimeType", "jcr:encoding", "jcr:lastModifiedBy", "more":
					return true
				}
				return name == "jcr:uuid" && strings.HasSuffix(path, "/jcr:content")
			}
			t.Run("the reference's package, imported", func(t *testing.T) {
				sameNodes(t, nodesBelow(t, imported(t, theirs), content...), want, made)
			})
			t.Run("the reference's package, put back", func(t *testing.T) {
				in, err := holdall.Open(t.Context(), theirs, holdall.OpenOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer in.Close()
				withStore(t, source, func(s *oak.Store) {
					for _, path := range content {
						if _, err := s.Remove(t.Context(), path, oak.RemoveOptions{}); err != nil {
							t.Fatal(err)
						}
						if _, err := s.Replace(t.Context(), path, oak.Donor{Package: packageFiles{in}, Scratch: pack.NewScratch}, oak.ReplaceOptions{}); err != nil {
							t.Fatal(err)
						}
					}
				})
				sameNodes(t, nodesBelow(t, source, content...), want, made)
				oaktest.Well(t, "check", source)
			})
		})
	}
}
