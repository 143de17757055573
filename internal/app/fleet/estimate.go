package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/bucket"
	"github.com/holdall/holdall/store/storekit"
)

// These are the units of an estimate. Values that the working code defines are
// taken from it: pack.PieceSize, pack.LeastCopy, bucket.Parts, bucket.Copies.
const (
	keysListed = 1000    // by one request
	readAtOnce = 4 << 20 // bytes of an archive read by one request, when much of it is read
	readBack   = 1 << 20 // the same, when a retirement compares it
	gigabyte   = 1 << 30 // the unit in which services count storage
)

// These are a worker's further requests after it has packed a chunk: for the
// end of its archive and its index, for the catalogue, and for leftover uploads of its name. A
// part also has a list of its contents, which is read again when the parts are
// merged.
var (
	perChunk   = Requests{List: 2, Get: 14, Put: 2}
	perPart    = Requests{List: 4, Get: 29, Put: 8}
	perArchive = Requests{List: 3, Get: 30, Put: 12}  // of parts
	perRange   = Requests{List: 10, Get: 32, Put: 11} // of originals to retire
)

// Requests are counted in the way in which services charge for them.
type Requests struct {
	List int64 `json:"list"`
	Get  int64 `json:"get"`  // and HEAD
	Put  int64 `json:"put"`  // objects and parts sent, uploads begun and completed
	Copy int64 `json:"copy"` // parts copied by the server
}

func (r *Requests) add(more Requests) {
	r.List += more.List
	r.Get += more.Get
	r.Put += more.Put
	r.Copy += more.Copy
}

// An Estimate is the size of a plan, and the work and cost of packing it.
type Estimate struct {
	Planned
	// Copied counts the objects that are large enough to be copied by a server
	// that holds both source and target. Small counts all others.
	Copied, Small Share
	Requests      Requests
	Through       int64 // bytes that pass through the workers
	// ReadBefore is the number of requests to read all objects once at their
	// sources. ReadAfter is the number of requests to read all contents of the
	// archives.
	ReadBefore, ReadAfter int64
	// Sample is what was read in order to measure, if requested.
	Sample Sample

	kept, out int64 // bytes kept in a bucket, and bytes read from one
}

