package format_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/holdall/holdall/format"
)

// What a format does not declare, or not with that value, does not reach it.
func TestParametersAreComparedWithTheirDeclaration(t *testing.T) {
	f := &format.Format{Name: "f", Params: []format.Param{
		{Name: "word", For: format.ToOpen, Kind: format.ParamWord, Words: []string{"a", "b", "c"}},
		{Name: "switch", For: format.ToRepair, Kind: format.ParamSwitch},
		{Name: "number", For: format.ToCreate, Kind: format.ParamNumber, Least: 1, Most: 9},
		{Name: "size", For: format.ToCreate, Kind: format.ParamSize, Words: []string{"none"}, Least: 10, Most: 20},
		{Name: "text", For: format.ToOpen | format.ToCreate},
	}}
	for _, c := range []struct {
		op          format.Op
		name, value string
		want        error
		text        string
	}{
		{format.ToOpen, "word", "b", nil, ""},
		{format.ToVerify, "word", "", nil, ""},
		{format.ToOpen, "word", "d", fs.ErrInvalid, `word "d": expected a, b or c`},
		{format.ToCreate, "word", "a", errors.ErrUnsupported, "f has no word"},
		{format.ToOpen, "switch", "true", nil, ""},
		{format.ToAmend, "switch", "yes", fs.ErrInvalid, `switch "yes": expected true or false`},
		{format.ToCreate, "number", "9", nil, ""},
		{format.ToCreate, "number", "10", fs.ErrInvalid, `number "10": expected from 1 to 9`},
		{format.ToCreate, "number", "1x", fs.ErrInvalid, `number "1x": expected from 1 to 9`},
		{format.ToCreate, "size", "none", nil, ""},
		{format.ToCreate, "size", "9", fs.ErrInvalid, `size "9": expected none, or from 10 to 20 bytes`},
		{format.ToCreate, "text", "\x00", nil, ""},
		{format.ToOpen, "wort", "a", errors.ErrUnsupported, "f has no wort"},
	} {
		err := f.CheckParams(c.op, map[string]string{c.name: c.value})
		if !errors.Is(err, c.want) || err != nil && err.Error() != c.text {
			t.Errorf("%s=%s: %v", c.name, c.value, err)
		}
	}
}
