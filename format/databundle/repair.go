package databundle

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/databundle/internal/sstable"
	"github.com/holdall/holdall/store"
)

// repair plans a new index, of all rows whose content is there, and new headers
// for shards that have lost theirs. Records stay where they are.
func repair(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) (format.Plan, error) {
	m := &mending{bad: map[int]bool{}, headers: map[uint64]bool{}, places: map[uint64][]place{}}
	faults, indexFaults := 0, 0
	note := func(p format.Problem) {
		report(p)
		if p.Severity == format.Error || p.Class == badCopy {
			faults++
			if strings.HasPrefix(p.Class, "index-") || p.Class == badConfig || p.Class == notABundle {
				indexFaults++
			}
		}
	}
	a, err := load(ctx, st, name, o)
	damage, damaged := errors.AsType[*format.CorruptError](err)
	switch {
	case damaged && damage.Code == format.Unsupported:
		return format.Plan{}, err
	case damaged:
		note(damage.Problem)
		a = newBundle(st, name, o)
	case err != nil:
		return format.Plan{}, err
	default:
		v := &check{bundle: a, report: note, streams: map[uint64]*stream{}}
		if err := v.run(ctx); err != nil {
			a.close()
			return format.Plan{}, err
		}
	}
	m.bundle = a
	defer a.close()
	if damaged {
		if ok, err := m.hasIndex(ctx); err != nil {
			return format.Plan{}, err
		} else if !ok {
			return format.Plan{}, damage
		}
	}
	m.reopen = func(ctx context.Context) (rows, error) {
		if a.single {
			return a.rows, nil
		}
		d, err := openDirectory(ctx, st, below(a.root, indexDir), sstable.Options{})
		return d, err
	}
	if damaged || indexFaults > 0 {
		if err := m.recover(ctx, damage); err != nil {
			return format.Plan{}, err
		}
	}
	if err := m.judge(ctx); err != nil {
		return format.Plan{}, err
	}
	plan := format.Plan{Notes: m.notes, Lost: m.lost, Partial: len(m.lost) > 0}
	if faults == 0 && len(m.lost) == 0 && len(m.places) == 0 && len(m.headers) == 0 && !m.sums {
		return plan, nil
	}
	plan.Notes = append(plan.Notes, "the index is made again")
	objects, err := a.objects(ctx)
	if err != nil {
		return plan, err
	}
	for _, o := range objects {
		switch {
		case !o.isShard:
			plan.Replaces = append(plan.Replaces, o.name)
			plan.Drops = append(plan.Drops, o.name)
		default:
			empty, err := m.emptied(ctx, o.shard)
			if err != nil {
				return plan, err
			}
			if empty || m.headers[o.shard] {
				plan.Replaces = append(plan.Replaces, o.name)
			}
		}
	}
	found := *m
	plan.Build = func(ctx context.Context, to store.Store, name string, inPlace bool) error {
		again := newBundle(st, a.name, o)
		again.cfg, again.single, again.ends = a.cfg, a.single, a.ends
		x := found
		x.bundle = again
		defer again.close()
		rows, err := m.reopen(ctx) // it was closed with the plan
		if err != nil {
			return err
		}
		again.rows = rows
		return x.build(ctx, to, strings.TrimSuffix(name, "/"), objects, inPlace)
	}
	return plan, nil
}

// newBundle is a bundle of which nothing was read.
func newBundle(st store.Store, name string, o format.OpenOptions) *bundle {
	a := &bundle{st: st, name: name, root: strings.TrimSuffix(name, "/"), limits: o.Limits.OrDefault(), shards: map[uint64]*shard{}, release: func() {}}
	return a
}

// mending is a bundle as it should be.
type mending struct {
	*bundle
	reopen  func(context.Context) (rows, error)
	bad     map[int]bool // rows of files, by their number, that are left out
	headers map[uint64]bool
	places  map[uint64][]place // of shards whose rows were wrong, by what is stored
	sums    bool               // empty files have checksums that those of nothing are not
	rescue  bool               // rows are lost: what no file covers is worth keeping
	notes   []string
	lost    []string
}

const mostSaid = 20 // files that are named one by one

func (m *mending) lose(msg string, args ...any) {
	if len(m.lost) < mostSaid {
		m.lost = append(m.lost, fmt.Sprintf(msg, args...))
	} else if len(m.lost) == mostSaid {
		m.lost = append(m.lost, "and more")
	}
}

func (m *mending) note(msg string, args ...any) { m.notes = append(m.notes, fmt.Sprintf(msg, args...)) }

// build writes the mended bundle: all of it, or in place what changes.
func (m *mending) build(ctx context.Context, to store.Store, root string, objects []object, inPlace bool) (err error) {
	copies := 0
	there := map[uint64]bool{}
	for _, o := range objects {
		if !o.isShard {
			copies = max(copies, o.copy)
			continue
		}
		if empty, err := m.emptied(ctx, o.shard); err != nil {
			return err
		} else if empty {
			continue
		}
		there[o.shard] = true
		switch {
		case m.headers[o.shard]:
			s, err := m.assume(ctx, o.shard)
			if err != nil {
				return err
			}
			if err := m.copyShard(ctx, to, below(root, shardName(o.shard)), s.name, m.headerOf(o.shard)); err != nil {
				return err
			}
		case !inPlace:
			if err := m.copyShard(ctx, to, below(root, shardName(o.shard)), o.name, nil); err != nil {
				return err
			}
		}
	}
	// A shard that is not there becomes one of nothing.
	for i := range min(max(m.cfg.shards, 1), maxShards) {
		if there[i] {
			continue
		}
		if err := m.put(ctx, to, below(root, shardName(i)), m.headerOf(i)); err != nil {
			return err
		}
	}
	// Records may lie elsewhere than the rows say.
	for i, places := range m.places {
		s, err := m.shard(ctx, i)
		if err != nil {
			return err
		}
		s.loaded, s.records, s.wrong = true, places, nil
	}
	w, err := newIndexWriter(to, root, copies, sstable.WriterOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.abort(ctx)) }()
	if err := m.writeRows(ctx, w); err != nil {
		return err
	}
	_, _, err = w.commit(ctx)
	return err
}

// emptied reports whether a shard is given up: it cannot be opened, with no header
// at all.
func (m *mending) emptied(ctx context.Context, i uint64) (bool, error) {
	if m.headers[i] || i >= max(m.cfg.shards, 1) {
		return false, nil
	}
	s, err := m.shard(ctx, i)
	if err == nil && s.decode != nil && m.ends[i] == 0 {
		err = s.decode // with content it may be somebody's who knows more
	}
	if c, damaged := err.(*format.CorruptError); damaged {
		return c.Class != shardMissing, nil
	}
	return false, err
}

func (m *mending) put(ctx context.Context, to store.Store, name string, b []byte) (err error) {
	w, err := store.Create(ctx, to, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Abort()) }()
	if _, err := w.Write(b); err != nil {
		return err
	}
	_, err = w.Commit(ctx)
	return err
}

// copyShard copies a shard, with another header if there is one.
func (m *mending) copyShard(ctx context.Context, to store.Store, name, from string, head []byte) (err error) {
	o, err := m.st.Open(ctx, from)
	if err != nil {
		return err
	}
	defer o.Close()
	info, err := o.Info(ctx)
	if err != nil {
		return err
	}
	w, err := store.Create(ctx, to, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Abort()) }()
	if _, err := w.Write(head); err != nil {
		return err
	}
	if err := store.WriteRange(ctx, w, o, int64(len(head)), info.Size-int64(len(head))); err != nil {
		return err
	}
	_, err = w.Commit(ctx)
	return err
}
