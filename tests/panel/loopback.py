"""A web server on 127.0.0.1 that hands out files, and speaks as much S3 as reading needs."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


@contextmanager
def server(files: dict[str, bytes]):
    """Serves files by their path without the leading slash; the first folder of a path is a bucket."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self):
            self.answer(body=False)

        def do_GET(self):
            self.answer(body=True)

        def answer(self, *, body):
            parts = urlsplit(self.path)
            path, query = unquote(parts.path).strip("/"), parse_qs(parts.query)
            content, status = files.get(path), 200
            if "list-type" in query:
                content = listing(path, query.get("prefix", [""])[0], query.get("delimiter"))
            elif content is None and any(name.startswith(f"{path}/") for name in files):
                # A bucket; folders within it are no objects.
                status, content = (200 if "/" not in path else 404), b""
            elif content is None:
                status, content = 404, b"<Error><Code>NoSuchKey</Code></Error>"
            span = self.headers.get("Range")
            total = len(content)
            if span is not None and status == 200:
                first, last = span.removeprefix("bytes=").split("-")
                content, status = content[int(first) : int(last) + 1], 206
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Content-Range", f"bytes 0-{total}/{total}")
            self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
            self.send_header("ETag", '"1"')
            self.end_headers()
            if body:
                self.wfile.write(content)

        def log_message(self, *_):
            pass

    def listing(bucket, prefix, delimiter):
        names = [name.removeprefix(f"{bucket}/") for name in sorted(files)]
        names = [name for name in names if name.startswith(prefix)]
        folders = {name[: name.find("/", len(prefix)) + 1] for name in names} - {""}
        if delimiter is None:
            folders = set()
        names = [name for name in names if not any(name.startswith(folder) for folder in folders)]
        rows = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(files[f'{bucket}/{name}'])}</Size>"
            "<LastModified>2024-01-01T00:00:00.000Z</LastModified></Contents>"
            for name in names
        )
        rows += "".join(
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in folders
        )
        return (
            f"<ListBucketResult><Name>{bucket}</Name><KeyCount>{len(names)}</KeyCount>"
            f"<IsTruncated>false</IsTruncated>{rows}</ListBucketResult>"
        ).encode()

    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=web.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{web.server_address[1]}"
    finally:
        web.shutdown()
        web.server_close()
        thread.join()
