package rvn

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/internal/finder"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/format/rvn/internal/ucl"
	"github.com/holdall/holdall/internal/base/blake3"
	"github.com/holdall/holdall/store"
)

// repair plans an archive with everything that can be recovered. Each file is decoded and
// compared with its digest. If all are intact, only what precedes the contents is rewritten;
// otherwise the contents are rewritten too, without what is lost.
func repair(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) (format.Plan, error) {
	a, err := loadAs(ctx, st, &archive{name: name, repairs: true}, o)
	if err != nil {
		return format.Plan{}, err
	}
	defer a.obj.Close()
	m := &repairer{a: a, bad: map[int]string{}, raw: map[int]int64{}, sums: map[int]string{}, names: map[string]bool{}, plain: map[string]bool{}, dirs: map[string]bool{}}
	wrong, long := 0, format.Plan{}
	err = a.check(ctx, func(p format.Problem) {
		if p.Class == "metadata-size" {
			long = format.Plan{Lost: []string{"metadata kept unchanged: " + p.Message}, Partial: true}
		} else if p.Severity > format.Note && repairable(p) {
			wrong++
		}
		if p.Class == frameEnd {
			m.last = p.Off
		}
		report(p)
	})
	if err != nil {
		return format.Plan{}, err
	}
	if err := m.gather(ctx); err != nil {
		return format.Plan{}, err
	}
	if wrong == 0 && !m.rewrite && len(m.lost) == 0 {
		return long, nil
	}
	return m.plan(ctx, st)
}

// repairable reports whether a repair removes p. It does not remove problems that are a matter of
// taste or that only other readers have.
func repairable(p format.Problem) bool {
	return !slices.Contains([]string{"metadata-size", "size-word"}, p.Class)
}

// repairer is the state of a repair.
type repairer struct {
	a       *archive
	b       builder
	meta    []ucl.Member
	keep    []kept          // in the order of their contents
	names   map[string]bool // used names
	plain   map[string]bool // paths of everything except directories
	dirs    map[string]bool // paths of directories
	bad     map[int]string  // why the content of a record is not intact
	raw     map[int]int64   // where content is that cannot be decoded but is in the archive as it is
	sums    map[int]string  // digests of files without one
	notes   []string
	lost    []string
	rewrite bool  // also rewrite the contents
	last    int64 // where the last block of the frame should be, if it is damaged
	found   int   // files without a place
}

// kept is a record of the repaired archive.
type kept struct {
	e      format.Entry
	rec    int
	digest string
}

// lostFound is the folder for files without a place of their own.
const lostFound = "lost+found"

// repairLevel is a level that all builds have, because the plan and the result must be equal.
const repairLevel = "better"

func (m *repairer) lose(msg string, args ...any) {
	kit.Say(&m.lost, msg, args...)
}

func (m *repairer) note(msg string, args ...any) {
	kit.Say(&m.notes, msg, args...)
}

// gather decides about each record: what exists, and then the hard links to it.
func (m *repairer) gather(ctx context.Context) error {
	x := m.a.index
	if names := m.realign(); names != "" {
		m.note("%s", names)
	}
	if err := m.judge(ctx); err != nil {
		return err
	}
	m.reserve()
	var links []kept
	gone := map[string]bool{}
	for i := range x.Len() {
		e := x.Entry(i)
		e.Fault = nil
		if e.ModTime.Unix() < 0 {
			e.ModTime = time.Time{}
		}
		row, known := m.a.byName.Find(e.Name)
		again := e.Kind == format.Dir && (m.names[e.Name] && m.dirs[e.Name] || known && row != i) // a directory
		if again || m.unusable(i, e) {
			continue
		}
		k := kept{e: e, rec: i}
		switch {
		case e.Kind == format.HardLink:
			links = append(links, k)
			continue
		case x.rec(i).kind() == typeFile && m.bad[i] != "":
			m.lose("%s: %s", format.Escape(e.Name), m.bad[i])
			m.rewrite = m.rewrite || x.rec(i).size() > 0
			gone[e.Name] = true
			continue
		case e.Kind == format.File:
			k.digest = cmp.Or(m.sums[i], string(x.rec(i).digest()))
		}
		m.keepIt(k)
	}
	m.gatherLinks(links, gone)
	return nil
}

