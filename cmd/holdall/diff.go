package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
)

func (a *app) diffCommand() *cobra.Command {
	var sel selection
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "List the differences between two archives or folders",
		Long: `Lists the entries that differ between two archives or folders: - is only in A, +
only in B, and ~ in both, but different. Content is compared by digests if both
sides have digests of the same kind, and byte by byte otherwise. Modes are
compared if both sides have them, times never. The exit code is 1 if there are
differences.`,
		Example: "  holdall diff docs.caf docs\n  holdall diff --json old.caf new.caf",
		Args:    args(2, 2, "two archives or folders"),
		RunE: run(func(ctx context.Context, args []string) error {
			names, err := sel.filter(a)
			if err != nil {
				return err
			}
			a.several = true
			left, err := a.open(ctx, args[0], false)
			if err != nil {
				return err
			}
			defer left.Close()
			right, err := a.open(ctx, args[1], false)
			if none, ok := errors.AsType[*holdall.ViewError](err); ok && none.Format != left.Format().Name {
				right, err = a.openAs(ctx, args[1], asked{format: a.format}, false) // the view was for the other one
			}
			if err != nil {
				return err
			}
			defer right.Close()
			for key := range a.given(^format.ToCreate) {
				if left.Options().Param[key]+right.Options().Param[key] == "" {
					return &format.ParamError{Format: left.Format().Name, Name: key}
				}
			}
			m := &holdall.Meter{}
			stop := a.showProgress(m, "compared")
			defer stop()
			differ, c := false, a.colours(a.stdout, "", "")
			_, err = holdall.Diff(ctx, left, right, names.Wants, m, func(d holdall.Difference) error {
				differ = true
				return a.printDifference(c, d)
			})
			if err == nil && differ {
				err = errNo
			}
			return a.compared(names, err)
		}),
	}
	sel.register(cmd.Flags())
	return cmd
}

func (a *app) printDifference(c *colours, d holdall.Difference) error {
	if a.json {
		a.printJSON(struct {
			pathJSON
			Change string `json:"change"`
			Why    string `json:"why,omitempty"`
		}{pathOf(d.Name), string(d.Kind), d.Why})
		return nil
	}
	sign, why := "~", " ("+d.Why+")"
	switch d.Kind {
	case "added":
		sign, why = "+", ""
	case "removed":
		sign, why = "-", ""
	}
	line := fmt.Sprintf("%s %s%s", sign, quoteEmpty(format.Escape(d.Name)), why)
	_, err := fmt.Fprintln(a.out, c.paint(string(d.Kind), line))
	return err
}
