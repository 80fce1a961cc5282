"""Files that lie elsewhere: what comes in is a URL, what goes out are names and bytes.

http and https are read as they are; s3 and gs by pyarrow, with the credentials and endpoints of the
environment (AWS_PROFILE, AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS, ...); every other scheme by
the fsspec package for it. A server that does not answer is given up after `PATIENCE_SECONDS`.
"""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from datetime import timedelta
from typing import Any

from forecaster.errors import DataError
from forecaster.panel.findings import fault
from forecaster.panel.reading.table import one_line

PATIENCE_SECONDS = 20.0
_ADVICE = "check the address and the credentials, or download the file"


def fetch(url: str) -> bytes:
    """Returns the bytes behind a URL.

    Raises:
        DataError: there is nothing, the server does not answer, or a package for the scheme is missing.
    """
    scheme = _scheme(url)
    try:
        if scheme in ("http", "https"):
            with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
                return bytes(answer.read())
        files, path = _filesystem(url)
        return bytes(files.cat_file(path))
    except DataError:
        raise
    except Exception as error:
        # Every scheme has its own exceptions; none of them is a fault of ours.
        raise fault("url", f"{url}: cannot be read ({_reason(error)})", _ADVICE) from error


def list_files(url: str) -> list[str] | None:
    """Returns the URLs of the files that a folder or a pattern holds; None where it is one file.

    Raises:
        DataError: the server does not answer, or a package for the scheme is missing.
    """
    scheme = _scheme(url)
    if scheme in ("http", "https"):
        return None
    try:
        files, path = _filesystem(url)
        if any(sign in path for sign in "*?["):
            found = files.glob(path)
        elif files.isdir(path):
            found = files.find(path)
        else:
            return None
    except DataError:
        raise
    except Exception as error:
        raise fault("url", f"{url}: cannot be listed ({_reason(error)})", _ADVICE) from error
    return [f"{scheme}://{name.removeprefix(f'{scheme}://')}" for name in found]


def _scheme(url: str) -> str:
    return url.split("://", 1)[0].lower()


def _filesystem(url: str) -> tuple[Any, str]:
    """Returns what lists and reads files of a scheme, and the path it knows the URL by."""
    import fsspec

    scheme, path = _scheme(url), url.split("://", 1)[1]
    if scheme in ("s3", "gs"):
        from fsspec.implementations.arrow import ArrowFSWrapper

        return ArrowFSWrapper(_arrow_filesystem(scheme, path.split("/")[0])), path
    try:
        return fsspec.core.url_to_fs(url)  # type: ignore[no-any-return]
    except ImportError as error:
        needed = re.search(r"nstall (\w+) to|\"(\w+)\"", str(error))
        package = next((word for word in needed.groups() if word), "") if needed else ""
        raise fault(
            "url",
            f"{url}: expected a package that reads {scheme}://, found none",
            f"pip install {package or f'fsspec[{scheme}]'}",
        ) from error
    except ValueError as error:
        raise fault(
            "url",
            f"{url}: the scheme '{scheme}' is not known",
            "pass a path, or a URL as https:// or s3://",
        ) from error


def _arrow_filesystem(scheme: str, bucket: str) -> Any:
    import pyarrow.fs

    if scheme == "gs":
        return pyarrow.fs.GcsFileSystem(retry_time_limit=timedelta(seconds=PATIENCE_SECONDS))
    # Unlike the class itself, a URI finds the bucket's region.
    return pyarrow.fs.FileSystem.from_uri(f"s3://{bucket}")[0]


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return f"the server says {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return f"no answer: {error.reason}"
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    return one_line(error) or type(error).__name__
