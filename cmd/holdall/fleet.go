package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/fleet"
	"github.com/holdall/holdall/internal/app/fleet/queue"
	"github.com/holdall/holdall/store"
)

func (a *app) fleetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Pack millions of objects with many workers, each object once",
		Long: `Packs sources of any size into many archives, with any number of workers on one
machine or many. A plan cuts the source into chunks. A worker packs a chunk into
one archive, and records it in the catalogue. If a worker is killed, another one
does its work.

The catalogue is a folder, on a disk or in a bucket, such as --catalog
s3://packed/photos.catalog. 'holdall catalog init' creates it. Workers get their
work from a queue: a file on this machine, or --queue
postgres://USER@HOST/DATABASE for workers on several. If the queue is lost, plan
again: nothing else is lost.`,
		Example: `  holdall catalog init --catalog s3://packed/photos.catalog
  holdall fleet plan s3://photos -o s3://packed/photos.caf
  holdall fleet work --workers 4
  holdall fleet status`,
	}
	a.catalogFlag(cmd.PersistentFlags())
	cmd.PersistentFlags().StringVar(&a.queue, "queue", "", "where the work is: a file, or postgres://USER@HOST/DATABASE (default $HOLDALL_QUEUE, or a file in your data folder)")
	cmd.AddCommand(a.fleetPlanCommand(), a.fleetWorkCommand(), a.fleetStatusCommand(), a.fleetLeftCommand(), a.fleetRetireCommand(), a.fleetCancelCommand(), a.fleetRetryCommand(), a.fleetForgetCommand(), a.fleetEraseCommand(), a.fleetCompactCommand(), a.fleetRepairCommand())
	return cmd
}

// withFleet calls do with the user's catalogue and its queue.
func (a *app) withFleet(ctx context.Context, o access, do func(f fleet.Fleet) error) error {
	return a.withCatalog(ctx, o, func(b *book.Book) error {
		address, err := a.queueAddress()
		if err != nil {
			return err
		}
		q, err := queue.Open(ctx, address, hasty(queue.Options{Space: b.ID()}))
		if err != nil {
			return err
		}
		return errors.Join(do(fleet.Fleet{Book: b, Queue: q}), q.Close())
	})
}

// hasty changes the options of the queue. Tests of the built command kill workers and cannot wait a minute
// for each of their jobs: HOLDALL_FLEET_HASTE, such as 2s, is that time instead. It is not for users: jobs that
// take longer are done twice.
func hasty(o queue.Options) queue.Options {
	if haste, err := time.ParseDuration(os.Getenv("HOLDALL_FLEET_HASTE")); err == nil && haste > 0 {
		fleet.Hasten(haste)
		o.Pause, o.Look, o.Grace = haste/100, haste/50, haste/4
	}
	return o
}

// queueAddress returns the address of the queue.
func (a *app) queueAddress() (string, error) {
	if address := cmp.Or(a.queue, os.Getenv("HOLDALL_QUEUE")); address != "" {
		return address, nil
	}
	dir, err := dataFolder()
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	return filepath.Join(dir, "jobs.db"), err
}

func (a *app) onFleet(o access, do func(ctx context.Context, f fleet.Fleet, args []string) error) func(*cobra.Command, []string) error {
	return run(func(ctx context.Context, args []string) error {
		return a.withFleet(ctx, o, func(f fleet.Fleet) error { return do(ctx, f, args) })
	})
}

