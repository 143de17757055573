package sweep

import (
	"bytes"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store/storetest"
)

// choices are the fuzzer's choices.
type choices struct{ b []byte }

func (c *choices) upTo(n int) int {
	if len(c.b) == 0 {
		return 0
	}
	v := int(c.b[0]) % (n + 1)
	c.b = c.b[1:]
	return v
}

// oak decides as Oak does: in one walk, with one set of references and one of what
// is garbage.
func oak(ctx context.Context, tars []Tar, head Head, o Options) map[tarfile.ID]bool {
	refs, garbage := map[tarfile.ID]bool{}, map[tarfile.ID]bool{}
	ahead := o.Root != nil
	for _, x := range tars {
		g, _ := x.Graph(ctx)
		for _, i := range slices.Backward(x.Index().ByPosition()) {
			e := x.Index().At(int(i))
			referred := refs[e.ID]
			delete(refs, e.ID)
			ahead = ahead && e.ID != *o.Root
			full, gen := head.Full-e.Generation.Full, head.Gen-e.Generation.Gen
			n := int32(max(o.Retain, 1))
			old := full >= n || gen >= n && !e.Generation.Compacted
			if o.Kind == Tail {
				old = gen >= n && (!e.Generation.Compacted || e.Generation.Full != head.Full)
			}
			if ahead && e.Generation.Compacted || !e.ID.IsData() && !referred || e.ID.IsData() && old {
				garbage[e.ID] = true
				continue
			}
			targets, _ := g.Targets(e.ID)
			for id := range targets.All() {
				if !id.IsData() {
					refs[id] = true
				}
			}
		}
	}
	return garbage
}

// FuzzMark makes stores by choice. Garbage must be the same as for Oak where Oak is right, and
// never more. What is kept must be there afterwards, byte by byte, with all the bulk segments
// that it refers to, whatever parts of tars are damaged.
func FuzzMark(f *testing.F) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := make([]byte, 200+100*seed)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &choices{b}
		r := rand.New(rand.NewPCG(uint64(len(b)), 1))
		disorder := c.upTo(3) == 3 // bulk segments anywhere, and copies
		var all []piece
		sound, harmed := map[string][]byte{}, map[string][]byte{}
		for n := range 1 + c.upTo(3) {
			var pieces []piece
			for range 1 + c.upTo(7) {
				p := piece{id: randomID(r, c.upTo(2) > 0), n: 16 * (1 + c.upTo(200))}
				if c.upTo(9) == 9 {
					p.id[8] = byte(c.upTo(255))
				}
				if disorder && len(all) > 0 && c.upTo(3) == 0 {
					p = all[c.upTo(len(all)-1)]
				}
				if slices.ContainsFunc(pieces, func(q piece) bool { return q.id == p.id }) {
					continue
				}
				if p.id.IsData() && p.refs == nil {
					p.n += 1024
					p.gen = at(int32(c.upTo(3)), int32(c.upTo(2)), c.upTo(1) > 0)
					for range c.upTo(5) {
						if len(all) > 0 {
							p.refs = append(p.refs, all[c.upTo(len(all)-1)].id)
						}
					}
					if disorder {
						p.refs = append(p.refs, randomID(r, false))
					}
					if c.upTo(3) == 3 {
						p.blob = "binary#" + p.id.String()
					}
				}
				pieces, all = append(pieces, p), append(all, p)
			}
			name := tarfile.Name(n, 'a'+byte(c.upTo(2)))
			sound[name] = tarOf(t, name, pieces...)
			harmed[name] = bytes.Clone(sound[name])
			if c.upTo(3) == 3 {
				damagePart(t, harmed[name], binariesPart, 4*c.upTo(3))
			}
			if c.upTo(3) == 3 {
				damagePart(t, harmed[name], graphPart, 4*c.upTo(3))
			}
		}
		i := slices.IndexFunc(all, func(p piece) bool { return p.id.IsData() })
		if i < 0 {
			return
		}
		if k := c.upTo(len(all) - 1); all[k].id.IsData() {
			i = k
		}
		head := Head{all[i].id, all[i].gen}
		o := Options{Kind: Kind(c.upTo(1)), Retain: c.upTo(2)}
		if c.upTo(1) == 1 {
			o.Root = &all[c.upTo(len(all)-1)].id
		}
		_, soundTars := memStore(t, sound)
		st, tars := memStore(t, harmed)
		p, err := Mark(t.Context(), tars, head, o)
		q, soundErr := Mark(t.Context(), soundTars, head, o)
		if (err == nil) != (soundErr == nil) {
			t.Fatal(err, soundErr)
		}
		if err != nil {
			if o.Root == nil {
				t.Fatal(err)
			}
			return
		}
		theirs := oak(t.Context(), soundTars, head, o)
		content := map[string]map[tarfile.ID][]byte{}
		for i := range p.Tars {
			x := &p.Tars[i]
			if !slices.Equal(x.garbage, q.Tars[i].garbage) {
				t.Errorf("%s: other segments are garbage without graphs", x.Name)
			}
			content[x.Name] = map[tarfile.ID][]byte{}
			for k, e := range x.Index().All() {
				if g := x.IsGarbage(k); g && !theirs[e.ID] || !disorder && g != theirs[e.ID] {
					t.Errorf("%s: segment %s, %s: garbage %t, %t to Oak", x.Name, e.ID, e.Generation, g, theirs[e.ID])
				}
				if x.IsGarbage(k) {
					continue
				}
				b, err := x.Read(t.Context(), k, nil)
				if err != nil {
					t.Fatal(err)
				}
				content[x.Name][e.ID] = b
				if h, ok := segment.ParseHead(b); ok && e.ID.IsData() {
					for id := range h.Refs.All() {
						known := slices.ContainsFunc(all, func(p piece) bool { return p.id == id })
						if !id.IsData() && known && !p.Keeps(id) {
							t.Errorf("segment %s is garbage, to which %s refers", id, e.ID)
						}
					}
				}
			}
		}
		if err := sweepAll(t.Context(), p, st); err != nil {
			t.Fatal(err)
		}
		for i := range p.Tars {
			x := &p.Tars[i]
			if x.Action != Rewrite {
				continue
			}
			y := openTar(t, st, x.NewName)
			wantSound(t, y)
			if got := y.Index().Len(); got != len(content[x.Name]) {
				t.Errorf("%s: %d segments, expected %d", x.NewName, got, len(content[x.Name]))
			}
			for k, e := range y.Index().All() {
				if b, err := y.Read(t.Context(), k, nil); err != nil || !bytes.Equal(b, content[x.Name][e.ID]) {
					t.Errorf("%s: segment %s is another one, %v", x.NewName, e.ID, err)
				}
			}
			// With sound parts there would be the same.
			want := describe(t, []Tar{soundTars[i]})[x.Name].without(&q.Tars[i])
			got := describe(t, []Tar{y})[x.NewName]
			if !maps.EqualFunc(got.Graph, want.Graph, slices.Equal) || len(got.Brf) != len(want.Brf) {
				t.Errorf("%s: graph %v, binary references %v, expected %v, %v", x.NewName, got.Graph, got.Brf, want.Graph, want.Brf)
			}
		}
	})
}

