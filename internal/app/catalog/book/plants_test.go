package book

import (
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// planted are faults, as changes of one place in a file.
var planted = []testkit.Plant{
	{"a commit replaces one that is there", "book.go", "b.put(ctx, commitName(c.Number), o, true)", "b.put(ctx, commitName(c.Number), o, false)"},
	{"what another has committed counts as ours", "book.go", "is.Attempt == c.Attempt {", "is.Attempt != \"\" {"},
	{"work that began before the floor is committed", "book.go", "from < s.Floor {", "from < 0 {"},
	{"commits after the head are not read", "book.go", "	if err := b.follow(ctx); err != nil {\n		return nil, err\n	}\n	if o.Write {", "	if o.Write {"},
	{"a commit of another catalogue is taken", "state.go", "if s.Number > 0 && (c.Catalog != s.Catalog || c.Number != s.next() || c.Before != s.Hash) {", "if s.Number > 0 && c.Number != s.next() {"},
	{"what another has merged is merged again", "merge.go", "return nil, nil // another has merged it", "continue"},
	{"gc removes runs that readers use", "keep.go", "n >= floor || used[name]", "n >= floor"},
	{"a killed writer's notes are not written later", "book.go", "if err := b.noteLast(ctx, s); err != nil {", "if err := error(nil); err != nil {"},
	{"an archive that is dropped keeps its files", "state.go", "	n.Dropped = append(n.Dropped, slices.Sorted(maps.Keys(drop))...)\n", "	_ = maps.Keys(drop)\n"},
	{"a state of another catalogue is taken", "book.go", "c.hash != s.Hash || c.Catalog != s.Catalog", "c.Catalog == \"\""},
	{"a gap is not noticed", "book.go", "if ok && n != s.next() {", "if false {"},
	{"a dropped archive is forgotten while runs have it", "merge.go", "if len(some) == len(s.Runs) {", "if true {"},
	{"merged runs lose deletions", "merge.go", "if g.whole && r.Seq < g.s.Floor && (len(files) == 0 || oldest >= r.Seq) && !source {", "if true || oldest > 0 {"},
	{"merged runs lose fates", "merge.go", "if fates[r.Of] || g.whole && !files[r.Of] {", "if true {"},
	{"an older version counts as newer", "../rows/row.go", "compareCommits(b.Seq, r.Seq)", "compareCommits(r.Seq, b.Seq)"},
	{"gc removes runs that may be committed", "keep.go", "n >= floor || used[name]", "n < 0 || used[name]"},
	{"moves do not count for what was written before", "state.go", "if m.Commit > base {", "if false {"},
	{"notes of what was deleted lack names", "beside.go", "scan.AppendText(deleted, x.Name)", "scan.AppendText(deleted, \"\")"},
	{"notes lack versions", "beside.go", "case x.What != rows.Put || x.Archive.Commit", "case x.What >= 0 || x.Archive.Commit"},
	{"the order of notes is that of names", "beside.go", "return a.Compare(b)\n", "return strings.Compare(a.Archive, b.Archive)\n"},
	{"a catalogue that was put back is written to", "beside.go", "if r.Commit <= last && r.Hash == hash {", "if r.Hash == hash || r.Hash != \"\" {"},
	{"lists have what is deleted", "query.go", "visible, v.done, v.deleted = !v.done, true, true", "v.deleted = true"},
}

// Each fault that is planted is found by what runs always. Only HOLDALL_LONG tries them all.
func TestPlantedFaultsAreFound(t *testing.T) {
	testkit.Plants(t, "", planted, "-skip", "Planted|TwoWriters")
}
