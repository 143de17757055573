// Package charset decodes names in archives whose writers did not use UTF-8 and did not say what they
// used.
package charset

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/ianaindex"

	"github.com/holdall/holdall/format"
)

// Param declares the name of the character set.
var Param = format.Param{
	Name: "charset", For: format.ToOpen,
	Help: "character set of names that are not marked as UTF-8: cp932, cp437, cp850, gbk, …",
}

// others are usual names that IANA does not have, or for which the library has no other.
var others = map[string]string{
	"cp932": "shift_jis", "ms932": "shift_jis", "windows-31j": "shift_jis", "sjis": "shift_jis", "cp949": "euc-kr", "cp950": "big5",
}

// Of returns what decodes a name by the parameter of an archive, or nil if there is none. A name that
// has bytes which the character set lacks is not decoded, because others could then become the same.
func Of(kind string, param map[string]string) (func(name string) string, error) {
	asked := param[Param.Name]
	if asked == "" {
		return nil, nil
	}
	name := strings.ToLower(asked)
	if other, ok := others[name]; ok {
		name = other
	} else if page, ok := strings.CutPrefix(name, "cp125"); ok {
		name = "windows-125" + page
	}
	set, err := ianaindex.IANA.Encoding(name)
	if err != nil || set == nil {
		return nil, &format.ParamError{Format: kind, Name: Param.Name, Value: asked, Want: "a character set that IANA names, or a code page: shift_jis, cp932, cp437, cp850, cp1252, gbk, …"}
	}
	return func(name string) string {
		d, err := set.NewDecoder().String(name)
		if err != nil || strings.ContainsRune(d, utf8.RuneError) {
			return name
		}
		return d
	}, nil
}
