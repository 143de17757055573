package tar

import (
	"bytes"
	"io"
	"strings"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
)

// Format is tar.
var Format = &format.Format{
	Name:       "tar",
	Title:      "tar, plain, zstd or gzip",
	Extensions: []string{".tar", ".tar.zst", ".tzst", ".tar.gz", ".tgz"},
	Keeps: format.KeepsModes | format.KeepsTimes | format.KeepsOwners | format.KeepsDirs |
		format.KeepsSymlinks | format.KeepsHardLinks | format.KeepsFifos,
	Params: []format.Param{{
		Name: "level", For: format.ToCreate, Kind: format.ParamWord, Words: []string{"fastest", "fast", "better", "best"},
		Help: "of compression: fastest, fast, better or best (default fast)",
	}},
	WantsManifest: true, // hard links are found while it is made
	Detect:        detect,
	Open:          open,
	Create:        create,
	Verify:        verify,
	Repair:        repair,
}

// detect never says Certain: formats that are tars of a special kind must win.
func detect(p format.Probe) format.Match {
	head := p.Head
	if name := codecOf(head); name != codec.Raw {
		// What a probe has of it may be less than a block of zstd, which tells nothing
		// before it is whole. Then there is the name.
		if head = firstBlock(head, name); len(head) == 0 && compression(p.Name) == name {
			return format.Likely
		}
	}
	if isHeader(head) || isEmpty(p.Head, p.Size) {
		return format.Likely
	}
	return format.No
}

// compression returns how an archive of that name is compressed.
func compression(name string) string {
	name = strings.ToLower(name)
	switch {
	case strings.HasSuffix(name, ".tar.zst"), strings.HasSuffix(name, ".tzst"):
		return codec.Zstd
	case strings.HasSuffix(name, ".tar.gz"), strings.HasSuffix(name, ".tgz"):
		return codec.Gzip
	}
	return codec.Raw
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
