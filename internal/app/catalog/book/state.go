package book

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/internal/base/blake3"
)

// Magic begins the head of a catalogue.
const (
	Magic       = "holdall catalogue 1\n"
	commitMagic = "holdall commit 1\n"
)

const (
	mostText    = 64 << 20 // of a commit or a state, as JSON
	mostObject  = 128 << 20
	mostInline  = 256 << 10 // of a run that is in its commit
	mostRuns    = 1000
	maxOrdinals = rows.MostArchives
)

// A text has any bytes. In JSON, those that are not UTF-8 are escaped; see [format.Escape].
type text string

func (t text) MarshalJSON() ([]byte, error) { return json.Marshal(format.Escape(string(t))) }

func (t *text) UnmarshalJSON(b []byte) error {
	var s string
	err := json.Unmarshal(b, &s)
	*t = text(naming.Unescape(s))
	return err
}

// An ID is an archive's. It is 0 for none.
type ID int64

func idOf(a rows.ArchiveID) ID { return ID(a.Commit*maxOrdinals + int64(a.Ordinal)) }

// An Archive is what a catalogue records of an archive.
type Archive struct {
	ID       ID            `json:"id,omitempty"` // in a commit that adds it, its place there makes it
	Address  text          `json:"address"`      // relative to the folder of the catalogue if it begins with ./
	Format   string        `json:"format"`
	Size     int64         `json:"size"`
	Version  text          `json:"version,omitempty"`
	Entries  int64         `json:"entries"`
	First    text          `json:"first,omitempty"` // of the names of its files
	Last     text          `json:"last,omitempty"`
	Added    time.Time     `json:"added,omitzero"`
	Verified time.Time     `json:"verified,omitzero"`
	Parity   string        `json:"parity,omitempty"` // its identity
	Roots    catalog.Roots `json:"roots,omitempty"`
	Proven   string        `json:"proven,omitempty"`
	Facts    text          `json:"facts,omitempty"`
	// Seq is that of all its rows, or Various. 0 is the commit that has added it.
	Seq int64 `json:"seq,omitempty"`
}

// Various is Archive.Seq of one whose rows have different ones.
const Various = -1

// shown is what pages have of an archive.
func (a *Archive) shown() rows.Archive {
	return rows.Archive{Address: string(a.Address), Format: a.Format, Size: a.Size, Version: string(a.Version)}
}

// A RunRef says where a run is, and what it has.
type RunRef struct {
	Object string `json:"object"` // below the catalogue
	Off    int64  `json:"off,omitempty"`
	Commit int64  `json:"commit,omitempty"` // that has added it
	Base   int64  `json:"base,omitempty"`   // of that
	rows.Summary

	tail []byte // if it came with a head or a commit
}

// A Commit says what changed. Fields that do not change are empty.
type Commit struct {
	Catalog string    `json:"catalog"` // a random ID
	Number  int64     `json:"number"`
	Before  string    `json:"before,omitempty"` // BLAKE3 of the commit before
	Base    int64     `json:"base"`             // the commit from which the work began
	Attempt string    `json:"attempt"`          // random
	Time    time.Time `json:"time"`
	Next    int64     `json:"next,omitempty"` // the number of the next commit, if it is not the number after this
	Job     string    `json:"job,omitempty"`  // the work that it ends

	Add      []Archive `json:"add,omitempty"`
	Drop     []ID      `json:"drop,omitempty"`
	Gone     []text    `json:"gone,omitempty"`     // addresses of these, but for those that Add has again
	Deletes  bool      `json:"deletes,omitempty"`  // Runs delete files
	Verified []ID      `json:"verified,omitempty"` // found sound at Time
	Parity   []Parity  `json:"parity,omitempty"`
	Moved    []Move    `json:"moved,omitempty"`
	Runs     []RunRef  `json:"runs,omitempty"`
	Merged   []string  `json:"merged,omitempty"` // runs that Runs replace
	Forget   []ID      `json:"forget,omitempty"` // of archives that are gone, no run has rows any more
	Floor    int64     `json:"floor,omitempty"`
	Entries  int64     `json:"entries,omitempty"` // how many more or less there are
	Bytes    int64     `json:"bytes,omitempty"`

	Plans    []Plan    `json:"plans,omitempty"`    // that are new or have changed; one without a spec is forgotten
	Begins   bool      `json:"begins,omitempty"`   // a listing
	Listed   *Listing  `json:"listed,omitempty"`   // that ends
	Removals []Removal `json:"removals,omitempty"` // of what Drop drops, or of what no commit has
	Removed  []ID      `json:"removed,omitempty"`  // Removals of earlier commits that are done

	Claim *Claim `json:"claim,omitempty"`
	// Source is the address of a bucket whose objects gateways also show, as long as nothing is here, neither a file
	// nor a deletion. "" ends that.
	Source *text `json:"source,omitempty"`

	// Erased is the hash of the commit that this one replaces, because a name was erased. It says nothing else.
	Erased string `json:"erased,omitempty"`

	since  int64  // from which the work began, if it is not Base
	inline []byte // a run, or the tails of Runs
}

