package rvn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/format/rvn/internal/ucl"
	"github.com/holdall/holdall/internal/base/blake3"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Parameters of the format.
const (
	paramLevel    = "level"    // compression level
	paramSections = "sections" // uncompressed bytes of a section, or "none"
	paramMetadata = "metadata" // UCL text
	paramPrefix   = "prefix"   // where the package is installed, for the metadata
	paramABI      = "abi"      // what the package runs on, for the metadata

	carryMetadata = "metadata" // of another package
)

const (
	defaultSection = 768 << 10
	minSection     = 64 << 10

	maxDirs    = 1<<16 - 1
	maxPeople  = 256
	maxLinkLen = 1<<16 - 1
	maxNameLen = 255
)

// writer writes an archive. Compressed contents are written to scratch space, because the index
// before them contains their digests.
type writer struct {
	builder
	st       store.Store
	name     string
	scratch  sorter.Scratch
	spool    *spool // writes to scratch
	contents contents
	meta     []ucl.Member
	targets  map[string]string // digests of the targets of hard links, if they are known in advance
	anyFile  bool              // any file may be a target
	sum      format.Summary
	buf      []byte
	hash     *blake3.Hasher
	err      error // the archive can no longer be completed
}

func create(ctx context.Context, st store.Store, name string, o format.CreateOptions) (_ format.Writer, err error) {
	workers := min(max(runtime.GOMAXPROCS(0), 1), 16)
	w := &writer{builder: newBuilder(), st: st, name: name, targets: map[string]string{}, anyFile: o.Manifest == nil, buf: make([]byte, 128<<10), hash: blake3.New()}
	most := defaultSection
	if said := o.Param[paramSections]; said != "" {
		most, _ = strconv.Atoi(said) // none is 0
	}
	if w.c, err = newCompressor(o.Param[paramLevel], workers, max(most, minSection)); err != nil {
		return nil, err
	}
	if w.meta, err = packageMetadata(o); err != nil {
		return nil, err
	}
	if err := checkManifest(o.Manifest); err != nil {
		return nil, err
	}
	for _, e := range o.Manifest {
		if e.Kind == format.HardLink {
			w.targets[e.Link] = ""
		}
	}
	if w.scratch, err = o.Scratch(); err != nil {
		return nil, err
	}
	w.spool = &spool{w: w.scratch}
	if most == 0 {
		w.contents = &solid{spool: w.spool, c: w.c}
	} else {
		w.contents = newSectioned(w.spool, w.c, most, workers)
	}
	return w, nil
}

// packageMetadata returns the metadata of the archive without its flatsize.
func packageMetadata(o format.CreateOptions) ([]ucl.Member, error) {
	text := ""
	for _, kv := range o.Carry {
		if kv[0] == carryMetadata {
			text = kv[1]
		}
	}
	if given, ok := o.Param[paramMetadata]; ok {
		text = given
	}
	if len(text) > maxMetadata {
		return nil, fmt.Errorf("metadata: %d bytes: readers refuse more than %d", len(text), maxMetadata)
	}
	return membersOf(text, o), nil
}

func membersOf(text string, o format.CreateOptions) []ucl.Member {
	tree, err := ucl.Parse([]byte(text))
	members := slices.Clone(tree.Members())
	if err != nil || tree.Kind() != ucl.KindObject && text != "" {
		// The reference stores text that it cannot parse as a description.
		members = []ucl.Member{{Key: "desc", Value: ucl.String(text)}}
	}
	for _, key := range []string{paramPrefix, paramABI} {
		if v, given := o.Param[key]; given || tree.Get(key).Kind() == ucl.KindNull {
			members = set(members, key, ucl.String(v))
		}
	}
	for _, key := range []string{"namebase", "subpackage", "variant"} {
		if tree.Get(key).Kind() == ucl.KindNull {
			members = set(members, key, ucl.String("unset"))
		}
	}
	return members
}

