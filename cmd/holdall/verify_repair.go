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
	return a.locked(ctx, address, inPlace, func(st store.Store, name string) error {
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
		r := healedJSON{repairedOf(plan, out), sum}
		if r.Changed {
			r.Notes = append(r.Notes, fmt.Sprintf("%s of %s damaged, %s fetched", count(sum.Healed, "piece"), count(sum.Damaged, "piece"), a.humanSize(sum.Fetched)))
		}
		if err := a.carryOut(ctx, st, name, address, plan, &r.repairedJSON); err != nil {
			return err
		}
		a.tell(r, func() { a.printRepaired(r.repairedJSON) })
		return answer(plan.Partial)
	})
}
