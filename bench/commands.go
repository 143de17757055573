package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// comparison is a line of the table.
type comparison struct {
	name string
	run  func(*suite) (row, error)
}

var comparisons = []comparison{
	{"pack S", packTree((*suite).setS, false)},
	{"pack S, synced", packTree((*suite).setS, true)},
	{"pack A", packTree((*suite).setA, false)},
	{"pack A, synced", packTree((*suite).setA, true)},
	{"pack one large file", packBig(false)},
	{"pack one large file, synced", packBig(true)},
	{"verify A", verifyA},
	{"extract A, against tar", extractA("tar", "")},
	{"extract A, against cp", extractA("cp", "")},
	{"extract A in memory, against tar", extractA("tar", memoryDir)},
	{"extract A in memory, against cp", extractA("cp", memoryDir)},
	{"one of many rows", oneOfMany},
	{"list many rows", listMany(false)},
	{"list many rows as JSON", listMany(true)},
	{"index: many rows", indexMany},
	{"index: open and find one of many rows, in process", openByIndex},
	{"index: find 100,000 of many rows, in process", findByIndex},
	{"index: one of many rows", oneByIndex},
	{"index: list many rows", listByIndex},
	{"index: one of many rows over HTTP, 20 ms away", webOneByIndex},
	{"sync: caf, 1 % of 10,000 files changed, 20 ms away", syncOf("caf", 1.3)},
	{"sync: lindi, 1 % of 10,000 files changed, 20 ms away", syncOf("lindi.tar", 1.3)},
	{"sync: tar, 1 % of 10,000 files changed, 20 ms away", syncOf("tar", 1.3)},
	{"sync: zip, 1 % of 10,000 files changed, 20 ms away", syncOf("zip", 1.3)},
	{"sync: tar.zst, 1 % of 10,000 files changed, 20 ms away", syncOf("tar.zst", 5)},
	{"sync: rvn, 1 % of 10,000 files changed, 20 ms away", syncOf("rvn", 5)},
	{"index: the first of a tar, against ratarmount", firstIndexOf((*suite).manyMembers)},
	{"index: list a tar of many members, against arx", listAgainstArx},
	{"index: one of a tar of many members, against arx", oneAgainstArx},
	{"list a tar of many members", listGuest((*suite).manyMembers, "tar", "tf")},
	{"list a zip of many members", listGuest((*suite).manyZipped, "unzip", "-Z1")},
	{"list A", listA},
	{"one of A", oneOfA},
	{"convert A", convertA},
	{"cat one large file by digests of pieces, against without", catProven},
	{"serve: small files, 8 clients", serveContest((*suite).setS, 100_000, 8, wallRatio(1))},
	{"serve: small files, 256 clients", serveContest((*suite).setS, 100_000, 256, wallRatio(1), rssUnder(100<<20))},
	{"serve: small files of a tar, 8 clients", servedAs(goFiles, "tar", false, (*suite).setS, 100_000, 8, wallRatio(1))},
	{"serve: small files, 8 clients, against nginx", servedAs(nginxFiles, "caf", false, (*suite).setS, 100_000, 8)},
	{"serve: small files, 8 clients, against caddy", servedAs(caddyFiles, "caf", false, (*suite).setS, 100_000, 8, wallRatio(1))},
	{"serve: small files to S3 clients, 16 clients", servedAs(goFiles, "caf", true, (*suite).setS, 100_000, 16, cpuOfEach(100_000, 60*time.Microsecond))},
	{"serve: small files to S3 clients, 256 clients", servedAs(goFiles, "caf", true, (*suite).setS, 100_000, 256, cpuOfEach(100_000, 60*time.Microsecond))},
	{"serve: small files of a tar to S3 clients, 16 clients", servedAs(goFiles, "tar", true, (*suite).setS, 100_000, 16, cpuOfEach(100_000, 60*time.Microsecond))},
	{"serve: one large file", serveContest((*suite).bigFile, 1, 1, wallRatio(1.15))},
	{"start", start(false)},
	{"start, cold", start(true)},
	{"random reads of A, in process", randomReads},
	{"random reads over HTTP, in process", webReads},
	{"heap of many rows, in process", heapOfRows},
	{"lindi: write 10,000 chunks", writeBlobs},
	{"lindi: open, in process", openLindi},
	{"lindi: random reads, in process", readLindi},
	{"lindi: commit after commit, in process", commitLindi},
	{"lindi: chunks over HTTP, in process", webLindi},
	{"hdf5: references of 10,000 chunks 20 ms away, against lindi", referHDF5},
	{"hdf5: references of a recording 20 ms away, against lindi", referRecording},
	{"hdf5: references of a recording 20 ms away, against kerchunk", farHDF5("HOLDALL_VIRTUAL_PYTHON", hdf5Recording, "kerchunk", "", "--link-arrays", "0")},
	{"hdf5: references of a recording 20 ms away, against VirtualiZarr of one group", farHDF5("HOLDALL_VIRTUAL_PYTHON", hdf5Recording, "virtualizarr", "", "--link-arrays", "0")},
	{"hdf5: references of a recording 20 ms away, against a listing by h5py and fsspec", farHDF5("HOLDALL_VIRTUAL_PYTHON", hdf5Recording, "h5py", "", "--link-arrays", "0")},
	{"hdf5: references of 2,000 datasets 20 ms away, against kerchunk", farHDF5("HOLDALL_VIRTUAL_PYTHON", hdf5Nested, "kerchunk", "", "--link-arrays", "0")},
	{"hdf5: a slice of a recording 20 ms away, against h5py and fsspec", farHDF5("HOLDALL_VIRTUAL_PYTHON", hdf5Recording, "h5py-slice", "acquisition/ts5/data")},
	{"hdf5: a slice of a recording 20 ms away, against lindi", farHDF5("HOLDALL_LINDI_PYTHON", hdf5Recording, "lindi-slice", "acquisition/ts5/data")},
	{"hdf5: references of a local file of 10,000 chunks, against lindi", referLocalHDF5},
	{"hdf5: verify 100,000 datasets of one number, against a walk by h5py", scalarsHDF5},
	{"rvn: pack", rvnPack(0.5, 1.10)},
	{"rvn: pack, 4 MiB sections", rvnPack(0.5, 1.10, "--sections", "4MiB")},
	{"rvn: pack, best", rvnPack(2, 1.02, "--level", "best", "--sections", "4MiB")},
	{"rvn: extract in memory", rvnExtract((*suite).sections)},
	{"rvn: extract in memory, one frame", rvnExtract((*suite).solid)},
	{"rvn: verify, against decoding alone", rvnVerify},
	{"rvn: list", rvnList},
	{"rvn: one file near the end, against one frame", rvnOne},
	{"databundle: pack by zlib, against mksquashfs", bundlePack("zlib", "6", 0.3, 1.01)},
	{"databundle: pack by zstd, against mksquashfs", bundlePack("zstd", "3", 1.1, 1.03)},
	{"databundle: pack as it is, against tar", bundleStore},
	{"databundle: random reads by zlib, in process", bundleReads("zlib", "gzip", "6", wallRatio(0.6))},
	{"databundle: random reads by zstd, in process", bundleReads("zstd", "zstd", "3", wallRatio(0.5))},
	{"databundle: a shuffled epoch by zlib, in process", bundleEpoch("zlib")},
	{"databundle: a shuffled epoch by zstd, in process", bundleEpoch("zstd")},
	{"databundle: random reads as it is, in process", bundleReads("none", "", "", wallRatio(1.5))},
	{"python: 1,000,000 files ready", pythonReady},
	{"python: 1,000 archives of 100,000,000 samples ready", pythonTogether},
	{"python: random reads, against files", pythonRandom},
	{"python: a shuffled epoch, against a stream of a tar", pythonEpoch("tar", 1, "T.caf")},
	{"python: a shuffled epoch by zstd, against a stream of a tar", pythonEpoch("tar", 1/0.7, "T.bundle", "--compression", "zstd")},
	{"python: a shuffled epoch, against webdataset", pythonEpoch("webdataset", 1, "T.caf")},
	{"python: a shuffled epoch compared with digests, against webdataset", pythonTraining("webdataset", "train", false)},
	{"python: a shuffled epoch compared with digests, against MosaicML streaming", pythonTraining("mosaicml", "train", false)},
	{"python: a shuffled epoch 20 ms away at 1 Gbit/s, against webdataset", pythonTraining("webdataset", "train", true)},
	{"python: a shuffled epoch 20 ms away at 1 Gbit/s, against MosaicML streaming", pythonTraining("mosaicml", "train", true)},
	{"python: a uniform shuffle 20 ms away at 1 Gbit/s, against MosaicML streaming", pythonTraining("mosaicml", "uniform", true)},
	{"python: random reads compared with digests, against zipfile", pythonZip},
	{"python: many files over HTTP 20 ms away, against one after the other", pythonWeb},
	{"oak: list all segments", listOak},
	{"oak: check everything, in process", sumOak},
	{"oak: recover a tar without an index", repairOak},
	{"oak: random segments, in process", readOak},
	{"oak: 1,000 nodes by path", pathsOak},
	{"oak: the tree with all values", exportOak},
	{"oak: check the tree and its binaries", checkOak},
	{"oak: recover a journal", journalOak},
	{"oak: compact", compactOak},
	{"bucket: pack small objects 10 ms away, against one at a time", bucketPack("one-by-one", 0.2, true)},
	{"bucket: pack small objects, against reading them alone", bucketPack("gets", 1, false)},
	{"bucket: pack small objects 10 ms away, against reading them alone", bucketPack("gets", 1.25, true)},
	{"bucket: pack one object of 5 GB, against a plain copy", bucketPack("copy", 1/0.85, false)},
	{"fleet: two workers against one, small objects", fleetWorkers(smallObjects, false)},
	{"fleet: two workers against one, small objects 10 ms away", fleetWorkers(smallObjects, true)},
	{"fleet: two workers against one, objects of 5 MB", fleetWorkers(largeObjects, false)},
	{"fleet: two workers against one, objects of 5 MB 10 ms away", fleetWorkers(largeObjects, true)},
	{"fleet: a job of nothing, SQLite, in process", fleetQueue(false)},
	{"fleet: a job of nothing, PostgreSQL, in process", fleetQueue(true)},
	{"fleet: cost of the first plan", fleetVerb("plan", 8*time.Microsecond)},
	{"fleet: cost of a plan of nothing new", fleetVerb("plan again", 8*time.Microsecond)},
	{"fleet: cost of packing", fleetVerb("work", 60*time.Microsecond)},
	{"fleet: cost of a compaction", fleetVerb("compact", 0)},
	{"fleet: cost of a retirement", fleetVerb("retire", 100*time.Microsecond)},
	{"fleet: plan many objects, against a list", fleetPlan(2, false)},
	{"fleet: plan many objects 10 ms away, against a list", fleetPlan(1, true)},
}

