package fleet_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/pgtest"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// A version is what an object is at a time.
type version struct {
	salt, size  int
	etag        string
	kind, cache string
	meta        map[string]string
}

// A life is a bucket that is packed, served, changed, compacted, damaged, repaired and retired.
type life struct {
	*site
	r      *rand.Rand
	source *minio.Client // of the server itself
	served *minio.Client // of what holdall serves
	from   string

	mu   sync.Mutex
	live map[string][]version // that a key may have: one, or while it is replaced, two
	past map[string][]version // that it had, which readers may still get until
	late time.Time
	hurt string // a key whose file is damaged, so that it is not read

	packed  int64            // bytes of content that were planned
	written map[string]int64 // bytes of archives that appeared, by name

	kills int
}

func client(t *testing.T, url string) *minio.Client {
	c, err := minio.New(strings.TrimPrefix(url, "http://"), &minio.Options{Creds: credentials.NewStaticV4(s3test.AccessKey, s3test.Secret, ""), Region: "us-east-1", MaxRetries: 1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (l *life) bytes(key string, v version) []byte {
	p := make([]byte, v.size)
	seed := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64([]byte(key), uint64(v.salt)), l.seed)
	rand.NewChaCha8(sha256.Sum256(seed)).Read(p)
	return p
}

// oddKeys are what people call objects, as far as versitygw, whose keys are files, has a place
// for it: to replace an object it needs 28 bytes more than the 255 of a file's name.
var oddKeys = []string{
	"ünï/cödé ✓.txt", "sp ace/ two  spaces ", "plus+and%20percent%", "a&b=c?d#e", "quote'\"`", "<tag>&amp;", "semi;colon:at@", "back\\slash", "-leading", "--", "~tilde", "*star[1-9]?",
	"dots/...", "d/.hidden", "tab\tin", "line\nbreak", "cafe\u0301", "caf\u00e9", "日本語/キー", "😀/😁", strings.Repeat("long", 55), strings.Repeat("deep/", 60) + "end",
	"$dollar(paren){brace}", "comma,pipe|caret^", "a-b", "a/b", "a.b", "a0", "A", "%2F", "%", "x%zz", "C:", "nul", "\u2028", "\u202e", "\ufeffbom", "\U0010ffff",
}

// put writes a version of an object, which the source says all of.
func (l *life) put(ctx context.Context, key string, v *version) error {
	o := minio.PutObjectOptions{ContentType: v.kind, CacheControl: v.cache, UserMetadata: v.meta, PartSize: 5 << 20, DisableContentSha256: true}
	info, err := l.source.PutObject(ctx, l.from, key, bytes.NewReader(l.bytes(key, *v)), int64(v.size), o)
	v.etag = info.ETag
	return err
}

// each does something for keys, several at once.
func (l *life) each(keys []string, do func(ctx context.Context, key string) error) {
	l.t.Helper()
	ctx, cancel := context.WithCancelCause(l.t.Context())
	defer cancel(nil)
	all := make(chan string)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for key := range all {
				if err := do(ctx, key); err != nil {
					cancel(fmt.Errorf("%q: %w", key, err))
				}
			}
		})
	}
	for _, key := range keys {
		all <- key
	}
	close(all)
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		l.t.Fatal(err)
	}
}

// version makes one up.
func (l *life) version(i, salt int) version {
	v := version{salt: salt, size: l.r.IntN(8000)}
	switch {
	case i%50 == 0:
		v.size = 0
	case i%700 == 1:
		v.size = 6<<20 + l.r.IntN(6<<20)
	}
	if i%3 == 0 {
		v.kind = []string{"text/html; charset=utf-8", "image/png", "application/x-odd", "text/plain"}[l.r.IntN(4)]
	}
	if i%4 == 0 {
		v.cache = "max-age=" + strconv.Itoa(l.r.IntN(3))
	}
	if i%5 < 2 {
		v.meta = map[string]string{"Owner": "someone " + strconv.Itoa(l.r.IntN(5)), "Number": strconv.Itoa(salt)}
	}
	return v
}

// populate puts n objects into the source.
func (l *life) populate(n int) {
	keys := map[string]*version{}
	for i := range n {
		key := fmt.Sprintf("d%02d/e%d/%06d", i%17, i%5, i)
		if i%3 == 1 {
			key += ".txt"
		}
		if i < len(oddKeys) {
			key = "odd/" + oddKeys[i]
		}
		v := l.version(i, i)
		keys[key] = &v
	}
	l.each(slices.Collect(maps.Keys(keys)), func(ctx context.Context, key string) error { return l.put(ctx, key, keys[key]) })
	for key, v := range keys {
		l.live[key] = []version{*v}
		l.packed += int64(v.size)
	}
}

