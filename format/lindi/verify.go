package lindi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/jsontext"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/arrays/zarr3"
	"github.com/holdall/holdall/internal/arrays/zarrkey"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/zarr"
)

// checker checks an archive's structure.
type checker struct {
	a      *archive
	report func(format.Problem)
	// repairs counts the problems that a rebuilt archive would not have.
	repairs int
	left    []format.Problem // errors that it would have too
	stat    func(ctx context.Context, address string) (store.Info, error)
}

func verify(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) error {
	a, err := openArchive(ctx, st, name, o)
	if err == nil {
		defer a.close()
		c := &checker{a: a, report: report, stat: o.Stat}
		err = c.check(ctx)
		if err == nil && o.View == zarr3View && a.rfs != nil {
			err = zarr3.Check(ctx, a.inVersion3(), report)
		}
	}
	return kit.Reported(err, report)
}

func (c *checker) tell(code format.Code, sev format.Severity, off int64, entry, msg string, args ...any) {
	p := c.a.problem(code, sev, off, msg, args...)
	p.Entry, p.HasEntry = entry, entry != ""
	c.report(p)
}

// repairable reports a problem that a rebuilt archive would not have.
func (c *checker) repairable(code format.Code, sev format.Severity, off int64, entry, msg string, args ...any) {
	c.repairs++
	c.tell(code, sev, off, entry, msg, args...)
}

// found reports problems that a rebuilt archive would not have.
func (c *checker) found(all ...format.Problem) {
	for _, p := range all {
		if p.Class != string(format.LostDigest) {
			c.repairs++
		}
		c.report(p)
	}
}

// lost reports an error that a rebuilt archive would have too.
func (c *checker) lost(code format.Code, off int64, entry, msg string, args ...any) {
	p := c.a.problem(code, format.Error, off, msg, args...)
	p.Entry, p.HasEntry = entry, true
	c.left = append(c.left, p)
	c.report(p)
}

func (c *checker) check(ctx context.Context) error {
	a := c.a
	if a.form == tarForm {
		if err := a.loadTable(ctx, false); err != nil {
			return err
		}
		c.found(a.notes...)
		a.notes = nil
		if err := c.entry(ctx); err != nil {
			return err
		}
		if err := c.padding(ctx, indexName, a.indexEnd, a.entry.d+a.entry.s); err != nil {
			return err
		}
		if err := c.rows(ctx); err != nil {
			return err
		}
	}
	err := a.loadRFS(ctx)
	c.found(a.notes...)
	if e, ok := errors.AsType[*format.CorruptError](err); ok && a.form == tarForm {
		c.found(e.Problem)
		return nil // there are only members to check
	}
	if err != nil {
		return err
	}
	if err := c.padding(ctx, rfsName, a.rfsEnd, a.rfsRow.d+a.rfsRow.s); err != nil {
		return err
	}
	k, err := newKeys(ctx, a)
	if err != nil {
		return err
	}
	if err := c.keys(ctx, k); err != nil {
		return err
	}
	return c.arrays(ctx, k)
}

// entry checks the text of the entry, if holdall wrote it: the digests in it may not be those of
// the texts that they were made for.
func (c *checker) entry(ctx context.Context) error {
	a := c.a
	if a.table.found {
		return nil // that has been reported
	}
	text, err := a.read(ctx, entryData, entryLen)
	if err != nil || isTheirEntry(text) {
		return err
	}
	wrong := !bytes.HasPrefix(text, appendEntry(nil, a.entry))
	if r, ok := a.table.last(rfsName); ok && !wrong && a.entry.rfsSum != "" && r.d != a.entry.rfsAt && a.table.fault(r) == nil {
		b, err := a.read(ctx, r.d, min(r.s, int64(len(theirs))))
		if err != nil {
			return err
		}
		wrong = string(b) != theirs // the reference has moved it
	}
	if wrong {
		c.repairable(format.BadIndex, format.Warning, entryData, entryName, "its text is damaged: lengths or digests in it are wrong")
	}
	return nil
}

// padding checks what is after the text of index or lindi.json, which is never read.
func (c *checker) padding(ctx context.Context, name string, off, end int64) error {
	buf := make([]byte, 64<<10)
	for 0 < off && off < end {
		p := buf[:min(int64(len(buf)), end-off)]
		if err := c.a.obj.ReadAt(ctx, p, off); err != nil {
			return err
		}
		if i := slices.IndexFunc(p, func(b byte) bool { return !jsontext.IsSpace(b) }); i >= 0 {
			c.repairable(format.BadIndex, format.Warning, off+int64(i), name, "expected only blanks after its text")
			break
		}
		off += int64(len(p))
	}
	return nil
}

