package caf

import (
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
