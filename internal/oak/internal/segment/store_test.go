package segment

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// Fixtures are stores that the reference wrote, with its description of them. Package oak has
// them too.
const fixtures = "../../testdata"

type expected struct {
	Tars map[string]struct {
		Segments map[string]*expectedSegment
	}
	Head struct {
		Revision string
		Nodes    []expectedNode
	}
}

type expectedSegment struct {
	SHA256            string
	Version           int
	Gen, Full         int32
	Compacted         bool
	Refs              []string
	Records           int
	RecordsByType     []int
	RecordTableSHA256 string
	Info              *string
}

type expectedNode struct {
	Path  string
	RID   string
	SID   string
	Props [][3]any
	Error string
}

// store is a Source of a fixture's tars.
type store struct {
	files  map[string][]byte
	tars   map[string]map[ID][]byte
	raw    map[ID][]byte // of each segment, that of the newest tar
	parsed map[ID]*Segment
}

func (s *store) Segment(_ context.Context, id ID) (*Segment, error) {
	if seg := s.parsed[id]; seg != nil {
		return seg, nil
	}
	b, ok := s.raw[id]
	if !ok {
		return nil, fs.ErrNotExist
	}
	seg, err := Parse(id, b)
	if err == nil {
		s.parsed[id] = seg
	}
	return seg, err
}

func loadExpected(t testing.TB, name string) (e expected) {
	testkit.JSON(t, filepath.Join(fixtures, name+".expect.json"), &e)
	return e
}

// loadStore reads a fixture's newest tar of each number: by its index, or from
// the front if that is damaged.
func loadStore(t testing.TB, name string) *store {
	s := &store{files: map[string][]byte{}, tars: map[string]map[ID][]byte{}, raw: map[ID][]byte{}, parsed: map[ID]*Segment{}}
	for name, b := range testkit.Untar(t, filepath.Join(fixtures, name+".tar.gz")) {
		if path.Dir(name) == "segmentstore" {
			s.files[path.Base(name)] = b
		}
	}
	newest := map[string]string{}
	rule := regexp.MustCompile(`^data(\d{5,})[a-z]\.tar$`)
	for f := range s.files {
		if m := rule.FindStringSubmatch(f); m != nil {
			newest[m[1]] = max(newest[m[1]], f)
			if indexed := readIndexed(s.files[f]); indexed != nil {
				s.tars[f] = indexed
			}
		}
	}
	for _, f := range newest { // no fixture has a segment twice with other bytes
		segments, ok := s.tars[f]
		if !ok {
			segments = readFromFront(s.files[f])
		}
		for id, b := range segments {
			s.raw[id] = b
		}
	}
	return s
}

func readIndexed(b []byte) map[ID][]byte {
	if len(b) < 6*512 || len(b)%512 != 0 {
		return nil
	}
	b = b[:len(b)-1024]
	foot := b[len(b)-16:]
	n, size := int(binary.BigEndian.Uint32(foot[4:])), 33
	switch string(foot[12:]) {
	case "\n0K\n":
		size = 28
	case "\n1K\n":
	default:
		return nil
	}
	if n*size+16 > len(b) {
		return nil
	}
	rows := b[len(b)-16-n*size : len(b)-16]
	if crc32.ChecksumIEEE(rows) != binary.BigEndian.Uint32(foot) {
		return nil
	}
	all := map[ID][]byte{}
	for ; len(rows) > 0; rows = rows[size:] {
		off, n := binary.BigEndian.Uint32(rows[16:]), binary.BigEndian.Uint32(rows[20:])
		all[ID(rows)] = b[off:][:n]
	}
	return all
}

func readFromFront(b []byte) map[ID][]byte {
	all := map[ID][]byte{}
	for at := 0; at+512 <= len(b); {
		name, _, _ := strings.Cut(string(b[at:at+100]), "\x00")
		n, err := strconv.ParseInt(string(b[at+124:at+135]), 8, 32)
		at += 512
		if err != nil || at+int(n) > len(b) {
			break
		}
		data := b[at:][:n]
		at += (int(n) + 511) &^ 511
		if len(name) == 45 && fmt.Sprintf("%08x", crc32.ChecksumIEEE(data)) == name[37:] {
			if id, err := ParseID(name[:36]); err == nil {
				all[id] = data
			}
		}
	}
	return all
}
