package age

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"filippo.io/age"
	"golang.org/x/crypto/chacha20poly1305"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// keys returns new keys, with which a store reads what it writes.
func keys(t testing.TB) *Keys {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return &Keys{Identities: []age.Identity{id}, Recipients: []age.Recipient{id.Recipient()}}
}

func noise(seed uint64, n int) []byte {
	r, p := rand.New(rand.NewPCG(seed, 1)), make([]byte, 0, n+8)
	for len(p) < n {
		p = binary.LittleEndian.AppendUint64(p, r.Uint64())
	}
	return p[:n]
}

func put(t testing.TB, st store.Store, name string, b []byte) {
	t.Helper()
	if err := storetest.Put(t.Context(), st, name, b); err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	for where, open := range map[string]func(t *testing.T) store.Store{
		"memory": func(*testing.T) store.Store { return &storetest.Mem{} },
		"files":  func(t *testing.T) store.Store { return local.New(t.TempDir()) },
	} {
		t.Run(where, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) (store.Store, func(string, []byte) error) {
				st := New(open(t), keys(t))
				return st, func(name string, content []byte) error { return storetest.Put(t.Context(), st, name, content) }
			})
		})
	}
}

// lengths are those at which something of pages changes.
var lengths = []int{0, 1, 15, 16, 17, page - 1, page, page + 1, 2*page - 1, 2 * page, 2*page + 17, 3*page + 5}

// What is stored is what the library of age reads, and the reverse, whatever its length. Every range and end
// of it can be read.
func TestEveryRangeOfEveryLength(t *testing.T) {
	k := keys(t)
	mem := &storetest.Mem{}
	st := New(mem, k)
	for _, n := range lengths {
		want := noise(uint64(n), n)
		put(t, st, "ours", want)
		r, err := age.Decrypt(bytes.NewReader(mem.Get("ours")), k.Identities...)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: age reads %d, %v", n, len(got), err)
		}
		var b bytes.Buffer
		w, err := age.Encrypt(&b, k.Recipients...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(want); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		mem.Put("theirs", b.Bytes())
		for _, name := range []string{"ours", "theirs"} {
			if got := storetest.Get(t, st, name); !bytes.Equal(got, want) {
				t.Errorf("%s of %d bytes: read %d", name, n, len(got))
			}
			for _, size := range []int{1, 100, page - 1, page, page + 1, 4 * page} {
				for _, tail := range []bool{false, true} {
					o := storetest.Open(t, st, name)
					p, read, from := make([]byte, size), storekit.ReadHead, 0
					if tail {
						read, from = storekit.ReadTail, max(n-size, 0)
					}
					got, err := read(t.Context(), o, p)
					if end := min(from+size, n); err != nil || !bytes.Equal(p[:got], want[from:end]) {
						t.Errorf("%s of %d bytes, %d at an end (tail %v): %d, %v", name, n, size, tail, got, err)
					}
				}
				for off := 0; off+size <= n; off += page/3 + 1 {
					p := make([]byte, size)
					if err := storetest.Open(t, st, name).ReadAt(t.Context(), p, int64(off)); err != nil || !bytes.Equal(p, want[off:off+size]) {
						t.Errorf("%s of %d bytes: %d at %d: %v", name, n, size, off, err)
					}
				}
			}
		}
	}
}

