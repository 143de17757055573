package book

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// TestErase erases names that were in archives which are removed, and some that were deleted. The head
// may be an old one afterwards.
func TestErase(t *testing.T) {
	for _, inline := range []int{0, 1000, mostInline} {
		t.Run(fmt.Sprint(inline), func(t *testing.T) { testErase(t, inline) })
	}
}

func testErase(t *testing.T, inline int) {
	rnd := testkit.Rand(t)
	st, ctx := newMemory(), t.Context()
	b := created(t, st)
	b.o.inline = inline
	names, stay := []string{"m-zYxWv-0815"}, map[string]string{}
	for i := range 5 * stateEvery {
		some := []string{fmt.Sprintf("a/%04d", i), fmt.Sprintf("x/%04d", i)}
		address := fmt.Sprintf("mem://packed/%d.caf", i)
		if i%8 == 0 {
			names = append(names, fmt.Sprintf("a/%04d-zYxWv", i))
			some = append(some, names[len(names)-1], names[0])
		}
		if _, err := b.Add(ctx, addition(rnd, address, some...)); err != nil {
			t.Fatal(err)
		}
		if stay[some[0]] = address; i%8 > 0 {
			continue
		}
		delete(stay, some[0])
		if i%16 == 0 { // others are deleted afterwards
			if _, err := b.Delete(ctx, names); err != nil {
				t.Fatal(err)
			}
		}
	}
	old, err := b.get(ctx, "head", mostObject)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Erase(ctx, names); !errors.Is(err, ErrConflict) {
		t.Errorf("archives have them: %v", err)
	}
	for i := 0; i < 5*stateEvery; i += 8 {
		if _, err := b.Remove(ctx, fmt.Sprintf("mem://packed/%d.caf", i)); err != nil {
			t.Fatal(err)
		}
	}
	before := b.current().Number
	if err := b.put(ctx, "runs/3-lost", []byte("a run of a killed program: m-zYxWv"), true); err != nil {
		t.Fatal(err)
	}
	done, err := b.Erase(ctx, names)
	if err != nil || done.At <= before || done.Runs == 0 || done.States == 0 || done.Commits == 0 || done.Deletions == 0 {
		t.Errorf("%+v, %v", done, err)
	}
	for range 3 { // again
		was := done.At
		if done, err = b.Erase(ctx, names); err != nil || done.Deletions > 0 || done.At < was {
			t.Errorf("%+v, %v", done, err)
		}
	}
	for info, err := range storekit.List(ctx, st, "") {
		if err != nil {
			t.Fatal(err)
		}
		name := info.Name
		if content := st.Get(name); bytes.Contains(content, []byte("zYxWv")) || strings.Contains(name, "zYxWv") {
			t.Errorf("%s still has it", name)
		}
	}
	for _, head := range []string{"as it is", "of an earlier commit", "none"} {
		switch head {
		case "of an earlier commit":
			err = b.put(ctx, "head", old, false)
		case "none":
			err = storekit.Remove(ctx, st, b.dir+"head")
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, write := range []bool{false, true} {
			x := opened(t, st, Options{Write: write})
			for name, address := range stay {
				if is, err := x.Newest(ctx, name); err != nil || is.In.Address != address {
					t.Errorf("head %s: %s is in %s (%v), want %s", head, name, is.In.Address, err, address)
				}
			}
			if _, unknown, err := x.Mentions(ctx, names); err != nil || !slices.Equal(unknown, slices.Sorted(slices.Values(names))) {
				t.Errorf("head %s: it knows all but %q (%v)", head, unknown, err)
			}
			if err := x.Check(ctx, func(problem string) { t.Errorf("head %s: %s", head, problem) }); err != nil {
				t.Error(err)
			}
			if err := x.At(ctx, done.At); err != nil {
				t.Errorf("head %s: %v", head, err)
			}
			if x = opened(t, st, Options{}); x.At(ctx, done.At-1) == nil {
				t.Errorf("head %s: what was erased can be read", head)
			}
		}
	}
	// Plain web servers do not list.
	for head, content := range map[string][]byte{"as it is": nil, "of an earlier commit": old} {
		web := unlisted{st.Clone()}
		if content != nil {
			web.Put(b.dir+"head", content)
		} else if err := opened(t, web.memory, Options{Write: true}).writeHead(ctx); err != nil {
			t.Fatal(err)
		}
		x, err := Open(ctx, web, at, Options{})
		if content != nil {
			if !errors.Is(err, ErrBroken) {
				t.Errorf("head %s: %v", head, err)
			}
			continue
		}
		if err == nil {
			_, err = x.Full(ctx)
		}
		if err != nil {
			t.Errorf("head %s: %v", head, err)
		}
	}
	// A chain in which a commit was replaced by another one that says nothing.
	n := commitName(done.At - 1)
	was, err := b.get(ctx, n, mostObject)
	c := &Commit{}
	if err == nil {
		_, err = unframed(was, commitMagic, c)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Erased = strings.Repeat("00", 32)
	o, err := c.encode()
	if err == nil {
		err = b.put(ctx, n, o, false)
	}
	if err != nil {
		t.Fatal(err)
	}
	if is, err := b.Knows(ctx, Marker{c.Catalog, c.Number, c.Erased[:markerHash]}); !is || err != nil {
		t.Errorf("%v, %v", is, err)
	}
	for _, hash := range []string{"x", strings.Repeat("0", 63), strings.Repeat("g", 64)} {
		c.Erased = hash
		if o, err := c.encode(); err != nil || b.put(ctx, n, o, false) != nil {
			t.Fatal(err)
		}
		if is, err := b.Knows(ctx, Marker{c.Catalog, c.Number, strings.Repeat("0", markerHash)}); is || !errors.Is(err, ErrBroken) {
			t.Errorf("%q: %v, %v", hash, is, err)
		}
	}
	problems := 0
	if err := opened(t, st, Options{}).Check(ctx, func(string) { problems++ }); err != nil || problems == 0 {
		t.Errorf("found %d problems (%v)", problems, err)
	}
}

// unlisted is a store that does not list.
type unlisted struct{ memory }

func (u unlisted) Can() store.Abilities {
	can := u.memory.Can()
	can.List, can.ListFrom, can.Level = nil, nil, nil
	return can
}
