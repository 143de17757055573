package main

import (
	"context"
	"fmt"

	"github.com/holdall/holdall"
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
	o := a.openOptions()
	o.Index = a.useIndex()
	o.Index.Folder = nil // it has no digests
	m := &holdall.Meter{}
	stop := a.showProgress(m, "checked")
	plan, err := holdall.RepairStore(ctx, st, name, holdall.RepairOptions{OpenOptions: o, From: from, Meter: m})
	stop()
	if err != nil {
		return err
	}
	defer plan.Close()
	sum := plan.Healed
	r := healedJSON{repairedOf(plan.Plan, out), sum}
	if r.Changed {
		r.Notes = append(r.Notes, fmt.Sprintf("%s of %s damaged, %s fetched", count(sum.Healed, "piece"), count(sum.Damaged, "piece"), a.humanSize(sum.Fetched)))
	}
	if err := a.carryOut(ctx, address, plan, st, name, &r.repairedJSON); err != nil {
		return err
	}
	if a.json {
		a.printJSON(r)
	} else {
		a.printRepaired(r.repairedJSON)
	}
	if plan.Partial {
		return errNo
	}
	return nil
}
