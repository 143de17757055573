package azure

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

func TestStoreKeepsTheContract(t *testing.T) {
	quiet(t)
	storetest.Run(t, func(t *testing.T) (store.Store, func(string, []byte) error) {
		d := &double{}
		st := serve(t, d, "pre fix/+ü/")
		return st, func(name string, content []byte) error {
			if checkKey(name) != nil {
				return errors.ErrUnsupported
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			d.set("pre fix/+ü/"+name, content, "")
			return nil
		}
	})
}

func TestAddressIsAccountContainerAndKey(t *testing.T) {
	quiet(t)
	for _, c := range []struct{ address, container, prefix, name, again string }{
		{"az://someaccount/c-1/x.caf", "c-1", "", "x.caf", "az://someaccount/c-1/x.caf"},
		{"AZ://someaccount/c-1/dir/sub/x", "c-1", "dir/sub/", "x", "az://someaccount/c-1/dir/sub/x"},
		{"az://someaccount/$root/a%20b/c%3Fd%23%25+e/", "$root", "a b/", "c?d#%+e", "az://someaccount/$root/a%20b/c%3Fd%23%25+e"},
		{"az://someaccount/c-1//x?anonymous", "c-1", "/", "x", "az://someaccount/c-1//x"},
	} {
		st, name, err := At(c.address, Options{})
		if err != nil {
			t.Errorf("%s: %v", c.address, err)
			continue
		}
		if st.container != c.container || st.prefix != c.prefix || name != c.name || st.Address(name) != c.again {
			t.Errorf("%s: found container %q, prefix %q, name %q, address %s", c.address, st.container, st.prefix, name, st.Address(name))
		}
	}
	for address, want := range map[string]string{
		"az://someaccount":                                          "found no key",
		"az://someaccount/container/":                               "found no key",
		"az:///container/x":                                         "expected az://account/container/key",
		"az://Some_account/container/x":                             "account name",
		"az://someaccount/Cont/x":                                   "container name",
		"az://someaccount/-c-/x":                                    "container name",
		"az://someaccount/cont/x#y":                                 "write it %23",
		"az://someaccount/cont/x?sig=hush":                          "expected ?anonymous",
		"az://me:hush@someaccount/cont/x":                           "must not contain credentials",
		"az://someaccount/cont/%zz":                                 "malformed",
		"az://someaccount/cont/a/../b/x":                            "ends in a dot",
		"az://someaccount/cont/%ff/x":                               "not UTF-8",
		"az://someaccount/cont/%00/x":                               "NUL byte",
		"az://someaccount/cont/" + strings.Repeat("k", 1100) + "/x": "at most 1024",
		"az://someaccount/cont/" + strings.Repeat("k/", 300) + "x":  "more than 254 parts",
	} {
		if _, _, err := At(address, Options{}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%.60s: expected %q, found %v", address, want, err)
		}
	}
}

func TestSettingsOfTheEnvironment(t *testing.T) {
	const mine = "DefaultEndpointsProtocol=https;AccountName=someaccount;AccountKey=aHVzaA==;EndpointSuffix=core.test"
	for _, c := range []struct{ what, env, endpoint, key, sas, fails string }{
		{"nothing", "", "https://someaccount.blob.core.windows.net", "", "", ""},
		{"key", "AZURE_STORAGE_ACCOUNT=someaccount AZURE_STORAGE_KEY=aHVzaA==", "https://someaccount.blob.core.windows.net", "hush", "", ""},
		{"token", "AZURE_STORAGE_SAS_TOKEN=?sv=1&sig=hush", "https://someaccount.blob.core.windows.net", "", "sv=1&sig=hush", ""},
		{"connection", "AZURE_STORAGE_CONNECTION_STRING=" + mine, "https://someaccount.blob.core.test", "hush", "", ""},
		{"connection before key", "AZURE_STORAGE_KEY=eA== AZURE_STORAGE_CONNECTION_STRING=" + mine, "https://someaccount.blob.core.test", "hush", "", ""},
		{"connection to an emulator", "AZURE_STORAGE_CONNECTION_STRING=AccountName=someaccount;SharedAccessSignature=sig=hush;BlobEndpoint=http://127.0.0.1:1/someaccount;",
			"http://127.0.0.1:1/someaccount", "", "sig=hush", ""},
		{"nobody", "HOLDALL_AZURE_ANONYMOUS=1 AZURE_STORAGE_ACCOUNT=someaccount AZURE_STORAGE_KEY=aHVzaA==", "https://someaccount.blob.core.windows.net", "", "", ""},
		{"nobody, of another account", "HOLDALL_AZURE_ANONYMOUS=1 AZURE_STORAGE_CONNECTION_STRING=AccountName=other;AccountKey=aHVzaA==;BlobEndpoint=http://other.test",
			"https://someaccount.blob.core.windows.net", "", "", ""},
		{"another account", "AZURE_STORAGE_ACCOUNT=other AZURE_STORAGE_KEY=aHVzaA==", "", "", "", `credentials for account "other"`},
		{"key without account", "AZURE_STORAGE_KEY=aHVzaA==", "", "", "", "AZURE_STORAGE_ACCOUNT is not"},
		{"key that is none", "AZURE_STORAGE_ACCOUNT=someaccount AZURE_STORAGE_KEY=hush!", "", "", "", "not in base64"},
		{"token that is none", "AZURE_STORAGE_SAS_TOKEN=hush", "", "", "", "expected a query with sig="},
		{"token in the clear", "AZURE_STORAGE_SAS_TOKEN=sig=hush AZURE_STORAGE_SERVICE_ENDPOINT=http://elsewhere.test", "", "", "", "expected https"},
		{"login", "AZURE_STORAGE_AUTH_MODE=login", "", "", "", "Entra ID"},
		{"connection that is none", "AZURE_STORAGE_CONNECTION_STRING=hush", "", "", "", "expected name=value"},
		{"development", "AZURE_STORAGE_CONNECTION_STRING=UseDevelopmentStorage=true", "", "", "", "set AccountName"},
		{"endpoint with a password", "AZURE_STORAGE_SERVICE_ENDPOINT=http://me:hush@x", "", "", "", "endpoint"},
		{"switch that is none", "HOLDALL_AZURE_ANONYMOUS=perhaps", "", "", "", "expected 1 or 0"},
	} {
		t.Run(c.what, func(t *testing.T) {
			quiet(t)
			for kv := range strings.FieldsSeq(c.env) {
				k, v, _ := strings.Cut(kv, "=")
				t.Setenv(k, v)
			}
			endpoint, keys, err := find("someaccount", Options{})
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) || strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), "aHVz") {
					t.Errorf("expected %q, found %v", c.fails, err)
				}
				return
			}
			if err != nil || endpoint.String() != c.endpoint || string(keys.key) != c.key || keys.sas != c.sas {
				t.Errorf("found %v, %+v, %v", endpoint, keys, err)
			}
		})
	}
}

