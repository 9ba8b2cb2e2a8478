"""Scenario files: what they may say, and what is said about those that are wrong."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from resilin.evaluation.grid import cells, check_policies, check_traces, missing_policies
from resilin.evaluation.scenario import ScenarioError, load, shipped
from resilin.planning.policies.registry import POLICIES

every_scenario = pytest.mark.parametrize("path", shipped().values(), ids=lambda path: path.stem)


def test_the_papers_figures_are_there() -> None:
    assert set(shipped()) == {
        "amoeba-figure-8",
        "amoeba-table-2",
        "elasticflow-figure-6",
        "elasticflow-figure-8a",
        "elasticflow-figure-8b",
        "elasticflow-figure-9",
        "elasticflow-figure-10",
        "elasticflow-figure-11",
        "policies-195job",
        "pollux-workload-6",
        "smoke",
    }
    names = list(shipped())
    assert names.index("elasticflow-figure-9") < names.index("elasticflow-figure-10")


@every_scenario
def test_what_is_shipped_is_sound(path: Path) -> None:
    scenario = load(path)
    assert scenario.name == path.stem
    assert missing_policies(scenario) == ()
    check_policies(scenario)
    assert len({cell.label for cell in cells(scenario)}) == len(list(cells(scenario)))


def test_every_policy_is_in_the_table_of_all() -> None:
    assert set(load(shipped()["policies-195job"]).spec.policies) == set(POLICIES)


def test_published_numbers_name_their_source() -> None:
    for path in shipped().values():
        for entry in load(path).spec.published:
            assert len(entry.source) > 5


def test_the_grid_is_in_order_and_whole(tiny) -> None:
    grid = [(cell.resize_cost.name, cell.policy) for cell in cells(tiny)]
    assert grid == [
        ("none", "elasticflow"),
        ("none", "edf"),
        ("modelled", "elasticflow"),
        ("modelled", "edf"),
    ]
    assert [cell.policy for cell in cells(tiny, ("edf",))] == ["edf", "edf"]


def test_classes_have_both_bounds(tiny) -> None:
    small, large = tiny.spec.job_classes
    assert (small.from_gpu_seconds, small.below_gpu_seconds) == (0.0, 10_000.0)
    assert (large.from_gpu_seconds, large.below_gpu_seconds) == (10_000.0, math.inf)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"kind": "Job"}, ("'kind'", "'Evaluation'", "got 'Job'")),
        ({"spec__title": None}, ("'spec.title'", "required")),
        ({"spec__colour": "red"}, ("'spec.colour'", "not permitted")),
        ({"spec__policies": []}, ("'spec.policies'",)),
        ({"spec__policies": ["edf", "edf"]}, ("'spec'", "policies names one thing twice")),
        ({"spec__measures": ["speed"]}, ("no measure 'speed'", "met_share")),
        ({"spec__seeds": [-1]}, ("'spec.seeds.0'", "got -1")),
        ({"spec__resizeCosts": ["some"]}, ("'spec.resizeCosts.0'", "neither none nor modelled")),
        (
            {"spec__workloads__0__clusters__0__servers": 0},
            ("'spec.workloads.0.clusters.0.servers'", "got 0"),
        ),
        (
            {"spec__workloads__0__source": {}},
            ("'spec.workloads.0.source'", "exactly one of file, generated and single"),
        ),
        (
            {"spec__workloads__0__source": {"file": "a.csv"}},
            ("'spec.workloads.0.source'", "file and format go together"),
        ),
        (
            {"spec__workloads__0__source": {"file": "../a.csv", "format": "csv"}},
            ("'spec.workloads.0.source'", "below the folder of traces"),
        ),
        (
            {"spec__published__0__of": {"policy": "fifo"}},
            ("'spec'", "published.0 names 'fifo'", "policies"),
        ),
        ({"spec__published__0__value": None}, ("'spec.published.0'", "give a value")),
        ({"spec__published__0__measure": "speed"}, ("'spec.published.0'", "'speed'")),
        ({"spec__classes": [{"name": "small"}, {"name": "large"}]}, ("belowGpuSeconds",)),
        ({"spec__charts": [{"measure": "met", "along": "hours"}]}, ("'spec.charts.0'",)),
    ],
)
def test_a_wrong_field_is_named(write, changes, says) -> None:
    path = write(**changes)
    with pytest.raises(ScenarioError) as error:
        load(path)
    message = str(error.value)
    assert message.startswith(f"{path}: field ")
    assert "\n" not in message
    for part in says:
        assert part in message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "is no valid YAML"),
        ("a: 1\na: 2\n", "the key 'a' occurs twice"),
        ("a: &x 1\nb: *x\n", "aliases are not read"),
        ("a: !!python/name:os.system\n", "is no valid YAML"),
        ("", "the whole file"),
        ("[" * 5000, "is no valid YAML"),
    ],
)
def test_a_file_that_is_no_scenario_says_so(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=says):
        load(path)


def test_files_that_cannot_be_read_say_so(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot be read"):
        load(tmp_path / "nothing.yaml")
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"a: \xe9")
    with pytest.raises(ScenarioError, match="UTF-8"):
        load(latin)
    huge = tmp_path / "huge.yaml"
    huge.write_text("#" * (2 << 20))
    with pytest.raises(ScenarioError, match="too large"):
        load(huge)


def test_a_policy_that_does_not_exist_is_named(write) -> None:
    scenario = load(write(spec__policies=["elasticflow", "edf", "oracle"]))
    assert missing_policies(scenario) == ("oracle",)
    with pytest.raises(ScenarioError, match=r"tiny: field 'spec\.policies'.*'oracle'"):
        check_policies(scenario)
    check_policies(scenario, ("edf",))


def test_traces_that_are_not_there_are_named(write, tmp_path: Path) -> None:
    source = {"file": "some/trace.csv", "format": "csv"}
    scenario = load(write(spec__workloads__0__source=source))
    with pytest.raises(ScenarioError, match=r"'spec.workloads.0.source'.*some/trace.csv"):
        check_traces(scenario, None)
    with pytest.raises(ScenarioError, match=r"there is no .*some/trace.csv"):
        check_traces(scenario, tmp_path)
