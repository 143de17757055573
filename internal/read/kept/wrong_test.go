package kept

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A wrong is a change to an index of testdata/rows, with right checksums unless it is about these,
// after which no reader must use it: the bytes from At on, then everything from Cut on.
type wrong struct {
	What string `json:"what"`
	Of   string `json:"of"`
	At   int    `json:"at"`
	Hex  string `json:"hex"`
	Cut  int    `json:"cut"`
	Then string `json:"then_hex"`
}

func (w wrong) made(t *testing.T, base []byte) []byte {
	t.Helper()
	there, err := hex.DecodeString(w.Hex)
	if err != nil {
		t.Fatal(err)
	}
	then, err := hex.DecodeString(w.Then)
	if err != nil {
		t.Fatal(err)
	}
	b := bytes.Clone(base[:w.Cut])
	copy(b[w.At:], there)
	return append(b, then...)
}

// anatomy is where the parts of an index are that has one node of one page of rows.
type anatomy struct {
	b                         []byte
	root, page, node, crcAt   int // offsets; crcAt is of the page's CRC-32 in its node
	pageLen, nodeLen, rootLen int
	hows, ends, block         int // of the first how of the page, of the ends of its blocks, and of its first block
}

func dissected(t *testing.T, b []byte) (a anatomy) {
	t.Helper()
	a.b = b
	a.root, a.rootLen = int(binary.LittleEndian.Uint64(b[len(b)-32:])), int(binary.LittleEndian.Uint32(b[len(b)-24:]))
	var root struct {
		Rows struct {
			Depth int
			Top   struct{ Offset, Stored int }
		}
	}
	if err := json.NewDecoder(bytes.NewReader(b[a.root : a.root+a.rootLen])).Decode(&root); err != nil || root.Rows.Depth != 1 {
		t.Fatal(err, root)
	}
	a.node, a.nodeLen = root.Rows.Top.Offset, root.Rows.Top.Stored
	at := a.node
	uvar := func() int {
		n, k := binary.Uvarint(b[at:])
		at += k
		return int(n)
	}
	uvar()
	a.page = uvar()
	uvar()
	n := uvar()
	at += n
	uvar()
	a.pageLen = uvar()
	uvar()
	a.crcAt = at
	at = a.page
	rows, hows := uvar(), uvar()
	for a.hows = at; hows > 0; hows-- {
		at += 2
		uvar()
		for range 3 { // owner, group, algorithm
			n = uvar()
			at += n
		}
		at++
		uvar()
		n = uvar()
		at += n
	}
	a.ends, a.block = at, at+4*((rows+63)/64)
	return a
}

// changed returns the change that edits of a page, of a node and of the root make. An edit of the
// page or of the node keeps its length.
func (a anatomy) changed(what, of string, page, node func([]byte), root func(map[string]any)) wrong {
	b := bytes.Clone(a.b[:a.root])
	if page != nil {
		page(b[a.page : a.page+a.pageLen])
		binary.LittleEndian.PutUint32(b[a.crcAt:], crc32.ChecksumIEEE(b[a.page:a.page+a.pageLen]))
	}
	if node != nil {
		node(b[a.node : a.node+a.nodeLen])
	}
	var head map[string]any
	d := json.NewDecoder(bytes.NewReader(a.b[a.root : a.root+a.rootLen]))
	d.UseNumber()
	if err := d.Decode(&head); err != nil {
		panic(err)
	}
	top := head["rows"].(map[string]any)["top"].(map[string]any)
	top["crc32"] = crc32.ChecksumIEEE(b[a.node : a.node+a.nodeLen])
	if root != nil {
		root(head)
	}
	text, err := json.Marshal(head)
	if err != nil {
		panic(err)
	}
	return a.ended(what, of, b, text, nil)
}

// ended returns the change after which an index has these pages, this root, and its end after an edit.
func (a anatomy) ended(what, of string, b, root []byte, end func([]byte)) wrong {
	tail := make([]byte, 32)
	binary.LittleEndian.PutUint64(tail, uint64(a.root))
	for i := range 2 {
		binary.LittleEndian.PutUint32(tail[8+4*i:], uint32(len(root)))
	}
	binary.LittleEndian.PutUint32(tail[16:], crc32.ChecksumIEEE(root))
	if end != nil {
		end(tail)
	}
	binary.LittleEndian.PutUint32(tail[20:], crc32.ChecksumIEEE(tail[:20]))
	copy(tail[24:], "holdall3")
	first, last := 0, 0 // where it differs
	for i := range b {
		if b[i] != a.b[i] {
			if last == 0 {
				first = i
			}
			last = i + 1
		}
	}
	return wrong{what, of, first, hex.EncodeToString(b[first:last]), a.root, hex.EncodeToString(slices.Concat(root, tail))}
}

