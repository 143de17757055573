package rvn

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// archive is everything before the contents.
type archive struct {
	obj     store.Object
	name    string
	size    int64
	limits  format.Limits
	near    bool
	repairs bool // search for a single wrong bit of a damaged index

	said  header // as stored
	h     header // as it should be, which differs only in damaged archives
	block [3]span
	meta  []byte // block 2 as stored
	table struct {
		sections []section // nil for a single frame that must be read from its beginning
		span     span      // place of the skippable frame
	}
	frame  []byte // the beginning of block 4, which shows its content size
	index  *index
	byName *kit.Index
	notes  []format.Problem // problems of the archive as a whole
	doubt  *format.Problem  // the first note that concerns all of the index
}

type span struct{ off, len int64 }

func (s span) end() int64 { return s.off + s.len }

const (
	metaBlock = iota
	indexBlock
	contentBlock
)

// headGuess is how much of a remote archive is fetched first: the index of about six thousand
// files. More would make small packages slow; less would cost packages with many files another
// round trip.
const headGuess = 256 << 10

// load reads everything before the contents.
func load(ctx context.Context, st store.Store, name string, o format.OpenOptions) (*archive, error) {
	return loadAs(ctx, st, &archive{name: name}, o)
}

func loadAs(ctx context.Context, st store.Store, a *archive, o format.OpenOptions) (_ *archive, err error) {
	guess := headGuess
	if st.Can().Near {
		guess = kit.ProbeSize
	}
	obj, head, size, err := kit.OpenPart(ctx, st, a.name, guess, storekit.ReadHead)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			obj.Close()
		}
	}()
	a.obj, a.size, a.limits = obj, size, o.Limits.OrDefault()
	if len(head) < headerLen {
		return nil, a.corrupt(format.Truncated, "header", 0, "expected a header of %d bytes, found %d", headerLen, len(head))
	}
	if !bytes.Equal(head[:3], magic[:]) {
		return nil, a.corrupt(format.BadMagic, "magic", 0, "expected c8 64 32, found % x", head[:3])
	}
	var swapped bool
	a.said, swapped = parseHeader(head)
	a.h = a.said
	if swapped {
		p := a.problem(format.Unsupported, "byte-order", format.Error, 4, "written with the other byte order, which no known reader supports: %d files, version %d", a.said.Files, a.said.Version)
		return nil, &format.CorruptError{Format: "rvn", Problem: p, Err: errors.ErrUnsupported}
	}
	a.near = st.Can().Near
	err = a.readBlocks(ctx, head)
	if c, _ := errors.AsType[*format.CorruptError](err); c != nil && c.Code != format.Limit {
		// The header is wrong, but frames can be found without it.
		if other := a.findBlocks(ctx, head); !errors.Is(other, errNoFrame) && !errors.Is(other, format.ErrCorrupt) {
			err = other
		}
	}
	if err != nil {
		return nil, err
	}
	return a, a.finish(ctx)
}

func (a *archive) problem(code format.Code, class string, sev format.Severity, off int64, msg string, args ...any) format.Problem {
	return format.Problem{Code: code, Class: class, Severity: sev, Volume: a.name, Off: off, Message: fmt.Sprintf(msg, args...)}
}

func (a *archive) note(code format.Code, class string, sev format.Severity, off int64, msg string, args ...any) {
	a.notes = append(a.notes, a.problem(code, class, sev, off, msg, args...))
}

func (a *archive) corrupt(code format.Code, class string, off int64, msg string, args ...any) error {
	return &format.CorruptError{Format: "rvn", Problem: a.problem(code, class, format.Error, off, msg, args...)}
}

// readBlocks reads blocks 2 and 3 from where the header says they are.
func (a *archive) readBlocks(ctx context.Context, head []byte) error {
	h := a.h
	if h.contentsOff() > a.size {
		return a.corrupt(format.Truncated, "prefix", headerLen, "metadata of %d bytes and index of %d end at %d, but the archive has %d bytes", h.MetaComp, h.IndexComp, h.contentsOff(), a.size)
	}
	prefix, err := a.read(ctx, head, min(h.contentsOff()+maxFrameHeader, a.size))
	if err != nil {
		return err
	}
	if err := a.settle(prefix); err != nil {
		return err
	}
	a.place(prefix)
	return nil
}

// place sets where the blocks are, and keeps what is needed of the prefix.
func (a *archive) place(prefix []byte) {
	indexOff, contentsOff := a.h.indexOff(), a.h.contentsOff()
	a.meta = bytes.Clone(prefix[headerLen:indexOff])
	a.frame = bytes.Clone(prefix[contentsOff:])
	contents := span{contentsOff, int64(a.h.ArcComp)}
	if left := a.size - contentsOff; contents.len > left || contents.len == 0 && a.index.total > 0 {
		contents.len = left
	}
	a.block = [3]span{{headerLen, indexOff - headerLen}, {indexOff, contentsOff - indexOff}, contents}
	a.findTable(prefix[indexOff:contentsOff], indexOff)
}

