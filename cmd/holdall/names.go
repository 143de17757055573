package main

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/glob"
)

// expand finds the entries that a path of the command line names. This is the
// entry of that name, or, if there is none and the path is a pattern, the
// entries that match. A pattern is compared with whole names.
func expand(ctx context.Context, in *holdall.Archive, name string) ([]holdall.Entry, error) {
	e, err := lookup(ctx, in, name)
	if err == nil {
		return []holdall.Entry{e}, nil
	}
	pattern := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(name, "./"), "/"), "/")
	if !errors.Is(err, fs.ErrNotExist) || !strings.ContainsAny(pattern, glob.Meta) {
		return nil, err
	}
	found, gerr := like(ctx, in, ".", pattern)
	switch {
	case gerr != nil:
		return nil, gerr
	case len(found) == 0:
		return nil, err
	}
	return found, nil
}

// expandAll is expand for several paths. It returns each entry once.
func expandAll(ctx context.Context, in *holdall.Archive, names []string) (found []holdall.Entry, err error) {
	seen := map[string]bool{}
	for _, name := range names {
		entries, err := expand(ctx, in, name)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if !seen[e.Name] {
				seen[e.Name] = true
				found = append(found, e)
			}
		}
	}
	return found, nil
}

// like returns the entries in dir whose names relative to dir match a pattern.
// It reads only folders that can contain matches.
func like(ctx context.Context, in *holdall.Archive, dir, pattern string) (found []holdall.Entry, err error) {
	first, rest, deeper := strings.Cut(pattern, "/")
	within := func(name string) string {
		if dir == "." {
			return name
		}
		return strings.TrimPrefix(name, dir+"/")
	}
	if strings.Contains(first, "**") || strings.Contains(first, "{") && deeper {
		p, err := glob.Compile(pattern, false)
		if err != nil {
			return nil, &usageError{err}
		}
		p = p.Whole()
		err = each(in.Below(ctx, dir), func(e holdall.Entry) error {
			if p.Match(within(e.Name)) {
				found = append(found, e)
			}
			return nil
		})
		return found, err
	}
	p, err := glob.Compile(first, false)
	if err != nil {
		return nil, &usageError{err}
	}
	var folders []string
	err = each(in.ReadDir(ctx, dir), func(e holdall.Entry) error {
		switch {
		case !p.Match(within(e.Name)):
		case !deeper:
			found = append(found, e)
		case e.Kind == format.Dir && e.Fault == nil:
			folders = append(folders, e.Name)
		}
		return nil
	})
	slices.Sort(folders)
	for _, f := range folders {
		if err != nil {
			break
		}
		var more []holdall.Entry
		more, err = like(ctx, in, f, rest)
		found = append(found, more...)
	}
	return found, err
}
