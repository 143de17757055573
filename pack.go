package holdall

import (
	"context"
	"io/fs"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
)

// PackOptions are the options of [Pack] and [Convert]. The zero value suits most programs.
type PackOptions struct {
	// Store gets the archive, by its name in it. If it is nil, that is decided by the address.
	Store store.Store `json:"-"`
	// Format is the name of the format. If it is empty, the format follows from the extension of
	// the archive's name.
	Format string `json:"format,omitempty"`
	// ChunkSize makes a chunked format continue in NAME-00001, NAME-00002, … when the next file
	// would take a chunk's content over ChunkSize. ChunkMax limits the size of a whole chunk. 0
	// means 32 GiB, or no limit if ChunkSize is larger.
	ChunkSize int64 `json:"chunk_size,omitempty"`
	ChunkMax  int64 `json:"chunk_max,omitempty"`
	// Plain writes the bare format, without the digests that holdall adds.
	Plain bool `json:"plain,omitempty"`
	// Exclude has patterns of names to leave out, and Include has patterns of names to pack with
	// everything below them; without Include, all names are packed. 'holdall help patterns'
	// describes patterns.
	Exclude []string `json:"exclude,omitempty"`
	Include []string `json:"include,omitempty"`
	// Only, if not nil, has the names of the files to pack; the folders above them are packed
	// too. Attrs replaces attributes of entries, by name.
	Only  map[string]bool `json:"only,omitempty"`
	Attrs map[string]Attr `json:"attrs,omitempty"`
	// Follow packs the files that symbolic links refer to instead of the links.
	Follow bool `json:"follow,omitempty"`
	// Listed means that the paths are a complete list: each entry keeps its whole path as its
	// name, and the contents of folders are not added.
	Listed bool `json:"listed,omitempty"`
	// Time, if not zero, is the time of every entry, so that equal contents make equal archives.
	Time time.Time `json:"time,omitzero"`
	// Prefix is prepended to every name.
	Prefix string `json:"prefix,omitempty"`
	// Jobs is the number of files that are read at once; 0 means a number that suits the machine.
	// For objects in a bucket it is the number of concurrent requests; 0 means 16.
	Jobs int `json:"jobs,omitempty"`
	// Embed applies to [Convert]: it copies contents into the archive that the source only refers
	// to. Refer does the opposite for formats that support it: entries refer to contents in the
	// source instead of copying them. "here" refers to where the source is now; an address refers
	// to where it will be.
	Embed bool   `json:"embed,omitempty"`
	Refer string `json:"refer,omitempty"`
	// Force also replaces an object that is not an archive of the format that is written. Without
	// it, the error wraps [fs.ErrExist]. An input is never replaced.
	Force bool `json:"force,omitempty"`
	// Once refuses to replace an existing archive. The error wraps [fs.ErrExist].
	Once bool `json:"once,omitempty"`
	// Resume continues an earlier pack to the same place that was interrupted, and keeps what was
	// sent if this one is interrupted too. All sources are read again, but parts that the store
	// is proven to have are not sent again.
	Resume bool `json:"resume,omitempty"`
	// Param has values for the format's Params.
	Param map[string]string `json:"param,omitempty"`
	// NoVerify does not compare objects read from buckets with the bucket's checksums. Without
	// it, an object that does not match is read once more, and then left out. [Convert] looks at
	// OpenOptions.NoVerify instead.
	NoVerify bool `json:"no_verify,omitempty"`

	// KeepDamaged has [Convert] write what it can read of a damaged file as NAME.damaged, with zeros
	// in gaps. So it does with all files of which nothing shows any more whether they are damaged,
	// because digests of the archive are lost; without it, such an archive is not converted.
	KeepDamaged bool `json:"keep_damaged,omitempty"`

	// Protect, if not 0, is the share of the archive that may be lost. Parity from which that
	// much can be recovered is written beside the archive.
	Protect float64 `json:"protect,omitempty"`

	// OnError is called for each entry that could not be packed; the remaining entries are still
	// packed. If OnError is nil, the first failure ends the call.
	OnError func(name string, err error) `json:"-"`
	// Meter, if not nil, counts progress.
	Meter *Meter `json:"-"`
	// Formats replaces the registered formats.
	Formats []*format.Format `json:"-"`
}

// An Attr replaces attributes of an entry. Empty fields leave them unchanged.
type Attr struct {
	Owner   string      `json:"owner,omitempty"`
	Group   string      `json:"group,omitempty"`
	Mode    fs.FileMode `json:"mode,omitempty"`
	HasMode bool        `json:"has_mode,omitempty"`
}

