"""MLflow's model registry: publish a saved model under a name, load one by `models:/NAME@champion`.

A version is a pyfunc of "models from code" without any pickle; our package travels as code. Loading
fetches only the folder of the saved model in it: code is never read.
"""

from __future__ import annotations

import importlib.metadata
import math
import re
import shlex
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forecaster.config import TrackingConfig
from forecaster.errors import ArtifactError, ConfigError, first_line, number_of
from forecaster.evaluation.comparison import MODEL
from forecaster.fitting.held_out import scored
from forecaster.forecast.artifact import Artifact, is_forecaster
from forecaster.forecast.card import model_card
from forecaster.forecast.saved_model import load_artifact, save_artifact
from forecaster.forecast.source import Source
from forecaster.panel.example import example_table
from forecaster.panel.frames import to_pandas
from forecaster.panel.schema import comparable
from forecaster.runs.console import Screen
from forecaster.runs.tracking import (
    experiment_id,
    identity_of,
    opened_store,
    run_of,
    tracking_uri,
    without_password,
)
from forecaster.windows.index import drawn_cutoffs

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

CHAMPION = "champion"
SCHEME = "models:/"
_NOT_WORSE = 0.02  # of the loss
_NEWEST = 20  # cutoffs of each series
_EXAMPLE_STEPS = 12  # half the steps of an example of a classifier
_INSIDE = "artifacts/model"  # of the saved model in a version
_CODE = Path(__file__).with_name("served.py")
_PACKAGE = Path(__file__).parents[1]
_NEEDS = "jaxtyping mlflow numpy pandas polars pyarrow pydantic pyyaml rich safetensors torch"
"""Packages that a served model needs."""


@dataclass(frozen=True)
class Published:
    """A registered version."""

    name: str
    version: int
    is_champion: bool
    sentence: str
    """Whether it became the champion, and why."""
    store: str
    """The MLflow store, as it may be shown."""

    @property
    def address(self) -> str:
        """What `load`, `forecaster predict` and `mlflow models serve` take."""
        return f"{SCHEME}{self.name}{f'@{CHAMPION}' if self.is_champion else f'/{self.version}'}"

    def in_store(self, command: str) -> str:
        """Returns a line of a shell whose command finds the store: others look in a database of their folder."""
        return f"MLFLOW_TRACKING_URI={shlex.quote(self.store)} {command}"


def publish(
    artifact: Artifact[Any],
    name: str,
    tracking: TrackingConfig,
    champion: bool = False,
    source: Source | None = None,
) -> Published:
    """Registers a model, as the champion if there is none, or by the rule of `compare`.

    Args:
        artifact: the model.
        name: of the registered model, created if missing.
        tracking: where the store is.
        champion: make it the champion in any case; why it would not be is printed first.
        source: a table with rows that neither the model nor the champion has seen; None = not given.

    Raises:
        ConfigError: the store cannot be reached, or refuses the name.
    """
    if not name.strip() or set(name) & set("/:@"):
        raise ConfigError(f"--mlflow {name!r}: expected a name without / : and @, as sales")
    store = without_password(tracking_uri(tracking))
    with opened_store(tracking, create=True) as client:
        tags = _tags(artifact)
        found = client.search_model_versions(f"name = '{name}' and tags.digest = '{tags['digest']}'")
        version = max((int(known.version) for known in found), default=None)
        if version is None:
            experiment = experiment_id(client, tracking.experiment, tracking_uri(tracking))
            version = _register(client, artifact, name, experiment, tags)
        current = client.get_registered_model(name).aliases.get(CHAMPION)
        if current is not None and int(current) == version:
            same = f"{name} version {version} is the champion already"
            return Published(name, version, True, same, store)
        wins, reason = _beats(client, artifact, name, current, source)
        if champion and not wins:
            # Before the alias moves: a log of a nightly job then says what the scores said.
            Screen(stderr=True).print_notice(f"by its scores version {current} would stay: {reason}")
            wins, reason = True, "as asked"
        if wins:
            client.set_registered_model_alias(name, CHAMPION, str(version))
            became = f"{name} version {version} is the champion"
        else:
            became = f"{name} version {version} is registered, version {current} stays the champion"
            reason += "; --champion (champion=True) moves it"
        return Published(name, version, wins, f"{became}: {reason}", store)


def load_registered(address: str, tracking: TrackingConfig) -> Artifact[Any]:
    """Returns a registered model; runs no code from there.

    Args:
        address: models:/NAME@ALIAS, models:/NAME/VERSION or models:/NAME/latest.
        tracking: where the store is.

    Raises:
        ConfigError: the store cannot be reached, or has no such model, alias or version.
        ArtifactError: the version holds no saved model, or a damaged one.
    """
    name, wanted = parse_address(address)
    with opened_store(tracking) as client:
        return _load_version(client, name, _find_version(client, name, wanted), address)


