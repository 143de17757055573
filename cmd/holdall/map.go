package main

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall/bytemap"
)

func (a *app) mapCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "map ARCHIVE",
		Short: "Show how the bytes of an archive are used",
		Long: `Shows the use of every byte of an archive: content, index, headers, padding,
trash (former content), and unknown bytes. It draws on the terminal; -o FILE
writes a picture, in the format of the extension (.svg or .png).`,
		Example: "  holdall map docs.caf\n  holdall map docs.caf -o docs.svg",
		Args:    args(1, 1, "an archive"),
		RunE: run(func(ctx context.Context, args []string) error {
			draw, err := drawing(out)
			if err != nil {
				return &usageError{err}
			}
			if out != "" {
				if err := a.mayWrite(ctx, args[0], out, "a picture", begins("<svg", "\x89PNG")); err != nil {
					return err
				}
			}
			in, err := a.openOverview(ctx, args[0])
			if err != nil {
				return err
			}
			defer in.Close()
			if in.IsDir() {
				return errors.New("expected an archive, found a folder")
			}
			m, err := bytemap.Of(ctx, in)
			if err != nil {
				return err
			}
			if p := in.Protection(ctx); p != nil {
				m.Parity = p.String()
			}
			switch {
			case draw != nil:
				return writeFile(ctx, out, func(w io.Writer) error { return draw(m, w) })
			case a.json:
				return m.JSON(a.out)
			}
			return m.Terminal(a.out, columnsOf(a.stdout), a.coloured(a.stdout))
		}),
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "write a picture to this file: .svg or .png")
	a.forceFlag(cmd.Flags())
	return cmd
}

// drawing returns the function that draws the format of a file name, or nil if
// there is none.
func drawing(name string) (func(*bytemap.Map, io.Writer) error, error) {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".svg":
		return (*bytemap.Map).SVG, nil
	case ".png":
		return (*bytemap.Map).PNG, nil
	}
	if name == "" {
		return nil, nil
	}
	return nil, errors.New("-o: expected a name that ends in .svg or .png")
}
