package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/fleet/queue"
	"github.com/holdall/holdall/store/storekit"
)

// A Reason is why an original is not removed.
type Reason string

// Reasons.
const (
	NoVersion       Reason = "no version"       // the packed version is unknown
	TooYoung        Reason = "too young"        // it was packed too recently
	NoChecksum      Reason = "no checksum"      // its service has none, and it must not be read again
	OriginalChanged Reason = "original changed" // it has changed
	HeadersChanged  Reason = "headers changed"  // its headers or its time have
	Headers         Reason = "headers"          // it has some, which the archive's format does not keep
	Tags            Reason = "tags"             // it has some, which no archive keeps
	StorageClass    Reason = "storage class"    // it has another one than usual
	Redirect        Reason = "redirect"         // of a website
	Lock            Reason = "lock"             // it must be kept
	ACL             Reason = "acl"              // others than its owner may read or change it, or who may is unknown
	OriginalGone    Reason = "original gone"    // it does not exist, and was not retired
	Moved           Reason = "moved"            // its file was packed or rewritten meanwhile
	Refused         Reason = "refused"          // its service refuses to show or remove it
	ArchiveChanged  Reason = "archive changed"  // it differs from the one that the catalogue records, or is gone
	ArchiveDamaged  Reason = "archive damaged"  // the packed file differs from the catalogue's record
	Unreadable      Reason = "unreadable"       // the archive cannot be read
	Differs         Reason = "differs"          // the packed file differs from the checksum of the original's service
)

// Unkept are the reasons to leave originals with something that their archive does not keep.
var Unkept = []Reason{Headers, Tags, StorageClass, Redirect, Lock, ACL}

// Fault reports whether a reason needs a person's attention.
func (r Reason) Fault() bool {
	switch r {
	case Refused, ArchiveChanged, ArchiveDamaged, Unreadable, Differs:
		return true
	}
	return false
}

// RetireOptions are options for a retirement.
type RetireOptions struct {
	// OlderThan leaves files that were packed more recently than that.
	OlderThan time.Duration
	// Limit and LimitBytes limit how much is retired; 0 means no limit.
	Limit, LimitBytes int64
	// NoReread leaves originals without a checksum, which are otherwise read again.
	NoReread bool
	// Without are reasons of Unkept for which originals are not left.
	Without []Reason
	// Unconditional also removes originals of a service that ignores the condition of a request which
	// deletes. If one is replaced just before, the new one is lost.
	Unconditional bool
	// Newest says that the catalogue is the newest copy, although all markers are gone.
	Newest bool
	// Jobs is how many originals are requested or removed at once for each range; 0 means 32.
	Jobs int
	// Workers is how many ranges are done at once in this process; 0 means 1. Other workers help.
	Workers int
	// Tries is that of WorkOptions.
	Tries int
	// DryRun proves, but removes nothing.
	DryRun bool
	// Tell, if not nil, is called with what happens to ranges here. Calls are not concurrent.
	Tell func(queue.Event)
	// Meter counts what is read back in this process.
	Meter *holdall.Meter
}

// A Retirement is an original that is removed.
type Retirement struct {
	Path     string `json:"path"`
	Original string `json:"original"` // its address
	Version  string `json:"version"`
	Size     int64  `json:"size"`
	Archive  string `json:"archive"`      // the address of the archive that has it
	By       string `json:"by,omitempty"` // its proof: a checksum, "bytes" or "size"
}

// A Keeping is an original that is left, with the reason.
type Keeping struct {
	Retirement
	Why   Reason `json:"why"`
	Note  string `json:"note,omitempty"`  // details
	Going bool   `json:"going,omitempty"` // it is in the log
}

