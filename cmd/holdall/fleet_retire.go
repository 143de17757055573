package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/fleet"
	"github.com/holdall/holdall/store"
)

func (a *app) fleetRetireCommand() *cobra.Command {
	var o fleet.RetireOptions
	var bytes sizeFlag
	var without []string
	var log string
	cmd := &cobra.Command{
		Use:   "retire [PLAN...]",
		Short: "Delete originals whose packed files are proven",
		Long: `Deletes the originals of all plans, or of the given ones, after proving that
their archives have them. Each file is read back from its archive, and compared
with its digest and with the checksum that the service reports for the original
now. If the service has no checksum, the original is read too, and compared
byte by byte.

Only the version that was packed is deleted, with the headers and the time that
were packed. An original in doubt stays, and is counted by its reason. So does
one with tags or anything else that archives do not keep, unless --without
names it. In a bucket that keeps versions, the deleted object stays
as an older version.

You may interrupt a run at any time. The next run proves its unfinished
deletions again.

The exit code is 1 if an original stays because its archive is damaged, changed
or unreadable, because it differs from its archive, or because its service
refused.`,
		Example: `  holdall fleet retire --dry-run
  holdall fleet retire s3://packed/photos.caf --older-than 720h --log retired.jsonl`,
		RunE: a.onDatabase(catalog.Options{}, func(ctx context.Context, c *catalog.Catalog, names []string) error {
			switch {
			case o.Limit < 0:
				return usage("--limit: expected at least 0, found %d", o.Limit)
			case o.OlderThan < 0:
				return usage("--older-than: expected at least 0, found %s", o.OlderThan)
			case o.Jobs < 0:
				return usage("--jobs: expected at least 1, found %d", o.Jobs)
			}
			for _, word := range without {
				why := fleet.Reason(strings.ReplaceAll(word, "-", " "))
				if !slices.Contains(fleet.Unkept, why) {
					return usage("--without: expected tags, storage-class, redirect or lock, found %q", word)
				}
				o.Without = append(o.Without, why)
			}
			o.LimitBytes = int64(bytes)
			var l *retireLog
			if log != "" && !o.DryRun {
				f, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
				if err != nil {
					return err
				}
				defer f.Close()
				l = &retireLog{f: f}
			}
			return a.fleetRetire(ctx, c, names, o, l)
		}),
	}
	fs := cmd.Flags()
	fs.BoolVarP(&o.DryRun, "dry-run", "n", false, "prove everything, but only print what would be deleted")
	fs.DurationVar(&o.OlderThan, "older-than", 0, "only originals packed at least this long ago: 720h")
	fs.Int64Var(&o.Limit, "limit", 0, "delete at most this many objects")
	fs.Var(&bytes, "limit-bytes", "delete at most this much content: 1TB")
	fs.BoolVar(&o.NoReread, "no-reread", false, "keep originals without a checksum instead of reading them again")
	fs.StringSliceVar(&without, "without", nil, "also delete originals that have these, which archives do not keep: tags,storage-class,redirect,lock")
	fs.IntVarP(&o.Jobs, "jobs", "j", 0, "originals to look up or delete at once (default 16)")
	fs.StringVar(&log, "log", "", "append a JSON line to this file before each deletion")
	return cmd
}

// A retireLog is a file that gets each deletion before it happens.
type retireLog struct{ f *os.File }

// write appends lines, and returns when they are on the disk.
func (l *retireLog) write(all ...retiredJSON) error {
	var b []byte
	for _, x := range all {
		x.Time = time.Now().UTC()
		line, err := json.Marshal(x)
		if err != nil {
			return err
		}
		b = append(append(b, line...), '\n')
	}
	_, err := l.f.Write(b)
	return cmp.Or(err, l.f.Sync())
}

