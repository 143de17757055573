package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/fleet"
	"github.com/holdall/holdall/internal/app/fleet/river"
	"github.com/holdall/holdall/store"
)

func (a *app) fleetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Pack millions of objects with many workers, each object once",
		Long: `Packs sources of any size into many archives, with any number of workers on one
machine or many. A plan cuts the source into chunks. A worker claims a chunk,
packs it into one archive, and records the archive in the catalogue. A worker
may be killed at any time: another one continues with its chunk.

The plan is kept in the catalogue: --db FILE for workers on one machine, or
postgres://USER@HOST/DATABASE for workers on several. 'holdall catalog init'
creates a catalogue.`,
		Example: `  holdall catalog init
  holdall fleet plan s3://photos -o s3://packed/photos.caf --chunk-size 30GB
  holdall fleet work --workers 4
  holdall fleet status`,
	}
	cmd.PersistentFlags().StringVar(&a.db, "db", "", dbUsage)
	cmd.AddCommand(a.fleetPlanCommand(), a.fleetWorkCommand(), a.fleetStatusCommand(), a.fleetLeftCommand(), a.fleetRetireCommand(), a.fleetCancelCommand(), a.fleetRetryCommand(), a.fleetForgetCommand(), a.fleetCompactCommand(), a.fleetRepairCommand())
	return cmd
}

// These are the sources that notify workers of chunks.
const (
	queueLeases = "leases" // no notifications: workers look for chunks themselves
	queueRiver  = "river"
)

func queueFlag(cmd *cobra.Command, queue *string) {
	cmd.Flags().StringVar(queue, "queue", "", "how workers get chunks: river or leases (default river on PostgreSQL, else leases)")
}

// withFleet calls do with the user's catalogue and with the feed that notifies
// of its chunks, or nil if there is none. workers is the number of workers
// that will use them, or 0.
func (a *app) withFleet(ctx context.Context, queue string, workers int, do func(c *catalog.Catalog, feed fleet.Feed) error) error {
	address, _, err := a.catalogAddress()
	if err != nil {
		return err
	}
	o, feed, postgres := catalog.Options{Workers: workers}, fleet.Feed(nil), catalog.TakesQueue(address)
	switch {
	case queue == queueRiver && !postgres:
		return usage("--queue river needs a catalogue in PostgreSQL, found a file")
	case queue == queueRiver, queue == "" && postgres:
		q := &river.Queue{}
		o.Queue, feed = q, q
	case queue != "" && queue != queueLeases:
		return usage("--queue: expected river or leases, found %q", queue)
	}
	return a.withDatabase(ctx, o, func(c *catalog.Catalog) error { return do(c, feed) })
}

