"""Objects of web servers, read by ranges.

The first response shows the version of an object; a response of another version is an error. Connections are kept and
reused, each by one thread at a time, and never by a forked process that did not open them. After errors that may be
temporary (a broken connection, an overloaded server), the request is sent again.
"""

from __future__ import annotations

import base64
import email.utils
import http.client
import os
import re
import ssl
import string
import time
import urllib.parse
import urllib.request
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from .blocks import AT_ONCE, Cache
from .errors import DamagedError, HoldallError, NotFoundError, UnsupportedError
from .objects import Far, Object

TRIES = 5
TIMEOUT = 60.0  # seconds without data on a connection
WHOLE = 1 << 20  # size that a server without ranges may send
REDIRECTS = 10
pause = time.sleep  # between attempts

_PASSING = {408, 425, 429, 500, 502, 503, 504}
_EXPIRED = {400, 401, 403, 404, 410}  # status codes for signed addresses that have expired


class _Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes


class _Passing(Exception):
    """An error that may be temporary."""

    def __init__(self, reason: str, after: float = 0) -> None:
        super().__init__(reason)
        self.after = after


class _Pool:
    """Unused connections to one server. It has no lock, because a deque needs none."""

    def __init__(self) -> None:
        self.idle: deque[tuple[int, http.client.HTTPConnection]] = deque()

    def take(self, url: urllib.parse.SplitResult) -> tuple[http.client.HTTPConnection, bool]:
        """Return a connection, and whether it was used before."""
        while True:
            try:
                pid, conn = self.idle.pop()
            except IndexError:
                return _connect(url), False
            if pid == os.getpid():
                return conn, True

    def give(self, conn: http.client.HTTPConnection) -> None:
        if len(self.idle) < AT_ONCE:
            self.idle.append((os.getpid(), conn))
        else:
            conn.close()


_pools: dict[tuple[str, str], _Pool] = {}


def _pool(url: urllib.parse.SplitResult) -> _Pool:
    return _pools.setdefault((url.scheme, url.netloc), _Pool())


def _connect(url: urllib.parse.SplitResult) -> http.client.HTTPConnection:
    host, port = url.hostname or "", url.port
    proxy = urllib.request.getproxies().get(url.scheme)
    if proxy and not urllib.request.proxy_bypass(host):
        via = urllib.parse.urlsplit(proxy if "://" in proxy else "http://" + proxy)
        auth = _authorization(via)
        if url.scheme == "https":
            tunnel = http.client.HTTPSConnection(via.hostname or "", via.port, timeout=TIMEOUT, context=_tls())
            tunnel.set_tunnel(host, port, {"Proxy-Authorization": auth} if auth else {})
            return tunnel
        return _Proxied(via.hostname or "", via.port, timeout=TIMEOUT)
    if url.scheme == "https":
        return http.client.HTTPSConnection(host, port, timeout=TIMEOUT, context=_tls())
    return http.client.HTTPConnection(host, port, timeout=TIMEOUT)


class _Proxied(http.client.HTTPConnection):
    """A connection to a proxy, which gets whole addresses."""


def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _authorization(url: urllib.parse.SplitResult) -> str:
    if url.username is None:
        return ""
    user = urllib.parse.unquote(url.username) + ":" + urllib.parse.unquote(url.password or "")
    return "Basic " + base64.b64encode(user.encode()).decode()


def _escaped(part: str) -> str:
    """Return a part of an address in which bytes that no request can have are escaped."""
    return urllib.parse.quote(part, safe=string.punctuation, errors="surrogateescape")


def redact(address: str) -> str:
    """Return an address without anything that may be secret."""
    u = urllib.parse.urlsplit(address)
    host = u.netloc.rpartition("@")[2]
    return urllib.parse.urlunsplit((u.scheme, host, u.path, "", "")) + ("?…" if u.query else "")


