"""A saved model as what MLflow serves: its files, our package's code, and what a caller has to send.

What comes in: the folder of a saved model. What goes out: a folder in MLflow's format. Promised: no
pickle; our package travels as code, never as a requirement; requirements are pinned to what is
installed here, and are no more than forecasting needs.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

from forecaster.errors import ArtifactError
from forecaster.forecast.artifact import Artifact
from forecaster.panel.example import example_table
from forecaster.panel.frames import to_kind

INSIDE = "artifacts/model"
"""Where the saved model lies in the package."""
_REQUIRED = (
    "jaxtyping",
    "mlflow",
    "narwhals",
    "numpy",
    "pandas",
    "polars",
    "pyarrow",
    "pydantic",
    "pyyaml",
    "rich",
    "safetensors",
    "torch",
)
_CONTRACT, _REST = "contract.json", ("plan.json", "metrics.json")
CARD = "card.md"
"""The same for people; a model is one without it."""
_TENSORS = re.compile(r"(member-\d+|calibration)\.safetensors")
_CODE = Path(__file__).with_name("served.py")
_PACKAGE = Path(__file__).parents[2]


def data_files(folder: Path, name: object = None) -> list[str]:
    """Returns the files that a saved model consists of, by its contract.

    Args:
        folder: holds the contract at least.
        name: what to call it in messages; None = the folder.

    Raises:
        ArtifactError: the contract is damaged, or names a file that no saved model has.
    """
    called = folder if name is None else name
    try:
        contract = json.loads((folder / _CONTRACT).read_text(encoding="utf-8"))
        tensors = [str(entry["file"]) for entry in contract["members"]]
        if contract.get("calibration") is not None:
            tensors.append(str(contract["calibration"]["file"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(
            f"{called}/{_CONTRACT}: damaged ({error!r}); save the model again"
        ) from error
    for file in tensors:
        if not _TENSORS.fullmatch(file):
            raise ArtifactError(
                f"{called}/{_CONTRACT}: names {file!r}, expected member-00.safetensors …"
            )
    return [_CONTRACT, *_REST, *tensors]


def write_package(artifact: Artifact, folder: Path, target: Path, model_id: str) -> Path:
    """Returns the package of a saved model.

    Args:
        artifact: the model.
        folder: where it is saved.
        target: the package; must not exist.
        model_id: under which MLflow knows it.
    """
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        # MLflow warns of what it itself does: loading it, comparing names of columns.
        warnings.simplefilter("ignore")
        import mlflow.pyfunc
        from mlflow.models import Model

        data = Path(scratch) / Path(INSIDE).name
        data.mkdir()
        for file in (*data_files(folder), CARD):
            if (folder / file).exists():
                shutil.copy(folder / file, data / file)
        mlflow.pyfunc.save_model(
            target,
            mlflow_model=Model(model_id=model_id),
            python_model=str(_CODE),
            artifacts={"model": str(data)},
            code_paths=[str(_PACKAGE)],
            pip_requirements=requirements(),
            signature=signature_of(artifact),
            input_example=None if artifact.schema.layout == "rows" else example_of(artifact),
        )
    return target


def requirements() -> list[str]:
    """Returns the packages that serving needs, pinned to what is installed here."""
    # "2.8.0+cpu" is no version that an index has.
    versions = ((name, importlib.metadata.version(name).partition("+")[0]) for name in _REQUIRED)
    return [f"{name}=={version}" for name, version in versions]


def signature_of(artifact: Artifact) -> Any:
    """Returns what a server takes and gives, in the table's own names.

    Times and categories are of any type: a caller writes them as the table that was trained on did, and
    the model's own reader, not MLflow's, makes sense of them.
    """
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec
    from mlflow.types import Schema as Columns
    from mlflow.types.schema import AnyType

    schema, model = artifact.schema, artifact.plan.model
    number, whole, text = DataType.double, DataType.long, DataType.string
    clock = whole if schema.time_dtype == "integer" else AnyType()

    def key(name: str) -> Any:
        dtype = schema.dtypes.get(name, "")
        return whole if dtype.startswith(("Int", "UInt")) else text if dtype == "String" else AnyType()

    keys = [] if schema.melted else [(name, key(name)) for name in schema.series]
    time = [] if schema.time is None else [(schema.time, clock)]
    values = (*(schema.melted or schema.target), *schema.known, *schema.past, *schema.static)
    read = [(name, AnyType() if name in schema.categorical else number) for name in values]
    params = [ParamSpec("horizon", whole, artifact.horizon), ParamSpec("cutoff", text, "own")]
    has_mean = bool(artifact.ensemble.members[0].head.has_mean)  # type: ignore[union-attr]
    if model.decoder == "autoregressive":
        params, has_mean = [*params, ParamSpec("seed", whole, 0)], True
    levels = ["forecast", *["mean"] * has_mean, *(f"q{level:g}" for level in model.quantile_levels)]
    given = [*keys, ("cutoff", clock), (schema.time or "time", clock), ("lead", DataType.integer)]
    given += [("channel", text), *((name, number) for name in levels), ("status", text)]

    def columns(named: list[tuple[str, Any]]) -> Columns:
        return Columns([ColSpec(kind, name) for name, kind in named])

    return ModelSignature(
        # A table with a series in each row has as many columns as its caller has steps.
        inputs=None if schema.layout == "rows" else columns([*keys, *time, *read]),
        outputs=columns(given),
        params=ParamSchema(params),
    )


def example_of(artifact: Artifact) -> Any:
    """Returns a small table that a server answers, as a pandas frame; made up, a model has no data."""
    horizon = artifact.horizon
    history = max(2, min(artifact.context_length, 2 * horizon))
    frame = to_kind(example_table(artifact.schema, history, horizon), "pandas")
    # NaN is no JSON; null is.
    return frame.astype(object).where(frame.notna(), None)
