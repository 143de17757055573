// Command readability prints how hard texts are to read: how long their sentences are, how many
// of their words are long, and how often they use phrases that this project avoids.
//
//	go run -C tools ./readability [-strict] [-help HOLDALL] FILE...
//
// With -strict it prints these phrases only, and the exit code is 1 if there are any.
//
// Files are pages of Markdown; code blocks, tables and headings are left out. With -help, the help
// texts of all verbs of a command are read, too.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"
)

const (
	longSentence = 25 // words
	longWord     = 10 // letters
)

var (
	fence    = regexp.MustCompile("(?ms)^```.*?^```")
	comment  = regexp.MustCompile(`(?s)<!--.*?-->`)
	skipped  = regexp.MustCompile(`(?m)^(#.*|\|.*|!\[.*|\s*)$`)
	item     = regexp.MustCompile(`(?m)^\s*([-*]|\d+\.) `)
	code     = regexp.MustCompile("`[^`]*`")
	target   = regexp.MustCompile(`\]\([^)]*\)`)
	sentence = regexp.MustCompile(`[.!?:;]["')*]*(\s|$)|\n\n`)
	verb     = regexp.MustCompile(`(?m)^  ([a-z][a-z0-9-]*) +\S`)
	// riddles are phrases that are hard to understand.
	riddles = regexp.MustCompile(`(?i)\b(but for|taken up|is (told|said|believed)|no more than|of which|whoever|who does|as it was|the like|nobody|dear|also none|the answer is no|proven by nothing|(is|was) not of (it|them))\b|\bvariable is none\b|\bthat begin with [^.]* are none\b|\b1 ([a-z]+ )?(folders|files|entries|names|archives)\b|\b(command|program|page|file) has \d+ [kMG]i?B\b|(?:^|[.;] )(Of|Who|What) (it|one|the|is|was|has)\b|[.] Of (a|an|each|these|those|every)\b`)
)

// A score counts words.
type score struct{ sentences, words, long, tooLong, riddles int }

func (s *score) add(o score) {
	s.sentences += o.sentences
	s.words += o.words
	s.long += o.long
	s.tooLong += o.tooLong
	s.riddles += o.riddles
}

func read(text string) (s score) {
	for _, part := range sentence.Split(text, -1) {
		words := strings.FieldsFunc(part, func(r rune) bool { return !unicode.IsLetter(r) && r != '\'' && r != '-' })
		words = slices.DeleteFunc(words, func(w string) bool { return strings.Trim(w, "-'") == "" })
		if len(words) < 3 { // a name or a number
			continue
		}
		s.sentences++
		s.words += len(words)
		if len(words) > longSentence {
			s.tooLong++
		}
		for _, w := range words {
			if utf8.RuneCountInString(w) >= longWord {
				s.long++
			}
		}
	}
	s.riddles = len(riddles.FindAllString(text, -1))
	return s
}

// prose returns the sentences of a page of Markdown.
func prose(page string) string {
	page = comment.ReplaceAllString(fence.ReplaceAllString(page, "\n\n"), "")
	page = skipped.ReplaceAllString(page, "")
	page = item.ReplaceAllString(page, "\n\n")
	page = code.ReplaceAllString(page, "code")
	return strings.NewReplacer("*", "", "[", "").Replace(target.ReplaceAllString(page, ""))
}

// helps returns the help texts of a command and of all its verbs. Above is the help of the verb
// that they belong to: a word that is not a verb prints it again.
func helps(bin, above string, words ...string) (string, error) {
	out, err := exec.Command(bin, append(words, "--help")...).Output()
	if err != nil {
		return "", fmt.Errorf("%s %s --help: %w", bin, strings.Join(words, " "), err)
	}
	text := string(out)
	long, rest, _ := strings.Cut(text, "\nUsage:")
	if text == above || len(words) == 2 {
		return long, nil
	}
	for _, m := range verb.FindAllStringSubmatch(rest, -1) {
		if m[1] == "holdall" || m[1] == "help" {
			continue
		}
		if more, err := helps(bin, text, append(slices.Clone(words), m[1])...); err == nil && !strings.HasPrefix(more, long) {
			long += "\n\n" + more
		}
	}
	return long, nil
}

func main() {
	bin := flag.String("help", "", "a holdall whose help texts are read, too")
	strict := flag.Bool("strict", false, "print phrases to avoid, and fail if there are any")
	flag.Parse()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "TEXT\tsentences\twords a sentence\tover 25 words\tlong words\triddles\t")
	var all score
	line := func(name string, s score) {
		n, words := max(s.sentences, 1), max(s.words, 1)
		fmt.Fprintf(w, "%s\t%d\t%.1f\t%.1f %%\t%.1f %%\t%d\t\n", name, s.sentences, float64(s.words)/float64(n), 100*float64(s.tooLong)/float64(n), 100*float64(s.long)/float64(words), s.riddles)
	}
	failed := false
	count := func(name, text string, err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "readability:", err)
			failed = true
			return
		}
		s := read(text)
		all.add(s)
		if *strict {
			for _, at := range riddles.FindAllStringIndex(text, -1) {
				from, to := max(0, at[0]-40), min(len(text), at[1]+40)
				fmt.Printf("%s: …%s…\n", name, strings.Join(strings.Fields(strings.ToValidUTF8(text[from:to], "")), " "))
			}
			return
		}
		line(name, s)
	}
	if *bin != "" {
		text, err := helps(*bin, "")
		count("help", text, err)
	}
	for _, name := range flag.Args() {
		b, err := os.ReadFile(name)
		count(filepath.Base(name), prose(string(b)), err)
	}
	if !*strict {
		line("all", all)
		w.Flush()
	}
	if failed || *strict && all.riddles > 0 {
		os.Exit(1)
	}
}
