package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// peerVerb makes this program run as a peer for buckets: a client without holdall.
const peerVerb = "bucket-peer"

const (
	bucketRSS  = 150 << 20
	inFlight   = 16
	bigObject  = 5 << 30
	peerPart   = 16 << 20
	sourceName = "source"
	targetName = "target"
)

// bucketPeer runs one job with another client: it copies objects one by one into a large object,
// reads several at once without writing them, copies a single object, or lists them.
func bucketPeer(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := bucketClient()
	if err != nil {
		return err
	}
	verb, from, to := args[0], args[1], args[2]
	listed := client.ListObjectsIter(ctx, sourceName, minio.ListObjectsOptions{Prefix: from, Recursive: true})
	switch verb {
	case "list":
		for info := range listed {
			if info.Err != nil {
				return info.Err
			}
		}
		return nil
	case "one-by-one":
		r, w := io.Pipe()
		go func() {
			for info := range listed {
				if info.Err == nil {
					info.Err = fetch(ctx, client, info.Key, w)
				}
				if info.Err != nil {
					w.CloseWithError(info.Err)
					return
				}
			}
			w.Close()
		}()
		_, err := client.PutObject(ctx, targetName, to, r, -1, minio.PutObjectOptions{PartSize: peerPart})
		return err
	case "gets":
		keys := make(chan string)
		errs := make(chan error, inFlight)
		var wg sync.WaitGroup
		for range inFlight {
			wg.Go(func() {
				for key := range keys {
					if err := fetch(ctx, client, key, io.Discard); err != nil {
						errs <- err
						for range keys {
						}
						return
					}
				}
			})
		}
		for info := range listed {
			if info.Err != nil {
				return info.Err
			}
			keys <- info.Key
		}
		close(keys)
		wg.Wait()
		close(errs)
		return <-errs
	case "copy":
		r, err := client.GetObject(ctx, sourceName, from, minio.GetObjectOptions{})
		if err != nil {
			return err
		}
		defer r.Close()
		info, err := r.Stat()
		if err == nil {
			_, err = client.PutObject(ctx, targetName, to, r, info.Size, minio.PutObjectOptions{PartSize: peerPart})
		}
		return err
	}
	return fmt.Errorf("%s: no peer", verb)
}

func fetch(ctx context.Context, client *minio.Client, key string, w io.Writer) error {
	r, _, _, err := (minio.Core{Client: client}).GetObject(ctx, sourceName, key, minio.GetObjectOptions{})
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(w, r)
	return err
}

func bucketClient() (*minio.Client, error) {
	addr, ok := strings.CutPrefix(os.Getenv("AWS_ENDPOINT_URL_S3"), "http://")
	if !ok {
		return nil, errors.New("AWS_ENDPOINT_URL_S3 names no server")
	}
	return minio.New(addr, &minio.Options{
		Creds: credentials.NewEnvAWS(), Region: "us-east-1", BucketLookup: minio.BucketLookupPath,
	})
}

// bucketServer starts the S3 server that $HOLDALL_S3_SERVER names, and returns the folder of its
// buckets. The source bucket has the objects.
func (s *suite) bucketServer(objects int, size int64) (dir string, stop func() error, err error) {
	program := os.Getenv("HOLDALL_S3_SERVER")
	if program == "" {
		return "", nil, fmt.Errorf("%w: $HOLDALL_S3_SERVER is not set; interop/install s3 prints what to set it to", errSkipped)
	}
	path, err := s.have(fmt.Sprintf("bucket-%d-%d", objects, size), func(path string) error {
		stop, err := s.serveBuckets(program, path)
		if err != nil {
			return err
		}
		return errors.Join(s.fillBucket(objects, size), stop())
	})
	if err != nil {
		return "", nil, err
	}
	stop, err = s.serveBuckets(program, path)
	return filepath.Join(path, "data"), stop, err
}

