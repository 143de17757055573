package holdall

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/internal/write/output"
	"github.com/holdall/holdall/internal/write/sync"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// SyncOptions are the options of [Sync].
type SyncOptions struct {
	OpenOptions
	// DryRun only finds out what would be copied and fetched.
	DryRun bool `json:"dry_run,omitempty"`
	// Force also replaces a file that is no archive.
	Force bool `json:"force,omitempty"`
	// NoSync does not wait until the copy is on the disk.
	NoSync bool `json:"no_sync,omitempty"`
	// Meter, if not nil, counts progress.
	Meter *Meter `json:"-"`
}

// Synced is the result of [Sync].
type Synced struct {
	Bytes   int64 `json:"bytes"`
	Copied  int64 `json:"copied"`  // from old archives
	Resumed int64 `json:"resumed"` // that an earlier Sync had written
	Fetched int64 `json:"fetched"`
	// Requests are those for what was fetched. Some more read the archive's index.
	Requests int64 `json:"requests"`
	// Proven says that there are digests. Otherwise everything is fetched.
	Proven bool     `json:"digests"`
	Notes  []string `json:"notes,omitempty"` // what was not used, and why
}

// mostIndex is the longest index that is read as a whole.
const mostIndex = 256 << 20

// Sync makes a copy of the archive at an address, at the path out. What the archive or an index beside it has digests
// of is copied from old archives or folders that have the same bytes, and compared. The rest is fetched. The copy
// appears when it is complete, with the index beside it. If Sync ends early, the next one goes on where it ended.
func Sync(ctx context.Context, address string, old []*Archive, out string, o SyncOptions) (done Synced, err error) {
	st, name, err := at(ctx, o.Store, address)
	if err == nil {
		err = o.untrusting(address) // ranges without a digest, and the index as a whole, are not compared
	}
	if err != nil {
		return done, err
	}
	to, toName, err := store.OpenAddress(ctx, out)
	if err != nil {
		return done, err
	}
	path := storekit.AddressOf(to, toName)
	if !to.Can().Near || store.Scheme(path) != "" {
		return done, fmt.Errorf("%s: a copy can only be made on a disk: %w", store.Redact(out), errors.ErrUnsupported)
	}
	g := output.Guard{Inputs: []string{storekit.AddressOf(st, name)}, Kind: "an archive", Force: o.Force, Ours: func(p format.Probe) bool {
		_, err := o.formats().Detect(p)
		return !errors.Is(err, format.ErrUnknown)
	}}
	beside := output.Guard{Kind: "an index", Force: o.Force, Ours: kept.Is} // the index is put there
	if err := cmp.Or(g.Check(ctx, to, toName), beside.Check(ctx, to, toName+kept.Suffix)); err != nil {
		return done, err
	}
	// An index that was kept on this machine has no digests.
	o.Index = UseIndex{At: o.Index.At, Beside: o.Index.Beside}
	a, err := open(ctx, st, name, o.OpenOptions)
	if err != nil {
		return done, err
	}
	defer func() { a.Close() }()
	again := func() error {
		a.Close()
		b, err := open(ctx, st, name, o.OpenOptions)
		if err == nil {
			a = b
		}
		return err
	}
	var was *kept.Bound
	if _, err := a.src.Object(ctx, name); err != nil { // a folder, of which each object changes by itself
		if b, err := kept.Bind(ctx, st, name); err == nil {
			was = &b
			if err := again(); err != nil {
				return done, err
			}
		}
	}
	var index []byte
	k, ok := a.src.Reader.(*kept.Reader)
	if ok && !k.Index().Copied {
		if index, err = k.Index().Whole(ctx, mostIndex); err != nil {
			return done, err
		}
	} else if ok {
		// Its digests may be those of another version, and old archives would have these bytes.
		done.Notes = append(done.Notes, fmt.Sprintf("%s: not used: it was made before the archive was copied; make it again where the archive is, or keep the archive's time", a.index.Used))
		o.Index = UseIndex{}
		if err := again(); err != nil {
			return done, err
		}
	}
	inner := sync.Options{DryRun: o.DryRun, NoSync: o.NoSync, Meter: o.Meter, Before: func(ctx context.Context) error {
		if was != nil {
			if err := was.Still(ctx, st, name); err != nil {
				return fmt.Errorf("%s: %w", format.Escape(name), err)
			}
		}
		if index == nil || k.Damage() != nil {
			return nil
		}
		_, err := storekit.Write(ctx, to, toName+kept.Suffix, func(w store.Writer) error { _, err := w.Write(index); return err })
		return err
	}}
	var from []*content.Source
	for _, a := range old {
		from = append(from, a.src)
	}
	sum, err := sync.Sync(ctx, a.src, from, path, inner)
	if i := a.Index(); i.Ignored != "" {
		done.Notes = append(done.Notes, fmt.Sprintf("%s: not used: %v", i.Ignored, i.Why))
	}
	sum.Notes = append(done.Notes, sum.Notes...)
	return Synced(sum), err
}
