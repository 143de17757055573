package serve

import (
	"cmp"
	"mime"
	"path"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/holdall/holdall/internal/base/sigv4"
)

const unknownType = "application/octet-stream"

// types are content types by extension. The system's table is not used,
// because types would then differ between machines.
var types = map[string]string{
	".aac": "audio/aac", ".flac": "audio/flac", ".m4a": "audio/mp4", ".mp3": "audio/mpeg", ".oga": "audio/ogg", ".ogg": "audio/ogg", ".wav": "audio/wav",
	".avi": "video/x-msvideo", ".mkv": "video/x-matroska", ".mov": "video/quicktime", ".mp4": "video/mp4", ".webm": "video/webm",
	".avif": "image/avif", ".bmp": "image/bmp", ".gif": "image/gif", ".ico": "image/vnd.microsoft.icon", ".jpeg": "image/jpeg", ".jpg": "image/jpeg",
	".png": "image/png", ".svg": "image/svg+xml", ".tif": "image/tiff", ".tiff": "image/tiff", ".webp": "image/webp",
	".css": "text/css; charset=utf-8", ".csv": "text/csv; charset=utf-8", ".htm": "text/html; charset=utf-8", ".html": "text/html; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".log": "text/plain; charset=utf-8", ".md": "text/markdown; charset=utf-8", ".mjs": "text/javascript; charset=utf-8",
	".tsv": "text/tab-separated-values; charset=utf-8", ".txt": "text/plain; charset=utf-8", ".xml": "text/xml; charset=utf-8",
	".geojson": "application/geo+json", ".ipynb": "application/json", ".json": "application/json", ".zarray": "application/json", ".zattrs": "application/json", ".zgroup": "application/json", ".zmetadata": "application/json", ".jsonl": "application/jsonl", ".jsonld": "application/ld+json", ".map": "application/json",
	".ndjson": "application/x-ndjson", ".toml": "application/toml", ".xhtml": "application/xhtml+xml", ".yaml": "application/yaml", ".yml": "application/yaml",
	".pdf": "application/pdf", ".rtf": "application/rtf", ".wasm": "application/wasm",
	".otf": "font/otf", ".ttf": "font/ttf", ".woff": "font/woff", ".woff2": "font/woff2",
	".bz2": "application/x-bzip2", ".gz": "application/gzip", ".tar": "application/x-tar", ".xz": "application/x-xz", ".zip": "application/zip", ".zst": "application/zstd",
	".h5": "application/x-hdf5", ".hdf5": "application/x-hdf5", ".nc": "application/x-netcdf", ".parquet": "application/vnd.apache.parquet",
}

const plainText = "text/plain; charset=utf-8"

// texts are extensions of text files in some language, and complete names of
// such files.
var texts = sync.OnceValue(func() map[string]bool {
	all := map[string]bool{}
	for name := range strings.FieldsSeq(textNames) {
		all[name] = true
	}
	return all
})

const textNames = "adoc asc bat bib bzl c cc cfg cmake cnd conf cpp cs cu cxx dart diff el env erl ex f90 fs gitattributes gitignore go gradle groovy h hpp hs in ini java jl jsx kt less lua m4 mk ml mod nim nix org patch php pl po properties proto ps1 py r rb rs rst sass scala scss sh sql srt sum swift tcl tex tf tsx ucl vim vtt vue zig " +
	"authors changelog changes copying dockerfile install license makefile news notice readme todo version"

func typeOf(name string) string {
	base := strings.ToLower(path.Base(name))
	ext := path.Ext(base)
	if t, ok := types[ext]; ok {
		return t
	}
	if texts()[cmp.Or(strings.TrimPrefix(ext, "."), base)] {
		return plainText
	}
	return unknownType
}

// sniffed determines the type of content from its first bytes, if its name
// does not show it: text if it can be nothing else, or unknown.
func sniffed(head []byte, whole bool) string {
	for i := 0; i < len(head); {
		if c := head[i]; c >= ' ' && c < 0x7f { // most are
			i++
			continue
		}
		r, n := utf8.DecodeRune(head[i:])
		if r == utf8.RuneError && n <= 1 && (whole || i+utf8.UTFMax <= len(head)) || r < ' ' && r != '\n' && r != '\t' && r != '\r' && r != '\f' && r != 0x1b || r == 0x7f {
			return unknownType
		}
		i += n
	}
	return plainText
}

// runsScripts reports whether a browser may treat content of that type as a
// page, and run scripts in it. For an unknown type this is assumed.
func runsScripts(ctype string) bool {
	runs, ok := known()[ctype]
	if !ok { // perhaps with parameters that are not ours
		bare, _, err := mime.ParseMediaType(ctype)
		runs, ok = known()[bare]
		ok = ok && err == nil
	}
	return runs || !ok
}

// known returns the types, as they are and without their parameters, and
// whether pages of them run scripts.
var known = sync.OnceValue(func() map[string]bool {
	all := map[string]bool{unknownType: false, "binary/octet-stream": false}
	for _, ctype := range types {
		bare, _, _ := strings.Cut(ctype, ";")
		all[bare] = bare == "text/html" || bare == "text/xml" || strings.HasSuffix(bare, "+xml")
		all[ctype] = all[bare]
	}
	return all
})

// Policies of contents. Headers share them, and never change them.
var (
	sandboxed = []string{"sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"}
	harmless  = []string{"default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; media-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"}
)

// policyOf returns the policy for content of a type. A page in an archive must
// not act in the user's name: it gets an origin of its own, runs no scripts
// and sends no requests.
func policyOf(ctype string) []string {
	if runsScripts(ctype) {
		return sandboxed
	}
	return harmless
}

// attachment returns a Content-Disposition that saves content under a name
// with any characters.
func attachment(name string) string {
	var plain strings.Builder
	whole := true
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c < ' ' || c >= 0x7f || strings.IndexByte("\"\\%/:*?<>|;", c) >= 0:
			plain.WriteByte('_')
			whole = false
		default:
			plain.WriteByte(c)
		}
	}
	if whole {
		return "attachment; filename=\"" + name + "\""
	}
	return "attachment; filename=\"" + plain.String() + "\"; filename*=UTF-8''" + sigv4.Word(strings.ToValidUTF8(name, "_"))
}
