package serve_test

import (
	"crypto/sha1"
	"encoding/xml"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/app/serve"
)

// listedVersions returns the versions that lists have, as KEY ID LATEST SIZE, in pages.
func listedVersions(t *testing.T, of string, most int) (all []string) {
	t.Helper()
	after := ""
	for {
		_, text := send(t, "GET", fmt.Sprintf("%s&max-keys=%d%s", of, most, after), "")
		var page struct {
			IsTruncated                        bool
			NextKeyMarker, NextVersionIdMarker string
			Items                              []struct {
				XMLName        xml.Name
				Key, VersionId string
				IsLatest       bool
				Size           string
				Prefix         string
			} `xml:",any"`
		}
		if err := xml.Unmarshal([]byte(text), &page); err != nil {
			t.Fatal(err, text)
		}
		n := 0
		for _, x := range page.Items {
			switch x.XMLName.Local {
			case "Version", "DeleteMarker":
				all = append(all, fmt.Sprint(x.Key, " ", x.VersionId, " ", x.IsLatest, " ", x.Size))
			case "CommonPrefixes":
				all = append(all, x.Prefix)
			default:
				continue
			}
			n++
		}
		if n > most || page.IsTruncated != (page.NextKeyMarker != "") {
			t.Fatal(text)
		}
		if !page.IsTruncated {
			return all
		}
		after = "&key-marker=" + url.QueryEscape(page.NextKeyMarker) + "&version-id-marker=" + page.NextVersionIdMarker
	}
}

func TestVersionsAreListedAndRead(t *testing.T) {
	m, at, log := keeping(t, serve.S3Options{})
	expect(t, 200, "", "PUT", at+"/b-1", "")
	for _, key := range []string{"a", "d/1", "d/1", "k", "k", "k", "z", "z"} {
		text := strings.Repeat("x", m.n)
		sum := sha1.Sum([]byte(text))
		expect(t, 200, "", "PUT", at+"/b-1/"+key, text, "x-amz-checksum-sha1", b64(sum[:]))
	}
	expect(t, 204, "", "DELETE", at+"/b-1/z", "")
	old := func(key string, i int) string { return m.buckets["b-1"].old[key][i].id() }
	last, first := old("k", 0), old("k", 1)
	want := []string{"a null true 1", "d/1 null true 3", "d/1 " + old("d/1", 0) + " false 2", "k null true 6", "k " + last + " false 5", "k " + first + " false 4", "z null true ", "z " + old("z", 0) + " false 8", "z " + old("z", 1) + " false 7"}
	for _, most := range []int{1, 2, 3, 100} {
		is := listedVersions(t, at+"/b-1?versions", most)
		if most > 1 { // then deletions come after all others of their page
			slices.Sort(is)
			slices.Sort(want)
		}
		if !slices.Equal(is, want) {
			t.Errorf("%d: %q, expected %q", most, is, want)
		}
		if is := listedVersions(t, at+"/b-1?versions&delimiter=/", most); len(is) != 8 || !slices.Contains(is, "d/") {
			t.Errorf("%d: %q", most, is)
		}
	}
	expect(t, 400, "<Code>InvalidArgument</Code>", "GET", at+"/b-1?versions&version-id-marker=null", "")
	expect(t, 200, "<Contents><Key>k</Key>", "GET", at+"/b-1?prefix=k", "")

	url, none := at+"/b-1/k?versionId=", "AAAAAAAAAAAAAAAAAAAAAAAA"
	for id, size := range map[string]int{"null": 6, last: 5, first: 4} {
		answer := expect(t, 200, strings.Repeat("x", size), "GET", url+id, "", "x-amz-checksum-mode", "ENABLED")
		if h := answer.Header; answer.ContentLength != int64(size) || h.Get("x-amz-version-id") != id || h.Get("x-amz-checksum-sha1") == "" {
			t.Error(id, h)
		}
		if answer := expect(t, 200, "", "HEAD", url+id, ""); answer.ContentLength != int64(size) || answer.Header.Get("x-amz-version-id") != id {
			t.Error(id, answer)
		}
		expect(t, 206, "xx", "GET", url+id, "", "Range", fmt.Sprintf("bytes=%d-", size-2))
		expect(t, 206, "", "GET", url+id+"&partNumber=1", "")
		expect(t, 200, fmt.Sprintf("<ObjectSize>%d</ObjectSize>", size), "GET", url+id+"&attributes", "", "x-amz-object-attributes", "ObjectSize")
		expect(t, 200, "<TagSet></TagSet>", "GET", url+id+"&tagging", "")
		if answer := expect(t, 200, "<ETag>", "PUT", at+"/b-1/copy", "", "x-amz-copy-source", "/b-1/k?versionId="+id); answer.Header.Get("x-amz-copy-source-version-id") != id {
			t.Error(answer.Header)
		}
		if answer := expect(t, 200, "", "HEAD", at+"/b-1/copy", ""); answer.ContentLength != int64(size) || answer.Header.Get("x-amz-version-id") != "" {
			t.Error(id, answer)
		}
	}
	for _, method := range []string{"GET", "DELETE"} {
		expect(t, 404, "<Code>NoSuchVersion</Code>", method, url+none, "")
		expect(t, 400, "<Code>InvalidArgument</Code>", method, url, "")
		expect(t, 400, "<Code>InvalidArgument</Code>", method, url+"1", "")
	}
	expect(t, 404, "<Code>NoSuchVersion</Code>", "GET", at+"/b-1/none?versionId=null", "")
	expect(t, 404, "<Code>NoSuchVersion</Code>", "PUT", at+"/b-1/copy", "", "x-amz-copy-source", "/b-1/k?versionId="+none)
	expect(t, 400, "<Code>InvalidArgument</Code>", "PUT", at+"/b-1/copy", "", "x-amz-copy-source", "/b-1/k?versionId=")
	expect(t, 404, "<Code>NoSuchVersion</Code>", "GET", at+"/one.caf/hello.txt?versionId="+none, "")
	expect(t, 404, "<Code>NoSuchKey</Code>", "GET", at+"/b-1/z", "")
	if answer := expect(t, 405, "<Code>MethodNotAllowed</Code>", "GET", at+"/b-1/z?versionId=null", ""); answer.Header.Get("x-amz-delete-marker") != "true" {
		t.Error(answer.Header)
	}

	// Older versions cannot be deleted or changed.
	for _, request := range []string{"DELETE /b-1/k?versionId=", "PUT /b-1/k?tagging&versionId=", "DELETE /b-1/k?tagging&versionId=", "PUT /b-1/k?versionId="} {
		method, path, _ := strings.Cut(request, " ")
		expect(t, 501, "holdall fleet forget-object", method, at+path+first, "")
	}
	object := func(id string) string { return "<Object><Key>k</Key><VersionId>" + id + "</VersionId></Object>" }
	expect(t, 200, "<Deleted><Key>k</Key><VersionId>null</VersionId></Deleted><Error><Key>k</Key><VersionId>"+first+"</VersionId><Code>NotImplemented</Code>", "POST", at+"/b-1?delete", "<Delete>"+object(first)+object("null")+"</Delete>")
	// Its own ID deletes the newest, too, unless it was replaced.
	expect(t, 200, "", "PUT", url[:len(url)-11], "new")
	newestID := m.buckets["b-1"].objects["k"].id()
	expect(t, 412, "", "DELETE", url+newestID, "", "If-Match", "x")
	expect(t, 200, "new", "GET", url+newestID, "")
	expect(t, 204, "", "DELETE", url+newestID, "")
	expect(t, 501, "", "DELETE", url+newestID, "")
	expect(t, 404, "", "GET", url[:len(url)-11], "")

	// A version may go while it is read.
	if log.String() != "" {
		t.Error(log)
	}
	url = at + "/b-1/d/1?versionId=" + old("d/1", 0)
	m.buckets["b-1"].loses = true
	expect(t, 404, "<Code>NoSuchVersion</Code>", "GET", url, "")
}

