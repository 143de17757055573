package databundle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
	"strings"
)

// Tables of the index. A key begins with the number of its table as a varuint.
const (
	configTable = 1 // one row: BundleConfig
	fileTable   = 2 // directory and "/", file name: BundleFileMetadata
	recordTable = 3 // shard, uncompressed offset: BundleRecordMetadata
)

var configKey = appendVaruint(nil, configTable)

// errKey means that a key is not a valid encoding.
var errKey = errors.New("cannot decode the key")

// appendVaruint appends v so that the order of numbers is that of their encodings: big endian in
// n bytes, where the first byte begins with n-1 set bits and a cleared bit.
func appendVaruint(b []byte, v uint64) []byte {
	n := 1
	for n < 9 && bits.Len64(v) > 7*n {
		n++
	}
	if n == 9 {
		return binary.BigEndian.AppendUint64(append(b, 0xFF), v)
	}
	var be [8]byte
	binary.BigEndian.PutUint64(be[:], v)
	at := len(b)
	b = append(b, be[8-n:]...)
	b[at] |= byte(uint16(0xFF00) >> (n - 1))
	return b
}

// varuint parses a number, which must be encoded in as few bytes as possible.
func varuint(b []byte) (v uint64, rest []byte, err error) {
	if len(b) == 0 {
		return 0, nil, errKey
	}
	n := bits.LeadingZeros8(^b[0]) + 1
	if n > len(b) {
		return 0, nil, errKey
	}
	if n < 8 {
		v = uint64(b[0] & (0xFF >> n))
	}
	for _, c := range b[1:n] {
		v = v<<8 | uint64(c)
	}
	if n > 1 && bits.Len64(v) <= 7*(n-1) {
		return 0, nil, errKey
	}
	return v, b[n:], nil
}

// appendBytes appends s with an end marker: a NUL is followed by 0xFF, and the end is two NULs.
func appendBytes(b []byte, s string) []byte {
	for i := range len(s) {
		if b = append(b, s[i]); s[i] == 0 {
			b = append(b, 0xFF)
		}
	}
	return append(b, 0, 0)
}

// cutBytes is the inverse of appendBytes.
func cutBytes(b []byte) (s string, rest []byte, err error) {
	var escaped []byte
	for at := 0; ; {
		i := bytes.IndexByte(b[at:], 0)
		if i < 0 || at+i+1 >= len(b) {
			return "", nil, errKey
		}
		i += at
		switch b[i+1] {
		case 0:
			if escaped == nil {
				return string(b[:i]), b[i+2:], nil
			}
			return string(append(escaped, b[at:i]...)), b[i+2:], nil
		case 0xFF:
			escaped = append(escaped, b[at:i+1]...)
			at = i + 2
		default:
			return "", nil, errKey
		}
	}
}

func appendFileKey(b []byte, name string) []byte {
	dir, base := splitName(name)
	b = appendVaruint(b, fileTable)
	b = appendBytes(b, dir+"/")
	return append(b, base...)
}

// splitName splits a path at its last slash, which is in neither part.
func splitName(name string) (dir, base string) {
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[:i], name[i+1:]
	}
	return "", name
}

// cutFileKey returns the directory, which must end with a slash, and the name from a key without
// its table.
func cutFileKey(rest []byte) (dir, base string, err error) {
	dir, rest, err = cutBytes(rest)
	return dir, string(rest), err
}

// nameOf returns the path for a row. Some writers begin directories with a slash, or end file
// names as other strings in keys. Any other invalid key results in a name that is not a path.
func nameOf(dir, base string) (name string, ok bool) {
	base = strings.TrimSuffix(base, "\x00\x00")
	dir, ok = strings.CutSuffix(dir, "/")
	if dir == "" {
		return base, ok
	}
	return strings.TrimPrefix(dir, "/") + "/" + base, ok
}

func appendRecordKey(b []byte, shard, offset uint64) []byte {
	return appendVaruint(appendVaruint(appendVaruint(b, recordTable), shard), offset)
}

// after returns the smallest key that is greater than all keys that begin with prefix.
func after(prefix []byte) []byte {
	b := bytes.Clone(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i]++; b[i] != 0 {
			return b[:i+1]
		}
	}
	return nil
}
