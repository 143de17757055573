package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/store"
)

// noIndex is the value of --index and HOLDALL_CACHE that turns indexes off.
const noIndex = "none"

// blocks returns the cache of blocks. It is only a cache, so one that cannot be used ends no verb.
func (a *app) blocks() *holdall.BlockCache {
	if a.cacheDir == "" || a.noBlocks {
		return nil
	}
	c := &holdall.BlockCache{Dir: a.cacheDir, Size: int64(a.cacheSize)}
	if err := c.Check(context.Background()); err != nil {
		a.noBlocks = true
		a.warn("--cache-dir is not used: %v", err)
		return nil
	}
	return c
}

func (a *app) useIndex() holdall.UseIndex {
	switch a.index {
	case noIndex:
		return holdall.UseIndex{}
	case "":
		return holdall.UseIndex{Beside: true, Folder: a.indexFolder()}
	}
	return holdall.UseIndex{At: a.index}
}

// expensiveToKeep is how long an archive must take to open for a mount to keep
// its index. A tar takes that for some 300,000 members, which take some 25 MB in
// memory.
const expensiveToKeep = 100 * time.Millisecond

func (a *app) indexFolder() *holdall.IndexFolder {
	dir := os.Getenv("HOLDALL_CACHE")
	if dir == noIndex {
		return nil
	}
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return nil // no home folder: it is only a cache
		}
		dir = filepath.Join(user, "holdall")
	}
	f := &holdall.IndexFolder{Dir: filepath.Join(dir, "index"), Most: int64(a.cacheSize)}
	if a.stays {
		f.Expensive = expensiveToKeep
	}
	return f
}

// close ends the use of an archive. If opening it took long, close keeps an
// index for the next time.
func (a *app) close(ctx context.Context, in *holdall.Archive) {
	defer in.Close()
	if ctx.Err() != nil || a.out.Flush() != nil {
		return // the reader of the output has the results before the index is written
	}
	// The index only speeds up the next opening, so a failure to keep it is not
	// reported.
	_, _ = in.KeepIndex(ctx, false)
}

func (a *app) indexCommand() *cobra.Command {
	var out string
	var chunk sizeFlag
	cmd := &cobra.Command{
		Use:   "index ARCHIVE",
		Short: "Write an index, so that an archive opens quickly",
		Long: `Writes an index of an archive to ARCHIVE.holdall, or to the file given with -o.
All verbs that open the archive use the index, on disk, over HTTP and in
buckets, and then read only a little. An index belongs to one version of the
archive and is ignored for any other.

--chunk-digests reads all content, and adds digests of its pieces to the index.
Later reads of the archive are compared with them before any byte is returned. A
damaged file gets no digests, and the exit code is 1.

holdall keeps an index of an archive that was slow to open in a cache; see
"holdall cache". --index selects an index, or none.`,
		Example: `  holdall index big.caf
  holdall index --chunk-digests big.caf
  holdall index https://example.org/big.tar -o big.tar.holdall
  holdall --index big.tar.holdall ls https://example.org/big.tar`,
		Args: args(1, 1, "an archive"),
		RunE: run(func(ctx context.Context, args []string) error {
			if err := a.oneByOne(ctx, args[0]); err != nil {
				return err
			}
			st, name, err := a.locate(ctx, args[0])
			if err == nil {
				err = a.notCatalog(st, "it is an index itself")
			}
			if err != nil {
				return err
			}
			to, toName := st, strings.TrimRight(name, "/")+kept.Suffix
			shown := strings.TrimRight(args[0], "/") + kept.Suffix
			if out != "" {
				shown = out
				if to, toName, err = store.OpenAddress(ctx, out); err != nil {
					return err
				}
			} else if args[0] == "-" {
				return usage("an index of standard input needs a name: -o FILE")
			}
			m := &holdall.Meter{}
			stop := a.showProgress(m, "indexed")
			sum, err := holdall.BuildIndex(ctx, name, toName, holdall.IndexOptions{To: a.dry(to, false), OpenOptions: a.openOptions().In(st), Chunk: int64(chunk), Force: a.force, OnError: a.tellProblem, Meter: m})
			stop()
			if err != nil {
				if errors.Is(err, errors.ErrUnsupported) && out == "" {
					return fmt.Errorf("%w: choose another place with -o FILE", err)
				}
				return err
			}
			line := fmt.Sprintf("%s: %s, an index of %s", store.Redact(shown), count(sum.Entries, "entry"), a.humanSize(sum.Index))
			if chunk != 0 {
				line += fmt.Sprintf(", %s of %s", count(sum.Digests, "digest"), a.humanSize(int64(chunk)))
			}
			if sum.Unproven > 0 {
				line += fmt.Sprintf("; %s damaged, without digests", count(sum.Unproven, "file"))
			}
			a.say(struct {
				Path string `json:"path"`
				holdall.IndexSummary
			}{store.Redact(shown), sum}, "%s%s\n", line, a.didNot())
			return answer(sum.Unproven > 0)
		}),
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "write the index to this file (default ARCHIVE.holdall)")
	cmd.Flags().Var(&chunk, "chunk-digests", "add a digest of each SIZE of content (256KiB), from 64KiB to 1MiB")
	a.dryRunFlag(cmd.Flags())
	a.forceFlag(cmd.Flags())
	cmd.Flags().Bool("no-table", false, "no effect: an index has no table any more")
	cmd.Flags().Lookup("chunk-digests").NoOptDefVal = "256KiB"
	return cmd
}

