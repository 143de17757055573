package hdf5

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	h5 "github.com/holdall/holdall/hdf5"
	"github.com/holdall/holdall/internal/arrays/zarr3"
	"github.com/holdall/holdall/zarr"
)

// mostAttr is the size of the elements of an attribute.
const mostAttr = 15 << 20

// marks are attributes that say what an array is. They are no attributes of the dataset.
var marks = []string{"_SCALAR", "_EMPTY_DATASPACE", "_COMPOUND_DTYPE", "_ARRAY_DIMENSIONS", "_EXTERNAL_ARRAY_LINK"}

// addAttributes adds the attributes of a group or an array. The error names those that HDF5 cannot store; the others
// are added.
func (w *writer) addAttributes(ctx context.Context, n *outNode, text []byte) error {
	all, err := zarr.Attributes(ctx, zarr3.Values{".zattrs": text}, "")
	if err != nil {
		return err
	}
	var wrong []string
	fail := func(name string, err error) {
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%.100q: %v", name, err))
		}
	}
	if link, ok := all["_SOFT_LINK"].(map[string]any); ok && n.in == nil {
		delete(all, "_SOFT_LINK")
		if n.soft, ok = link["path"].(string); !ok || n.soft == "" || n.path == "" {
			n.soft = ""
			fail("_SOFT_LINK", unsupported("expected the path of something below the root"))
		}
		if n.soft != "" && len(all) > 0 {
			fail(slices.Sorted(maps.Keys(all))[0], unsupported("a soft link has no attributes"))
			all = nil
		}
	}
	if x := n.in; x != nil {
		for _, name := range marks {
			if v, ok := all[name]; ok {
				x.attrs[name] = v
				delete(all, name)
			}
		}
		if x.attrs["_EXTERNAL_ARRAY_LINK"] != nil && w.listed[n.path].Chunks == 0 && x.Elements() > 0 {
			return w.give(n, unsupported("the elements of the array are in another file, and are not read from there: --external"))
		}
		if x.attrs["_COMPOUND_DTYPE"] != nil && x.DType.Kind == 'O' {
			marked := zarr.Array{Attrs: x.attrs}
			if n.obj.Type = compoundType(marked.Compound()); n.obj.Type == nil {
				return w.give(n, unsupported("the array is left out: HDF5 has no type for the fields in _COMPOUND_DTYPE"))
			}
			if err := n.fits(); err != nil {
				return w.give(n, err)
			}
		}
		if names := x.attrs["_ARRAY_DIMENSIONS"]; names != nil {
			fail("_ARRAY_DIMENSIONS", w.addScales(n, names))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fail(name, w.addAttribute(n, name, all[name]))
	}
	if wrong != nil {
		return unsupported("left out: %s", strings.Join(wrong, "; "))
	}
	return nil
}

// addAttribute adds an attribute with a JSON value.
func (w *writer) addAttribute(n *outNode, name string, v any) error {
	if !isName(name) || len(name) > 1<<15 {
		return unsupported("HDF5 cannot have this name")
	}
	if v == nil {
		n.attrs = append(n.attrs, outAttr{Attribute: h5.Attribute{Name: name, Type: numberType('f', 8, false), Space: h5.Space{Null: true}}})
		return nil
	}
	t, dims, values, err := infer(v)
	if err != nil {
		return err
	}
	if t.Class != h5.Enum && isNumber(t) && name == "_FillValue" && n.in != nil && n.obj.Type != nil && isNumber(n.obj.Type) {
		t = n.obj.Type // netCDF expects the type of the elements
	}
	return w.addValues(n, name, t, dims, values)
}

func isNumber(t *h5.Datatype) bool { return t.Class == h5.Integer || t.Class == h5.Float }

// addValues adds an attribute.
func (w *writer) addValues(n *outNode, name string, t *h5.Datatype, dims []int64, values []any) error {
	size := bytesOf([]int64{int64(len(values))}, t.Size)
	if size > mostAttr {
		return unsupported("%d bytes are too many for an attribute", size)
	}
	a := outAttr{Attribute: h5.Attribute{Name: name, Type: t, Space: h5.Space{Dims: dims}}, block: block{data: make([]byte, size)}}
	for i, v := range values {
		if err := w.put(&a.block, i*int(t.Size), t, v); err != nil {
			return err
		}
	}
	n.attrs = append(n.attrs, a)
	return nil
}

// scaled is a dimension of a dataset.
type scaled struct {
	of   *outNode
	axis int
}

