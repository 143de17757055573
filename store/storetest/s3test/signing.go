package s3test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// unsigned returns an error code if a request's signature is wrong, or "".
func (s *Server) unsigned(r *http.Request, body []byte, region string, now time.Time) string {
	d := s.dialect()
	auth, ok := strings.CutPrefix(r.Header.Get("Authorization"), d.algorithm)
	if !ok {
		if token, bears := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); bears && s.Google {
			if token == "" || token != s.Bearer {
				return "AuthenticationRequired"
			}
			return ""
		}
		if s.Public && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			return ""
		}
		return "AccessDenied"
	}
	fields := map[string]string{}
	for part := range strings.SplitSeq(auth, ",") {
		k, v, _ := strings.Cut(strings.TrimSpace(part), "=")
		fields[k] = v
	}
	scope := strings.Split(fields["Credential"], "/")
	if len(scope) != 5 || scope[3] != d.service || scope[4] != d.end {
		return "AuthorizationHeaderMalformed"
	}
	at, err := time.Parse("20060102T150405Z", r.Header.Get(d.headers+"Date"))
	hash := r.Header.Get(d.headers + "Content-Sha256")
	switch sum := sha256.Sum256(body); {
	case scope[0] != AccessKey:
		return "InvalidAccessKeyId"
	case scope[2] != region:
		return "AuthorizationHeaderMalformed"
	case err != nil || !strings.HasPrefix(r.Header.Get(d.headers+"Date"), scope[1]):
		return "AccessDenied"
	case at.Sub(now).Abs() > 15*time.Minute:
		return "RequestTimeTooSkewed"
	case r.Header.Get(d.headers+"Security-Token") != s.Token:
		return "InvalidToken"
	case hash != hex.EncodeToString(sum[:]) && hash != "UNSIGNED-PAYLOAD":
		return "XAmzContentSHA256Mismatch"
	}
	names := strings.Split(fields["SignedHeaders"], ";")
	var head strings.Builder
	for _, name := range names {
		value := strings.Join(r.Header.Values(name), ",")
		if name == "host" {
			value = r.Host
		}
		fmt.Fprintf(&head, "%s:%s\n", name, strings.Join(strings.Fields(value), " "))
	}
	// All headers that could change the response must be signed.
	for k := range r.Header {
		k = strings.ToLower(k)
		if (strings.HasPrefix(k, strings.ToLower(d.headers)) || k == "range" || k == "if-match") && !slices.Contains(names, k) {
			return "AccessDenied"
		}
	}
	query := strings.ReplaceAll(r.URL.Query().Encode(), "+", "%20")
	canonical := strings.Join([]string{r.Method, uri(r.URL.Path), query, head.String(), fields["SignedHeaders"], hash}, "\n")
	sum := sha256.Sum256([]byte(canonical))
	text := strings.Join([]string{strings.TrimSpace(d.algorithm), r.Header.Get(d.headers + "Date"), strings.Join(scope[1:], "/"), hex.EncodeToString(sum[:])}, "\n")
	key := []byte(d.key + Secret)
	for _, part := range append(scope[1:], text) {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(part))
		key = m.Sum(nil)
	}
	if !hmac.Equal([]byte(hex.EncodeToString(key)), []byte(fields["Signature"])) {
		return "SignatureDoesNotMatch"
	}
	return ""
}

// uri escapes a path as in signatures: all characters except letters, digits, -._~ and slashes.
func uri(path string) string {
	var b strings.Builder
	for _, c := range []byte(path) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~/", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
