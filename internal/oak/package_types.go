package oak

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/vault"
)

// nodeTypesFile returns definitions of the types of nodes that were written and of the types that
// these need, except for those that every repository has. It is empty if the tree has no
// definitions.
func (p *packer) nodeTypesFile(ctx context.Context) ([]byte, error) {
	c := typeWriter{packer: p, prefixes: map[string]bool{}, done: map[string]bool{}}
	all, missing, err := p.t.records.NodeAt(ctx, p.t.top, systemName, nodeTypesName)
	if err != nil || missing != "" {
		return nil, p.lost("/"+systemName+"/"+nodeTypesName, err)
	}
	for _, name := range slices.Sorted(maps.Keys(p.types)) {
		if err == nil {
			err = c.add(ctx, all, name)
		}
	}
	if err != nil || len(c.b) == 0 {
		return nil, p.lost("/"+systemName+"/"+nodeTypesName, err)
	}
	var b []byte
	for _, prefix := range slices.Sorted(maps.Keys(c.prefixes)) {
		if uri, ok := p.uri(prefix); ok {
			b = append(b, "<"+cndQuoted(prefix)+" = "+cndQuoted(uri)+">\n"...)
		}
	}
	return append(b, c.b...), nil
}

// A typeWriter writes definitions of types of nodes.
type typeWriter struct {
	*packer
	b        []byte
	prefixes map[string]bool
	done     map[string]bool
}

func (c *typeWriter) add(ctx context.Context, all segment.Node, name string) error {
	if c.done[name] || vault.BuiltIn(name) {
		return nil
	}
	c.done[name] = true
	id, ok, err := all.Child(ctx, name)
	if err != nil || !ok {
		return err
	}
	n, err := c.t.records.Node(ctx, id)
	if err != nil {
		return err
	}
	has, err := texts(ctx, n, isOwn)
	if err != nil {
		return err
	}
	needs := slices.Clone(has["jcr:supertypes"])
	c.b = append(c.b, "\n["+c.name(name)+"]"...)
	for i, super := range has["jcr:supertypes"] {
		c.b = append(c.b, []string{" > ", ", "}[min(i, 1)]+c.name(super)...)
	}
	c.b = append(c.b, '\n')
	for _, o := range [][3]string{
		{orderableName, "true", "orderable"}, {"jcr:isMixin", "true", "mixin"}, {"jcr:isAbstract", "true", "abstract"}, {"jcr:isQueryable", "false", "noquery"},
	} {
		if one(has, o[0]) == o[1] {
			c.b = append(c.b, "  "+o[2]+"\n"...)
		}
	}
	if item := one(has, "jcr:primaryItemName"); item != "" {
		c.b = append(c.b, "  primaryitem "+c.name(item)+"\n"...)
	}
	for child, err := range n.Children(ctx) {
		if err != nil {
			return err
		}
		kind, _, _ := strings.Cut(child.Name, "[")
		if kind != "jcr:propertyDefinition" && kind != "jcr:childNodeDefinition" {
			continue
		}
		d, err := c.t.records.Node(ctx, child.Value)
		if err == nil {
			has, err = texts(ctx, d, isOwn)
		}
		if err != nil {
			return err
		}
		if kind == "jcr:propertyDefinition" {
			c.property(has)
		} else {
			c.child(has)
			needs = append(append(needs, has["jcr:requiredPrimaryTypes"]...), has["jcr:defaultPrimaryType"]...)
		}
	}
	for _, other := range needs {
		if err := c.add(ctx, all, other); err != nil {
			return err
		}
	}
	return nil
}

// isOwn reports whether a property of a definition was not derived from other definitions.
func isOwn(name string) bool { return !strings.HasPrefix(name, "rep:") }