// serveBuckets starts a server of the buckets below path, and sets the environment variables for
// it.
func (s *suite) serveBuckets(program, path string) (stop func() error, err error) {
	for _, dir := range []string{"data/" + sourceName, "data/" + targetName, "about"} {
		if err := os.MkdirAll(filepath.Join(path, dir), 0o777); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	none := filepath.Join(path, "none")
	for k, v := range map[string]string{
		"AWS_ENDPOINT_URL_S3": "http://" + addr, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "testsecret",
		"AWS_SESSION_TOKEN": "", "AWS_PROFILE": "", "AWS_REGION": "", "AWS_CONFIG_FILE": none, "AWS_SHARED_CREDENTIALS_FILE": none,
	} {
		if err := os.Setenv(k, v); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(program, "--port", addr, "--access", "test", "--secret", "testsecret", "--quiet", "--keep-alive",
		"posix", "--sidecar", filepath.Join(path, "about"), filepath.Join(path, "data"))
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() error {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // it was killed
		return nil
	}
	for range 500 {
		if c, err := net.Dial("tcp", addr); err == nil {
			return stop, c.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, errors.Join(errors.New("no server after 10 s"), stop())
}

// fillBucket sends objects of noise. A single object is called big.
func (s *suite) fillBucket(objects int, size int64) error {
	client, err := bucketClient()
	if err != nil {
		return err
	}
	if objects == 1 {
		_, err := client.PutObject(s.ctx, sourceName, "big", io.LimitReader(noiseReader{random('O', 0)}, size), size,
			minio.PutObjectOptions{PartSize: peerPart})
		return err
	}
	numbers, errs := make(chan int), make(chan error, inFlight)
	var wg sync.WaitGroup
	for range inFlight {
		wg.Go(func() {
			for i := range numbers {
				p := appendNoise(nil, random('O', i), int(size))
				key := fmt.Sprintf("small/d%03d/f%06d.bin", i/250, i)
				if i < objects/10 {
					key = fmt.Sprintf("small/part/d%03d/f%06d.bin", i/250, i)
				}
				if _, err := client.PutObject(s.ctx, sourceName, key, bytes.NewReader(p), size, minio.PutObjectOptions{}); err != nil {
					errs <- err
					for range numbers {
					}
				}
			}
		})
	}
	for i := range objects {
		numbers <- i
	}
	close(numbers)
	wg.Wait()
	close(errs)
	return <-errs
}

// farAway is the least time that a response of a bucket takes, as from a machine elsewhere in the
// same data centre. On one machine there is no wait, so requesting several objects at once gains
// nothing: the processors are the limit, and the server uses more than half of them.
const farAway = 10 * time.Millisecond

// delayed puts a proxy in front of the server that the environment names. The proxy delays every
// byte, and replaces the server in the environment.
func delayed(ctx context.Context) (stop func() error, err error) {
	addr := strings.TrimPrefix(os.Getenv("AWS_ENDPOINT_URL_S3"), "http://")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
			if err != nil {
				in.Close()
				continue
			}
			go late(out, in)
			go late(in, out)
		}
	}()
	return l.Close, os.Setenv("AWS_ENDPOINT_URL_S3", "http://"+l.Addr().String())
}

// late copies data, and delays it by half of farAway.
func late(to, from net.Conn) {
	type chunk struct {
		p  []byte
		at time.Time
	}
	chunks := make(chan chunk, 256)
	go func() {
		defer close(chunks)
		for {
			p := make([]byte, 32<<10)
			n, err := from.Read(p)
			if n > 0 {
				chunks <- chunk{p[:n], time.Now().Add(farAway / 2)}
			}
			if err != nil {
				return
			}
		}
	}()
	for c := range chunks {
		time.Sleep(time.Until(c.at))
		if _, err := to.Write(c.p); err != nil {
			break
		}
	}
	to.Close()
	for range chunks {
	}
}

// bucketPack compares packing all objects of a bucket into a second bucket with a peer.
func bucketPack(peer string, most float64, far bool) func(*suite) (row, error) {
	return func(s *suite) (r row, err error) {
		z := s.sizes
		objects, size, from := z.sFiles, int64(z.sBytes), "small"
		if far && peer == "one-by-one" {
			from = "small/part" // a tenth: each takes 10 ms and more
		}
		if peer == "copy" {
			objects, size, from = 1, bigObject/fullSizes.big*z.big, "big"
		}
		dir, stop, err := s.bucketServer(objects, size)
		if err != nil {
			return row{}, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		if far {
			stop, err := delayed(s.ctx)
			if err != nil {
				return row{}, err
			}
			defer func() { err = errors.Join(err, stop()) }()
		}
		target := filepath.Join(dir, targetName)
		return s.hold(contest{
			ours:    command{{s.bin, "pack", "-q", "-f", "caf", "-o", "s3://" + targetName + "/ours.caf", "s3://" + sourceName + "/" + from}},
			peer:    command{{s.self, peerVerb, peer, from, "theirs"}},
			inputs:  []string{filepath.Join(dir, sourceName)},
			outputs: []string{filepath.Join(target, "ours.caf"), filepath.Join(target, "theirs")},
			goals:   []goal{wallRatio(most), rssUnder(bucketRSS)},
			check: func(counter) error {
				return holdsAll(filepath.Join(target, "ours.caf"), filepath.Join(dir, sourceName, from))
			},
		})
	}
}

// noiseReader returns endless noise.
type noiseReader struct{ r *rand.Rand }

func (n noiseReader) Read(p []byte) (int, error) {
	return len(appendNoise(p[:0], n.r, len(p))), nil
}