func (a *app) fleetPlanCommand() *cobra.Command {
	var s fleet.Spec
	var size sizeFlag
	var protect shareFlag
	var dry estimating
	var queue string
	var cmd *cobra.Command
	cmd = &cobra.Command{
		Use:   "plan SOURCE... -o TARGET",
		Short: "List sources and cut them into chunks",
		Long: `Lists sources and cuts them into chunks, always in the same way. A source is a
folder, a bucket, or a prefix in a bucket. An address that ends in * means all
keys with that prefix: s3://logs/2026-0*. Each chunk becomes an archive:
TARGET-00001, TARGET-00002, … 'holdall fleet work' packs them.

A DataBundle is one archive with many shards. Each chunk is a shard of TARGET,
and the last chunk makes the index. Later additions become a bundle of their
own, TARGET-00002.

If the plan exists already, new objects are added to it in new chunks: objects
that did not exist before, that have another version now, or that could not be
packed. Run the same command again if it was interrupted, or if the source has
grown.

TARGET may be below a source. Archives in the catalogue and the files beside
them are left out and counted. So are empty objects that only mark folders.

--list FILE plans the objects that a file lists instead: one key below SOURCE
per line, and holdall requests the size of each; or, if the name ends in
.jsonl, JSON lines with "key", "size" and "etag". --inventory plans the objects
of an S3 Inventory (CSV) of SOURCE's bucket. The same plan may use another way
each time.

--dry-run records nothing and needs no catalogue. It prints the size of the
plan, the number of requests that packing takes, and their cost. Prices are
Amazon's list prices, or those of --prices, a file like
{"currency":"USD","per_1000":{"get":0.0004,"put":0.005,"copy":0.005,
"list":0.005},"per_gb_month":0.023,"per_gb_out":0} With --rate it also prints
how long packing takes.`,
		Example: `  holdall fleet plan s3://photos -o s3://packed/photos.caf
  holdall fleet plan s3://logs/2026 s3://logs/2025 -f caf -o s3://packed/logs --chunk-size 4GiB --name logs
  holdall fleet plan s3://photos -f databundle -o s3://sets/photos --compression zstd
  holdall fleet plan s3://photos -o s3://packed/photos.caf --inventory s3://lists/photos/all/2026-05-01T01-00Z/manifest.json
  holdall fleet plan s3://photos -o s3://packed/photos.caf --dry-run --rate measured --workers 8`,
		Args: args(1, -1, "a source"),
		RunE: run(func(ctx context.Context, sources []string) error {
			if s.Target == "" {
				return usage("-o TARGET is missing")
			}
			rate, err := dry.check(cmd.Flags())
			if err != nil {
				return err
			}
			s.Format, s.ChunkSize, s.Param, s.Protect = a.format, int64(size), a.given(format.ToCreate), float64(protect)
			for _, source := range sources {
				s.Sources = append(s.Sources, everywhere(source))
			}
			s.Target = everywhere(s.Target)
			for _, list := range []*string{&s.List, &s.Inventory} {
				if *list != "" {
					*list = everywhere(*list)
				}
			}
			if s.List != "" && s.Inventory != "" {
				return usage("expected one of --list and --inventory")
			}
			if (s.List != "" || s.Inventory != "") && len(sources) > 1 {
				return usage("--list and --inventory: expected one SOURCE, found %d", len(sources))
			}
			s.Tell = func(path string, err error) {
				a.warn("%s: not planned: %s", format.Escape(path), printable(err.Error()))
			}
			if dry.dry {
				return a.estimate(ctx, s, dry, rate)
			}
			return a.withFleet(ctx, queue, 0, func(c *catalog.Catalog, _ fleet.Feed) error {
				m := &holdall.Meter{}
				stop := a.showProgress(m, "planned")
				var told fleet.Planned
				p, err := fleet.Plan(ctx, c, s, func(p fleet.Planned) {
					m.Add(p.Objects-told.Objects, p.Bytes-told.Bytes)
					told = p
				})
				stop()
				if err == nil || p.Chunks > 0 {
					a.tell(asPlannedJSON(p), func() { a.linePlanned(p, "are new") })
				}
				return err
			})
		}),
	}
	fs := cmd.Flags()
	fs.StringVarP(&s.Target, "output", "o", "", "name of the archives without their numbers: s3://bucket/name.caf")
	fs.Var(&size, "chunk-size", "content of each archive or shard (default 30GB)")
	fs.Int64Var(&s.ChunkObjects, "chunk-objects", 0, "maximum number of objects in an archive or shard (default 4000000)")
	fs.StringVar(&s.Name, "name", "", "name of the plan (default TARGET)")
	fs.StringArrayVar(&s.Exclude, "exclude", nil, excludeUsage)
	fs.Var(&protect, "protect", "write parity beside each archive that can restore this share of it: 5%")
	fs.StringVar(&s.List, "list", "", "plan the objects listed in this file: one key per line, or JSON lines in FILE.jsonl")
	fs.StringVar(&s.Inventory, "inventory", "", "plan the objects of an S3 Inventory: address of its manifest.json")
	fs.BoolVar(&s.Plain, "plain", false, "write the bare format, without the digests that holdall adds")
	dry.flags(fs)
	queueFlag(cmd, &queue)
	inParts := slices.DeleteFunc(format.All(), func(f *format.Format) bool { return !f.Chunked && f.Parts == nil })
	fs.StringVar(&a.index, "index", "", "") // this is for archives that are read: a bundle in parts has its own index in one place only
	fs.MarkHidden("index")
	a.formatFlag(cmd, fs, "format of TARGET (default from its extension): ", inParts)
	return a.takes(format.ToCreate, cmd, inParts...)
}

