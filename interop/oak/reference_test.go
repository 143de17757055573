//go:build unix

// Package oak_test lets the reference implementation of Apache Oak's segment store
// read what we write, and write what we read.
//
// It is a test only; nothing can be imported from here. It runs where
// HOLDALL_OAK_CHECK names the program that ../install oak makes of the sources in
// java/; ./check does both.
package oak_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/oaktest"
)

const fixtures = "../../internal/oak/testdata"

func TestMain(m *testing.M) { testkit.Main(m, oaktest.End) }

// openWithReference lets the reference open a store, which must not need recovery,
// check it, take a commit, and compact and clean it up, with all the content kept.
// The store itself stays as it is.
func openWithReference(t *testing.T, p oaktest.Place) {
	t.Helper()
	oaktest.Well(t, "check", p.Store)
	oaktest.Well(t, p.With("commit", p.Store)...)
	oaktest.Well(t, p.With("survive", p.Store)...)
}

// compareStores lets the reference find the newest revisions of two stores equal,
// with their checkpoints. They share the data store.
func compareStores(t *testing.T, a, b oaktest.Place) {
	t.Helper()
	oaktest.Well(t, a.With("equal", a.Store, b.Store)...)
}

// A fixture is a store of the format's testdata, unpacked for one test.
type fixture struct {
	oaktest.Place
	expect string // the file that tells what the reference made of it
}

// unpack unpacks a fixture into a folder of the test.
func unpack(t *testing.T, name string) fixture {
	t.Helper()
	testkit.Needs(t, oaktest.Var)
	f := fixture{Place: oaktest.In(testkit.Unpacked(t, filepath.Join(fixtures, name+".tar.gz")))}
	var err error
	if f.expect, err = filepath.Abs(filepath.Join(fixtures, name+".expect.json")); err != nil {
		t.Fatal(err)
	}
	if !oaktest.Exists(f.expect) {
		f.expect += ".gz"
	}
	return f
}

// expected reads into v what is known of a fixture.
func (f fixture) expected(t *testing.T, v any) {
	t.Helper()
	testkit.JSON(t, strings.TrimSuffix(f.expect, ".gz"), v)
}

// names are those of all fixtures.
func names(t *testing.T) []string { return testkit.Names(t, fixtures, ".tar.gz", 24) }
