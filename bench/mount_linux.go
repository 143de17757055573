package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/store/local"
)

func init() {
	comparisons = append(comparisons,
		comparison{"mount: one large file, the archive in the cache", mountLarge(warmArchive, 1.4)},
		comparison{"mount: one large file, nothing in the cache", mountLarge(coldArchive, 1.25)},
		comparison{"mount: one large file, once more", mountLarge(warmMount, 1.4)},
		comparison{"mount: one large file, against a loopback of it", mountLoopback(false, 1/0.7)},
		comparison{"mount: one large file that was compared, against a loopback of it", mountLoopback(true, 1/0.9)},
		comparison{"mount: random reads of 4 KiB, against a loopback of plain files", mountRandom(loopbackPeer, 1.5)},
		comparison{"mount: random reads of 4 KiB, against squashfuse", mountRandom(squashPeer, 1)},
		comparison{"mount: random reads of 4 KiB of a tar, against ratarmount", mountRandom(ratarPeer, 1.0/3)},
		comparison{"mount: a tar for the first time, against ratarmount", mountFirst},
		comparison{"mount: ls -l of 100,000", mountList},
		comparison{"mount: find of the names of A, against squashfuse", mountFind()},
		comparison{"mount: find by size of A, against squashfuse", mountFind("-size", "+1")},
		comparison{"mount: find by size of many members, twice", mountMemory},
		comparison{"mount: three large files over HTTP at once, 20 ms away", mountThreeFar},
		comparison{"mount: ready, by an index of many rows", mountReady},
		comparison{"mount: a catalogue of many rows in a thousand archives", mountCatalog},
	)
	verbs[loopbackVerb] = loopback
}

// loopbackVerb makes this program mount a folder with the same library as holdall.
const loopbackVerb = "loopback"

func loopback(args []string) error {
	root, err := fs.NewLoopbackRoot(args[0])
	if err != nil {
		return err
	}
	root = &askedNode{root.(*fs.LoopbackNode)}
	hour := time.Hour
	server, err := fs.Mount(args[1], root, &fs.Options{
		AttrTimeout: &hour, EntryTimeout: &hour, NegativeTimeout: &hour,
		MountOptions: fuse.MountOptions{DirectMount: true, MaxWrite: 512 << 10},
	})
	if err != nil {
		return err
	}
	fmt.Println("mounted")
	server.Wait()
	return nil
}

// An askedNode makes the system request each read from this process, as it must where a file is
// only a part of a file below. The system cannot then read the file below directly.
type askedNode struct{ *fs.LoopbackNode }

func (n *askedNode) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &askedNode{ops.(*fs.LoopbackNode)}
}

func (n *askedNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	h, f, errno := n.LoopbackNode.Open(ctx, flags)
	if errno != 0 {
		return nil, 0, errno
	}
	return askedFile{h.(*fs.LoopbackFile)}, f, 0
}

type askedFile struct{ f *fs.LoopbackFile }

func (f askedFile) Read(ctx context.Context, buf []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	return f.f.Read(ctx, buf, off)
}

func (f askedFile) Release(ctx context.Context) syscall.Errno { return f.f.Release(ctx) }

// What the cache contains when a large file is read.
type cached int

const (
	warmArchive cached = iota
	coldArchive
	warmMount
)

// readThrough reads a file front to back, 1 MiB at a time.
func readThrough(path string) (figures, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return figures{}, 0, err
	}
	defer f.Close()
	buf := make([]byte, 1<<20)
	start := time.Now()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, buf)
	return figures{wall: time.Since(start)}, n, err
}

// readMounted mounts with a program, and reads the large file in through the mount. If again is not
// nil, it is then called with the file's path, and the next read is the one that counts.
func (s *suite) readMounted(in string, again func(path string) error, args ...string) (figures, error) {
	m, err := s.mount(args...)
	if err != nil {
		return figures{}, err
	}
	p := filepath.Join(m.dir, filepath.Base(in))
	took, n, err := readThrough(p)
	if err == nil && again != nil {
		if err = again(p); err == nil {
			took, n, err = readThrough(p)
		}
	}
	if err == nil && n != s.sizes.big {
		err = fmt.Errorf("%s: read %d bytes, expected %d", p, n, s.sizes.big)
	}
	return took, errors.Join(err, m.stop())
}