// Retired is the result of a retirement.
type Retired struct {
	Run string `json:"run"` // for RetirementLog
	// Earlier are runs that were interrupted, which this one has ended. All that they did counts as done here.
	Earlier []string `json:"earlier,omitempty"`
	// Objects were removed, or would be. Finished had been removed already, but were not known to be: by an
	// attempt that was killed, or after a listing had found them. Bytes are those of both.
	Objects  int64            `json:"objects"`
	Bytes    int64            `json:"bytes"`
	Finished int64            `json:"finished,omitempty"`
	Proven   map[string]int64 `json:"proven"`
	Left     map[Reason]int64 `json:"left"`
	Kept     []Keeping        `json:"kept,omitempty"` // those that were checked and left, at most mostKept of a range
	Limited  bool             `json:"limited"`        // there is more, beyond the limit
	// Requests, and the bytes Read from buckets and Freed there, are those of Estimate.
	Requests Requests `json:"requests"`
	Read     int64    `json:"read"`
	Freed    int64    `json:"freed"`
	// Window is the longest time between the last look at an original and its removal.
	Window time.Duration `json:"window_ns"`
}

const mostKept = 1000

func (r *Retired) add(x Retired) {
	r.Objects += x.Objects
	r.Bytes += x.Bytes
	r.Finished += x.Finished
	for by, n := range x.Proven {
		r.Proven[by] += n
	}
	for why, n := range x.Left {
		r.Left[why] += n
	}
	r.Kept = append(r.Kept, x.Kept[:min(len(x.Kept), mostKept-min(len(r.Kept), mostKept))]...)
	r.Requests.add(x.Requests)
	r.Read += x.Read
	r.Freed += x.Freed
	r.Window = max(r.Window, x.Window)
}

// A CarelessError reports that a service ignores the condition of a request which deletes.
type CarelessError struct{ Place string }

func (e *CarelessError) Error() string {
	return fmt.Sprintf("%s: the service deletes an object although it is not the version that the request names (If-Match), so what is written there during a retirement could be lost", format.Escape(e.Place))
}

// A RetiringError reports that a dry run is refused, since jobs of an earlier retirement are unfinished.
type RetiringError struct {
	Plan string
	Jobs int
}

func (e *RetiringError) Error() string {
	return fmt.Sprintf("plan %s: %d jobs of an earlier retirement are unfinished, and this one would do them", format.Escape(e.Plan), e.Jobs)
}

// A range of names is a job. These limit what is in it to about half a minute of work. A single original may be
// larger.
var (
	rangeObjects int64 = 20_000
	rangeBytes   int64 = 1 << 30
)

// retireLong is how long a range may take at first.
func retireLong(objects, bytes int64) time.Duration {
	return min(max(least, time.Duration(objects)*time.Second/500+time.Duration(float64(bytes)/50e6*float64(time.Second))), 24*time.Hour)
}

// retireArgs are what a job needs to know.
type retireArgs struct {
	Run     string    `json:"run"`
	Number  int       `json:"number"`
	From    string    `json:"from"`    // escaped, as Before
	Before  string    `json:"before"`  // of names
	Objects int64     `json:"objects"` // at most
	Bytes   int64     `json:"bytes"`
	Until   time.Time `json:"until,omitzero"` // archives that were added later are too young

	NoReread bool     `json:"no_reread,omitempty"`
	Without  []Reason `json:"without,omitempty"`
	Careless bool     `json:"careless,omitempty"` // the service is
	Many     bool     `json:"many,omitempty"`     // it compares the versions of many objects that one request deletes
	DryRun   bool     `json:"dry_run,omitempty"`
	Jobs     int      `json:"jobs"`
}

// name is that of the job, and begins those of what commits end.
func (a retireArgs) name() string { return fmt.Sprintf(retireKind+"-%s-%06d", a.Run, a.Number) }

// rangeNamed is the inverse of name.
func rangeNamed(name string) (a retireArgs, is bool) {
	if i := strings.LastIndexByte(name, '-'); i > len(retireKind) {
		a.Run = name[len(retireKind)+1 : i]
		a.Number, _ = strconv.Atoi(name[i+1:])
	}
	return a, a.name() == name
}

// A retirer has the originals of a plan retired.
type retirer struct {
	f       Fleet
	j       *job
	o       RetireOptions
	scope   scope
	until   time.Time
	ranges  int
	retired bool // some originals are, or were to be
	marked  bool // there are markers
	raised  bool // of this run, too
	done    Retired

	careless bool // a service ignores the condition of a request which deletes
	single   bool // a service does so if the request deletes many, or has no such requests

	mu     sync.Mutex
	failed map[string]error // the last errors of jobs here
}

