package lindi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/arrays/zarr3"
	"github.com/holdall/holdall/internal/arrays/zarrkey"
	"github.com/holdall/holdall/zarr"
)

// keys is the view of the reference file system, in which each key is a file.
type keys struct {
	kit.LateIndex // of the keys, for everything except finding a single key

	a        *archive
	byKey    *names         // of refs
	byName   *names         // of the members of a tar
	tail     map[string]row // members after everything that the index lists
	tailOnce sync.Once

	loading sync.Mutex
	index   *kit.Index               // nil until it is needed, like the following fields
	linked  map[string]*linked       // arrays by path
	files   map[string]format.Reader // the files with their chunks, by address

	mu     sync.Mutex
	arrays map[string]*array // by path; nil if there is none
	large  sync.Mutex        // held while much memory is used
}

// array is what is known of an array, and the decoder of its chunks; nil if decoding shows no
// damage.
type array struct {
	*zarr.Meta
	prover *zarr.Prover
}

func newKeys(ctx context.Context, a *archive) (*keys, error) {
	if err := a.loadRFS(ctx); err != nil {
		return nil, err
	}
	return keysOf(a), nil
}

// keysOf returns the view of an archive whose lindi.json is loaded. The tables for finding keys
// are made when they are first needed.
func keysOf(a *archive) *keys {
	k := &keys{a: a, arrays: map[string]*array{}, linked: map[string]*linked{}, files: map[string]format.Reader{}}
	k.byKey = &names{n: a.rfs.Len(), name: a.rfs.Name}
	if a.table != nil {
		k.byName = &names{n: a.table.Len(), name: a.table.Name}
	}
	k.Load = k.load
	return k
}

func (k *keys) load(ctx context.Context) (*kit.Index, error) {
	k.loading.Lock()
	defer k.loading.Unlock()
	if k.index == nil {
		elsewhere, err := k.followLinks(ctx)
		if err != nil {
			return nil, err
		}
		k.index = kit.NewIndex(keyTable{k, elsewhere})
	}
	return k.index, nil
}

// keyTable makes the entry of a key when it is requested. The keys of lindi.json are followed by
// chunks of linked arrays.
type keyTable struct {
	*keys
	elsewhere []format.Entry
}

func (t keyTable) Len() int { return t.a.rfs.Len() + len(t.elsewhere) }

func (t keyTable) Name(i int) string {
	if i -= t.a.rfs.Len(); i >= 0 {
		return t.elsewhere[i].Name
	}
	return t.a.rfs.Name(i + t.a.rfs.Len())
}

func (t keyTable) Entry(i int) format.Entry {
	if i -= t.a.rfs.Len(); i >= 0 {
		return t.elsewhere[i]
	}
	return t.entry(t.a.rfs.refs[i+t.a.rfs.Len()])
}

// storedAt is where a key's content is stored.
type storedAt struct {
	value    []byte // content that is in lindi.json
	object   string
	external bool
	off, n   int64
}

func (k *keys) entry(r ref) format.Entry {
	e := format.Entry{Name: r.key}
	v := k.a.rfs.value(r)
	bad := func(code format.Code, msg string, args ...any) format.Entry {
		p := k.a.problem(code, format.Error, -1, msg, args...)
		p.Off = k.a.place(r)
		p.Entry, p.HasEntry = r.key, true
		e.Fault = &p
		return e
	}
	if v[0] != '[' {
		n, err := inlineSize(v)
		if err != nil {
			return bad(format.BadData, "cannot decode its content in %s: %v", rfsName, err)
		}
		e.Size, e.Ref = n, storedAt{value: v, off: k.a.place(r), n: n}
		if v[0] == '"' {
			e.Size = k.filled(r.key, n)
		}
		return e
	}
	t, err := k.a.rfs.target(v)
	if err != nil {
		return bad(format.BadIndex, "%.80q is not a reference: %v", v, err)
	}
	p := storedAt{off: t.off, n: t.n}
	name, within := t.inside()
	switch {
	case !within:
		p.object, p.external = t.address, true
		if p.object == "" {
			return bad(format.Dangling, "its reference has no address")
		}
	case k.a.form == tarForm:
		at, digest, ok := k.member(name)
		switch {
		case !ok:
			return bad(format.Dangling, "refers to the member %q, which does not exist", name)
		case t.n > at.s || t.off > at.s-t.n:
			return bad(format.OutOfBounds, "refers to bytes %s of %q, which has %d", shownRange(t.off, t.n), name, at.s)
		case t.n > k.a.size || at.d > k.a.size-t.n || at.d+t.off > k.a.size-t.n:
			return bad(format.Truncated, "refers to %q, which extends beyond the end of the archive", name)
		}
		p.object, p.off = k.a.name, at.d+t.off
		if t.off == 0 && t.n == at.s {
			e.Digest = digest
		}
	case !fs.ValidPath(name):
		return bad(format.UnsafePath, "refers to %q, which is not a path within the archive", name)
	default:
		p.object = path.Join(k.a.folder(), name)
	}
	e.Ref = p
	if e.Size = k.filled(r.key, t.n); e.Size != t.n {
		e.Digest = format.Digest{} // the digest is that of the stored bytes
	}
	return e
}

