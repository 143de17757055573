package explore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

// maxProblems is how many problems of a check are kept. Further ones are only
// counted.
const maxProblems = 10_000

type verifies struct {
	mu      sync.Mutex
	of      map[string]*verification
	running int
}

// A verification is a check of an archive. It continues when the user leaves
// the page.
type verification struct {
	cancel context.CancelCauseFunc
	meter  holdall.Meter
	begun  time.Time
	id     string // of the archive

	mu       sync.Mutex
	changed  chan struct{}
	state    string // "running", "complete", "cancelled", "failed"
	quick    bool
	problems []problemJSON
	counts   map[string]int64 // by severity
	hurt     map[string]hurt  // by path: entries with problems, and the folders that contain them
	sum      holdall.Verified
	why      string
	ended    time.Time
}

type problemJSON struct {
	Severity string  `json:"severity"`
	Code     string  `json:"code"`
	Class    string  `json:"class,omitempty"`
	Volume   string  `json:"volume,omitempty"`
	Off      *int64  `json:"off,omitempty"`
	Path     *string `json:"path,omitempty"`
	Message  string  `json:"message"`

	volume string
	spans  []mark // where it is
}

// hurt describes what a check found wrong with an entry, and below a folder.
type hurt struct {
	own   format.Severity // the worst problem of the entry itself
	below int             // how many entries below are damaged
}

// maxHurt is how many paths with problems are recorded.
const maxHurt = 100_000

// hurts records that a path has a problem. x.mu must be held.
func (x *verification) hurts(path string, s format.Severity) {
	was := x.hurt[path]
	if s <= was.own || s == format.Note || len(x.hurt) >= maxHurt {
		return
	}
	x.hurt[path] = hurt{s, was.below}
	if s != format.Error {
		return
	}
	for dir := path; dir != ""; {
		dir = parentOf(dir)
		h := x.hurt[dir]
		h.below++
		x.hurt[dir] = h
	}
}

