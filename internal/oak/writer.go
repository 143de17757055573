package oak

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/oak/internal/newstore"
	"github.com/holdall/holdall/internal/oak/internal/newtree"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Parameters in CreateOptions that only this format has.
const (
	tarSizeParam = "tar-size" // bytes after which a tar ends, as Oak's maxFileSize
	timeParam    = "time"     // of the revision, as 2006-01-02T15:04:05Z; the newest entry's by default
)

const (
	leastTar = 1 << 20
	mostTar  = 1 << 30 // Oak's limit is 2 GiB; a tar may exceed this by a segment and its tail
)

// treeWriter writes a store with one revision. Names are those of treeReader. Nodes and
// properties from a treeReader keep their types; a file becomes an nt:file.
//
// The root has no properties, as in a store that Oak has just made. It is not a rep:root, which
// must have a jcr:system.
type treeWriter struct {
	below  *noting
	stage  *storekit.Stage
	files  *newstore.Writer
	b      *segment.Builder
	ids    *newtree.IDs
	tree   *newtree.Tree
	time   time.Time // of the revision
	timed  bool      // the time was given
	arrays string    // name of the last property whose values are entries
	sum    format.Summary
	ended  bool
}

func create(_ context.Context, st store.Store, name string, o format.CreateOptions) (format.Writer, error) {
	w := &treeWriter{below: &noting{Store: st}, ids: newtree.NewIDs(), time: time.Unix(0, 0)}
	w.stage = storekit.NewStage(w.below)
	files := newstore.Options{Time: func() time.Time { return w.time }}
	files.MaxTar, _ = strconv.ParseInt(o.Param[tarSizeParam], 10, 64)
	if said := o.Param[timeParam]; said != "" {
		var err error
		if w.time, err = time.Parse(time.RFC3339, said); err != nil {
			return nil, fmt.Errorf("oak: %s: expected a time as 2006-01-02T15:04:05Z, found %.80q: %w", timeParam, said, fs.ErrInvalid)
		}
		w.timed = true
	}
	w.files = newstore.New(w.stage, name, files)
	w.b = segment.NewBuilder(segment.BuilderOptions{
		NewID: w.ids.Data, BulkID: w.ids.Bulk, Millis: func() int64 { return w.time.UnixMilli() },
	}, w.files.Write)
	w.tree = newtree.New(w.b, newtree.Options{
		Scratch: o.Scratch, IDs: w.ids, Depth: treeDepth, Missing: missingFolder,
	})
	return w, nil
}

// missingFolder is a node that is only known because another one is below it.
var missingFolder = []segment.NewProperty{nameProperty(primaryTypeName, folderType)}

var errWriterEnded = errors.New("oak: the store is already complete or aborted")