def parse_address(address: str) -> tuple[str, str]:
    """Returns the name of an address, and what follows: @ALIAS or /VERSION."""
    found = re.fullmatch(r"models:/+([^/:@]+)(@[^/:@]+|/\d+|/latest)", address)
    if found is None:
        raise ConfigError(
            f"{address}: expected {SCHEME}NAME@{CHAMPION}, {SCHEME}NAME/VERSION or {SCHEME}NAME/latest"
        )
    return found[1], found[2]


def _load_version(client: MlflowClient, name: str, version: int, address: str) -> Artifact[Any]:
    """Returns the model of a version, of which its data alone is fetched; `address` is for messages."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    with tempfile.TemporaryDirectory() as scratch:
        try:
            source = client.get_model_version_download_uri(name, str(version))
            store = get_artifact_repository(source, tracking_uri=client.tracking_uri)
            folder = store.download_artifacts(_INSIDE, scratch)
        except Exception as error:  # as many kinds as there are stores
            raise ArtifactError(
                f"{address}: cannot be fetched ({first_line(error)}); expected a version that "
                "forecaster export registered"
            ) from error
        try:
            return load_artifact(folder)
        except ArtifactError as error:
            raise ArtifactError(str(error).replace(folder, address)) from error


def write_package(artifact: Artifact[Any], target: Path, model_id: str) -> Path:
    """Writes a model as a pyfunc to a new folder; `model_id` is MLflow's."""
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        # MLflow warns of what it itself does: loading the model, comparing names of columns.
        warnings.simplefilter("ignore")
        import mlflow.pyfunc
        from mlflow.models import Model

        save_artifact(artifact, data := Path(scratch) / Path(_INSIDE).name)
        needs = {name: importlib.metadata.version(name) for name in _NEEDS.split()}
        mlflow.pyfunc.save_model(
            target,
            mlflow_model=Model(model_id=model_id),
            python_model=str(_CODE),
            artifacts={"model": str(data)},
            code_paths=[str(_PACKAGE)],
            # "2.8.0+cpu" is no version that an index has.
            pip_requirements=[f"{name}=={own.partition('+')[0]}" for name, own in needs.items()],
            signature=signature_of(artifact),
            input_example=None if artifact.schema.layout == "rows" else example_of(artifact),
        )
    return target


def signature_of(artifact: Artifact[Any]) -> Any:
    """Returns what a server takes and returns, in the table's own names.

    Times and categories are of any type: a caller writes them as the training table did, and the
    model's own reader, not MLflow's, parses them.
    """
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec
    from mlflow.types import Schema as Columns
    from mlflow.types.schema import AnyType

    schema, model = artifact.schema.as_read, artifact.plan.model
    number, whole, text = DataType.double, DataType.long, DataType.string
    clock = whole if schema.time_dtype == "integer" else AnyType()

    def key(name: str) -> Any:
        dtype = schema.dtypes.get(name, "")
        return whole if dtype.startswith(("Int", "UInt")) else text if dtype == "String" else AnyType()

    keys = [(name, key(name)) for name in schema.key_columns]
    times = [(name, clock) for name in ([*schema.time_parts] or [schema.time or "time"])]
    time = [] if schema.time is None else times
    values = (*schema.target_columns, *schema.known, *schema.past, *schema.static)
    read = [(name, AnyType() if name in schema.categorical else number) for name in values]

    def columns(named: list[tuple[str, Any]]) -> Columns:
        return Columns([ColSpec(kind, name) for name, kind in named])

    # A table with a series in each row has as many columns as its caller has steps.
    inputs = None if schema.layout == "rows" else columns([*keys, *time, *read])
    if not is_forecaster(artifact):
        step = time if artifact.ensemble.per_step else []
        probabilities = [(f"p_{word}", number) for word in artifact.classes]
        predicted = [*keys, *step, ("label", AnyType()), *probabilities, ("status", text)]
        return ModelSignature(inputs=inputs, outputs=columns(predicted))
    params = [ParamSpec("horizon", whole, artifact.horizon), ParamSpec("cutoff", text, "own")]
    if model.decoder == "autoregressive":
        params = [*params, ParamSpec("seed", whole, 0)]
    levels = ["forecast", "mean", *(f"q{level:g}" for level in model.quantile_levels)]
    given = [*keys, ("cutoff", clock), *times, ("lead", DataType.integer)]
    channel = [] if schema.pivots else [("channel", text)]
    given += [*channel, *((name, number) for name in levels), ("status", text)]
    return ModelSignature(inputs=inputs, outputs=columns(given), params=ParamSchema(params))


