package databundle

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"path"
	"strconv"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/sorter"
)

// refuses returns why a bundle cannot hold an entry.
func refuses(e format.Entry) string {
	if n := len(e.Name) + len(e.Link); n > 64<<10 {
		return fmt.Sprintf("name and link target of %d bytes: expected at most %d", n, 64<<10)
	}
	if s := e.ModTime.Unix(); s <= -1<<40 || s >= 1<<40 {
		return fmt.Sprintf("time of %d seconds since 1970 cannot be stored", s)
	}
	if isLink := e.Kind == format.Symlink || e.Kind == format.HardLink; isLink && (e.Link == "" || strings.IndexByte(e.Link, 0) >= 0) {
		return fmt.Sprintf("invalid link target %q", e.Link)
	}
	return kit.UnsafeName(e.Name)
}

// The sorter's keys are those of the index, two NULs, and a rank. If several rows have the same
// name, the last one counts; one that is only implied by a path counts least.
const (
	rankImplied = 0
	rankRow     = 1 // and an increasing number
	rankLink    = 2 // and the key of a hard link to that name
)

// The first byte of a value in the sorter.
const (
	rowPlain = 0
	rowLink  = 1 // it has the place of another row
)

// addDirs adds rows for the directories above a name, unless they were just added.
func (w *writer) addDirs(name string) {
	dir := path.Dir(name)
	if dir == w.lastDir {
		return
	}
	last := w.lastDir
	w.lastDir = dir
	for ; dir != "." && dir != last && !strings.HasPrefix(last, dir+"/"); dir = path.Dir(dir) {
		if err := w.addImplied(dir, meta{kind: directory}); err != nil {
			w.broken(err)
			return
		}
	}
}

// addImplied adds a row without an entry: of a directory above an entry, or of the bundle itself.
func (w *writer) addImplied(name string, m meta) error {
	return w.sorter.Add(append(appendFileKey(nil, name), 0, 0, rankImplied), m.append([]byte{rowPlain}))
}

// metaOf returns the row of an entry, without the place of its content.
func metaOf(e format.Entry) (meta, error) {
	m := meta{kind: regularFile}
	if e.Kind == format.Dir {
		m.kind = directory
	}
	if url, ok := e.Attr[userTypeAttr]; ok && e.Kind != format.Symlink && e.Kind != format.HardLink {
		value, err := hex.DecodeString(e.Attr[userValueAttr])
		if err != nil {
			return m, kit.Refuse(e.Name, "user data: expected hexadecimal digits")
		}
		if len(value) > 1<<20 {
			return m, kit.Refuse(e.Name, "user data of %d bytes: expected at most %d", len(value), 1<<20)
		}
		m.user, m.hasUser = userData{url, value}, true
		return m, nil
	}
	a := attributes{mode: e.Mode, hasMode: e.HasMode, time: e.ModTime}
	number := func(name string) (uint64, bool) {
		n, err := strconv.ParseUint(name, 10, 32)
		return n, err == nil && strconv.FormatUint(n, 10) == name
	}
	if a.uid, a.hasUID = number(e.Owner); !a.hasUID {
		a.owner = e.Owner
	}
	if a.gid, a.hasGID = number(e.Group); !a.hasGID {
		a.group = e.Group
	}
	switch e.Kind {
	case format.Symlink:
		a.symlink = e.Link
	case format.HardLink:
		a.hardLink = e.Link
	}
	if value := a.append(nil); len(value) > 0 {
		m.user, m.hasUser = userData{attributesURL, value}, true
	}
	return m, nil
}

// eachRow calls add for each row of the index, sorted. For a part, rows of implied directories
// are omitted.
func (w *writer) eachRow(ctx context.Context, add func(key, value []byte) error) error {
	shards := len(w.shards)
	if w.part != nil {
		shards = 0
	}
	if err := add(configKey, w.o.config(shards).append(nil)); err != nil {
		return err
	}
	all := lastRows(ctx, w.sorter)
	if w.links > 0 {
		places, err := w.placesOfLinks(ctx)
		if err != nil {
			return err
		}
		defer places.Close()
		all = resolved(all, places)
	}
	for row, err := range all {
		if err != nil {
			return err
		}
		if w.part != nil && row.rank == rankImplied {
			continue
		}
		if row.rank == rankRow {
			w.sum.Entries++
			m, err := parseMeta(row.Value[1:])
			if err != nil {
				return err
			}
			if !m.isLink() {
				w.sum.Content += int64(m.size)
			}
		}
		if err := add(row.Key, row.Value[1:]); err != nil {
			return err
		}
	}
	for _, s := range w.shards {
		for _, p := range s.records {
			r := record{shard: s.index, offset: uint64(p.off), at: uint64(max(p.at, 0)), stored: p.at >= 0, allZeros: p.at < 0}
			if err := add(appendRecordKey(nil, s.index, uint64(p.off)), r.append(nil)); err != nil {
				return err
			}
		}
	}
	return nil
}