// Retire removes those originals of a plan that are proven. A proof reads the packed file back, and compares
// it with the current checksum of the original's service, or with the original. Originals without a proof are
// left. Ranges of names are jobs, so that any worker may do them; Retire returns when they are done. If it is
// killed, workers still do those that it has handed out, and so does the next Retire.
func Retire(ctx context.Context, f Fleet, p Plan, o RetireOptions) (Retired, error) {
	r, err := newRetirer(ctx, f, p, o)
	if err == nil {
		err = r.finish(ctx)
	}
	if err == nil {
		err = r.run(ctx, r.work)
	}
	return r.done, err
}

// finish has the ranges done that interrupted runs have handed out.
func (r *retirer) finish(ctx context.Context) error {
	ranges := map[string]retireArgs{} // by the names of their jobs
	for k, err := range r.f.Queue.Jobs(ctx, r.j.plan.Name) {
		if err != nil {
			return err
		}
		if a, is := rangeNamed(k.Name); is && k.Kind == retireKind && k.Status != queue.SetAside {
			ranges[k.Name] = a
		}
	}
	if len(ranges) == 0 {
		return nil
	}
	if r.o.DryRun { // its worker would do them
		return &RetiringError{r.j.plan.Name, len(ranges)}
	}
	runs := map[string]bool{}
	for _, a := range ranges {
		runs[a.Run] = true
	}
	r.done.Earlier = slices.Sorted(maps.Keys(runs))
	err := r.ready(ctx)
	if err != nil {
		return err
	}
	if err = r.work(ctx, nil); err == nil {
		for _, run := range r.done.Earlier {
			err = cmp.Or(err, r.summarized(ctx, run, ranges))
		}
	}
	return r.did(ctx, slices.Collect(maps.Values(ranges)), err)
}

// summarized adds the ranges of a run that are done.
func (r *retirer) summarized(ctx context.Context, run string, ranges map[string]retireArgs) error {
	for info, err := range storekit.List(ctx, r.f.Book.Store(), r.f.at(retiredKind, r.j, run)+"/") {
		if err != nil {
			return err
		}
		if number, is := strings.CutSuffix(path.Base(info.Name), ".json"); is {
			if a, is := rangeNamed(retireKind + "-" + run + "-" + number); is {
				ranges[a.name()] = a
			}
		}
	}
	return nil
}

// run cuts ranges, and has the jobs done.
func (r *retirer) run(ctx context.Context, work func(context.Context, []queue.Job) error) error {
	for from := ""; ; {
		ranges, next, more, err := r.cut(ctx, from)
		if r.done.Limited, from = more, next; err == nil && len(ranges) > 0 {
			err = r.retire(ctx, ranges, work)
		}
		// Some that count for the limit may have been left.
		if err != nil || !more || len(ranges) == 0 {
			return err
		}
	}
}

func newRetirer(ctx context.Context, f Fleet, p Plan, o RetireOptions) (r *retirer, err error) {
	r = &retirer{f: f, o: o, failed: map[string]error{}, done: Retired{Proven: map[string]int64{}, Left: map[Reason]int64{}}}
	if o.OlderThan > 0 {
		r.until = time.Now().Add(-o.OlderThan)
	}
	if r.j, err = open(ctx, p); err == nil {
		r.marked, err = r.j.current(ctx, f.Book)
	}
	if err != nil {
		return r, err
	}
	// If a source cannot be listed, its objects are not gone.
	for _, origin := range r.j.origins {
		for _, err := range storekit.List(ctx, origin.st, origin.begin) {
			if err != nil {
				return r, err
			}
			break
		}
	}
	s, err := f.Book.Full(ctx)
	if err != nil {
		return r, err
	}
	r.done.Run = fmt.Sprintf("%016d-%s", s.Number, rand.Text()[:8])
	r.retired = slices.ContainsFunc(s.Jobs, func(d book.Done) bool { return strings.HasPrefix(d.Job, r.j.id+"/"+retireKind+"-") })
	r.scope, err = r.j.scope(ctx, f.Book)
	return r, err
}

