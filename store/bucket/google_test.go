package bucket

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// quietGoogle takes away what the environment says of Google's buckets.
func quietGoogle(t *testing.T) {
	t.Helper()
	for _, k := range []string{"STORAGE_EMULATOR_HOST", "HOLDALL_GS_ENDPOINT", "HOLDALL_GS_ANONYMOUS", "GS_ACCESS_KEY_ID", "GS_SECRET_ACCESS_KEY",
		"GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST", "K_SERVICE", "CLOUD_RUN_JOB"} {
		t.Setenv(k, "")
	}
	t.Setenv("CLOUDSDK_CONFIG", t.TempDir())
}

// hmacKeys are those of the server for tests.
func hmacKeys(t *testing.T) {
	t.Helper()
	quietGoogle(t)
	t.Setenv("GS_ACCESS_KEY_ID", s3test.AccessKey)
	t.Setenv("GS_SECRET_ACCESS_KEY", s3test.Secret)
}

func googleServer() *s3test.Server {
	s := s3test.New("bucket")
	s.Google = true
	return s
}

const someToken = "ya29.token-that-is-secret"

// A giver gives tokens to whom it believes, and remembers the forms that it was sent.
type giver struct {
	key   *rsa.PublicKey
	life  int
	mu    sync.Mutex
	forms []string
	given int
}

