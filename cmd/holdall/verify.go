package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/store"
)

// verifiedJSON is the last line of a check.
type verifiedJSON struct {
	Archive string `json:"archive"`
	holdall.Verified
}

func (a *app) verifyCommand() *cobra.Command {
	quick := false
	cmd := &cobra.Command{
		Use:   "verify ARCHIVE...",
		Short: "Check an archive's structure and contents",
		Long: `Checks structure and every checksum that an archive carries, and lists all that
is wrong with it. Notes are odd but harmless; with errors or warnings the exit
code is 1.`,
		Example: `  holdall verify docs.caf
  holdall verify --quick *.caf
  holdall verify --json https://example.org/docs.caf`,
		Args: args(1, -1, "an archive"),
		RunE: func(cmd *cobra.Command, args []string) error {
			bad := false
			for _, address := range args {
				sum, err := a.verify(cmd, address, quick)
				if err != nil {
					return err
				}
				bad = bad || sum.Errors+sum.Warnings > 0
			}
			if bad {
				return errNo
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&quick, "quick", false, "structure only, no contents")
	return cmd
}

func (a *app) verify(cmd *cobra.Command, address string, quick bool) (holdall.Verified, error) {
	ctx := cmd.Context()
	st, name, err := a.locate(ctx, address)
	if err != nil {
		return holdall.Verified{}, err
	}
	m := &holdall.Meter{}
	stop := a.showProgress(m, "checked")
	sum, err := holdall.Verify(ctx, st, name, holdall.VerifyOptions{OpenOptions: a.openOptions(), Quick: quick, Meter: m}, a.tellProblem)
	stop()
	if err != nil {
		return sum, err
	}
	shownAddress := store.Redact(address)
	if a.json {
		a.printJSON(verifiedJSON{shownAddress, sum})
		return sum, nil
	}
	verdict := "sound"
	switch {
	case sum.Errors > 0:
		verdict = count(sum.Errors, "error")
		if sum.Warnings > 0 {
			verdict += ", " + count(sum.Warnings, "warning")
		}
	case sum.Warnings > 0:
		verdict = count(sum.Warnings, "warning")
	}
	line := fmt.Sprintf("%s: %s; %s", shownAddress, verdict, count(sum.Entries, "entry"))
	if !quick {
		line += fmt.Sprintf(", %s compared with digests", a.humanSize(sum.Bytes))
	}
	if sum.Unproven > 0 {
		line += fmt.Sprintf(", %s without a digest", count(sum.Unproven, "file"))
	}
	fmt.Fprintln(a.out, line)
	return sum, nil
}
