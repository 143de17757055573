package databundle

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/databundle/internal/sstable"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A part of a bundle is one shard, and a list, which is an index of only that shard:
//
//	parts/00000003.17/   a directory of the LevelDB family: shard 3, as try 17 wrote it
//
// Its rows are those of the later index, and two more tables: directories that are only implied
// by names, because a row of another part may contain more about them, and a row with the size of
// the shard. That row is the last one.
const (
	partsDir     = "parts"
	impliedTable = 64 // directory and "/", file name: BundleFileMetadata
	partTable    = 65 // one row: partRow
)

var (
	impliedPrefix = appendVaruint(nil, impliedTable)
	partKey       = appendVaruint(nil, partTable)
)

// partBlock is the size of the blocks of a list. A list is usually read from beginning to end,
// and the tables of many lists may be open at the same time.
const partBlock = 16 << 10

// partLen returns the size of the shard from the row of a list, which is field 1.
func partLen(row []byte) (int64, error) {
	m, err := parseMessage(row)
	if err == nil && m.numbers[1] > 1<<63-1 {
		err = errMessage
	}
	return int64(m.numbers[1]), err
}

func partObject(archive string, number int) string {
	return sstable.Join(strings.TrimSuffix(archive, "/"), shardName(uint64(number)))
}

// listsOf returns the prefix of the names of a part's lists.
func listsOf(archive string, number int) string {
	return sstable.Join(strings.TrimSuffix(archive, "/"), fmt.Sprintf("%s/%08d.", partsDir, number))
}

func partDir(p format.Part) string {
	return listsOf(p.Archive, p.Number) + strconv.FormatInt(p.Try, 10)
}

func checkPart(p format.Part) error {
	if p.Number < 0 || p.Number >= maxShards || p.Try < 0 {
		return fmt.Errorf("part %d, try %d: expected a number below %d", p.Number, p.Try, maxShards)
	}
	return nil
}

// checkParts returns an error for options that determine the shards.
func (o options) checkParts() error {
	if o.shards > 1 || o.shardSize > 0 || o.inline {
		return errors.New("a bundle in parts has one shard for each part and an index in a directory")
	}
	return nil
}

func createPart(ctx context.Context, st store.Store, p format.Part, o format.CreateOptions) (format.Writer, error) {
	if err := checkPart(p); err != nil {
		return nil, err
	}
	o.Carry = nil
	return begin(ctx, st, strings.TrimSuffix(p.Archive, "/"), &p, o)
}

// commitPart makes the list appear, and then the shard. A list without its shard is ignored.
func (w *writer) commitPart(ctx context.Context) (err error) {
	s := w.shards[0]
	if err := w.pad(s, s.out); err != nil {
		return err
	}
	x := sstable.NewWriter(w.st, partDir(*w.part), sstable.WriterOptions{BlockSize: partBlock})
	defer func() { err = errors.Join(err, x.Abort(ctx)) }()
	add := func(key, value []byte) error { return x.Add(ctx, key, value) }
	if err := w.eachRow(ctx, add); err != nil {
		return err
	}
	var key []byte
	for row, err := range lastRows(ctx, w.sorter) {
		if err == nil && row.rank == rankImplied {
			key = append(append(key[:0], impliedPrefix...), row.Key[len(fileTablePrefix):]...)
			err = add(key, row.Value[1:])
		}
		if err != nil {
			return err
		}
	}
	stored := s.dataOff + s.at
	if w.o.kind == none {
		stored = roundUp(stored, w.o.align)
	}
	if err := add(partKey, appendNumber(nil, 1, uint64(stored))); err != nil {
		return err
	}
	if err := x.Commit(ctx); err != nil {
		return err
	}
	info, err := s.obj.Commit(ctx)
	if err != nil {
		return err
	}
	names, n := x.Files()
	w.sum.Stored, w.sum.Volumes = info.Size+n, append(names, s.name)
	return nil
}

