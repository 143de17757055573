package explore

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// These match the beginning of what is left of a script: a token whose kind its first byte tells.
var (
	jsGap    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:\s+|//.*|(?s:/\*.*?\*/))`) })
	jsQuoted = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?s:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")`) })
	jsPiece  = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile("^(?s:[`}](?:\\\\.|\\$[^{`\\\\$]|[^`\\\\$])*(?:`|\\$\\{|\\$`))")
	}) // of a template, up to its end or an expression in it
	jsPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/\w*`) })
	jsWord    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:[\w$#]|[^\x00-\x7f])+`) })
	jsValue   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("[\\w$#'\"`)\\]}]$") }) // after it, a slash divides
)

// before are words after which a slash begins a pattern.
var before = []string{"return", "typeof", "case", "in", "of", "void", "throw", "else", "await", "yield"}

// squeezed returns a script without comments, except for notices of
// copyright, and without spaces that only people need. It keeps line breaks,
// because some of them end statements.
func squeezed(js string) (string, error) {
	var out strings.Builder
	var open []int // braces in the expressions of templates that have not ended, the innermost last
	last, gap := "", ""
	for js != "" {
		token := js[:1]
		if t := jsGap().FindString(js); t != "" && !strings.Contains(t, "Copyright") {
			if js = js[len(t):]; strings.Contains(t, "\n") {
				gap = "\n"
			} else if gap == "" {
				gap = " "
			}
			continue
		} else if t != "" {
			token = t
		} else if inner := len(open) - 1; js[0] == '`' || js[0] == '}' && inner >= 0 && open[inner] == 0 {
			token = jsPiece().FindString(js)
			if js[0] == '}' {
				open = open[:inner]
			}
			if strings.HasSuffix(token, "${") {
				open = append(open, 0)
			}
		} else if js[0] == '\'' || js[0] == '"' {
			token = jsQuoted().FindString(js)
		} else if js[0] == '/' && (!jsValue().MatchString(last) || slices.Contains(before, last)) {
			token = jsPattern().FindString(js)
		} else if t := jsWord().FindString(js); t != "" {
			token = t
		} else if inner >= 0 {
			open[inner] += map[string]int{"{": 1, "}": -1}[token]
		}
		if token == "" {
			return "", fmt.Errorf("it is not known what %.40q is", js)
		}
		words := last != "" && jsWord().MatchString(last[len(last)-1:]) && jsWord().MatchString(token)
		if gap == "\n" && (last == "" || strings.ContainsAny(last[len(last)-1:], "{([;,=?:&|") || strings.Contains("})]", token[:1])) {
			gap = ""
		}
		if gap == "\n" || gap == " " && (words || strings.Contains("+-/", token[:1]) && strings.HasSuffix(last, token[:1])) {
			out.WriteString(gap)
		}
		out.WriteString(token)
		js, last, gap = js[len(token):], token, ""
	}
	return out.String(), nil
}