func (g *giver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // what is missing is missed
	r.Body = io.NopCloser(bytes.NewReader(body))
	refuse := func(code string) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"error":%q,"error_description":"the words of the server about %s"}`, code, body)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch grant := r.PostFormValue("grant_type"); {
	case r.URL.Path == "/computeMetadata/v1/instance/service-accounts/default/token":
		if r.Header.Get("Metadata-Flavor") != "Google" {
			refuse("no_flavor")
			return
		}
		g.forms = append(g.forms, "metadata")
	case grant == "refresh_token" && r.PostFormValue("refresh_token") == "1//refreshsecret" && r.PostFormValue("client_secret") == "clientsecret":
		g.forms = append(g.forms, grant)
	case strings.HasSuffix(grant, "jwt-bearer") && g.believes(r.PostFormValue("assertion"), "http://"+r.Host+"/token"):
		g.forms = append(g.forms, "assertion")
	default:
		refuse("invalid_grant")
		return
	}
	g.given++
	fmt.Fprintf(w, `{"access_token":%q,"expires_in":%d,"token_type":"Bearer"}`, someToken, g.life)
}

// believes checks the signature of a claim, and what is claimed.
func (g *giver) believes(assertion, audience string) bool {
	parts := strings.Split(assertion, ".")
	if len(parts) != 3 {
		return false
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err != nil || rsa.VerifyPKCS1v15(g.key, crypto.SHA256, sum[:], signature) != nil {
		return false
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	var c struct {
		Iss, Scope, Aud string
		Iat, Exp        int64
	}
	now := time.Now().Unix()
	return err == nil && json.Unmarshal(claims, &c) == nil && c.Iss == "me@project.test" && c.Aud == audience &&
		c.Scope == tokenScope && c.Iat <= now && c.Exp > now && c.Exp-c.Iat <= 3600
}

var serviceKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

// account writes the file of an account whose tokens srv gives.
func account(t *testing.T, kind, uri string) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(serviceKey())
	if err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(map[string]string{
		"type": kind, "client_email": "me@project.test", "private_key_id": "k1", "token_uri": uri,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		"client_id":   "id.apps", "client_secret": "clientsecret", "refresh_token": "1//refreshsecret",
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "account.json")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestGoogleStoreKeepsTheContract(t *testing.T) {
	testkit.Long(t)
	for _, by := range []string{"HMAC keys", "token"} {
		t.Run(by, func(t *testing.T) {
			hmacKeys(t)
			if by == "token" {
				quietGoogle(t)
				g := httptest.NewServer(&giver{key: &serviceKey().PublicKey, life: 3600})
				defer g.Close()
				t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", account(t, "service_account", g.URL+"/token"))
			}
			storetest.Run(t, func(t *testing.T) (store.Store, func(string, []byte) error) {
				s := googleServer()
				s.Bearer = someToken
				st := serve(t, s, "pre fix/+ü/", Options{Google: true})
				return st, func(name string, content []byte) error {
					s.Put("bucket", "pre fix/+ü/"+name, content)
					return nil
				}
			})
		})
	}
}

// TestWhatIsReplacedBeforeItsRemovalStays replaces an object, or its headers, between the two requests of a
// removal.
func TestWhatIsReplacedBeforeItsRemovalStays(t *testing.T) {
	hmacKeys(t)
	s := googleServer()
	st := serve(t, s, "", Options{Google: true})
	for _, replace := range []func(){
		func() { s.Put("bucket", "x", []byte("another")) },
		func() { s.Put("bucket", "x", []byte("content")) },
		func() { s.Describe("bucket", "x", map[string]string{"Content-Type": "text/html"}) },
		nil,
	} {
		s.Hook = nil
		s.Put("bucket", "x", []byte("content"))
		var info store.Info
		for is, err := range st.List(t.Context(), "") {
			if info = is; err != nil {
				t.Fatal(err)
			}
		}
		s.Hook = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodDelete && replace != nil {
				replace()
			}
			return false
		}
		err := st.RemoveIf(t.Context(), info)
		if gone := s.Get("bucket", "x") == nil; gone != (replace == nil) || !gone && !errors.Is(err, store.ErrChanged) || gone && err != nil {
			t.Errorf("%v, gone: %v", err, gone)
		}
	}
}

func TestGoogleObjectOfManyPartsIsWhole(t *testing.T) {
	hmacKeys(t)
	s := googleServer()
	st := serve(t, s, "", Options{Google: true})
	w, want, err := appended(t, s, st, 10)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := w.Commit(t.Context()); err != nil || info.Size != int64(len(want)) || !bytes.Equal(s.Get("bucket", "x"), want) {
		t.Fatalf("commit: %+v, %v", info, err)
	}
	if n := s.Uploads(); n != 0 {
		t.Errorf("%d uploads left", n)
	}
	if got := st.Address("a b"); got != "gs://bucket/a%20b" {
		t.Errorf("address %s", got)
	}
}

// A spoiling transport changes a byte of what is sent.
type spoiling struct{ http.RoundTripper }

func (s spoiling) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPut && r.Body != nil {
		p, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		p[len(p)/2] ^= 1
		r.Body = io.NopCloser(bytes.NewReader(p))
	}
	return s.RoundTripper.RoundTrip(r)
}

func TestBodyThatIsSpoiltOnItsWayIsRefusedByGoogle(t *testing.T) {
	quietGoogle(t)
	g := httptest.NewServer(&giver{life: 3600})
	defer g.Close()
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", account(t, "authorized_user", g.URL+"/token"))
	s := googleServer()
	s.Bearer = someToken
	st := serve(t, s, "", Options{Google: true, Tries: 1})
	st.signed.next = spoiling{st.signed.next}
	for _, n := range []int{10, firstPart + 1} {
		if err := storetest.Put(t.Context(), st, "x", testkit.Numbered(n)); err == nil || !strings.Contains(err.Error(), "BadDigest") || s.Get("bucket", "x") != nil {
			t.Errorf("%d bytes: found %v", n, err)
		}
	}
}

func TestTokenIsGotByEachKindOfAccount(t *testing.T) {
	for _, c := range []struct{ kind, form string }{
		{"service_account", "assertion"}, {"authorized_user", "refresh_token"}, {"default file", "refresh_token"}, {"metadata", "metadata"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			quietGoogle(t)
			gives := &giver{key: &serviceKey().PublicKey, life: 3600}
			g := httptest.NewServer(gives)
			defer g.Close()
			switch c.kind {
			case "metadata":
				t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(g.URL, "http://"))
			case "default file":
				file := account(t, "authorized_user", g.URL+"/token")
				dir := filepath.Dir(file)
				if err := os.Rename(file, filepath.Join(dir, "application_default_credentials.json")); err != nil {
					t.Fatal(err)
				}
				t.Setenv("CLOUDSDK_CONFIG", dir)
			default:
				t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", account(t, c.kind, g.URL+"/token"))
			}
			s := googleServer()
			s.Bearer = someToken
			s.Put("bucket", "x", []byte("0123456789"))
			st := serve(t, s, "", Options{Google: true})
			p := make([]byte, 3)
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					if err := storetest.Open(t, st, "x").ReadAt(t.Context(), make([]byte, 3), 4); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if err := storetest.Open(t, st, "x").ReadAt(t.Context(), p, 4); err != nil || string(p) != "456" {
				t.Errorf("found %q, %v", p, err)
			}
			if len(gives.forms) != 1 || gives.forms[0] != c.form {
				t.Errorf("asked by %q, expected once by %q", gives.forms, c.form)
			}
		})
	}
}

func TestTokenIsRenewedBeforeItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		k := newTokens("test", func(ctx context.Context) (*http.Request, error) {
			return http.NewRequestWithContext(ctx, http.MethodGet, "http://tokens.test", nil)
		})
		k.client = &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			asked++
			body := fmt.Sprintf(`{"access_token":"t%d","expires_in":3600}`, asked)
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(body))}, nil
		})}
		for _, c := range []struct {
			after time.Duration
			want  string
		}{{0, "t1"}, {55 * time.Minute, "t1"}, {time.Minute + time.Second, "t2"}, {time.Hour, "t3"}} {
			time.Sleep(c.after)
			if got, err := k.get(t.Context()); got != c.want || err != nil {
				t.Errorf("after %v: expected %s, found %s, %v", c.after, c.want, got, err)
			}
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTokenThatTheServerRefusesIsReplacedOnce(t *testing.T) {
	quietGoogle(t)
	gives := &giver{life: 3600}
	g := httptest.NewServer(gives)
	defer g.Close()
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", account(t, "authorized_user", g.URL+"/token"))
	s := googleServer()
	s.Bearer = someToken
	s.Put("bucket", "x", []byte("0123456789"))
	var refused atomic.Int32
	s.Hook = func(w http.ResponseWriter, r *http.Request) bool {
		if refused.Add(1) == 1 {
			s3test.Refuse(w, r, http.StatusUnauthorized, "AuthenticationRequired")
			return true
		}
		return false
	}
	st := serve(t, s, "", Options{Google: true})
	if _, err := storetest.Open(t, st, "x").Info(t.Context()); err != nil || gives.given != 2 {
		t.Errorf("%d tokens, %v", gives.given, err)
	}
	s.Bearer = "another"
	if _, err := storetest.Open(t, st, "x").Info(t.Context()); !errors.Is(err, fs.ErrPermission) || gives.given != 3 {
		t.Errorf("%d tokens, found %v", gives.given, err)
	}
}

func TestTokenThatCannotBeHadIsToldWithoutSecrets(t *testing.T) {
	for _, c := range []struct {
		what, content, want string
		is                  error
	}{
		{"no JSON", `{"private_key": hush`, "expected JSON", fs.ErrPermission},
		{"no key", `{"type":"service_account","client_email":"me","private_key":"hush"}`, "RSA key", fs.ErrPermission},
		{"workload identity", `{"type":"external_account","hush":"hush"}`, `type "external_account"`, errors.ErrUnsupported},
		{"plain http", `{"type":"authorized_user","token_uri":"http://hush.test/"}`, "token_uri", fs.ErrPermission},
		{"user without a token", `{"type":"authorized_user","client_secret":"hush"}`, "refresh_token", fs.ErrPermission},
		{"refused", `{"type":"authorized_user","client_id":"id","client_secret":"hush","refresh_token":"hush","token_uri":"URI"}`, "invalid_grant", fs.ErrPermission},
	} {
		t.Run(c.what, func(t *testing.T) {
			quietGoogle(t)
			g := httptest.NewServer(&giver{})
			defer g.Close()
			file := filepath.Join(t.TempDir(), "x.json")
			if err := os.WriteFile(file, []byte(strings.ReplaceAll(c.content, "URI", g.URL)), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
			st, err := New("bucket", "", Options{Google: true, Endpoint: "http://127.0.0.1:1"})
			if err == nil {
				_, err = storetest.Open(t, st, "x").Info(t.Context())
			}
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hush") {
				t.Errorf("expected %q, found %v", c.want, err)
			}
		})
	}
}

func TestGoogleSettingsThatCannotBeUsedAreTold(t *testing.T) {
	for env, want := range map[string]string{
		"GS_ACCESS_KEY_ID=x":                                            "found one of them",
		"HOLDALL_GS_ANONYMOUS=perhaps":                                  "expected 1 or 0",
		"HOLDALL_GS_ENDPOINT=ftp://me:secret@x":                         "endpoint",
		"GOOGLE_APPLICATION_CREDENTIALS=/nonexistent":                   "GOOGLE_APPLICATION_CREDENTIALS",
		"GCE_METADATA_HOST=x HOLDALL_GS_ENDPOINT=http://elsewhere.test": "expected https",
	} {
		t.Run(env, func(t *testing.T) {
			quietGoogle(t)
			for kv := range strings.FieldsSeq(env) {
				k, v, _ := strings.Cut(kv, "=")
				t.Setenv(k, v)
			}
			_, _, err := Open(t.Context(), "gs://bucket/x")
			if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "gs://bucket/x: ") || strings.Contains(err.Error(), "secret") {
				t.Errorf("expected %q, found %v", want, err)
			}
		})
	}
}

func TestEmulatorIsSentNoToken(t *testing.T) {
	quietGoogle(t)
	s := googleServer()
	s.Public = true
	s.Put("bucket", "x", []byte("0123456789"))
	s.Hook = func(w http.ResponseWriter, r *http.Request) bool {
		if a := r.Header.Get("Authorization"); a != "" {
			t.Errorf("sent %s", a)
		}
		return false
	}
	srv := httptest.NewServer(s)
	defer srv.Close()
	t.Setenv("STORAGE_EMULATOR_HOST", strings.TrimPrefix(srv.URL, "http://"))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", account(t, "authorized_user", "http://127.0.0.1:1/"))
	st, name, err := Open(t.Context(), "gs://bucket/x")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := storetest.Open(t, st, name).Info(t.Context()); err != nil || info.Size != 10 {
		t.Errorf("found %+v, %v", info, err)
	}
	if err := storetest.Put(t.Context(), st, "y", []byte("y")); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "requested without credentials") {
		t.Errorf("write: found %v", err)
	}
}

func TestObjectIsCreatedOnceByTheConditionOfTheDialect(t *testing.T) {
	testkit.Serial(t)
	for _, googles := range []bool{false, true} {
		for _, size := range []int{1, 2*firstPart + 1} {
			quiet(t)
			hmacKeys(t)
			s := s3test.New("bucket")
			s.Google = googles
			st := serve(t, s, "", Options{Google: googles})
			for i := range 2 {
				w, err := st.CreateAs(t.Context(), "x", store.Wishes{Once: true})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := w.Write(bytes.Repeat([]byte{byte(i)}, size)); err != nil {
					t.Fatal(err)
				}
				if _, err = w.Commit(t.Context()); (i == 0) != (err == nil) || i == 1 && !errors.Is(err, fs.ErrExist) {
					t.Errorf("Google %v, %d bytes, time %d: found %v", googles, size, i, err)
				}
				if err := w.Abort(); err != nil {
					t.Error(err)
				}
			}
			if got := s.Get("bucket", "x"); len(got) != size || got[0] != 0 {
				t.Errorf("Google %v, %d bytes: found %d others", googles, size, len(got))
			}
		}
	}
}
