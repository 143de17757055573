package segment

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// A Finished is a segment to be stored. The receiver owns Data and the slices.
type Finished struct {
	ID         ID
	Data       []byte
	Generation Generation
	Refs       []ID     // segments to which it refers, in the order of its table
	BlobIDs    []string // of external values, in the order of writing
	Header     []byte   // with which it was read from a tar, or nil
}

// BuilderOptions are the common properties of all segments of a Builder.
type BuilderOptions struct {
	Generation Generation
	// NewID returns 16 random bytes. The Builder sets the bits that identify the kind of ID. If
	// NewID is nil, the bytes come from the system.
	NewID func() [16]byte
	// BulkID is NewID for a bulk segment with the given content. If it is nil, NewID is used.
	BulkID func(data []byte) [16]byte
	// Millis is the time of segment infos, since 1970.
	Millis func() int64
	// Thrifty writes equal strings of any length only once, if they occur again before many
	// others. It costs time, and may double the memory.
	Thrifty bool
}

// A Builder writes records into data segments, and large values into bulk segments. It passes on
// each segment when it is full, always after those that it refers to. The IDs that its methods
// return are valid once [Builder.Flush] has been called. It must not be used in parallel, or
// after an error.
type Builder struct {
	o     BuilderOptions
	write func(context.Context, Finished) error

	buf     []byte // MaxSize; records grow from its end down
	used    int    // of buf
	id      ID
	open    bool // a segment was begun: it has its id and record 0
	rows    []byte
	refs    []ID
	refsAt  map[ID]int // in refs
	blobIDs []string
	made    int64 // data segments
	err     error // the first; nothing is written after it

	known   written // records that need not be written again
	drafted draft
	key     []byte
	long    []byte        // of a text
	ordered []NewProperty // of a node
}

// NewBuilder returns a Builder that passes its segments to write.
func NewBuilder(o BuilderOptions, write func(context.Context, Finished) error) *Builder {
	return &Builder{o: o, write: write, buf: make([]byte, MaxSize), refsAt: map[ID]int{}, known: written{keeps: o.Thrifty}}
}

// fail notes an error, unless there is one.
func (b *Builder) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// done returns id, and the error of writing its record.
func (b *Builder) done(id RecordID) (RecordID, error) { return id, b.err }

// newID returns an id for a data segment, or a bulk segment of some content.
func (b *Builder) newID(content []byte) (id ID) {
	kind := byte(0xA)
	if content != nil {
		kind = 0xB
	}
	switch {
	case content != nil && b.o.BulkID != nil:
		id = b.o.BulkID(content)
	case b.o.NewID != nil:
		id = b.o.NewID()
	default:
		// It never fails: it would end the program.
		rand.Read(id[:])
	}
	id[6] = 0x40 | id[6]&0x0F
	id[8] = kind<<4 | id[8]&0x0F
	return id
}

func (b *Builder) limit(format string, a ...any) error {
	return &Error{Class: Limit, Segment: b.id, Record: -1, Off: -1, What: fmt.Sprintf(format, a...)}
}

// A draft is a record before it has a place: bytes, some of which will be IDs.
type draft struct {
	b   []byte
	ids []draftID
}

type draftID struct {
	off int
	id  RecordID
	own bool // the record itself
}

// draft returns an empty draft. It must be put before the next one is requested.
func (b *Builder) draft() *draft {
	b.drafted.b, b.drafted.ids = b.drafted.b[:0], b.drafted.ids[:0]
	return &b.drafted
}

func (d *draft) bytes(p ...byte) *draft { d.b = append(d.b, p...); return d }

func (d *draft) u32(v uint32) *draft { d.b = binary.BigEndian.AppendUint32(d.b, v); return d }

func (d *draft) id(ids ...RecordID) *draft {
	for _, id := range ids {
		d.ids = append(d.ids, draftID{off: len(d.b), id: id})
		d.bytes(0, 0, 0, 0, 0, 0)
	}
	return d
}

func (d *draft) own() *draft {
	d.ids = append(d.ids, draftID{off: len(d.b), own: true})
	return d.bytes(0, 0, 0, 0, 0, 0)
}

func align(n, to int) int { return (n + to - 1) / to * to }

func (b *Builder) size(refs, records, data int) int {
	return align(headerLen+refLen*(len(b.refs)+refs)+len(b.rows)+rowLen*records+b.used+data, sizeFactor)
}

// put writes a record, if need be in a new segment.
func (b *Builder) put(ctx context.Context, t Type, d *draft) RecordID {
	size := align(len(d.b), alignment)
	for b.err == nil {
		b.begin()
		refs, more := len(b.refs), 0
		// References are added as they occur, and removed again if the record does not fit.
		for _, r := range d.ids {
			if !r.own && r.id.Segment != b.id && b.ref(r.id.Segment) {
				more++
			}
		}
		if b.size(0, 1, size) <= MaxSize {
			return b.place(t, d, size)
		}
		for _, id := range b.refs[refs:] {
			delete(b.refsAt, id)
		}
		b.refs = b.refs[:refs]
		if len(b.rows) == rowLen {
			b.fail(b.limit("%s: does not fit into a segment: %d bytes and %d references", t, len(d.b), more))
		}
		b.Flush(ctx)
	}
	return RecordID{}
}