// A Claim says which gateway takes changes of objects and has them in its log until commits have them. Without an
// ID, nobody does.
type Claim struct {
	ID      string `json:"id,omitempty"`      // random
	Address string `json:"address,omitempty"` // where others reach it
	Log     text   `json:"log,omitempty"`     // where its log is, for people
	Segment int64  `json:"segment,omitempty"` // number of the last segment of the log that commits have
}

// NewClaim returns a claim to be recorded.
func NewClaim(id, address, log string) *Claim {
	return &Claim{ID: id, Address: address, Log: text(log)}
}

// Through names the source in a commit.
func (c *Commit) Through(address string) { c.Source = new(text(address)) }

// A Plan says what a fleet packs, and into what.
type Plan struct {
	Name   text            `json:"name"`
	Spec   json.RawMessage `json:"spec,omitempty"`
	Commit int64           `json:"commit,omitempty"` // that has added it
}

// NewPlan returns a plan to be recorded. Without a spec, the plan is forgotten.
func NewPlan(name string, spec json.RawMessage) Plan { return Plan{Name: text(name), Spec: spec} }

// A Listing was complete: it began after a commit, and found all objects of some roots whose names are in
// [From, Before).
type Listing struct {
	Number int64         `json:"number"`
	Roots  catalog.Roots `json:"roots"`
	From   text          `json:"from,omitempty"`
	Before text          `json:"before,omitempty"`
}

// mostListings is how many listings a state has: those that ended last.
const mostListings = 10_000

// NewListing returns a listing to be recorded.
func NewListing(number int64, roots catalog.Roots, from, before string) *Listing {
	return &Listing{number, roots, text(from), text(before)}
}

// includes reports whether a listing of the same roots has no further names.
func (l *Listing) includes(of Listing) bool {
	return of.Roots == l.Roots && l.From <= of.From && (l.Before == "" || of.Before != "" && of.Before <= l.Before)
}

// A Removal is an archive that is to be removed from its store, some time after Commit has dropped it or given it up.
type Removal struct {
	ID      ID    `json:"id"`
	Address text  `json:"address"`
	Size    int64 `json:"size"`
	Version text  `json:"version,omitempty"`
	Commit  int64 `json:"commit,omitempty"`
}

// A Done is a job that a commit has ended.
type Done struct {
	Job    string `json:"job"`
	Commit int64  `json:"commit"`
}

// A Parity says which parity an archive has now.
type Parity struct {
	Archive ID     `json:"archive"`
	Parity  string `json:"parity"`
}

// A Move says that addresses which begin with Old now begin with New. What was written up to Commit
// may have the old ones.
type Move struct {
	Old    text  `json:"old"`
	New    text  `json:"new"`
	Commit int64 `json:"commit,omitempty"` // that says so
}

func (m Move) of(address text) text {
	if rest, ok := strings.CutPrefix(string(address), string(m.Old)); ok {
		return m.New + text(rest)
	}
	return address
}

// moved returns the address now of an archive that had this one after commit base.
func (s *State) moved(address text, base int64) text {
	for _, m := range s.Moves {
		if m.Commit > base {
			address = m.of(address)
		}
	}
	return address
}