// memoryDir is where Linux has a file system in memory.
const memoryDir = "/dev/shm"

const (
	packGoal = 0.75
	bigGoal  = 1.15
	packRSS  = 64 << 20
)

// packTree packs a set. Neither holdall nor tar waits for the disk, unless synced is set: then both
// do.
func packTree(set func(*suite) (string, error), synced bool) func(*suite) (row, error) {
	return func(s *suite) (row, error) {
		in, err := set(s)
		if err != nil {
			return row{}, err
		}
		tar, caf := filepath.Join(s.out, "packed.tar"), filepath.Join(s.out, "packed.caf")
		c := s.packing(in, caf, synced, command{{"tar", "cf", tar, "-C", in, "."}}, tar)
		c.goals = []goal{wallRatio(packGoal), rssUnder(packRSS)}
		return s.hold(c)
	}
}

func packBig(synced bool) func(*suite) (row, error) {
	return func(s *suite) (row, error) {
		in, err := s.bigFile()
		if err != nil {
			return row{}, err
		}
		copied, caf := filepath.Join(s.out, "copy.bin"), filepath.Join(s.out, "packed.caf")
		c := s.packing(in, caf, synced, command{{"cp", in, copied}}, copied)
		c.goals = []goal{wallRatio(bigGoal), rssUnder(packRSS)}
		return s.hold(c)
	}
}

