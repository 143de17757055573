package fleet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

const (
	// maxLine is the maximum length of a line in a list. A key has at most 1024
	// bytes, and a path on a disk about 4096, and each may be escaped.
	maxLine = 64 << 10

	// maxListed is the largest size that an object of a list may have, far above
	// the limits of services.
	maxListed = 1 << 50

	// maxRefused is the maximum number of consecutive objects to which access is
	// refused. If all are, the cause is not in the objects.
	maxRefused = 100

	listAhead = 1 << 20 // bytes of a list read by one request
)

// A list replaces the listing of a source. It is sorted, and attributes that
// it lacks are requested for each object.
type list struct {
	from    origin
	rows    *sorter.Sorter
	skipped *Skipped
	tell    func(path string, err error)
	asked   int64
	refused int // in a row

	events bool   // names that do not exist, or occur several times, are nothing to tell
	n      int64  // names
	first  string // of them
	last   string
	look   func(ctx context.Context, name string) (*known, error) // finds what is packed; nil if that is read in order
	was    *known                                                 // of the object that was told last
}

func (s Spec) listed() bool { return s.List != "" || s.Inventory != "" || len(s.Events) > 0 }

// takeList reads the list of a source, if it has one. The caller must close
// it.
func (j *job) takeList(ctx context.Context, s Spec, skipped *Skipped) (l *list, err error) {
	if !s.listed() {
		return nil, nil
	}
	l = &list{from: j.origins[0], skipped: skipped, tell: s.Tell, events: len(s.Events) > 0}
	if l.tell == nil {
		l.tell = func(string, error) {}
	}
	l.rows = sorter.New(sorter.Options{
		Scratch: sorter.TempFile,
		Duplicate: func([]byte) error {
			if !l.events {
				skipped.Doubles++
			}
			return nil
		},
	})
	switch {
	case l.events:
		for i := 0; i < len(s.Events) && err == nil; i++ {
			err = l.readEvents(ctx, s.Events[i])
		}
	case s.Inventory != "":
		err = l.readInventory(ctx, s.Inventory)
	default:
		err = l.readLines(ctx, s.List)
	}
	if err != nil {
		return nil, errors.Join(err, l.rows.Close())
	}
	j.origins[0].list = l
	return l, nil
}

func (l *list) close() {
	if l != nil {
		_ = l.rows.Close() // scratch
	}
}

// add adds an object. If it has no version, or its size is below 0, these are
// requested later.
func (l *list) add(name string, size int64, version string) error {
	if !strings.HasPrefix(name, l.from.begin) {
		l.skipped.Outside++
		return nil
	}
	if size < 0 || version == "" || l.from.st.Can().Near {
		size, version = -1, ""
	}
	if l.n++; l.n == 1 || name < l.first {
		l.first = name
	}
	l.last = max(l.last, name)
	return l.rows.Add([]byte(name), append(binary.AppendVarint(nil, size), version...))
}

// infos yields the objects in byte order.
func (l *list) infos(ctx context.Context) iter.Seq2[store.Info, error] {
	type row struct {
		store.Info
		asked bool
		err   error
		was   *known
		fails error // to look for it
	}
	rows := func(yield func(*row, error) bool) {
		for r, err := range l.rows.Sorted() {
			x := &row{}
			if err == nil {
				size, n := binary.Varint(r.Value)
				x.Info = store.Info{Name: string(r.Key), Size: size, Version: string(r.Value[n:])}
			}
			if !yield(x, err) || err != nil {
				return
			}
		}
	}
	ask := func(ctx context.Context, x *row) {
		if x.Size < 0 {
			is, err := storekit.Briefly(l.from.st, x.Name).Info(ctx)
			x.asked, x.err, x.Size, x.Version, x.ModTime = true, err, is.Size, is.Version, is.ModTime
		}
		if l.look != nil && x.err == nil {
			x.was, x.fails = l.look(ctx, x.Name)
		}
	}
	return pipe.Told(func(tell func(store.Info) error) error {
		return pipe.Ordered(ctx, rows, lists, ask, func(x *row) error {
			if x.asked {
				l.asked++
			}
			path := l.from.prefix + x.Name
			l.was = x.was
			switch {
			case x.fails != nil:
				return x.fails
			case x.err == nil:
				l.refused = 0
				return tell(x.Info)
			case errors.Is(x.err, fs.ErrNotExist):
				if l.skipped.Vanished++; !l.events {
					l.tell(path, x.err)
				}
				return nil
			case errors.Is(x.err, fs.ErrPermission), errors.Is(x.err, fs.ErrInvalid):
				l.skipped.Refused++
				l.tell(path, x.err)
				if errors.Is(x.err, fs.ErrPermission) {
					l.refused++
				}
				if l.refused > maxRefused {
					return fmt.Errorf("more than %d objects in a row were refused: %w", maxRefused, x.err)
				}
				return nil
			}
			return x.err
		}, func(*row) {})
	})
}

