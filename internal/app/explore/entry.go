package explore

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/zarr"
)

type archiveJSON struct {
	Name    string     `json:"name"`
	Address string     `json:"address,omitempty"`
	Error   string     `json:"error,omitempty"`
	Format  string     `json:"format,omitempty"`
	Title   string     `json:"title,omitempty"`
	Views   []string   `json:"views,omitempty"`
	View    string     `json:"view,omitempty"`
	Usual   string     `json:"usual,omitempty"` // the view that /f/ serves
	Front   *frontJSON `json:"front,omitempty"` // where to begin, if that is not the list
	Stored  int64      `json:"stored"`
	Survey  surveyJSON `json:"survey"`
	Verify  verifyJSON `json:"verify"`
	Can     []string   `json:"can"` // "map", "verify", "arrays", "node", "history", "compare"

	Version string     `json:"version,omitempty"`
	Index   int64      `json:"index_bytes,omitempty"`
	Volumes int        `json:"volumes,omitempty"`
	Facts   []factJSON `json:"facts,omitempty"`
	Notes   []string   `json:"notes,omitempty"`
	ByIndex string     `json:"by_index,omitempty"`
	Doubt   string     `json:"doubt,omitempty"`  // the fault of the index as a whole
	Healed  int64      `json:"healed,omitempty"` // damaged blocks that parity repaired
	Parity  string     `json:"parity,omitempty"`
	Tables  []Table    `json:"tables,omitempty"`
	Made    []Table    `json:"made,omitempty"` // its composition: kinds of files, volumes
}

// A frontJSON is what users of the format want to see first, such as the
// subject of a recording or the description of a package.
type frontJSON struct {
	View string `json:"view,omitempty"` // if it is not the usual one
	Tab  string `json:"tab,omitempty"`
}

// front returns where to begin with an archive, or nil for its list.
func (v *view) front() *frontJSON {
	f := v.in.Format()
	switch {
	case v.in.Store() == nil:
	case v.Tables != nil:
		return &frontJSON{Tab: "about"}
	case slices.Contains(f.Views, metaView):
		return &frontJSON{Tab: "about"}
	case slices.Contains(f.Views, zarrView):
		j := &frontJSON{View: zarrView, Tab: "about"}
		if slices.Contains(f.Views, objectsView) {
			j.View = objectsView
		}
		if j.View == v.of.name {
			j.View = ""
		}
		return j
	}
	return nil
}

type factJSON struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

const (
	zarrView    = "zarr"
	objectsView = "objects" // of HDF5: groups, datasets and attributes
	metaView    = "meta"    // of packages
)

func (h *Handler) describe(ctx context.Context, v *view) archiveJSON {
	f := v.in.Format()
	j := archiveJSON{Name: v.Name, Format: f.Name, Title: f.Title, Views: f.Views, View: v.name, Usual: v.of.name,
		Survey: v.survey.json(), Verify: h.verification(v.Name).json(), Can: []string{}}
	if h.o.Near != nil && h.o.Near() {
		j.Address = format.Escape(v.Address)
	}
	if v.in.Store() == nil {
		j.Views = nil
	}
	if v.isAutopsy() {
		j.Views, j.Usual, j.Verify, j.Can = nil, "", (*verification)(nil).json(), []string{"map", "damage"}
		j.Stored, _ = v.in.StoredSize(ctx)
		return j
	}
	j.Front = v.front()
	j.Stored, _ = v.in.StoredSize(ctx)
	j.Healed, _, _ = v.in.Healing()
	if err := v.in.Doubt(); err != nil {
		j.Doubt = why(err)
	}
	if v.in.Store() != nil {
		if volumes, err := v.in.Volumes(ctx); err != nil || len(volumes) > 0 { // otherwise there is nothing to draw
			j.Can = append(j.Can, "map")
		}
		j.Can = append(j.Can, "verify")
	}
	if v.hasArrays() {
		j.Can = append(j.Can, "arrays")
	}
	if v.isNode() {
		j.Can = append(j.Can, "node")
		if v.History != nil {
			j.Can = append(j.Can, "history")
		}
		if v.Changes != nil && v.Revisions != nil {
			j.Can = append(j.Can, "compare")
		}
	}
	return j
}

const maxListed = 500

// archives responds with the list of archives. For archives that were not
// opened yet, it has only names: the page requests each of them when it shows
// it.
func (q *question) archives() error {
	all, err := q.h.set.List(q.ctx())
	if q.ctx().Err() == nil {
		q.h.cannotList(err)
	}
	if err != nil && len(all) == 0 {
		return err
	}
	list := []archiveJSON{}
	for _, x := range all[:min(len(all), maxListed)] {
		list = append(list, archiveJSON{Name: x.Name, Can: []string{}, Survey: surveyJSON{}, Verify: q.h.verification(x.Name).json()})
	}
	return q.json(map[string]any{"archives": list, "total": len(all)})
}

// cannotList logs an error from listing archives, unless it is the same as the
// last time.
func (h *Handler) cannotList(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if text != h.told && err != nil {
		h.log.Error("cannot be listed", "error", err)
	}
	h.told = text
}

