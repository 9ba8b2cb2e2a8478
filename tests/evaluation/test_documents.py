"""docs/evaluation.md: its example works, and its tables name what there is."""

from __future__ import annotations

import re
from pathlib import Path

from resilin.evaluation.grid import cells
from resilin.evaluation.measures import MEASURES
from resilin.evaluation.scenario import (
    Chart,
    Cluster,
    Published,
    Source,
    Specification,
    Transient,
    load,
    shipped,
)

DOCUMENT = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")


def test_the_example_is_a_scenario(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.DOTALL)
    path = tmp_path / "example.yaml"
    path.write_text(example, encoding="utf-8")
    assert len(list(cells(load(path)))) == 2 * 3 * 2 * 2


def test_every_scenario_is_there_with_its_runs() -> None:
    told = dict(re.findall(r"^\| `([\w-]+)` \| .* \| (\d+) \|$", DOCUMENT, re.MULTILINE))
    assert told == {name: str(len(list(cells(load(path))))) for name, path in shipped().items()}


def test_every_measure_is_explained_and_starred_if_it_is_by_class() -> None:
    table = DOCUMENT.split("## Measures")[1].split("## Scenario files")[0]
    told = dict(re.findall(r"`([a-z0-9_]+)`(\\\*)?", table))
    for name, measure in MEASURES.items():
        assert (told[name] == "\\*") == measure.of_jobs, name


def test_every_field_is_explained() -> None:
    for model in (Specification, Source, Cluster, Transient, Chart, Published):
        for field in model.model_fields.values():
            assert f"`{field.alias}`" in DOCUMENT, f"{model.__name__}.{field.alias}"
