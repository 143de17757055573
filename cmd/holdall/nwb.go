package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/hierarchy"
	"github.com/holdall/holdall/internal/base/screen"
)

const (
	shownRows   = 40   // of a list for people
	timedSeries = 1000 // for up to this number of series, programs get the start and end times
	shownLines  = 4    // of a text
)

// keysOf returns an archive by the keys of its hierarchy, or nil if it has
// none. view is the one that was asked for.
func (a *app) keysOf(ctx context.Context, in *holdall.Archive, view string) (*holdall.Archive, error) {
	views := in.Format().Views
	switch {
	case !slices.Contains(views, zarrView):
		if hierarchy.Is(ctx, in) {
			return in, nil
		}
		return nil, nil
	case cmp.Or(view, views[0]) == zarrView:
		return in, nil
	}
	return a.openAgain(ctx, in, nil)
}

func (i *infoJSON) look(ctx context.Context, a *app, in *holdall.Archive) error {
	keys, err := a.keysOf(ctx, in, a.view)
	if keys == nil {
		return err
	}
	if keys != in {
		defer keys.Close()
	}
	h, err := hierarchy.Read(ctx, keys)
	if err != nil {
		return err
	}
	if i.Arrays, err = gatherArrays(ctx, keys, h.Arrays); err != nil {
		return err
	}
	timed := shownRows
	if a.json {
		timed = timedSeries
	}
	if i.NWB, err = h.NWB(ctx, timed); err == nil && i.NWB != nil {
		err = i.NWB.Err
	}
	return err
}

// foreign formats a text from an archive so that it can be shown on one line.
func foreign(s string) string { return format.Escape(strings.Join(strings.Fields(s), " ")) }

func (a *app) paragraph(first, text string) { a.wrap(first, text, shownLines) }

// wrap prints a text after first in at most that many lines.
func (a *app) wrap(first, text string, most int) {
	indent := screen.Width(first)
	line, at, lines := first, indent, 1
	for word := range strings.SplitSeq(text, " ") {
		n := screen.Width(word) + 1
		if at+n > columnsOf(a.stdout) && at > indent {
			if lines++; lines > most {
				line += " …"
				break
			}
			fmt.Fprintln(a.out, line)
			line, at = strings.Repeat(" ", indent), indent
		}
		if at > indent {
			line += " "
		}
		line, at = line+word, at+n
	}
	fmt.Fprintln(a.out, line)
}

func (a *app) printNWB(n *hierarchy.NWB) {
	if n == nil {
		return
	}
	fmt.Fprintf(a.out, "\nNWB %s\n", foreign(n.Version))
	say := func(key string, text ...string) {
		text = slices.DeleteFunc(text, func(s string) bool { return s == "" })
		if len(text) > 0 {
			a.paragraph(fmt.Sprintf("  %-13s ", key), foreign(strings.Join(text, ", ")))
		}
	}
	s := n.Session
	say("description", s.Description)
	say("identifier", s.Identifier)
	say("session", s.ID)
	say("started", s.StartTime)
	say("experiment", s.Experiment)
	say("experimenter", strings.Join(s.Experimenter, "; "))
	say("institution", s.Institution)
	say("lab", s.Lab)
	say("keywords", s.Keywords...)
	if w := n.Subject; w != nil {
		say("subject", w.ID, w.Species, ifAny("strain %s", w.Strain), ifAny("genotype %s", w.Genotype), ifAny("sex %s", w.Sex), ifAny("age %s", w.Age), ifAny("born %s", w.DateOfBirth), ifAny("weight %s", w.Weight), w.Description)
	}
	for _, d := range n.Devices {
		say("device", d.Name, d.Description, ifAny("by %s", d.Manufacturer))
	}
	rows(a, thousands(int64(len(n.Series)))+" time series", n.Series, func(x hierarchy.Series) {
		a.paragraph("  ", format.Escape(x.Path)+"  "+foreign(x.Type))
		a.paragraph("    ", seriesText(x))
	})
	rows(a, count(int64(len(n.Tables)), "table"), n.Tables, func(x hierarchy.Table) {
		a.paragraph("  ", fmt.Sprintf("%s  %s, %s", format.Escape(x.Path), foreign(x.Type), count(x.Rows, "row")))
		a.paragraph("    ", foreign(strings.Join(x.Columns, ", ")))
	})
}

func rows[T any](a *app, title string, all []T, one func(T)) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(a.out, "\n%s\n", title)
	for _, x := range all[:min(len(all), shownRows)] {
		one(x)
	}
	if more := len(all) - shownRows; more > 0 {
		fmt.Fprintf(a.out, "  and %s more; --json lists all\n", thousands(int64(more)))
	}
}

func seriesText(x hierarchy.Series) string {
	if x.Error != "" && x.Shape == nil {
		return printable(x.Error)
	}
	words := []string{x.DType + " " + shapeText(x.Shape)}
	if unit := foreign(x.Unit); unit != "" && x.Conversion != nil && *x.Conversion != 1 {
		words = append(words, unit+" × "+decimal(*x.Conversion))
	} else if unit != "" {
		words = append(words, unit)
	}
	if x.Rate != nil {
		words = append(words, decimal(*x.Rate)+" Hz")
	} else if x.Timestamps != nil {
		words = append(words, count(*x.Timestamps, "timestamp"))
	}
	if x.Duration != nil {
		words = append(words, seconds(*x.Duration))
	}
	if x.Start != nil {
		words = append(words, "from "+seconds(*x.Start))
	}
	if x.Error != "" {
		words = append(words, printable(x.Error))
	}
	return strings.Join(words, ", ")
}

// decimal formats a number that may have been a 32-bit one.
func decimal(v float64) string {
	if v == float64(float32(v)) {
		return strconv.FormatFloat(v, 'g', -1, 32)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

func seconds(v float64) string {
	s := strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64) + " s"
	if v >= 120 && v < 1e9 {
		s += " (" + time.Duration(v*float64(time.Second)).Round(time.Second).String() + ")"
	}
	return s
}