func triesOf(ctx context.Context, st store.Store, archive string, number int) ([]format.Part, error) {
	prefix := listsOf(archive, number)
	var all []format.Part
	for info, err := range storekit.List(ctx, st, prefix) {
		if err != nil {
			return nil, err
		}
		digits, _, ok := strings.Cut(strings.TrimPrefix(info.Name, prefix), "/")
		p := format.Part{Archive: archive, Number: number}
		if p.Try, err = strconv.ParseInt(digits, 10, 64); err != nil || !ok || partDir(p) != prefix+digits {
			continue // not a list
		}
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b format.Part) int { return cmp.Compare(b.Try, a.Try) })
	return all, nil
}

func missingPart(p format.Part, why string) error {
	return fmt.Errorf("%s, by %s: %s: %w", partObject(p.Archive, p.Number), partDir(p), why, fs.ErrNotExist)
}

// openList opens the list of a try. Its shard must exist; openList returns the size of the shard.
func openList(ctx context.Context, st store.Store, p format.Part, o sstable.Options) (d directoryRows, stored int64, err error) {
	if err := checkPart(p); err != nil {
		return d, 0, err
	}
	d, err = openDirectory(ctx, st, partDir(p), o)
	if err == errNoIndex {
		err = missingPart(p, "the list is incomplete")
	}
	if err != nil {
		return d, 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	value, ok, err := d.Get(ctx, partKey)
	if err != nil {
		return d, 0, err
	}
	if !ok {
		return d, 0, fault(badMetadata, partDir(p), -1, "the row of the shard is missing")
	}
	if stored, err = partLen(value); err != nil {
		return d, 0, fault(badMetadata, partDir(p), -1, "the row of the shard: %v", err)
	}
	info, err := storekit.Briefly(st, partObject(p.Archive, p.Number)).Info(ctx)
	if err == nil && info.Size != stored {
		err = missingPart(p, fmt.Sprintf("the shard has %d bytes, but %d in the list", info.Size, stored))
	}
	return d, stored, err
}

func openPart(ctx context.Context, st store.Store, p format.Part, o format.OpenOptions) (format.Reader, error) {
	d, _, err := openList(ctx, st, p, sstable.Options{})
	if err == nil {
		err = d.Close()
	}
	if err != nil {
		return nil, err
	}
	root := strings.TrimSuffix(p.Archive, "/")
	return read(loadAs(ctx, st, &bundle{name: partObject(root, p.Number), root: root, part: &p}, o))
}

// merger makes an index from the lists of all parts.
type merger struct {
	st    store.Store
	root  string
	o     options
	parts []format.Part
	lists []directoryRows
	sum   format.Summary
}

func mergeParts(ctx context.Context, st store.Store, archive string, parts []format.Part, o format.CreateOptions) (_ format.Summary, err error) {
	m := &merger{root: strings.TrimSuffix(archive, "/"), st: st, parts: parts}
	if m.o, err = parseOptions(o.Param); err == nil {
		err = m.o.checkParts()
	}
	if err == nil && (len(parts) == 0 || len(parts) > maxShards) {
		err = fmt.Errorf("%s: %d parts: expected 1 to %d", format.Escape(archive), len(parts), maxShards)
	}
	if err != nil {
		return m.sum, err
	}
	defer func() {
		for _, d := range m.lists {
			err = errors.Join(err, d.Close())
		}
	}()
	for i, p := range parts {
		if p.Number != i || strings.TrimSuffix(p.Archive, "/") != m.root {
			return m.sum, fmt.Errorf("%s: expected part %d, found part %d of %s", format.Escape(archive), i, p.Number, format.Escape(p.Archive))
		}
		if err := m.open(ctx, p); err != nil {
			return m.sum, err
		}
	}
	if err := m.vacant(ctx); err != nil {
		return m.sum, err
	}
	return m.sum, m.write(ctx)
}

// open opens the list of a part. It keeps little of it in memory.
func (m *merger) open(ctx context.Context, p format.Part) error {
	d, stored, err := openList(ctx, m.st, p, sstable.Options{BlockCache: 1, IndexCache: 1})
	if err != nil {
		return err
	}
	m.lists = append(m.lists, d)
	value, _, err := d.Get(ctx, configKey)
	if err != nil {
		return err
	}
	if expected := m.o.config(0).append(nil); !bytes.Equal(value, expected) {
		return fault(badConfig, partDir(p), -1, "written with other options: %x, expected %x", value, expected)
	}
	m.sum.Stored += stored
	m.sum.Volumes = append(m.sum.Volumes, partObject(m.root, p.Number))
	return nil
}

// vacant returns an error if there is an index, which is not replaced.
func (m *merger) vacant(ctx context.Context) error {
	name := sstable.Join(m.root, currentName)
	_, err := storekit.Briefly(m.st, name).Info(ctx)
	switch {
	case err == nil:
		return &fs.PathError{Op: "merge", Path: name, Err: fs.ErrExist}
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// write writes the index. Nothing appears before it is complete, so an aborted merge leaves
// nothing that could belong to another one. If two programs merge the same parts, they write the
// same.
func (m *merger) write(ctx context.Context) (err error) {
	stage := storekit.NewStage(m.st)
	defer func() { err = errors.Join(err, stage.Discard()) }()
	x := newIndexWriter(stage, m.root, m.o.copies, sstable.WriterOptions{Once: true})
	defer func() { err = errors.Join(err, x.abort(ctx)) }()
	add := func(rows iter.Seq2[sstable.Row, error]) error {
		for row, err := range rows {
			if err == nil {
				err = x.add(ctx, row.Key, row.Value)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := x.add(ctx, configKey, m.o.config(len(m.parts)).append(nil)); err != nil {
		return err
	}
	if err := add(m.files(ctx)); err != nil {
		return err
	}
	for i, d := range m.lists {
		from, to := shardKeys(uint64(i))
		if err := add(d.Scan(ctx, from, to)); err != nil {
			return err
		}
	}
	names, n, err := x.commit(ctx)
	if err != nil {
		return err
	}
	m.sum.Volumes, m.sum.Stored = append(m.sum.Volumes, names...), m.sum.Stored+n
	return stage.Publish(ctx)
}

// files yields the rows of names, and counts them. A row that is only implied counts if there is
// no other of its name.
func (m *merger) files(ctx context.Context) iter.Seq2[sstable.Row, error] {
	var lists []*sstable.DB
	for _, d := range m.lists {
		lists = append(lists, d.DB)
	}
	var key []byte
	return together(
		told(sstable.Merged(ctx, lists, fileTablePrefix, after(fileTablePrefix)), m.count),
		told(sstable.Merged(ctx, lists, impliedPrefix, after(impliedPrefix)), func(row *sstable.Row) error {
			key = append(append(key[:0], fileTablePrefix...), row.Key[len(impliedPrefix):]...)
			row.Key = key
			return nil
		}))
}

func (m *merger) count(row *sstable.Row) error {
	f, err := parseMeta(row.Value)
	if err == nil && f.kind == regularFile && f.shard >= uint64(len(m.parts)) {
		err = fmt.Errorf("in shard %d of only %d", f.shard, len(m.parts))
	}
	if err != nil {
		return fault(badMetadata, sstable.Join(m.root, partsDir), -1, "row %x of a list: %v", row.Key, err)
	}
	m.sum.Entries++
	if !f.isLink() {
		m.sum.Content += int64(f.size)
	}
	return nil
}

func clearParts(ctx context.Context, st store.Store, archive string) error {
	var names []string
	for info, err := range storekit.List(ctx, st, sstable.Join(strings.TrimSuffix(archive, "/"), partsDir+"/")) {
		if err != nil {
			return err
		}
		names = append(names, info.Name) // the listing does not change while it is read
	}
	for _, name := range names {
		if err := storekit.Remove(ctx, st, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
