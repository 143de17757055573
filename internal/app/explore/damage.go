package explore

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/bytemap"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/app/autopsy"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// lies yields where bytes of a volume lie on the map. That of a repaired archive is the map of the damaged
// one.
func (v *view) lies(volume string, off, n int64) iter.Seq[format.Region] {
	if v.name == autopsy.Repaired {
		return v.in.Origin(volume, off, n)
	}
	return func(yield func(format.Region) bool) { yield(format.Region{Object: volume, Off: off, Len: n}) }
}

// lay is lies for the content of entries. What the repair packs again lies where the damaged archive has it, if
// it opens.
func (v *view) lay(ctx context.Context, was *holdall.Archive) func(e holdall.Entry, x format.Extent) iter.Seq[format.Region] {
	return func(e holdall.Entry, x format.Extent) iter.Seq[format.Region] {
		return func(yield func(format.Region) bool) {
			known := false
			for r := range v.lies(x.Object, x.Off, x.Len) {
				if known = true; !yield(r) {
					return
				}
			}
			old, err := was.Lookup(ctx, e.Name)
			if known || err != nil || old.Size != e.Size {
				return
			}
			for x, err := range was.Extents(ctx, old) {
				if err != nil || !x.External && x.Len > 0 && !yield(format.Region{Object: x.Object, Off: x.Off, Len: x.Len}) {
					return
				}
			}
		}
	}
}

// addRest adds what no span covers, by what its bytes look like.
func (m *spanMap) addRest(ctx context.Context, bytes *holdall.Archive) error {
	if m.content.Len()+m.regions.Len() > maxSpans {
		return nil
	}
	m.content.sort()
	m.regions.sort()
	var rest []format.Region
	for s, err := range bytemap.Spans(ctx, bytes) {
		if err != nil {
			return err
		}
		off, n := m.place(s.Volume, s.Off, s.Len)
		var covered [][2]int64
		for _, list := range []*spans{&m.content, &m.regions} {
			for i := range list.within(off, off+n) {
				at := *list.off.At(i)
				covered = append(covered, [2]int64{at, at + list.length(i)})
			}
		}
		slices.SortFunc(covered, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
		add := func(from, to int64) {
			if from < to {
				label := s.Label
				if s.Use == bytemap.Content {
					label = autopsy.Look(label)
				}
				rest = append(rest, format.Region{Object: s.Volume, Off: s.Off + from - off, Len: to - from, Use: restUse(s.Use), Label: "not recovered: " + label})
			}
		}
		at := off
		for _, c := range covered {
			add(at, min(c[0], off+n))
			at = max(at, c[1])
		}
		add(at, off+n)
	}
	for _, r := range rest {
		m.addRegion(r)
	}
	return nil
}

func restUse(u bytemap.Use) format.Use {
	if u == bytemap.Content {
		return format.Unknown
	}
	return format.Use(u)
}

// happened says what a finding means.
var happened = map[format.Code]string{
	format.Truncated:     "The end of the archive is missing.",
	format.BadMagic:      "The archive does not begin as archives of its format do: its beginning is damaged or missing.",
	format.BadIndex:      "The list of the files in the archive is damaged or missing.",
	format.MissingIndex:  "The list of the files in the archive is missing. It is often at the end, so the archive may have been cut.",
	format.BadHeader:     "A header in the archive is damaged or missing.",
	format.BadChecksum:   "A part of the archive does not match its checksum.",
	format.BadData:       "A part of the archive cannot be decoded.",
	format.OutOfBounds:   "The archive refers to bytes that it does not have: a part of it is missing.",
	format.MissingVolume: "A file of the archive is missing.",
	format.Unsupported:   "The archive uses something that this version of holdall cannot read.",
	format.Limit:         "A part of the archive is larger than holdall accepts.",
}

type damageJSON struct {
	Happened string   `json:"happened"`          // what happened, in a sentence
	Cost     string   `json:"cost,omitempty"`    // what that means for the files
	Finding  string   `json:"finding,omitempty"` // the technical finding
	Code     string   `json:"code,omitempty"`
	Opens    bool     `json:"opens,omitempty"`
	Size     int64    `json:"size"`
	Volumes  []volume `json:"volumes"` // their names are entries of the view of bytes
	Command  string   `json:"command"`
	Looks    []looked `json:"looks"` // the most frequent ones first
}

// looked is how many bytes look alike.
type looked struct {
	Look  string `json:"look"`
	Bytes int64  `json:"bytes"`
}

// mostLooks is how many looks are listed.
const mostLooks = 8

// looks returns what the bytes of an archive look like, for one in the view of bytes.
func (v *view) looks(ctx context.Context) ([]looked, error) {
	sums := map[string]int64{}
	for s, err := range bytemap.Spans(ctx, v.in) {
		if err != nil {
			return nil, err
		}
		look := s.Label
		if s.Use == bytemap.Content {
			look = autopsy.Look(look)
		}
		sums[look] += s.Len
	}
	list := []looked{}
	for look, n := range sums {
		list = append(list, looked{look, n})
	}
	slices.SortFunc(list, func(a, b looked) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Look, b.Look)) })
	return list[:min(len(list), mostLooks)], nil
}