func TestTailIsReadWithoutARangeFromTheEnd(t *testing.T) {
	quiet(t)
	d := &double{}
	st := serve(t, d, "")
	d.set("x", testkit.Numbered(1000), "")
	p := make([]byte, 100)
	if n, err := storekit.ReadTail(t.Context(), storetest.Open(t, st, "x"), p); n != 100 || err != nil || !bytes.Equal(p, testkit.Numbered(1000)[900:]) {
		t.Errorf("%d, %v", n, err)
	}
	if len(d.took) != 2 || strings.Contains(strings.Join(d.took, ""), "bytes=-") {
		t.Errorf("asked for %q", d.took)
	}
}

func isBlock(r *http.Request) bool { return r.URL.Query().Get("comp") == "block" }
func isList(r *http.Request) bool  { return r.URL.Query().Get("comp") == "blocklist" }

// nth has the k-th of some requests answered by a fault.
func nth(k int32, kind func(*http.Request) bool, fault func(w http.ResponseWriter, r *http.Request) bool) func(http.ResponseWriter, *http.Request) bool {
	var n atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) bool { return kind(r) && n.Add(1) == k && fault(w, r) }
}

func busy(w http.ResponseWriter, _ *http.Request) bool {
	refuse(w, http.StatusServiceUnavailable, "ServerBusy")
	return true
}