// addScales has the dimensions of an array described by scales, as in netCDF: one-dimensional arrays of their name and
// length in the group of the array or above, or datasets without elements that are made in its group.
func (w *writer) addScales(n *outNode, v any) error {
	list, _ := v.([]any)
	if len(list) != len(n.in.Shape) {
		return unsupported("expected %d names of dimensions", len(n.in.Shape))
	}
	names := make([]string, len(list))
	for i, v := range list {
		if names[i], _ = v.(string); !isName(names[i]) || strings.Contains(names[i], "/") || names[i] == "." || names[i] == ".." {
			return unsupported("HDF5 cannot have this name of a dimension: %s", jsonText(v))
		}
	}
	refs := make([]any, len(names))
	some := false
	for i, name := range names {
		size := n.in.Shape[i]
		if strings.HasPrefix(name, "phony_dim_") {
			continue // netCDF calls dimensions so that have no scale
		}
		to, err := w.scale(n, name, size)
		if err != nil {
			return err
		}
		to.isScale = true
		if to != n {
			to.scaled = append(to.scaled, scaled{n, i})
			refs[i], some = []any{to}, true
		}
	}
	if !some {
		return nil
	}
	return w.addValues(n, "DIMENSION_LIST", listType(refType), []int64{int64(len(refs))}, refs)
}

func jsonText(v any) string { b, _ := json.Marshal(v); return fmt.Sprintf("%.60s", b) }

// scale finds or makes the scale of a dimension.
func (w *writer) scale(n *outNode, name string, size int64) (*outNode, error) {
	fits := func(to *outNode) bool {
		return to != nil && to.in != nil && !to.refused && len(to.in.Shape) == 1 && to.in.Shape[0] == size
	}
	own := path.Dir("/" + n.path)
	for dir := own; ; dir = path.Dir(dir) {
		at := strings.Trim(path.Join(dir, name), "/")
		if to := w.nodes[at]; fits(to) || w.isDimension(to, size) {
			return to, nil
		}
		if dir == "/" {
			break
		}
	}
	at := strings.Trim(path.Join(own, name), "/")
	if w.nodes[at] != nil {
		return nil, unsupported("the dimension %.60q of length %d has the name of something else", name, size)
	}
	to, err := w.node(at)
	if err != nil {
		return nil, err
	}
	to.dimension = size + 1
	to.obj = h5.Object{Kind: h5.Dataset, Type: numberType('f', 4, true), Space: h5.Space{Dims: []int64{size}}, Layout: h5.Layout{Class: h5.Contiguous, Addr: -1, Size: 4 * size}}
	return to, nil
}

// isDimension reports whether a node was made for a dimension of a length.
func (w *writer) isDimension(n *outNode, size int64) bool { return n != nil && n.dimension == size+1 }

// describe adds the attributes of a scale.
func (n *outNode) describe() {
	if !n.isScale {
		return
	}
	name := path.Base(n.path)
	if n.dimension > 0 {
		name = fmt.Sprintf("%s.%10d", onlyDimension, n.dimension-1)
	}
	add := func(name string, t *h5.Datatype, dims []int64, b block) {
		if !slices.ContainsFunc(n.attrs, func(a outAttr) bool { return a.Name == name }) {
			n.attrs = append(n.attrs, outAttr{Attribute: h5.Attribute{Name: name, Type: t, Space: h5.Space{Dims: dims}}, block: b})
		}
	}
	text := func(s string) (*h5.Datatype, []int64, block) {
		return &h5.Datatype{Class: h5.String, Size: int64(len(s) + 1)}, nil, block{data: append([]byte(s), 0)}
	}
	t, dims, b := text("DIMENSION_SCALE")
	add("CLASS", t, dims, b)
	t, dims, b = text(name)
	add("NAME", t, dims, b)
	n.scaled = slices.DeleteFunc(n.scaled, func(s scaled) bool { return s.of.refused })
	if len(n.scaled) == 0 {
		return
	}
	const size = 16 // a reference, a number, and what a compiler adds
	t = &h5.Datatype{Class: h5.Compound, Size: size, Fields: []h5.Field{{Name: "dataset", Type: refType}, {Name: "dimension", Offset: 8, Type: numberType('i', 4, false)}}}
	b = block{data: make([]byte, size*len(n.scaled))}
	for i, s := range n.scaled {
		b.fixes = append(b.fixes, fix{size * i, &s.of.place})
		binary.LittleEndian.PutUint32(b.data[size*i+8:], uint32(s.axis))
	}
	add("REFERENCE_LIST", t, []int64{int64(len(n.scaled))}, b)
}
