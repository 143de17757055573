package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7/pkg/signer"
)

// filesVerb makes this program serve a folder, as a peer of holdall.
const filesVerb = "serve-files"

// serveFiles serves the files of a folder until it was interrupted.
func serveFiles(dir string) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "serving %s at http://%s/\n", dir, ln.Addr())
	return http.Serve(ln, http.FileServer(http.Dir(dir)))
}

// served is a running server.
type served struct {
	cmd *exec.Cmd
	url string
}

// startServer starts a program that prints its address in a line that begins with says.
func (s *suite) startServer(says string, args ...string) (*served, error) {
	cmd := exec.CommandContext(s.ctx, args[0], args[1:]...)
	said, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, from := "", bufio.NewReader(said)
	for err == nil && !strings.HasPrefix(line, says) {
		line, err = from.ReadString('\n')
	}
	_, url, ok := strings.Cut(strings.TrimSpace(line), " at ")
	if err != nil || !ok {
		return nil, errors.Join(fmt.Errorf("%s: expected an address, found %q", args[0], line), cmd.Process.Kill(), cmd.Wait())
	}
	return &served{cmd, url}, nil
}

// startQuiet starts a server that does not print its address, and waits until it answers.
func (s *suite) startQuiet(at func(addr string) *exec.Cmd) (*served, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	v := &served{at(l.Addr().String()), "http://" + l.Addr().String()}
	if err := errors.Join(l.Close(), v.cmd.Start()); err != nil {
		return nil, err
	}
	for range 500 {
		// Servers of buckets answer without a key when they are ready, if with an error.
		if r, err := http.Get(v.url + "/"); err == nil {
			r.Body.Close()
			if r.StatusCode < 500 {
				return v, nil
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, errors.Join(fmt.Errorf("%s: no server after 10 s", v.cmd.Path), v.cmd.Process.Kill(), v.cmd.Wait())
}

// A filePeer serves the files of a folder.
type filePeer struct {
	name  string
	start func(s *suite, dir string) (*served, error)
}

var goFiles = filePeer{"http.FileServer", func(s *suite, dir string) (*served, error) {
	return s.startServer("serving ", s.self, filesVerb, dir)
}}

var nginxFiles = filePeer{"nginx", func(s *suite, dir string) (*served, error) {
	return s.startQuiet(func(addr string) *exec.Cmd {
		conf := filepath.Join(s.out, "nginx.conf")
		text := fmt.Sprintf("worker_processes auto; daemon off; pid %s.pid; error_log stderr; events {} http { access_log off; sendfile on; keepalive_requests 1000000;", conf)
		for _, of := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
			text += fmt.Sprintf(" %s_temp_path %s.%s;", of, conf, of)
		}
		text += fmt.Sprintf(" server { listen %s; root %q; } }\n", addr, dir)
		if err := os.WriteFile(conf, []byte(text), 0o666); err != nil {
			return &exec.Cmd{Err: err}
		}
		return exec.CommandContext(s.ctx, "nginx", "-c", conf, "-e", "stderr")
	})
}}

var caddyFiles = filePeer{"caddy", func(s *suite, dir string) (*served, error) {
	return s.startQuiet(func(addr string) *exec.Cmd {
		cmd := exec.CommandContext(s.ctx, "caddy", "file-server", "--listen", addr, "--root", dir)
		cmd.Env = append(os.Environ(), "HOME="+s.out, "XDG_CONFIG_HOME="+s.out, "XDG_DATA_HOME="+s.out)
		return cmd
	})
}}

// end stops a server and returns its figures.
func (v *served) end() (figures, error) {
	// The system's figure for a child includes the memory of this program.
	rss := int64(0)
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", v.cmd.Process.Pid)); err == nil {
		if _, rest, ok := strings.Cut(string(status), "VmHWM:"); ok {
			fmt.Sscan(rest, &rss)
		}
	}
	if err := v.cmd.Process.Signal(os.Interrupt); err != nil {
		return figures{}, err
	}
	_ = v.cmd.Wait() // it is interrupted
	p := v.cmd.ProcessState
	return figures{cpu: p.UserTime() + p.SystemTime(), rss: rss << 10}, nil
}

// benchKey signs requests to S3 servers.
const benchKey, benchSecret = "bench", "bench-secret"

// fetchAll requests all names with several clients at once, and returns the number of bytes
// received.
func fetchAll(ctx context.Context, url string, names []string, clients int, signed bool) (int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients, MaxConnsPerHost: clients, DisableCompression: true}}
	defer client.CloseIdleConnections()
	var next, bytes atomic.Int64
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			buf := make([]byte, 256<<10)
			for {
				i := next.Add(1) - 1
				if i >= int64(len(names)) || ctx.Err() != nil {
					return
				}
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+names[i], nil)
				if err != nil {
					cancel(err)
					return
				}
				if signed {
					r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
					r = signer.SignV4(*r, benchKey, benchSecret, "", "us-east-1")
				}
				answer, err := client.Do(r)
				if err != nil {
					cancel(err)
					return
				}
				n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{answer.Body}, buf)
				answer.Body.Close()
				if err == nil && answer.StatusCode != http.StatusOK {
					err = fmt.Errorf("%s: %s", names[i], answer.Status)
				}
				if err != nil {
					cancel(err)
					return
				}
				bytes.Add(n)
			}
		})
	}
	wg.Wait()
	return bytes.Load(), context.Cause(ctx)
}

