package tar

import (
	"bytes"
	"io"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
)

// Format is tar.
var Format = &format.Format{
	Name:       "tar",
	Title:      "tar, plain or zstd",
	Extensions: []string{".tar", ".tar.zst", ".tzst"},
	Keeps: format.KeepsModes | format.KeepsTimes | format.KeepsOwners | format.KeepsDirs |
		format.KeepsSymlinks | format.KeepsHardLinks | format.KeepsFifos,
	WantsManifest: true, // hard links are found while it is made
	Detect:        detect,
	Open:          open,
	Create:        create,
	Verify:        verify,
}

const blockSize = 512

var zstdMagic = []byte{0x28, 0xB5, 0x2F, 0xFD}

// detect never says Certain: formats that are tars of a special kind must win.
func detect(p format.Probe) format.Match {
	head := p.Head
	if bytes.HasPrefix(head, zstdMagic) {
		head = firstBlock(head)
	}
	if isHeader(head) || isEmpty(p.Head, p.Size) {
		return format.Likely
	}
	return format.No
}

// firstBlock decodes the first bytes of a compressed tar.
func firstBlock(head []byte) []byte {
	z, _ := codec.Lookup(codec.Zstd)
	r, err := z.Decode(bytes.NewReader(head))
	if err != nil {
		return nil
	}
	defer r.Close()
	b := make([]byte, blockSize)
	n, _ := io.ReadFull(r, b) // what there is tells
	return b[:n]
}

// maxEmpty is the longest archive of nothing: tar pads archives to its record
// size, which is 10 KiB unless somebody wants another.
const maxEmpty = 64 << 10

// isEmpty reports whether an object of that size, which begins with head, is an
// archive of nothing.
func isEmpty(head []byte, size int64) bool {
	return size >= 2*blockSize && size <= maxEmpty && size%blockSize == 0 && len(bytes.Trim(head, "\x00")) == 0
}

// isHeader reports whether b begins with a tar header of the kinds that say so.
func isHeader(b []byte) bool {
	return len(b) >= blockSize && bytes.Equal(b[257:262], []byte("ustar"))
}
