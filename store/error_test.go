package store_test

import (
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
	} {
		if got := store.Redact(tt.in); got != tt.want {
			t.Errorf("Redact(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}