// readsOrTells reads each page of an object by itself, and both ends. What is read must be what was
// written, and an error must be that of damage. It returns how many pages are read.
func readsOrTells(t testing.TB, what string, st store.Store, want []byte) (pages int) {
	t.Helper()
	tells := func(err error) {
		if !errors.Is(err, storekit.ErrDamaged) && !strings.Contains(err.Error(), "leave out age:") && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: %v", what, err)
		}
		if text := err.Error(); strings.Contains(text, "\n") || len(text) > 500 {
			t.Errorf("%s: no short line: %v", what, err)
		}
	}
	for off := 0; off < len(want); off += page {
		p := make([]byte, min(page, len(want)-off))
		if err := storetest.Open(t, st, "x").ReadAt(t.Context(), p, int64(off)); err != nil {
			tells(err)
		} else if pages++; !bytes.Equal(p, want[off:off+len(p)]) {
			t.Errorf("%s: wrong bytes at %d", what, off)
		}
	}
	for _, read := range []func(context.Context, store.Object, []byte) (int, error){storekit.ReadHead, storekit.ReadTail} {
		p := make([]byte, len(want)+3*page)
		if n, err := read(t.Context(), storetest.Open(t, st, "x"), p); err != nil {
			tells(err)
		} else if !bytes.Equal(p[:n], want) {
			t.Errorf("%s: %d bytes are read as a whole, which are not those that were written", what, n)
		}
	}
	return pages
}

// Whatever is done to what is stored, no wrong byte is read: pages that are damaged are told, the others are
// read.
func TestHostilePages(t *testing.T) {
	k := keys(t)
	for _, n := range []int{0, 10, page, 3 * page, 3*page + 100} {
		mem := &storetest.Mem{}
		st := New(mem, k)
		want := noise(uint64(n), n)
		put(t, st, "x", want)
		sound := mem.Get("x")
		stored, err := age.ExtractHeader(bytes.NewReader(sound))
		if err != nil {
			t.Fatal(err)
		}
		front := len(stored) + nonceLen
		var pages [][]byte
		for b := sound[front:]; len(b) > 0; b = b[min(sealed, len(b)):] {
			pages = append(pages, b[:min(sealed, len(b))])
		}
		all := (n + page - 1) / page
		join := func(pages ...[]byte) []byte { return append(bytes.Clone(sound[:front]), bytes.Join(pages, nil)...) }
		check := func(what string, b []byte, least int) {
			t.Helper()
			mem.Put("x", b)
			if got := readsOrTells(t, fmt.Sprintf("%d bytes, %s", n, what), st, want); got < least || least >= 0 && got > least {
				t.Errorf("%d bytes, %s: %d pages are read of %d, expected %d", n, what, got, all, least)
			}
		}
		check("sound", sound, all)
		for i := range pages {
			for _, at := range []int{0, len(pages[i]) / 2, len(pages[i]) - 1} {
				b := bytes.Clone(pages[i])
				b[at] ^= 1
				changed := append([][]byte{}, pages...)
				changed[i] = b
				check(fmt.Sprintf("page %d flipped at %d", i, at), join(changed...), max(all-1, 0))
			}
			rest := append(append([][]byte{}, pages[:i]...), pages[i+1:]...)
			check(fmt.Sprintf("page %d removed", i), join(rest...), -1)
			double := append(append(append([][]byte{}, pages[:i+1]...), pages[i]), pages[i+1:]...)
			check(fmt.Sprintf("page %d doubled", i), join(double...), -1)
			for j := range i {
				changed := append([][]byte{}, pages...)
				changed[i], changed[j] = changed[j], changed[i]
				if len(pages[i]) == len(pages[j]) {
					check(fmt.Sprintf("pages %d and %d swapped", i, j), join(changed...), all-2)
				} else {
					check(fmt.Sprintf("pages %d and %d swapped", i, j), join(changed...), -1)
				}
			}
			for _, by := range []int{-1, 0, 1, 15, 16, 17} {
				if cut := front + i*sealed + by; cut < len(sound) {
					check(fmt.Sprintf("truncated to %d", cut), sound[:cut], max(0, (cut-front+sealed-1)/sealed-1-map[bool]int{true: 1}[(cut-front)%sealed > 0 && (cut-front)%sealed <= 16]))
				}
			}
			for _, more := range [][]byte{{0}, make([]byte, 16), make([]byte, 17), make([]byte, sealed), sound} {
				check(fmt.Sprintf("%d bytes after it", len(more)), append(bytes.Clone(sound), more...), max(all-1, 0))
			}
		}
		for i := range front {
			b := bytes.Clone(sound)
			b[i] ^= 1
			check(fmt.Sprintf("header flipped at %d", i), b, 0)
			check(fmt.Sprintf("truncated to %d", i), sound[:i], 0)
		}
	}
}

