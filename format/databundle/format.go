package databundle

import (
	"slices"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/databundle/internal/sstable"
)

// Format is the DataBundle format.
var Format = &format.Format{
	Name:       "databundle",
	Title:      "DataBundle",
	Extensions: []string{".bundle", ".databundle"},
	Keeps: format.KeepsModes | format.KeepsTimes | format.KeepsOwners | format.KeepsDirs |
		format.KeepsSymlinks | format.KeepsHardLinks | format.KeepsDigests,
	NeedsDigests: true,
	Digest:       "crc32c",
	Params:       params,
	Refuses:      refuses,
	Detect:       detect,
	Create:       create,
	Steady:       true, // most memory is buffers that are used again
	Parts: &format.Parts{
		Most: maxShards, Object: partObject, Decides: func(archive string) string { return sstable.Join(archive, currentName) },
		Create: createPart, Tries: triesOf, Open: openPart, Merge: mergeParts, Clear: clearParts,
	},
	Verify: verify,
	Repair: repair,
	Open:   open,
}

// detect recognises a bundle by the names in its folder, or by its only shard.
func detect(p format.Probe) format.Match {
	if p.Size >= 0 {
		if header, data, ok := parsePrefix(p.Head); ok && prefixLen+header <= data && data <= p.Size && header <= maxHeader {
			return format.Likely
		}
		return format.No
	}
	shard := slices.Contains(p.Names, shardName(0))
	switch {
	case shard && slices.Contains(p.Names, currentName):
		return format.Certain
	case shard || slices.Contains(p.Names, currentName):
		return format.Likely
	}
	return format.No
}
