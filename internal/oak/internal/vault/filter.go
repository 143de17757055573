package vault

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// A Filter selects the paths that a package covers.
type Filter struct{ sets []filterSet }

type filterSet struct {
	root       string
	nodes      []filterRule
	properties []filterRule
}

type filterRule struct {
	include bool
	pattern *regexp.Regexp
}

// covers reports whether path is root or below it.
func covers(root, path string) bool {
	return path == root || root == "/" || strings.HasPrefix(path, root) && path[len(root)] == '/'
}

// set returns the filter set that contains a path, the last one if there are several.
func (f *Filter) set(path string) *filterSet {
	for i := len(f.sets) - 1; i >= 0; i-- {
		if covers(f.sets[i].root, path) {
			return &f.sets[i]
		}
	}
	return nil
}

// Covers reports whether a path is at or below a root.
func (f *Filter) Covers(path string) bool { return f.set(path) != nil }

// contains reports whether a node is in the package.
func (f *Filter) contains(path string) bool {
	s := f.set(path)
	return s != nil && allowed(s.nodes, path)
}

// hasProperty is contains for a property of a node that is contained.
func (f *Filter) hasProperty(path string) bool {
	s := f.set(path)
	return s != nil && allowed(s.properties, path)
}

func allowed(rules []filterRule, path string) bool {
	if len(rules) == 0 {
		return true
	}
	ok := !rules[0].include
	for _, r := range rules {
		if r.pattern.MatchString(path) {
			ok = r.include
		}
	}
	return ok
}

// above reports whether a root is below a path.
func (f *Filter) above(path string) bool {
	return slices.ContainsFunc(f.sets, func(s filterSet) bool { return s.root != path && covers(path, s.root) })
}

// readFilter reads a filter.xml.
func readFilter(r io.Reader) (*Filter, int, error) {
	f := &Filter{}
	s := newScanner(r)
	fail := func(msg string, args ...any) (*Filter, int, error) { return nil, s.line(), fmt.Errorf(msg, args...) }
	skip := false
	for depth := 0; ; {
		e, err := s.next()
		switch {
		case err == io.EOF:
			return f, 0, nil
		case err != nil:
			return nil, s.line(), err
		case e.end:
			depth--
			continue
		}
		has := map[string]string{}
		for _, a := range e.attrs {
			has[a.local] = a.value
		}
		switch depth++; {
		case depth == 1 && e.local == "workspaceFilter":
		case depth == 2 && e.local == "filter":
			root := has["root"]
			if !strings.HasPrefix(root, "/") {
				return fail("filter: expected a root that begins with a slash, found %.100q", root)
			}
			if root != "/" {
				root = strings.TrimRight(root, "/")
			}
			if skip = has["type"] == "cleanup"; !skip {
				f.sets = append(f.sets, filterSet{root: root})
			}
		case depth == 3 && (e.local == "include" || e.local == "exclude"):
			p, err := regexp.Compile("^(?:" + has["pattern"] + ")$")
			if err != nil {
				return fail("pattern: %w", err)
			}
			if skip {
				continue
			}
			set, rule := &f.sets[len(f.sets)-1], filterRule{e.local == "include", p}
			if has["matchProperties"] == "true" {
				set.properties = append(set.properties, rule)
			} else {
				set.nodes = append(set.nodes, rule)
			}
		default:
			return fail("expected a filter with includes and excludes, found %.100q", e.local)
		}
	}
}

// AppendFilter appends a filter.xml that covers everything below roots.
func AppendFilter(b []byte, roots []string) []byte {
	b = append(b, `<?xml version="1.0" encoding="UTF-8"?>`+"\n"+`<workspaceFilter version="1.0">`+"\n"...)
	for _, root := range roots {
		b = append(AppendXML(append(b, `    <filter root="`...), root), `"/>`+"\n"...)
	}
	return append(b, "</workspaceFilter>\n"...)
}