func cut(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }

func TestFaultOfABlockOrOfTheListIsBorne(t *testing.T) {
	for what, c := range map[string]struct {
		kind  func(*http.Request) bool
		fault func(http.ResponseWriter, *http.Request) bool
	}{"busy block": {isBlock, busy}, "cut block": {isBlock, cut}, "busy list": {isList, busy}, "cut list": {isList, cut}} {
		t.Run(what, func(t *testing.T) {
			quiet(t)
			d := &double{hook: nth(1, c.kind, c.fault)}
			st := serve(t, d, "")
			want := testkit.Numbered(firstBlock + 5)
			if err := storetest.Put(t.Context(), st, "x", want); err != nil || !bytes.Equal(d.blobs["x"].content, want) {
				t.Errorf("other bytes or %v", err)
			}
		})
	}
}

func TestBodyThatBreaksOffIsResumedAtTheByte(t *testing.T) {
	quiet(t)
	d := &double{}
	want := testkit.Numbered(100_000)
	d.hook = nth(1, func(r *http.Request) bool { return r.Header.Get("Range") == "bytes=0-99999" }, func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Range", "bytes 0-99999/100000")
		w.Header().Set("Content-Length", "100000")
		w.Header().Set("ETag", `"0x8D1"`)
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(want[:70_000]) // the client notices
		panic(http.ErrAbortHandler)
	})
	st := serve(t, d, "")
	d.set("x", want, "")
	p := make([]byte, len(want))
	if err := storetest.Open(t, st, "x").ReadAt(t.Context(), p, 0); err != nil || !bytes.Equal(p, want) {
		t.Errorf("other bytes or %v", err)
	}
	if last := d.took[len(d.took)-1]; !strings.HasSuffix(last, "bytes=70000-99999") {
		t.Errorf("asked for %q", d.took)
	}
}

func TestServerThatStaysBusyIsGivenUp(t *testing.T) {
	quiet(t)
	d := &double{hook: busy}
	st := serve(t, d, "")
	st.tries = 2
	err := storetest.Put(t.Context(), st, "x", []byte("x"))
	if !storekit.Temporary(err) || !strings.Contains(err.Error(), "503 ServerBusy (tried 2 times)") || len(d.took) != 2 {
		t.Errorf("%d requests, %v", len(d.took), err)
	}
}

func TestBlockThatFailsEndsTheWriterAndShowsNothing(t *testing.T) {
	quiet(t)
	d := &double{hook: func(w http.ResponseWriter, r *http.Request) bool {
		if isBlock(r) {
			refuse(w, http.StatusForbidden, "AuthorizationPermissionMismatch")
		}
		return isBlock(r)
	}}
	st := serve(t, d, "")
	d.set("x", []byte("old"), "")
	err := storetest.Put(t.Context(), st, "x", testkit.Numbered(3*firstBlock))
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "block ") || string(d.blobs["x"].content) != "old" {
		t.Errorf("found %v", err)
	}
}

func TestOfTwoWritersOfBlocksTheSecondToCommitIsToldWhole(t *testing.T) {
	quiet(t)
	d := &double{}
	st := serve(t, d, "")
	a, b := storetest.Create(t, st, "x"), storetest.Create(t, st, "x")
	for w, c := range map[store.Writer]byte{a: 'a', b: 'b'} {
		if _, err := w.Write(bytes.Repeat([]byte{c}, 2*firstBlock)); err != nil {
			t.Fatal(err)
		}
	}
	for n := 0; n < 2; { // the first block of each is there
		d.mu.Lock()
		n = len(d.blocks["x"])
		d.mu.Unlock()
		runtime.Gosched()
	}
	if _, err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Commit(t.Context()); !errors.Is(err, errListGone) {
		t.Errorf("found %v", err)
	}
	if !bytes.Equal(d.blobs["x"].content, bytes.Repeat([]byte("b"), 2*firstBlock)) {
		t.Error("the object of the first to commit is not whole")
	}
}