// A State is everything after a commit.
type State struct {
	Catalog  string    `json:"catalog"`
	Number   int64     `json:"number"`
	Hash     string    `json:"hash"` // BLAKE3 of that commit
	Time     time.Time `json:"time"`
	Floor    int64     `json:"floor,omitempty"`
	Runs     []RunRef  `json:"runs,omitempty"`
	Tails    []int     `json:"tails,omitempty"`   // lengths of what follows; 0 if it must be read
	Dropped  []ID      `json:"dropped,omitempty"` // archives of which runs may still have rows
	Archives []Archive `json:"archives,omitempty"`
	Moves    []Move    `json:"moves,omitempty"`
	Jobs     []Done    `json:"jobs,omitempty"`
	Plans    []Plan    `json:"plans,omitempty"`
	Listings []Listing `json:"listings,omitempty"`
	Removals []Removal `json:"removals,omitempty"`
	Claim    *Claim    `json:"claim,omitempty"`
	Source   text      `json:"source,omitempty"`
	Next     int64     `json:"next,omitempty"` // the number of the next commit, if it is not the number after this
	Entries  int64     `json:"entries"`
	Bytes    int64     `json:"bytes"` // of archives
	// Stored is the commit after which a state was last stored.
	Stored int64 `json:"stored,omitempty"`
	// Elsewhere is the commit after which a state has Archives, Jobs and Removals. The head is without them
	// if there are many archives.
	Elsewhere int64 `json:"elsewhere,omitempty"`

	last    *numberedCommit // the commit that made it, if it was read
	told    int64           // the last commit that may delete files, or tell of originals
	at      map[ID]int      // in Archives
	dropped map[ID]bool
}

// framed is an object: a line that says what it is, the length of a compressed JSON, that, other
// bytes, and a CRC-32.
func framed(magic string, v any, more []byte) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(text) > mostText {
		return nil, fmt.Errorf("a catalogue of %d bytes, expected at most %d", len(text), mostText)
	}
	return frame(magic, rows.Pack(text), more), nil
}

func frame(magic string, packed, more []byte) []byte {
	b := binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(packed)))
	b = append(append(b, packed...), more...)
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

var (
	errFrame    = errors.New("it does not begin as one")
	errChecksum = errors.New("the checksum does not match")
)

// unframed parses what framed has made.
func unframed(b []byte, magic string, v any) (more []byte, err error) {
	const rest = 8 // length and checksum
	if len(b) < len(magic)+rest || string(b[:len(magic)]) != magic {
		return nil, errFrame
	}
	end := len(b) - 4
	if binary.LittleEndian.Uint32(b[end:]) != crc32.ChecksumIEEE(b[:end]) {
		return nil, errChecksum
	}
	b = b[len(magic):end]
	n := binary.LittleEndian.Uint32(b)
	if b = b[4:]; uint64(n) > uint64(len(b)) {
		return nil, errFrame
	}
	text, err := rows.Unpack(b[:n], mostText)
	if err != nil {
		return nil, err
	}
	return b[n:], json.Unmarshal(text, v)
}

