package serve

import (
	"cmp"
	"mime"
	"path"
	"strings"
	"sync"
	"unicode/utf8"
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
const texts = " adoc asc bat bib bzl c cc cfg cmake cnd conf cpp cs cu cxx dart diff el env erl ex f90 fs gitattributes gitignore go gradle groovy h hpp hs in ini java jl jsx kt less lua m4 mk ml mod nim nix org patch php pl po properties proto ps1 py r rb rs rst sass scala scss sh sql srt sum swift tcl tex tf tsx ucl vim vtt vue zig " +
	"authors changelog changes copying dockerfile install license makefile news notice readme todo version "

func typeOf(name string) string {
	base := strings.ToLower(path.Base(name))
	ext := path.Ext(base)
	if t, ok := types[ext]; ok {
		return t
	}
	if strings.Contains(texts, " "+cmp.Or(strings.TrimPrefix(ext, "."), base)+" ") {
		return plainText
	}
	return unknownType
}

// sniffed determines the type of content from its first bytes, if its name
// does not show it: text if it can be nothing else, or unknown.
func sniffed(head []byte, whole bool) string {
	for i := 0; i < len(head); {
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
	ctype, _, err := mime.ParseMediaType(ctype)
	return err != nil || !known()[ctype] || ctype == "text/html" || ctype == "text/xml" || strings.HasSuffix(ctype, "+xml")
}

// known returns the types without their parameters.
var known = sync.OnceValue(func() map[string]bool {
	all := map[string]bool{unknownType: true, "binary/octet-stream": true}
	for _, ctype := range types {
		ctype, _, _ = strings.Cut(ctype, ";")
		all[ctype] = true
	}
	return all
})

// policyOf returns the policy for content of a type. A page in an archive must
// not act in the user's name: it gets an origin of its own, runs no scripts
// and sends no requests.
func policyOf(ctype string) string {
	if runsScripts(ctype) {
		return "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
	}
	return "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; media-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
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
	return "attachment; filename=\"" + plain.String() + "\"; filename*=UTF-8''" + signedText(strings.ToValidUTF8(name, "_"))
}
