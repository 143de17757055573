// Package formattest is the conformance suite of archive formats: a format is
// done when [Run] passes.
//
// It is for the tests of those who teach holdall a format; programs have no use
// for it.
package formattest

import (
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store/storetest"
)

// Run checks that f keeps the promises of package format: that what goes into
// an archive comes out of it, that every stored byte is accounted for, that
// damage and a failing store never end in a panic or in wrong content, and that
// what f cannot do it says in the contract's words.
//
// A field of f that is nil, or a bit of Keeps that is not set, leaves out what
// needs it. Where f cannot create, the archives to read must come from
// elsewhere: give each to [RunArchive] as well.
//
// Codecs that f's extents name must be registered where Run is called.
func Run(t *testing.T, f *format.Format) {
	s := &suite{f}
	for _, c := range []struct {
		name   string
		needed bool
		test   func(*testing.T, *suite)
	}{
		{"the format describes itself", true, testDescription},
		{"a missing archive is fs.ErrNotExist", true, testMissing},
		{"other files are refused as damaged or unsupported", true, testNotAnArchive},
		{"detect rejects other files", f.Detect != nil, testDetectForeign},
		{"written and read back", f.Create != nil, testRoundTrip},
		{"many shapes of source", f.Create != nil, testSources},
		{"kinds and metadata", f.Create != nil, testKinds},
		{"strange names are kept or refused by name", f.Create != nil, testStrangeNames},
		{"a repeated name is refused or replaces the first", f.Create != nil, testSameNameTwice},
		{"the same entries give the same bytes", f.Create != nil, testSameBytes},
		{"a manifest does not change what is read", f.Create != nil, testManifest},
		{"digests", f.Create != nil && f.Keeps&format.KeepsDigests != 0, testDigests},
		{"failed entries leave no trace", f.Create != nil, testFailedEntries},
		{"no objects before commit or after abort", f.Create != nil, testCommitAbort},
		{"full archives", f.Create != nil && f.Chunked, testFull},
		{"scratch is closed", f.Create != nil, testScratch},
		{"failing writes surface", f.Create != nil, testWriteFaults},
		{"cancelled context surfaces", f.Create != nil, testCancelledWrite},
		{"parts are an archive only after the merge", f.Parts != nil, testParts},
		{"failing merges surface", f.Parts != nil, testMergeFaults},
		{"written archives", f.Create != nil, testWrittenArchives},
	} {
		if c.needed {
			t.Run(c.name, func(t *testing.T) { c.test(t, s) })
		}
	}
}

// RunArchive checks that f reads the archive called name, made of the given
// objects, as package format promises. It knows nothing of what should be in
// it: that is for a test of f's own.
func RunArchive(t *testing.T, f *format.Format, objects map[string][]byte, name string) {
	s := &suite{f}
	st := &storetest.Mem{}
	for n, b := range objects {
		st.Put(n, b)
	}
	a := &archive{suite: s, st: st, name: name}
	for _, c := range []struct {
		name   string
		needed bool
		test   func(*testing.T, *archive)
	}{
		{"detect recognizes it", f.Detect != nil, testDetectOwn},
		{"lookup and readdir agree with entries", true, testNamesAgree},
		{"one pass gives the same", true, testOnce},
		{"extents of a range cover it", true, testRanges},
		{"every byte is accounted for", true, testEveryByte},
		{"reading again gives the same", true, testDeterministic},
		{"views open", len(f.Views) > 0, testViews},
		{"iterators stop early", true, testEarlyStop},
		{"parallel use", true, testParallel},
		{"limits are kept", true, testLimits},
		{"verify finds no fault", f.Verify != nil, testVerifyClean},
		{"failing reads surface", true, testReadFaults},
		{"cancelled context surfaces", true, testCancelledRead},
		{"truncations are survived", true, testTruncations},
		{"flipped bits are survived", true, testFlippedBits},
	} {
		if c.needed {
			t.Run(c.name, func(t *testing.T) { c.test(t, a) })
		}
	}
}

// A suite is the format under test.
type suite struct{ f *format.Format }

// An archive is one that is under test.
type archive struct {
	*suite
	st   *storetest.Mem
	name string
}

// archiveName is what the archives of the suite are called.
func (s *suite) archiveName() string {
	if len(s.f.Extensions) > 0 {
		return "x" + s.f.Extensions[0]
	}
	return "x"
}

// testWrittenArchives runs the reading half of the suite on archives of f's
// own: an empty one, one of one empty file, and a small one of all that f keeps.
func testWrittenArchives(t *testing.T, s *suite) {
	name := s.archiveName()
	for _, c := range []struct {
		name    string
		samples []sample
	}{
		{"of nothing", nil},
		{"of one empty file", []sample{file("empty", nil)}},
		{"of a few", s.few()},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := &storetest.Mem{}
			if _, err := s.write(t.Context(), st, name, format.CreateOptions{}, c.samples); err != nil {
				t.Fatal(err)
			}
			RunArchive(t, s.f, objects(t, st), name)
		})
	}
}
