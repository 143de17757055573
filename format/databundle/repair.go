package databundle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/databundle/internal/sstable"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
)

// repair plans a new index with all rows whose content exists, and new headers for shards that
// lost theirs. Records stay where they are.
func repair(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) (format.Plan, error) {
	m := &repairer{bad: map[int]bool{}, headers: map[uint64]bool{}, places: map[uint64][]storedAt{}}
	damage, err := m.inspect(ctx, st, name, o, report)
	if err != nil {
		return format.Plan{}, err
	}
	m.arranged = map[uint64][]piece{}
	defer m.close()
	if damage != nil || m.indexFaults > 0 {
		if err := m.recover(ctx, damage); err != nil {
			return format.Plan{}, err
		}
	}
	if err := m.judge(ctx); err != nil {
		return format.Plan{}, err
	}
	plan := format.Plan{Notes: m.notes, Lost: m.lost, Partial: len(m.lost)+m.beside > 0, Readable: map[string]int64{kit.FilesAfter: int64(m.files)}}
	if m.beside > 0 {
		plan.Lost = append(slices.Clone(m.lost), fmt.Sprintf("%d files match their checksums but are in damaged records, which stay: other readers refuse them; 'holdall convert' rewrites them", m.beside))
	}
	if m.faults == 0 && len(m.lost) == 0 && len(m.places) == 0 && len(m.headers) == 0 && len(m.arranged) == 0 && !m.sums {
		return plan, nil
	}
	plan.Notes = append(plan.Notes, "rebuilt the index")
	objects, err := m.objects(ctx)
	if err != nil {
		return plan, err
	}
	if err := m.replaced(ctx, &plan, objects); err != nil {
		return plan, err
	}
	plan.Build = func(ctx context.Context, to store.Store, name string, inPlace bool) (err error) {
		if m.rows, err = m.reopen(ctx); err != nil { // it was closed with the plan
			return err
		}
		defer m.close()
		return m.build(ctx, to, strings.TrimSuffix(name, "/"), objects, inPlace)
	}
	return plan, nil
}

// inspect reads the bundle and checks it. If damage prevents reading although there are traces of
// an index, it returns the damage.
func (m *repairer) inspect(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) (damage *format.CorruptError, err error) {
	note := func(p format.Problem) {
		report(p)
		ofIndex := strings.HasPrefix(p.Class, "index-") // if the object contains no rows, it is a warning
		if p.Severity == format.Error || p.Class == badCopy || ofIndex && p.Severity == format.Warning {
			m.faults++
			if ofIndex && p.Severity == format.Error || p.Class == badConfig || p.Class == notABundle {
				m.indexFaults++
			}
		}
	}
	m.bundle, err = load(ctx, st, name, o)
	damage, damaged := errors.AsType[*format.CorruptError](err)
	switch {
	case damaged && damage.Code == format.Unsupported:
		return nil, err
	case damaged:
		note(damage.Problem)
		m.bundle = &bundle{st: st, name: name, root: strings.TrimSuffix(name, "/"), limits: o.Limits.OrDefault(),
			shards: map[uint64]*shard{}, release: func() {}}
		var ok bool
		if ok, err = m.hasIndex(ctx); err == nil && !ok {
			err = damage
		}
	case err == nil:
		v := &check{bundle: m.bundle, report: note, streams: map[uint64]*stream{}}
		err = v.run(ctx)
	}
	if err != nil {
		if m.bundle != nil {
			m.close()
		}
		return nil, err
	}
	a := m.bundle
	m.reopen = func(ctx context.Context) (rows, error) {
		if a.single {
			return a.rows, nil
		}
		return openDirectory(ctx, st, sstable.Join(a.root, indexDir), sstable.Options{})
	}
	return damage, nil
}

// replaced sets which objects are rewritten or removed.
func (m *repairer) replaced(ctx context.Context, plan *format.Plan, objects []object) error {
	for _, o := range objects {
		if !o.isShard {
			plan.Replaces = append(plan.Replaces, o.name)
			plan.Drops = append(plan.Drops, o.name)
			continue
		}
		empty, err := m.emptied(ctx, o.shard)
		if err != nil {
			return err
		}
		if empty || m.headers[o.shard] || m.arranged[o.shard] != nil {
			plan.Replaces = append(plan.Replaces, o.name)
		}
	}
	return nil
}

type repairer struct {
	*bundle
	reopen              func(context.Context) (rows, error)
	faults, indexFaults int          // problems that were found
	bad                 map[int]bool // numbers of rows of files that are omitted
	headers             map[uint64]bool
	ends                map[uint64]int64      // how far content is known in the streams of shards
	places              map[uint64][]storedAt // of shards with wrong rows, from what is stored
	sums                bool                  // empty files have other checksums than that of no bytes
	files               int                   // files that can be read
	beside              int                   // number of these in damaged records
	rescue              bool                  // rows were lost, so bytes that no file covers are kept
	notes               []string
	lost                []string
}

func (m *repairer) lose(msg string, args ...any) {
	kit.Say(&m.lost, msg, args...)
}

func (m *repairer) note(msg string, args ...any) {
	m.notes = append(m.notes, fmt.Sprintf(msg, args...))
}

// build writes the repaired bundle: all of it or, in place, what changes.
func (m *repairer) build(ctx context.Context, to store.Store, root string, objects []object, inPlace bool) (err error) {
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
			if err := m.copyShard(ctx, to, sstable.Join(root, shardName(o.shard)), s); err != nil {
				return err
			}
		case m.arranged[o.shard] != nil:
			s, err := m.shard(ctx, o.shard)
			if err == nil {
				err = m.copyShard(ctx, to, sstable.Join(root, shardName(o.shard)), s)
			}
			if err != nil {
				return err
			}
		case !inPlace:
			if err := kit.Copy(ctx, to, sstable.Join(root, shardName(o.shard)), m.st, o.name, nil, nil); err != nil {
				return err
			}
		}
	}
	// A missing shard becomes an empty one.
	for i := range min(max(m.cfg.shards, 1), maxShards) {
		if there[i] {
			continue
		}
		if err := kit.WriteBytes(ctx, to, sstable.Join(root, shardName(i)), m.headerOf(i)); err != nil {
			return err
		}
	}
	// Records may be elsewhere than the rows say.
	for i, places := range m.places {
		s, err := m.shard(ctx, i)
		if err != nil {
			return err
		}
		s.loaded, s.records, s.wrong = true, places, nil
	}
	w := newIndexWriter(to, root, copies, sstable.WriterOptions{})
	defer func() { err = errors.Join(err, w.abort(ctx)) }()
	if err := m.writeRows(ctx, w); err != nil {
		return err
	}
	_, _, err = w.commit(ctx)
	return err
}

// emptied reports whether a shard is given up, because it cannot be opened with any header.
func (m *repairer) emptied(ctx context.Context, i uint64) (bool, error) {
	if m.headers[i] || i >= max(m.cfg.shards, 1) {
		return false, nil
	}
	s, err := m.shard(ctx, i)
	if err == nil && s.decode != nil && m.ends[i] == 0 {
		err = s.decode // another program may still read its content
	}
	if c, damaged := err.(*format.CorruptError); damaged {
		return c.Class != shardMissing, nil
	}
	return false, err
}
