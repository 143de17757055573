//go:build unix

package oak_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/oak"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/oaktest"
	"github.com/holdall/holdall/internal/write/pack"
)

// someNames are names of properties that Vault.java sets.
var someNames = strings.Split("aP b cP ünïcodeP 1stP x_yP a.bP pageP 😀 faceP my:thingP sling:stuffP jcr:contentP percent%41P q?<>\"&'P .hiddenP 中文P jcr:title x", " ")

// definitionsOf are lines of an export with definitions of indexes, by path. Each is to be built.
func definitionsOf(t *testing.T) map[string]string {
	type property struct {
		Type     string   `json:"type"`
		Multiple bool     `json:"multiple,omitempty"`
		Value    string   `json:"value,omitempty"`
		Values   []string `json:"values,omitempty"`
	}
	one := func(kind, v string) property { return property{Type: kind, Value: v} }
	several := func(kind string, v ...string) property { return property{Type: kind, Multiple: true, Values: v} }
	all := map[string]string{}
	for path, more := range map[string]map[string]property{
		"/oak:index/many":            {},
		"/oak:index/number":          {"propertyNames": several("Name", "i"), "unique": one("Boolean", "true")},
		"/oak:index/titles":          {"propertyNames": several("Name", "jcr:title"), "declaringNodeTypes": several("Name", "mix:title")},
		"/oak:index/folders":         {"declaringNodeTypes": several("Name", "sling:Folder", "my:Loose")},
		"/oak:index/ofNoType":        {"declaringNodeTypes": several("Name", "nt:base")},
		"/oak:index/included":        {"valueIncludedPrefixes": several("String", "p", "{", "")},
		"/oak:index/someValues":      {"valueIncludedPrefixes": several("String", "pl", "[")},
		"/oak:index/excluded":        {"valueExcludedPrefixes": several("String", "plain", "[abc", "1", "true")},
		"/oak:index/paths":           {"includedPaths": several("String", "/content/site", "/content/wide"), "excludedPaths": several("String", "/content/site/page", "/content/site/a")},
		"/oak:index/pattern":         {"valuePattern": one("String", "p.*")},
		"/content/oak:index/content": {},
	} {
		has := map[string]property{
			"jcr:primaryType": one("Name", "oak:QueryIndexDefinition"), "type": one("String", "property"), "reindex": one("Boolean", "true"), "propertyNames": several("Name", someNames...),
		}
		for name, p := range more {
			has[name] = p
		}
		line, err := json.Marshal(map[string]any{"path": path, "properties": has})
		if err != nil {
			t.Fatal(err)
		}
		all[path] = string(line) + "\n"
	}
	return all
}

