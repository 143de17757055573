// Package lucene checks that the files of a Lucene index belong together, as far as this is
// possible without reading the terms: the newest commit, its segments, the files that these have,
// and what each file claims to be. It knows Lucene 4.0 to 4.7; Oak has 4.7.2.
//
// A commit is the file segments_N with the greatest N, in base 36. It lists segments. A segment _0
// has a file _0.si with its number of documents and the names of its files. These files may be
// packed in one, _0.cfs, whose table of contents is _0.cfe. Deletions are in _0_N.del. Numbers are
// big-endian, and texts have their length before them, 7 bits in each byte.
package lucene

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A Dir has the files of an index.
type Dir struct {
	Files map[string]int64 // their sizes, by name
	// Read returns n bytes of a file from off, which are within the file. If the error is
	// ErrUnread, the file counts as present, and nothing more is asked of it.
	Read func(ctx context.Context, name string, off, n int64) ([]byte, error)
}

// ErrUnread is returned for a file that cannot be read, if its reader has reported that.
var ErrUnread = errors.New("lucene: unread")

// A Commit is what the newest commit of an index has.
type Commit struct {
	Name     string // of its file
	Segments int
	Docs     int64    // with the deleted ones
	Deleted  int64    // documents
	Unused   []string // files that it does not need
	// Unknown is why the index was not checked: it is of a version that is not known.
	Unknown string
}

const (
	segmentsGen = "segments.gen"
	mostBytes   = 16 << 20 // of a file that is read whole
	mostHeader  = 160      // bytes that a header can have at most, in front of which may be a number
	magic       = 0x3fd76c17
	genFormat   = -2
	genBytes    = 4 + 8 + 8
	version46   = 1 // of segments_N
	sumBytes    = 8
)

// headers has the end of the name that is in the header of a file, by the file's extension.
// Formats have different names in different versions. Files with other extensions are not
// compared.
var headers = map[string]string{
	".si": "SegmentInfo", ".cfs": "CompoundFileWriterData", ".cfe": "CompoundFileWriterEntries", ".del": "BitVector", ".fnm": "FieldInfos",
	".fdt": "StoredFieldsData", ".fdx": "StoredFieldsIndex", ".tvx": "Index", ".doc": "PostingsWriterDoc", ".pos": "PostingsWriterPos", ".pay": "PostingsWriterPay",
	".tim": "TERMS_DICT", ".tip": "TERMS_INDEX", ".dvd": "ValuesData", ".dvm": "ValuesMetadata", ".nvd": "NormsData", ".nvm": "NormsMetadata",
}

type checker struct {
	Dir
	fault func(file, what string)
	used  map[string]bool
	said  Commit
}

// Check checks the newest commit of an index. It calls fault with each file that is wrong, and
// returns only errors of Read.
func Check(ctx context.Context, d Dir, fault func(file, what string)) (Commit, error) {
	c := checker{Dir: d, fault: fault, used: map[string]bool{segmentsGen: true}}
	newest := int64(-1)
	for name := range d.Files {
		if gen, ok := generation(name); ok && gen > newest {
			newest, c.said.Name = gen, name
		}
	}
	if newest < 0 {
		fault("", "no file segments_N: nothing shows which files belong to the index")
		return c.said, nil
	}
	err := c.commit(ctx)
	if err == nil {
		err = c.gen(ctx, newest)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Files)) {
		if !c.used[name] {
			c.said.Unused = append(c.said.Unused, name)
		}
	}
	return c.said, err
}

// generation returns the number of a commit from the name of its file.
func generation(name string) (int64, bool) {
	rest, ok := strings.CutPrefix(name, "segments")
	if rest == "" {
		return 0, ok
	}
	gen, err := strconv.ParseInt(strings.TrimPrefix(rest, "_"), 36, 64)
	return gen, ok && err == nil && gen > 0 && rest == "_"+strconv.FormatInt(gen, 36)
}

// gen compares segments.gen with the newest commit. Readers take the greater number of both.
func (c *checker) gen(ctx context.Context, newest int64) error {
	if _, ok := c.Files[segmentsGen]; !ok {
		return nil
	}
	r, err := c.whole(ctx, segmentsGen)
	if r == nil || err != nil {
		return err
	}
	format, first, second := r.int(), r.long(), r.long()
	switch {
	case r.err != "" || format != genFormat || len(r.b) != genBytes:
		c.fault(segmentsGen, fmt.Sprintf("expected %d bytes of format %d", genBytes, genFormat))
	case first == second && first > newest:
		c.fault(segmentsGen, fmt.Sprintf("it names commit segments_%s, but the newest is %s", strconv.FormatInt(first, 36), c.said.Name))
	}
	return nil
}

// commit checks the newest commit and all its segments.
func (c *checker) commit(ctx context.Context) error {
	name := c.said.Name
	c.used[name] = true
	r, err := c.whole(ctx, name)
	if r == nil || err != nil {
		return err
	}
	if len(r.b) < sumBytes {
		c.fault(name, "too short")
		return nil
	}
	codec, version := r.header()
	if r.err == "" && codec == "segments" && version > version46 {
		c.said.Unknown = fmt.Sprintf("%s has version %d, but Oak's Lucene writes %d", name, version, version46)
		for file := range c.Files {
			c.used[file] = true
		}
		return nil
	}
	body := r.b[:len(r.b)-sumBytes]
	sum := reader{b: r.b[len(body):]}
	if found, want := uint64(crc32.ChecksumIEEE(body)), uint64(sum.long()); found != want {
		c.fault(name, fmt.Sprintf("its checksum is %x, but its content has %x", want, found))
		return nil
	}
	r.b = body
	if r.err == "" && codec != "segments" {
		r.fail("expected a header of segments, found %q", codec)
	}
	r.long() // version
	r.int()  // counter
	for n := r.int(); n > 0 && r.err == ""; n-- {
		s := segment{name: r.string(), codec: r.string(), delGen: r.long(), deleted: r.int()}
		if version >= version46 {
			r.long() // generation of names of fields
			for k := r.int(); k > 0 && r.err == ""; k-- {
				r.long()
				s.files = append(s.files, r.set()...)
			}
		}
		if r.err == "" {
			c.said.Segments++
			if err := c.segment(ctx, s); err != nil {
				return err
			}
		}
	}
	r.skipPairs()
	r.end()
	if r.err != "" {
		c.fault(name, r.err)
	}
	return nil
}

