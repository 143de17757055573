package bucket

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
	"github.com/holdall/holdall/store/storetest/s3test"
)

func isCopy(r *http.Request) bool { return r.Header.Get("X-Amz-Copy-Source") != "" }

// appended writes some bytes, a range of an object, and some more, and returns what
// these are together.
func appended(t *testing.T, s *s3test.Server, st *Store, before int) (w store.Writer, want []byte, err error) {
	t.Helper()
	src := testkit.Numbered(18 * mib)
	s.Put("bucket", "dir/so urce", src)
	from := storetest.Open(t, st, "dir/so urce")
	w = storetest.Create(t, st, "x")
	if _, err := w.Write(testkit.Numbered(before)); err != nil {
		t.Fatal(err)
	}
	want = append(testkit.Numbered(before), src[1000:17*mib]...)
	if err := storekit.WriteRange(t.Context(), w, from, 1000, 17*mib-1000); err != nil {
		return w, nil, err
	}
	_, err = w.Write([]byte("the end"))
	return w, append(want, "the end"...), err
}

func TestRangeIsCopiedByTheServer(t *testing.T) {
	for _, before := range []int{0, 10, minPart, firstPart + 3} {
		t.Run(fmt.Sprintf("after %d bytes", before), func(t *testing.T) {
			if before != 10 {
				testkit.Serial(t)
			}
			quiet(t)
			s := s3test.New("bucket")
			st := serve(t, s, "", Options{})
			w, want, err := appended(t, s, st, before)
			if err != nil {
				t.Fatal(err)
			}
			if info, err := w.Commit(t.Context()); err != nil || info.Size != int64(len(want)) {
				t.Fatalf("commit: %+v, %v", info, err)
			}
			if !bytes.Equal(s.Get("bucket", "x"), want) {
				t.Error("other bytes")
			}
			for _, r := range s.Took() {
				var first, last int
				if _, err := fmt.Sscanf(r, "GET /bucket/dir/so%%20urce bytes=%d-%d", &first, &last); err == nil && last-first >= minPart {
					t.Errorf("the bytes passed through us: %s", r)
				}
			}
		})
	}
}

func TestServerThatDoesNotCopyIsSentTheBytes(t *testing.T) {
	for what, hook := range map[string]func(w http.ResponseWriter, r *http.Request){
		"501": func(w http.ResponseWriter, r *http.Request) { s3test.Refuse(w, r, 501, "NotImplemented") },
		"403": func(w http.ResponseWriter, r *http.Request) { s3test.Refuse(w, r, 403, "AccessDenied") },
		"empty answer": func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprint(w, "<CopyPartResult></CopyPartResult>")
		},
	} {
		t.Run(what, func(t *testing.T) {
			if what != "501" {
				testkit.Serial(t)
			}
			quiet(t)
			s := s3test.New("bucket")
			s.Hook = func(w http.ResponseWriter, r *http.Request) bool {
				if isCopy(r) {
					hook(w, r)
				}
				return isCopy(r)
			}
			w, want, err := appended(t, s, serve(t, s, "", Options{}), 10)
			if err == nil {
				_, err = w.Commit(t.Context())
			}
			if err != nil || !bytes.Equal(s.Get("bucket", "x"), want) {
				t.Errorf("found other bytes, or %v", err)
			}
		})
	}
}

func TestCopyThatIsWrongIsNeverSeen(t *testing.T) {
	for what, c := range map[string]struct {
		is   error
		want string
		hook func(s *s3test.Server, w http.ResponseWriter, r *http.Request) bool
	}{
		"empty part with an ETag": {nil, "found 0", func(_ *s3test.Server, w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet && r.URL.Query().Has("uploadId") {
				_, _ = fmt.Fprint(w, "<ListPartsResult><Part><PartNumber>1</PartNumber><Size>5242880</Size></Part>"+
					"<Part><PartNumber>2</PartNumber><Size>0</Size></Part></ListPartsResult>")
				return true
			}
			return false
		}},
		"part that is not listed": {nil, "does not list", func(_ *s3test.Server, w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet && r.URL.Query().Has("uploadId") {
				_, _ = fmt.Fprint(w, "<ListPartsResult></ListPartsResult>")
				return true
			}
			return false
		}},
		"changed source": {store.ErrChanged, "", func(s *s3test.Server, _ http.ResponseWriter, r *http.Request) bool {
			if isCopy(r) {
				s.Put("bucket", "dir/so urce", make([]byte, 18*mib))
			}
			return false
		}},
		"changed source of a careless server": {store.ErrChanged, "", func(s *s3test.Server, _ http.ResponseWriter, r *http.Request) bool {
			if isCopy(r) {
				s.Put("bucket", "dir/so urce", make([]byte, 18*mib))
			}
			return false
		}},
	} {
		t.Run(what, func(t *testing.T) {
			if what != "changed source" {
				testkit.Serial(t)
			}
			quiet(t)
			s := s3test.New("bucket")
			s.Careless = strings.Contains(what, "careless")
			s.Hook = func(w http.ResponseWriter, r *http.Request) bool { return c.hook(s, w, r) }
			w, _, err := appended(t, s, serve(t, s, "", Options{}), 10)
			_, commit := w.Commit(t.Context())
			err = errors.Join(err, commit)
			if err == nil || commit == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("found %v", err)
			}
			if s.Get("bucket", "x") != nil {
				t.Error("the object is there")
			}
		})
	}
}