func hashOf(b []byte) string {
	sum := blake3.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func isHash(text string) bool {
	b, err := hex.DecodeString(text)
	return err == nil && len(b) == 32
}

func parseCommit(b []byte, number int64) (*Commit, error) {
	c := &Commit{}
	more, err := unframed(b, commitMagic, c)
	if err != nil {
		return nil, err
	}
	if c.Number != number || c.Catalog == "" || len(c.Add) > maxOrdinals || number >= math.MaxInt64/maxOrdinals {
		return nil, fmt.Errorf("it is not commit %d of a catalogue", number)
	}
	if c.Erased != "" && (!isHash(c.Erased) || len(c.Runs)+len(c.Add)+len(c.Drop)+len(c.Merged)+len(more) > 0) {
		return nil, fmt.Errorf("it is not what an erasure has left of commit %d", number)
	}
	c.inline = more
	for i := range c.Runs {
		r := &c.Runs[i]
		r.Commit, r.Base = number, c.Base
		if err := r.check(); err != nil {
			return nil, err
		}
		if r.Object == "" { // the run itself follows
			r.Object, r.Off = commitName(number), int64(len(b)-4-len(more))
			if int64(len(more)) < r.Size {
				return nil, errFrame
			}
			r.tail, more = more[r.Size-r.Tail:r.Size], more[r.Size:]
		} else if int64(len(more)) < r.Tail {
			return nil, errFrame
		} else { // its end follows
			r.tail, more = more[:r.Tail], more[r.Tail:]
		}
	}
	return c, nil
}

func (r *RunRef) check() error {
	if r.Size < 0 || r.Tail < 0 || r.Tail > r.Size || r.Off < 0 || r.Rows < 0 || r.Commit < 0 || strings.Contains(r.Object, "..") || strings.HasPrefix(r.Object, "/") {
		return fmt.Errorf("an impossible run %.100q", r.Object)
	}
	return nil
}

func (c *Commit) encode() ([]byte, error) { return framed(commitMagic, c, c.inline) }

func parseState(b []byte) (*State, error) {
	s := &State{}
	more, err := unframed(b, Magic, s)
	if err != nil {
		return nil, err
	}
	if s.Number < 1 || s.Number >= math.MaxInt64/maxOrdinals || s.Catalog == "" || len(s.Tails) > len(s.Runs) || len(s.Runs) > mostRuns {
		return nil, errFrame
	}
	for i := range s.Runs {
		r := &s.Runs[i]
		if err := r.check(); err != nil || r.Commit > s.Number {
			return nil, cmp.Or(err, errFrame)
		}
		if i < len(s.Tails) && s.Tails[i] > 0 {
			n := s.Tails[i]
			if int64(n) != r.Tail || n > len(more) {
				return nil, errFrame
			}
			r.tail, more = more[:n], more[n:]
		}
	}
	s.told = s.Number
	s.number()
	return s, nil
}

// number makes the maps of a state.
func (s *State) number() {
	s.at, s.dropped = make(map[ID]int, len(s.Archives)), map[ID]bool{}
	for i, a := range s.Archives {
		s.at[a.ID] = i
	}
	for _, id := range s.Dropped {
		s.dropped[id] = true
	}
}

// headTails is how many bytes of tails a head has, and headArchives of archives, about.
const (
	headTails    = 224 << 10
	headArchives = 100
)

// encode returns the object of a state. If another one is stored, many archives are left out.
func (s *State) encode(stored int64) ([]byte, error) {
	x := *s
	x.Stored = stored
	var tails []byte
	x.Tails = make([]int, len(s.Runs))
	for i, r := range s.Runs {
		if n := len(r.tail); n > 0 && len(tails)+n <= headTails {
			x.Tails[i] = n
			tails = append(tails, r.tail...)
		}
	}
	if stored > 0 && len(s.Archives) > headArchives {
		x.Archives, x.Jobs, x.Removals, x.Elsewhere = nil, nil, nil, stored
	}
	return framed(Magic, &x, tails)
}

// after returns the state after a commit, whose object has that hash. It does not change s.
func (s *State) after(c *Commit, hash string) (*State, error) {
	if s.Number > 0 && (c.Catalog != s.Catalog || c.Number != s.next() || c.Before != s.Hash) {
		return nil, fmt.Errorf("commit %d does not follow commit %d of this catalogue", c.Number, s.Number)
	}
	if c.Next != 0 && c.Next <= c.Number {
		return nil, fmt.Errorf("commit %d names commit %d as the next one", c.Number, c.Next)
	}
	n := *s
	if c.Deletes || len(c.Runs) > 0 && len(c.Add)+len(c.Merged) == 0 {
		n.told = c.Number
	}
	n.Next = c.Next
	n.last = nil
	n.Catalog, n.Number, n.Hash, n.Time, n.Floor = c.Catalog, c.Number, hash, c.Time, max(s.Floor, c.Floor)
	n.Archives, n.Runs, n.Dropped = slices.Clone(s.Archives), slices.Clone(s.Runs), slices.Clone(s.Dropped)
	drop, parity := map[ID]bool{}, map[ID]string{}
	for _, p := range c.Parity {
		parity[p.Archive] = p.Parity
	}
	for _, id := range c.Drop {
		drop[id] = true
	}
	n.Entries, n.Bytes = n.Entries+c.Entries, n.Bytes+c.Bytes
	n.Archives = slices.DeleteFunc(n.Archives, func(a Archive) bool { return drop[a.ID] })
	n.Dropped = append(n.Dropped, slices.Sorted(maps.Keys(drop))...)
	n.Dropped = slices.DeleteFunc(n.Dropped, func(id ID) bool { return slices.Contains(c.Forget, id) })
	for i, a := range c.Add {
		if s.Elsewhere > 0 {
			break
		}
		a.ID, a.Added = idOf(rows.ArchiveID{Commit: c.Number, Ordinal: i}), c.Time
		n.Archives = append(n.Archives, a)
	}
	n.records(c, s.Elsewhere > 0)
	for i := range n.Archives {
		a := &n.Archives[i]
		if slices.Contains(c.Verified, a.ID) {
			a.Verified = c.Time
		}
		if p, ok := parity[a.ID]; ok {
			a.Parity = p
		}
		for _, m := range c.Moved {
			a.Address = m.of(a.Address)
		}
	}
	n.Moves = slices.Clone(s.Moves)
	for _, m := range c.Moved {
		m.Commit = c.Number
		n.Moves = append(n.Moves, m)
	}
	merged := map[string]bool{}
	for _, name := range c.Merged {
		merged[name] = true
	}
	n.Runs = slices.DeleteFunc(n.Runs, func(r RunRef) bool { return merged[r.id()] })
	if len(s.Runs)-len(n.Runs) != len(merged) {
		return nil, fmt.Errorf("commit %d merges runs that are not there", c.Number)
	}
	n.Runs = append(n.Runs, c.Runs...)
	slices.SortStableFunc(n.Runs, func(a, b RunRef) int { return cmp.Compare(b.Rows, a.Rows) })
	n.number()
	return &n, nil
}

// next is the number of the commit after a state.
func (s *State) next() int64 { return cmp.Or(s.Next, s.Number+1) }

// records makes the records for a fleet those after a commit. If they are elsewhere, it knows only some.
func (s *State) records(c *Commit, elsewhere bool) {
	s.Plans, s.Listings = slices.Clone(s.Plans), slices.Clone(s.Listings)
	for _, p := range c.Plans {
		s.Plans = slices.DeleteFunc(s.Plans, func(is Plan) bool { return is.Name == p.Name })
		if p.Commit = c.Number; len(p.Spec) > 0 {
			s.Plans = append(s.Plans, p)
		}
	}
	if c.Claim != nil {
		if s.Claim = c.Claim; s.Claim.ID == "" {
			s.Claim = nil
		}
	}
	if c.Source != nil {
		s.Source = *c.Source
	}
	if l := c.Listed; l != nil {
		s.Listings = append(slices.DeleteFunc(s.Listings, l.includes), *l)
		if n := len(s.Listings) - mostListings; n > 0 {
			s.Listings = s.Listings[n:] // only less may be known of what is missing
		}
	}
	if elsewhere {
		return
	}
	s.Jobs = slices.DeleteFunc(slices.Clone(s.Jobs), func(d Done) bool { return d.Commit < s.Floor })
	if c.Job != "" {
		s.Jobs = append(s.Jobs, Done{c.Job, c.Number})
	}
	s.Removals = slices.DeleteFunc(slices.Clone(s.Removals), func(r Removal) bool { return slices.Contains(c.Removed, r.ID) })
	for _, r := range c.Removals {
		r.Commit = c.Number
		s.Removals = append(s.Removals, r)
	}
	for i := range s.Removals {
		for _, m := range c.Moved {
			s.Removals[i].Address = m.of(s.Removals[i].Address)
		}
	}
}

// id names a run in a catalogue.
func (r *RunRef) id() string { return r.Object + "+" + strconv.FormatInt(r.Off, 10) }

func commitName(n int64) string { return fmt.Sprintf("commits/%016d", n) }
func stateName(n int64) string  { return fmt.Sprintf("states/%016d", n) }
