package databundle

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// Any bit of a shard's header that is turned does no harm, or a repair undoes it.
// One bit of each byte is chosen at random, and all with HOLDALL_LONG=8.
func TestTurnedBitsOfHeadersAreRepaired(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	o := holdall.OpenOptions{Formats: []*format.Format{Format}}
	for what, all := range map[string][]added{
		"of nothing": nil,
		"of a file":  {{Entry: format.Entry{Name: "x", Size: 500}, content: bytes.Repeat([]byte("text "), 100)}},
	} {
		whole := &storetest.Mem{}
		pack(t, whole, all, nil)
		shard := whole.Get("b/shard-00000000")
		for i := range 32 {
			for _, bit := range rnd.Perm(8)[:min(testkit.Rounds(t, 1), 8)] {
				st := whole.Clone()
				b := bytes.Clone(shard)
				b[i] ^= 1 << bit
				st.Put("b/shard-00000000", b)
				at := fmt.Sprintf("%s: bit %d of byte %d", what, bit, i)
				plan, err := holdall.Repair(t.Context(), "b", holdall.RepairOptions{OpenOptions: o.In(st)})
				if err != nil {
					t.Errorf("%s: %v", at, err)
					continue
				}
				if plan.Partial {
					t.Errorf("%s: something is lost: %q", at, plan.Lost)
				}
				repaired := st
				if plan.Changes() {
					repaired = &storetest.Mem{}
					if err := plan.ApplyStore(t.Context(), repaired, "b"); err != nil {
						t.Errorf("%s: %v", at, err)
					}
				}
				v, err := holdall.Verify(t.Context(), "b", holdall.VerifyOptions{OpenOptions: o.In(repaired)}, func(p holdall.Problem) {
					if p.Severity == format.Error {
						t.Errorf("%s: afterwards: %+v", at, p)
					}
				})
				if err != nil || v.Entries != int64(len(all)) {
					t.Errorf("%s: afterwards: %+v, %v", at, v, err)
				}
			}
		}
	}
}
