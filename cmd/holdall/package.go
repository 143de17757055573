package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
)

// packageFlags are about what an RVN package says of itself.
type packageFlags struct {
	metadata string
	abi      string
	abiSet   func() bool
}

func (f *packageFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.metadata, "metadata", "", "rvn: what the package says of itself, a file of UCL, JSON or text")
	fs.StringVar(&f.abi, "abi", "", "rvn: what the package runs on, for its metadata")
	f.abiSet = func() bool { return fs.Changed("abi") }
}

// maxMetadata is the most that a package can say of itself.
const maxMetadata = 512 << 10

// apply hands the wishes on. A prefix from the top, which no name can have, is
// where the package will be installed.
func (f *packageFlags) apply(o *holdall.PackOptions) error {
	if f.metadata != "" {
		file, err := os.Open(f.metadata)
		if err != nil {
			return err
		}
		defer file.Close()
		b, err := io.ReadAll(io.LimitReader(file, maxMetadata+1))
		if err != nil {
			return err
		}
		if len(b) > maxMetadata {
			return fmt.Errorf("%s: a package has at most %d bytes of metadata", f.metadata, maxMetadata)
		}
		o.Param["metadata"] = string(b)
	}
	if f.abiSet() {
		o.Param["abi"] = f.abi
	}
	if strings.HasPrefix(o.Prefix, "/") {
		o.Param["prefix"], o.Prefix = o.Prefix, ""
	}
	return nil
}
