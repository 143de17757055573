package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/base/glob"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A Spec describes what is to be packed, and into what.
type Spec struct {
	// Name is the plan's name; empty means the target.
	Name string
	// Sources are addresses of folders. An address that ends in * means all keys
	// that begin with the part before it. A single source contributes its
	// contents. With several, each becomes a folder with the last element of its
	// name.
	Sources []string
	// Target is the address of an archive. The names of the archives have the commit
	// that began their listing, and a number: TARGET-00042-00001. In a format that
	// is written in parts, the target is one archive. Each time that more is
	// planned, there is one more: TARGET-00057.
	Target string
	// Format is the name of the format; empty derives it from the target.
	Format string
	// ChunkSize is how much content an archive, or a part of one, should hold; 0
	// means 3 GB. No chunk has more than ChunkObjects objects; 0 means 100,000.
	ChunkSize, ChunkObjects int64
	Exclude                 []string
	Plain                   bool
	Param                   map[string]string
	// Protect, if not 0, is the share of each archive that may be lost. Its parity
	// is written beside it.
	Protect float64

	// List is the address of a list of the source's objects, which replaces its
	// listing. The list has one name below the source a line, and each object is
	// requested. If the address ends in .json, .jsonl or .ndjson, each line is
	// JSON with a key, a size and an etag; size and etag are requested if they are
	// missing. Inventory is the address of the manifest of an S3 Inventory of the
	// source's bucket. Both require a single source.
	List, Inventory string
	// Events are addresses of files with notifications of a bucket's events, as services write them: JSON, as
	// many as there are in a row or in arrays, also in messages of queues. Each object that they name is requested.
	Events []string
	// Only, if not empty, are prefixes of names in the archives. Nothing else is listed, and nothing is recorded
	// of other names.
	Only []string
	// Ranges, if not 0, hands the listing out in about so many ranges of names, which workers list.
	Ranges int
	// Gone is the largest share of packed files whose originals may be missing in a listing; 0 means half. A
	// larger share is treated as a mistake, and nothing is recorded of it.
	Gone float64
	// Tell, if not nil, is called with each object that is not planned because of
	// an error of its own.
	Tell func(path string, err error)
}

const (
	// A chunk is the work of one job, which takes one or two minutes.
	defaultChunkSize = 3e9

	// A chunk of so many objects ends before that if its index is large.
	defaultChunkObjects = 100_000

	// rowRest is about how many bytes of an index an object takes besides its name,
	// and besides the headers where they are known: the places of its content, its
	// digest, ETag and time, a type and some metadata.
	rowRest = 512
)

// maxIndex is the largest index that is read without further options. Chunks are
// cut at three quarters of it. Tests change it.
var maxIndex int64 = (format.Limits{}).OrDefault().Index

// indexBytes estimates how many bytes of its archive's index a member takes.
// Control characters, quotes and bytes that are not ASCII may be escaped.
func indexBytes(m Member) int64 {
	n := int64(rowRest + len(m.Path) + m.Headers)
	for _, c := range []byte(m.Path) {
		if c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			n += 5
		}
	}
	return n
}

// settings are the parts of a Spec that a plan stores. They must not differ
// when it is planned again.
type settings struct {
	Sources      []string          `json:"sources"`
	ChunkSize    int64             `json:"chunk_size"`
	ChunkObjects int64             `json:"chunk_objects"`
	Exclude      []string          `json:"exclude,omitempty"`
	Plain        bool              `json:"plain,omitempty"`
	Param        map[string]string `json:"param,omitempty"`
	Protect      float64           `json:"protect,omitempty"`

	// List is the list that the plan was made from. It does not affect what is
	// packed, so it may differ.
	List string `json:"list,omitempty"`
}

// A DiffersError reports that a plan of the name exists with other properties.
type DiffersError struct{ Name, What string }

func (e *DiffersError) Error() string {
	return fmt.Sprintf("plan %s exists already with another %s: use another name", format.Escape(e.Name), e.What)
}

func (e *DiffersError) Unwrap() error { return fs.ErrExist }

// A job is an open plan.
type job struct {
	plan    Plan
	id      string // in names of objects and queues
	set     settings
	format  *format.Format
	origins []origin
	target  store.Store
	name    string                       // of the target
	around  func() (head, tail string)   // is what edges returns
	names   *glob.Filter                 // of what is packed
	tell    func(path string, err error) // Spec.Tell
}