// A Share counts a part of the listed objects.
type Share struct {
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

// DryRun lists the sources and cuts them into chunks as Plan does, but records
// nothing. Without a catalogue, it assumes an empty one. measure is how many
// requests at once read a sample of the listed objects; 0 reads nothing.
// DryRun's memory does not depend on how much it lists.
func DryRun(ctx context.Context, b *book.Book, s Spec, measure int, progress func(Planned)) (Estimate, error) {
	r, err := ready(ctx, b, s)
	e := Estimate{Planned: Planned{Plan: r.plan}}
	if err != nil {
		return e, err
	}
	l, err := r.takeList(ctx, s, &e.Skipped)
	if err != nil {
		return e, err
	}
	defer l.close()
	f := Fleet{Book: b}
	var waiting []chunk
	if b != nil {
		if waiting, err = f.waiting(ctx, r.job); err != nil {
			return e, err
		}
	}
	pl, err := f.planner(ctx, r.job, math.MaxInt64, spansOf(s.Only), waiting, &e.Planned)
	if err != nil {
		return e, err
	}
	defer pl.close()
	sums := &summer{e: &e, far: !r.target.Can().Near, besides: perChunk}
	if r.format.Parts != nil {
		sums.besides = perPart
	}
	for _, o := range r.origins {
		sums.from = append(sums.from, route{far: !o.st.Can().Near, s3: store.Scheme(o.address) == "s3"})
	}
	if can := r.target.Can().CopiesFrom; can != nil && r.format.Parts == nil {
		for i, o := range r.origins {
			sums.from[i].copies = can(storekit.AddressOf(o.st, "x"))
		}
	}
	if measure > 0 {
		sums.picked = newReservoir(samplePieces)
	}
	for {
		cut := &cutter{pl: pl, meet: sums.object}
		_, more, err := cut.one()
		for ; more && err == nil; _, more, err = cut.one() {
			if progress != nil && cut.objects%keysListed == 0 {
				progress(e.Planned)
			}
		}
		if err != nil {
			return e, err
		}
		if of := r.format.Parts; of != nil && pl.number > 0 && (cut.objects == 0 || pl.number%of.Most == 0) {
			e.Chunks++ // the archive of these parts
			if sums.far {
				e.Requests.add(perArchive)
			}
		}
		if cut.objects == 0 {
			break
		}
		pl.number++
		e.Chunks++
		sums.chunk(cut.bytes)
		if progress != nil {
			progress(e.Planned)
		}
	}
	listed := e.Objects + e.Known + e.Archives + e.Markers
	if l != nil {
		e.Requests.Get += l.asked
	} else if slices.ContainsFunc(sums.from, func(p route) bool { return p.far }) {
		e.Requests.List += max(int64(len(r.origins)), (listed+keysListed-1)/keysListed)
	}
	if sums.picked != nil {
		e.Sample, err = r.read(ctx, sums.picked.all(), measure)
	}
	return e, err
}

// A summer adds up the work of packing.
type summer struct {
	e       *Estimate
	from    []route  // by source
	far     bool     // the target is not a disk
	besides Requests // for each chunk
	picked  *reservoir
	sent    int64 // bytes of the chunk that are sent
	copied  int64 // parts of it that the server copies
}

// A route is the relation of a source to the target.
type route struct {
	far, s3 bool
	copies  bool // the target's server can copy from it
}

func (s *summer) object(m Member) {
	e, from := s.e, s.from[m.Origin]
	e.Objects++
	e.Bytes += m.Size
	if from.far {
		e.ReadBefore++
	}
	if from.copies && m.Size >= pack.LeastCopy {
		e.Copied.add(m.Size)
		s.copied += bucket.Copies(m.Size)
		e.Requests.Get += 2 // its attributes, and a check that it is still the same version
		return
	}
	e.Small.add(m.Size)
	e.Through += m.Size
	s.sent += m.Size
	pieces := max(1, (m.Size+pack.PieceSize-1)/pack.PieceSize)
	if from.far {
		e.Requests.Get += pieces
		e.out += m.Size
	}
	if from.s3 && strings.Contains(m.Version, "-") {
		e.Requests.Get += 2 // the checksum of its header, and of its first part
	}
	if s.picked != nil && m.Size > 0 {
		s.picked.offer(m, pieces)
	}
}

func (t *Share) add(bytes int64) {
	t.Objects++
	t.Bytes += bytes
}

// chunk ends a chunk of that many bytes.
func (s *summer) chunk(bytes int64) {
	r := &s.e.Requests
	if !s.far {
		return
	}
	parts := bucket.Parts(s.sent) + s.copied
	if s.copied > 0 { // the index after them is sent
		parts = max(parts, s.copied+1)
	}
	if parts == 0 {
		r.Put++
	} else {
		r.Put += parts - s.copied + 2 // the upload is begun, and completed
		r.Copy += s.copied
	}
	r.add(s.besides)
	s.e.kept += bytes
	s.e.ReadAfter += max(1, (bytes+readAtOnce-1)/readAtOnce)
	s.sent, s.copied = 0, 0
}

// estimate counts the requests of a range of originals, and what is no longer kept in a bucket after it. No service
// charges for a deletion.
func (r *Retired) estimate(all []*original, archivesFar, bookFar bool) {
	read := map[int64]int64{} // of archives
	for _, x := range all {
		far := !x.st.Can().Near
		if far {
			r.Requests.Get++
		}
		if far && x.sum.Part > 0 {
			r.Requests.Get++
		}
		if x.by != "" && archivesFar {
			read[x.Archive] += x.Size
		}
		if far && x.by == "bytes" {
			r.Requests.Get += (x.Size + rereadBlock - 1) / rereadBlock
			r.Read += x.Size
		}
		if far && x.why == "" {
			if r.Freed += x.Size; store.Scheme(storekit.AddressOf(x.st, x.name)) == "gs" {
				r.Requests.Get++ // for the conditions of the deletion
			}
		}
	}
	for _, n := range read {
		r.Requests.Get += (n + readBack - 1) / readBack
		r.Read += n
	}
	if bookFar { // most of these are the catalogue's
		r.Requests.add(perRange)
	}
}

// Estimate is what a retirement takes, and what it saves, in terms of costs.
func (r Retired) Estimate() Estimate {
	return Estimate{Requests: r.Requests, kept: r.Freed, out: r.Read}
}

// Prices are the prices of a service.
type Prices struct {
	Name     string `json:"name,omitempty"` // the service and the date of the prices
	Currency string `json:"currency"`
	Per1000  struct {
		Get  float64 `json:"get"`
		Put  float64 `json:"put"`
		Copy float64 `json:"copy"`
		List float64 `json:"list"`
	} `json:"per_1000"`
	PerGBMonth float64 `json:"per_gb_month"` // of 2^30 bytes
	PerGBOut   float64 `json:"per_gb_out"`
}

func ListPrices() Prices {
	p := Prices{Name: "Amazon's list prices of January 2025 for S3 Standard in us-east-1, read from the same region", Currency: "USD", PerGBMonth: 0.023}
	p.Per1000.Get, p.Per1000.Put, p.Per1000.Copy, p.Per1000.List = 0.0004, 0.005, 0.005, 0.005
	return p
}

const maxPrices = 1 << 20

// ReadPrices reads prices as JSON. A missing price is 0; an unknown one is an
// error.
func ReadPrices(r io.Reader) (p Prices, err error) {
	b, err := io.ReadAll(io.LimitReader(r, maxPrices+1))
	if err != nil {
		return p, err
	}
	if len(b) > maxPrices {
		return p, fmt.Errorf("prices: more than %d bytes", maxPrices)
	}
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	if err = d.Decode(&p); err == nil && d.More() {
		err = errors.New("expected the end after the object")
	}
	if err != nil {
		return p, fmt.Errorf("prices: %w", err)
	}
	for _, x := range []float64{p.Per1000.Get, p.Per1000.Put, p.Per1000.Copy, p.Per1000.List, p.PerGBMonth, p.PerGBOut} {
		if x < 0 {
			return p, fmt.Errorf("prices: expected 0 or more, found %v", x)
		}
	}
	if p.Currency == "" || p.Currency != format.Escape(p.Currency) || len(p.Currency) > 16 {
		return p, fmt.Errorf("prices: expected a currency, found %q", p.Currency)
	}
	return p, nil
}

// A Cost is in the currency of the prices.
type Cost struct {
	Requests float64 `json:"requests"`
	Out      float64 `json:"out"`
	Month    float64 `json:"month"` // of keeping the content
	// These are the costs of reading everything once, as objects and as archives.
	ReadBefore float64 `json:"read_before"`
	ReadAfter  float64 `json:"read_after"`
}

// Cost returns the cost of an estimate at some prices.
func (p Prices) Cost(e Estimate) Cost {
	k := p.Per1000
	gb := func(n int64) float64 { return float64(n) / gigabyte }
	before := 0.0
	if e.ReadBefore > 0 {
		before = gb(e.Bytes) * p.PerGBOut
	}
	return Cost{
		Requests:   (float64(e.Requests.List)*k.List + float64(e.Requests.Get)*k.Get + float64(e.Requests.Put)*k.Put + float64(e.Requests.Copy)*k.Copy) / 1000,
		Out:        gb(e.out) * p.PerGBOut,
		Month:      gb(e.kept) * p.PerGBMonth,
		ReadBefore: float64(e.ReadBefore)*k.Get/1000 + before,
		ReadAfter:  float64(e.ReadAfter)*k.Get/1000 + gb(e.kept)*p.PerGBOut,
	}
}

// Hours returns how long the data that passes through the workers takes at a
// rate in bytes a second, or 0 if there is no rate.
func (e Estimate) Hours(rate float64) float64 {
	if rate <= 0 || math.IsInf(rate, 0) {
		return 0
	}
	return float64(e.Through) / rate / 3600
}
