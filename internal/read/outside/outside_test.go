package outside

import (
	"errors"
	"testing"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// placed is a store that lies below an address.
type placed struct {
	storetest.Mem
	base string
}

func (p *placed) Can() store.Abilities {
	can := p.Mem.Can()
	can.Address = func(name string) string { return p.base + "/" + name }
	return can
}

// An archive may refer to its own folder and what is below it, and to its own server; anything
// else must be allowed.
func TestWhereArchivesMayLead(t *testing.T) {
	for _, tt := range []struct {
		base, archive, address string
		allowed                []string
		want                   string // what it comes to; "" is refused
	}{
		{"/data", "x.lindi.tar", "raw.h5", nil, "raw.h5"},
		{"/data", "sub/x.lindi.tar", "raw.h5", nil, "sub/raw.h5"},
		{"/data", "sub/x.lindi.tar", "./deep/../raw.h5", nil, "sub/raw.h5"},
		{"/data", "sub/x.lindi.tar", "../raw.h5", nil, ""},
		{"/data", "x.lindi.tar", "..", nil, ""},
		{"/data", "x.lindi.tar", "/etc/passwd", nil, ""},
		{"/data", "x.lindi.tar", "/data/raw.h5", nil, "raw.h5"},
		{"/data", "x.lindi.tar", "/database/raw.h5", nil, ""},
		{"/data", "x.lindi.tar", "/data/../etc/passwd", nil, ""},
		{"/data", "x.lindi.tar", "file:///etc/passwd", nil, ""},
		{"/data", "x.lindi.tar", "file:///data/raw%20.h5", nil, "raw .h5"},
		{"/data", "x.lindi.tar", "http://127.0.0.1/x", nil, ""},
		{"/data", "x.lindi.tar", "raw.h5", []string{"none"}, ""},
		{"/data", "x.lindi.tar", "/other/raw.h5", []string{"/other"}, "/other/raw.h5"},
		{"/data", "x.lindi.tar", "/other/../etc/raw.h5", []string{"/other"}, ""},
		{"/data", "x.lindi.tar", "/others/raw.h5", []string{"/other/"}, ""},
		{"/data", "x.lindi.tar", "http://h/a/b", []string{"http://h/a"}, "http://h/a/b"},
		{"/data", "x.lindi.tar", "http://h:80/a/b", []string{"http://H/"}, "http://h:80/a/b"},
		{"/data", "x.lindi.tar", "http://h/a/../b", []string{"http://h/a"}, ""},
		{"/data", "x.lindi.tar", "http://h/a/%2e%2e/b", []string{"http://h/a"}, ""},
		{"/data", "x.lindi.tar", "http://h.evil/a", []string{"http://h"}, ""},
		{"/data", "x.lindi.tar", "http://h@evil/a", []string{"http://h"}, ""},
		{"/data", "x.lindi.tar", "https://h/a", []string{"http://h"}, ""},
		{"/data", "x.lindi.tar", "ftp://anything", []string{"any"}, "ftp://anything"},
		{"https://h/d", "x.lindi.tar", "raw.h5", nil, "raw.h5"},
		{"https://h/d", "x.lindi.tar", "../other/raw.h5", nil, "https://h/other/raw.h5"},
		{"https://h/d", "x.lindi.tar", "https://h/elsewhere", nil, "https://h/elsewhere"},
		{"https://h/d", "x.lindi.tar", "https://h:8443/elsewhere", nil, ""},
		{"https://h/d", "x.lindi.tar", "http://h/elsewhere", nil, ""},
		{"https://h/d", "x.lindi.tar", "https://user@h/elsewhere", nil, "https://user@h/elsewhere"},
		{"https://h/d", "x.lindi.tar", "/etc/passwd", nil, ""},
		{"https://h/d", "x.lindi.tar", "file:///etc/passwd", nil, ""},
		{"https://h/d", "x.lindi.tar", "//evil/x", nil, ""},
		{"", "x.lindi.tar", "raw.h5", nil, "raw.h5"},
		{"age:/data", "x.lindi.tar", "raw.h5", nil, "raw.h5"},
		{"age:/data", "x.lindi.tar", "../raw.h5", nil, ""},
		{"age:/data", "x.lindi.tar", "age:/data/raw.h5", nil, "raw.h5"},
		{"age:/data", "x.lindi.tar", "age:/other/raw.h5", nil, ""},
		{"age:/data", "x.lindi.tar", "../other/raw.h5", []string{"/other"}, "age:/data/../other/raw.h5"},
		{"age:/data", "x.lindi.tar", "age:/other/raw.h5", []string{"/other"}, "age:/other/raw.h5"},
		{"age:/data", "x.lindi.tar", "age:/other/raw.h5", []string{"age:/other"}, "age:/other/raw.h5"},
		{"age:/data", "x.lindi.tar", "/data/raw.h5", nil, "/data/raw.h5"},
		{"age:/data", "x.lindi.tar", "/data/../etc/passwd", nil, ""},
		{"age:/data", "x.lindi.tar", "/etc/passwd", []string{"/etc"}, "/etc/passwd"},
		{"/data", "x.lindi.tar", "age:/data/raw.h5", nil, "age:/data/raw.h5"},
		{"/data", "x.lindi.tar", "age:/data/../etc/passwd", nil, ""},
		{"/data", "x.lindi.tar", "age:raw.h5", nil, ""},
		{"age:https://h/d", "x.lindi.tar", "../other/raw.h5", nil, "age:https://h/other/raw.h5"},
		{"age:https://h/d", "x.lindi.tar", "https://h/elsewhere", nil, "https://h/elsewhere"},
		{"age:https://h/d", "x.lindi.tar", "age:https://evil/x", nil, ""},
		{"age:https://h/d", "x.lindi.tar", "/etc/passwd", nil, ""},
		{"age:https://h/d", "x.lindi.tar", "age:/etc/passwd", nil, ""},
		{"https://h/d", "x.lindi.tar", "age:/etc/passwd", nil, ""},
	} {
		var st store.Store = &placed{base: tt.base}
		if tt.base == "" {
			st = &storetest.Mem{}
		}
		x := Rule{Store: st, Name: tt.archive, Allowed: tt.allowed}
		whole, name := x.resolve(tt.address)
		got := ""
		if x.mayLead(whole, name) {
			if got = name; name == "" {
				got = whole
			}
		}
		if got != tt.want {
			t.Errorf("%s/%s leads to %s, allowed %q: %q, want %q", tt.base, tt.archive, tt.address, tt.allowed, got, tt.want)
		}
	}
	x := Rule{Store: &storetest.Mem{}, Name: "x.lindi.tar"}
	_, _, err := x.Find(t.Context(), "http://user:secret@h/x?token=1")
	if e, ok := errors.AsType[*Error](err); !ok || e.Error() != "the archive refers to http://…@h/x?…, outside its own folder or server, which is not allowed" {
		t.Error(err)
	}
}
