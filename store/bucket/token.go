package bucket

import (
	"cmp"
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
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/holdall/holdall/store/internal/far"
)

const (
	tokenWait = 20 * time.Second

	maxToken = 64 << 10 // of a response with a token

	tokenScope    = "https://www.googleapis.com/auth/devstorage.read_write"
	tokenEndpoint = "https://oauth2.googleapis.com/token"

	assertionLife = time.Hour
)

// tokens gets OAuth tokens of one account.
type tokens struct {
	*lease[string]
	client *http.Client
}

func newTokens(of string, ask func(ctx context.Context) (*http.Request, error)) *tokens {
	t := &tokens{}
	t.lease = newLease(func(ctx context.Context) (token string, end time.Time, err error) {
		r, err := ask(ctx)
		if err != nil {
			return "", end, err
		}
		token, life, err := t.fetch(r)
		if err != nil {
			return "", end, fmt.Errorf("%s: %w", of, err)
		}
		return token, time.Now().Add(life), nil
	})
	return t
}

// forget drops the token of a request that a server has refused.
func (t *tokens) forget(r *http.Request) {
	t.drop(func(token string) bool { return "Bearer "+token == r.Header.Get("Authorization") })
}

// fetch requests a token. Of the server's response, errors contain only a word of its code,
// because the rest may repeat what it was sent.
func (t *tokens) fetch(r *http.Request) (token string, life time.Duration, err error) {
	resp, err := t.client.Do(r)
	if err != nil {
		if ctx := r.Context(); ctx.Err() != nil {
			return "", 0, ctx.Err()
		}
		return "", 0, unaddressed(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxToken))
	if err != nil {
		return "", 0, &far.Passing{Err: far.ErrDropped}
	}
	var said struct {
		Token  string `json:"access_token"`
		Life   int64  `json:"expires_in"`
		Error  any    `json:"error"`
		Reason string `json:"error_subtype"`
	}
	_ = json.Unmarshal(body, &said) // another kind of response has no fields
	switch code, _ := said.Error.(string); {
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		return "", 0, &far.Passing{Err: fmt.Errorf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))}
	case resp.StatusCode == http.StatusBadRequest && code == "invalid_grant":
		why := "the account or its key no longer exists, or the local clock is wrong"
		if said.Reason == "invalid_rapt" {
			why = "a new login is required"
		}
		return "", 0, fmt.Errorf("invalid_grant; %s: %w", why, fs.ErrPermission)
	case resp.StatusCode != http.StatusOK:
		what := "refused"
		if far.IsWord(strings.ReplaceAll(code, "_", "")) {
			what = code
		}
		return "", 0, fmt.Errorf("%d %s: %w", resp.StatusCode, what, fs.ErrPermission)
	case !isToken(said.Token):
		return "", 0, fmt.Errorf("response without a token: %w", fs.ErrPermission)
	}
	const least, most = 60, 24 * 60 * 60
	return said.Token, time.Duration(min(max(said.Life, least), most)) * time.Second, nil
}

// isToken reports whether s is valid in a header.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' })
}

// findTokens returns the tokens of the account in the environment, in the user's settings or of
// this machine. It returns nil if there is none.
func findTokens() (*tokens, error) {
	if file := os.Getenv("GOOGLE_APPLICATION_CREDENTIALS"); file != "" {
		return readAccount(file, "GOOGLE_APPLICATION_CREDENTIALS")
	}
	if file := defaultAccount(); file != "" {
		t, err := readAccount(file, "application_default_credentials.json")
		if !errors.Is(err, fs.ErrNotExist) {
			return t, err
		}
	}
	host := os.Getenv("GCE_METADATA_HOST")
	if host == "" && !onGoogle() {
		return nil, nil
	}
	u := url.URL{Scheme: "http", Host: cmp.Or(host, "169.254.169.254"), Path: "/computeMetadata/v1/instance/service-accounts/default/token"}
	return newTokens("token of this machine's account", func(ctx context.Context) (*http.Request, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
		if err != nil {
			return nil, fmt.Errorf("GCE_METADATA_HOST: expected host or host:port: %w", fs.ErrInvalid)
		}
		r.Header.Set("Metadata-Flavor", "Google")
		return r, nil
	}), nil
}

// onGoogle reports whether this is a machine of Google's, by its names and settings. It sends no
// request, because elsewhere that would take until a timeout.
func onGoogle() bool {
	return os.Getenv("K_SERVICE") != "" || os.Getenv("CLOUD_RUN_JOB") != "" || boardSays("product_name", "Google")
}

