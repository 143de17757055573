package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/read/outside"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

func (a *app) syncCommand() *cobra.Command {
	var out, dir string
	cmd := &cobra.Command{
		Use:   "sync NEW [OLD...] OUT",
		Short: "Copy an archive, and fetch only what older copies lack",
		Long: `Makes OUT the same as NEW, byte for byte. If NEW has digests, holdall copies
what it can from the present OUT and from each OLD, which is an archive of any
format or a folder of files. It fetches only the rest, and compares all of it
with the digests. OUT is replaced when the copy is complete. If sync is
interrupted, run it again to continue.

CAF and LINDI have digests of files that they store as they are. For other
formats, publish an index with digests beside NEW: 'holdall index
--chunk-digests NEW'. Without digests, everything is fetched.

NEW may be a pattern in quotes, or a catalogue, which stands for all its
archives. OUT is then a folder. Archives that are there with the same size and
time stay as they are.`,
		Example: `  holdall sync https://example.org/docs.caf docs.caf
  holdall sync https://example.org/docs.caf --extract docs
  holdall sync https://example.org/docs-2.tar docs-1.tar docs -o docs-2.tar
  holdall sync --dry-run s3://bucket/docs.caf docs.caf`,
		Args: args(1, -1, "a new archive, and a name for the copy"),
		RunE: run(func(ctx context.Context, args []string) error {
			address, old := args[0], args[1:]
			if dir != "" {
				if out != "" || len(old) > 0 {
					return usage("--extract writes a folder, and copies from nothing else: sync NEW --extract DIR")
				}
				in, err := a.open(ctx, address, false)
				if err != nil {
					return err
				}
				defer a.close(ctx, in)
				return a.extractTo(ctx, in, dir, holdall.ExtractOptions{Overwrite: true, Changed: true, Meter: a.newMeter()})
			}
			if out == "" {
				if len(old) == 0 {
					return usage("a copy needs a name: sync NEW OUT")
				}
				out = old[len(old)-1]
				old = old[:len(old)-1]
			}
			if store.Scheme(out) != "" || out == "-" {
				return usage("%s: a copy can only be made on a disk", store.Redact(out))
			}
			st, names, err := a.archivesOf(ctx, address)
			if err == nil && (isBook(address) || strings.HasPrefix(address, catalogScheme)) {
				names, err = a.cataloguedArchives(ctx, address)
			}
			if err != nil {
				return err
			}
			if len(names) == 0 {
				return a.sync(ctx, address, old, out)
			}
			return a.syncAll(ctx, st, names, old, out)
		}),
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "make the copy here; all arguments after NEW are then old copies")
	cmd.Flags().StringVar(&dir, "extract", "", "instead, write the files of NEW below this folder, except those that are already there")
	a.dryRunFlag(cmd.Flags())
	a.forceFlag(cmd.Flags())
	return cmd
}

// sync makes a copy of one archive.
func (a *app) sync(ctx context.Context, address string, old []string, out string) error {
	o := holdall.SyncOptions{OpenOptions: a.openOptions(), DryRun: a.dryRun, Force: a.force, NoSync: a.noSync, Meter: a.newMeter()}
	o.Index = holdall.UseIndex{Beside: a.index == ""}
	if a.index != noIndex {
		o.Index.At = a.index
	}
	defer func(was string) { a.index = was }(a.index)
	a.index = "" // it is that of NEW
	var from []*holdall.Archive
	for i, name := range append(slices.Clone(old), out) {
		in, err := a.open(ctx, name, false)
		if i == len(old) && err != nil { // OUT need not be there, and is only looked at
			if !errors.Is(err, fs.ErrNotExist) {
				a.warn("%s: nothing is copied from it: %v", out, err)
			}
			break
		}
		if err != nil {
			return err
		}
		defer in.Close()
		from = append(from, in)
	}
	st, name, err := a.locateIn(ctx, address)
	if err != nil {
		return err
	}
	o.Store = st
	stop := a.showProgress(o.Meter, "synced")
	sum, err := holdall.Sync(ctx, name, from, out, o)
	stop()
	for _, note := range sum.Notes {
		a.warn("%s", note)
	}
	if err != nil {
		return err
	}
	if !sum.Proven {
		a.warn("%s: it has no digests, so everything is fetched: to avoid this, publish an index from 'holdall index --chunk-digests' beside it", store.Redact(address))
	}
	line := fmt.Sprintf("%s: %s, %s copied, %s fetched by %s", out, a.humanSize(sum.Bytes), a.humanSize(sum.Copied+sum.Resumed), a.humanSize(sum.Fetched), count(sum.Requests, "request"))
	a.say(struct {
		Path string `json:"path"`
		holdall.Synced
	}{out, sum}, "%s%s\n", line, a.didNot())
	return nil
}

// cataloguedArchives returns the addresses of all archives of a catalogue.
func (a *app) cataloguedArchives(ctx context.Context, address string) (names []string, err error) {
	s, err := a.shelf(ctx, address)
	if err != nil {
		return nil, err
	}
	all, err := s.Catalog().Archives(ctx)
	may := outside.Rule{Store: s.Catalog().Store(), Name: s.Catalog().Name(), Allowed: a.mayLead()}
	for _, x := range all {
		if _, _, err := may.Find(ctx, x.Address); err != nil {
			return nil, err
		}
		names = append(names, x.Address)
	}
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s: the catalogue has no archives", shownCatalog(address))
	}
	return names, err
}

// syncAll makes copies of archives in a folder. Each is also copied from the one in the folder whose name is most like
// its own, which is often an older version. An archive that is there with the same size and time is left as it is.
func (a *app) syncAll(ctx context.Context, st store.Store, names, old []string, dir string) error {
	there, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	of := map[string]string{}
	for _, name := range names { // before anything is replaced
		base := path.Base(filepath.ToSlash(name))
		if other, twice := of[base]; twice {
			return fmt.Errorf("%s and %s would be the same file in %s: sync one of their folders", format.Escape(other), format.Escape(name), dir)
		}
		if of[base] = name; !filepath.IsLocal(base) || base == "." {
			return fmt.Errorf("%s: not the name of a file", format.Escape(name))
		}
	}
	unchanged := int64(0)
	for _, name := range names {
		address := name
		if st != nil {
			address = storekit.AddressOf(st, name)
		}
		in, at, err := a.locateIn(ctx, address)
		if err != nil {
			return err
		}
		info, err := storekit.Briefly(in, at).Info(ctx)
		if err != nil {
			return err
		}
		base := path.Base(filepath.ToSlash(name))
		out := filepath.Join(dir, base)
		if has, err := os.Stat(out); err == nil && has.Size() == info.Size && !info.ModTime.IsZero() && has.ModTime().Truncate(time.Second).Equal(info.ModTime.Truncate(time.Second)) {
			unchanged++
			continue
		}
		from, most := old, 0
		for _, d := range there {
			n := sorter.SharedLen(base, d.Name())
			if n > most && d.Name() != base && format.All().ByExtension(d.Name()) == format.All().ByExtension(base) {
				from, most = append(slices.Clone(old), filepath.Join(dir, d.Name())), n
			}
		}
		if err := a.sync(ctx, address, from, out); err != nil {
			return err
		}
	}
	if unchanged > 0 && !a.json {
		a.say(nil, "%s unchanged\n", count(unchanged, "archive"))
	}
	return nil
}