// member finds a member of the tar. If a writer was killed, it may have written members that keys
// refer to but not the index. Such members follow all others.
func (k *keys) member(name string) (row, format.Digest, bool) {
	if i, ok := k.byName.find(name); ok {
		r := k.a.table.row(i)
		return r, r.digest(), true
	}
	k.tailOnce.Do(func() {
		end := int64(0)
		for r := range k.a.table.all {
			end = max(end, r.end())
		}
		if end+terminatorLen >= k.a.size || k.a.table.found {
			return
		}
		w, err := k.a.walk(context.Background(), end)
		if err != nil {
			return // a missing member is reported as dangling; other reads return the error
		}
		k.tail = map[string]row{}
		for _, f := range w.members {
			if !f.trash && !f.odd && !f.cut {
				k.tail[f.row.name] = f.row
			}
		}
	})
	r, ok := k.tail[name]
	return r, format.Digest{}, ok
}

// filled returns the size of a chunk of n stored bytes. A short chunk is followed by zeros, but
// only if chunks are stored unchanged, because zeros would damage compressed data.
func (k *keys) filled(key string, n int64) int64 {
	if n == 0 {
		return n
	}
	return max(n, k.wholeChunk(key))
}

// tooLong returns the correct size of a chunk that is too long; 0 if it is not.
func (k *keys) tooLong(key string, n int64) int64 {
	if whole := k.wholeChunk(key); whole > 0 && n > whole {
		return whole
	}
	return 0
}

// wholeChunk returns the size of the chunk at a key if chunks are stored unchanged. It returns 0
// if they are not, or if the key is not a chunk.
func (k *keys) wholeChunk(key string) int64 {
	if z := k.arrayOf(key); z != nil {
		return z.Filled()
	}
	return 0
}

// arrayOf returns the array of a chunk's key, or nil if there is none.
func (k *keys) arrayOf(key string) *array {
	k.mu.Lock()
	defer k.mu.Unlock()
	for dir := key; dir != ""; {
		i := strings.LastIndexByte(dir, '/')
		if !isChunk(dir[i+1:]) {
			return nil
		}
		dir = dir[:max(i, 0)]
		z, known := k.arrays[dir]
		if !known {
			z = k.openArray(dir)
			k.arrays[dir] = z
		}
		if z != nil && strings.Count(strings.TrimPrefix(key[len(dir):], "/"), z.Separator)+1 == max(len(z.Shape), 1) {
			return z
		}
	}
	return nil
}

// isChunk reports whether the last part of a key is that of a chunk: integers and dots.
func isChunk(last string) bool {
	digits := 0
	for i := range len(last) {
		switch c := last[i]; {
		case c >= '0' && c <= '9':
			digits++
		case c == '.' && digits > 0:
			digits = 0
		default:
			return false
		}
	}
	return digits > 0
}

// openArray returns the array at dir, or nil if it cannot be read.
func (k *keys) openArray(dir string) *array {
	at, ok := k.find(zarrkey.Join(dir, ".zarray"))
	if !ok {
		return nil
	}
	m, err := zarr.ParseMeta(k.a.rfs.meta(at))
	if err != nil {
		return nil
	}
	p, _ := m.Prover(mostBytes) // the check of the structure reports why not
	return &array{m, p}
}

// find returns the reference of a key that counts.
func (k *keys) find(key string) (ref, bool) {
	i, ok := k.byKey.find(key)
	if !ok {
		return ref{}, false
	}
	return k.a.rfs.refs[i], true
}

