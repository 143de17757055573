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
	Title:      "tar, plain, zstd or gzip; bzip2, xz and lz4 to read",
	Extensions: extensions(),
	Keeps: format.KeepsModes | format.KeepsTimes | format.KeepsOwners | format.KeepsDirs |
		format.KeepsSymlinks | format.KeepsHardLinks | format.KeepsFifos,
	Params: []format.Param{{
		Name: "level", For: format.ToCreate, Kind: format.ParamWord, Words: []string{"fastest", "fast", "better", "best"},
		Help: "compression level: fastest, fast, better or best (default fast)",
	}},
	WantsManifest: true, // hard links are found while it is made
	Detect:        detect,
	Open:          open,
	Create:        create,
	Verify:        verify,
	Repair:        repair,
}

func extensions() []string {
	all := []string{".tar"}
	for _, c := range compressions {
		all = append(all, c.names...)
	}
	return all
}

// detect never says Certain: formats that are tars of a special kind must win.
func detect(p format.Probe) format.Match {
	head := p.Head
	if name := codecOf(head); name != codec.Raw {
		// What a probe has of it may be less than a block of zstd or bzip2, which tells
		// nothing before it is whole. Then there is the name.
		if head = firstBlock(head, name); len(head) == 0 && compression(p.Name) == name {
			return format.Likely
		}
	}
	if isHeader(head) || isEmpty(p.Head, p.Size) {
		return format.Likely
	}
	return format.No
}

// firstBlock decodes the first bytes of a compressed tar.
func firstBlock(head []byte, name string) []byte {
	z, _ := codec.Lookup(name)
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

// isHeader reports whether b begins with a tar header: one that says so or, of tars
// older than that, one whose checksum matches.
func isHeader(b []byte) bool {
	if len(b) < blockSize {
		return false
	}
	return string(b[257:262]) == "ustar" || b[0] != 0 && block(b[:blockSize]).checked()
}
