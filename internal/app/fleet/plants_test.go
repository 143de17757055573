package fleet

import (
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// planted are faults that the histories find which always run.
var planted = []testkit.Plant{
	{"no commit says that originals are leaving", "retiring.go", "fates(marks, rows.Leaving)", "fates(marks, rows.Stays)"},
	{"the marker is not of the commit that says so", "retiring.go", "err = t.j.raise(ctx, t.f.Book, 0)", "err = nil"},
	{"a late job of an old listing wins", "chunk.go", "listedAt(k.Listing, ", "listedAt(0, "},
	{"an original that one listing did not find is gone", "compact.go", "is = passed >= cmp.Or(o.GoneAfter, goneAfter)", "is = passed >= 0"},
	{"retired originals are missing", "plan.go", "was.was.Original != catalog.OriginalStays || ", ""},
	{"an original that no listing found is missing", "plan.go", "if pl.seen.of(was.Path) > was.seq {", "if true {"},
	{"archives are removed before the grace time", "compact.go", "now.Sub(at) < grace", "now.Sub(at) < 0"},
	{"the marker is not written before archives are removed", "compact.go", "j.raise(ctx, f.Book, len(j.origins))", "error(nil)"},
	{"a rewrite forgets the versions of files", "rewrite.go", "\t\t\tv.add(l)\n", "\t\t\tl.Seq = 0\n\t\t\tv.add(l)\n"},
}

// rare are faults that 10,000 histories find.
var rare = []testkit.Plant{
	{"headers are not compared before a retirement", "proving.go", "keeps && !maps.Equal(was, headers) {", "keeps && !maps.Equal(was, was) {"},
	{"originals are deleted without the condition", "retiring.go", "remove := storekit.RemoveIf", "remove := func(ctx context.Context, st store.Store, i store.Info) error { return storekit.Remove(ctx, st, i.Name) }"},
	{"an archive that is another one proves originals", "proving.go", "x.leave(ArchiveChanged, err)", "_ = stale"},
	{"originals are deleted that were asked for long ago", "retiring.go", "mostAsked = time.Minute", "mostAsked = 1000 * time.Hour"},
	{"what is in the catalogue is packed again", "waiting.go", "if more && l.Path == m.Path && m.isPacked(l) {", "if false {"},
	{"an original that is being removed and is there stays", "plan.go", "is = rows.Lingers", "is = rows.Stays"},
	{"a list is a complete listing", "plan.go", "complete: j.origins[0].list == nil", "complete: true"},
	{"a listing that fails is complete", "listing.go", "err = fmt.Errorf(\"list %s: %w\", format.Escape(o.address), err)", "return"},
	{"what was deleted during a rewrite comes back", "rewrite.go", "const oldest = 1", "const oldest = 0"},
	{"markers are not compared", "marker.go", "if known[m], err = b.Knows(ctx, m); err != nil {", "if known[m] = true; err != nil {"},
	{"an archive of other versions is taken over", "chunk.go", "etag == \"\" || m.isPacked", "etag != \"\" || m.isPacked"},
	{"an archive of more objects is taken over", "chunk.go", "nothingElse(ctx, name, in, n)", "error(nil)"},
}

// Each fault that is planted is found.
func TestPlantedFaultsAreFound(t *testing.T) {
	testkit.Plants(t, "", planted, "-run", "TestHistories$")
	testkit.Plants(t, "10000", rare, "-run", "TestHistories$")
}
