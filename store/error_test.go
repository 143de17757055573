package store_test

import (
	"errors"
	"testing"

	"github.com/holdall/holdall/store"
)

func TestRedactKeepsSecretsBack(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"dir/x.caf?y", "dir/x.caf?y"},
		{"c:notes", "c:notes"},
		{"file:///a/b?c", "file:///a/b?c"},
		{"https://host/a%20b/x.caf", "https://host/a%20b/x.caf"},
		{"https://me:secret@host:81/x.caf", "https://…@host:81/x.caf"},
		{"https://token@host/x", "https://…@host/x"},
		{"s3://bucket/k?sig=secret&a=b#secret", "s3://bucket/k?…"},
		{"https://me:se cret@ho st/%zz", "https://…"},
		{"age:dir/x.caf?y", "age:dir/x.caf?y"},
		{"age:https://me:secret@host:81/x.caf?sig=secret", "age:https://…@host:81/x.caf?…"},
	} {
		if got := store.Redact(tt.in); got != tt.want {
			t.Errorf("Redact(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestAddressesAreSplit(t *testing.T) {
	for _, tt := range []struct{ in, scheme, layer, below string }{
		{"x.caf", "", "", "x.caf"},
		{"c:notes", "", "", "c:notes"},
		{"HTTPS://h/x", "https", "", "HTTPS://h/x"},
		{"age:x.caf", "age", "age:", "x.caf"},
		{"age:/a/b", "age", "age:", "/a/b"},
		{"age:s3://b/x", "age", "age:", "s3://b/x"},
		{"age:age:x", "age", "age:", "age:x"},
		{"./age:x.caf", "", "", "./age:x.caf"},
		{"ages:x.caf", "", "", "ages:x.caf"},
		{"https://h/age:x", "https", "", "https://h/age:x"},
	} {
		layer, below := store.CutLayer(tt.in)
		if scheme := store.Scheme(tt.in); scheme != tt.scheme || layer != tt.layer || below != tt.below {
			t.Errorf("%q: scheme %q, layer %q, below %q", tt.in, scheme, layer, below)
		}
	}
	// A program that knows no such layer writes nothing, in particular no file that is not encrypted.
	if st, _, err := store.OpenAddress(t.Context(), "age:x.caf"); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(st, err)
	}
}
