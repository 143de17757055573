// Package tiny is a small archive format for tests. It keeps directories, links, FIFOs, modes and
// times, and shows how little a format needs. It is not for storing data. An archive is
//
//	| "TINY" | content … | records … | length of the records, uint64 LE | "YNIT" |
//
// and a record, with little-endian integers,
//
//	| kind 1 | has mode 1 | has time 1 | mode 4 | seconds 8 | nanoseconds 4 |
//	| content at 8 | content length 8 | name length 4 | link length 4 | name | link |
package tiny

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"strings"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Format is the tiny format.
var Format = &format.Format{
	Name:       "tiny",
	Title:      "Tiny archive, for tests",
	Extensions: []string{".tiny"},
	Keeps: format.KeepsModes | format.KeepsTimes | format.KeepsDirs |
		format.KeepsSymlinks | format.KeepsHardLinks | format.KeepsFifos,
	Params: []format.Param{{Name: "capitals", Flag: "tiny-capitals", For: format.ToOpen, Kind: format.ParamSwitch, Help: "show names in capitals"}},
	Detect: detect,
	Open:   open,
	Create: create,
	Verify: verify,
}

const (
	head      = "TINY"
	tail      = "YNIT"
	footerLen = 8 + int64(len(tail))
	recordLen = 1 + 1 + 1 + 4 + 8 + 4 + 8 + 8 + 4 + 4 // without name and link

	keptMode = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
)

func detect(p format.Probe) format.Match {
	if bytes.HasPrefix(p.Head, []byte(head)) && bytes.HasSuffix(p.Tail, []byte(tail)) {
		return format.Certain
	}
	return format.No
}

type reader struct {
	*kit.Index
	entries kit.Entries
	name    string
	table   int64 // offset of the records
	size    int64
}

// corrupt returns an error about the archive called name at offset off.
func corrupt(code format.Code, name string, off int64, msg string, args ...any) error {
	return &format.CorruptError{Format: "tiny", Problem: format.Problem{
		Code: code, Severity: format.Error, Volume: name, Off: off, Message: fmt.Sprintf(msg, args...),
	}}
}

func open(ctx context.Context, st store.Store, name string, o format.OpenOptions) (_ format.Reader, err error) {
	obj, err := st.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, obj.Close()) }()
	info, err := obj.Info(ctx)
	if err != nil {
		return nil, err
	}
	if info.Size < int64(len(head))+footerLen {
		return nil, corrupt(format.Truncated, name, info.Size, "%d bytes are too short for head and footer", info.Size)
	}
	var ends [int64(len(head)) + footerLen]byte
	if err := obj.ReadAt(ctx, ends[:len(head)], 0); err != nil {
		return nil, err
	}
	end := info.Size - footerLen // of the records
	if err := obj.ReadAt(ctx, ends[len(head):], end); err != nil {
		return nil, err
	}
	if string(ends[:len(head)]) != head {
		return nil, corrupt(format.BadMagic, name, 0, "it begins with %q, not %q", ends[:len(head)], head)
	}
	footer := ends[len(head):]
	if string(footer[8:]) != tail {
		return nil, corrupt(format.BadMagic, name, end+8, "it ends in %q, not %q", footer[8:], tail)
	}
	n := binary.LittleEndian.Uint64(footer)
	switch limit := uint64(o.Limits.OrDefault().Index); {
	case n > uint64(end)-uint64(len(head)):
		return nil, corrupt(format.BadIndex, name, end, "%d bytes of records do not fit", n)
	case n > limit:
		return nil, corrupt(format.Limit, name, end, "%d bytes of records are more than the limit of %d", n, limit)
	}
	r := &reader{name: name, table: end - int64(n), size: info.Size}
	table := make([]byte, n)
	if err := obj.ReadAt(ctx, table, r.table); err != nil {
		return nil, err
	}
	for off := r.table; len(table) > 0; {
		e, rest, ok := parse(table)
		if !ok {
			return nil, corrupt(format.BadIndex, name, off, "the record is cut short")
		}
		if err := r.check(e, off); err != nil {
			return nil, err
		}
		if o.Param["capitals"] == "true" {
			e.Name = strings.ToUpper(e.Name)
		}
		r.entries = append(r.entries, e)
		off += int64(len(table) - len(rest))
		table = rest
	}
	r.Index = kit.NewIndex(r.entries)
	return r, nil
}

