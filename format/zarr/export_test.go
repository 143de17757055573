package zarr

import "testing"

// SmallShards has shards of at most n bytes until a test ends.
func SmallShards(t testing.TB, n int64) {
	old := shardBytes
	t.Cleanup(func() { shardBytes = old })
	shardBytes = n
}