// An error says what page is damaged, where that is stored, and what to do about keys.
func TestErrorsSayWhatToDo(t *testing.T) {
	mem := &storetest.Mem{}
	st := New(mem, keys(t))
	put(t, st, "x", noise(1, 3*page))
	sound := mem.Get("x")
	front := len(sound) - 3*sealed
	at := func(change func([]byte) []byte, off int64) error {
		mem.Put("x", change(bytes.Clone(sound)))
		return storetest.Open(t, st, "x").ReadAt(t.Context(), make([]byte, 10), off)
	}
	same := func(b []byte) []byte { return b }
	flip := func(i int) func([]byte) []byte { return func(b []byte) []byte { b[i]++; return b } }
	other := func(i int) func([]byte) []byte { // of base64
		return func(b []byte) []byte {
			b[i] = map[bool]byte{true: 'B', false: 'A'}[b[i] == 'A']
			return b
		}
	}
	for says, err := range map[string]error{
		fmt.Sprintf("decrypt x 65536 bytes at 65536: archive is damaged: the page of 65552 bytes at %d of what is stored does not decrypt", front+sealed): at(flip(front+sealed+99), page),
		fmt.Sprintf("truncated: pages are missing at %d of", front+2*sealed):                                                                              at(func(b []byte) []byte { return b[:front+2*sealed] }, page),
		fmt.Sprintf("goes on after its last page, at %d of", front+3*sealed):                                                                              at(func(b []byte) []byte { return append(b, 0) }, 2*page),
		fmt.Sprintf("its last page, at %d of", front+3*sealed):                                                                                            at(func(b []byte) []byte { return append(b, make([]byte, sealed)...) }, 2*page),
		"truncated in its header":     at(func(b []byte) []byte { return b[:50] }, 0),
		"truncated in its first page": at(func(b []byte) []byte { return b[:front+5] }, 0),
		"leave out age:":              at(func([]byte) []byte { return []byte("<chunk archive>") }, 0),
		"as text (--armor)":           at(func([]byte) []byte { return []byte("-----BEGIN AGE ENCRYPTED FILE-----\nYWdl") }, 0),
		"its header: bad header MAC":  at(other(front-nonceLen-10), 0),
		"or its header is damaged":    at(other(front-nonceLen-60), 0),
	} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("expected %q, found %v", says, err)
		}
	}
	if err := at(flip(front+sealed+99), 0); err != nil {
		t.Errorf("the page before a damaged one: %v", err)
	}
	err := at(flip(front+sealed+99), 2*page-5)
	if e, ok := errors.AsType[*store.Error](err); !ok || e.Off != page || e.Len != page || !errors.Is(err, storekit.ErrDamaged) {
		t.Errorf("a range over a damaged page: %v", err)
	}
	mem.Put("x", same(sound))
	for says, k := range map[string]*Keys{identityVar: {}, "encrypted to others (X25519)": keys(t)} {
		_, err := storetest.Open(t, New(mem, k), "x").Info(t.Context())
		if err == nil || !strings.Contains(err.Error(), says) || !errors.Is(err, fs.ErrPermission) {
			t.Errorf("expected %q, found %v", says, err)
		}
	}
}