// parse parses the first record in b.
func parse(b []byte) (e format.Entry, rest []byte, ok bool) {
	if len(b) < recordLen {
		return e, nil, false
	}
	le := binary.LittleEndian
	e.Kind, e.HasMode, e.Mode = format.Kind(b[0]), b[1] != 0, fs.FileMode(le.Uint32(b[3:]))
	if b[2] != 0 {
		e.ModTime = time.Unix(int64(le.Uint64(b[7:])), int64(le.Uint32(b[15:]))).UTC()
	}
	e.Ref, e.Size = int64(le.Uint64(b[19:])), int64(le.Uint64(b[27:]))
	name, link := uint64(le.Uint32(b[35:])), uint64(le.Uint32(b[39:]))
	b = b[recordLen:]
	if name+link > uint64(len(b)) {
		return e, nil, false
	}
	e.Name, e.Link = string(b[:name]), string(b[name:name+link])
	return e, b[name+link:], true
}

// check returns an error if the entry, whose record is at off, cannot be in this archive.
func (r *reader) check(e format.Entry, off int64) error {
	at := e.Ref.(int64)
	switch {
	case e.Kind > format.Fifo || e.Mode&^keptMode != 0:
		return corrupt(format.BadIndex, r.name, off, "a record of kind %d and mode %#o", e.Kind, uint32(e.Mode))
	case !e.Kind.HasContent() && e.Size != 0:
		return corrupt(format.BadIndex, r.name, off, "a %v of %d bytes", e.Kind, e.Size)
	case at < int64(len(head)) || at > r.table || e.Size < 0 || e.Size > r.table-at:
		return corrupt(format.OutOfBounds, r.name, off, "content at %d+%d, but the records begin at %d", at, e.Size, r.table)
	}
	return nil
}

func (r *reader) Extents(_ context.Context, e format.Entry, _, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		at, ok := e.Ref.(int64)
		switch {
		case !ok:
			yield(format.Extent{}, &fs.PathError{Op: "read", Path: e.Name, Err: fs.ErrInvalid})
		case n > 0 && e.Size > 0:
			yield(format.Extent{Size: e.Size, Object: r.name, Off: at, Len: e.Size}, nil)
		}
	}
}

func (r *reader) Regions(context.Context) iter.Seq2[format.Region, error] {
	return func(yield func(format.Region, error) bool) {
		at := int64(len(head))
		if !yield(format.Region{Object: r.name, Len: at, Use: format.Header, Label: "head"}, nil) {
			return
		}
		// Contents are stored in the order of the records. Gaps between them are of entries that
		// failed.
		gap := func(to int64) bool {
			return at >= to || yield(format.Region{Object: r.name, Off: at, Len: to - at, Use: format.Trash, Label: "left by an entry that failed"}, nil)
		}
		for _, e := range r.entries {
			if e.Size == 0 {
				continue
			}
			start := e.Ref.(int64)
			if !gap(start) {
				return
			}
			at = max(at, start+e.Size)
		}
		if !gap(r.table) {
			return
		}
		if n := r.size - footerLen - r.table; n > 0 &&
			!yield(format.Region{Object: r.name, Off: r.table, Len: n, Use: format.IndexData, Label: "records"}, nil) {
			return
		}
		yield(format.Region{Object: r.name, Off: r.size - footerLen, Len: footerLen, Use: format.Header, Label: "footer"}, nil)
	}
}

func (r *reader) About(context.Context) (format.About, error) {
	return format.About{Version: "1", IndexBytes: r.size - r.table, Volumes: []string{r.name}}, nil
}

func (r *reader) Close() error { return nil }

func verify(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) error {
	r, err := open(ctx, st, name, o)
	if c, ok := errors.AsType[*format.CorruptError](err); ok {
		report(c.Problem)
		return nil
	}
	if err != nil {
		return err
	}
	return r.Close()
}