// ref makes sure that the table of references has id, and reports whether it had not.
func (b *Builder) ref(id ID) bool {
	if _, ok := b.refsAt[id]; ok {
		return false
	}
	b.refsAt[id] = len(b.refs)
	b.refs = append(b.refs, id)
	return true
}

// place writes a record for which there is room.
func (b *Builder) place(t Type, d *draft, size int) RecordID {
	id := RecordID{b.id, int32(len(b.rows) / rowLen)}
	b.used += size
	offset := MaxSize - b.used
	rec := b.buf[offset:][:size]
	clear(rec[copy(rec, d.b):])
	for _, r := range d.ids {
		ref, n := 0, r.id.Number
		switch {
		case r.own:
			n = id.Number
		case r.id.Segment != b.id:
			ref = b.refsAt[r.id.Segment] + 1
		}
		binary.BigEndian.PutUint16(rec[r.off:], uint16(ref))
		binary.BigEndian.PutUint32(rec[r.off+2:], uint32(n))
	}
	b.rows = binary.BigEndian.AppendUint32(b.rows, uint32(id.Number))
	b.rows = append(b.rows, byte(t))
	b.rows = binary.BigEndian.AppendUint32(b.rows, uint32(offset))
	return id
}

// begin opens a segment, unless one is open, with its info as record 0.
func (b *Builder) begin() {
	if b.open {
		return
	}
	info := Info{Writer: "holdall", Number: b.made}
	if b.o.Millis != nil {
		info.Millis = b.o.Millis()
	}
	text, _ := json.Marshal(info) // a string and numbers, which are short
	d, _ := inlineValue(&draft{}, text)
	b.id, b.open = b.newID(nil), true
	b.made++
	b.place(ValueRecord, d, align(len(d.b), alignment))
}

// Flush passes on the open segment, if there is one.
func (b *Builder) Flush(ctx context.Context) error {
	if !b.open || b.err != nil {
		return b.err
	}
	total := b.size(0, 0, 0)
	data := make([]byte, total)
	copy(data, magic)
	g := b.o.Generation
	data[versionOff] = 13
	full := uint32(g.Full)
	if g.Compacted {
		full |= compactedBit
	}
	binary.BigEndian.PutUint32(data[fullOff:], full)
	binary.BigEndian.PutUint32(data[generationOff:], uint32(g.Gen))
	binary.BigEndian.PutUint32(data[refCountOff:], uint32(len(b.refs)))
	binary.BigEndian.PutUint32(data[recordCountOff:], uint32(len(b.rows)/rowLen))
	at := headerLen
	for _, id := range b.refs {
		at += copy(data[at:], id[:])
	}
	copy(data[at:], b.rows)
	copy(data[total-b.used:], b.buf[MaxSize-b.used:])
	f := Finished{ID: b.id, Data: data, Generation: g, Refs: b.refs, BlobIDs: b.blobIDs}
	b.open, b.used, b.rows, b.refs, b.blobIDs = false, 0, b.rows[:0], nil, nil
	clear(b.refsAt)
	b.err = b.write(ctx, f)
	return b.err
}

// written maps records that many others refer to, up to a size. Then it starts again, and some
// records are written twice. If keeps is set, it also searches the previous map, so only records
// that were not used in the meantime are forgotten.
type written struct {
	known
	keeps  bool
	before known
	bytes  int
}

type known struct {
	text, templates map[string]RecordID
	long            map[[sha256.Size]byte]RecordID // of longer strings, by their digests
}

const (
	writtenLimit = 16 << 20
	writtenText  = 512 // longer strings are hardly ever repeated
)

func (w *written) room(n int) {
	if w.bytes += n + 64; w.text == nil || w.bytes > writtenLimit {
		if w.keeps {
			w.before = w.known
		}
		w.known, w.bytes = known{map[string]RecordID{}, map[string]RecordID{}, map[[sha256.Size]byte]RecordID{}}, n+64
	}
}

// recall finds a record, and marks it as used.
func recall[K string | [sha256.Size]byte](w *written, of func(*known) map[K]RecordID, key K, size int) (RecordID, bool) {
	id, ok := of(&w.known)[key]
	if ok || !w.keeps {
		return id, ok
	}
	if id, ok = of(&w.before)[key]; ok {
		w.room(size)
		of(&w.known)[key] = id
	}
	return id, ok
}

func texts(k *known) map[string]RecordID            { return k.text }
func templates(k *known) map[string]RecordID        { return k.templates }
func longs(k *known) map[[sha256.Size]byte]RecordID { return k.long }
