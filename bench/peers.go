package main

import (
	"cmp"
	"os"
	"path/filepath"
)

// Peers that are searched in $PATH, unless a variable names them.
var (
	ratarmount = cmp.Or(os.Getenv("HOLDALL_RATARMOUNT"), "ratarmount")
	arx        = cmp.Or(os.Getenv("HOLDALL_ARX"), "arx")
)

// firstIndexOf builds an index of a tar. ratarmount does so when it mounts the tar.
func firstIndexOf(archive func(*suite) (string, error)) func(*suite) (row, error) {
	return func(s *suite) (row, error) {
		path, err := archive(s)
		if err != nil {
			return row{}, err
		}
		out, dir := filepath.Join(s.out, "first.holdall"), filepath.Join(s.out, "ratarmount")
		theirs := filepath.Join(s.out, "ratarmount.sqlite")
		c := contest{ours: command{{s.bin, "index", "-q", path, "-o", out}}, inputs: []string{path}, outputs: []string{out, theirs}, goals: []goal{times(10)}}
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return row{}, err
		}
		c.against(command{{ratarmount, "--index-file", theirs, path, dir}, {"fusermount3", "-u", dir}})
		return s.hold(c)
	}
}

// manyInArx returns an arx archive with as many files as the tar of many members.
func (s *suite) manyInArx() (string, error) {
	members, err := s.manyMembers()
	if err != nil || !have(arx) {
		return "", err
	}
	return s.have(filepath.Base(members)+".arx", func(path string) error {
		dir := filepath.Join(s.out, "members")
		defer os.RemoveAll(dir)
		if _, err := s.measure([]string{s.bin, "extract", "-q", members, "-C", dir}, nil); err != nil {
			return err
		}
		_, err := s.measure([]string{arx, "create", "--outfile", path, "-C", dir, "-r", "data"}, nil)
		return err
	})
}

// byArx compares a command that uses an index of the tar with arx.
func byArx(ours func(archive, index string) []string, theirs func(archive string) []string, check func(*suite) func(counter) error) func(*suite) (row, error) {
	return func(s *suite) (row, error) {
		members, err := s.manyMembers()
		if err != nil {
			return row{}, err
		}
		index, err := s.fresh("members.holdall", s.bin, "index", "-q", members, "-o", outputHere)
		if err != nil {
			return row{}, err
		}
		archive, err := s.manyInArx()
		if err != nil {
			return row{}, err
		}
		c := contest{ours: command{append([]string{s.bin}, ours(members, index)...)}, inputs: []string{index}, goals: []goal{times(1)}, check: check(s)}
		c.against(command{append([]string{arx}, theirs(archive)...)})
		return s.hold(c)
	}
}

func listAgainstArx(s *suite) (row, error) {
	return byArx(func(archive, index string) []string { return []string{"--index", index, "ls", "-R", archive} },
		func(archive string) []string { return []string{"list", archive} },
		func(s *suite) func(counter) error { return prints(lines, int64(s.sizes.rows), "lines") })(s)
}

func oneAgainstArx(s *suite) (row, error) {
	name := rowName(s.sizes.rows / 2)
	return byArx(func(archive, index string) []string { return []string{"--index", index, "cat", archive, name} },
		func(archive string) []string { return []string{"dump", archive, name} },
		func(s *suite) func(counter) error {
			return prints(func(p counter) int64 { return p.bytes }, rowSize, "bytes")
		})(s)
}
