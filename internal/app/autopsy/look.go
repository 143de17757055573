package autopsy

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/store"
)

// A kind is what bytes look like.
type kind struct {
	name, ext string
	format    string // of the archive that it is a part of
	header    bool   // it ends where its own fields say
	packed    bool   // what follows it and looks random is its content
	mark      string
	length    func(b []byte) int // of it; 0 if it is something else
}

// A run is bytes that look alike.
type run struct {
	off, len int64
	look     *kind
}

var (
	zeros  = &kind{name: "zeros"}
	text   = &kind{name: "text", ext: ".txt"}
	json   = &kind{name: "JSON", ext: ".json"}
	random = &kind{name: "compressed, encrypted or random"}
	binar  = &kind{name: "binary data", ext: ".dat"}
	unread = &kind{name: "not looked at"}
)

// known are kinds with a mark at their beginning.
var known = []*kind{
	{name: "tar header", format: "tar", header: true, mark: "ustar", length: tarHeader},
	{name: "zip header", format: "zip", header: true, mark: "PK\x03\x04", length: zipHeader(30, 26)},
	{name: "zip directory", format: "zip", header: true, mark: "PK\x01\x02", length: zipHeader(46, 28)},
	{name: "end of a zip", format: "zip", header: true, mark: "PK\x05\x06", length: atLeast(22)},
	{name: "RVN package", format: "rvn", packed: true, mark: "\xc8d2", length: rvnHeader},
	{name: "zstd frame", ext: ".zst", packed: true, mark: "\x28\xb5\x2f\xfd", length: atLeast(9)},
	{name: "gzip", ext: ".gz", packed: true, mark: "\x1f\x8b\x08", length: gzipHeader},
	{name: "xz", ext: ".xz", packed: true, mark: "\xfd7zXZ\x00", length: atLeast(12)},
	{name: "bzip2", ext: ".bz2", packed: true, mark: "1AY&SY", length: bzipHeader},
	{name: "PNG", ext: ".png", packed: true, mark: "\x89PNG\r\n\x1a\n", length: atLeast(8)},
	{name: "JPEG", ext: ".jpg", packed: true, mark: "\xff\xd8\xff\xe0", length: atLeast(20)},
	{name: "PDF", ext: ".pdf", packed: true, mark: "%PDF-1.", length: atLeast(8)},
	{name: "HDF5", ext: ".h5", format: "hdf5", packed: true, mark: "\x89HDF\r\n\x1a\n", length: atLeast(8)},
}

func atLeast(n int) func(b []byte) int {
	return func(b []byte) int {
		if len(b) < n {
			return 0
		}
		return n
	}
}

// before is how many bytes of a kind there are before its mark.
func (k *kind) before() int {
	switch k.mark {
	case "ustar":
		return 257
	case "1AY&SY":
		return 4
	}
	return 0
}

func tarHeader(b []byte) int {
	if len(b) < 512 {
		return 0
	}
	want, err := strconv.ParseInt(strings.Trim(string(b[148:156]), " \x00"), 8, 32)
	sum := int64(8 * ' ')
	for i, c := range b[:512] {
		if i < 148 || i >= 156 {
			sum += int64(c)
		}
	}
	if err != nil || sum != want {
		return 0
	}
	return 512
}

func zipHeader(n, lengths int) func(b []byte) int {
	return func(b []byte) int {
		if len(b) < n || b[n-1] > 64 && n == 30 {
			return 0
		}
		n := n + int(binary.LittleEndian.Uint16(b[lengths:])) + int(binary.LittleEndian.Uint16(b[lengths+2:]))
		if n > 4096 {
			return 0
		}
		return min(n, len(b))
	}
}

func rvnHeader(b []byte) int {
	if f := format.All().ByName("rvn"); f == nil || f.Detect(format.Probe{Size: 1 << 62, Head: b, Tail: b}) != format.Certain {
		return 0
	}
	return 3
}

func gzipHeader(b []byte) int {
	if len(b) < 18 || b[3]&0xe0 != 0 || b[8] != 0 && b[8] != 2 && b[8] != 4 || b[9] > 13 && b[9] != 255 {
		return 0
	}
	return 10
}

func bzipHeader(b []byte) int {
	if len(b) < 14 || string(b[:3]) != "BZh" || b[3] < '1' || b[3] > '9' {
		return 0
	}
	return 10
}

const (
	block     = 4096
	window    = 1 << 20
	overlap   = 4096     // enough for any header
	mostRead  = 32 << 20 // of an object that is read whole; with several, of all
	sample    = 16 << 10
	nearRead  = 256 // samples of a longer one
	farRead   = 32
	mostRuns  = 50_000
	fewRandom = 256 // bytes; fewer show no entropy
)

// look returns what all bytes of one of several objects look like. If it is long, samples stand for what
// lies around them.
func look(ctx context.Context, st store.Store, info store.Info, objects int64) ([]run, error) {
	obj, err := st.Open(ctx, info.Name)
	if err != nil {
		return nil, err
	}
	defer obj.Close()
	r := &runs{}
	near := st.Can().Near
	if most := mostRead / objects; info.Size > most || !near && info.Size > farRead*sample/objects {
		count := int64(nearRead)
		if !near {
			count = farRead
		}
		return r.sampled(ctx, obj, info.Size, max(1, count/objects))
	}
	buf := make([]byte, min(info.Size, window+overlap))
	for at := int64(0); at < info.Size; at += window {
		b := buf[:min(int64(len(buf)), info.Size-at)]
		if err := obj.ReadAt(ctx, b, at); err != nil {
			r.add(at, info.Size-at, unread) // it is shown all the same
			return r.list, context.Cause(ctx)
		}
		r.window(at, b, min(window, len(b)))
	}
	return r.list, nil
}

