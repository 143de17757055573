package explore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/bytemap"
	"github.com/holdall/holdall/format"
)

// regionsSuffix is the suffix of a file with the [Regions] of an archive.
const regionsSuffix = ".regions.json"

// Static writes the files of a page that shows one archive without a holdall
// server. The page belongs beside the archive of that name and its index,
// NAME.holdall. The page itself is written last. With [Regions] it has the
// byte map. With keys of minisign, the page shows only what one of them has
// signed.
func Static(archive string, regions []byte, trusted []string, put func(name string, content []byte) error) error {
	style, script, err := pageCode()
	if err != nil {
		return err
	}
	var stored bytes.Buffer
	z, err := gzip.NewWriterLevel(&stored, gzip.BestCompression)
	if err != nil {
		return err
	}
	_, err = io.WriteString(z, style+codeEnd+script)
	if err = errors.Join(err, z.Close()); err != nil {
		return err
	}
	// Servers take names in .gz for something that they decompress.
	sum := sha256.Sum256(stored.Bytes())
	file := fmt.Sprintf("holdall-%x.bin", sum[:8])
	if err := put(file, stored.Bytes()); err != nil {
		return err
	}
	if regions != nil {
		if err := put(archive+regionsSuffix, regions); err != nil {
			return err
		}
	}
	page, err := staticPage(archive, regions != nil, trusted, style, script, file)
	if err != nil {
		return err
	}
	return put("index.html", []byte(page))
}

// codeEnd is between the style and the script of a page, in one file.
const codeEnd = "\x00"

// pageCode returns the style and the script of a page without a holdall server.
func pageCode() (style, script string, err error) {
	b, err := module("style.css")
	if err == nil {
		script, err = joined("static.js", "app.js")
	}
	return string(b), script, err
}

// IsPage reports whether an object is a page that Static or Single wrote.
func IsPage(p format.Probe) bool {
	return bytes.Contains(p.Head, []byte(pageMark))
}

// pageMark is what a page for one archive has in its head.
const pageMark = `<meta name="archive" content="`

// A Part is a file that a page contains.
type Part struct {
	Name  string
	Write func(io.Writer) error
}

// Single writes a page that shows one archive and contains everything. parts
// are the archive of that name, or the files in it, and its index. The page
// can be opened from a disk, and sends no requests.
func Single(w io.Writer, archive string, regions []byte, parts []Part) error {
	if regions != nil {
		parts = append(parts, Part{archive + regionsSuffix, func(w io.Writer) error { _, err := w.Write(regions); return err }})
	}
	style, script, err := pageCode()
	if err != nil {
		return err
	}
	page, err := staticPage(archive, regions != nil, nil, style, script, "")
	if err != nil {
		return err
	}
	front, end, _ := strings.Cut(page, "</body>")
	if _, err := io.WriteString(w, front); err != nil {
		return err
	}
	for _, p := range parts {
		if _, err := fmt.Fprintf(w, "<script type=\"text/plain\" data-file=\"%s\">", html.EscapeString(p.Name)); err != nil {
			return err
		}
		enc := base64.NewEncoder(base64.StdEncoding, w)
		if err := p.Write(enc); err != nil {
			return err
		}
		if err := enc.Close(); err != nil {
			return err
		}
		if _, err := io.WriteString(w, "</script>\n"); err != nil {
			return err
		}
	}
	_, err = io.WriteString(w, "</body>"+end)
	return err
}

// maxStaticRegions is the maximum number of regions for a page that draws the
// byte map itself.
const maxStaticRegions = 250_000

