package main

import (
	"testing"

	"github.com/vbauerster/mpb/v8/decor"

	"github.com/holdall/holdall"
)

func TestProgressNamesTheFileInWhatIsLeftOfTheLine(t *testing.T) {
	m := &holdall.Meter{}
	show := nameIn(m, 16)
	if got := show(decor.Statistics{AvailableWidth: 80}); got != "" {
		t.Errorf("before the first file: %q", got)
	}
	m.At("d/日本語-\x1b[31m-recording.bin", 5)
	for room, want := range map[int]string{80: ` d/日本語-\x1b[31m-recording.bin`, 39: ` d/日本語-\…rding.bin`, 27: ` d/日…bin`, 26: "", 0: "", -5: ""} {
		if got := show(decor.Statistics{AvailableWidth: room}); got != want {
			t.Errorf("in %d columns: %q, not %q", room, got, want)
		}
	}
}
