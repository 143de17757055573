//go:build unix

package queue

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/testkit/pgtest"
)

// BenchmarkJobs adds tiny jobs and does them, with the times of production.
func BenchmarkJobs(b *testing.B) {
	for name, address := range map[string]func(b *testing.B) string{
		"sqlite":   func(b *testing.B) string { return filepath.Join(b.TempDir(), "q") },
		"postgres": func(b *testing.B) string { return pgtest.Database(b) },
	} {
		for _, workers := range []int{1, 4, 16} {
			b.Run(fmt.Sprintf("%s/%d", name, workers), func(b *testing.B) { benchmark(b, address(b), workers) })
		}
	}
}

func benchmark(b *testing.B, address string, workers int) {
	q, err := Open(b.Context(), address, Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer q.Close()
	jobs := make([]Job, b.N)
	for i := range jobs {
		jobs[i] = job("pack", fmt.Sprint(i))
	}
	adding := time.Now()
	add(b, q, b.N, jobs...)
	added := time.Since(adding)
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	var done atomic.Int64
	before := cpu(b)
	b.ResetTimer()
	if err := q.Work(ctx, WorkOptions{Kinds: kinds, Workers: workers, Stay: true}, func(context.Context, Job) error {
		if int(done.Add(1)) == b.N {
			b.StopTimer()
			stop()
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/job")
	b.ReportMetric(float64(added)/float64(b.N), "ns-added/job")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

func cpu(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
