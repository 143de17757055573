package pack

import (
	"context"
	"fmt"
	"hash"
	"slices"
	"sync"

	md5simd "github.com/minio/md5-simd"

	"github.com/holdall/holdall/internal/read/digest"
	"github.com/holdall/holdall/store"
)

// A Witness compares the content of an object, written from its beginning, with the checksum of the
// object's service. Only one goroutine may use it.
type Witness struct {
	name  string
	want  store.Sum
	hash  hash.Hash
	left  int64  // in the current part
	parts []byte // sums of the earlier parts
	again bool   // an earlier read did not match
}

// A SumError means that the content of an object does not match its expected checksum.
type SumError struct {
	Name  string
	Want  store.Sum
	Got   string
	again bool
}

func (e *SumError) Error() string {
	of := ""
	if e.Want.Part > 0 {
		of = " of the sums of its parts"
	}
	return fmt.Sprintf("read twice, and does not match the checksum of its service: expected %s %x%s, found %x", e.Want.Algo, e.Want.Value, of, e.Got)
}

// sumFor returns the checksum to compare with: the first with a known algorithm.
func sumFor(sums []store.Sum) (store.Sum, bool) {
	i := slices.IndexFunc(sums, func(s store.Sum) bool { return s.Part >= 0 && digest.Known(s.Algo) })
	if i < 0 {
		return store.Sum{}, false
	}
	return sums[i], true
}

// SumOf returns the checksum that the service reports for an object. Part of the object must have
// been read before.
func SumOf(ctx context.Context, o store.Object) (store.Sum, bool, error) {
	sums := o.Can().Sums
	if sums == nil {
		return store.Sum{}, false, nil
	}
	all, err := sums(ctx)
	sum, ok := sumFor(all)
	return sum, ok, err
}

// manyMD5 computes several MD5 sums in parallel.
var manyMD5 = sync.OnceValue(md5simd.NewServer)

// worthMany is the length from which manyMD5 is faster.
const worthMany = 64 << 10

// NewWitness returns a Witness for an object of n bytes.
func NewWitness(name string, want store.Sum, n int64) *Witness {
	w := &Witness{name: name, want: want, left: want.Part}
	if want.Algo == "md5" && n >= worthMany && n <= pieceSize {
		w.hash = manyMD5().NewHash()
	} else {
		w.hash = digest.New(want.Algo)
	}
	return w
}

func (w *Witness) Write(p []byte) (int, error) {
	n := len(p)
	for w.want.Part > 0 && int64(len(p)) >= w.left {
		w.hash.Write(p[:w.left])
		p = p[w.left:]
		w.endPart()
	}
	w.left -= int64(len(p))
	w.hash.Write(p)
	return n, nil
}

func (w *Witness) endPart() {
	w.parts = w.hash.Sum(w.parts)
	w.hash.Reset()
	w.left = w.want.Part
}

// Wrong returns a *SumError if the content does not match the checksum.
func (w *Witness) Wrong() error {
	if w.want.Part > 0 {
		if w.left < w.want.Part {
			w.endPart()
		}
		w.hash.Write(w.parts)
	}
	got := string(w.hash.Sum(nil))
	if h, ok := w.hash.(md5simd.Hasher); ok {
		h.Close()
	}
	if got == w.want.Value {
		return nil
	}
	return &SumError{w.name, w.want, got, w.again}
}

// ProvenBy returns the name of a checksum in Summary.Proven.
func ProvenBy(sum store.Sum) string {
	if sum.Part > 0 {
		return sum.Algo + "_of_parts"
	}
	return sum.Algo
}

// provenBy returns the key of an object in Summary.Proven, or "" for a folder.
func (o *opened) provenBy() string {
	switch {
	case o.dir:
		return ""
	case o.has:
		return ProvenBy(o.sum)
	case o.bytes() == 0:
		return "size"
	}
	return "nothing"
}

// proven counts a packed object under the checksum that it was compared with.
func (p *packer) proven(by string) {
	if p.sum.Proven == nil {
		p.sum.Proven = map[string]int64{"nothing": 0}
	}
	p.sum.Proven[by]++
	if p.o.Proven != nil {
		p.o.Proven(by)
	}
}
