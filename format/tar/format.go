package tar

import (
	"bytes"
	"io"
	"strings"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/internal/charset"
	"github.com/holdall/holdall/format/internal/tarhead"
)

// Format is the tar format.
var Format = &format.Format{
	Name:       "tar",
	Title:      "tar, plain, zstd or gzip; bzip2, xz, lz4, lzip, lzma and Z to read",
	Extensions: extensions(),
	Keeps: format.KeepsModes | format.KeepsTimes | format.KeepsOwners | format.KeepsDirs |
		format.KeepsSymlinks | format.KeepsHardLinks | format.KeepsFifos,
	Params: []format.Param{{
		Name: "level", For: format.ToCreate, Kind: format.ParamNumber, Least: 1, Most: 22, Words: []string{"fastest", "fast", "better", "best"},
		Help: "compression level: fastest, fast, better or best, or 1 to 9 for gzip, 1 to 22 for zstd (default fast)",
	}, charset.Param},
	Refuses: refuses,
	Detect:  detect,
	Marks:   marks(),
	Open:    open,
	Create:  create,
	Verify:  verify,
	Repair:  repair,
}

func extensions() []string {
	all := []string{".tar"}
	for _, c := range compressions {
		all = append(all, c.names...)
	}
	return all
}

// marks are the beginnings of compressed tars. The members of a plain one are found anyway.
func marks() (all []string) {
	for _, c := range compressions {
		if len(c.magic) > 0 {
			all = append(all, string(c.magic))
		}
	}
	return all
}

// detect never returns Certain, because formats that are special tars must win.
func detect(p format.Probe) format.Match {
	head := p.Head
	if name := codecOf(head); name != codec.Raw {
		// The head may be less than a block of zstd or bzip2, which cannot be decoded, and an empty
		// tar has only zeros. Then the name decides.
		if head = firstBlock(head, name); len(bytes.Trim(head, "\x00")) == 0 && compression(p.Name) != codec.Raw {
			return format.Likely
		}
	}
	switch {
	case isEmpty(p.Head, p.Size):
		return format.Likely
	case len(head) < blockSize:
		return format.No
	case head[0] != 0 && block(head[:blockSize]).checked(): // older tars have no magic number
		return format.Likely
	case string(head[257:262]) == "ustar", strings.HasSuffix(p.Name, ".tar") && hasHeader(head):
		return format.Possible
	}
	return format.No
}

// hasHeader reports whether there is a header anywhere: what precedes it may be damage, or the
// beginning of the archive may be lost. Only the name tells then that it was a tar, and no format with
// digests that is one.
func hasHeader(head []byte) bool {
	return tarhead.In(head, func(i int) bool { return head[i] != 0 && block(head[i:i+blockSize]).checked() }) >= 0
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
	n, _ := io.ReadFull(r, b) // a part may be enough
	return b[:n]
}

// maxEmpty is the largest empty archive: tar pads archives to its record size, which is 10 KiB by
// default.
const maxEmpty = 64 << 10

// isEmpty reports whether an object of that size that begins with head is an empty archive.
func isEmpty(head []byte, size int64) bool {
	return size >= 2*blockSize && size <= maxEmpty && size%blockSize == 0 && len(bytes.Trim(head, "\x00")) == 0
}
