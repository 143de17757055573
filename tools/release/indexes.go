package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// indexes makes the folder a repository of apt and an index of Python packages, which any web
// server can carry. apt finds Packages beside the packages, and pip the list in simple/holdall.
func (r *release) indexes(subjects []subject) error {
	wanted, err := projectLine(r.source, pythonLine, `requires-python = ">=3.1"`)
	if err != nil {
		return err
	}
	var packages, wheels strings.Builder
	for _, s := range subjects {
		switch filepath.Ext(s.name) {
		case ".deb":
			data, err := os.ReadFile(filepath.Join(r.out, s.name))
			if err != nil {
				return err
			}
			control, err := controlOf(data)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			fmt.Fprintf(&packages, "%s\nFilename: ./%s\nSize: %d\nSHA256: %s\n\n", strings.TrimSpace(control), s.name, len(data), s.sum)
		case ".whl":
			fmt.Fprintf(&wheels, "<a href=\"../../%s#sha256=%s\" data-requires-python=\"%s\">%s</a>\n", html.EscapeString(s.name), s.sum, html.EscapeString(wanted), html.EscapeString(s.name))
		}
	}
	if wheels.Len() > 0 {
		page := func(links string) []byte { return []byte("<!doctype html>\n<title>holdall</title>\n" + links) }
		if err := errors.Join(r.write("simple/index.html", page("<a href=\"holdall/\">holdall</a>\n")), r.write("simple/holdall/index.html", page(wheels.String()))); err != nil {
			return err
		}
	}
	if packages.Len() == 0 {
		return nil
	}
	list := []byte(packages.String())
	small, err := gzipped(list)
	if err != nil {
		return err
	}
	told := fmt.Sprintf("Origin: holdall\nLabel: holdall\nSuite: stable\nDate: %s\nSHA256:\n", r.date.UTC().Format(time.RFC1123))
	for _, f := range []file{{"Packages", 0, list}, {"Packages.gz", 0, small}} {
		told += fmt.Sprintf(" %s %d %s\n", sumOf(f.data), len(f.data), f.name)
		if err := r.write(f.name, f.data); err != nil {
			return err
		}
	}
	return r.write("Release", []byte(told))
}

// controlOf returns what a Debian package says of itself: control in control.tar.gz, in an archive
// of ar.
func controlOf(deb []byte) (string, error) {
	const head, magic = 60, "!<arch>\n"
	for at := len(magic); at+head <= len(deb); {
		h := string(deb[at : at+head])
		size, err := strconv.Atoi(strings.TrimSpace(h[48:58]))
		if err != nil || size < 0 || size > len(deb)-at-head {
			break
		}
		data := deb[at+head : at+head+size]
		at += head + size + size%2
		if strings.TrimRight(h[:16], " /") != "control.tar.gz" {
			continue
		}
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return "", err
		}
		for t := tar.NewReader(z); ; {
			f, err := t.Next()
			if err != nil {
				return "", err
			}
			if strings.TrimPrefix(f.Name, "./") == "control" {
				text, err := io.ReadAll(t)
				return string(text), err
			}
		}
	}
	return "", errors.New("no control.tar.gz in it")
}
