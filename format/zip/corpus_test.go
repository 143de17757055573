package zip

import (
	"archive/zip"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// longFile is how long contents are that are compared.
const longFile = 1 << 20

// line is an entry as it is compared.
func line(kind format.Kind, name, content string, size int64) string {
	if kind == format.Dir {
		return fmt.Sprintf("dir %q", name)
	}
	return fmt.Sprintf("%v %q, %d bytes, %.20q", kind, name, size, content)
}

// theirs is what archive/zip lists, with what can be read of it.
func theirs(b []byte) (list []string, err error) {
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	for _, f := range z.File {
		kind, content := format.File, ""
		switch {
		case strings.HasSuffix(f.Name, "/"):
			kind = format.Dir
		case f.Mode()&os.ModeSymlink != 0:
			kind = format.Symlink
		}
		if in, err := f.Open(); err == nil && f.UncompressedSize64 < longFile {
			c, err := io.ReadAll(in)
			if err != nil {
				c = []byte(err.Error())
			}
			content = string(c)
		}
		list = append(list, line(kind, strings.TrimSuffix(f.Name, "/"), content, int64(f.UncompressedSize64)))
	}
	return list, nil
}

func ours(t *testing.T, b []byte) (list []string, err error) {
	st := &storetest.Mem{}
	st.Put("x.zip", b)
	r, err := open(t.Context(), st, "x.zip", format.OpenOptions{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for e, err := range r.Entries(t.Context()) {
		if err != nil {
			return nil, err
		}
		switch {
		case e.Fault != nil:
			list = append(list, fmt.Sprintf("%v %q: %s", e.Kind, e.Name, e.Fault.Message))
		case e.Kind == format.Symlink:
			list = append(list, line(e.Kind, e.Name, e.Link, int64(len(e.Link))))
		case e.Size < longFile:
			list = append(list, line(e.Kind, e.Name, string(content(t, r, b, e)), e.Size))
		default:
			list = append(list, line(e.Kind, e.Name, "", e.Size))
		}
	}
	if p := r.Can().Doubt(); p != nil {
		err = &format.CorruptError{Format: "zip", Problem: *p}
	}
	return list, err
}

// otherwise has the zips whose listing differs from archive/zip, with their entries.
var otherwise = map[string]struct {
	list []string
	why  string
}{
	"comment-truncated.zip": {[]string{`file "FILE", 1 bytes, "P"`}, "unzip, bsdtar and Python read it"},
	"dupdir.zip":            {[]string{`dir "a"`, `dir "a/b"`, `file "a/b/c", 0 bytes, ""`}, "of a name that is there twice the last counts"},
}

func TestZipsOfTheStandardLibrary(t *testing.T) {
	files := testkit.GoFiles(t, "src/archive/zip/testdata/*zip*")
	for _, file := range files {
		name := filepath.Base(file)
		b, err := os.ReadFile(file)
		if err == nil && strings.HasSuffix(name, ".base64") {
			b, err = io.ReadAll(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(b)))
		}
		if err != nil {
			t.Fatal(err)
		}
		want, err := theirs(b)
		if x, ok := otherwise[name]; ok {
			if slices.Equal(want, x.list) {
				t.Errorf("%s: archive/zip lists the same", name)
			}
			want, err = x.list, nil
		}
		if got, doubt := ours(t, b); !slices.Equal(got, want) || (doubt == nil) != (err == nil) {
			t.Errorf("%s: %q, %v; expected %q, %v", name, got, doubt, want, err)
		}
	}
}