type plannedJSON struct {
	Plan   string `json:"plan"`
	Target string `json:"target"`
	fleet.Planned
}

func asPlannedJSON(p fleet.Planned) plannedJSON {
	return plannedJSON{p.Plan.Name, format.Escape(p.Plan.Target), p}
}

func (a *app) linePlanned(p fleet.Planned, are string) {
	more := ""
	for _, m := range []struct {
		n        int64
		one, are string
	}{{p.Known, "object", "planned before"}, {p.Archives, "object", "of archives left out"}, {p.Markers, "folder marker", "left out"},
		{p.Refused, "object", "refused"}, {p.Vanished, "object", "not found"}, {p.Outside, "listed object", "outside the source"},
		{p.Deleted, "object", "deleted"}, {p.Older, "older version", "left out"}, {p.Doubles, "object", "listed several times"}} {
		if m.n > 0 {
			more += fmt.Sprintf("; %s %s", count(m.n, m.one), m.are)
		}
	}
	fmt.Fprintf(a.out, "%s: %s, %s in %s %s%s\n", format.Escape(p.Plan.Name), count(p.Objects, "object"), a.humanSize(p.Bytes), count(int64(p.Chunks), "chunk"), are, more)
}

func (a *app) fleetWorkCommand() *cobra.Command {
	var o fleet.WorkOptions
	var queue string
	cmd := &cobra.Command{
		Use:   "work [PLAN]",
		Short: "Pack chunks until none is left",
		Long: `Claims chunks of a plan, or of all plans, and packs them until none is left. You
can run any number of workers at once, on this machine, and on others if the
catalogue is in PostgreSQL. A worker that is interrupted releases its chunks.

A chunk that fails is tried again, with longer and longer waits; after --tries
attempts it is set aside. An object that cannot be read is set aside too, and
the others of its chunk are packed. An object that does not match its bucket's
checksum is damaged: it is left out and reported.

The exit code is 1 if any planned object is not packed. 'holdall fleet left'
lists these objects, now or later.`,
		Example: `  holdall fleet work --workers 4
  holdall fleet work --stay --db postgres://holdall@db.example.org/holdall`,
		Args: args(0, 1, "a plan"),
		RunE: run(func(ctx context.Context, plan []string) error {
			switch {
			case o.Workers < 1:
				return usage("--workers: expected at least 1, found %d", o.Workers)
			case o.Tries < 1:
				return usage("--tries: expected at least 1, found %d", o.Tries)
			case o.Lease < time.Second:
				return usage("--lease: expected at least 1s, found %s", o.Lease)
			}
			return a.withFleet(ctx, queue, o.Workers, func(c *catalog.Catalog, feed fleet.Feed) error {
				o.Feed, o.NoVerify = feed, a.noVerify
				if len(plan) > 0 {
					p, err := a.planNamed(ctx, c, plan[0])
					if err != nil {
						return err
					}
					o.Plan = p.Name
				}
				return a.fleetWork(ctx, c, o)
			})
		}),
	}
	fs := cmd.Flags()
	fs.IntVar(&o.Workers, "workers", 1, "chunks to pack at once")
	fs.IntVarP(&o.Jobs, "jobs", "j", 0, "objects of a chunk to read at once (default 16)")
	fs.IntVar(&o.Tries, "tries", 5, "attempts before a chunk is set aside")
	fs.DurationVar(&o.Lease, "lease", 45*time.Second, leaseUsage)
	fs.BoolVar(&o.NoCopy, "no-copy", false, "read every object, to compare it with its checksum and to compute a digest")
	fs.BoolVar(&o.Stay, "stay", false, "wait for more chunks when none is left")
	queueFlag(cmd, &queue)
	return cmd
}

