package serve_test

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"encoding/xml"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/minio/crc64nvme"
	"github.com/minio/minio-go/v7"

	"github.com/holdall/holdall/internal/app/serve"
)

// begun begins an upload in parts and returns the address of its parts.
func begun(t *testing.T, url string, headers ...string) string {
	t.Helper()
	var doc struct{ UploadId string }
	answer, body := send(t, "POST", url+"?uploads", "", headers...)
	if err := xml.Unmarshal([]byte(body), &doc); err != nil || answer.StatusCode != 200 || doc.UploadId == "" {
		t.Fatal(answer.Status, body, err)
	}
	return url + "?uploadId=" + doc.UploadId
}

// completion is the document of parts with these tags; more has the rest of each.
func completion(more []string, tags ...string) string {
	var b strings.Builder
	for i, tag := range tags {
		fmt.Fprintf(&b, "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag>", i+1, tag)
		if more != nil {
			b.WriteString(more[i])
		}
		b.WriteString("</Part>")
	}
	return `<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">` + b.String() + "</CompleteMultipartUpload>"
}

var pieces = func() [3][]byte {
	rnd := rand.NewChaCha8([32]byte{1})
	var all [3][]byte
	for i, size := range []int{5 << 20, 5<<20 + 12345, 777} {
		all[i] = make([]byte, size)
		rnd.Read(all[i])
	}
	return all
}()

