package explore

import (
	"cmp"
	"path"
	"slices"

	"github.com/holdall/holdall/format"
)

const maxBoxes = 400

// boxJSON is something in a folder that takes room.
type boxJSON struct {
	Name  string `json:"n"`
	Dir   bool   `json:"dir,omitempty"`
	Bytes int64  `json:"s"`
	Files int64  `json:"c,omitempty"`
	Whole bool   `json:"whole,omitempty"`
}

// treemap answers what takes the room in a folder: folders below it and files in it, the
// largest ones, and how much the others are.
func (q *question) treemap() error {
	defer q.busy()()
	v := q.view()
	most := q.number("limit", 200, 1, maxBoxes)
	if q.err != nil {
		return q.err
	}
	d, err := q.h.surveyed(q.ctx(), v)
	if err != nil {
		return err
	}
	dir := q.path()
	key := dir
	if dir == "." {
		key = ""
	}
	f := q.h.folder(v, dir)
	if err := f.wait(q.ctx(), 0, true); err != nil {
		return err
	}
	var total, files int64
	var boxes []boxJSON
	if id, ok := d.ids[key]; ok {
		total, files = d.bytes[id], d.files[id]
		for k := 1; k < len(d.paths); k++ {
			if d.parent[k] == id && d.bytes[k] > 0 {
				boxes = append(boxes, boxJSON{Name: format.Escape(path.Base(d.paths[k])), Dir: true, Bytes: d.bytes[k], Files: d.files[k]})
			}
		}
	}
	larger := func(a, b boxJSON) int { return cmp.Compare(b.Bytes, a.Bytes) }
	slices.SortStableFunc(boxes, larger)
	boxes = boxes[:min(len(boxes), int(most))]
	f.mu.Lock()
	for n, row := range f.order(folderOrder{"size", true}) {
		if n < f.dirs {
			continue // folders come first
		}
		size := *f.size.At(int(row))
		if n >= f.dirs+int(most) || size == 0 {
			break
		}
		boxes = append(boxes, boxJSON{Name: format.Escape(f.names.at(int(row))), Bytes: size, Files: 1, Whole: *f.kind.At(int(row))&wholeBit != 0})
	}
	f.mu.Unlock()
	slices.SortStableFunc(boxes, larger)
	boxes = boxes[:min(len(boxes), int(most))]
	rest, restFiles := total, files
	for _, b := range boxes {
		rest -= b.Bytes
		restFiles -= b.Files
	}
	return q.json(map[string]any{"bytes": total, "files": files, "boxes": boxes, "rest": max(rest, 0), "rest_files": max(restFiles, 0)})
}