// mountLarge reads the one file of an archive through a mount. The peer reads the archive itself.
func mountLarge(which cached, most float64) func(*suite) (row, error) {
	return func(s *suite) (r row, err error) {
		in, archive, err := s.bigArchive()
		if err != nil {
			return r, err
		}
		prepare := warm
		if which == coldArchive {
			syncDisks()
			prepare = evict
		}
		for range s.n {
			if err := prepare(archive); err != nil {
				return r, err
			}
			took, _, err := readThrough(archive)
			if err != nil {
				return r, err
			}
			r.peerTook = r.peerTook.best(took)
			if err := prepare(archive); err != nil {
				return r, err
			}
			var again func(string) error
			if which == warmMount {
				again = func(string) error { return nil }
			}
			if took, err = s.readMounted(in, again, s.bin, "mount", archive); err != nil {
				return r, err
			}
			r.oursTook = r.oursTook.best(took)
		}
		speed := func(f *figures) float64 { return float64(s.sizes.big) / (1 << 20) / f.wall.Seconds() }
		r.peer, r.ours = "reading the archive, 1 MiB at a time", "holdall mount, and reading the file"
		r.notes = append(r.notes, fmt.Sprintf("%.0f and %.0f MiB/s", speed(r.peerTook), speed(r.oursTook)))
		r.judge([]goal{wallRatio(most)}, s.quick)
		return r, nil
	}
}

// mountLoopback reads the one file of an archive through a mount. The peer reads the file itself
// through go-fuse's loopback. It measures the first read, which compares the digest, or a later
// one. The archive is in the system's cache, but no data of the mounts.
func mountLoopback(again bool, most float64) func(*suite) (row, error) {
	return func(s *suite) (r row, err error) {
		in, archive, err := s.bigArchive()
		if err != nil {
			return r, err
		}
		alone := filepath.Join(s.out, "alone")
		if err := os.MkdirAll(alone, 0o777); err != nil {
			return r, err
		}
		if err := os.Link(in, filepath.Join(alone, filepath.Base(in))); err != nil && !errors.Is(err, os.ErrExist) {
			return r, err
		}
		var before func(string) error
		if again {
			before = evict
		}
		for range 2 * s.n {
			for _, side := range []struct {
				args []string
				took **figures
			}{{[]string{s.self, loopbackVerb, alone}, &r.peerTook}, {[]string{s.bin, "mount", archive}, &r.oursTook}} {
				if err := errors.Join(warm(in), warm(archive)); err != nil {
					return r, err
				}
				took, err := s.readMounted(in, before, side.args...)
				if err != nil {
					return r, err
				}
				*side.took = (*side.took).best(took)
			}
		}
		speed := func(f *figures) float64 { return float64(s.sizes.big) / (1 << 20) / f.wall.Seconds() }
		r.peer, r.ours = "go-fuse's loopback of the file, 1 MiB at a time", "holdall mount, and reading the file"
		r.notes = append(r.notes, fmt.Sprintf("%.0f and %.0f MiB/s", speed(r.peerTook), speed(r.oursTook)))
		r.judge([]goal{wallRatio(most)}, s.quick)
		return r, nil
	}
}

// A somewhere is a place in a file of S where 4 KiB are read.
type somewhere struct {
	name string
	off  int64
}

func (s *suite) filesOfS() (all []somewhere) {
	rnd := rand.New(rand.NewPCG(seed, 4))
	for range s.count(10_000) {
		i := rnd.IntN(s.sizes.sFiles / 2)
		all = append(all, somewhere{fmt.Sprintf("dir_%03d/file_%05d.dat", i%s.sizes.sFolders, i), int64(rnd.IntN(s.sizes.sBytes - 4096))})
	}
	return all
}