// health returns a function that gives the results of the last check for paths
// of a view. For other views than the checked one, it gives nothing.
func (h *Handler) health(v *view) func(path string) healthJSON {
	x := h.verification(v.Name)
	if x == nil || v.of != v || v.isAutopsy() {
		return func(string) healthJSON { return healthJSON{} }
	}
	return func(path string) healthJSON {
		if path == "." {
			path = ""
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		e := x.hurt[path]
		j := healthJSON{Below: e.below}
		switch e.own {
		case format.Error:
			j.Health = "damaged"
		case format.Warning:
			j.Health = "odd"
		}
		return j
	}
}

// healthJSON is embedded in everything that names an entry.
type healthJSON struct {
	Health string `json:"health,omitempty"` // "damaged", "odd"
	Below  int    `json:"below,omitempty"`  // damaged entries below a folder
}

func (h *Handler) problemsOf(v *view, path string) (list []problemJSON) {
	x := h.verification(v.Name)
	if x == nil || v.of != v || h.health(v)(path).Health == "" {
		return nil
	}
	path = format.Escape(path)
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, p := range x.problems {
		if p.Path != nil && *p.Path == path && len(list) < 20 {
			list = append(list, p)
		}
	}
	return list
}

type mark struct {
	volume   string
	off, len int64
}

var (
	errCancelled = errors.New("the check was cancelled")
	errReplaced  = errors.New("the archive was replaced or changed while it was checked")
)

// maxChecks is how many finished checks are kept.
const maxChecks = 256

// forget removes the results of a check of an archive that was replaced. A
// running check ends with the reason.
func (c *verifies) forget(archive string, is func(id string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch x := c.of[archive]; {
	case x == nil || !is(x.id) || x.is("failed"):
	case x.is("running"):
		x.cancel(errReplaced)
	default:
		delete(c.of, archive)
	}
}

// trim removes the check that ended first, if there are too many.
func (c *verifies) trim() {
	oldest, at := "", time.Time{}
	for name, x := range c.of {
		x.mu.Lock()
		if !x.ended.IsZero() && (oldest == "" || x.ended.Before(at)) {
			oldest, at = name, x.ended
		}
		x.mu.Unlock()
	}
	if len(c.of) > maxChecks && oldest != "" {
		delete(c.of, oldest)
	}
}

func (q *question) startVerify() error {
	v := q.view()
	depth := q.word("depth", "full", "quick")
	if q.err != nil {
		return q.err
	}
	if v.in.Store() == nil {
		return bad("only an archive by itself can be verified, not a folder or a set")
	}
	h, v := q.h, v.of
	h.verify.mu.Lock()
	defer h.verify.mu.Unlock()
	if old := h.verify.of[v.Name]; old != nil && old.is("running") {
		return q.json(old.json())
	}
	if h.verify.running >= h.o.Verifies {
		return busy(fmt.Sprintf("%d archives are being checked: try again when one is done", h.verify.running))
	}
	ctx, cancel := context.WithCancelCause(h.ctx)
	x := &verification{cancel: cancel, begun: time.Now(), id: v.id, state: "running", quick: depth == "quick", changed: make(chan struct{}), counts: map[string]int64{}, hurt: map[string]hurt{}}
	x.meter.WantTotal = true
	h.verify.of[v.Name] = x
	h.verify.running++
	h.verify.trim()
	release := v.Hold()
	h.wg.Go(func() {
		defer release()
		x.run(ctx, h, v)
		cancel(nil)
		h.verify.mu.Lock()
		h.verify.running--
		h.verify.mu.Unlock()
	})
	return q.json(x.json())
}

func (x *verification) run(ctx context.Context, h *Handler, v *view) {
	ctx, stop := context.WithTimeoutCause(ctx, h.o.VerifyTime, fmt.Errorf("the check took longer than %v", h.o.VerifyTime))
	defer stop()
	o := v.in.Options()
	o.View, o.Format = v.name, v.in.Format().Name
	sum, err := holdall.Verify(ctx, v.in.Name(), holdall.VerifyOptions{OpenOptions: o.In(v.in.Store()), Quick: x.quick, Meter: &x.meter}, func(p holdall.Problem) {
		x.found(ctx, v, p)
	})
	if err == nil && !v.Current(ctx) {
		err = store.ErrChanged // the last bytes that were read may be from the new one
	}
	h.changed(err, v)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sum, x.ended = sum, time.Now()
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errCancelled):
		x.state = "cancelled"
	case errors.Is(cause, errReplaced), errors.Is(err, store.ErrChanged):
		// The results are valid for neither version.
		x.state, x.why, x.problems, x.counts, x.hurt = "failed", errReplaced.Error(), nil, map[string]int64{}, nil
	case err == nil:
		x.state = "complete"
	case h.ctx.Err() != nil:
		x.state, x.why = "failed", errClosed.Error()
	default:
		x.state = "failed"
		x.why = "could not be checked; the server's log has the reason"
		if cause != nil {
			x.why = cause.Error()
		}
		h.log.Error("cannot be verified", "archive", format.Escape(v.Name), "error", err)
	}
	x.tell()
}

// tell wakes waiting requests. x.mu must be held.
func (x *verification) tell() {
	close(x.changed)
	x.changed = make(chan struct{})
}

