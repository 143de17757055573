package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAPasswordIsTheFirstLineOfItsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	for content, want := range map[string]string{
		"secret": "secret", "two words \n": "two words ", "first\r\nsecond\n": "first", "": "", "\nx": "",
		strings.Repeat("x", mostPassword) + "\n": strings.Repeat("x", mostPassword), strings.Repeat("x", mostPassword+1): "",
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		var p passwordFlag
		if err := p.Set(file); string(p) != want || (err == nil) != (want != "") {
			t.Errorf("%.20q: %.20q, %v", content, p, err)
		}
	}
	var p passwordFlag
	if err := p.Set(file + ".not"); err == nil {
		t.Error("there is no such file")
	}
}
