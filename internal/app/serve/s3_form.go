package serve

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdall/holdall/internal/base/sigv4"
	"github.com/holdall/holdall/store/storekit"
)

// maxFields is how many bytes of a form may come before its file.
const maxFields = 64 << 10

// isForm reports whether a request is a form of a web page, which is signed
// inside.
func isForm(r *http.Request) bool {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return kind == "multipart/form-data" && r.Header.Get("Authorization") == "" && !strings.Contains(r.URL.RawQuery, "X-Amz-Signature=")
}

// form puts the file of a form.
func (c *call) form() error {
	kind, params, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" {
		return fault("PreconditionFailed", "Bucket POST must be of the enclosure-type multipart/form-data")
	}
	body := &io.LimitedReader{R: c.slow(), N: maxFields}
	parts := multipart.NewReader(body, params["boundary"])
	fields := map[string]string{}
	var file *multipart.Part
	for file == nil {
		part, err := parts.NextPart()
		name := ""
		if err == nil {
			name = strings.ToLower(part.FormName())
		}
		if name == "file" {
			file = part
			continue
		}
		var value []byte
		if err == nil {
			value, err = io.ReadAll(part)
		}
		_, again := fields[name]
		switch {
		case err == nil && !again && name != "":
			fields[name] = string(value)
		case body.N == 0:
			return fault("MaxPostPreDataLengthExceededError", "")
		case err == io.EOF:
			return fault("InvalidArgument", "POST requires exactly one file upload per request.")
		default:
			return fault("MalformedPOSTRequest", "")
		}
	}
	fields["bucket"] = c.bucket
	c.key = strings.ReplaceAll(fields["key"], "${filename}", file.FileName())
	least, most := int64(0), int64(maxPut)
	if c.key == "" {
		return fault("InvalidArgument", "Bucket POST must contain a field named 'key'.  If it is specified, please check the order of the fields.")
	}
	if c.s.o.Key.ID != "" && c.sig.id == "" {
		if err := c.s.o.Key.signedForm(fields); err != nil {
			return err
		}
	}
	if text, ok := fields["policy"]; ok {
		fields["key"] = c.key
		if least, most, err = checkPolicy(text, fields, c.s.o.Clock()); err != nil {
			return err
		}
	}
	if len(c.key) > maxKey {
		return fault("KeyTooLongError", "")
	} else if !utf8.ValidString(c.key) || strings.Contains(c.key, "\x00") {
		return fault("InvalidURI", "")
	}
	head, err := headersOfForm(fields)
	if err != nil {
		return err
	}
	headers, err := storedHeaders(head)
	if err != nil {
		return err
	}
	by, want, err := checksumIn(head)
	if err != nil {
		return err
	}
	body.N = maxPut + maxFields
	content, size, end, err := spool(file, most)
	defer end()
	switch {
	case err != nil:
		return err
	case size > most:
		return fault("EntityTooLarge", "")
	case size < least:
		return fault("EntityTooSmall", "")
	}
	p := newPayload(content, size)
	if by != nil {
		p.keep(by, want)
	}
	if _, err := c.in.Put(c.r.Context(), c.key, p.upload(Condition{}, headers)); err != nil {
		return err
	}
	c.wrote(p.etag, headers)
	c.w.Header().Set("Location", c.location())
	to, err := url.Parse(cmp.Or(fields["success_action_redirect"], fields["redirect"]))
	switch status, _ := strconv.Atoi(fields["success_action_status"]); {
	case err == nil && (to.Scheme == "http" || to.Scheme == "https") && to.Host != "":
		said := "bucket=" + sigv4.Word(c.bucket) + "&key=" + sigv4.Word(c.key) + "&etag=" + sigv4.Word(p.etag)
		to.RawQuery = strings.TrimPrefix(to.RawQuery+"&"+said, "&")
		c.w.Header().Set("Location", to.String())
		c.w.WriteHeader(http.StatusSeeOther)
	case status == http.StatusCreated:
		writeXML(c.w, c.r, status, "PostResponse", c.objectDoc(p.etag))
	case status == http.StatusOK:
		c.w.WriteHeader(status)
	default:
		c.w.WriteHeader(http.StatusNoContent)
	}
	return nil
}

// headersOfForm returns the headers of the object of a form.
func headersOfForm(fields map[string]string) (http.Header, error) {
	head := http.Header{}
	for name, value := range fields {
		if storekit.IsHeader(name) || strings.HasPrefix(name, "x-amz-") {
			head.Set(name, value)
		}
	}
	if acl := fields["acl"]; acl != "" {
		head.Set("X-Amz-Acl", acl)
	}
	if text := fields["tagging"]; text != "" {
		var asked tagging
		if xml.Unmarshal([]byte(text), &asked) != nil {
			return nil, fault("MalformedXML", "")
		}
		head.Set(storekit.TagsHeader, asked.values().Encode())
	}
	return head, unknownHeaders(head)
}

