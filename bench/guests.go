package main

import (
	"archive/tar"
	"archive/zip"
	"fmt"
	"io"
	"time"
)

// guestName returns the i-th of n names, which are not sorted, as in archives of other tools.
func guestName(i, n int) string { return rowName((i * 7919) % n) }

// manyMembers returns a tar of many small files.
func (s *suite) manyMembers() (string, error) {
	n := s.sizes.rows
	return s.have(fmt.Sprintf("members-%d.tar", n), func(path string) error {
		return writeFile(path, func(out io.Writer) error {
			w, content := tar.NewWriter(out), make([]byte, rowSize)
			for i := range n {
				h := tar.Header{Typeflag: tar.TypeReg, Name: guestName(i, n), Size: rowSize, Mode: 0o644, ModTime: time.Unix(1_600_000_000, 0), Uname: "somebody", Gname: "staff"}
				if err := w.WriteHeader(&h); err != nil {
					return err
				}
				if _, err := w.Write(content); err != nil {
					return err
				}
			}
			return w.Close()
		})
	})
}

// manyZipped returns a zip of as many files.
func (s *suite) manyZipped() (string, error) {
	n := s.sizes.rows
	return s.have(fmt.Sprintf("members-%d.zip", n), func(path string) error {
		return writeFile(path, func(out io.Writer) error {
			w, content := zip.NewWriter(out), make([]byte, rowSize)
			for i := range n {
				to, err := w.CreateHeader(&zip.FileHeader{Name: guestName(i, n), Modified: time.Unix(1_600_000_000, 0)})
				if err != nil {
					return err
				}
				if _, err := to.Write(content); err != nil {
					return err
				}
			}
			return w.Close()
		})
	})
}

// listGuest lists all of an archive for which holdall has no index.
func listGuest(archive func(*suite) (string, error), peer ...string) func(*suite) (row, error) {
	return func(s *suite) (row, error) {
		path, err := archive(s)
		if err != nil {
			return row{}, err
		}
		c := contest{
			ours: command{{s.bin, "ls", "-R", path}}, inputs: []string{path},
			check: prints(lines, int64(s.sizes.rows), "lines"),
		}
		c.against(command{append(peer, path)})
		return s.hold(c)
	}
}
