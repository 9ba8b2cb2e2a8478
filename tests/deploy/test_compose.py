"""compose.yaml, the image and the provisioning: every name in them is that of something."""

from __future__ import annotations

import fnmatch
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from resilin.contracts.topics import SERVICES
from resilin.runtime.settings import ServiceSettings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
OBSERVABILITY = DEPLOY / "observability"

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
CONTAINERS: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
STANDBYS = {f"{service}-standby": service for service in SERVICES}
OURS = [*SERVICES, *STANDBYS, "topics"]
PORT = "8080"

every_container = pytest.mark.parametrize("name", CONTAINERS)


def package_of(service: str) -> str:
    return f"resilin.{service.replace('-', '_')}"


# --- compose.yaml --------------------------------------------------------------------------


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_of_the_catalogue_runs_by_its_package(service: str) -> None:
    container = CONTAINERS[service]
    assert container["command"] == ["python", "-m", package_of(service)]
    assert importlib.util.find_spec(f"{package_of(service)}.__main__") is not None


def test_there_is_nothing_that_nobody_knows() -> None:
    others = {"kafka", "topics", "postgres", "prometheus", "grafana"}
    assert set(CONTAINERS) == {*SERVICES, *STANDBYS, *others}


@pytest.mark.parametrize(("standby", "service"), STANDBYS.items())
def test_a_standby_is_a_second_instance_under_another_name(standby: str, service: str) -> None:
    first, second = CONTAINERS[service], CONTAINERS[standby]
    own = {"profiles", "hostname", "networks"}
    assert {k: v for k, v in first.items() if k not in own} == {
        k: v for k, v in second.items() if k not in own
    }
    assert first["hostname"] != second["hostname"]
    assert second["networks"]["default"]["aliases"] == [service]
    profile = "simulated-standby" if service == "executor" else "standby"
    assert second["profiles"] == [profile]


def test_workers_are_simulated_only_where_somebody_asks_for_it() -> None:
    assert CONTAINERS["executor"]["profiles"] == ["simulated"]
    assert CONTAINERS["executor"]["environment"]["RESILIN_EXECUTOR_BACKEND"] == "simulated"
    unasked = [name for name, one in CONTAINERS.items() if "profiles" not in one]
    assert set(SERVICES) - {"executor"} <= set(unasked)


@pytest.mark.parametrize("name", OURS)
def test_every_setting_is_one_that_services_have(name: str) -> None:
    known = {f"RESILIN_{field.upper()}" for field in ServiceSettings.model_fields}
    assert set(CONTAINERS[name]["environment"]) <= known