// reserve lets paths that are safe and unique keep their names. The others get new names, so that
// none takes the name of another.
func (m *repairer) reserve() {
	x := m.a.index
	for i := range x.Len() {
		name := x.Name(i)
		switch {
		case x.lost[i] != 0 || naming.Fault(name) != "":
		case x.rec(i).kind() == typeDir:
			m.dirs[name] = true
		default:
			m.plain[name] = true
		}
	}
}

// unusable reports whether a record cannot be kept, and notes why.
func (m *repairer) unusable(i int, e format.Entry) bool {
	x, r := m.a.index, m.a.index.rec(i)
	switch {
	case r.kind() >= typeCount:
		m.lose("%s: unknown type %d", format.Escape(e.Name), r.kind())
	case r.kind() == typeSymlink && (e.Link == "" || strings.IndexByte(e.Link, 0) >= 0 || x.lost[i] == linkRange):
		m.lose("%s: symbolic link without a target", format.Escape(e.Name))
	case e.Kind == format.Dir && (x.lost[i] != 0 || naming.Fault(e.Name) != ""):
		m.note("moved the content of directory %s to %s", format.Escape(e.Name), lostFound)
	default:
		return false
	}
	return true
}

func (m *repairer) keepIt(k kept) {
	m.place(&k)
	m.keep = append(m.keep, k)
}

// gatherLinks keeps the links to files that are kept.
func (m *repairer) gatherLinks(links []kept, gone map[string]bool) {
	files := map[string]string{} // digests
	for _, k := range m.keep {
		if k.e.Kind == format.File {
			files[k.e.Name] = k.digest
		}
	}
	for _, k := range links {
		digest, ok := files[k.e.Link]
		if !ok || m.a.index.lost[k.rec] == linkRange {
			why := "does not exist"
			if gone[k.e.Link] {
				why = "is lost"
			}
			m.lose("%s: hard link to %s, which %s", format.Escape(k.e.Name), format.Escape(k.e.Link), why)
			continue
		}
		k.digest = digest
		m.keepIt(k)
	}
}

// place finds a name for a record without one, or with a name that is unsafe or in use.
func (m *repairer) place(k *kept) {
	x := m.a.index
	name := k.e.Name
	row, known := m.a.byName.Find(name) // of equal paths, the one that readers use keeps it
	ok := (!known || row == k.rec || k.e.Kind == format.Dir) && x.lost[k.rec] == 0 && naming.Fault(name) == "" && !m.names[name] && (k.e.Kind == format.Dir || !m.dirs[name]) &&
		len(name)-strings.LastIndexByte(name, '/')-1 == x.rec(k.rec).nameLen()
	for dir := path.Dir(name); ok && dir != "."; dir = path.Dir(dir) {
		ok = m.dirs[dir] || !m.plain[dir]
	}
	if !ok {
		m.found++
		k.e.Name = fmt.Sprintf("%s/%d", lostFound, m.found)
		m.note("moved %s, which had no valid name, to %s", format.Escape(name), k.e.Name)
	}
	m.names[k.e.Name] = true
	if k.e.Kind == format.Dir {
		m.dirs[k.e.Name] = true
	}
}

// judge decodes all contents to find out which files are intact.
func (m *repairer) judge(ctx context.Context) error {
	a, x := m.a, m.a.index
	src := a.newSource(ctx)
	defer src.close()
	for i := range x.Len() {
		r := x.rec(i)
		if r.kind() != typeFile {
			continue
		}
		if i >= x.end {
			m.bad[i] = "its content is outside the valid range"
			continue
		}
		sum, err := src.copyFile(x.start(i), r.size(), func([]byte) error { return nil })
		if broken := cmp.Or(context.Cause(ctx), src.broken); broken != nil {
			return broken
		}
		switch {
		case err != nil:
			m.bad[i] = fmt.Sprintf("its content cannot be decoded: %v", err)
		case !r.hasDigest():
			m.sums[i] = sum
		case sum != string(r.digest()):
			m.bad[i] = "its content does not match its digest"
		}
	}
	if err := m.findRaw(ctx); err != nil {
		return err
	}
	// Anything after the last file, contents or damage, makes readers fail that decode everything
	// at once.
	if x.total == 0 {
		return nil
	}
	m.rewrite = !src.ends() || m.rewrite
	if src.broken != nil {
		return src.broken
	}
	frames, err := a.frames(ctx, a.block[contentBlock].off, 2)
	switch {
	case err != nil:
		return err
	case len(frames) == 0 || frames[0].cut:
		m.rewrite = true
	case x.total > singleCall && len(frames) > 1 && frames[1].off < a.block[contentBlock].end():
		m.rewrite = true
		m.note("joined the contents to one frame: xrvn reads only the first")
	}
	return nil
}

