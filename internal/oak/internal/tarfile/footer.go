package tarfile

import "encoding/binary"

// Magics of footers: "\n0K\n" and so on.
const (
	indexV1    = 0x0a304b0a
	indexV2    = 0x0a314b0a
	graphV1    = 0x0a30470a
	binariesV1 = 0x0a30420a
	binariesV2 = 0x0a31420a
)

const (
	footerLen  = 16
	trailerLen = 2 * BlockSize // the zeros that a tar ends with
)

// A footer is the last bytes of index, graph and binary references.
type footer struct {
	crc         uint32
	count, size int32
	magic       uint32
}

func parseFooter(b []byte) footer {
	b = b[len(b)-footerLen:]
	return footer{
		crc:   binary.BigEndian.Uint32(b),
		count: int32(binary.BigEndian.Uint32(b[4:])),
		size:  int32(binary.BigEndian.Uint32(b[8:])),
		magic: binary.BigEndian.Uint32(b[12:]),
	}
}

func (f footer) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, f.crc)
	b = binary.BigEndian.AppendUint32(b, uint32(f.count))
	b = binary.BigEndian.AppendUint32(b, uint32(f.size))
	return binary.BigEndian.AppendUint32(b, f.magic)
}

func int32At(b []byte) int32 { return int32(binary.BigEndian.Uint32(b)) }
