package serve

import (
	"encoding/xml"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdall/holdall/store/storekit"
)

func (c *call) put() error {
	if c.r.Header.Get("X-Amz-Copy-Source") != "" {
		return c.copy()
	}
	if c.r.Header.Get("X-Amz-Meta-Snowball-Auto-Extract") == "true" {
		return c.extract()
	}
	headers, err := storedHeaders(c.r.Header)
	if err != nil {
		return err
	}
	p, err := c.body()
	if err != nil {
		return err
	}
	if _, err := c.in.Put(c.r.Context(), c.key, p.upload(condition(c.r.Header), headers)); err != nil {
		return err
	}
	c.wrote(p.etag, headers)
	return c.done(http.StatusOK)
}

// isStored reports whether a header is the client's, and not one that follows
// from the content.
func isStored(name string) bool {
	return storekit.IsHeader(name) && !strings.HasPrefix(name, checksumHeader) && name != sizesHeader && name != partSumsHeader
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
		case !isStored(name):
			continue
		case strings.HasPrefix(name, storekit.MetaHeader):
			meta += len(name) - len(storekit.MetaHeader) + len(value)
		}
		if !utf8.ValidString(value) || strings.ContainsFunc(value, isControl) {
			return nil, fault("InvalidArgument", name+": expected UTF-8 without control characters")
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

// tagging is the document of tags.
type tagging struct {
	XMLName xml.Name      `xml:"Tagging"`
	Tags    few[s3Tagged] `xml:"TagSet>Tag"`
}

func (t tagging) values() url.Values {
	tags := url.Values{}
	for _, t := range t.Tags {
		tags.Add(t.Key, t.Value)
	}
	return tags
}

func (c *call) putTags() error {
	var asked tagging
	if empty, err := c.doc(&asked); err != nil {
		return err
	} else if empty {
		return fault("MalformedXML", "")
	}
	text, err := tagText(asked.values())
	if err != nil {
		return err
	}
	return c.retag(text, http.StatusOK)
}

func (c *call) removeTags() error { return c.retag("", http.StatusNoContent) }

func (c *call) retag(text string, status int) error {
	if err := c.in.Change(c.r.Context(), c.key, func(headers map[string]string) (map[string]string, error) {
		if headers = maps.Clone(headers); headers == nil {
			headers = map[string]string{}
		}
		if headers[storekit.TagsHeader] = text; text == "" {
			delete(headers, storekit.TagsHeader)
		}
		return headers, nil
	}); err != nil {
		return err
	}
	return c.done(status)
}