const leaseUsage = "how long a chunk stays reserved for a worker that stopped responding"

func (a *app) fleetWork(ctx context.Context, c *catalog.Catalog, o fleet.WorkOptions) error {
	o.Meter = &holdall.Meter{}
	aside := false
	o.Tell = func(e fleet.Event) {
		aside = aside || slices.ContainsFunc(e.Left, func(m catalog.Member) bool { return m.Outcome != catalog.Packed })
		a.tellWork(e)
	}
	stop := a.showProgress(o.Meter, "packed")
	sum, err := fleet.Work(ctx, c, o)
	stop()
	a.tell(sum, func() {
		fmt.Fprintf(a.out, "packed %s, %s in %s\n", count(sum.Objects, "object"), a.humanSize(sum.Bytes), count(int64(sum.Done), "chunk"))
	})
	return cmp.Or(err, ctx.Err(), answer(sum.SetAside > 0 || aside))
}

// eventJSON is the outcome of a chunk. It is printed as soon as it is known.
type eventJSON struct {
	Chunk    string  `json:"chunk"`
	Event    string  `json:"event"`
	Objects  int64   `json:"objects"`
	Bytes    int64   `json:"bytes"`
	Seconds  float64 `json:"seconds,omitempty"`
	Resumed  int64   `json:"resumed,omitempty"`
	Vanished int64   `json:"vanished,omitempty"`
	Changed  int64   `json:"changed,omitempty"`
	SetAside int64   `json:"set_aside,omitempty"`
	Damaged  int64   `json:"damaged,omitempty"`
	Problem  string  `json:"problem,omitempty"`
}

// tellWork prints the outcome of a chunk: problems always, the rest on
// request.
func (a *app) tellWork(e fleet.Event) {
	j := eventJSON{Chunk: format.Escape(e.Chunk.Name), Event: string(e.What), Objects: e.Chunk.Objects, Bytes: e.Chunk.Bytes, Seconds: e.Took.Seconds(), Resumed: e.Resent}
	if e.What == fleet.Done {
		j.Objects, j.Bytes = e.Chunk.Objects-int64(len(e.Left)), e.Bytes
	}
	for _, m := range e.Left {
		switch m.Outcome {
		case catalog.Vanished:
			j.Vanished++
		case catalog.Changed:
			j.Changed++
		case catalog.Damaged:
			j.Damaged++
		default:
			j.SetAside++
		}
	}
	if e.Err != nil && e.What != fleet.Stopped {
		j.Problem = printable(e.Err.Error())
	}
	if a.json {
		a.printJSON(j)
		return
	}
	switch e.What {
	case fleet.Failed, fleet.SetAside, fleet.Lost:
		a.warn("%s: %s: %s", j.Chunk, e.What, j.Problem)
	case fleet.Done:
		for _, m := range e.Left {
			a.warn("%s: %s: %s%s", j.Chunk, format.Escape(m.Path), m.Outcome, ifAny(": %s", m.Note))
		}
		switch {
		case a.quiet:
		case e.Chunk.Last:
			fmt.Fprintf(a.stderr, "holdall: %s: joined its parts to one archive in %s\n", j.Chunk, e.Took.Round(100*time.Millisecond))
		default:
			fmt.Fprintf(a.stderr, "holdall: %s: %s, %s in %s\n", j.Chunk, count(j.Objects, "object"), a.humanSize(j.Bytes), e.Took.Round(100*time.Millisecond))
		}
	}
}

func (a *app) fleetStatusCommand() *cobra.Command {
	var watch time.Duration
	var originals bool
	cmd := &cobra.Command{
		Use:   "status [PLAN...]",
		Short: "Show the progress of plans",
		Long: `Shows the progress of all plans, or of the given ones: chunks and objects by
state, the workers, the rate, and the time left at that rate. Packed objects are
counted by the bucket's checksum that they were compared with. Objects that are
damaged at the source are listed.`,
		RunE: a.onDatabase(forReading, func(ctx context.Context, c *catalog.Catalog, names []string) error {
			for {
				if err := a.fleetStatus(ctx, c, names, originals); err != nil || watch <= 0 {
					return err
				}
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(watch):
				}
			}
		}),
	}
	cmd.Flags().DurationVar(&watch, "watch", 0, "print again at this interval: 5s")
	cmd.Flags().BoolVar(&originals, "originals", false, "also count retired originals (slow: looks at every file)")
	return cmd
}

