package sstable

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/base/blake3"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// WriterOptions describe the tables to be written. The zero value is valid.
type WriterOptions struct {
	BlockSize int   // from which a data block ends; 0 is 4096
	TableSize int64 // from which a table ends; 0 is 64 MiB
	Once      bool  // CURRENT replaces nothing
}

const (
	// maxRow leaves space for the other contents of a block. dacha loads blocks of up to 8 MiB.
	maxRow = maxBlock - 64<<10
	// enoughIndex ends a table too: long keys make a long index of few rows.
	enoughIndex = 4 << 20
	// writeRun is how many bytes are written to the store at once.
	writeRun = 256 << 10
)

// A Writer writes a directory from rows in order. It must be used by one goroutine.
//
// Tables appear in the store when they are complete, but nothing refers to them before Commit
// writes CURRENT. The directory must not contain an index already, because its files would be
// replaced one by one.
type Writer struct {
	st    store.Store
	dir   string
	o     WriterOptions
	build tableBuilder
	obj   store.Writer // the table that is being written

	last   []byte
	rows   int64
	next   uint64 // file number
	tables []byte // edit fields
	hash   *blake3.Hasher
	made   []string
	stored int64
	err    error // what ended it
	done   bool
}

func NewWriter(st store.Store, dir string, o WriterOptions) *Writer {
	o.TableSize = cmp.Or(o.TableSize, 64<<20)
	return &Writer{st: st, dir: dir, o: o, next: firstTable, hash: blake3.New(), build: tableBuilder{
		blockSize: cmp.Or(o.BlockSize, 4096), data: blockBuilder{interval: restartInterval}, index: blockBuilder{interval: 1}}}
}

// Add adds a row. Its key must be above that of the previous row.
func (w *Writer) Add(ctx context.Context, key, value []byte) error {
	if w.err != nil {
		return w.err
	}
	if w.rows > 0 && bytes.Compare(key, w.last) <= 0 {
		return fmt.Errorf("row %d: key %q is not above %q, the one before", w.rows, clip(key), clip(w.last))
	}
	if len(key) > maxRow-len(value) {
		return fmt.Errorf("row %d: key %q: %d bytes, expected at most %d", w.rows, clip(key), len(key)+len(value), maxRow)
	}
	w.last = append(w.last[:0], key...)
	w.rows++
	w.build.add(key, value)
	switch {
	case w.build.off >= w.o.TableSize || w.build.index.size() >= enoughIndex:
		w.err = w.endTable(ctx)
	case len(w.build.out) >= writeRun:
		w.err = w.write(ctx)
	}
	return w.err
}

func (w *Writer) write(ctx context.Context) error {
	if w.obj == nil {
		name := Join(w.dir, tableName(w.next, tableSuffixes[0]))
		obj, err := storekit.Create(ctx, w.st, name)
		if err != nil {
			return err
		}
		w.obj = obj
	}
	w.hash.Write(w.build.out)
	_, err := w.obj.Write(w.build.out)
	w.build.out = w.build.out[:0]
	return err
}

func (w *Writer) endTable(ctx context.Context) error {
	largest := w.build.finish()
	if err := w.write(ctx); err != nil {
		return err
	}
	if err := w.commit(ctx, w.obj, Join(w.dir, tableName(w.next, tableSuffixes[0]))); err != nil {
		return err
	}
	w.obj = nil
	w.tables = appendNumbers(w.tables, tagAdd, tableLevel, w.next, uint64(w.build.off))
	w.tables = appendText(appendText(w.tables, w.build.smallest), largest)
	w.next++
	w.build.reset()
	return nil
}

func (w *Writer) commit(ctx context.Context, obj store.Writer, name string) error {
	w.made = append(w.made, name) // a Commit that fails may have been carried out
	info, err := obj.Commit(ctx)
	w.stored += info.Size
	return err
}

// Files returns the names of the files that were written, and their total size.
func (w *Writer) Files() (names []string, stored int64) { return w.made, w.stored }

func appendNumbers(b []byte, all ...uint64) []byte {
	for _, v := range all {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

func appendText(b, s []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Commit writes the rest, with CURRENT last. After an error the directory is not valid, and Abort
// removes what was written.
func (w *Writer) Commit(ctx context.Context) error {
	if w.err == nil {
		w.err = w.finish(ctx)
	}
	if w.err == nil {
		w.done, w.err = true, errors.New("index: already committed")
		return nil
	}
	return w.err
}

func (w *Writer) finish(ctx context.Context) error {
	if w.build.smallest != nil {
		if err := w.endTable(ctx); err != nil {
			return err
		}
	}
	edit := appendText([]byte{tagComparator}, []byte(bytewise))
	edit = appendNumbers(edit, tagLog, logNumber, tagPrevLog, 0, tagNextFile, w.next, tagLastSeq, onlySequence)
	edit = append(edit, w.tables...)
	w.hash.Write(edit)
	manifest := manifestName(manifestNumber)
	for _, f := range []struct {
		name    string
		content []byte
	}{
		{logName(logNumber), nil}, // dacha asks for it
		{lockName, nil},
		{identityName, identity(w.hash)},
		{manifest, appendRecord(nil, edit)},
		{currentName, []byte(manifest + "\n")},
	} {
		if err := w.put(ctx, Join(w.dir, f.name), f.content); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) put(ctx context.Context, name string, content []byte) (err error) {
	obj, err := storekit.CreateAs(ctx, w.st, name, store.Wishes{Once: w.o.Once && name == Join(w.dir, currentName)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, obj.Abort()) }()
	if _, err := obj.Write(content); err != nil {
		return err
	}
	return w.commit(ctx, obj, name)
}

// identity returns a UUID of version 8, derived from what was written, so that equal rows make
// equal directories.
func identity(h *blake3.Hasher) []byte {
	var id [16]byte
	copy(id[:], h.Sum(nil))
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return fmt.Appendf(nil, "%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// Abort removes what was written, if the store can do that. After Commit it does nothing.
func (w *Writer) Abort(ctx context.Context) error {
	if w.done {
		return nil
	}
	w.done = true
	if w.err == nil {
		w.err = errors.New("index: aborted")
	}
	var err error
	if w.obj != nil {
		err = w.obj.Abort()
		w.obj = nil
	}
	return errors.Join(err, kit.Remove(ctx, w.st, w.made))
}
