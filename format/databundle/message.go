package databundle

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/holdall/holdall/format/kit"
)

// The messages are protobuf version 3. They are few and flat, so this package parses them itself.
// Unknown fields are ignored.

// compression is how the records of a shard are stored.
type compression uint64

const (
	none   compression = 1
	snappy compression = 2
	zlib   compression = 3
	zstd   compression = 8 // an extension
)

func (c compression) String() string {
	return cmp.Or(methods[c].name, "compression "+strconv.FormatUint(uint64(c), 10))
}

// config is BundleConfig.
type config struct {
	version     string
	blockSize   uint64
	recordSize  uint64
	compression compression
	shards      uint64 // 0 means unknown
	rawPacked   bool
}

// header is BundleShardHeader.
type header struct {
	shard       uint64
	shards      uint64
	recordSize  uint64
	align       uint64
	compression compression
	inline      []byte // BundleInlineTable
	hasInline   bool
	atEOF       bool
	external    bool
}

// meta is BundleFileMetadata.
type meta struct {
	kind    uint64
	shard   uint64
	offset  uint64
	size    uint64
	crc     uint32
	user    userData
	hasUser bool
}

const (
	regularFile = 1
	directory   = 2
)

// userData is a google.protobuf.Any.
type userData struct {
	url   string
	value []byte
}

// record is BundleRecordMetadata.
type record struct {
	shard    uint64
	offset   uint64
	at       uint64 // relative to the shard's data
	stored   bool
	allZeros bool
}

var errMessage = errors.New("cannot decode the message")

// field is a field of a message: a number, or bytes.
type field struct {
	num   uint64
	wire  byte
	v     uint64
	bytes []byte
}

const (
	wireVarint = 0
	wire64     = 1
	wireBytes  = 2
	wire32     = 5
)

func eachField(b []byte, do func(field) error) error {
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 || tag>>3 == 0 || tag>>3 >= 1<<29 {
			return errMessage
		}
		b = b[n:]
		f := field{num: tag >> 3, wire: byte(tag & 7)}
		switch f.wire {
		case wireVarint:
			if f.v, n = binary.Uvarint(b); n <= 0 {
				return errMessage
			}
			b = b[n:]
		case wireBytes:
			l, n := binary.Uvarint(b)
			if n <= 0 || l > uint64(len(b)-n) {
				return errMessage
			}
			f.bytes, b = b[n:n+int(l)], b[n+int(l):]
		case wire64, wire32:
			n := 8
			if f.wire == wire32 {
				n = 4
			}
			if len(b) < n {
				return errMessage
			}
			b = b[n:]
		default:
			return errMessage
		}
		if err := do(f); err != nil {
			return err
		}
	}
	return nil
}

// message has the fields of a message by number. If a number occurs several times, the last field
// counts. A known field of another type is damage, but readers of protobuf ignore it.
type message struct {
	numbers [maxField + 1]uint64
	there   uint64 // a bit for each number that occurs
	bytes   [maxField + 1][]byte
}

// maxField is the largest known number of a field.
const maxField = 10

func (m *message) has(num int) bool { return m.there>>num&1 == 1 }

func parseMessage(b []byte) (m message, err error) {
	err = eachField(b, func(f field) error {
		switch {
		case f.num > maxField:
		case f.wire == wireVarint:
			m.numbers[f.num] = f.v
			m.there |= 1 << f.num
		case f.wire == wireBytes:
			m.bytes[f.num] = f.bytes
		}
		return nil
	})
	return m, err
}

func appendNumber(b []byte, num, v uint64) []byte {
	if v == 0 {
		return b
	}
	return binary.AppendUvarint(binary.AppendUvarint(b, num<<3), v)
}

// appendNumbers appends fields with consecutive numbers, beginning with num.
func appendNumbers(b []byte, num uint64, all ...uint64) []byte {
	for i, v := range all {
		b = appendNumber(b, num+uint64(i), v)
	}
	return b
}

func appendBool(b []byte, num uint64, v bool) []byte {
	if v {
		return appendNumber(b, num, 1)
	}
	return b
}

func appendText[T string | []byte](b []byte, num uint64, s T) []byte {
	if len(s) == 0 {
		return b
	}
	return appendMessage(b, num, s)
}

// appendMessage appends a field of bytes, even if it is empty.
func appendMessage[T string | []byte](b []byte, num uint64, s T) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(b, num<<3|wireBytes), uint64(len(s)))
	return append(b, s...)
}

func parseConfig(b []byte) (config, error) {
	m, err := parseMessage(b)
	n := m.numbers
	return config{version: string(m.bytes[1]), blockSize: n[2], recordSize: n[3], compression: compression(n[4]), shards: n[5], rawPacked: n[6] != 0}, err
}

func (c config) append(b []byte) []byte {
	b = appendText(b, 1, c.version)
	b = appendNumbers(b, 2, c.blockSize, c.recordSize, uint64(c.compression), c.shards)
	return appendBool(b, 6, c.rawPacked)
}

