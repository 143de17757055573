package zip

import (
	"context"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
)

func verify(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) error {
	_, _, err := check(ctx, st, name, o, report)
	return err
}

// check is verify, and tells whether the archive is split, and whether nothing is wrong with it.
func check(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) (split, sound bool, err error) {
	sound = true
	tell := func(p format.Problem) {
		sound = sound && p.Severity == format.Note
		report(p)
	}
	x, err := open(ctx, st, name, o)
	if err != nil {
		return false, false, kit.Reported(err, report)
	}
	defer x.Close()
	r := x.(*reader)
	for _, p := range r.notes {
		tell(p)
	}
	kit.CheckEntries(r.Index, name, tell)
	err = r.checkPlaces(ctx, tell)
	return r.parts != nil, sound, err
}

// checkPlaces reads the header before each content. It reports those that have another name than the
// directory, since one of the two is damaged, and contents that are within others, which is how bombs
// are made.
func (r *reader) checkPlaces(ctx context.Context, report func(format.Problem)) error {
	end := int64(0)
	for _, i := range r.byPlace() {
		p := r.table.items.At(int(i))
		off, err := r.contentOff(ctx, p)
		if c, damaged := err.(*format.CorruptError); damaged {
			report(c.Problem)
			continue
		}
		if err != nil {
			return err
		}
		x, _, _, err := r.localRow(ctx, p.off)
		if err != nil {
			return err
		}
		if local := strings.TrimSuffix(x.name, "/"); local != r.table.nameOf(p) {
			c := r.corruptItem(p, format.BadHeader, p.off, "the header before it has the name %s: one of the two is damaged", format.Escape(local))
			c.Class, c.Severity = "two-names", format.Warning
			report(c.Problem)
		}
		if p.off < end {
			c := r.corruptItem(p, format.Overlap, p.off, "begins before another entry ends at %d", end)
			c.Severity = format.Warning
			report(c.Problem)
		}
		end = max(end, off+p.stored)
	}
	return nil
}