// packing returns a contest: holdall packs in as caf, and a peer makes peerOut.
func (s *suite) packing(in, caf string, synced bool, peer command, peerOut string) contest {
	c := contest{
		ours:   command{{s.bin, "pack", "-q", "--no-sync", "-o", caf, in}},
		inputs: []string{in}, outputs: []string{caf, peerOut},
		check: func(counter) error { return holdsAll(caf, in) },
	}
	if synced {
		c.ours = command{{s.bin, "pack", "-q", "-o", caf, in}}
		peer = append(peer, []string{"sync", peerOut})
	}
	c.against(peer)
	return c
}

// against sets a contest's peer, if the machine has the programs for it.
func (c *contest) against(peer command) {
	for _, args := range peer {
		if !have(args[0]) {
			c.skipped = args[0] + ": not on this machine"
			return
		}
	}
	c.peer = peer
}

// againstGocaf sets gocaf as a contest's peer, if the machine has it.
func (c *contest) againstGocaf(s *suite, args ...string) {
	if s.gocaf == "" {
		c.skipped = "gocaf: $GOCAF does not say where it is"
		return
	}
	c.peer = command{append([]string{s.gocaf}, args...)}
}

// holdsAll checks that out has at least as many bytes as in.
func holdsAll(out, in string) error {
	have, err := sizeOf(out)
	if err != nil {
		return err
	}
	want, err := sizeOf(in)
	if err == nil && have < want {
		err = fmt.Errorf("%s has %d bytes, fewer than the %d of %s", out, have, want, in)
	}
	return err
}