// readRandomly opens, reads and closes each file, and returns the sorted times.
func readRandomly(dir string, all []somewhere) (took []time.Duration, sum uint64, err error) {
	buf := make([]byte, 4096)
	for _, x := range all {
		start := time.Now()
		f, err := os.Open(filepath.Join(dir, x.name))
		if err != nil {
			return nil, 0, err
		}
		_, err = f.ReadAt(buf, x.off)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, 0, err
		}
		took = append(took, time.Since(start))
		for _, b := range buf {
			sum = sum*31 + uint64(b)
		}
	}
	slices.Sort(took)
	return took, sum, nil
}

// A mountPeer mounts the files of S from an archive of its own format, which holdall uses too.
type mountPeer struct {
	title, archive string
	mount          func(s *suite, in, archive string) (*mountpoint, error)
}

var (
	loopbackPeer = mountPeer{"go-fuse's loopback of plain files", "S.caf", func(s *suite, in, _ string) (*mountpoint, error) {
		return s.mount(s.self, loopbackVerb, in)
	}}
	squashPeer = mountPeer{"squashfuse", "S.caf", func(s *suite, in, _ string) (*mountpoint, error) { return mountSquash(s, in, "S") }}
	ratarPeer  = mountPeer{"ratarmount", "S.tar", mountRatar}
)

func mountSquash(s *suite, in, name string) (*mountpoint, error) {
	for _, tool := range []string{"mksquashfs", "squashfuse"} {
		if !have(tool) {
			return nil, fmt.Errorf("%w: %s is not on this machine", errSkipped, tool)
		}
	}
	image, err := s.fresh(name+".squashfs", "mksquashfs", in, outputHere, "-noI", "-noD", "-noF", "-noX", "-no-progress", "-quiet")
	if err != nil {
		return nil, err
	}
	return s.mountByShell(`exec squashfuse -f "$0" "$1"`, image)
}

func mountRatar(s *suite, _, archive string) (*mountpoint, error) {
	if !have(ratarmount) {
		return nil, fmt.Errorf("%w: %s is not on this machine", errSkipped, ratarmount)
	}
	return s.mountByShell(`exec "`+ratarmount+`" -f --index-file :memory: "$0" "$1" >/dev/null 2>&1`, archive)
}

// mountByShell mounts with a program that does not report when it is ready.
func (s *suite) mountByShell(script, what string) (*mountpoint, error) {
	return s.mount("sh", "-c", `before=$(stat -c %d "$1")
while [ "$(stat -c %d "$1" 2>/dev/null || echo $before)" = "$before" ]; do sleep 0.005; done && echo mounted &
`+script, what)
}

// mountRandom reads small pieces of many files at random.
func mountRandom(peer mountPeer, most float64) func(*suite) (row, error) {
	return func(s *suite) (r row, err error) {
		in, err := s.setS()
		if err != nil {
			return r, err
		}
		pack := []string{s.bin, "pack", "-q", "--no-sync", "-o", outputHere, in}
		archive, err := s.fresh(peer.archive, pack...)
		if err != nil {
			return r, err
		}
		for _, p := range []string{in, archive} {
			if err := warm(p); err != nil {
				return r, err
			}
		}
		all := s.filesOfS()
		var late [2]time.Duration
		var sums [2]uint64
		for range s.n {
			for i, mount := range []func() (*mountpoint, error){
				func() (*mountpoint, error) { return peer.mount(s, in, archive) },
				func() (*mountpoint, error) { return s.mount(s.bin, "mount", archive) },
			} {
				m, err := mount()
				if err != nil {
					return r, err
				}
				took, sum, err := readRandomly(m.dir, all)
				if err := errors.Join(err, m.stop()); err != nil {
					return r, err
				}
				side := []**figures{&r.peerTook, &r.oursTook}[i]
				*side = (*side).best(figures{wall: took[len(took)/2]})
				if p99 := took[len(took)*99/100]; late[i] == 0 || p99 < late[i] {
					late[i] = p99
				}
				sums[i] = sum
			}
		}
		if sums[0] != sums[1] {
			return r, errors.New("the two do not read the same")
		}
		r.peer, r.ours = peer.title+": open, read 4 KiB, close; the one in the middle", "holdall mount "+peer.archive+": the same"
		r.notes = append(r.notes, fmt.Sprintf("99 of 100 take less than %v and %v", late[0], late[1]))
		r.judge([]goal{wallRatio(most)}, s.quick)
		return r, nil
	}
}

