package testkit

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// LongVar is the variable of the environment that says how many rounds a test at random
// has, where that is more than in the check.
const LongVar = "HOLDALL_LONG"

// Rounds returns the number of rounds of a random test that has short rounds in the check. With
// the race detector it has a quarter of them: all rounds do the same with other bytes.
func Rounds(t testing.TB, short int) int {
	t.Helper()
	s := os.Getenv(LongVar)
	switch {
	case s == "" && Race():
		return (short + 3) / 4
	case s == "":
		return short
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return max(n, short)
}

// Moves are the kinds of damage that Move makes.
var Moves = []string{"insert", "delete", "cut head", "swap", "copy", "bytes in front"}

// Move damages a copy of an object so that bytes are no longer where they were.
func Move(rnd *rand.Rand, b []byte, kind string) []byte {
	at := rnd.IntN(len(b))
	n := 1 + rnd.IntN(40)
	some := min(1+rnd.IntN(600), len(b)/3)
	from, to := rnd.IntN(len(b)-some), rnd.IntN(len(b)-some)
	switch kind {
	case "insert":
		return slices.Concat(b[:at], Noise(rnd, n), b[at:])
	case "delete":
		return slices.Concat(b[:at], b[min(at+n, len(b)):])
	case "cut head":
		return bytes.Clone(b[1+rnd.IntN(min(len(b)-1, 5000)):])
	case "bytes in front":
		return slices.Concat(Noise(rnd, 1+rnd.IntN(5000)), b)
	}
	moved := bytes.Clone(b)
	copy(moved[to:], b[from:from+some])
	if kind == "swap" {
		copy(moved[from:from+some], b[to:to+some])
	}
	return moved
}

// Damage damages a copy of an object as disks and networks do: bits and bytes that are
// wrong, blocks of a disk that are zeros, and an end that is missing. It says what it did.
func Damage(rnd *rand.Rand, b []byte) (_ []byte, what string) {
	b = bytes.Clone(b)
	for range 1 + rnd.IntN(3) {
		if len(b) == 0 {
			break
		}
		at := rnd.IntN(len(b))
		switch k := rnd.IntN(8); {
		case k < 3:
			b[at] ^= 1 << rnd.IntN(8)
			what += fmt.Sprintf(" bit at %d", at)
		case k < 5:
			b[at] ^= byte(1 + rnd.IntN(255))
			what += fmt.Sprintf(" byte at %d", at)
		case k < 7:
			at &^= 4095
			clear(b[at:min(at+4096, len(b))])
			what += fmt.Sprintf(" zeros at %d", at)
		default:
			b = b[:at]
			what += fmt.Sprintf(" cut at %d", at)
		}
	}
	return b, what
}

// FlipSegments flips a bit of each segment in a tar of an Oak segment store.
func FlipSegments(tar []byte) {
	for at := 0; at+512 < len(tar); {
		size, err := strconv.ParseInt(string(tar[at+124:at+135]), 8, 32)
		if err != nil {
			return
		}
		if name := string(tar[at : at+100]); !strings.Contains(name, ".tar.") {
			tar[at+512+int(size)/2] ^= 8
		}
		at += 512 + (int(size)+511)/512*512
	}
}