// sortedRow is the row of a name that counts, with the key of the index.
type sortedRow struct {
	sorter.Row
	rank byte
}

// splitSorted splits a key of the sorter.
func splitSorted(key []byte) (own []byte, rank byte, rest []byte) {
	at := bytes.Index(key, []byte{0, 0}) + 2 // the end of the directory
	at += bytes.Index(key[at:], []byte{0, 0})
	return key[:at], key[at+2], key[at+3:]
}

// sortedRows yields the contents of a sorter until ctx ends.
func sortedRows(ctx context.Context, rows *sorter.Sorter) iter.Seq2[sorter.Row, error] {
	return func(yield func(sorter.Row, error) bool) {
		n := 0
		for row, err := range rows.Sorted() {
			if n++; err == nil && n&0xfff == 0 && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// lastRows yields the row of each name that counts.
func lastRows(ctx context.Context, rows *sorter.Sorter) iter.Seq2[sortedRow, error] {
	return func(yield func(sortedRow, error) bool) {
		var held sortedRow
		for row, err := range sortedRows(ctx, rows) {
			if err != nil {
				yield(sortedRow{}, err)
				return
			}
			own, rank, _ := splitSorted(row.Key)
			if rank == rankLink {
				continue
			}
			if len(held.Key) > 0 && !bytes.Equal(held.Key, own) && !yield(held, nil) {
				return
			}
			held.Key, held.Value, held.rank = append(held.Key[:0], own...), append(held.Value[:0], row.Value...), rank
		}
		if len(held.Key) > 0 {
			yield(held, nil)
		}
	}
}

// placesOfLinks finds the places of hard links. It returns the rows of their targets, by the keys
// of the links.
func (w *writer) placesOfLinks(ctx context.Context) (_ *sorter.Sorter, err error) {
	places := w.newSorter()
	defer func() {
		if err != nil {
			err = errors.Join(err, places.Close())
		}
	}()
	var own []byte
	var target meta
	for row, err := range sortedRows(ctx, w.sorter) {
		if err != nil {
			return nil, err
		}
		key, rank, rest := splitSorted(row.Key)
		if !bytes.Equal(key, own) {
			own, target = append(own[:0], key...), meta{}
		}
		switch {
		case rank == rankLink:
			file := meta{kind: regularFile, shard: target.shard, offset: target.offset, size: target.size, crc: target.crc}
			if err := places.Add(rest, file.append([]byte{byte(target.kind)})); err != nil {
				return nil, err
			}
		case row.Value[0] == rowPlain:
			if target, err = parseMeta(row.Value[1:]); err != nil {
				return nil, err
			}
		}
	}
	return places, nil
}

// resolved sets the places of hard links; places is in the same order. A link without a target in
// the bundle has no place.
func resolved(all iter.Seq2[sortedRow, error], places *sorter.Sorter) iter.Seq2[sortedRow, error] {
	return func(yield func(sortedRow, error) bool) {
		next, stop := iter.Pull2(places.Sorted())
		defer stop()
		place, perr, more := next()
		for row, err := range all {
			for err == nil && more && perr == nil && bytes.Compare(place.Key, row.Key) < 0 {
				place, perr, more = next()
			}
			if err = cmp.Or(err, perr); err == nil && row.Value[0] == rowLink {
				if !more || !bytes.Equal(place.Key, row.Key) {
					place = sorter.Row{}
				}
				row.Value, err = linked(row, place)
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// linked returns the row of a hard link with the place of its target.
func linked(row sortedRow, place sorter.Row) ([]byte, error) {
	if len(place.Value) == 0 || place.Value[0] != regularFile {
		dir, base, err := cutFileKey(row.Key[len(fileTablePrefix):])
		if err != nil {
			return nil, err
		}
		name, _ := nameOf(dir, base)
		return nil, kit.Refuse(name, "hard link to something that is not a file of the bundle")
	}
	link, err := parseMeta(row.Value[1:])
	if err != nil {
		return nil, err
	}
	file, err := parseMeta(place.Value[1:])
	if err != nil {
		return nil, err
	}
	link.shard, link.offset, link.size, link.crc = file.shard, file.offset, file.size, file.crc
	return link.append([]byte{rowPlain}), nil
}
