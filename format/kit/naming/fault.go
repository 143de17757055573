package naming

import (
	"path"
	"path/filepath"
	"strings"
)

// Limits of Linux and most other systems for a path and for an element of it. Longer names are
// not extracted.
const (
	maxPathLen    = 4095
	maxElementLen = 255
)

// MostFolders is how many folders an entry may be in that is packed or extracted. Some formats store
// each of them with its whole name: an archive of some kilobytes could become one of gigabytes.
const MostFolders = 2048

// ValidPath reports whether name is a valid path within an archive. It is like [fs.ValidPath],
// but allows names that are not UTF-8.
func ValidPath(name string) bool {
	if name == "." {
		return true
	}
	from := 0 // of an element
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '/' {
			continue
		}
		switch name[from:i] {
		case "", ".", "..":
			return false
		}
		from = i + 1
	}
	return true
}

// Fault returns why an entry called name must not be extracted, as a word such as
// "name-traversal", or "" if it may be. The name is also checked with backslashes as separators,
// so that an archive is equally safe on systems that use them. A drive letter without a backslash,
// as in "a:b", is one only on Windows.
func Fault(name string) string { return nameFaultOn(filepath.Separator == '\\', name) }

func nameFaultOn(windows bool, name string) string {
	if fault := nameFault(name); fault != "" {
		return fault
	}
	if len(name) >= 2 && name[1] == ':' && isLetter(name[0]) && (windows || strings.HasPrefix(name[2:], `\`)) {
		return "name-drive"
	}
	if strings.IndexByte(name, '\\') >= 0 {
		if fault := nameFault(strings.ReplaceAll(name, `\`, "/")); fault == "name-traversal" || windows {
			return fault
		}
	}
	if len(name) > maxPathLen {
		return "name-too-long"
	}
	for rest, more := name, true; more; {
		var elem string
		elem, rest, more = strings.Cut(rest, "/")
		if len(elem) > maxElementLen {
			return "name-too-long"
		}
	}
	return ""
}

func nameFault(name string) string {
	switch {
	case name == "" || name == ".":
		return "name-empty"
	case strings.IndexByte(name, 0) >= 0:
		return "name-nul"
	case hasDotDot(name):
		return "name-traversal"
	case name[0] == '/':
		return "name-absolute"
	case path.Clean(name) != name:
		return "name-unclean"
	}
	return ""
}

func hasDotDot(name string) bool {
	if !strings.Contains(name, "..") {
		return false
	}
	for elem := range strings.SplitSeq(name, "/") {
		if elem == ".." {
			return true
		}
	}
	return false
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// Advice returns a phrase that explains a word returned by [Fault].
func Advice(fault string) string {
	switch fault {
	case "name-empty":
		return "it is empty"
	case "name-nul":
		return "it contains a NUL byte"
	case "name-absolute":
		return "it is absolute"
	case "name-traversal":
		return "it contains .."
	case "name-drive":
		return "it begins with a drive letter"
	case "name-unclean":
		return "it has empty or . elements"
	case "name-too-long":
		return "it or one of its elements is too long for file systems"
	case "name-conflict":
		return "it conflicts with another entry"
	}
	return "it is not safe on this system"
}
