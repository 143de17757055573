package oak

import (
	"context"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"syscall"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// filesReader shows the files of a tree as files. What is a file is a node with the binary
// jcr:content/jcr:data, whatever its type is, an asset of AEM, by its original, and a file of a
// Lucene index. The other nodes are folders if they have children or are of a type of folders.
// Paths are those of the tree.
type filesReader struct{ *treeReader }

// folderTypes are folders even if they are empty.
var folderTypes = []string{folderType, "sling:Folder", "sling:OrderedFolder"}

const (
	assetType    = "dam:Asset"
	encodingName = "jcr:encoding"
	mostWords    = 256 // bytes of a type or an encoding
)

// original is the path of the uploaded file in an asset.
var original = []string{jcrContent, "renditions", "original"}

// Entries walks the tree in its order.
func (f *filesReader) Entries(ctx context.Context) iter.Seq2[format.Entry, error] {
	return f.listed(ctx, ".", true)
}

func (f *filesReader) Lookup(ctx context.Context, name string) (format.Entry, error) {
	_, e, err := (&filesReader{f.paths}).find(ctx, name)
	if err == fs.ErrNotExist {
		err = &fs.PathError{Op: "lookup", Path: name, Err: err}
	}
	return e, err
}

func (f *filesReader) ReadDir(ctx context.Context, dir string) iter.Seq2[format.Entry, error] {
	return f.listed(ctx, dir, false)
}

func (f *filesReader) EntriesBelow(ctx context.Context, dir string) iter.Seq2[format.Entry, error] {
	return f.listed(ctx, dir, true)
}

func (f *filesReader) Can() format.Abilities {
	can := f.treeReader.Can()
	can.EntriesBelow = f.EntriesBelow
	return can
}

// find finds the entry at a path. If there is none, the error is fs.ErrNotExist itself.
func (f *filesReader) find(ctx context.Context, name string) (at spot, e format.Entry, err error) {
	at = spot{name: ".", id: f.top}
	for rest, more := name, name != "."; ; {
		shown := false
		switch e, shown, err = f.entry(ctx, at); {
		case err != nil:
			return at, e, err
		case !shown:
			return at, format.Entry{}, fs.ErrNotExist
		case !more:
			return at, e, nil
		}
		var elem string
		elem, rest, more = strings.Cut(rest, "/")
		if e.Kind == format.File && elem == jcrContent {
			return at, format.Entry{}, fs.ErrNotExist
		}
		if at, err = f.below(ctx, at, elem); err != nil {
			return at, format.Entry{}, err
		}
	}
}

// below returns a child by its name in a path.
func (t *treeReader) below(ctx context.Context, at spot, elem string) (spot, error) {
	said, ok := readFileName(elem, at.depth == 0)
	if !ok || said.property || said.lost == 0 && fileName(at, at.under(writeTreeName(said.name, at.depth == 0))) != at.under(elem) {
		return spot{}, fs.ErrNotExist
	}
	n, err := t.node(ctx, at)
	if err != nil {
		return spot{}, t.corrupt(err, at.name)
	}
	if said.lost > 0 {
		return t.lostChild(ctx, at, elem)
	}
	id, ok, lost, err := t.childNamed(ctx, n, said.name)
	if err == nil && !ok {
		if id, ok, err = t.misnamed(ctx, n, said.name); err == nil && !ok {
			err = fs.ErrNotExist
			if lost != nil {
				err = t.corrupt(lost, at.name)
			}
		}
		lost = nil
	}
	return spot{at.under(elem), id, at.depth + 1, lost}, err
}

// listed yields what is in a directory and, if on is set, everything below it.
func (f *filesReader) listed(ctx context.Context, dir string, on bool) iter.Seq2[format.Entry, error] {
	return pipe.Told(func(tell func(format.Entry) error) error {
		s, e, err := (&filesReader{f.paths}).find(ctx, dir)
		switch {
		case err != nil:
		case e.Fault != nil && dir == "." && on:
			return tell(e)
		case e.Fault != nil:
			err = &format.CorruptError{Format: "oak", Problem: *e.Fault}
		}
		some := false
		if err == nil {
			err = f.walk(ctx, s, e.Kind, nil, on, func(e format.Entry) error {
				some = true
				return tell(e)
			})
			if err != nil || some || e.Kind == format.Dir {
				return err
			}
			err = syscall.ENOTDIR
		}
		return &fs.PathError{Op: "readdir", Path: dir, Err: err}
	})
}

// walk yields the contents of a node, which is shown as the given kind. It omits the content of a
// file, but Oak allows other nodes below a file.
func (f *filesReader) walk(ctx context.Context, s spot, kind format.Kind, above []segment.RecordID, on bool, tell func(format.Entry) error) error {
	above = append(above, s.id)
	for c, err := range f.children(ctx, s) {
		if err != nil {
			return f.corrupt(err, s.name)
		}
		if kind == format.File && c.name == s.under(jcrContent) {
			continue
		}
		c.name = fileName(s, c.name)
		if c.lost == nil && slices.Contains(above, c.id) {
			c.lost = belowItself(c.id)
		}
		e, shown, err := f.entry(ctx, c)
		if err == nil && shown {
			err = tell(e)
		}
		if err == nil && shown && on && c.lost == nil && (e.Fault == nil || e.Kind == format.File) {
			err = f.walk(ctx, c, e.Kind, above, true, tell)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fileName returns the path of a child of a node, with its unescaped name if readFileName reads
// that back as the same name.
func fileName(s spot, child string) string {
	elem := strings.TrimPrefix(child, s.under(""))
	if !strings.Contains(elem, "%") {
		return child
	}
	if said, ok := readTreeName(elem, s.depth == 0); ok && said.lost == 0 {
		if same, ok := readFileName(said.name, s.depth == 0); ok && same == said {
			elem = said.name
		}
	}
	return s.under(elem)
}

// entry returns the entry of a node, if it is shown. If a part of the node cannot be read, the
// entry has a fault.
func (f *filesReader) entry(ctx context.Context, s spot) (e format.Entry, shown bool, err error) {
	e = format.Entry{Name: s.name, Kind: format.Dir}
	n, err := f.node(ctx, s)
	if err != nil {
		return e, true, f.lost(&e, err)
	}
	guessed := f.guessed(ctx, n)
	primary := ""
	if p := n.Template().Primary; p != nil {
		primary = p.Text
	}
	if lucene := isLucene(n.Template()); s.depth > 0 && (lucene || n.Template().Rule != segment.NoChild) {
		file := lucene
		if lucene && guessed != nil {
			e.Kind, err = format.File, f.lost(&e, guessed)
		} else if lucene {
			err = f.lucene(ctx, &e, n)
		} else {
			file, err = f.file(ctx, &e, n, primary)
		}
		if err != nil || file {
			return e, true, err
		}
	}
	if guessed == nil {
		e.ModTime, err = f.modTime(ctx, n)
	} else {
		e.Attr = map[string]string{unprovenAttr: "true"}
	}
	return e, s.depth == 0 || n.Template().Rule != segment.NoChild || slices.Contains(folderTypes, primary), err
}

// file makes a file of the entry of a node if it is one.
func (f *filesReader) file(ctx context.Context, e *format.Entry, n segment.Node, primary string) (bool, error) {
	way := []string{jcrContent}
	if primary == assetType {
		way = append(slices.Clone(original), jcrContent)
	}
	content, missing, err := f.records.NodeAt(ctx, n.ID(), way...)
	if missing != "" {
		return false, nil
	}
	if err != nil {
		if primary != assetType && primary != fileType {
			return false, f.unlessDamage(err) // it may not be a file
		}
		e.Kind = format.File
		return true, f.lost(e, err)
	}
	p, ok, lost, err := f.property(ctx, content, dataName)
	if err != nil || !ok || p.Multi || p.Type != segment.Binary {
		return false, err
	}
	e.Kind, e.Attr = format.File, map[string]string{}
	if lost == nil {
		var v segment.Value
		if v, lost = p.At(ctx, 0); lost == nil {
			lost = f.content(ctx, e, v)
		}
	}
	if err := f.lost(e, lost); err != nil {
		return true, err
	}
	if err := f.contentType(ctx, e, content); err != nil {
		return true, err
	}
	if e.ModTime, err = f.date(ctx, content, lastModified); err == nil && e.ModTime.IsZero() {
		e.ModTime, err = f.date(ctx, n, created)
	}
	return true, err
}

// contentType sets the content type that the node has, if it is valid.
func (f *filesReader) contentType(ctx context.Context, e *format.Entry, content segment.Node) error {
	var words [2]string
	for i, name := range []string{mimeName, encodingName} {
		text, err := textProperty(ctx, content, name, mostWords)
		if f.unlessDamage(err) != nil {
			return err
		}
		if err == nil && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' && r != ' ' || r >= 0x7f }) {
			words[i] = text
		}
	}
	if words[0] == "" {
		return nil
	}
	if words[1] != "" && strings.HasPrefix(words[0], "text/") && !strings.Contains(words[0], ";") {
		words[0] = fmt.Sprintf("%s; charset=%s", words[0], words[1])
	}
	e.Attr["content-type"] = words[0]
	return nil
}