// damage says what is wrong with an archive, as far as the attempt to open it shows.
func (q *question) damage() error {
	defer q.busy()()
	left, j := q.left(autopsy.Bytes), damageJSON{Volumes: []volume{}}
	if q.err != nil {
		return q.err
	}
	about, err := left.in.About(q.ctx())
	if err != nil {
		return err
	}
	j.Command = q.h.command(left, "")
	if j.Looks, err = left.looks(q.ctx()); err != nil {
		return err
	}
	for _, name := range about.Volumes[:min(len(about.Volumes), maxVolumes)] {
		size, _ := left.in.VolumeSize(q.ctx(), name)
		shown := path.Base(name)
		if len(about.Volumes) > 1 {
			shown = strings.TrimPrefix(name, strings.TrimSuffix(left.in.Name(), "/")+"/")
		}
		j.Volumes = append(j.Volumes, volume{format.Escape(shown), j.Size, size})
		j.Size += size
	}
	a, err := q.h.set.Use(q.ctx(), left.Name, "")
	if err == nil {
		q.held = append(q.held, a.Release)
		j.Opens = true
		j.Happened, j.Cost = "The archive can be opened.", "Nothing is known to be wrong with it."
		if doubt := a.Doubt(); doubt != nil {
			j.Happened, j.Cost, j.Finding = "The archive can be opened, but a part of its structure is damaged.", "Some files may be missing or wrong.", q.outward(left, doubt)
		}
		if x := q.h.verification(left.Name).json(); x.Counts["error"] > 0 {
			j.Happened, j.Cost = fmt.Sprintf("The archive can be opened, but the last check found damage in it: errors: %d.", x.Counts["error"]), "What is damaged is marked in the list of files."
		}
		return q.json(j)
	}
	if q.ctx().Err() != nil {
		return err
	}
	j.Cost = "None of its files can be listed or read as it is."
	corrupt, isCorrupt := errors.AsType[*format.CorruptError](err)
	switch {
	case j.Size == 0:
		j.Happened, j.Cost = "The file is empty: it has 0 bytes.", "There is nothing in it to recover."
	case isCorrupt:
		j.Happened = cmp.Or(happened[corrupt.Code], "The structure of the archive is damaged.")
	case errors.Is(err, format.ErrUnknown):
		j.Happened = "This is not an archive in any format that holdall knows, or its beginning and its end are missing."
	default:
		j.Happened = "The archive cannot be opened."
	}
	if j.Finding = q.outward(left, err); isCorrupt {
		j.Code = cmp.Or(corrupt.Class, string(corrupt.Code))
	}
	return q.json(j)
}

// left opens what is left of the requested archive.
func (q *question) left(view string) (v *view) {
	if q.err == nil && !q.q.Has("a") {
		q.err = bad("a: expected the name of an archive")
	}
	if q.err == nil {
		v, q.err = q.use(q.q.Get("a"), view, nil)
	}
	return v
}

// outward is the text of an error without names of this machine.
func (q *question) outward(v *view, err error) string {
	if corrupt, ok := errors.AsType[*format.CorruptError](err); ok {
		text := corrupt.Message
		if corrupt.Off >= 0 {
			text += fmt.Sprintf(" (at byte %d)", corrupt.Off)
		}
		return v.outward(text)
	}
	for _, e := range unreadables {
		if errors.Is(err, e) {
			return v.outward(err.Error())
		}
	}
	q.h.log.Error("cannot be repaired", "archive", format.Escape(v.Name), "error", err)
	return "the server's log has the reason"
}

// outward replaces the place of the archive by its name.
func (v *view) outward(text string) string {
	return format.Escape(strings.NewReplacer(v.in.Name(), v.Name, path.Dir(v.in.Name())+"/", "").Replace(text))
}

// command is the command line that repairs an archive.
func (h *Handler) command(v *view, f string) string {
	at := v.Name
	if h.o.Near != nil && h.o.Near() {
		at = v.Address
	}
	options := ""
	if f != "" {
		options = "--format " + f + " "
	}
	return "holdall repair " + options + quoted(at) + " -o " + quoted(repairedName(v.Name))
}

