package bucket

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// All headers that a bucket keeps with an object come with the first read. For an object that has
// not been read they take one request.
func TestHeadersComeWithTheFirstRead(t *testing.T) {
	written := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	kept := map[string]string{"Content-Type": "text/html", "Cache-Control": "no-store", "Content-Disposition": "inline", "Content-Language": "fi",
		"Content-Encoding": "aws-chunked, gzip", "Expires": "Fri, 01 May 2026 10:00:00 GMT", "X-Amz-Meta-Who": "me, too"}
	for _, google := range []bool{false, true} {
		s := s3test.New("bucket")
		quiet(t)
		if google {
			hmacKeys(t)
			s.Google = true
		}
		st := serve(t, s, "", Options{Google: google})
		want := map[string]string{}
		for name, value := range kept {
			if name = strings.ToLower(name); name != "expires" || !google {
				want[name] = value
			}
		}
		want["content-encoding"] = "gzip"
		content := []byte("\x1f\x8b, as it is stored")
		for name, content := range map[string][]byte{"x": content, "empty": nil} {
			s.Put("bucket", name, content)
			s.Describe("bucket", name, kept)
			s.Touch("bucket", name, written)
		}
		s.Put("bucket", "plain", content)
		for _, k := range []struct {
			name string
			read func(store.Object) error
			reqs int
			want map[string]string
		}{
			{"x", func(o store.Object) error {
				p := make([]byte, len(content))
				if err := o.ReadAt(t.Context(), p, 0); err != nil || !bytes.Equal(p, content) {
					t.Errorf("google %v: read %q, %v", google, p, err)
				}
				return nil
			}, 1, want},
			{"x", func(o store.Object) error {
				_, err := storekit.ReadTail(t.Context(), o, make([]byte, 5))
				return err
			}, 1, want},
			{"x", func(o store.Object) error {
				_, err := storekit.ReadHead(t.Context(), o, make([]byte, 100))
				return err
			}, 1, want},
			{"x", nil, 1, want},
			{"empty", nil, 1, want},
			{"plain", nil, 1, map[string]string{"content-type": "binary/octet-stream"}},
		} {
			s.Took()
			o, err := st.Open(t.Context(), k.name)
			if err == nil && k.read != nil {
				err = k.read(o)
			}
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if got, err := o.Can().Headers(t.Context()); err != nil || !maps.Equal(got, k.want) {
					t.Errorf("google %v, %s: %q, %v", google, k.name, got, err)
				}
			}
			info, err := o.Info(t.Context())
			if err != nil || !strings.HasPrefix(info.Version, `"`) || k.name != "plain" && !info.ModTime.Equal(written) {
				t.Errorf("google %v, %s: %+v, %v", google, k.name, info, err)
			}
			if took := s.Took(); len(took) != k.reqs {
				t.Errorf("google %v, %s: %q", google, k.name, took)
			}
			o.Close()
		}
	}
}

// Headers requested after the object was replaced are not those of the listed object.
func TestHeadersAreOfTheSameVersion(t *testing.T) {
	quiet(t)
	s := s3test.New("bucket")
	st := serve(t, s, "", Options{})
	s.Put("bucket", "x", []byte("hello"))
	var listed store.Info
	for info, err := range st.List(t.Context(), "") {
		if listed = info; err != nil {
			t.Fatal(err)
		}
	}
	s.Put("bucket", "x", []byte("olleh"))
	o, err := st.OpenAs(t.Context(), listed)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := o.Can().Headers(t.Context()); !errors.Is(err, store.ErrChanged) || !strings.Contains(err.Error(), "s3://bucket/x") {
		t.Errorf("%q, %v", all, err)
	}
}

func TestHeadersAreBounded(t *testing.T) {
	quiet(t)
	s := s3test.New("bucket")
	st := serve(t, s, "", Options{})
	s.Put("bucket", "x", []byte("hello"))
	s.Describe("bucket", "x", map[string]string{"X-Amz-Meta-A": strings.Repeat("a", storekit.MaxHeaders)})
	o, err := st.Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if all, err := o.Can().Headers(t.Context()); err == nil || !strings.Contains(err.Error(), "at most 65536") {
		t.Errorf("%d, %v", len(all), err)
	}
}