func TestUploadsInParts(t *testing.T) {
	_, at, log := keeping(t, serve.S3Options{})
	expect(t, 200, "", "PUT", at+"/b-1", "")
	whole := bytes.Join(pieces[:], nil)
	var sums []byte
	for _, p := range pieces {
		sum := sha256.Sum256(p)
		sums = append(sums, sum[:]...)
	}
	shaOfSums := sha256.Sum256(sums)
	for _, c := range []struct{ algorithm, kind, want string }{
		{}, {"CRC32", "FULL_OBJECT", b64(crcBytes(uint64(crc32.ChecksumIEEE(whole)), 4))},
		{"CRC64NVME", "", b64(crcBytes(crc64nvme.Checksum(whole), 8))}, {"SHA256", "COMPOSITE", b64(shaOfSums[:]) + "-3"}, {"CRC32C", "", ""},
	} {
		url, name := at+"/b-1/x"+c.algorithm, strings.ToLower(c.algorithm)
		headers := []string{"x-amz-meta-a", "b", "content-type", "x/y", "x-amz-tagging", "k=v"}
		if c.algorithm != "" {
			headers = append(headers, "x-amz-checksum-algorithm", c.algorithm)
			if c.kind != "" {
				headers = append(headers, "x-amz-checksum-type", c.kind)
			}
		}
		up := begun(t, url, headers...)
		var tags, more []string
		h := md5.New()
		for i, p := range pieces {
			var said []string
			sum := ""
			switch name {
			case "crc32":
				sum = b64(crcBytes(uint64(crc32.ChecksumIEEE(p)), 4))
			case "crc32c":
				sum = b64(crcBytes(uint64(crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli))), 4))
			case "crc64nvme":
				sum = b64(crcBytes(crc64nvme.Checksum(p), 8))
			case "sha256":
				x := sha256.Sum256(p)
				sum = b64(x[:])
			}
			if name != "" {
				said = []string{"x-amz-checksum-" + name, sum}
				more = append(more, "<Checksum"+c.algorithm+">"+sum+"</Checksum"+c.algorithm+">")
			}
			answer := expect(t, 200, "", "PUT", fmt.Sprintf("%s&partNumber=%d", up, i+1), string(p), said...)
			if name != "" && answer.Header.Get("x-amz-checksum-"+name) != sum {
				t.Error(answer.Header)
			}
			tags = append(tags, answer.Header.Get("ETag"))
			x := md5.Sum(p)
			h.Write(x[:])
		}
		expect(t, 200, "<PartNumber>3</PartNumber>", "GET", up, "")
		expect(t, 200, "<NextPartNumberMarker>2</NextPartNumberMarker><MaxParts>1</MaxParts><IsTruncated>true</IsTruncated>", "GET", up+"&max-parts=1&part-number-marker=1", "")
		doc := completion(more, tags...)
		if c.want != "" {
			expect(t, 400, "<Code>BadDigest</Code>", "POST", up, doc, "x-amz-checksum-"+name, "AAAAAA==")
		}
		expect(t, 200, fmt.Sprintf("<ETag>&#34;%x-3&#34;</ETag>", h.Sum(nil)), "POST", up, doc)
		// The same request again gets the same answer: its response may have been lost.
		expect(t, 200, fmt.Sprintf("<ETag>&#34;%x-3&#34;</ETag>", h.Sum(nil)), "POST", up, doc)
		expect(t, 404, "<Code>NoSuchUpload</Code>", "GET", up, "")
		answer, body := send(t, "GET", url, "", "x-amz-checksum-mode", "ENABLED")
		head := answer.Header
		if body != string(whole) || head.Get("ETag") != fmt.Sprintf(`"%x-3"`, h.Sum(nil)) || head.Get("Content-Type") != "x/y" || head.Get("x-amz-meta-a") != "b" || head.Get("x-amz-tagging-count") != "1" {
			t.Error(len(body), head)
		}
		got := head.Get("x-amz-checksum-" + name)
		if name != "" && (got == "" || c.want != "" && got != c.want) || head.Get("x-amz-checksum-algorithm") != "" {
			t.Error(head, c.want)
		}
		if name != "" && head.Get("x-amz-checksum-type") != map[bool]string{true: "COMPOSITE", false: "FULL_OBJECT"}[strings.Contains(got, "-")] {
			t.Error(head)
		}
		expect(t, 200, "<ObjectParts><PartsCount>3</PartsCount><PartNumberMarker>1</PartNumberMarker><NextPartNumberMarker>2</NextPartNumberMarker><MaxParts>1</MaxParts><IsTruncated>true</IsTruncated><Part><PartNumber>2</PartNumber><Size>5255225</Size>"+strings.Join(more[min(1, len(more)):min(2, len(more))], "")+"</Part></ObjectParts>", "GET", url+"?attributes", "", "x-amz-object-attributes", "ETag,ObjectParts", "x-amz-max-parts", "1", "x-amz-part-number-marker", "1")
		for i, p := range pieces {
			answer, body := send(t, "GET", fmt.Sprintf("%s?partNumber=%d", url, i+1), "", "x-amz-checksum-mode", "ENABLED")
			if name != "" && !strings.Contains(more[i], ">"+answer.Header.Get("x-amz-checksum-"+name)+"<") {
				t.Error(answer.Header)
			}
			if answer.StatusCode != 206 || body != string(p) || answer.Header.Get("x-amz-mp-parts-count") != "3" {
				t.Error(answer.Status, len(body), answer.Header)
			}
		}
		expect(t, 416, "<Code>InvalidPartNumber</Code>", "GET", url+"?partNumber=4", "")
	}
	if log.String() != "" {
		t.Error(log)
	}
}

// crcBytes returns a checksum in its n bytes.
func crcBytes(crc uint64, n int) (b []byte) {
	for i := n - 1; i >= 0; i-- {
		b = append(b, byte(crc>>(8*i)))
	}
	return b
}

