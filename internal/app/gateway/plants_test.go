package gateway

import (
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// planted are faults that the histories find which always run.
var planted = []testkit.Plant{
	{"a change is answered before it is durable", "bucket.go", "	err := b.log.Append(records)\n", "	for _, c := range taken {\n		c.done <- nil\n	}\n	err := b.log.Append(records)\n"},
	{"a change is seen before it is durable", "bucket.go", "	err := b.log.Append(records)\n", "	for i := range records {\n		if live := b.over.Load().live; len(live) > 0 && !live[0].rolled {\n			records[i].Seq = 1 << 40\n			_ = b.apply(live[0], &records[i].LogRow)\n		}\n	}\n	err := b.log.Append(records)\n"},
	{"a layer goes before a commit has it", "seal.go", "		err := b.sealOne(ctx, l, nil)\n", "		b.sink(l)\n		err := b.sealOne(ctx, l, nil)\n"},
	{"a layer that goes is forgotten at once", "seal.go", "	linger = time.Minute", "	linger = -time.Minute"},
	{"a condition is not compared with earlier ones of the batch", "bucket.go", "b.may(c, before); err != nil && before != nil", "b.may(c, nil); err != nil && before != nil"},
	{"what is not durable refuses a change", "bucket.go", "err != nil && before != nil {", "err != nil && false {"},
	{"what is not committed refuses a change", "there.go", "err = errLate", "_ = errLate"},
	{"conditions do not count without a log", "there.go", "return b.meets(ctx, s, batch)", "return nil"},
	{"a change of headers is of an older version", "bucket.go", "c.of != 0 && c.of != seq", "false"},
	{"an older row of a batch wins", "layer.go", "!again || was.seq < r.seq", "!again || was.seq > r.seq"},
	{"what waits when a gateway stops is not answered", "bucket.go", "	defer close(b.halted)\n", ""},
	{"claims are not compared at the commit", "seal.go", "		err := b.owns(s)\n", "		err := error(nil)\n"},
	{"a gateway that leaves takes changes", "claim.go", "			b.stop(serve.ErrBusy)\n", "			_ = serve.ErrBusy\n"},
	{"deletions are not recorded", "seal.go", "Rows: l.deletions, If", "If"},
	{"a segment is removed before a commit has it", "seal.go", "	_, err = b.book.Do(ctx, step)\n", "	_ = l.seg.Remove()\n	_, err = b.book.Do(ctx, step)\n"},
	{"older segments lie over newer ones", "claim.go", "range slices.Backward(all)", "range all"},
	{"a large object of what was refused is left", "large.go", "if !c.unknown {", "if false {"},
	{"a large object that was replaced is left", "seal.go", "range dead {", "range dead[:0] {"},
	{"large objects have no headers", "../../../format/caf/writer.go", "len(e.Attr) != known &&", "len(e.Attr) < known &&"},
	{"what is given up stays", "house.go", "errors.Join(b.endUploads(ctx), b.giveUp(ctx))", "b.endUploads(ctx)"},
	{"a gateway without a log reads old commits", "gateway.go", "		return -1\n", "		return 0\n"},
	{"a merge forgets what was deleted of a source", "../catalog/book/merge.go", "&& !source {", "&& (!source || true) {"},
	{"what was deleted is looked up at the source", "../catalog/shelf/reader.go", "if !gone || r.bucket != \"\" {", "if true {"},
	{"what was deleted is listed from the source", "../catalog/shelf/reader.go", "			case x.where.Gone:\n				continue\n", ""},
	{"conditions compare what was deleted with the source", "bucket.go", " && !errors.Is(err, catalog.ErrDeleted) {", " {"},
	{"conditions do not know the source", "there.go", "tag, seq = tagOf(c.base.ETag, c.base.Digest), c.base.Seq", "continue"},
	{"what is adopted replaces what clients wrote", "adopt.go", "o.Content, u, l.Modified, l.Seq)", "o.Content, u, l.Modified, 0)"},
	{"what clients deleted is adopted", "adopt.go", "If: serve.Condition{Match: l.ETag}, ", ""},
}

// rare are faults that 5,000 histories find.
var rare = []testkit.Plant{
	{"what is elsewhere now is taken for missing", "../catalog/book/query.go", "b.archiveOf(ctx, over, s, l.Archive)", "b.ArchiveOf(ctx, l.Archive)"},
	{"a disk that has failed is tried for ever", "seal.go", "; is || errors.Is(err, journal.ErrStopped) {", "; is {"},
	{"an archive of what was refused is left", "seal.go", "refused && own {", "refused && false {"},
	{"who adds a part does not look whether its upload was removed", "parts.go", "errors.Join(err, b.mayAdd(ctx, key, id))", "err"},
	{"an upload is removed although a part is new", "house.go", "timeless || now.Sub(newest) < oldUpload", "now.IsZero()"},
	{"what the log has is given up", "house.go", "range l.names() {", "range l.names()[:0] {"},
	{"who finishes an upload does not look whether it was removed", "parts.go", "if err := b.mayAdd(ctx, key, id); err != nil {", "if false {"},
	{"an old log is laid over newer commits", "claim.go", "if c.Claim = claim; len(all) > 0 {", "if c.Claim = claim; false {"},
}

// Each fault that is planted is found.
func TestPlantedFaultsAreFound(t *testing.T) {
	testkit.Plants(t, "", planted, "-run", "TestHistories$")
	testkit.Plants(t, "5000", rare, "-run", "TestHistories$")
}