// mountFirst mounts a tar for which neither program has an index.
func mountFirst(s *suite) (r row, err error) {
	if !have(ratarmount) {
		return r, fmt.Errorf("%w: %s is not on this machine", errSkipped, ratarmount)
	}
	archive, err := s.tarA()
	if err != nil {
		return r, err
	}
	if archive == "" {
		return r, fmt.Errorf("%w: no tar on this machine", errSkipped)
	}
	if err := warm(archive); err != nil {
		return r, err
	}
	for range s.n {
		theirs, err := mountRatar(s, "", archive)
		if err != nil {
			return r, err
		}
		r.peerTook = r.peerTook.best(figures{wall: theirs.took})
		if err := theirs.stop(); err != nil {
			return r, err
		}
		ours, err := s.mount(s.bin, "mount", archive)
		if err != nil {
			return r, err
		}
		r.oursTook = r.oursTook.best(figures{wall: ours.took})
		if err := ours.stop(); err != nil {
			return r, err
		}
	}
	r.peer, r.ours = "ratarmount --index-file :memory: A.tar", "holdall mount A.tar"
	r.judge([]goal{wallRatio(0.1)}, s.quick)
	return r, nil
}

// mountList measures ls -l of one large folder that was just mounted.
func mountList(s *suite) (r row, err error) {
	n := s.count(100_000)
	in, err := s.have(fmt.Sprintf("L-%d.tar", n), func(path string) error { return flatTar(path, n) })
	if err != nil {
		return r, err
	}
	for range s.n {
		m, err := s.mount(s.bin, "mount", in)
		if err != nil {
			return r, err
		}
		var printed counter
		took, err := s.measure([]string{"ls", "-l", filepath.Join(m.dir, "d")}, &printed)
		if err := errors.Join(err, m.stop()); err != nil {
			return r, err
		}
		if printed.lines != int64(n)+1 {
			return r, fmt.Errorf("ls printed %d lines", printed.lines)
		}
		r.oursTook = r.oursTook.best(took)
	}
	r.ours = fmt.Sprintf("ls -l of %d files, once they are mounted", n)
	r.judge([]goal{wallUnder(2 * time.Second)}, s.quick)
	return r, nil
}

// mountFind walks the files of A in a new mount.
func mountFind(how ...string) func(*suite) (row, error) {
	return func(s *suite) (r row, err error) {
		in, err := s.setA()
		if err != nil {
			return r, err
		}
		archive, err := s.fresh("A.caf", s.bin, "pack", "-q", "--no-sync", "-o", outputHere, in)
		if err != nil {
			return r, err
		}
		var lines [2]int64
		for range s.n {
			for i, mount := range []func() (*mountpoint, error){
				func() (*mountpoint, error) { return mountSquash(s, in, "A") },
				func() (*mountpoint, error) { return s.mount(s.bin, "mount", archive) },
			} {
				m, err := mount()
				if err != nil {
					return r, err
				}
				var printed counter
				took, err := s.measure(append([]string{"find", m.dir}, how...), &printed)
				if err := errors.Join(err, m.stop()); err != nil {
					return r, err
				}
				side := []**figures{&r.peerTook, &r.oursTook}[i]
				*side = (*side).best(figures{wall: took.wall})
				lines[i] = printed.lines
			}
		}
		if lines[0] != lines[1] {
			return r, fmt.Errorf("find printed %d lines of squashfuse, %d of ours", lines[0], lines[1])
		}
		r.peer, r.ours = "find in a mount by squashfuse", "find in a mount by holdall"
		r.judge([]goal{wallRatio(1.1)}, s.quick)
		return r, nil
	}
}

