package bytemap

import (
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdall/holdall/format"
)

// amount returns how much of the archive a use takes, as a text.
func (m *Map) amount(u Use) string {
	return human(m.Totals[u].Bytes) + ", " + percent(m.Totals[u].Bytes, m.size())
}

func (m *Map) title() string {
	var spans int64
	for _, share := range m.Totals {
		spans += share.Spans
	}
	return fmt.Sprintf("%s · %s · %s", several(int64(len(m.Volumes)), "volume"), human(m.size()), several(spans, "span"))
}

// notes returns sentences about what the picture cannot show.
func (l *layout) notes() (notes []string) {
	if n := len(l.m.Volumes) - len(l.shown); n > 0 {
		notes = append(notes, "not shown: "+several(int64(n), "more volume"))
	}
	if l.m.Shared > 0 {
		notes = append(notes, "shared: "+several(l.m.Shared, "run")+" by "+several(l.m.SharedBy, "file"))
	}
	if l.m.Outside > 0 {
		notes = append(notes, "out of their volume's bounds: "+several(l.m.Outside, "span"))
	}
	if l.m.Parity != "" {
		notes = append(notes, "parity: "+format.Escape(l.m.Parity))
	}
	if u := l.m.Unproven; u.Files > 0 {
		notes = append(notes, "unproven: "+several(u.Files, "file")+", "+human(u.Bytes))
	}
	return notes
}

func several(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return counted(n) + " " + what + "s"
}

func describe(s Run) string {
	text := s.Use.String()
	if s.Label != "" {
		text = format.Escape(s.Label)
		if s.Use != Content {
			text += " (" + s.Use.String() + ")"
		}
	}
	if s.Files > 0 {
		text += " and " + several(s.Files-1, "more file")
	}
	return fmt.Sprintf("%s\nbytes %s – %s, %s", text, counted(s.Off), counted(s.Off+s.Len), human(s.Len))
}

func (m mix) describe(from, to int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "bytes %s – %s", counted(from), counted(to))
	parts, _ := m.shares()
	for _, u := range drawn {
		if p := parts[u] * 100; p >= 0.05 {
			fmt.Fprintf(&b, "\n%s %.1f %%", u, p)
		}
	}
	return b.String()
}

// legend returns the uses that occur.
func (m *Map) legend() (uses []Use) {
	for _, u := range append(drawn[:], Overlap) {
		if m.Totals[u] != (Share{}) {
			uses = append(uses, u)
		}
	}
	return uses
}

func (m *Map) size() (n int64) {
	for _, v := range m.Volumes {
		n = plus(n, v.Size)
	}
	return n
}

// human returns a number of bytes with three significant digits.
func human(n int64) string {
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	f, unit := float64(n), -1
	for f >= 1023.5 && unit < 5 {
		f /= 1024
		unit++
	}
	digits := 0
	for _, limit := range []float64{99.95, 9.995} {
		if f < limit {
			digits++
		}
	}
	s := strconv.FormatFloat(f, 'f', digits, 64)
	if digits > 0 {
		for s[len(s)-1] == '0' {
			s = s[:len(s)-1]
		}
		if s[len(s)-1] == '.' {
			s = s[:len(s)-1]
		}
	}
	return s + " " + "KMGTPE"[unit:unit+1] + "iB"
}

// percent returns a share as a text. It returns 0 only if n is 0, and 100 only if nothing is
// missing.
func percent(n, of int64) string {
	if of <= 0 || n == 0 {
		return "0 %"
	}
	p := 100 * float64(n) / float64(of)
	switch {
	case p < 0.1:
		return "< 0.1 %"
	case p > 99.9 && n < of:
		return "> 99.9 %"
	}
	return strconv.FormatFloat(p, 'f', 1, 64) + " %"
}

// counted returns a number with its digits in groups of three.
func counted(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func escaped(s string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(s))
	return b.String()
}
