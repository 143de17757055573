package tar

import (
	"bytes"
	"errors"
	"fmt"
)

// maxSpecial is the largest content of a member that concerns the next one: pax records, a long
// name, a sparse map. Other programs have the same limit.
const maxSpecial = 1 << 20

// pax has the records before a header: "LENGTH KEY=VALUE\n" each. If one is empty, the header
// counts. The slices refer to a buffer.
type pax struct {
	buf                                  []byte
	path, linkpath, uname, gname         []byte
	uid, gid, mtime, size                []byte
	sparseMajor, sparseMinor, sparseName []byte
	sparseSize, sparseReal, sparseBlocks []byte
	sparseMap                            []byte // numbers, separated by commas
	volumeName, volumeOffset             []byte // of the file that goes on in this volume
	is                                   bool   // there were records
	good                                 int    // bytes of readable records
	torn                                 bool   // they cannot be read, and concern a sparse file
}

func (p *pax) reset() { *p = pax{buf: p.buf[:0]} }

// field returns the field for the key of a record, or nil if there is none.
func (p *pax) field(key []byte) *[]byte {
	switch string(key) {
	case "path":
		return &p.path
	case "linkpath":
		return &p.linkpath
	case "uname":
		return &p.uname
	case "gname":
		return &p.gname
	case "uid":
		return &p.uid
	case "gid":
		return &p.gid
	case "mtime":
		return &p.mtime
	case "size":
		return &p.size
	case "GNU.sparse.major":
		return &p.sparseMajor
	case "GNU.sparse.minor":
		return &p.sparseMinor
	case "GNU.sparse.name":
		return &p.sparseName
	case "GNU.sparse.size":
		return &p.sparseSize
	case "GNU.sparse.realsize":
		return &p.sparseReal
	case "GNU.sparse.numblocks":
		return &p.sparseBlocks
	case "GNU.sparse.map":
		return &p.sparseMap
	case "GNU.volume.filename":
		return &p.volumeName
	case "GNU.volume.offset":
		return &p.volumeOffset
	}
	return nil
}

// parse parses records; the last one of a key counts. Those before an error are used.
func (p *pax) parse(records []byte) (err error) {
	p.reset()
	defer func() { p.torn = err != nil && bytes.Contains(records, []byte("GNU.sparse.")) }()
	p.buf, p.is = append(p.buf, records...), true
	var pieces []byte // of the first kind of sparse map, which has one number in each record
	numbers := 0
	for b := p.buf; len(b) > 0; p.good = len(p.buf) - len(b) {
		at := len(p.buf) - len(b)
		length, _, ok := bytes.Cut(b, []byte(" "))
		n, isNumber := decimal(length)
		if !ok || !isNumber || n < int64(len(length))+2 || n > int64(len(b)) || b[n-1] != '\n' {
			return fmt.Errorf("pax record at %d of %d bytes: invalid length", at, len(p.buf))
		}
		key, value, ok := bytes.Cut(b[len(length)+1:n-1], []byte("="))
		if b = b[n:]; !ok || len(key) == 0 {
			return fmt.Errorf("pax record at %d of %d bytes: missing key", at, len(p.buf))
		}
		switch string(key) {
		case "GNU.sparse.offset", "GNU.sparse.numbytes":
			if (numbers%2 == 0) != (string(key) == "GNU.sparse.offset") || bytes.IndexByte(value, ',') >= 0 {
				return errors.New("pax records of a sparse map are out of order")
			}
			if numbers++; numbers > 1 {
				pieces = append(pieces, ',')
			}
			pieces = append(pieces, value...)
			continue
		}
		if to := p.field(key); to != nil {
			if bytes.IndexByte(value, 0) >= 0 && (to == &p.path || to == &p.linkpath || to == &p.uname || to == &p.gname) {
				return fmt.Errorf("pax record %q: contains a NUL byte", key)
			}
			*to = value
		}
	}
	if numbers > 0 {
		p.sparseMap = pieces
	}
	return nil
}
