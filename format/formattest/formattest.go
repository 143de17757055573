// Package formattest is the conformance suite of archive formats. A format is complete when [Run]
// passes. It is only for the tests of formats:
//
//	func TestFormat(t *testing.T) { formattest.Run(t, Format) }
package formattest

import (
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store/storetest"
)

// Run checks that f fulfils the contract of package format. What is written to an archive must be
// read from it. Every stored byte must be accounted for. Damage and failing stores must not cause
// a panic or wrong content. What f cannot do must be reported with the contract's errors.
//
// Tests that need a field of f that is nil, or a bit of Keeps that is not set, are skipped. What
// Format.Refuses refuses is not written; it must accept files of up to 5,000 bytes whose names are a
// few lower-case letters and digits. Anything else must come back as it was. If f cannot create
// archives, also call [RunArchive] with archives from elsewhere.
//
// Codecs that f's extents name must be registered before Run is called.
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

// RunArchive checks that f reads the archive called name, which consists of the given objects, as
// package format requires. It does not check that the archive contains the right entries; that
// needs a test of its own.
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

// suite is the format under test.
type suite struct{ f *format.Format }

// archive is an archive under test.
type archive struct {
	*suite
	st   *storetest.Mem
	name string
}

// archiveName returns the name of the archives of the suite.
func (s *suite) archiveName() string {
	if len(s.f.Extensions) > 0 {
		return "x" + s.f.Extensions[0]
	}
	return "x"
}

// testWrittenArchives runs the reading half of the suite on archives that f writes: an empty one,
// one with an empty file, and a small one with everything that f keeps.
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
