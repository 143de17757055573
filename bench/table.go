package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// row is one comparison in the table.
type row struct {
	what               string
	peer, ours         string // the commands
	peerTook, oursTook *figures
	goals              []string
	verdict            string
	notes              []string
	skipped            []string
}

// goal is a goal of a comparison.
type goal struct {
	text string
	// met returns false, false if there is nothing to compare with.
	met func(peer, ours *figures) (met, known bool)
}

// cpuOfEach is the goal that each of n requests takes at most so much CPU.
func cpuOfEach(n int, most time.Duration) goal {
	return goal{fmt.Sprintf("CPU of each ≤ %v", most), func(_, ours *figures) (bool, bool) { return ours.cpu <= time.Duration(n)*most, true }}
}

// wallRatio is the goal that our time is at most most times the peer's.
func wallRatio(most float64) goal {
	return goal{fmt.Sprintf("ratio ≤ %.2f", most), func(peer, ours *figures) (bool, bool) {
		return peer != nil && ratio(peer, ours) <= most, peer != nil
	}}
}

func wallUnder(most time.Duration) goal {
	return goal{fmt.Sprintf("wall ≤ %v", most), func(_, ours *figures) (bool, bool) { return ours.wall <= most, true }}
}

func cpuUnder(most time.Duration) goal {
	return goal{fmt.Sprintf("CPU ≤ %v", most), func(_, ours *figures) (bool, bool) { return ours.cpu <= most, true }}
}

// rssUnder is the goal that we need less memory than most. It is unknown if the system does not
// report memory.
func rssUnder(most int64) goal {
	return goal{"RSS < " + mib(most), func(_, ours *figures) (bool, bool) { return ours.rss < most, ours.rss > 0 }}
}

// memoryUnder is the goal that there is less memory than most at some time.
func memoryUnder(when string, is, most int64) goal {
	return goal{"RSS " + when + " < " + mib(most), func(_, _ *figures) (bool, bool) { return is < most, is > 0 }}
}

func ratio(peer, ours *figures) float64 { return ours.wall.Seconds() / peer.wall.Seconds() }

// judge compares figures with goals.
func (r *row) judge(goals []goal, quick bool) {
	var missed, unknown []string
	for _, g := range goals {
		r.goals = append(r.goals, g.text)
		switch met, known := g.met(r.peerTook, r.oursTook); {
		case !known:
			unknown = append(unknown, g.text)
		case !met:
			missed = append(missed, g.text)
		}
	}
	switch {
	case len(goals) == 0:
	case quick:
		r.verdict = "quick"
	case len(missed) == 0 && len(unknown) == 0:
		r.verdict = "met"
	case len(missed) == 0:
		r.verdict = "unknown: " + strings.Join(unknown, ", ")
	case len(goals) == 1:
		r.verdict = "not met"
	default:
		r.verdict = "not met: " + strings.Join(missed, ", ")
	}
}

// printTable writes the figures, then the commands.
func printTable(out io.Writer, rows []row) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tPEER wall\tCPU\tRSS\tOURS wall\tCPU\tRSS\tRATIO\tGOAL\t")
	for _, r := range rows {
		quotient := "-"
		if r.peerTook != nil && r.oursTook != nil {
			quotient = fmt.Sprintf("%.2f", ratio(r.peerTook, r.oursTook))
		}
		verdict := strings.Join(append([]string{strings.Join(r.goals, ", ")}, r.notes...), "; ")
		if r.verdict != "" {
			verdict += ": " + r.verdict
		}
		verdict = strings.TrimPrefix(strings.TrimPrefix(verdict, "; "), ": ")
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t\n", r.what, cells(r.peerTook), cells(r.oursTook), quotient, verdict)
	}
	w.Flush()
	fmt.Fprintln(out)
	for _, r := range rows {
		fmt.Fprintf(out, "%s\n  peer: %s\n  ours: %s\n", r.what, orNone(r.peer), orNone(r.ours))
		for _, why := range r.skipped {
			fmt.Fprintf(out, "  skipped: %s\n", why)
		}
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// cells returns the three columns of one side.
func cells(f *figures) string {
	if f == nil {
		return "-\t-\t-"
	}
	cpu, rss := "-", "-"
	if f.cpu > 0 {
		cpu = seconds(f.cpu)
	}
	if f.rss > 0 {
		rss = mib(f.rss)
	}
	return seconds(f.wall) + "\t" + cpu + "\t" + rss
}

func seconds(d time.Duration) string {
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.3f ms", 1e3*d.Seconds())
	}
	return fmt.Sprintf("%.3f s", d.Seconds())
}

func mib(n int64) string { return fmt.Sprintf("%.4g MiB", float64(n)/(1<<20)) }
