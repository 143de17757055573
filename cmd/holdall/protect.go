package main

import (
	"context"
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// shareFlag is a share of something: 5%, 0.5%.
type shareFlag float64

func (s *shareFlag) Type() string { return "share" }

func (s *shareFlag) String() string {
	if *s == 0 {
		return ""
	}
	return shareText(float64(*s))
}

func (s *shareFlag) Set(v string) error {
	n, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(v), "%"), 64)
	if err != nil || !(n/100 >= parity.MinLoss && n/100 <= parity.MaxLoss) {
		return fmt.Errorf("expected a share from %s to %s", shareText(parity.MinLoss), shareText(parity.MaxLoss))
	}
	*s = shareFlag(n / 100)
	return nil
}

func shareText(share float64) string {
	return strconv.FormatFloat(math.Round(share*1e4)/100, 'f', -1, 64) + "%"
}

type protectedJSON struct {
	Path string `json:"path"`
	holdall.Protection
}

func (a *app) protectCommand() *cobra.Command {
	var out string
	var loss shareFlag
	var update bool
	cmd := &cobra.Command{
		Use:   "protect ARCHIVE...",
		Short: "Write parity, to recover damaged parts of an archive later",
		Long: `Writes parity to ARCHIVE.parity beside the archive, or to the file given with
-o. holdall can then recover all of the archive if at most a share of it, which
--loss sets, is damaged or lost. Verbs that read the archive recover it while
they read, and "holdall repair" repairs it for good. A damaged parity file
recovers less.

Several files are one set. A lost file of the set can be recovered too, if it is
not larger than that share. Each folder has a parity file of its own.

Parity belongs to one version of the archive. "holdall lindi add", "rm" and "mv"
update it; after other changes use --update. Parity does not protect against
people who change archives on purpose.

If the archive has parity that shows damage, nothing is written and the exit
code is 2. Repair the archive first.`,
		Example: `  holdall protect docs.caf
  holdall protect --loss 10% photos-00001.caf photos-00002.caf
  holdall protect segmentstore
  holdall protect s3://bucket/docs.caf`,
		Args: args(1, -1, "an archive"),
		RunE: run(func(ctx context.Context, args []string) error {
			switch {
			case update && (out != "" || loss != 0):
				return usage("--update cannot be combined with --loss or -o: it keeps both")
			case update:
				return all(args, func(address string) error { return a.updateParity(ctx, address) })
			}
			return a.protect(ctx, args, out, float64(loss))
		}),
	}
	cmd.Flags().Var(&loss, "loss", "share of the archive that can be lost, 0.01% to 100% (default 5%)")
	a.dryRunFlag(cmd.Flags())
	a.forceFlag(cmd.Flags())
	cmd.Flags().BoolVar(&update, "update", false, "rewrite parity that belongs to an older version of ARCHIVE")
	cmd.Flags().StringVarP(&out, "output", "o", "", "write the parity to this file (default ARCHIVE.parity)")
	return cmd
}

func (a *app) updateParity(ctx context.Context, address string) error {
	st, name, err := a.locate(ctx, address)
	if err != nil {
		return err
	}
	m := &holdall.Meter{}
	stop := a.showProgress(m, "protected")
	sum, err := holdall.Protect(ctx, []string{name}, "", holdall.ProtectOptions{Store: a.dry(st, false), Update: true, Meter: m})
	stop()
	if err != nil {
		return err
	}
	what := "up to date"
	if sum.Updated {
		what = "updated"
	}
	a.say(protectedJSON{sum.At, sum}, "%s: %s, %s of parity for %s%s\n", sum.At, what, a.humanSize(sum.Parity), a.humanSize(sum.Bytes), a.didNot())
	return nil
}

// protect writes the parity of files as one set, and that of each folder.
func (a *app) protect(ctx context.Context, addresses []string, out string, loss float64) error {
	var set, names []string
	var st store.Store
	var folders []string
	for _, address := range addresses {
		if address == "-" {
			return usage("expected archives with names, found standard input")
		}
		if err := a.oneByOne(ctx, address); err != nil {
			return err
		}
		s, name, err := a.locate(ctx, address)
		if err == nil {
			err = a.notCatalog(s, "protect its archives")
		}
		if err != nil {
			return err
		}
		if parity.IsFolder(ctx, s, name) {
			folders = append(folders, address)
			continue
		}
		if st == nil {
			st = s
		}
		first := storekit.AddressOf(st, name)
		if len(set) > 0 && (first != storekit.AddressOf(s, name) || path.Dir(name) != path.Dir(names[0])) {
			return usage("%s and %s are in different folders: the files of a set must be in one folder", set[0], address)
		}
		set, names = append(set, address), append(names, name)
	}
	if out != "" && len(folders) > 0 && len(folders)+min(len(set), 1) > 1 {
		return usage("-o: expected one parity file, but each folder gets its own")
	}
	if len(set) > 0 {
		if err := a.protectOne(ctx, set, st, names, out, loss); err != nil {
			return err
		}
	}
	return all(folders, func(address string) error {
		st, name, err := a.locate(ctx, address)
		if err != nil {
			return err
		}
		return a.protectOne(ctx, []string{address}, st, []string{name}, out, loss)
	})
}

func (a *app) protectOne(ctx context.Context, addresses []string, st store.Store, names []string, out string, loss float64) (err error) {
	to, toName := storekit.Under(st), parity.NameOf(names)
	_, shown := store.CutLayer(parity.NameOf(addresses)) // parity is of what is stored
	if out != "" {
		shown = out
		if to, toName, err = a.locate(ctx, out); err != nil {
			return err
		}
	}
	// Nearly all memory is in use from start to end: little of it becomes garbage.
	steadyGC(5)
	m := &holdall.Meter{}
	stop := a.showProgress(m, "protected")
	sum, err := holdall.Protect(ctx, names, toName, holdall.ProtectOptions{Store: st, To: a.dry(to, false), Loss: loss, Force: a.force, Meter: m})
	stop()
	if err != nil {
		return err
	}
	a.say(protectedJSON{store.Redact(shown), sum}, "%s: %s of parity for %s; any %s of it can be lost%s\n",
		store.Redact(shown), a.humanSize(sum.Parity), a.humanSize(sum.Bytes), shareText(sum.Loss), a.didNot())
	return nil
}
