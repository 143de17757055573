package serve

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// buckets are the bounds of the histogram of durations, in seconds.
var buckets = [...]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

type meter struct {
	inFlight atomic.Int64
	refused  atomic.Int64
	mu       sync.Mutex
	routes   map[string]*routeMeter
}

type routeMeter struct {
	codes map[int]int64
	sent  int64
	took  [len(buckets) + 1]int64
	sum   float64
}

func (m *meter) count(route string, code int, sent int64, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.routes[route]
	if r == nil {
		if m.routes == nil {
			m.routes = map[string]*routeMeter{}
		}
		r = &routeMeter{codes: map[int]int64{}}
		m.routes[route] = r
	}
	r.codes[code]++
	r.sent += sent
	r.sum += took.Seconds()
	i := 0
	for i < len(buckets) && took.Seconds() > buckets[i] {
		i++
	}
	r.took[i]++
}

func (m *meter) write(w http.ResponseWriter, set *Set, version string) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	out := &bytes.Buffer{}
	family := func(name, kind, help string) {
		fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	}
	one := func(name, kind, help string, value any) {
		family(name, kind, help)
		fmt.Fprintf(out, "%s %v\n", name, value)
	}
	family("holdall_build_info", "gauge", "Version of holdall.")
	fmt.Fprintf(out, "holdall_build_info{version=%q,go=%q} 1\n", version, runtime.Version())
	m.mu.Lock()
	names := slices.Sorted(maps.Keys(m.routes))
	family("holdall_http_requests_total", "counter", "Answered requests, by route and status; 0 is a request aborted before it had a status.")
	for _, name := range names {
		for _, code := range slices.Sorted(maps.Keys(m.routes[name].codes)) {
			fmt.Fprintf(out, "holdall_http_requests_total{route=%q,code=\"%d\"} %d\n", name, code, m.routes[name].codes[code])
		}
	}
	family("holdall_http_sent_bytes_total", "counter", "Bytes of bodies sent, by route.")
	for _, name := range names {
		fmt.Fprintf(out, "holdall_http_sent_bytes_total{route=%q} %d\n", name, m.routes[name].sent)
	}
	family("holdall_http_request_duration_seconds", "histogram", "Duration of requests until the last byte was sent, by route.")
	for _, name := range names {
		r, n := m.routes[name], int64(0)
		for i, bound := range buckets {
			n += r.took[i]
			fmt.Fprintf(out, "holdall_http_request_duration_seconds_bucket{route=%q,le=%q} %d\n", name, strconv.FormatFloat(bound, 'g', -1, 64), n)
		}
		n += r.took[len(buckets)]
		fmt.Fprintf(out, "holdall_http_request_duration_seconds_bucket{route=%q,le=\"+Inf\"} %d\n", name, n)
		fmt.Fprintf(out, "holdall_http_request_duration_seconds_sum{route=%q} %g\n", name, r.sum)
		fmt.Fprintf(out, "holdall_http_request_duration_seconds_count{route=%q} %d\n", name, n)
	}
	m.mu.Unlock()
	one("holdall_http_requests_in_flight", "gauge", "Requests in progress.", m.inFlight.Load())
	one("holdall_http_requests_refused_total", "counter", "Requests refused because too many were in progress.", m.refused.Load())
	c, open := set.stats()
	one("holdall_archives_open", "gauge", "Open archives.", open)
	one("holdall_archive_opens_total", "counter", "Attempts to open an archive.", c.opens)
	one("holdall_archive_open_failures_total", "counter", "Failed attempts to open an archive.", c.failures)
	one("holdall_archive_hits_total", "counter", "Uses of open archives.", c.hits)
	one("holdall_archive_closes_total", "counter", "Closed archives.", c.closes)
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	one("holdall_memory_heap_bytes", "gauge", "Memory in use, including indexes and caches of open archives.", mem.HeapInuse)
	one("holdall_memory_system_bytes", "gauge", "Memory obtained from the system.", mem.Sys)
	one("holdall_goroutines", "gauge", "Goroutines.", runtime.NumGoroutine())
	w.Write(out.Bytes())
}
