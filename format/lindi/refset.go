package lindi

import (
	"encoding/hex"
	"io/fs"
	"slices"
	"strconv"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/internal/pyjson"
)

// A refset is a lindi.json that is being changed: what is not touched stays the
// text that it was.
type refset struct {
	top   []member
	list  []member
	place map[string]int // in list
	holes int            // removed entries, whose key is nil
	uses  map[string]int // how many keys lead to a member
	x     *rfs           // that it was made from, for its templates

	changed bool // since it was made, or committed
}

func newRefset(x *rfs) *refset {
	s := &refset{top: x.top, x: x, place: make(map[string]int, len(x.refs)), uses: map[string]int{}}
	for _, r := range x.refs {
		s.put(r.key, x.value(r))
	}
	s.changed = false
	return s
}

func (s *refset) has(key string) bool { _, ok := s.place[key]; return ok }

// put gives a key a value. It returns the member that the key led to before, if
// nothing leads to it any more.
func (s *refset) put(key string, value []byte) (freed string) {
	s.changed = true
	if name, _, ok := s.x.inside(value); ok {
		s.uses[name]++
	}
	i, there := s.place[key]
	if !there {
		s.place[key] = len(s.list)
		s.list = append(s.list, member{pyjson.AppendString(nil, key), value})
		return ""
	}
	freed = s.release(s.list[i].value)
	s.list[i].value = value
	return freed
}

// release forgets that a key leads somewhere.
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
		s.place[str(e.key)] = i
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
	s.list[i].key = pyjson.AppendString(nil, to)
	return nil
}

// readdress makes all keys that lead to one member lead to another name.
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

// blobName finds a name for the blob of a key that no member has: the key's own,
// then .v2, .v3 as the reference has it, then one made of a hash where a header
// has no room for those.
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

// shortBlob makes a name that a header has room for out of one that it has not.
func shortBlob(name string) string {
	sum := blake3.Sum256([]byte(name))
	return blobDir + "~" + hex.EncodeToString(sum[:16])
}