func TestCreatedOnceThoughTheAnswerWasLost(t *testing.T) {
	for _, n := range []int{10, firstBlock + 1} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			quiet(t)
			d := &double{}
			st := serve(t, d, "")
			st.signed.next = &losing{next: st.signed.next}
			w, err := st.CreateAs(t.Context(), "x", store.Wishes{Once: true})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(testkit.Numbered(n)); err != nil {
				t.Fatal(err)
			}
			if info, err := w.Commit(t.Context()); err != nil || info.Version != d.blobs["x"].etag || !bytes.Equal(d.blobs["x"].content, testkit.Numbered(n)) {
				t.Errorf("found %+v, %v", info, err)
			}
			other, err := st.CreateAs(t.Context(), "x", store.Wishes{Once: true})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := other.Commit(t.Context()); !errors.Is(err, fs.ErrExist) {
				t.Errorf("another: found %v", err)
			}
		})
	}
}

// A losing transport loses the first answer that tells of an object made once.
type losing struct {
	next http.RoundTripper
	lost bool
}

func (l *losing) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(r)
	if err == nil && r.Header.Get("If-None-Match") == "*" && !l.lost {
		l.lost = true
		_ = resp.Body.Close()
		return nil, io.ErrUnexpectedEOF
	}
	return resp, err
}

func appended(t *testing.T, d *double, st *Store) (w store.Writer, want []byte, err error) {
	t.Helper()
	src := testkit.Numbered(20 * mib)
	d.mu.Lock()
	d.set("dir/so urce", src, "")
	d.mu.Unlock()
	w = storetest.Create(t, st, "x")
	if _, err := w.Write([]byte("head")); err != nil {
		t.Fatal(err)
	}
	if err := storekit.WriteRange(t.Context(), w, storetest.Open(t, st, "dir/so urce"), 1000, 18*mib); err != nil {
		return w, nil, err
	}
	_, err = w.Write([]byte("the end"))
	return w, slices.Concat([]byte("head"), src[1000:1000+18*mib], []byte("the end")), err
}

func TestRangeIsCopiedByTheServer(t *testing.T) {
	quiet(t)
	d := &double{}
	st := serve(t, d, "")
	w, want, err := appended(t, d, st)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := w.Commit(t.Context()); err != nil || info.Size != int64(len(want)) || !bytes.Equal(d.blobs["x"].content, want) {
		t.Fatalf("commit: %+v, %v", info, err)
	}
	for _, r := range d.took {
		if strings.HasPrefix(r, "GET /someaccount/container/dir") && !strings.HasSuffix(r, " bytes=0-0") {
			t.Errorf("the bytes passed through us: %s", r)
		}
	}
}

