package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

// paramFlag is a flag for a parameter of formats.
type paramFlag struct {
	name string
	of   []formatParam
	to   map[string]string // values of such flags, as formats take them
}

type formatParam struct {
	*format.Param
	format *format.Format
}

// onlyOf is the annotation of a verb's flags that only one format takes. The help shows them with
// the format's parameters.
const onlyOf = "format"

func ofFormat(fs *pflag.FlagSet, format string, flags ...string) {
	for _, name := range flags {
		fs.SetAnnotation(name, onlyOf, []string{format})
	}
}

func flagOf(p *format.Param) string { return cmp.Or(p.Flag, p.Name) }

func (f *paramFlag) String() string { return "" }

func (f *paramFlag) Type() string {
	if p := f.of[0]; p.Kind == format.ParamNumber && len(p.Words) > 0 {
		return "string"
	}
	return [...]string{"string", "word", "bool", "int", "size", "folder"}[f.of[0].Kind]
}

func (f *paramFlag) Set(s string) error {
	p := f.of[0]
	if word := strings.ToLower(s); slices.Contains(p.Words, word) {
		s = word
	} else if p.Kind == format.ParamSize {
		n, err := parseSize(s)
		if err != nil {
			return fmt.Errorf("%w%s", err, strings.Join(append([]string{""}, p.Words...), ", or "))
		}
		s = fmt.Sprint(n)
	} else if p.Kind == format.ParamFolder && s != "" {
		var err error
		if s, err = folderAt(s); err != nil {
			return err
		}
	}
	if f.to[f.name] = s; s == "" && p.Kind != format.ParamText || s == "0" && p.Least > 0 {
		delete(f.to, f.name) // as if it were not given
	}
	return nil
}

// folderAt returns the absolute path of a folder of this machine, because only
// the command line resolves relative paths. It returns other addresses
// unchanged.
func folderAt(address string) (string, error) {
	if store.Scheme(address) != "" {
		return address, nil
	}
	whole, err := filepath.Abs(address)
	if err != nil {
		return "", err
	}
	if fi, err := os.Stat(whole); err != nil || !fi.IsDir() {
		return "", fmt.Errorf("%s: no such folder", whole)
	}
	return filepath.ToSlash(whole), nil
}

// mayLead returns the places that an archive may refer to: those in
// --external, and the folders that flags name.
func (a *app) mayLead() []string {
	all := slices.Clone(a.external)
	for _, f := range format.All() {
		for _, p := range f.Params {
			if v := a.params[flagOf(&p)]; v != "" && p.Kind == format.ParamFolder {
				all = append(all, v)
			}
		}
	}
	return all
}

// opensAnArchive marks verbs to which flags about archives apply.
const opensAnArchive = "opens an archive"

// takes adds to a verb the flags of the parameters that the formats take for
// ops.
func (a *app) takes(ops format.Op, cmd *cobra.Command, formats ...*format.Format) *cobra.Command {
	if ops&format.ToOpen != 0 {
		if cmd.Annotations == nil {
			cmd.Annotations = map[string]string{}
		}
		cmd.Annotations[opensAnArchive] = ""
	}
	for _, f := range formats {
		for i := range f.Params {
			p := &f.Params[i]
			name := flagOf(p)
			if p.For&ops == 0 || name == "-" {
				continue
			}
			flag := cmd.Flags().Lookup(name)
			if flag == nil {
				flag = cmd.Flags().VarPF(&paramFlag{name: name, of: []formatParam{{p, f}}, to: a.params}, name, "", p.Help)
				if p.Kind == format.ParamSwitch {
					flag.NoOptDefVal = "true"
				}
			} else if own, ok := flag.Value.(*paramFlag); ok {
				own.of = append(own.of, formatParam{p, f})
			}
		}
	}
	if flag := cmd.Flags().Lookup("index-place"); flag != nil && !flag.Hidden {
		former := &formerIndex{formerFlag{flag.Value, a, "index", "index-place"}, flag.Value.(*paramFlag).of[0].Words}
		cmd.Flags().VarPF(former, "index", "", "").Hidden = true
	}
	return cmd
}