def example_of(artifact: Artifact[Any]) -> Any:
    """Returns a made-up table that the model can forecast or classify, as a pandas frame."""
    horizon = artifact.horizon
    history = max(2, min(artifact.context_length, 2 * (horizon or _EXAMPLE_STEPS)))
    frame = to_pandas(example_table(artifact.schema, history, horizon))
    # NaN is no JSON; null is.
    return frame.astype(object).where(frame.notna(), None)


def _tags(artifact: Artifact[Any]) -> dict[str, str]:
    """Returns what a list of versions shows of a model; `digest` identifies it and its scores."""
    tags: dict[str, Any] = {
        "digest": identity_of(artifact),
        "fingerprint": artifact.fingerprint,
        "data": artifact.data,
        "target": ", ".join(artifact.schema.target),
        "trained_until": artifact.ancestry["until"],
        "horizon": artifact.horizon,
        "freq": artifact.schema.freq,
    }
    for model, scores in artifact.metrics.get("validation", {}).get("scores", {}).items():
        for metric, value in scores.items():
            tags[f"validation.{model}.{metric}".replace(" ", "_")] = f"{value:.6g}"
    return {key: str(value)[:500] for key, value in tags.items()}


def _register(
    client: MlflowClient, artifact: Artifact[Any], name: str, experiment: str, tags: dict[str, str]
) -> int:
    from mlflow.entities import LoggedModelOutput
    from mlflow.exceptions import MlflowException

    # Of the fit, so that its page shows the version; none is known of a model fitted without tracking.
    fitted = run_of(client, tags["digest"])
    run_id = None
    if fitted is not None:
        run_id, experiment = fitted.info.run_id, fitted.info.experiment_id
    made = client.create_logged_model(experiment, tags=tags, source_run_id=run_id)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            package = write_package(artifact, Path(scratch) / "package", made.model_id)
            client.log_model_artifacts(made.model_id, str(package))
        except BaseException:
            client.finalize_logged_model(made.model_id, "FAILED")
            raise
    client.finalize_logged_model(made.model_id, "READY")
    if run_id is not None:
        client.log_outputs(run_id, [LoggedModelOutput(made.model_id, step=0)])
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    # A store that is opened here, not behind a server, looks models up where the environment says.
    served = client.tracking_uri.startswith("http")
    version = client.create_model_version(
        name,
        source=f"{SCHEME}{made.model_id}" if served else made.artifact_location,
        run_id=run_id,
        tags=tags,
        description=model_card(artifact),
        model_id=made.model_id if served else None,
    )
    return int(version.version)


def _beats(
    client: MlflowClient,
    new: Artifact[Any],
    name: str,
    champion: str | None,
    source: Source | None,
) -> tuple[bool, str]:
    """Returns whether a model becomes the champion, and the reason."""
    if champion is None:
        return True, "there was none"
    try:
        old = _load_version(client, name, int(champion), f"{SCHEME}{name}/{champion}")
    except ArtifactError as error:
        return False, f"this version cannot read it ({error})"
    return compare(new, old, source)


def compare(
    new: Artifact[Any], champion: Artifact[Any], source: Source | None = None
) -> tuple[bool, str]:
    """Returns whether a model takes the place of a champion, and the reason.

    It does where its loss is lower, or at most 2 % higher while it knows a horizon more of the table, on windows
    that neither has seen: those of `source`, those on which an update was compared with the champion, or, of two
    fits to the same rows, the validation windows.
    """
    if reason := _differs(new, champion):
        return False, f"{reason}, so their scores cannot be compared"
    if source is not None:
        return _compare_anew(new, champion, source)
    update = new.metrics.get("update", {})
    if "loss" in update and is_forecaster(new) and _is_update_of(new, champion):
        return _verdict(new, champion, update["loss"], update["loss_before"], update["windows"])
    if reason := _differs_in_rows(new, champion):
        more = "; --data TABLE (data=) with rows that neither has seen compares them"
        return False, f"{reason}, so their scores cannot be compared{more * is_forecaster(new)}"
    metric, name = ("WQL", "WQL") if is_forecaster(new) else ("log_loss", "log loss")
    ours, theirs = (model.metrics["validation"]["scores"][MODEL][metric] for model in (new, champion))
    where = f"the same {new.metrics['validation']['windows']:,} validation windows"
    if math.isnan(ours) or math.isnan(theirs):
        return False, f"{name} is not defined on {where}"
    if ours == theirs:
        return False, f"both have {name} {ours:.4g} on {where}"
    return ours < theirs, _said(name, ours, theirs, where)