// cut cuts what may be retired into ranges, as far as the limits allow, and returns where there is more.
func (r *retirer) cut(ctx context.Context, from string) (ranges []retireArgs, next string, more bool, err error) {
	objects, bytes := r.done.Objects+r.done.Finished, r.done.Bytes
	var a *retireArgs
	for l, err := range r.f.Book.Between(ctx, from, "", r.scope.has) {
		if err != nil {
			return nil, "", false, err
		}
		r.retired = r.retired || l.Original != catalog.OriginalStays
		if why, counts := r.j.mayRetire(l, r.scope, r.until); !counts {
			continue
		} else if why != "" {
			r.done.Left[why]++
			continue
		}
		if r.o.Limit > 0 && objects >= r.o.Limit || r.o.LimitBytes > 0 && bytes+l.Size > r.o.LimitBytes {
			return ranges, l.Path, true, nil
		}
		objects, bytes = objects+1, bytes+l.Size
		if a == nil || a.Objects == rangeObjects || a.Bytes+l.Size > rangeBytes {
			ranges = append(ranges, retireArgs{Run: r.done.Run, Number: r.ranges, From: format.Escape(l.Path), Until: r.until,
				NoReread: r.o.NoReread, Without: r.o.Without, DryRun: r.o.DryRun, Jobs: cmp.Or(min(max(r.o.Jobs, 0), maxJobs), 32)})
			a = &ranges[len(ranges)-1]
			r.ranges++
		}
		a.Before, a.Objects, a.Bytes = format.Escape(l.Path+"\x00"), a.Objects+1, a.Bytes+l.Size
	}
	return ranges, "", false, nil
}

// mayRetire reports whether the original of a file may be retired, or why not. It does not count if it is
// retired.
func (j *job) mayRetire(l catalog.Location, of scope, until time.Time) (why Reason, counts bool) {
	switch {
	case !l.Kind.HasContent() || l.Original == catalog.OriginalLeaving:
		return "", false
	case l.ETag == "" && !j.origins[j.originOf(l.Path)].st.Can().Near: // the bytes of a file prove it
		return NoVersion, true
	case !until.IsZero() && of[l.Archive].Added.After(until):
		return TooYoung, true
	}
	return "", true
}

func (r *retirer) retire(ctx context.Context, ranges []retireArgs, work func(context.Context, []queue.Job) error) error {
	jobs, err := r.jobs(ctx, ranges)
	if err != nil {
		return err
	}
	return r.did(ctx, ranges, work(ctx, jobs))
}

// did adds up what ranges have done, after work with a result: what was done counts, even if this was ended.
func (r *retirer) did(ctx context.Context, ranges []retireArgs, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return cmp.Or(err, r.sum(ctx, ranges))
}

func (r *retirer) jobs(ctx context.Context, ranges []retireArgs) ([]queue.Job, error) {
	err := r.ready(ctx)
	if err != nil {
		return nil, err
	}
	jobs := make([]queue.Job, len(ranges))
	for i, a := range ranges {
		a.Careless, a.Many = r.careless, !r.careless && !r.single
		jobs[i] = queue.Job{Plan: r.j.plan.Name, Kind: retireKind, Name: a.name(), Long: retireLong(a.Objects, a.Bytes)}
		if jobs[i].Args, err = json.Marshal(a); err != nil {
			return nil, err
		}
	}
	return jobs, nil
}

// ready finds out whether originals may be removed at all. From then on there are markers: before anything is
// said to be leaving.
func (r *retirer) ready(ctx context.Context) error {
	if r.retired && !r.marked && !r.o.Newest {
		return &UnmarkedError{r.j.origins[0].address}
	}
	if r.o.DryRun || r.raised {
		return nil
	}
	all := r.j.sides()
	for i, o := range r.j.origins {
		careless, err := all[i].careless(ctx, r.f.Book)
		if err == nil && careless && !r.o.Unconditional {
			err = &CarelessError{o.address}
		}
		if err != nil {
			return err
		}
		r.careless = r.careless || careless
		many, err := all[i].many(ctx, r.f.Book)
		if err != nil {
			return err
		}
		r.single = r.single || !many
	}
	err := r.j.raise(ctx, r.f.Book, 0)
	r.raised, r.marked = err == nil, true
	return err
}