func checkIndexes(t *testing.T, dir string) (all map[string]*oak.CheckedIndex, found []string) {
	t.Helper()
	all = map[string]*oak.CheckedIndex{}
	withStore(t, dir, func(s *oak.Store) {
		tree, err := s.Tree(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for x, err := range tree.CheckIndexes(t.Context(), "/", oak.Datastore{}) {
			if err != nil {
				t.Fatal(err)
			}
			all[x.Path] = x
			for _, f := range x.Findings {
				found = append(found, fmt.Sprintf("%s: %s %s %s", x.Path, f.Kind, f.Path, f.Key))
			}
		}
	})
	slices.Sort(found)
	return all, found
}

// Indexes that the reference builds and updates are sound. What is changed behind their back is
// found, and nothing else. HOLDALL_LONG is how many repositories.
func TestIndexesOfTheReference(t *testing.T) {
	testkit.Needs(t, oaktest.Var)
	for range testkit.Rounds(t, 1) {
		seed := rand.Int64N(1 << 40)
		t.Run(strconv.FormatInt(seed, 10), func(t *testing.T) {
			dir := t.TempDir()
			store := filepath.Join(dir, "segmentstore")
			oaktest.Well(t, "vault-make", dir, strconv.FormatInt(seed, 10))
			if _, found := checkIndexes(t, store); len(found) > 0 {
				t.Errorf("as it was made: %q", found)
			}
			paths := definitionsOf(t)
			paths["/content/oak:index"] = `{"path":"/content/oak:index","properties":{"jcr:primaryType":{"type":"Name","value":"nt:unstructured"}}}` + "\n"
			for _, path := range slices.Sorted(maps.Keys(paths)) {
				withStore(t, store, func(s *oak.Store) {
					if _, err := s.Replace(t.Context(), path, oak.Donor{Export: strings.NewReader(paths[path]), Scratch: pack.NewScratch}, oak.ReplaceOptions{}); err != nil {
						t.Fatal(path, err)
					}
				})
			}
			all, found := checkIndexes(t, store)
			var want []string
			for _, path := range slices.Sorted(maps.Keys(paths)) {
				kind := "oak%3AQueryIndexDefinition"
				if path == "/content/oak:index" {
					kind = "nt%3Aunstructured"
				}
				want = append(want, "/oak:index/nodetype: missing "+path+" "+kind)
			}
			if x := all["/oak:index/many"]; !slices.Equal(found, want) || x == nil || x.State != "readable" || !x.Reindex {
				t.Fatalf("with definitions: %+v, %q", x, found)
			}
			for _, path := range content {
				withStore(t, store, func(s *oak.Store) {
					if _, err := s.Remove(t.Context(), path, oak.RemoveOptions{}); err != nil {
						t.Fatal(err)
					}
				})
			}
			for _, name := range []string{"nodetype", "uuid", "reference"} {
				withStore(t, store, func(s *oak.Store) {
					if _, err := s.Set(t.Context(), "/oak:index/"+name, "reindex", []string{"true"}, oak.SetOptions{Type: "Boolean"}); err != nil {
						t.Fatal(err)
					}
				})
			}
			// Other content builds the indexes, and what replaces a part of it updates them.
			for i, paths := range [][]string{content, {"/content/wide"}} {
				other := t.TempDir()
				oaktest.Well(t, "vault-make", other, strconv.FormatInt(seed+int64(i)+1, 10))
				oaktest.Well(t, "vault-install", dir, packageOf(t, filepath.Join(other, "segmentstore"), paths...))
			}
			all, found = checkIndexes(t, store)
			if len(found) > 0 {
				t.Errorf("%q", found)
			}
			for path, x := range all {
				if x.State != "sound" && path != "/oak:index/counter" && path != "/oak:index/pattern" || x.Reindex {
					t.Errorf("%+v", x)
				}
				t.Logf("%s: %d entries", path, x.Entries)
			}

			wide := ""
			withStore(t, store, func(s *oak.Store) {
				tree, err := s.Tree(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				w, err := oak.ParseWhere("i=7")
				if err != nil {
					t.Fatal(err)
				}
				for f, err := range tree.Find(t.Context(), "/content/wide", oak.FindOptions{Where: []oak.Where{w}}) {
					if err != nil {
						t.Fatal(err)
					}
					wide = f.Path
				}
				if _, err := s.Set(t.Context(), wide, "i", []string{"1007"}, oak.SetOptions{}); err != nil {
					t.Fatal(err)
				}
			})
			_, found = checkIndexes(t, store)
			if want := []string{"/oak:index/number: missing " + wide + " 1007", "/oak:index/number: stale " + wide + " 7"}; !slices.Equal(found, want) {
				t.Errorf("a property was changed: %q, want %q", found, want)
			}
			withStore(t, store, func(s *oak.Store) {
				if _, err := s.Remove(t.Context(), wide, oak.RemoveOptions{}); err != nil {
					t.Fatal(err)
				}
			})
			_, found = checkIndexes(t, store)
			if want := []string{"/oak:index/nodetype: stale " + wide + " nt%3Aunstructured", "/oak:index/number: stale " + wide + " 7"}; !slices.Equal(found, want) {
				t.Errorf("a node was removed: %q, want %q", found, want)
			}
		})
	}
}