// read returns the first n bytes of the object; head has the first of them.
func (a *archive) read(ctx context.Context, head []byte, n int64) ([]byte, error) {
	if n <= int64(len(head)) {
		return head[:n], nil
	}
	if n > a.limits.Index {
		return nil, a.corrupt(format.Limit, "index-size", headerLen, "metadata and index have %d bytes, more than the limit of %d", n, a.limits.Index)
	}
	b := append(make([]byte, 0, n), head...)[:n]
	return b, a.obj.ReadAt(ctx, b[len(head):], int64(len(head)))
}

// maxRatio is the largest accepted ratio of an index to its compressed size. Digests and times
// keep real indexes far below.
const maxRatio = 1000

func (a *archive) unpackIndex(b3 []byte) ([]byte, error) {
	off := a.h.indexOff()
	limit := min(a.limits.Index, 1<<20+maxRatio*int64(len(b3)))
	flat, err := unpack(b3, a.h.flatByCounts(), limit)
	if errors.Is(err, errTooLong) {
		return nil, a.corrupt(format.Limit, "index-size", off, "%d bytes of index decode to more than the limit of %d", len(b3), limit)
	}
	if err != nil && a.repairs {
		a.repairs = false // it takes seconds
		if at := repairBit(b3, a.h.flatByCounts()); at >= 0 {
			a.note(format.BadChecksum, "index-checksum", format.Error, off+int64(at), "the index is damaged: one bit of this byte is flipped; the checksum matches with the bit corrected")
			return unpack(b3, a.h.flatByCounts(), limit)
		}
	}
	if errors.Is(err, codec.ErrChecksum) && int64(len(flat)) == a.h.flatByCounts() {
		// It may be wrong, and is used nevertheless.
		p := a.problem(format.BadChecksum, "index-checksum", format.Error, off, "the index is damaged: it does not match its checksum, so names and offsets may be wrong")
		a.doubt = &p
		a.notes = append(a.notes, p)
		return flat, nil
	}
	if err != nil {
		return nil, a.corrupt(format.BadIndex, "index-zstd", off, "the index of %d bytes cannot be decoded: %v", len(b3), err)
	}
	return flat, nil
}

// bitLimit is the number of bytes that may be decoded to find a wrong bit, which takes a few
// seconds.
const bitLimit = 4 << 30

// repairBit flips the single bit that prevents a frame with a checksum from decoding to want bytes.
// It returns its position, or -1 if there is none or it would take too many tries.
func repairBit(frame []byte, want int64) (at int) {
	if want <= 0 || len(frame) < frameHeaderLen || want > bitLimit/8/int64(len(frame)) {
		return -1
	}
	z, _ := codec.Lookup(codec.Zstd)
	flat := make([]byte, 0, want)
	for i := range frame {
		for bit := range 8 {
			frame[i] ^= 1 << bit
			if frame[4]&4 != 0 { // it has a checksum
				if b, err := z.Append(flat, frame, int(want)); err == nil && int64(len(b)) == want {
					return i
				}
			}
			frame[i] ^= 1 << bit
		}
	}
	return -1
}

var errTooLong = errors.New("longer than the limit")