// texts returns the values of those properties of a node that keep selects.
func texts(ctx context.Context, n segment.Node, keep func(name string) bool) (map[string][]string, error) {
	has := map[string][]string{}
	for p, err := range n.Properties(ctx) {
		if !keep(p.Name) {
			continue
		}
		if err != nil {
			return nil, err
		}
		has[p.Name] = []string{}
		for v, err := range p.Values(ctx) {
			var text string
			if err == nil {
				text, err = v.Text(ctx, mostName)
			}
			if err != nil {
				return nil, err
			}
			has[p.Name] = append(has[p.Name], text)
		}
	}
	return has, nil
}

func one(has map[string][]string, name string) string {
	if len(has[name]) == 0 {
		return ""
	}
	return has[name][0]
}

func (c *typeWriter) property(has map[string][]string) {
	c.b = append(c.b, "  - "+c.item(has)+" ("+one(has, "jcr:requiredType")+")"...)
	c.b = appendList(c.b, " = ", has["jcr:defaultValues"])
	c.flags(has, "jcr:mandatory", "mandatory", "jcr:autoCreated", "autocreated", "jcr:protected", "protected", "jcr:multiple", "multiple")
	c.version(has)
	if one(has, "jcr:isFullTextSearchable") == "false" {
		c.b = append(c.b, " nofulltext"...)
	}
	if one(has, "jcr:isQueryOrderable") == "false" {
		c.b = append(c.b, " noqueryorder"...)
	}
	var ops []string
	for _, op := range has["jcr:availableQueryOperators"] {
		if sign, ok := queryOperators[op]; ok {
			ops = append(ops, sign)
		}
	}
	if len(ops) < len(queryOperators) && has["jcr:availableQueryOperators"] != nil {
		c.b = append(c.b, " queryops "+cndQuoted(strings.Join(ops, ", "))...)
	}
	c.b = append(appendList(c.b, " < ", has["jcr:valueConstraints"]), '\n')
}

var queryOperators = map[string]string{
	"jcr.operator.equal.to": "=", "jcr.operator.not.equal.to": "<>", "jcr.operator.less.than": "<", "jcr.operator.less.than.or.equal.to": "<=",
	"jcr.operator.greater.than": ">", "jcr.operator.greater.than.or.equal.to": ">=", "jcr.operator.like": "LIKE",
}

func (c *typeWriter) child(has map[string][]string) {
	c.b = append(c.b, "  + "+c.item(has)...)
	for i, t := range has["jcr:requiredPrimaryTypes"] {
		c.b = append(c.b, []string{" (", ", "}[min(i, 1)]+c.name(t)...)
	}
	if len(has["jcr:requiredPrimaryTypes"]) > 0 {
		c.b = append(c.b, ')')
	}
	if t := one(has, "jcr:defaultPrimaryType"); t != "" {
		c.b = append(c.b, " = "+c.name(t)...)
	}
	c.flags(has, "jcr:mandatory", "mandatory", "jcr:autoCreated", "autocreated", "jcr:protected", "protected", "jcr:sameNameSiblings", "sns")
	c.version(has)
	c.b = append(c.b, '\n')
}

func (c *typeWriter) item(has map[string][]string) string {
	if name := one(has, "jcr:name"); name != "" && name != "*" {
		return c.name(name)
	}
	return "*"
}

// flags appends words for properties that are true.
func (c *typeWriter) flags(has map[string][]string, words ...string) {
	for i := 0; i < len(words); i += 2 {
		if one(has, words[i]) == "true" {
			c.b = append(c.b, " "+words[i+1]...)
		}
	}
}

func (c *typeWriter) version(has map[string][]string) {
	if v := one(has, "jcr:onParentVersion"); v != "" {
		c.b = append(c.b, " "+v...)
	}
}

func appendList(b []byte, before string, list []string) []byte {
	for i, s := range list {
		if i > 0 {
			before = ", "
		}
		b = append(b, before+cndQuoted(s)...)
	}
	return b
}

func (c *typeWriter) name(name string) string {
	if prefix, _, ok := strings.Cut(name, ":"); ok {
		c.prefixes[prefix] = true
	}
	if strings.ContainsFunc(name, func(r rune) bool {
		return r != ':' && r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) {
		return cndQuoted(name)
	}
	return name
}

func cndQuoted(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
}
