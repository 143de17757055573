package parity

import "testing"

func TestTheParityOfASetIsNamedAfterTheSet(t *testing.T) {
	for chunk, set := range map[string]string{
		"a-1": "a", "a-12.tar": "a.tar", "d/a-1-2.caf": "d/a-1.caf", "x.a-3": "x.a", "x-1.2": "x.2", "-5": "",
		"a-": "a-", "a1": "a1", "a-1.b.c": "a-1.b.c", "a-1/b": "a-1/b", "a-1x.tar": "a-1x.tar", "é-7.": "é.",
	} {
		if got := NameOf([]string{chunk, chunk}); got != set+Suffix {
			t.Errorf("%q: %q, not %q", chunk, got, set+Suffix)
		}
		if got := NameOf([]string{chunk}); got != chunk+Suffix {
			t.Errorf("%q alone: %q", chunk, got)
		}
	}
}