// rowsRead is how many rows of a catalogue one request reads, about. Tests change it.
var rowsRead int64 = 8192

// spans returns which names of a catalogue with so many files are to be read. Those of a short list are looked
// up instead.
func (l *list) spans(files int64, look func(ctx context.Context, name string) (*known, error)) []span {
	switch {
	case l.n == 0:
		return nil
	case l.n < files/rowsRead:
		l.look = look
		return nil
	}
	return []span{{l.first, l.last + "\x00"}}
}

// readLines reads a list: one key per line, or one line of JSON per object.
func (l *list) readLines(ctx context.Context, address string) error {
	parse := parseKey
	switch strings.ToLower(path.Ext(address)) {
	case ".json", ".jsonl", ".ndjson":
		parse = parseObject
	}
	in, err := openWhole(ctx, address)
	if err != nil {
		return err
	}
	defer in.Close()
	return eachLine(in, address, func(line []byte) error {
		name, size, version, err := parse(line)
		if err != nil || name == "" {
			return err
		}
		return l.add(name, size, version)
	})
}

func eachLine(r io.Reader, address string, do func(line []byte) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4<<10), maxLine)
	lines.Split(splitLines)
	n := 1
	for ; lines.Scan(); n++ {
		if err := do(lines.Bytes()); err != nil {
			return fmt.Errorf("%s: line %d: %w", format.Escape(address), n, err)
		}
	}
	err := lines.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = fmt.Errorf("line %d: more than %d bytes", n, maxLine)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", format.Escape(address), err)
	}
	return nil
}

// splitLines is bufio.ScanLines, except that it keeps a \r at the end of a
// line.
func splitLines(data []byte, end bool) (advance int, line []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if end && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

func parseKey(line []byte) (name string, size int64, version string, err error) {
	return string(bytes.TrimSuffix(line, []byte("\r"))), -1, "", nil
}

func parseObject(line []byte) (name string, size int64, version string, err error) {
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return "", -1, "", nil
	}
	if !utf8.Valid(line) {
		return "", 0, "", errors.New("expected UTF-8")
	}
	var x struct {
		Key  *string
		Size *int64
		ETag string
	}
	if err := json.Unmarshal(line, &x); err != nil {
		return "", 0, "", err
	}
	size = -1
	if x.Size != nil {
		if size = *x.Size; size < 0 || size > maxListed {
			return "", 0, "", fmt.Errorf("expected a size, found %d", size)
		}
	}
	if x.Key == nil || *x.Key == "" {
		return "", 0, "", errors.New(`expected a "key"`)
	}
	version, err = etag(x.ETag)
	return *x.Key, size, version, err
}

// etag returns an ETag in the form of listings, in quotes.
func etag(tag string) (string, error) {
	tag = strings.TrimSuffix(strings.TrimPrefix(tag, `"`), `"`)
	if tag == "" {
		return "", nil
	}
	if len(tag) > 1024 || strings.ContainsFunc(tag, func(c rune) bool { return c <= ' ' || c == '"' || c > '~' }) {
		return "", fmt.Errorf("expected an ETag, found %.100q", tag)
	}
	return `"` + tag + `"`, nil
}

// A whole is an object that is read from start to end.
type whole struct {
	*bufio.Reader
	o    store.Object
	size int64
}

func openWhole(ctx context.Context, address string) (*whole, error) {
	st, name, err := store.OpenAddress(ctx, address)
	if err != nil {
		return nil, err
	}
	return readWhole(ctx, st, name)
}

func readWhole(ctx context.Context, st store.Store, name string) (*whole, error) {
	o, info, err := storekit.OpenInfo(ctx, st, name)
	if err != nil {
		return nil, err
	}
	return &whole{bufio.NewReaderSize(&kit.RangeReader{Ctx: ctx, Object: o, End: info.Size}, listAhead), o, info.Size}, nil
}

func (w *whole) Close() error { return w.o.Close() }
