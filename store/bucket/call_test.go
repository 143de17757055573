package bucket

import (
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"testing"

	"github.com/holdall/holdall/store/storetest/s3test"
)

// TestWhoMayReadAnObject asks for two objects, and counts the requests.
func TestWhoMayReadAnObject(t *testing.T) {
	quiet(t)
	const other = "<Grant><Grantee><URI>AllUsers</URI></Grantee><Permission>READ</Permission></Grant>"
	for name, c := range map[string]struct {
		ownership, grant string
		shared           bool
		refused          bool
		asked            int
	}{
		"no lists":            {"BucketOwnerEnforced", other, false, false, 1},
		"own lists":           {"BucketOwnerPreferred", "", false, false, 3},
		"shared":              {"ObjectWriter", other, true, false, 3},
		"no controls":         {"OwnershipControlsNotFoundError", other, true, false, 3},
		"other right":         {"ObjectWriter", "<Grant><Grantee><ID>me</ID></Grantee><Permission>READ</Permission></Grant>", true, false, 3},
		"unknown server":      {"NotImplemented", "NotImplemented", false, false, 2},
		"controls unknown":    {"NotImplemented", other, true, false, 3},
		"bucket refused":      {"AccessDenied", other, true, false, 3},
		"bucket refused, own": {"AccessDenied", "", false, false, 3},
		"both refused":        {"AccessDenied", "AccessDenied", false, true, 2},
		"list refused":        {"ObjectWriter", "AccessDenied", false, true, 2},
	} {
		s := s3test.New("bucket")
		st := serve(t, s, "", Options{})
		s.Ownership, s.Grants = c.ownership, map[string]string{"x": c.grant, "y": c.grant}
		for _, key := range []string{"x", "y"} {
			s.Put("bucket", key, []byte("content"))
			o, err := st.Open(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			shared, err := o.Can().Shared(t.Context())
			if shared != c.shared || errors.Is(err, fs.ErrPermission) != c.refused || err != nil && !c.refused {
				t.Errorf("%s: %v, %v", name, shared, err)
			}
			if c.refused && !strings.Contains(err.Error(), "s3:GetBucketOwnershipControls nor s3:GetObjectAcl") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if took := s.Took(); len(took) != c.asked {
			t.Errorf("%s: %q", name, took)
		}
	}
}

func TestAnAnswerThatIsNoListOfAccess(t *testing.T) {
	quiet(t)
	s := s3test.New("bucket")
	st := serve(t, s, "", Options{Tries: 2})
	s.Put("bucket", "x", []byte("content"))
	shared := func(key string) (bool, error) {
		o, err := st.Open(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return o.Can().Shared(t.Context())
	}
	s.Hook = func(w http.ResponseWriter, r *http.Request) bool {
		if q := r.URL.Query(); q.Has("acl") || q.Has("ownershipControls") { // a server that ignores what it does not know
			_, _ = w.Write([]byte("<ListBucketResult/>"))
			return true
		}
		return false
	}
	if is, err := shared("x"); is || err == nil || !strings.Contains(err.Error(), "s3://bucket/x: server answered no list") {
		t.Errorf("%v, %v", is, err)
	}
	s.Hook, s.Ownership = nil, "ObjectWriter"
	if is, err := shared("none"); is || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, %v", is, err)
	}
	busy := 0
	s.Hook = func(w http.ResponseWriter, r *http.Request) bool {
		busy++
		s3test.Refuse(w, r, http.StatusServiceUnavailable, "SlowDown")
		return true
	}
	if is, err := shared("x"); is || err == nil || busy != 2 {
		t.Errorf("%v, %v after %d requests", is, err, busy)
	}
}
