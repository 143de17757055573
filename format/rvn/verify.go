package rvn

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/store"
)

func verify(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) error {
	a, err := load(ctx, st, name, o)
	if err != nil {
		r, err := orRepository(ctx, st, name, o, err)
		if err != nil {
			return kit.Reported(err, report)
		}
		defer r.Close()
		return r.check(ctx, report)
	}
	defer a.obj.Close()
	return a.check(ctx, report)
}

// check reports everything that is wrong or unusual except for the contents themselves.
func (a *archive) check(ctx context.Context, report func(format.Problem)) error {
	for _, p := range a.notes {
		report(p)
	}
	a.checkHeader(report)
	a.checkMetadata(report)
	if err := a.checkRecords(ctx, report); err != nil {
		return err
	}
	a.checkNames(report)
	return a.checkContents(ctx, report)
}

func (a *archive) checkHeader(report func(format.Problem)) {
	if v := a.said.Version; v != version {
		report(a.problem(format.BadHeader, "version", format.Warning, 3, "version %d: read as %d, as the reference does", v, version))
	}
	if a.said.Unused != [4]uint32{} {
		report(a.problem(format.BadHeader, "unused", format.Note, 48, "unused words of the header are not 0: %v", a.said.Unused))
	}
	if !isPeople(a.index.owners) || !isPeople(a.index.groups) {
		report(a.problem(format.BadIndex, "people", format.Warning, a.h.indexOff(), "the names of owners and groups are not padded with zeros, or some are empty"))
	}
	if n := a.said.IndexComp; a.h.IndexFlat > maxStackIndex && n <= singleCall {
		report(a.problem(format.Unsupported, "index-stack", format.Warning, a.h.indexOff(),
			"xrvn cannot read it: the index of %d bytes (%d compressed) does not fit on its stack", a.h.IndexFlat, n))
	}
}

func (a *archive) checkMetadata(report func(format.Problem)) {
	m, err := a.metadata()
	switch {
	case err != nil:
		report(a.metaProblem(err))
		return
	case len(m.text) > maxMetadata:
		report(a.problem(format.Limit, "metadata-size", format.Warning, headerLen, "%d bytes of metadata: readers refuse more than %d", len(m.text), maxMetadata))
	case m.err != nil && len(m.text) > 0:
		report(a.problem(format.BadData, "metadata-ucl", format.Warning, headerLen, "the metadata is not UCL: %v", m.err))
	}
	if int64(a.said.MetaFlat) != int64(len(m.text)) {
		report(a.problem(format.BadHeader, "header-meta-flat", format.Error, 32, "meta-flat: expected %d, found %d: readers show an error instead of the metadata", len(m.text), a.said.MetaFlat))
	}
}

// recordRules are what all readers require of a single record.
var recordRules = []struct {
	code   format.Code
	class  string
	broken func(*index, record) bool
	says   func(*index, record) string
}{
	{format.OutOfBounds, "owner", func(x *index, r record) bool { _, ok := person(x.owners, r.owner()); return !ok },
		func(x *index, r record) string {
			return fmt.Sprintf("owner %d of %d: xrvn fails there", r.owner(), len(x.owners)/blockLen)
		}},
	{format.OutOfBounds, "group", func(x *index, r record) bool { _, ok := person(x.groups, r.group()); return !ok },
		func(x *index, r record) string {
			return fmt.Sprintf("group %d of %d: xrvn fails there", r.group(), len(x.groups)/blockLen)
		}},
	{format.BadIndex, "mode", func(_ *index, r record) bool { return r.mode() > 0o7777 },
		func(_ *index, r record) string {
			return fmt.Sprintf("mode %o has invalid bits: xrvn fails there", r.mode())
		}},
	{format.BadIndex, "time", func(_ *index, r record) bool { return r.nanos() >= 1e9 },
		func(_ *index, r record) string {
			return fmt.Sprintf("%d nanoseconds are more than a second: ignored", r.nanos())
		}},
	{format.BadIndex, "time", func(_ *index, r record) bool { return int64(r.seconds()) < 0 || int64(r.seconds()) >= farTime },
		func(_ *index, r record) string {
			return fmt.Sprintf("a time of %d seconds: xrvn fails there", r.seconds())
		}},
	{format.BadIndex, "size", func(_ *index, r record) bool {
		return r.kind() != typeFile && r.kind() < typeCount && r.sizeField() != 0
	}, func(_ *index, r record) string {
		return fmt.Sprintf("a %s with a size of %d: it has no content", kinds[r.kind()], r.sizeField())
	}},
	{format.Unsupported, "size-word", func(_ *index, r record) bool { return r.kind() == typeFile && uint32(r.sizeField()) >= 1<<31 },
		func(_ *index, r record) string {
			return fmt.Sprintf("xrvn fails on sizes like %d, whose lower word is 2 GiB and more", r.sizeField())
		}},
}

