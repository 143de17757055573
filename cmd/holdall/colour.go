package main

import (
	"cmp"
	"io"
	"os"
	"strings"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
)

// These are the colours of this command, and the usual ones of GNU ls and GNU
// grep, in the form of LS_COLORS.
const (
	ownColours  = "error=01;31:warning=01;33:sound=01;32:added=32:removed=31:changed=33:rs=0:"
	fileColours = "di=01;34:ln=01;36:pi=33:ex=01;32:"
	grepColours = "mt=01;31:fn=35:ln=32:se=36:rs=:"
)

// coloured reports whether what is written to w has colours. Nothing else
// decides that.
func (a *app) coloured(w io.Writer) bool {
	force := os.Getenv("CLICOLOR_FORCE")
	switch {
	case a.json || a.color == "never":
		return false
	case a.color == "always":
		return true
	case os.Getenv("NO_COLOR") != "":
		return false
	case force != "" && force != "0":
		return true
	}
	return isTerminal(w) && os.Getenv("TERM") != "dumb" && understandsColours(w.(*os.File))
}

// colours are codes by what they are for, and by the ends of names. A nil
// pointer is no colours.
type colours struct {
	codes map[string]string
	ends  [][2]string
}

// colours returns the usual colours for w, and those of a variable, which win.
func (a *app) colours(w io.Writer, usual, variable string) *colours {
	if !a.coloured(w) {
		return nil
	}
	return parseColours(ownColours + usual + os.Getenv(variable))
}

// parseColours reads KEY=CODE:*END=CODE. It skips what is not of this form, so
// that a code is always one that only changes colours.
func parseColours(text string) *colours {
	c := &colours{codes: map[string]string{}}
	for part := range strings.SplitSeq(text, ":") {
		key, code, ok := strings.Cut(part, "=")
		end, isEnd := strings.CutPrefix(key, "*")
		switch {
		case !ok || strings.Trim(code, "0123456789;") != "":
		case isEnd:
			c.ends = append(c.ends, [2]string{end, code})
		case key != "rs" && strings.Trim(code, "0") == "":
			delete(c.codes, key)
		default:
			c.codes[key] = code
		}
	}
	return c
}

func (c *colours) paint(key, text string) string {
	if c == nil {
		return text
	}
	return c.with(c.codes[key], text)
}

func (c *colours) with(code, text string) string {
	if strings.Trim(code, "0") == "" || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[" + c.codes["rs"] + "m"
}

// name colours the name of an entry as ls does. What is shown of it must be
// escaped.
func (c *colours) name(e *holdall.Entry, shown string) string {
	if c == nil {
		return shown
	}
	code := ""
	switch e.Kind {
	case format.Dir:
		code = c.codes["di"]
	case format.Symlink:
		code = c.codes["ln"]
	case format.Fifo:
		code = c.codes["pi"]
	case format.HardLink:
		code = c.codes["mh"]
	case format.File:
		if e.HasMode && e.Mode.Perm()&0o111 != 0 {
			code = c.codes["ex"]
		}
		for i := len(c.ends) - 1; i >= 0 && code == ""; i-- { // the last one wins
			if end := c.ends[i][0]; len(e.Name) >= len(end) && strings.EqualFold(e.Name[len(e.Name)-len(end):], end) {
				code = c.ends[i][1]
			}
		}
		code = cmp.Or(code, c.codes["fi"])
	}
	return c.with(cmp.Or(code, c.codes["no"]), shown)
}

// prefix begins a line on standard error. kind is "error" or "warning".
func (a *app) prefix(kind string) string {
	s := "holdall:"
	if a.verb != "" && a.verb != "holdall" {
		s += " " + a.verb + ":"
	}
	return a.colours(a.stderr, "", "").paint(kind, s) + " "
}
