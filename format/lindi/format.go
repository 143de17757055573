package lindi

import (
	"slices"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/internal/tarhead"
)

// Views of an archive.
const (
	membersView = "members" // members of the tar or files of the folder
	zarrView    = "zarr"    // the keys of lindi.json
	zarr3View   = "zarr3"   // the same keys in version 3
)

var views = []string{membersView, zarrView, zarr3View}

// Format is the LINDI archive in its three forms.
var Format = &format.Format{
	Name:          "lindi",
	Title:         "LINDI",
	Extensions:    []string{".lindi.tar", ".lindi.json", ".lindi.d"},
	Views:         views,
	Keeps:         format.KeepsDigests,
	WantsManifest: true,
	Copies:        true,
	Refers:        true,
	Joined:        joined,
	Bare:          func(name string) bool { return strings.HasSuffix(strings.ToLower(name), ".lindi.json") },
	Params: []format.Param{
		{Name: dropOrphans, For: format.ToOpen | format.ToRepair, Kind: format.ParamSwitch, Help: "leave out blobs that no key refers to; in repair, also the trash"},
		{Name: consolidate, For: format.ToCreate, Kind: format.ParamSize, Least: blobFrom, Most: mostRun,
			Help: "join small chunks of an array into runs of at most this size (4MiB), to read them with fewer requests"},
		{Name: "as", Flag: "-", For: format.ToCreate, Kind: format.ParamWord, Words: []string{"members", "zarr"}},
	},
	Detect: detect,
	Marks:  []string{entryName + "\x00"},
	Open:   open,
	Create: create,
	Verify: verify,
	Repair: repair,
	Amend:  amend,
}

func detect(p format.Probe) format.Match {
	if p.Size < 0 {
		if slices.Contains(p.Names, rfsName) {
			return format.Certain
		}
		return format.No
	}
	switch shapeOf(p.Head) {
	case isTar:
		return format.Certain
	case isJSON:
		// Other JSON texts do not contain this at their beginning or end.
		if strings.Contains(string(p.Head[:min(len(p.Head), 4096)]), `"refs"`) || strings.Contains(string(p.Tail), `"refs"`) {
			return format.Likely
		}
		s := scannerOf(p.Head, (format.Limits{}).OrDefault().Depth)
		for s.Begin('{'); s.Next('}'); s.Skip() {
			if key := string(s.Key()); key == "refs" || key == noteKey {
				return format.Likely
			}
		}
	}
	if strings.HasSuffix(p.Name, ".lindi.tar") && tarhead.In(p.Head, func(i int) bool {
		h, ok := parseHeader(p.Head[i:])
		return ok && h.ours
	}) >= 0 {
		return format.Likely // without its beginning
	}
	return format.No
}