func (a *app) fleetPlanCommand() *cobra.Command {
	var s fleet.Spec
	var size sizeFlag
	var protect, gone shareFlag
	var dry estimating
	var cmd *cobra.Command
	cmd = &cobra.Command{
		Use:   "plan SOURCE... -o TARGET",
		Short: "List sources and cut what is new into chunks",
		Long: `Lists sources and cuts what the catalogue does not have into chunks. A source is
a folder, a bucket, or a prefix in a bucket. An address that ends in * means all
keys with that prefix: s3://logs/2026-0*. Each chunk becomes an archive:
TARGET-LISTING-NUMBER. 'holdall fleet work' packs them.

A DataBundle is one archive with many shards. Each chunk is a shard of TARGET,
and the last chunk makes the index. Later additions become a bundle of their
own.

Run the same command again if it was interrupted, or if the source has grown:
objects that are packed or waiting are not planned again. Each listing also
records which originals are missing; 'holdall fleet compact' deletes files that
are gone. If more than half of them are missing, holdall assumes a mistake, and
fails without recording them; --gone sets another share.

--only PREFIX lists only names that begin with PREFIX. --ranges N leaves the
listing to 'holdall fleet work', on any machine, in about N ranges of names.

TARGET may be below a source. Archives in the catalogue and the files beside
them are left out and counted. So are empty objects that only mark folders.

--list FILE plans the objects that a file lists instead: one key below SOURCE
per line, and holdall requests the size of each; or, if the name ends in .jsonl,
JSON lines with "key", "size" and "etag". --inventory plans the objects of an S3
Inventory of SOURCE's bucket, in CSV or Parquet. --events FILE plans the objects
that are named in event notifications of S3, MinIO, EventBridge, SNS and SQS.
You can use another way each time you plan.

--dry-run records nothing and needs no catalogue. It prints the size of the
plan, the number of requests that packing takes, and their cost. Prices are
Amazon's list prices, or those of --prices, a file like
{"currency":"USD","per_1000":{"get":0.0004,"put":0.005,"copy":0.005,
"list":0.005},"per_gb_month":0.023,"per_gb_out":0} With --rate it also prints
how long packing takes.`,
		Example: `  holdall fleet plan s3://photos -o s3://packed/photos.caf
  holdall fleet plan s3://logs/2026 s3://logs/2025 -f caf -o s3://packed/logs --chunk-size 4GiB --name logs
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
			s.Format, s.ChunkSize, s.Param, s.Protect, s.Gone = a.target, int64(size), a.given(format.ToCreate), float64(protect), float64(gone)
			for _, source := range sources {
				s.Sources = append(s.Sources, everywhere(source))
			}
			s.Target = everywhere(s.Target)
			for _, list := range []*string{&s.List, &s.Inventory} {
				if *list != "" {
					*list = everywhere(*list)
				}
			}
			for i, file := range s.Events {
				s.Events[i] = everywhere(file)
			}
			ways := 0
			for _, name := range []string{"list", "inventory", "events", "only", "ranges"} {
				if cmd.Flags().Changed(name) {
					ways++
				}
			}
			if ways > 1 {
				return usage("expected one of --list, --inventory, --events, --only and --ranges")
			}
			if ways > 0 && len(s.Only) == 0 && s.Ranges == 0 && len(sources) > 1 {
				return usage("--list, --inventory and --events: expected one SOURCE, found %d", len(sources))
			}
			s.Tell = func(path string, err error) {
				a.warn("%s: not planned: %s", format.Escape(path), printable(err.Error()))
			}
			if dry.dry {
				return a.estimate(ctx, s, dry, rate)
			}
			return a.withFleet(ctx, forWriting, func(f fleet.Fleet) error {
				m := &holdall.Meter{}
				stop := a.showProgress(m, "planned")
				var told fleet.Planned
				p, err := fleet.MakePlan(ctx, f, s, func(p fleet.Planned) {
					m.Add(p.Objects-told.Objects, p.Bytes-told.Bytes)
					told = p
				})
				stop()
				if err == nil && p.Ranges > 0 {
					a.tell(asPlannedJSON(p), func() {
						fmt.Fprintf(a.out, "%s: %s of names to be listed by 'holdall fleet work'\n", format.Escape(p.Plan.Name), count(int64(p.Ranges), "range"))
					})
				} else if err == nil || p.Chunks > 0 {
					a.tell(asPlannedJSON(p), func() { a.linePlanned(p, "are new") })
				}
				return err
			})
		}),
	}
	fs := cmd.Flags()
	fs.StringVarP(&s.Target, "output", "o", "", "name of the archives without their numbers: s3://bucket/name.caf")
	fs.Var(&size, "chunk-size", "content of each archive or shard (default 3GB)")
	fs.Int64Var(&s.ChunkObjects, "chunk-objects", 0, "maximum number of objects in an archive or shard (default 100000)")
	fs.StringVar(&s.Name, "name", "", "name of the plan (default TARGET)")
	fs.StringArrayVar(&s.Exclude, "exclude", nil, excludeUsage)
	fs.Var(&protect, "protect", "write parity beside each archive that can restore this share of it: 5%")
	fs.Var(&gone, "gone", "fail if more than this share of the originals is missing (default 50%)")
	fs.StringArrayVar(&s.Only, "only", nil, "list only names that begin with this prefix; may be repeated")
	fs.IntVar(&s.Ranges, "ranges", 0, "leave the listing to workers, in about this many ranges of names")
	fs.StringVar(&s.List, "list", "", "plan the objects listed in this file: one key per line, or JSON lines in FILE.jsonl")
	fs.StringVar(&s.Inventory, "inventory", "", "plan the objects of an S3 Inventory: address of its manifest.json")
	fs.StringArrayVar(&s.Events, "events", nil, "plan the objects that the event notifications in this file name")
	fs.BoolVar(&s.Plain, "plain", false, "write the bare format, without the digests that holdall adds")
	dry.flags(fs)
	inParts := slices.DeleteFunc(format.All(), func(f *format.Format) bool { return !f.Chunked && f.Parts == nil })
	fs.Var(newChoice(new(string), ""), "index-place", "") // a bundle in parts has its own index in one place only
	fs.MarkHidden("index-place")
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
	}{{p.Known, "object", "packed or waiting"}, {p.Missing, "original", "missing"}, {p.Archives, "object", "of archives left out"}, {p.Markers, "folder marker", "left out"},
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
	var metrics string
	cmd := &cobra.Command{
		Use:   "work [PLAN]",
		Short: "Pack the chunks of plans until nothing is left",
		Long: `Packs the chunks of a plan, or of all plans, until nothing is left. It also
lists ranges of names, and does the work of 'fleet compact', 'repair' and
'retire'. You can run any number of workers at once, on this machine, and on
others if the queue is in PostgreSQL. A worker that you interrupt returns its
work to the queue.

A chunk that fails is tried again, with longer and longer waits; after --tries
attempts it is set aside. An object that cannot be read is set aside too, and
the others of its chunk are packed. An object that does not match its bucket's
checksum is damaged: it is left out and reported.

The exit code is 1 if any planned object is not packed. 'holdall fleet left'
lists these objects, now or later.`,
		Example: `  holdall fleet work --workers 4
  holdall fleet work --stay --queue postgres://holdall@db.example.org/holdall`,
		Args: args(0, 1, "a plan"),
		RunE: run(func(ctx context.Context, plan []string) error {
			switch {
			case o.Workers < 1:
				return usage("--workers: expected at least 1, found %d", o.Workers)
			case o.Tries < 1:
				return usage("--tries: expected at least 1, found %d", o.Tries)
			}
			return a.withFleet(ctx, forWriting, func(f fleet.Fleet) error {
				o.NoVerify = a.noVerify
				if len(plan) > 0 {
					p, err := a.planNamed(ctx, f.Book, plan[0])
					if err != nil {
						return err
					}
					o.Plan = p.Name
				}
				return a.fleetWork(ctx, f, o, metrics)
			})
		}),
	}
	fs := cmd.Flags()
	fs.IntVar(&o.Workers, "workers", 1, "chunks to pack at once")
	fs.IntVarP(&o.Jobs, "jobs", "j", 0, "objects of a chunk to read at once (default 16)")
	fs.IntVar(&o.Tries, "tries", 5, "attempts before a chunk is set aside")
	fs.BoolVar(&o.NoCopy, "no-copy", false, "read every object, to compare it with its checksum and to compute a digest")
	fs.BoolVar(&o.Stay, "stay", false, "wait for more work when nothing is left")
	fs.StringVar(&metrics, "metrics", "", "serve metrics for Prometheus at this `address`: 127.0.0.1:9090")
	return cmd
}

