package caf

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestDigitsEightAtOnceAndOneByOneAgree(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	rest := strings.Repeat("x", 30)
	for _, s := range []string{"0", "00", "1", "12345678", "123456789", "999999999999999999", "1000000000000000000", "", "-1", "1.5", "1e3", "12/", "9:", "\xb01", "07"} {
		v, k := digits([]byte(s + "," + rest))
		wv, wk := fewDigits([]byte(s + "," + rest))
		if v != wv || k != wk {
			t.Errorf("%q: %d, %d; one by one %d, %d", s, v, k, wv, wk)
		}
	}
	for range 100_000 {
		n := rnd.Int64N(1 << rnd.IntN(60))
		s := []byte(fmt.Sprint(n) + string(rune(rnd.IntN(256))) + rest)
		v, k := digits(s)
		if wv, wk := fewDigits(s); v != wv || k != wk {
			t.Fatalf("%q: %d, %d; one by one %d, %d", s, v, k, wv, wk)
		}
	}
}
