package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/fleet"
)

// estimating holds the flags of an estimate, which makes no plan.
type estimating struct {
	dry     bool
	prices  prices
	rate    string
	workers int
	jobs    int
}

func (e *estimating) flags(fs *pflag.FlagSet) {
	fs.BoolVarP(&e.dry, "dry-run", "n", false, "record nothing; print the size of the plan and the cost of packing")
	e.prices.flag(fs)
	fs.StringVar(&e.rate, "rate", "", "with --dry-run: print the time at this rate: 400MB/s, or measured, which reads a sample")
	fs.IntVar(&e.workers, "workers", 1, "with --rate measured: number of workers")
	fs.IntVarP(&e.jobs, "jobs", "j", 16, "with --rate measured: objects to read at once")
}

func (e *estimating) check(fs *pflag.FlagSet) (rate float64, err error) {
	for _, name := range []string{"prices", "rate", "workers", "jobs"} {
		if fs.Changed(name) && !e.dry {
			return 0, usage("--%s needs --dry-run", name)
		}
		if fs.Changed(name) && (name == "workers" || name == "jobs") && e.rate != measured {
			return 0, usage("--%s needs --rate measured", name)
		}
	}
	if e.workers < 1 || e.jobs < 1 {
		return 0, usage("expected at least 1 worker and 1 job, found %d and %d", e.workers, e.jobs)
	}
	if e.rate == "" || e.rate == measured {
		return 0, nil
	}
	n, err := parseSize(strings.TrimSuffix(e.rate, "/s"))
	if err == nil && n <= 0 {
		err = errors.New("expected a rate above 0")
	}
	if err != nil {
		return 0, usage("--rate: expected a rate such as 400MB/s, or measured: %v", err)
	}
	return float64(n), nil
}

const measured = "measured"

// prices is the name of a file with prices.
type prices string

func (file *prices) flag(fs *pflag.FlagSet) {
	fs.StringVar((*string)(file), "prices", "", "with --dry-run: JSON file with your prices (default Amazon's list prices)")
}

func (file prices) table() (fleet.Prices, error) {
	if file == "" {
		return fleet.ListPrices(), nil
	}
	f, err := os.Open(string(file))
	if err != nil {
		return fleet.Prices{}, err
	}
	defer f.Close()
	p, err := fleet.ReadPrices(f)
	if err != nil {
		return p, fmt.Errorf("%s: %w", format.Escape(string(file)), err)
	}
	if p.Name == "" {
		p.Name = string(file)
	}
	return p, nil
}

// lineCost prints a line of an estimate.
func (a *app) lineCost(what, is string, args ...any) {
	fmt.Fprintf(a.out, "  %-10s %s\n", what, fmt.Sprintf(is, args...))
}

// lineRequests prints requests and what they cost, for the verb called what.
func (a *app) lineRequests(r fleet.Requests, what string, prices fleet.Prices, cost fleet.Cost) {
	a.lineCost("requests", "%s LIST, %s GET, %s PUT, %s COPY", thousands(r.List), thousands(r.Get), thousands(r.Put), thousands(r.Copy))
	more := ""
	if cost.Out > 0 {
		more = ", and " + money(prices, cost.Out) + " for egress"
	}
	a.lineCost(what, "%s for the requests%s", money(prices, cost.Requests), more)
}

func money(p fleet.Prices, x float64) string { return p.Currency + " " + fmt.Sprintf("%.2f", x) }

// estimate prints the estimated result of a plan. It does not require a
// catalogue.
func (a *app) estimate(ctx context.Context, s fleet.Spec, o estimating, rate float64) error {
	prices, err := o.prices.table()
	if err != nil {
		return err
	}
	address, _, err := a.catalogAddress()
	if err != nil {
		return err
	}
	b, err := a.openCatalog(ctx, address, forReading)
	if errors.Is(err, fs.ErrNotExist) {
		b, err = nil, nil
	}
	if err != nil {
		return err
	}
	if b != nil {
		defer b.Close()
	}
	measure := 0
	if o.rate == measured {
		measure = o.jobs
	}
	m := &holdall.Meter{}
	stop := a.showProgress(m, "listed")
	var told fleet.Planned
	e, err := fleet.DryRun(ctx, b, s, measure, func(p fleet.Planned) {
		m.Add(p.Objects-told.Objects, p.Bytes-told.Bytes)
		told = p
	})
	stop()
	if err != nil {
		return err
	}
	a.tellEstimate(e, prices, o, rate)
	return nil
}

type estimateJSON struct {
	plannedJSON
	DryRun     bool           `json:"dry_run"`
	Small      fleet.Share    `json:"small"`
	Copied     fleet.Share    `json:"copied"`
	Requests   fleet.Requests `json:"requests"`
	Through    int64          `json:"bytes_through_workers"`
	ReadBefore int64          `json:"gets_of_all_objects"`
	ReadAfter  int64          `json:"gets_of_all_archives"`
	Prices     fleet.Prices   `json:"prices"`
	Cost       fleet.Cost     `json:"cost"`
	Rate       float64        `json:"rate,omitempty"`
	Sample     *fleet.Sample  `json:"sample,omitempty"`
	Hours      float64        `json:"hours,omitempty"`
	Workers    int            `json:"workers,omitempty"`
	HoursOfAll float64        `json:"hours_of_all_workers,omitempty"`
}

func (a *app) tellEstimate(e fleet.Estimate, prices fleet.Prices, o estimating, rate float64) {
	cost := prices.Cost(e)
	j := estimateJSON{plannedJSON: asPlannedJSON(e.Planned), DryRun: true, Small: e.Small, Copied: e.Copied, Requests: e.Requests, Through: e.Through,
		ReadBefore: e.ReadBefore, ReadAfter: e.ReadAfter, Prices: prices, Cost: cost, Rate: rate}
	if o.rate == measured {
		rate = e.Sample.Rate()
		j.Rate, j.Sample, j.Workers, j.HoursOfAll = rate, &e.Sample, o.workers, e.Hours(rate*float64(o.workers))
	}
	j.Hours = e.Hours(rate)
	a.tell(j, func() {
		a.linePlanned(e.Planned, "would be new")
		line, money := a.lineCost, func(x float64) string { return money(prices, x) }
		if e.Copied.Objects > 0 {
			line("copied", "%s, %s copied by the server itself", count(e.Copied.Objects, "object"), a.humanSize(e.Copied.Bytes))
		}
		line("read", "%s, %s through the workers", count(e.Small.Objects, "object"), a.humanSize(e.Through))
		a.lineRequests(e.Requests, "packing", prices, cost)
		line("keeping", "%s a month", money(cost.Month))
		line("reading", "everything once: %s with %s GETs as objects, %s with %s as archives", money(cost.ReadBefore), thousands(e.ReadBefore), money(cost.ReadAfter), thousands(e.ReadAfter))
		line("prices", "%s", format.Escape(prices.Name))
		switch {
		case o.rate == measured && rate == 0:
			line("time", "unknown: no object could be read to measure the rate")
		case o.rate == measured:
			line("time", "%.1f hours for one worker, %.1f for %d, if server and network keep up: %s/s, measured with %s of %s",
				j.Hours, j.HoursOfAll, o.workers, a.humanSize(int64(rate)), a.humanSize(e.Sample.Bytes), count(e.Sample.Objects, "object"))
		case rate > 0:
			line("time", "%.1f hours at %s/s", j.Hours, a.humanSize(int64(rate)))
		}
	})
}
