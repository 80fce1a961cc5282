"""A saved model may come from anybody: it is refused in a line, or it works; it never runs or hangs."""

import json
import os
import random
import resource
import shutil
import signal
import struct
from contextlib import contextmanager
from pathlib import Path

import pytest
from json_wounds import fuzz, wounded

import forecaster as fc

GOLDEN = Path(__file__).parents[1] / "golden" / "format-1"
SECONDS, MEMORY = 30, 2 << 30
"""How long one model may take, and how much memory beside what is taken already."""


@pytest.fixture
def saved(tmp_path):
    """A copy of the golden model."""
    return Path(shutil.copytree(GOLDEN / "model", tmp_path / "model"))


@contextmanager
def _bounded():
    """Time and memory run out here long before they do on the machine."""

    def hang(signum, frame):
        raise AssertionError(f"no answer within {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, hang)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGE_SIZE") + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _tried(folder: Path) -> bool:
    """Whether the model loads, saves and forecasts; a refusal must be lines that a person can read."""
    with _bounded():
        try:
            model = fc.load(folder)
            model.save(folder.parent / "again")
        except fc.ArtifactError as error:
            lines = str(error).splitlines()
            assert 0 < len(lines) <= 31 and all(0 < len(line) < 1000 for line in lines), str(error)
            return False
        try:
            forecast = model.predict(GOLDEN / "table.csv", future=GOLDEN / "future.csv")
            assert forecast.rows.height == 28 * 3 or model.artifact.horizon != 28
        except fc.ForecasterError:  # a model of other columns than this table's
            pass
    return True


def _fuzz(saved: Path, seed: int, count: int) -> None:
    fuzz(saved, ("contract.json", "plan.json", "metrics.json"), lambda: _tried(saved), seed, count)


@pytest.mark.long
def test_a_wounded_model_is_refused_in_a_line_or_works(saved):
    _fuzz(saved, 0, 30)


@pytest.mark.slow
def test_models_with_hundreds_of_wounds_are_refused_in_a_line_or_work(saved):
    _fuzz(saved, 1, 200)


def _put(saved, name, *path_and_value):
    *path, value = path_and_value
    content = json.loads((saved / name).read_text(encoding="utf-8"))
    (saved / name).write_text(json.dumps(wounded(content, tuple(path), value)))


@pytest.mark.parametrize(
    "name",
    ["../../member-00.safetensors", "/etc/passwd", "a\0b", "two\nlines", "..", ".", "", "x" * 5000],
)
def test_only_a_plain_name_is_taken_for_a_member(saved, name):
    _put(saved, "contract.json", "members", 0, "file", name)
    with pytest.raises(fc.ArtifactError, match=r"contract.json: damaged \(members.0.file: "):
        fc.load(saved)


def test_a_layout_that_the_columns_contradict_is_refused(saved):
    _put(saved, "contract.json", "columns", "layout", "wide")
    with pytest.raises(fc.ArtifactError, match=r"contract.json: damaged \(layout wide of series "):
        fc.load(saved)


def test_a_context_too_short_for_its_experts_is_refused(saved):
    # 28 steps that the linear expert reads, at cutoffs up to 4 x 28 steps earlier.
    for short in (28, 112, 139):
        _put(saved, "plan.json", "model", "context_length", short)
        with pytest.raises(
            fc.ArtifactError, match=f"context_length {short} does not suit experts linear"
        ):
            fc.load(saved)
    _put(saved, "plan.json", "model", "context_length", 140)
    assert _tried(saved)


@pytest.mark.parametrize(
    ("path", "near"), [(("pool", "memry"), "memory"), (("pool", "linear", "phase"), "phases")]
)
def test_an_unknown_setting_of_an_expert_is_named_with_the_nearest_one(saved, path, near):
    _put(saved, "plan.json", "model", *path, 1)
    name = ".".join(("model", *path))
    with pytest.raises(fc.ArtifactError, match=f"{name}: unknown setting, did you mean '{near}'"):
        fc.load(saved)


def test_a_linear_expert_without_settings_is_refused(saved):
    _put(saved, "plan.json", "model", "pool", "linear", None)
    with pytest.raises(fc.ArtifactError, match="linear None does not suit experts linear"):
        fc.load(saved)


BILLIONS = {
    "layers": ("encoder_layers", 10**9, "less than or equal to 1000 (got 1000000000)"),
    "width": ("width", 10**9, "less than or equal to 65536 (got 1000000000)"),
    "context": ("context_length", 10**12, "less than or equal to 1000000 (got 1000000000000)"),
}


@pytest.mark.parametrize(("setting", "value", "said"), BILLIONS.values(), ids=BILLIONS)
def test_a_model_of_billions_is_refused_before_memory_is_taken(saved, setting, value, said):
    _put(saved, "plan.json", "model", setting, value)
    with _bounded(), pytest.raises(fc.ArtifactError) as refused:
        fc.load(saved)
    assert said in str(refused.value)


