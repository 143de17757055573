package lindi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"unicode/utf8"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/columns"
	"github.com/holdall/holdall/internal/arrays/pyjson"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/zarr"
)

// input is the kind of input, which follows from the manifest.
type input uint8

const (
	fromTree   input = iota // each entry becomes a member
	fromZarr                // entries are keys: a Zarr folder, or the zarr view of another archive
	fromFolder              // lindi.json is an entry, and the others are its members
	fromJSON                // a single entry, which is a lindi.json with another name
)

// inputOf returns the kind of a manifest.
func inputOf(manifest []format.Entry) input {
	in := fromTree
	for _, e := range manifest {
		switch e.Name {
		case ".zgroup", ".zarray", zarr.MetaName:
			if in == fromTree {
				in = fromZarr
			}
		case rfsName:
			return fromFolder
		}
	}
	if len(manifest) == 1 && strings.HasSuffix(strings.ToLower(manifest[0].Name), ".lindi.json") {
		return fromJSON
	}
	return in
}

// blobSink writes members.
type blobSink interface {
	// put writes a member.
	put(ctx context.Context, name string, e format.Entry, r io.Reader) error
	// finish writes the text of lindi.json, and the rest of the archive.
	finish(ctx context.Context, rfs []byte) (stored int64, volumes []string, err error)
	abort() error
	broken() error
}

// archiveWriter converts entries to members and keys. The sink decides where members go.
type archiveWriter struct {
	sink  blobSink
	in    input
	form  form
	top   [][2]string // members of lindi.json besides "refs"
	names kit.Names
	refs  []byte            // lindi.json so far
	room  int64             // what it probably takes
	text  []byte            // lindi.json as given
	short map[string]string // names of members that were shortened
	runs  runs
	buf   []byte
	block []byte
	err   error // permanent: what was added cannot be written
	sum   format.Summary
	done  bool
}