// keys are those that live, in order.
func (l *life) keys() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.live))
}

// change deletes and replaces shares of the objects at the source. It returns the deleted ones.
func (l *life) change(gone, other float64) (dead []string) {
	var replaced []string
	fresh := map[string]*version{}
	for i, key := range l.keys() {
		switch x := l.r.Float64(); {
		case x < gone:
			dead = append(dead, key)
			l.mu.Lock()
			delete(l.live, key)
			l.mu.Unlock()
		case x < gone+other:
			replaced = append(replaced, key)
			v := l.version(i, 1_000_000+l.r.IntN(1_000_000_000))
			// versitygw keeps headers of what was there before, except for those that are new.
			v.kind, v.cache, v.meta = "text/x-new", "no-store", map[string]string{"Owner": "new", "Number": strconv.Itoa(v.salt)}
			l.mu.Lock()
			// Of a new version with the same content, nothing but its time would tell.
			v.size = max(1, min(v.size, 8000+l.live[key][0].size))
			l.mu.Unlock()
			fresh[key] = &v
			l.packed += int64(v.size)
		}
	}
	l.each(dead, func(ctx context.Context, key string) error {
		return l.source.RemoveObject(ctx, l.from, key, minio.RemoveObjectOptions{})
	})
	l.each(replaced, func(ctx context.Context, key string) error {
		v := fresh[key]
		err := l.put(ctx, key, v)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.live[key] = append(l.live[key], *v)
		return err
	})
	return dead
}

// settle says that only the newest versions are right from now on, but for readers that have a state of the
// catalogue which is at most two seconds old.
func (l *life) settle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = time.Now().Add(2500 * time.Millisecond)
	for key, all := range l.live {
		l.live[key] = all[len(all)-1:]
		l.past[key] = append(l.past[key], all[:len(all)-1]...)
	}
}

// readable are the versions that a reader may get of what lives.
func (l *life) readable(key string) []version {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Clone(l.live[key])
	if key == l.hurt {
		return nil
	}
	if len(all) > 0 && time.Now().Before(l.late) {
		all = append(all, l.past[key]...)
	}
	return all
}

func (l *life) allowed(key string) []version {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.live[key])
}

// serve starts a server of the catalogue, which reads from the buckets directly.
func (l *life) serve() {
	var addrs [2]string
	for i := range addrs {
		var err error
		if addrs[i], err = testkit.FreeAddr(); err != nil {
			l.t.Fatal(err)
		}
	}
	stop, err := testkit.Start(l.directly("serve", "--addr", addrs[0], "--s3", "--s3-addr", addrs[1], "--catalog", l.db), addrs[1])
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		if said := stop(); l.t.Failed() {
			l.t.Logf("the server said: %s", said[max(0, len(said)-8000):])
		}
	})
	l.served = client(l.t, "http://"+addrs[1])
}

// directly is a command that does not talk to the proxy.
func (l *life) directly(args ...string) *exec.Cmd {
	cmd := l.command(args...)
	cmd.Env = append(cmd.Env, "AWS_ENDPOINT_URL_S3="+l.direct)
	return cmd
}

