package rvn

import (
	"bytes"
	"slices"

	"github.com/holdall/holdall/format"
)

// Format is the RVN format.
var Format = &format.Format{
	Name:       "rvn",
	Title:      "Ravenports archive",
	Extensions: []string{".rvn"},
	Views:      []string{filesView, metaView},
	Keeps: format.KeepsModes | format.KeepsTimes | format.KeepsOwners | format.KeepsDirs |
		format.KeepsSymlinks | format.KeepsHardLinks | format.KeepsFifos | format.KeepsDigests,
	NeedsDigests: true,
	Params: []format.Param{
		{Name: paramLevel, For: format.ToCreate, Help: "compression level: fastest, fast, better or best" + libzstdAdvice + " (default better)"},
		{Name: paramSections, For: format.ToCreate, Kind: format.ParamSize, Words: []string{"none"}, Least: minSection, Most: maxSection,
			Help: "compress sections of this size, each readable alone: 4MiB, or none for one piece, as packrvn writes it (default 768KiB)"},
		{Name: paramABI, For: format.ToCreate, Help: "platform of the package, for its metadata"},
		{Name: paramMetadata, Flag: "-", For: format.ToCreate},
		{Name: paramPrefix, Flag: "-", For: format.ToCreate},
	},
	DateEpoch:     true,
	Steady:        true, // encoders have tables of up to 35 MB each, and little else is allocated
	WantsManifest: true,
	Order:         order,
	Refuses:       refuses,
	Detect:        detect,
	Marks:         []string{string(magic[:])},
	Open:          open,
	Create:        create,
	Verify:        verify,
	Repair:        repair,
	DigestsAll:    true,
}

// The views: files are what a package installs, and meta is its metadata.
const (
	filesView = "files"
	metaView  = "meta"
)

// detect returns Certain if the counts and lengths of the header agree, because the magic number
// has only three bytes.
func detect(p format.Probe) format.Match {
	if p.Size < 0 && slices.Contains(p.Names, catalogArchive) {
		return format.Certain // a repository
	}
	if len(p.Head) < headerLen || !bytes.Equal(p.Head[:3], magic[:]) {
		return format.No
	}
	h, _ := parseHeader(p.Head)
	if h.flatByCounts() == int64(h.IndexFlat) && (p.Size < 0 || h.contentsOff() <= p.Size) {
		return format.Certain
	}
	return format.Likely
}
