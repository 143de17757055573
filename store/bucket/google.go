package bucket

import (
	"cmp"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/holdall/holdall/store/internal/far"
	"github.com/holdall/holdall/store/web"
)

// Google's XML interface is S3's in all but who signs and how, what conditions are
// called, and what it does not have:
//
//   - a request may have headers of Amazon's or of Google's, not of both; what is said
//     in Google's can be signed with Google's words only, or sent with a token;
//   - parts are not copied from other objects;
//   - an upload in parts takes no condition, and what it makes has no MD5 sum, so its
//     ETag tells nothing about its parts.
type google struct {
	id, secret string  // of HMAC keys
	tokens     *tokens // nil where there are none
}

const (
	googleEndpoint = "https://storage.googleapis.com"

	// maxGoogleBucket is the length of a name that is a domain's.
	maxGoogleBucket = 222
)

// findGoogle is find for Google's dialect.
func findGoogle(o Options) (place, *credentials.Credentials, error) {
	emulator := os.Getenv("STORAGE_EMULATOR_HOST")
	if emulator != "" && !strings.Contains(emulator, "://") {
		emulator = "http://" + emulator
	}
	set := cmp.Or(o.Endpoint, os.Getenv("HOLDALL_GS_ENDPOINT"))
	endpoint, err := far.ParseEndpoint(cmp.Or(set, emulator, googleEndpoint), serverForm, false)
	if err != nil {
		return place{}, nil, err
	}
	g, err := googleKeys(o, set == "" && emulator != "")
	if err != nil {
		return place{}, nil, err
	}
	if g.tokens != nil && endpoint.Scheme != "https" && !far.IsLocal(endpoint.Hostname()) {
		return place{}, nil, fmt.Errorf("endpoint http://%s: expected https, since tokens are sent there: %w", endpoint.Host, fs.ErrInvalid)
	}
	// What the client that writes signs with is replaced on the way. It has to
	// sign, or it would not say what its bodies' sums are.
	some := &credentials.Static{Value: credentials.Value{AccessKeyID: "x", SecretAccessKey: "x", SignerType: credentials.SignatureV4}}
	return place{endpoint: endpoint, region: "auto", pathStyle: true, google: g}, credentials.New(some), nil
}

// googleKeys decides whose requests these are. No token is sent to an emulator, of
// which an address in the environment is all that is known.
func googleKeys(o Options, emulator bool) (*google, error) {
	anonymous, err := far.Switch(o.Anonymous, "HOLDALL_GS_ANONYMOUS")
	if err != nil {
		return nil, err
	}
	id, secret := os.Getenv("GS_ACCESS_KEY_ID"), os.Getenv("GS_SECRET_ACCESS_KEY")
	switch {
	case anonymous:
		return &google{}, nil
	case id != "" && secret != "":
		return &google{id: id, secret: secret}, nil
	case id != "" || secret != "":
		return nil, errors.New("expected both GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY, found one of them")
	case emulator:
		return &google{}, nil
	}
	t, err := findTokens()
	if err != nil || t == nil {
		return &google{}, err
	}
	t.client = &http.Client{
		Transport:     web.Transport(),
		Timeout:       tokenWait,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if o.Client != nil && o.Client.Transport != nil {
		t.client.Transport = o.Client.Transport
	}
	return &google{tokens: t}, nil
}

func (g *google) anonymous() bool { return g.id == "" && g.tokens == nil }

// sign says in Google's words what the client said in Amazon's, and by whom.
func (g *google) sign(r *http.Request, now time.Time) error {
	sum := cmp.Or(r.Header.Get("X-Amz-Content-Sha256"), noContent)
	for k := range r.Header {
		if strings.HasPrefix(k, "X-Amz-") {
			r.Header.Del(k)
		}
	}
	// Else what was stored as gzip would come unpacked, and whole whatever the range.
	r.Header.Set("Accept-Encoding", "gzip")
	if r.Header.Get("If-None-Match") == "*" {
		r.Header.Del("If-None-Match")
		r.Header.Set("X-Goog-If-Generation-Match", "0")
	}
	switch {
	case g.id != "":
		r.Header.Set("X-Goog-Content-Sha256", sum)
		g.signKeys(r, sum, now.UTC())
	case g.tokens != nil:
		token, err := g.tokens.get(r.Context())
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return nil
}

// signKeys signs with HMAC keys: Amazon's fourth version with Google's names. Google's
// front changes Accept-Encoding on the way, so what is not said to Google is not signed.
func (g *google) signKeys(r *http.Request, sum string, now time.Time) {
	date := now.Format("20060102T150405Z")
	r.Header.Set("X-Goog-Date", date)
	head := map[string]string{"host": r.URL.Host}
	for k, v := range r.Header {
		k = strings.ToLower(k)
		if strings.HasPrefix(k, "x-goog-") || k == "range" || k == "content-md5" || strings.HasPrefix(k, "if-") {
			head[k] = strings.Join(v, ",")
		}
	}
	names := slices.Sorted(maps.Keys(head))
	var canonical strings.Builder
	fmt.Fprintf(&canonical, "%s\n%s\n%s\n", r.Method, s3utils.EncodePath(r.URL.Path), strings.ReplaceAll(r.URL.Query().Encode(), "+", "%20"))
	for _, k := range names {
		fmt.Fprintf(&canonical, "%s:%s\n", k, strings.TrimSpace(head[k]))
	}
	signed := strings.Join(names, ";")
	fmt.Fprintf(&canonical, "\n%s\n%s", signed, sum)

	scope := []string{date[:8], "auto", "storage", "goog4_request"}
	all := sha256.Sum256([]byte(canonical.String()))
	text := "GOOG4-HMAC-SHA256\n" + date + "\n" + strings.Join(scope, "/") + "\n" + hex.EncodeToString(all[:])
	key := []byte("GOOG4" + g.secret)
	for _, part := range append(scope, text) {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(part))
		key = m.Sum(nil)
	}
	r.Header.Set("Authorization", fmt.Sprintf("GOOG4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%x",
		g.id, strings.Join(scope, "/"), signed, key))
}

// onceInParts reports whether an object that is uploaded in parts can be created on
// the condition that there is none. Google's servers would not look at it.
func (p place) onceInParts() bool { return p.google == nil }

// contentMD5 returns what is sent with a body so that the server compares it. Amazon's
// compare the SHA-256 that they need for the signature; Google's do not.
func (p place) contentMD5(body []byte) string {
	if p.google == nil {
		return ""
	}
	sum := md5.Sum(body)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// scheme is that of the addresses of a place's objects.
func (p place) scheme() string {
	if p.google != nil {
		return "gs"
	}
	return "s3"
}