def _compare_anew(new: Artifact, champion: Artifact, source: Source) -> tuple[bool, str]:
    """The rule on the newest windows of a table that neither of two models has seen."""
    panel, horizon = source.panel(new), new.horizon
    since = max(new.trained_until, champion.trained_until)
    last = panel.last_observed
    seen, newest = panel.row_at(since), last - horizon
    # A series without rows then has none.
    first = np.where(seen < 0, last, np.maximum(seen, newest - _NEWEST))
    series, row = drawn_cutoffs(first, newest, 1, panel.n_rows)
    if not len(series):
        return False, (
            f"{panel.name} has no {horizon} steps after {panel.calendar.text(since)}, which one of both "
            "knows: their scores cannot be compared"
        )
    scores = scored({MODEL: new, CHAMPION: champion}, panel, series, row).scores
    return _verdict(new, champion, scores[MODEL]["WQL"], scores[CHAMPION]["WQL"], len(series))


def _verdict(
    new: Artifact, champion: Artifact, ours: float, theirs: float, windows: int
) -> tuple[bool, str]:
    calendar = new.schema.calendar
    later = int(calendar.steps(champion.trained_until, new.trained_until))
    knows = later >= new.horizon
    reason = _said("loss", ours, theirs, f"{number_of(windows, 'window')} that neither has seen")
    if knows and theirs <= ours:
        reason += f", and it knows {number_of(later, 'more step')}"
    return ours < theirs or (knows and ours <= (1 + _NOT_WORSE) * theirs), reason


def _said(name: str, ours: float, theirs: float, where: str) -> str:
    """`name`: of the score. Two scores that differ are written with digits that show it."""
    percent = 100 * abs(ours / theirs - 1) if theirs else 0.0
    shown = f"{percent:.1f} %" if percent >= 0.05 else "less than 0.1 %"
    how_much = f" ({shown})" if theirs and ours != theirs else ""
    digits = next((n for n in range(4, 17) if f"{ours:.{n}g}" != f"{theirs:.{n}g}"), 4)
    word = "lower than" if ours < theirs else "higher than" if ours > theirs else "as high as"
    return f"its {name} {ours:.{digits}g} is {word} the champion's {theirs:.{digits}g}{how_much} on {where}"


def _is_update_of(new: Artifact, old: Artifact) -> bool:
    """Whether a model is the update of another."""
    parent = new.parent or {}
    return all(parent.get(name) == old.ancestry[name] for name in ("fingerprint", "until", "freq"))


def _differs(new: Artifact[Any], old: Artifact[Any]) -> str | None:
    """Returns why scores of two models cannot be compared on any rows; None if they can."""
    ours, theirs = (
        {
            "has the classes": ", ".join(model.classes),
            "forecasts": ", ".join(model.schema.target),
            "has the horizon": str(model.horizon),
            "has the quantile levels": ", ".join(map(str, model.plan.model.quantile_levels)),
        }
        for model in (new, old)
    )
    for what, own in ours.items():
        if own != theirs[what]:
            return f"it {what} {own}, the champion {theirs[what]}"
    if not comparable(new.schema, old.schema):
        return f"their frequencies differ ({new.schema.freq} and {old.schema.freq})"
    return None


def _differs_in_rows(new: Artifact[Any], old: Artifact[Any]) -> str | None:
    """Returns why validation scores of two models cannot be compared; None if they can."""
    if new.fingerprint != old.fingerprint:
        return "the two were fitted to different data"
    cutoffs = [model.metrics.get("validation", {}).get("cutoffs") for model in (new, old)]
    if None in cutoffs:
        return "one of the two has no validation scores"
    return None if cutoffs[0] == cutoffs[1] else "the two were validated on different windows"


def _find_version(client: MlflowClient, name: str, wanted: str) -> int:
    """Returns the number of a version; raises ConfigError with the known ones if it is missing."""
    from mlflow.exceptions import MlflowException

    try:
        aliases = client.get_registered_model(name).aliases
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        known = sorted(model.name for model in client.search_registered_models(max_results=100))
        raise ConfigError(
            f"no model '{name}' in the MLflow store {client.tracking_uri}; it has {', '.join(known) or 'none'}"
        ) from error
    versions = sorted(int(found.version) for found in client.search_model_versions(f"name = '{name}'"))
    numbers = {f"@{alias}": int(version) for alias, version in sorted(aliases.items())}
    numbers |= {f"/{version}": version for version in versions}
    numbers |= {"/latest": versions[-1]} if versions else {}
    if wanted not in numbers:
        has = ", ".join(list(numbers)[-10:]) or "none"
        raise ConfigError(f"model '{name}' has no version {wanted}; it has {has}")
    return numbers[wanted]