func TestCopyThatIsWrongIsNeverSeen(t *testing.T) {
	isCopy := func(r *http.Request) bool { return r.Header.Get("X-Ms-Copy-Source") != "" }
	for what, c := range map[string]struct {
		fault func(d *double, w http.ResponseWriter, r *http.Request) bool
		want  string // "" where the bytes pass through us
	}{
		"not implemented": {func(_ *double, w http.ResponseWriter, _ *http.Request) bool {
			refuse(w, http.StatusNotImplemented, "NotImplemented")
			return true
		}, ""},
		"not allowed": {func(_ *double, w http.ResponseWriter, _ *http.Request) bool {
			refuse(w, http.StatusForbidden, "CannotVerifyCopySource")
			return true
		}, ""},
		"changed": {func(d *double, _ http.ResponseWriter, _ *http.Request) bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.set("dir/so urce", testkit.Numbered(20*mib), "")
			return false
		}, "changed while"},
		"short": {func(d *double, w http.ResponseWriter, r *http.Request) bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.blocks["x"] == nil {
				d.blocks["x"] = map[string][]byte{}
			}
			d.blocks["x"][r.URL.Query().Get("blockid")] = []byte("short")
			w.WriteHeader(http.StatusCreated)
			return true
		}, "found 5"},
		"lost": {func(_ *double, w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusCreated)
			return true
		}, "does not list 1 of 1"},
	} {
		t.Run(what, func(t *testing.T) {
			if what != "changed" && what != "not allowed" {
				testkit.Serial(t)
			}
			quiet(t)
			d := &double{}
			d.hook = nth(1, isCopy, func(w http.ResponseWriter, r *http.Request) bool { return c.fault(d, w, r) })
			w, want, err := appended(t, d, serve(t, d, ""))
			if err == nil {
				_, err = w.Commit(t.Context())
			}
			switch {
			case c.want == "" && (err != nil || !bytes.Equal(d.blobs["x"].content, want)):
				t.Errorf("other bytes or %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || d.blobs["x"] != nil):
				t.Errorf("expected %q, found %v", c.want, err)
			}
		})
	}
}

func names(t *testing.T, st *Store) (names []string, err error) {
	t.Helper()
	for info, err := range st.List(t.Context(), "") {
		if err != nil {
			return names, err
		}
		names = append(names, info.Name)
	}
	return names, nil
}

func TestListingGoesOnPageAfterPage(t *testing.T) {
	quiet(t)
	d := &double{page: 3}
	st := serve(t, d, "p/")
	var want []string
	for i := range 10 {
		want = append(want, fmt.Sprintf("k&<%03d+ ü", i))
		d.set("p/"+want[i], nil, "")
	}
	// What XML cannot say, and what cannot be opened, is listed all the same.
	want = append(want, "z\x01%41", "z//y", "z/../y")
	for _, name := range want[10:] {
		d.set("p/"+name, nil, "")
	}
	d.set("p/", nil, "")
	d.set("other", nil, "")
	slices.Sort(want)
	if got, err := names(t, st); err != nil || !slices.Equal(got, want) {
		t.Errorf("expected %q, found %q, %v", want, got, err)
	}
	if len(d.took) != 5 {
		t.Errorf("requests: %q", d.took)
	}
}

func TestListingThatIsWrongIsNotBelieved(t *testing.T) {
	item := func(name, size string) string {
		return "<Blob><Name>" + name + "</Name><Properties><Content-Length>" + size + "</Content-Length></Properties></Blob>"
	}
	for what, c := range map[string]struct{ body, want string }{
		"order":     {"<Blobs>" + item("p/b", "1") + item("p/a", "1") + "</Blobs>", "expected the order"},
		"twice":     {"<Blobs>" + item("p/b", "1") + item("p/b", "1") + "</Blobs>", "expected the order"},
		"prefix":    {"<Blobs>" + item("q/b", "1") + "</Blobs>", "does not begin with"},
		"size":      {"<Blobs>" + item("p/b", "-1") + "</Blobs>", "with size"},
		"no size":   {"<Blobs>" + item("p/b", "") + "</Blobs>", "with size"},
		"escapes":   {`<Blobs><Blob><Name Encoded="true">p/%zz</Name></Blob></Blobs>`, "invalid escapes"},
		"no end":    {"<NextMarker>m</NextMarker>", "where it began"},
		"broke off": {"<Blobs>", "invalid or incomplete"},
	} {
		t.Run(what, func(t *testing.T) {
			quiet(t)
			d := &double{hook: func(w http.ResponseWriter, _ *http.Request) bool {
				body := "<EnumerationResults>" + c.body + "</EnumerationResults>"
				if what == "broke off" {
					body = body[:30]
				}
				fmt.Fprint(w, body)
				return true
			}}
			st := serve(t, d, "p/")
			st.tries = 1
			_, err := names(t, st)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "list az://someaccount/container/p/") {
				t.Errorf("expected %q, found %v", c.want, err)
			}
		})
	}
}