// plansNamed calls do with the named plans, or with all plans if there are no
// names.
func (a *app) plansNamed(ctx context.Context, c *catalog.Catalog, names []string, do func(catalog.Plan) error) error {
	var plans []catalog.Plan
	err := all(names, func(name string) error {
		p, err := a.planNamed(ctx, c, name)
		plans = append(plans, p)
		return err
	})
	if len(names) == 0 {
		plans, err = c.Plans(ctx)
	}
	if err != nil {
		return err
	}
	return all(plans, do)
}

func (a *app) fleetStatus(ctx context.Context, c *catalog.Catalog, names []string, originals bool) error {
	gap := ""
	return a.plansNamed(ctx, c, names, func(p catalog.Plan) error {
		s, err := fleet.StatusOf(ctx, c, p)
		var n *fleet.Originals
		if err == nil && originals {
			n, err = fleet.OriginalsOf(ctx, c, p)
		}
		if err == nil {
			j := statusAsJSON(s)
			j.Originals = n
			a.tell(j, func() {
				fmt.Fprint(a.out, gap)
				a.tellStatus(s)
				a.tellOriginals(n)
			})
			gap = "\n"
		}
		return err
	})
}

// everywhere converts an address to one that works wherever a worker is
// started: a path becomes absolute.
func everywhere(address string) string {
	if whole, err := filepath.Abs(address); err == nil && store.Scheme(address) == "" {
		return whole
	}
	return address
}

// planNamed finds a plan by its name or by its target, which is the default
// name.
func (a *app) planNamed(ctx context.Context, c *catalog.Catalog, name string) (catalog.Plan, error) {
	p, err := c.Plan(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		if p, aerr := c.Plan(ctx, everywhere(name)); aerr == nil {
			return p, nil
		}
	}
	if err != nil {
		err = fmt.Errorf("plan %w", err)
	}
	return p, err
}

type outcomeJSON struct {
	Plan string `json:"plan"`
	pathJSON
	Size    int64  `json:"size"`
	Outcome string `json:"outcome"`
	Problem string `json:"problem,omitempty"`
}

func (a *app) fleetLeftCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "left [PLAN...]",
		Short: "List the objects that were planned but not packed",
		Long: `Lists the planned objects that are in no archive, with the reason: the object
vanished, changed, is damaged at the source, or was set aside. Objects that were
planned again are not listed. Without a PLAN it covers all plans. The exit code
is 1 if there are such objects.`,
		Example: `  holdall fleet left
  holdall fleet left --json | jq -r 'select(.outcome == "damaged").path'`,
		RunE: a.onDatabase(forReading, func(ctx context.Context, c *catalog.Catalog, names []string) error {
			found := false
			err := a.plansNamed(ctx, c, names, func(p catalog.Plan) error {
				for m, err := range c.LeftOut(ctx, p.ID, catalog.Vanished, catalog.Changed, catalog.SetAside, catalog.Damaged) {
					if err != nil {
						return err
					}
					found = true
					path := pathOf(m.Path)
					a.tell(outcomeJSON{p.Name, path, m.Size, joined(m.Outcome.String()), m.Note}, func() {
						fmt.Fprintf(a.out, "%s: %s%s\n", path.Path, m.Outcome, ifAny(": %s", m.Note))
					})
				}
				return nil
			})
			return cmp.Or(err, answer(found))
		}),
	}
}

type leftJSON struct {
	pathJSON
	Problem string `json:"problem"`
}

