package local

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdall/holdall/store"
)

// Open returns the store and the name for a plain path or a file:// address. The store is the
// folder that contains the last element of the path, and the name is that element. For folders,
// "." and "/" included, the store can list the files below the name.
func Open(_ context.Context, address string) (store.Store, string, error) {
	p := address
	if scheme, rest, ok := strings.Cut(address, "://"); ok && store.Scheme(address) != "" {
		var err error
		if !strings.EqualFold(scheme, "file") {
			err = errors.New("not a file:// address")
		} else {
			p, err = filePath(rest)
		}
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", address, err)
		}
	}
	dir, name, err := split(p)
	if err != nil {
		return nil, "", failed("open", address, err)
	}
	return New(dir), name, nil
}

func filePath(rest string) (string, error) {
	host, p, ok := strings.Cut(rest, "/")
	if host != "" && !strings.EqualFold(host, "localhost") {
		return "", fmt.Errorf("file address on host %q: expected file:///path", host)
	}
	if !ok {
		return "", errors.New("file address without a path: expected file:///path")
	}
	if i := strings.IndexAny(p, "?#"); i >= 0 {
		return "", fmt.Errorf("file address with a %q: write it %%%02X if it belongs to the name", p[i], p[i])
	}
	p, err := url.PathUnescape(p)
	if err != nil {
		return "", err
	}
	p = filepath.FromSlash(p)
	if filepath.VolumeName(p) == "" { // otherwise it is file:///C:/x, which means C:/x
		p = string(filepath.Separator) + p
	}
	return p, nil
}

// split returns the folder that contains p, and the name of p in it.
func split(p string) (dir, name string, err error) {
	if p == "" {
		return "", "", errors.New("empty path")
	}
	if strings.IndexByte(p, 0) >= 0 {
		return "", "", errors.New("path holds a NUL byte")
	}
	dir, name = cut(p)
	if name == "." || name == ".." {
		// These are not names, but the place that they refer to has one. After a symbolic link,
		// ".." refers to another folder than the text suggests.
		if !filepath.IsAbs(p) {
			wd, err := os.Getwd()
			if err != nil {
				return "", "", err
			}
			p = join(wd, p)
		}
		if p, err = filepath.EvalSymlinks(p); err != nil {
			return "", "", err
		}
		dir, name = cut(p)
	}
	if name == "" {
		name = "." // the root is not in another folder
	}
	return dir, filepath.ToSlash(name), nil
}

// cut splits off the last element and ignores separators after it.
func cut(p string) (dir, name string) {
	vol := len(filepath.VolumeName(p))
	for len(p) > vol+1 && os.IsPathSeparator(p[len(p)-1]) {
		p = p[:len(p)-1]
	}
	return filepath.Split(p)
}

// Address returns the absolute path of the object called name.
func (s *Store) Address(name string) string {
	p, err := s.path(name)
	if err == nil {
		p, err = filepath.Abs(p)
	}
	if err != nil {
		return ""
	}
	return filepath.ToSlash(p)
}
