// Package oak is Apache Oak's segment store as a format.
//
// Its code is in internal/oak, together with what only the verbs of "holdall oak"
// use: checks, recovery, cleanup, compaction, exports.
package oak

import "github.com/holdall/holdall/internal/oak"

// Format reads, writes and mends segment stores.
var Format = oak.Format