// A segment is an entry of a commit.
type segment struct {
	name, codec string
	delGen      int64
	deleted     int32
	files       []string // that came after the segment was written
}

func (c *checker) segment(ctx context.Context, s segment) error {
	info := s.name + ".si"
	if !c.need(info, c.said.Name) {
		return nil
	}
	switch {
	case s.delGen == 0:
		s.files = append(s.files, s.name+".del")
	case s.delGen > 0:
		s.files = append(s.files, s.name+"_"+strconv.FormatInt(s.delGen, 36)+".del")
	}
	if err := c.files(ctx, s.files, c.said.Name); err != nil {
		return err
	}
	r, err := c.whole(ctx, info)
	if r == nil || err != nil {
		return err
	}
	codec, _ := r.header()
	if r.err == "" && codec != "Lucene46SegmentInfo" && codec != "Lucene40SegmentInfo" {
		r.fail("expected a header of Lucene46SegmentInfo, found %q", codec)
	}
	r.string() // version of Lucene
	docs, compound := r.int(), r.byte()
	r.skipPairs()
	if codec == "Lucene40SegmentInfo" {
		r.skipPairs()
	}
	files := r.set()
	if r.end(); r.err != "" {
		c.fault(info, r.err)
		return nil
	}
	if docs < 0 || s.deleted < 0 || s.deleted > docs {
		c.fault(info, fmt.Sprintf("it has %d documents, of which %s says that %d are deleted", docs, c.said.Name, s.deleted))
	} else {
		c.said.Docs, c.said.Deleted = c.said.Docs+int64(docs), c.said.Deleted+int64(s.deleted)
	}
	if compound == 1 {
		for _, ext := range []string{".cfs", ".cfe"} {
			if !slices.Contains(files, s.name+ext) {
				files = append(files, s.name+ext)
			}
		}
	}
	if err := c.files(ctx, files, info); err != nil || compound != 1 {
		return err
	}
	return c.packed(ctx, s.name)
}

// need reports whether a file is there that another file refers to.
func (c *checker) need(name, by string) bool {
	_, ok := c.Files[name]
	if !ok && !c.used[name] {
		c.fault(name, "missing, but "+by+" needs it")
	}
	c.used[name] = true
	return ok
}

func (c *checker) files(ctx context.Context, names []string, by string) error {
	for _, name := range names {
		if c.need(name, by) {
			if err := c.begins(ctx, name, name, 0, c.Files[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// begins checks the header of a file with size bytes at off of another one.
func (c *checker) begins(ctx context.Context, name, in string, off, size int64) error {
	want, known := headers[path.Ext(name)]
	if !known {
		return nil
	}
	b, err := c.Read(ctx, in, off, min(size, mostHeader))
	if err != nil {
		return unlessUnread(err)
	}
	r := &reader{b: b}
	if path.Ext(name) == ".del" {
		r.int()
	}
	codec, _ := r.header()
	switch {
	case r.err != "":
		c.fault(name, r.err)
	case !strings.HasSuffix(codec, want):
		c.fault(name, fmt.Sprintf("expected a header of %s, found %.100q", want, codec))
	}
	return nil
}

// packed checks the table of contents of a compound file.
func (c *checker) packed(ctx context.Context, segment string) error {
	data, table := segment+".cfs", segment+".cfe"
	size, ok := c.Files[data]
	if _, has := c.Files[table]; !ok || !has {
		return nil
	}
	r, err := c.whole(ctx, table)
	if r == nil || err != nil {
		return err
	}
	r.header()
	seen := map[string]bool{}
	for n := r.vint(); n > 0 && r.err == ""; n-- {
		name, off, length := r.string(), r.long(), r.long()
		switch {
		case r.err != "":
		case seen[name]:
			r.fail("%.100q is there twice", name)
		case off < 0 || length < 0 || off > size || length > size-off:
			c.fault(data, fmt.Sprintf("%s has %d bytes for %.100q at %d, but the file has %d bytes", table, length, name, off, size))
		default:
			if err := c.begins(ctx, segment+name, data, off, length); err != nil {
				return err
			}
		}
		seen[name] = true
	}
	if r.end(); r.err != "" {
		c.fault(table, r.err)
	}
	return nil
}

// whole reads a file. If it cannot be read, the reader is nil.
func (c *checker) whole(ctx context.Context, name string) (*reader, error) {
	size := c.Files[name]
	if size > mostBytes {
		c.fault(name, fmt.Sprintf("expected at most %d bytes, found %d", mostBytes, size))
		return nil, nil
	}
	b, err := c.Read(ctx, name, 0, size)
	if err != nil {
		return nil, unlessUnread(err)
	}
	return &reader{b: b}, nil
}

func unlessUnread(err error) error {
	if errors.Is(err, ErrUnread) {
		return nil
	}
	return err
}
