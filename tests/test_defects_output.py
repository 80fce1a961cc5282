"""Defects of files, pictures and requests that were met in use."""

import numpy as np
import polars as pl
import pytest
from forecast import tiny

import forecaster as fc

NAME = "bundle_$5_$10"


def test_text_of_a_figure_is_never_mathematics(tmp_path):
    from forecaster.forecast.plain_figure import PlainFigure
    from forecaster.forecast.plots import figure_svg

    figure = PlainFigure()
    axis = figure.subplots()
    figure.suptitle(NAME)
    axis.set_title(rf"{NAME} \$x$^2_$", loc="left")
    axis.set_ylabel(NAME)
    axis.plot([0, 1], [1, 2], label=NAME)
    axis.set_xticks([0, 1], [NAME, "$\\nothing$"])
    axis.legend()
    figure.savefig(tmp_path / "figure.png", bbox_inches="tight")
    assert figure_svg(figure).count(NAME) == 5


def test_dollars_in_names_cost_no_model(tmp_path, capsys):
    table = tiny.plain().rename({"sales": NAME}).with_columns(store=pl.col("store") + NAME)
    fc.fit(table, horizon=7, target=NAME, config=tiny.TINY, out=tmp_path / "model")
    assert "the model itself is complete" not in capsys.readouterr().out
    assert {"loss.png", "forecast.png", "report.html"} <= set(tiny.tree(tmp_path / "model"))


def test_a_drawing_that_fails_costs_no_model_and_is_a_warning(tmp_path, monkeypatch, capsys):
    from forecaster.forecast.plain_figure import PlainFigure

    def failing(self, renderer):
        raise ValueError("ParseFatalException: expected a \\frac")

    monkeypatch.setattr(PlainFigure, "draw", failing)
    model = fc.fit(
        tiny.plain(), horizon=7, config=tiny.TINY, out=tmp_path / "model", report=tmp_path / "a.html"
    )
    shown = " ".join(capsys.readouterr().out.split())
    for name in ("loss.png", "forecast.png", "report.html"):
        assert f"no {name}: ParseFatalException" in shown
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
    again = fc.load(tmp_path / "model").predict(tiny.plain())
    np.testing.assert_array_equal(again.quantiles, model.predict(tiny.plain()).quantiles)


def _fit(out, **options):
    return fc.fit(tiny.plain(), horizon=7, config=tiny.TINY, quiet=True, out=out, **options)


@pytest.mark.usefixtures("undrawn")
def test_a_second_fit_replaces_a_model_and_deletes_no_other_file(tmp_path):
    model = tmp_path / "model"
    _fit(model)
    _fit(model)
    names = ["notes.txt", "notebook.ipynb", "photos", "thesis\x1b[31m.tex"]
    for name in names:
        (model / name).mkdir() if name == "photos" else (model / name).write_text("years")
    before = tiny.tree(tmp_path)
    with pytest.raises(fc.OutputError, match="holds what is not part of a saved model") as refused:
        _fit(model)
    assert "'notebook.ipynb', 'notes.txt', 'photos' and 1 more; move it" in str(refused.value)
    with pytest.raises(fc.OutputError, match=r"holds what is not part .*: 'notes.txt'"):
        for name in ("notebook.ipynb", "photos", "thesis\x1b[31m.tex"):
            (model / name).rmdir() if name == "photos" else (model / name).unlink()
        tiny.plain_model().save(model)
    (model / "notes.txt").unlink()
    assert set(tiny.tree(tmp_path)) == set(before) - {f"model/{name}" for name in names} - {
        "model/photos/"
    }
    tiny.plain_model().save(model)


def test_a_second_convert_deletes_no_other_file(tmp_path):
    store = tmp_path / "store"
    for _ in range(2):
        fc.convert(tiny.plain(), store, quiet=True)
    (store / "sales.csv").write_text("years")
    before = tiny.tree(tmp_path)
    with pytest.raises(fc.OutputError, match=r"not part of a panel store .*: 'sales.csv'; move it"):
        fc.convert(tiny.plain(), store, quiet=True)
    assert tiny.tree(tmp_path) == before


@pytest.mark.usefixtures("undrawn")
def test_an_output_that_is_a_link_is_written_through(tmp_path):
    (tmp_path / "disk").mkdir()
    for name in ("model", "store", "rows.csv"):
        (tmp_path / name).symlink_to(tmp_path / "disk" / name)
    for _ in range(2):
        model = _fit(tmp_path / "model")
        fc.convert(tiny.plain(), tmp_path / "store", quiet=True)
        model.predict(tiny.plain()).write(tmp_path / "rows.csv")
        model.predict_to(tmp_path / "rows.csv", tiny.plain())
        model.predict_to(tmp_path / "rows.csv", tiny.plain(), shard=(1, 1))
        model.predict_to(tmp_path / "rows.csv", tiny.plain())  # merges the parts
    for place in (tmp_path, tmp_path / "disk"):
        inside = sorted(path.name for path in place.iterdir())
        assert [name for name in inside if name != "disk"] == ["model", "rows.csv", "store"]
    assert all((tmp_path / name).is_symlink() for name in ("model", "store", "rows.csv"))
    fc.load(tmp_path / "disk" / "model")
