package holdall

import (
	"context"

	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/read/union"
)

// OpenSet opens several archives as one that is called name, such as the chunks of a set. If several
// of them have an entry of the same name, that in the last of these archives is the only one. Each content is
// compared as by its own archive. open is called with one of addresses when that archive is needed,
// from several goroutines and, as at most 64 archives stay open, perhaps again. Archives that are damaged or missing are left
// out, and [Archive.Doubt] reports it. If none can be opened, OpenSet returns the first error.
// The caller must close the archive.
func OpenSet(ctx context.Context, name string, addresses []string, open func(ctx context.Context, address string) (*Archive, error)) (*Archive, error) {
	src, err := union.New(ctx, name, addresses, func(ctx context.Context, address string) (*content.Source, error) {
		a, err := open(ctx, address)
		if err != nil {
			return nil, err
		}
		return a.src, nil
	})
	if err != nil {
		return nil, err
	}
	return &Archive{src: src}, nil
}

// IsSet reports whether the archive was opened by [OpenSet].
func (a *Archive) IsSet() bool { return a.src.Parts != nil }
