package lindi

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"strconv"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/arrays/pyjson"
	"github.com/holdall/holdall/internal/base/blake3"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// tarSink writes a tar. Entry, index and lindi.json should be at the front, so that one read
// finds all of them, but they are known last. There are three ways to do that:
//
//   - The manifest shows how much space they need. It is left at the front and filled in at the
//     end, if the store's writer can go back.
//   - If the writer can only go back to the entry, or the space is too small, they are written
//     last, and the entry says so.
//   - If it cannot go back at all, members are kept in scratch space.
type tarSink struct {
	name  string
	out   store.Writer
	patch func(ctx context.Context, p []byte, off int64) error
	wait  sorter.Scratch // members, if nothing can be written before the front
	plain bool

	indexRoom, rfsRoom int64 // space at the front

	members memberTable
	head    []byte
	lost    bool // members without a digest have lost it

	kit.Appender // writes to out, or to wait
}

func newAppender() kit.Appender {
	return kit.Appender{Algo: digestAlgo, NewHash: func() hash.Hash { return blake3.New() }}
}

// Sizes for estimating a text before it is known.
const (
	rowRest  = 101 // a row without its name and numbers, with a digest
	refRest  = 24  // a reference without its names and size
	topSlack = 1024
)

func newTarSink(ctx context.Context, st store.Store, name string, o format.CreateOptions, in input, g *runs) (*tarSink, error) {
	out, err := storekit.Create(ctx, st, name)
	if err != nil {
		return nil, err
	}
	t := &tarSink{name: name, out: out, plain: o.NoDigests,
		Appender: newAppender()}
	t.Out = out
	can := out.Can()
	limit := can.PatchLimit
	t.patch = can.Patch
	if limit < frontLen {
		t.patch = nil
		if t.wait, err = o.Scratch(); err != nil {
			out.Abort()
			return nil, err
		}
		t.Out = t.wait
		return t, nil
	}
	t.estimate(o.Manifest, o.Carry, in, g)
	front := frontLen + t.frontRoom()
	if front > limit || len(o.Manifest) == 0 {
		t.indexRoom, t.rfsRoom, front = 0, 0, frontLen
	}
	if err := t.zeros(front); err != nil {
		out.Abort()
		return nil, err
	}
	return t, nil
}

// frontRoom returns the size of index and lindi.json at the front, with their headers.
func (t *tarSink) frontRoom() int64 {
	if t.indexRoom == 0 {
		return 0
	}
	return 2*blockLen + t.indexRoom + t.rfsRoom
}

// estimate estimates the space for index and lindi.json, slightly too large.
func (t *tarSink) estimate(manifest []format.Entry, carry [][2]string, in input, g *runs) {
	index, rfs := int64(topSlack), int64(topSlack)
	for _, kv := range carry {
		rfs += int64(len(kv[0]) + len(kv[1]))
	}
	end := int64(0) // approximate end of the last member
	for _, e := range manifest {
		end += 2*blockLen + 2*rowRest + padded(e.Size)
	}
	digits := int64(len(strconv.FormatInt(2*end, 10)))
	var quoted []byte
	array, run, runName := "", int64(0), int64(0)
	endRun := func() {
		if run < blobFrom {
			rfs += run * 3 / 2
		} else {
			index += runName + rowRest + 3*digits + int64(len(blobDir))
		}
		run = 0
	}
	for _, e := range manifest {
		quoted = pyjson.AppendString(quoted[:0], e.Name)
		name := int64(len(quoted))
		rowLen := name + rowRest + 3*digits
		if of, ok := g.of(e.Name, e.Size); ok && in == fromZarr {
			if of != array || e.Size > g.most-run {
				endRun()
			}
			array, run, runName = of, run+e.Size, name
			rfs += 2*name + refRest + 2*digits
			continue
		}
		switch {
		case e.Kind != format.File:
		case in == fromZarr && isInline(e.Name, e.Size):
			rfs += name + e.Size*3/2 + refRest
		case in == fromZarr:
			rfs += 2*name + refRest + digits
			index += rowLen + int64(len(blobDir))
		case in == fromJSON || e.Name == rfsName:
			rfs += e.Size
		default:
			index += rowLen
		}
	}
	endRun()
	const most = 1 << 31
	t.indexRoom, t.rfsRoom = padded(min(index, most)), padded(min(rfs, most))
}

var zeroBlock [64 << 10]byte

func (t *tarSink) zeros(n int64) error {
	for n > 0 && t.Err == nil {
		k := min(n, int64(len(zeroBlock)))
		if err := t.Append(zeroBlock[:k]); err != nil {
			return err
		}
		n -= k
	}
	return t.Err
}