// findRaw looks for contents that cannot be decoded: what does not compress is stored as it is, and
// its digest shows where.
func (m *repairer) findRaw(ctx context.Context) error {
	a, x := m.a, m.a.index
	c := a.block[contentBlock]
	var lost []int
	f := finder.Finder{End: a.size, Near: []int64{blockHeaderLen, -blockHeaderLen}, Read: func(b []byte, off int64) error { return a.obj.ReadAt(ctx, b, off) }}
	f.Is = func(k int, b []byte) bool {
		sum := blake3.Sum256(b)
		return bytes.Equal(sum[:], x.rec(lost[k]).digest())
	}
	f.Right = func(k int, off int64) (bool, error) {
		sum, err := a.rawSum(ctx, off, f.Contents[k].Len, io.Discard)
		return sum == string(x.rec(lost[k]).digest()), err
	}
	for i := range x.Len() {
		if r := x.rec(i); m.bad[i] != "" && i < x.end && r.size() > 0 && r.hasDigest() {
			lost = append(lost, i)
			f.Contents = append(f.Contents, finder.Content{Start: c.off + x.start(i), Len: r.size()})
		}
	}
	front, back := int64(frameHeaderLen+blockHeaderLen), a.size-c.off-x.total
	if h, err := parseFrame(a.frame); err == nil {
		front = int64(h.len + blockHeaderLen)
	}
	if err := f.Find(ctx, front, back, back-blockHeaderLen); err != nil {
		return err
	}
	for k, i := range lost {
		if f.At[k] != finder.Nowhere {
			m.raw[i] = f.At[k]
			m.rewrite = true
			delete(m.bad, i)
		}
	}
	return nil
}

// rawSum returns the digest of n bytes of the archive, or "" if they are not in it, and copies them.
func (a *archive) rawSum(ctx context.Context, off, n int64, to io.Writer) (string, error) {
	if off < 0 || off > a.size-n {
		return "", nil
	}
	h := blake3.New()
	_, err := io.Copy(io.MultiWriter(h, to), &kit.RangeReader{Ctx: ctx, Object: a.obj, Off: off, End: off + n})
	return string(h.Sum(nil)), err
}

// plan returns the plan.
func (m *repairer) plan(ctx context.Context, st store.Store) (format.Plan, error) {
	a := m.a
	c, err := newCompressor(repairLevel, 1, defaultSection)
	if err != nil {
		return format.Plan{}, err
	}
	m.b = newBuilder()
	m.b.c = c
	if m.meta == nil {
		m.readMetadata()
	}
	at, files := int64(0), 0
	for _, k := range m.keep {
		if k.e.Kind == format.File {
			files++
		}
		if k.e.Kind == format.File && k.e.Size > 0 {
			if a.index.start(k.rec) != at {
				m.rewrite = true
			}
			at += k.e.Size
		}
		m.b.flat = at
		if err := m.add(k); err != nil {
			return format.Plan{}, err
		}
	}
	plan := format.Plan{Notes: m.notes, Lost: m.lost, Partial: len(m.lost) > 0}
	contents := a.block[contentBlock]
	comp, table, edit := int64(0), a.table.sections, format.Edit{Object: a.name, Len: contents.off}
	if m.rewrite {
		// The size of the compressed contents is stored before them, and is known only after
		// compressing. They are compressed twice instead of being kept.
		count := &spool{w: io.Discard}
		table, err = m.compress(ctx, count)
		if lost, ok := errors.AsType[*undecodable](err); ok {
			// The file was intact before, but damaged blocks do not always decode to the same
			// bytes.
			m.lose("%s: %v", format.Escape(lost.e.Name), lost.error)
			m.keep = slices.DeleteFunc(m.keep, func(k kept) bool {
				return k.rec == lost.rec || k.e.Kind == format.HardLink && k.e.Link == lost.e.Name
			})
			return m.plan(ctx, st)
		}
		comp, edit.Len = count.n, a.size
		plan.Notes = append(plan.Notes, fmt.Sprintf("packed %d files again", files))
	} else {
		var frames []frameSpan
		frames, err = a.frames(ctx, contents.off, maxFrames)
		if n := len(frames); at > 0 && n > 0 {
			comp = frames[n-1].end() - contents.off
		} else if at > 0 {
			comp = a.size - contents.off
		}
		plan.Notes = append(plan.Notes, "rebuilt header, metadata and index")
	}
	if err != nil {
		return plan, err
	}
	prefix, err := m.b.prefix(m.meta, comp, table)
	edit.Write = func(w io.Writer) error {
		if _, err := w.Write(prefix); err != nil || !m.rewrite {
			return err
		}
		var err error
		if a.obj, err = st.Open(ctx, a.name); err != nil {
			return err
		}
		defer a.obj.Close()
		_, err = m.compress(ctx, &spool{w: w})
		return err
	}
	plan.Edits = []format.Edit{edit}
	if m.last > 0 && !m.rewrite {
		plan.Edits = append(plan.Edits, format.Edit{Object: a.name, Off: m.last, Len: int64(len(lastBlock)), Write: func(w io.Writer) error {
			_, err := w.Write(lastBlock)
			return err
		}})
		plan.Notes = append(plan.Notes, "rebuilt the last block of the frame")
	}
	return plan, err
}

