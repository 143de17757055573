//go:build unix

package survey_test

import (
	"syscall"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/app/catalog/survey"
	"github.com/holdall/holdall/internal/testkit"
)

// BenchmarkFacts reads the facts of a recording of 20 series, 150 units and 300 trials by pynwb.
func BenchmarkFacts(b *testing.B) {
	st, name := stored(b, "r.nwb", testkit.Read(b, "testdata/recording.nwb"))
	cpu := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	facts := 0
	before := cpu()
	for b.Loop() {
		s, err := survey.Open(b.Context(), st, name, whole, holdall.OpenOptions{})
		if err != nil {
			b.Fatal(err)
		}
		facts = len(s.Said.Text)
	}
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(facts), "B-of-facts")
}