func TestWrongUploadsInParts(t *testing.T) {
	m, at, _ := keeping(t, serve.S3Options{})
	expect(t, 200, "", "PUT", at+"/b-1", "")
	url := at + "/b-1/x"
	up := begun(t, url)
	tag := expect(t, 200, "", "PUT", up+"&partNumber=1", "one").Header.Get("ETag")
	tag2 := expect(t, 200, "", "PUT", up+"&partNumber=2", "two").Header.Get("ETag")
	for _, number := range []string{"0", "10001", "x", ""} {
		expect(t, 400, "<Message>Part number must be an integer between 1 and 10000, inclusive</Message>", "PUT", up+"&partNumber="+number, "x")
	}
	expect(t, 404, "<Code>NoSuchUpload</Code>", "PUT", url+"?uploadId=none&partNumber=1", "x")
	expect(t, 404, "<Code>NoSuchUpload</Code>", "PUT", strings.Replace(up, "/x?", "/y?", 1)+"&partNumber=1", "x")
	expect(t, 404, "<Code>NoSuchUpload</Code>", "POST", url+"?uploadId=none", completion(nil, tag))
	expect(t, 400, "<Code>EntityTooSmall</Code>", "POST", up, completion(nil, tag, tag2))
	expect(t, 400, "<Code>InvalidPart</Code>", "POST", up, completion(nil, tag2))
	expect(t, 400, "<Code>InvalidPart</Code>", "POST", up, completion(nil, "none"))
	expect(t, 400, "<Code>InvalidPart</Code>", "POST", up, completion([]string{"<ChecksumSHA1>x</ChecksumSHA1>"}, tag))
	expect(t, 400, "<Code>InvalidPartOrder</Code>", "POST", up, strings.ReplaceAll(completion(nil, tag, tag), "<PartNumber>2", "<PartNumber>1"))
	for _, bad := range []string{"", "<CompleteMultipartUpload/>", "<CompleteMultipartUpload><Part><PartNumber>x</PartNumber></Part></CompleteMultipartUpload>", completion(nil, make([]string, 10_001)...)} {
		expect(t, 400, "<Code>MalformedXML</Code>", "POST", up, bad)
	}
	expect(t, 400, "<Code>InvalidRequest</Code>", "POST", up, completion(nil, tag), "x-amz-mp-object-size", "4")
	expect(t, 400, "<Code>InvalidRequest</Code>", "POST", url+"?uploads", "", "x-amz-checksum-algorithm", "MD4")
	expect(t, 400, "<Code>InvalidRequest</Code>", "POST", url+"?uploads", "", "x-amz-checksum-type", "COMPOSITE")
	expect(t, 400, "<Message>The FULL_OBJECT checksum type cannot be used with the sha256 checksum algorithm.</Message>", "POST", url+"?uploads", "", "x-amz-checksum-type", "FULL_OBJECT", "x-amz-checksum-algorithm", "SHA256")
	unsummed := begun(t, url, "x-amz-checksum-algorithm", "SHA1")
	plain := expect(t, 200, "", "PUT", unsummed+"&partNumber=1", "one").Header.Get("ETag")
	expect(t, 400, "It was missing for part 1 in the request.", "POST", unsummed, completion(nil, plain))
	expect(t, 204, "", "DELETE", unsummed, "")
	expect(t, 404, "<Code>NoSuchUpload</Code>", "DELETE", unsummed, "")

	expect(t, 200, "", "PUT", url, "there")
	expect(t, 412, "<Code>PreconditionFailed</Code>", "POST", up, completion(nil, tag), "If-None-Match", "*")
	expect(t, 200, "", "POST", up, completion(nil, strings.Trim(tag, `"`)), "x-amz-mp-object-size", "3")
	if b := m.buckets["b-1"]; string(b.data.Get(b.objects["x"].version)) != "one" {
		t.Error(b.objects)
	}

	// The list of uploads, in pages.
	for _, name := range []string{"a/1", "a/2", "b", "b", "c"} {
		begun(t, at+"/b-1/"+name)
	}
	type page struct {
		IsTruncated                       bool
		NextKeyMarker, NextUploadIdMarker string
		Upload                            []struct{ Key string }
		CommonPrefixes                    []struct{ Prefix string }
	}
	for _, c := range []struct{ query, want string }{{"", "a/1 a/2 b b c"}, {"&delimiter=/", "b b c a/"}, {"&prefix=a/", "a/1 a/2"}, {"&prefix=b", "b b"}} {
		for _, most := range []int{1, 2, 1000} {
			var names, prefixes []string
			for after := ""; ; {
				_, body := send(t, "GET", fmt.Sprintf("%s/b-1?uploads&max-uploads=%d%s%s", at, most, c.query, after), "")
				var p page
				if err := xml.Unmarshal([]byte(body), &p); err != nil {
					t.Fatal(err)
				}
				for _, u := range p.Upload {
					names = append(names, u.Key)
				}
				for _, x := range p.CommonPrefixes {
					prefixes = append(prefixes, x.Prefix)
				}
				if !p.IsTruncated || len(names) > 10 {
					break
				}
				after = "&key-marker=" + p.NextKeyMarker + "&upload-id-marker=" + p.NextUploadIdMarker
			}
			if got := strings.Join(append(names, prefixes...), " "); got != c.want {
				t.Errorf("%s, by %d: %s, expected %s", c.query, most, got, c.want)
			}
		}
	}
}