class WebObject(Far):
    """An object of a web server."""

    def __init__(self, address: str, cache: Cache | None = None) -> None:
        self.address, self.cache = address, cache
        self.name = redact(address)
        url = urllib.parse.urlsplit(address)
        self._url = url._replace(path=_escaped(url.path), query=_escaped(url.query))
        if not self._url.hostname:
            raise HoldallError(self.name, "an address without a server")
        self._auth = _authorization(self._url)
        self._moved: urllib.parse.SplitResult | None = None  # the address that it redirects to
        self._size = -1
        self._etag = self._date = ""
        self.on_version: Callable[[WebObject], None] | None = None  # is called once size and version are known

    @property
    def size(self) -> int:  # type: ignore[override]
        if self._size < 0:
            self.head(1)
        return self._size

    @property
    def version(self) -> str:  # type: ignore[override]
        if self._etag or not self._date:
            return self._etag
        return f"{self._date}; {self.size} bytes"

    @property
    def mtime_ns(self) -> int | None:  # type: ignore[override]
        try:
            return int(email.utils.parsedate_to_datetime(self._date).timestamp()) * 1_000_000_000
        except (TypeError, ValueError):
            return None

    def fetch(self, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0 or 0 <= self._size < offset + length:
            raise self.short(offset, length, max(self._size - offset, 0))
        data = self._tried(f"bytes={offset}-{offset + length - 1}", offset, length)
        if len(data) != length:
            raise self.short(offset, length, len(data))
        return data

    def head(self, length: int) -> bytes:
        if self._size >= 0:
            length = min(length, self._size)
            return self.read(0, length)
        return self._tried(f"bytes=0-{length - 1}", 0, length)

    def tail(self, length: int) -> bytes:
        if self._size < 0:
            data = self._tried(f"bytes=-{length}", -1, length)
            if self._size >= 0 and len(data) == min(length, self._size):
                return data
        length = min(length, self.size)
        return self.read(self.size - length, length)

    def beside(self, suffix: str) -> Object:
        path = self._url.path + urllib.parse.quote(suffix)
        return WebObject(self._url._replace(path=path).geturl(), self.cache)

    def again(self) -> str:
        return self.address

    def close(self) -> None:
        self._moved = None

    def _tried(self, wanted: str, offset: int, length: int) -> bytes:
        """Repeat a request until there is a response that would not change."""
        for attempt in range(TRIES):
            try:
                return self._part(self._ask(wanted), offset, length)
            except _Passing as err:
                if attempt + 1 == TRIES:
                    raise HoldallError(self.name, f"{err}, {TRIES} times") from err.__cause__
                pause(max(min(err.after, 30), 0.1 * 3**attempt))
        raise AssertionError("no try")

    def _ask(self, wanted: str) -> _Answer:
        """Send one request, to the address that an earlier one was redirected to if that still responds."""
        if self._moved is not None:
            answer = self._follow(self._moved, wanted)
            if answer.status not in _EXPIRED:
                return answer
            self._moved = None
        return self._follow(self._url, wanted)

    def _follow(self, url: urllib.parse.SplitResult, wanted: str) -> _Answer:
        for _ in range(REDIRECTS):
            answer = self._request(url, wanted)
            if answer.status not in (301, 302, 303, 307, 308):
                if url != self._url and answer.status in (200, 206):
                    self._moved = url
                return answer
            to = urllib.parse.urlsplit(urllib.parse.urljoin(url.geturl(), answer.headers.get("Location", "")))
            if to.scheme not in ("http", "https") or url.scheme == "https" and to.scheme == "http":
                raise HoldallError(self.name, f"redirected to {to.scheme}:, which is not followed")
            url = to
        raise HoldallError(self.name, f"more than {REDIRECTS} redirects")

    def _request(self, url: urllib.parse.SplitResult, wanted: str) -> _Answer:
        headers = {"Range": wanted, "Accept-Encoding": "identity", "User-Agent": "holdall-python"}
        if self._auth and (url.scheme, url.netloc) == (self._url.scheme, self._url.netloc):
            headers["Authorization"] = self._auth
        if self._etag:
            headers["If-Match"] = self._etag
        elif self._date:
            headers["If-Unmodified-Since"] = self._date
        target = urllib.parse.urlunsplit(("", "", url.path or "/", url.query, ""))
        pool = _pool(url)
        while True:
            conn, used = pool.take(url)
            try:
                whole = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{target}" if isinstance(conn, _Proxied) else target
                conn.request("GET", whole, headers=headers)
                response = conn.getresponse()
            except (http.client.HTTPException, OSError) as err:
                conn.close()
                if used:  # the server has closed it
                    continue
                raise self._broken(err) from err
            break
        try:
            most = response.length
            if response.status in (200, 206) and most is not None and response.status == 200 and most > WHOLE:
                conn.close()
                return _Answer(response.status, response.headers, b"")
            body = response.read()
        except (http.client.HTTPException, OSError) as err:
            conn.close()
            raise self._broken(err) from err
        if response.will_close:
            conn.close()
        else:
            pool.give(conn)
        return _Answer(response.status, response.headers, body)

    def _broken(self, err: Exception) -> Exception:
        if isinstance(err, ssl.SSLCertVerificationError | http.client.InvalidURL):
            return HoldallError(self.name, str(err))
        return _Passing(f"no answer: {type(err).__name__}: {err}")

    def _part(self, answer: _Answer, offset: int, length: int) -> bytes:
        """Return the requested bytes; if offset is -1, those at the end."""
        status, headers, body = answer
        if status == 416 and self._size < 0:
            total = re.fullmatch(r"bytes \*/(\d{1,18})", headers.get("Content-Range", ""))
            if total is not None:
                self._agree(int(total[1]), headers)
                return b""
        if status not in (200, 206):
            raise self._refused(answer)
        if headers.get("Content-Encoding", "identity").lower() != "identity":
            raise UnsupportedError(self.name, "the server sends another encoding than was asked for")
        if status == 200:
            self._agree(int(headers.get("Content-Length", -1)), headers)
            if not 0 <= self._size <= WHOLE:
                raise UnsupportedError(self.name, "the server ignores ranges, so that parts of the object cannot be read")
            return body[-length:] if offset < 0 else body[offset : offset + length]
        said = re.fullmatch(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", headers.get("Content-Range", "").strip())
        if said is None or int(said[2]) - int(said[1]) + 1 != len(body):
            raise DamagedError(self.name, f"the server's answer has a Content-Range {headers.get('Content-Range')!r} of {len(body)} bytes")
        first = int(said[1])
        self._agree(-1 if said[3] == "*" else int(said[3]), headers)
        if offset < 0 and first + len(body) == self._size:
            return body[-length:]
        if offset < 0:
            return b""  # it took a request for the last bytes as one for the first
        if first != offset or len(body) > length:
            raise DamagedError(self.name, f"expected {length} bytes at {offset}, the server sent {len(body)} at {first}")
        return body

    def _agree(self, size: int, headers: http.client.HTTPMessage) -> None:
        """Record the version of a response, or raise an error if it is another one."""
        etag, date = headers.get("ETag", ""), headers.get("Last-Modified", "")
        if etag.startswith("W/"):
            etag = ""  # a weak ETag does not identify the bytes
        if self._size >= 0 and size >= 0 and size != self._size:
            raise self._changed(f"it had {self._size} bytes, now it has {size}")
        if self._etag and etag:
            if etag != self._etag:
                raise self._changed(f"its ETag was {self._etag}, now it is {etag}")
        elif self._date and date and date != self._date:
            raise self._changed(f"it was of {self._date}, now it is of {date}")
        self._etag, self._date = self._etag or etag, self._date or date
        if size >= 0:
            self._size = size
        if self.blocks is None and self._size >= 0:
            plain = self._url._replace(netloc=self._url.netloc.rpartition("@")[2], fragment="")
            self.heard(self._etag, plain.geturl())
        if self.on_version and self._size >= 0:
            self.on_version(self)
            self.on_version = None

    def _changed(self, how: str) -> HoldallError:
        return DamagedError(self.name, f"the object changed while it was read: {how}")

    def _refused(self, answer: _Answer) -> Exception:
        status = answer.status
        text = f"{status} {http.client.responses.get(status, '')}".strip()
        if status in (404, 410):
            return NotFoundError(self.name, text)
        if status == 412:
            return self._changed(text)
        if status in _PASSING:
            after = answer.headers.get("Retry-After", "")
            return _Passing(text, float(after) if after.isdecimal() else 0)
        err = HoldallError(self.name, text)
        if status == 403:
            err.__cause__ = PermissionError(text)
        return err
