package oak

import (
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/formattest"
)

// What is written as a file is read as one in the view of files.
func TestStoresOfFilesConform(t *testing.T) {
	f := *Format
	f.Views, f.Overview = nil, ""
	f.Keeps &^= format.KeepsProperties
	f.Repair = nil // of segments, which these entries are not
	f.Open = inFiles
	formattest.Run(t, &f)
}