// rows compares the index with the headers, and checks what is between.
func (c *checker) rows(ctx context.Context) error {
	a, t := c.a, c.a.table
	if e, ok := t.last(entryName); !t.found && (!ok || e.o != 0 || e.d != entryData || e.s != entryLen) {
		c.repairable(format.BadIndex, format.Error, a.entry.d, entryName, "the index does not list it at 0 with 1024 bytes: the reference refuses the archive")
	}
	if _, ok := t.last(rfsName); !ok {
		c.repairable(format.MissingIndex, format.Error, -1, rfsName, "not in the archive: the keys are unknown")
	}
	rows := t.list()
	slices.SortStableFunc(rows, func(x, y row) int { return cmp.Compare(x.o, y.o) })
	names := map[string]bool{}
	v := &view{a: a, ctx: ctx}
	end, last := int64(0), ""
	for _, r := range rows {
		if names[r.name] {
			c.repairable(format.Duplicate, format.Warning, r.o, r.name, "duplicate name in the index: the last row counts")
		}
		names[r.name] = true
		if p := t.fault(r); p != nil {
			c.found(*p)
			if r.o >= a.size-blockLen {
				continue
			}
		}
		switch {
		case r.o < end:
			c.repairable(format.Overlap, format.Warning, r.o, r.name, "begins at %d, within %q, which ends at %d", r.o, last, end)
		case r.o > end:
			if err := c.between(ctx, end, min(r.o, a.size)); err != nil {
				return err
			}
		}
		if r.o > a.size-blockLen {
			continue
		}
		if err := c.header(v, r); err != nil {
			return err
		}
		if r.end() > end {
			end, last = r.end(), r.name
		}
	}
	return c.ending(ctx, min(end, a.size))
}

// header compares a row with its header.
func (c *checker) header(v *view, r row) error {
	at := r.d - blockLen // a long name has several headers
	if at < r.o || at > c.a.size-blockLen {
		at = r.o
	}
	b, err := v.at(at, blockLen)
	if err != nil {
		return err
	}
	h, ok := parseHeader(b)
	switch {
	case !ok:
		c.repairable(format.BadHeader, format.Warning, r.o, r.name, "its tar header is damaged: the index still has it, but tar stops or skips here")
	case r.d-r.o == blockLen && h.name != r.name:
		c.repairable(format.BadHeader, format.Warning, r.o, r.name, "its tar header has the name %q", h.name)
	case h.size != r.s && r.d-r.o == blockLen:
		c.repairable(format.BadHeader, format.Warning, r.o, r.name, "its tar header has %d bytes, the index %d", h.size, r.s)
	case !h.isFile():
		c.repairable(format.BadHeader, format.Warning, r.o, r.name, "its tar header is not that of a file")
	case r.d-r.o < blockLen:
		c.repairable(format.BadIndex, format.Warning, r.o, r.name, "the index has its content at %d, with its header at %d", r.d, r.o)
	}
	return nil
}

// between checks what is between members of the index.
func (c *checker) between(ctx context.Context, from, to int64) error {
	trash, bytes := 0, int64(0)
	for g, err := range c.a.between(ctx, from, to) {
		switch {
		case err != nil:
			return err
		case g.Use == format.Trash:
			trash, bytes = trash+1, bytes+g.Len
		case g.Use == format.Unknown && g.Label == "not in the index":
			c.repairable(format.Gap, format.Warning, g.Off, "", "%d bytes belong to no member and have no readable header", g.Len)
		case g.Use == format.Unknown:
			name := strings.TrimSuffix(g.Label, ", not in the index")
			c.repairable(format.MissingIndex, format.Warning, g.Off, name, "a member that the index does not list: it was never committed, or another tar program added it")
		}
	}
	c.trash(from, trash, bytes)
	return nil
}

func (c *checker) trash(at int64, n int, bytes int64) {
	if n > 0 {
		c.tell(format.Gap, format.Note, at, "", "%s in the trash: %d bytes", many(n, "member"), bytes)
	}
}

// ending checks the end of the tar after end.
func (c *checker) ending(ctx context.Context, end int64) error {
	a := c.a
	w, err := a.walk(ctx, end)
	if err != nil {
		return err
	}
	trash, bytes := 0, int64(0)
	for _, f := range w.members {
		switch {
		case f.trash && !f.cut:
			trash, bytes = trash+1, bytes+f.s
		case f.cut:
			c.repairable(format.Truncated, format.Warning, f.o, f.row.name, "a truncated member that the index does not list: its writer was interrupted")
		default:
			c.repairable(format.MissingIndex, format.Warning, f.o, f.row.name, "a member that the index does not list: it was never committed, or another tar program added it")
		}
	}
	c.trash(end, trash, bytes)
	for _, h := range w.holes {
		c.repairable(format.Gap, format.Warning, h.off, "", "%d bytes after the last member have no readable header", h.n)
	}
	switch {
	case w.zeros < terminatorLen:
		c.repairable(format.Truncated, format.Warning, a.size, "", "the tar does not end in 1024 zero bytes: the reference will not append to it")
	case w.zeros > terminatorLen:
		c.tell(format.Gap, format.Note, w.end, "", "the tar ends in %d zero bytes instead of 1024: other tar programs do not see what the reference appends", w.zeros)
	}
	return nil
}

