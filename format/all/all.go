// Package all registers every format that comes with holdall. Import it for that side effect:
//
//	import _ "github.com/holdall/holdall/format/all"
//
// To support only some formats, import their packages and call format.Register.
package all

import (
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/format/databundle"
	"github.com/holdall/holdall/format/hdf5"
	"github.com/holdall/holdall/format/lindi"
	"github.com/holdall/holdall/format/oak"
	"github.com/holdall/holdall/format/rvn"
	"github.com/holdall/holdall/format/tar"
	"github.com/holdall/holdall/format/zarr"
	"github.com/holdall/holdall/format/zip"
)

func init() {
	format.Register(caf.Format)
	format.Register(databundle.Format)
	format.Register(hdf5.Format)
	format.Register(lindi.Format)
	format.Register(oak.Format)
	format.Register(rvn.Format)
	format.Register(tar.Format)
	format.Register(zarr.Format)
	format.Register(zip.Format)
}