// boardSays reports whether a file that describes the machine on Linux begins with word.
func boardSays(file, word string) bool {
	if runtime.GOOS != "linux" {
		return false
	}
	f, err := os.Open("/sys/class/dmi/id/" + file)
	if err != nil {
		return false
	}
	defer f.Close()
	p := make([]byte, len(word))
	_, err = io.ReadFull(f, p)
	return err == nil && string(p) == word
}

// defaultAccount is the file of `gcloud auth application-default login`.
func defaultAccount() string {
	const name = "application_default_credentials.json"
	if dir := os.Getenv("CLOUDSDK_CONFIG"); dir != "" {
		return filepath.Join(dir, name)
	}
	if runtime.GOOS == "windows" {
		if dir := os.Getenv("APPDATA"); dir != "" {
			return filepath.Join(dir, "gcloud", name)
		}
		return ""
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".config", "gcloud", name)
}

func readAccount(file, what string) (*tokens, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	defer f.Close()
	var a struct {
		Type         string `json:"type"`
		Email        string `json:"client_email"`
		KeyID        string `json:"private_key_id"`
		Key          string `json:"private_key"`
		TokenURI     string `json:"token_uri"`
		ClientID     string `json:"client_id"`
		ClientSecret string `json:"client_secret"`
		Refresh      string `json:"refresh_token"`
	}
	content, err := io.ReadAll(io.LimitReader(f, maxProfile))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	unusable := func(why string) (*tokens, error) {
		return nil, fmt.Errorf("%s: %s: %w", what, why, fs.ErrPermission)
	}
	if err := json.Unmarshal(content, &a); err != nil {
		return unusable("expected JSON (parse error hidden, since it may quote a secret)")
	}
	endpoint, err := url.Parse(cmp.Or(a.TokenURI, tokenEndpoint))
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "https" && (endpoint.Scheme != "http" || !far.IsLocal(endpoint.Hostname())) {
		return unusable("token_uri: expected an https address")
	}
	var of string // for errors
	var form func(now time.Time) (url.Values, error)
	switch a.Type {
	case "service_account":
		key, err := parseKey(a.Key)
		if err != nil || a.Email == "" {
			return unusable("service account without client_email or an RSA key")
		}
		of = "token of the service account"
		form = func(now time.Time) (url.Values, error) {
			assertion, err := assert(key, a.KeyID, a.Email, endpoint.String(), now)
			return url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {assertion}}, err
		}
	case "authorized_user":
		if a.ClientID == "" || a.Refresh == "" {
			return unusable("user without client_id or refresh_token")
		}
		of = "token of the user (gcloud auth application-default login)"
		form = func(time.Time) (url.Values, error) {
			return url.Values{"grant_type": {"refresh_token"}, "client_id": {a.ClientID}, "client_secret": {a.ClientSecret},
				"refresh_token": {a.Refresh}}, nil
		}
	default:
		return nil, fmt.Errorf("%s: type %.40q: expected service_account or authorized_user: %w", what, a.Type, errors.ErrUnsupported)
	}
	return newTokens(of, func(ctx context.Context) (*http.Request, error) {
		values, err := form(time.Now())
		if err != nil {
			return nil, err
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint.String(), strings.NewReader(values.Encode()))
		if err == nil {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		return r, err
	}), nil
}

func parseKey(text string) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("no PEM")
	}
	// A key that cannot be parsed is not an RSA key either.
	key, _ := x509.ParsePKCS8PrivateKey(block.Bytes)
	if key, ok := key.(*rsa.PrivateKey); ok {
		return key, nil
	}
	return x509.ParsePKCS1PrivateKey(block.Bytes)
}

// assert returns the signed claim (RFC 7523) that is exchanged for a token.
func assert(key *rsa.PrivateKey, id, email, audience string, now time.Time) (string, error) {
	var text string
	for _, part := range []any{
		map[string]string{"alg": "RS256", "typ": "JWT", "kid": id},
		map[string]any{"iss": email, "scope": tokenScope, "aud": audience, "iat": now.Unix(), "exp": now.Add(assertionLife).Unix()},
	} {
		p, err := json.Marshal(part)
		if err != nil {
			return "", err
		}
		if text != "" {
			text += "."
		}
		text += base64.RawURLEncoding.EncodeToString(p)
	}
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		return "", errors.New("cannot sign with the key of the service account")
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}
