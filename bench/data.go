package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// seed is the seed of all data. If it changes, or the data is made differently, change dataVersion.
const (
	seed        = 20260801
	dataVersion = 1
)

// sizes are the sizes of the sets.
type sizes struct {
	sFiles, sFolders int
	sBytes           int
	aFiles, aFolders int
	big              int64 // bytes of the one large file
	rows             int   // of manyRows
}

var fullSizes = sizes{sFiles: 20_000, sFolders: 200, sBytes: 10_000, aFiles: 100_000, aFolders: 1000, big: 1 << 30, rows: 1_000_000}

// shrunk returns sizes divided by k.
func (z sizes) shrunk(k int) sizes {
	z.sFiles, z.sFolders, z.aFiles, z.aFolders = z.sFiles/k, z.sFolders/k, z.aFiles/k, z.aFolders/k
	z.big, z.rows = z.big/int64(k), z.rows/k
	return z
}

// Set A: file sizes are lognormal.
const (
	sigmaA = 1.2
	meanA  = 8000.0
	maxA   = 4 << 20
)

// have returns the path of a set. If the set does not exist, fill makes it under a temporary name,
// and have renames it when it is complete.
func (s *suite) have(name string, fill func(path string) error) (string, error) {
	path := filepath.Join(s.dir, fmt.Sprintf("v%d-%s", dataVersion, name))
	if _, err := os.Lstat(path); err == nil {
		return path, nil
	}
	fmt.Fprintf(os.Stderr, "bench: making %s\n", path)
	temp := path + ".tmp"
	if err := os.RemoveAll(temp); err != nil {
		return "", err
	}
	if err := fill(temp); err != nil {
		return "", errors.Join(err, os.RemoveAll(temp))
	}
	return path, os.Rename(temp, path)
}

func (s *suite) setS() (string, error) {
	z := s.sizes
	return s.have(fmt.Sprintf("S-%d", z.sFiles), func(path string) error {
		return s.files(path, 'S', z.sFiles, func(i int) (string, int) {
			return fmt.Sprintf("dir_%03d/file_%05d.dat", i%z.sFolders, i), z.sBytes
		})
	})
}

func (s *suite) setA() (string, error) {
	z := s.sizes
	return s.have(fmt.Sprintf("A-%d", z.aFiles), func(path string) error {
		r := random('a', 0)
		mu := math.Log(meanA) - sigmaA*sigmaA/2
		return s.files(path, 'A', z.aFiles, func(i int) (string, int) {
			d := i % z.aFolders
			n := int(math.Exp(mu + sigmaA*r.NormFloat64()))
			return fmt.Sprintf("d%d/e%d/f%d/file_%06d.dat", d/100, d/10%10, d%10, i), max(1, min(maxA, n))
		})
	})
}

// random returns the generator of one part of one set.
func random(set byte, part int) *rand.Rand {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	key[8] = set
	binary.LittleEndian.PutUint64(key[16:], uint64(part))
	return rand.New(rand.NewChaCha8(key))
}

// files makes n files, alternately of random bytes and of words.
func (s *suite) files(root string, set byte, n int, next func(i int) (name string, size int)) error {
	folders := map[string]bool{}
	words := newWords()
	var buf []byte
	for i := range n {
		if s.ctx.Err() != nil {
			return s.ctx.Err()
		}
		name, size := next(i)
		path := filepath.Join(root, filepath.FromSlash(name))
		if d := filepath.Dir(path); !folders[d] {
			if err := os.MkdirAll(d, 0o777); err != nil {
				return err
			}
			folders[d] = true
		}
		buf = buf[:0]
		if r := random(set, i+1); i%2 == 0 {
			buf = appendNoise(buf, r, size)
		} else {
			buf = words.appendText(buf, r, size)
		}
		if err := os.WriteFile(path, buf, 0o666); err != nil {
			return err
		}
		when := time.Unix(1_700_000_000+int64(i), 0)
		if err := os.Chtimes(path, when, when); err != nil {
			return err
		}
	}
	return nil
}

func appendNoise(b []byte, r *rand.Rand, n int) []byte {
	for end := len(b) + n; len(b) < end; {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
		b = b[:min(len(b), end)]
	}
	return b
}

// wordList has the words of texts.
type wordList [4096][]byte

func newWords() *wordList {
	r := random('w', 0)
	var w wordList
	for i := range w {
		word := make([]byte, 2+r.IntN(10))
		for k := range word {
			word[k] = byte('a' + r.IntN(26))
		}
		w[i] = word
	}
	return &w
}

