package meter

import "testing"

func TestNamesAreKeptWhenAskedForOrLong(t *testing.T) {
	var m Meter
	name := func(want string) {
		t.Helper()
		if got := m.Snapshot().Name; got != want {
			t.Errorf("the name is %q, not %q", got, want)
		}
	}
	m.At("before anyone asks", 1)
	name("")
	m.At("a", 1)
	m.At("b", 1)
	name("a")
	m.At("c", 1)
	m.At("large", long)
	m.At("d", 1)
	name("large")
	name("large")
	(*Meter)(nil).At("nobody counts", long)
	if n := testing.AllocsPerRun(100, func() { m.asked.Store(false); m.At("short", 1) }); n > 0 {
		t.Errorf("a name that nobody asked for takes %v allocations", n)
	}
}

func BenchmarkAt(b *testing.B) {
	var m Meter
	for b.Loop() {
		m.At("a/name", 1000)
	}
}
