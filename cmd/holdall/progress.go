package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/meter"
	"github.com/holdall/holdall/internal/base/screen"
)

const (
	showAfter  = 500 * time.Millisecond // shorter work shows no progress
	lookEvery  = 100 * time.Millisecond
	plainEvery = 10 * time.Second
	barColumns = 16
	leastName  = 8 // columns; less says nothing
)

func (a *app) showProgress(m *holdall.Meter, done string) (stop func()) {
	mode := a.progress
	if mode == "none" || a.quiet || a.verbose && mode == "auto" || mode == "auto" && !a.errTTY {
		return func() {}
	}
	m.WantTotal = true
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if mode == "plain" {
			a.plainProgress(m, done, quit)
		} else {
			a.barProgress(m, done, quit)
		}
	})
	return sync.OnceFunc(func() {
		close(quit)
		wg.Wait()
	})
}

func (a *app) plainProgress(m *holdall.Meter, done string, quit <-chan struct{}) {
	start := time.Now()
	t := time.NewTicker(plainEvery)
	defer t.Stop()
	for {
		select {
		case <-quit:
			return
		case <-t.C:
			p := m.Snapshot()
			rate := float64(p.Bytes) / time.Since(start).Seconds()
			fmt.Fprintf(a.stderr, "holdall: %s: %s, %s %s, %s/s%s%s\n", a.verb, count(p.Entries, "entry"), humanSize(p.Bytes), done,
				humanSize(int64(rate)), timeLeft(p, time.Since(start)), ifAny(": %s", format.Escape(p.Name)))
		}
	}
}

func timeLeft(p meter.Progress, took time.Duration) string {
	if p.TotalBytes <= 0 || p.Bytes <= 0 || p.Bytes > p.TotalBytes {
		return ""
	}
	left := time.Duration(float64(took) * float64(p.TotalBytes-p.Bytes) / float64(p.Bytes))
	return fmt.Sprintf(", %v left of %s", left.Round(time.Second), humanSize(p.TotalBytes))
}

// barProgress draws one line on a terminal.
func (a *app) barProgress(m *holdall.Meter, done string, quit <-chan struct{}) {
	start := time.Now()
	select {
	case <-quit:
		return
	case <-time.After(showAfter):
	}
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for before := 0; ; {
		line := progressLine(m.Snapshot(), done, time.Since(start), columnsOf(a.stderr)-1)
		width := screen.Width(line)
		fmt.Fprintf(a.stderr, "\r%s%*s", line, max(0, before-width), "")
		before = width
		select {
		case <-quit:
			fmt.Fprintf(a.stderr, "\r%*s\r", before, "")
			return
		case <-t.C:
		}
	}
}

// progressLine tells what is done, at which speed, and if the total is known by now, how much that is of it and
// which time is left. What is left of the line has the name of the current entry.
func progressLine(p meter.Progress, done string, took time.Duration, columns int) string {
	bar := ""
	if p.TotalBytes > 0 {
		full := min(int(p.Bytes*barColumns/p.TotalBytes), barColumns)
		bar = " [" + strings.Repeat("=", full) + strings.Repeat("-", barColumns-full) + "]"
	}
	line := fmt.Sprintf("%s %s, %s%s, %s/s%s", done, thousands(p.Entries), humanSize(p.Bytes), bar,
		humanSize(int64(float64(p.Bytes)/took.Seconds())), timeLeft(p, took))
	if room := columns - screen.Width(line) - len(" "); p.Name != "" && room >= leastName {
		line += " " + screen.Shorten(format.Escape(p.Name), room)
	}
	return screen.Shorten(line, columns)
}