func (w *wordList) appendText(b []byte, r *rand.Rand, n int) []byte {
	for end := len(b) + n; len(b) < end; {
		b = append(append(b, w[r.IntN(len(w))]...), ' ')
		b = b[:min(len(b), end)]
	}
	return b
}

// bigArchive returns the one large file, and an archive of it.
func (s *suite) bigArchive() (in, archive string, err error) {
	if in, err = s.bigFile(); err != nil {
		return "", "", err
	}
	archive, err = s.fresh("big.caf", s.bin, "pack", "-q", "--no-sync", "-o", outputHere, in)
	return in, archive, err
}

// bigFile returns one large file: runs of 1 MiB of random bytes and of words.
func (s *suite) bigFile() (string, error) {
	return s.have(fmt.Sprintf("big-%d.bin", s.sizes.big), func(path string) error {
		return writeFile(path, func(w io.Writer) error {
			words := newWords()
			var buf []byte
			r := random('B', 0)
			for i, left := 0, s.sizes.big; left > 0; i++ {
				if s.ctx.Err() != nil {
					return s.ctx.Err()
				}
				n := int(min(left, 1<<20))
				if i%2 == 0 {
					buf = appendNoise(buf[:0], r, n)
				} else {
					buf = words.appendText(buf[:0], r, n)
				}
				if _, err := w.Write(buf); err != nil {
					return err
				}
				left -= int64(n)
			}
			return nil
		})
	})
}

func writeFile(path string, fill func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	return errors.Join(fill(w), w.Flush(), f.Close())
}

// rowSize is the length of each file in manyRows.
const rowSize = 100

func rowName(i int) string { return fmt.Sprintf("data/%04d/member_%07d.txt", i/1000, i) }

// manyRows returns a CAF of many rows, as gocaf writes them: sorted, without digests. Its data part
// is a hole.
func (s *suite) manyRows() (string, error) {
	return s.have(fmt.Sprintf("rows-%d.caf", s.sizes.rows), func(path string) error {
		data := int64(s.sizes.rows) * rowSize
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := f.Seek(data, io.SeekStart); err != nil {
			return err
		}
		w := bufio.NewWriterSize(f, 1<<20)
		var index counter
		b := []byte(`{"format_version":"1.0","files":{`)
		for i := range s.sizes.rows {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendQuote(b, rowName(i))
			b = fmt.Appendf(b, `:{"start_byte":%d,"end_byte":%d}`, i*rowSize, (i+1)*rowSize)
			index.Write(b)
			if _, err := w.Write(b); err != nil {
				return err
			}
			b = b[:0]
		}
		b = append(b, "}}"...)
		index.Write(b)
		b = binary.LittleEndian.AppendUint32(b, uint32(index.bytes))
		_, err = w.Write(b)
		return errors.Join(err, w.Flush(), f.Close())
	})
}

// counter counts the bytes and lines written to it.
type counter struct{ bytes, lines int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	c.lines += int64(bytes.Count(p, []byte("\n")))
	return len(p), nil
}

// fresh returns the path of a file that a command makes from a set. Each run makes the file again,
// because the commands may have changed.
func (s *suite) fresh(name string, command ...string) (string, error) {
	path := filepath.Join(s.out, name)
	if s.made[name] {
		return path, nil
	}
	args := make([]string, len(command))
	for i, a := range command {
		args[i] = a
		if a == outputHere {
			args[i] = path
		}
	}
	if _, err := s.measure(args, nil); err != nil {
		return "", err
	}
	s.made[name] = true
	return path, nil
}

// outputHere stands for the path that fresh returns.
const outputHere = "\x00output"

func (s *suite) archiveA() (string, error) {
	a, err := s.setA()
	if err != nil {
		return "", err
	}
	return s.fresh("A.caf", s.bin, "pack", "-q", "--no-sync", "-o", outputHere, a)
}

// tarA returns a tar of A, or "" if the machine has no tar.
func (s *suite) tarA() (string, error) {
	a, err := s.setA()
	if err != nil {
		return "", err
	}
	if !have("tar") {
		return "", nil
	}
	return s.fresh("A.tar", "tar", "cf", outputHere, "-C", a, ".")
}

// sizeOf returns the size of all files at and below path.
func sizeOf(path string) (n int64, err error) {
	err = filepath.WalkDir(path, func(_ string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}