// FuzzDamage changes bytes of a store. There may be errors of any kind, but the tars that are
// written must be intact.
func FuzzDamage(f *testing.F) {
	f.Add(uint64(1), []byte{0, 1, 2, 3})
	f.Add(uint64(2), []byte{1, 0x20, 0x10, 0xff, 1, 0x1f, 0, 1})
	f.Fuzz(func(t *testing.T, seed uint64, b []byte) {
		s := newSample(rand.New(rand.NewPCG(seed, 1)))
		names := [...]string{"data00001a.tar", "data00002a.tar"}
		files := [...][]byte{s.first(t, names[0]), tarOf(t, names[1], s.head)}
		for ; len(b) >= 4; b = b[4:] {
			file := files[b[0]&1]
			file[(int(b[1])<<8|int(b[2]))%len(file)] ^= b[3]
		}
		st := &storetest.Mem{}
		var tars []Tar
		for i := range slices.Backward(names[:]) {
			st.Put(names[i], files[i])
			o, err := st.Open(t.Context(), names[i])
			if err != nil {
				t.Fatal(err)
			}
			x, err := tarfile.Open(t.Context(), o, names[i], tarfile.Options{})
			if err != nil {
				return
			}
			tars = append(tars, Tar{names[i], i + 1, 'a', o, x})
		}
		p, err := Mark(t.Context(), tars, s.headOf(), Options{})
		if err != nil {
			return
		}
		for i := range p.Tars {
			x := &p.Tars[i]
			if x.Action != Rewrite {
				continue
			}
			if _, err := p.Sweep(t.Context(), st, "", i); err != nil {
				if o, err := st.Open(t.Context(), x.NewName); err == nil {
					if _, err := o.Info(t.Context()); err == nil {
						t.Error(x.NewName, "is there in spite of an error")
					}
				}
				continue
			}
			y := openTar(t, st, x.NewName)
			if got := y.Index().Len(); got != x.Entries-x.Garbage {
				t.Errorf("%d segments, expected %d", got, x.Entries-x.Garbage)
			}
		}
	})
}
