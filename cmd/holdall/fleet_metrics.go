package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/app/fleet/queue"
	"github.com/holdall/holdall/internal/app/serve"
)

// serveMetrics serves what a worker does, for Prometheus, until it is stopped.
func serveMetrics(ctx context.Context, address string, jobs *queue.Metrics, done *holdall.Meter) (at net.Addr, stop func() error, err error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, nil, fmt.Errorf("--metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		n := done.Snapshot()
		fmt.Fprintf(w, "# HELP holdall_objects_total Objects that were packed or proven.\n# TYPE holdall_objects_total counter\nholdall_objects_total %d\n", n.Entries)
		fmt.Fprintf(w, "# HELP holdall_bytes_total Bytes of these objects.\n# TYPE holdall_bytes_total counter\nholdall_bytes_total %d\n", n.Bytes)
		_, _ = jobs.WriteTo(w)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	handler := http.Handler(mux)
	if ln.Addr().(*net.TCPAddr).IP.IsLoopback() {
		handler = serve.LocalOnly(mux)
	}
	srv := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute, MaxHeaderBytes: 64 << 10}
	go func() { _ = srv.Serve(ln) }() // until it is closed
	return ln.Addr(), srv.Close, nil
}
