package explore

import (
	"context"
	"fmt"
	"testing"

	"github.com/holdall/holdall/format"
)

// TestResultsAreBounded checks that what is beyond the limit of memory is
// counted, and not kept.
func TestResultsAreBounded(t *testing.T) {
	d := newSurveyed()
	const n = 20_000
	for i := range n {
		d.names.add(fmt.Sprintf("item-%05d", i))
		d.size.Add(1)
		d.time.Add(noTime)
		d.kind.Add(uint8(format.File))
	}
	v := &view{survey: survey{data: d}}
	h := &Handler{searching: make(chan struct{}, 1)}
	f := &folder{key: folderKey{v: v, dir: "."}, v: v, of: &finder{words: newPattern("item"), max: anySize, since: noTime, until: lastTime}, changed: make(chan struct{}), orders: map[folderOrder][]uint32{}}
	const kept = 500
	f.text = maxFound - kept*(rowCost+10)
	h.search(context.Background(), f)
	if !f.complete || f.err != nil || f.names.len() != kept || f.left != n-kept {
		t.Errorf("%d are kept, %d not, of %d: %v", f.names.len(), f.left, n, f.err)
	}
}