// Lookup finds a key, following soft links: a group with the attribute _SOFT_LINK represents the
// group or array that it names.
func (k *keys) Lookup(ctx context.Context, name string) (format.Entry, error) {
	if r, ok := k.find(name); ok {
		return k.entry(r), nil
	}
	e, at, err := zarr3.LookupLinked(ctx, name, k.link, k.LateIndex.Lookup)
	if !errors.Is(err, fs.ErrNotExist) {
		return e, err
	}
	if l := k.linkedTo(at); l != nil && l.fault != nil {
		return format.Entry{Name: name, Fault: l.fault}, nil
	} else if l != nil {
		err = &fs.PathError{Op: "look up", Path: name, Err: zarr.ErrUnwritten}
	}
	return e, err
}

// link returns the target of the group at dir if it is a soft link. Paths are absolute. A
// relative path is relative to the group that contains the link, although the reference resolves
// it from the root.
func (k *keys) link(dir string) (to string) {
	at, ok := k.find(zarrkey.Join(dir, ".zattrs"))
	if !ok {
		return ""
	}
	if !bytes.Contains(k.a.rfs.value(at), []byte("_SOFT_LINK")) {
		return ""
	}
	s := scannerOf(k.a.rfs.meta(at), k.a.limits.Depth)
	for s.Begin('{'); s.Next('}'); {
		if string(s.Key()) != "_SOFT_LINK" || s.Space() != '{' {
			s.Skip()
			continue
		}
		for s.Begin('{'); s.Next('}'); {
			if string(s.Key()) == "path" && s.Space() == '"' {
				to = textOf(s.String())
			} else {
				s.Skip()
			}
		}
	}
	if s.Err != nil {
		return ""
	}
	return to
}

// Can returns the optional functions of the reader.
func (k *keys) Can() format.Abilities {
	return format.Abilities{Run: k.Run, ReadDirFrom: k.ReadDirFrom, Doubt: k.a.doubts, Decoder: k.Decoder, Compares: k.compares, Carry: k.carry}
}

// carry returns what lindi.json has at its top besides the references.
func (k *keys) carry(context.Context) (carry [][2]string, _ error) {
	for _, m := range k.a.rfs.top {
		carry = append(carry, [2]string{string(m.key), string(m.value)})
	}
	return carry, nil
}

// compares reports that a value in lindi.json was compared with the digest of its text.
func (k *keys) compares(e format.Entry) format.Proof {
	if p, ok := e.Ref.(storedAt); ok && p.value != nil && !p.external && k.a.rfsSummed {
		return format.Digested
	}
	return format.Unproven
}

// Run returns the extent of a key's content, if it is a single run in an object of this archive's
// store.
func (k *keys) Run(e format.Entry) (format.Extent, bool) {
	p, ok := e.Ref.(storedAt)
	if !ok || e.Fault != nil || p.value != nil || p.external || p.n == 0 || p.n != e.Size {
		return format.Extent{}, false
	}
	return format.Extent{Size: e.Size, Object: p.object, Off: p.off, Len: p.n}, true
}

func (k *keys) Extents(ctx context.Context, e format.Entry, off, n int64) iter.Seq2[format.Extent, error] {
	if c, ok := e.Ref.(chunkElsewhere); ok && e.Fault == nil {
		return c.extents(ctx, off, n)
	}
	return func(yield func(format.Extent, error) bool) {
		p, ok := e.Ref.(storedAt)
		switch {
		case e.Fault != nil || !ok:
			yield(format.Extent{}, e.Unreadable("lindi"))
			return
		case n <= 0 || e.Size == 0:
			return
		}
		x := format.Extent{Size: p.n, Object: p.object, External: p.external, Off: p.off, Len: p.n}
		if p.value != nil {
			b, err := inline(p.value)
			if err != nil {
				yield(format.Extent{}, fmt.Errorf("%s: %w", e.Name, err))
				return
			}
			x = format.Extent{Size: p.n, Object: k.a.objectName(), Off: p.off, Len: int64(len(p.value)), Codec: codec.Inline, Data: b}
		}
		if x.Size > 0 && !yield(x, nil) {
			return
		}
		if e.Size > p.n {
			yield(format.Extent{At: p.n, Size: e.Size - p.n, Codec: codec.Zero}, nil)
		}
	}
}

