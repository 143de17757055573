package fleet_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/pgtest"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// TestMovingAsItStands does what docs/moving.md says, line by line. Only what a test cannot wait for is changed: the age
// of what is retired, and ports.
func TestMovingAsItStands(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { move(t, filepath.Join(t.TempDir(), "queue.db")) })
	t.Run("postgres", func(t *testing.T) { move(t, pgtest.Database(t)) })
}

var (
	fences   = regexp.MustCompile("(?ms)^```sh\n(.*?)^```")
	exported = regexp.MustCompile(`^export (HOLDALL_\w+)=(\S+)$`)
)

func move(t *testing.T, queue string) {
	s := newSite(t, rand.Uint64())
	t.Logf("seed %d", s.seed)
	for _, bucket := range []string{"photos", "packed"} {
		if err := os.Mkdir(filepath.Join(s.dir, bucket), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	l := &life{site: s, r: rand.New(rand.NewPCG(s.seed, 4)), source: client(t, s.direct), from: "photos", live: map[string][]version{}, past: map[string][]version{}}
	l.populate(300)
	text, err := os.ReadFile("../../docs/moving.md")
	if err != nil {
		t.Fatal(err)
	}
	built, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeCertificate(t, dir)
	if err := os.WriteFile(filepath.Join(dir, "key.txt"), []byte(s3test.AccessKey+":"+s3test.Secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "PATH="+filepath.Dir(built)+":"+os.Getenv("PATH"), "AWS_ENDPOINT_URL_S3="+s.direct, "HOLDALL_QUEUE="+queue, "HOLDALL_FLEET_HASTE=2s")
	ran := map[string]int{}
	for _, block := range fences.FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(block[1]) {
			line = strings.ReplaceAll(strings.TrimSpace(line), "720h", "0s")
			if set := exported.FindStringSubmatch(line); set != nil {
				env = append(env, set[1]+"="+set[2])
				continue
			}
			words := strings.Fields(line)
			ran[strings.Join(words[:min(3, len(words))], " ")]++
			cmd := exec.Command("sh", "-c", line)
			if words[1] == "serve" {
				var addrs [2]string
				for i, port := range []string{"127.0.0.1:7070", "0.0.0.0:7071"} {
					if addrs[i], err = testkit.FreeAddr(); err != nil {
						t.Fatal(err)
					}
					line = strings.ReplaceAll(line, port, addrs[i])
				}
				cmd = exec.Command("sh", "-c", "exec "+line)
				cmd.Dir, cmd.Env = dir, env
				stop, err := testkit.Start(cmd, addrs[1])
				if err != nil {
					t.Fatal(err)
				}
				defer stop()
				l.served = secureClient(t, addrs[1])
				l.same()
				l.listings()
				continue
			}
			cmd.Dir, cmd.Env = dir, env
			said, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", line, err, said)
			}
			if strings.Contains(line, "retire") && strings.Contains(line, "--log") && ran["holdall fleet retire"] == 2 {
				l.change(0.1, 0.1) // before the next night
				l.settle()
			}
		}
	}
	want := map[string]int{"holdall fleet plan": 3, "holdall catalog init": 1, "holdall fleet work": 2, "holdall fleet left": 1, "holdall serve --s3": 1, "holdall fleet retire": 3, "holdall fleet compact": 1, "holdall fleet repair": 1}
	if !maps.Equal(ran, want) {
		t.Errorf("it has other commands now: %v", ran)
	}
	for x := range l.source.ListObjects(t.Context(), "photos", minio.ListObjectsOptions{Recursive: true}) {
		if !book.IsMarker(x.Key) {
			t.Errorf("%q is left", x.Key)
		}
	}
	l.each(l.keys(), func(ctx context.Context, key string) error {
		b, info, err := get(ctx, l.served, "photos", key, minio.GetObjectOptions{})
		if err == nil {
			if wrong := l.like(key, b, info, l.readable(key)); wrong != "" {
				t.Errorf("%q: %s", key, wrong)
			}
		}
		return err
	})
}

// writeCertificate writes cert.pem and key.pem.
func writeCertificate(t *testing.T, dir string) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	pair := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, "key.pem": {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func secureClient(t *testing.T, addr string) *minio.Client {
	c, err := minio.New(addr, &minio.Options{
		Creds: credentials.NewStaticV4(s3test.AccessKey, s3test.Secret, ""), Region: "us-east-1", MaxRetries: 1, Secure: true,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
