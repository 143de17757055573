// Package lucene checks that the files of a Lucene index belong together: the newest commit, its
// segments, their files, and what each file claims to be. It does not read terms and documents. It
// knows the versions 4.0 to 4.7; Oak has 4.7.2.
//
// A commit is the file segments_N with the greatest N, in base 36. It lists segments. A segment _0
// has a file _0.si with its number of documents and the names of its files. Most of these may be
// packed in one, _0.cfs, whose table of contents is _0.cfe. Deletions are in _0_N.del.
package lucene

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"path"
	"strconv"
	"strings"
)

// A Dir has the files of an index.
type Dir struct {
	Files map[string]int64 // their sizes, by name
	// Read returns n bytes of a file from off, which are within it. It returns nil if they cannot
	// be read, and it has reported that.
	Read func(ctx context.Context, name string, off, n int64) ([]byte, error)
}

const (
	segmentsGen = "segments.gen"
	mostBytes   = 16 << 20 // of a file that is read whole
	mostHeader  = 160      // bytes
	commit46    = 1        // version of commits
)

// headers has the ends of the names in the headers of files, by extension.
var headers = map[string]string{
	".si": "SegmentInfo", ".cfs": "CompoundFileWriterData", ".cfe": "CompoundFileWriterEntries", ".del": "BitVector", ".fnm": "FieldInfos",
	".fdt": "StoredFieldsData", ".fdx": "StoredFieldsIndex", ".tvx": "Index", ".doc": "PostingsWriterDoc", ".pos": "PostingsWriterPos", ".pay": "PostingsWriterPay",
	".tim": "TERMS_DICT", ".tip": "TERMS_INDEX", ".dvd": "ValuesData", ".dvm": "ValuesMetadata", ".nvd": "NormsData", ".nvm": "NormsMetadata",
}

type checker struct {
	files  map[string]int64
	read   func(name string, off, n int64) *reader
	fault  func(file, what string)
	newest string // commit
	unused map[string]bool
	docs   int64
}

// Check checks the newest commit. It calls fault with each file that is wrong, and returns how many
// documents are not deleted and which files the commit does not need. It returns only errors of
// Read.
func Check(ctx context.Context, d Dir, fault func(file, what string)) (docs int64, unused map[string]bool, err error) {
	c := checker{files: d.Files, fault: fault, unused: map[string]bool{}}
	c.read = func(name string, off, n int64) *reader {
		r := &reader{}
		if err == nil {
			r.b, err = d.Read(ctx, name, off, n)
		}
		r.lost = r.b == nil && n > 0
		return r
	}
	newest := int64(0)
	for name := range d.Files {
		c.unused[name] = true
		if gen, ok := generation(name); ok && gen > newest {
			newest, c.newest = gen, name
		}
	}
	if newest == 0 {
		fault("", "no file segments_N: nothing shows which files belong to the index")
		return 0, nil, nil
	}
	delete(c.unused, segmentsGen)
	delete(c.unused, c.newest)
	c.whole(c.newest, c.commit)
	if _, ok := d.Files[segmentsGen]; ok {
		c.whole(segmentsGen, func(r *reader) {
			format, first, second := r.num(4), r.num(8), r.num(8)
			if format != -2 {
				r.fail("expected format -2, found %d", format)
			} else if first == second && first > newest {
				r.fail("it names segments_%s, but the newest commit is %s", strconv.FormatInt(first, 36), c.newest)
			}
		})
	}
	return c.docs, c.unused, err
}

// generation returns the number of a commit.
func generation(name string) (int64, bool) {
	digits, ok := strings.CutPrefix(name, "segments_")
	gen, err := strconv.ParseInt(digits, 36, 64)
	return gen, ok && err == nil && gen > 0 && digits == strconv.FormatInt(gen, 36)
}

// whole parses a file. It must be read to its end.
func (c *checker) whole(name string, parse func(*reader)) {
	size := c.files[name]
	if size > mostBytes {
		c.fault(name, "it is too large: "+strconv.FormatInt(size, 10)+" bytes")
		return
	}
	r := c.read(name, 0, size)
	if parse(r); r.off != len(r.b) {
		r.fail("offset %d: expected the end, found %d more bytes", r.off, len(r.b)-r.off)
	}
	if r.bad != "" && !r.lost {
		c.fault(name, r.bad)
	}
}