type writer struct {
	name    string
	out     store.Writer
	at      int64 // offset of the next content
	records []byte
	names   map[string]bool
	sum     format.Summary
	err     error // an error of the store, after which its state is unknown
}

func create(ctx context.Context, st store.Store, name string, _ format.CreateOptions) (format.Writer, error) {
	out, err := storekit.Create(ctx, st, name)
	if err != nil {
		return nil, err
	}
	w := &writer{name: name, out: out, names: map[string]bool{}}
	if err := w.write([]byte(head)); err != nil {
		return nil, errors.Join(err, out.Abort())
	}
	return w, nil
}

// nameError means that an entry's name cannot be stored.
type nameError struct{ name string }

func (e *nameError) Error() string {
	return format.Escape(e.name) + ": an entry of that name is in the archive already"
}

func (e *nameError) EntryName() string { return e.name }

func (w *writer) write(p []byte) error {
	if _, err := w.out.Write(p); err != nil {
		w.err = err
		return err
	}
	w.at += int64(len(p))
	return nil
}

func (w *writer) Add(ctx context.Context, e format.Entry, r io.Reader) error {
	if w.err != nil {
		return w.err
	}
	if e.Kind > format.Fifo {
		return fmt.Errorf("%s: tiny keeps no %v: %w", e.Name, e.Kind, errors.ErrUnsupported)
	}
	if w.names[e.Name] {
		return &nameError{e.Name}
	}
	start := w.at
	if err := w.content(ctx, e, r); err != nil {
		// If the store cannot take the content back, it stays as a gap.
		if rewind := w.out.Can().Rewind; rewind != nil && w.err == nil {
			if w.err = rewind(start); w.err == nil {
				w.at = start
			}
			err = errors.Join(err, w.err)
		}
		return err
	}
	w.record(e, start)
	w.names[e.Name] = true
	w.sum.Entries++
	w.sum.Content += e.Size
	return nil
}

func (w *writer) content(ctx context.Context, e format.Entry, r io.Reader) error {
	buf := make([]byte, 32<<10)
	for n := int64(0); ; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		k, err := r.Read(buf)
		if n += int64(k); n > e.Size || err == io.EOF && n < e.Size {
			return &kit.SizeError{Name: e.Name, Said: e.Size, Found: n}
		}
		if werr := w.write(buf[:k]); werr != nil {
			return werr
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (w *writer) record(e format.Entry, at int64) {
	flag := func(b bool) byte {
		if b {
			return 1
		}
		return 0
	}
	le, hasTime := binary.LittleEndian, !e.ModTime.IsZero()
	var sec, nsec int64
	if hasTime {
		sec, nsec = e.ModTime.Unix(), int64(e.ModTime.Nanosecond())
	}
	b := append(w.records, byte(e.Kind), flag(e.HasMode), flag(hasTime))
	b = le.AppendUint32(b, uint32(e.Mode&keptMode))
	b = le.AppendUint64(b, uint64(sec))
	b = le.AppendUint32(b, uint32(nsec))
	b = le.AppendUint64(b, uint64(at))
	b = le.AppendUint64(b, uint64(e.Size))
	b = le.AppendUint32(b, uint32(len(e.Name)))
	b = le.AppendUint32(b, uint32(len(e.Link)))
	w.records = append(append(b, e.Name...), e.Link...)
}

func (w *writer) Commit(ctx context.Context) (format.Summary, error) {
	if w.err != nil {
		return format.Summary{}, w.err
	}
	footer := binary.LittleEndian.AppendUint64(nil, uint64(len(w.records)))
	if err := w.write(append(w.records, append(footer, tail...)...)); err != nil {
		return format.Summary{}, err
	}
	info, err := w.out.Commit(ctx)
	if err != nil {
		w.err = err
		return format.Summary{}, err
	}
	w.err = errors.New("archive is committed")
	w.sum.Stored, w.sum.Volumes = info.Size, []string{w.name}
	return w.sum, nil
}

func (w *writer) Abort() error { return w.out.Abort() }