type origin struct {
	address string
	prefix  string // of its paths, empty or ending in a slash
	st      store.Store
	begin   string // of the names of its objects
	list    *list  // replaces a listing; nil if there is none
}

// cutStar splits a source into its folder and the prefix of the names in it.
func cutStar(address string) (folder, begin string, err error) {
	keys, star := strings.CutSuffix(address, "*")
	if !star || store.Scheme(address) == "" {
		return address, "", nil
	}
	i := strings.LastIndex(keys, "/")
	folder = keys[:i+1]
	for strings.HasSuffix(folder, "//") && !strings.HasSuffix(folder, "://") {
		folder = folder[:len(folder)-1] // trailing slashes of a folder are insignificant, but these are not
	}
	if i = len(folder) - 1; strings.HasSuffix(folder, "://") {
		return "", "", fmt.Errorf("%s: expected a bucket, a slash and a prefix of keys", format.Escape(address))
	}
	return folder, keys[i+1:], nil
}

// planned returns the plan for a Spec.
func (s Spec) planned() (Plan, error) {
	if len(s.Sources) == 0 || s.Target == "" {
		return Plan{}, errors.New("expected sources and a target")
	}
	if slices.ContainsFunc(s.Sources, func(address string) bool { return strings.HasPrefix(address, gateways) }) {
		return Plan{}, fmt.Errorf("%s: what a gateway has packed is at no source: %w", format.Escape(s.Sources[0]), errors.ErrUnsupported)
	}
	if s.ChunkSize < 0 || s.ChunkObjects < 0 {
		return Plan{}, fmt.Errorf("expected a chunk size, found %d bytes and %d objects", s.ChunkSize, s.ChunkObjects)
	}
	if _, err := glob.NewFilter(nil, s.Exclude); err != nil {
		return Plan{}, err
	}
	if s.listed() && (len(s.Sources) > 1 || s.List != "" && s.Inventory != "" || len(s.Events) > 0 && s.List+s.Inventory != "") {
		return Plan{}, errors.New("expected one source with a list of its objects")
	}
	if err := s.checkOnly(); err != nil {
		return Plan{}, err
	}
	for _, a := range slices.Concat(s.Sources, s.Events, []string{s.Target, s.List, s.Inventory}) {
		if store.Redact(a) != a {
			return Plan{}, fmt.Errorf("%s: an address with a password or a query would be readable in the catalogue: remove it from the address", store.Redact(a))
		}
		if layer, _ := store.CutLayer(a); layer != "" {
			return Plan{}, fmt.Errorf("%s: fleets read and write nothing that is encrypted: %w", a, errors.ErrUnsupported)
		}
	}
	f := format.All().ByExtension(s.Target)
	if s.Format != "" {
		if f = format.All().ByName(s.Format); f == nil {
			return Plan{}, fmt.Errorf("%s: no such format", format.Escape(s.Format))
		}
	}
	if f == nil {
		return Plan{}, fmt.Errorf("%s: unknown extension: set the format to write", format.Escape(s.Target))
	}
	if !f.Chunked && f.Parts == nil {
		return Plan{}, fmt.Errorf("%s cannot be packed by a fleet: it has neither chunks nor parts: %w", f.Name, errors.ErrUnsupported)
	}
	if s.Protect != 0 && f.Parts != nil {
		return Plan{}, fmt.Errorf("%s is written in parts, which cannot have parity: protect the finished archive: %w", f.Name, errors.ErrUnsupported)
	}
	b, err := json.Marshal(settings{Sources: s.Sources, ChunkSize: cmp.Or(s.ChunkSize, defaultChunkSize), ChunkObjects: cmp.Or(s.ChunkObjects, defaultChunkObjects),
		Exclude: s.Exclude, Plain: s.Plain, Param: s.Param, Protect: s.Protect, List: cmp.Or(s.List, s.Inventory, strings.Join(s.Events, " "))})
	return Plan{Name: cmp.Or(s.Name, s.Target), Format: f.Name, Target: s.Target, Settings: b}, err
}

// differs returns the name of a property in which a plan differs from the
// requested one, or "" if there is none.
func differs(is, wish Plan) string {
	switch {
	case is.Format != wish.Format:
		return "format"
	case is.Target != wish.Target:
		return "target"
	}
	var a, b map[string]json.RawMessage // a newer holdall may have others
	if json.Unmarshal(is.Settings, &a) != nil || json.Unmarshal(wish.Settings, &b) != nil {
		return "setting"
	}
	delete(a, "list")
	delete(b, "list")
	same := func(a, b json.RawMessage) bool { return string(a) == string(b) }
	switch {
	case !same(a["sources"], b["sources"]):
		return "source"
	case !maps.EqualFunc(a, b, same):
		return "setting"
	}
	return ""
}