func (w *treeWriter) Add(ctx context.Context, e format.Entry, r io.Reader) error {
	if w.ended {
		return errWriterEnded
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := w.add(ctx, e, &sized{ctx: ctx, e: e, r: r})
	if errors.Is(err, newtree.ErrPath) {
		err = kit.Refuse(e.Name, "%v", err)
	}
	if err != nil {
		return err
	}
	if !w.timed && e.ModTime.After(w.time) {
		w.time = e.ModTime
	}
	w.sum.Entries++
	if e.Kind.HasContent() {
		w.sum.Content += e.Size
	}
	return nil
}

func (w *treeWriter) add(ctx context.Context, e format.Entry, r *sized) error {
	// If there are several binaries, each follows the folder that represents their property.
	digits, below := strings.CutPrefix(e.Name, w.arrays+"/")
	if i, ok := readIndex(digits); ok && below && w.arrays != "" && e.Kind == format.Property {
		return w.addElement(ctx, e, i, r)
	}
	path, err := w.path(e)
	if err != nil {
		return err
	}
	switch {
	case e.Kind == format.File:
		return w.addFile(ctx, e, path, r)
	case e.Kind == format.Property || e.Kind == format.Dir && e.Attr[typeAttr] != "":
		return w.addProperty(ctx, e, path, r)
	case e.Kind == format.Dir:
		return w.tree.Fallback(path, dated([]segment.NewProperty{nameProperty(primaryTypeName, folderType)}, created, e.ModTime))
	}
	return kit.Refuse(e.Name, "a %s cannot be stored in a tree", e.Kind)
}

// path splits a name into those of nodes, and of a property at the end.
func (w *treeWriter) path(e format.Entry) ([]string, error) {
	if class := naming.Fault(e.Name); class != "" && class != "name-too-long" {
		return nil, kit.Refuse(e.Name, "%s", naming.Advice(class))
	}
	elems := strings.Split(e.Name, "/")
	for i, elem := range elems {
		said, ok := readFileName(elem, i == 0)
		isProperty := i == len(elems)-1 && (e.Kind == format.Property || e.Attr[typeAttr] != "")
		if !ok || said.lost > 0 || said.property && !isProperty {
			return nil, kit.Refuse(e.Name, "expected names of tree nodes, found %.100q", elem)
		}
		elems[i] = said.name
	}
	return elems, w.tree.CheckPath(elems)
}

const (
	primaryTypeName = "jcr:primaryType"
	folderType      = "nt:folder"
	resourceType    = "nt:resource"
	dataName        = "jcr:data"
	mimeName        = "jcr:mimeType"
)

func nameProperty(name, value string) segment.NewProperty {
	return textOf(name, segment.Name, value)
}

func textOf(name string, typ segment.PropertyType, value string) segment.NewProperty {
	return segment.NewProperty{Name: name, Type: typ, Values: []segment.NewValue{{Text: value}}}
}

// dated appends a date as Jackrabbit writes it, if it can.
func dated(to []segment.NewProperty, name string, at time.Time) []segment.NewProperty {
	at = at.UTC()
	if at.IsZero() || at.Year() < 1 || at.Year() > 9999 {
		return to
	}
	return append(to, textOf(name, segment.Date, at.Format("2006-01-02T15:04:05.000Z")))
}

// addFile adds a file as Jackrabbit's tools do.
func (w *treeWriter) addFile(ctx context.Context, e format.Entry, path []string, r io.Reader) error {
	content := append(path[:len(path):len(path)], jcrContent)
	if err := w.tree.CheckPath(content); err != nil {
		return err
	}
	v, err := w.tree.Read(ctx, r)
	if err != nil {
		return w.contentError(e, err)
	}
	if err := w.tree.Node(ctx, path, dated([]segment.NewProperty{nameProperty(primaryTypeName, fileType)}, created, e.ModTime)); err != nil {
		return err
	}
	resource := []segment.NewProperty{nameProperty(primaryTypeName, resourceType), textOf(mimeName, segment.String, mimeType(e.Name))}
	if err := w.tree.Node(ctx, content, dated(resource, lastModified, e.ModTime)); err != nil {
		return err
	}
	return w.tree.Set(content, newtree.Property{Name: dataName, Type: segment.Binary}, v)
}

// contentError adds the entry to an error about content that is too large for Oak.
func (w *treeWriter) contentError(e format.Entry, err error) error {
	if s, ok := errors.AsType[*segment.Error](err); ok && s.Class == segment.Limit {
		return kit.Refuse(e.Name, "%s", s.What)
	}
	return err
}

// addProperty adds a property of a node, as treeReader shows it.
func (w *treeWriter) addProperty(ctx context.Context, e format.Entry, path []string, r *sized) error {
	w.tree.Bare()
	p := newtree.Property{Name: path[len(path)-1], Type: segment.TypeNamed(e.Attr[typeAttr])}
	path = path[:len(path)-1]
	multiple := e.Attr[multipleAttr] == "true"
	switch {
	case p.Type == 0:
		return kit.Refuse(e.Name, "attribute type: expected a type of Oak, found %.80q", e.Attr[typeAttr])
	case (e.Kind == format.Dir) != (multiple && p.Type == segment.Binary):
		return kit.Refuse(e.Name, "a %s of type %s, multiple %t: expected a folder where there are several binaries", e.Kind, p.Type, multiple)
	case e.Kind == format.Dir:
		w.arrays = e.Name
		return w.tree.SetElements(path, p, newtree.All)
	case multiple:
		return w.addArray(ctx, e, path, p, r)
	}
	v, err := w.value(ctx, e, r)
	if err != nil {
		return err
	}
	return w.tree.Set(path, p, v)
}

// value adds the value of a single property, or one of several binaries. Contents in a data store
// stay there.
func (w *treeWriter) value(ctx context.Context, e format.Entry, r *sized) (newtree.Value, error) {
	if id, ok := e.Attr[blobAttr]; ok && len(id) <= mostBlobID {
		return newtree.External(id), nil
	}
	v, err := w.tree.Read(ctx, r)
	if err != nil {
		return v, w.contentError(e, err)
	}
	return v, nil
}

func (w *treeWriter) addElement(ctx context.Context, e format.Entry, i int, r *sized) error {
	if e.Attr[typeAttr] != segment.Binary.String() {
		return kit.Refuse(e.Name, "expected a binary, found %.80q", e.Attr[typeAttr])
	}
	path, err := w.path(format.Entry{Name: w.arrays, Kind: format.Property})
	if err != nil {
		return err
	}
	v, err := w.value(ctx, e, r)
	if err != nil {
		return err
	}
	last := len(path) - 1
	return w.tree.SetElement(path[:last], path[last], i, v)
}

// addArray adds a property of several values, whose content is a JSON array.
func (w *treeWriter) addArray(ctx context.Context, e format.Entry, path []string, p newtree.Property, r *sized) error {
	values := &arrayReader{in: bufio.NewReader(r)}
	n := 0
	for ; values.next(); n++ {
		v, err := w.tree.Read(ctx, values)
		if values.err != nil {
			break
		}
		if err != nil {
			return w.contentError(e, err)
		}
		if err := w.tree.SetElement(path, p.Name, n, v); err != nil {
			return err
		}
	}
	switch {
	case r.err != nil:
		return r.err
	case values.err != nil:
		return kit.Refuse(e.Name, "value %d: %v", n, values.err)
	}
	return w.tree.SetElements(path, p, n)
}

// sized is content that must be as long as its entry's size.
type sized struct {
	ctx context.Context
	e   format.Entry
	r   io.Reader
	n   int64
	err error // other than its end
}

func (s *sized) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.r.Read(p)
	s.n += int64(n)
	switch {
	case s.n > s.e.Size, err == io.EOF && s.n < s.e.Size:
		err = &kit.SizeError{Name: s.e.Name, Said: s.e.Size, Found: s.n}
	case err == nil && s.ctx.Err() != nil:
		err = context.Cause(s.ctx)
	case err == io.ErrUnexpectedEOF:
		// Functions that read content in parts would interpret this error as its end.
		err = fmt.Errorf("%s: content: %w", format.Escape(s.e.Name), err)
	}
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

func (w *treeWriter) Commit(ctx context.Context) (format.Summary, error) {
	if w.ended {
		return w.sum, errWriterEnded
	}
	w.ended = true
	sum, err := w.commit(ctx)
	if err != nil {
		return w.sum, errors.Join(err, w.release(), kit.Remove(context.WithoutCancel(ctx), w.below.Store, w.below.made))
	}
	w.sum.Stored, w.sum.Volumes = sum.Bytes, sum.Files
	return w.sum, nil
}

func (w *treeWriter) commit(ctx context.Context) (sum newstore.Summary, err error) {
	if ctx.Err() != nil {
		return sum, context.Cause(ctx)
	}
	w.ids.Input([]byte(w.time.UTC().Format(time.RFC3339Nano)))
	root, _, err := w.tree.Close(ctx)
	if err == nil {
		root, err = newtree.SuperRoot(ctx, w.b, root)
	}
	if err == nil {
		err = w.b.Flush(ctx)
	}
	if err != nil {
		return sum, err
	}
	if sum, err = w.files.Commit(ctx, repo.Entry{Revision: root, Millis: max(w.time.UnixMilli(), 0)}); err != nil {
		return sum, err
	}
	if err := w.stage.Publish(ctx); err != nil {
		return sum, err
	}
	return sum, w.below.close()
}

func (w *treeWriter) release() error {
	return errors.Join(w.tree.Abort(), w.files.Abort(), w.stage.Discard())
}

func (w *treeWriter) Abort() error {
	if w.ended {
		return nil
	}
	w.ended = true
	return w.release()
}

// noting is a store that records what was written to it, so that nothing remains of a store that
// cannot be published completely.
type noting struct {
	store.Store
	open []store.Writer
	made []string
}

// Can reports that objects can be created, and nothing else.
func (n *noting) Can() store.Abilities { return store.Abilities{Create: n.create} }

func (n *noting) create(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
	out, err := storekit.CreateAs(ctx, n.Store, name, wish)
	if err == nil {
		n.open = append(n.open, out)
	}
	return notingWriter{out, n, name}, err
}

// close releases what writers may keep after their Commit.
func (n *noting) close() error {
	var errs []error
	for _, out := range n.open {
		errs = append(errs, out.Abort())
	}
	n.open = nil
	return errors.Join(errs...)
}

type notingWriter struct {
	store.Writer
	in   *noting
	name string
}

func (w notingWriter) Can() store.WriterAbilities {
	can := w.Writer.Can()
	return store.WriterAbilities{Keep: can.Keep, Finish: can.Finish}
}

func (w notingWriter) Commit(ctx context.Context) (store.Info, error) {
	w.in.made = append(w.in.made, w.name) // a Commit that fails may have been carried out
	return w.Writer.Commit(ctx)
}

// mimeTypes by extension. A machine's own table would make other stores elsewhere.
var mimeTypes = map[string]string{
	".avif": "image/avif", ".bmp": "image/bmp", ".css": "text/css", ".csv": "text/csv", ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".gif": "image/gif", ".gz": "application/gzip", ".htm": "text/html", ".html": "text/html", ".ico": "image/vnd.microsoft.icon", ".jar": "application/java-archive",
	".jpeg": "image/jpeg", ".jpg": "image/jpeg", ".js": "application/javascript", ".json": "application/json", ".md": "text/markdown", ".mp3": "audio/mpeg", ".mp4": "video/mp4",
	".pdf": "application/pdf", ".png": "image/png", ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation", ".svg": "image/svg+xml",
	".tar": "application/x-tar", ".tif": "image/tiff", ".tiff": "image/tiff", ".txt": "text/plain", ".wav": "audio/x-wav", ".webm": "video/webm", ".webp": "image/webp",
	".woff2": "font/woff2", ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", ".xml": "application/xml", ".zip": "application/zip",
}

func mimeType(name string) string {
	return cmp.Or(mimeTypes[strings.ToLower(path.Ext(name))], "application/octet-stream")
}
