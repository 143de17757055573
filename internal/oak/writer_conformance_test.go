package oak

import (
	"context"
	"iter"
	"path"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/formattest"
	"github.com/holdall/holdall/store"
)

// What is written as a file is read as a folder of properties, so that the suite
// cannot compare the two. A reader that makes files of these lets it.
func TestStoresOfFilesConform(t *testing.T) {
	f := *Format
	f.Views, f.Overview = nil, ""
	f.Keeps &^= format.KeepsProperties
	f.Repair = nil // of segments, which these entries are not
	f.Open = func(ctx context.Context, st store.Store, name string, o format.OpenOptions) (format.Reader, error) {
		r, err := open(ctx, st, name, o)
		if err != nil {
			return nil, err
		}
		files, err := asFiles(ctx, r)
		if err != nil {
			r.Close()
			return nil, err
		}
		return files, nil
	}
	formattest.Run(t, &f)
}

// A filesReader shows an nt:file as a file, and no property.
type filesReader struct {
	format.Reader
	*format.Index
}

func (r filesReader) Can() format.Abilities { return r.Index.Can() }

func (r filesReader) Entries(ctx context.Context) iter.Seq2[format.Entry, error] {
	return r.Index.Entries(ctx)
}

func (r filesReader) Lookup(ctx context.Context, name string) (format.Entry, error) {
	return r.Index.Lookup(ctx, name)
}

func (r filesReader) ReadDir(ctx context.Context, dir string) iter.Seq2[format.Entry, error] {
	return r.Index.ReadDir(ctx, dir)
}

func asFiles(ctx context.Context, r format.Reader) (format.Reader, error) {
	var nodes []format.Entry
	data := map[string]format.Entry{}
	for e, err := range r.Entries(ctx) {
		if err != nil {
			return nil, err
		}
		if e.Fault != nil {
			return nil, &format.CorruptError{Format: "oak", Problem: *e.Fault}
		}
		if dir, ok := strings.CutSuffix(e.Name, "/"+jcrContent+"/"+dataName); ok {
			data[dir] = e
		}
		if e.Kind == format.Dir && path.Base(e.Name) != jcrContent {
			nodes = append(nodes, e)
		}
	}
	for i, e := range nodes {
		nodes[i].Name = storedNames(e.Name)
		if content, ok := data[e.Name]; ok {
			nodes[i].Kind, nodes[i].Size, nodes[i].Ref = format.File, content.Size, content.Ref
		}
	}
	return filesReader{r, format.NewIndex(format.Entries(nodes))}, nil
}

// storedNames are the names of a path's nodes, which a file with a % is called by.
func storedNames(name string) string {
	elems := strings.Split(name, "/")
	for i, elem := range elems {
		if said, ok := readTreeName(elem, i == 0); ok {
			elems[i] = said.name
		}
	}
	return strings.Join(elems, "/")
}