// serveContest compares http.FileServer, which serves the files of a tree, with holdall, which
// serves an archive of them.
func serveContest(tree func(*suite) (string, error), requests, clients int, goals ...goal) func(*suite) (row, error) {
	return servedAs(goFiles, "caf", false, tree, requests, clients, goals...)
}

// servedAs is serveContest for an archive of a format, and any peer. With s3, the archive's clients are those of S3,
// which sign their requests; the peer's do not.
func servedAs(peer filePeer, format string, s3 bool, tree func(*suite) (string, error), requests, clients int, goals ...goal) func(*suite) (row, error) {
	return func(s *suite) (r row, err error) {
		if peer.name != goFiles.name && !have(peer.name) {
			return r, fmt.Errorf("%w: %s is not installed", errSkipped, peer.name)
		}
		dir, err := tree(s)
		if err != nil {
			return r, err
		}
		if info, err := os.Stat(dir); err == nil && !info.IsDir() {
			// A single file gets its own folder.
			in := filepath.Join(s.out, "served")
			if err := os.MkdirAll(in, 0o777); err != nil {
				return r, err
			}
			if err := os.Link(dir, filepath.Join(in, filepath.Base(dir))); err != nil && !errors.Is(err, fs.ErrExist) {
				return r, err
			}
			dir = in
		}
		archive, err := s.fresh(fmt.Sprintf("served-%s.%s", filepath.Base(dir), format), s.bin, "pack", "-q", "--no-sync", "-f", format, dir, "-o", outputHere)
		if err != nil {
			return r, err
		}
		var all []string
		err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				rel, rerr := filepath.Rel(dir, p)
				all, err = append(all, filepath.ToSlash(rel)), rerr
			}
			return err
		})
		if err != nil {
			return r, err
		}
		if s.quick && requests > 100 {
			requests /= 20
		}
		names := make([]string, requests)
		rnd := random('v', 0)
		for i := range names {
			names[i] = all[rnd.IntN(len(all))]
		}
		ours, says, in := []string{s.bin, "serve", "--addr", "127.0.0.1:0", archive}, "serving ", "/"
		r.peer, r.ours = peer.name, "holdall serve"
		if s3 {
			ours, says, in = append(ours, "--s3", "--s3-addr", "127.0.0.1:0", "--s3-key", benchKey+":"+benchSecret), "serving buckets", "/"+filepath.Base(archive)+"/"
			r.ours += " --s3"
		}
		var came [2]int64
		for range s.n + 1 {
			for i, side := range []struct {
				in    string
				start func() (*served, error)
				took  **figures
			}{{"/", func() (*served, error) { return peer.start(s, dir) }, &r.peerTook}, {in, func() (*served, error) { return s.startServer(says, ours...) }, &r.oursTook}} {
				v, err := side.start()
				if err != nil {
					return r, err
				}
				// The first request opens the archive, and is not measured.
				at, signed := strings.TrimSuffix(v.url, "/")+side.in, s3 && i == 1
				_, err = fetchAll(s.ctx, at, names[:1], 1, signed)
				start := time.Now()
				if err == nil {
					came[i], err = fetchAll(s.ctx, at, names, clients, signed)
				}
				wall := time.Since(start)
				f, eerr := v.end()
				if err := errors.Join(err, eerr); err != nil {
					return r, err
				}
				f.wall = wall
				*side.took = (*side.took).best(f)
			}
			if s.quick {
				break
			}
		}
		if came[0] != came[1] {
			return r, fmt.Errorf("%d bytes came of files, %d of the archive", came[0], came[1])
		}
		if requests > 1 {
			r.notes = append(r.notes, fmt.Sprintf("%.1f µs of CPU a request, peer %.1f", perFile(r.oursTook.cpu, requests), perFile(r.peerTook.cpu, requests)))
		}
		r.notes = append(r.notes, fmt.Sprintf("%.0f requests/s and %.0f MiB/s, peer %.0f and %.0f", float64(requests)/r.oursTook.wall.Seconds(), float64(came[1])/r.oursTook.wall.Seconds()/(1<<20),
			float64(requests)/r.peerTook.wall.Seconds(), float64(came[0])/r.peerTook.wall.Seconds()/(1<<20)))
		r.judge(goals, s.quick)
		return r, nil
	}
}
