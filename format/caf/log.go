package caf

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/jsontext"
	"github.com/holdall/holdall/internal/base/blake3"
	"github.com/holdall/holdall/internal/base/scan"
	"github.com/holdall/holdall/store"
)

// A segment of a gateway's log becomes a CAF when it is sealed. It begins with a header, and has
// batches:
//
//	| header | frame | contents | frame | contents | … | index | footer |
//
// A frame has the rows of the contents that follow it end to end. An index with the member "log",
// which has the ID of the header, says that headers, frames and replaced contents belong to no
// file. Numbers are little-endian. The header is
//
//	magic, ID, number u64, next sequence number u64, length of text u32, text, CRC-32C u32
//
// and a frame is
//
//	magic, ID, number u64, own offset u64, sequence number of the first row u64,
//	length of rows u32, length of contents u64, rows, CRC-32C u32
//
// ID and offset keep contents that look like frames, such as a copy of the segment itself, from
// being read as such.
const (
	logMagic   = "\x89CAFlog1"
	batchMagic = "\x89CAFbat1"
	logIDLen   = 16
	logFixed   = len(logMagic) + logIDLen + 8 + 8 + 4
	batchFixed = len(batchMagic) + logIDLen + 8 + 8 + 8 + 4 + 8
	crcLen     = 4

	maxLogText  = 64 << 10
	maxLogRows  = 16 << 20 // bytes of rows of a batch
	maxRowText  = 1 << 20  // of a row
	maxBatch    = 1 << 16  // rows of a batch
	mostLogSeqs = 1 << 62

	logKey = "log"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A Log is the header of a segment.
type Log struct {
	ID     [16]byte // random
	Number int64    // of the segment
	Seq    int64    // sequence number of the first row
	Text   string   // of the caller, at most 64 KiB
}

// A LogRow is a version of a file, or its deletion.
type LogRow struct {
	Name    string
	Seq     int64 // set by AppendBatch: grows by one with each row
	Deleted bool
	// Off and Size are the place of the content in the segment, or in the archive that Elsewhere
	// names in words of the caller. AppendBatch sets Off unless there is an Elsewhere.
	Off, Size int64
	Sum       [32]byte  // BLAKE3 of the content; may be zero if it is elsewhere
	Modified  time.Time // in milliseconds
	ETag      string    // with its quotes
	Headers   string    // a JSON object, sorted by name, as in the index; "" if there are none
	Elsewhere string
}

// Here reports whether the content is in the segment.
func (r *LogRow) Here() bool { return !r.Deleted && r.Elsewhere == "" }

// Append appends the header.
func (l *Log) Append(b []byte) []byte {
	from := len(b)
	b = append(append(b, logMagic...), l.ID[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(l.Number))
	b = binary.LittleEndian.AppendUint64(b, uint64(l.Seq))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(l.Text)))
	b = append(b, l.Text...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
}

// AppendBatch appends the frame of a batch that is stored at off, and sets Seq and Off of its rows.
// The contents must be stored after it. It returns an error if a row cannot be stored.
func (l *Log) AppendBatch(b []byte, number, off, seq int64, rows []*LogRow) ([]byte, error) {
	from, contents := len(b), int64(0)
	b = append(append(b, batchMagic...), l.ID[:]...)
	for _, n := range []int64{number, off, seq} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	lengths := len(b)
	b = append(b, make([]byte, 4+8)...)
	if len(rows) > maxBatch {
		return nil, fmt.Errorf("a batch has %d rows, expected at most %d", len(rows), maxBatch)
	}
	for i, r := range rows {
		if err := r.check(); err != nil {
			return nil, err
		}
		if r.Seq = seq + int64(i); r.Here() {
			r.Off = contents // from the end of the frame, which is not known yet
			contents += r.Size
		}
		same := i > 0 && r.Headers == rows[i-1].Headers
		b = r.append(b, same)
	}
	n := len(b) - lengths - 4 - 8
	if n > maxLogRows {
		return nil, fmt.Errorf("a batch has %d bytes of rows, expected at most %d", n, maxLogRows)
	}
	binary.LittleEndian.PutUint32(b[lengths:], uint32(n))
	binary.LittleEndian.PutUint64(b[lengths+4:], uint64(contents))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
	for _, r := range rows {
		if r.Here() {
			r.Off += off + int64(len(b)-from)
		}
	}
	return b, nil
}

// check returns an error if the row cannot be stored, or would not be the same in an index.
func (r *LogRow) check() error {
	switch {
	case len(r.Name)+len(r.ETag)+len(r.Elsewhere)+len(r.Headers) > maxRowText:
		return fmt.Errorf("%.100s: name and headers are longer than %d bytes", format.Escape(r.Name), maxRowText)
	case !r.valid():
		return fmt.Errorf("%s: invalid row", format.Escape(r.Name))
	case r.Headers != "" && !validHeaders(r.Headers):
		return fmt.Errorf("%s: headers that an archive does not hold: %.200s", format.Escape(r.Name), format.Escape(r.Headers))
	}
	return nil
}

func (r *LogRow) valid() bool {
	return r.Size >= 0 && r.Off >= 0 && (!r.Deleted || r.Size == 0 && r.Elsewhere == "") && (r.Modified.IsZero() || timeOf(r.Modified) != noTime)
}

func validHeaders(text string) bool {
	s := jsontext.Scanner{Buf: []byte(text), Depth: 2}
	return headersIn(&s) && s.Err == nil && !s.Blanks && s.At == len(text)
}

// The flags of a row.
const (
	rowDeleted = 1 << iota
	rowElsewhere
	rowMD5     // the ETag is 32 hexadecimal digits in quotes
	rowETag    // it is another one
	rowHeaders // has headers
	rowSame    // has those of the row before
	rowTime
	rowFlags = 1<<iota - 1
)

func (r *LogRow) append(b []byte, sameHeaders bool) []byte {
	flags := byte(0)
	set := func(is bool, flag byte) bool {
		if is {
			flags |= flag
		}
		return is
	}
	md5, err := hex.DecodeString(string(bytes.Trim([]byte(r.ETag), `"`)))
	short := err == nil && len(md5) == 16 && r.ETag == `"`+hex.EncodeToString(md5)+`"`
	set(r.Deleted, rowDeleted)
	set(r.Elsewhere != "", rowElsewhere)
	set(short, rowMD5)
	set(!short && r.ETag != "", rowETag)
	set(r.Headers != "" && !sameHeaders, rowHeaders)
	set(r.Headers != "" && sameHeaders, rowSame)
	set(!r.Modified.IsZero(), rowTime)
	b = append(scan.AppendText(b, r.Name), flags)
	if !r.Deleted {
		b = append(binary.AppendUvarint(b, uint64(r.Size)), r.Sum[:]...)
	}
	if r.Elsewhere != "" {
		b = binary.AppendUvarint(scan.AppendText(b, r.Elsewhere), uint64(r.Off))
	}
	if flags&rowTime != 0 {
		b = binary.AppendVarint(b, r.Modified.UnixMilli())
	}
	switch {
	case short:
		b = append(b, md5...)
	case r.ETag != "":
		b = scan.AppendText(b, r.ETag)
	}
	if flags&rowHeaders != 0 {
		b = scan.AppendText(b, r.Headers)
	}
	return b
}

// parse parses what append has appended. before is the row before it.
func (r *LogRow) parse(c *scan.Scanner, before string) {
	r.Name = string(c.Text())
	flags := c.Byte()
	c.Must(flags <= rowFlags && flags&(rowMD5|rowETag) != rowMD5|rowETag && flags&(rowHeaders|rowSame) != rowHeaders|rowSame)
	if r.Deleted = flags&rowDeleted != 0; !r.Deleted {
		r.Size = c.Size()
		copy(r.Sum[:], c.Bytes(digestLen))
	}
	if flags&rowElsewhere != 0 {
		r.Elsewhere = string(c.Text())
		r.Off = c.Size()
		c.Must(r.Elsewhere != "")
	}
	if flags&rowTime != 0 {
		r.Modified = time.UnixMilli(c.Varint()).UTC()
	}
	switch {
	case flags&rowMD5 != 0:
		r.ETag = `"` + hex.EncodeToString(c.Bytes(16)) + `"`
	case flags&rowETag != 0:
		r.ETag = string(c.Text())
		c.Must(r.ETag != "")
	}
	switch {
	case flags&rowHeaders != 0:
		r.Headers = string(c.Text())
		c.Must(validHeaders(r.Headers))
	case flags&rowSame != 0:
		r.Headers = before
		c.Must(before != "")
	}
	c.Must(r.valid())
}

// A LogBatch is a batch of a segment: its frame begins at Off, its contents at Contents, and it
// ends at End.
type LogBatch struct {
	Number, Off, Contents, End int64
	Rows                       []LogRow

	id       [logIDLen]byte
	own, seq int64 // its offset and first sequence number, as it says
}

// A LogReader reads the batches of a segment.
type LogReader struct {
	Log
	End   int64 // of the last batch that was read, or of the header
	Batch int64 // number of the batch after it
	Next  int64 // sequence number of the row after it

	read   func(p []byte, off int64) error
	size   int64
	block  int64
	buf    []byte
	bufAt  int64
	moved  int64 // by how much the last batch lies after where it says
	budget int64 // bytes that Find may still read in vain
}

// NewLogReader reads the header of a segment, and later at least block bytes at a time. It returns
// nil if there is no whole header, and an error only if read does.
func NewLogReader(read func(p []byte, off int64) error, size int64, block int) (*LogReader, error) {
	r := &LogReader{read: read, size: size, block: int64(block), budget: 4*size + maxLogRows}
	b, err := r.bytes(0, int64(logFixed))
	if b == nil || string(b[:len(logMagic)]) != logMagic {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(b[logFixed-4:])
	if n > maxLogText {
		return nil, nil
	}
	r.End = int64(logFixed) + int64(n) + crcLen
	if b, err = r.checked(0, r.End); b == nil {
		return nil, err
	}
	b = b[len(logMagic):]
	r.ID, r.Text = [logIDLen]byte(b), string(b[logFixed-len(logMagic):len(b)-crcLen])
	r.Number, r.Seq = int64(binary.LittleEndian.Uint64(b[logIDLen:])), int64(binary.LittleEndian.Uint64(b[logIDLen+8:]))
	if r.Next = r.Seq; r.Number < 0 || r.Seq < 0 {
		return nil, nil
	}
	return r, nil
}

// bytes returns bytes that are valid until the next call, or nil if the segment ends before.
func (r *LogReader) bytes(off, n int64) ([]byte, error) {
	if n > r.size-off {
		return nil, nil
	}
	if off < r.bufAt || off+n > r.bufAt+int64(len(r.buf)) {
		want := min(max(n, r.block), r.size-off)
		if int64(cap(r.buf)) < want {
			r.buf = make([]byte, want)
		}
		r.buf, r.bufAt = r.buf[:want], off
		if err := r.read(r.buf, off); err != nil {
			r.buf = r.buf[:0]
			return nil, err
		}
	}
	return r.buf[off-r.bufAt:][:n:n], nil
}

// checked returns bytes that end with their checksum, or nil if it is wrong.
func (r *LogReader) checked(off, n int64) ([]byte, error) {
	b, err := r.bytes(off, n)
	if b != nil && binary.LittleEndian.Uint32(b[n-crcLen:]) != crc32.Checksum(b[:n-crcLen], castagnoli) {
		r.budget -= n
		b = nil
	}
	return b, err
}

// at returns the batch at an offset, or nil if there is no whole one.
func (r *LogReader) at(off int64) (*LogBatch, error) {
	b, err := r.bytes(off, int64(batchFixed))
	if b == nil || string(b[:len(batchMagic)]) != batchMagic {
		return nil, err
	}
	id := [logIDLen]byte(b[len(batchMagic):])
	if id != r.ID && r.ID != [logIDLen]byte{} {
		return nil, nil
	}
	b = b[len(batchMagic)+logIDLen:]
	number := func(at int) int64 { return int64(binary.LittleEndian.Uint64(b[at:])) }
	x := &LogBatch{Off: off, Number: number(0), id: id, own: number(8), seq: number(16)}
	rows, contents := int64(binary.LittleEndian.Uint32(b[24:])), number(28)
	x.Contents = off + int64(batchFixed) + rows + crcLen
	if rows > maxLogRows || contents < 0 || contents > r.size-x.Contents || x.Number < 0 || x.own < 0 || x.seq < 0 || x.seq > mostLogSeqs {
		return nil, nil
	}
	if b, err = r.checked(off, x.Contents-off); b == nil {
		return nil, err
	}
	x.End = x.Contents
	headers := ""
	for c := (scan.Scanner{B: b[batchFixed : len(b)-crcLen]}); c.At < len(c.B); {
		row := LogRow{Seq: x.seq + int64(len(x.Rows))}
		row.parse(&c, headers)
		if row.Here() {
			row.Off = x.End
			c.Must(row.Size <= x.Contents+contents-x.End)
			x.End += row.Size
		}
		if c.Bad || len(x.Rows) == maxBatch {
			return nil, nil
		}
		headers = row.Headers
		x.Rows = append(x.Rows, row)
	}
	if x.End != x.Contents+contents {
		return nil, nil
	}
	return x, nil
}

// follow makes x the last batch that was read.
func (r *LogReader) follow(x *LogBatch) {
	r.ID = x.id
	r.End, r.Batch, r.Next, r.moved = x.End, x.Number+1, x.seq+int64(len(x.Rows)), x.Off-x.own
}

// Read returns the batch that begins where the last one ends, or nil if there is no whole one. That
// its contents are whole is not known.
func (r *LogReader) Read() (*LogBatch, error) {
	x, err := r.at(r.End)
	if x == nil || x.own != x.Off-r.moved || x.Number != r.Batch || x.seq != r.Next {
		return nil, err
	}
	r.follow(x)
	return x, nil
}

const findLogBlock = 1 << 20

// Find returns the first later batch that is whole, or nil: one that lies where it says or, if
// there is none, one that was moved.
func (r *LogReader) Find() (moved *LogBatch, _ error) {
	mark := []byte(batchMagic)
	if r.ID != [logIDLen]byte{} {
		mark = append(mark, r.ID[:]...)
	}
	buf := make([]byte, min(findLogBlock+int64(len(mark)), r.size))
	for from := r.End; from < r.size && r.budget >= 0; from += findLogBlock {
		b := buf[:min(int64(len(buf)), r.size-from)]
		if err := r.read(b, from); err != nil {
			return nil, err
		}
		for at := 0; ; at++ {
			i := bytes.Index(b[at:], mark)
			if i < 0 || at+i >= findLogBlock || r.budget < 0 {
				break
			}
			at += i
			x, err := r.at(from + int64(at))
			if err != nil {
				return nil, err
			}
			if x == nil {
				continue
			}
			later := x.Number >= r.Batch && x.seq >= r.Next
			if later && x.own == x.Off {
				return x, nil
			}
			if later && moved == nil && r.ID == x.id {
				moved = x
			}
			r.budget -= x.Contents - x.Off
		}
	}
	r.budget -= r.size - r.End // it may be called again for each batch
	return moved, nil
}

// Batches yields all batches that are whole. It calls lost for what lies between them.
func (r *LogReader) Batches(lost func(from, to int64)) iter.Seq2[*LogBatch, error] {
	return func(yield func(*LogBatch, error) bool) {
		for {
			end := r.End
			x, err := r.Read()
			if x == nil && err == nil {
				if x, err = r.Find(); x != nil {
					lost(end, x.Off)
					r.follow(x)
				}
			}
			if x == nil && err == nil || !yield(x, err) || err != nil {
				return
			}
		}
	}
}

// Whole reports whether all contents of a batch match their digests.
func (r *LogReader) Whole(x *LogBatch) (bool, error) {
	for i := range x.Rows {
		row := &x.Rows[i]
		h, buf := blake3.New(), make([]byte, min(row.Size, findLogBlock))
		for at := int64(0); row.Here() && at < row.Size; at += int64(len(buf)) {
			buf = buf[:min(int64(len(buf)), row.Size-at)]
			if err := r.read(buf, row.Off+at); err != nil {
				return false, err
			}
			h.Write(buf)
		}
		if row.Here() && [digestLen]byte(h.Sum(nil)) != row.Sum {
			return false, nil
		}
	}
	return true, nil
}

// addLogged adds a row of a log. A row without content here is left out by finishLogged.
func (t *table) addLogged(r *LogRow) error {
	x := row{name: []byte(r.Name), off: -1, digest: r.Sum[:], odd: noStart}
	if r.Here() {
		x.odd, x.start, x.end = 0, r.Off, r.Off+r.Size
		x.object = object{there: r.ETag+r.Headers != "", written: timeOf(r.Modified), etag: []byte(r.ETag), headers: []byte(r.Headers)}
	}
	return t.add(&x)
}

// finishLogged leaves the last row of each name, if it has content.
func (t *table) finishLogged(id [logIDLen]byte) {
	t.top.log, t.top.writer = hex.EncodeToString(id[:]), writer
	t.finish(exclusive, true)
	t.shadowed = nil
	var live []uint32
	for i, r := range t.rows {
		if r.odd&noStart == 0 {
			live = append(live, uint32(i))
		}
	}
	t.pick(live)
}

// logReader returns a reader of the log that an object begins with. If it has no whole header, its ID is
// zero, and becomes that of the first batch.
func logReader(ctx context.Context, obj store.Object, size int64, block int) (*LogReader, error) {
	read := func(p []byte, off int64) error { return obj.ReadAt(ctx, p, off) }
	l, err := NewLogReader(read, size, block)
	if l == nil {
		l = &LogReader{read: read, size: size, block: int64(block), budget: 4*size + maxLogRows}
	}
	return l, err
}

// unsealed returns the error for a log without an index instead of one that damaged archives have.
func (r *reader) unsealed(ctx context.Context, err error) error {
	if !errors.Is(err, format.ErrCorrupt) {
		return err
	}
	l, lerr := logReader(ctx, r.obj, r.size, logFixed)
	if lerr != nil || l.ID == [logIDLen]byte{} {
		return errors.Join(err, lerr)
	}
	return r.corrupt(&fault{"unsealed-log", 0, fmt.Sprintf("this is segment %d of the log of a gateway, without a whole index: holdall repair -o OUT.caf takes its files out", l.Number)})
}

// explain finds out which bytes of a sealed log belong to no file, as its frames say.
func (r *reader) explain(ctx context.Context, t *table) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.top.log == "" || len(t.frames.All) > 0 {
		return nil
	}
	l, err := logReader(ctx, r.obj, r.off, findLogBlock)
	if err != nil || hex.EncodeToString(l.ID[:]) != t.top.log {
		return err
	}
	var frames, dead kit.Ranges
	frames.Add(0, l.End)
	stray := map[string]*LogRow{} // contents that no row of the index has, and no later row of the log replaces
	for x, err := range l.Batches(func(int64, int64) {}) {
		if err != nil {
			return err
		}
		frames.Add(x.Off, x.Contents)
		for i := range x.Rows {
			row := &x.Rows[i]
			if old := stray[row.Name]; old != nil {
				dead.Add(old.Off, old.Off+old.Size)
				delete(stray, row.Name)
			}
			if !row.Here() {
				continue
			}
			if e, err := r.index.Lookup(ctx, row.Name); err != nil || e.Ref != row.Off || e.Size != row.Size {
				stray[row.Name] = row
			}
		}
	}
	frames.Join()
	dead.Join()
	t.frames, t.dead = frames, dead
	return nil
}

// WriteIndex writes the index and the footer that make the segment a CAF, if they follow the last
// batch. rows are all rows in their order. The bytes depend on the rows alone.
func (l *Log) WriteIndex(w io.Writer, rows iter.Seq2[*LogRow, error]) error {
	t := &table{volume: "the log", maxEnd: noEndYet}
	for r, err := range rows {
		if err == nil {
			err = t.addLogged(r)
		}
		if err != nil {
			return err
		}
	}
	t.finishLogged(l.ID)
	return t.writeIndex(w)
}
