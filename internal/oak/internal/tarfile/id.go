package tarfile

import "github.com/holdall/holdall/internal/oak/internal/segment"

// What a tar repeats of segments.
type (
	ID         = segment.ID
	IDs        = segment.IDs
	Generation = segment.Generation
)

const idText = 36

// dashes is where a UUID has its dashes.
var dashes = [...]int{8, 13, 18, 23}

// compareIDs compares ids where they stand in files.
func compareIDs(a, b []byte) int { return ID(a).Compare(ID(b)) }
