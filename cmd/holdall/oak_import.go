package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/oak"
	"github.com/holdall/holdall/store"
)

func (a *app) oakImportCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "import FILE -o STORE",
		Short: "Make a store of lines of JSON, as export writes them",
		Long: `Makes a new store of what export wrote; FILE - is standard input. What the export
says is lost, or has left out, is not there, and makes the exit code 1.`,
		Example: "  holdall oak import site.jsonl -o site\n  holdall oak export segmentstore /content | holdall oak import - -o content",
		Args:    args(1, 1, "a file, or -"),
		RunE: run(func(ctx context.Context, args []string) error {
			if out == "" {
				return usage("-o STORE is missing")
			}
			return a.oakImport(ctx, args[0], out)
		}),
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "the folder of the new store")
	return cmd
}

func (a *app) oakImport(ctx context.Context, from, out string) error {
	var r io.Reader = a.stdin
	if from != "-" {
		f, err := os.Open(from)
		if err != nil {
			return err
		}
		defer f.Close()
		r = f
	}
	st, name, err := a.locateOut(ctx, out)
	if err != nil {
		return err
	}
	var done oak.Imported
	write := func(ctx context.Context, to store.Store, name string, _ bool) (err error) {
		done, err = oak.Import(ctx, r, to, name, format.CreateOptions{Scratch: holdall.NewScratch})
		return err
	}
	if _, err := holdall.Apply(ctx, nil, "", holdall.Plan{Build: write}, st, name); err != nil {
		return err
	}
	a.tell(done, func() { fmt.Fprintf(a.out, "%s: %s, %s\n", out, count(done.Nodes, "node"), a.humanSize(done.Bytes)) })
	if done.Lost+done.Omitted > 0 {
		a.warn("%d lost, and %d left out, by what the export says", done.Lost, done.Omitted)
		return errNo
	}
	return nil
}
