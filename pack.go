package holdall

import (
	"context"
	"io/fs"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/pack"
	"github.com/holdall/holdall/store"
)

// PackOptions are wishes for a new archive.
type PackOptions struct {
	// Format names the format; empty takes it from the archive's name.
	Format string `json:"format,omitempty"`
	// ChunkSize makes a chunked format roll over into NAME-00001, NAME-00002, …
	// when the next file would take a chunk's content over it. ChunkMax bounds a
	// whole chunk; 0 is 32 GiB, or no bound if ChunkSize is larger.
	ChunkSize int64 `json:"chunk_size,omitempty"`
	ChunkMax  int64 `json:"chunk_max,omitempty"`
	// Plain writes the bare format, without the digests that we add.
	Plain bool `json:"plain,omitempty"`
	// Exclude are patterns of names to leave out; see the command's help.
	// Include are patterns of those to take, with what is below them; none is all.
	Exclude []string `json:"exclude,omitempty"`
	Include []string `json:"include,omitempty"`
	// Only, if it is not nil, are the names of the files to pack; the folders above
	// them come along. Attrs replace what entries have, by name.
	Only  map[string]bool `json:"only,omitempty"`
	Attrs map[string]Attr `json:"attrs,omitempty"`
	// Follow packs what symlinks to files point to.
	Follow bool `json:"follow,omitempty"`
	// Listed says that the paths were listed one by one: each keeps its whole
	// name, and folders bring nothing that is in them.
	Listed bool `json:"listed,omitempty"`
	// Time is what every entry gets for its time, if it is not zero: archives of
	// the same contents are then the same.
	Time time.Time `json:"time,omitzero"`
	// Prefix is put in front of every name.
	Prefix string `json:"prefix,omitempty"`
	// Jobs is how many files are read at once; 0 suits the machine. Of objects in a
	// bucket it is how many requests are under way, 16 if it is 0.
	Jobs int `json:"jobs,omitempty"`
	// Embed writes into the archive what the archive that is converted only
	// refers to. Refer does the opposite, where the format can: entries refer
	// to where they lie now, by "here", or with an address, where that archive
	// will lie.
	Embed bool   `json:"embed,omitempty"`
	Refer string `json:"refer,omitempty"`
	// Once refuses to replace what is there: the error wraps fs.ErrExist.
	Once bool `json:"once,omitempty"`
	// Resume goes on with what an earlier pack into the same place had sent before it
	// broke off, and keeps what was sent if this one does. Everything is read again,
	// and what the store proves to have is not sent again.
	Resume bool `json:"resume,omitempty"`
	// Param has values of the format's own Params.
	Param map[string]string `json:"param,omitempty"`
	// NoVerify does not compare what is read of buckets with the checksums that they
	// have. Otherwise what does not match is read once more, and then left out.
	NoVerify bool `json:"no_verify,omitempty"`

	// Protect, if it is not 0, is a share of the archive that may be lost: parity is
	// written beside the archive, from which that is computed again.
	Protect float64 `json:"protect,omitempty"`

	// OnError is told of each entry that could not be packed; the others are.
	// Without it the first one ends the pack.
	OnError func(name string, err error) `json:"-"`
	// Meter counts.
	Meter *Meter `json:"-"`
	// Formats replaces the registered formats.
	Formats []*format.Format `json:"-"`
}

// Attr is what an entry gets instead of what it has; empty is what it has.
type Attr struct {
	Owner   string      `json:"owner,omitempty"`
	Group   string      `json:"group,omitempty"`
	Mode    fs.FileMode `json:"mode,omitempty"`
	HasMode bool        `json:"has_mode,omitempty"`
}

// Summary says what was written.
type Summary struct {
	format.Summary
	Failed int64 `json:"failed,omitempty"`
	// Dropped counts what the format has no place for, by its kind: "symlink".
	Dropped map[string]int64 `json:"dropped,omitempty"`
	// Older is a chunk that was there before and is no part of this set: what
	// it belongs to had more chunks.
	Older string `json:"older,omitempty"`
	// Of what is stored, Copied bytes were copied by the store itself, and Resumed
	// bytes it had from an earlier try. The others passed through this program.
	Copied  int64 `json:"copied,omitempty"`
	Resumed int64 `json:"resumed,omitempty"`
	// Lost names what entries carried that the format does not keep, where they came
	// from another archive: "modes", "times".
	Lost []string `json:"lost,omitempty"`
	// Kept is what waits in the store for a pack that resumes: only after an error.
	Kept int64 `json:"kept,omitempty"`
	// Referred counts the entries that were not copied: they refer to where their content
	// lies.
	Referred int64 `json:"referred,omitempty"`
	// Proven counts the packed objects of buckets by the bucket's checksum that they
	// were compared with: "md5", "crc32c", "sha256_of_parts". "nothing" counts those
	// that were not compared, "size" those that are empty.
	Proven map[string]int64 `json:"proven,omitempty"`
	// Parity is the parity file that was written, and ParityBytes what it takes.
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
		Once: o.Once, Resume: o.Resume, Param: o.Param, NoVerify: o.NoVerify, Protect: o.Protect, OnError: o.OnError, Meter: o.Meter, Formats: o.Formats,
	}
}

// Pack makes an archive at address from files and folders of this machine, or from
// addresses of objects and of what lies below them. One folder alone gives its
// contents; several paths are told apart by their names.
// The archive, all its chunks included, appears whole or not at all.
func Pack(ctx context.Context, address string, paths []string, o PackOptions) (Summary, error) {
	st, name, err := store.OpenAddress(ctx, address)
	if err != nil {
		return Summary{}, err
	}
	return PackStore(ctx, st, name, paths, o)
}

// PackStore is Pack into a given store.
func PackStore(ctx context.Context, st store.Store, name string, paths []string, o PackOptions) (Summary, error) {
	sum, err := pack.Pack(ctx, st, name, paths, o.inner())
	return Summary(sum), err
}

// Convert writes the entries of a into a new archive at address, in stored order.
// Content that lies raw in one piece is copied as it is, by the file system itself
// where it can; digests that a records are taken over.
func Convert(ctx context.Context, a *Archive, address string, o PackOptions) (Summary, error) {
	st, name, err := store.OpenAddress(ctx, address)
	if err != nil {
		return Summary{}, err
	}
	return ConvertStore(ctx, a, st, name, o)
}

// ConvertStore is Convert into a given store.
func ConvertStore(ctx context.Context, a *Archive, st store.Store, name string, o PackOptions) (Summary, error) {
	sum, err := pack.Convert(ctx, a.src, st, name, o.inner())
	return Summary(sum), err
}
