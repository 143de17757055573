package rvn

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
)

// index is the decoded block 3: groups, owners, link targets, records, names. It is kept
// unchanged; entries are made on request.
type index struct {
	volume string
	groups []byte
	owners []byte
	links  []byte
	recs   []byte
	names  []byte

	paths  string   // of all records, concatenated
	pathAt []uint32 // ends of the paths
	linkAt []uint32 // ends of the link targets
	starts []int64  // where the contents of every stride-th record begin
	total  int64    // size of the content
	end    int      // the first record whose content would end beyond maxContent

	// lost are records without a place in the tree, and why.
	lost map[int]lostWhy
	// late are records that precede their directory.
	late map[int]bool

	namesUsed, linksUsed int // bytes
}

type lostWhy uint8

const (
	parentUnknown lostWhy = iota + 1
	parentLost
	nameRange
	linkRange
	pathLimit
)

const (
	// stride is the interval of index.starts, because adding that many sizes is faster than
	// reading memory.
	stride = 64
	// maxPath is the longest path that is made from nested directories. A tree of 65,535 of them
	// could otherwise take terabytes.
	maxPath = 32 << 10
	// maxContent is the largest accepted offset.
	maxContent = 1 << 60
)

// errPaths means that paths take more memory than the limit.
type errPaths struct{ limit int64 }

func (e errPaths) Error() string {
	return fmt.Sprintf("the paths of all files are longer than the limit of %d bytes", e.limit)
}

// parseIndex parses an index whose length matches the counts of h.
func parseIndex(volume string, h header, flat []byte, limit int64) (*index, error) {
	if want := h.flatByCounts(); int64(len(flat)) != want {
		return nil, fmt.Errorf("the counts in the header need an index of %d bytes, found %d", want, len(flat))
	}
	x := &index{volume: volume, lost: map[int]lostWhy{}, late: map[int]bool{}}
	rest := flat
	take := func(n int64) []byte {
		b := rest[:n:n]
		rest = rest[n:]
		return b
	}
	x.groups = take(blockLen * int64(h.Groups))
	x.owners = take(blockLen * int64(h.Owners))
	x.links = take(blockLen * int64(h.LinkBlocks))
	x.recs = take(recordLen * int64(h.Files))
	x.names = take(blockLen * int64(h.NameBlocks))
	return x, x.resolve(min(limit, 1<<32-1))
}

func (x *index) Len() int { return len(x.recs) / recordLen }

func (x *index) rec(i int) record { return record(x.recs[i*recordLen:][:recordLen]) }

func (x *index) Name(i int) string { return x.paths[before(x.pathAt, i):x.pathAt[i]] }

func before(ends []uint32, i int) uint32 {
	if i == 0 {
		return 0
	}
	return ends[i-1]
}

func (x *index) link(i int) string { return string(x.links[before(x.linkAt, i):x.linkAt[i]]) }

// resolve makes paths from names and parents. As in the reference, directories are numbered in
// order of appearance, whatever their ids are, unless these are 0.
func (x *index) resolve(limit int64) error {
	n := x.Len()
	x.end = n
	x.pathAt, x.linkAt = make([]uint32, n), make([]uint32, n)
	x.starts = make([]int64, 0, n/stride+1)
	nameEnd := make([]uint32, n)
	var dirs []int32 // records by number of the directory, from 1
	names, links := 0, 0
	for i := range n {
		r := x.rec(i)
		names = min(names+r.nameLen(), len(x.names)+1)
		links = min(links+r.linkLen(), len(x.links)+1)
		if i%stride == 0 {
			x.starts = append(x.starts, x.total)
		}
		if x.total += r.size(); x.total > maxContent && i < x.end {
			x.end = i
		}
		x.total = min(x.total, maxContent+maxFileSize)
		if names > len(x.names) && r.nameLen() > 0 {
			x.lose(i, nameRange)
		} else if links > len(x.links) && r.linkLen() > 0 {
			x.lose(i, linkRange)
		}
		nameEnd[i], x.linkAt[i] = uint32(min(names, len(x.names))), uint32(min(links, len(x.links)))
		if r.dirID() > 0 {
			dirs = append(dirs, int32(i))
		}
	}
	x.namesUsed, x.linksUsed = min(names, len(x.names)), min(links, len(x.links))

	var paths strings.Builder
	paths.Grow(int(min(int64(len(x.names))*4, limit)))
	// The paths so far can be read, because paths is only appended to.
	at := func(i int32) string { return paths.String()[before(x.pathAt, int(i)):x.pathAt[i]] }
	seen := 0 // directories so far
	for i := range n {
		r := x.rec(i)
		name := x.names[before(nameEnd, i):nameEnd[i]]
		parent, dir := r.parent(), ""
		switch {
		case parent == 0:
		case parent > len(dirs) || int(dirs[parent-1]) == i:
			x.lose(i, parentUnknown)
		case parent > seen:
			// Its directory comes later. A file can wait for it, but a directory could be in
			// itself.
			if r.dirID() > 0 {
				x.lose(i, parentUnknown)
			} else {
				x.late[i] = true
			}
		default:
			dir = at(dirs[parent-1])
			if x.lost[int(dirs[parent-1])] != 0 {
				x.lose(i, parentLost)
			}
		}
		if len(dir)+1+len(name) > maxPath {
			x.lose(i, pathLimit)
		}
		if x.late[i] {
			var ok bool
			if dir, ok = x.climb(dirs, nameEnd, parent); !ok {
				x.lose(i, parentUnknown)
			}
		}
		if why := x.lost[i]; why == parentUnknown || why == pathLimit {
			dir = fmt.Sprintf("?%d", parent)
		}
		if dir != "" {
			paths.WriteString(dir)
			paths.WriteByte('/')
		}
		paths.Write(name)
		if int64(paths.Len()) > limit {
			return errPaths{limit}
		}
		x.pathAt[i] = uint32(paths.Len())
		if r.dirID() > 0 {
			seen++
		}
	}
	x.paths = paths.String()
	return nil
}

