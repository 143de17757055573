package testkit

import (
	"testing"
	"time"
)

// Until waits until so returns true. It is for events in a different process or in the system, of
// which a test gets no notice.
func Until(t testing.TB, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
	}
}
