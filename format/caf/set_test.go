package caf

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// If chunks of a set are missing, verify reports that for each of the others.
func TestASetSaysWhichChunksAreMissing(t *testing.T) {
	files := map[string]string{}
	for i := range 6 {
		files[fmt.Sprint(i)] = strings.Repeat(fmt.Sprint(i), 100)
	}
	dir := testkit.Tree(t, t.TempDir(), files)
	packed := func(plain bool) *storetest.Mem {
		st := &storetest.Mem{}
		o := holdall.PackOptions{Formats: []*format.Format{Format}, ChunkSize: 100, Plain: plain}
		o.Store = st
		if _, err := holdall.Pack(t.Context(), "set/x.caf", []string{dir}, o); err != nil {
			t.Fatal(err)
		}
		return st
	}
	name := func(i int) string { return fmt.Sprintf("set/x-%05d.caf", i) }
	said := func(st store.Store, name string) (all []string) {
		o := holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Formats: []*format.Format{Format}}}
		o.Store = st
		sum, err := holdall.Verify(t.Context(), name, o, func(p holdall.Problem) {
			all = append(all, p.Class+": "+p.Message)
			if p.Class != "chunk-missing" || p.Code != format.MissingVolume || p.Severity != format.Warning {
				t.Errorf("%+v", p)
			}
		})
		if err != nil || sum.Errors > 0 {
			t.Errorf("%s: %+v, %v", name, sum, err)
		}
		return all
	}
	whole := packed(false)
	for i := range 6 {
		if all := said(whole, name(i+1)); len(all) > 0 {
			t.Errorf("of a whole set: %q", all)
		}
	}
	for missing := 1; missing <= 6; missing++ {
		st := whole.Clone()
		if err := st.Remove(t.Context(), name(missing)); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("missing beside it: %d", missing)
		if missing == 6 {
			want = "missing beside it: any after 5"
		}
		for i := 1; i <= 6; i++ {
			if i == missing {
				continue
			}
			if all := said(st, name(i)); len(all) != 1 || !strings.HasSuffix(all[0], want) {
				t.Errorf("chunk %d is missing, and chunk %d says %q", missing, i, all)
			}
		}
	}
	// What a killed run leaves, and one alone.
	st := whole.Clone()
	for i := 2; i <= 5; i++ {
		st.Remove(t.Context(), name(i))
	}
	if all := said(st, name(6)); len(all) != 1 || !strings.HasSuffix(all[0], "beside it: 2 to 5") {
		t.Errorf("of 1 and 6: %q", all)
	}
	st.Remove(t.Context(), name(6))
	if all := said(st, name(1)); len(all) != 1 || !strings.HasSuffix(all[0], "any after 1") {
		t.Errorf("of 1 alone: %q", all)
	}
	// A chunk with another name is independent, as are one that records no set and one in a store
	// that cannot be listed.
	st.Put("other.caf", st.Get(name(1)))
	if all := said(st, "other.caf"); len(all) > 0 {
		t.Errorf("of a chunk with another name: %q", all)
	}
	if all := said(&unlisted{st}, name(1)); len(all) > 0 {
		t.Errorf("of a store that cannot be listed: %q", all)
	}
	st = packed(true)
	st.Remove(t.Context(), name(2))
	if all := said(st, name(1)); len(all) > 0 {
		t.Errorf("of a plain set: %q", all)
	}
	// A repaired chunk records the same, and a converted one is not a chunk any more.
	o := holdall.OpenOptions{Formats: []*format.Format{Format}}
	st = whole.Clone()
	b := bytes.Clone(st.Get(name(6)))
	st.Put(name(6), append([]byte("xxx"), b...))
	plan, err := holdall.Repair(t.Context(), name(6), holdall.RepairOptions{OpenOptions: o.In(st)})
	if err != nil || !plan.Changes() {
		t.Fatalf("%+v, %v", plan, err)
	}
	if err := plan.ApplyStore(t.Context(), st, name(6)); err != nil {
		t.Fatal(err)
	}
	if facts := factsOf(t, st, name(6), o); !strings.Contains(facts, "chunk 6 of 6") {
		t.Errorf("of the last one, repaired: %s", facts)
	}
	a, err := holdall.Open(t.Context(), name(6), o.In(whole))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := holdall.Convert(t.Context(), a, "one.caf", holdall.PackOptions{Store: st, Formats: o.Formats}); err != nil {
		t.Fatal(err)
	}
	if facts := factsOf(t, st, "one.caf", o); strings.Contains(facts, "chunk") {
		t.Errorf("converted: %s", facts)
	}
}

func factsOf(t *testing.T, st store.Store, name string, o holdall.OpenOptions) string {
	t.Helper()
	a, err := holdall.Open(t.Context(), name, o.In(st))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	about, err := a.About(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range about.Facts {
		all = append(all, f[0]+" "+f[1])
	}
	return strings.Join(all, ", ")
}

// unlisted cannot be listed, as most servers cannot.
type unlisted struct{ store.Store }

func (u *unlisted) Can() store.Abilities {
	can := u.Store.Can()
	can.List = nil
	return can
}