func (m *repairer) add(k kept) error {
	if err := checkEntry(k.e, &m.b.owners, &m.b.groups); err != nil {
		return err
	}
	if k.e.Kind == format.Dir {
		return m.b.addDir(k.e)
	}
	parent, err := m.b.parentOf(k.e)
	if err == nil {
		m.b.addRecord(k.e, k.digest, parent, 0)
	}
	return err
}

// readMetadata takes over the metadata, as far as it can be read.
func (m *repairer) readMetadata() {
	md, err := m.a.metadata()
	if err != nil {
		if at := repairBit(m.a.meta, int64(m.a.h.MetaFlat)); at >= 0 {
			m.note("corrected one bit in byte %d of the metadata: the checksum matches now", at)
			md, err = m.a.metadata()
		}
	}
	if err != nil {
		m.lose("the metadata: %v", err)
		md = metadata{}
	}
	if m.meta = membersOf(string(md.text), format.CreateOptions{}); md.err != nil && len(md.text) > 0 {
		m.note("made the text of the metadata, which is not UCL, the description")
	}
	if _, err := appendMetadata(m.meta, 0); err != nil {
		m.lose("the metadata: %v", err)
		m.meta = membersOf("", format.CreateOptions{})
	}
}

// compress writes the contents that are kept to s again.
func (m *repairer) compress(ctx context.Context, s *spool) ([]section, error) {
	out := newSectioned(s, m.b.c, defaultSection, 1)
	defer out.close()
	src := m.a.newSource(ctx)
	defer src.close()
	for _, k := range m.keep {
		if k.e.Kind != format.File {
			continue
		}
		if err := out.mark(k.e.Size); err != nil {
			return nil, err
		}
		sum, err := m.copyFile(ctx, src, k, out.write)
		// Damaged blocks do not always decode to the same bytes, so the digest is compared again.
		if err == nil && sum != k.digest {
			err = errors.New("its content does not match its digest")
		}
		if broken := cmp.Or(context.Cause(ctx), src.broken); broken != nil {
			return nil, broken
		}
		if err != nil {
			return nil, &undecodable{k, err}
		}
	}
	if err := out.end(); err != nil {
		return nil, err
	}
	return out.sections(), nil
}

func (m *repairer) copyFile(ctx context.Context, src *source, k kept, write func([]byte) error) (sum string, err error) {
	if off, ok := m.raw[k.rec]; ok {
		return m.a.rawSum(ctx, off, k.e.Size, writeFunc(write))
	}
	return src.copyFile(m.a.index.start(k.rec), k.e.Size, write)
}

type writeFunc func([]byte) error

func (w writeFunc) Write(b []byte) (int, error) { return len(b), w(b) }

// undecodable is a file that cannot be decoded again.
type undecodable struct {
	kept
	error
}