// found records a problem, and finds its place on the map.
func (x *verification) found(ctx context.Context, v *view, p holdall.Problem) {
	j := problemJSON{Severity: p.Severity.String(), Code: string(p.Code), Class: string(p.Class), Message: format.Escape(p.Message), Volume: format.Escape(p.Volume), volume: p.Volume}
	if p.HasEntry {
		j.Path = new(format.Escape(p.Entry))
	}
	if p.Off >= 0 {
		j.Off = new(p.Off)
	}
	if p.HasEntry { // all of its content may be affected
		if e, err := v.in.Lookup(ctx, p.Entry); err == nil && e.Kind.HasContent() && e.Fault == nil {
			for s, err := range v.in.Extents(ctx, e) {
				if err != nil || len(j.spans) == 16 {
					break
				}
				if !s.External && s.Len > 0 {
					j.spans = append(j.spans, mark{s.Object, s.Off, s.Len})
				}
			}
		}
	}
	if len(j.spans) == 0 && p.Off >= 0 {
		j.spans = []mark{{p.Volume, p.Off, 1}}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.counts[j.Severity]++
	if p.HasEntry {
		x.hurts(p.Entry, p.Severity)
	}
	if len(x.problems) < maxProblems {
		x.problems = append(x.problems, j)
	}
}

func (x *verification) is(state string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.state == state
}

type verifyJSON struct {
	State    string           `json:"state"` // "none" if there was no check
	Quick    bool             `json:"quick,omitempty"`
	Begun    int64            `json:"begun,omitempty"`
	Seconds  float64          `json:"seconds"`
	Entries  int64            `json:"entries"`
	Bytes    int64            `json:"bytes"`
	Of       int64            `json:"of_entries,omitempty"`
	OfBytes  int64            `json:"of_bytes,omitempty"`
	Proven   holdall.Proven   `json:"proven"`
	Unproven int64            `json:"unproven,omitempty"`
	Counts   map[string]int64 `json:"counts,omitempty"`
	Why      string           `json:"why,omitempty"`
	Health   string           `json:"health"` // "unknown", "good", "structure", "unproven", "odd", "damaged"
}

func (x *verification) json() verifyJSON {
	if x == nil {
		return verifyJSON{State: "none", Health: "unknown"}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.locked()
}

func (x *verification) locked() verifyJSON {
	p := x.meter.Snapshot()
	j := verifyJSON{State: x.state, Quick: x.quick, Begun: x.begun.UnixMilli(), Entries: p.Entries, Bytes: p.Bytes, Of: p.TotalEntries, OfBytes: p.TotalBytes,
		Counts: maps.Clone(x.counts), Why: format.Escape(x.why), Health: "unknown"}
	end := x.ended
	if x.state == "running" {
		end = time.Now()
	} else if x.state == "complete" {
		j.Entries, j.Bytes, j.Proven, j.Unproven = x.sum.Entries, x.sum.Bytes, x.sum.Proven, x.sum.Unproven
		j.Health = map[string]string{"sound": "good", "structure-sound": "structure", "unproven": "unproven"}[x.sum.Verdict()]
	}
	if x.counts["warning"] > 0 {
		j.Health = "odd"
	}
	if x.counts["error"] > 0 {
		j.Health = "damaged"
	}
	j.Seconds = end.Sub(x.begun).Seconds()
	return j
}

func (h *Handler) verification(archive string) *verification {
	h.verify.mu.Lock()
	defer h.verify.mu.Unlock()
	return h.verify.of[archive]
}

func (q *question) cancelVerify() error {
	v := q.view()
	if q.err != nil {
		return q.err
	}
	if x := q.h.verification(v.Name); x != nil {
		x.cancel(errCancelled)
	}
	return q.json(map[string]bool{"cancelled": true})
}

// marks returns where the last check of an archive found problems.
func (h *Handler) marks(archive string, m *spanMap) (list [][2]int64) {
	x := h.verification(archive)
	if x == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, p := range x.problems {
		for _, s := range p.spans {
			if off, n := m.place(s.volume, s.off, max(s.len, 1)); n > 0 {
				list = append(list, [2]int64{off, n})
			}
		}
	}
	return list
}

// verifyEvents sends the progress of a check as events: "progress", "problems"
// and at the end "done".
func (q *question) verifyEvents() error {
	v := q.view()
	if q.err != nil {
		return q.err
	}
	x := q.h.verification(v.Name)
	head := q.w.Header()
	head.Set("Content-Type", "text/event-stream")
	head.Set("X-Accel-Buffering", "no")
	flush := http.NewResponseController(q.w)
	send := func(event string, value any) {
		fmt.Fprintf(q.w, "event: %s\ndata: ", event)
		writeJSON(q.w, value)
		fmt.Fprint(q.w, "\n")
		_ = flush.Flush()
	}
	told := 0
	for {
		var news []problemJSON
		var changed chan struct{}
		j := x.json()
		if x != nil {
			x.mu.Lock()
			j, news, changed = x.locked(), x.problems[told:min(len(x.problems), told+500)], x.changed
			x.mu.Unlock()
		}
		if told += len(news); len(news) > 0 {
			send("problems", news)
			if len(news) == 500 {
				continue
			}
		}
		if j.State != "running" {
			send("done", j)
			return nil
		}
		send("progress", j)
		select {
		case <-changed:
		case <-time.After(200 * time.Millisecond):
		case <-q.ctx().Done():
			return nil
		}
	}
}
