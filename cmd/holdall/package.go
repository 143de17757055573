package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/rvn/recipe"
)

// packageFlags are the parts of an RVN package other than its files.
type packageFlags struct{ metadata, whitelist, keywords string }

func (f *packageFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.metadata, "metadata", "", "file with the package metadata, in UCL, JSON or text")
	fs.StringVar(&f.whitelist, "whitelist", "", "pack the files of this Ravenports packing list, with its owners and modes")
	fs.StringVar(&f.keywords, "keywords", "", "folder that defines the keywords of the packing list (default "+recipe.DefaultKeywords+")")
	ofFormat(fs, "rvn", "metadata", "whitelist", "keywords")
}

// These are the view of a package's description and the one entry in it.
const (
	metaView = "meta"
	metaText = "metadata.ucl"
)

// apply sets the options. An absolute prefix, which no name can have, is the
// place where the package will be installed.
func (f *packageFlags) apply(ctx context.Context, a *app, to *format.Format, inputs []string, o *holdall.PackOptions) error {
	if to.Param(format.ToCreate, "metadata") == nil {
		for flag, value := range map[string]string{"metadata": f.metadata, "whitelist": f.whitelist, "keywords": f.keywords} {
			if value != "" && to.Name != "" {
				return fmt.Errorf("%s has no %s: --%s is for rvn", to.Name, flag, flag)
			}
		}
		return nil
	}
	prefix := ""
	if strings.HasPrefix(o.Prefix, "/") {
		prefix, o.Prefix = o.Prefix, ""
	}
	if f.whitelist == "" && f.metadata == "" {
		if prefix != "" {
			o.Param["prefix"] = prefix
		}
		return nil
	}
	if info, err := os.Stat(inputs[0]); err != nil {
		return err
	} else if len(inputs) != 1 || !info.IsDir() {
		return errors.New("--metadata and --whitelist: expected one folder to pack")
	}
	r, err := recipe.Make(ctx, recipe.Options{Root: inputs[0], Whitelist: f.whitelist, Metadata: f.metadata, Keywords: f.keywords, Prefix: prefix, ABI: o.Param["abi"]})
	if err != nil {
		return err
	}
	for _, n := range r.Notices {
		a.warn("%s", printable(n))
	}
	delete(o.Param, "abi") // it is in there
	o.Param["metadata"] = string(r.Metadata)
	if r.Only == nil {
		return nil
	}
	o.Only, o.Attrs = map[string]bool{}, map[string]holdall.Attr{}
	for _, list := range []map[string]recipe.Attr{r.Only, r.Dirs} {
		for name, attr := range list {
			if attr != (recipe.Attr{}) {
				o.Attrs[name] = holdall.Attr(attr)
			}
		}
	}
	for name := range r.Only {
		o.Only[name] = true
	}
	return nil
}