// recordCheck visits the records in order.
type recordCheck struct {
	a      *archive
	x      *index
	report func(format.Problem)
	dirs   int            // number of directories so far
	firsts map[string]int // targets of links so far, by name
}

// checkRecords reports records that the reference reads differently from what was meant, or not
// at all.
func (a *archive) checkRecords(ctx context.Context, report func(format.Problem)) error {
	c := &recordCheck{a: a, x: a.index, report: report, firsts: map[string]int{}}
	for i := range c.x.Len() {
		if c.x.rec(i).kind() == typeHardLink {
			c.firsts[c.x.link(i)] = -1
		}
	}
	for i := range c.x.Len() {
		if i&0xfff == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r := c.x.rec(i)
		if p := c.x.fault(i, r); p != nil {
			report(*p)
		} else if c.x.late[i] {
			c.tell(i, format.BadIndex, "parent-later", format.Warning, "stored before its directory: xrvn fails there")
		}
		c.dirNumber(i, r)
		for _, rule := range recordRules {
			if rule.broken(c.x, r) {
				c.tell(i, rule.code, rule.class, format.Warning, "%s", rule.says(c.x, r))
			}
		}
		c.name(i, r)
		c.content(i, r)
	}
	return nil
}

func (c *recordCheck) tell(i int, code format.Code, class string, sev format.Severity, msg string, args ...any) {
	p := c.a.problem(code, class, sev, -1, msg, args...)
	p.Entry, p.HasEntry = c.x.Name(i), true
	c.report(p)
}

// dirNumber checks that directories are numbered in order.
func (c *recordCheck) dirNumber(i int, r record) {
	if r.dirID() > 0 {
		c.dirs++
	}
	switch isDir := r.kind() == typeDir; {
	case !isDir && r.dirID() > 0:
		c.tell(i, format.BadIndex, "dir-id", format.Warning, "not a directory, but has directory number %d", r.dirID())
	case isDir && r.dirID() == 0:
		c.tell(i, format.BadIndex, "dir-id", format.Warning, "directory without a number: it cannot have entries")
	case isDir && r.dirID() != c.dirs:
		c.tell(i, format.BadIndex, "dir-id", format.Warning, "directory %d has number %d", c.dirs, r.dirID())
	}
}

// name checks that a path can be extracted and is unique.
func (c *recordCheck) name(i int, r record) {
	x, name := c.x, c.x.Name(i)
	if class := naming.Fault(name); class != "" && x.lost[i] == 0 {
		c.tell(i, format.UnsafePath, class, format.Warning, "the name is not extracted: %s", naming.Advice(class))
	} else if own := name[strings.LastIndexByte(name, '/')+1:]; x.lost[i] == 0 && len(own) != r.nameLen() {
		c.tell(i, format.UnsafePath, "name-slash", format.Warning, "the name contains a slash")
	}
	if row, ok := c.a.byName.Find(name); ok && row != i {
		c.tell(i, format.Duplicate, "duplicate", format.Warning, "duplicate path: the last entry counts")
	} else if above := c.a.byName.FileAbove(name); above != "" {
		c.tell(i, format.UnsafePath, "name-conflict", format.Warning, "%q is not a directory: the entry stored first is extracted", above)
	}
}

// content checks the content of a file, or the target of a link.
func (c *recordCheck) content(i int, r record) {
	switch r.kind() {
	case typeFile:
		if _, wanted := c.firsts[c.x.Name(i)]; wanted {
			c.firsts[c.x.Name(i)] = i
		}
		if !r.hasDigest() {
			c.tell(i, format.BadChecksum, "no-digest", format.Warning, "no digest")
		}
	case typeSymlink:
		if r.linkLen() == 0 {
			c.tell(i, format.BadIndex, "link-empty", format.Error, "symbolic link with an empty target")
		}
	case typeHardLink:
		c.link(i)
	}
}

func (c *recordCheck) link(i int) {
	x, tell := c.x, c.tell
	to := x.link(i)
	first := c.firsts[to]
	row, ok := c.a.byName.Find(to)
	switch {
	case !ok:
		tell(i, format.Dangling, "hardlink", format.Error, "hard link to %q, which does not exist", format.Escape(to))
	case x.rec(row).kind() != typeFile:
		tell(i, format.Dangling, "hardlink", format.Error, "hard link to %q, which is a %s", format.Escape(to), kinds[min(x.rec(row).kind(), typeFifo)])
	case first < 0:
		tell(i, format.BadIndex, "hardlink-later", format.Warning, "hard link to %q, which is stored later: xrvn fails there", format.Escape(to))
	case string(x.rec(i).digest()) != string(x.rec(row).digest()) && x.rec(i).hasDigest():
		tell(i, format.BadChecksum, "hardlink-digest", format.Warning, "hard link to %q, but with another digest", format.Escape(to))
	}
}

