package bucket

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

const amazonPage = `<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>a-bucket</Name><Prefix>a%2F</Prefix><StartAfter/><KeyCount>2</KeyCount><MaxKeys>1000</MaxKeys><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><NextContinuationToken>1/x+y=</NextContinuationToken>` +
	`<Contents><Key>a%2Fb+c</Key><LastModified>2024-01-02T03:04:05.678Z</LastModified><ETag>&quot;0123&quot;</ETag><ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm><Size>12</Size><Owner><ID>me</ID><DisplayName>I &amp; you</DisplayName></Owner><StorageClass>STANDARD</StorageClass></Contents>
  <Contents><Key>a%2Fd</Key><LastModified>2024-01-02T03:04:05Z</LastModified><ETag>&#34;4567&#34;</ETag><Size>0</Size></Contents><CommonPrefixes><Prefix>a%2Fe%2F</Prefix></CommonPrefixes></ListBucketResult>`

// byXML reads a page with package xml alone.
func byXML(doc []byte) (p page, err error) {
	err = xml.NewTokenDecoder(&counted{d: xml.NewDecoder(bytes.NewReader(doc))}).Decode(&p)
	return p, err
}

func TestAPageOfTheUsualFormNeedsNoPackageXML(t *testing.T) {
	for _, doc := range []string{
		amazonPage,
		strings.ReplaceAll(amazonPage, ` xmlns="http://s3.amazonaws.com/doc/2006-03-01/"`, ""),
		"<ListBucketResult>\n</ListBucketResult>",
	} {
		p, usual := scanPage([]byte(doc))
		if want, err := byXML([]byte(doc)); !usual || err != nil || fmt.Sprintf("%+v", p) != fmt.Sprintf("%+v", want) {
			t.Errorf("%.60q: usual %t, %v: found\n%+v, expected\n%+v", doc, usual, err, p, want)
		}
	}
}

func TestPackageXMLDecidesAboutOtherPages(t *testing.T) {
	for _, change := range [][2]string{
		{"<Key>a%2Fb+c", "<Key><![CDATA[x]]>"}, {"<Key>a%2Fb+c", "<Key><!-- x -->"}, {"<Key>a%2Fb+c", "<Key>é"}, {"<Key>a%2Fb+c", "<Key>&#xe9;"},
		{"<Key>", `<Key x="y">`}, {"<Size>12", "<Size> 12"}, {"<Size>12", "<Size>1e3"}, {"<Size>12", "<Size>-1"}, {"<Size>12", "<Size>1234567890123456789"},
		{"true", "1"}, {"05.678Z", ""}, {"UTF-8", "latin1"}, {"</Contents>", ""}, {"</ListBucketResult>", ""}, {"<Size>12</Size>", "<Size/>"},
		{"<Owner>", strings.Repeat("<Owner>", 20)}, {"<Owner>", "<Owner>x"}, {"&quot;0123&quot;", "&quot"}, {"ListBucketResult", "Error"},
	} {
		doc := strings.Replace(amazonPage, change[0], change[1], 1)
		if _, usual := scanPage([]byte(doc)); usual {
			t.Errorf("%q for %q is usual", change[1], change[0])
		}
	}
	for n := range len(amazonPage) - 1 {
		if _, usual := scanPage([]byte(amazonPage[:n])); usual {
			t.Errorf("the first %d bytes are usual", n)
		}
	}
}

// FuzzPage finds pages about which the two readers differ.
func FuzzPage(f *testing.F) {
	f.Add([]byte(amazonPage))
	f.Add([]byte("<ListBucketResult><Contents/><CommonPrefixes></CommonPrefixes><X><Y> </Y></X></ListBucketResult>"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		p, usual := scanPage(doc)
		if !usual {
			return
		}
		want, err := byXML(doc)
		if len(p.Contents) == 0 {
			p.Contents = nil
		}
		if err != nil || !reflect.DeepEqual(p, want) {
			t.Errorf("%v: found\n%+v, expected\n%+v", err, p, want)
		}
	})
}

func BenchmarkPage(b *testing.B) {
	var doc strings.Builder
	i, j := strings.Index(amazonPage, "<Contents>"), strings.Index(amazonPage, "\n  <Contents>")
	doc.WriteString(amazonPage[:i])
	for range usually {
		doc.WriteString(amazonPage[i:j])
	}
	doc.WriteString(amazonPage[j:])
	b.Run("usual", func(b *testing.B) {
		for b.Loop() {
			if _, usual := scanPage([]byte(doc.String())); !usual {
				b.Fatal("not usual")
			}
		}
	})
	b.Run("xml", func(b *testing.B) {
		for b.Loop() {
			if _, err := byXML([]byte(doc.String())); err != nil {
				b.Fatal(err)
			}
		}
	})
}
