package main

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

// choose returns the name of an archive whose name and flags do not tell the format: with the
// extension of a format that suits what is packed. It says which and why.
func (a *app) choose(ctx context.Context, out string, inputs []string) (string, error) {
	if out == "" || a.target != "" || a.writes(out).Name != "" {
		return out, nil
	}
	switch ext := path.Ext(filepath.ToSlash(out)); {
	case out == "-":
		return "", usage("-o -: name the format with -f")
	case strings.HasSuffix(out, "/"):
		return "", usage("%s is a folder: name an archive, such as -o %s.caf", out, strings.TrimRight(out, "/"))
	case len(inputs) == 0:
		return "", usage("%s: name the format with -f", out)
	case ext != "" && ext != ".":
		return "", usage("%s: no format has the extension %s: name the format with -f, or leave out the extension", out, ext)
	}
	ext, why := ".caf", "all inputs are plain files"
	if slices.ContainsFunc(inputs, func(in string) bool { return in == "-" || store.Scheme(in) != "" }) {
		why = "inputs have contents only"
	} else if len(inputs) == 1 && a.hasArrays(ctx, inputs[0]) {
		ext, why = ".lindi.tar", printable(inputs[0])+" has arrays"
	} else if what := beyondPlain(inputs); what != "" {
		ext, why = ".tar", what
	}
	out += ext
	a.warn("%s has the format %s, because %s; -f sets another", printable(store.Redact(out)), format.All().ByExtension(out).Name, why)
	return out, nil
}

// beyondPlain names something that a format of names and contents would lose.
func beyondPlain(inputs []string) (what string) {
	const most = 100_000 // a choice need not take long; whatever is lost is named later
	n := 0
	for _, in := range inputs {
		root, err := filepath.EvalSymlinks(in)
		if err != nil {
			continue // it is reported later
		}
		empty := "" // the folder of which nothing was seen yet
		filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
			if n++; err != nil || n > most {
				return fs.SkipAll
			}
			if empty != "" && filepath.Dir(file) != empty {
				what = "the folder " + printable(empty) + " is empty"
				return fs.SkipAll
			}
			if empty = ""; d.IsDir() {
				empty = file
				return nil
			}
			info, err := d.Info()
			switch {
			case err != nil:
				return nil
			case !info.Mode().IsRegular():
				what = fmt.Sprintf("%s is not a plain file", printable(file))
			case info.Mode()&0o111 != 0:
				what = fmt.Sprintf("%s is executable", printable(file))
			}
			if what != "" {
				return fs.SkipAll
			}
			return nil
		})
		if what == "" && empty != "" && empty != root {
			what = "the folder " + printable(empty) + " is empty"
		}
		if what != "" {
			return what
		}
	}
	return ""
}
