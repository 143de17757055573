package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

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

// nameIn returns what shows the name of the current entry, in what is left of
// the line beside a bar.
func nameIn(m *holdall.Meter, bar int) func(decor.Statistics) string {
	return func(s decor.Statistics) string {
		name, room := format.Escape(m.Snapshot().Name), s.AvailableWidth-bar-len("   ")
		if name == "" || room < leastName {
			return ""
		}
		return " " + screen.Shorten(name, room)
	}
}

// barProgress draws one line on a terminal. If the total is known by now, it
// is a bar with the time left, otherwise something that moves.
func (a *app) barProgress(m *holdall.Meter, done string, quit <-chan struct{}) {
	select {
	case <-quit:
		return
	case <-time.After(showAfter):
	}
	p := mpb.New(mpb.WithOutput(a.stderr), mpb.WithRefreshRate(lookEvery))
	total, start := m.Snapshot().TotalBytes, time.Now().Add(-showAfter)
	counts := decor.Any(func(decor.Statistics) string {
		s, left := m.Snapshot(), ""
		if total <= 0 { // a listing takes longer than the bar waits
			left = timeLeft(s, time.Since(start))
		}
		return fmt.Sprintf("%s %s, %s%s ", done, thousands(s.Entries), humanSize(s.Bytes), left)
	})
	style, columns, appended := mpb.BarFillerBuilder(mpb.SpinnerStyle()), 1, []decor.Decorator{decor.AverageSpeed(decor.SizeB1024(0), "% .1f")}
	if total > 0 {
		style, columns, appended = mpb.BarStyle(), barColumns, append(appended, decor.Name(" "), decor.AverageETA(decor.ET_STYLE_GO))
	}
	bar := p.New(total, style, mpb.BarWidth(columns), mpb.PrependDecorators(counts), mpb.AppendDecorators(append(appended, decor.Any(nameIn(m, columns)))...), mpb.BarRemoveOnComplete())
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		select {
		case <-quit:
			bar.Abort(true)
			p.Wait()
			return
		case <-t.C:
			bar.SetCurrent(m.Snapshot().Bytes)
		}
	}
}