// checkNames looks for names and link targets that belong to no record. The reference leaves them
// when it drops a file after storing its name, and all later names are then shifted.
func (a *archive) checkNames(report func(format.Problem)) {
	x := a.index
	namesOff := a.h.indexOff() // within a compressed block, nothing has an offset of its own
	if rest := x.names[x.namesUsed:]; len(rest) >= blockLen || !zeros(rest) {
		report(a.problem(format.BadIndex, "names-surplus", format.Error, namesOff,
			"%d bytes of names belong to no file: the writer dropped files but kept their names, so names are shifted", len(rest)-trailingZeros(rest)))
	}
	if rest := x.links[x.linksUsed:]; len(rest) >= blockLen || !zeros(rest) {
		report(a.problem(format.BadIndex, "links-surplus", format.Error, namesOff, "%d bytes of link targets belong to no link", len(rest)-trailingZeros(rest)))
	}
}

func trailingZeros(b []byte) int {
	n := len(b)
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return len(b) - n
}

// frameEnd is the class for a damaged last block.
const frameEnd = "frame-end"

// checkContents checks the frame around the contents without decoding it.
func (a *archive) checkContents(ctx context.Context, report func(format.Problem)) error {
	c := a.block[contentBlock]
	if s := a.said.ArcFlat; s != uint64(a.index.total) {
		report(a.problem(format.BadHeader, "header-arc-flat", format.Error, 40, "arc-flat: expected %d, the sum of all files, found %d", a.index.total, s))
	}
	if a.index.total == 0 {
		if a.size > c.off {
			report(a.problem(format.Gap, "trailing", format.Note, c.off, "%d bytes after the index belong to no file", a.size-c.off))
		}
		return nil
	}
	if t := a.table.sections; t != nil {
		end := c.off + t[len(t)-1].comp
		w := window{ctx: ctx, a: a}
		if end+int64(len(lastBlock)) <= a.size {
			b := w.at(end, len(lastBlock))
			if w.err != nil {
				return w.err
			}
			if string(b) != string(lastBlock) {
				report(a.problem(format.BadData, frameEnd, format.Error, end, "expected the frame's last block, found % x: stock readers fail there", b))
			}
		}
	}
	frames, err := a.frames(ctx, c.off, maxFrames)
	if err != nil {
		return err
	}
	switch {
	case len(frames) == 0 || frames[0].skippable:
		report(a.problem(format.BadData, "frame", format.Error, c.off, "the contents do not begin with a zstd frame"))
		return nil
	case len(frames) > 1 && a.index.total > singleCall && frames[1].off < c.end():
		report(a.problem(format.Unsupported, "frames", format.Warning, frames[1].off, "the contents are %d frames: xrvn reads only the first, and writes wrong files", len(frames)))
	}
	last := frames[len(frames)-1]
	if last.cut {
		if c.end() > a.size || a.said.ArcComp == 0 || int64(a.said.ArcComp) >= a.size-c.off {
			report(a.problem(format.Truncated, "contents", format.Error, a.size, "the archive ends within the contents, at %d", a.size))
		} else {
			report(a.problem(format.BadData, "frame", format.Error, last.off, "the frame at %d does not end within the archive", last.off))
		}
		return nil
	}
	if stored := last.end() - c.off; int64(a.said.ArcComp) != stored {
		sev := format.Error
		if fit := int64(a.said.ArcComp) > stored && int64(a.said.ArcComp) <= a.size-c.off; fit {
			sev = format.Warning
		}
		report(a.problem(format.BadHeader, "header-arc-comp", sev, 24, "arc-comp: expected %d, the length of the contents, found %d", stored, a.said.ArcComp))
	}
	if tail := a.size - max(last.end(), min(c.end(), a.size)); tail > 0 {
		report(a.problem(format.Gap, "trailing", format.Note, a.size-tail, "%d bytes after the contents belong to no file", tail))
	}
	if f, err := parseFrame(a.frame); err == nil && len(frames) == 1 && f.content >= 0 && f.content != a.index.total {
		report(a.problem(format.OutOfBounds, "content-size", format.Error, c.off, "the contents are %d bytes, but the sum of all files is %d", f.content, a.index.total))
	}
	return nil
}
