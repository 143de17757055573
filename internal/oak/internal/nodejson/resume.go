package nodejson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// LastNode finds where the last node begins in an interrupted export. off is where the node's own
// line begins, because what follows it may be missing. If there is no node, off is 0 and path is
// empty.
func LastNode(r io.ReaderAt, size int64) (path string, off int64, err error) {
	end, err := lineStart(r, size)
	if err == nil && end == 0 {
		err = tornBeginning(r, size)
	}
	for ; err == nil && end > 0; end = off {
		if off, err = lineStart(r, end-1); err != nil {
			break
		}
		var node bool
		if path, node, err = beginning(io.NewSectionReader(r, off, end-off)); err != nil {
			return "", 0, fmt.Errorf("line at %d: expected one of an export: %w", off, err)
		}
		if node {
			return path, off, nil
		}
	}
	return "", 0, err
}

// tornBeginning reports whether a file without a complete line can be part of an export.
func tornBeginning(r io.ReaderAt, size int64) error {
	const want = `{"path":`
	b := make([]byte, min(size, int64(len(want))))
	if n, err := r.ReadAt(b, 0); n < len(b) {
		return err
	}
	if string(b) != want[:len(b)] {
		return fmt.Errorf("line at 0: expected one of an export, found %q", b)
	}
	return nil
}

// lineStart returns where the line begins that contains the byte before end, or would contain it.
func lineStart(r io.ReaderAt, end int64) (int64, error) {
	window := make([]byte, 64<<10)
	for at := end; at > 0; {
		n := min(int64(len(window)), at)
		if end-at > maxLine {
			return 0, fmt.Errorf("line at %d: expected at most %d bytes, found more", at, maxLine)
		}
		if _, err := r.ReadAt(window[:n], at-n); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(window[:n], '\n'); i >= 0 {
			return at - n + int64(i) + 1, nil
		}
		at -= n
	}
	return 0, nil
}

// beginning reads about as much of a line as is needed to see whether it begins a node.
func beginning(r *io.SectionReader) (path string, node bool, err error) {
	for most := int64(4 << 10); ; most *= 4 {
		b := make([]byte, min(most, r.Size()))
		if _, err := r.ReadAt(b, 0); err != nil && err != io.EOF {
			return "", false, err
		}
		p := parserOf(b)
		if path, node, err = p.beginning(); err == nil || most >= r.Size() {
			return path, node, err
		}
	}
}

func (p *parser) beginning() (path string, node bool, err error) {
	p.Begin('{')
	if p.Next('}'); string(p.Key()) != "path" {
		p.fail(errors.New("expected the path"))
	}
	path = p.text()
	p.Next('}')
	key := string(p.Key())
	return path, key == "properties" || key == "lost", p.Err
}