func (c *checker) commit(r *reader) {
	codec, version := r.header()
	switch {
	case codec != "segments":
		r.fail("expected a header of segments, found %q", codec)
	case version < 0 || version > commit46:
		r.fail("expected at most version %d, which Oak can read, found %d", commit46, version)
	case !bytes.HasSuffix(r.b, binary.BigEndian.AppendUint64(nil, uint64(crc32.ChecksumIEEE(r.b[:max(len(r.b)-8, 0)])))):
		r.fail("its checksum does not match")
	}
	r.num(8 + 4) // version and counter
	for n := r.num(4); n > 0 && r.ok(); n-- {
		name, _, delGen, deleted := r.text(), r.text(), r.num(8), r.num(4)
		var files []string
		if delGen > 0 {
			files = []string{name + "_" + strconv.FormatInt(delGen, 36) + ".del"}
		}
		if version == commit46 {
			r.num(8) // generation of the names of fields
			for k := r.num(4); k > 0 && r.ok(); k-- {
				r.num(8)
				files = append(files, r.texts(1)...)
			}
		}
		if info := name + ".si"; r.ok() && c.needs(c.newest, append(files, info)...) {
			c.whole(info, func(r *reader) { c.segment(r, name, deleted) })
		}
	}
	r.texts(2) // what the writer added
	if r.num(8); !r.ok() {
		clear(c.unused) // it is not known what the commit needs
	}
}

// segment parses the list of the files of a segment.
func (c *checker) segment(r *reader, name string, deleted int64) {
	codec, _ := r.header()
	r.text() // version of Lucene
	docs, compound := r.num(4), r.num(1) == 1
	r.texts(2) // about the writer
	if codec == "Lucene40SegmentInfo" {
		r.texts(2)
	}
	files := r.texts(1)
	switch {
	case !r.ok():
		return
	case docs < 0 || deleted < 0 || deleted > docs:
		r.fail("it has %d documents, but %s says that %d of them are deleted", docs, c.newest, deleted)
	}
	c.docs += docs - deleted
	if c.needs(name+".si", files...) && compound && c.needs(name+".si", name+".cfs", name+".cfe") {
		c.whole(name+".cfe", func(r *reader) { c.packed(r, name, name+".cfs") })
	}
}

// packed parses the table of contents of a compound file.
func (c *checker) packed(r *reader, segment, data string) {
	size := c.files[data]
	r.header()
	seen := map[string]bool{}
	for n := r.vint(); n > 0 && r.ok(); n-- {
		name, off, length := r.text(), r.num(8), r.num(8)
		if off < 0 || length < 0 || off > size || length > size-off || seen[name] {
			r.fail("expected each file once and in the %d bytes of %s, found %d bytes for %.100q at %d", size, data, length, name, off)
		}
		if seen[name] = true; r.ok() {
			c.begins(segment+name, data, off, length)
		}
	}
}

// needs reports whether the files are there that another file refers to, and checks how they begin.
func (c *checker) needs(by string, names ...string) bool {
	all := true
	for _, name := range names {
		size, ok := c.files[name]
		if all = all && ok; !ok {
			c.fault(name, "missing, but "+by+" needs it")
		} else if c.unused[name] {
			c.begins(name, name, 0, size)
		}
		delete(c.unused, name)
	}
	return all
}

// begins checks the header of a file with size bytes at off of another one.
func (c *checker) begins(name, in string, off, size int64) {
	want, known := headers[path.Ext(name)]
	if !known {
		return
	}
	r := c.read(in, off, min(size, mostHeader))
	if path.Ext(name) == ".del" {
		r.num(4)
	}
	if codec, _ := r.header(); !strings.HasSuffix(codec, want) {
		r.fail("expected a header of %s, found %.100q", want, codec)
	}
	if r.bad != "" && !r.lost {
		c.fault(name, r.bad)
	}
}
