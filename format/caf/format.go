package caf

import (
	"bytes"

	"github.com/holdall/holdall/format"
)

// Format is the Chunk Archive Format.
var Format = &format.Format{
	Name:         "caf",
	Title:        "Chunk Archive Format",
	Extensions:   []string{".caf"},
	Keeps:        format.KeepsDigests | format.KeepsHeaders,
	Chunked:      true,
	Copies:       true,
	CopiesUnread: true,
	Params: []format.Param{{
		Name: "ends", Flag: "caf-ends", For: format.ToOpen | format.ToVerify | format.ToRepair,
		Kind: format.ParamWord, Words: []string{"inclusive", "exclusive"},
		Help: "meaning of end_byte if the archive does not show it: inclusive or exclusive",
	}, {
		Name: "dedupe", For: format.ToCreate, Kind: format.ParamSwitch,
		Help: "store equal files once; they share their bytes",
	}},
	Detect: detect,
	Open:   open,
	Create: create,
	Verify: verify,
	Repair: repair,
}

// detect returns Certain only for a log. A CAF has no magic number, so any file could end in something
// that reads as an index, and a format with a magic number must win.
func detect(p format.Probe) format.Match {
	if len(p.Head) >= logFixed && string(p.Head[:len(logMagic)]) == logMagic {
		return format.Certain
	}
	at, n, fault := parseFooter(p.Tail, p.Size)
	if fault != nil || p.Size < 0 || n > (format.Limits{}).OrDefault().Index {
		return format.No
	}
	tail := p.Tail[:len(p.Tail)-footerLen]
	if inTail := at - (p.Size - int64(len(p.Tail))); inTail >= 0 {
		x := bytes.TrimLeft(tail[inTail:], " \t\r\n")
		if bytes.HasPrefix(x, []byte("{")) && bytes.Contains(x, []byte(`"files"`)) {
			return format.Likely
		}
		return format.No
	}
	// The index begins before the bytes of the probe, so only its end is checked.
	x := bytes.TrimRight(tail, " \t\r\n")
	if bytes.HasSuffix(x, []byte("}")) && bytes.Contains(x, []byte(`"end_byte"`)) {
		return format.Likely
	}
	return format.No
}