func (a *app) cacheCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cache",
		Short: "List or clear the caches of indexes and of blocks",
		Long: `If an archive is slow to open, holdall keeps an index of it in a cache. The
cache is $HOLDALL_CACHE/index, or holdall/index in your cache folder, such as
~/.cache. It holds up to 4 GiB, or --cache-size; the least recently used indexes
are removed first. HOLDALL_CACHE=none disables the cache.

With --cache-dir, blocks of archives on servers and in buckets are kept in that
folder, for all processes of the machine. They take up to 10 GiB, or
--cache-size; the oldest are removed first.`,
		Example: "  holdall cache ls\n  holdall cache clear --cache-dir /scratch/blocks",
	}
	both := func(folder func(context.Context, *holdall.IndexFolder) error, blocks func(context.Context, *holdall.BlockCache) error) func(*cobra.Command, []string) error {
		return run(func(ctx context.Context, _ []string) error {
			f, c := a.indexFolder(), &holdall.BlockCache{Dir: a.cacheDir, Size: int64(a.cacheSize)}
			if f == nil && c.Dir == "" {
				return errors.New("the cache is disabled: HOLDALL_CACHE is none, or there is no cache folder")
			}
			if f != nil {
				if err := folder(ctx, f); err != nil {
					return err
				}
			}
			if c.Dir == "" {
				return nil
			}
			return blocks(ctx, c)
		})
	}
	cmd.AddCommand(&cobra.Command{
		Use:     "ls",
		Short:   "List cached indexes, last used first, and the size of blocks",
		Example: "  holdall cache ls",
		Args:    args(0, 0, "no arguments"),
		RunE: both(func(ctx context.Context, f *holdall.IndexFolder) error {
			kept, err := f.List(ctx)
			for _, k := range kept {
				a.tell(k, func() {
					what := cmp.Or(format.Escape(k.Archive), "(unreadable) "+k.Path)
					fmt.Fprintf(a.out, "%10s  %s  %10d entries  %s\n", a.humanSize(k.Size), k.Used.UTC().Format(time.DateTime), k.Entries, what)
				})
			}
			return err
		}, func(ctx context.Context, c *holdall.BlockCache) error {
			u, err := c.Usage(ctx)
			if err == nil {
				a.tell(u, func() {
					fmt.Fprintf(a.out, "%10s  of %s  %s  %s\n", a.humanSize(u.Size), a.humanSize(u.Limit), count(u.Blocks, "block"), format.Escape(u.Path))
				})
			}
			return err
		}),
	}, &cobra.Command{
		Use:     "clear",
		Short:   "Remove all cached indexes and blocks",
		Example: "  holdall cache clear",
		Args:    args(0, 0, "no arguments"),
		RunE: both(func(_ context.Context, f *holdall.IndexFolder) error {
			n, bytes, err := f.Clear()
			if err == nil {
				a.say(map[string]any{"bytes": bytes, "removed": n}, "%s, %s\n", count(int64(n), "index"), a.humanSize(bytes))
			}
			return err
		}, func(ctx context.Context, c *holdall.BlockCache) error {
			u, err := c.Clear(ctx)
			if err == nil {
				a.say(map[string]any{"bytes": u.Size, "blocks": u.Blocks}, "%s, %s\n", count(u.Blocks, "block"), a.humanSize(u.Size))
			}
			return err
		}),
	})
	return cmd
}
