package serve

import (
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdall/holdall/store/storekit"
)

func (c *call) put() error {
	headers, err := storedHeaders(c.r.Header)
	if err != nil {
		return err
	}
	p, err := c.body()
	if err != nil {
		return err
	}
	etag, _, err := c.store(c.key, p, headers)
	if err != nil {
		return err
	}
	c.wrote(etag, headers)
	c.w.WriteHeader(http.StatusOK)
	return nil
}

// store puts an object.
func (c *call) store(key string, p *payload, headers map[string]string) (etag string, w Written, err error) {
	u := &Upload{Body: p, Size: p.size, If: condition(c.r.Header), End: func() (string, map[string]string) {
		etag, headers = p.end(headers)
		return etag, headers
	}}
	w, err = c.in.Put(c.r.Context(), key, u)
	return etag, w, err
}

// storedHeaders returns the headers of a request that are stored with an
// object.
func storedHeaders(head http.Header) (map[string]string, error) {
	all, meta := map[string]string{}, 0
	for name, values := range head {
		name, value := strings.ToLower(name), strings.Join(values, ",")
		switch {
		case name == "content-encoding":
			var kept []string
			for _, coding := range codings(head) {
				if coding != "aws-chunked" {
					kept = append(kept, coding)
				}
			}
			if value = strings.Join(kept, ", "); value == "" {
				continue
			}
		case name == storekit.TagsHeader:
			tags, err := url.ParseQuery(value)
			if err != nil {
				return nil, fault("InvalidArgument", "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag name duplicates.")
			}
			if value, err = tagText(tags); err != nil {
				return nil, err
			} else if value == "" {
				continue
			}
		case !storekit.IsHeader(name) || strings.HasPrefix(name, checksumHeader):
			continue
		case strings.HasPrefix(name, storekit.MetaHeader):
			meta += len(name) - len(storekit.MetaHeader) + len(value)
		}
		if !utf8.ValidString(value) {
			return nil, fault("InvalidArgument", name+": expected UTF-8")
		}
		all[name] = value
	}
	if meta > 2<<10 {
		return nil, fault("MetadataTooLarge", "")
	}
	return all, nil
}

// tagText checks tags, and returns them as they are stored.
func tagText(tags url.Values) (string, error) {
	if len(tags) > 10 {
		return "", fault("BadRequest", "Object tags cannot be greater than 10")
	}
	bad := func(s string) bool {
		return !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r) && !unicode.IsSpace(r) && !strings.ContainsRune("+-=._:/@", r)
		})
	}
	for key, values := range tags {
		switch {
		case len(values) > 1:
			return "", fault("InvalidTag", "Cannot provide multiple Tags with the same key")
		case key == "" || utf8.RuneCountInString(key) > 128 || bad(key):
			return "", fault("InvalidTag", "The TagKey you have provided is invalid")
		case utf8.RuneCountInString(values[0]) > 256 || bad(values[0]):
			return "", fault("InvalidTag", "The TagValue you have provided is invalid")
		}
	}
	return tags.Encode(), nil
}