func verifyA(s *suite) (row, error) {
	archive, err := s.archiveA()
	if err != nil {
		return row{}, err
	}
	size, err := sizeOf(archive)
	if err != nil {
		return row{}, err
	}
	r, err := s.hold(contest{ours: command{{s.bin, "verify", archive}}, inputs: []string{archive}})
	if err == nil {
		r.notes = append(r.notes, fmt.Sprintf("%.0f MB/s", float64(size)/1e6/r.oursTook.wall.Seconds()))
	}
	return r, err
}

// extractA extracts A below dir, or beside the data sets if dir is "".
func extractA(peer, dir string) func(*suite) (row, error) {
	return func(s *suite) (r row, err error) {
		if s.quick && dir == "" && freeBytes(memoryDir) > 0 {
			return r, fmt.Errorf("%w: -quick extracts in memory only", errSkipped)
		}
		in, err := s.setA()
		if err != nil {
			return r, err
		}
		archive, err := s.archiveA()
		if err != nil {
			return r, err
		}
		tar, err := s.tarA()
		if err != nil {
			return r, err
		}
		out := s.out
		if dir != "" {
			size, err := sizeOf(in)
			if err != nil {
				return r, err
			}
			if free := freeBytes(dir); free < 2*size {
				return r, fmt.Errorf("%w: %s has no room for %s", errSkipped, dir, mib(2*size))
			}
			if out, err = os.MkdirTemp(dir, "holdall-bench-"); err != nil {
				return r, fmt.Errorf("%w: %s cannot be written to", errSkipped, dir)
			}
			defer func() { err = errors.Join(err, os.RemoveAll(out)) }()
		}
		ours, theirs := filepath.Join(out, "extracted"), filepath.Join(out, peer)
		c := contest{
			ours:    command{{s.bin, "extract", "-q", archive, "-C", ours}},
			outputs: []string{ours, theirs},
			check:   func(counter) error { return holdsAll(ours, in) },
		}
		if peer == "tar" {
			c.inputs = []string{archive}
			if tar != "" {
				c.inputs = append(c.inputs, tar)
			}
			c.goals = []goal{wallRatio(1), cpuRatio(1.1)}
			c.against(command{{"mkdir", theirs}, {"tar", "xf", tar, "-C", theirs}})
		} else {
			c.inputs = []string{archive, in}
			c.against(command{{"cp", "-r", in, theirs}})
		}
		return s.hold(c)
	}
}

func oneOfMany(s *suite) (row, error) {
	archive, err := s.manyRows()
	if err != nil {
		return row{}, err
	}
	name, out := rowName(s.sizes.rows/2), filepath.Join(s.out, "one.txt")
	c := contest{
		ours:   command{{s.bin, "cat", archive, name}},
		inputs: []string{archive}, outputs: []string{out},
		goals: []goal{cpuUnder(150 * time.Millisecond), rssUnder(40 << 20)},
		check: prints(func(p counter) int64 { return p.bytes }, rowSize, "bytes"),
	}
	c.againstGocaf(s, "extract", archive, name, out)
	return s.hold(c)
}

func listMany(asJSON bool) func(*suite) (row, error) {
	return func(s *suite) (row, error) {
		archive, err := s.manyRows()
		if err != nil {
			return row{}, err
		}
		c := contest{
			ours: command{{s.bin, "ls", "-R", archive}}, inputs: []string{archive},
			check: prints(lines, int64(s.sizes.rows), "lines"),
		}
		if asJSON {
			c.ours[0] = append(c.ours[0], "--json")
			c.goals = []goal{wallUnder(350 * time.Millisecond), rssUnder(64 << 20)}
			return s.hold(c)
		}
		c.goals = []goal{wallUnder(500 * time.Millisecond)}
		c.againstGocaf(s, "list", archive)
		return s.hold(c)
	}
}