// A page of a listing whose answer was cut off is requested again, so many times.
func TestListingsGoOn(t *testing.T) {
	quiet(t)
	cuts := 0
	d := &double{}
	d.hook = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("comp") != "list" || cuts == 0 {
			return false
		}
		cuts--
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, "<EnumerationResults><Blobs><Blob><Name>00000</Name>")
		return true
	}
	st := serve(t, d, "")
	st.tries = 3
	var want []string
	for i := range 1500 {
		want = append(want, fmt.Sprintf("%05d", i))
		d.set(want[i], nil, "")
	}
	cuts = 2
	if got, err := names(t, st); err != nil || !slices.Equal(got, want) {
		t.Errorf("%d names, %v, expected %d", len(got), err, len(want))
	}
	cuts = 3
	if _, err := names(t, st); err == nil || !strings.Contains(err.Error(), "tried 3 times") || !storekit.Temporary(err) {
		t.Errorf("found %v", err)
	}
}

func TestSignatureAndTokenAreNotSentToWhereTheServerRedirects(t *testing.T) {
	for _, sas := range []string{"", "sp=r&sig=hushhush"} {
		quiet(t)
		var got http.Header
		var query url.Values
		thief := &double{hook: func(w http.ResponseWriter, r *http.Request) bool {
			got, query = r.Header, r.URL.Query()
			return false
		}}
		elsewhere := serve(t, thief, "")
		d := &double{hook: func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, elsewhere.signed.endpoint.String()+"/container/x", http.StatusTemporaryRedirect)
			return true
		}}
		st := serve(t, d, "")
		if sas != "" {
			st.signed.key, st.signed.sas = nil, sas
		}
		_, err := storetest.Open(t, st, "x").Info(t.Context())
		if err == nil || got == nil || got.Get("Authorization") != "" || query.Has("sig") || strings.Contains(err.Error(), "hush") {
			t.Errorf("token %q: sent %v, %v; %v", sas, got, query, err)
		}
	}
}

func TestRefusalsAreToldInOurOwnWords(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		is     error
		want   string
	}{
		{404, "ContainerNotFound", fs.ErrNotExist, "no such container"},
		{404, "BlobNotFound", fs.ErrNotExist, "no such key"},
		{403, "AuthenticationFailed", fs.ErrPermission, "signature refused"},
		{403, "AuthorizationFailure", fs.ErrPermission, "AuthorizationFailure"},
		{409, "PublicAccessNotPermitted", fs.ErrPermission, "PublicAccessNotPermitted"},
		{412, "ConditionNotMet", store.ErrChanged, ""},
		{409, "LeaseIdMissing", nil, "LeaseIdMissing"},
		{400, "no word: " + testKey, nil, "400 Bad Request"},
	} {
		quiet(t)
		d := &double{hook: func(w http.ResponseWriter, _ *http.Request) bool {
			refuse(w, c.status, c.code)
			return true
		}}
		st := serve(t, d, "")
		_, read := storetest.Open(t, st, "x").Info(t.Context())
		for op, err := range map[string]error{"read": read, "write": storetest.Put(t.Context(), st, "x", nil), "remove": st.Remove(t.Context(), "x")} {
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), testKey) ||
				!strings.Contains(err.Error(), "az://someaccount/container/x") {
				t.Errorf("%s, %d %s: found %v", op, c.status, c.code, err)
			}
		}
	}
}

func TestContextThatEndsStopsTheWriter(t *testing.T) {
	quiet(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d := &double{hook: func(_ http.ResponseWriter, r *http.Request) bool {
		if isBlock(r) {
			cancel()
			_, _ = io.Copy(io.Discard, r.Body) // it ends with the connection
		}
		return isBlock(r)
	}}
	st := serve(t, d, "")
	w, err := storekit.Create(ctx, st, "x")
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(testkit.Numbered(8 * firstBlock))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("write: found %v", err)
	}
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	if _, err := w.Commit(t.Context()); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("commit after abort: found %v", err)
	}
}

