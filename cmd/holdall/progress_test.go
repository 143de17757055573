package main

import (
	"testing"
	"time"

	"github.com/holdall/holdall/internal/base/meter"
)

func TestProgressNamesTheFileInWhatIsLeftOfTheLine(t *testing.T) {
	p := meter.Progress{Entries: 1234, Bytes: 5 << 20}
	show := func(columns int) string { return progressLine(p, "packed", 2*time.Second, columns) }
	if got, want := show(80), "packed 1,234, 5.0 MiB, 2.5 MiB/s"; got != want {
		t.Errorf("before the first file: %q, not %q", got, want)
	}
	p.Name = "d/日本語-\x1b[31m-recording.bin"
	for columns, want := range map[int]string{
		79: `packed 1,234, 5.0 MiB, 2.5 MiB/s d/日本語-\x1b[31m-recording.bin`,
		53: `packed 1,234, 5.0 MiB, 2.5 MiB/s d/日本語-\…rding.bin`,
		41: `packed 1,234, 5.0 MiB, 2.5 MiB/s d/日…bin`,
		40: `packed 1,234, 5.0 MiB, 2.5 MiB/s`,
		10: `packe…iB/s`,
	} {
		if got := show(columns); got != want {
			t.Errorf("in %d columns: %q, not %q", columns, got, want)
		}
	}
	p.Name, p.TotalBytes = "", 20<<20
	if got, want := show(80), "packed 1,234, 5.0 MiB [====------------], 2.5 MiB/s, 6s left of 20.0 MiB"; got != want {
		t.Errorf("with a total: %q, not %q", got, want)
	}
}
