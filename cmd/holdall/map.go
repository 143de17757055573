package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall/bytemap"
	"github.com/holdall/holdall/store"
)

func (a *app) mapCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "map ARCHIVE",
		Short: "Show where everything lies in an archive's bytes",
		Long: `Shows what every byte of an archive is for: contents, index, headers, padding,
and what belongs to nothing. On a terminal it draws there; -o draws a picture,
as the name's ending says (.svg or .png).`,
		Example: "  holdall map docs.caf\n  holdall map docs.caf -o docs.svg",
		Args:    args(1, 1, "an archive"),
		RunE: run(func(ctx context.Context, args []string) error {
			draw, err := drawing(out)
			if err != nil {
				return &usageError{err}
			}
			in, err := a.openOverview(ctx, args[0])
			if err != nil {
				return err
			}
			defer in.Close()
			if in.IsDir() {
				return errors.New("a folder has no bytes of its own to show")
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
			return m.Terminal(a.out, a.width(), a.colour())
		}),
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "draw into this file: .svg or .png")
	return cmd
}

// drawing returns what draws a file of that name, nil for none.
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
	return nil, errors.New("expected a name that ends in .svg or .png")
}

// writeFile writes a file that appears whole or not at all.
func writeFile(ctx context.Context, name string, write func(io.Writer) error) error {
	st, name, err := store.OpenAddress(ctx, name)
	if err != nil {
		return err
	}
	w, err := store.Create(ctx, st, name)
	if err != nil {
		return err
	}
	defer w.Abort()
	done := write(w)
	if done != nil && !errors.Is(done, errNo) { // which is a whole answer
		return done
	}
	_, err = w.Commit(ctx)
	return cmp.Or(err, done)
}
