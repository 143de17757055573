package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
)

// sumJSON is a file's digest for programs.
type sumJSON struct {
	Path    string `json:"path"`
	PathHex string `json:"path_hex,omitempty"`
	Size    int64  `json:"size"`
	Digest  string `json:"digest"`
}

// sums writes a line a file, as sha256sum -c and b3sum -c read it.
func (a *app) sums(cmd *cobra.Command, address, algo string) (bad bool, err error) {
	ctx := cmd.Context()
	in, err := a.open(ctx, address, false)
	if err != nil {
		return false, err
	}
	defer a.close(ctx, in)
	m := &holdall.Meter{}
	stop := a.showProgress(m, "read")
	defer stop()
	return bad, in.Sums(ctx, algo, m, func(e holdall.Entry, d holdall.Digest, err error) error {
		if err != nil {
			if _, damaged := errors.AsType[*holdall.ExternalError](err); !damaged && !errors.Is(err, holdall.ErrDamaged) {
				return err
			}
			bad = true
			a.report(err)
			return nil
		}
		if a.json {
			j := sumJSON{Size: e.Size, Digest: d.String()}
			j.Path, j.PathHex = shown(e.Name)
			a.printJSON(j)
			return nil
		}
		_, err = a.out.WriteString(sumLine(e.Name, d))
		return err
	})
}

var sumEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`)

// sumLine is a line of a list of checksums. A backslash in front says that some are in
// the name, for what would end the line.
func sumLine(name string, d holdall.Digest) string {
	mark := ""
	if strings.ContainsAny(name, "\\\n\r") {
		mark, name = `\`, sumEscapes.Replace(name)
	}
	return fmt.Sprintf("%s%s  %s\n", mark, hex.EncodeToString([]byte(d.Sum)), name)
}