// used returns the parts of the tar that keys refer to.
func (k *keys) used(ctx context.Context) (all kit.Ranges, _ error) {
	for e, err := range k.Entries(ctx) {
		if err != nil {
			return all, err
		}
		if p, ok := e.Ref.(storedAt); ok && p.value == nil && !p.external && e.Fault == nil {
			all.Add(p.off, p.off+p.n)
		}
	}
	all.Join()
	return all, nil
}

// Regions yields everything that is not the content of a key. Members that no key refers to count
// as trash.
func (k *keys) Regions(ctx context.Context) iter.Seq2[format.Region, error] {
	if k.a.form != tarForm {
		return func(yield func(format.Region, error) bool) {
			yield(format.Region{Object: k.a.objectName(), Len: k.a.size, Use: format.IndexData, Label: rfsName}, nil)
		}
	}
	return func(yield func(format.Region, error) bool) {
		for g, err := range k.a.regions(ctx) {
			if !yield(g, err) || err != nil {
				return
			}
		}
		used, err := k.used(ctx)
		if err != nil {
			yield(format.Region{}, err)
			return
		}
		for r := range k.a.table.all {
			if k.a.table.fault(r) != nil {
				continue
			}
			switch r.name {
			case entryName, indexName, rfsName:
				if !yield(format.Region{Object: k.a.name, Off: r.d, Len: r.s, Use: format.IndexData, Label: r.name}, nil) {
					return
				}
				continue
			}
			for _, gap := range used.Gaps(r.d, r.d+r.s) {
				if !yield(format.Region{Object: k.a.name, Off: gap.From, Len: gap.To - gap.From, Use: format.Trash, Label: r.name + ", unreferenced"}, nil) {
					return
				}
			}
		}
	}
}

func (k *keys) About(ctx context.Context) (format.About, error) {
	a := k.a
	about := format.About{Version: a.rfs.version(), Volumes: []string{a.objectName()}, Notes: a.notes}
	about.IndexBytes = a.size
	var members []string
	if a.form == tarForm {
		about.IndexBytes = a.table.indexBytes()
		for r := range a.table.all {
			members = append(members, r.name)
		}
	}
	if a.form == dirForm {
		files, err := a.files(ctx)
		if err != nil {
			return about, err
		}
		about.Volumes = about.Volumes[:0]
		for _, f := range files {
			about.Volumes = append(about.Volumes, f.object)
			members = append(members, f.name)
		}
	}
	if unseen := k.unseen(members); len(unseen) > 0 {
		about.Notes = append(slices.Clone(about.Notes), a.problem(format.Gap, format.Note, -1, "%s without a key, visible in view members: %s", many(len(unseen), "member"), shortList(unseen)))
	}
	about.Facts = append(about.Facts, [2]string{"form", a.form.String()})
	var inside, outside, here int64
	for _, r := range a.rfs.refs {
		v := a.rfs.value(r)
		if v[0] != '[' {
			here++
		} else if _, _, ok := a.rfs.inside(v); ok {
			inside++
		} else {
			outside++
		}
	}
	about.Facts = append(about.Facts, [2]string{"keys", fmt.Sprintf("%d inline, %d in members, %d outside", here, inside, outside)})
	for _, m := range a.rfs.top {
		if textOf(m.key) == noteKey {
			about.Facts = append(about.Facts, [2]string{noteKey, fmt.Sprintf("%.200s", m.value)})
		}
	}
	return about, nil
}

// unseen returns the members that were added by the user and that no key refers to.
func (k *keys) unseen(members []string) (unseen []string) {
	members = slices.DeleteFunc(members, func(name string) bool {
		return name == entryName || name == indexName || name == rfsName || strings.HasPrefix(name, blobDir) || strings.HasPrefix(name, trashDir)
	})
	if len(members) == 0 {
		return nil
	}
	referred := k.referred()
	return slices.DeleteFunc(members, func(name string) bool { return referred[name] })
}

// shortList returns the first of some names.
func shortList(names []string) string {
	const most = 3
	if len(names) > most {
		names = append(names[:most:most], "…")
	}
	return format.Escape(strings.Join(names, ", "))
}

func (k *keys) Close() error { return errors.Join(k.closeFiles(), k.a.close()) }
