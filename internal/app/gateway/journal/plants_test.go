package journal

import (
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// planted are faults, as changes of one place in a file.
var planted = []testkit.Plant{
	{"batches are acknowledged before they are synced", "journal.go", "	if err := s.f.Datasync(); err != nil {\n		return j.stop(err)\n	}\n	s.batches++", "	s.batches++"},
	{"a segment's name is not synced", "journal.go", "	if err == nil {\n		err = j.disk.Sync()\n	}\n	if err == nil {\n		s.f,", "	if err == nil {\n		s.f,"},
	{"a segment has its name before its header is synced", "journal.go", "	if err == nil {\n		err = f.Sync()\n	}\n	if cerr", "	if cerr"},
	{"a removal is not synced", "journal.go", "	if err := j.disk.Sync(); err != nil {\n		return j.stop(err)", "	if err := error(nil); err != nil {\n		return j.stop(err)"},
	{"what Open sees of removals is not synced", "journal.go", "if err := d.Sync(); err != nil { // a", "if err := error(nil); err != nil { // a"},
	{"the contents of the last batch are not compared", "segment.go", "if rest && x != nil {", "if false {"},
	{"writing goes on after a failed sync", "journal.go", "	if err := s.f.Datasync(); err != nil {\n		return j.stop(err)\n	}\n	s.batches++", "	if err := s.f.Datasync(); err != nil {\n		return err\n	}\n	s.batches++"},
	{"a full disk leaves a part of a batch", "segment.go", "if cut := s.cut(); cut != nil {", "if cut := error(nil); cut != nil {"},
	{"what is cut off is not synced", "segment.go", "		if err := s.f.Sync(); err != nil {\n			return err\n", "		if err := error(nil); err != nil {\n			return err\n"},
	{"reserved room is not synced", "segment.go", "	if err := s.f.Sync(); err != nil {\n		return s.j.stop(err)", "	if err := error(nil); err != nil {\n		return s.j.stop(err)"},
	{"a torn end is cut in spite of a later batch", "segment.go", "if err == nil && next != nil {", "if false {"},
	{"a torn end of any segment is cut", "segment.go", "	case !last || !growing:", "	case false:"},
	{"a torn end of a log that was closed is cut", "segment.go", "	case !last || !growing:", "	case !last:"},
	{"the last batch is not written again", "segment.go", "if last != nil {", "if false {"},
	{"the last batch is written again, but not synced before the size changes", "segment.go", "		if err := s.f.Datasync(); err != nil {\n			return err", "		if err := error(nil); err != nil {\n			return err"},
	{"a segment with reserved room counts as complete", "segment.go", "case rest && size == done ||", "case rest && size >= done ||"},
	{"the sequence goes back when all segments are removed", "segment.go", "case len(j.segments) == 1:", "case false:"},
	{"the sequence number of a header does not count", "../../../../format/caf/log.go", "if r.Next = r.Seq; r.Number < 0", "if r.Next = 0; r.Number < 0"},
	{"segments are removed in any order", "segment.go", "len(j.segments) == 0 || j.segments[0] != s:", "len(j.segments) == 0:"},
	{"an index in memory alone counts as sealed", "segment.go", "				_, err := s.Seal(ctx) // it may be in memory alone\n				return err", "				s.sealed.Store(size)\n				return nil"},
	{"an index of which a part was written counts as sealed", "segment.go", "if !whole {\n					return nil\n				}", "if !whole {\n					s.sealed.Store(size)\n				}"},
	{"sealing does not sync", "segment.go", "		err = s.f.Sync()\n	}\n	if err != nil {\n		return 0,", "		err = nil\n	}\n	if err != nil {\n		return 0,"},
	{"deleted files are in the index", "../../../../format/caf/log.go", "if r.odd&noStart == 0 {", "if r.odd&noStart == 0 || true {"},
	{"an older copy of a frame is a later batch", "../../../../format/caf/log.go", "x.Number >= r.Batch && x.seq >= r.Next", "true"},
	{"the zeros at the end are lacking", "segment.go", "[]int64{s.Size(), complete(s.Size())}", "[]int64{s.Size()}"},
}

// Each fault that is planted is found by what runs always. Only HOLDALL_LONG tries them all.
func TestPlantedFaultsAreFound(t *testing.T) {
	testkit.Plants(t, "", planted, "-skip", "Planted")
}
