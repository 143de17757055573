package testkit

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Race reports whether the race detector is on in a short run, as ./check has one:
// go test -race -short. Only what several goroutines do is tested then.
func Race() bool { return raced && testing.Short() }

const serial = "it is about one goroutine"

// Serial says that a test is about one goroutine: Race skips it.
func Serial(t testing.TB) {
	t.Helper()
	if Race() {
		t.Skip(serial)
	}
}

// SerialPackage is Main for a package whose tests all are Serial.
func SerialPackage(m *testing.M, end ...func() error) {
	flag.Parse()
	if Race() {
		fmt.Println(serial)
		return
	}
	Main(m, end...)
}

// Long says that a test takes long, above all under the race detector. A short run
// skips it.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes long")
	}
}

// Needs returns the value of an environment variable, with which ./check names a server or a
// program for a test. If it is not set, the test is skipped.
func Needs(t testing.TB, variable string) string {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		Missing(t, variable, "it is not set; interop/install prints what to set it to")
	}
	return value
}

// NeedsFUSE skips a test where nothing can be mounted.
func NeedsFUSE(t testing.TB) {
	t.Helper()
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		Missing(t, "fuse", err.Error())
	}
	f.Close()
}

// Program returns the path of a program that a test runs. If it is not installed, the test is
// skipped.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, name, err.Error())
	}
	return path
}

// Missing skips a test for what it needs and does not find. It fails the test if
// that is Required.
func Missing(t testing.TB, what, why string) {
	t.Helper()
	if Required(what) {
		t.Fatalf("%s: %s; HOLDALL_REQUIRE says that it must be there", what, why)
	}
	t.Skipf("%s: %s", what, why)
}

// Required reports whether HOLDALL_REQUIRE, a list of words, contains what: tests that need it
// must then not be skipped.
func Required(what string) bool {
	return slices.Contains(strings.Fields(os.Getenv("HOLDALL_REQUIRE")), what)
}
