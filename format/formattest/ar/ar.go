// Package ar reads and writes ar archives, which linkers read. It is for tests, and shows how a
// format is written with package kit. An archive is "!<arch>\n", then for each entry
//
//	| name 16 | seconds 12 | owner 6 | group 6 | mode 8, octal | size 10 | "`\n" | content | to even |
//
// A name ends with spaces, or as GNU writes it with a slash. A longer one is before the content, and
// "#1/LENGTH" in its place (BSD), or in an entry "//", and "/OFFSET" in its place (GNU). Create
// writes them as BSD does. Owners are only numbers.
package ar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
)

// Format is the ar format.
var Format = &format.Format{
	Name: "ar", Title: "Unix archive, for tests", Extensions: []string{".ar", ".a"},
	Keeps: format.KeepsModes | format.KeepsTimes, Refuses: refuses,
	StoredTime: func(t time.Time) time.Time { return time.Unix(t.Unix(), 0) },
	Detect:     detect, Open: open, Create: create,
}

const (
	magic   = "!<arch>\n"
	nameLen = 16
	symbols = "__.SYMDEF" // BSD's name of what linkers need; GNU's are "/" and "/SYM64/"
	most    = 9_999_999_999
)

func detect(p format.Probe) format.Match {
	if strings.HasPrefix(string(p.Head), magic) {
		return format.Certain
	}
	return format.No
}

func open(ctx context.Context, st store.Store, object string, o format.OpenOptions) (format.Reader, error) {
	var table []byte // GNU's long names
	return kit.OpenRuns(ctx, st, object, o, "ar", magic, 60, func(r *kit.Runs, at int64, head []byte) (int64, error) {
		var x [5]int64 // seconds, owner, group, mode, size
		bad := string(head[58:]) != "`\n"
		for i, f := range [...][3]int{{16, 28, 10}, {28, 34, 10}, {34, 40, 10}, {40, 48, 8}, {48, 58, 10}} {
			var err error
			x[i], err = strconv.ParseInt("0"+strings.TrimRight(string(head[f[0]:f[1]]), " "), f[2], 64)
			bad = bad || err != nil
		}
		name, from, n := strings.TrimRight(string(head[:nameLen]), " "), at+int64(len(head)), x[4]
		next := from + n + n%2
		k, err := strconv.ParseInt(name[strings.LastIndexByte(name, '/')+1:], 10, 64)
		isLong, inTable := strings.HasPrefix(name, "#1/"), strings.HasPrefix(name, "/") && err == nil
		switch {
		case bad || isLong && (err != nil || k > n) || inTable && (k < 0 || k > int64(len(table))):
			return 0, r.Corrupt(format.BadHeader, at, "expected a header, found %.60q", head)
		case name == "//":
			table, err = r.Bytes(from, n)
			return next, err
		case isLong:
			long, err := r.Bytes(from, k)
			if err != nil {
				return 0, err
			}
			name, from, n = strings.TrimRight(string(long), "\x00"), from+k, n-k
		case inTable:
			name, _, _ = strings.Cut(string(table[k:]), "\n")
		}
		if name == "/" || name == "/SYM64/" || strings.HasPrefix(name, symbols) {
			return next, nil // for linkers
		}
		e := format.Entry{Name: strings.TrimSuffix(name, "/"), Size: n, Owner: fmt.Sprint(x[1]), Group: fmt.Sprint(x[2])}
		if e.Mode, e.HasMode = kit.ModeOfUnix(uint32(x[3])), true; x[0] > 0 { // GNU writes 0 for unknown times
			e.ModTime = time.Unix(x[0], 0).UTC()
		}
		return next, r.Add(from, e)
	})
}

func refuses(e format.Entry) string {
	switch s := e.ModTime.Unix(); {
	case strings.ContainsAny(e.Name, "/\x00") || strings.HasPrefix(e.Name, symbols):
		return "ar holds no folders, NUL bytes or " + symbols
	case e.Size > most-int64(len(e.Name)) || !e.ModTime.IsZero() && (s < 0 || s > most):
		return "its size or time is too large"
	}
	return kit.UnsafeName(e.Name)
}

func create(ctx context.Context, st store.Store, object string, o format.CreateOptions) (format.Writer, error) {
	m, err := kit.NewMembers(ctx, st, object, o, magic)
	if err != nil {
		return nil, err
	}
	m.Put = func(e format.Entry, content io.Reader) error {
		short, long, mode := e.Name, "", uint32(0o644)
		if len(short) > nameLen || strings.Contains(short, " ") {
			short, long = fmt.Sprintf("#1/%d", len(e.Name)), e.Name
		}
		if e.HasMode {
			mode = kit.UnixMode(e.Mode)
		}
		var ids [2]uint64 // 0 for names
		for i, id := range []string{e.Owner, e.Group} {
			if n, err := strconv.ParseUint(id, 10, 64); err == nil && n <= 999_999 {
				ids[i] = n
			}
		}
		short, size := short+strings.Repeat(" ", nameLen-len(short)), e.Size+int64(len(long))
		err := m.Write(fmt.Appendf(nil, "%s%-12d%-6d%-6d%-8o%-10d`\n%s", short, max(e.ModTime.Unix(), 0), ids[0], ids[1], 0o100000|mode, size, long), content)
		return errors.Join(err, m.Write([]byte("\n")[:size%2], nil))
	}
	return m, nil
}