func TestKeysHaveAnyCharacters(t *testing.T) {
	_, at, _ := keeping(t, serve.S3Options{})
	expect(t, 200, "", "PUT", at+"/b-1", "")
	key, text := "a\x01\x0b\t&\u00fc\x1f/\uffff\x02", "a&#x1;&#xb;&#x9;&amp;\u00fc&#x1f;/&#xffff;&#x2;"
	path := at + "/b-1/" + url.PathEscape(key)
	expect(t, 200, "", "PUT", path, "text")
	for _, part := range []string{"<Contents><Key>" + text + "</Key>", "<Name>b-1</Name><Prefix></Prefix>"} {
		expect(t, 200, part, "GET", at+"/b-1", "")
	}
	expect(t, 200, "<CommonPrefixes><Prefix>a&#x1;&#xb;&#x9;&amp;\u00fc&#x1f;/</Prefix></CommonPrefixes>", "GET", at+"/b-1?list-type=2&delimiter=/", "")
	expect(t, 200, "<Delimiter>&#x1;</Delimiter>", "GET", at+"/b-1?delimiter=%01", "")
	expect(t, 200, "<Version><Key>"+text+"</Key>", "GET", at+"/b-1?versions", "")
	expect(t, 200, "<Key>a%01%0B%09%26%C3%BC%1F/%EF%BF%BF%02</Key>", "GET", at+"/b-1?encoding-type=url", "")
	up := begun(t, path)
	expect(t, 200, "<Upload><Key>"+text+"</Key>", "GET", at+"/b-1?uploads", "")
	tag := expect(t, 200, "", "PUT", up+"&partNumber=1", "one").Header.Get("ETag")
	expect(t, 200, "<Key>a\ufffd\ufffd&#x9;", "POST", up, completion(nil, tag))
}

// What cannot be read of a list must not seem to be its end.
func TestListsAreWholeOrFail(t *testing.T) {
	m, at, log := keeping(t, serve.S3Options{})
	expect(t, 200, "", "PUT", at+"/b-1", "")
	expect(t, 200, "", "PUT", at+"/b-1/a", "")
	m.buckets["b-1"].unread = &fs.PathError{Op: "read", Path: "x", Err: fs.ErrNotExist}
	for _, list := range []string{"", "?list-type=2", "?versions"} {
		expect(t, 500, "<Code>InternalError</Code>", "GET", at+"/b-1"+list, "")
	}
	if !strings.Contains(log.String(), "read x") {
		t.Error(log)
	}
}
