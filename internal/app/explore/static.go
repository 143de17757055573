package explore

import (
	"encoding/json"
	"fmt"
	"html"
	"io/fs"
	"path"
	"strings"
)

// staticPolicy is policy for a page that a server of others has, as the page says it itself.
const staticPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'"

// Static puts the files of a page that shows one archive, with no server of ours: it lies beside
// the archive of that name and its index, NAME.holdall. The page itself comes last.
func Static(archive string, put func(name string, content []byte) error) error {
	names, err := fs.Glob(ui, "ui/*")
	if err != nil {
		return err
	}
	for _, name := range names {
		if path.Base(name) == "index.html" {
			continue
		}
		b, err := ui.ReadFile(name)
		if err == nil {
			err = put(name, b)
		}
		if err != nil {
			return err
		}
	}
	kinds, err := json.Marshal(kindOfExtension())
	if err != nil {
		return err
	}
	if err := put("ui/kinds.js", fmt.Appendf(nil, "// What files hold, by the endings of their names.\nexport default %s;\n", kinds)); err != nil {
		return err
	}
	page, err := ui.ReadFile("ui/index.html")
	if err != nil {
		return err
	}
	head := fmt.Sprintf("<meta http-equiv=\"Content-Security-Policy\" content=\"%s\">\n<meta name=\"archive\" content=\"%s\">\n", staticPolicy, html.EscapeString(archive))
	text := strings.Replace(string(page), "<meta name=\"viewport\"", head+"<meta name=\"viewport\"", 1)
	return put("index.html", []byte(strings.Replace(text, "ui/app.js", "ui/static.js", 1)))
}
