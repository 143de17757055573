package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"

	"github.com/spf13/pflag"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/write/output"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

func (a *app) forceFlag(fs *pflag.FlagSet) {
	fs.BoolVar(&a.force, "force", false, "also replace a file of another kind")
}

// mayWrite returns an error if a verb that reads the archive in may not write
// a file of that kind to an address.
func (a *app) mayWrite(ctx context.Context, in, out, kind string, ours func(format.Probe) bool) error {
	st, name, err := a.storeOf(ctx, out)
	if err != nil {
		return err
	}
	from, inName, err := a.storeOf(ctx, in)
	if err != nil {
		return err
	}
	return output.Guard{Inputs: []string{storekit.AddressOf(from, inName)}, Kind: kind, Ours: ours, Force: a.force}.Check(ctx, st, name)
}

func begins(with ...string) func(format.Probe) bool {
	return func(p format.Probe) bool {
		return slices.ContainsFunc(with, func(s string) bool { return bytes.HasPrefix(p.Head, []byte(s)) })
	}
}

// writeFile writes a file atomically: it appears whole or not at all.
func writeFile(ctx context.Context, name string, write func(io.Writer) error) error {
	st, name, err := store.OpenAddress(ctx, name)
	if err != nil {
		return err
	}
	w, err := storekit.Create(ctx, st, name)
	if err != nil {
		return err
	}
	defer w.Abort()
	done := write(w)
	if done != nil && !errors.Is(done, errNo) { // errNo comes with a complete result
		return done
	}
	_, err = w.Commit(ctx)
	return cmp.Or(err, done)
}