func TestMinioUploadsInParts(t *testing.T) {
	for i := range 4 {
		k := []serve.Key{{}, key}[i%2]
		_, at, log := keeping(t, serve.S3Options{Key: k})
		c := client(t, at, k)
		if i >= 2 {
			c = trailing(t, at, k)
		}
		if err := c.MakeBucket(t.Context(), "photos", minio.MakeBucketOptions{}); err != nil {
			t.Fatal(err)
		}
		whole := bytes.Join(pieces[:], nil)
		if _, err := c.PutObject(t.Context(), "photos", "x", bytes.NewReader(whole), int64(len(whole)), minio.PutObjectOptions{PartSize: 5 << 20}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.ComposeObject(t.Context(), minio.CopyDestOptions{Bucket: "photos", Object: "twice"}, minio.CopySrcOptions{Bucket: "photos", Object: "x"}, minio.CopySrcOptions{Bucket: "photos", Object: "x", MatchRange: true, Start: 5, End: 7}); err != nil {
			t.Fatal(err)
		}
		o, err := c.GetObject(t.Context(), "photos", "twice", minio.GetObjectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(o); err != nil || string(b) != string(whole)+string(whole[5:8]) {
			t.Error(len(b), err)
		}
		if log.String() != "" {
			t.Error(log)
		}
	}
}

func TestCopies(t *testing.T) {
	_, at, log := keeping(t, serve.S3Options{})
	expect(t, 200, "", "PUT", at+"/b-1", "")

	put := at + "/b-1/" + escape("a?b")
	tag := expect(t, 200, "", "PUT", put, "hello", "x-amz-meta-a", "1", "content-type", "x/y", "x-amz-tagging", "k=v", "x-amz-checksum-crc32", "NhCmhg==").Header.Get("ETag")
	from := "/b-1/a%3Fb"
	to := at + "/b-1/to"
	check := func(what, ctype, meta, tags, crc string) {
		t.Helper()
		answer, body := send(t, "GET", to, "", "x-amz-checksum-mode", "ENABLED")
		head := answer.Header
		got := ""
		for name, values := range head {
			if strings.EqualFold(name, "x-amz-meta-a") {
				got = values[0]
			}
		}
		if body != "hello" || head.Get("Content-Type") != ctype || got != meta || head.Get("x-amz-tagging-count") != tags || head.Get("x-amz-checksum-crc32") != crc {
			t.Errorf("%s: %q %v", what, body, head)
		}
	}
	expect(t, 200, `<ETag>&#34;5d41402abc4b2a76b9719d911017c592&#34;</ETag><ChecksumCRC32>NhCmhg==</ChecksumCRC32><ChecksumType>FULL_OBJECT</ChecksumType></CopyObjectResult>`, "PUT", to, "", "x-amz-copy-source", from)
	check("copied", "x/y", "1", "1", "NhCmhg==")
	expect(t, 200, "", "PUT", to, "", "x-amz-copy-source", from, "x-amz-metadata-directive", "REPLACE", "content-type", "p/q", "x-amz-meta-a", "2", "x-amz-tagging", "ignored=1")
	check("replaced", "p/q", "2", "1", "NhCmhg==")
	expect(t, 200, "", "PUT", to, "", "x-amz-copy-source", strings.TrimPrefix(from, "/"), "x-amz-tagging-directive", "REPLACE", "x-amz-tagging", "a=1&b=2")
	check("tagged", "x/y", "1", "2", "NhCmhg==")
	expect(t, 400, "This copy request is illegal", "PUT", put, "", "x-amz-copy-source", from)
	expect(t, 200, "", "PUT", to, "", "x-amz-copy-source", "/b-1/to", "x-amz-metadata-directive", "REPLACE")
	check("onto itself", "application/octet-stream", "", "2", "NhCmhg==")
	expect(t, 200, "<ChecksumSHA1>", "PUT", to, "", "x-amz-copy-source", "/b-1/to?versionId=null", "x-amz-metadata-directive", "REPLACE", "x-amz-checksum-algorithm", "SHA1")

	// From an archive beside the bucket.
	expect(t, 200, "", "PUT", at+"/b-1/h", "", "x-amz-copy-source", "/one.caf/hello.txt")
	expect(t, 200, "hello, world", "GET", at+"/b-1/h", "")
	expect(t, 200, "", "PUT", at+"/b-1/l", "", "x-amz-copy-source", "/one.caf/long.bin")
	expect(t, 200, "", "PUT", at+"/b-1/a%20b%2Bc", "hello")
	expect(t, 200, "", "PUT", at+"/b-1/p", "", "x-amz-copy-source", "b-1/a+b%2Bc")
	if _, got := send(t, "GET", at+"/b-1/l", ""); got != long {
		t.Error(len(got))
	}

	// The client hears of no damage as of a mistake of its own, and nothing is kept.
	expect(t, 500, "<Code>InternalError</Code>", "PUT", at+"/b-1/d", "", "x-amz-copy-source", "/damaged.caf/hello.txt")
	expect(t, 404, "<Code>NoSuchKey</Code>", "GET", at+"/b-1/d", "")
	if !strings.Contains(log.String(), "damaged") {
		t.Error(log)
	}

	past, future := "Mon, 01 Jan 2001 00:00:00 GMT", "Fri, 01 Jan 2100 00:00:00 GMT"
	for _, c := range []struct {
		status  int
		headers []string
	}{
		{200, []string{"If-Match", tag}}, {200, []string{"If-Match", strings.Trim(tag, `"`)}}, {412, []string{"If-Match", "x"}}, {412, []string{"If-None-Match", tag}}, {200, []string{"If-None-Match", "x"}},
		{200, []string{"If-Modified-Since", past}}, {412, []string{"If-Modified-Since", future}}, {412, []string{"If-Unmodified-Since", past}}, {200, []string{"If-Unmodified-Since", future}},
		{200, []string{"If-Match", tag, "If-Unmodified-Since", past}}, {412, []string{"If-None-Match", tag, "If-Modified-Since", past}},
	} {
		headers := []string{"x-amz-copy-source", from}
		for i := 0; i < len(c.headers); i += 2 {
			headers = append(headers, "x-amz-copy-source-"+c.headers[i], c.headers[i+1])
		}
		expect(t, c.status, "", "PUT", to, "", headers...)
	}
	expect(t, 412, "", "PUT", to, "", "x-amz-copy-source", from, "If-None-Match", "*")
	for _, c := range []struct {
		status         int
		code, from     string
		name, directly string
	}{
		{404, "NoSuchKey", "/b-1/none", "", ""}, {404, "NoSuchBucket", "/none/x", "", ""}, {400, "InvalidArgument", "/b-1", "", ""}, {400, "InvalidArgument", "%zz", "", ""},
		{400, "InvalidArgument", from + "?versionId=1", "", ""}, {400, "InvalidArgument", from, "x-amz-metadata-directive", "x"}, {400, "InvalidArgument", from, "x-amz-tagging-directive", "x"},
		{400, "InvalidRequest", from, "x-amz-checksum-algorithm", "x"},
	} {
		headers := []string{"x-amz-copy-source", c.from}
		if c.name != "" {
			headers = append(headers, c.name, c.directly)
		}
		expect(t, c.status, "<Code>"+c.code+"</Code>", "PUT", to, "", headers...)
	}

	up := begun(t, to, "x-amz-checksum-algorithm", "CRC32")
	expect(t, 200, "<ETag>&#34;5d41402abc4b2a76b9719d911017c592&#34;</ETag><ChecksumCRC32>NhCmhg==</ChecksumCRC32>", "PUT", up+"&partNumber=1", "", "x-amz-copy-source", from)
	expect(t, 200, fmt.Sprintf("%x", md5.Sum([]byte("ell"))), "PUT", up+"&partNumber=2", "", "x-amz-copy-source", from, "x-amz-copy-source-range", "bytes=1-3")
	for _, bad := range []string{"", "bytes=1-", "bytes=-1", "bytes=3-1", "bytes=0-5", "bytes=00-1", "1-3", "bytes=0-1,3-4"} {
		expect(t, 400, "<Code>InvalidArgument</Code>", "PUT", up+"&partNumber=2", "", "x-amz-copy-source", from, "x-amz-copy-source-range", bad)
	}
	if strings.Count(log.String(), "\n") != 1 {
		t.Error(log)
	}

}

func TestTags(t *testing.T) {
	_, at, _ := keeping(t, serve.S3Options{})
	expect(t, 200, "", "PUT", at+"/b-1", "")
	url := at + "/b-1/x"
	expect(t, 200, "", "PUT", url, "hello", "x-amz-meta-a", "1")
	doc := func(tags string) string { return "<Tagging><TagSet>" + tags + "</TagSet></Tagging>" }
	tag := func(k, v string) string { return "<Tag><Key>" + k + "</Key><Value>" + v + "</Value></Tag>" }
	expect(t, 200, "", "PUT", url+"?tagging", doc(tag("b", "x y/z")+tag("a", "")))
	expect(t, 200, doc(tag("a", "") + tag("b", "x y/z"))[len("<Tagging>"):], "GET", url+"?tagging", "")
	expect(t, 400, "<Code>InvalidTag</Code>", "PUT", url+"?tagging", doc(tag("a", "1")+tag("a", "2")))
	expect(t, 400, "<Code>MalformedXML</Code>", "PUT", url+"?tagging", "")
	expect(t, 400, "<Code>BadRequest</Code>", "PUT", url+"?tagging", doc(tag("1", "")+tag("2", "")+tag("3", "")+tag("4", "")+tag("5", "")+tag("6", "")+tag("7", "")+tag("8", "")+tag("9", "")+tag("10", "")+tag("11", "")))
	expect(t, 404, "<Code>NoSuchKey</Code>", "PUT", at+"/b-1/none?tagging", doc(""))
	answer := expect(t, 200, "hello", "GET", url, "")
	if answer.Header.Get("x-amz-tagging-count") != "2" {
		t.Error(answer.Header)
	}
	expect(t, 204, "", "DELETE", url+"?tagging", "")
	expect(t, 200, "<TagSet></TagSet>", "GET", url+"?tagging", "")
	expect(t, 200, "<ETag>5d41402abc4b2a76b9719d911017c592</ETag><StorageClass>STANDARD</StorageClass><ObjectSize>5</ObjectSize>", "GET", url+"?attributes", "", "x-amz-object-attributes", "ETag, ObjectSize, StorageClass, Checksum")
	expect(t, 400, "<Code>InvalidArgument</Code>", "GET", url+"?attributes", "")
}
