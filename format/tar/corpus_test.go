package tar

import (
	"archive/tar"
	"bytes"
	"compress/bzip2"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
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
func line(kind format.Kind, name, link string, size int64, content io.Reader) string {
	s := fmt.Sprintf("%v %q", kind, name)
	switch kind {
	case format.Symlink, format.HardLink:
		return fmt.Sprintf("%s to %q", s, link)
	case format.File:
		sum := crc32.NewIEEE()
		if size < longFile {
			if _, err := io.Copy(sum, content); err != nil {
				return s + ", " + err.Error()
			}
		}
		return fmt.Sprintf("%s, %d bytes, %x", s, size, sum.Sum32())
	}
	return s
}

// theirs is what archive/tar lists, the last of each name, and why it stops.
func theirs(b []byte) (list []string, err error) {
	last := map[string]int{}
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return list, nil
		}
		if err != nil {
			return list, err
		}
		kind := format.File
		switch h.Typeflag {
		case tar.TypeDir, typeDumpDir:
			kind = format.Dir
		case tar.TypeSymlink:
			kind = format.Symlink
		case tar.TypeLink:
			kind = format.HardLink
		case tar.TypeFifo:
			kind = format.Fifo
		case tar.TypeXGlobalHeader:
			continue
		}
		name := string(plain([]byte(h.Name)))
		s := line(kind, name, strings.TrimPrefix(h.Linkname, "./"), h.Size, r)
		if i, again := last[name]; again {
			list[i] = s
			continue
		}
		last[name] = len(list)
		list = append(list, s)
	}
}

func ours(t *testing.T, b []byte) (list []string, err error) {
	st := &storetest.Mem{}
	st.Put("x.tar", b)
	r, err := open(t.Context(), st, "x.tar", format.OpenOptions{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for e, err := range r.Entries(t.Context()) {
		if err != nil {
			return list, err
		}
		if e.Fault != nil {
			list = append(list, fmt.Sprintf("%v %q: %s", e.Kind, e.Name, e.Fault.Message))
			continue
		}
		var c []byte
		if e.Size < longFile {
			c = content(t, r, b, e, 0, e.Size)
		}
		list = append(list, line(e.Kind, e.Name, e.Link, e.Size, bytes.NewReader(c)))
	}
	if p := r.Can().Doubt(); p != nil {
		err = errors.New(p.Message)
	}
	return list, err
}

var digits = strings.Repeat("0123456789", 10)

// headless has no member, only the pax header of one.
const headless = "pax-path-hdr.tar"

// otherwise has the tars whose listing differs from archive/tar, with their entries.
var otherwise = map[string]struct {
	list  []string
	doubt bool
	why   string
}{
	"gnu-sparse-many-zeros.tar.bz2": {[]string{`file "sparse": sparse map: line 1 is not a number`}, false, "archive/tar gives up; what is wrong is that file's fault alone"},
	"hdr-only.tar": {[]string{`dir "dir"`, `fifo "fifo"`, `file "file", 46 bytes, 2d1f99a6`, `hardlink "hardlink" to "file"`, `file "null": devices are not supported`,
		`file "sda": devices are not supported`, `symlink "symlink" to "file"`, `symlink "badlink" to "missing"`}, false, "devices are not read"},
	"pax-bad-hdr-file.tar":       {[]string{`file "foo", 684 bytes, 50086c36`}, true, "damaged pax records are left out, as GNU's tar and bsdtar do"},
	"pax-bad-hdr-large.tar.bz2":  {[]string{`file "` + strings.Repeat("X", 100) + `", 0 bytes, 0`}, true, "so are too long ones"},
	"pax-bad-mtime-file.tar":     {[]string{`file "foo", 684 bytes, 50086c36`}, false, "a time that is none is not used, as GNU's tar and bsdtar do"},
	headless:                     {nil, true, "it ends behind the pax header of a member, which archive/tar passes over"},
	"pax-nul-path.tar":           {[]string{`file "` + digits + `", 0 bytes, 0`}, true, "a path that cannot be one is left out"},
	"pax-nul-xattrs.tar":         {[]string{`file "bad-null.txt", 0 bytes, 0`}, false, "extended attributes are not read"},
	"writer-big-long.tar.base64": {[]string{`file "` + strings.Repeat("longname/", 15) + `16gig.txt": its 17179869184 bytes extend beyond the end of the archive at 1536`}, true, "it is cut off behind its header"},
	"writer-big.tar":             {[]string{`file "tmp/16gig.txt": its 17179869184 bytes extend beyond the end of the archive at 512`}, true, "it is cut off behind its header"},
}

func TestTarsOfTheStandardLibrary(t *testing.T) {
	testkit.Serial(t)
	files := testkit.GoFiles(t, "src/archive/tar/testdata/*.tar*")
	for _, file := range files {
		name := filepath.Base(file)
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".base64") {
			if b, err = io.ReadAll(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(b))); err != nil {
				t.Fatal(err)
			}
		}
		flat := b
		if strings.HasSuffix(name, ".bz2") {
			if flat, err = io.ReadAll(bzip2.NewReader(bytes.NewReader(b))); err != nil {
				t.Fatal(err)
			}
		}
		want, werr := theirs(flat)
		doubt := werr != nil
		if x, ok := otherwise[name]; ok {
			if want, doubt = x.list, x.doubt; werr == nil && doubt && name != headless {
				t.Errorf("%s: archive/tar finds nothing wrong", name)
			}
		}
		if got, err := ours(t, b); !slices.Equal(got, want) || (err != nil) != doubt {
			t.Errorf("%s: %q, %v; expected %q, archive/tar says %v", name, got, err, want, werr)
		}
	}
}
