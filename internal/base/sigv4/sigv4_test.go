package sigv4

import (
	"encoding/hex"
	"net/url"
	"testing"
)

// The requests are the examples of Amazon's documentation ("Authenticating Requests: Using the
// Authorization Header").
func TestSignaturesAreThoseOfTheDocumentation(t *testing.T) {
	host, date := Field{"host", "examplebucket.s3.amazonaws.com"}, Field{"x-amz-date", "20130524T000000Z"}
	empty := Field{"x-amz-content-sha256", Empty}
	const welcome = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"
	for _, c := range []struct {
		what string
		r    Request
		want string
	}{
		{"object", Request{"GET", "/test.txt", "", []Field{host, {"range", "bytes=0-9"}, empty, date}, Empty},
			"f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
		{"put", Request{"PUT", "/test$file.text", "", []Field{{"date", " Fri, 24  May 2013 00:00:00 GMT "}, host,
			{"x-amz-content-sha256", welcome}, date, {"x-amz-storage-class", "REDUCED_REDUNDANCY"}}, welcome},
			"98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
		{"lifecycle", Request{"GET", "/", Query(url.Values{"lifecycle": {""}}), []Field{host, empty, date}, Empty},
			"fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
		{"list", Request{"GET", "/", Query(url.Values{"prefix": {"J"}, "max-keys": {"2"}}), []Field{host, empty, date}, Empty},
			"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	} {
		var k Keys
		for range 2 { // the second time with a key that was kept
			key := k.Of("AWS4wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "20130524/us-east-1/s3/aws4_request")
			if got := hex.EncodeToString(MAC(key, c.r.Text(Algorithm, date.Value, "20130524/us-east-1/s3/aws4_request"))); got != c.want {
				t.Errorf("%s: expected %s, found %s", c.what, c.want, got)
			}
		}
	}
}

func TestQueryIsOrderedAndEscaped(t *testing.T) {
	q := url.Values{"b": {"2", "1"}, "a": {"/ +é~"}, "B": {""}, "a-": {"x"}}
	if got, want := Query(q), "B=&a-=x&a=%2F%20%2B%C3%A9~&b=1&b=2"; got != want {
		t.Errorf("expected %s, found %s", want, got)
	}
}

func TestKeyBelongsToItsSecretAndScope(t *testing.T) {
	var k Keys
	one, other, third := k.Of("AWS4one", "a/b"), k.Of("AWS4two", "a/b"), k.Of("AWS4one", "a/c")
	if string(one) == string(other) || string(one) == string(third) || string(k.Of("AWS4one", "a/b")) != string(one) {
		t.Error("a key of another secret or scope")
	}
}
