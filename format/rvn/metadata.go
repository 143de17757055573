package rvn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/format/rvn/internal/ucl"
)

// Entries of the view meta.
const (
	metaText = "metadata.ucl"
	metaTree = "metadata.json"
)

// maxMetaFlat is the largest metadata that is decoded. Tools for packages have space for it,
// although they refuse more than maxMetadata.
const maxMetaFlat = 1<<24 - 1

// metadata is block 2.
type metadata struct {
	text []byte
	tree ucl.Value
	err  error // why text is not a tree
}

// metadata decodes block 2. An error means that the block cannot be decoded. Text that is not UCL
// is still returned.
func (a *archive) metadata() (metadata, error) {
	text, err := unpack(a.meta, int64(a.h.MetaFlat), maxMetaFlat)
	if err != nil {
		return metadata{}, err
	}
	m := metadata{text: text}
	m.tree, m.err = ucl.Parse(text)
	return m, nil
}

func (a *archive) metaProblem(err error) format.Problem {
	code := format.BadData
	if errors.Is(err, errTooLong) {
		code, err = format.Limit, fmt.Errorf("it is longer than %d bytes", maxMetaFlat)
	}
	return a.problem(code, "metadata", format.Error, headerLen, "the metadata cannot be decoded: %v", err)
}

// facts returns the properties of a package that people want to see.
func (m metadata) facts() [][2]string {
	if len(m.text) == 0 {
		return nil
	}
	if m.err != nil {
		return [][2]string{{"metadata", fmt.Sprintf("%d bytes, no UCL: %v", len(m.text), m.err)}}
	}
	var out [][2]string
	one := func(key, value string) {
		if value != "" && value != "unset" {
			out = append(out, [2]string{key, value})
		}
	}
	str := func(key string) string {
		v := m.tree.Get(key)
		if n, ok := v.Int(); ok {
			return strconv.FormatInt(n, 10)
		}
		s, _ := v.Str()
		return s
	}
	one("name", str("namebase"))
	for _, key := range []string{"version", "subpackage", "variant", "abi", "prefix", "comment", "flatsize", "maintainer", "www"} {
		one(key, str(key))
	}
	for _, list := range [][2]string{{"provides", "shlibs_provided"}, {"requires", "shlibs_required"}, {"adjacent", "shlibs_adjacent"}, {"licenses", "licenses"}} {
		words, _ := m.tree.Get(list[1]).Strings()
		one(list[0], strings.Join(words, ", "))
	}
	var needs []string
	for _, dep := range m.tree.Get("deps").Members() {
		version, _ := dep.Value.Str()
		needs = append(needs, strings.TrimSpace(dep.Key+" "+version))
	}
	one("depends on", strings.Join(needs, ", "))
	var phases []string
	for _, phase := range m.tree.Get("scripts").Members() {
		phases = append(phases, phase.Key)
	}
	if len(phases) > 0 {
		out = append(out, [2]string{"scripts", strings.Join(phases, ", ") + " (holdall runs none)"})
	}
	return out
}

// metaReader is the view meta: the metadata as stored, and as JSON.
type metaReader struct {
	*archive
	*kit.Index
	text format.Entry
	json []byte
}

func newMetaReader(a *archive) (format.Reader, error) {
	m, err := a.metadata()
	if err != nil {
		p := a.metaProblem(err)
		a.obj.Close()
		return nil, &format.CorruptError{Format: "rvn", Problem: p}
	}
	r := &metaReader{archive: a, text: format.Entry{Name: metaText, Size: int64(len(m.text))}}
	list := kit.Entries{r.text}
	if m.err == nil {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(m.tree); err == nil {
			r.json = b.Bytes()
			list = append(list, format.Entry{Name: metaTree, Size: int64(len(r.json))})
		}
	}
	r.Index = kit.NewIndex(list)
	return r, nil
}

func (r *metaReader) Extents(_ context.Context, e format.Entry, off, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		if n <= 0 || off >= e.Size {
			return
		}
		meta := r.block[metaBlock]
		x := format.Extent{Size: e.Size, Object: r.name, Off: meta.off, Len: meta.len, Codec: codec.Zstd, Unit: e.Size}
		if e.Name == metaTree {
			x.Codec, x.Unit, x.Data = codec.Inline, 0, r.json
		}
		yield(x, nil)
	}
}

// Regions yields everything except the metadata, which is content in this view.
func (r *metaReader) Regions(context.Context) iter.Seq2[format.Region, error] {
	c := r.block[contentBlock]
	end := c.off
	if r.index.total > 0 {
		end = min(c.end(), r.size)
	}
	all := slices.DeleteFunc(r.regions(), func(x format.Region) bool {
		return x.Label == "metadata" && r.text.Size > 0 || c.off <= x.Off && x.Off < end
	})
	if end > c.off {
		all = append(all, format.Region{Object: r.name, Off: c.off, Len: end - c.off, Use: format.Unknown, Label: "contents"})
	}
	return pipe.All(all)
}