// mountMemory measures the memory of a mount of a tar without an index: when it is ready, after two
// walks over all entries, and a minute later. The mount keeps an index meanwhile.
func mountMemory(s *suite) (r row, err error) {
	archive, err := s.manyMembers()
	if err != nil {
		return r, err
	}
	kept, err := os.MkdirTemp(s.out, "kept-")
	if err != nil {
		return r, err
	}
	m, err := s.mount("env", "HOLDALL_CACHE="+kept, s.bin, "mount", archive)
	if err != nil {
		return r, err
	}
	ready, _, err := m.rss()
	for range 300 {
		indexes, gerr := filepath.Glob(filepath.Join(kept, "index", "*.holdall"))
		if err = errors.Join(err, gerr); err != nil || len(indexes) > 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	for range 2 {
		took, ferr := s.measure([]string{"find", m.dir, "-size", "+1"}, nil)
		err = errors.Join(err, ferr)
		r.oursTook = r.oursTook.best(figures{wall: took.wall})
	}
	walked, _, werr := m.rss()
	time.Sleep(time.Minute)
	later, most, lerr := m.rss()
	if err := errors.Join(err, werr, lerr, m.stop()); err != nil {
		return r, err
	}
	r.oursTook.rss = later
	r.ours = "find DIR -size +1, twice, in one mount of " + filepath.Base(archive) + "; its memory a minute later"
	r.notes = append(r.notes, fmt.Sprintf("once it is ready %s, after the finds %s, at most %s", mib(ready), mib(walked), mib(most)))
	r.judge([]goal{memoryUnder("ready", ready, 64<<20), memoryUnder("after the finds", walked, 96<<20), rssUnder(84 << 20)}, s.quick)
	return r, nil
}

// mountThreeFar measures the peak memory of a mount of three remote archives while all are read.
func mountThreeFar(s *suite) (r row, err error) {
	_, archive, err := s.bigArchive()
	if err != nil {
		return r, err
	}
	dir, err := os.MkdirTemp(s.out, "web-")
	if err != nil {
		return r, err
	}
	v, err := serveSlowly(dir)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, v.stop()) }()
	args := []string{s.bin, "mount"}
	for i := range 3 {
		name := fmt.Sprintf("%d.caf", i)
		if err := os.Symlink(archive, filepath.Join(dir, name)); err != nil {
			return r, err
		}
		args = append(args, v.url+name)
	}
	for range s.n {
		m, err := s.mount(args...)
		if err != nil {
			return r, err
		}
		took, err := s.measure([]string{"sh", "-c", `for f in "$0"/*/*; do cat "$f" >/dev/null & done; wait`, m.dir}, nil)
		_, rss, rerr := m.rss()
		if err := errors.Join(err, rerr, m.stop()); err != nil {
			return r, err
		}
		r.oursTook = r.oursTook.best(figures{wall: took.wall, rss: rss})
	}
	r.ours = "cat of the file in each of three archives, in one mount"
	r.judge([]goal{rssUnder(120 << 20)}, s.quick)
	return r, nil
}

// flatTar writes a tar of n small files in one folder.
func flatTar(path string, n int) error {
	return writeFile(path, func(w io.Writer) error {
		var head [512]byte
		for i := range n {
			clear(head[:])
			copy(head[0:], fmt.Sprintf("d/file_%06d.txt", i))
			copy(head[100:], "0000644\x000001750\x000001750\x0000000000000\x00")
			copy(head[136:], fmt.Sprintf("%011o\x00        0", 1_700_000_000+i))
			copy(head[257:], "ustar\x0000")
			sum := 0
			for _, b := range head {
				sum += int(b)
			}
			copy(head[148:], fmt.Sprintf("%06o\x00 ", sum))
			if _, err := w.Write(head[:]); err != nil {
				return err
			}
		}
		_, err := w.Write(bytes.Repeat([]byte{0}, 1024))
		return err
	})
}