// climb makes the path of a directory that comes later from its parents, each of which must
// precede its contents.
func (x *index) climb(dirs []int32, nameEnd []uint32, parent int) (string, bool) {
	var elems []string
	length := 0
	for parent > 0 {
		i := int(dirs[parent-1])
		name := string(x.names[before(nameEnd, i):nameEnd[i]])
		elems = append(elems, name)
		if length += len(name) + 1; length > maxPath {
			return "", false
		}
		next := x.rec(i).parent()
		if next >= parent {
			return "", false
		}
		parent = next
	}
	slices.Reverse(elems)
	return strings.Join(elems, "/"), true
}

// lose records the first thing that is wrong with a record's place.
func (x *index) lose(i int, why lostWhy) { x.lost[i] = cmp.Or(x.lost[i], why) }

// start returns where the bytes of a record begin in the contents.
func (x *index) start(i int) int64 {
	k := i / stride
	off := x.starts[k]
	for j := k * stride; j < i; j++ {
		off += x.rec(j).size()
	}
	return off
}

// person returns a name from a table of owners or groups.
func person(table []byte, i int) (string, bool) {
	if (i+1)*blockLen > len(table) {
		return "", false
	}
	name, _, _ := bytes.Cut(table[i*blockLen:][:blockLen], []byte{0})
	return string(name), true
}

var kinds = [typeCount]format.Kind{typeDir: format.Dir, typeFile: format.File, typeSymlink: format.Symlink, typeHardLink: format.HardLink, typeFifo: format.Fifo}

func (x *index) Entry(i int) format.Entry {
	r := x.rec(i)
	e := format.Entry{Name: x.Name(i), Size: r.size(), HasMode: true, ModTime: r.time(), Fault: x.fault(i, r), Ref: i}
	if k := r.kind(); k < typeCount {
		e.Kind = kinds[k]
	}
	e.Mode = kit.ModeOfUnix(uint32(r.mode()))
	e.Owner, _ = person(x.owners, r.owner())
	e.Group, _ = person(x.groups, r.group())
	if k := r.kind(); k == typeSymlink || k == typeHardLink {
		e.Link = x.link(i)
	}
	if k := r.kind(); (k == typeFile || k == typeHardLink) && r.hasDigest() {
		e.Digest = format.Digest{Algo: "blake3", Sum: string(r.digest())}
	}
	return e
}

// farTime is the first second of the year 10000. Later times are damage, and have no text form.
const farTime = 253402300800

func (r record) time() time.Time {
	s, ns := int64(r.seconds()), int64(r.nanos())
	if ns >= 1e9 {
		ns = 0
	}
	if s >= farTime || s < -62135596800 {
		return time.Time{}
	}
	return time.Unix(s, ns).UTC()
}

// fault returns why the content of a record cannot be read or its place is not known.
func (x *index) fault(i int, r record) *format.Problem {
	code, class, msg := format.Code(""), "", ""
	switch x.lost[i] {
	case parentUnknown:
		code, class, msg = format.Dangling, "parent", fmt.Sprintf("directory %d does not exist", r.parent())
	case parentLost:
		code, class, msg = format.Dangling, "parent", "its directory cannot be resolved"
	case nameRange:
		code, class, msg = format.OutOfBounds, "name-range", fmt.Sprintf("its name of %d bytes ends after the last name", r.nameLen())
	case linkRange:
		code, class, msg = format.OutOfBounds, "link-range", fmt.Sprintf("its link target of %d bytes ends after the last target", r.linkLen())
	case pathLimit:
		code, class, msg = format.Limit, "path-length", fmt.Sprintf("its path is longer than %d bytes", maxPath)
	default:
		switch {
		case i >= x.end && r.size() > 0:
			code, class, msg = format.OutOfBounds, "content-range", "the sizes of the files before it exceed the maximum"
		case r.kind() < typeCount:
			return nil
		default:
			code, class, msg = format.Unsupported, "record-type", fmt.Sprintf("unknown type %d", r.kind())
		}
	}
	return &format.Problem{Code: code, Class: class, Severity: format.Error, Volume: x.volume, Off: -1, Entry: x.Name(i), HasEntry: true, Message: msg}
}

// plausible reports whether an index looks valid. This distinguishes the right counts from others
// with the same total length.
func (x *index) plausible() bool {
	if len(x.lost) > 0 || len(x.names)-x.namesUsed >= blockLen || len(x.links)-x.linksUsed >= blockLen ||
		!zeros(x.names[x.namesUsed:]) || !zeros(x.links[x.linksUsed:]) || !isPeople(x.groups) || !isPeople(x.owners) {
		return false
	}
	for i := range x.Len() {
		r := x.rec(i)
		if r.kind() >= typeCount || r.nanos() >= 1e9 || r.mode() > 0o7777 || r.nameLen() == 0 ||
			(r.owner()+1)*blockLen > len(x.owners) || (r.group()+1)*blockLen > len(x.groups) ||
			(r.kind() == typeDir) != (r.dirID() > 0) || strings.IndexByte(x.Name(i), 0) >= 0 {
			return false
		}
	}
	return true
}

func zeros(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// isPeople reports whether b consists of names padded with zeros.
func isPeople(b []byte) bool {
	for ; len(b) > 0; b = b[blockLen:] {
		name := bytes.TrimRight(b[:blockLen], "\x00")
		if len(name) == 0 || bytes.IndexByte(name, 0) >= 0 {
			return false
		}
	}
	return true
}
