package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
)

// bundleFlags are the flags that only data bundles understand.
type bundleFlags struct {
	shards      int
	shardSize   sizeFlag
	compression string
	recordSize  sizeFlag
	align       int
	copies      int
	index       string
}

func (f *bundleFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.IntVar(&f.shards, "shards", 0, "databundle: how many shards the files are spread over (default 1)")
	fs.Var(&f.shardSize, "shard-size", "databundle: begin another shard when the next file would take one over this")
	fs.StringVar(&f.compression, "compression", "", "databundle: zlib, snappy, zstd or none (default zlib)")
	fs.Var(&f.recordSize, "record-size", "databundle: what is compressed together, and read at random (default 256KiB)")
	fs.IntVar(&f.align, "align", -1, "databundle: where records may begin, 1 for anywhere (default 4096)")
	fs.IntVar(&f.copies, "index-copies", 0, "databundle: how many copies of the index to write beside it, for repairs")
	fs.StringVar(&f.index, "index", "", "databundle: directory, or inline for one that is in the only shard's header")
}

// params puts what was given where the format finds it.
func (f *bundleFlags) params(to map[string]string) error {
	for key, n := range map[string]int64{"shards": int64(f.shards), "shard-size": int64(f.shardSize), "record-size": int64(f.recordSize), "index-copies": int64(f.copies)} {
		if n < 0 {
			return fmt.Errorf("--%s: expected 0 or more, found %d", key, n)
		}
		if n > 0 {
			to[key] = strconv.FormatInt(n, 10)
		}
	}
	if f.align >= 0 {
		to["align"] = strconv.Itoa(f.align)
	}
	for key, s := range map[string]string{"compression": f.compression, "index": f.index} {
		if s != "" {
			to[key] = s
		}
	}
	return nil
}
