package bucket

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"testing"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
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

// TestManyAreRemovedByOneRequest removes objects that are there, are not, are others, or have odd keys.
func TestManyAreRemovedByOneRequest(t *testing.T) {
	quiet(t)
	s := s3test.New("bucket")
	st := serve(t, s, "dir/", Options{Tries: 2})
	const other = `"00000000000000000000000000000000"`
	var infos []store.Info
	put := func(name string) {
		s.Put("bucket", "dir/"+name, []byte("content of "+name))
	}
	for i := range 990 {
		put(fmt.Sprint(i))
	}
	odd := []string{"a&b<c>\"d'", "é 語 +%2F", "line\nfeed", "changed", "bell\a", "none"}
	for _, name := range odd[:5] {
		put(name)
	}
	for info, err := range st.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if info.Name == "changed" {
			info.Version = other
		}
		infos = append(infos, info)
	}
	infos = append(infos, store.Info{Name: "none", Version: other}, store.Info{Name: "0"}, infos[0])
	s.Took()
	errs, err := st.removeMany(t.Context(), infos)
	if took := s.Took(); err != nil || len(took) != 1 || len(errs) != len(infos) {
		t.Fatalf("%v, %q", err, took)
	}
	for i, info := range infos {
		want := map[string]error{"line\nfeed": fs.ErrInvalid, "bell\a": fs.ErrInvalid, "changed": store.ErrChanged, "none": fs.ErrNotExist}[info.Name]
		if i >= 996 {
			want = fs.ErrInvalid // without a version, or twice
		}
		if !errors.Is(errs[i], want) || want == nil && errs[i] != nil {
			t.Errorf("%q: %v", info.Name, errs[i])
		}
	}
	if left := s.Keys("bucket"); len(left) != 3 {
		t.Errorf("%q", left)
	}
	if errs, err := st.removeMany(t.Context(), []store.Info{{Name: "../x", Version: other}}); err != nil || errs[0] == nil || len(s.Took()) != 0 {
		t.Errorf("%v, %v", errs, err)
	}
}

// TestWhatIsNotSaidToBeRemovedIsNot has answers that are cut off, wrong, or about something else.
func TestWhatIsNotSaidToBeRemovedIsNot(t *testing.T) {
	quiet(t)
	for name, c := range map[string]struct {
		status           int
		body             string
		fails, temporary bool
	}{
		"nothing":       {200, "<DeleteResult/>", false, false},
		"another":       {200, "<DeleteResult><Deleted><Key>y</Key></Deleted></DeleteResult>", false, false},
		"both":          {200, "<DeleteResult><Deleted><Key>x</Key></Deleted><Error><Key>x</Key><Code>InternalError</Code></Error></DeleteResult>", false, true},
		"no result":     {200, "<ListBucketResult><Deleted><Key>x</Key></Deleted></ListBucketResult>", true, false},
		"no XML":        {200, "", true, false},
		"not supported": {501, "<Error><Code>NotImplemented</Code></Error>", true, false},
		"refused":       {403, "<Error><Code>AccessDenied</Code></Error>", true, false},
		"busy":          {503, "<Error><Code>SlowDown</Code></Error>", true, true},
	} {
		s := s3test.New("bucket")
		st := serve(t, s, "", Options{Tries: 2})
		s.Hook = func(w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body))
			return true
		}
		errs, err := st.removeMany(t.Context(), []store.Info{{Name: "x", Version: `"1"`}})
		if (err != nil) != c.fails || errs[0] == nil || c.temporary != storekit.Temporary(errors.Join(err, errs[0])) {
			t.Errorf("%s: %v, %v", name, errs, err)
		}
	}
}

