package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/fleet"
	"github.com/holdall/holdall/internal/app/fleet/queue"
	"github.com/holdall/holdall/store"
)

func (a *app) fleetRetireCommand() *cobra.Command {
	var o fleet.RetireOptions
	var bytes sizeFlag
	var without []string
	var log string
	var priced prices
	cmd := &cobra.Command{
		Use:   "retire [PLAN...]",
		Short: "Delete originals whose packed files are proven",
		Long: `Deletes the originals of all plans, or of the given ones, after proving that
their archives have them. Each file is read back from its archive, and compared
with its digest and with the checksum that the service reports for the original
now. If the service has no checksum, the original is read too, and compared
byte by byte. Workers of 'holdall fleet work' help.

Only the version that was packed is deleted, with the headers and the time that
were packed. An original in doubt stays, and is counted by its reason. So does
one with tags or anything else that its archive does not keep, unless --without
names it. In a bucket that keeps versions, the deleted object stays as an older
version.

Before anything is deleted, holdall writes a list of the originals to the
catalogue's folder. At the end, --log FILE adds what happened to each of them.
You may interrupt a run at any time: the next worker finishes the work that is
in the queue.

The exit code is 1 if an original stays because its archive is damaged, changed
or unreadable, because it differs from its archive, or because its service
refused.`,
		Example: `  holdall fleet retire --dry-run
  holdall fleet retire s3://packed/photos.caf --older-than 720h --log retired.jsonl`,
		RunE: a.onFleet(forWriting, func(ctx context.Context, f fleet.Fleet, names []string) error {
			switch {
			case o.Limit < 0:
				return usage("--limit: expected at least 0, found %d", o.Limit)
			case o.OlderThan < 0:
				return usage("--older-than: expected at least 0, found %s", o.OlderThan)
			case o.Jobs < 0:
				return usage("--jobs: expected at least 1, found %d", o.Jobs)
			case o.Workers < 1:
				return usage("--workers: expected at least 1, found %d", o.Workers)
			case priced != "" && !o.DryRun:
				return usage("--prices needs --dry-run")
			}
			table, err := priced.table()
			if err != nil {
				return err
			}
			for _, word := range without {
				why := fleet.Reason(strings.ReplaceAll(word, "-", " "))
				if !slices.Contains(fleet.Unkept, why) {
					return usage("--without: expected headers, tags, storage-class, redirect, lock or acl, found %q", word)
				}
				o.Without = append(o.Without, why)
			}
			o.LimitBytes = int64(bytes)
			return a.fleetRetire(ctx, f, names, o, table, log)
		}),
	}
	fs := cmd.Flags()
	fs.BoolVarP(&o.DryRun, "dry-run", "n", false, "prove everything, but only print what would be deleted")
	priced.flag(fs)
	fs.DurationVar(&o.OlderThan, "older-than", 0, "only originals packed at least this long ago: 720h")
	fs.Int64Var(&o.Limit, "limit", 0, "delete at most this many objects")
	fs.Var(&bytes, "limit-bytes", "delete at most this much content: 1TB")
	fs.BoolVar(&o.NoReread, "no-reread", false, "keep originals without a checksum instead of reading them again")
	fs.StringSliceVar(&without, "without", nil, "also delete originals that have these, which archives do not keep: headers,tags,storage-class,redirect,lock,acl")
	fs.IntVar(&o.Workers, "workers", 1, "ranges of originals to prove and delete at once")
	fs.IntVarP(&o.Jobs, "jobs", "j", 0, "originals of a range to look up or delete at once (default 32)")
	fs.BoolVar(&o.Unconditional, "unconditional", false, "also delete if the service cannot delete only a certain version: an object that is written meanwhile is lost")
	fs.BoolVar(&o.Newest, "markers-lost", false, "confirm that this is the newest copy of the catalogue, although the markers beside the originals are gone")
	fs.StringVar(&log, "log", "", "append a JSON line to this file for each original that was deleted, or was to be")
	return cmd
}

