package main

import (
	"context"
	"fmt"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/store"
)

// healedJSON says what a repair from another copy did.
type healedJSON struct {
	repairedJSON
	holdall.Healed
}

// repairFrom mends an archive by another copy of it.
func (a *app) repairFrom(ctx context.Context, address, from, out string, inPlace bool) error {
	st, name, err := a.locate(ctx, address)
	if err != nil {
		return err
	}
	if inPlace {
		unlock, err := a.lockStore(st, name)
		if err != nil {
			return err
		}
		defer unlock()
	}
	mirror, mirrorName, err := store.OpenAddress(ctx, from)
	if err != nil {
		return err
	}
	o := a.openOptions()
	o.Index = a.useIndex()
	o.Index.Folder = nil // it has no digests
	m := &holdall.Meter{}
	stop := a.showProgress(m, "checked")
	plan, sum, held, err := holdall.RepairFrom(ctx, st, name, o, mirror, mirrorName, m)
	stop()
	if err != nil {
		return err
	}
	defer held.Close()
	r := healedJSON{repairedJSON{Changed: plan.Changes(), Partial: plan.Partial, Lost: plan.Lost, Output: out}, sum}
	if r.Changed {
		r.Notes = []string{fmt.Sprintf("%s of %s damaged, %s fetched", count(sum.Healed, "piece"), count(sum.Damaged, "piece"), a.humanSize(sum.Fetched))}
	}
	outStore, outName := st, name
	switch {
	case out != "":
		if outStore, outName, err = a.locateOut(ctx, out); err != nil {
			return err
		}
	case r.Changed:
		r.Output = store.Redact(address)
		r.Backup = r.Output + ".bak"
		if err := holdall.Backup(ctx, st, name, ".bak", plan); err != nil {
			return err
		}
	}
	if out != "" || r.Changed {
		if _, err := holdall.Apply(ctx, st, name, plan, outStore, outName); err != nil {
			return err
		}
	}
	if a.json {
		if r.Notes == nil {
			r.Notes = []string{}
		}
		if r.Lost == nil {
			r.Lost = []string{}
		}
		a.printJSON(r)
	} else {
		a.printRepaired(r.repairedJSON)
	}
	if plan.Partial {
		return errNo
	}
	return nil
}
