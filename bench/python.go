package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/holdall/holdall/internal/read/kept"
)

// The Python package is timed within its own process, so that the start of Python does not count.
// $HOLDALL_PYTHON names a Python, which may have webdataset and MosaicML streaming; the default is python3.
//
//go:embed python_reader.py
var pythonReader []byte

// pythonStep has a Python program do a step and report what that took. It returns nil if something
// that the step needs is missing.
func (s *suite) pythonStep(python, name string, program []byte, step string, args ...string) (*figures, error) {
	script := filepath.Join(s.out, name)
	if err := os.WriteFile(script, program, 0o666); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(s.ctx, python, append([]string{script, step}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(s.top, "python", "src"))
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, failed(cmd.Args, err, said.Bytes())
	}
	var t *struct {
		Wall, CPU float64
		RSS       int64
	}
	if err := json.Unmarshal(out, &t); err != nil || t == nil {
		return nil, err
	}
	second := float64(time.Second)
	return &figures{time.Duration(t.Wall * second), time.Duration(t.CPU * second), t.RSS}, nil
}

// byPython returns the best figures of several runs of a step of the package.
func (s *suite) byPython(step string, args ...string) (best *figures, err error) {
	python := os.Getenv("HOLDALL_PYTHON")
	if python == "" {
		python = "python3"
	}
	if !have(python) {
		return nil, fmt.Errorf("%w: %s is not installed", errSkipped, python)
	}
	for range s.n {
		f, err := s.pythonStep(python, "python_reader.py", pythonReader, step, args...)
		if f == nil || err != nil {
			return nil, err
		}
		best = best.best(*f)
	}
	return best, nil
}

// pythonReady opens an archive of many files by its index, and requests the first of them.
func pythonReady(s *suite) (r row, err error) {
	archive, index, err := s.indexedRows()
	if err != nil {
		return r, err
	}
	r.ours = "holdall.open and a name, after import"
	if r.oursTook, err = s.byPython("ready", archive, index, rowName(s.sizes.rows/3)); err != nil {
		return r, err
	}
	r.judge([]goal{cpuUnder(5 * time.Millisecond)}, s.quick)
	return r, nil
}

// pythonTogether opens a thousand archives, which are T under other names, as one dataset.
func pythonTogether(s *suite) (r row, err error) {
	_, archive, err := s.indexedT()
	if err != nil {
		return r, err
	}
	dir := filepath.Join(s.out, "together")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return r, err
	}
	for i := range 1000 {
		for _, suffix := range []string{"", kept.Suffix} {
			if err := os.Link(archive+suffix, filepath.Join(dir, fmt.Sprintf("%04d.caf%s", i, suffix))); err != nil {
				return r, err
			}
		}
	}
	r.ours = "Stream(Samples(\"*.caf\")), after import"
	if r.oursTook, err = s.byPython("together", filepath.Join(dir, "*.caf"), strconv.Itoa(1000*s.count(samples))); err != nil {
		return r, err
	}
	r.judge([]goal{cpuUnder(50 * time.Millisecond), rssUnder(64 << 20)}, s.quick)
	return r, nil
}

// pythonRandom reads files of S at random.
func pythonRandom(s *suite) (r row, err error) {
	in, archive, err := s.indexedS()
	if err != nil {
		return r, err
	}
	n := s.count(20_000)
	r.peer, r.ours = fmt.Sprintf("open and read, %d files", n), "archive[name]"
	if r.peerTook, err = s.byPython("files", in, archive, strconv.Itoa(n)); err != nil {
		return r, err
	}
	if r.oursTook, err = s.byPython("random", archive, strconv.Itoa(n)); err != nil {
		return r, err
	}
	r.notes = append(r.notes, fmt.Sprintf("%.2f µs of CPU each", r.oursTook.cpu.Seconds()*1e6/float64(n)))
	r.judge([]goal{cpuUnder(time.Duration(n) * 6 * time.Microsecond)}, s.quick)
	return r, nil
}

// indexed is like fresh, and adds an index beside the archive.
func (s *suite) indexed(name string, command ...string) (string, error) {
	archive, err := s.fresh(name, command...)
	if err != nil {
		return "", err
	}
	_, err = s.fresh(name+kept.Suffix, s.bin, "index", "-q", archive, "-o", outputHere)
	return archive, err
}

// indexedT returns T, and an archive of it with an index.
func (s *suite) indexedT() (in, archive string, err error) {
	if in, err = s.setT(); err == nil {
		archive, err = s.indexed("T.caf", s.bin, "pack", "-q", "--no-sync", "-o", outputHere, in)
	}
	return in, archive, err
}

// indexedS returns S, and an archive of it with an index.
func (s *suite) indexedS() (in, archive string, err error) {
	if in, err = s.setS(); err == nil {
		archive, err = s.indexed("S.caf", s.bin, "pack", "-q", "--no-sync", "-o", outputHere, in)
	}
	return in, archive, err
}

// Set T is for training: files of the same length.
const (
	samples    = 100_000
	sampleSize = 4 << 10
)

func (s *suite) setT() (string, error) {
	n := s.count(samples)
	return s.have(fmt.Sprintf("T-%d", n), func(path string) error {
		return s.files(path, 'T', n, func(i int) (string, int) { return fmt.Sprintf("%03d/%06d.bin", i/1000, i), sampleSize })
	})
}