func wrongs(t *testing.T, base map[string][]byte) (all []wrong) {
	t.Helper()
	b := base["plain"]
	a, pages, root := dissected(t, b), b[:len(b)-32], b[len(b)-32:]
	raw := func(what string, cut int, then []byte) {
		all = append(all, wrong{What: what, Of: "plain", Cut: cut, Then: hex.EncodeToString(then)})
	}
	flip := func(i int) []byte {
		end := bytes.Clone(root)
		end[i] ^= 0x10
		return end
	}
	raw("it is empty", 0, nil)
	raw("it ends before its end", len(b)-1, nil)
	raw("the end has another word", len(pages), flip(31))
	raw("the CRC-32 of the end is another", len(pages), flip(20))
	for _, c := range []struct {
		what string
		end  func([]byte)
	}{
		{"the CRC-32 of the root is another", func(e []byte) { e[16] ^= 1 }},
		{"the root lies behind the end", func(e []byte) { binary.LittleEndian.PutUint64(e, uint64(len(b))) }},
		{"the root has two lengths", func(e []byte) { e[12]++ }},
		{"the root is cut off", func(e []byte) { binary.LittleEndian.PutUint32(e[8:], 5); binary.LittleEndian.PutUint32(e[12:], 5) }},
	} {
		all = append(all, a.ended(c.what, "plain", b[:a.root], b[a.root:a.root+a.rootLen], c.end))
	}
	all = append(all, a.ended("the root is a list", "plain", b[:a.root], []byte("[1]"), nil))
	rows := func(head map[string]any) map[string]any { return head["rows"].(map[string]any) }
	for what, edit := range map[string]func(map[string]any){
		"nodes are nine deep":             func(h map[string]any) { rows(h)["depth"] = 9 },
		"a number is no integer":          func(h map[string]any) { rows(h)["depth"] = 1.5 },
		"the top lies behind the end":     func(h map[string]any) { rows(h)["top"].(map[string]any)["offset"] = 1 << 40 },
		"the top has more items":          func(h map[string]any) { rows(h)["top"].(map[string]any)["items"] = 1000 },
		"the CRC-32 of a node is another": func(h map[string]any) { rows(h)["top"].(map[string]any)["crc32"] = 1 },
	} {
		all = append(all, a.changed(what, "plain", nil, nil, edit))
	}
	all = append(all,
		a.changed("the first item of a node is another", "plain", nil, func(n []byte) { n[0]++ }, nil),
		a.changed("the page of a node is another", "plain", nil, func(n []byte) { n[1]++ }, nil),
		a.changed("the first key shares bytes", "plain", nil, func(n []byte) { n[1+uvarLen(a.page)]++ }, nil),
		a.changed("the CRC-32 of a page is another", "plain", nil, func(n []byte) { n[a.crcAt-a.node]++ }, nil))
	k := dissected(t, base["kinds"])
	for _, c := range []struct {
		what string
		of   string
		a    anatomy
		edit func(a anatomy, p []byte)
	}{
		{"a page has other rows", "plain", a, func(a anatomy, p []byte) { p[0]++ }},
		{"a page has more hows", "plain", a, func(a anatomy, p []byte) { p[1] = 0x7f }},
		{"a kind is not known", "plain", a, func(a anatomy, p []byte) { p[a.hows-a.page] |= 7 }},
		{"a volume is not there", "plain", a, func(a anatomy, p []byte) { p[a.hows-a.page+2+4+1] = 100 }},
		{"a block ends behind its page", "plain", a, func(a anatomy, p []byte) { p[a.ends-a.page+2] = 0xff }},
		{"the first name ends behind its block", "plain", a, func(a anatomy, p []byte) { p[a.block-a.page+1] = 0x7f }},
		{"a column has another width", "plain", a, func(a anatomy, p []byte) { p[a.columns()-a.page] |= 9 }},
		{"a digest ends behind its page", "kinds", k, func(a anatomy, p []byte) { p[a.block-a.page+2+int(p[a.block-a.page+1])] = 0x7f }},
	} {
		all = append(all, c.a.changed(c.what, c.of, func(p []byte) { c.edit(c.a, p) }, nil, nil))
	}
	return all
}

func uvarLen(n int) int { return len(binary.AppendUvarint(nil, uint64(n))) }

// columns returns where the columns of the first block of a page begin.
func (a anatomy) columns() int {
	at := a.block + 1
	n, k := binary.Uvarint(a.b[at:])
	at += k + int(n)
	for range 2 {
		_, k = binary.Uvarint(a.b[at:])
		at += k
	}
	return at + 2
}

// TestWrongIndexesAreRefused makes testdata/wrong.json again. The Python package and the explorer's
// static pages refuse the same.
func TestWrongIndexesAreRefused(t *testing.T) {
	base := map[string][]byte{}
	for name := range vectors() {
		b, err := os.ReadFile(filepath.Join("testdata", "rows", name+Suffix))
		if err != nil {
			t.Fatal(err)
		}
		base[name] = b
	}
	all := sorted(wrongs(t, base))
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	file := filepath.Join("testdata", "wrong.json")
	if *update {
		if err := os.WriteFile(file, text, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(file); err != nil || !bytes.Equal(b, text) {
		t.Errorf("%s is not what is made: -update, and read the difference: %v", file, err)
	}
	for _, w := range all {
		if err := readAll(t, w.made(t, base[w.Of])); err == nil {
			t.Errorf("%s: it is used", w.What)
		}
	}
	if err := readAll(t, base["plain"]); err != nil {
		t.Error(err)
	}
}

func sorted(all []wrong) []wrong {
	slices.SortFunc(all, func(a, b wrong) int { return strings.Compare(a.What, b.What) })
	return all
}

func readAll(t *testing.T, b []byte) error {
	x, err := openBytes(t.Context(), b, false)
	if err != nil {
		return err
	}
	defer x.Close()
	for _, err := range x.Entries(t.Context()) {
		if err != nil {
			return err
		}
	}
	return nil
}