type retiredJSON struct {
	Plan string `json:"plan"`
	pathJSON
	Original string `json:"original"`
	Version  string `json:"version"`
	Size     int64  `json:"size"`
	Archive  string `json:"archive"`
	ProvenBy string `json:"proven_by,omitempty"`
	Event    string `json:"event"`
	Reason   string `json:"reason,omitempty"`
	Problem  string `json:"problem,omitempty"`
}

func asRetiredJSON(p fleet.Plan, x fleet.Retirement, event string) retiredJSON {
	return retiredJSON{Plan: p.Name, pathJSON: pathOf(x.Path), Original: format.Escape(x.Original), Version: format.Escape(x.Version), Size: x.Size,
		Archive: format.Escape(x.Archive), ProvenBy: x.By, Event: event}
}

func asKeptJSON(p fleet.Plan, k fleet.Keeping) retiredJSON {
	j := asRetiredJSON(p, k.Retirement, "left")
	j.Reason, j.Problem = joined(string(k.Why)), printable(k.Note)
	return j
}

type retiredSumJSON struct {
	Plan     string           `json:"plan"`
	Run      string           `json:"run,omitempty"`
	Earlier  []string         `json:"earlier,omitempty"`
	Objects  int64            `json:"objects"`
	Bytes    int64            `json:"bytes"`
	DryRun   bool             `json:"dry_run,omitempty"`
	Finished int64            `json:"finished,omitempty"`
	Proven   map[string]int64 `json:"proven"`
	Left     map[string]int64 `json:"left"`
	Limited  bool             `json:"limited,omitempty"`

	Requests *fleet.Requests    `json:"requests,omitempty"`
	Prices   *fleet.Prices      `json:"prices,omitempty"`
	Cost     map[string]float64 `json:"cost,omitempty"`
}

func (a *app) fleetRetire(ctx context.Context, f fleet.Fleet, names []string, o fleet.RetireOptions, table fleet.Prices, log string) error {
	faulty := false
	limit, limitBytes, retired, bytes := o.Limit, o.LimitBytes, int64(0), int64(0)
	err := a.plansNamed(ctx, f.Book, names, func(p fleet.Plan) error {
		o := o
		if limit > 0 {
			if o.Limit = limit - retired; o.Limit == 0 {
				return nil
			}
		}
		if limitBytes > 0 {
			if o.LimitBytes = limitBytes - bytes; o.LimitBytes == 0 {
				return nil
			}
		}
		o.Tell = func(e queue.Event) {
			if e.What == queue.Retried || e.What == queue.Dropped {
				a.warn("%s: %s: %s", e.Job.Name, e.What, printable(fmt.Sprint(e.Err)))
			}
		}
		o.Meter = &holdall.Meter{}
		stop := a.showProgress(o.Meter, "proven")
		done, err := fleet.Retire(ctx, f, p, o)
		stop()
		retired, bytes = retired+done.Objects, bytes+done.Bytes
		if done.Run != "" && !o.DryRun && (log != "" || a.json) {
			err = errors.Join(err, a.tellRetired(ctx, f, p, done, log))
		}
		faulty = a.tellKept(p, done) || faulty
		sum, cost := asRetiredSum(p, done, o.DryRun), table.Cost(done.Estimate())
		if o.DryRun {
			sum.Requests, sum.Prices, sum.Cost = &done.Requests, &table, map[string]float64{"requests": cost.Requests, "out": cost.Out, "month": cost.Month}
		}
		a.tell(sum, func() {
			if a.lineRetired(p, done, o.DryRun); o.DryRun && done.Requests != (fleet.Requests{}) {
				a.lineRequests(done.Requests, "retiring", table, cost)
				a.lineCost("saving", "%s a month, which the originals cost", money(table, cost.Month))
				a.lineCost("prices", "%s", format.Escape(table.Name))
			}
		})
		return err
	})
	return cmp.Or(err, answer(faulty))
}