type retiredJSON struct {
	Plan string `json:"plan"`
	pathJSON
	Original string    `json:"original"`
	Version  string    `json:"version"`
	Size     int64     `json:"size"`
	Archive  string    `json:"archive"`
	ProvenBy string    `json:"proven_by,omitempty"`
	Event    string    `json:"event"`
	Reason   string    `json:"reason,omitempty"`
	Problem  string    `json:"problem,omitempty"`
	Time     time.Time `json:"time,omitzero"`
}

func asRetiredJSON(p catalog.Plan, x fleet.Retirement, event string) retiredJSON {
	return retiredJSON{Plan: p.Name, pathJSON: pathOf(x.Path), Original: format.Escape(x.Original), Version: format.Escape(x.Version), Size: x.Size,
		Archive: format.Escape(x.Archive), ProvenBy: x.By, Event: event}
}

type retiredSumJSON struct {
	Plan     string           `json:"plan"`
	Objects  int64            `json:"objects"`
	Bytes    int64            `json:"bytes"`
	DryRun   bool             `json:"dry_run,omitempty"`
	Finished int64            `json:"finished,omitempty"`
	Proven   map[string]int64 `json:"proven"`
	Left     map[string]int64 `json:"left"`
	Limited  bool             `json:"limited,omitempty"`
}

func (a *app) fleetRetire(ctx context.Context, c *catalog.Catalog, names []string, o fleet.RetireOptions, l *retireLog) error {
	faulty, event := false, "retired"
	if o.DryRun {
		event = "would_retire"
	}
	limit, limitBytes, retired, bytes := o.Limit, o.LimitBytes, int64(0), int64(0)
	err := a.plansNamed(ctx, c, names, func(p catalog.Plan) error {
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
		broken, damaged := map[string]bool{}, false
		var logged error
		if l != nil {
			o.Going = func(all []fleet.Retirement) error {
				var lines []retiredJSON
				for _, x := range all {
					lines = append(lines, asRetiredJSON(p, x, "retiring"))
				}
				return cmp.Or(logged, l.write(lines...))
			}
		}
		o.Gone = func(x fleet.Retirement) {
			if a.json {
				a.printJSON(asRetiredJSON(p, x, event))
			}
		}
		o.Kept = func(k fleet.Keeping) {
			j := asRetiredJSON(p, k.Retirement, "left")
			j.Reason = joined(string(k.Why))
			if k.Err != nil {
				j.Problem = printable(k.Err.Error())
			}
			if l != nil && k.Going {
				logged = cmp.Or(logged, l.write(j))
			}
			if !k.Why.Fault() {
				return
			}
			faulty = true
			damaged = damaged || k.Why == fleet.ArchiveDamaged || k.Why == fleet.Differs
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
		o.Meter = &holdall.Meter{}
		stop := a.showProgress(o.Meter, "proven")
		done, err := fleet.Retire(ctx, c, p, o)
		stop()
		retired, bytes = retired+done.Objects, bytes+done.Bytes
		if damaged || len(broken) > 0 {
			a.warn("%s: 'holdall fleet repair' rebuilds damaged archives from their originals", format.Escape(p.Name))
		}
		a.tell(asRetiredSum(p, done, o.DryRun), func() { a.lineRetired(p, done, o.DryRun) })
		return cmp.Or(err, logged)
	})
	return cmp.Or(err, answer(faulty))
}

func asRetiredSum(p catalog.Plan, done fleet.Retired, dry bool) retiredSumJSON {
	j := retiredSumJSON{p.Name, done.Objects, done.Bytes, dry, done.Finished, done.Proven, map[string]int64{}, done.Limited}
	for why, n := range done.Left {
		j.Left[joined(string(why))] = n
	}
	return j
}

func (a *app) lineRetired(p catalog.Plan, done fleet.Retired, dry bool) {
	did := "retired"
	if dry {
		did = "would retire"
	}
	more := ""
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
		fmt.Fprintf(a.out, "originals: %s retired, %s being retired, %s still there\n", thousands(n.Retired), thousands(n.Leaving), thousands(n.Stay))
	}
}