// many returns a number with a noun.
func many(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// keys checks the references of all keys, and soft links.
func (c *checker) keys(ctx context.Context, k *keys) error {
	a := c.a
	seen := map[string]bool{}
	outside := map[string]*source{}
	short := 0
	for _, r := range a.rfs.refs {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if seen[r.key] {
			c.tell(format.Duplicate, format.Warning, a.place(r), r.key, "duplicate key in lindi.json: the last counts")
		}
		seen[r.key] = true
		e := k.entry(r)
		if e.Fault != nil {
			c.left = append(c.left, *e.Fault)
			c.report(*e.Fault)
			continue
		}
		p, ok := e.Ref.(storedAt)
		if ok && p.n < e.Size {
			short++
		}
		if n := k.tooLong(r.key, p.n); n > 0 {
			c.tell(format.BadData, format.Warning, a.place(r), r.key, "%d bytes, expected %d, the size of a chunk", p.n, n)
		}
		switch {
		case ok && p.value == nil && (p.external || a.form == jsonForm):
			address := p.object
			if !p.external { // it is in the text
				address, _, _ = a.rfs.inside(a.rfs.value(r))
			}
			s := cmp.Or(outside[address], &source{address: address, at: a.place(r)})
			s.refs, s.end, outside[address] = s.refs+1, max(s.end, p.off+p.n), s
		case ok && a.form == dirForm && p.value == nil:
			if err := c.file(ctx, r, p); err != nil {
				return err
			}
		}
		if to, ok := k.links(r); ok {
			s := cmp.Or(outside[to.URL], &source{address: to.URL, at: a.place(r)})
			s.refs, outside[to.URL] = s.refs+1, s
		}
		if dir, ok := strings.CutSuffix(r.key, "/.zattrs"); ok {
			if to := k.link(dir); to != "" {
				to = zarrkey.LinkTarget(dir, to)
				if _, err := k.Lookup(ctx, to); errors.Is(err, fs.ErrNotExist) {
					c.tell(format.Dangling, format.Warning, a.place(r), dir, "soft link to %q, which does not exist", to)
				}
			}
		}
	}
	if short > 0 {
		c.tell(format.Gap, format.Note, -1, "", "%s are short, and read as filled with zeros", many(short, "chunk"))
	}
	if err := c.outside(ctx, slices.SortedFunc(maps.Values(outside), func(x, y *source) int { return cmp.Compare(x.at, y.at) })); err != nil {
		return err
	}
	if a.form == tarForm {
		c.orphans(k)
	}
	return nil
}

// source is an object outside the archive that keys refer to.
type source struct {
	address string
	at      int64 // where the first key is written
	refs    int
	end     int64 // the end of what keys refer to
	is      store.Info
	err     error
}

var errSilent = errors.New("its server did not answer earlier requests")

// outside checks that each source exists and is long enough, several at a time. If a server has
// not responded for three sources, no more requests are sent to it, because each takes long.
func (c *checker) outside(ctx context.Context, all []*source) error {
	var mu sync.Mutex
	silent := map[string]int{} // sources for which a server did not respond
	err := pipe.Each(ctx, pipe.All(all), min(16, len(all)), func(ctx context.Context, s *source) error {
		scheme, rest, _ := strings.Cut(s.address, "://")
		host, _, _ := strings.Cut(rest, "/")
		mu.Lock()
		n := silent[scheme+host]
		mu.Unlock()
		switch {
		case c.stat == nil:
			s.err = errors.ErrUnsupported
		case n >= 3:
			s.err = errSilent
		default:
			s.is, s.err = c.stat(ctx, s.address)
		}
		if storekit.Temporary(s.err) {
			mu.Lock()
			silent[scheme+host]++
			mu.Unlock()
		}
		return context.Cause(ctx)
	})
	if err != nil {
		return err
	}
	unasked, there := 0, 0
	for _, s := range all {
		tell := func(code format.Code, sev format.Severity, msg string, args ...any) {
			c.tell(code, sev, s.at, "", "%s, with %s to it, "+msg, append([]any{store.Redact(s.address), many(s.refs, "reference")}, args...)...)
		}
		switch {
		case errors.Is(s.err, errors.ErrUnsupported):
			unasked += s.refs
		case errors.Is(s.err, fs.ErrNotExist):
			tell(format.Dangling, format.Error, "does not exist")
		case s.err != nil:
			tell(format.Dangling, format.Warning, "could not be checked: %v", s.err)
		case s.end > s.is.Size:
			tell(format.OutOfBounds, format.Error, "has %d bytes, but references go up to byte %d", s.is.Size, s.end)
		default:
			there += s.refs
		}
	}
	if unasked > 0 {
		c.tell(format.Dangling, format.Note, -1, "", "%s outside of the archive: not checked", many(unasked, "reference"))
	}
	if there > 0 {
		c.tell(format.Dangling, format.Note, -1, "", "%s outside of the archive: their content cannot be verified", many(there, "reference"))
	}
	return nil
}

// place returns the offset of a reference in the object.
func (a *archive) place(r ref) int64 {
	if a.form == tarForm {
		return a.rfsRow.d + int64(r.at)
	}
	return int64(r.at)
}

// file checks that a file of a folder exists and is long enough.
func (c *checker) file(ctx context.Context, r ref, p storedAt) error {
	info, err := storekit.Briefly(c.a.st, p.object).Info(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.lost(format.Dangling, c.a.place(r), r.key, "refers to %s, which does not exist", p.object)
	case err != nil:
		return err
	case p.off+p.n > info.Size:
		c.lost(format.OutOfBounds, c.a.place(r), r.key, "refers to bytes %s of %s, which has %d", shownRange(p.off, p.n), p.object, info.Size)
	}
	return nil
}

// orphans counts blobs that no key refers to.
func (c *checker) orphans(k *keys) {
	referred := k.referred()
	n, bytes := 0, int64(0)
	for r := range c.a.table.all {
		if isOrphan(r.name, referred) {
			n, bytes = n+1, bytes+r.s
		}
	}
	if n > 0 {
		c.tell(format.Gap, format.Note, -1, "", "%s, %d bytes, without a key: rewritten or deleted content", many(n, "blob"), bytes)
	}
}

// referred returns the members that keys refer to.
func (k *keys) referred() map[string]bool {
	names := map[string]bool{}
	for _, r := range k.a.rfs.refs {
		if name, _, ok := k.a.rfs.inside(k.a.rfs.value(r)); ok {
			names[name] = true
		}
	}
	return names
}

// isOrphan reports whether a member is a blob that no key refers to. Members with other names
// were added by the user.
func isOrphan(name string, referred map[string]bool) bool {
	return strings.HasPrefix(name, blobDir) && !referred[name]
}

// arrays compares the chunks that arrays should have with those that exist.
func (c *checker) arrays(ctx context.Context, k *keys) error {
	for _, r := range c.a.rfs.refs {
		dir, ok := strings.CutSuffix(r.key, ".zarray")
		if !ok || dir != "" && !strings.HasSuffix(dir, "/") {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		v := c.a.rfs.meta(r)
		if len(v) == 0 || v[0] != '{' && v[0] != ' ' && v[0] != '\n' {
			continue
		}
		m, err := zarr.ParseMeta(v)
		if err == nil {
			_, err = m.Prover(mostBytes)
		}
		if errors.Is(err, zarr.ErrCorrupt) {
			c.lost(format.BadData, c.a.place(r), r.key, "is not valid array metadata: %v", err)
		} else if m != nil {
			c.chunks(k, strings.TrimSuffix(dir, "/"), m)
		}
	}
	return nil
}

// chunks checks the chunks of an array. Missing chunks are normal if the array often has its fill
// value. But if the first chunks exist, the last of these is short, and all others are missing,
// the reference has probably lost them: it stops at the first chunk of less than 1000 bytes.
func (c *checker) chunks(k *keys, dir string, m *zarr.Meta) {
	const most = 1 << 20 // larger arrays are not checked further
	grid, n := m.Grid(), m.NumChunks()
	if n <= 1 || n > most {
		return
	}
	present, prefix, lastShort := int64(0), true, false
	for i := range n {
		index, rest := make([]int64, len(grid)), i
		for d := len(grid) - 1; d >= 0; d-- {
			index[d], rest = rest%grid[d], rest/grid[d]
		}
		at, ok := k.find(zarrkey.Join(dir, m.ChunkKey(index...)))
		if !ok {
			continue
		}
		if present != i {
			prefix = false
		}
		present++
		v := k.a.rfs.value(at)
		lastShort = v[0] != '['
	}
	switch {
	case present == n || present == 0:
	case prefix && lastShort:
		c.tell(format.Gap, format.Warning, -1, dir, "only the first %d of %d chunks exist, and the last one is short: the reference loses chunks in this way; they read as the fill value", present, n)
	default:
		c.tell(format.Gap, format.Note, -1, dir, "%d of %d chunks exist: the others read as the fill value", present, n)
	}
}