// Summary is the result of [Pack] and [Convert].
type Summary struct {
	format.Summary
	Failed int64 `json:"failed,omitempty"`
	// Dropped counts the entries that the format cannot store, by kind, such as "symlink".
	Dropped map[string]int64 `json:"dropped,omitempty"`
	// LeftOut has the names of the entries that failed or were dropped, and the reasons: the first
	// 10,000 of them.
	LeftOut []Problem `json:"-"`
	// Unmatched has the patterns of Include and Exclude that matched nothing.
	Unmatched []string `json:"unmatched,omitempty"`
	// Again has the inputs that were named again. Each is packed once.
	Again []string `json:"again,omitempty"`
	// Base is the folder that all names are relative to, if it is the only input. With several
	// inputs, names begin with the name of their input.
	Base string `json:"base,omitempty"`
	// Older names a chunk of an earlier, longer set of the same name. It is not part of the new
	// set.
	Older string `json:"older,omitempty"`
	// Copied is the number of stored bytes that the store copied by itself, and Resumed the
	// number that it had from an interrupted pack. All other bytes passed through this program.
	Copied  int64 `json:"copied,omitempty"`
	Resumed int64 `json:"resumed,omitempty"`
	// Lost names the attributes of the source's entries that the format cannot store, such as
	// "modes" and "times".
	Lost []string `json:"lost,omitempty"`
	// Kept is the number of bytes that the store keeps for a pack with Resume. It is set only if
	// there is an error.
	Kept int64 `json:"kept,omitempty"`
	// Referred counts the entries that refer to content in the source instead of having a copy.
	Referred int64 `json:"referred,omitempty"`
	// Proven counts the packed objects of buckets by the checksum of the bucket that they were
	// compared with: "md5", "crc32c", "sha256_of_parts". "nothing" counts objects that were not
	// compared, "size" empty objects.
	Proven map[string]int64 `json:"proven,omitempty"`
	// Parity is the name of the parity file that was written, and ParityBytes its size.
	Parity      string `json:"parity,omitempty"`
	ParityBytes int64  `json:"parity_bytes,omitempty"`
}

func (o PackOptions) inner() pack.Options {
	attrs := make(map[string]pack.Attr, len(o.Attrs))
	for name, a := range o.Attrs {
		attrs[name] = pack.Attr(a)
	}
	return pack.Options{
		Format: o.Format, ChunkSize: o.ChunkSize, ChunkMax: o.ChunkMax, Plain: o.Plain, Include: o.Include, Exclude: o.Exclude, Only: o.Only, Attrs: attrs,
		Follow: o.Follow, Listed: o.Listed, Time: o.Time, Prefix: o.Prefix, Jobs: o.Jobs, Embed: o.Embed, Refer: o.Refer,
		Force: o.Force, KeepDamaged: o.KeepDamaged, Once: o.Once, Resume: o.Resume, Param: o.Param, NoVerify: o.NoVerify, Protect: o.Protect, OnError: o.OnError, Meter: o.Meter, Formats: o.Formats,
	}
}

// Pack writes an archive to address from local files and folders, or from addresses of objects
// and of folders of objects. The two cannot be mixed. If paths is a single folder, the names in
// the archive are relative to it; otherwise they begin with the last element of their path.
//
// The archive, with all its chunks, appears completely or not at all. If there is nothing to
// pack, the error is [ErrNothing]. If OnError is nil, the
// first file that cannot be packed ends the call with an error.
func Pack(ctx context.Context, address string, paths []string, o PackOptions) (Summary, error) {
	st, name, err := at(ctx, o.Store, address)
	if err != nil {
		return Summary{}, err
	}
	sum, err := pack.Pack(ctx, st, name, paths, o.inner())
	return Summary(sum), err
}

// Convert writes the entries of a to a new archive at address, in stored order. Content that is
// stored uncompressed in one piece is copied unchanged, by the file system itself if it can.
// Digests in a are kept. If a was opened with NoVerify, contents are not compared with digests that
// go with them. All others are compared nevertheless, so that no damaged content gets a new digest.
func Convert(ctx context.Context, a *Archive, address string, o PackOptions) (Summary, error) {
	st, name, err := at(ctx, o.Store, address)
	if err != nil {
		return Summary{}, err
	}
	inner := o.inner()
	if again := a.asked; again.NoVerify {
		// Its reader may have omitted comparisons of its own.
		inner.Unverified, again.NoVerify, again.Parity = true, false, parity.None
		if a, err = open(ctx, a.src.Store, a.src.Name, again); err != nil {
			return Summary{}, err
		}
		defer a.Close()
	}
	sum, err := pack.Convert(ctx, a.src, st, name, inner)
	return Summary(sum), err
}
