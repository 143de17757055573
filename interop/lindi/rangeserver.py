"""A threaded HTTP server of a folder's files on 127.0.0.1, with ranges.

For checks only: http.server of the standard library knows no ranges, and readers of archives over HTTP ask
for nothing else.
"""
import http.server, os, re, threading, urllib.parse


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._answer(True)

    def do_HEAD(self):
        self._answer(False)

    def _answer(self, body):
        asked = self.headers.get("Range")
        self.server.requests.append((self.command, self.path, asked))
        name = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).lstrip("/")
        path = os.path.realpath(os.path.join(self.server.folder, name))
        if os.path.commonpath([path, self.server.folder]) != self.server.folder or not os.path.isfile(path):
            return self._refuse(404)
        with open(path, "rb") as f:
            size = os.fstat(f.fileno()).st_size
            start, end = 0, size                    # half-open
            m = re.fullmatch(r"bytes=(\d*)-(\d*)", asked or "")
            ranged = m is not None and m.group(0) != "bytes=-"
            if ranged:
                first, last = m.groups()
                if not first:
                    start = max(0, size - int(last))
                else:
                    start = int(first)
                    end = min(size, int(last) + 1) if last else size
                if start >= end:
                    return self._refuse(416, f"bytes */{size}")
            self.send_response(206 if ranged else 200)
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(end - start))
            if ranged:
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
            self.end_headers()
            if not body:
                return
            f.seek(start)
            left = end - start
            while left > 0:
                b = f.read(min(left, 1 << 20))
                if not b:
                    self.close_connection = True    # it became shorter: what was sent is not whole
                    return
                self.wfile.write(b)
                left -= len(b)

    def _refuse(self, code, content_range=None):
        self.send_response(code)
        if content_range:
            self.send_header("Content-Range", content_range)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass    # clients leave when they have what they want

    def shutdown(self):
        super().shutdown()
        self.server_close()


def serve(folder):
    """Serve the files of folder on a free port. -> (server, base_url, log)

    base_url has no slash at its end; log grows by (method, path, Range header or None) a request;
    server.shutdown() ends it.
    """
    server = _Server(("127.0.0.1", 0), _Handler)
    server.folder = os.path.realpath(folder)
    server.requests = []
    threading.Thread(target=server.serve_forever, kwargs=dict(poll_interval=0.02), daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_address[1]}", server.requests