type runs struct {
	list []run
	done int64 // where the last one ends
}

// sampled reads a number of samples. Each stands for the bytes up to the next one.
func (r *runs) sampled(ctx context.Context, obj store.Object, size, count int64) ([]run, error) {
	step := (size/count + block) &^ (block - 1)
	var parts []*run
	for at := int64(0); at < size; at += step {
		parts = append(parts, &run{at, min(step, size-at), unread})
	}
	err := pipe.Each(ctx, pipe.All(parts), 16, func(ctx context.Context, p *run) error {
		b := make([]byte, min(sample, p.len))
		if obj.ReadAt(ctx, b, p.off) == nil { // otherwise it is shown all the same
			p.look = classify(b, nil)
			if at, k, _ := mark(b); k != nil && at == 0 && k.packed {
				p.look = k
			}
		}
		return nil
	})
	for _, p := range parts {
		r.add(p.off, p.len, p.look)
	}
	return r.list, err
}

// add adds bytes behind those before.
func (r *runs) add(off, n int64, k *kind) {
	last := len(r.list) - 1
	switch {
	case n <= 0:
		return
	case last >= 0 && (r.list[last].look == k && !k.header || len(r.list) >= mostRuns):
		r.list[last].len += n
	default:
		r.list = append(r.list, run{off, n, k})
	}
	r.done = off + n
}

func (r *runs) before() *kind {
	if len(r.list) == 0 {
		return nil
	}
	return r.list[len(r.list)-1].look
}

// window adds the first n bytes of b, which lie at an offset. What begins there may end behind.
func (r *runs) window(base int64, b []byte, n int) {
	for at := int(r.done - base); at < n; {
		next, k, length := mark(b[at:min(len(b), at+block+overlap)])
		if k == nil || at+next >= n {
			next, k = n-at, nil
		}
		for end := at + next; at < end; {
			part := min(block-(int(base)+at)%block, end-at)
			r.part(base+int64(at), b[at:at+part])
			at += part
			if k == nil { // marks were looked for in this block only
				break
			}
		}
		if k != nil {
			r.add(base+int64(at), int64(length), k)
			at += length
		}
	}
}

// mark returns the first place of something known.
func mark(b []byte) (at int, found *kind, length int) {
	at = len(b)
	for _, k := range known {
		for from := 0; ; {
			i := bytes.Index(b[from:min(len(b), at+k.before()+len(k.mark))], []byte(k.mark))
			if i < 0 {
				break
			}
			begin := from + i - k.before()
			if begin >= 0 && begin < at {
				if n := k.length(b[begin:]); n > 0 {
					at, found, length = begin, k, n
					break
				}
			}
			from += i + 1
		}
	}
	return at, found, length
}

// part adds bytes without a mark: zeros at both ends are runs of their own.
func (r *runs) part(off int64, b []byte) {
	const few = 16
	tail := len(bytes.TrimRight(b, "\x00"))
	head := len(b) - len(bytes.TrimLeft(b, "\x00"))
	switch {
	case tail == 0:
		r.add(off, int64(len(b)), zeros)
		return
	case head < few && r.before() != zeros:
		head = 0
	}
	if len(b)-tail < few {
		tail = len(b)
	}
	r.add(off, int64(head), zeros)
	if head < tail {
		b, off := b[head:tail], off+int64(head)
		// Text may end where something else begins, as an index does before a footer.
		if i := bytes.IndexFunc(b, isControl); i >= fewRandom {
			r.add(off, int64(i), classify(b[:i], r.before()))
			r.part(off+int64(i), b[i:])
		} else {
			r.add(off, int64(len(b)), classify(b, r.before()))
		}
	}
	r.add(off+int64(tail), int64(len(b)-tail), zeros)
}

// classify returns what bytes look like that come behind others.
func classify(b []byte, before *kind) *kind {
	var count [256]int
	for _, c := range b {
		count[c]++
	}
	if count[0] == len(b) {
		return zeros
	}
	if !bytes.ContainsFunc(b, isControl) && utf8.Valid(whole(b)) {
		t := bytes.TrimSpace(b)
		begins := len(t) > 1 && (t[0] == '{' && bytes.ContainsAny(t[1:2], "\"}\n ") || t[0] == '[' && before != text)
		if begins || before == json && count['"'] > len(b)/100 {
			return json
		}
		return text
	}
	sum, n := 0.0, float64(len(b))
	for _, c := range count {
		if c > 0 {
			sum -= float64(c) / n * math.Log2(float64(c)/n)
		}
	}
	continues := before != nil && (before.packed || before == random)
	switch {
	case len(b) < fewRandom && continues:
		return before
	case len(b) >= fewRandom && sum > 7.7-184/n:
		if continues {
			return before
		}
		return random
	}
	return binar
}

// isControl reports whether a character is not in texts.
func isControl(c rune) bool { return c < ' ' && !strings.ContainsRune("\t\n\r\f", c) }

// whole is text without the halves of characters at its ends.
func whole(b []byte) []byte {
	for i := 0; i < 3 && len(b) > 0 && !utf8.RuneStart(b[0]); i++ {
		b = b[1:]
	}
	for i := 1; i <= 3 && i <= len(b); i++ {
		if utf8.RuneStart(b[len(b)-i]) {
			if !utf8.FullRune(b[len(b)-i:]) {
				b = b[:len(b)-i]
			}
			break
		}
	}
	return b
}
