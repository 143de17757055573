package databundle

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/databundle/internal/sstable"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store/storekit"
)

// used returns which bytes of each shard's stream are content.
func (a *bundle) used(ctx context.Context) (map[uint64]kit.Ranges, error) {
	all := map[uint64]kit.Ranges{}
	for row, err := range a.rows.Scan(ctx, fileTablePrefix, after(fileTablePrefix)) {
		if err != nil {
			return nil, err
		}
		e := a.entryOf(row)
		at, ok := e.Ref.(stretch)
		if !ok || e.Fault != nil || e.Kind != format.File || e.Size == 0 {
			continue
		}
		r := all[at.shard]
		r.Add(at.off, at.off+e.Size)
		all[at.shard] = r
	}
	for shard, r := range all {
		r.Join()
		all[shard] = r
	}
	return all, nil
}

// Regions yields the index, the headers of shards, and the parts of shards that are not content.
func (r *reader) Regions(ctx context.Context) iter.Seq2[format.Region, error] {
	return func(yield func(format.Region, error) bool) {
		objects, err := r.objects(ctx)
		if err != nil {
			yield(format.Region{}, err)
			return
		}
		used, err := r.used(ctx)
		if err != nil {
			yield(format.Region{}, err)
			return
		}
		for _, o := range objects {
			if o.size == 0 {
				continue
			}
			if !o.isShard {
				label := "index"
				if o.copy > 0 {
					label = "copy of the index"
				}
				if !yield(format.Region{Object: o.name, Len: o.size, Use: format.IndexData, Label: label}, nil) {
					return
				}
				continue
			}
			regions, err := r.shardRegions(ctx, o, used[o.shard])
			if err != nil {
				yield(format.Region{}, err)
				return
			}
			for _, g := range regions {
				if !yield(g, nil) {
					return
				}
			}
		}
	}
}

func (a *bundle) shardRegions(ctx context.Context, o object, used kit.Ranges) ([]format.Region, error) {
	s, err := a.shard(ctx, o.shard)
	var places []storedAt
	if err == nil {
		places, err = a.placesOf(ctx, s)
	}
	if _, damaged := err.(*format.CorruptError); damaged {
		return []format.Region{{Object: o.name, Len: o.size, Use: format.Unknown, Label: "unreadable shard"}}, nil
	}
	if err != nil {
		return nil, err
	}
	var out []format.Region
	put := func(from, to int64, use format.Use, label string) {
		if to = min(to, s.size); to > from {
			out = append(out, format.Region{Object: s.name, Off: from, Len: to - from, Use: use, Label: label})
		}
	}
	put(0, s.dataOff, format.Header, "shard header")
	if len(places) == 0 {
		end := s.size - s.dataOff
		for n := len(used.All); n > 0 && used.All[n-1].To > end; n-- {
			used.All = used.All[:n-1] // files beyond the end cannot be read
		}
		for _, g := range used.Gaps(0, end) {
			label := "between files"
			if g.To == end {
				label = "after the last file"
			}
			put(s.dataOff+g.From, s.dataOff+g.To, format.Padding, label)
		}
		return out, nil
	}
	var covered kit.Ranges
	for k, p := range places {
		if p.at < 0 {
			continue
		}
		from := s.dataOff + p.at
		covered.Add(from, from+p.len)
		end, known := int64(0), true
		if k+1 < len(places) {
			end = places[k+1].off
		} else if end, known, err = a.endOf(ctx, s, p); err != nil {
			return nil, err
		}
		switch {
		case !used.Touches(p.off, max(end, p.off+1)):
			put(from, from+p.len, format.Unknown, "record without a file")
		case s.codec == codec.Raw:
			last := end
			for _, g := range used.Gaps(p.off, end) {
				if g.To == end {
					last = g.From
					break
				}
				put(from+g.From-p.off, from+g.To-p.off, format.Padding, "between files")
			}
			put(from+last-p.off, from+p.len, format.Padding, "after a record")
		case known && p.len > mostStored(end-p.off):
			put(from+mostStored(end-p.off), from+p.len, format.Padding, "after a record")
		}
	}
	covered.Join()
	for _, g := range covered.Gaps(s.dataOff, s.size) {
		label := "before the first record"
		if g.To == s.size {
			label = "outside the records"
		}
		put(g.From, g.To, format.Unknown, label)
	}
	slices.SortFunc(out, func(a, b format.Region) int { return cmp.Compare(a.Off, b.Off) })
	return out, nil
}

type object struct {
	name    string
	size    int64
	isShard bool
	shard   uint64
	copy    int // copy of the index that contains it; 0 means the index itself
}

// objects returns the bundle's objects, from a listing if the store can list.
func (a *bundle) objects(ctx context.Context) ([]object, error) {
	var all []object
	prefix := sstable.Join(a.root, "")
	if a.root == "" {
		prefix = ""
	}
	var listErr error
	for info, err := range storekit.List(ctx, a.st, prefix) {
		if err != nil {
			listErr = err
			break
		}
		rest := strings.TrimPrefix(info.Name, prefix)
		if a.part != nil && info.Name != a.shardName(a.firstShard()) {
			if strings.HasPrefix(info.Name, a.indexDir()+"/") {
				all = append(all, object{name: info.Name, size: info.Size})
			}
		} else if i, ok := parseShardName(rest); ok {
			all = append(all, object{name: info.Name, size: info.Size, isShard: true, shard: i})
		} else if k := copyOf(rest); k > 0 || strings.HasPrefix(rest, indexDir+"/") && !a.single {
			all = append(all, object{name: info.Name, size: info.Size, copy: k})
		}
	}
	if listErr == nil {
		return all, nil
	}
	if !errors.Is(listErr, errors.ErrUnsupported) {
		return nil, listErr
	}
	// Without a listing, these are the files in the manifest, and shards up to the stated number.
	all = nil
	if d, ok := a.directory(); ok {
		files, err := d.Files(ctx)
		if err != nil {
			return nil, indexError(err)
		}
		for _, f := range files {
			all = append(all, object{name: f.Name, size: f.Size})
		}
	}
	for i := range max(a.cfg.shards, 1) {
		s, err := a.shard(ctx, i)
		if _, damaged := err.(*format.CorruptError); damaged {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, object{name: s.name, size: s.size, isShard: true, shard: i})
	}
	return all, nil
}