// TestDocumentsAreBounded has documents with more text and with more elements than a listing has.
func TestDocumentsAreBounded(t *testing.T) {
	s3test.Setenv(t, "http://127.0.0.1:1")
	for what, doc := range map[string]string{"text": strings.Repeat(" ", maxDocument), "elements": strings.Repeat("<Contents/>", maxElements)} {
		st, err := New("bucket", "", Options{Client: &http.Client{Transport: answerer("<ListBucketResult>" + doc + "</ListBucketResult>")}, Tries: 1})
		if err != nil {
			t.Fatal(err)
		}
		for info, err := range st.List(t.Context(), "") {
			if !errors.Is(err, errDocument) {
				t.Errorf("%s: listed %v, %v", what, info, err)
			}
		}
	}
}

// An answerer answers every request with a document.
type answerer []byte

func (a answerer) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(a)), Request: r}, nil
}

// FuzzAnswers has any document as the answer to a request that removes, that lists, or that is about lists of access.
func FuzzAnswers(f *testing.F) {
	s3test.Setenv(f, "http://127.0.0.1:1")
	for _, doc := range []string{
		"<DeleteResult><Deleted><Key>x</Key></Deleted><Error><Key>y</Key><Code>PreconditionFailed</Code></Error></DeleteResult>",
		"<OwnershipControls><Rule><ObjectOwnership>BucketOwnerEnforced</ObjectOwnership></Rule></OwnershipControls>",
		"<AccessControlPolicy><Owner><ID>me</ID></Owner><AccessControlList><Grant><Grantee><ID>me</ID></Grantee><Permission>FULL_CONTROL</Permission></Grant></AccessControlList></AccessControlPolicy>",
		"<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken><Contents><Key>a%2Fb</Key><Size>1</Size><ETag>&quot;1&quot;</ETag><LastModified>2026-01-02T03:04:05.678Z</LastModified></Contents><CommonPrefixes><Prefix>c/</Prefix></CommonPrefixes></ListBucketResult>",
		"<ListMultipartUploadsResult><Upload><Key>x</Key><UploadId>1</UploadId><Initiated>2026-01-02T03:04:05Z</Initiated></Upload></ListMultipartUploadsResult>",
		"<ListPartsResult><Part><PartNumber>1</PartNumber><Size>5</Size><ETag>x</ETag></Part></ListPartsResult>", "<Error><Code>SlowDown</Code></Error>",
		"", "<a", "&#0;",
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		st, err := New("bucket", "", Options{Client: &http.Client{Transport: answerer(doc)}, Tries: 1})
		if err != nil {
			t.Fatal(err)
		}
		errs, err := st.removeMany(t.Context(), []store.Info{{Name: "x", Version: `"1"`}, {Name: "y", Version: `"2"`}})
		if err == nil && (errs[0] == nil || errs[1] == nil) && !bytes.Contains(doc, []byte("Deleted")) {
			t.Errorf("removed: %v", errs)
		}
		o, err := st.Open(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = o.(*object).askTags(t.Context())
		if shared, err := o.Can().Shared(t.Context()); err == nil && !shared && !bytes.Contains(doc, []byte("OwnershipControls")) && !bytes.Contains(doc, []byte("AccessControlPolicy")) {
			t.Error("taken for an object that nobody else may read")
		}
		last, n := "", 0
		for info, err := range st.List(t.Context(), "") {
			if n++; err == nil && (n > 1 && info.Name <= last || info.Size < 0) {
				t.Errorf("listed %q of %d bytes after %q", info.Name, info.Size, last)
			}
			last = info.Name
		}
		if n == 0 && !bytes.Contains(doc, []byte("ListBucketResult")) {
			t.Error("taken for a bucket without objects")
		}
		_, _, _ = st.Level(t.Context(), "", 10)
		for range st.Unfinished(t.Context(), "") {
			if n++; n > 1000 {
				break
			}
		}
		if parts, err := st.listParts(t.Context(), "x", "1"); err == nil && !bytes.Contains(doc, []byte("ListPartsResult")) {
			t.Errorf("parts: %v", parts)
		}
	})
}