// soon is how long a response waits for results that a small archive has
// quickly.
const soon = 50 * time.Millisecond

func (q *question) archive() error {
	v := q.view()
	full := q.word("about", "no", "yes")
	if q.err != nil {
		return q.err
	}
	q.h.start(v, &v.survey, q.h.makeSurvey)
	v.survey.wait(q.ctx(), soon)
	j := q.h.describe(q.ctx(), v)
	if full == "yes" {
		about, err := v.in.About(q.ctx())
		if err != nil {
			return err
		}
		j.Version, j.Index, j.Volumes = format.Escape(about.Version), about.IndexBytes, len(about.Volumes)
		for _, f := range about.Facts {
			j.Facts = append(j.Facts, factJSON{format.Escape(f[0]), format.Escape(f[1])})
		}
		for _, p := range about.Notes {
			j.Notes = append(j.Notes, format.Escape(p.Message))
		}
		j.ByIndex = format.Escape(v.in.Index().Used)
		if p := v.in.Protection(q.ctx()); p != nil {
			j.Parity = format.Escape(p.String())
		}
		if v.Tables != nil {
			if j.Tables, err = v.Tables(q.ctx()); err != nil {
				return err
			}
		}
		if t := v.survey.kinds(); len(t.Rows) > 1 && !v.hasArrays() && !v.isNode() { // their files are chunks or properties
			j.Made = append(j.Made, t)
		}
		if len(about.Volumes) > 1 {
			j.Made = append(j.Made, q.h.volumes(q.ctx(), v, about.Volumes))
		}
	}
	return q.json(j)
}

type extentJSON struct {
	Volume string `json:"volume"`
	Off    int64  `json:"off"`
	Len    int64  `json:"len"`
	Codec  string `json:"codec,omitempty"`
	Away   bool   `json:"external,omitempty"`
}

type entryJSON struct {
	Path    string            `json:"path"`
	Kind    string            `json:"kind"`
	Size    int64             `json:"size"`
	Time    *int64            `json:"t,omitempty"`
	Mode    string            `json:"mode,omitempty"`
	Owner   string            `json:"owner,omitempty"`
	Group   string            `json:"group,omitempty"`
	Link    string            `json:"link,omitempty"`
	Digest  string            `json:"digest,omitempty"`
	Attr    map[string]string `json:"attr,omitempty"`
	Fault   string            `json:"fault,omitempty"`
	Own     bool              `json:"own,omitempty"`
	Odd     bool              `json:"odd,omitempty"` // it has no URL
	Array   bool              `json:"array,omitempty"`
	Grouped bool              `json:"grouped,omitempty"` // a group of arrays that has attributes
	Table   bool              `json:"table,omitempty"`   // a group that is a table
	Units   bool              `json:"units,omitempty"`   // a table of spikes
	Series  bool              `json:"series,omitempty"`  // a group with data over time
	Extents []extentJSON      `json:"extents,omitempty"`
	More    bool              `json:"more_extents,omitempty"`
	// Proof is what the content is compared with before it is sent: checksums of
	// its "parts", one of the "whole", or nothing.
	Proof    string        `json:"proof,omitempty"`
	Problems []problemJSON `json:"problems,omitempty"` // of the last check
	healthJSON
}

const shownExtents = 32

func (q *question) found() (v *view, e holdall.Entry) {
	v = q.view()
	if name := q.path(); q.err == nil && name == "." {
		e = holdall.Entry{Name: ".", Kind: format.Dir}
	} else if q.err == nil {
		e, q.err = v.in.Lookup(q.ctx(), name)
	}
	return v, e
}

func (q *question) entry() error {
	v, e := q.found()
	if q.err != nil {
		return q.err
	}
	j := entryJSON{Path: format.Escape(e.Name), Kind: e.Kind.String(), Size: e.Size, Owner: format.Escape(e.Owner), Group: format.Escape(e.Group),
		Link: format.Escape(e.Link), Digest: e.Digest.String(), Own: e.Internal, Odd: e.Name != "." && !naming.ValidPath(e.Name),
		Problems: q.h.problemsOf(v, e.Name), healthJSON: q.h.health(v)(e.Name)}
	if e.Kind.HasContent() {
		switch parts, whole := v.in.Compares(q.ctx(), e); {
		case parts:
			j.Proof = "parts"
		case whole:
			j.Proof = "whole"
		}
	}
	if e.HasMode {
		j.Mode = e.FileMode().String()
	}
	if !e.ModTime.IsZero() {
		j.Time = new(e.ModTime.UnixMilli())
	}
	for k, value := range e.Attr {
		if j.Attr == nil {
			j.Attr = map[string]string{}
		}
		j.Attr[format.Escape(k)] = format.Escape(value)
	}
	if e.Fault != nil {
		j.Fault = format.Escape(e.Fault.Message)
	}
	if e.Kind.HasContent() && e.Fault == nil {
		for x, err := range v.in.Extents(q.ctx(), e) {
			if err != nil {
				break
			}
			if len(j.Extents) == shownExtents {
				j.More = true
				break
			}
			j.Extents = append(j.Extents, extentJSON{format.Escape(x.Object), x.Off, x.Len, x.Codec, x.External})
		}
	}
	if err := q.pictured(v, e, &j); err != nil {
		return err
	}
	return q.json(j)
}

