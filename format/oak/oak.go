// Package oak is the format of Apache Oak's segment stores. Its code is in internal/oak, together
// with checks, recovery, cleanup, compaction and exports, which only the verbs of "holdall oak"
// use.
package oak

import "github.com/holdall/holdall/internal/oak"

// Format reads, writes and repairs segment stores.
var Format = oak.Format
