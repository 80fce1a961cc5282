"""Where a study is kept: a journal file, a database, or a proxy in front of one.

What comes in: a path or an address. What goes out: a storage as Optuna takes it. Promised: a storage
that is away is asked again for a while; one that stays away ends the search with one line, and what
was told before is kept.

    studies/sales.journal                         a file; on a shared disk for several machines
    sqlite:///studies.db                          a database on this machine
    postgresql+psycopg://user@host/studies        a database for several
    grpc://host:13000                             Optuna's proxy in front of a database
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from forecaster.errors import ConfigError

PATIENCE_SECONDS = 60.0
"""A storage that is away is asked again for this long."""

_BLINK_SECONDS = 1.0
"""A shorter absence is not worth a line: a lock, tables that somebody else is just making."""

Say = Callable[[str], None]
"""Receives one line."""


class StorageLost(ConfigError):
    """A study's storage stayed away."""


class PatientStorage:
    """A storage each of whose calls is tried again while the storage is away.

    Optuna asks a storage for nothing but its methods, so this is one by handing them on.
    """

    def __init__(self, storage: Any, address: str, patience_seconds: float, say: Say | None = None):
        self._storage = storage
        self._address, self._patience, self._say = address, patience_seconds, say

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        if not callable(found):
            return found

        def call(*told: Any, **named: Any) -> Any:
            return patiently(lambda: found(*told, **named), self._address, self._patience, self._say)

        return call

    def impatient(self) -> Any:
        """Returns the storage itself, which tries once."""
        return self._storage


def open_storage(
    address: str, patience_seconds: float = PATIENCE_SECONDS, say: Say | None = None
) -> PatientStorage:
    """Returns the storage at an address.

    Args:
        address: a path, or an address with "://".
        patience_seconds: how long one that is away is asked again.
        say: receives one line when one is away.

    Raises:
        StorageLost: it stayed away.
        ConfigError: there is no such kind of storage, or its driver is not installed.
    """
    kind = urlsplit(address).scheme if "://" in address else ""
    connect = {"": _journal, "grpc": _proxy}.get(kind, _database)
    try:
        storage = patiently(lambda: connect(address), address, patience_seconds, say)
    except ImportError as error:
        missing = getattr(error.__cause__, "name", None) or error.name or str(error)
        raise ConfigError(
            f"--storage {hidden(address)}: needs the module {missing.split('.')[0]}, which is not "
            "installed (psycopg: pip install 'psycopg[binary]'; grpc: pip install grpcio)"
        ) from error
    return PatientStorage(storage, address, patience_seconds, say)


def patiently(work: Callable[[], Any], address: str, patience_seconds: float, say: Say | None) -> Any:
    """Returns what some work with a storage returns, tried again while the storage is away.

    Args:
        work: may be done twice.
        address: of the storage, for the message.
        patience_seconds: since its first fault.
        say: receives one line, unless it comes back at once.

    Raises:
        StorageLost: the storage stayed away.
    """
    away_since: float | None = None
    said = say is None
    pause = 0.05
    while True:
        try:
            return work()
        except Exception as error:
            if not _is_absence(error):
                raise
            now = time.monotonic()
            away_since = now if away_since is None else away_since
            if not said and now - away_since >= min(_BLINK_SECONDS, patience_seconds / 2):
                said = True
                say(  # type: ignore[misc]
                    f"study storage {hidden(address)}: {_reason(error)}; "
                    f"trying again for {patience_seconds:g} s"
                )
            if now - away_since >= patience_seconds:
                raise StorageLost(
                    f"study storage {hidden(address)}: {_reason(error)}; tried for "
                    f"{patience_seconds:g} s; all trials told so far are kept, the same command goes on"
                ) from error
        time.sleep(min(pause, max(0.01, away_since + patience_seconds - time.monotonic())))
        pause = min(2 * pause, 5.0)


def hidden(address: str) -> str:
    """Returns an address without its password."""
    if "://" not in address or not urlsplit(address).password:
        return address
    return address.replace(f":{urlsplit(address).password}@", ":***@", 1)


def _journal(address: str) -> Any:
    from optuna.storages import JournalStorage

    from forecaster.runs.tune.journal import is_foreign, journal_backend

    # Absolute: a working directory that changes would change the study.
    path = Path(address).expanduser().absolute()
    try:
        if is_foreign(path):
            raise ConfigError(f"--storage {path}: is not a journal of studies; name another file")
        return JournalStorage(journal_backend(path))
    except (PermissionError, FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise ConfigError(f"--storage {path}: {error.strerror}; name another file") from error
    except (ValueError, KeyError) as error:
        raise ConfigError(f"--storage {path}: is damaged ({error}); name another file") from error


def _database(address: str) -> Any:
    import optuna
    from sqlalchemy.exc import (
        ArgumentError,
        IntegrityError,
        NoSuchModuleError,
        OperationalError,
        ProgrammingError,
    )

    try:
        # Asked before each use whether the connection still stands: servers restart.
        made = optuna.storages.RDBStorage(address, engine_kwargs={"pool_pre_ping": True})
        storage = optuna.storages.get_storage(made)
        weakref.finalize(storage, made.engine.dispose)  # connections end with who used them
        return storage
    except (IntegrityError, ProgrammingError) as error:
        # Two processes that find a database empty both make its tables; the slower one looks again.
        raise OperationalError(error.statement, error.params, error.orig or error) from error
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise ConfigError(
            f"--storage {hidden(address)}: expected a path, sqlite:///FILE, "
            "postgresql+psycopg://USER@HOST/DATABASE or grpc://HOST:PORT"
        ) from error


def _proxy(address: str) -> Any:
    import warnings

    from optuna.exceptions import ExperimentalWarning
    from optuna.storages import GrpcStorageProxy

    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or port is None:
        raise ConfigError(f"--storage {address}: expected grpc://HOST:PORT")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        storage = GrpcStorageProxy(host=host, port=port)
    storage.get_all_studies()
    return storage


def _is_absence(error: BaseException) -> bool:
    """Whether an error says that a storage is away, rather than that a question was wrong."""
    from optuna.exceptions import StorageInternalError

    if isinstance(error, (StorageInternalError, OSError)):
        return True
    named = {f"{kind.__module__.split('.')[0]}.{kind.__name__}" for kind in type(error).__mro__}
    return bool(named & {"sqlalchemy.OperationalError", "sqlalchemy.InterfaceError", "grpc.RpcError"})


def _reason(error: BaseException) -> str:
    """Returns what a fault says, in a few words."""
    inner = getattr(error, "orig", None) or error.__cause__ or error
    inner = getattr(inner, "orig", None) or inner
    if callable(details := getattr(inner, "details", None)):
        return str(details()).strip().splitlines()[0]
    text = getattr(inner, "strerror", None) or str(inner).strip() or type(inner).__name__
    return str(text).splitlines()[0]
