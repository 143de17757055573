package oak

import (
	"cmp"
	"path"
	"strings"
)

// mimeTypes by extension. The table of a machine would make other stores on another
// one.
var mimeTypes = map[string]string{
	".avif": "image/avif", ".bmp": "image/bmp", ".css": "text/css", ".csv": "text/csv", ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".gif": "image/gif", ".gz": "application/gzip", ".htm": "text/html", ".html": "text/html", ".ico": "image/vnd.microsoft.icon", ".jar": "application/java-archive",
	".jpeg": "image/jpeg", ".jpg": "image/jpeg", ".js": "application/javascript", ".json": "application/json", ".md": "text/markdown", ".mp3": "audio/mpeg", ".mp4": "video/mp4",
	".pdf": "application/pdf", ".png": "image/png", ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation", ".svg": "image/svg+xml",
	".tar": "application/x-tar", ".tif": "image/tiff", ".tiff": "image/tiff", ".txt": "text/plain", ".wav": "audio/x-wav", ".webm": "video/webm", ".webp": "image/webp",
	".woff2": "font/woff2", ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", ".xml": "application/xml", ".zip": "application/zip",
}

func mimeType(name string) string {
	return cmp.Or(mimeTypes[strings.ToLower(path.Ext(name))], "application/octet-stream")
}
