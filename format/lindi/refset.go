package lindi

import (
	"encoding/hex"
	"io/fs"
	"slices"
	"strconv"

	"github.com/holdall/holdall/internal/arrays/pyjson"
	"github.com/holdall/holdall/internal/base/blake3"
)

// refset is a lindi.json that is being changed. Parts that do not change keep their text.
type refset struct {
	top   []member
	list  []member
	place map[string]int // number in list
	holes int            // removed entries, whose key is nil
	uses  map[string]int // number of keys that refer to a member
	x     *rfs           // the original, for its templates

	changed bool // since the beginning or the last commit
}

func newRefset(x *rfs) *refset {
	s := &refset{top: x.top, x: x, place: make(map[string]int, len(x.refs)), uses: map[string]int{}}
	for _, r := range x.refs {
		s.put(r.key, x.value(r))
	}
	s.changed = false
	return s
}

// keyText returns a key as it is written between quotes.
func keyText(key string) []byte {
	p := pyjson.AppendString(nil, key)
	return p[1 : len(p)-1]
}

func (s *refset) has(key string) bool { _, ok := s.place[key]; return ok }

// put sets the value of a key. It returns the member that the key referred to, if no key refers
// to it any more.
func (s *refset) put(key string, value []byte) (freed string) {
	s.changed = true
	if name, _, ok := s.x.inside(value); ok {
		s.uses[name]++
	}
	i, there := s.place[key]
	if !there {
		s.place[key] = len(s.list)
		s.list = append(s.list, member{keyText(key), value})
		return ""
	}
	freed = s.release(s.list[i].value)
	s.list[i].value = value
	return freed
}

// release removes a reference of a key.
func (s *refset) release(value []byte) (freed string) {
	name, _, ok := s.x.inside(value)
	if !ok {
		return ""
	}
	if s.uses[name]--; s.uses[name] > 0 {
		return ""
	}
	delete(s.uses, name)
	return name
}

func (s *refset) remove(key string) (freed string, err error) {
	i, ok := s.place[key]
	if !ok {
		return "", &fs.PathError{Op: "remove", Path: key, Err: fs.ErrNotExist}
	}
	freed, s.changed = s.release(s.list[i].value), true
	delete(s.place, key)
	s.list[i] = member{}
	if s.holes++; s.holes > 64 && s.holes > len(s.list)/2 {
		s.compact()
	}
	return freed, nil
}

func (s *refset) compact() {
	s.list, s.holes = slices.DeleteFunc(s.list, func(e member) bool { return e.key == nil }), 0
	for i, e := range s.list {
		s.place[textOf(e.key)] = i
	}
}

func (s *refset) rename(from, to string) error {
	i, ok := s.place[from]
	if !ok {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	if s.has(to) {
		return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrExist}
	}
	s.changed = true
	delete(s.place, from)
	s.place[to] = i
	s.list[i].key = keyText(to)
	return nil
}

// readdress changes all references to a member to another name.
func (s *refset) readdress(from, to string) {
	n := s.uses[from]
	if n == 0 {
		return
	}
	s.changed = true
	for i, e := range s.list {
		if name, t, ok := s.x.inside(e.value); ok && name == from {
			t.address = "./" + to
			s.list[i].value = appendRef(nil, t)
		}
	}
	delete(s.uses, from)
	s.uses[to] += n
}

// appendText appends the whole text.
func (s *refset) appendText(p []byte) []byte {
	p = append(p, '{')
	for _, m := range s.top {
		p = append(appendMember(append(p, "\n "...), m), ',')
	}
	p = append(p, "\n \"refs\": {"...)
	first := true
	for _, e := range s.list {
		if e.key == nil {
			continue
		}
		if !first {
			p = append(p, ',')
		}
		first = false
		p = appendMember(append(p, "\n  "...), e)
	}
	return append(p, "\n }\n}"...)
}

// blobName returns an unused name for the blob of a key: the key's own, then .v2, .v3 as in the
// reference, or one made from a hash if these do not fit into a header.
func blobName(key string, taken func(string) bool) string {
	for v := 1; ; v++ {
		name := blobDir + key
		if v > 1 {
			name += ".v" + strconv.Itoa(v)
		}
		if nameFault(name) != "" {
			name = shortBlob(name)
		}
		if !taken(name) {
			return name
		}
	}
}

// shortBlob makes a name that fits into a header from one that does not.
func shortBlob(name string) string {
	sum := blake3.Sum256([]byte(name))
	return blobDir + "~" + hex.EncodeToString(sum[:16])
}