// provenBy returns the end of a line that counts the proofs of each kind: ",
// proven by md5: 57".
func provenBy(by map[string]int64) string {
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(by)) {
		all = append(all, fmt.Sprintf("%s: %s", strings.ReplaceAll(kind, "_", " "), thousands(by[kind])))
	}
	if all == nil {
		return ""
	}
	return ", proven by " + strings.Join(all, ", ")
}

func (a *app) tellStatus(s fleet.Status) {
	state := ""
	if s.Plan.Cancelled {
		state = ", cancelled"
	}
	fmt.Fprintf(a.out, "%s (%s)%s\n", format.Escape(s.Plan.Name), s.Plan.Format, state)
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tchunks\tobjects\tbytes\t")
	for i, t := range s.States {
		if state := catalog.ChunkState(i); t.Chunks > 0 || state == catalog.ChunkDone {
			fmt.Fprintf(w, "%s\t%d\t%d\t%s\t\n", chunkWord(state), t.Chunks, t.Objects, a.humanSize(t.Bytes))
		}
	}
	w.Flush()
	if by := provenBy(s.Proven); by != "" {
		fmt.Fprintln(a.out, by[len(", "):])
	}
	for _, o := range []catalog.Outcome{catalog.Vanished, catalog.Changed, catalog.SetAside, catalog.Damaged} {
		if n := s.Outcomes[o]; n > 0 {
			fmt.Fprintf(a.out, "%s: %s\n", o, count(n, "object"))
		}
	}
	for _, m := range s.Damaged {
		fmt.Fprintf(a.out, "  %s: %s\n", format.Escape(m.Path), m.Note)
	}
	if len(s.Running) > 0 {
		left := ""
		if s.Left > 0 {
			left = ", " + s.Left.Round(time.Second).String() + " left"
		}
		fmt.Fprintf(a.out, "%s/s%s\n", a.humanSize(int64(s.Rate)), left)
	}
	for _, k := range s.Running {
		fmt.Fprintf(a.out, "  %s: %s of %s, %s\n", format.Escape(k.Name), a.humanSize(k.BytesDone), a.humanSize(k.Bytes), format.Escape(k.Owner))
	}
	for _, k := range s.Problems {
		fmt.Fprintf(a.out, "  %s: %s: %s\n", format.Escape(k.Name), chunkWord(k.State), k.Problem)
	}
}

func chunkWord(s catalog.ChunkState) string {
	if s == catalog.ChunkLeased {
		return "at work"
	}
	return s.String()
}

type chunkJSON struct {
	Chunk     string    `json:"chunk"`
	State     string    `json:"state"`
	Objects   int64     `json:"objects"`
	Bytes     int64     `json:"bytes"`
	BytesDone int64     `json:"bytes_done"`
	Owner     string    `json:"owner,omitempty"`
	Attempts  int       `json:"attempts"`
	Failures  int       `json:"failures"`
	Started   time.Time `json:"started,omitzero"`
	Problem   string    `json:"problem,omitempty"`
}

type statusJSON struct {
	Plan      string                   `json:"plan"`
	Format    string                   `json:"format"`
	Target    string                   `json:"target"`
	Created   time.Time                `json:"created"`
	Cancelled bool                     `json:"cancelled,omitempty"`
	Chunks    map[string]catalog.Tally `json:"chunks"`
	Objects   map[string]int64         `json:"objects"`
	Proven    map[string]int64         `json:"proven"`
	Damaged   []leftJSON               `json:"damaged"`
	Rate      float64                  `json:"rate"`
	Left      float64                  `json:"seconds_left,omitempty"`
	Running   []chunkJSON              `json:"running"`
	Problems  []chunkJSON              `json:"problems"`
	Originals *fleet.Originals         `json:"originals,omitempty"`
}

// joined makes one word of several, for JSON.
func joined(words string) string { return strings.ReplaceAll(words, " ", "_") }

