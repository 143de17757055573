package newtree

import (
	"encoding/binary"

	"github.com/zeebo/blake3"
)

// layout changes whenever the same input makes other segments, for other names.
const layout = "holdall tree 1"

// IDs names segments by what is in them, so that the same input makes the same store
// and another one no segment of the same name. A data segment's content is not known
// when it needs a name, but all that the tree is made of is known before the first
// of them is begun.
type IDs struct {
	input *blake3.Hasher
	made  uint64
}

// NewIDs returns names for one store.
func NewIDs() *IDs {
	s := &IDs{input: blake3.New()}
	s.Input([]byte(layout))
	return s
}

// Input adds to what names depend on.
func (s *IDs) Input(parts ...[]byte) {
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		s.input.Write(n[:])
		s.input.Write(p)
	}
}

// Data names a data segment: it is a BuilderOptions.NewID.
func (s *IDs) Data() [16]byte { return s.name(s.input.Sum(nil)) }

// Bulk names a bulk segment: it is a BuilderOptions.BulkID.
func (s *IDs) Bulk(content []byte) [16]byte {
	sum := blake3.Sum256(content)
	s.Input(sum[:])
	return s.name(sum[:])
}

// name differs each time: two segments of one content have two names.
func (s *IDs) name(of []byte) [16]byte {
	s.made++
	sum := blake3.Sum256(binary.BigEndian.AppendUint64(of, s.made))
	return [16]byte(sum[:])
}
