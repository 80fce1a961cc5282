"""`forecaster explain` on the command line: what it writes, says and refuses."""

import pytest
from forecast import tiny

EXPLAIN = ("explain", "model", "shop.csv", "--future", "prices.csv")


@pytest.mark.long
@pytest.mark.parametrize("suffix, opening", [("html", b"<!doctype html>"), ("png", b"\x89PNG")])
def test_explain_writes_a_page_or_a_picture_and_says_what_matters(folder, shell, suffix, opening):
    answer = shell(*EXPLAIN, "--only", "b", "--out", f"deep/attention.{suffix}")
    assert answer.code == 0, answer.err
    said, *effects, wrote = answer.out.splitlines()
    assert effects
    assert said.startswith("b · sales: the forecast changes most without ")
    assert wrote == f"wrote deep/attention.{suffix}" and answer.err == ""
    assert (folder / f"deep/attention.{suffix}").read_bytes().startswith(opening)


@pytest.mark.long
def test_explain_at_a_past_date_shows_the_truth(folder, shell):
    words = ["--cutoff", "2024-03-20", "--only", "a", "--channel", "sales", "--out", "a.html"]
    assert shell("explain", "plain_model", "plain.csv", *words).code == 0
    page = (folder / "a.html").read_text(encoding="utf-8")
    assert "Cutoff 2024-03-20; horizon of 7 steps, until 2024-03-27." in page
    assert "The table holds the truth of these steps" in page and ">actual<" in page


@pytest.mark.parametrize(
    "words, expected",
    [
        (["--out", "a.html"], "3 series; name one, as --only 'a'"),
        (["--only", "b", "--out", "plain.csv"], "plain.csv: is an input of this command"),
        (["--only", "b", "--cutoff", "never", "--out", "a.html"], "never"),
    ],
)
def test_explain_refuses_in_one_line_and_writes_nothing(folder, shell, words, expected):
    before = tiny.tree(folder)
    answer = shell("explain", "plain_model", "plain.csv", *words)
    assert answer.code == 2 and answer.out == ""
    assert answer.err.startswith("error: ") and expected in answer.err
    assert answer.err.count("\n") == 1
    assert tiny.tree(folder) == before


def test_another_suffix_is_refused_before_anything_is_read(folder, shell):
    answer = shell("explain", "no_model", "no.csv", "--out", "a.csv")
    assert answer.code == 2 and "a.csv: expected a name ending in .html" in answer.err
