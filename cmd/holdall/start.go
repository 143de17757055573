package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdall/holdall/store"
)

// firstWord returns the first of args that is neither a flag nor the value of
// a global flag.
func firstWord(flags *pflag.FlagSet, args []string) (word string, at int) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return "", -1
		}
		if !strings.HasPrefix(arg, "-") || arg == "-" {
			return arg, i
		}
		var f *pflag.Flag
		if name, ok := strings.CutPrefix(arg, "--"); ok {
			f = flags.Lookup(name) // nil for NAME=VALUE
		} else if len(arg) == 2 {
			f = flags.ShorthandLookup(arg[1:])
		}
		if f != nil && f.NoOptDefVal == "" {
			i++
		}
	}
	return "", -1
}

// verbFor expands 'holdall ARCHIVE' to the verb that it stands for. A verb
// takes precedence over a file of its name.
func verbFor(root *cobra.Command, args []string) ([]string, error) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	word, at := firstWord(root.PersistentFlags(), args)
	if at < 0 || word == "-" || strings.HasPrefix(word, cobra.ShellCompRequestCmd) {
		return args, nil
	}
	for _, arg := range args[:at] {
		if tar := likeTar(arg); tar != nil && root.PersistentFlags().ShorthandLookup(arg[1:2]) == nil && strings.HasSuffix(arg, "f") {
			return args, tar
		}
	}
	if cmd, rest, err := root.Find(args); err == nil && cmd != root {
		// A verb that only has subcommands.
		if !cmd.Runnable() && cmd.HasAvailableSubCommands() {
			if word, at := firstWord(root.PersistentFlags(), rest); at >= 0 {
				return args, unknownVerb(cmd, word)
			}
		}
		return args, nil
	}
	switch {
	case isAddress(word):
		return append([]string{"ls"}, args...), nil
	case strings.ContainsAny(word, `/\.*`):
		return args, usage("%s is not a verb, and there is no file of this name", word)
	}
	return args, unknownVerb(root, word)
}

// isAddress reports whether a word is a URL, or the path of something that
// exists.
func isAddress(word string) bool {
	if _, err := os.Lstat(word); err == nil || store.Scheme(word) != "" {
		return true
	}
	several, _ := filepath.Glob(word)
	return len(several) > 0
}

func variable(flag string) string {
	return "HOLDALL_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// environment sets global flags from their variables, unless the command line
// sets them. A verb's own flag of the same name has another meaning, and is
// not set.
func (a *app) environment(cmd *cobra.Command) (err error) {
	cmd.Root().PersistentFlags().VisitAll(func(f *pflag.Flag) {
		v := os.Getenv(variable(f.Name))
		value, own := f.Value, cmd.Flags().Lookup(f.Name)
		if v == "" || f.Changed || own != f && !own.Hidden || err != nil {
			return
		}
		if former, ok := f.Value.(*formerFlag); ok {
			if cmd.Root().PersistentFlags().Changed(former.is) {
				return
			}
			value, a.former = former.Value, append(a.former, variable(former.was)+" is "+variable(former.is)+" now")
		}
		if serr := value.Set(v); serr != nil {
			err = &usageError{fmt.Errorf("%s: invalid value %q: %w", variable(f.Name), v, serr)}
		}
	})
	return err
}
