// Package bag checks and writes bags: folders with manifests of their files (BagIt, RFC 8493).
package bag

import (
	"bufio"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/base/meter"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/read/digest"
	"github.com/holdall/holdall/internal/write/unpack"
	"github.com/holdall/holdall/store"
)

const (
	declaration = "bagit.txt"
	information = "bag-info.txt"
	data        = "data/"
	algo        = "sha256" // of new bags
)

var (
	versions = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^BagIt-Version: *([0-9]+\.[0-9]+)\s+Tag-File-Character-Encoding: *(?i:UTF-8)\s*$`)
	})
	oxum      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?mi)^Payload-Oxum: *([0-9]+\.[0-9]+)\s*$`) })
	manifests = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(tag)?manifest-([a-z0-9]+)\.txt$`) })
	old       = strings.NewReplacer("%0A", "\n", "%0a", "\n", "%0D", "\r", "%0d", "\r") // before version 1
	decoded   = strings.NewReplacer("%0A", "\n", "%0a", "\n", "%0D", "\r", "%0d", "\r", "%25", "%")
	encodeOld = strings.NewReplacer("\n", "%0A", "\r", "%0D")
	encode    = strings.NewReplacer("\n", "%0A", "\r", "%0D", "%", "%25")
)

// Find returns the beginning of the file that makes src a bag, and where in src the bag is: everywhere, or below
// the only folder. If it is none, declared is "".
func Find(ctx context.Context, src *content.Source) (base, declared string) {
	for e, err := range src.Reader.Entries(ctx) {
		if top, _, below := strings.Cut(e.Name, "/"); err == nil && (below || e.Kind == format.Dir) {
			base = top + "/"
		}
		break
	}
	if declared = beginning(ctx, src, declaration); declared != "" || base == "" {
		return "", declared
	}
	if declared = beginning(ctx, src, base+declaration); declared == "" {
		return "", ""
	}
	for e, err := range src.Reader.ReadDir(ctx, ".") {
		if err != nil || e.Kind != format.Dir || e.Name+"/" != base {
			return "", ""
		}
	}
	return base, declared
}

// beginning returns the beginning of a file, or "" if it cannot be looked up.
func beginning(ctx context.Context, src *content.Source, name string) string {
	e, err := src.Reader.Lookup(ctx, name)
	if err != nil {
		return ""
	}
	b := make([]byte, min(max(e.Size, 0), 64<<10))
	n, _ := src.ReadAt(ctx, e, b, 0)
	return cmp.Or(string(b[:n]), "nothing")
}

// A list is what a manifest has.
type list struct {
	name, algo string
	payload    bool              // or of other files
	sums       map[string]string // by name, of files that were not compared yet
}

// read reads a manifest, and calls wrong for each line that cannot be right.
func (l *list) read(r io.Reader, names *strings.Replacer, wrong func(text string, a ...any)) error {
	s, size := bufio.NewScanner(r), digest.New(l.algo).Size()
	for n := 1; s.Scan(); n++ {
		text := s.Text()
		at := max(strings.IndexAny(text, " \t"), 0)
		name := names.Replace(strings.TrimPrefix(strings.TrimPrefix(strings.TrimLeft(text[at:], " \t"), "*"), "./"))
		b, err := hex.DecodeString(text[:at])
		_, twice := l.sums[name]
		switch {
		case err != nil || len(b) != size || naming.Fault(name) != "":
			wrong("line %d is not a digest and the name of a file in the bag", n)
		case twice || strings.HasPrefix(name, data) != l.payload:
			delete(l.sums, name)
			wrong("%s does not belong into it, or is in it twice", format.Escape(name))
		default:
			l.sums[name] = string(b)
		}
	}
	return s.Err()
}

// Check compares all files of a bag, as Find has found it, with its manifests. It tells what is wrong, missing or
// not in each manifest, one at a time, and reports whether there was anything.
func Check(ctx context.Context, src *content.Source, base, declared string, m *meter.Meter, tell func(format.Problem)) (bad bool, err error) {
	wrong := func(e format.Entry, text string, a ...any) {
		bad = true
		tell(src.Problem(ctx, e, fmt.Errorf(text, a...)))
	}
	names, version := decoded, versions().FindStringSubmatch(declared)
	switch {
	case version == nil:
		wrong(format.Entry{Name: base + declaration}, "expected BagIt-Version and Tag-File-Character-Encoding, which must be UTF-8")
		return bad, nil
	case version[1] < "1":
		names = old
	}
	var lists []*list
	for e, err := range src.Packed(ctx) {
		name := strings.TrimPrefix(e.Name, base)
		found := manifests().FindStringSubmatch(name)
		switch {
		case err != nil:
			return bad, err
		case name == "fetch.txt" && e.Size > 0:
			wrong(e, "files that are still to be fetched are not supported: complete the bag first")
		case found != nil && !digest.Known(found[2]):
			wrong(e, "unknown digest: expected md5, sha1, sha256 or sha512")
		case found != nil:
			l := &list{name, found[2], found[1] == "", map[string]string{}}
			lists = append(lists, l)
			err := l.read(src.Open(ctx, e, 0).Checked(), names, func(text string, a ...any) { wrong(e, text, a...) })
			if err != nil {
				return bad, fmt.Errorf("%s: %w", e.Name, err)
			}
		}
	}
	if !slices.ContainsFunc(lists, func(l *list) bool { return l.payload }) {
		wrong(format.Entry{Name: base + declaration}, "a bag has at least one manifest")
	}
	files := func(yield func(format.Entry, error) bool) {
		for e, err := range src.Packed(ctx) {
			if name := e.Name; err == nil && e.Kind == format.HardLink {
				e, err = src.Reader.Lookup(ctx, e.Link)
				e.Name = name
			}
			if (err != nil || e.Kind.HasContent()) && !yield(e, err) {
				return
			}
		}
	}
	var mu sync.Mutex
	var size, count int64 // of the payload
	err = src.Sweep(ctx, files, content.AnyOrder, func(c content.Content, err error) error {
		e, name := c.Entry, strings.TrimPrefix(c.Entry.Name, base)
		inData, hashes, to := strings.HasPrefix(name, data), make([]hash.Hash, len(lists)), []io.Writer{}
		for i, l := range lists {
			if l.payload == inData {
				hashes[i] = digest.New(l.algo)
				to = append(to, hashes[i])
			}
		}
		if err == nil {
			err = c.CopyTo(ctx, io.MultiWriter(to...), m)
		}
		if err := cmp.Or(context.Cause(ctx), content.Passing(e, err)); err != nil {
			return err
		}
		m.Add(1, 0)
		mu.Lock()
		defer mu.Unlock()
		if inData {
			size, count = size+e.Size, count+1
		}
		for i, l := range lists {
			if hashes[i] == nil {
				continue
			}
			sum, listed := l.sums[name]
			delete(l.sums, name)
			if e.Digest = (format.Digest{Algo: l.algo, Sum: sum}); err == nil && listed {
				err = digest.Compare(e, format.Digest{Algo: l.algo, Sum: string(hashes[i].Sum(nil))})
			} else if !listed && inData {
				wrong(e, "it is not in %s", l.name)
			}
		}
		if err != nil {
			wrong(e, "%w", err)
		}
		return nil
	})
	if err != nil {
		return bad, err
	}
	for _, l := range lists {
		for _, name := range slices.Sorted(maps.Keys(l.sums)) {
			wrong(format.Entry{Name: base + name}, "it is in %s, but not in the bag", l.name)
		}
	}
	if want, got := oxum().FindStringSubmatch(beginning(ctx, src, base+information)), fmt.Sprintf("%d.%d", size, count); want != nil && want[1] != got {
		wrong(format.Entry{Name: base + information}, "Payload-Oxum, the size and the number of files in %s: expected %s, found %s", data, want[1], got)
	}
	return bad, nil
}

// Write writes the entries of src as a folder called name in st, which appears as a whole: as they are if src is a bag,
// otherwise as the payload of a new one. The first entry that cannot be written ends it.
func Write(ctx context.Context, src *content.Source, st store.Store, name string, isBag bool, info string, o unpack.Options) (done unpack.Done, err error) {
	for e, err := range src.Packed(ctx) {
		if err == nil && o.Filter.Wants(e.Name) && (e.Kind != format.Dir && !e.Kind.HasContent() || !utf8.ValidString(e.Name)) {
			err = fmt.Errorf("%s: a bag has files with names in UTF-8, and no links: exclude it, or convert to a CAF first: %w", format.Escape(e.Name), errors.ErrUnsupported)
		}
		if err != nil {
			return done, err
		}
	}
	begin := st.Can().Folder
	switch {
	case o.DryRun:
		return unpack.Extract(ctx, src, nil, o)
	case begin == nil || st.Can().Over != nil:
		return done, fmt.Errorf("a bag is a folder on a disk: %w", errors.ErrUnsupported)
	}
	f, err := begin(ctx, name)
	if err != nil {
		return done, fmt.Errorf("a bag is a new folder: %w", err)
	}
	defer f.Abort()
	payload, sums := f.Path, map[string]string{}
	if !isBag {
		var mu sync.Mutex
		o.Hash = func() hash.Hash { return digest.New(algo) }
		o.Hashed = func(name string, sum []byte) {
			mu.Lock()
			defer mu.Unlock()
			sums[data+name] = string(sum)
		}
		payload = filepath.Join(f.Path, data)
		if err := os.Mkdir(payload, 0o777); err != nil {
			return done, err
		}
	}
	root, err := os.OpenRoot(payload)
	if err != nil {
		return done, err
	}
	defer root.Close()
	if done, err = unpack.Extract(ctx, src, root, o); err == nil && !isBag {
		err = writeTags(f.Path, fmt.Sprintf("%sPayload-Oxum: %d.%d\n", info, done.Bytes, len(sums)), sums)
	}
	if err == nil {
		err = f.Commit(ctx)
	}
	return done, err
}

// writeTags writes all files of a bag except the payload. sums are the digests of the payload.
func writeTags(dir, info string, sums map[string]string) error {
	// The most common reader knows percent signs only as version 0.97 has them: as they are.
	version, names := "1.0", encode
	all := strings.Join(slices.Collect(maps.Keys(sums)), "/")
	if strings.Contains(all, "%") && old.Replace(all) == all {
		version, names = "0.97", encodeOld
	}
	list := func(sums map[string]string) string {
		var text strings.Builder
		for _, name := range slices.Sorted(maps.Keys(sums)) {
			fmt.Fprintf(&text, "%x  %s\n", sums[name], names.Replace(name))
		}
		return text.String()
	}
	tags := map[string]string{}
	write := func(name, text string) error {
		d, _ := digest.Of(algo, []byte(text))
		tags[name] = d.Sum
		return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666)
	}
	err := cmp.Or(write(information, info), write("manifest-"+algo+".txt", list(sums)), write(declaration, "BagIt-Version: "+version+"\nTag-File-Character-Encoding: UTF-8\n"))
	return cmp.Or(err, write("tagmanifest-"+algo+".txt", list(tags)))
}