// set sets the value of a key, whether it existed or not.
func set(members []ucl.Member, key string, v ucl.Value) []ucl.Member {
	for i := range members {
		if members[i].Key == key {
			members[i].Value = v
			return members
		}
	}
	return append(members, ucl.Member{Key: key, Value: v})
}

// appendMetadata appends block 2 as text.
func appendMetadata(members []ucl.Member, flat int64) ([]byte, error) {
	text, err := ucl.Append(nil, ucl.Object(set(slices.Clone(members), "flatsize", ucl.Int(flat))...))
	if err != nil {
		return nil, err
	}
	if len(text) > maxMetadata {
		return nil, fmt.Errorf("metadata: %d bytes when written: readers refuse more than %d", len(text), maxMetadata)
	}
	return text, nil
}

// checkManifest returns everything that an archive cannot store, before anything is written.
func checkManifest(entries []format.Entry) error {
	var owners, groups people
	var errs []error
	dirs := 0
	for _, e := range entries {
		err := checkEntry(e, &owners, &groups)
		if e.Kind == format.Dir {
			if dirs++; dirs == maxDirs+1 {
				err = kit.Refuse(e.Name, "directory: more than %d", maxDirs)
			}
		}
		if err != nil {
			if errs = append(errs, err); len(errs) == 10 {
				errs = append(errs, errors.New("and perhaps more"))
				break
			}
		}
	}
	return errors.Join(errs...)
}

// refuses returns why no archive can hold e.
func refuses(e format.Entry) string {
	isLink := e.Kind == format.Symlink || e.Kind == format.HardLink
	if why := kit.UnsafeName(e.Name); why != "" {
		return "name: " + why
	}
	if n := len(path.Base(e.Name)); n > maxNameLen {
		return fmt.Sprintf("name: %d bytes: expected at most %d", n, maxNameLen)
	}
	switch s := e.ModTime.Unix(); {
	case e.Kind == format.File && e.Size > maxFileSize:
		return fmt.Sprintf("size: %d bytes: expected at most %d", e.Size, int64(maxFileSize))
	case e.Kind == format.File && uint32(e.Size) >= 1<<31:
		return fmt.Sprintf("size: %d bytes: the reference fails on sizes whose lower 32 bits are 2 GiB or more", e.Size)
	case isLink && len(e.Link) > maxLinkLen:
		return fmt.Sprintf("link target: %d bytes: expected at most %d", len(e.Link), maxLinkLen)
	case isLink && e.Link == "":
		return "link target: empty"
	case isLink && strings.IndexByte(e.Link, 0) >= 0:
		return "link target: contains a NUL byte"
	case !e.ModTime.IsZero() && s < 0:
		return fmt.Sprintf("time: %s is before 1970: readers fail on such times", e.ModTime.UTC().Format("2006-01-02"))
	}
	return ""
}

// checkEntry returns why this archive cannot hold e, or nil.
func checkEntry(e format.Entry, owners, groups *people) error {
	if why := refuses(e); why != "" {
		return kit.Refuse(e.Name, "%s", why)
	}
	no := func(what, why string, args ...any) error {
		return kit.Refuse(e.Name, "%s: %s", what, fmt.Sprintf(why, args...))
	}
	for _, p := range []struct {
		what, name string
		table      *people
	}{{"owner", e.Owner, owners}, {"group", e.Group, groups}} {
		name := cmp.Or(p.name, nobody)
		if len(name) > blockLen {
			return no(p.what, "%q has %d bytes: expected at most %d", name, len(name), blockLen)
		}
		if strings.IndexByte(name, 0) >= 0 {
			return no(p.what, "the name contains a NUL byte")
		}
		if _, ok := p.table.id(name); !ok {
			return no(p.what, "%q would be number %d, but the limit is %d", name, maxPeople+1, maxPeople)
		}
	}
	return nil
}

