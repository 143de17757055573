package databundle

import (
	"errors"
	"strconv"

	"github.com/holdall/holdall/format"
)

// Parameters of the format. Sizes are in bytes.
const (
	paramShards      = "shards"
	paramShardSize   = "shard-size"
	paramCompression = "compression"
	paramLevel       = "level"
	paramRecordSize  = "record-size"
	paramAlign       = "align"
	paramIndex       = "index"        // "directory", or "inline" for one of the shard's own
	paramCopies      = "index-copies" // number of copies of the index, beside it
)

const (
	minRecord = 4 << 10
	maxAlign  = 1 << 20
	maxShards = 4096
	// runRecords is the number of consecutive records of a shard before the next shard is used.
	// So all shards grow at the same time, and neighbours stay together.
	runRecords = 16
)

var params = []format.Param{
	{Name: paramShards, For: format.ToCreate, Kind: format.ParamNumber, Least: 1, Most: maxShards, Help: "spread the files over this many shards (default 1)"},
	{Name: paramShardSize, For: format.ToCreate, Kind: format.ParamSize, Least: 1 << 20, Most: 1 << 60, Help: "start another shard when the next file would exceed this size"},
	{Name: paramCompression, For: format.ToCreate, Kind: format.ParamWord, Words: []string{"zlib", "snappy", "zstd", "none"}, Help: "compression of records: zlib, snappy, zstd or none (default zlib)"},
	{Name: paramLevel, For: format.ToCreate, Help: "compression level: 1 to 9 for zlib, 1 to 22 for zstd, or fastest, fast, better or best (default 6 and 3)"},
	{Name: paramRecordSize, For: format.ToCreate, Kind: format.ParamSize, Least: minRecord, Most: maxRecord, Help: "compress records of this size, each readable alone (default 256KiB)"},
	{Name: paramAlign, For: format.ToCreate, Kind: format.ParamNumber, Most: maxAlign, Help: "align records to this many bytes; 1 is no alignment (default 4096)"},
	{Name: paramIndex, Flag: "index-place", For: format.ToCreate, Kind: format.ParamWord, Words: []string{"directory", "inline"}, Help: "place of the bundle's index: directory, or inline, in the header of the only shard (default directory)"},
	{Name: paramCopies, For: format.ToCreate, Kind: format.ParamNumber, Most: mostCopies, Help: "copies of the index to write, used if the index is damaged or lost (default 1; 0 for an inline one)"},
}

// options are the parsed parameters.
type options struct {
	shards     int
	shardSize  int64
	kind       compression
	recordSize int
	align      int64
	inline     bool
	copies     int
}

func parseOptions(param map[string]string) (o options, err error) {
	number := func(key string, usual int64) int64 {
		if n, err := strconv.ParseInt(param[key], 10, 64); err == nil {
			return n
		}
		return usual
	}
	o = options{
		shards: int(max(1, number(paramShards, 1))), shardSize: number(paramShardSize, 0), kind: compressionOf(param[paramCompression]),
		recordSize: int(number(paramRecordSize, defaultRecord)), align: number(paramAlign, defaultAlign),
		inline: param[paramIndex] == "inline", copies: int(number(paramCopies, 1)),
	}
	if o.inline && param[paramCopies] == "" {
		o.copies = 0
	}
	switch {
	case o.shards > 1 && o.shardSize > 0:
		err = errors.New("expected either shards or shard-size, found both")
	case o.inline && (o.shards > 1 || o.shardSize > 0 || o.copies > 0):
		err = errors.New("an inline index needs one shard and no copies")
	}
	if o.align == 1 {
		o.align = 0
	}
	return o, err
}

// rawPacked reports whether files are stored end to end, with nothing between them.
func (o options) rawPacked() bool { return o.kind == none && o.align == 0 }

// config returns the row of the bundle itself; 0 shards means that their number is unknown.
func (o options) config(shards int) config {
	return config{version: versionMagic, blockSize: uint64(o.align), recordSize: uint64(o.recordSize), compression: o.kind, shards: uint64(shards), rawPacked: o.rawPacked()}
}
