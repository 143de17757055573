package tarfile

import "encoding/binary"

// Fields of a data segment that a tar repeats in index and graph. Each reference is
// an ID; the table begins at refsAt.
const (
	versionAt    = 3
	fullAt       = 4 // from version 13 on; its highest bit says that it is compacted
	generationAt = 10
	refCountAt   = 14
	refsAt       = 32
)

// A SegmentHead is what index and graph say of a data segment, as it says itself.
type SegmentHead struct {
	Version    byte
	Generation Generation
	Refs       IDs // in the segment
}

// ParseSegmentHead reads the header and the reference table of a data segment.
func ParseSegmentHead(b []byte) (SegmentHead, bool) {
	if len(b) < refsAt || string(b[:versionAt]) != "0aK" {
		return SegmentHead{}, false
	}
	h := SegmentHead{Version: b[versionAt]}
	gen := int32(binary.BigEndian.Uint32(b[generationAt:]))
	switch h.Version {
	case 12:
		h.Generation = Generation{Gen: gen, Full: gen, Compacted: true}
	case 13:
		full := binary.BigEndian.Uint32(b[fullAt:])
		h.Generation = Generation{Gen: gen, Full: int32(full &^ (1 << 31)), Compacted: full>>31 == 1}
	default:
		return SegmentHead{}, false
	}
	n := int64(binary.BigEndian.Uint32(b[refCountAt:]))
	if n > int64(len(b)-refsAt)/int64(len(ID{})) {
		return SegmentHead{}, false
	}
	h.Refs = IDs(b[refsAt : refsAt+n*int64(len(ID{}))])
	return h, true
}
