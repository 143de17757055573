package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format/oak"
	"github.com/holdall/holdall/store"
)

func (a *app) oakBlobsCommand() *cobra.Command {
	var missing, unused bool
	cmd := &cobra.Command{
		Use:   "blobs STORE",
		Short: "List binaries that are in a data store",
		Long: `Lists the binaries that a revision and its checkpoints have in a data store, by id:
length, how many values use it, and the path of the first. What trees share counts
once. With --datastore it is asked for each: what it does not have makes the exit
code 1; --missing lists only that, --unused what it has and none of these uses;
older revisions may.`,
		Example: "  holdall oak blobs segmentstore\n  holdall oak blobs --datastore datastore --missing segmentstore",
		Args:    args(1, 1, "a store"),
		RunE: run(func(ctx context.Context, args []string) error {
			datastore := a.params["datastore"]
			if (missing || unused) && datastore == "" {
				return usage("--missing, --unused: expected --datastore")
			}
			o := oak.BlobOptions{Scratch: holdall.NewScratch, Unused: unused}
			if datastore != "" {
				var err error
				if o.Datastore, o.Dir, err = a.locate(ctx, besides(args[0], datastore)); err != nil {
					return err
				}
			}
			return a.withTree(ctx, args[0], func(t *oak.Tree) error {
				absent, lost := false, int64(0)
				err := each(t.Blobs(ctx, o, &lost), func(b oak.Blob) error {
					used := b.Uses > 0
					absent = absent || used && b.Problem != ""
					if !missing && !unused || missing && used && b.Problem != "" || unused && !used {
						a.tell(b, func() { a.printBlob(b) })
					}
					return nil
				})
				if err == nil && lost > 0 {
					a.out.Flush()
					a.warn("%d places of the tree cannot be read: what they use is not known", lost)
				}
				return cmp.Or(err, answer(absent || lost > 0))
			})
		}),
	}
	cmd.Flags().BoolVar(&missing, "missing", false, "only what the data store does not have")
	cmd.Flags().BoolVar(&unused, "unused", false, "what the data store has and nothing uses")
	return cmd
}

func (a *app) printBlob(b oak.Blob) {
	name := b.ID
	if b.Uses == 0 {
		name = b.Object
	}
	fmt.Fprintf(a.out, "%s  %s  %d%s%s\n", printable(name), a.humanSize(b.Length), b.Uses, ifAny("  %s", b.Path), ifAny(" (%s)", b.Problem))
}

// besides is an address as the view tree takes that of a data store: a path is from
// the folder that the store lies in.
func besides(own, address string) string {
	if store.Scheme(address) != "" || filepath.IsAbs(address) {
		return address
	}
	if store.Scheme(own) == "" {
		return filepath.Join(filepath.Dir(filepath.Clean(own)), address)
	}
	own = strings.TrimRight(own, "/")
	return own[:strings.LastIndexByte(own, '/')+1] + filepath.ToSlash(address)
}