func statusAsJSON(s fleet.Status) statusJSON {
	j := statusJSON{Plan: s.Plan.Name, Format: s.Plan.Format, Target: format.Escape(s.Plan.Target), Created: s.Plan.Created, Cancelled: s.Plan.Cancelled,
		Chunks: map[string]catalog.Tally{}, Objects: map[string]int64{}, Proven: s.Proven, Damaged: []leftJSON{}, Rate: s.Rate, Left: s.Left.Seconds(), Running: []chunkJSON{}, Problems: []chunkJSON{}}
	for i, t := range s.States {
		j.Chunks[joined(chunkWord(catalog.ChunkState(i)))] = t
	}
	for i, n := range s.Outcomes {
		j.Objects[joined(catalog.Outcome(i).String())] = n
	}
	for _, m := range s.Damaged {
		j.Damaged = append(j.Damaged, leftJSON{pathOf(m.Path), m.Note})
	}
	list := func(all []catalog.Chunk, to *[]chunkJSON) {
		for _, k := range all {
			*to = append(*to, chunkJSON{Chunk: format.Escape(k.Name), State: joined(chunkWord(k.State)), Objects: k.Objects, Bytes: k.Bytes, BytesDone: k.BytesDone,
				Owner: format.Escape(k.Owner), Attempts: k.Attempts, Failures: k.Failures, Started: k.Started, Problem: k.Problem})
		}
	}
	list(s.Running, &j.Running)
	list(s.Problems, &j.Problems)
	return j
}

func (a *app) fleetCancelCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel PLAN",
		Short: "Cancel a plan",
		Long: `Cancels the chunks of a plan that are not done. Workers on these chunks stop,
and partial uploads are removed. Finished archives stay, also in the catalogue.
'holdall fleet retry' resumes the plan.`,
		Args: args(1, 1, "a plan"),
		RunE: a.onDatabase(catalog.Options{}, func(ctx context.Context, c *catalog.Catalog, args []string) error {
			return a.plansNamed(ctx, c, args, func(p catalog.Plan) error {
				n, err := fleet.Cancel(ctx, c, p)
				if err == nil {
					a.tell(map[string]any{"plan": p.Name, "uploads": n}, func() { fmt.Fprintf(a.out, "%s: cancelled\n", format.Escape(p.Name)) })
				}
				return err
			})
		}),
	}
}

func (a *app) fleetRetryCommand() *cobra.Command {
	var queue string
	cmd := &cobra.Command{
		Use:   "retry PLAN",
		Short: "Queue chunks again that were set aside or cancelled",
		Long: `Queues chunks again that were set aside or cancelled, as if they were new. If an
object was set aside and its chunk packed, 'holdall fleet plan' plans the object
again, as it does with objects that changed.`,
		Args: args(1, 1, "a plan"),
		RunE: run(func(ctx context.Context, args []string) error {
			return a.withFleet(ctx, queue, 0, func(c *catalog.Catalog, _ fleet.Feed) error {
				return a.plansNamed(ctx, c, args, func(p catalog.Plan) error {
					n, err := c.RetryPlan(ctx, p.ID)
					if err == nil {
						a.tell(map[string]any{"plan": p.Name, "chunks": n}, func() {
							fmt.Fprintf(a.out, "%s: %s queued again\n", format.Escape(p.Name), count(int64(n), "chunk"))
						})
					}
					return err
				})
			})
		}),
	}
	queueFlag(cmd, &queue)
	return cmd
}

func (a *app) fleetForgetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "forget PLAN",
		Short: "Remove a plan from the catalogue",
		Long: `Removes a plan from the catalogue, with the versions and checksums of its
objects. Its archives stay, also in the catalogue. A plan with unfinished chunks
is refused: cancel it first.`,
		Args: args(1, 1, "a plan"),
		RunE: a.onDatabase(catalog.Options{}, func(ctx context.Context, c *catalog.Catalog, args []string) error {
			return a.plansNamed(ctx, c, args, func(p catalog.Plan) error {
				err := c.ForgetPlan(ctx, p.ID)
				if err == nil {
					a.tell(map[string]any{"plan": p.Name}, func() { fmt.Fprintf(a.out, "%s: forgotten\n", format.Escape(p.Name)) })
				}
				return err
			})
		}),
	}
}
