package databundle

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// What only this format understands of CreateOptions. Sizes are in bytes.
const (
	paramShards      = "shards"
	paramShardSize   = "shard-size"
	paramCompression = "compression"
	paramLevel       = "level"
	paramRecordSize  = "record-size"
	paramAlign       = "align"
	paramIndex       = "index"        // "directory", or "inline" for one of the shard's own
	paramCopies      = "index-copies" // more copies of the index, beside it
)

const (
	minRecord = 4 << 10
	maxAlign  = 1 << 20
	maxShards = 4096
	// runRecords is how many records go to one of several shards before the next
	// one gets some: so they are filled at the same time, and neighbours stay
	// together.
	runRecords = 16
)

// options are CreateOptions.Param, read.
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
	o = options{shards: 1, recordSize: defaultRecord, align: defaultAlign}
	number := func(key string, least, most int64) (int64, error) {
		n, err := strconv.ParseInt(param[key], 10, 64)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("%s %q: expected %d to %d", key, param[key], least, most)
		}
		return n, nil
	}
	for _, key := range slices.Sorted(maps.Keys(param)) {
		var n int64
		switch key {
		case paramShards:
			n, err = number(key, 1, maxShards)
			o.shards = int(n)
		case paramShardSize:
			o.shardSize, err = number(key, 1<<20, 1<<60)
		case paramRecordSize:
			n, err = number(key, minRecord, maxRecord)
			o.recordSize = int(n)
		case paramAlign:
			o.align, err = number(key, 0, maxAlign)
		case paramCopies:
			n, err = number(key, 0, mostCopies)
			o.copies = int(n)
		case paramIndex:
			switch param[key] {
			case "", "directory":
			case "inline":
				o.inline = true
			default:
				err = fmt.Errorf("index %q: expected directory or inline", param[key])
			}
		case paramCompression, paramLevel:
		default:
			err = fmt.Errorf("data bundles know no %q: %w", key, errors.ErrUnsupported)
		}
		if err != nil {
			return o, err
		}
	}
	if o.kind, err = parseCompression(param[paramCompression]); err != nil {
		return o, err
	}
	switch {
	case o.shards > 1 && o.shardSize > 0:
		err = errors.New("either how many shards, or how long they are, not both")
	case o.inline && (o.shards > 1 || o.shardSize > 0 || o.copies > 0):
		err = errors.New("an inline index is for one shard, and without copies")
	}
	if o.align == 1 {
		o.align = 0
	}
	return o, err
}

// rawPacked says that files lie end to end, without anything between them.
func (o options) rawPacked() bool { return o.kind == none && o.align == 0 }

// config is the bundle's own row; 0 shards are not known.
func (o options) config(shards int) config {
	return config{version: versionMagic, blockSize: uint64(o.align), recordSize: uint64(o.recordSize), compression: o.kind, shards: uint64(shards), rawPacked: o.rawPacked()}
}
