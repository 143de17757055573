package recipe

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall/format/rvn/internal/ucl"
)

// object is a small shared object: a header, three section headers, the dynamic
// section, its strings.
func object(t testing.TB, soname string, needed ...string) string {
	t.Helper()
	strs := "\x00"
	var dyn []elf.Dyn64
	entry := func(tag elf.DynTag, name string) {
		dyn = append(dyn, elf.Dyn64{Tag: int64(tag), Val: uint64(len(strs))})
		strs += name + "\x00"
	}
	for _, n := range needed {
		entry(elf.DT_NEEDED, n)
	}
	if soname != "" {
		entry(elf.DT_SONAME, soname)
	}
	dyn = append(dyn, elf.Dyn64{Tag: int64(elf.DT_NULL)})
	const sections = 64
	entries := uint64(sections + 3*64)
	text := entries + 16*uint64(len(dyn))
	var b bytes.Buffer
	for _, part := range []any{
		elf.Header64{Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
			Type: uint16(elf.ET_DYN), Version: 1, Shoff: sections, Ehsize: 64, Shentsize: 64, Shnum: 3},
		elf.Section64{},
		elf.Section64{Type: uint32(elf.SHT_DYNAMIC), Off: entries, Size: 16 * uint64(len(dyn)), Link: 2, Entsize: 16},
		elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: text, Size: uint64(len(strs))},
		dyn,
		[]byte(strs),
	} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// stage returns a bench with libraries of its own, two that need others, and some that are only
// beside them.
func stage(t *testing.T) *bench {
	b := newBench(t, "raven/share/text")
	b.put(t, "raven/bin/tool", object(t, "", "libown.so.1", "libc.so.6", "libother.so.3", "libc.so.6"))
	b.put(t, "raven/lib/libown.so.1", object(t, "libown.so.1", "libother.so.3", "/raven/lib/by-path.so", "libz.so.2"))
	b.put(t, "raven/lib/sub/libsub.so", object(t, "libsub.so", "libz.so.2"))
	b.put(t, "raven/aaa", object(t, "aaa.so"))
	b.put(t, "sister/libsister.so.1", object(t, "libsister.so.1", "libunseen.so"))
	b.link(t, "libown.so.1", "raven/lib/libown.so")
	for i, name := range []string{"linked-1", "linked-2"} {
		p := b.in("root/raven/lib/")
		if i == 0 {
			b.put(t, "raven/lib/"+name, object(t, "linked.so"))
		} else if err := os.Link(filepath.Join(p, "linked-1"), filepath.Join(p, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(b.in("system"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", b.in("system/libc.so.6")); err != nil { // a link is enough
		t.Fatal(err)
	}
	return b
}

func TestLibrariesOfAPackage(t *testing.T) {
	listed := "bin/tool\nlib/libown.so.1\nlib/libown.so\n"
	for _, tt := range []struct{ name, subpackage, list, provided, required, adjacent string }{
		// lib is before bin's sister aaa: folders come before files
		{"all of a folder", "", "", "libsub.so libown.so.1 aaa.so libsister.so.1",
			"libown.so.1 libother.so.3 libz.so.2 /raven/lib/by-path.so libunseen.so", ""},
		{"those that are listed", "primary", listed, "libown.so.1", "libown.so.1 libother.so.3 /raven/lib/by-path.so libz.so.2", ""},
		{"and those beside", "tools", listed, "libown.so.1", "libown.so.1 libother.so.3 /raven/lib/by-path.so libz.so.2", "libsub.so aaa.so libsister.so.1"},
		{"beside an unset subpackage", "", listed, "libown.so.1", "libown.so.1 libother.so.3 /raven/lib/by-path.so libz.so.2", "libsub.so aaa.so libsister.so.1"},
		{"nothing listed", "examples", "@comment", "", "", ""},
		{"nothing listed, all beside", "tools", "@comment", "", "", "libsub.so libown.so.1 aaa.so libsister.so.1"},
		{"hard links are not looked at", "primary", "lib/linked-1\n", "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := stage(t)
			b.metadata = "namebase: x\n"
			if tt.subpackage != "" {
				b.metadata += "subpackage: " + tt.subpackage + "\n"
			}
			b.whitelist = tt.list
			r := b.mustMake(t)
			for key, want := range map[string]string{"provided": tt.provided, "required": tt.required, "adjacent": tt.adjacent} {
				got, ok := metadata(t, r).Get("shlibs_" + key).Strings()
				if !ok || strings.Join(got, " ") != want {
					t.Errorf("%s: %q, want %q", key, got, want)
				}
			}
			if len(r.Notices) > 0 {
				t.Errorf("notices %q", r.Notices)
			}
		})
	}
}

func TestWithoutNamebaseNoLibrariesAreTold(t *testing.T) {
	b := stage(t)
	b.metadata = "a: 1"
	if got := string(b.mustMake(t).Metadata); got != "a: 1\nprefix: \"/raven\"\n" {
		t.Errorf("metadata %q", got)
	}
}

func TestFilesThatCannotBeReadAreSaid(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	b := stage(t)
	for _, name := range []string{"root/raven/bin/tool", "root/sister"} {
		if err := os.Chmod(b.in(name), 0); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(b.in(name), 0o700)
	}
	r := b.mustMake(t)
	contains(t, r.Notices, `"raven/bin/tool": not searched for libraries: permission denied`)
	contains(t, r.Notices, `"sister": not searched for libraries: permission denied`)
}

func TestMoreLibrariesThanMetadataHoldsAreRefused(t *testing.T) {
	b := newBench(t)
	b.metadata = "namebase: x"
	for i := range 4 {
		var needed []string
		for j := range 700 {
			needed = append(needed, fmt.Sprintf("%d-%d%s", i, j, strings.Repeat("x", 200)))
		}
		b.put(t, fmt.Sprint(i), object(t, "", needed...))
	}
	want := fmt.Sprintf("shared libraries: expected names of at most %d bytes in all, found more", ucl.MaxText)
	if _, err := b.make(t); err == nil || err.Error() != want {
		t.Errorf("got %.300v, want %s", err, want)
	}
}

func TestAFolderThatIsTooDeepIsSaid(t *testing.T) {
	b := newBench(t)
	b.metadata = "namebase: x"
	root, err := os.OpenRoot(b.in("root"))
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("d", 250)
	for range 20 { // deeper than one path can say
		if err := root.Mkdir(name, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := root.OpenRoot(name)
		root.Close()
		if root = next; err != nil {
			t.Fatal(err)
		}
	}
	defer root.Close()
	r := b.mustMake(t)
	if len(r.Notices) != 1 || !strings.HasSuffix(r.Notices[0], "its name is longer than 4095 bytes") || len(r.Notices[0]) > 300 {
		t.Errorf("notices %q", r.Notices)
	}
}