func parseHeader(b []byte) (header, error) {
	m, err := parseMessage(b)
	n := m.numbers
	return header{shard: n[1], shards: n[2], recordSize: n[3], align: n[4], compression: compression(n[5]),
		inline: m.bytes[6], hasInline: m.bytes[6] != nil, atEOF: n[7] != 0, external: n[8] != 0}, err
}

func (h header) append(b []byte) []byte {
	b = appendNumbers(b, 1, h.shard, h.shards, h.recordSize, h.align, uint64(h.compression))
	if h.hasInline {
		b = appendMessage(b, 6, h.inline)
	}
	return appendBool(b, 8, h.external)
}

func parseMeta(b []byte) (meta, error) {
	x, err := parseMessage(b)
	n := x.numbers
	m := meta{kind: n[1], shard: n[2], offset: n[3], size: n[4], crc: uint32(n[5]), hasUser: x.bytes[6] != nil}
	if err == nil && m.hasUser {
		x, err = parseMessage(x.bytes[6])
		m.user = userData{string(x.bytes[1]), x.bytes[2]}
	}
	switch {
	case err != nil:
		return meta{}, err
	case m.kind != regularFile && m.kind != directory:
		return meta{}, fmt.Errorf("unknown type %d", m.kind)
	case m.offset > 1<<63-1 || m.size > 1<<63-1-m.offset:
		return meta{}, fmt.Errorf("%d bytes from %d on exceed the maximum", m.size, m.offset)
	case m.kind == directory && m.size != 0:
		return meta{}, errors.New("a directory with content")
	}
	return m, nil
}

// isLink reports whether m is a link. Readers of the bare format see it as a file.
func (m meta) isLink() bool {
	if !m.hasUser || m.user.url != attributesURL {
		return false
	}
	a, err := parseAttributes(m.user.value)
	return err == nil && (a.symlink != "" || a.hardLink != "")
}

func (m meta) append(b []byte) []byte {
	b = appendNumbers(b, 1, m.kind, m.shard, m.offset, m.size, uint64(m.crc))
	if m.hasUser {
		b = appendMessage(b, 6, appendText(appendText(nil, 1, m.user.url), 2, m.user.value))
	}
	return b
}

func parseRecord(b []byte) (record, error) {
	m, err := parseMessage(b)
	n := m.numbers
	r := record{shard: n[1], offset: n[2], at: n[3], stored: m.has(3), allZeros: n[4] != 0}
	switch {
	case err != nil:
		return record{}, err
	case r.stored == r.allZeros:
		return record{}, errors.New("expected either an offset or the mark for zeros")
	case r.at > 1<<63-1:
		return record{}, fmt.Errorf("offset %d exceeds the maximum", r.at)
	}
	return r, nil
}

func (r record) append(b []byte) []byte {
	b = appendNumbers(b, 1, r.shard, r.offset)
	if r.allZeros {
		return appendNumber(b, 4, 1)
	}
	// A field of a oneof is written even if it is 0.
	return binary.AppendUvarint(binary.AppendUvarint(b, 3<<3), r.at)
}

// attributesURL is the type of user data with what the format itself cannot store.
const attributesURL = "type.googleapis.com/holdall.bundle.v1.FileAttributes"

// attributes is holdall's message of that type.
type attributes struct {
	mode    fs.FileMode // permission and set-id bits
	hasMode bool
	time    time.Time
	uid     uint64
	gid     uint64
	hasUID  bool
	hasGID  bool
	symlink string
	// What a number does not say, and links.
	owner, group string
	hardLink     string
}

func zigzag(v int64) uint64   { return uint64(v<<1 ^ v>>63) }
func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }

func parseAttributes(b []byte) (a attributes, err error) {
	m, err := parseMessage(b)
	n, text := m.numbers, m.bytes
	a = attributes{
		mode: kit.ModeOfUnix(uint32(n[1])), hasMode: m.has(1), uid: n[4], hasUID: m.has(4), gid: n[5], hasGID: m.has(5),
		symlink: string(text[6]), owner: string(text[8]), group: string(text[9]), hardLink: string(text[10]),
	}
	sec, nsec, timed := unzigzag(n[2]), n[3], m.has(2) || m.has(3)
	if err == nil && nsec >= 1e9 {
		err = errMessage
	}
	// A year beyond any calendar could not be converted to text and back.
	if timed && err == nil && sec > -1<<40 && sec < 1<<40 {
		a.time = time.Unix(sec, int64(nsec)).UTC()
	}
	return a, err
}

func (a attributes) append(b []byte) []byte {
	// A mode of 0 is valid and is written, and so is an owner of 0.
	put := func(num, v uint64) { b = binary.AppendUvarint(binary.AppendUvarint(b, num<<3), v) }
	if a.hasMode {
		put(1, uint64(kit.UnixMode(a.mode)))
	}
	if !a.time.IsZero() {
		put(2, zigzag(a.time.Unix()))
		b = appendNumber(b, 3, uint64(a.time.Nanosecond()))
	}
	if a.hasUID {
		put(4, a.uid)
	}
	if a.hasGID {
		put(5, a.gid)
	}
	b = appendText(b, 6, a.symlink)
	b = appendText(b, 8, a.owner)
	b = appendText(b, 9, a.group)
	return appendText(b, 10, a.hardLink)
}
