package explore

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
)

const (
	maxBoxes = 4000 // of a treemap
	maxDepth = 64
)

// A box is something that takes space, with its contents that take space.
type box struct {
	Name   string `json:"n"`
	Dir    bool   `json:"dir,omitempty"`
	Bytes  int64  `json:"s"`
	Stored *int64 `json:"z,omitempty"` // nil if it is not known
	Files  int64  `json:"c,omitempty"`
	Holds  kind   `json:"h,omitempty"` // the kind of most of it
	Whole  bool   `json:"whole,omitempty"`
	healthJSON

	Boxes []*box `json:"boxes,omitempty"` // the largest first
	// Rest stands for the contents that are too small for boxes of their own.
	Rest *box `json:"rest,omitempty"`

	amount int64
	sum    tally
	depth  int
}

// treemap responds with what takes space in a folder and its subfolders. It
// includes everything above a given share of the total, measured by size, by
// stored size, or by the number of files.
func (q *question) treemap() error {
	defer q.busy()()
	v := q.view()
	most := q.number("limit", 1200, 1, maxBoxes)
	by := q.word("by", "size", "stored", "count")
	if q.err != nil {
		return q.err
	}
	sized := by == "stored" && v.Sizes != nil && v.isNode()
	if sized { // it may take long, so the response has its progress
		q.h.start(v, &v.sizes, q.h.makeSizes)
		v.sizes.wait(q.ctx(), time.Second)
		if j := v.sizes.json(); j.State == "running" {
			return q.json(map[string]any{"survey": j})
		}
	}
	d, err := (*surveyed)(nil), error(nil)
	if sized {
		d, err = q.h.await(q.ctx(), v, &v.sizes, q.h.makeSizes)
	} else {
		d, err = q.h.surveyed(q.ctx(), v)
	}
	if err != nil {
		return err
	}
	if by == "stored" && !d.knowsStored() {
		return bad("stored sizes are unknown in this view")
	}
	dir := q.path()
	if dir == "." {
		dir = ""
	}
	top := &box{Dir: true}
	totals, names := map[string]int64{}, kindNames
	if d.sized {
		names = sizeNames
	}
	if id, ok := d.ids[dir]; ok {
		top = d.boxes(id, dir, by, most, q.h.health(v))
		for k, n := range d.sums[id].holds {
			if n > 0 {
				totals[names[k]] = n
			}
		}
	}
	return q.json(map[string]any{"box": top, "holds": totals, "kinds": names, "stored": d.knowsStored() || v.Sizes != nil && v.isNode(), "nodes": d.sized, "lost": d.sized && d.count.Unreadable > 0})
}

func (t *tally) amountBy(by string) int64 {
	switch by {
	case "stored":
		return t.stored
	case "count":
		return t.files
	}
	return t.bytes
}

// boxes returns the folder with number id as boxes. A folder's number is
// larger than its parent's, and a file's name is read only if the file is
// large enough. So two passes through the columns suffice.
func (d *surveyed) boxes(id uint32, dir, by string, most int64, health func(string) healthJSON) *box {
	known := d.knowsStored()
	make := func(name string, isDir bool, t tally, h healthJSON) *box {
		b := &box{Name: format.Escape(name), Dir: isDir, Bytes: t.bytes, Files: t.files, Holds: t.most(), healthJSON: h, amount: t.amountBy(by), sum: t}
		if known {
			b.Stored = &t.stored
		}
		return b
	}
	top := make(path.Base(dir), true, d.sums[id], health(dir))
	least := max(1, top.amount/most)
	list := map[uint32]*box{id: top}
	n := int64(0)
	for k := int(id) + 1; k < len(d.paths) && n < most; k++ {
		up := list[d.parent[k]]
		if up == nil || up.depth >= maxDepth || d.sums[k].amountBy(by) < least {
			continue
		}
		b := make(path.Base(d.paths[k]), true, d.sums[k], health(d.paths[k]))
		b.depth = up.depth + 1
		list[uint32(k)] = b
		up.Boxes = append(up.Boxes, b)
		n++
	}
	column := &d.size
	if by == "stored" {
		column = &d.stored
	}
	for i := 0; i < d.names.len() && n < most; i++ {
		if by == "count" && least > 1 {
			break // a file counts as one, which is less
		}
		if by != "count" && *column.At(i) < least || !format.Kind(*d.kind.At(i)&kindMask).HasContent() {
			continue
		}
		name := d.names.at(i)
		up := list[d.folderOf(name)]
		if up == nil {
			continue
		}
		t := tally{bytes: *d.size.At(i), files: 1}
		if known {
			t.stored = *d.stored.At(i)
		}
		t.holds[kindOf(name)] = t.bytes
		shown := path.Base(name)
		whole := naming.Fault(name) != ""
		if whole {
			shown = name
		}
		b := make(shown, false, t, health(name))
		b.Whole = whole
		up.Boxes = append(up.Boxes, b)
		n++
	}
	for _, b := range list {
		slices.SortStableFunc(b.Boxes, func(x, y *box) int { return cmp.Or(cmp.Compare(y.amount, x.amount), strings.Compare(x.Name, y.Name)) })
		rest := b.sum
		for _, x := range b.Boxes {
			rest.less(&x.sum)
		}
		if rest.amountBy(by) > 0 {
			b.Rest = make("", false, rest, healthJSON{})
		}
	}
	return top
}
