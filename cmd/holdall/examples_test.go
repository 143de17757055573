package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var (
	argsOf     = regexp.MustCompile(`\b(?:args|command)"?: (\[[^\]]*\])`)
	bare       = regexp.MustCompile(`([\[,]\s*)([^\s",\[\]][^",\]]*)`)
	block      = regexp.MustCompile("(?ms)^```[a-z]*\n(.*?)^```")
	lineOf     = regexp.MustCompile(`(?m)^(?:\$ )?holdall ([a-z-][^|<>#&;\n]*)`)
	ofShell    = strings.NewReplacer(`'`, "", `"`, "", `\*`, "*")
	imageEntry = `["/usr/bin/holdall"]`
)

// takes checks that a verb accepts a command line, without running it.
func takes(t *testing.T, where string, args []string) {
	t.Helper()
	cmd, rest, err := wholeCommand().Find(args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil || !cmd.Runnable() {
		t.Errorf("%s: holdall %q: %v", where, args, err)
	}
}

func TestVerbsTakeTheCommandsOfExamplesAndPages(t *testing.T) {
	want := map[string]int{"argo-workflow.yaml": 4, "aws-batch-job-definition.json": 1, "kubernetes-nightly.yaml": 3, "kubernetes-workers.yaml": 1}
	for name, n := range want {
		b, err := os.ReadFile(filepath.Join("../../examples", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range argsOf.FindAllStringSubmatch(string(b), -1) {
			var args []string
			list := bare.ReplaceAllString(m[1], `$1"$2"`)
			if list == imageEntry {
				continue
			}
			if err := json.Unmarshal([]byte(list), &args); err != nil {
				t.Fatalf("%s: %s: %v", name, list, err)
			}
			n--
			takes(t, name, args)
		}
		if n != 0 {
			t.Errorf("%s: %d commands more were expected", name, n)
		}
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	all := func(where, text string) {
		text = strings.ReplaceAll(text, "\\\n", "")
		for _, line := range lineOf.FindAllStringSubmatch(text, -1) {
			if n++; !strings.Contains(line[1], "--datastore") { // the flag itself looks for the folder
				takes(t, where, strings.Fields(ofShell.Replace(line[1])))
			}
		}
	}
	eachVerb(t, func(cmd *cobra.Command) {
		if cmd.Name() != "help" {
			all(cmd.CommandPath(), strings.ReplaceAll("\n"+cmd.Example, "\n  ", "\n"))
		}
	})
	for _, page := range append(pages, "../../README.md", "../../examples/README.md") {
		if filepath.Base(page) == "cli.md" { // the help, which has text in blocks
			continue
		}
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range block.FindAllStringSubmatch(string(b), -1) {
			all(page, m[1])
		}
	}
	if n < 100 {
		t.Errorf("only %d commands found in pages", n)
	}
}
