package oak

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/vault"
	"github.com/holdall/holdall/store"
)

// A Package is the archive of a FileVault package.
type Package = vault.Files

// Namespaces, and properties with the types of nodes.
const (
	systemName     = "jcr:system"
	namespacesName = "rep:namespaces"
	nodeTypesName  = "jcr:nodeTypes"
	orderableName  = "jcr:hasOrderableChildNodes"
)

// namespaces of nearly all repositories, for trees that do not list theirs.
var namespaces = map[string]string{
	"jcr": "http://www.jcp.org/jcr/1.0", "nt": "http://www.jcp.org/jcr/nt/1.0", "mix": "http://www.jcp.org/jcr/mix/1.0",
	"sv": "http://www.jcp.org/jcr/sv/1.0", "xml": "http://www.w3.org/XML/1998/namespace", "rep": "internal",
	"oak": "http://jackrabbit.apache.org/oak/ns/1.0", "vlt": "http://www.day.com/jcr/vault/1.0",
	"sling": "http://sling.apache.org/jcr/sling/1.0", "cq": "http://www.day.com/jcr/cq/1.0", "dam": "http://www.day.com/dam/1.0",
	"granite": "http://www.adobe.com/jcr/granite/1.0",
}

// ImportPackage makes a store from the nodes of a package. Nodes above its roots have the types
// that the package specifies; otherwise they are folders.
func ImportPackage(ctx context.Context, from Package, to store.Store, name string, o format.CreateOptions) (Imported, error) {
	r, err := packageReader(ctx, from, namespaces, false, nil, o.Scratch)
	if err != nil {
		return Imported{}, err
	}
	return importItems(ctx, r.Items(ctx), false, to, name, o)
}

// packageReader reads a package for a tree whose namespaces, by prefix, are has. If noOthers is
// set, a package that needs another namespace is an error.
func packageReader(ctx context.Context, from Package, has map[string]string, noOthers bool, types map[string]bool, scratch func() (sorter.Scratch, error)) (*vault.Reader, error) {
	prefixes, uris := map[string]string{}, map[string]string{}
	for prefix, uri := range has {
		prefixes[uri], uris[prefix] = prefix, uri
	}
	return vault.NewReader(ctx, from, vault.Options{
		Escape: writeTreeName,
		Prefix: func(prefix, uri string) (string, error) {
			if p, ok := prefixes[uri]; ok {
				return p, nil
			}
			if noOthers {
				return "", fmt.Errorf("namespace %.200q: expected a namespace of the store", uri)
			}
			if other, taken := uris[prefix]; taken {
				return "", fmt.Errorf("prefix %.100q: expected one namespace, found %.200q and %.200q", prefix, other, uri)
			}
			if len(uris) >= mostNamespaces || len(uri) > mostNamespace {
				return "", fmt.Errorf("expected at most %d namespaces of %d bytes, found more", mostNamespaces, mostNamespace)
			}
			prefixes[uri], uris[prefix] = prefix, uri
			return prefix, nil
		},
		Types:    types,
		Check:    func(t segment.PropertyType, s string) bool { _, ok := valueText(t, s); return ok },
		MimeType: mimeType,
		Scratch:  scratch,
	})
}

// packaged reads a package for the head, which has to have its namespaces.
func (o *operation) packaged(ctx context.Context, from Donor) (items, error) {
	s := o.v.s
	has, types, err := s.known(ctx, o.v.super)
	if err != nil {
		return nil, err
	}
	said := has
	if has == nil {
		said = namespaces
	}
	r, err := packageReader(ctx, from.Package, said, has != nil, types, from.Scratch)
	if err != nil {
		return nil, err
	}
	if path := "/" + strings.Join(o.names, "/"); !r.Filter.Covers(path) {
		return nil, refuse("%s is not in the filter of %s, so the package does not contain it", o.said.Path, from.Package.Name())
	}
	return r.Items(ctx), nil
}

// known returns the namespaces of a tree by prefix, and its types of nodes, with whether their
// children are ordered. They are nil if the tree does not list them.
func (s *Store) known(ctx context.Context, super segment.RecordID) (has map[string]string, types map[string]bool, err error) {
	t := &Tree{&treeReader{repository: s.r, records: s.records, shape: s.records, depth: treeDepth}}
	var missing string
	if t.t.top, missing, err = s.records.Down(ctx, super, rootName); missing != "" {
		return nil, nil, nil
	}
	if err == nil {
		has, err = t.t.namespaces(ctx)
	}
	if err == nil {
		types, err = t.t.nodeTypes(ctx)
	}
	return has, types, s.r.corrupt(err, "/"+systemName)
}

const (
	// mostNamespace bounds the names of namespaces, mostNamespaces how many a package has.
	mostNamespace  = 4 << 10
	mostNamespaces = 10000
)

func (t *treeReader) namespaces(ctx context.Context) (map[string]string, error) {
	n, missing, err := t.records.NodeAt(ctx, t.top, systemName, namespacesName)
	if err != nil || missing != "" {
		return nil, err
	}
	has := map[string]string{}
	for p, err := range n.Properties(ctx) {
		if err != nil {
			return nil, err
		}
		if p.Type != segment.String || p.Multi || strings.Contains(p.Name, ":") {
			continue
		}
		v, err := p.At(ctx, 0)
		if err != nil {
			return nil, err
		}
		if has[p.Name], err = v.Text(ctx, mostNamespace); err != nil {
			return nil, err
		}
	}
	return has, nil
}

func (t *treeReader) nodeTypes(ctx context.Context) (map[string]bool, error) {
	n, missing, err := t.records.NodeAt(ctx, t.top, systemName, nodeTypesName)
	if err != nil || missing != "" {
		return nil, err
	}
	types := map[string]bool{}
	for c, err := range n.Children(ctx) {
		if err != nil {
			return nil, err
		}
		d, err := t.records.Node(ctx, c.Value)
		if err != nil {
			return nil, err
		}
		text, err := textProperty(ctx, d, orderableName, 10)
		if err != nil {
			return nil, err
		}
		types[c.Name] = text == "true"
	}
	return types, nil
}