// open opens the stores of a plan.
func open(ctx context.Context, p Plan) (*job, error) {
	j := &job{plan: p, id: idOf(p.Name)}
	j.around = sync.OnceValues(j.edges)
	err := json.Unmarshal(p.Settings, &j.set)
	if err == nil && (len(j.set.Sources) == 0 || j.set.ChunkSize <= 0 || j.set.ChunkObjects <= 0) {
		err = errors.New("no sources, or no sizes")
	}
	if err != nil {
		return nil, fmt.Errorf("plan %s: invalid settings: %w", format.Escape(p.Name), err)
	}
	if j.format = format.All().ByName(p.Format); j.format == nil || j.format.Create == nil {
		return nil, fmt.Errorf("plan %s: format %s cannot be written here", format.Escape(p.Name), format.Escape(p.Format))
	}
	if err := j.format.CheckParams(format.ToCreate, j.set.Param); err != nil {
		return nil, fmt.Errorf("plan %s: %w", format.Escape(p.Name), err)
	}
	if j.names, err = glob.NewFilter(nil, j.set.Exclude); err != nil {
		return nil, fmt.Errorf("plan %s: %w", format.Escape(p.Name), err)
	}
	prefixes := map[string]bool{}
	for _, address := range j.set.Sources {
		folder, begin, err := cutStar(address)
		if err != nil {
			return nil, err
		}
		o := origin{address: address, begin: begin}
		if len(j.set.Sources) > 1 {
			o.prefix = path.Base(strings.TrimRight(folder, "/")) + "/"
		}
		if prefixes[o.prefix] {
			return nil, fmt.Errorf("%s: another source has the same last element, so objects would get the same paths", format.Escape(address))
		}
		prefixes[o.prefix] = true
		if strings.HasPrefix(address, gateways) {
			o.st = nowhere{}
		} else if o.st, err = storekit.OpenFolder(ctx, folder); err != nil {
			return nil, err
		}
		j.origins = append(j.origins, o)
	}
	if j.target, j.name, err = store.OpenAddress(ctx, p.Target); err != nil {
		return nil, err
	}
	if j.format.Parts != nil && strings.Trim(j.name, "/") == "" {
		return nil, fmt.Errorf("%s: expected the name of an archive, found the name of a store", format.Escape(p.Target))
	}
	if storekit.AddressOf(j.target, j.name) == "" {
		return nil, fmt.Errorf("%s: an archive there would have no address", format.Escape(p.Target))
	}
	return j, nil
}

// chunk returns the name of the archive of a chunk: the commit that began the listing, and a number from 0
// on. No name is used twice.
func (j *job) chunk(listing int64, number int) string {
	ext := j.format.Extensions[0]
	return pack.ChunkName(pack.ChunkName(j.name, int(listing), ext), number+1, ext)
}

// edges returns the parts of a chunk's name before and after its numbers.
func (j *job) edges() (head, tail string) {
	name := j.chunk(0, -1)
	i := strings.LastIndex(name, "00000-00000")
	return name[:i], name[i+len("00000-00000"):]
}

// owns reports whether an archive has a name of the plan's form.
func (j *job) owns(name string) bool {
	head, tail := j.around()
	digits, ok := strings.CutPrefix(name, head)
	if ok {
		digits, ok = strings.CutSuffix(digits, tail)
	}
	if !ok {
		return false
	}
	listing, number, _ := strings.Cut(digits, "-")
	l, lerr := strconv.ParseInt(listing, 10, 64)
	n, err := strconv.Atoi(number)
	return lerr == nil && err == nil && n > 0 && j.chunk(l, n-1) == name
}

// roots returns the places that the plan's archives are packed from. A source
// that is a prefix has a root of its own: the rest of its folder is not part
// of the plan.
func (j *job) roots() catalog.Roots {
	var all []catalog.Root
	for _, o := range j.origins {
		at := storekit.AddressOf(o.st, o.begin)
		if o.begin == "" {
			at = strings.TrimRight(cmp.Or(at, o.address), "/") + "/"
		}
		all = append(all, catalog.Root{Prefix: o.prefix + o.begin, Address: at})
	}
	return catalog.RootsOf(all)
}
