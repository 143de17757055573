package main

import (
	"path/filepath"
)

// catProven reads one large file by an index with digests of pieces. The peer reads it without.
func catProven(s *suite) (row, error) {
	in, archive, err := s.bigArchive()
	if err != nil {
		return row{}, err
	}
	index, err := s.fresh("big.caf.holdall", s.bin, "index", "-q", "--chunk-digests", archive, "-o", outputHere)
	if err != nil {
		return row{}, err
	}
	name := filepath.Base(in)
	c := contest{
		ours:   command{{s.bin, "--index", index, "cat", archive, name}},
		inputs: []string{archive, index},
		goals:  []goal{wallRatio(1.15)},
		check:  prints(func(p counter) int64 { return p.bytes }, s.sizes.big, "bytes"),
	}
	c.against(command{{s.bin, "--index", "none", "cat", archive, name}})
	return s.hold(c)
}
