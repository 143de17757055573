package databundle

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path"
	"slices"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/databundle/internal/sstable"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/store"
)

func verify(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) error {
	a, err := load(ctx, st, name, o)
	if err != nil {
		return kit.Reported(err, report)
	}
	defer a.close()
	v := &check{bundle: a, report: report, streams: map[uint64]*stream{}}
	return v.run(ctx)
}

type check struct {
	*bundle
	report  func(format.Problem)
	streams map[uint64]*stream
	lastDir string
	clash   string // a file that has lastDir below it
}

// stream is what the rows of files show about a shard's stream.
type stream struct {
	used kit.Ranges
	odd  []kit.Range // files that did not follow the files before them
	end  int64
}

func (v *check) say(sev format.Severity, class, volume string, off int64, entry *string, msg string, args ...any) {
	c := fault(class, volume, off, msg, args...)
	c.Severity = sev
	if entry != nil {
		c.Entry, c.HasEntry = *entry, true
	}
	v.report(c.Problem)
}

func (v *check) run(ctx context.Context) error {
	told := map[format.Problem]bool{}
	if d, ok := v.rows.(directoryRows); ok {
		err := d.Check(ctx, func(p sstable.Problem) {
			c := fault(indexClass(p.Err), p.Err.Object, p.Err.Offset, "%s", p.Err.What)
			if !p.Rows {
				c.Severity = format.Warning
			}
			told[c.Problem] = true
			v.report(c.Problem)
		})
		if err != nil {
			return indexError(err)
		}
	}
	for _, step := range []func(context.Context) error{v.checkConfig, v.checkRows, v.checkShards, v.checkCopies} {
		err := step(ctx)
		if c, ok := err.(*format.CorruptError); ok {
			// The index cannot be read further.
			if !told[c.Problem] {
				v.report(c.Problem)
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *check) checkConfig(context.Context) error {
	c := v.cfg
	if _, ok := methods[c.compression]; !ok {
		v.say(format.Warning, oddConfig, v.indexName(), -1, nil, "the bundle's own row has an unknown compression: %v", c.compression)
	}
	if c.recordSize == 0 && c.compression != none {
		v.say(format.Warning, oddConfig, v.indexName(), -1, nil, "the bundle's own row has a record size of 0")
	}
	if c.shards > 1<<32 {
		v.say(format.Error, badConfig, v.indexName(), -1, nil, "%d shards", c.shards)
	}
	return nil
}

// checkCopies compares copies of the index with it, if the store can list.
func (v *check) checkCopies(ctx context.Context) error {
	objects, err := v.objects(ctx)
	if err != nil {
		return err
	}
	seen := map[int]bool{0: true}
	for _, o := range objects {
		if o.isShard || seen[o.copy] {
			continue
		}
		seen[o.copy] = true
		dir := sstable.Join(v.root, indexName(o.copy))
		db, err := sstable.Open(ctx, v.st, dir, sstable.Options{MaxLog: min(v.limits.Index, 1<<30)})
		if err == nil {
			err = sameRows(ctx, v.rows, directoryRows{db})
			db.Close()
		}
		if c, ok := errors.AsType[*format.CorruptError](indexError(err)); ok {
			v.say(format.Warning, badCopy, dir, -1, nil, "unusable copy of the index: %s", c.Message)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// sameRows compares the rows of two indexes.
func sameRows(ctx context.Context, a, b rows) error {
	next, stop := iter.Pull2(b.Scan(ctx, nil, nil))
	defer stop()
	n := 0
	differ := func() error { return fault(badCopy, "", -1, "row %d differs from that of the index", n) }
	for row, err := range a.Scan(ctx, nil, nil) {
		if err != nil {
			return err
		}
		other, err, ok := next()
		if err != nil {
			return err
		}
		if n++; !ok || !bytes.Equal(row.Key, other.Key) || !bytes.Equal(row.Value, other.Value) {
			return differ()
		}
	}
	if _, err, ok := next(); ok {
		n++
		return cmp.Or(err, differ())
	}
	return nil
}

// checkRows iterates over the whole index.
func (v *check) checkRows(ctx context.Context) error {
	last := ""
	strange := map[uint64]bool{}
	for row, err := range v.rows.Scan(ctx, nil, nil) {
		if err != nil {
			return err
		}
		table, rest, err := varuint(row.Key)
		switch {
		case err != nil:
			v.say(format.Error, badMetadata, v.indexName(), -1, nil, "row %s: %v", hex.EncodeToString(row.Key), err)
		case table == fileTable:
			e := v.entryOf(row)
			if e.Name == last && last != "" {
				v.say(format.Warning, doubleName, v.indexName(), -1, &e.Name, "duplicate name: the index has it under different keys")
			}
			last = e.Name
			if err := v.checkEntry(ctx, e, row); err != nil {
				return err
			}
		case table == recordTable:
			if _, _, err := parsePlace(row); err != nil {
				v.say(format.Error, recordBounds, v.indexName(), -1, nil, "row %s: %v", hex.EncodeToString(row.Key), err)
			}
		case table == configTable && len(rest) == 0:
		case !strange[table]:
			strange[table] = true
			v.say(format.Warning, strangeRow, v.indexName(), -1, nil, "rows of an unknown table %d", table)
		}
	}
	return nil
}

func (v *check) checkEntry(ctx context.Context, e format.Entry, row sstable.Row) error {
	if e.Fault != nil {
		v.report(*e.Fault)
		return nil
	}
	if e.Name == "" && e.Kind == format.Dir {
		return nil // the bundle itself
	}
	if class := naming.Fault(e.Name); class != "" {
		p := format.Problem{Code: format.UnsafePath, Class: class, Severity: format.Warning, Volume: v.indexName(), Off: -1,
			Entry: e.Name, HasEntry: true, Message: "the name is not extracted: " + naming.Advice(class)}
		v.report(p)
		return nil
	}
	if err := v.checkAbove(ctx, e.Name); err != nil {
		return err
	}
	m, err := parseMeta(row.Value)
	if err != nil {
		return nil // its fault has been reported
	}
	if e.Kind == format.HardLink {
		other, ok, err := v.row(ctx, e.Link)
		if err != nil {
			return err
		}
		if first, err := parseMeta(other.Value); !ok || err != nil || first.shard != m.shard || first.offset != m.offset || first.size != m.size {
			v.say(format.Warning, lostLink, v.indexName(), -1, &e.Name, "hard link to %s, which is missing or not a file", format.Escape(e.Link))
		}
		return nil
	}
	if m.kind == regularFile && m.size > 0 {
		s := v.streams[m.shard]
		if s == nil {
			s = &stream{}
			v.streams[m.shard] = s
		}
		from, to := int64(m.offset), int64(m.offset+m.size)
		if all := s.used.All; len(all) > 0 && from < all[len(all)-1].To {
			s.odd = append(s.odd, kit.Range{From: from, To: to})
		} else {
			s.used.Add(from, to)
		}
		s.end = max(s.end, to)
	}
	return nil
}

// checkAbove reports a file where there should be a directory. Neighbours usually have the same
// directory, which is checked once.
func (v *check) checkAbove(ctx context.Context, name string) error {
	dir := path.Dir(name)
	if dir != v.lastDir {
		v.lastDir, v.clash = dir, ""
		for d := dir; d != "."; d = path.Dir(d) {
			row, ok, err := v.row(ctx, d)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			if m, err := parseMeta(row.Value); err == nil && m.kind != directory {
				v.clash = d
			}
			break // everything above a row has been checked with it
		}
	}
	if v.clash != "" {
		v.say(format.Error, fileAsDir, v.indexName(), -1, &name, "below %s, which is a file", format.Escape(v.clash))
	}
	return nil
}

// checkShards checks the shards that should exist, and those that contain files.
func (v *check) checkShards(ctx context.Context) error {
	for i := range v.cfg.shards {
		if i == 1<<20 {
			break
		}
		if v.streams[i] == nil {
			v.streams[i] = &stream{}
		}
	}
	for _, i := range slices.Sorted(maps.Keys(v.streams)) {
		err := v.checkShard(ctx, i, v.streams[i])
		if c, ok := err.(*format.CorruptError); ok {
			v.report(c.Problem)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (v *check) checkShard(ctx context.Context, i uint64, files *stream) error {
	s, err := v.shard(ctx, i)
	if err != nil {
		return err
	}
	if s.decode != nil {
		return s.decode
	}
	if s.header.compression != v.cfg.compression {
		v.say(format.Warning, oddConfig, s.name, prefixLen, nil, "the compression is %v, but %v in the bundle's own row", s.header.compression, v.cfg.compression)
	}
	if n := s.header.shards; n != 0 && v.cfg.shards != 0 && n != v.cfg.shards {
		v.say(format.Warning, oddConfig, s.name, prefixLen, nil, "one of %d shards, but the bundle's own row has %d", n, v.cfg.shards)
	}
	places, err := v.placesOf(ctx, s)
	if err != nil {
		return err
	}
	end := s.size - s.dataOff
	if len(places) == 0 {
		if s.header.compression != none && files.end > 0 {
			return fault(recordBounds, v.indexName(), -1, "shard %d is compressed, but the index has no row of its records", i)
		}
		if files.end > end {
			v.say(format.Error, shardShort, s.name, s.size, nil, "ends at %d, but files extend to %d", s.size, s.dataOff+files.end)
		}
	}
	last := int64(-1)
	lowest := int64(-1)
	for k, p := range places {
		if p.at < 0 {
			continue
		}
		if p.at >= end {
			v.say(format.Error, shardShort, s.name, s.dataOff+p.at, nil, "record %d is stored beyond the shard's end, %d", k, s.size)
		}
		if p.at <= last {
			v.say(format.Warning, recordBounds, v.indexName(), -1, nil, "record %d of shard %d is stored before the previous one", k, i)
		}
		last = max(last, p.at)
		if lowest < 0 || p.at < lowest {
			lowest = p.at
		}
	}
	if lowest > 0 && lowest == s.dataOff {
		v.say(format.Note, recordBounds, v.indexName(), -1, nil, "the first record of shard %d is stored at %d, where data begin: its writer may have counted from the beginning of the shard", i, lowest)
	}
	if n := len(places); n > 0 && files.end <= places[n-1].off {
		v.say(format.Note, orphan, s.name, -1, nil, "the last record has an unknown length: it has no file")
	}
	v.checkOverlaps(s, files)
	return nil
}

// checkOverlaps compares the places of files.
func (v *check) checkOverlaps(s *shard, files *stream) {
	slices.SortFunc(files.odd, func(a, b kit.Range) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	files.used.Join()
	overlaps, end := 0, int64(-1)
	for _, x := range files.odd {
		if x.From < end || files.used.Touches(x.From, x.To) {
			overlaps++
		}
		end = max(end, x.To)
	}
	if overlaps > 0 {
		v.say(format.Warning, overlapping, s.name, -1, nil, "%d files overlap others", overlaps)
	}
	for _, x := range files.odd {
		files.used.Add(x.From, x.To)
	}
	files.used.Join()
	holes, lost, align := 0, int64(0), int64(max(v.cfg.blockSize, 1))
	for _, g := range files.used.Gaps(0, files.end) {
		if n := g.To - g.From; s.header.compression != none || n >= align || g.To%align != 0 {
			holes++
			lost += n
		}
	}
	if holes > 0 {
		v.say(format.Note, orphan, s.name, -1, nil, "%s of the stream belong to no file", fmt.Sprintf("%d bytes in %d places", lost, holes))
	}
}