func TestBlocksOfTheLargestObjectAreFewEnough(t *testing.T) {
	n := 0
	for sent := int64(0); sent < far.MaxSize; n++ {
		sent += int64(blockSize(sent))
	}
	if n > maxBlocks || n < maxBlocks/2 {
		t.Errorf("%d blocks", n)
	}
	ids := map[int]bool{}
	w := &writer{id: "x"}
	for _, i := range []int{0, 9, 10, maxBlocks} {
		ids[len(w.blockID(i))] = true
	}
	if _, err := base64.StdEncoding.DecodeString(w.blockID(7)); err != nil || len(ids) != 1 {
		t.Errorf("ids of lengths %v, %v", ids, err)
	}
}

// What a blob's writer said that it is comes with the first read, of a range, too.
func TestServerVouchesForWhatItsWriterSaid(t *testing.T) {
	d := &double{}
	st := serve(t, d, "")
	for name, said := range map[string]string{"said": "XUFAKrxLKna5cZ2REBfFkg==", "unsaid": "", "nonsense": "XUFAKg=="} {
		d.set(name, []byte("hello"), "")
		d.blobs[name].md5 = said
		o, err := st.Open(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if err := o.ReadAt(t.Context(), make([]byte, 2), 1); err != nil {
			t.Fatal(err)
		}
		sums, err := o.Can().Sums(t.Context())
		want := []store.Sum{{Algo: "md5", Value: "\x5d\x41\x40\x2a\xbc\x4b\x2a\x76\xb9\x71\x9d\x91\x10\x17\xc5\x92"}}
		if name != "said" {
			want = nil
		}
		if err != nil || !slices.Equal(sums, want) {
			t.Errorf("%s: %+v, %v", name, sums, err)
		}
		o.Close()
	}
}

// The headers kept with a blob come with the first read. For a blob that has not been read they
// take one request.
func TestHeadersComeWithTheFirstRead(t *testing.T) {
	d := &double{}
	st := serve(t, d, "")
	kept := map[string]string{"Content-Type": "text/html", "Cache-Control": "no-store", "Content-Encoding": "gzip", "X-Ms-Meta-Who": "me",
		"X-Ms-Tag-Count": "2", "X-Ms-Access-Tier": "Hot", "X-Ms-Access-Tier-Inferred": "true", "X-Ms-Legal-Hold": "true"}
	want := map[string]string{"content-type": "text/html", "cache-control": "no-store", "content-encoding": "gzip", "x-amz-meta-who": "me"}
	for name, content := range map[string]string{"x": "\x1f\x8b, as it is stored", "empty": ""} {
		d.set(name, []byte(content), "")
		d.blobs[name].headers = kept
		for _, read := range []bool{true, false} {
			d.took = nil
			o, err := st.Open(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if p := make([]byte, len(content)); read {
				if err := o.ReadAt(t.Context(), p, 0); err != nil || string(p) != content {
					t.Errorf("%s: %q, %v", name, p, err)
				}
			}
			got, err := o.Can().Headers(t.Context())
			delete(got, "x-amz-meta-holdallwriter")
			if err != nil || !maps.Equal(got, want) {
				t.Errorf("%s: %q, %v", name, got, err)
			}
			if unkept := slices.Sorted(slices.Values(o.Can().Unkept())); !slices.Equal(unkept, []string{"lock", "tags"}) {
				t.Errorf("%s: %q", name, unkept)
			}
			if info, err := o.Info(t.Context()); err != nil || info.Version != d.blobs[name].etag || info.ModTime.IsZero() {
				t.Errorf("%s: %+v, %v", name, info, err)
			}
			if len(d.took) != 1 {
				t.Errorf("%s: %q", name, d.took)
			}
			o.Close()
		}
	}
}
