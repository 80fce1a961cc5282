"""The batch forecast of two checkouts in turn: each process reads the package of its own checkout."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import batch_forecast

# A package that writes what it was asked, and forecasts of the size that is expected.
PACKAGE = """
import sys, time
from pathlib import Path
import polars as pl
with open({log!r}, "a") as log:
    print({name!r}, *sys.argv[1:], sep="|", file=log)
if sys.argv[1] == "predict":
    assert (Path(sys.argv[2]) / "made").read_text() == {name!r}
    rows = 24 * pl.scan_csv(sys.argv[3]).select(pl.col("series").n_unique()).collect().item()
    pl.DataFrame({{"lead": range(rows)}}).write_parquet(sys.argv[sys.argv.index("--out") + 1])
    time.sleep({seconds})
else:
    folder = Path(sys.argv[sys.argv.index("--out") + 1])
    folder.mkdir()
    (folder / "made").write_text({name!r})
"""


def checkout(folder: Path, name: str, seconds: float) -> Path:
    package = folder / name / "forecaster"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    text = PACKAGE.format(log=str(folder / "log"), name=name, seconds=seconds)
    (package / "__main__.py").write_text(text)
    return package.parent


@pytest.mark.slow
def test_two_checkouts_take_turns_with_their_own_package_and_model(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(batch_forecast, "ROOT", checkout(tmp_path, "here", 1.0))
    other = checkout(tmp_path, "there", 0.0)
    words = ["--experts", "--against", other, "--series", 3, "--rows", 30, "--repeats", 2]
    monkeypatch.setattr(sys, "argv", ["script", *map(str, words)])
    batch_forecast.main()
    asked = [line.split("|") for line in (tmp_path / "log").read_text().splitlines()]
    assert [line[:2] for line in asked] == [
        ["here", "fit"],
        ["there", "fit"],
        *[["here", "predict"], ["there", "predict"]] * 2,
    ]
    assert asked[0][2:-1] == asked[1][2:-1] and not any("experts" in word for word in asked[0])
    said = capsys.readouterr().out
    assert "this checkout" in said and "the other" in said
    (ratio,) = (float(line.split()[1]) for line in said.splitlines() if line.startswith("time:"))
    assert ratio > 1.3 and "memory: " in said


def test_what_is_no_checkout_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["script", "--against", str(tmp_path)])
    with pytest.raises(SystemExit):
        batch_forecast.main()
    assert "expected a checkout, found no folder forecaster" in capsys.readouterr().err
