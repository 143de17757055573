package holdall

import (
	"context"
	"os"

	"github.com/holdall/holdall/internal/glob"
	"github.com/holdall/holdall/internal/unpack"
)

// ExtractOptions are wishes for an extraction.
type ExtractOptions struct {
	// Names are entries and folders to extract; none is everything.
	Names []string `json:"names,omitempty"`
	// Include and Exclude are patterns that select among these; see PackOptions.
	Include []string `json:"include,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
	// Overwrite replaces files that are there already. Without it they stay and
	// their entries are reported.
	Overwrite bool `json:"overwrite,omitempty"`
	// NoOwner leaves files to whoever extracts. Only root gives them away.
	NoOwner bool `json:"no_owner,omitempty"`
	// OutsideLinks makes symbolic links that lead outside too, as packages have
	// them that are meant for "/". Nothing is written through them here, but who
	// uses the folder afterwards should know.
	OutsideLinks bool `json:"outside_links,omitempty"`
	// NoVerify skips the comparison with recorded digests.
	NoVerify bool `json:"no_verify,omitempty"`
	// KeepDamaged writes what can be read of a damaged file, compared with nothing, as
	// NAME.damaged, with zeros for what cannot. The file counts as failed all the same.
	KeepDamaged bool `json:"keep_damaged,omitempty"`
	// DryRun reads and compares all, and writes nothing. The folder may be nil, for one that
	// is not there.
	DryRun bool `json:"dry_run,omitempty"`
	// Max limits what an archive may write, so that it cannot fill a disk. Zero means
	// the usual limit, a negative number none.
	Max struct {
		Entries int64 `json:"entries,omitempty"` // usually 20 million
		Bytes   int64 `json:"bytes,omitempty"`   // usually none
		// Ratio bounds content bytes by stored bytes, once there is more than 1 GiB
		// of content: entries that share their bytes can claim any size. Usually
		// 1000.
		Ratio int64 `json:"ratio,omitempty"`
		Depth int   `json:"depth,omitempty"` // folders below each other, usually 256
	} `json:"max"`
	// OnError is told of each entry that could not be extracted; the others are.
	OnError func(p Problem, err error) `json:"-"`
	// Meter counts.
	Meter *Meter `json:"-"`
}

// Extracted says what an extraction did.
type Extracted struct {
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`
	Failed  int64 `json:"failed,omitempty"`
	// Stripped counts names that begin with a slash. It is left out.
	Stripped int64 `json:"stripped,omitempty"`
}

// Extract writes entries of a below into, which nothing can leave: names that
// would, links that would lead out, and entries that would replace one another
// are refused and reported. A file appears under its name when its content is
// whole and, if the archive has its digest, right.
func Extract(ctx context.Context, a *Archive, into *os.Root, o ExtractOptions) (Extracted, error) {
	filter, err := glob.NewFilter(o.Include, o.Exclude)
	if err != nil {
		return Extracted{}, err
	}
	done, err := unpack.Extract(ctx, a.src, into, unpack.Options{
		Names: o.Names, Filter: filter, Overwrite: o.Overwrite, NoOwner: o.NoOwner, OutsideLinks: o.OutsideLinks, NoVerify: o.NoVerify, KeepDamaged: o.KeepDamaged, DryRun: o.DryRun,
		Max: unpack.Limits(o.Max), OnError: o.OnError, Meter: o.Meter,
	})
	return Extracted(done), err
}