// quoted is a word of a shell.
func quoted(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:,=@%") == "" && s[0] != '-' {
		return s
	}
	if strings.HasPrefix(s, "-") {
		s = "./" + s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// repairedName is the name of a repaired copy: that of "x.tar.gz" is "x-repaired.tar.gz".
func repairedName(name string) string {
	if i := strings.IndexByte(name[min(1, len(name)):], '.'); i >= 0 {
		return name[:i+1] + "-repaired" + name[i+1:]
	}
	return name + "-repaired"
}

// mostLines limits the lines of a plan that are sent.
const mostLines = 500

type repairJSON struct {
	Nothing string   `json:"nothing,omitempty"` // why nothing can be recovered
	Changes bool     `json:"changes"`
	Partial bool     `json:"partial"`
	Notes   []string `json:"notes"`
	Lost    []string `json:"lost"`
	Of      int      `json:"of_lost"`
	Before  *int64   `json:"before,omitempty"` // readable files
	After   *int64   `json:"after,omitempty"`
	Format  string   `json:"format,omitempty"`
	Size    int64    `json:"size"`
	Name    string   `json:"name,omitempty"` // of the copy
	Tar     bool     `json:"tar,omitempty"`  // the archive is a folder, and the copy a tar of it
	Saves   bool     `json:"saves"`          // the copy can be downloaded
	Command string   `json:"command"`
}

// repair plans to repair an archive, and says what that gives back. The plan is dropped if the client leaves.
func (q *question) repair() error {
	left := q.left(autopsy.Bytes)
	if q.err != nil {
		return q.err
	}
	j := repairJSON{Notes: []string{}, Lost: []string{}, Command: q.h.command(left, "")}
	v := q.left(autopsy.Repaired)
	if err := q.err; err != nil {
		if q.ctx().Err() != nil || errors.Is(err, errMany) {
			return err
		}
		q.err, j.Nothing = nil, q.outward(left, err)
		return q.json(j)
	}
	plan := v.in.Repair()
	lines := func(all []string) []string {
		shown := []string{}
		for _, s := range all[:min(len(all), mostLines)] {
			shown = append(shown, v.outward(s))
		}
		return shown
	}
	j.Changes, j.Partial, j.Notes, j.Lost, j.Of = plan.Changes(), plan.Partial, lines(plan.Notes), lines(plan.Lost), len(plan.Lost)
	if n, ok := plan.Readable[kit.FilesAfter]; ok {
		j.Before, j.After = new(plan.Readable[kit.FilesBefore]), &n
	}
	j.Format = v.in.Format().Name
	if f := format.All().ByExtension(v.Name); f == nil || f.Name != j.Format {
		j.Command = q.h.command(left, j.Format)
	}
	copies, err := copied(q.ctx(), v.in)
	if err != nil {
		return err
	}
	for _, o := range copies {
		j.Size += o.Size
	}
	j.Name, j.Tar = copyName(v, copies)
	j.Saves = j.Changes && left.in.Store().Can().Over == nil // what a layer has decrypted stays here
	return q.json(j)
}

// copyName returns what a copy is called, and whether it is a tar, since the archive is a folder.
func copyName(v *view, copies []store.Info) (name string, folder bool) {
	name = repairedName(path.Base(v.Name))
	if folder = len(copies) != 1 || copies[0].Name != v.in.Name(); folder {
		name += ".tar"
	}
	return name, folder
}

// copied returns the objects of a repaired archive.
func copied(ctx context.Context, in *holdall.Archive) (all []store.Info, err error) {
	for info, err := range storekit.List(ctx, in.Store(), in.Name()) {
		if err != nil {
			return nil, err
		}
		all = append(all, info)
	}
	return all, nil
}

// repaired sends the repaired archive. If it is a folder, that is in a tar.
func (q *question) repaired() error {
	left, v := q.left(autopsy.Bytes), q.left(autopsy.Repaired)
	if q.err != nil {
		return q.err
	}
	if left.in.Store().Can().Over != nil {
		return bad("the archive is stored encrypted, and a copy would not be: use holdall repair")
	}
	copies, err := copied(q.ctx(), v.in)
	if err != nil {
		return err
	}
	name, folder := copyName(v, copies)
	head := q.w.Header()
	head.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	head.Set("Content-Type", "application/octet-stream")
	copyOf := func(w io.Writer, o store.Info) error {
		obj, err := v.in.Store().Open(q.ctx(), o.Name)
		if err == nil {
			err = errors.Join(storekit.CopyRange(q.ctx(), w, obj, 0, o.Size), obj.Close())
		}
		return err
	}
	if !folder {
		head.Set("Content-Length", strconv.FormatInt(copies[0].Size, 10))
		err = copyOf(q.w, copies[0])
	} else {
		w, top := tar.NewWriter(q.w), strings.TrimSuffix(v.in.Name(), "/")
		for _, o := range copies {
			if err == nil {
				err = w.WriteHeader(&tar.Header{Name: repairedName(path.Base(v.Name)) + strings.TrimPrefix(o.Name, top), Size: o.Size, Mode: 0o644, Format: tar.FormatPAX})
			}
			if err == nil {
				err = copyOf(w, o)
			}
		}
		if err == nil {
			err = w.Close()
		}
	}
	if err != nil { // a part was sent, which must not look like the whole
		q.h.log.Error("the repaired copy cannot be sent", "archive", format.Escape(v.Name), "error", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}