// After a range that was not copied at once, for any reason, the writer is unchanged.
func TestRangeThatIsNotCopiedAtOnceLeavesNothing(t *testing.T) {
	for what, c := range map[string]struct {
		is   error
		hook func(s *s3test.Server, w http.ResponseWriter, r *http.Request) bool
	}{
		"changed": {store.ErrChanged, func(s *s3test.Server, _ http.ResponseWriter, _ *http.Request) bool {
			s.Put("bucket", "source", make([]byte, 50*mib))
			return false
		}},
		"changed, and a careless server": {store.ErrChanged, func(s *s3test.Server, _ http.ResponseWriter, _ *http.Request) bool {
			s.Put("bucket", "source", make([]byte, 50*mib))
			return false
		}},
		"gone": {fs.ErrNotExist, func(s *s3test.Server, _ http.ResponseWriter, _ *http.Request) bool {
			s.Remove("bucket", "source")
			return false
		}},
		"forbidden": {fs.ErrPermission, func(_ *s3test.Server, w http.ResponseWriter, r *http.Request) bool {
			s3test.Refuse(w, r, 403, "AccessDenied")
			return true
		}},
		"short": {errTooShort, nil},
	} {
		t.Run(what, func(t *testing.T) {
			if what != "changed" {
				testkit.Serial(t)
			}
			quiet(t)
			s := s3test.New("bucket")
			s.Careless = strings.Contains(what, "careless")
			src, n := testkit.Numbered(50*mib), int64(50*mib)
			s.Put("bucket", "source", src)
			s.Put("bucket", "other", src)
			if c.hook == nil {
				n = 6 * mib
			}
			s.Hook = func(w http.ResponseWriter, r *http.Request) bool {
				return strings.HasSuffix(r.Header.Get("X-Amz-Copy-Source"), "/source") && c.hook(s, w, r)
			}
			st := serve(t, s, "", Options{})
			w, from := storetest.Create(t, st, "x"), storetest.Open(t, st, "source")
			if err := from.ReadAt(t.Context(), make([]byte, 1), 0); err != nil {
				t.Fatal(err)
			}
			copy := w.Can().CopyRange
			for range 2 {
				if _, err := w.Write([]byte("before ")); err != nil {
					t.Fatal(err)
				}
				if err := copy(t.Context(), from, 0, n); !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, c.is) {
					t.Fatalf("found %v", err)
				}
			}
			if err := copy(t.Context(), storetest.Open(t, st, "other"), 3, 40*mib); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(" behind")); err != nil {
				t.Fatal(err)
			}
			info, err := w.Commit(t.Context())
			want := slices.Concat([]byte("before before "), src[3:40*mib+3], []byte(" behind"))
			if err != nil || info.Size != int64(len(want)) || !bytes.Equal(s.Get("bucket", "x"), want) {
				t.Errorf("found other bytes, or %v", err)
			}
		})
	}
}

func TestPartsThatAreCopiedAreLegal(t *testing.T) {
	for _, n := range []int64{minPart, copyPart, copyPart + 1, copyPart + minPart, 10 * copyPart, 30e9, 4 << 40} {
		sum, sizes := int64(0), copySizes(n, partSize(firstPart, n))
		for _, k := range sizes {
			if sum += k; k < minPart || k > maxCopy {
				t.Errorf("%d: part of %d", n, k)
			}
		}
		if sum != n || len(sizes) > 1500 {
			t.Errorf("%d: %d bytes in %d parts", n, sum, len(sizes))
		}
	}
}

// An object of many short copies has parts enough for the largest there is.
func TestPartsBehindManyShortCopiesAreFewEnough(t *testing.T) {
	w := &writer{st: &Store{part: firstPart}, copies: map[int]int64{1: minPart}}
	w.Size = w.size
	sent, size := int64(0), 0
	for w.Count = 0; sent < far.MaxSize; w.Count++ {
		if size = w.size(sent); w.leastCopy() == minPart {
			size = minPart
		}
		if w.Count == manyParts && size > 24*mib {
			t.Errorf("parts of %d MiB behind %d copies", size/mib, w.Count)
		}
		sent += int64(size)
	}
	if w.Count > maxParts || size > 6<<30 {
		t.Errorf("%d parts, the last of %d MiB", w.Count, size/mib)
	}
}
