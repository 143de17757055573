package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// module is a module that is linked into a command.
type module struct {
	path, version string
	license       string // an SPDX expression
	texts         []file // licences, by their paths in the module
}

const std = "std" // the module of Go's own library

var licenseName = regexp.MustCompile(`(?i)^((un)?licen[cs]e|copying|notice)([.-].*)?$`)

// modules runs go to find the modules that are linked into a command, and searches for the licences
// of each: in the folders of the linked packages, and in their parent folders.
func (r *release) modules(t target) ([]module, error) {
	out, err := output(r.goCommand(t, "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}\t{{$.Dir}}{{end}}{{end}}", "./cmd/holdall"))
	if err != nil {
		return nil, err
	}
	root, err := output(r.goCommand(t, "env", "GOROOT", "GOVERSION"))
	if err != nil {
		return nil, err
	}
	goroot, goversion, _ := strings.Cut(root, "\n")
	lines := append(strings.Split(out, "\n"), strings.Join([]string{std, strings.TrimPrefix(goversion, "go"), goroot, goroot}, "\t"))
	found, dirs := map[string]*module{}, map[string]string{}
	for _, line := range lines {
		f := strings.Split(line, "\t")
		if len(f) != 4 {
			continue // of this module, or of Go
		}
		path, version, top, dir := f[0], f[1], f[2], f[3]
		if found[path] == nil {
			found[path] = &module{path: path, version: version}
		}
		for ; dirs[dir] == "" && strings.HasPrefix(dir, top); dir = filepath.Dir(dir) {
			dirs[dir] = path
			if err := found[path].look(top, dir); err != nil {
				return nil, err
			}
		}
	}
	var all []module
	for _, path := range slices.Sorted(maps.Keys(found)) {
		m := found[path]
		if m.texts = byName(m.texts); !m.identify() {
			return nil, fmt.Errorf("%s %s: no licence that is known here, in %d files", m.path, m.version, len(m.texts))
		}
		all = append(all, *m)
	}
	return all, nil
}

// look adds the licences in a folder of a module.
func (m *module) look(top, dir string) error {
	names, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, n := range names {
		if n.IsDir() || !licenseName.MatchString(n.Name()) || strings.HasSuffix(n.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, n.Name()))
		if err != nil {
			return err
		}
		name, err := filepath.Rel(top, filepath.Join(dir, n.Name()))
		if err != nil {
			return err
		}
		m.texts = append(m.texts, file{name: filepath.ToSlash(name), data: text})
	}
	return nil
}

// identify sets the licences that the texts contain, and reports whether there are any.
func (m *module) identify() bool {
	ids := map[string]bool{}
	for _, t := range m.texts {
		for _, id := range licensesOf(string(t.data)) {
			ids[id] = true
		}
	}
	m.license = strings.Join(slices.Sorted(maps.Keys(ids)), " AND ")
	return m.license != ""
}

// licensesOf finds licences in a text by a phrase that each of them has.
func licensesOf(text string) (ids []string) {
	text = strings.ToLower(strings.Join(strings.Fields(text), " "))
	has := func(phrase string) bool { return strings.Contains(text, phrase) }
	if has("apache license, version 2.0") || has("apache license version 2.0") {
		ids = append(ids, "Apache-2.0")
	}
	if has("mozilla public license version 2.0") || has("mozilla public license, version 2.0") {
		ids = append(ids, "MPL-2.0")
	}
	if has("permission is hereby granted, free of charge") {
		ids = append(ids, "MIT")
	}
	if has("permission to use, copy, modify, and") {
		ids = append(ids, "ISC")
	}
	if has("this is free and unencumbered software released into the public domain") {
		ids = append(ids, "Unlicense")
	}
	if has("cc0 1.0 universal") {
		ids = append(ids, "CC0-1.0")
	}
	if has("redistribution and use in source and binary forms") {
		if has("endorse or promote") {
			ids = append(ids, "BSD-3-Clause")
		} else {
			ids = append(ids, "BSD-2-Clause")
		}
	}
	return ids
}

// licenseTexts returns the file THIRD_PARTY_LICENSES.
func licenseTexts(modules []module) []byte {
	var b bytes.Buffer
	rule := strings.Repeat("=", 80)
	b.WriteString("The command holdall is linked with these modules, under these licences.\n")
	for _, m := range modules {
		for _, t := range m.texts {
			fmt.Fprintf(&b, "\n%s\n%s %s: %s\n%s\n\n%s\n", rule, m.path, m.version, t.name, rule, bytes.TrimSpace(t.data))
		}
	}
	return b.Bytes()
}