func (w *writer) Add(ctx context.Context, e format.Entry, r io.Reader) error {
	if w.err != nil {
		return w.err
	}
	if w.contents == nil {
		return errEnded
	}
	if err := checkEntry(e, &w.owners, &w.groups); err != nil {
		return err
	}
	if _, isDir := w.dirs[e.Name]; w.files[e.Name] || isDir && e.Kind != format.Dir {
		return kit.Refuse(e.Name, "name: duplicate")
	}
	if e.Kind == format.Dir {
		err := w.addDir(e)
		if err == nil {
			w.sum.Entries++
		}
		return err
	}
	parent, err := w.parentOf(e)
	if err != nil {
		return err
	}
	digest := ""
	switch e.Kind {
	case format.File:
		if digest, err = w.addContent(ctx, e, r); err != nil {
			return err
		}
		if _, wanted := w.targets[e.Name]; wanted || w.anyFile {
			w.targets[e.Name] = digest
		}
	case format.HardLink:
		var known bool
		if digest, known = w.targets[e.Link]; !known || digest == "" {
			return kit.Refuse(e.Name, "hard link: %q is not a file stored before it", format.Escape(e.Link))
		}
	}
	w.sum.Entries++
	w.files[e.Name] = true
	w.addRecord(e, digest, parent, 0)
	return nil
}

var errEnded = errors.New("the archive is already complete or aborted")

// addContent writes a file's content and returns its digest.
func (w *writer) addContent(ctx context.Context, e format.Entry, r io.Reader) (string, error) {
	if err := w.contents.mark(e.Size); err != nil {
		return "", w.broken(err)
	}
	var broken error
	write := func(p []byte) error {
		broken = w.contents.write(p)
		return broken
	}
	sum, err := kit.CopyDigested(ctx, e, r, w.buf, "blake3", w.hash, write)
	switch {
	case broken != nil:
		return "", w.broken(broken)
	case err != nil:
		if back := w.contents.back(); back != nil {
			return "", w.broken(fmt.Errorf("%s: %v: %w", format.Escape(e.Name), err, back))
		}
		return "", err
	}
	if w.flat += e.Size; sum == "" {
		return "", w.broken(fmt.Errorf("%s: the reader provides no digest", format.Escape(e.Name)))
	}
	if err := w.contents.wrote(e.Name); err != nil {
		return "", w.broken(err)
	}
	return sum, nil
}

// broken records an error after which the archive cannot be completed.
func (w *writer) broken(err error) error {
	w.err = err
	return err
}

func (w *writer) Commit(ctx context.Context) (_ format.Summary, err error) {
	if w.err != nil {
		return w.sum, w.err
	}
	if w.contents == nil {
		return w.sum, errEnded
	}
	if err := w.contents.end(); err != nil {
		return w.sum, w.broken(err)
	}
	prefix, err := w.prefix(w.meta, w.spool.n, w.contents.sections())
	if err != nil {
		return w.sum, err
	}
	out, err := storekit.Create(ctx, w.st, w.name)
	if err != nil {
		return w.sum, err
	}
	defer func() { err = errors.Join(err, out.Abort()) }()
	if _, err := out.Write(prefix); err != nil {
		return w.sum, err
	}
	if _, err := w.scratch.Seek(0, io.SeekStart); err != nil {
		return w.sum, err
	}
	n := w.spool.n
	if err := kit.CopyContent(ctx, format.Entry{Size: n}, io.LimitReader(w.scratch, n), make([]byte, 1<<20), nil, func(p []byte) error {
		_, err := out.Write(p)
		return err
	}); err != nil {
		return w.sum, err
	}
	info, err := out.Commit(ctx)
	if err != nil {
		return w.sum, err
	}
	w.sum.Content, w.sum.Stored, w.sum.Volumes = w.flat, info.Size, []string{w.name}
	return w.sum, w.Abort()
}

// Abort releases the writer's resources, once.
func (w *writer) Abort() error {
	if w.contents == nil {
		return nil
	}
	w.contents.close() // its error no longer matters
	w.contents = nil
	w.c.close()
	return w.scratch.Close()
}
