package pack

import (
	"context"
	"fmt"
	"hash"
	"slices"
	"sync"

	md5simd "github.com/minio/md5-simd"

	"github.com/holdall/holdall/internal/digest"
	"github.com/holdall/holdall/store"
)

// A Witness compares what is read of an object, from its beginning, with a checksum that
// the object's service vouches for. It is for one goroutine.
type Witness struct {
	name  string
	want  store.Sum
	hash  hash.Hash
	left  int64  // of the part
	parts []byte // sums of the parts before
	again bool   // it was read before, and was wrong
}

// A SumError means that what was read of an object is not what its service says that it
// is.
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

// sumFor is the checksum to compare with: the first that there is a hash for.
func sumFor(sums []store.Sum) (store.Sum, bool) {
	i := slices.IndexFunc(sums, func(s store.Sum) bool { return s.Part >= 0 && digest.Known(s.Algo) })
	if i < 0 {
		return store.Sum{}, false
	}
	return sums[i], true
}

// SumOf finds out what the service of an object vouches for, once something was read.
func SumOf(ctx context.Context, o store.Object) (store.Sum, bool, error) {
	sums := o.Can().Sums
	if sums == nil {
		return store.Sum{}, false, nil
	}
	all, err := sums(ctx)
	sum, ok := sumFor(all)
	return sum, ok, err
}

// manyMD5 computes the MD5 sums of several contents side by side.
var manyMD5 = sync.OnceValue(md5simd.NewServer)

// worthMany is from which length on that is faster.
const worthMany = 64 << 10

// NewWitness is of an object whose length is n.
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

// Wrong returns a *SumError if what was written is not what it should be.
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

// ProvenBy names a checksum as Summary.Proven does.
func ProvenBy(sum store.Sum) string {
	if sum.Part > 0 {
		return sum.Algo + "_of_parts"
	}
	return sum.Algo
}

// provenBy is the checksum that an object was compared with, as Summary.Proven names it; ""
// for what has none.
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

// proven counts an object that was packed by the checksum that it was compared with.
func (p *packer) proven(by string) {
	if p.sum.Proven == nil {
		p.sum.Proven = map[string]int64{"nothing": 0}
	}
	p.sum.Proven[by]++
	if p.o.Proven != nil {
		p.o.Proven(by)
	}
}