// signedForm checks the signature of a form's policy, of version 4 or 2.
func (k Key) signedForm(fields map[string]string) error {
	policy, ok := fields["policy"]
	if !ok {
		return fault("AccessDenied", "")
	}
	if id, ok := fields["awsaccesskeyid"]; ok {
		switch {
		case fields["signature"] == "":
			return fault("InvalidArgument", "Bucket POST must contain a field named 'Signature'.  If it is specified, please check the order of the fields.")
		case !hmac.Equal([]byte(id), []byte(k.ID)):
			return fault("InvalidAccessKeyId", "")
		case !k.isV2(policy, fields["signature"]):
			return fault("SignatureDoesNotMatch", "")
		}
		return nil
	}
	var s signature
	for _, name := range []string{"x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signature"} {
		if fields[name] == "" {
			return fault("InvalidArgument", "Bucket POST must contain a field named '"+name+"'.  If it is specified, please check the order of the fields.")
		}
	}
	if fields["x-amz-algorithm"] != sigv4.Algorithm {
		return fault("InvalidArgument", "X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"")
	}
	if code := s.fill(fields["x-amz-credential"], "host", fields["x-amz-signature"], fields["x-amz-date"], "AuthorizationQueryParametersError"); code != "" {
		return fault(code, "")
	}
	switch {
	case !hmac.Equal([]byte(s.id), []byte(k.ID)):
		return fault("InvalidAccessKeyId", "")
	case !hmac.Equal(s.sum, sigv4.MAC(k.of(s), policy)):
		return fault("SignatureDoesNotMatch", "")
	}
	return nil
}

// checkPolicy compares the fields of a form with its policy, and returns how
// long the file may be.
func checkPolicy(text string, fields map[string]string, now time.Time) (least, most int64, err error) {
	bad := func(why string) (int64, int64, error) {
		return 0, 0, fault("InvalidPolicyDocument", "Invalid Policy: "+why+".")
	}
	doc, err := base64.StdEncoding.DecodeString(text)
	var members map[string]json.RawMessage // their names are exact
	if err != nil || json.Unmarshal(doc, &members) != nil {
		return bad("Invalid JSON")
	}
	var expiration string
	var conditions []json.RawMessage
	if json.Unmarshal(members["expiration"], &expiration) != nil || json.Unmarshal(members["conditions"], &conditions) != nil {
		return bad("expected expiration and conditions")
	}
	until, err := time.Parse(time.RFC3339, expiration)
	if err != nil {
		return bad("Invalid 'expiration' value")
	}
	denied := func(format string, args ...any) (int64, int64, error) {
		return 0, 0, fault("AccessDenied", "Invalid according to Policy: "+fmt.Sprintf(format, args...))
	}
	if !now.Before(until) {
		return denied("Policy expired.")
	}
	most = maxPut
	covered := map[string]bool{"bucket": true, "policy": true, "x-amz-signature": true, "signature": true, "awsaccesskeyid": true}
	meets := func(op, name, value string) bool {
		name = strings.ToLower(strings.TrimPrefix(name, "$"))
		covered[name] = true
		is, there := fields[name]
		return there && (op == "eq" && is == value || op == "starts-with" && strings.HasPrefix(is, value))
	}
	for _, raw := range conditions {
		var exact map[string]string
		var op, name, value string
		var numbers [2]json.Number
		list := []*json.RawMessage{{}, {}, {}}
		switch {
		case json.Unmarshal(raw, &exact) == nil && len(exact) > 0:
			for name, value := range exact {
				if !meets("eq", name, value) {
					return denied("Policy Condition failed: %s", raw)
				}
			}
			continue
		case json.Unmarshal(raw, &list) != nil || len(list) != 3 || list[0] == nil || list[1] == nil || list[2] == nil || json.Unmarshal(*list[0], &op) != nil:
			return bad("Invalid Simple-Condition")
		}
		switch op = strings.ToLower(op); op {
		case "content-length-range":
			if json.Unmarshal(*list[1], &numbers[0]) != nil || json.Unmarshal(*list[2], &numbers[1]) != nil {
				return bad("Invalid content-length-range")
			}
			from, err := numbers[0].Int64()
			to, terr := numbers[1].Int64()
			if err != nil || terr != nil || from < 0 || to < from {
				return bad("Invalid content-length-range")
			}
			least, most = max(least, from), min(most, to)
		case "eq", "starts-with":
			if json.Unmarshal(*list[1], &name) != nil || json.Unmarshal(*list[2], &value) != nil || !strings.HasPrefix(name, "$") {
				return bad("Invalid Condition")
			}
			if !meets(op, name, value) {
				return denied("Policy Condition failed: %s", raw)
			}
		default:
			return bad("Unknown condition")
		}
	}
	for name := range fields {
		if !covered[name] && !strings.HasPrefix(name, "x-ignore-") && !strings.HasPrefix(name, checksumHeader) {
			return denied("Extra input fields: %s", name)
		}
	}
	return least, most, nil
}

// spool reads at most one byte more than most, and returns the content and its
// size. Long content is in a file until end is called.
func spool(r io.Reader, most int64) (content io.Reader, size int64, end func(), err error) {
	var b bytes.Buffer
	size, err = io.CopyN(&b, r, min(most+1, 1<<20))
	if err == io.EOF || err == nil && size > most {
		return &b, size, func() {}, nil
	}
	if err != nil {
		return nil, 0, func() {}, bodyError(err)
	}
	f, err := os.CreateTemp("", "holdall-form-")
	if err != nil {
		return nil, 0, func() {}, err
	}
	end = func() {
		f.Close()
		os.Remove(f.Name())
	}
	n, err := io.Copy(f, io.LimitReader(r, most+1-size))
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	return io.MultiReader(&b, f), size + n, end, bodyError(err)
}