// pythonEpoch reads all of T in a shuffled order. The peer streams a tar, and shuffles its samples
// in a buffer.
func pythonEpoch(peer string, most float64, name string, pack ...string) func(*suite) (row, error) {
	return func(s *suite) (r row, err error) {
		in, err := s.setT()
		if err != nil {
			return r, err
		}
		if !have("tar") {
			return r, fmt.Errorf("%w: tar is not installed", errSkipped)
		}
		tar, err := s.fresh("T.tar", "tar", "cf", outputHere, "-C", in, ".")
		if err != nil {
			return r, err
		}
		archive, err := s.indexed(name, append([]string{s.bin, "pack", "-q", "--no-sync", "-o", outputHere, in}, pack...)...)
		if err != nil {
			return r, err
		}
		r.peer, r.ours = strings.ReplaceAll(peer, "-", " "), "Stream(Samples(archive))"
		if r.peerTook, err = s.byPython(peer, tar); err != nil {
			return r, err
		}
		if r.peerTook == nil {
			r.skipped = append(r.skipped, peer+" is not installed")
		}
		if r.oursTook, err = s.byPython("epoch", archive, strconv.Itoa(s.count(samples))); err != nil {
			return r, err
		}
		if r.oursTook == nil {
			return r, fmt.Errorf("%w: Python has no decoder of %s: install zstandard", errSkipped, name)
		}
		r.judge([]goal{wallRatio(most)}, s.quick)
		return r, nil
	}
}

// pythonTraining reads all of T in a shuffled order, compared with its digests, from the disk or from a server. The peers
// compare nothing: webdataset shuffles a tar in a buffer, and MosaicML streaming stores shards of its own.
func pythonTraining(peer, step string, far bool) func(*suite) (row, error) {
	return func(s *suite) (r row, err error) {
		in, archive, err := s.indexedT()
		if err != nil {
			return r, err
		}
		n := s.count(samples)
		theirs, args := filepath.Join(s.out, "T.mds"), []string{strconv.Itoa(n)}
		var there *figures
		switch peer {
		case "webdataset":
			if theirs, err = s.fresh("T.tar", "tar", "cf", outputHere, "-C", in, "."); err != nil {
				return r, err
			}
			there, args = &figures{}, nil
		case "mosaicml":
			if there, err = s.byPython("mds", theirs, in); err != nil {
				return r, err
			}
		}
		goals := []goal{cpuUnder(time.Duration(n) * 25 * time.Microsecond)}
		from := s.out
		if far {
			v, err := serveSlowly(s.out)
			if err != nil {
				return r, err
			}
			defer func() { err = errors.Join(err, v.stop()) }()
			v.narrow, from = true, strings.TrimSuffix(v.url, "/")
			goals = []goal{linkBusy(int64(n)*sampleSize, 0.9)}
		}
		r.peer, r.ours = peer, "Stream(Samples(archive)), compared"
		if there != nil {
			r.peerTook, err = s.byPython(peer, append([]string{from + "/" + filepath.Base(theirs)}, args...)...)
		}
		if err != nil {
			return r, err
		}
		if r.peerTook == nil {
			r.skipped = append(r.skipped, peer+" is not installed")
		}
		if r.oursTook, err = s.byPython(step, from+"/"+filepath.Base(archive), strconv.Itoa(n)); err != nil {
			return r, err
		}
		r.notes = append(r.notes, fmt.Sprintf("%.1f µs of CPU each, %.0f MB/s", perFile(r.oursTook.cpu, n), float64(n)*sampleSize/1e6/r.oursTook.wall.Seconds()))
		if r.peerTook != nil {
			r.notes = append(r.notes, fmt.Sprintf("peer %.1f and %.0f", perFile(r.peerTook.cpu, n), float64(n)*sampleSize/1e6/r.peerTook.wall.Seconds()))
		}
		r.judge(goals, s.quick)
		return r, nil
	}
}

// linkBusy is the goal that so many bytes come over a link of webRate while it is busy for so much of the time.
func linkBusy(bytes int64, busy float64) goal {
	least := float64(bytes) / webRate / busy
	return goal{fmt.Sprintf("link ≥ %.0f %% busy", 100*busy), func(_, ours *figures) (bool, bool) { return ours.wall.Seconds() <= least, true }}
}

// pythonZip reads files of T at random, compared with what the archive has for that: digests, or the CRC of a zip.
func pythonZip(s *suite) (r row, err error) {
	in, archive, err := s.indexedT()
	if err != nil {
		return r, err
	}
	n := strconv.Itoa(s.count(20_000))
	r.peer, r.ours = "zipfile, read(name)", "archive[name], compared"
	if r.peerTook, err = s.byPython("zip", filepath.Join(s.out, "T.zip"), n, in); err != nil {
		return r, err
	}
	if r.oursTook, err = s.byPython("proven", archive, n); err != nil {
		return r, err
	}
	r.notes = append(r.notes, fmt.Sprintf("%.1f µs of CPU each, peer %.1f", perFile(r.oursTook.cpu, s.count(20_000)), perFile(r.peerTook.cpu, s.count(20_000))))
	r.judge([]goal{wallRatio(1)}, s.quick)
	return r, nil
}

// pythonWeb reads files over HTTP, several at once and one by one.
func pythonWeb(s *suite) (r row, err error) {
	_, archive, err := s.indexedS()
	if err != nil {
		return r, err
	}
	v, err := serveSlowly(filepath.Dir(archive))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, v.stop()) }()
	n := strconv.Itoa(s.count(2000))
	r.peer, r.ours = "archive[name], one after the other", "read_many"
	if r.peerTook, err = s.byPython("each", v.url+filepath.Base(archive), n); err != nil {
		return r, err
	}
	if r.oursTook, err = s.byPython("many", v.url+filepath.Base(archive), n); err != nil {
		return r, err
	}
	r.judge([]goal{times(10)}, s.quick)
	return r, nil
}