// get reads an object, and says what it is.
func get(ctx context.Context, c *minio.Client, bucket, key string, o minio.GetObjectOptions) ([]byte, minio.ObjectInfo, error) {
	body, info, _, err := (minio.Core{Client: c}).GetObject(ctx, bucket, key, o)
	if err != nil {
		return nil, info, err
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	return b, info, err
}

// like says how an answer differs from all that are allowed.
func (l *life) like(key string, b []byte, info minio.ObjectInfo, all []version) string {
	wrong := fmt.Sprintf("%d bytes that are no version of it", len(b))
	l.mu.Lock()
	if slices.ContainsFunc(l.past[key], func(v version) bool { return bytes.Equal(b, l.bytes(key, v)) }) {
		wrong = "a version that was replaced"
	}
	l.mu.Unlock()
	for _, v := range all {
		if !bytes.Equal(b, l.bytes(key, v)) {
			continue
		}
		switch {
		case info.ETag != v.etag:
			wrong = fmt.Sprintf("its ETag is %s, expected %s", info.ETag, v.etag)
		case v.kind != "" && info.ContentType != v.kind:
			wrong = fmt.Sprintf("its type is %s, expected %s", info.ContentType, v.kind)
		case info.Metadata.Get("Cache-Control") != v.cache:
			wrong = fmt.Sprintf("Cache-Control is %q, expected %q", info.Metadata.Get("Cache-Control"), v.cache)
		case !maps.Equal(info.UserMetadata, minio.StringMap(v.meta)) && len(info.UserMetadata)+len(v.meta) > 0:
			wrong = fmt.Sprintf("its metadata is %v, expected %v", info.UserMetadata, v.meta)
		default:
			return ""
		}
	}
	return wrong
}

// same compares the bucket that is served with the source, which has not changed since.
func (l *life) same() {
	t := l.t
	l.each(l.keys(), func(ctx context.Context, key string) error {
		b, info, err := get(ctx, l.served, l.from, key, minio.GetObjectOptions{})
		if err != nil {
			return err
		}
		if wrong := l.like(key, b, info, l.allowed(key)); wrong != "" {
			t.Errorf("%q: %s", key, wrong)
		}
		is, err := l.source.StatObject(ctx, l.from, key, minio.StatObjectOptions{})
		if err != nil {
			return err
		}
		if !info.LastModified.Equal(is.LastModified) || info.Size != is.Size || info.ContentType != is.ContentType {
			t.Errorf("%q: %v, %d, %s, expected %v, %d, %s", key, info.LastModified, info.Size, info.ContentType, is.LastModified, is.Size, is.ContentType)
		}
		return nil
	})
}

// listings compares how both list.
func (l *life) listings() {
	type query struct {
		prefix, delimiter, after string
		most                     int
	}
	all := []query{
		{"", "", "", 1000}, {"", "/", "", 1000}, {"d03/", "/", "", 1000}, {"d03/e", "/", "", 1}, {"d0", "/", "", 3}, {"", "", "d05/", 100}, {"d05/", "", "d05/e2/000100", 7},
		{"odd/", "/", "", 4}, {"odd/", "", "", 5}, {"odd/a", "/", "", 1000}, {"odd/", "/", "odd/a-b", 2}, {"none", "/", "", 10}, {"", "e", "", 1000}, {"odd/caf", "", "", 1}, {"d16/", "", "zzz", 10},
	}
	say := func(c *minio.Client, q query) (said []string) {
		token := ""
		for {
			page, err := minio.Core{Client: c}.ListObjectsV2(l.from, q.prefix, q.after, token, q.delimiter, q.most)
			if err != nil {
				return append(said, err.Error())
			}
			if len(page.Contents)+len(page.CommonPrefixes) == 0 && token != "" {
				said[len(said)-1] = "more: false" // versitygw says so one page later
				return said
			}
			for _, x := range page.Contents {
				said = append(said, fmt.Sprintf("%q %d %s %v", x.Key, x.Size, x.ETag, x.LastModified.Truncate(time.Second)))
			}
			for _, p := range page.CommonPrefixes {
				said = append(said, fmt.Sprintf("%q", p.Prefix))
			}
			said = append(said, fmt.Sprint("more: ", page.IsTruncated))
			if token = page.NextContinuationToken; !page.IsTruncated || len(said) > 50_000 {
				return said
			}
		}
	}
	for _, q := range all {
		want, got := say(l.source, q), say(l.served, q)
		for i := range max(len(want), len(got)) {
			if i >= len(want) || i >= len(got) || want[i] != got[i] {
				l.t.Errorf("%+v: line %d of %d, the source has %d: %q, expected %q", q, i, len(got), len(want), got[min(i, len(got)):min(i+3, len(got))], want[min(i, len(want)):min(i+3, len(want))])
				break
			}
		}
	}
}

// conditions compares answers to requests for parts, and on conditions.
func (l *life) conditions() {
	ctx, t := l.t.Context(), l.t
	keys := l.keys()
	for range len(keys) / 25 {
		key := keys[l.r.IntN(len(keys))]
		v := l.allowed(key)[0]
		is, err := l.source.StatObject(ctx, l.from, key, minio.StatObjectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		mod := is.LastModified
		for what, header := range map[string][2]string{
			"range": {"Range", fmt.Sprintf("bytes=%d-%d", v.size/3, v.size/2)}, "open": {"Range", fmt.Sprintf("bytes=%d-", v.size/2)}, "tail": {"Range", "bytes=-10"}, "beyond": {"Range", fmt.Sprintf("bytes=%d-", v.size+10)},
			"too long": {"Range", fmt.Sprintf("bytes=0-%d", v.size+10)},
			"match":    {"If-Match", `"` + v.etag + `"`}, "other": {"If-Match", `"0123456789abcdef0123456789abcdef"`}, "none": {"If-None-Match", `"` + v.etag + `"`}, "none other": {"If-None-Match", `"0123456789abcdef0123456789abcdef"`},
			"since": {"If-Modified-Since", mod.Add(time.Second).UTC().Format(http.TimeFormat)}, "since before": {"If-Modified-Since", mod.Add(-time.Hour).UTC().Format(http.TimeFormat)},
			"unmodified": {"If-Unmodified-Since", mod.Add(time.Second).UTC().Format(http.TimeFormat)}, "modified": {"If-Unmodified-Since", mod.Add(-time.Hour).UTC().Format(http.TimeFormat)},
		} {
			var answers [2]string
			for i, c := range []*minio.Client{l.source, l.served} {
				var o minio.GetObjectOptions
				o.Set(header[0], header[1])
				b, info, err := get(ctx, c, l.from, key, o)
				answers[i] = fmt.Sprintf("%x %s %v", sha256.Sum256(b), info.ETag, info.LastModified)
				if err != nil {
					answers[i] = fmt.Sprint(minio.ToErrorResponse(err).StatusCode)
				}
			}
			if answers[0] != answers[1] && !(v.size == 0 && header[0] == "Range") {
				t.Errorf("%q of %d bytes, %s: %s, expected %s", key, v.size, what, answers[1], answers[0])
			}
		}
	}
}

// tortured runs a command again and again, until it ends by itself. It is killed some times, when
// it made a number of requests, up to most of them at first.
func (l *life) tortured(kills, most int, args ...string) {
	l.t.Helper()
	failed := 0
	for {
		cmd := l.command(args...)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		if err := cmd.Start(); err != nil {
			l.t.Fatal(err)
		}
		var killed atomic.Bool
		if kills > 0 {
			l.doom(cmd, most, &killed)
		}
		err := cmd.Wait()
		l.proxy.after(0, nil)
		var exit *exec.ExitError
		switch {
		case err == nil:
			l.t.Logf("%s: %s", strings.Join(args[:2], " "), said.Bytes())
			return
		case errors.As(err, &exit) && !exit.Exited() && killed.Load():
			kills--
			l.kills++
			most += most / 4
		case l.proxy.worse.Load() && failed < 10:
			failed++
			l.t.Logf("%s: %v\n%s", strings.Join(args, " "), err, said.Bytes())
		default:
			l.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, said.Bytes())
		}
	}
}

// doom kills a command when it has made up to most requests.
func (l *life) doom(cmd *exec.Cmd, most int, killed *atomic.Bool) {
	l.proxy.after(1+l.r.IntN(most), func() {
		killed.Store(true)
		_ = cmd.Process.Kill() // it may have ended
	})
}

// watch reads live objects, over and over, until stop is called, which reports how often it read.
func (l *life) watch() (stop func()) {
	ctx, cancel := context.WithCancel(l.t.Context())
	var wg sync.WaitGroup
	var reads, cats atomic.Int64
	// What is read was allowed when that began, or is when it ends.
	compare := func(how, key string, before []version, b []byte, info *minio.ObjectInfo, err error) {
		after := l.readable(key)
		switch {
		case ctx.Err() != nil || len(after) == 0: // it is deleted by now
		case err != nil:
			l.t.Errorf("%s of %q, which lives: %v", how, key, err)
		case info != nil:
			if wrong := l.like(key, b, *info, append(before, after...)); wrong != "" {
				l.t.Errorf("%s of %q: %s", how, key, wrong)
			}
		case !slices.ContainsFunc(append(before, after...), func(v version) bool { return bytes.Equal(b, l.bytes(key, v)) }):
			l.t.Errorf("%s of %q: %d bytes that are no version of it", how, key, len(b))
		}
	}
	keys := l.keys()
	for i := range 2 {
		r := rand.New(rand.NewPCG(l.seed, uint64(10+i)))
		wg.Go(func() {
			for ctx.Err() == nil {
				key := keys[r.IntN(len(keys))]
				if before := l.readable(key); len(before) > 0 {
					b, info, err := get(ctx, l.served, l.from, key, minio.GetObjectOptions{})
					compare("GET", key, before, b, &info, err)
					reads.Add(1)
				}
				time.Sleep(20 * time.Millisecond) // the machine has more to do
			}
		})
	}
	r := rand.New(rand.NewPCG(l.seed, 20))
	wg.Go(func() {
		for ctx.Err() == nil {
			key := keys[r.IntN(len(keys))]
			if before := l.readable(key); len(before) > 0 {
				cmd := l.directly("catalog", "cat", "--", key)
				var complaints bytes.Buffer
				cmd.Stderr = &complaints
				b, err := cmd.Output()
				if err != nil {
					err = fmt.Errorf("%w: %s", err, complaints.Bytes())
				}
				compare("catalog cat", key, before, b, nil, err)
				cats.Add(1)
			}
			time.Sleep(500 * time.Millisecond)
		}
	})
	return func() {
		cancel()
		wg.Wait()
		l.t.Logf("%d reads of the server, %d by catalog cat", reads.Load(), cats.Load())
	}
}

// settled checks that all is as it should be: what lives, what is dead, and what it costs.
func (l *life) settled(dead []string) {
	t := l.t
	t.Helper()
	l.run("fleet", "work") // a compaction that was killed may have done all, and its job does not know
	l.finished()
	l.serve() // with the catalogue as it is now
	l.same()
	l.listings()
	l.each(dead, func(ctx context.Context, key string) error {
		if _, err := l.served.StatObject(ctx, l.from, key, minio.StatObjectOptions{}); minio.ToErrorResponse(err).StatusCode != http.StatusNotFound {
			t.Errorf("%q is dead: %v", key, err)
		}
		return nil
	})
	var live, stored, written int64
	for _, key := range l.keys() {
		live += int64(l.allowed(key)[0].size)
	}
	b := l.book()
	here, beside, catalogue := l.files(b)
	sum := func(all map[string]int64) (n int64) {
		for _, size := range all {
			n += size
		}
		return n
	}
	stored = sum(here)
	l.mu.Lock()
	for _, size := range l.written {
		written += size
	}
	l.mu.Unlock()
	index := int64(len(l.live)) * 300
	t.Logf("%d bytes live, stored as %d (%.3f) in %d archives, with %d bytes beside them and %d of the catalogue; %d written of %d packed (%.3f)", live, stored, float64(stored)/float64(live), len(here), sum(beside), sum(catalogue), written, l.packed, float64(written)/float64(l.packed))
	most := 1.1
	if len(l.live) < 5000 { // few are not what many come to, and an archive may be dead to a fifth
		most = 1.25
	}
	if float64(stored) > most*float64(live)+float64(index) {
		t.Errorf("%d bytes are stored, of which %d live", stored, live)
	}
	if float64(written) > 2*float64(l.packed)+float64(2*index) {
		t.Errorf("%d bytes were written of %d", written, l.packed)
	}
	all, err := b.Archives(t.Context())
	if err != nil || len(all) != len(here) {
		t.Errorf("%d archives are recorded, %d are there (%v)", len(all), len(here), err)
	}
	l.tidy(b, all)
	if !t.Failed() {
		return
	}
	for _, a := range all { // says why
		n, gone, content, largest := 0, 0, int64(0), catalog.Location{}
		for x, err := range b.Locations(t.Context(), a) {
			if n++; err != nil {
				t.Fatal(err)
			}
			if x.Gone {
				gone++
			}
			if content += x.Size; x.Size > largest.Size {
				largest = x
			}
		}
		t.Logf("%s: %d bytes, %d files of %d bytes, %d gone, the largest %+v, now %+v", a.Address, a.Size, n, content, gone, largest, l.allowed(largest.Path))
	}
	t.Log(l.run("fleet", "compact", "--dry-run"))
}

func TestLifeOfABucket(t *testing.T) {
	objects := 750
	if n, err := strconv.Atoi(os.Getenv("HOLDALL_TORTURE")); err == nil && n > objects {
		objects = n
	}
	s := newSite(t, rand.Uint64())
	if _, err := program(); err != nil {
		t.Fatal(err)
	}
	// Both wait for leases, for times of grace, and for the next look of a worker.
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		live(t, s.beside(t), objects, filepath.Join(t.TempDir(), "queue.db"), "sqlite")
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		live(t, s.beside(t), objects/2, pgtest.Database(t), "postgres")
	})
}