// What no archive keeps of an object comes with its headers, and is none of them.
func TestWhatNoArchiveKeepsIsNamed(t *testing.T) {
	for _, google := range []bool{false, true} {
		s := s3test.New("bucket")
		quiet(t)
		head := "X-Amz-"
		if google {
			hmacKeys(t)
			s.Google, head = true, "X-Goog-"
		}
		st := serve(t, s, "", Options{Google: google})
		for name, c := range map[string]struct {
			headers map[string]string
			want    []string
		}{
			"none":    {nil, nil},
			"usual":   {map[string]string{"Tagging-Count": "0", "Storage-Class": "STANDARD", "Object-Lock-Legal-Hold": "OFF"}, nil},
			"all":     {map[string]string{"Tagging-Count": "3", "Storage-Class": "GLACIER_IR", "Website-Redirect-Location": "/", "Object-Lock-Mode": "COMPLIANCE"}, []string{"lock", "redirect", "storage class", "tags"}},
			"on hold": {map[string]string{"Object-Lock-Legal-Hold": "ON"}, []string{"lock"}},
		} {
			for _, content := range []string{"x", ""} {
				headers := map[string]string{"Content-Type": "x/y"}
				for name, value := range c.headers {
					headers[head+name] = value
				}
				s.Put("bucket", name, []byte(content))
				s.Describe("bucket", name, headers)
				o, err := st.Open(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				if got := o.Can().Unkept(); got != nil {
					t.Errorf("%s: %q, before any answer", name, got)
				}
				if all, err := o.Can().Headers(t.Context()); err != nil || !maps.Equal(all, map[string]string{"content-type": "x/y"}) {
					t.Errorf("%s: %q, %v", name, all, err)
				}
				got := slices.Sorted(slices.Values(o.Can().Unkept()))
				if !slices.Equal(got, c.want) {
					t.Errorf("google %v, %s: %q, expected %q", google, name, got, c.want)
				}
				o.Close()
			}
		}
	}
}

// TestTagsAreHeaders has tags that may be read, and some that change while they are asked for.
func TestTagsAreHeaders(t *testing.T) {
	quiet(t)
	s := s3test.New("bucket")
	st := serve(t, s, "", Options{Tries: 2})
	s.Put("bucket", "x", []byte("content"))
	s.Describe("bucket", "x", map[string]string{"X-Amz-Tagging": "b=2&a=x%2Fy%26+z&é="})
	for _, read := range []bool{false, true} {
		o, err := st.Open(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		if read {
			if err := o.ReadAt(t.Context(), make([]byte, 7), 0); err != nil {
				t.Fatal(err)
			}
		}
		s.Took()
		for range 2 {
			all, err := o.Can().Headers(t.Context())
			if want := map[string]string{"content-type": "binary/octet-stream", storekit.TagsHeader: "a=x%2Fy%26+z&b=2&%C3%A9="}; err != nil || !maps.Equal(all, want) || len(o.Can().Unkept()) > 0 {
				t.Errorf("%v, %v, %q", all, err, o.Can().Unkept())
			}
		}
		if took := s.Took(); len(took) > 3 {
			t.Errorf("%q", took)
		}
	}
	for what, body := range map[string]string{"no tags": "<ListBucketResult/>", "no XML": "x", "long": "<Tagging><TagSet><Tag><Key>" + strings.Repeat("k", storekit.MaxHeaders) + "</Key></Tag></TagSet></Tagging>"} {
		s.Hook = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Has("tagging") {
				_, _ = w.Write([]byte(body))
			}
			return r.URL.Query().Has("tagging")
		}
		o, err := st.Open(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		if all, err := o.Can().Headers(t.Context()); err == nil || !strings.Contains(err.Error(), "tags s3://bucket/x") {
			t.Errorf("%s: %d, %v", what, len(all), err)
		}
	}
}

// An object whose headers were replaced has the same version. It is not removed as the one before.
func TestAnObjectWrittenAgainIsNotRemoved(t *testing.T) {
	s := s3test.New("bucket")
	quiet(t)
	st := serve(t, s, "", Options{})
	s.Put("bucket", "x", []byte("content"))
	written := time.Date(2026, 5, 1, 10, 0, 0, 300e6, time.UTC)
	s.Touch("bucket", "x", written)
	var info store.Info
	for is, err := range st.List(t.Context(), "") {
		if info = is; err != nil {
			t.Fatal(err)
		}
	}
	s.Touch("bucket", "x", written.Add(2*time.Second))
	if err := st.RemoveAs(t.Context(), info); !errors.Is(err, store.ErrChanged) {
		t.Errorf("%v", err)
	}
	s.Touch("bucket", "x", written)
	s.Hook = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete {
			s3test.Refuse(w, r, 403, "AccessDenied")
		}
		return r.Method == http.MethodDelete
	}
	if err := st.RemoveAs(t.Context(), info); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%v", err)
	}
	s.Hook = nil
	if err := st.RemoveAs(t.Context(), info); err != nil || s.Get("bucket", "x") != nil {
		t.Errorf("%v", err)
	}
}