func lines(p counter) int64 { return p.lines }

// prints checks how much a command printed.
func prints(much func(counter) int64, want int64, what string) func(counter) error {
	return func(p counter) error {
		if got := much(p); got != want {
			return fmt.Errorf("printed %d %s, expected %d", got, what, want)
		}
		return nil
	}
}

func listA(s *suite) (row, error) {
	return s.contestOfA(contest{check: prints(lines, int64(s.sizes.aFiles), "lines")},
		[]string{"ls", "-R"}, []string{"tf"}, "", "")
}

func oneOfA(s *suite) (row, error) {
	name, err := s.nameInA()
	if err != nil {
		return row{}, err
	}
	return s.contestOfA(contest{}, []string{"cat"}, []string{"xOf"}, name, "./"+name)
}

// nameInA returns the name of a file in the middle of A.
func (s *suite) nameInA() (string, error) {
	in, err := s.setA()
	if err != nil {
		return "", err
	}
	n := s.sizes.aFiles / 2
	found, err := filepath.Glob(filepath.Join(in, "*", "*", "*", fmt.Sprintf("file_%06d.dat", n)))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("%s: %d files are number %d: %w", in, len(found), n, err)
	}
	name, err := filepath.Rel(in, found[0])
	return filepath.ToSlash(name), err
}

// contestOfA compares holdall with A.caf, and tar with A.tar.
func (s *suite) contestOfA(c contest, ours, tars []string, name, tarName string) (row, error) {
	archive, err := s.archiveA()
	if err != nil {
		return row{}, err
	}
	tar, err := s.tarA()
	if err != nil {
		return row{}, err
	}
	c.ours = command{append(append([]string{s.bin}, ours...), archive)}
	peer := command{append(append([]string{"tar"}, tars...), tar)}
	if name != "" {
		c.ours[0], peer[0] = append(c.ours[0], name), append(peer[0], tarName)
	}
	c.inputs = []string{archive}
	if tar != "" {
		c.inputs = append(c.inputs, tar)
	}
	c.against(peer)
	return s.hold(c)
}

func convertA(s *suite) (row, error) {
	archive, err := s.archiveA()
	if err != nil {
		return row{}, err
	}
	copied, converted := filepath.Join(s.out, "copied.caf"), filepath.Join(s.out, "converted.caf")
	c := contest{
		ours:   command{{s.bin, "convert", "-q", "--no-sync", archive, converted}},
		inputs: []string{archive}, outputs: []string{copied, converted},
		check: func(counter) error { return holdsAll(converted, archive) },
		goals: []goal{wallRatio(1.2)},
	}
	c.against(command{{"cp", archive, copied}})
	return s.hold(c)
}

// start measures how long it takes to list an archive of three files.
func start(cold bool) func(*suite) (row, error) {
	return func(s *suite) (row, error) {
		if cold && !canEvict {
			return row{}, fmt.Errorf("%w: nothing can be dropped from this system's cache", errSkipped)
		}
		in := filepath.Join(s.out, "three")
		if err := os.MkdirAll(in, 0o777); err != nil {
			return row{}, err
		}
		for _, name := range []string{"a.txt", "b.txt", "c.txt"} {
			if err := os.WriteFile(filepath.Join(in, name), []byte(name), 0o666); err != nil {
				return row{}, err
			}
		}
		archive, err := s.fresh("three.caf", s.bin, "pack", "-q", "-o", outputHere, in)
		if err != nil {
			return row{}, err
		}
		c := contest{ours: command{{s.bin, "ls", archive}}, inputs: []string{archive}, cold: cold, check: prints(lines, 3, "lines"), goals: []goal{wallUnder(4 * time.Millisecond), rssUnder(14 << 20)}}
		if cold {
			c.goals = []goal{wallUnder(20 * time.Millisecond)}
		}
		tar := filepath.Join(s.out, "three.tar")
		if c.against(command{{"tar", "tf", tar}}); c.peer != nil {
			if _, err := s.fresh("three.tar", "tar", "cf", outputHere, "-C", in, "."); err != nil {
				return row{}, err
			}
			c.inputs = append(c.inputs, tar)
		}
		return s.hold(c)
	}
}
