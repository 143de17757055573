package zip

import (
	"bytes"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/internal/charset"
)

// Format is the zip format.
var Format = &format.Format{
	Name:       "zip",
	Title:      "zip",
	Extensions: []string{".zip"},
	Keeps:      format.KeepsModes | format.KeepsTimes | format.KeepsDirs | format.KeepsSymlinks,
	Params: []format.Param{{
		Name: "level", For: format.ToCreate, Kind: format.ParamNumber, Least: 1, Most: 9, Words: []string{"fastest", "fast", "better", "best"},
		Help: "compression level: fastest, fast, better or best, or 1 to 9 (default 6)",
	}, charset.Param},
	Refuses: refuses,

	StoredTime: storedTime,

	Detect: detect,
	Open:   open,
	Create: create,
	Verify: verify,
	Repair: repair,
}

// detect never returns Certain, because many formats are special zips. A zip that does not begin
// where the object begins may be a file in it, for example the last one of a tar.
func detect(p format.Probe) format.Match {
	if p.Size < 0 {
		return format.No
	}
	if bytes.HasPrefix(p.Head, []byte(localMagic)) || bytes.HasPrefix(p.Head, []byte(splitMagic)) {
		return format.Likely
	}
	at := findEnd(p.Tail)
	if at < 0 {
		if number, _ := partNumber(p.Name); number > 0 {
			return format.Possible
		}
		return format.No
	}
	if e := parseEnd(p.Tail[at:]); !e.long && e.off+e.size == uint64(p.Size)-uint64(len(p.Tail)-at) {
		return format.Likely
	}
	return format.Possible
}