// live has one life in buckets of a name.
func live(t *testing.T, s *site, objects int, queue, name string) {
	began := time.Now()
	passed := func(what string) {
		t.Logf("%s in %v", what, time.Since(began).Round(100*time.Millisecond))
		began = time.Now()
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("seed %d", s.seed)
	from := "from-" + name
	if err := os.Mkdir(filepath.Join(s.dir, from), 0o777); err != nil {
		t.Fatal(err)
	}
	s.begin(t, queue, "packed-"+name)
	l := &life{site: s, r: rand.New(rand.NewPCG(s.seed, 4)), source: client(t, s.direct), from: from, live: map[string][]version{}, past: map[string][]version{}, written: map[string]int64{}}
	l.appeared()
	l.populate(objects)
	passed("filled")

	work := []string{"fleet", "work", "--workers", "2", "--tries", "30"}
	plan := []string{"fleet", "plan", "s3://" + l.from, "-o", "s3://" + l.out + "/set.caf", "--chunk-objects", strconv.Itoa(max(objects/20, 25)), "--chunk-size", "20MB"}
	compact := []string{"fleet", "compact", "--workers", "2", "--gone-after", "1ms", "--yes"}
	l.run("catalog", "init")
	l.run(plan...)
	l.run(work...)
	l.serve()
	passed("packed")
	l.same()
	l.listings()
	l.conditions()
	passed("compared")
	l.run(plan...) // which finds all originals

	// Old archives stay for a moment first, and then go at once.
	stop := l.watch()
	kills := []int{2, 2, 3} // of which each may take the others half a minute, until they have its job
	if strings.HasPrefix(queue, "postgres:") {
		kills = []int{2, 1, 2}
	}
	few, some := 1+objects/1000, objects/20
	l.proxy.worse.Store(true)
	dead := l.change(0.3, 0.05)
	l.tortured(kills[0], few, plan...) // which does not find some of them: the next one knows that they are gone
	l.tortured(kills[1], some, work...)
	l.settle()
	l.moment()
	l.tortured(0, 0, plan...)
	l.tortured(kills[2], some, append(compact, "--grace", "3s")...)
	passed("compacted")
	dead = append(dead, l.change(0.05, 0.02)...)
	l.tortured(kills[0], few, plan...)
	l.tortured(kills[1], some, work...)
	l.settle()
	l.moment()
	l.tortured(0, 0, plan...)
	l.tortured(kills[2], some, append(compact, "--grace", "0s")...)
	l.proxy.worse.Store(false)
	l.run(append(compact, "--grace", "0s")...)
	stop()
	t.Logf("%d commands killed; %s", l.kills, l.proxy.faults())
	if l.kills < 3 {
		t.Errorf("only %d commands were killed: that is no torture", l.kills)
	}
	passed("changed and compacted again")
	l.settled(dead)
	passed("compared")
	dead = append(dead, l.repair(plan, compact)...)
	l.settled(dead)
	passed("repaired")
	l.retire(plan, compact)
	passed("retired")
}

// moment waits until it is later by the service's clock, which has seconds. What two listings miss at the same
// time is not gone.
func (l *life) moment() { time.Sleep(time.Second) }

// appeared has the proxy note how large archives are that appear.
func (l *life) appeared() {
	modify := l.proxy.ModifyResponse
	l.proxy.ModifyResponse = func(r *http.Response) error {
		q, name := r.Request.URL.Query(), ""
		switch r.Request.Method {
		case http.MethodPut, http.MethodPost:
			name, _ = strings.CutPrefix(r.Request.URL.Path, "/"+l.out+"/")
		}
		if filepath.Ext(name) == ".caf" && r.StatusCode == http.StatusOK && (r.Request.Method == http.MethodPost) == q.Has("uploadId") {
			if info, err := os.Stat(filepath.Join(l.dir, l.out, name)); err == nil {
				l.mu.Lock()
				l.written[name] = info.Size()
				l.mu.Unlock()
			}
		}
		return modify(r)
	}
}

// repair loses one archive and damages a second, which are repaired. It returns what was lost for
// good.
func (l *life) repair(plan, compact []string) (lost []string) {
	t, ctx := l.t, l.t.Context()
	b := l.book()
	all, err := b.Archives(ctx)
	if err != nil || len(all) < 3 {
		t.Fatalf("%d archives, %v", len(all), err)
	}
	file := func(a catalog.Archive) string { return filepath.Join(l.dir, strings.TrimPrefix(a.Address, "s3://")) }
	gone, bad := all[0], all[1]
	var whole string // of the lost one, without an original
	for x, err := range b.Locations(ctx, gone) {
		if err != nil {
			t.Fatal(err)
		}
		if x.Size > 100 && !x.Gone && l.newest(x) {
			whole = x.Path
		}
	}
	hit := l.digested(b, bad)
	if whole == "" || hit.Path == "" {
		t.Fatalf("nothing to damage: %q, %+v", whole, hit)
	}
	if err := os.Remove(file(gone)); err != nil {
		t.Fatal(err)
	}
	l.flip(bad, hit)
	var were []version
	for _, key := range []string{whole, hit.Path} {
		if err := l.source.RemoveObject(ctx, l.from, key, minio.RemoveObjectOptions{}); err != nil {
			t.Fatal(err)
		}
		were = append(were, l.allowed(key)[0])
		l.mu.Lock()
		delete(l.live, key)
		l.mu.Unlock()
	}
	lost = []string{whole, hit.Path}

	said := l.refuses(1, "catalog", "check", "--contents")
	for _, a := range []catalog.Archive{gone, bad} {
		if !strings.Contains(said, a.Address) {
			t.Errorf("catalog check does not name %s:\n%s", a.Address, said)
		}
	}
	said = l.refuses(1, "fleet", "repair", "--contents", "--grace", "0s")
	for _, word := range append([]string{gone.Address, bad.Address}, lost...) {
		if !strings.Contains(said, format.Escape(word)) {
			t.Errorf("fleet repair does not name %q:\n%s", word, said)
		}
	}
	t.Logf("fleet repair says:\n%s", said)
	// What is lost for good is an error, never different bytes. A server does not compare again
	// what it has just verified, so a new server is used.
	l.serve()
	for i, key := range lost {
		if b, info, err := get(ctx, l.served, l.from, key, minio.GetObjectOptions{}); err == nil && !bytes.Equal(b, l.bytes(key, were[i])) {
			want := l.bytes(key, were[i])
			at := 0
			for at < min(len(b), len(want)) && b[at] == want[at] {
				at++
			}
			t.Errorf("%q was lost, and %d other bytes are read, from byte %d on, with ETag %s; it was %+v", key, len(b), at, info.ETag, were[i])
		}
		if b, err := l.directly("catalog", "cat", "--", key).Output(); err == nil {
			t.Errorf("%q was lost, and catalog cat writes %d bytes of it", key, len(b))
		}
	}
	// They are gone at the source: then nothing says any more that they should be there.
	l.run(plan...)
	_ = l.command(compact...).Run() // it may not be able to rewrite what is lost, which is set aside then
	l.moment()
	l.run(plan...)
	l.run("fleet", "retry", "s3://"+l.out+"/set.caf")
	l.run(append(compact, "--grace", "0s")...) // which does what was set aside
	l.run(append(compact, "--grace", "0s")...)
	return lost
}

// newest reports whether a location has the live version. If the object was replaced, a different
// archive may have it.
func (l *life) newest(x catalog.Location) bool {
	all := l.allowed(x.Path)
	return len(all) > 0 && strings.Trim(x.ETag, `"`) == all[len(all)-1].etag
}

// digested finds a small file of an archive that lives.
func (l *life) digested(b *book.Book, a catalog.Archive) (found catalog.Location) {
	for x, err := range b.Locations(l.t.Context(), a) {
		if err != nil {
			l.t.Fatal(err)
		}
		if x.Size > 1000 && x.Size < 9000 && x.Raw && !x.Gone && x.Digest.Algo != "" && l.newest(x) {
			found = x
		}
	}
	if found.Path == "" {
		l.t.Fatalf("%s has nothing that lives", a.Address)
	}
	return found
}

// flip changes a bit in the middle of a file in its archive.
func (l *life) flip(a catalog.Archive, x catalog.Location) {
	f, err := os.OpenFile(filepath.Join(l.dir, strings.TrimPrefix(a.Address, "s3://")), os.O_RDWR, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	_, err = f.ReadAt(b, x.Off+x.Size/2)
	b[0] ^= 0x20
	if err == nil {
		_, err = f.WriteAt(b, x.Off+x.Size/2)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// refuses runs a command that says no, and returns all that it says.
func (l *life) refuses(code int, args ...string) string {
	l.t.Helper()
	said, err := l.command(args...).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != code {
		l.t.Errorf("%s: %v, expected exit code %d\n%s", strings.Join(args, " "), err, code, said)
	}
	return string(said)
}

// originals lists the source.
func (l *life) originals() (all []string) {
	for info := range l.source.ListObjects(l.t.Context(), l.from, minio.ListObjectsOptions{Recursive: true}) {
		if info.Err != nil {
			l.t.Fatal(info.Err)
		}
		if !book.IsMarker(info.Key) {
			all = append(all, info.Key)
		}
	}
	return all
}

// retire removes originals, which are gone then, and nothing else is.
func (l *life) retire(plan, compact []string) {
	t, ctx := l.t, l.t.Context()
	b := l.book()
	all, err := b.Archives(ctx)
	if err != nil || len(all) < 3 {
		t.Fatalf("%d archives, %v", len(all), err)
	}
	// One is damaged in its archive, one is a new version, and one has new headers only: their originals stay.
	bad, other, headers := l.digested(b, all[0]), l.digested(b, all[1]), l.digested(b, all[2])
	l.hurt = bad.Path
	stop := l.watch()
	l.flip(all[0], bad)
	v := l.version(3, 7)
	for key, v := range map[string]version{other.Path: v, headers.Path: l.allowed(headers.Path)[0]} {
		etag := v.etag
		v.kind, v.cache, v.meta = "text/x-new", "no-store", map[string]string{"Owner": "new", "Number": "7"}
		if err := l.put(ctx, key, &v); err != nil {
			t.Fatal(err)
		}
		if key == headers.Path && v.etag != etag {
			t.Fatalf("%q: its ETag is %s, expected %s", key, v.etag, etag)
		}
		l.mu.Lock()
		l.live[key] = append(l.live[key], v)
		l.mu.Unlock()
	}
	l.proxy.worse.Store(true)
	for range 4 {
		cmd := l.command("fleet", "retire", "--workers", "2")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		l.doom(cmd, 2*len(l.keys()), new(atomic.Bool))
		_ = cmd.Wait() // killed, or not
	}
	l.proxy.after(0, nil)
	l.proxy.worse.Store(false)
	t.Logf("%d originals are left after that", len(l.originals()))
	// Each kill is an attempt of a range, and so is one for which a slow machine had no time. So this one may set it aside.
	_ = l.command("fleet", "retire").Run()
	l.run("fleet", "retry", "s3://"+l.out+"/set.caf")
	t.Logf("fleet retire says:\n%s", l.refuses(1, "fleet", "retire"))
	for _, key := range []string{bad.Path, other.Path, headers.Path} {
		if _, err := l.source.StatObject(ctx, l.from, key, minio.StatObjectOptions{}); err != nil {
			t.Errorf("%q is not proven, and retired: %v", key, err)
		}
	}
	l.flip(all[0], bad) // unchanged again
	t.Logf("fleet retire says:\n%s", l.run("fleet", "retire"))
	for _, key := range []string{other.Path, headers.Path} {
		if _, err := l.source.StatObject(ctx, l.from, key, minio.StatObjectOptions{}); err != nil {
			t.Errorf("%q was never packed as it is, and retired: %v", key, err)
		}
	}
	stop()
	retired := 0
	for _, key := range l.keys() {
		_, err := l.source.StatObject(ctx, l.from, key, minio.StatObjectOptions{})
		if err == nil {
			continue
		}
		retired++
		b, info, err := get(ctx, l.served, l.from, key, minio.GetObjectOptions{})
		if err != nil {
			t.Errorf("%q is retired: %v", key, err)
		} else if wrong := l.like(key, b, info, l.allowed(key)); wrong != "" {
			t.Errorf("%q is retired: %s", key, wrong)
		}
	}
	if retired == 0 {
		t.Error("nothing was retired")
	}
	t.Logf("%d of %d originals retired", retired, len(l.keys()))
	// Nothing is taken for gone, and nothing but the new versions for new.
	said := l.run(append([]string{"--json"}, plan...)...)
	l.run("fleet", "work")
	said += l.run(append([]string{"--json"}, append(compact, "--grace", "0s")...)...)
	if !strings.Contains(said, `"objects":2,`) || !strings.Contains(said, `"gone":0,`) {
		t.Errorf("after that: %s", said)
	}
	l.settle()
	l.serve()
	for _, key := range l.keys() {
		b, info, err := get(ctx, l.served, l.from, key, minio.GetObjectOptions{})
		if err != nil {
			t.Errorf("%q: %v", key, err)
		} else if wrong := l.like(key, b, info, l.allowed(key)); wrong != "" {
			t.Errorf("%q: %s", key, wrong)
		}
	}
}