// mountReady measures how long it takes until a mounted archive of many rows can be used, and how
// much memory that needs.
func mountReady(s *suite) (r row, err error) {
	archive, index, err := s.indexedRows()
	if err != nil {
		return r, err
	}
	if err := warm(index); err != nil {
		return r, err
	}
	bare, err := s.measure([]string{s.bin, "version"}, nil)
	if err != nil {
		return r, err
	}
	for range 2 * s.n {
		m, err := s.mount(s.bin, "--index", index, "mount", archive)
		if err != nil {
			return r, err
		}
		_, rss, err := m.rss()
		if err := errors.Join(err, m.stop()); err != nil {
			return r, err
		}
		r.oursTook = r.oursTook.best(figures{wall: m.took, rss: rss})
	}
	r.ours = "holdall --index rows.holdall mount rows.caf, until it says so"
	r.notes = append(r.notes, "the bare program has "+mib(bare.rss))
	r.judge([]goal{wallUnder(20 * time.Millisecond), rssUnder(bare.rss + 32<<20)}, s.quick)
	return r, nil
}

// catalogArchives is how many archives the mounted catalogue has. Each is a folder.
const (
	catalogArchives = 1000
	manyCatalog     = "many" + book.Suffix
)

// manyCatalogued returns a catalogue of many rows. The archives do not exist, and are not needed.
func (s *suite) manyCatalogued() (db string, err error) {
	each := max(1, s.sizes.rows/catalogArchives)
	dir, err := s.have(fmt.Sprintf("catalogued-%d", catalogArchives*each), func(path string) error {
		if err := os.Mkdir(path, 0o777); err != nil {
			return err
		}
		b, err := book.Create(s.ctx, local.New(path), manyCatalog)
		if err != nil {
			return err
		}
		var all []catalog.Addition
		for k := range catalogArchives {
			all = append(all, catalog.Addition{Archive: catalog.Archive{Address: fmt.Sprintf("/nowhere/%04d.caf", k), Format: "caf", Size: int64(each), Version: "v"},
				Rows: func(yield func(catalog.Location, error) bool) {
					for i := range each {
						if !yield(catalog.Location{Path: fmt.Sprintf("set-%04d/file_%06d.txt", k, i), Size: 1, Raw: true, Off: int64(i)}, nil) {
							return
						}
					}
				}})
		}
		for some := range slices.Chunk(all, archivesAtOne) {
			if _, err := b.Add(s.ctx, some...); err != nil {
				return err
			}
		}
		return b.Close()
	})
	return filepath.Join(dir, manyCatalog), err
}

// mountCatalog measures how long it takes until a catalogue is mounted, and until one of its
// folders is listed.
func mountCatalog(s *suite) (r row, err error) {
	db, err := s.manyCatalogued()
	if err != nil {
		return r, err
	}
	var listed *figures
	for range s.n {
		m, err := s.mount(s.bin, "mount", "catalog:"+db)
		if err != nil {
			return r, err
		}
		var printed counter
		took, err := s.measure([]string{"ls", "-U", filepath.Join(m.dir, "set-0500")}, &printed)
		if err := errors.Join(err, m.stop()); err != nil {
			return r, err
		}
		if want := int64(max(1, s.sizes.rows/catalogArchives)); printed.lines != want {
			return r, fmt.Errorf("ls printed %d lines of %d", printed.lines, want)
		}
		r.oursTook, listed = r.oursTook.best(figures{wall: m.took}), listed.best(took)
	}
	r.ours = "holdall mount catalog:many.catalog, until it says so"
	r.notes = append(r.notes, fmt.Sprintf("ls of a folder %.0f ms", float64(listed.wall.Microseconds())/1000))
	r.judge([]goal{wallUnder(50 * time.Millisecond)}, s.quick)
	return r, nil
}
