package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// A written is what a key may have: what was answered last, and what was asked for and not answered.
type written struct{ is, may string }

const deleted = ""

// TestKillsOfAGatewayLoseNothing kills serve --write at any moment while 8 clients write and delete objects, each
// those of its own keys. After the next start, everything that was answered must be there.
func TestKillsOfAGatewayLoseNothing(t *testing.T) {
	dir, rnd := t.TempDir(), testkit.Rand(t)
	const clients, keys = 8, 6
	var all [clients][keys]written
	answers := 0
	for range testkit.Rounds(t, 10) {
		cmd, at := writing(t, dir)
		look(t, at, all[:])
		var answered atomic.Int64
		last := int64(rnd.IntN(300))
		var work sync.WaitGroup
		for i := range all {
			rnd := rand.New(rand.NewPCG(rnd.Uint64(), 0))
			work.Go(func() {
				for n := 0; ; n++ {
					k := rnd.IntN(keys)
					is := deleted
					if rnd.IntN(4) > 0 {
						size := rnd.IntN(20_000)
						if rnd.IntN(300) == 0 {
							size = 9 << 20
						}
						is = strings.Repeat(fmt.Sprintf("%d/%d/%d/%d ", i, k, n, rnd.Uint64()), size/20+1)
					}
					x := &all[i][k]
					x.may = is
					if !change(at, i, k, is) {
						return // it is not known
					}
					if x.is = is; answered.Add(1) == last {
						_ = cmd.Process.Kill()
					}
				}
			})
		}
		if last == 0 {
			_ = cmd.Process.Kill()
		}
		work.Wait()
		_ = cmd.Process.Kill() // if it has refused something
		_ = cmd.Wait()
		answers += int(answered.Load())
	}
	cmd, at := writing(t, dir)
	look(t, at, all[:])
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if out, err := itself(t, "catalog", "check", "--contents", "--catalog", filepath.Join(dir, "box.catalog")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Log(answers, "answers")
}

// writing starts the command, and returns where S3 clients reach its bucket.
func writing(t *testing.T, dir string) (cmd *exec.Cmd, at string) {
	t.Helper()
	cmd = itself(t, "serve", "--json", "--addr", "127.0.0.1:0", "--s3", "--s3-addr", "127.0.0.1:0", "--write", dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	said := bufio.NewScanner(out)
	for at == "" && said.Scan() {
		var x struct{ S3 string }
		if err := json.Unmarshal(said.Bytes(), &x); err == nil && x.S3 != "" {
			at = strings.TrimSuffix(x.S3, "/") + "/box"
		}
	}
	if at == "" {
		t.Fatal("it does not start")
	}
	if a, err := ask(http.MethodPut, at, ""); err != nil || a.StatusCode != http.StatusOK && a.StatusCode != http.StatusConflict {
		t.Fatalf("%+v %v", a, err)
	}
	return cmd, at
}

func ask(method, url, body string) (*http.Response, error) {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	a, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	a.Body = io.NopCloser(strings.NewReader(string(b)))
	return a, err
}

// change puts or deletes an object, and reports whether that was answered.
func change(at string, client, key int, is string) bool {
	method := http.MethodPut
	if is == deleted {
		method = http.MethodDelete
	}
	a, err := ask(method, fmt.Sprintf("%s/%d/%d", at, client, key), is)
	return err == nil && a.StatusCode/100 == 2
}

// look compares what the bucket has with what it may have, and notes it.
func look(t *testing.T, at string, all [][6]written) {
	t.Helper()
	for i := range all {
		for k := range all[i] {
			a, err := ask(http.MethodGet, fmt.Sprintf("%s/%d/%d", at, i, k), "")
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(a.Body)
			is := string(body)
			if a.StatusCode == http.StatusNotFound {
				is = deleted
			} else if err != nil || a.StatusCode != http.StatusOK {
				t.Fatalf("%d/%d: %s: %.200s %v", i, k, a.Status, is, err)
			}
			if x := &all[i][k]; is != x.is && is != x.may {
				t.Fatalf("%d/%d: has %.60q, %d bytes; answered %.60q, asked for %.60q", i, k, is, len(is), x.is, x.may)
			}
			all[i][k] = written{is, is}
		}
	}
}