// work hands out jobs, and does those that retire originals of the plan until none is left.
func (r *retirer) work(ctx context.Context, jobs []queue.Job) error {
	left := func() (int, error) {
		counts, err := r.f.Queue.Counts(ctx, r.j.plan.Name)
		is := counts[retireKind]
		return is[queue.Waiting] + is[queue.Running] + is[queue.Failed], err
	}
	if _, err := r.f.Queue.Add(ctx, jobs...); err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	w := newWorker(r.f, WorkOptions{Tries: r.o.Tries, Meter: r.o.Meter})
	ended := make(chan error, 1)
	go func() {
		ended <- r.f.Queue.Work(working, queue.WorkOptions{Plans: []string{r.j.plan.Name}, Kinds: []string{retireKind}, Workers: r.o.Workers, Tries: w.o.Tries, Stay: true, Tell: r.o.Tell}, func(ctx context.Context, k queue.Job) error {
			err := w.do(ctx, k)
			r.mu.Lock()
			defer r.mu.Unlock()
			r.failed[k.Name] = err
			return err
		})
	}()
	for {
		if n, err := left(); err != nil || n == 0 {
			stop()
			return cmp.Or(ctx.Err(), err, <-ended)
		}
		select {
		case err := <-ended:
			return cmp.Or(ctx.Err(), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// maxSummary is the largest summary of a range.
const maxSummary = 64 << 20

// sum adds up what ranges have done, whoever did them.
func (r *retirer) sum(ctx context.Context, ranges []retireArgs) error {
	var missing []string
	var mu sync.Mutex
	err := pipe.Each(ctx, pipe.All(ranges), 16, func(ctx context.Context, a retireArgs) error {
		var is Retired
		in, err := readWhole(ctx, r.f.Book.Store(), r.f.at(retiredKind, r.j, a.summary()))
		if err == nil {
			err = errors.Join(json.NewDecoder(io.LimitReader(in, maxSummary)).Decode(&is), in.Close())
		}
		mu.Lock()
		defer mu.Unlock()
		if errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, a.name())
			return nil
		}
		for i := range is.Kept {
			is.Kept[i].Retirement = is.Kept[i].plain()
		}
		r.done.add(is)
		return err
	})
	if err != nil || len(missing) == 0 {
		return err
	}
	problems := map[string]error{}
	for k, err := range r.f.Queue.Jobs(ctx, r.j.plan.Name) {
		if err != nil {
			return err
		}
		if k.Problem != "" {
			problems[k.Name] = errors.New(k.Problem)
		}
	}
	maps.Copy(problems, r.failed)
	err = errors.New("they were cancelled")
	for _, name := range missing {
		err = cmp.Or(problems[name], err)
	}
	return fmt.Errorf("%d of %d ranges of originals are not done: %w", len(missing), len(ranges), err)
}

// Originals counts the outcomes for the originals of the visible files in a plan's archives.
type Originals struct {
	Stay    int64 `json:"there"`
	Retired int64 `json:"retired"`   // or about to be
	Lingers int64 `json:"lingering"` // they were about to be retired, and a listing has found them since
	Missing int64 `json:"missing"`   // at the last listing
}

// OriginalsOf reads all files of a plan's archives.
func OriginalsOf(ctx context.Context, b *book.Book, p Plan) (*Originals, error) {
	n := &Originals{}
	j, err := open(ctx, p)
	if err != nil {
		return n, err
	}
	of, err := j.scope(ctx, b)
	if err != nil {
		return n, err
	}
	for l, err := range b.Between(ctx, "", "", of.has) {
		switch {
		case err != nil:
			return n, err
		case l.Original == catalog.OriginalLeaving:
			n.Retired++
		case l.Original == catalog.OriginalLingers:
			n.Lingers++
		case l.Missing:
			n.Missing++
		default:
			n.Stay++
		}
	}
	return n, nil
}
