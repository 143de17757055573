package kept

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/holdall/holdall/format"
)

// The table of an index has the name, the size and the place of the content of each row, in a form
// that can be mapped into memory and read in place. It lies before the pages. docs/index.md
// specifies its bytes.
const (
	tableMagic   = "holdtab1"
	tableEndLen  = 4 + 4 + len(tableMagic) // length and CRC-32 of the head, and the magic
	tableBlock   = 4096                    // each has a checksum; sections begin at a block
	namesGroup   = 16                      // names that are encoded relative to the first of them
	wideNames    = 1 << 63                 // bit of a group: its lengths have 4 bytes, not 1
	hashLen      = 8
	placeLen     = 12
	runLen       = 24 // of sums of a page
	longHeadLen  = 16
	longLen      = 48        // an extent in a long record
	offBits      = 48        // of a place
	noNumber     = 1<<32 - 1 // in a long record: the table itself as the volume, or no codec
	maxHows      = 1<<16 - 1
	maxPlacedHow = maxHows - 4096 // room for hows with fewer properties, which are few
	maxSums      = 8              // algorithms of digests
)

// A tableHead describes a table and where its sections are. It is JSON.
type tableHead struct {
	Format   string            `json:"format"`
	View     string            `json:"view"`
	Param    map[string]string `json:"param,omitempty"`
	Bound    tableBound        `json:"bound"`
	Objects  []tableObject     `json:"objects,omitempty"` // of a folder
	Volumes  []Volume          `json:"volumes"`
	Codecs   []string          `json:"codecs"`
	Rows     int64             `json:"rows"`
	Files    int64             `json:"files"`
	Bytes    int64             `json:"bytes"`
	Bits     int               `json:"bits"`
	Start    int64             `json:"start"`
	Sections tableSections     `json:"sections"`
	Sum      uint32            `json:"checks_crc32"` // of the section of checks
	Digests  []digestKind      `json:"digests,omitempty"`
	Pages    int64             `json:"pages"`           // where they begin
	Since    int64             `json:"since,omitempty"` // base of 4-byte times: seconds since 1970
	Chunk    int64             `json:"chunk,omitempty"`
	How      []how             `json:"how"`
}

// A digestKind is the algorithm and the length of digests.
type digestKind struct {
	Algo string `json:"algo"`
	Len  int    `json:"len"`
}

// tableBound is Bound with sums that are available in every language: the first 16 bytes of
// SHA-256.
type tableBound struct {
	Size    int64     `json:"size"`
	ModTime time.Time `json:"mtime,omitzero"`
	Version string    `json:"version,omitempty"`
	Head    string    `json:"head,omitempty"`
	Tail    string    `json:"tail,omitempty"`
}

// A tableObject is one of the objects of a folder.
type tableObject struct {
	Name    string    `json:"name"` // as Volume.Name
	Size    int64     `json:"size"`
	ModTime time.Time `json:"mtime,omitzero"`
	Version string    `json:"version,omitempty"`
}

type tableSections struct {
	Slots  section `json:"slots"`
	Hashes section `json:"hashes"`
	Places section `json:"places"`
	Stored section `json:"stored,omitzero"`
	Skips  section `json:"skips,omitzero"`
	Times  section `json:"times,omitzero"`
	Firsts section `json:"firsts,omitzero"`
	Groups section `json:"groups"`
	Names  section `json:"names"`
	Longs  section `json:"longs"`
	Sums   section `json:"sums,omitzero"`
	Runs   section `json:"runs,omitzero"`
	Checks section `json:"checks"`
}

// A section is a part of the table.
type section struct {
	Off int64 `json:"off"` // in the index
	Len int64 `json:"len"`
}

// A how has the properties that many rows share. It does not have the exact place of a content.
type how struct {
	kind          format.Kind
	implied       bool // by other names: its own name ends in a slash
	placed        bool // the place has an offset, in
	volume, codec int  // of Codecs, -1 is raw
	whole         bool // the decoded run is exactly the content
	long          bool // the place leads to a record
	ask, fault    bool
	hasMode       bool
	mode          uint32
	owner, group  string
	time          bool // it has a time
	digest        int  // of Digests, -1 is none
	plain         bool // the pages have nothing more
}

// howJSON is how in JSON.
type howJSON struct {
	Kind    string  `json:"kind"`
	Implied bool    `json:"implied,omitempty"`
	Volume  *int    `json:"volume,omitempty"`
	Codec   *int    `json:"codec,omitempty"`
	Whole   bool    `json:"whole,omitempty"`
	Long    bool    `json:"long,omitempty"`
	Ask     bool    `json:"ask,omitempty"`
	Fault   bool    `json:"fault,omitempty"`
	Mode    *uint32 `json:"mode,omitempty"`
	Owner   string  `json:"owner,omitempty"`
	Group   string  `json:"group,omitempty"`
	Time    bool    `json:"time,omitempty"`
	Digest  *int    `json:"digest,omitempty"`
	Plain   bool    `json:"plain,omitempty"`
}

func (h how) MarshalJSON() ([]byte, error) {
	j := howJSON{Kind: h.kind.String(), Implied: h.implied, Whole: h.whole, Long: h.long, Ask: h.ask, Fault: h.fault,
		Owner: h.owner, Group: h.group, Time: h.time, Plain: h.plain}
	if h.placed {
		j.Volume, j.Codec = &h.volume, &h.codec
	}
	if h.hasMode {
		j.Mode = &h.mode
	}
	if h.digest >= 0 {
		j.Digest = &h.digest
	}
	return json.Marshal(j)
}

func (h *how) UnmarshalJSON(b []byte) error {
	var j howJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	kind := slices.Index(kindWords[:], j.Kind)
	if kind < 0 || (j.Volume == nil) != (j.Codec == nil) {
		return fmt.Errorf("unknown kind %q, or a volume without a codec", clip(j.Kind))
	}
	*h = how{kind: format.Kind(kind), implied: j.Implied, whole: j.Whole, long: j.Long, ask: j.Ask, fault: j.Fault,
		owner: j.Owner, group: j.Group, time: j.Time, digest: -1, plain: j.Plain}
	if h.placed = j.Volume != nil; h.placed {
		h.volume, h.codec = *j.Volume, *j.Codec
	}
	if h.hasMode = j.Mode != nil; h.hasMode {
		h.mode = *j.Mode
	}
	if j.Digest != nil {
		h.digest = *j.Digest
	}
	return nil
}

// kindWords are the names of kinds.
var kindWords = func() (words [format.Property + 1]string) {
	for k := range words {
		words[k] = format.Kind(k).String()
	}
	return words
}()