func create(ctx context.Context, st store.Store, name string, o format.CreateOptions) (format.Writer, error) {
	w := &archiveWriter{form: formOf(name), in: inputOf(o.Manifest), names: kit.Names{Scratch: o.Scratch}, runs: newRuns(o.Param[consolidate], o.Manifest)}
	switch o.Param["as"] {
	case "members":
		w.in = fromTree
	case "zarr":
		w.in = fromZarr
	}
	switch {
	case w.runs.most == 0:
	case w.form == jsonForm:
		return nil, fmt.Errorf("%s: joining chunks needs members, which a plain lindi.json does not have: use .lindi.tar or .lindi.d: %w", name, errors.ErrUnsupported)
	case w.in != fromZarr:
		return nil, fmt.Errorf("%s: joining chunks needs the keys of a Zarr hierarchy, found members: convert the archive from its zarr view: %w", name, errors.ErrUnsupported)
	}
	if err := w.checkNames(o.Manifest); err != nil {
		return nil, err
	}
	for _, kv := range o.Carry {
		if kv[0] != "templates" && kv[0] != "refs" { // templates are replaced in addresses
			w.top = append(w.top, kv)
		}
	}
	var err error
	switch w.form {
	case tarForm:
		var s *tarSink
		if s, err = newTarSink(ctx, st, name, o, w.in, &w.runs); err == nil {
			w.sink, w.room = s, s.rfsRoom
		}
	case jsonForm:
		if w.in == fromTree {
			return nil, fmt.Errorf("%s: a lindi.json has keys, not members: make it from a Zarr folder or from the zarr view of an archive: %w", name, errors.ErrUnsupported)
		}
		s := &looseSink{st: st, rfs: name}
		s.out, err = storekit.Create(ctx, st, name)
		w.sink = s
	default:
		dir := strings.TrimRight(name, "/") + "/"
		w.sink = &looseSink{st: st, dir: dir, rfs: dir + rfsName}
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

// A NamesError means that an archive was not begun because some names cannot be stored.
type NamesError struct{ Names []*kit.RefusedError }

func (e *NamesError) Error() string {
	var all []string
	for _, n := range e.Names[:min(3, len(e.Names))] {
		all = append(all, n.Error())
	}
	if more := len(e.Names) - 3; more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("%d names cannot be stored in a LINDI tar: %s", len(e.Names), strings.Join(all, "; "))
}

// checkNames returns an error for names that cannot be written, before anything is written.
func (w *archiveWriter) checkNames(manifest []format.Entry) error {
	var bad []*kit.RefusedError
	for _, e := range manifest {
		if why := w.nameFault(e); why != "" {
			bad = append(bad, kit.Refuse(e.Name, "%s", why))
		}
	}
	if bad == nil {
		return nil
	}
	return &NamesError{bad}
}

func (w *archiveWriter) nameFault(e format.Entry) string {
	switch {
	case e.Kind != format.File:
		return ""
	case w.in == fromZarr && e.Name == "":
		return "a key needs a name"
	case w.in == fromZarr && !utf8.ValidString(e.Name):
		return "lindi.json cannot hold a key that is not UTF-8"
	case w.in == fromZarr, w.in == fromFolder && w.skipped(e.Name):
		return ""
	case w.in == fromFolder && strings.HasPrefix(e.Name, blobDir) && utf8.ValidString(e.Name):
		return "" // shortened if necessary
	case w.form == dirForm:
		if !fs.ValidPath(e.Name) {
			return "not a path within a folder"
		}
		return ""
	}
	return nameFault(e.Name)
}

// skipped reports whether a file is in the folder only because a tar was unpacked there.
func (w *archiveWriter) skipped(name string) bool {
	return name == entryName || name == indexName || strings.HasPrefix(name, trashDir)
}

func (w *archiveWriter) Add(ctx context.Context, e format.Entry, r io.Reader) error {
	if err := w.broken(); err != nil {
		return err
	}
	if w.done {
		return errors.New("archive is committed")
	}
	if again, err := w.names.Has(e.Name); again || err != nil {
		return cmp.Or(err, error(kit.Refuse(e.Name, "the archive already has a file with this name")))
	}
	if why := w.nameFault(e); why != "" {
		return kit.Refuse(e.Name, "%s", why)
	}
	if w.in == fromFolder && w.skipped(e.Name) {
		return nil
	}
	if s, ok := r.(*kit.Section); ok && s.Address != "" && w.in != fromZarr {
		return fmt.Errorf("%s: only keys can refer to content elsewhere, not members: %w", e.Name, errors.ErrUnsupported)
	}
	var err error
	switch {
	case w.in == fromZarr:
		err = w.addKey(ctx, e, r)
	case w.in == fromJSON || w.in == fromFolder && e.Name == rfsName:
		err = w.addRFS(ctx, e, r)
	case e.Name == rfsName && w.form == tarForm:
		// The tree was not known to contain one when it was begun.
		err = w.addRFS(ctx, e, r)
	default:
		err = w.sink.put(ctx, w.shortened(e.Name), e, r)
	}
	if err != nil {
		return err
	}
	if w.err = w.names.Add(e.Name, e.Kind); w.err != nil {
		return w.err
	}
	w.sum.Entries++
	w.sum.Content += e.Size
	return nil
}

// shortened returns a valid name for a member: the key itself, or one made from its hash.
func (w *archiveWriter) shortened(name string) string {
	if w.form == dirForm && fs.ValidPath(name) || w.form != dirForm && nameFault(name) == "" {
		return name
	}
	short := shortBlob(name)
	columns.Rare(&w.short, name, short)
	return short
}

// maxInline is the largest value that is stored in lindi.json.
const maxInline = 256 << 20

// addKey adds a Zarr key: in lindi.json itself if it is small or metadata, otherwise as a member
// or a part of one, or as a reference if its content is elsewhere.
func (w *archiveWriter) addKey(ctx context.Context, e format.Entry, r io.Reader) error {
	s, _ := r.(*kit.Section)
	refers := s != nil && s.Address != ""
	w.runs.know(e.Name)
	if array, ok := w.runs.of(e.Name, e.Size); ok && !refers {
		return w.join(ctx, array, e, r)
	}
	value := w.buf[:0]
	switch {
	case refers:
		value = appendRef(value, target{s.Address, s.Off, s.N})
	case w.form == jsonForm || isInline(e.Name, e.Size):
		if e.Size > maxInline {
			return kit.Refuse(e.Name, "%d bytes are too many to store in lindi.json itself", e.Size)
		}
		content, err := readAll(ctx, e, r)
		if err != nil {
			return err
		}
		value = appendInline(value, e.Name, content)
	default:
		name := w.shortened(blobDir + e.Name)
		if w.runs.most > 0 && isRun(e.Name) {
			name = shortBlob(name)
		}
		if err := w.sink.put(ctx, name, e, r); err != nil {
			return err
		}
		value = appendRef(value, target{"./" + name, 0, e.Size})
	}
	w.buf = value
	return w.setKey(e.Name, value)
}

// setKey writes a key and its value to lindi.json.
func (w *archiveWriter) setKey(key string, value []byte) error {
	if int64(len(w.refs)+len(value)) > (format.Limits{}).OrDefault().Index {
		return kit.Refuse(key, "with it lindi.json would exceed the limit of readers")
	}
	if w.refs == nil {
		w.begin()
	} else {
		w.refs = append(w.refs, ',')
	}
	w.refs = append(pyjson.AppendString(append(w.refs, "\n  "...), key), ": "...)
	w.refs = append(w.refs, value...)
	return nil
}

// begin begins the text of lindi.json.
func (w *archiveWriter) begin() {
	w.refs = append(make([]byte, 0, w.room), '{')
	for _, kv := range w.top {
		w.refs = append(w.refs, "\n \""+kv[0]+"\": "+kv[1]+","...)
	}
	w.refs = append(w.refs, "\n \"refs\": {"...)
}

// addRFS adds the lindi.json of a folder.
func (w *archiveWriter) addRFS(ctx context.Context, e format.Entry, r io.Reader) error {
	if e.Size > (format.Limits{}).OrDefault().Index {
		return kit.Refuse(e.Name, "%d bytes of %s exceed the limit", e.Size, rfsName)
	}
	x, err := readRFS(ctx, e, r)
	if err == nil {
		w.text = x.text
	}
	return err
}

func readAll(ctx context.Context, e format.Entry, r io.Reader) ([]byte, error) {
	b := bytes.NewBuffer(make([]byte, 0, min(e.Size, 1<<20)))
	put := func(p []byte) error { b.Write(p); return nil }
	err := kit.CopyContent(ctx, e, r, make([]byte, min(e.Size+1, 64<<10)), nil, put)
	return b.Bytes(), err
}

// readRFS reads an entry that is a lindi.json.
func readRFS(ctx context.Context, e format.Entry, r io.Reader) (*rfs, error) {
	text, err := readAll(ctx, e, r)
	if err != nil {
		return nil, err
	}
	x, err := parseRFS(bytes.TrimRight(text, " \t\r\n"), (format.Limits{}).OrDefault().Depth)
	if err != nil {
		return nil, kit.Refuse(e.Name, "is not a lindi.json: %s", err.Error())
	}
	return x, nil
}

// rfsText returns the text of lindi.json.
func (w *archiveWriter) rfsText() ([]byte, error) {
	if w.text != nil {
		if len(w.short) == 0 {
			return w.text, nil
		}
		return w.renamed()
	}
	if w.refs == nil {
		w.begin()
		w.refs = append(w.refs, "\n  \".zgroup\": {\"zarr_format\": 2}"...)
	}
	return append(w.refs, "\n }\n}"...), nil
}

// renamed returns the given lindi.json with changed references to members whose names were
// shortened.
func (w *archiveWriter) renamed() ([]byte, error) {
	x, err := parseRFS(w.text, (format.Limits{}).OrDefault().Depth)
	if err != nil {
		return nil, err
	}
	var out []byte
	at := 0
	for _, r := range x.refs {
		name, t, ok := x.inside(x.value(r))
		if short := w.short[name]; ok && short != "" {
			out = append(out, w.text[at:r.at]...)
			t.address = "./" + short
			out = appendRef(out, t)
			at = int(r.at + r.len)
		}
	}
	return append(out, w.text[at:]...), nil
}

func (w *archiveWriter) Commit(ctx context.Context) (format.Summary, error) {
	if w.done {
		return format.Summary{}, errors.New("archive is committed")
	}
	if err := w.broken(); err != nil {
		return format.Summary{}, err
	}
	if err := w.endRun(ctx); err != nil {
		return format.Summary{}, err
	}
	text, err := w.rfsText()
	if depth := (format.Limits{}).OrDefault().Depth; err == nil && w.form == tarForm {
		text, err = laidOut(text, depth)
	} else if err == nil {
		text, err = sealed(text, depth)
	}
	if err != nil {
		return format.Summary{}, err
	}
	if w.sum.Stored, w.sum.Volumes, err = w.sink.finish(ctx, text); err != nil {
		return format.Summary{}, err
	}
	w.done = true
	w.names.Close()
	return w.sum, nil
}

func (w *archiveWriter) Abort() error {
	w.names.Close()
	return w.sink.abort()
}

func (w *archiveWriter) broken() error { return cmp.Or(w.err, w.sink.broken()) }