// pictured sets whether an entry is an array, or a group of arrays, and of
// which kind.
func (q *question) pictured(v *view, e holdall.Entry, j *entryJSON) error {
	if e.Kind != format.Dir && (v.name == zarrView || e.Kind != format.File || strings.Contains(e.Name, "@")) {
		return nil
	}
	of, err := q.arraysOf(v)
	if of == nil {
		if errors.Is(err, store.ErrChanged) {
			return err
		}
		return nil // then it has no pictures
	}
	name := e.Name
	if name == "." {
		name = ""
	}
	if _, err = of.in.Lookup(q.ctx(), keyIn(e.Name, ".zarray")); err != nil {
		key := keyIn(e.Name, zarr.MetaName)
		_, parse, limit := zarr.MetaOf(key)
		var text []byte
		if text, err = of.in.Get(q.ctx(), key, limit); err == nil {
			_, err = parse(text)
		}
	}
	if j.Array = err == nil; j.Array || e.Kind != format.Dir {
		return nil
	}
	if g, err := groupAt(q.ctx(), of.in, name); err == nil && len(g.attrs) > 0 {
		j.Grouped, j.Table, j.Units, j.Series = true, g.isTable(), g.isUnits(q.ctx()), g.isSeries(q.ctx())
	}
	return nil
}

const maxContent = 1 << 20

// content responds with some bytes of an entry. It serves views and names that
// no address below /f/ can reach.
func (q *question) content() error {
	off := q.number("off", 0, 0, 1<<62)
	n := q.number("n", 64<<10, 0, maxContent)
	v, e := q.found()
	if q.err != nil {
		return q.err
	}
	if !e.Kind.HasContent() {
		return bad("a %s has no content", e.Kind)
	}
	if e.Fault != nil {
		return &format.CorruptError{Format: v.in.Format().Name, Problem: *e.Fault}
	}
	n = max(0, min(n, e.Size-off))
	b := make([]byte, n)
	k, err := v.in.ReadAt(q.ctx(), e, b, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	head := q.w.Header()
	head.Set("Content-Type", "application/octet-stream")
	head.Set("Content-Length", strconv.Itoa(k))
	head.Set("Content-Disposition", "attachment")
	_, _ = q.w.Write(b[:k]) // an error means that the client is gone
	return nil
}

func (q *question) node() error {
	v := q.view()
	if q.err != nil {
		return q.err
	}
	if !v.isNode() {
		return bad("this archive has no nodes")
	}
	w := &firstBytes{most: 4 << 20}
	err := v.Node(q.ctx(), w, q.path())
	if w.full {
		return bad("more than %d bytes of properties", w.most)
	}
	if err != nil {
		return err
	}
	return q.json(json.RawMessage(w.b))
}

func (q *question) history() error {
	defer q.busy()()
	v := q.view()
	most := q.number("last", 50, 1, 500)
	if q.err != nil {
		return q.err
	}
	if v.History == nil || !v.isNode() {
		return bad("this archive has no revisions")
	}
	return list(q, "steps", v.History(q.ctx(), q.path(), int(most)))
}

func (q *question) revisions() error {
	defer q.busy()()
	v := q.view()
	most := q.number("last", 100, 1, 1000)
	if q.err != nil {
		return q.err
	}
	if v.Revisions == nil || !v.isNode() {
		return bad("this archive has no revisions")
	}
	return list(q, "revisions", v.Revisions(q.ctx(), int(most)))
}

func list[T any](q *question, name string, seq iter.Seq2[T, error]) error {
	all := []T{}
	for x, err := range seq {
		if err != nil {
			return err
		}
		all = append(all, x)
	}
	return q.json(map[string]any{name: all})
}

// changes responds with the differences in a folder between two revisions. The
// page requests it for each folder that the user opens, so its cost depends on
// that folder only.
func (q *question) changes() error {
	defer q.busy()()
	v := q.view()
	skip, most := q.number("offset", 0, 0, 1<<40), q.number("limit", 200, 1, 1000)
	if q.err != nil {
		return q.err
	}
	if v.Changes == nil || !v.isNode() {
		return bad("this archive has no revisions")
	}
	list, n := []any{}, int64(0)
	for c, err := range v.Changes(q.ctx(), q.path(), q.q.Get("from"), q.q.Get("to")) {
		if errors.Is(err, fs.ErrInvalid) {
			return bad("from, to: expected revisions of this archive")
		}
		if err != nil {
			return err
		}
		if n++; n > skip+most {
			break
		}
		if n > skip {
			list = append(list, c)
		}
	}
	return q.json(map[string]any{"changes": list, "more": n > skip+most})
}