// hideOthers hides parameters that are not for ops.
func hideOthers(cmd *cobra.Command, ops format.Op) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		p, ok := f.Value.(*paramFlag)
		f.Hidden = f.Hidden || ok && !slices.ContainsFunc(p.of, func(of formatParam) bool { return of.For&ops != 0 })
	})
}

func (a *app) given(ops format.Op) map[string]string {
	given := map[string]string{}
	for _, f := range format.All() {
		for _, p := range f.Params {
			if v, ok := a.params[flagOf(&p)]; ok && p.For&ops != 0 {
				given[p.Name] = v
			}
		}
	}
	return given
}

// paramsOf returns the parameters that flags set for an archive of that
// format.
func (a *app) paramsOf(name string) map[string]string {
	given, f := a.given(^format.ToCreate), format.All().ByName(name)
	maps.DeleteFunc(given, func(key, _ string) bool { return f == nil || f.Param(^format.ToCreate, key) == nil })
	return given
}

// ofAFolder returns an error if there are parameters but the input is a
// folder, not an archive.
func ofAFolder(given map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(given)) {
		return &format.ParamError{Format: "a folder", Name: key}
	}
	return nil
}

// paramHint says which formats take a parameter that this format does not
// take.
func paramHint(e *format.ParamError) string {
	flag, names := "", []string(nil)
	for _, f := range format.All() {
		if i := slices.IndexFunc(f.Params, func(p format.Param) bool { return p.Name == e.Name && p.Flag != "-" }); i >= 0 {
			flag, names = "--"+flagOf(&f.Params[i]), append(names, f.Name)
		}
	}
	switch {
	case e.Want != "" && flag != "--"+e.Name:
		return "set it with " + flag
	case e.Want != "" || names == nil:
		return ""
	}
	return flag + " is for " + inWords(names)
}

// inWords joins a list in prose: a, b and c.
func inWords(list []string) string {
	last := len(list) - 1
	if last < 1 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:last], ", ") + " and " + list[last]
}

// ownFlags are the flags of a verb, without parameters of formats and those of all verbs.
func ownFlags(cmd *cobra.Command) *pflag.FlagSet {
	return flagsLike(cmd.LocalFlags(), func(f *pflag.Flag) bool {
		_, param := f.Value.(*paramFlag)
		return !param && f.Annotations[onlyOf] == nil && cmd.Root().PersistentFlags().Lookup(f.Name) != f
	})
}

// sharedFlags are the flags of the root that a verb takes: those that say how archives are opened,
// and others.
func sharedFlags(cmd *cobra.Command) (opening, common *pflag.FlagSet) {
	list, opens := takenBy(cmd), strings.Fields(openingFlags)
	of := func(opening bool) *pflag.FlagSet {
		return flagsLike(cmd.Root().PersistentFlags(), func(f *pflag.Flag) bool {
			return slices.Contains(list, f.Name) && slices.Contains(opens, f.Name) == opening
		})
	}
	return of(true), of(false)
}

func paramFlags(cmd *cobra.Command, f *format.Format) *pflag.FlagSet {
	some := pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		if slices.Contains(flag.Annotations[onlyOf], f.Name) {
			some.AddFlag(flag)
		}
		if own, ok := flag.Value.(*paramFlag); ok {
			for _, p := range own.of {
				if p.format == f && !flag.Hidden {
					its := *flag
					its.Usage = p.Help
					some.AddFlag(&its)
				}
			}
		}
	})
	return some
}

func flagsLike(all *pflag.FlagSet, like func(*pflag.Flag) bool) *pflag.FlagSet {
	some := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.VisitAll(func(f *pflag.Flag) {
		if like(f) {
			some.AddFlag(f)
		}
	})
	return some
}
