package queue

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
)

// Metrics counts the events of workers, for Prometheus. Its zero value is ready to use.
type Metrics struct {
	mu    sync.Mutex
	count map[series]int64
	took  map[series]float64
	away  int
}

type series struct {
	kind string
	what What
}

// Tell is for WorkOptions.Tell.
func (m *Metrics) Tell(e Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch e.What {
	case Away:
		m.away = 1
		return
	case Back:
		m.away = 0
		return
	}
	if m.count == nil {
		m.count, m.took = map[series]int64{}, map[series]float64{}
	}
	s := series{e.Job.Kind, e.What}
	m.count[s]++
	if e.What != Started {
		m.took[s] += e.Took.Seconds()
	}
}

// WriteTo writes the metrics in Prometheus' text format.
func (m *Metrics) WriteTo(w io.Writer) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := &bytes.Buffer{}
	all := slices.SortedFunc(maps.Keys(m.count), func(a, b series) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.what, b.what))
	})
	fmt.Fprint(out, "# HELP holdall_jobs_total Jobs that were started, and how they ended, by kind.\n# TYPE holdall_jobs_total counter\n")
	for _, s := range all {
		fmt.Fprintf(out, "holdall_jobs_total{kind=%q,result=%q} %d\n", s.kind, s.what, m.count[s])
	}
	fmt.Fprint(out, "# HELP holdall_job_seconds_total Time spent on jobs, by kind and how they ended.\n# TYPE holdall_job_seconds_total counter\n")
	for _, s := range all {
		if s.what != Started {
			fmt.Fprintf(out, "holdall_job_seconds_total{kind=%q,result=%q} %g\n", s.kind, s.what, m.took[s])
		}
	}
	fmt.Fprintf(out, "# HELP holdall_queue_away Whether the queue's database does not answer.\n# TYPE holdall_queue_away gauge\nholdall_queue_away %d\n", m.away)
	return out.WriteTo(w)
}
