"""`resilin node`, `cell` and `curves`: running a live cell."""

from __future__ import annotations

import yaml

from resilin.cli.commands import curves as curves_command
from resilin.contracts.commands import ImportCurves, command_adapter
from resilin.contracts.topics import JOBS_COMMANDS

SETTINGS = """\
virtualClusters:
  - name: default
    policy: edf
    reserveServers: 1
stopCost: {fixedSeconds: 3}
"""


def nodes(resilin, cell) -> dict[str, str]:
    answer = resilin("node", "list", "--home", cell.home, "-o", "json").json
    return {server["server_id"]: server["status"] for server in answer["servers"]}


def test_a_server_comes_rests_and_goes(resilin, cell) -> None:
    assert nodes(resilin, cell) == {"server-0": "ready", "server-1": "ready"}
    added = resilin(
        *("node", "add", "server-2", "--gpus", 2, "--rack", "r7", "--home", cell.home),
        *("-o", "json"),
    )
    assert (added.code, added.json["done"]) == (0, True)
    cell.wait_for("NodeJoined", 3)
    wide = resilin("node", "list", "--home", cell.home, "-o", "wide").stdout
    assert "r7" in wide
    assert resilin("node", "cordon", "server-2", "--home", cell.home).code == 0
    assert nodes(resilin, cell)["server-2"] == "cordoned"
    assert resilin("node", "uncordon", "server-2", "--home", cell.home).code == 0
    assert nodes(resilin, cell)["server-2"] == "ready"
    removed = resilin("node", "remove", "server-2", "--home", cell.home)
    assert "server server-2 leaves the cell" in removed.stdout
    assert "server-2" not in nodes(resilin, cell)


def test_what_the_cell_refuses_is_said(resilin, cell) -> None:
    twice = resilin("node", "add", "server-1", "--gpus", 4, "--home", cell.home, "-o", "json")
    assert (twice.code, twice.json["done"]) == (1, False)
    assert twice.json["message"] == "server server-1 is in the cell already"
    unknown = resilin("node", "cordon", "server-9", "--home", cell.home)
    assert unknown.code == 1
    assert "not done: server server-9 is not in the cell" in unknown.stdout


def test_a_cell_that_is_down_is_told_later(resilin, stopped) -> None:
    call = ("node", "cordon", "server-1", "--home", stopped.home)
    assert resilin(*call, "--timeout", 0.1).code == 4
    sent = resilin(*call, "--timeout", 0)
    assert sent.code == 0
    assert "sent: it is kept as message" in sent.stdout
    stopped.start()
    stopped.wait_for("ServerCordoned", 2)


def test_settings_are_replaced_as_a_whole(resilin, cell, tmp_path) -> None:
    file = tmp_path / "cell.yaml"
    file.write_text(SETTINGS)
    outcome = resilin("cell", "configure", "-f", file, "--home", cell.home)
    assert outcome.code == 0
    assert "the settings are in force (default: edf)" in outcome.stdout
    shown = resilin("cell", "show", "--home", cell.home).stdout
    settings = yaml.safe_load(shown)
    assert settings["virtualClusters"][0]["policy"] == "edf"
    assert settings["virtualClusters"][0]["reserveServers"] == 1
    assert settings["stopCost"]["fixedSeconds"] == 3
    # What is shown is what is taken.
    file.write_text(shown.replace("edf", "fifo"))
    assert resilin("cell", "configure", "-f", file, "--home", cell.home).code == 0
    after = resilin("cell", "show", "--home", cell.home, "-o", "json").json
    assert after == yaml.safe_load(shown.replace("edf", "fifo"))


BAD_SETTINGS = {
    "unknown-policy": (SETTINGS.replace("edf", "lifo"), (":3:", "virtualClusters[0].policy")),
    "unknown-field": (SETTINGS.replace("stopCost", "stopCosts"), (":5:", "stopCosts", "settings")),
    "negative": (SETTINGS.replace(": 3", ": -3"), (":5:", "stopCost.fixedSeconds")),
    "no-number": (SETTINGS.replace(": 1", ": one"), (":4:", "reserveServers", "one")),
    "twice": (SETTINGS.replace("policy: edf", "policy: edf\n  - name: default"), ("same name",)),
    "key-twice": (f"{SETTINGS}stopCost: {{}}\n", (":6:", "line 5")),
    "empty": ("", ("0 documents",)),
    "two": (f"{SETTINGS}---\n{SETTINGS}", ("2 documents",)),
    "list": ("- a\n", (":1:", "list")),
    "alias": ("a: &a [1]\nb: *a\n", (":2:", "*a")),
}