ENDLESS = {
    "attention": (
        {"attention_length": 10**6, "context_length": 10**6},
        "model.attention_length 1,000,000, model.patch 7: one forecast takes attention of 20,408,408,164 "
        "pairs of tokens, expected at most 1,000,000,000: ",
    ),
    "horizon": (
        {"decoder_patch": 1, "decoder": "autoregressive", "pool": {}},
        "horizon 100,000, model.decoder_patch 1, 100 sample paths: one forecast takes attention of "
        "1,000,040,000,000 pairs of tokens, expected at most 10,000,000,000: ",
    ),
}


@pytest.mark.parametrize(("settings", "said"), ENDLESS.values(), ids=ENDLESS)
def test_a_model_that_would_compute_for_days_is_refused_with_the_setting_and_the_limit(
    saved, settings, said
):
    for name, value in settings.items():
        _put(saved, "plan.json", "model", name, value)
    if "decoder" in settings:
        _put(saved, "plan.json", "horizon", 100_000)
        _put(saved, "contract.json", "shape", "horizon", 100_000)
    with _bounded(), pytest.raises(fc.ArtifactError) as refused:
        fc.load(saved)
    assert f"plan.json: {said}" in str(refused.value)


def test_a_network_larger_than_its_file_is_never_built(saved):
    _put(saved, "plan.json", "model", "width", 65536)
    _put(saved, "plan.json", "model", "encoder_layers", 1000)
    with (
        _bounded(),
        pytest.raises(fc.ArtifactError, match=r"a network of this plan has \d{2,3},\d{3},"),
    ):
        fc.load(saved)


def test_nested_a_hundred_thousand_deep_is_no_json(saved):
    for opening in ("[", '{"a":'):
        (saved / "metrics.json").write_text(opening * 100_000)
        with pytest.raises(fc.ArtifactError, match=r"damaged, not JSON \(recursion limit"):
            fc.load(saved)


def test_what_is_no_file_is_not_waited_for(saved):
    for name in ("contract.json", "member-00.safetensors"):
        (saved / name).rename(saved / "aside")
        os.mkfifo(saved / name)
        with _bounded(), pytest.raises(fc.ArtifactError, match="expected a file, found something else"):
            fc.load(saved)
        (saved / name).unlink()
        (saved / "aside").rename(saved / name)


def _weights(saved, content: bytes) -> None:
    """Puts weights in the place of a model's, with the checksum they have."""
    import hashlib

    (saved / "member-00.safetensors").write_bytes(content)
    _put(saved, "contract.json", "members", 0, "sha256", hashlib.sha256(content).hexdigest())


def _whole() -> tuple[bytes, int]:
    content = (GOLDEN / "model" / "member-00.safetensors").read_bytes()
    return content, 8 + struct.unpack("<Q", content[:8])[0]


CUTS = {
    "nothing": lambda header, size: 0,
    "in the header's length": lambda header, size: 5,
    "before the header": lambda header, size: 8,
    "in the header": lambda header, size: header // 2,
    "before the data": lambda header, size: header,
    "in the data": lambda header, size: (header + size) // 2,
    "one byte": lambda header, size: size - 1,
}


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_weights_cut_off_anywhere_are_refused(saved, cut):
    content, header = _whole()
    _weights(saved, content[: cut(header, len(content))])
    with pytest.raises(fc.ArtifactError, match=r"member-00.safetensors: does not fit its contract \("):
        fc.load(saved)


def _claiming(header: dict) -> bytes:
    text = json.dumps(header).encode()
    content, _ = _whole()
    return (struct.pack("<Q", len(text)) + text).ljust(len(content), b"\0")


CLAIMS = {
    "a header of terabytes": lambda: struct.pack("<Q", 1 << 42) + _whole()[0][8:],
    "a header of all that can be said": lambda: b"\xff" * 8 + _whole()[0][8:],
    "a tensor of terabytes": lambda: _claiming(
        {"head": {"dtype": "F32", "shape": [1 << 20, 1 << 20], "data_offsets": [0, 1 << 42]}}
    ),
    "a tensor of more numbers than there are": lambda: _claiming(
        {"head": {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 4]}}
    ),
    "tensors that overlap": lambda: _claiming(
        {n: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} for n in "ab"}
    ),
    "no JSON": lambda: struct.pack("<Q", 4) + b"\x80\x04K." + _whole()[0][12:],
}


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_weights_that_claim_what_is_not_there_are_refused(saved, claim):
    _weights(saved, claim())
    with _bounded(), pytest.raises(fc.ArtifactError, match=r"does not fit its contract \("):
        fc.load(saved)


@pytest.mark.long
def test_weights_with_bytes_flipped_anywhere_are_refused_or_load(saved):
    content, header = _whole()
    rng = random.Random(0)
    for _ in range(25):
        bad = bytearray(content)
        bad[rng.randrange(header + 40)] ^= 1 << rng.randrange(8)
        _weights(saved, bytes(bad))
        _tried(saved)
