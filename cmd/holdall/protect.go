package main

import (
	"context"
	"fmt"
	"math"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/parity"
	"github.com/holdall/holdall/store"
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

// protectedJSON says what protect wrote.
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
		Short: "Write parity, from which what is lost of an archive is computed again",
		Long: `Writes parity of ARCHIVE: ARCHIVE.parity beside it, or what -o says. As long as
no more than a share of the archive is damaged or lost, wherever that is, all of
it is computed again: by whatever reads the archive while it reads, and by
"holdall repair". Parity that is damaged itself is used as far as it is left.

Several files are one set: a file of it that is lost comes back, too, if it is no
more than the share. A folder has parity of its own.

Parity belongs to one version of an archive. "holdall add", "rm" and "mv" bring
it up to date; --update does that of what was changed otherwise. It is no proof against people who
change archives on purpose.`,
		Example: `  holdall protect docs.caf
  holdall protect --loss 10% photos-00001.caf photos-00002.caf
  holdall protect segmentstore
  holdall protect s3://bucket/docs.caf`,
		Args: args(1, -1, "an archive"),
		RunE: run(func(ctx context.Context, args []string) error {
			switch {
			case update && (out != "" || loss != 0):
				return usage("--update goes with neither --loss nor -o: both are as they were")
			case update:
				return all(args, func(address string) error { return a.updateParity(ctx, address) })
			}
			return a.protect(ctx, args, out, float64(loss))
		}),
	}
	cmd.Flags().Var(&loss, "loss", "share of the archive that may be lost (default 5%)")
	cmd.Flags().BoolVar(&update, "update", false, "write parity anew that is of an older version of ARCHIVE")
	cmd.Flags().StringVarP(&out, "output", "o", "", "where to write it (default ARCHIVE.parity)")
	return cmd
}

// updateParity brings the parity of an archive up to date.
func (a *app) updateParity(ctx context.Context, address string) error {
	st, name, err := a.locate(ctx, address)
	if err != nil {
		return err
	}
	m := &holdall.Meter{}
	stop := a.showProgress(m, "protected")
	sum, updated, err := holdall.UpdateParity(ctx, st, name, m)
	stop()
	if err != nil {
		return err
	}
	what := "is of this version"
	if updated {
		what = "written anew"
	}
	a.say(protectedJSON{sum.At, sum}, "%s: %s, %s of parity for %s\n", sum.At, what, a.humanSize(sum.Parity), a.humanSize(sum.Bytes))
	return nil
}

// protect writes the parity of files as one set, and of each folder.
func (a *app) protect(ctx context.Context, addresses []string, out string, loss float64) error {
	var set, names []string
	var st store.Store
	var folders []string
	for _, address := range addresses {
		if address == "-" {
			return usage("expected archives with names")
		}
		s, name, err := a.locate(ctx, address)
		if err != nil {
			return err
		}
		if holdall.IsFolder(ctx, s, name) {
			folders = append(folders, address)
			continue
		}
		if st == nil {
			st = s
		}
		first := store.AddressOf(st, name)
		if len(set) > 0 && (first != store.AddressOf(s, name) || path.Dir(name) != path.Dir(names[0])) {
			return usage("%s and %s are not beside each other: a set is of one folder", set[0], address)
		}
		set, names = append(set, address), append(names, name)
	}
	if out != "" && len(folders) > 0 && len(folders)+min(len(set), 1) > 1 {
		return usage("-o is for one parity file, and each folder has its own")
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
	to, toName := st, parity.NameOf(names)
	shown := parity.NameOf(addresses)
	if out != "" {
		shown = out
		if to, toName, err = a.locate(ctx, out); err != nil {
			return err
		}
	}
	// Nearly all memory is held from the start to the end: little of it becomes garbage.
	debug.SetGCPercent(5)
	m := &holdall.Meter{}
	stop := a.showProgress(m, "protected")
	sum, err := holdall.ProtectStore(ctx, st, names, to, toName, holdall.ProtectOptions{Loss: loss, Meter: m})
	stop()
	if err != nil {
		return err
	}
	a.say(protectedJSON{store.Redact(shown), sum}, "%s: %s of parity for %s: any %s of it can be lost\n",
		store.Redact(shown), a.humanSize(sum.Parity), a.humanSize(sum.Bytes), shareText(sum.Loss))
	return nil
}
