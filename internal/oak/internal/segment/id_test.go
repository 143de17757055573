package segment

import (
	"strings"
	"testing"
)

func TestRecordIDsAreReadStrictly(t *testing.T) {
	const u = "486aa03b-5c65-4d55-ad28-72210ab8c5e7"
	for text, want := range map[string]int32{
		u + ":0": 0, u + ":5": 5, u + ":2147483647": 1<<31 - 1,
		u + ".00000000": 0, u + ".0003fff0": 0x3fff0, u + ".7fffffff": 1<<31 - 1,
	} {
		id, err := ParseRecordID(text)
		if err != nil || id.Number != want || id.Segment.String() != u {
			t.Errorf("%s: %v, %v", text, id, err)
		}
	}
	for _, text := range []string{
		"", u, u + ":", u + ".", u + ":05", u + ":00", u + ":-1", u + ":+1", u + ":2147483648", u + ":99999999999999999999",
		u + ":1 ", " " + u + ":1", u + ";1", u + ".0000000", u + ".000000000", u + ".80000000", u + ".0003FFF0",
		strings.ToUpper(u) + ":1", "486aa03b5c65-4d55-ad28-72210ab8c5e7:12", "486aa03b-5c65-4d55-ad28-72210ab8c5eg:1", "486aa03b-5c65-4d55-ad28-72210ab8c5e-:1",
	} {
		if id, err := ParseRecordID(text); err == nil {
			t.Errorf("%q: %v", text, id)
		}
	}
}

func TestIDsSayWhatTheyName(t *testing.T) {
	for text, want := range map[string][2]bool{
		"00000000-0000-4000-a000-000000000000": {true, false},
		"ffffffff-ffff-4fff-bfff-ffffffffffff": {false, true},
		"00000000-0000-4000-8000-000000000000": {false, false},
	} {
		id, err := ParseID(text)
		if err != nil || id.String() != text || [2]bool{id.IsData(), id.IsBulk()} != want {
			t.Errorf("%s: %v, data %t, bulk %t, %v", text, id, id.IsData(), id.IsBulk(), err)
		}
	}
}

func FuzzRecordID(f *testing.F) {
	f.Add("486aa03b-5c65-4d55-ad28-72210ab8c5e7:5")
	f.Add("486aa03b-5c65-4d55-ad28-72210ab8c5e7.0003fff0")
	f.Fuzz(func(t *testing.T, text string) {
		id, err := ParseRecordID(text)
		if err != nil {
			return
		}
		again, err := ParseRecordID(id.String())
		if err != nil || again != id || id.Number < 0 {
			t.Fatalf("%q is %v, which is %v, %v", text, id, again, err)
		}
	})
}
