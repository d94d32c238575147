"""What is in deploy/ fits the server: settings, routes, folders and times that it names exist and agree.

Its metrics: tests/integration/test_metrics.py and test_simple_mq_metrics.py. Schemas and style: `tox -e lint`.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.probes import PROBES
from queen.config import AREAS, Settings, from_environment
from queen.config.variable import settings_of
from queen.core.errors import SettingError
from queen.http.access import Access
from queen.server import listening
from tests.support.processes import ROOT
from tests.support.route_table import route_table

DEPLOY = ROOT / "deploy"
SPOOL = "/var/lib/queen/spool"
SETTINGS = {name: setting for area in AREAS.values() for setting in settings_of(area) for name in setting.names}
SECRET = {name for name, setting in SETTINGS.items() if setting.secret}
#: For what a person has to fill in.
FILLED = {"JWT_SECRET": "s" * 32, "QUEEN_ENCRYPTION_KEY": "ab" * 32}


def manifests() -> dict[str, dict[str, Any]]:
    """What Kubernetes is given, by kind and name."""
    paths = [path for path in (DEPLOY / "kubernetes").glob("*.yaml") if path.name != "kustomization.yaml"]
    documents = [document for path in paths for document in yaml.safe_load_all(path.read_text())]
    return {f"{document['kind']}/{document['metadata']['name']}": document for document in documents}


def compose() -> dict[str, Any]:
    """The services of the compose file."""
    services: dict[str, Any] = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())["services"]
    return services


def of_the_image() -> dict[str, str]:
    """The environment that the Dockerfile sets."""
    text = (DEPLOY / "compose" / "Dockerfile").read_text().replace("\\\n", " ")
    pairs = [pair for line in re.findall(r"^ENV (.+)$", text, re.MULTILINE) for pair in line.split()]
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs) if name != "PATH"}


def of_systemd() -> dict[str, str]:
    """The environment file, with what is only proposed in it."""
    text = (DEPLOY / "systemd" / "queen.env").read_text()
    return dict(re.findall(r"^#?([A-Z_]+)=(.*)$", text, re.MULTILINE))


def of_kubernetes(secret: str) -> dict[str, str]:
    """The environment of a container that gets one of the secrets."""
    found = manifests()
    return found["ConfigMap/queen"]["data"] | found[f"Secret/{secret}"]["stringData"]


ENVIRONMENTS: Mapping[str, Mapping[str, str]] = {
    "Dockerfile": of_the_image(),
    "systemd/queen.env": of_systemd(),
    "compose, init": compose()["init"]["environment"],
    "compose, queen": compose()["queen"]["environment"],
    "Kubernetes, init": of_kubernetes("queen-owner"),
    "Kubernetes, queen": of_kubernetes("queen-server"),
}


@pytest.mark.parametrize("place", ENVIRONMENTS)
def test_every_variable_is_a_setting_that_takes_its_value(place: str) -> None:
    environment = ENVIRONMENTS[place]
    assert environment
    assert set(environment) <= set(SETTINGS)
    # ${NAME:-default} is what compose puts in.
    values = {name: re.sub(r"\$\{\w+:-(.*)\}", r"\1", value) for name, value in environment.items()}
    from_environment({name: FILLED.get(name, value) for name, value in values.items()})


@pytest.mark.parametrize("place", ["compose, queen", "Kubernetes, queen", "systemd/queen.env"])
def test_every_server_may_listen_where_it_is_told_to(place: str) -> None:
    environment = {} if place.startswith("systemd") else of_the_image()
    defaults = {name: re.sub(r"\$\{\w+:-(.*)\}", r"\1", value) for name, value in ENVIRONMENTS[place].items()}
    chosen = environment | defaults
    settings = from_environment({name: FILLED.get(name, value) for name, value in chosen.items()})
    listening.protect(settings, [settings.server.host])


def test_the_image_alone_does_not_open_itself_to_all() -> None:
    settings = from_environment(of_the_image())
    with pytest.raises(SettingError, match="Other machines can reach 0\\.0\\.0\\.0"):
        listening.protect(settings, [settings.server.host])


def test_secrets_are_nowhere_but_where_secrets_are() -> None:
    assert not SECRET & set(manifests()["ConfigMap/queen"]["data"])
    assert not SECRET & set(of_the_image())
    for name in ("init", "queen"):
        for variable, value in compose()[name]["environment"].items():
            assert variable not in SECRET or re.fullmatch(r"\$\{\w+:[-?].*\}", value), f"{name}: {variable}"
    assert "secrets.example.yaml" not in kustomization()["resources"]


def kustomization() -> dict[str, Any]:
    text: dict[str, Any] = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text())
    return text


def test_every_manifest_is_applied_and_checked() -> None:
    there = {path.name for path in (DEPLOY / "kubernetes").glob("*.yaml")} - {"kustomization.yaml"}
    assert there == {*kustomization()["resources"], "secrets.example.yaml"}
    checked = (ROOT / "tox.ini").read_text()
    assert not [name for name in there if f"deploy/kubernetes/{name}" not in checked]


# ---------------------------------------------------------------- routes


def container() -> dict[str, Any]:
    found: dict[str, Any] = pod()["containers"][0]
    return found


def pod() -> dict[str, Any]:
    found: dict[str, Any] = manifests()["StatefulSet/queen"]["spec"]["template"]["spec"]
    return found


def public() -> set[str]:
    return {route.path for route in route_table() if route.access.get("GET") is Access.PUBLIC}


def scrape_jobs() -> dict[str, dict[str, Any]]:
    """What Prometheus scrapes, by the name of the job."""
    configuration = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    return {job["job_name"]: job for job in configuration["scrape_configs"]}


def test_health_checks_and_metrics_are_public() -> None:
    probes = {name: container()[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert probes == {"startup": "/health/live", "liveness": "/health/live", "readiness": "/health/ready"}
    (image,) = re.findall(r"PORT\\\"\]\}(/[a-z/]+)", (DEPLOY / "compose" / "Dockerfile").read_text())
    annotations = manifests()["StatefulSet/queen"]["spec"]["template"]["metadata"]["annotations"]
    job = scrape_jobs()["queen"]
    scraped = {annotations["prometheus.io/path"], job["metrics_path"]}
    assert scraped == {"/metrics/prometheus"}
    assert {*probes.values(), image, *scraped} <= public()


def test_ports_are_the_one_that_the_server_listens_on() -> None:
    port = of_the_image()["PORT"]
    assert int(port) == Settings().server.port
    assert f"EXPOSE {port}\n" in (DEPLOY / "compose" / "Dockerfile").read_text()
    assert compose()["queen"]["ports"] == [f"127.0.0.1:${{QUEEN_PORT:-{port}}}:{port}"]
    assert container()["ports"] == [{"name": "http", "containerPort": int(port)}]
    for name in ("Service/queen", "Service/queen-pods"):
        assert manifests()[name]["spec"]["ports"] == [{"name": "http", "port": int(port), "targetPort": "http"}]
    job = scrape_jobs()["queen"]
    assert job["static_configs"] == [{"targets": [f"queen:{port}"]}]


def test_alerts_watch_the_job_that_is_scraped() -> None:
    job = scrape_jobs()["queen"]
    rules = (DEPLOY / "prometheus" / "queen.rules.yaml").read_text()
    assert set(re.findall(r'job="(\w+)"', rules)) == {job["job_name"]}


# ---------------------------------------------------------------- folders and times


def test_the_spool_is_on_a_persistent_disk() -> None:
    assert of_the_image()["FILE_BUFFER_DIR"] == of_systemd()["FILE_BUFFER_DIR"] == SPOOL
    assert {f"/var/lib/{name}" for name in unit("StateDirectory").split()} == {"/var/lib/queen", SPOOL}
    assert f"spool:{SPOOL}" in compose()["queen"]["volumes"]
    assert {"name": "spool", "mountPath": SPOOL} in container()["volumeMounts"]
    stateful_set = manifests()["StatefulSet/queen"]["spec"]
    (claim,) = stateful_set["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "spool"
    gibibytes = int(claim["spec"]["resources"]["requests"]["storage"].removesuffix("Gi"))
    assert gibibytes << 30 > int(of_kubernetes("queen-server")["FILE_BUFFER_MAX_BYTES"])
    assert set(stateful_set["persistentVolumeClaimRetentionPolicy"].values()) == {"Retain"}


def unit(name: str) -> str:
    """A setting of the systemd unit that stands there once."""
    (value,) = re.findall(rf"^{name}=(.*)$", (DEPLOY / "systemd" / "queen.service").read_text(), re.MULTILINE)
    return str(value)


def test_a_stop_leaves_the_requests_their_time() -> None:
    graceful = Settings().server.graceful_timeout_s
    assert int(unit("TimeoutStopSec")) > graceful
    assert int(compose()["queen"]["stop_grace_period"].removesuffix("s")) > graceful
    environment = of_kubernetes("queen-server")
    before_stop = int(container()["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod()["terminationGracePeriodSeconds"] > before_stop + int(environment["GRACEFUL_TIMEOUT"])


def test_selectors_meet_the_pods() -> None:
    found = manifests()
    stateful_set = found["StatefulSet/queen"]["spec"]
    labels = stateful_set["template"]["metadata"]["labels"]
    assert stateful_set["selector"]["matchLabels"] == labels
    assert found["PodDisruptionBudget/queen"]["spec"]["selector"]["matchLabels"] == labels
    assert found["NetworkPolicy/queen"]["spec"]["podSelector"]["matchLabels"] == labels
    for name in ("queen", stateful_set["serviceName"]):
        assert found[f"Service/{name}"]["spec"]["selector"] == labels


def containers() -> Iterator[tuple[str, dict[str, Any]]]:
    for each in (*pod()["initContainers"], *pod()["containers"]):
        yield each["name"], each


def test_pods_may_do_what_the_restricted_standard_allows() -> None:
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert pod()["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for name, each in containers():
        context = each["securityContext"]
        assert context["readOnlyRootFilesystem"] is True, name
        assert context["allowPrivilegeEscalation"] is False, name
        assert context["capabilities"] == {"drop": ["ALL"]}, name
        assert each["resources"]["limits"]["memory"], name
    user = str(pod()["securityContext"]["runAsUser"])
    assert f"USER {user}:{user}\n" in (DEPLOY / "compose" / "Dockerfile").read_text()


# ---------------------------------------------------------------- the image, compose, systemd


def test_the_image_is_built_from_all_that_the_wheel_is_made_of() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]}
    for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        # A link needs its target, and queen/sql is another link.
        needed |= {package, str((ROOT / package).resolve().relative_to(ROOT))}
    needed.add(str((ROOT / "queen" / "sql").resolve().relative_to(ROOT)))
    ignored = (DEPLOY / "compose" / "Dockerfile.dockerignore").read_text().splitlines()
    assert {line.removeprefix("!") for line in ignored if line.startswith("!")} == needed


def test_compose_asks_for_every_password_that_it_needs() -> None:
    text = (DEPLOY / "compose" / "compose.yaml").read_text()
    asked = set(re.findall(r"\$\{(\w+):\?", text))
    example = dict(re.findall(r"^(\w+)=(.*)$", (DEPLOY / "compose" / ".env.example").read_text(), re.MULTILINE))
    assert asked == set(example)
    offered = re.findall(r"^#(\w+)=", (DEPLOY / "compose" / ".env.example").read_text(), re.MULTILINE)
    assert set(offered) == set(re.findall(r"\$\{(\w+):-", text))
    script = (DEPLOY / "compose" / "passwords.sh").read_text()
    roles = dict(re.findall(r"\\getenv (\w+) (\w+)", script))
    assert set(roles.values()) <= set(compose()["db"]["environment"])
    assert set(re.findall(r"ALTER ROLE queen_(\w+) PASSWORD", script)) == set(roles)


def test_every_file_that_compose_mounts_is_there() -> None:
    mounted = [volume.split(":")[0] for each in compose().values() for volume in each.get("volumes", ())]
    files = [DEPLOY / "compose" / path for path in mounted if path.startswith(".")]
    assert len(files) == 6
    assert all(path.exists() for path in files)
    assert os.access(DEPLOY / "compose" / "passwords.sh", os.X_OK)


def analyze(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """systemd-analyze on the unit, with the gunicorn of these tests."""
    installed = Path(sys.executable).with_name("gunicorn")
    text = (DEPLOY / "systemd" / "queen.service").read_text().replace("/opt/queen/bin/gunicorn", str(installed))
    path = folder / "queen.service"
    path.write_text(text)
    return subprocess.run(
        ["systemd-analyze", *arguments, path], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze, which only checks the file")
def test_systemd_takes_the_unit_and_finds_it_confined(tmp_path: Path) -> None:
    verified = analyze(tmp_path, "verify", "--man=no")
    assert verified.returncode == 0, verified.stderr
    # Lines of other units of the machine may be there too.
    assert "queen.service" not in verified.stderr
    confined = analyze(tmp_path, "security", "--no-pager", "--offline=true", "--threshold=20")
    assert confined.returncode == 0, confined.stdout + confined.stderr


# ---------------------------------------------------------------- memory, alerts, staging, workflows


def test_the_server_of_compose_has_a_memory_limit_and_a_fixed_number_of_connections() -> None:
    server = compose()["queen"]
    default = re.fullmatch(r"\$\{QUEEN_MEMORY:-(\d+)g\}", server["mem_limit"])
    assert default is not None
    settings = from_environment(
        {name: re.sub(r"\$\{\w+:-(.*)\}", r"\1", value) for name, value in server["environment"].items()}
    )
    # docs/deployment.md: 512 MiB per worker.
    assert int(default[1]) << 30 >= settings.server.workers * 512 << 20
    assert settings.pool_sizes.total <= settings.database.connections < 100


def test_alerts_reach_a_receiver() -> None:
    rules = (yaml.safe_load(path.read_text()) for path in (DEPLOY / "prometheus").glob("*.rules.yaml"))
    severities = {rule["labels"]["severity"] for each in rules for group in each["groups"] for rule in group["rules"]}
    manager = yaml.safe_load((DEPLOY / "alertmanager" / "alertmanager.yml").read_text())
    told = {receiver["name"] for receiver in manager["receivers"] if len(receiver) > 1}
    silent = {
        match for route in manager["route"]["routes"] if route["receiver"] not in told for match in route["matchers"]
    }
    assert manager["route"]["receiver"] in told
    assert silent == {'severity = "info"'}
    assert {"critical", "warning"} <= severities
    prometheus = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    (managers,) = prometheus["alerting"]["alertmanagers"]
    ((port,),) = [re.findall(r":(\d+)$", each) for each in compose()["alertmanager"]["ports"]]
    assert managers["static_configs"] == [{"targets": [f"alertmanager:{port}"]}]


def test_the_receivers_address_is_where_alertmanager_reads_it() -> None:
    manager = (DEPLOY / "alertmanager" / "alertmanager.yml").read_text()
    (path,) = re.findall(r"url_file: (\S+)", manager)
    (command,) = compose()["alertmanager"]["command"]
    assert f'"$$ALERT_WEBHOOK_URL" > {path}\n' in command


@pytest.mark.skipif(not shutil.which("kubectl"), reason="needs kubectl, which only puts the files together")
def test_staging_is_apart_from_production() -> None:
    made = {
        folder: list(
            yaml.safe_load_all(
                subprocess.run(
                    ["kubectl", "kustomize", DEPLOY / folder], capture_output=True, text=True, check=True, timeout=60
                ).stdout
            )
        )
        for folder in ("kubernetes", "kubernetes-staging")
    }
    names = [{f"{each['kind']}/{each['metadata']['name']}" for each in documents} for documents in made.values()]
    assert names[0] ^ names[1] == {"Namespace/queen", "Namespace/queen-staging"}
    for folder, namespace in (("kubernetes", "queen"), ("kubernetes-staging", "queen-staging")):
        assert {each["metadata"].get("namespace", namespace) for each in made[folder]} == {namespace}
    hosts = {
        each["data"]["PG_HOST"] for documents in made.values() for each in documents if each["kind"] == "ConfigMap"
    }
    assert len(hosts) == 2


WORKFLOWS = ROOT / ".github" / "workflows"


def workflow(name: str) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load((WORKFLOWS / f"{name}.yaml").read_text())
    return found


def steps(name: str) -> list[dict[str, Any]]:
    return [step for job in workflow(name)["jobs"].values() for step in job.get("steps", ())]


def test_pull_requests_and_main_run_the_command_of_the_readme() -> None:
    (command,) = re.findall(r"^python3 -m venv .venv && .*tox.*$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert command in [step.get("run") for step in steps("checks")]
    # YAML reads `on` as true.
    assert workflow("checks")[True] == {"pull_request": None, "push": {"branches": ["main"]}}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tested = workflow("checks")["jobs"]["checks"]["strategy"]["matrix"]["python"]
    assert {f"Programming Language :: Python :: {version}" for version in tested} <= set(project["classifiers"])


def test_each_night_all_nightly_environments_are_run() -> None:
    tox = (ROOT / "tox.ini").read_text()
    (labelled,) = re.findall(r"^    nightly = (.*)$", tox, re.MULTILINE)
    jobs = workflow("nightly")["jobs"]
    run = {*jobs["nightly"]["strategy"]["matrix"]["environment"], *jobs.keys() - {"nightly"}}
    assert set(labelled.split(", ")) <= run


def test_the_image_is_built_for_both_architectures_and_its_base_is_an_argument() -> None:
    (built,) = [step["with"] for step in steps("image") if step.get("uses", "").startswith("docker/build-push-action")]
    assert built["platforms"] == "linux/amd64,linux/arm64"
    assert (ROOT / built["file"]).is_file()
    dockerfile = (DEPLOY / "compose" / "Dockerfile").read_text()
    assert re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE) == ["$BASE", "$BASE"]
    assert re.search(r"^ARG BASE=python:3\.\d+-slim-\w+$", dockerfile, re.MULTILINE)


def test_workflows_have_no_stored_credentials() -> None:
    for path in WORKFLOWS.glob("*.yaml"):
        text = path.read_text()
        assert "secrets." not in text, path
        assert yaml.safe_load(text)["permissions"] == {"contents": "read"}, path


ALERTS = DEPLOY / "prometheus" / "simple-mq.rules.yaml"
TESTS_OF_ALERTS = ROOT / "tests" / "data" / "simple-mq.alerts.yaml"


def test_every_alert_of_simple_mq_is_tested_silent_and_firing() -> None:
    rules = [rule["alert"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    tested = [each for test in yaml.safe_load(TESTS_OF_ALERTS.read_text())["tests"] for each in test["alert_rule_test"]]
    fires = {each["alertname"] for each in tested if each.get("exp_alerts")}
    silent = {each["alertname"] for each in tested if not each.get("exp_alerts")}
    assert fires == silent == set(rules)


@pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool: apt-get install prometheus")
def test_alerts_fire_when_they_should_and_prometheus_takes_its_files() -> None:
    prometheus = DEPLOY / "prometheus"
    for arguments in (
        ("test", "rules", TESTS_OF_ALERTS),
        ("test", "rules", TESTS_OF_ALERTS.with_name("queen.alerts.yaml")),
        ("check", "config", prometheus / "prometheus.yml"),
        ("check", "rules", *prometheus.glob("*.rules.yaml")),
    ):
        done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr


def test_somebody_runs_the_probes_on_which_alerts_rest() -> None:
    asked = set(re.findall(r'probe_success\{job="(\w+)"\}', ALERTS.read_text()))
    jobs = scrape_jobs()
    assert asked
    assert {jobs[name]["metrics_path"] for name in asked} == {f"/probe/{probe}" for probe in PROBES}
    service, port = jobs["simple_mq_dlq"]["static_configs"][0]["targets"][0].split(":")
    dockerfile = (ROOT / compose()[service]["build"]["dockerfile"]).read_text()
    assert f"EXPOSE {port}\n" in dockerfile