def test_bad_settings_are_not_sent(idle, refuses, tmp_path) -> None:
    sent = idle.sent()
    file = tmp_path / "cell.yaml"
    for text, says in BAD_SETTINGS.values():
        file.write_text(text)
        refuses("cell", "configure", "-f", file, "--home", idle.home, says=(str(file), *says))
    missing = tmp_path / "missing.yaml"
    refuses("cell", "configure", "-f", missing, "--home", idle.home, says=(str(missing),))
    assert idle.sent() == sent


def profile(folder, **models: str):
    folder.mkdir()
    for model, rows in models.items():
        (folder / f"{model}.csv").write_text(f"global_batch_size,1,2,4\n{rows}\n")
    return folder


def test_curves_become_known(resilin, cell, tmp_path) -> None:
    folder = profile(tmp_path / "profiles", vgg16="64,1,1.5,2\n128,2,3.5,nan", bert="32,5,9,16")
    outcome = resilin("curves", "import", folder, "--home", cell.home)
    assert outcome.code == 0
    assert "3 curves are known" in outcome.stdout
    listed = resilin("curves", "list", "--home", cell.home, "-o", "json").json["curves"]
    known = {(one["model"], one["global_batch"]): one for one in listed}
    assert known["vgg16", 128]["iterations_per_second"] == {"1": 2.0, "2": 3.5}
    assert len(known) == 4
    assert "2: 3.5" in resilin("curves", "list", "--home", cell.home).stdout


def test_many_curves_take_several_commands(resilin, idle, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(curves_command, "BYTES_PER_COMMAND", 200)
    rows = "\n".join(f"{batch},1,2,3" for batch in range(1, 40))
    folder = profile(tmp_path / "profiles", vgg16=rows)
    before = len(idle.sent())
    call = ("curves", "import", folder, "--home", idle.home, "--timeout", 0, "--source", "profiled")
    assert resilin(*call).code == 0
    commands = [command_adapter.validate_json(value) for value in idle.sent()[before:]]
    assert len(commands) > 5
    batches = []
    for command in commands:
        assert isinstance(command, ImportCurves)
        assert command.curve_source == "profiled"
        batches += [curve.global_batch for curve in command.curves]
    assert batches == list(range(1, 40))
    assert all(len(value) < JOBS_COMMANDS.message_bytes_max for value in idle.sent())


def test_bad_profiles_and_names_are_not_sent(idle, refuses, tmp_path) -> None:
    sent = idle.sent()
    folder = profile(tmp_path / "profiles", vgg16="64,fast,2,3")
    home = ("--home", idle.home)
    refuses("curves", "import", folder, *home, says=("vgg16.csv:2", "fast"))
    refuses("curves", "import", tmp_path / "none", *home, says=("none",))
    (tmp_path / "spaced").mkdir()
    (tmp_path / "spaced" / "my model.csv").write_text("global_batch_size,1\n64,1\n")
    refuses("curves", "import", tmp_path / "spaced", *home, says=("my model",))
    refuses("node", "add", "a b", "--gpus", 1, *home, says=("SERVER", "a b"))
    refuses("node", "add", "a", "--gpus", 0, *home, says=("--gpus",))
    refuses("node", "add", "a", "--gpus", 1, "--rack", "r" * 300, *home, says=("rack",))
    refuses("node", "remove", "a b", *home, says=("SERVER", "a b"))
    bad = ("--virtual-cluster", "b c")
    refuses("node", "add", "a", "--gpus", 1, *bad, *home, says=("--virtual-cluster", "b c"))
    refuses("node", "cordon", "../x", *home, says=("SERVER", "../x"))
    assert idle.sent() == sent