def filled_in(value: str) -> str:
    """Return what ``${NAME:-default}`` stands for when nobody sets NAME."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)


@pytest.mark.parametrize("name", OURS)
def test_the_settings_are_valid_as_they_stand(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [variable for variable in os.environ if variable.startswith("RESILIN_")]:
        monkeypatch.delenv(variable)
    for variable, value in CONTAINERS[name]["environment"].items():
        monkeypatch.setenv(variable, filled_in(value))
    settings = ServiceSettings()
    assert settings.bootstrap == "kafka:19092"
    assert settings.cell == "main"
    assert str(settings.http_port) == PORT
    assert (settings.archive_url is not None) == name.startswith("metric-collector")


@every_container
def test_images_have_a_version(name: str) -> None:
    _, _, tag = CONTAINERS[name]["image"].partition(":")
    assert re.match(r"v?\d+", tag), f"{name}: {CONTAINERS[name]['image']}"


@pytest.mark.parametrize("name", OURS)
def test_our_image_has_the_version_of_the_package(name: str) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert CONTAINERS[name]["image"] == f"resilin:{version}"
    assert f'org.opencontainers.image.version="{version}"' in DOCKERFILE


@every_container
def test_ports_are_open_on_this_machine_only(name: str) -> None:
    for port in CONTAINERS[name].get("ports", ()):
        assert str(port).startswith("127.0.0.1:"), f"{name}: {port}"


@every_container
def test_every_container_comes_back_and_can_be_asked_how_it_is(name: str) -> None:
    container = CONTAINERS[name]
    if name == "topics":  # it ends when it is done
        assert container["restart"] == "on-failure"
        return
    assert container["restart"] == "unless-stopped"
    assert container["healthcheck"]["test"][0] == "CMD"
    if name in OURS:
        assert f"127.0.0.1:{PORT}/healthz" in container["healthcheck"]["test"][-1]


@every_container
def test_what_is_waited_for_exists_and_can_come_true(name: str) -> None:
    for other, how in CONTAINERS[name].get("depends_on", {}).items():
        healthcheck = CONTAINERS[other].get("healthcheck", {})
        if how["condition"] == "service_healthy":
            assert healthcheck.get("test"), f"{name} waits for {other}"
        else:
            assert how["condition"] == "service_completed_successfully"
            assert CONTAINERS[other]["restart"] == "on-failure"
        assert "profiles" not in CONTAINERS[other], f"{name} waits for {other}, if it is there"


@every_container
def test_everything_that_is_mounted_is_there(name: str) -> None:
    for mount in CONTAINERS[name].get("volumes", ()):
        source, _, target = mount.partition(":")
        assert target.startswith("/")
        if source.startswith("."):
            assert (ROOT / source).exists(), mount
            assert mount.endswith(":ro"), f"{mount} could be changed from within"
        else:
            assert source in COMPOSE["volumes"], mount


def test_no_volume_is_left_over() -> None:
    used = {
        mount.partition(":")[0]
        for container in CONTAINERS.values()
        for mount in container.get("volumes", ())
    }
    assert set(COMPOSE["volumes"]) <= used


@pytest.mark.parametrize("name", OURS)
def test_a_service_can_change_nothing_outside_itself(name: str) -> None:
    container = CONTAINERS[name]
    assert container["read_only"] is True
    assert container["cap_drop"] == ["ALL"]
    assert container["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "network_mode", "pid", "user"} & set(container)


def test_topics_come_from_the_catalogue_and_from_nowhere_else() -> None:
    kafka = CONTAINERS["kafka"]["environment"]
    assert kafka["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    module, *arguments = CONTAINERS["topics"]["command"][2:]
    assert importlib.util.find_spec(module) is not None
    assert arguments == ["--bootstrap", "kafka:19092"]
    assert "INTERNAL://kafka:19092" in kafka["KAFKA_ADVERTISED_LISTENERS"]
    assert "LOCAL://localhost:9092" in kafka["KAFKA_ADVERTISED_LISTENERS"]


def test_docker_takes_the_file() -> None:
    docker = shutil.which("docker")
    if docker is None or _run(docker, "compose", "version").returncode != 0:
        pytest.skip("the Docker client has no compose")
    profiles = [f"--profile={name}" for name in ("simulated", "standby", "simulated-standby")]
    done = _run(docker, "compose", *profiles, "config", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["services"]) == set(CONTAINERS)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 (our own arguments)
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


# --- Prometheus and Grafana as they are mounted --------------------------------------------


def test_prometheus_finds_all_services_where_they_listen() -> None:
    path = OBSERVABILITY / "prometheus" / "prometheus.yml"
    (job,) = (
        job
        for job in yaml.safe_load(path.read_text(encoding="utf-8"))["scrape_configs"]
        if job["job_name"] == "resilin"
    )
    (found,) = job["dns_sd_configs"]
    assert tuple(found["names"]) == SERVICES
    assert str(found["port"]) == PORT


def test_grafana_reads_what_is_mounted() -> None:
    provisioning = OBSERVABILITY / "grafana" / "provisioning"
    (provider,) = yaml.safe_load((provisioning / "dashboards/resilin.yaml").read_text())[
        "providers"
    ]
    mounts = dict(
        mount.split(":")[:2] for mount in CONTAINERS["grafana"]["volumes"] if mount[0] == "."
    )
    targets = {target: ROOT / source for source, target in mounts.items()}
    assert targets["/etc/grafana/provisioning"] == provisioning
    dashboards = targets[provider["options"]["path"]]
    home = CONTAINERS["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (dashboards / Path(home).relative_to(provider["options"]["path"])).is_file()
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yaml").read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"


def _dashboards() -> Any:
    path = OBSERVABILITY / "grafana" / "dashboards.py"
    spec = importlib.util.spec_from_file_location("resilin_dashboards", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look for their module
    spec.loader.exec_module(module)
    return module


def test_the_dashboards_are_up_to_date(tmp_path: Path) -> None:
    dashboards = _dashboards()
    assert dashboards.main(["--check"]) == 0, "run deploy/observability/grafana/dashboards.py"
    committed = {path.name for path in dashboards.FOLDER.iterdir()}
    assert committed == set(dashboards.files())
    assert dashboards.main(["--check", "--folder", str(tmp_path)]) == 1
    assert dashboards.main(["--folder", str(tmp_path)]) == 0
    assert dashboards.main(["--check", "--folder", str(tmp_path)]) == 0


def test_dashboards_have_fixed_names_and_the_variables_that_they_use() -> None:
    for name, text in _dashboards().files().items():
        dashboard = json.loads(text)
        assert name == f"{dashboard['uid']}.json"
        assert re.fullmatch(r"resilin-[a-z-]{1,32}", dashboard["uid"])
        variables = {variable["name"] for variable in dashboard["templating"]["list"]}
        assert {"datasource", "cell"} <= variables
        used = re.findall(r"\$\{?(\w+)", json.dumps(dashboard["panels"]))
        assert set(used) - {"__rate_interval"} <= variables
        for panel in dashboard["panels"]:
            assert panel["description"], panel["title"]
            assert panel["datasource"]["uid"] == "${datasource}"
            for target in panel["targets"]:
                assert '"$cell"' in target["expr"], target["expr"]


def test_panels_do_not_overlap() -> None:
    for text in _dashboards().files().values():
        taken: dict[tuple[int, int], str] = {}
        for panel in json.loads(text)["panels"]:
            place = panel["gridPos"]
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    assert 0 <= x < 24
                    assert (x, y) not in taken, f"{panel['title']} and {taken[x, y]}"
                    taken[x, y] = panel["title"]


# --- the image -----------------------------------------------------------------------------


def test_the_image_is_small_and_runs_as_nobody_in_particular() -> None:
    stages = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert len(stages) == 2
    assert all(re.fullmatch(r"python:3\.11-slim-\w+", stage) for stage in stages)
    final = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]
    assert re.search(r"^USER 10001:10001$", final, re.MULTILINE)
    assert "HEALTHCHECK" in final
    assert "/healthz" in final
    assert f"RESILIN_HTTP_PORT={PORT}" in final
    assert "[live]" in DOCKERFILE
    assert "train" not in re.sub(r"^#.*$", "", DOCKERFILE, flags=re.MULTILINE)


def test_no_package_index_is_baked_in() -> None:
    build, _, final = DOCKERFILE.rpartition("\nFROM ")
    assert re.search(r"^ARG PIP_INDEX_URL$", build, re.MULTILINE), "without a default"
    assert "INDEX" not in final
    assert "INDEX" not in re.sub(r"ARG PIP_INDEX_URL", "", build)
    assert CONTAINERS["admission"]["build"]["args"] == {"PIP_INDEX_URL": None}


def test_what_the_image_is_built_from_is_there_and_not_ignored() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*", "nothing that is not named gets in"
    let_in = {line[1:] for line in rules if line.startswith("!")}
    copied = [
        source
        for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
        for source in sources.split()
    ]
    assert set(copied) == let_in
    for source in copied:
        assert (ROOT / source).exists(), source
    ignored = [rule for rule in rules[1:] if not rule.startswith("!")]
    assert any(fnmatch.fnmatch("libs/x/__pycache__", rule) for rule in ignored)


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_needs_nothing_that_the_image_does_not_have(service: str) -> None:
    """The extras other than `live` may be missing."""
    absent = ("torch", "numpy", "scipy", "matplotlib", "psutil", "pytest", "hypothesis")
    code = (
        "import importlib, sys\n"
        f"for name in {absent!r}: sys.modules[name] = None\n"
        f"importlib.import_module('{package_of(service)}.__main__')\n"
    )
    done = _run(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr


# --- docs/operations.md --------------------------------------------------------------------


def test_operations_name_every_alert_port_profile_and_setting_and_no_other() -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    alerts = [
        rule["alert"]
        for path in (OBSERVABILITY / "prometheus" / "rules").glob("*.yml")
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    assert sorted(re.findall(r"^\| `(Resilin\w+)` \|", text, re.MULTILINE)) == sorted(alerts)
    ports = {
        str(port).split(":")[1] for one in CONTAINERS.values() for port in one.get("ports", ())
    }
    assert set(re.findall(r"^\| (\d{4}) \|", text, re.MULTILINE)) == ports
    profiles = {profile for one in CONTAINERS.values() for profile in one.get("profiles", ())}
    assert profiles <= set(re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE))
    asked = set(re.findall(r"\$\{(\w+):-", (ROOT / "compose.yaml").read_text(encoding="utf-8")))
    settings = set(re.findall(r"^\| `([A-Z_]+)` \|", text, re.MULTILINE))
    of_local_executors = {
        f"RESILIN_{name.upper()}"
        for name in ServiceSettings.model_fields
        if name.startswith("executor_")
    }
    assert settings == asked | of_local_executors | {"PIP_INDEX_URL"}
    titles = [json.loads(dashboard)["title"] for dashboard in _dashboards().files().values()]
    assert set(titles) <= set(re.findall(r"^\| ([A-Z][\w ]+) \|", text, re.MULTILINE))
