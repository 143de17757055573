package kit

import (
	"encoding/binary"
	"errors"
	"hash/maphash"
	"math/bits"
	"strings"
	"unsafe"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
)

// Rising watches an order of names. As long as they rise byte by byte, or as in a walk over folders,
// where the slash comes first, none of them occurs twice.
type Rising struct {
	last  []byte
	some  bool
	broke [2]bool
}

// Orders of names.
const (
	byBytes = iota
	byWalk
)

// Holds reports whether all names have risen in one of the orders.
func (o *Rising) Holds() bool { return !o.broke[byBytes] || !o.broke[byWalk] }

// rises reports for each order whether name comes after the last one.
func (o *Rising) rises(name []byte) (in [2]bool) {
	n := min(len(o.last), len(name))
	i := 0
	for ; i+8 <= n; i += 8 {
		if x := binary.LittleEndian.Uint64(o.last[i:]) ^ binary.LittleEndian.Uint64(name[i:]); x != 0 {
			n = i + bits.TrailingZeros64(x)/8 + 1 // they differ in the last of these
			i = n - 1
			break
		}
	}
	for i < n && o.last[i] == name[i] {
		i++
	}
	if i == n {
		up := !o.some || len(name) > len(o.last)
		return [2]bool{up, up}
	}
	was, is := o.last[i], name[i]
	return [2]bool{byBytes: was < is, byWalk: is != '/' && (was == '/' || was < is)}
}

// Next adds a name.
func (o *Rising) Next(name []byte) {
	if !o.Holds() {
		return
	}
	in := o.rises(name)
	o.broke[byBytes], o.broke[byWalk] = o.broke[byBytes] || !in[byBytes], o.broke[byWalk] || !in[byWalk]
	o.last, o.some = append(o.last[:0], name...), true
}

// bytesOf returns the bytes of a string, which must not be changed.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// Names are the names that an archive has already. While they rise, none of them is kept in
// memory: their fingerprints are written away, and read again if a name comes that does not rise.
// After that, each takes ten to twenty bytes, whatever its length. Two names are taken for one only
// at a collision of 63 bits. The zero value has no names.
type Names struct {
	// Scratch is where fingerprints are written. If it is nil, they stay in memory.
	Scratch func() (sorter.Scratch, error)

	order  Rising
	file   bool // the last one is not a folder
	before Spill
	set    fingerprints
	seed   maphash.Seed
	seeded bool
}

// mostFingerprints is the size of those that stay in memory while names rise.
const mostFingerprints = 2 << 20

// Has reports whether there is an entry called name.
func (n *Names) Has(name string) (bool, error) {
	if in := n.order.rises(bytesOf(name)); in[byBytes] && !n.order.broke[byBytes] || in[byWalk] && !n.order.broke[byWalk] {
		return false, nil
	}
	if err := n.recall(); err != nil {
		return false, err
	}
	_, has := n.set.find(n.fingerprint(name))
	return has, nil
}

// Above returns the name of a parent of name that is not a folder, or "" if there is none.
func (n *Names) Above(name string) (string, error) {
	if n.order.rises(bytesOf(name))[byWalk] && !n.order.broke[byWalk] {
		// Everything between a file and a name below it is below it, too.
		if last := string(n.order.last); n.file && strings.HasPrefix(name, last) && strings.HasPrefix(name[len(last):], "/") {
			return last, nil
		}
		return "", nil
	}
	if strings.IndexByte(name, '/') < 0 {
		return "", nil
	}
	if err := n.recall(); err != nil {
		return "", err
	}
	for i := strings.LastIndexByte(name, '/'); i >= 0; i = strings.LastIndexByte(name[:i], '/') {
		if isDir, has := n.set.find(n.fingerprint(name[:i])); has && !isDir {
			return name[:i], nil
		}
	}
	return "", nil
}

// Add adds a name that Has does not find.
func (n *Names) Add(name string, kind format.Kind) error {
	h := n.fingerprint(name)
	if kind == format.Dir {
		h |= isDirectory
	}
	n.file = kind != format.Dir
	if n.order.Next(bytesOf(name)); n.order.Holds() {
		n.before.Scratch, n.before.Most = n.Scratch, mostFingerprints
		return n.before.Add(binary.LittleEndian.AppendUint64(nil, h))
	}
	err := n.recall()
	n.set.add(h)
	return err
}

// recall moves the fingerprints that were written away into the set, where all later ones go.
func (n *Names) recall() error {
	n.order.broke = [2]bool{true, true}
	if n.before.N == 0 {
		return nil
	}
	var rest []byte
	err := n.before.Each(func(b []byte) error {
		for b = append(rest, b...); len(b) >= 8; b = b[8:] {
			n.set.add(binary.LittleEndian.Uint64(b))
		}
		rest = b
		return nil
	})
	n.before.N = 0
	return errors.Join(err, n.before.Close())
}

// Close releases the scratch.
func (n *Names) Close() error { return n.before.Close() }

// fingerprint is never 0, also without isDirectory.
func (n *Names) fingerprint(name string) uint64 {
	if !n.seeded {
		n.seed, n.seeded = maphash.MakeSeed(), true
	}
	return max(maphash.String(n.seed, name)&^isDirectory, isDirectory<<1)
}

const isDirectory = 1

// fingerprints is a set of hashes of 63 bits with a flag each.
type fingerprints struct {
	slots []uint64 // 0 is free
	n     int
}

// slot returns the slot of h, or the slot where it would be.
func (s *fingerprints) slot(h uint64) int {
	mask := uint64(len(s.slots) - 1)
	for i := h >> 1 & mask; ; i = (i + 1) & mask {
		if s.slots[i] == 0 || (s.slots[i]^h)&^isDirectory == 0 {
			return int(i)
		}
	}
}

func (s *fingerprints) find(h uint64) (isDir, has bool) {
	if s.n == 0 {
		return false, false
	}
	at := s.slots[s.slot(h)]
	return at&isDirectory != 0, at != 0
}

func (s *fingerprints) add(h uint64) {
	if 4*(s.n+1) > 3*len(s.slots) {
		old := s.slots
		s.slots = make([]uint64, max(1024, 2*len(old)))
		for _, h := range old {
			if h != 0 {
				s.slots[s.slot(h)] = h
			}
		}
	}
	at := &s.slots[s.slot(h)]
	if *at == 0 {
		s.n++
	}
	*at = h
}