// tellRetired prints and logs what was deleted.
func (a *app) tellRetired(ctx context.Context, f fleet.Fleet, p fleet.Plan, done fleet.Retired, log string) (err error) {
	var to *bufio.Writer
	if log != "" {
		file, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
		if err != nil {
			return err
		}
		to = bufio.NewWriter(file)
		defer func() { err = errors.Join(err, to.Flush(), file.Sync(), file.Close()) }()
	}
	kept := map[string]bool{}
	write := func(j retiredJSON) error {
		if a.json {
			a.printJSON(j)
		}
		if to == nil {
			return nil
		}
		return json.NewEncoder(to).Encode(j)
	}
	for _, k := range done.Kept {
		if kept[k.Path] = k.Going; k.Going {
			if err := write(asKeptJSON(p, k)); err != nil {
				return err
			}
		}
	}
	for _, run := range append(done.Earlier, done.Run) {
		last := ""
		for x, err := range fleet.RetirementLog(ctx, f, p, run) {
			if err != nil {
				return err
			}
			if kept[x.Path] || x.Path == last { // it was tried twice
				continue
			}
			last = x.Path
			if err := write(asRetiredJSON(p, x, "retired")); err != nil {
				return err
			}
		}
	}
	return nil
}

// tellKept prints originals that stay for a reason that needs a person's attention, and reports whether there are any.
func (a *app) tellKept(p fleet.Plan, done fleet.Retired) (faulty bool) {
	broken, damaged, unknown := map[string]bool{}, false, false
	for _, k := range done.Kept {
		if k.Why == fleet.ACL && k.Note != "" && !unknown {
			a.warn("%s: %s: originals stay, unless you give --without acl: %s", format.Escape(p.Name), k.Why, printable(k.Note))
			unknown = true
		}
		if !k.Why.Fault() {
			continue
		}
		faulty, damaged = true, damaged || k.Why == fleet.ArchiveDamaged || k.Why == fleet.Differs
		j := asKeptJSON(p, k)
		switch {
		case a.json:
			a.printJSON(j)
		case k.Why == fleet.ArchiveChanged: // this is about all of its files
			if !broken[k.Archive] {
				a.warn("%s: %s: originals stay: %s", format.Escape(store.Redact(k.Archive)), k.Why, j.Problem)
			}
			broken[k.Archive] = true
		default:
			a.warn("%s: %s: %s: %s", format.Escape(store.Redact(k.Archive)), j.Path, k.Why, j.Problem)
		}
	}
	if damaged || len(broken) > 0 {
		a.warn("%s: 'holdall fleet repair' rebuilds damaged archives from their originals", format.Escape(p.Name))
	}
	return faulty
}

func asRetiredSum(p fleet.Plan, done fleet.Retired, dry bool) retiredSumJSON {
	j := retiredSumJSON{Plan: p.Name, Run: done.Run, Earlier: done.Earlier, Objects: done.Objects, Bytes: done.Bytes, DryRun: dry, Finished: done.Finished,
		Proven: done.Proven, Left: map[string]int64{}, Limited: done.Limited}
	for why, n := range done.Left {
		j.Left[joined(string(why))] = n
	}
	return j
}

func (a *app) lineRetired(p fleet.Plan, done fleet.Retired, dry bool) {
	did := "retired"
	if dry {
		did = "would retire"
	}
	more := ""
	if len(done.Earlier) > 0 {
		more += ", with those of an interrupted run"
	}
	if done.Finished > 0 {
		more += fmt.Sprintf("; %s retired by an earlier run", count(done.Finished, "object"))
	}
	if done.Limited {
		more += "; the limit is reached"
	}
	fmt.Fprintf(a.out, "%s: %s %s, %s%s%s\n", format.Escape(p.Name), did, count(done.Objects, "object"), a.humanSize(done.Bytes), provenBy(done.Proven), more)
	for _, why := range slices.Sorted(maps.Keys(done.Left)) {
		fmt.Fprintf(a.out, "  kept, %s: %s\n", why, count(done.Left[why], "object"))
	}
}

func (a *app) tellOriginals(n *fleet.Originals) {
	if n != nil {
		fmt.Fprintf(a.out, "originals: %s retired, %s missing, %s still there\n", thousands(n.Retired), thousands(n.Missing), thousands(n.Stay))
	}
}