// unpack decodes a block that should decode to want bytes, and to at most limit.
func unpack(b []byte, want, limit int64) ([]byte, error) {
	if len(b) == 0 {
		return nil, nil
	}
	z, _ := codec.Lookup(codec.Zstd)
	if want > 0 && want <= limit {
		if flat, err := z.Append(nil, b, int(want)); err == nil {
			return flat, nil
		}
	}
	// The size is wrong, or the block is damaged; this finds out the size.
	d, err := z.Decode(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	flat, err := io.ReadAll(io.LimitReader(d, limit+1))
	if int64(len(flat)) > limit {
		return nil, errTooLong
	}
	return flat, err
}

// settle parses block 3. If the counts do not fit its length, other counts are tried one by one.
// If exactly one change makes the index valid, it is used.
func (a *archive) settle(prefix []byte) error {
	flat, err := a.unpackIndex(prefix[a.h.indexOff():a.h.contentsOff()])
	if err != nil {
		return err
	}
	a.h.IndexFlat = uint32(len(flat))
	var paths errPaths
	if a.h.flatByCounts() == int64(len(flat)) {
		x, err := parseIndex(a.name, a.h, flat, a.limits.Index)
		if errors.As(err, &paths) {
			return a.corrupt(format.Limit, "path-length", a.h.indexOff(), "%v", err)
		}
		a.index = x
		return err
	}
	var found []header
	var index *index
	for _, h := range guesses(a.h, int64(len(flat))) {
		if x, err := parseIndex(a.name, h, flat, a.limits.Index); err == nil && x.plausible() {
			found, index = append(found, h), x
		}
	}
	if len(found) != 1 {
		return a.corrupt(format.BadHeader, "index-counts", 4, "%d groups, %d owners, %d link blocks, %d files and %d name blocks make an index of %d bytes, found %d",
			a.h.Groups, a.h.Owners, a.h.LinkBlocks, a.h.Files, a.h.NameBlocks, a.h.flatByCounts(), len(flat))
	}
	a.h, a.index = found[0], index
	return nil
}

// guesses returns the headers with one different count for which the index has n bytes.
func guesses(h header, n int64) []header {
	var out []header
	try := func(have int64, unit int64, most int64, set func(*header, int64)) {
		v := (n-h.flatByCounts())/unit + have
		if (n-h.flatByCounts())%unit != 0 || v < 0 || v > most {
			return
		}
		g := h
		set(&g, v)
		out = append(out, g)
	}
	try(int64(h.Groups), blockLen, 1<<16-1, func(g *header, v int64) { g.Groups = uint16(v) })
	try(int64(h.Owners), blockLen, 1<<16-1, func(g *header, v int64) { g.Owners = uint16(v) })
	try(int64(h.LinkBlocks), blockLen, 1<<32-1, func(g *header, v int64) { g.LinkBlocks = uint32(v) })
	try(int64(h.Files), recordLen, 1<<32-1, func(g *header, v int64) { g.Files = uint32(v) })
	try(int64(h.NameBlocks), blockLen, 1<<32-1, func(g *header, v int64) { g.NameBlocks = uint32(v) })
	return out
}

// findBlocks finds the blocks of an archive whose header is wrong: each begins with a frame, and
// frames show where they end.
func (a *archive) findBlocks(ctx context.Context, head []byte) error {
	frames, err := a.frames(ctx, headerLen, 3)
	if err != nil {
		return err
	}
	for _, at := range []int{1, 0} { // the index is the second block, or there is no metadata
		if len(frames) <= at || frames[at].skippable || frames[at].cut {
			continue
		}
		indexOff, contentsOff := int64(headerLen), a.size
		if at == 1 {
			indexOff = frames[1].off
		}
		if len(frames) > at+1 {
			contentsOff = frames[at+1].off
		}
		prefix, err := a.read(ctx, head, min(contentsOff+maxFrameHeader, a.size))
		if err != nil {
			return err
		}
		a.h = a.said
		a.h.MetaComp, a.h.IndexComp = uint32(indexOff-headerLen), uint32(contentsOff-indexOff)
		if a.settle(prefix) == nil && a.index.plausible() {
			a.place(prefix)
			return nil
		}
	}
	return errNoFrame
}

// frameSpan is a data frame with the skippable frames after it.
type frameSpan struct {
	span
	skippable bool // there are only skippable frames
	cut       bool // it does not end within the object
}

// maxFrames is more than any archive has.
const maxFrames = 1 << 20

// frames visits at most n frames from off, without decoding them.
func (a *archive) frames(ctx context.Context, off int64, n int) ([]frameSpan, error) {
	var out []frameSpan
	w := window{ctx: ctx, a: a}
	for off < a.size {
		b := w.at(off, maxFrameHeader)
		if k, ok := skippable(b); ok {
			end := off + 8 + k
			if len(out) == 0 {
				out = append(out, frameSpan{span: span{off: off}, skippable: true})
			}
			last := &out[len(out)-1]
			last.len = min(end, a.size) - last.off
			last.cut = end > a.size
			off = end
			continue
		}
		if _, err := parseFrame(b); err != nil || len(out) == n {
			break
		}
		_, end, err := walkFrame(off, w.at)
		s := frameSpan{span: span{off, min(end, a.size) - off}}
		if s.cut = err != nil || end > a.size; s.cut {
			s.len = a.size - off
		}
		out = append(out, s)
		off = s.end()
	}
	return out, w.err
}

// walkFrame finds where the frame at off ends, and where its last block begins, without decoding
// it. The function at returns the bytes at an offset.
func walkFrame(off int64, at func(off int64, n int) []byte) (lastBlock, end int64, err error) {
	f, err := parseFrame(at(off, maxFrameHeader))
	if err != nil {
		return 0, 0, err
	}
	off += int64(f.len)
	for last := false; !last; {
		n := 0
		if n, last, err = parseBlock(at(off, blockHeaderLen)); err != nil {
			return 0, 0, err
		}
		lastBlock = off
		off += blockHeaderLen + int64(n)
	}
	if f.checksum {
		off += 4
	}
	return lastBlock, off, nil
}

// within returns the function at for bytes in memory.
func within(b []byte) func(off int64, n int) []byte {
	return func(off int64, n int) []byte {
		off = min(off, int64(len(b)))
		return b[off:min(off+int64(n), int64(len(b)))]
	}
}

// window reads small parts of an object that are close together.
type window struct {
	ctx context.Context
	a   *archive
	off int64
	buf []byte
	err error // an error of the store, after which there is nothing more
}

// at returns n bytes at off, or fewer at the end of the object.
func (w *window) at(off int64, n int) []byte {
	n = int(min(int64(n), max(w.a.size-off, 0)))
	if off < w.off || off+int64(n) > w.off+int64(len(w.buf)) {
		w.off, w.buf = off, make([]byte, min(4<<10, max(w.a.size-off, 0)))
		w.err = cmp.Or(w.err, w.a.obj.ReadAt(w.ctx, w.buf, off))
	}
	if w.err != nil {
		return nil
	}
	return w.buf[off-w.off:][:n]
}

// findTable looks for a section table after the index, which is at off.
func (a *archive) findTable(b3 []byte, off int64) {
	_, end, err := walkFrame(0, within(b3))
	if err != nil {
		return
	}
	for at := int(end); len(b3)-at >= 8; {
		n, ok := skippable(b3[at:])
		if !ok || n > int64(len(b3)-at-8) {
			return
		}
		t, err := parseTable(b3[at+8:][:n])
		here := span{off + int64(at), 8 + n}
		at += int(8 + n)
		if err == nil && t == nil {
			continue
		}
		if err == nil {
			err = a.fits(t)
		}
		if err != nil {
			a.note(format.BadIndex, "section-table", format.Warning, here.off, "section table not used: %v", err)
			continue
		}
		a.table.sections, a.table.span = t, here
		return
	}
}

// fits returns why a table does not belong to this archive's contents, or nil.
func (a *archive) fits(t []section) error {
	end := t[len(t)-1]
	switch {
	case end.flat != a.index.total:
		return fmt.Errorf("it covers %d bytes of content, the records %d", end.flat, a.index.total)
	case end.comp+int64(len(lastBlock)) > a.block[contentBlock].len && a.block[contentBlock].end() <= a.size:
		return fmt.Errorf("it ends at byte %d of %d", end.comp, a.block[contentBlock].len)
	case len(a.frame) < frameHeaderLen || a.frame[4]&^0x18 != 0 || t[0].comp != frameHeaderLen:
		return errors.New("the contents do not begin with the frame that it describes")
	}
	return nil
}

// measure determines the size of the contents if the header cannot be right, and if that takes no
// round trips.
func (a *archive) measure(ctx context.Context) error {
	c := &a.block[contentBlock]
	if !a.near && c.len > 1<<20 || c.end() == a.size || a.index.total == 0 {
		return nil
	}
	frames, err := a.frames(ctx, c.off, maxFrames)
	if err != nil || len(frames) == 0 {
		return err
	}
	for _, f := range frames {
		if f.off < c.end() && f.end() > c.end() && !f.cut {
			c.len = f.end() - c.off
		}
	}
	return nil
}

// finish notes what the header should contain, and what is unusual.
func (a *archive) finish(ctx context.Context) error {
	a.byName = kit.NewIndex(a.index)
	if err := a.measure(ctx); err != nil {
		return err
	}
	h, s := &a.h, &a.said
	if a.index.total > 0 || h.ArcFlat > 0 {
		h.ArcFlat = uint64(a.index.total)
	}
	if t := a.table.sections; t != nil {
		h.ArcComp = uint32(t[len(t)-1].comp + int64(len(lastBlock)))
	}
	wrong := func(off int64, what string, is, should uint64) {
		if is != should {
			a.note(format.BadHeader, "header-"+what, format.Error, off, "%s: expected %d, found %d", what, should, is)
		}
	}
	wrong(4, "groups", uint64(s.Groups), uint64(h.Groups))
	wrong(6, "owners", uint64(s.Owners), uint64(h.Owners))
	wrong(8, "link-blocks", uint64(s.LinkBlocks), uint64(h.LinkBlocks))
	wrong(12, "files", uint64(s.Files), uint64(h.Files))
	wrong(16, "meta-comp", uint64(s.MetaComp), uint64(h.MetaComp))
	wrong(20, "index-comp", uint64(s.IndexComp), uint64(h.IndexComp))
	wrong(28, "name-blocks", uint64(s.NameBlocks), uint64(h.NameBlocks))
	wrong(36, "index-flat", uint64(s.IndexFlat), uint64(h.IndexFlat))
	return nil
}
