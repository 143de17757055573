package caf

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// An index that is longer than the caller's limit is not damaged, and not replaced by a shorter one.
func TestAnIndexOverTheLimitIsNotRepaired(t *testing.T) {
	files := map[string]string{}
	for i := range 20 {
		files[fmt.Sprint(i)] = fmt.Sprint(i)
	}
	st := &storetest.Mem{}
	if _, err := holdall.Pack(t.Context(), "x.caf", []string{testkit.Tree(t, t.TempDir(), files)}, holdall.PackOptions{Formats: []*format.Format{Format}, Store: st}); err != nil {
		t.Fatal(err)
	}
	o := holdall.OpenOptions{Formats: []*format.Format{Format}, Store: st, Limits: format.Limits{Index: 1 << 10}}
	plan, err := holdall.Repair(t.Context(), "x.caf", holdall.RepairOptions{OpenOptions: o})
	if damage, ok := errors.AsType[*format.CorruptError](err); !ok || damage.Problem.Code != format.Limit {
		t.Errorf("%+v, %v", plan, err)
	}
	o.Limits.Index = 1 << 20
	if plan, err = holdall.Repair(t.Context(), "x.caf", holdall.RepairOptions{OpenOptions: o}); err != nil || plan.Changes() {
		t.Errorf("within the limit: %+v, %v", plan, err)
	}
}

// A bit that is wrong in a digest, or in the name of that member, costs no file: what the row has is
// nearly the digest of the content. If the content is damaged too, nothing is certain.
func TestRepairCorrectsADamagedDigest(t *testing.T) {
	files := map[string]string{}
	for i := range 5 {
		files[fmt.Sprintf("f%d", i)] = fmt.Sprintf("content %d", i)
	}
	sound := &storetest.Mem{}
	if _, err := holdall.Pack(t.Context(), "x.caf", []string{testkit.Tree(t, t.TempDir(), files)}, holdall.PackOptions{Formats: []*format.Format{Format}, Store: sound}); err != nil {
		t.Fatal(err)
	}
	whole := sound.Get("x.caf")
	row := bytes.Index(whole, []byte(`"f2":`))
	at := row + bytes.Index(whole[row:], []byte(`"blake3":"`))
	for what, flip := range map[string]int{"the member": at + 6, "a digit": at + 12, "the last digit": at + 10 + 63} {
		for mask := byte(1); mask < 0x80; mask <<= 1 {
			for _, both := range []bool{false, true} {
				b := bytes.Clone(whole)
				if b[flip] ^= mask; b[flip] < ' ' || b[flip] == '"' || b[flip] == '\\' {
					continue // the row is no JSON
				}
				if both {
					b[bytes.Index(b, []byte("content 2"))] ^= 1
				}
				st := &storetest.Mem{}
				st.Put("x.caf", b)
				o := holdall.OpenOptions{Formats: []*format.Format{Format}, Store: st}
				plan, err := holdall.Repair(t.Context(), "x.caf", holdall.RepairOptions{OpenOptions: o})
				if err != nil || plan.Partial != both {
					t.Fatalf("%s, bit %#x: %+v, %v", what, mask, plan, err)
				}
				if err := plan.ApplyStore(t.Context(), st, "x.caf"); err != nil {
					t.Fatal(err)
				}
				if is := bytes.Equal(st.Get("x.caf"), whole); is == both {
					t.Errorf("%s, bit %#x: the archive is the original one: %v, expected %v", what, mask, is, !both)
				}
			}
		}
	}
}