func (t *tarSink) put(ctx context.Context, name string, e format.Entry, r io.Reader) error {
	if t.Err != nil {
		return t.Err
	}
	if e.Size > maxSize {
		return kit.Refuse(e.Name, "%d bytes exceed the limit of a tar header (%d)", e.Size, int64(maxSize))
	}
	start := t.Pos
	t.head = appendHeader(t.head[:0], name, e.Size)
	if err := t.Append(t.head); err != nil {
		return err
	}
	sum, err := t.Content(ctx, e, r, t.plain)
	if err == nil {
		err = t.zeros(padded(e.Size) - e.Size)
	}
	if err != nil {
		// A tar cannot contain bytes that cannot be taken back.
		if t.Err == nil && !t.TakeBack(start) {
			t.Err = fmt.Errorf("%s: a member failed halfway, and this store cannot undo it: %w", t.name, err)
		}
		return err
	}
	t.members.add(row{name: name, o: start, d: start + blockLen, s: e.Size, sum: sum})
	return nil
}

// finish writes lindi.json, the index, the entry and the end.
func (t *tarSink) finish(ctx context.Context, rfs []byte) (int64, []string, error) {
	if t.Err != nil {
		return 0, nil, t.Err
	}
	var err error
	if t.wait != nil {
		err = t.finishWaiting(ctx, rfs)
	} else {
		err = t.finishPatched(ctx, rfs)
	}
	if err == nil {
		if err = t.zeros(terminatorLen); err == nil {
			err = t.Flush()
		}
	}
	if err != nil {
		t.Err = err
		return 0, nil, err
	}
	info, err := t.out.Commit(ctx)
	if t.Err = err; err != nil {
		return 0, nil, err
	}
	return info.Size, []string{t.name}, nil
}

// slot is a place for a JSON text.
type slot struct {
	o, room int64 // offset of its header; space for the text
	used    int64 // length of the text in it; room if unknown
}

func (s slot) end() int64 { return s.o + blockLen + s.room }

// front is where the archive's own members are.
type front struct{ index, rfs slot }

// frontAt returns a front with the index at a place and lindi.json after it.
func frontAt(at, indexRoom, rfsRoom int64) front {
	return front{slot{o: at, room: indexRoom}, slot{o: at + blockLen + indexRoom, room: rfsRoom}}
}

// entry returns the entry for these texts.
func (f front) entry(index textProof, rfs []byte) entry {
	return entry{o: f.index.o, d: f.index.o + blockLen, s: f.index.room,
		indexText: index.n, rfsAt: f.rfs.o + blockLen, rfsText: int64(len(rfs)),
		indexSum: index.sum, rfsSum: sumOf(rfs, ourRFS)}
}

// entryBlocks returns the header and content of an entry.
func entryBlocks(e entry) []byte {
	p := appendHeader(make([]byte, 0, frontLen), entryName, entryLen)
	return pad(appendEntry(p, e), frontLen)
}

// members returns index and lindi.json with their headers, padded.
func (f front) members(index, rfs []byte) []byte {
	p := appendHeader(make([]byte, 0, f.rfs.end()-f.index.o), indexName, f.index.room)
	p = pad(append(p, index...), blockLen+f.index.room)
	p = appendHeader(p, rfsName, f.rfs.room)
	return pad(append(p, rfs...), f.rfs.end()-f.index.o)
}

// appendRows appends the rows of the archive's own members, which are the first in its index.
func (f front) appendRows(p []byte) []byte {
	p = append(appendRow(p, row{name: entryName, d: entryData, s: entryLen}), ',')
	p = append(appendRow(p, row{name: indexName, o: f.index.o, d: f.index.o + blockLen, s: f.index.room}), ',')
	return appendRow(p, row{name: rfsName, o: f.rfs.o, d: f.rfs.o + blockLen, s: f.rfs.room})
}

// indexPiece is how much of an index is written at once.
const indexPiece = 64 << 10

// indexText writes the index of all members in pieces, with their offsets shifted. It returns its
// length and digest.
func (t *tarSink) indexText(f front, shift int64, put func(p []byte) error) (is textProof, err error) {
	p, sum := append(make([]byte, 0, 2*indexPiece), '{'), blake3.New()
	piece := func() {
		sum.Write(p)
		is.n += int64(len(p))
		err = put(p)
		p = p[:0]
	}
	if t.lost {
		p = append(p, `"`+lostKey+`": true, `...)
	}
	p = f.appendRows(append(p, indexHead[1:]...))
	for m := range t.members.all {
		m.o, m.d = m.o+shift, m.d+shift
		if p = appendRow(append(p, ','), m); len(p) < indexPiece {
			continue
		}
		if piece(); err != nil {
			return is, err
		}
	}
	p = append(p, indexTail...)
	piece()
	is.sum = string(sum.Sum(nil))
	return is, err
}

