package holdall

import (
	"context"
	"os"

	"github.com/holdall/holdall/internal/base/glob"
	"github.com/holdall/holdall/internal/write/unpack"
)

// ExtractOptions are the options of [Extract]. The zero value extracts everything.
type ExtractOptions struct {
	// Names are the entries and folders to extract. If there are none, everything is extracted.
	Names []string `json:"names,omitempty"`
	// Include and Exclude are patterns that select among these; see PackOptions.
	Include []string `json:"include,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
	// Overwrite replaces existing files. Without it, existing files are kept and their entries
	// are reported as failed.
	Overwrite bool `json:"overwrite,omitempty"`
	// Changed keeps existing files that have the content of their entries, as digests show. They are
	// not touched.
	Changed bool `json:"changed,omitempty"`
	// NoOwner leaves all files with the user who extracts. Without it, owners and groups are set
	// if the program runs as root.
	NoOwner bool `json:"no_owner,omitempty"`
	// Strip removes this many elements from the beginning of each name. Entries of which nothing is
	// left are not extracted.
	Strip int `json:"strip,omitempty"`
	// OutsideLinks also makes symbolic links that lead out of the folder, as packages for "/"
	// have them. Extract never writes through them, but programs that use the folder later might.
	OutsideLinks bool `json:"outside_links,omitempty"`
	// NoVerify skips the comparison with recorded digests.
	NoVerify bool `json:"no_verify,omitempty"`
	// KeepDamaged writes the readable parts of a damaged file as NAME.damaged, with zeros in
	// place of the rest. These bytes are not compared with a digest. The file still counts as
	// failed.
	KeepDamaged bool `json:"keep_damaged,omitempty"`
	// DryRun reads and compares everything and writes nothing. The folder may be nil if it does
	// not exist.
	DryRun bool `json:"dry_run,omitempty"`
	// Max limits what an archive may write, so that it cannot fill a disk. Zero means the default
	// limit, a negative number no limit.
	Max struct {
		Entries int64 `json:"entries,omitempty"` // default 20 million
		Bytes   int64 `json:"bytes,omitempty"`   // default no limit
		// Ratio limits the content to this multiple of the stored bytes, once the content exceeds
		// 1 GiB. Entries that share bytes could otherwise claim any size. The default is 1000.
		Ratio int64 `json:"ratio,omitempty"`
		Depth int   `json:"depth,omitempty"` // nesting of folders, default 2048
	} `json:"max"`
	// OnError is called for each entry that could not be extracted; the remaining entries are
	// still extracted.
	OnError func(p Problem, err error) `json:"-"`
	// Meter, if not nil, counts progress.
	Meter *Meter `json:"-"`
}

// Extracted is the result of [Extract].
type Extracted struct {
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`
	Failed  int64 `json:"failed,omitempty"`
	// Stripped counts the names that began with a slash, which was removed.
	Stripped int64 `json:"stripped,omitempty"`
	// Unmatched has the patterns of Include and Exclude that matched nothing.
	Unmatched []string `json:"unmatched,omitempty"`
	// Unchanged counts the files of Entries that were there already.
	Unchanged int64 `json:"unchanged,omitempty"`
}

// Extract writes entries of a to files below into. It refuses names and links that lead out of
// into, and entries that would replace each other, and reports them. A file appears under its
// name when its content is complete and, if the archive has its digest, matches it.
func Extract(ctx context.Context, a *Archive, into *os.Root, o ExtractOptions) (Extracted, error) {
	filter, err := glob.NewFilter(o.Include, o.Exclude)
	if err != nil {
		return Extracted{}, err
	}
	done, err := unpack.Extract(ctx, a.src, into, unpack.Options{
		Names: o.Names, Filter: filter, Overwrite: o.Overwrite, Changed: o.Changed, NoOwner: o.NoOwner, Strip: o.Strip, OutsideLinks: o.OutsideLinks, NoVerify: o.NoVerify, KeepDamaged: o.KeepDamaged, DryRun: o.DryRun,
		Max: unpack.Limits(o.Max), OnError: o.OnError, Meter: o.Meter,
	})
	return Extracted(done), err
}
