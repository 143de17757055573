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
	data        = "data/"
	algo        = "sha256" // of new bags
)

var (
	versions  = regexp.MustCompile(`^BagIt-Version: *([0-9]+\.[0-9]+)\s+Tag-File-Character-Encoding: *(?i:UTF-8)\s*$`)
	manifests = regexp.MustCompile(`^(tag)?manifest-([a-z0-9]+)\.txt$`)
	old       = strings.NewReplacer("%0A", "\n", "%0a", "\n", "%0D", "\r", "%0d", "\r") // before version 1
	decoded   = strings.NewReplacer("%0A", "\n", "%0a", "\n", "%0D", "\r", "%0d", "\r", "%25", "%")
	encodeOld = strings.NewReplacer("\n", "%0A", "\r", "%0D")
	encode    = strings.NewReplacer("\n", "%0A", "\r", "%0D", "%", "%25")
)

// Declaration returns the beginning of the file that makes src a bag, or "" if it is none.
func Declaration(ctx context.Context, src *content.Source) string {
	e, err := src.Reader.Lookup(ctx, declaration)
	if err != nil { // what cannot be looked up is no bag that could be checked
		return ""
	}
	b := make([]byte, 1<<10)
	n, _ := src.ReadAt(ctx, e, b, 0)
	return cmp.Or(string(b[:n]), "nothing")
}

// parse calls each with the names and digests in a manifest, or with what is wrong with a line.
func parse(r io.Reader, algo string, names *strings.Replacer, each func(name, sum string, wrong error)) error {
	s, size := bufio.NewScanner(r), digest.New(algo).Size()
	for n := 1; s.Scan(); n++ {
		text := s.Text()
		at := max(strings.IndexAny(text, " \t"), 0)
		name := names.Replace(strings.TrimPrefix(strings.TrimPrefix(strings.TrimLeft(text[at:], " \t"), "*"), "./"))
		b, err := hex.DecodeString(text[:at])
		if fault := naming.Fault(name); err != nil || len(b) != size || fault != "" {
			err = fmt.Errorf("line %d is not a digest and the name of a file in the bag", n)
		}
		each(name, string(b), err)
	}
	return s.Err()
}

// Check compares all files of a bag with its manifests. It tells what is wrong, missing or not in
// each manifest, one at a time, and reports whether there was anything.
func Check(ctx context.Context, src *content.Source, declared string, m *meter.Meter, tell func(format.Problem)) (bad bool, err error) {
	var mu sync.Mutex
	wrong := func(e format.Entry, err error) {
		mu.Lock()
		defer mu.Unlock()
		bad = true
		tell(src.Problem(ctx, e, err))
	}
	names, version := decoded, versions.FindStringSubmatch(declared)
	switch {
	case version == nil:
		wrong(format.Entry{Name: declaration}, errors.New("expected BagIt-Version and Tag-File-Character-Encoding, which must be UTF-8"))
		return bad, nil
	case version[1] < "1":
		names = old
	}
	type key struct{ name, manifest string }
	want := map[key]string{}                                 // digests
	lists := map[bool]map[string]string{true: {}, false: {}} // algorithms of manifests of the payload, and of other files
	for e, err := range src.Packed(ctx) {
		found := manifests.FindStringSubmatch(e.Name)
		switch {
		case err != nil:
			return bad, err
		case e.Name == "fetch.txt" && e.Size > 0:
			wrong(e, errors.New("files that are still to be fetched are not supported: complete the bag first"))
		case found != nil && !digest.Known(found[2]):
			wrong(e, errors.New("unknown digest: expected md5, sha1, sha256 or sha512"))
		case found != nil:
			lists[found[1] == ""][e.Name] = found[2]
			err := parse(src.Open(ctx, e, 0).Checked(), found[2], names, func(name, sum string, err error) {
				k := key{name, e.Name}
				if _, twice := want[k]; err == nil && (twice || strings.HasPrefix(name, data) != (found[1] == "")) {
					err = fmt.Errorf("%s does not belong into it, or is in it twice", format.Escape(name))
				}
				if want[k] = sum; err != nil {
					delete(want, k)
					wrong(e, err)
				}
			})
			if err != nil {
				return bad, fmt.Errorf("%s: %w", e.Name, err)
			}
		}
	}
	if len(lists[true]) == 0 {
		wrong(format.Entry{Name: declaration}, errors.New("a bag has at least one manifest"))
	}
	files := func(yield func(format.Entry, error) bool) {
		for e, err := range src.Packed(ctx) {
			if err == nil && e.Kind == format.HardLink {
				name := e.Name
				e, err = src.Reader.Lookup(ctx, e.Link)
				e.Name = name
			}
			if (err != nil || e.Kind.HasContent()) && !yield(e, err) {
				return
			}
		}
	}
	err = src.Sweep(ctx, files, content.AnyOrder, func(c content.Content, err error) error {
		e, inData, hashes, to := c.Entry, strings.HasPrefix(c.Entry.Name, data), map[string]hash.Hash{}, []io.Writer{}
		for manifest, algo := range lists[inData] {
			hashes[manifest] = digest.New(algo)
			to = append(to, hashes[manifest])
		}
		if err == nil {
			err = c.CopyTo(ctx, io.MultiWriter(to...), m)
		}
		if err := cmp.Or(context.Cause(ctx), content.Passing(e, err)); err != nil {
			return err
		}
		m.Add(1, 0)
		for manifest, algo := range lists[inData] {
			mu.Lock()
			sum, listed := want[key{e.Name, manifest}]
			delete(want, key{e.Name, manifest})
			mu.Unlock()
			if e.Digest = (format.Digest{Algo: algo, Sum: sum}); err == nil && listed {
				err = digest.Compare(e, format.Digest{Algo: algo, Sum: string(hashes[manifest].Sum(nil))})
			} else if !listed && inData {
				wrong(e, fmt.Errorf("it is not in %s", manifest))
			}
		}
		if err != nil {
			wrong(e, err)
		}
		return nil
	})
	for _, k := range slices.SortedFunc(maps.Keys(want), func(a, b key) int { return strings.Compare(a.name+a.manifest, b.name+b.manifest) }) {
		if err == nil {
			wrong(format.Entry{Name: k.name}, fmt.Errorf("it is in %s, but not in the bag", k.manifest))
		}
	}
	return bad, err
}

// Write writes the entries of src as a folder called name in st, which appears as a whole: as they
// are if src is a bag, otherwise as the payload of a new one. The first entry that cannot be written
// ends it.
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
	case begin == nil:
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
	err := cmp.Or(write("bag-info.txt", info), write("manifest-"+algo+".txt", list(sums)), write(declaration, "BagIt-Version: "+version+"\nTag-File-Character-Encoding: UTF-8\n"))
	return cmp.Or(err, write("tagmanifest-"+algo+".txt", list(tags)))
}
