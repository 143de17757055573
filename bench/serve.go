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
	return servedAs("caf", false, tree, requests, clients, goals...)
}

// servedAs is serveContest for an archive of a format. With s3, its clients are those of S3, which sign their
// requests; the peer's do not.
func servedAs(format string, s3 bool, tree func(*suite) (string, error), requests, clients int, goals ...goal) func(*suite) (row, error) {
	return func(s *suite) (r row, err error) {
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
		ours, says, in := []string{s.bin, "serve", "--addr", "127.0.0.1:0", archive}, "serving ", ""
		r.peer, r.ours = "http.FileServer", "holdall serve"
		if s3 {
			ours, says, in = append(ours, "--s3", "--s3-addr", "127.0.0.1:0", "--s3-key", benchKey+":"+benchSecret), "serving buckets", "/"+filepath.Base(archive)+"/"
			r.ours += " --s3"
		}
		var came [2]int64
		for range s.n + 1 {
			for i, side := range []struct {
				says, in string
				args     []string
				took     **figures
			}{{"serving ", "", []string{s.self, filesVerb, dir}, &r.peerTook}, {says, in, ours, &r.oursTook}} {
				v, err := s.startServer(side.says, side.args...)
				if err != nil {
					return r, err
				}
				// The first request opens the archive, and is not measured.
				_, err = fetchAll(s.ctx, v.url+side.in, names[:1], 1, side.in != "")
				start := time.Now()
				if err == nil {
					came[i], err = fetchAll(s.ctx, v.url+side.in, names, clients, side.in != "")
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
		if s3 {
			r.notes = append(r.notes, fmt.Sprintf("%.1f µs of CPU a request, peer %.1f", perFile(r.oursTook.cpu, requests), perFile(r.peerTook.cpu, requests)))
		}
		r.notes = append(r.notes, fmt.Sprintf("%.0f requests/s and %.0f MiB/s, peer %.0f and %.0f", float64(requests)/r.oursTook.wall.Seconds(), float64(came[1])/r.oursTook.wall.Seconds()/(1<<20),
			float64(requests)/r.peerTook.wall.Seconds(), float64(came[0])/r.peerTook.wall.Seconds()/(1<<20)))
		r.judge(goals, s.quick)
		return r, nil
	}
}
