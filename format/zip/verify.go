package zip

import (
	"context"
	"fmt"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
)

func verify(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) error {
	x, err := open(ctx, st, name, o)
	if err != nil {
		return kit.Reported(err, report)
	}
	defer x.Close()
	r := x.(*reader)
	for _, p := range r.notes {
		report(p)
	}
	kit.CheckEntries(r.Index, name, report)
	return r.checkPlaces(ctx, report)
}

// checkPlaces reads the header before each content, and reports contents that are within others,
// which is how bombs are made.
func (r *reader) checkPlaces(ctx context.Context, report func(format.Problem)) error {
	end := int64(0)
	for _, i := range r.byPlace() {
		p, name := r.table.items.At(int(i)), r.table.Name(int(i))
		off, err := r.contentOff(ctx, p)
		if c, damaged := err.(*format.CorruptError); damaged {
			report(c.Problem)
			continue
		}
		if err != nil {
			return err
		}
		if p.off < end {
			report(format.Problem{Code: format.Overlap, Severity: format.Warning, Volume: r.name, Off: p.off, Entry: name, HasEntry: true,
				Message: fmt.Sprintf("begins before another entry ends at %d", end)})
		}
		end = max(end, off+p.stored)
	}
	return nil
}