// A page that is damaged is read again as the layer below is healed, and the others as they are.
func TestDamagedPagesAreHealedBelow(t *testing.T) {
	k := keys(t)
	mem, was := &storetest.Mem{}, &storetest.Mem{}
	want := noise(3, 3*page+77)
	put(t, New(mem, k), "x", want)
	b := mem.Get("x")
	was.Put("x", b)
	b[len(b)/2]++
	b[len(b)-1]++
	mem.Put("x", b)
	asked := 0
	over := func(healed store.Store) store.Store {
		return New(mem, k).Can().Over(mem, func(context.Context) store.Store { asked++; return healed })
	}
	if got := storetest.Get(t, over(was), "x"); !bytes.Equal(got, want) || asked != 2 {
		t.Errorf("wrong bytes, or asked %d times", asked)
	}
	for what, other := range map[string]store.Store{"none": nil, "other": mem, "missing": &storetest.Mem{}} {
		if err := storetest.Open(t, over(other), "x").ReadAt(t.Context(), make([]byte, 10), int64(len(want)/2)); !errors.Is(err, storekit.ErrDamaged) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// An end of an object of unknown size takes two requests, at the same time, and a range then takes one.
func TestFewRequests(t *testing.T) {
	k := keys(t)
	mem := &storetest.Mem{}
	put(t, New(mem, k), "x", noise(5, 40*page+1000))
	var mu sync.Mutex
	requests, read := 0, int64(0)
	o := storetest.Open(t, New(storetest.Fault(mem, func(op, _ string, _, n int64) error {
		mu.Lock()
		defer mu.Unlock()
		if op == "head" || op == "tail" || op == "read" {
			requests, read = requests+1, read+n
		}
		return nil
	}), k), "x")
	asked := func() (n int, bytes int64) {
		n, bytes = requests, read
		requests, read = 0, 0
		return n, bytes
	}
	if _, err := storekit.ReadTail(t.Context(), o, make([]byte, page)); err != nil {
		t.Fatal(err)
	}
	if n, b := asked(); n != 2 || b > 2*page+128<<10 {
		t.Errorf("an end took %d requests, %d bytes", n, b)
	}
	want := 10*page + 10
	if err := o.ReadAt(t.Context(), make([]byte, want), page/2); err != nil {
		t.Fatal(err)
	}
	if n, b := asked(); n != 1 || b > int64(want)*11/10+128<<10 {
		t.Errorf("a range took %d requests, %d bytes", n, b)
	}
}

// Keys come from files that variables name, and recipients stand there too.
func TestKeysOfTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	save := func(name, text string) string {
		if err := storetest.Put(t.Context(), local.New(dir), name, []byte(text)); err != nil {
			t.Fatal(err)
		}
		return dir + "/" + name
	}
	first, _ := age.GenerateX25519Identity()
	second, _ := age.GenerateHybridIdentity()
	a, b := save("a", "# a key\n"+first.String()+"\n"), save("b", second.String())
	phrase := save("phrase", "correct horse\n")
	mem := &storetest.Mem{}
	try := func(ids, to, phrase string) error {
		t.Setenv(identityVar, ids)
		t.Setenv(recipientsVar, to)
		t.Setenv(passphraseVar, phrase)
		k, err := environment()
		if err != nil {
			return err
		}
		st := New(mem, k)
		if to != "" || phrase != "" {
			if err := storetest.Put(t.Context(), st, "x", []byte("text")); err != nil {
				return err
			}
		}
		o, err := st.Open(t.Context(), "x")
		if err != nil {
			return err
		}
		defer o.Close()
		return o.ReadAt(t.Context(), make([]byte, 4), 0)
	}
	for _, c := range []struct{ ids, to, phrase, says string }{
		{a, first.Recipient().String(), "", ""},
		{b + ":" + a, save("to", first.Recipient().String()), "", ""},
		{b, second.Recipient().String(), "", ""},
		{a, "", "", "no key of"},
		{"", first.Recipient().String(), "", identityVar},
		{"", "", phrase, ""},
		{a, first.Recipient().String(), phrase, ""},
		{a, second.Recipient().String() + ":" + first.Recipient().String(), "", "incompatible recipients"},
		{dir + "/none", "", "", dir + "/none"},
		{phrase, "", "", "phrase: error at line 1"},
		{a, phrase, "", "phrase: error at line 1"},
		{a, "", save("empty", "\n"), "passphrase can't be empty"},
	} {
		err := try(c.ids, c.to, c.phrase)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%q: found %v", c, err)
		}
	}
	t.Setenv(recipientsVar, "")
	t.Setenv(passphraseVar, "")
	k, err := environment()
	if err != nil {
		t.Fatal(err)
	}
	if err := storetest.Put(t.Context(), New(mem, k), "x", nil); err == nil || !strings.Contains(err.Error(), recipientsVar) {
		t.Errorf("without a recipient: %v", err)
	}
}

