package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/app/fleet/queue"
)

func TestAWorkerHasMetrics(t *testing.T) {
	done, jobs := &holdall.Meter{}, &queue.Metrics{}
	done.Add(3, 5000)
	jobs.Tell(queue.Event{What: queue.Done, Job: queue.Job{Kind: "pack"}})
	at, stop, err := serveMetrics(t.Context(), "127.0.0.1:0", jobs, done)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	get := func(path string) string {
		resp, err := http.Get("http://" + at.String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		all, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 {
			t.Errorf("%s: %s, %v", path, resp.Status, err)
		}
		return string(all)
	}
	is := get("/metrics")
	for _, want := range []string{"holdall_objects_total 3\n", "holdall_bytes_total 5000\n", "holdall_jobs_total{kind=\"pack\",result=\"done\"} 1\n", "holdall_queue_away 0\n"} {
		if !strings.Contains(is, want) {
			t.Errorf("%s is missing in:\n%s", want, is)
		}
	}
	if is := get("/healthz"); is != "ok\n" {
		t.Errorf("healthz: %q", is)
	}
	if _, _, err := serveMetrics(t.Context(), at.String(), jobs, done); err == nil || !strings.Contains(err.Error(), "--metrics") {
		t.Errorf("a second one at the address: %v", err)
	}
}
