"""`forecaster mcp`: tools with the options and the documents of their verbs; with the package's own client."""

import asyncio
import json
import os
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest
from forecast import tiny

import forecaster as fc
from forecaster.cli import mcp as served

ROOT = Path(__file__).parents[2]


def test_tools_take_a_table_and_described_options_of_their_verbs():
    tools = {name: served.tool(name) for name in served.TOOLS}
    assert [*tools] == ["check", "predict", "backtest", "explain"]
    for name, tool in tools.items():
        schema = tool["input_schema"]
        assert tool["name"] == name and len(tool["description"]) > 30
        assert next(iter(schema["properties"])) == "table" and schema["required"][0] == "table"
        assert ("model" in schema["properties"]) == (name != "check")
        for option in schema["properties"].values():
            assert option["type"] in ("string", "integer", "boolean", "array") and option["description"]
    predict = tools["predict"]["input_schema"]["properties"]
    assert predict["horizon"]["type"] == "integer" and "Steps" in predict["horizon"]["description"]
    assert predict["what_if"] == {**predict["what_if"], "type": "array", "items": {"type": "string"}}
    assert tools["explain"]["input_schema"]["required"] == ["table", "out"]


def test_a_call_answers_as_the_verb_does_with_json(folder, shell, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["forecaster", "mcp"])
    arguments = {"model": "model", "table": "shop.csv", "future": "prices.csv", "levels": [80, 95]}
    found = served.call("predict", arguments)
    words = ("model", "shop.csv", "--future", "prices.csv", "--levels", "80,95", "--json")
    assert found == json.loads(shell("predict", *words).out)
    assert len(found["rows"]) == 21 and "lo-95" in found["rows"][0]


def test_what_a_call_gives_is_no_option_unless_the_tool_has_it(folder, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["forecaster", "mcp"])
    for name, arguments, code, said in (
        ("predict", {"table": "--out=new.csv", "horizon": 7}, "data", "--out=new.csv: no such file"),
        ("predict", {"table": "plain.csv", "horizon": "7 --out new.csv"}, "usage", "horizon"),
        (
            "predict",
            {"table": "plain.csv", "restart": True},
            "config",
            "predict restart: expected one of",
        ),
        ("predict", {"horizon": 7}, "usage", "Missing argument"),
        ("fit", {"table": "plain.csv"}, "config", "tool fit: expected one of check, predict"),
    ):
        before = tiny.tree(folder)
        found = served.call(name, arguments)
        assert (found["exit_code"], found["error"]["code"]) == (2, code), found
        assert said in found["error"]["message"] and tiny.tree(folder) == before


def test_nothing_is_overwritten_unless_asked(folder, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["forecaster", "mcp"])
    (folder / "new.csv").write_text("mine")
    arguments = {"model": "plain_model", "table": "plain.csv", "out": "new.csv"}
    found = served.call("predict", arguments | {"overwrite": False})
    assert found["error"]["code"] == "output" and (folder / "new.csv").read_text() == "mine"
    assert found["error"]["fix"] == "replace it with --overwrite, or choose another name"
    assert served.call("predict", arguments | {"overwrite": True})["out"] == "new.csv"


def test_a_fault_in_the_code_is_an_answer_too(folder, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["forecaster", "mcp"])
    monkeypatch.setattr("forecaster.api.check", lambda *given, **options: 1 / 0)
    found = served.call("check", {"table": "plain.csv"})
    assert found["exit_code"] == 1
    assert found["error"] == {
        "code": "bug",
        "message": "ZeroDivisionError: division by zero",
        "fix": None,
    }


def test_the_page_shows_the_entry_of_a_configuration(shell):
    page = (ROOT / "docs" / "how-to.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```json\n(\{\s*\"mcpServers\".*?)```", page, flags=re.DOTALL)
    assert json.loads(block) == {"mcpServers": served.CLIENT}


@pytest.mark.slow  # where `.ci/run` has installed the extra
def test_its_own_client_lists_and_calls_the_tools(folder):
    pytest.importorskip("mcp_types", reason="the extra mcp is not installed")
    mcp = import_module("mcp")
    answers = asyncio.run(_session(mcp, folder))
    assert answers["tools"] == [*served.TOOLS] and answers["version"] == fc.__version__
    assert answers["check"].structured_content["rows"] == 300 and not answers["check"].is_error
    ahead = answers["predict"].structured_content
    assert len(ahead["rows"]) == 21 and ahead["rows"][0]["date"] == "2024-04-10"
    assert json.loads(answers["predict"].content[0].text) == ahead
    fault = answers["fault"]
    assert fault.is_error and fault.structured_content["error"]["code"] == "data"


async def _session(mcp, folder):
    """What a client gets of a server that it starts in a folder."""
    words = ["-m", "forecaster", "mcp"]
    start = mcp.StdioServerParameters(
        command=sys.executable, args=words, cwd=folder, env={**os.environ}
    )
    async with mcp.stdio_client(start) as streams, mcp.ClientSession(*streams) as session:
        begun = await session.initialize()
        listed = await session.list_tools()
        table = {"table": "plain.csv"}
        return {
            "version": begun.server_info.version,
            "tools": [tool.name for tool in listed.tools],
            "check": await session.call_tool("check", table),
            "predict": await session.call_tool("predict", {"model": "plain_model", **table}),
            "fault": await session.call_tool("check", {"table": "away.csv"}),
        }