// Regions returns the data that a page needs for the byte map, in addition to
// the archive's index: its volumes, and the regions in them that are not
// content. It returns nil if a page cannot draw one.
func Regions(ctx context.Context, in *holdall.Archive) ([]byte, error) {
	f := in.Format()
	if f == nil || f.Overview != "" {
		return nil, nil // drawing it requires data that is not in an index
	}
	m, err := newSpanMap(ctx, in)
	if err != nil || m.size == 0 {
		return nil, err
	}
	for r, err := range in.Regions(ctx) {
		if err != nil {
			break // keep those that are known, as a server does
		}
		if m.addRegion(r); m.regions.Len() > maxStaticRegions {
			return nil, nil
		}
	}
	m.regions.sort()
	j := struct {
		Volumes []volume `json:"volumes"`
		Size    int64    `json:"size"`
		Parity  string   `json:"parity,omitempty"`
		Labels  []string `json:"labels"`
		Regions []int64  `json:"regions"` // for each: its use, its label, its distance from the one before, and its length
	}{Size: m.size, Parity: m.parity, Labels: []string{}, Regions: []int64{}}
	for _, v := range m.volumes {
		name, below := strings.CutPrefix(v.Name, in.Name())
		if !below {
			return nil, nil
		}
		j.Volumes = append(j.Volumes, volume{format.Escape(name), v.Base, v.Size})
	}
	labels, end := map[uint32]int{}, int64(0)
	for i := range m.regions.Len() {
		off, ref := *m.regions.off.At(i), *m.regions.ref.At(i)
		word := ref & (1<<24 - 1)
		if _, known := labels[word]; !known {
			labels[word] = len(j.Labels)
			j.Labels = append(j.Labels, m.words.At(word))
		}
		j.Regions = append(j.Regions, int64(min(int(ref>>24), int(bytemap.Unknown))), int64(labels[word]), off-end, m.regions.length(i))
		end = off + m.regions.length(i)
	}
	return json.Marshal(j)
}

// sourceHash returns the source expression by which a policy allows an inline
// script or style.
func sourceHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// staticPage returns the page for use without a holdall server. It loads its
// style and its script from a file. Without one, it contains them. Its policy
// allows no others.
func staticPage(archive string, mapped bool, trusted []string, style, script, file string) (string, error) {
	var own [4]string
	for i, name := range []string{"index.html", "theme.js", "icon.svg", "load.js"} {
		b, err := module(name)
		if err != nil {
			return "", err
		}
		if own[i] = string(b); strings.HasSuffix(name, ".js") {
			if own[i], err = squeezed(own[i]); err != nil {
				return "", err
			}
		}
	}
	page, theme, icon, load := own[0], own[1], own[2], own[3]
	looks, runs, connect := "<style>"+style+"</style>", `<script type="module">`+script+"</script>", ""
	scripts := []string{sourceHash(theme), sourceHash(script)}
	if file != "" {
		looks, runs, connect = "", fmt.Sprintf("<script data-code=\"%s\">%s</script>", file, load), " connect-src 'self';"
		scripts = append(scripts, sourceHash(load))
	}
	marks := map[bool]string{true: " data-mapped"}[mapped]
	if len(trusted) > 0 {
		marks += fmt.Sprintf(" data-trusted=\"%s\"", html.EscapeString(strings.Join(trusted, ",")))
	}
	policy := fmt.Sprintf("default-src 'none'; script-src %s; style-src %s; img-src data: blob:; media-src blob:;%s base-uri 'none'; form-action 'none'", strings.Join(scripts, " "), sourceHash(style), connect)
	const next = `<meta name="viewport"`
	return strings.NewReplacer(
		next, fmt.Sprintf("<meta http-equiv=\"Content-Security-Policy\" content=\"%s\">\n%s%s\"%s>\n", policy, pageMark, html.EscapeString(archive), marks)+next,
		`<link rel="stylesheet" href="ui/style.css">`, looks,
		`<script src="ui/theme.js"></script>`, "<script>"+theme+"</script>",
		`<script type="module" src="ui/app.js"></script>`, runs,
		`"ui/icon.svg"`, `"data:image/svg+xml;base64,`+base64.StdEncoding.EncodeToString([]byte(icon))+`"`,
		" Without it, /f/ has plain listings.", "",
	).Replace(page), nil
}

// kindsModule is a generated module, not a file.
const kindsModule = "kinds.js"