// FuzzStored reads what anybody may have stored: an error, or what was written, never a panic.
func FuzzStored(f *testing.F) {
	k := keys(f)
	mem := &storetest.Mem{}
	want := noise(7, page+100)
	put(f, New(mem, k), "x", want)
	sound := mem.Get("x")
	f.Add(0, []byte(nil))
	f.Add(22, []byte("-> scrypt AAAA 18\n"))
	f.Add(200, []byte("--- x"))
	f.Add(len(sound)-1, []byte{1, 2})
	f.Add(0, []byte("age-encryption.org/v1\n-> X25519 \n--- \n"))
	f.Fuzz(func(t *testing.T, at int, over []byte) {
		b := bytes.Clone(sound)
		if at < 0 || at > len(b) {
			return
		}
		b = append(b[:at], over...)
		if at+len(over) < len(sound) && len(over)%2 == 0 {
			b = append(b, sound[at+len(over):]...)
		}
		mem := &storetest.Mem{}
		mem.Put("x", b)
		readsOrTells(t, "", New(mem, k), want)
	})
}

// Ranges that follow each other, and those of several readers at once, are right whatever page is kept.
func TestRangesThatShareAPage(t *testing.T) {
	st := New(&storetest.Mem{}, keys(t))
	want := noise(11, 5*page+300)
	put(t, st, "x", want)
	o := storetest.Open(t, st, "x")
	var all sync.WaitGroup
	for r := range 4 {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(r), 1))
			for at := 0; at < len(want); {
				p := make([]byte, min(1+rnd.IntN(page), len(want)-at))
				if err := o.ReadAt(t.Context(), p, int64(at)); err != nil || !bytes.Equal(p, want[at:at+len(p)]) {
					t.Errorf("%d bytes at %d: %v", len(p), at, err)
				}
				at += len(p) - rnd.IntN(2)*len(p)/3
			}
		})
	}
	all.Wait()
}

func BenchmarkReads(b *testing.B) {
	k := keys(b)
	st := New(local.New(b.TempDir()), k)
	const size = 64 << 20
	put(b, st, "x", noise(9, size))
	o := storetest.Open(b, st, "x")
	b.Run("page/sequential", func(b *testing.B) { // one of them begins within each page
		p, at := make([]byte, page), int64(100)
		b.SetBytes(page)
		b.ReportAllocs()
		for b.Loop() {
			if err := o.ReadAt(b.Context(), p, at); err != nil {
				b.Fatal(err)
			}
			if at += page; at > size-page {
				at = 100
			}
		}
	})
	for name, n := range map[string]int{"page": page, "1MiB": 1 << 20} {
		for _, aligned := range []bool{true, false} {
			b.Run(fmt.Sprintf("%s/aligned=%v", name, aligned), func(b *testing.B) {
				r, p := rand.New(rand.NewPCG(1, 1)), make([]byte, n)
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					off := r.IntN(size - n)
					if aligned {
						off = off / page * page
					}
					if err := o.ReadAt(b.Context(), p, int64(off)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkOpen is what the other benchmarks compare with: nothing but the cipher.
func BenchmarkOpen(b *testing.B) {
	aead, err := chacha20poly1305.New(make([]byte, chacha20poly1305.KeySize))
	if err != nil {
		b.Fatal(err)
	}
	nonce, to := make([]byte, chacha20poly1305.NonceSize), make([]byte, page)
	p := aead.Seal(nil, nonce, to, nil)
	b.SetBytes(page)
	for b.Loop() {
		if _, err := aead.Open(to[:0], nonce, p, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	st := New(&storetest.Mem{}, keys(b))
	p := noise(9, 8<<20)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		put(b, st, "x", p)
	}
}
