package rvn

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"path"
	"slices"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/rvn/internal/ucl"
)

// builder builds everything before the contents.
type builder struct {
	c                  compressor
	recs, tails, links []byte // tails are names without their directories
	groups, owners     people
	dirs               map[string]int  // numbers of directories by path
	implied            map[string]int  // records of directories that are only implied
	files              map[string]bool // paths of everything except directories
	flat               int64           // size of the content
}

func newBuilder() builder {
	return builder{dirs: map[string]int{}, implied: map[string]int{}, files: map[string]bool{}}
}

// people is a table of owners or groups, in order of first use.
type people struct {
	names []string
	ids   map[string]int
}

// id returns the number of a name, and false if there are no more numbers.
func (p *people) id(name string) (int, bool) {
	if i, ok := p.ids[name]; ok {
		return i, true
	}
	if len(p.names) == maxPeople {
		return 0, false
	}
	if p.ids == nil {
		p.ids = map[string]int{}
	}
	p.ids[name] = len(p.names)
	p.names = append(p.names, name)
	return len(p.names) - 1, true
}

func (p *people) append(b []byte) []byte {
	for _, n := range p.names {
		var field [blockLen]byte
		copy(field[:], n)
		b = append(b, field[:]...)
	}
	return b
}

// nobody is the owner of entries without one, because packages are installed by root.
const nobody = "root"

// parentOf returns the number of the directory that contains e. If it has not been added, it is
// created.
func (b *builder) parentOf(e format.Entry) (int, error) {
	dir := path.Dir(e.Name)
	if dir == "." {
		return 0, nil
	}
	if id, ok := b.dirs[dir]; ok {
		return id, nil
	}
	if b.files[dir] {
		return 0, kit.Refuse(e.Name, "name: %q is not a directory", format.Escape(dir))
	}
	up := format.Entry{Name: dir, Kind: format.Dir, Mode: 0o755, HasMode: true}
	parent, err := b.parentOf(up)
	if err != nil {
		return 0, err
	}
	id, err := b.newDir(up, parent)
	if err == nil {
		b.implied[dir] = len(b.recs)/recordLen - 1
	}
	return id, err
}

func (b *builder) addDir(e format.Entry) error {
	if i, ok := b.implied[e.Name]; ok { // its contents came first
		old := record(b.recs[i*recordLen:][:recordLen])
		copy(old, b.record(e, "", old.parent(), old.dirID()))
		delete(b.implied, e.Name)
		return nil
	}
	if _, again := b.dirs[e.Name]; again {
		return kit.Refuse(e.Name, "directory: duplicate name")
	}
	parent, err := b.parentOf(e)
	if err == nil {
		_, err = b.newDir(e, parent)
	}
	return err
}

func (b *builder) newDir(e format.Entry, parent int) (int, error) {
	id := len(b.dirs) + 1
	if id > maxDirs {
		return 0, kit.Refuse(e.Name, "directory: more than %d", maxDirs)
	}
	b.dirs[e.Name] = id
	b.addRecord(e, "", parent, id)
	return id, nil
}

func (b *builder) record(e format.Entry, digest string, parent, id int) record {
	r, o := make(record, recordLen), binary.LittleEndian
	copy(r, digest)
	if !e.ModTime.IsZero() {
		o.PutUint64(r[32:], uint64(e.ModTime.Unix()))
		o.PutUint32(r[40:], uint32(e.ModTime.Nanosecond()))
	}
	owner, _ := b.owners.id(cmp.Or(e.Owner, nobody))
	group, _ := b.groups.id(cmp.Or(e.Group, nobody))
	r[44], r[45], r[46] = byte(owner), byte(group), byte(slices.Index(kinds[:], e.Kind))
	if e.Kind == format.File {
		r[47] = byte(e.Size >> 32)
		o.PutUint32(r[48:], uint32(e.Size))
	}
	mode := uint16(kit.UnixMode(e.Mode))
	if !e.HasMode {
		mode = cmp.Or(map[format.Kind]uint16{format.Dir: 0o755, format.Symlink: 0o777}[e.Kind], 0o644)
	}
	o.PutUint16(r[52:], mode)
	if e.Kind == format.Symlink || e.Kind == format.HardLink {
		o.PutUint16(r[54:], uint16(len(e.Link)))
	}
	o.PutUint16(r[56:], uint16(parent))
	o.PutUint16(r[58:], uint16(id))
	r[60] = byte(len(path.Base(e.Name)))
	return r
}

func (b *builder) addRecord(e format.Entry, digest string, parent, id int) {
	r := b.record(e, digest, parent, id)
	b.recs = append(b.recs, r...)
	b.tails = append(b.tails, path.Base(e.Name)...)
	b.links = append(b.links, e.Link[:r.linkLen()]...)
}

// prefix returns header, metadata and index for contents of the given compressed size.
func (b *builder) prefix(meta []ucl.Member, comp int64, table []section) ([]byte, error) {
	text, err := appendMetadata(meta, b.flat)
	if err != nil {
		return nil, err
	}
	h := header{Magic: magic, Version: version, MetaFlat: uint32(len(text)), ArcFlat: uint64(b.flat), ArcComp: uint32(comp)}
	metaComp, err := b.c.frame(nil, text)
	if err != nil {
		return nil, err
	}
	index, err := b.index(&h, table)
	if err != nil {
		return nil, err
	}
	metaComp = withChecksum(metaComp, text)
	h.MetaComp, h.IndexComp = uint32(len(metaComp)), uint32(len(index))
	return append(append(h.append(nil), metaComp...), index...), nil
}

// index returns block 3, and sets its counts in h.
func (b *builder) index(h *header, table []section) ([]byte, error) {
	n := len(b.recs) / recordLen
	if n == 0 {
		return nil, nil // without records, the reference writes and reads no block 3
	}
	if len(b.tails) > math.MaxUint32-blockLen || len(b.links) > math.MaxUint32-blockLen {
		return nil, errors.New("index: names or link targets are more than 4 GiB")
	}
	links, names := pad(b.links), pad(b.tails)
	h.Groups, h.Owners, h.Files = uint16(len(b.groups.names)), uint16(len(b.owners.names)), uint32(n)
	h.LinkBlocks, h.NameBlocks = uint32(len(links)/blockLen), uint32(len(names)/blockLen)
	if h.flatByCounts() > math.MaxUint32 {
		return nil, errors.New("index: more than 4 GiB")
	}
	h.IndexFlat = uint32(h.flatByCounts())
	flat := bytes.Join([][]byte{b.groups.append(nil), b.owners.append(nil), links, b.recs, names}, nil)
	out, err := b.c.frame(nil, flat)
	if err != nil {
		return nil, err
	}
	out = withChecksum(out, flat)
	if table != nil {
		out = appendTable(out, table)
	}
	// xrvn tries to decode a large index that compresses well on its stack, which fails. If the
	// index is longer, it does not try.
	if len(flat) > maxStackIndex && len(out) <= singleCall {
		n := singleCall + 1 - len(out)
		out = append(appendSkippable(out, tableFrame, n), make([]byte, n)...)
	}
	if len(out) > math.MaxUint32 {
		return nil, errors.New("index: more than 4 GiB compressed")
	}
	return out, nil
}