func module(name string) ([]byte, error) {
	if name != kindsModule {
		return ui.ReadFile("ui/" + name)
	}
	text := "// Words of the program, and kinds of files by extension.\n"
	for _, x := range []struct {
		name  string
		value any
	}{
		{"extensions", kindOfExtension()}, {"bareNames", bareNames}, {"kindNames", kindNames}, {"useNames", useNames()},
		{"colourings", map[string][]string{"age": ages, "packing": packings, "sharing": sharings, "proof": proofs}},
	} {
		value, err := json.Marshal(x.value)
		if err != nil {
			return nil, err
		}
		text += fmt.Sprintf("export const %s = %s;\n", x.name, value)
	}
	// As kindOf does.
	return []byte(text + `export function kindOf(name) {
  const base = name.slice(name.lastIndexOf('/') + 1).toLowerCase();
  return extensions[base.includes('.') || bareNames.includes(base) ? base.slice(base.lastIndexOf('.') + 1) : ''] ?? (/^\d+(\.\d+)*$/.test(base) ? extensions.h5 : base.includes('.so.') ? extensions.so : 0);
}
`), nil
}

// These match the import and export statements in the page's modules: one line
// each.
var (
	importLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^import \{ (.*) \} from '\./([^']+)';$`) })
	exportLine = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^export ((?:async )?(?:function|class|const|var)\*? (\$|\w+))`)
	})
	exportList  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^export \{ (\w+) \};$`) })
	exportedLet = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^export (let (\w+(?:, \w+)*);)$`) })
	moduleLine  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^(?:import|export)\b.*$`) })
)

// ofServers are the modules that show only what a server answers. A page
// without one has something else that has their names, and says so.
var ofServers = []string{"array.js", "compare.js", "damage.js", "dynamic.js", "raster.js", "verify.js"}

// joined returns modules and everything that they import as one script. Each
// module becomes a function that returns its exports. Exported variables may
// change, so they are declared before all modules.
func joined(names ...string) (string, error) {
	var front, out bytes.Buffer
	done, shared := map[string]bool{}, map[string]bool{}
	called := func(name string) string { return "of_" + strings.TrimSuffix(name, ".js") }
	var add func(name string) error
	add = func(name string) error {
		if done[name] {
			return nil
		}
		done[name] = true
		b, err := module(name)
		if err != nil {
			return err
		}
		text := string(b)
		if slices.Contains(ofServers, name) {
			stub := "import { unavailable } from './base.js';\n"
			for _, m := range exportLine().FindAllStringSubmatch(text, -1) {
				stub += fmt.Sprintf("export const %s = unavailable;\n", m[2])
			}
			text = stub
		}
		for _, m := range importLine().FindAllStringSubmatch(text, -1) {
			if err := add(m[2]); err != nil {
				return err
			}
		}
		var exports []string
		for _, m := range exportLine().FindAllStringSubmatch(text, -1) {
			exports = append(exports, m[2])
		}
		for _, m := range exportList().FindAllStringSubmatch(text, -1) {
			exports = append(exports, m[1])
		}
		for _, m := range exportedLet().FindAllStringSubmatch(text, -1) {
			front.WriteString(m[1] + "\n")
			for v := range strings.SplitSeq(m[2], ", ") {
				shared[v] = true
			}
		}
		text = importLine().ReplaceAllStringFunc(text, func(line string) string {
			m := importLine().FindStringSubmatch(line)
			var taken []string
			for v := range strings.SplitSeq(m[1], ", ") {
				if !shared[v] {
					taken = append(taken, strings.Replace(v, " as ", ": ", 1))
				}
			}
			return "const { " + strings.Join(taken, ", ") + " } = " + called(m[2]) + ";"
		})
		text = exportedLet().ReplaceAllString(text, "")
		text = exportList().ReplaceAllString(text, "")
		text = exportLine().ReplaceAllString(text, "$1")
		if m := moduleLine().FindString(text); m != "" {
			return fmt.Errorf("ui/%s: it is not known how to join %q", name, m)
		}
		fmt.Fprintf(&out, "const %s = (() => {\n%s\nreturn { %s };\n})();\n", called(name), text, strings.Join(exports, ", "))
		return nil
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return "", err
		}
	}
	text, err := squeezed("'use strict';\n" + front.String() + out.String())
	// Within a page these sequences would end the script, or keep it from ending.
	return strings.NewReplacer("<!--", `<\!--`, "</script", `<\/script`).Replace(text), err
}
