package testkit

import (
	"testing"
	"time"
)

// Until waits until something is so that another process or the system does, of which
// nobody tells us.
func Until(t testing.TB, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
	}
}
