package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/app/serve"
	"github.com/holdall/holdall/store"
)

func (a *app) serveCommand() *cobra.Command {
	var o serving
	cmd := &cobra.Command{
		Use:   "serve ARCHIVE...",
		Short: "Show archives to browsers and HTTP clients",
		Long: `Serves what is in an archive over HTTP, read-only, until it is interrupted:
files, whole or in ranges, and listings of folders. Several archives are served
below their names.

Only this machine is answered, unless --listen says otherwise.`,
		Example: `  holdall serve docs.caf
  holdall serve --listen 127.0.0.1:0 a.caf b.caf
  holdall serve --view zarr --cors brain.lindi.tar`,
		Args: args(1, -1, "an archive"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, _, err := net.SplitHostPort(o.listen); err != nil {
				return &usageError{cmd, fmt.Errorf("--listen %s: expected HOST:PORT", o.listen)}
			}
			return a.serve(cmd.Context(), args, o)
		},
	}
	cmd.Flags().StringVar(&o.listen, "listen", "127.0.0.1:8080", "HOST:PORT to answer at; port 0 takes a free one")
	cmd.Flags().BoolVar(&o.cors, "cors", false, "let web pages of other sites read what is served")
	return cmd
}

// serving is what a user wants of serve.
type serving struct {
	listen string
	cors   bool
}

// servedJSON says where an archive can be had.
type servedJSON struct {
	Archive string `json:"archive"`
	URL     string `json:"url"`
}

// shutdownGrace is how long requests may go on when the server is to end.
const shutdownGrace = 1500 * time.Millisecond

func (a *app) serve(ctx context.Context, addresses []string, o serving) error {
	var logs slog.Handler = slog.NewTextHandler(a.stderr, nil)
	if a.json {
		logs = slog.NewJSONHandler(a.stderr, nil)
	}
	ctx, stop := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	var opened []*holdall.Archive
	defer func() {
		stop()
		keeping.Wait()
		for _, in := range opened {
			in.Close()
		}
	}()
	var mounts []serve.Mount
	taken := map[string]bool{}
	for _, address := range addresses {
		in, version, err := a.openToServe(ctx, address)
		if err != nil {
			return err
		}
		opened = append(opened, in)
		h := serve.Handler(in, serve.Options{Version: version, CORS: o.cors, Log: slog.New(logs)})
		// The next start is not to take as long. Whoever is served now does not wait.
		keeping.Go(func() { _, _ = in.KeepIndex(ctx, true) })
		mounts = append(mounts, serve.Mount{Name: mountName(address, taken), Handler: h})
	}
	a.address = "" // of none in particular from here on

	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return err
	}
	at := ln.Addr().(*net.TCPAddr)
	h := mounts[0].Handler
	if len(mounts) > 1 {
		h = serve.Mounts(mounts, serve.Options{CORS: o.cors})
	}
	if at.IP.IsLoopback() {
		h = serve.LocalOnly(h)
	} else {
		a.warn("listening at %s: whoever reaches this machine can read all that is served", at)
	}
	for i, address := range addresses {
		u := url.URL{Scheme: "http", Host: hostOf(at), Path: "/"}
		if len(mounts) > 1 {
			u.Path += mounts[i].Name + "/"
		}
		if a.json {
			a.printJSON(servedJSON{store.Redact(address), u.String()})
		} else if !a.quiet {
			fmt.Fprintf(a.stderr, "serving %s at %s\n", printable(store.Redact(address)), u.String())
		}
	}
	if err := a.out.Flush(); err != nil {
		return errors.Join(err, ln.Close())
	}
	return answerAt(ctx, ln, h, slog.NewLogLogger(logs, slog.LevelWarn))
}

// openToServe opens an archive and returns what stands for its bytes, "" if
// nothing does.
func (a *app) openToServe(ctx context.Context, address string) (*holdall.Archive, string, error) {
	before := versionOf(ctx, address)
	in, err := a.open(ctx, address, false)
	if err != nil {
		return nil, "", err
	}
	// What was the same before and after is what was opened. Of an archive that
	// is more than this one object it says too little.
	volumes, err := in.Volumes(ctx)
	if err != nil {
		return nil, "", errors.Join(err, in.Close())
	}
	if before == "" || before != versionOf(ctx, address) || in.IsDir() || len(volumes) != 1 || volumes[0] != in.Name() {
		return in, "", nil
	}
	return in, fmt.Sprintf("%s %q %q %s", in.Format().Name, a.view, a.cafEnds, before), nil
}

// versionOf returns the version of the object at an address, "" if it has none.
func versionOf(ctx context.Context, address string) string {
	if address == "-" {
		return ""
	}
	st, name, err := store.OpenAddress(ctx, address)
	if err != nil {
		return ""
	}
	o, err := st.Open(ctx, name)
	if err != nil {
		return ""
	}
	defer o.Close()
	info, err := o.Info(ctx)
	if err != nil {
		return ""
	}
	return info.Version
}

// mountName returns what an archive is called where it is one of several: the
// last element of its address, which nobody has taken.
func mountName(address string, taken map[string]bool) string {
	name := "stdin"
	if address != "-" {
		name = filepath.ToSlash(address)
		if u, err := url.Parse(address); err == nil && store.Scheme(address) != "" {
			name = cmp.Or(u.Path, "/"+u.Host)
		} else if whole, err := filepath.Abs(address); err == nil {
			name = filepath.ToSlash(whole) // what is "." called?
		}
		if name = path.Base(name); name == "/" || name == "." {
			name = "archive"
		}
	}
	free := name
	for n := 2; taken[free]; n++ {
		free = name + "-" + strconv.Itoa(n)
	}
	taken[free] = true
	return free
}

// hostOf returns how a client on this machine calls a listener.
func hostOf(at *net.TCPAddr) string {
	host := at.IP.String()
	if at.IP.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, strconv.Itoa(at.Port))
}

// answerAt serves until ctx ends, and returns why it did. Requests then have a
// moment to end by themselves.
func answerAt(ctx context.Context, ln net.Listener, h http.Handler, errs *log.Logger) error {
	requests, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var archives sync.RWMutex // read by requests; locked once they are to be closed
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !archives.TryRLock() {
				panic(http.ErrAbortHandler)
			}
			defer archives.RUnlock()
			h.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: 10 * time.Second,
		// No ReadTimeout: it would end downloads that take longer.
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 64 << 10,
		ErrorLog:       errs,
		BaseContext:    func(net.Listener) context.Context { return requests },
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(requests, shutdownGrace)
	defer cancel()
	if srv.Shutdown(grace) != nil {
		end()
		srv.Close()
	}
	archives.Lock()
	return context.Cause(ctx)
}