// wholeIndex returns the text of the index in memory, and its length and digest.
func (t *tarSink) wholeIndex(f front, shift int64) (text []byte, is textProof) {
	is, _ = t.indexText(f, shift, func(p []byte) error {
		text = append(text, p...)
		return nil
	})
	return text, is
}

// pad pads p with blanks to n bytes.
func pad(p []byte, n int64) []byte {
	for int64(len(p)) < n {
		p = append(p, ' ')
	}
	return p
}

// finishPatched fills in the front.
func (t *tarSink) finishPatched(ctx context.Context, rfs []byte) error {
	if err := t.Flush(); err != nil {
		return err
	}
	if fit, err := t.fillFront(ctx, rfs); fit || err != nil {
		return err
	}
	// The front is too small, so they are written after the members, and the space at the front
	// is abandoned.
	var unused []byte
	if n := t.frontRoom(); n > 0 {
		unused = appendHeader(nil, trashName(rfsName, tag(n)), n-blockLen)
	}
	rfsRoom := padded(int64(len(rfs)) + 1)
	_, room := t.wholeIndex(frontAt(t.Pos, 0, rfsRoom), 0)
	f := frontAt(t.Pos, padded(room.n+64*3), rfsRoom) // offsets have more digits there
	index, is := t.wholeIndex(f, 0)
	if is.n > f.index.room {
		f = frontAt(t.Pos, padded(is.n+256), rfsRoom)
		index, is = t.wholeIndex(f, 0)
	}
	if err := t.Append(f.members(index, rfs)); err != nil {
		return err
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return t.patch(ctx, append(entryBlocks(f.entry(is, rfs)), unused...), 0)
}

// errFull means that the space at the front is too small.
var errFull = errors.New("too small")

// fillFront writes index and lindi.json into the space at the front, and reports whether they fit.
func (t *tarSink) fillFront(ctx context.Context, rfs []byte) (fit bool, err error) {
	f := frontAt(frontLen, t.indexRoom, t.rfsRoom)
	if t.indexRoom == 0 || int64(len(rfs)) > t.rfsRoom {
		return false, nil
	}
	at := f.index.o + blockLen
	put := func(p []byte) error {
		if err == nil {
			err = t.patch(ctx, p, at)
			at += int64(len(p))
		}
		return err
	}
	blanks := func(to int64) {
		for at < to && err == nil {
			put(pad(nil, min(to-at, indexPiece)))
		}
	}
	is, full := t.indexText(f, 0, func(p []byte) error {
		if int64(len(p)) > f.index.end()-at {
			return errFull
		}
		return put(p)
	})
	if full == errFull {
		return false, nil
	}
	blanks(f.index.end())
	put(appendHeader(nil, rfsName, f.rfs.room))
	put(rfs)
	blanks(f.rfs.end())
	at = 0
	put(appendHeader(entryBlocks(f.entry(is, rfs)), indexName, f.index.room))
	return true, err
}

// finishWaiting writes the front, and then the members from scratch space.
func (t *tarSink) finishWaiting(ctx context.Context, rfs []byte) error {
	if err := t.Flush(); err != nil {
		return err
	}
	n := t.Pos
	// This assumes the largest possible offsets.
	_, is := t.wholeIndex(frontAt(math.MaxInt64/2, 0, 0), 1<<50)
	f := frontAt(frontLen, padded(is.n), padded(int64(len(rfs))+1))
	index, is := t.wholeIndex(f, f.rfs.end())
	wait := t.wait
	t.wait, t.Out = nil, t.out
	defer wait.Close()
	if err := t.Append(append(entryBlocks(f.entry(is, rfs)), f.members(index, rfs)...)); err != nil {
		return err
	}
	if _, err := wait.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return kit.CopyContent(ctx, format.Entry{Size: n}, io.LimitReader(wait, n), make([]byte, 64<<10), nil, t.Append)
}

func (t *tarSink) abort() error {
	if t.wait != nil {
		t.wait.Close()
		t.wait = nil
	}
	return t.out.Abort()
}

func (t *tarSink) broken() error { return t.Err }