func (a *app) fleetWork(ctx context.Context, f fleet.Fleet, o fleet.WorkOptions, metrics string) error {
	o.Meter = &holdall.Meter{}
	o.Tell = a.tellWork
	if metrics != "" {
		jobs := &queue.Metrics{}
		_, stop, err := serveMetrics(ctx, metrics, jobs, o.Meter)
		if err != nil {
			return err
		}
		defer func() { _ = stop() }()
		o.Tell = func(e fleet.Event) {
			jobs.Tell(e.Event)
			a.tellWork(e)
		}
	}
	stop := a.showProgress(o.Meter, "packed")
	sum, err := fleet.Work(ctx, f, o)
	stop()
	a.tell(sum, func() {
		fmt.Fprintf(a.out, "packed %s, %s in %s\n", count(sum.Objects, "object"), a.humanSize(sum.Bytes), count(int64(sum.Done), "chunk"))
	})
	return cmp.Or(err, ctx.Err(), answer(sum.SetAside > 0 || sum.Left > 0))
}

// eventJSON is what happened to a job. It is printed as soon as it is known.
type eventJSON struct {
	Job      string  `json:"job"`
	Kind     string  `json:"kind"`
	Archive  string  `json:"archive,omitempty"`
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

// tellWork prints what happened to a job: problems always, the rest on request.
func (a *app) tellWork(e fleet.Event) {
	j := eventJSON{Job: e.Job.Name, Kind: e.Job.Kind, Archive: format.Escape(e.Chunk.Archive), Event: joined(string(e.What)), Objects: e.Chunk.Objects + e.Chunk.Planned.Objects, Bytes: e.Chunk.Bytes + e.Chunk.Planned.Bytes, Seconds: e.Took.Seconds(), Resumed: e.Chunk.Resent}
	for _, m := range e.Chunk.Left {
		switch m.Outcome {
		case fleet.Vanished:
			j.Vanished++
		case fleet.Changed:
			j.Changed++
		case fleet.Damaged:
			j.Damaged++
		default:
			j.SetAside++
		}
	}
	if e.Err != nil && e.What != queue.GivenBack {
		j.Problem = printable(e.Err.Error())
	}
	if a.json {
		a.printJSON(j)
		return
	}
	shown := cmp.Or(j.Archive, j.Kind+" "+j.Job)
	switch e.What {
	case queue.Retried, queue.Dropped, queue.Away:
		a.warn("%s: %s%s", shown, e.What, ifAny(": %s", j.Problem))
	case queue.Done:
		for _, m := range e.Chunk.Left {
			a.warn("%s: %s: %s%s", shown, format.Escape(m.Path), m.Outcome, ifAny(": %s", m.Note))
		}
		if !a.quiet {
			fmt.Fprintf(a.stderr, "holdall: %s: %s, %s in %s\n", shown, count(j.Objects, "object"), a.humanSize(j.Bytes), e.Took.Round(100*time.Millisecond))
		}
	}
}

func (a *app) fleetStatusCommand() *cobra.Command {
	var watch time.Duration
	var originals bool
	cmd := &cobra.Command{
		Use:   "status [PLAN...]",
		Short: "Show the progress of plans",
		Long: `Shows the progress of all plans, or of the given ones: archives and what waits
to be packed, the jobs by state, and those that failed. Packed objects are
counted by the bucket's checksum that they were compared with. Objects that are
damaged at the source are listed.`,
		Example: `  holdall fleet status
  holdall fleet status --watch 5s s3://packed/photos.caf`,
		RunE: a.onFleet(forReading, func(ctx context.Context, f fleet.Fleet, names []string) error {
			for {
				if err := a.fleetStatus(ctx, f, names, originals); err != nil || watch <= 0 {
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

// plansNamed calls do with the named plans, or with all plans if there are no names.
func (a *app) plansNamed(ctx context.Context, b *book.Book, names []string, do func(fleet.Plan) error) error {
	var plans []fleet.Plan
	err := all(names, func(name string) error {
		p, err := a.planNamed(ctx, b, name)
		plans = append(plans, p)
		return err
	})
	if len(names) == 0 {
		plans, err = fleet.Plans(ctx, b)
	}
	if err != nil {
		return err
	}
	return all(plans, do)
}

func (a *app) fleetStatus(ctx context.Context, f fleet.Fleet, names []string, originals bool) error {
	gap := ""
	return a.plansNamed(ctx, f.Book, names, func(p fleet.Plan) error {
		s, err := fleet.StatusOf(ctx, f, p)
		var n *fleet.Originals
		if err == nil && originals {
			n, err = fleet.OriginalsOf(ctx, f.Book, p)
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

// everywhere converts an address to one that works wherever a worker is started: a path becomes absolute.
func everywhere(address string) string {
	if whole, err := filepath.Abs(address); err == nil && store.Scheme(address) == "" {
		return whole
	}
	return address
}

// planNamed finds a plan by its name or by its target, which is the default name.
func (a *app) planNamed(ctx context.Context, b *book.Book, name string) (fleet.Plan, error) {
	p, err := fleet.PlanNamed(ctx, b, name)
	if errors.Is(err, fs.ErrNotExist) {
		if p, aerr := fleet.PlanNamed(ctx, b, everywhere(name)); aerr == nil {
			return p, nil
		}
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
vanished, changed, is damaged at the source, or was set aside. The next 'holdall
fleet plan' includes those that still exist. Without a PLAN, objects of all
plans are listed. The exit code is 1 if there are such objects.`,
		Example: `  holdall fleet left
  holdall fleet left --json | jq -r 'select(.outcome == "damaged").path'`,
		RunE: a.onFleet(forReading, func(ctx context.Context, f fleet.Fleet, names []string) error {
			found := false
			err := a.plansNamed(ctx, f.Book, names, func(p fleet.Plan) error {
				for m, err := range fleet.Left(ctx, f, p) {
					if err != nil {
						return err
					}
					found = true
					path := pathOf(m.Path)
					a.tell(outcomeJSON{p.Name, path, m.Size, joined(string(m.Outcome)), m.Note}, func() {
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

// notCompared has the kinds of proofs that are none.
var notCompared = map[string]string{"nothing": "without a checksum to compare with", "copied": "copied by the server", "unknown": "without a record of this"}

// provenBy returns the end of a line that counts the proofs of each kind: ", proven by md5: 57".
func provenBy(by map[string]int64) (line string) {
	var proofs []string
	for _, kind := range slices.Sorted(maps.Keys(by)) {
		if n := by[kind]; n > 0 && notCompared[kind] != "" {
			line += ", " + thousands(n) + " " + notCompared[kind]
		} else if n > 0 {
			proofs = append(proofs, fmt.Sprintf("%s: %s", strings.ReplaceAll(kind, "_", " "), thousands(n)))
		}
	}
	if proofs != nil {
		line = ", proven by " + strings.Join(proofs, ", ") + line
	}
	return line
}

// outcomes are those of a status, in their order.
var outcomes = []fleet.Outcome{fleet.Vanished, fleet.Changed, fleet.SetAside, fleet.Damaged}

func (a *app) tellStatus(s fleet.Status) {
	fmt.Fprintf(a.out, "%s (%s)\n", format.Escape(s.Plan.Name), s.Plan.Format)
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tarchives\tobjects\tbytes\t")
	fmt.Fprintf(w, "packed\t%d\t%d\t%s\t\n", s.Archives, s.Objects, a.humanSize(s.Bytes))
	if s.Waiting > 0 {
		fmt.Fprintf(w, "waiting\t%d\t%d\t%s\t\n", s.Waiting, s.WaitingObjects, a.humanSize(s.WaitingBytes))
	}
	w.Flush()
	if by := provenBy(s.Proven); by != "" {
		fmt.Fprintln(a.out, by[len(", "):])
	}
	for _, o := range outcomes {
		if n := s.Left[o]; n > 0 {
			fmt.Fprintf(a.out, "%s: %s\n", o, count(n, "object"))
		}
	}
	for _, m := range s.Damaged {
		fmt.Fprintf(a.out, "  %s: %s\n", format.Escape(m.Path), m.Note)
	}
	for _, kind := range slices.Sorted(maps.Keys(s.Jobs)) {
		var all []string
		for _, is := range slices.Sorted(maps.Keys(s.Jobs[kind])) {
			all = append(all, fmt.Sprintf("%d %s", s.Jobs[kind][is], is))
		}
		fmt.Fprintf(a.out, "%s jobs: %s\n", kind, strings.Join(all, ", "))
	}
	for _, k := range s.Problems {
		fmt.Fprintf(a.out, "  %s %s: %s: %s\n", k.Kind, k.Name, k.Status, printable(k.Problem))
	}
}

type jobJSON struct {
	Job      string    `json:"job"`
	Kind     string    `json:"kind"`
	State    string    `json:"state"`
	Attempts int       `json:"attempts"`
	Since    time.Time `json:"since,omitzero"`
	Problem  string    `json:"problem,omitempty"`
}

type waitingJSON struct {
	Chunks  int64 `json:"chunks"`
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

type statusJSON struct {
	Plan      string                    `json:"plan"`
	Format    string                    `json:"format"`
	Target    string                    `json:"target"`
	Archives  int64                     `json:"archives"`
	Objects   int64                     `json:"objects"`
	Bytes     int64                     `json:"bytes"`
	Waiting   waitingJSON               `json:"waiting"`
	Left      map[string]int64          `json:"left"`
	Proven    map[string]int64          `json:"proven"`
	Damaged   []leftJSON                `json:"damaged"`
	Jobs      map[string]map[string]int `json:"jobs"`
	Problems  []jobJSON                 `json:"problems"`
	Originals *fleet.Originals          `json:"originals,omitempty"`
}

// joined makes one word of several, for JSON.
func joined(words string) string { return strings.ReplaceAll(words, " ", "_") }

func statusAsJSON(s fleet.Status) statusJSON {
	j := statusJSON{Plan: s.Plan.Name, Format: s.Plan.Format, Target: format.Escape(s.Plan.Target), Archives: s.Archives, Objects: s.Objects, Bytes: s.Bytes,
		Waiting: waitingJSON{s.Waiting, s.WaitingObjects, s.WaitingBytes}, Left: map[string]int64{}, Proven: s.Proven, Damaged: []leftJSON{}, Jobs: map[string]map[string]int{}, Problems: []jobJSON{}}
	for _, o := range outcomes {
		j.Left[joined(string(o))] = s.Left[o]
	}
	for _, m := range s.Damaged {
		j.Damaged = append(j.Damaged, leftJSON{pathOf(m.Path), m.Note})
	}
	for kind, all := range s.Jobs {
		j.Jobs[kind] = map[string]int{}
		for is, n := range all {
			j.Jobs[kind][joined(string(is))] = n
		}
	}
	for _, k := range s.Problems {
		j.Problems = append(j.Problems, jobJSON{k.Name, k.Kind, joined(string(k.Status)), k.Attempt, k.Since, printable(k.Problem)})
	}
	return j
}

func (a *app) fleetCancelCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel PLAN",
		Short: "Cancel the waiting work of a plan",
		Long: `Cancels the waiting work of a plan, and removes partial uploads. Finished
archives stay, and so do their records in the catalogue. To pack the rest later,
plan again.`,
		Example: `  holdall fleet cancel s3://packed/photos.caf`,
		Args:    args(1, 1, "a plan"),
		RunE: a.onFleet(forWriting, func(ctx context.Context, f fleet.Fleet, args []string) error {
			return a.plansNamed(ctx, f.Book, args, func(p fleet.Plan) error {
				n, err := fleet.Cancel(ctx, f, p)
				if err == nil {
					a.tell(map[string]any{"plan": p.Name, "jobs": n}, func() { fmt.Fprintf(a.out, "%s: %s cancelled\n", format.Escape(p.Name), count(int64(n), "job")) })
				}
				return err
			})
		}),
	}
}

func (a *app) fleetRetryCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "retry PLAN",
		Short: "Try jobs again that were set aside",
		Long: `Tries all jobs again that were set aside, as if they were new. If only an object
was set aside and the rest of its chunk was packed, run 'holdall fleet plan'
again: it plans the object again.`,
		Example: `  holdall fleet retry s3://packed/photos.caf`,
		Args:    args(1, 1, "a plan"),
		RunE: a.onFleet(forWriting, func(ctx context.Context, f fleet.Fleet, args []string) error {
			return a.plansNamed(ctx, f.Book, args, func(p fleet.Plan) error {
				n, err := f.Queue.Retry(ctx, p.Name)
				if err == nil {
					a.tell(map[string]any{"plan": p.Name, "jobs": n}, func() {
						fmt.Fprintf(a.out, "%s: %s to be tried again\n", format.Escape(p.Name), count(int64(n), "job"))
					})
				}
				return err
			})
		}),
	}
}

func (a *app) fleetForgetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "forget PLAN",
		Short: "Remove a plan from the catalogue",
		Long: `Removes a plan and its waiting work from the catalogue. Its archives stay, and
so do their records in the catalogue.`,
		Example: `  holdall fleet forget s3://packed/photos.caf`,
		Args:    args(1, 1, "a plan"),
		RunE: a.onFleet(forWriting, func(ctx context.Context, f fleet.Fleet, args []string) error {
			return a.plansNamed(ctx, f.Book, args, func(p fleet.Plan) error {
				err := fleet.Forget(ctx, f, p)
				if err == nil {
					a.tell(map[string]any{"plan": p.Name}, func() { fmt.Fprintf(a.out, "%s: forgotten\n", format.Escape(p.Name)) })
				}
				return err
			})
		}),
	}
}
