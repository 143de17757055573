package serve

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdall/holdall/internal/base/sigv4"
)

// A signature is the signature of a request: in its header, or in its query if
// the link was signed in advance.
type signature struct {
	id, scope string
	signed    []string // names of headers
	sum       []byte
	at        time.Time
	payload   string
	presigned bool
	expires   time.Duration
}

const (
	maxSkew    = 15 * time.Minute
	maxExpires = 7 * 24 * time.Hour
)

// parseSignature parses the signature of a request. code is Amazon's code for
// an error, or "" if there is none.
func parseSignature(head http.Header, q url.Values) (s signature, code string) {
	if auth := head.Get("Authorization"); auth != "" {
		rest, ok := strings.CutPrefix(auth, sigv4.Algorithm+" ")
		if !ok {
			return s, "AuthorizationHeaderMalformed"
		}
		fields := map[string]string{}
		for part := range strings.SplitSeq(rest, ",") {
			k, v, ok := strings.Cut(strings.TrimSpace(part), "=")
			if _, again := fields[k]; !ok || again {
				return s, "AuthorizationHeaderMalformed"
			}
			fields[k] = v
		}
		s.payload = cmp.Or(head.Get("X-Amz-Content-Sha256"), sigv4.Empty)
		return s, s.fill(fields["Credential"], fields["SignedHeaders"], fields["Signature"], head.Get("X-Amz-Date"), "AuthorizationHeaderMalformed")
	}
	if !q.Has("X-Amz-Signature") {
		return s, "AccessDenied"
	}
	const bad = "AuthorizationQueryParametersError"
	for _, vs := range q {
		if len(vs) > 1 {
			return s, bad
		}
	}
	n, err := strconv.Atoi(q.Get("X-Amz-Expires"))
	if q.Get("X-Amz-Algorithm") != sigv4.Algorithm || err != nil || n < 1 || n > int(maxExpires/time.Second) {
		return s, bad
	}
	s.presigned, s.expires = true, time.Duration(n)*time.Second
	s.payload = cmp.Or(q.Get("X-Amz-Content-Sha256"), head.Get("X-Amz-Content-Sha256"), sigv4.Unsigned)
	return s, s.fill(q.Get("X-Amz-Credential"), q.Get("X-Amz-SignedHeaders"), q.Get("X-Amz-Signature"), q.Get("X-Amz-Date"), bad)
}

func (s *signature) fill(credential, headers, sum, at, bad string) (code string) {
	scope := strings.Split(credential, "/")
	if len(scope) < 5 {
		return bad
	}
	// An ID may have slashes.
	n := len(scope) - 4
	s.id = strings.Join(scope[:n], "/")
	s.scope = credential[len(s.id)+1:]
	if scope[n+2] != "s3" || scope[n+3] != "aws4_request" || s.id == "" {
		return bad
	}
	var err error
	if s.sum, err = hex.DecodeString(sum); err != nil || len(s.sum) != sha256.Size {
		return bad
	}
	if s.at, err = time.Parse(sigv4.Time, at); err != nil || at[:8] != scope[n] {
		return bad
	}
	s.signed = strings.Split(headers, ";")
	if !slices.IsSorted(s.signed) || len(slices.Compact(slices.Clone(s.signed))) != len(s.signed) || !slices.Contains(s.signed, "host") {
		return bad
	}
	return ""
}

type Key struct{ ID, Secret string }

// check checks the signature of a request. code is Amazon's code for an error,
// or "" if there is none.
func (k Key) check(r *http.Request, now time.Time) (s signature, code string) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return s, "InvalidURI"
	}
	if isV2(q) && r.Header.Get("Authorization") == "" {
		return k.checkV2(r, q, now)
	}
	s, code = parseSignature(r.Header, q)
	if code == "" {
		code = k.wrong(r, s, q, now)
	}
	return s, code
}

func (k Key) wrong(r *http.Request, s signature, q url.Values, now time.Time) (code string) {
	switch {
	case !hasBody(r) && s.payload != sigv4.Unsigned && s.payload != sigv4.Empty:
		return "XAmzContentSHA256Mismatch"
	case !hmac.Equal([]byte(s.id), []byte(k.ID)):
		return "InvalidAccessKeyId"
	case s.at.Sub(now) > maxSkew, !s.presigned && now.Sub(s.at) > maxSkew:
		return "RequestTimeTooSkewed"
	case s.presigned && now.Sub(s.at) > s.expires:
		return "AccessDenied"
	}
	for name := range r.Header {
		// Headers that could change the response must be signed.
		if len(name) > 6 && strings.EqualFold(name[:6], "x-amz-") && !slices.Contains(s.signed, strings.ToLower(name)) {
			return "AccessDenied"
		}
	}
	if !hmac.Equal(s.sum, k.sign(r, s, q)) {
		return "SignatureDoesNotMatch"
	}
	return ""
}

// sign returns the signature that a request should have.
func (k Key) sign(r *http.Request, s signature, q url.Values) []byte {
	if s.presigned {
		q = maps.Clone(q)
		q.Del("X-Amz-Signature")
	}
	fields := make([]sigv4.Field, len(s.signed))
	for i, name := range s.signed {
		value := strings.Join(r.Header.Values(name), ",")
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = strconv.FormatInt(r.ContentLength, 10)
		}
		fields[i] = sigv4.Field{Name: name, Value: value}
	}
	text := sigv4.Request{Method: r.Method, Path: r.URL.Path, Query: sigv4.Query(q), Fields: fields, Payload: s.payload}.Text(sigv4.Algorithm, s.at.Format(sigv4.Time), s.scope)
	return sigv4.MAC(k.of(s), text)
}

// derived has the key of the last signature. Most requests have the scope of the one before.
var derived sigv4.Keys

// of returns the key for signatures of this day and region.
func (k Key) of(s signature) []byte { return derived.Of("AWS4"+k.Secret, s.scope) }
