"""Rules and dashboard ask for metrics that a real worker, server and relay show, and ring when they should."""

import json
import re
import signal
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from backstay.cli.main import run
from backstay.core.alarms import Alarm
from backstay.observe.metrics import Gauges, Metrics
from backstay.store.job_views import Backlog
from backstay.store.measures import ProviderSpending
from backstay.store.workers import RecentTicks
from tests.cli.conftest import folder, sqlite_shell
from tests.cli.shell import Shell, eventually
from tests.cli.test_worker import free_port
from tests.deploy.configuration import DEPLOY
from tests.house.sources import ROOT
from tests.observe.events import EVERY_KIND
from tests.servers.prometheus import promtool

__all__ = ["folder", "sqlite_shell"]  # pytest finds them by these names

RULES = DEPLOY / "prometheus" / "rules.yml"
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text(encoding="utf-8"))
RULE = {rule["alert"]: rule for rule in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"][0]["rules"]}
EXPRESSIONS = {
    **{name: rule["expr"] for name, rule in RULE.items()},
    **{f"panel {one['id']}.{t['refId']}": t["expr"] for one in DASHBOARD["panels"] for t in one["targets"]},
}


def names(expression: str) -> set[str]:
    return set(re.findall(r"\bbackstay_\w+", expression))


def labelled(expression: str) -> list[tuple[str, str]]:
    """The labels that an expression groups or matches by, each with the metric it is meant for."""
    grouped = re.findall(r"\bby \(([^)]*)\)[^{]*?(backstay_\w+)", expression)
    matched = re.findall(r"(backstay_\w+)\{(\w+)", expression)
    pairs = [(name, label.strip()) for labels, name in grouped for label in labels.split(",")]
    return pairs + matched


def samples(text: str) -> dict[str, set[str]]:
    """Sample names and the names of their labels; of what has no sample yet, the name that its type announces."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        suffix = "_total" if family.type == "counter" else ""
        found.setdefault(f"{family.name}{suffix}", set())
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def scraped(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        said: str = answer.read().decode()
        return said


@pytest.fixture
def shown(sqlite_shell: Shell) -> dict[str, set[str]]:
    """What a worker and a server that have done some work show, each on its metrics port."""
    ports = free_port(), free_port()
    sqlite_shell.submit("echo", 1, 2, 3)
    sqlite_shell.submit("picky", 3)
    worker = sqlite_shell.start("worker", "--app", "shop:backstay", "--metrics-port", ports[0])
    server = sqlite_shell.start("serve", "--port", 0, "--no-worker", "--metrics-port", ports[1])
    with worker, server:
        texts = [eventually(partial(_settled, port, worker=port == ports[0])) for port in ports]
        for running in (worker, server):
            running.send(signal.SIGTERM)
            running.wait()
    found: dict[str, set[str]] = {}
    for text in texts:
        for name, labels in samples(text).items():
            found.setdefault(name, set()).update(labels)
    return found


def _settled(port: int, worker: bool) -> str | None:
    try:
        text = scraped(port)
    except OSError:
        return None
    done = 'backstay_items_settled_total{state="failed"} 1.0' in text or not worker
    return text if done and "backstay_ticks_hour " in text else None


@pytest.mark.slow
def test_every_metric_that_is_asked_for_is_shown_by_real_processes(shown: dict[str, set[str]]) -> None:
    wanted = set().union(*map(names, EXPRESSIONS.values()))
    assert wanted - shown.keys() == set()
    assert {"handler"} <= shown["backstay_queue_depth"]


@pytest.fixture(scope="module")
def labels_of() -> dict[str, set[str]]:
    """The labels of everything that can be shown, once each kind of event has happened."""
    metrics = Metrics()
    gauges = Gauges(metrics.registry)
    for event in EVERY_KIND:
        metrics(event)
    gauges.show_queues([Backlog("ocr", 1, 1, 1, 1)], {}, 1)
    gauges.show_money([ProviderSpending("acme", 1, 1)], 0, 0)
    gauges.show_ticks(RecentTicks(1, 1, 1, 1))
    gauges.show_alarms(0, ())
    return {sample.name: set(sample.labels) for family in metrics.registry.collect() for sample in family.samples}


@pytest.mark.parametrize("where", EXPRESSIONS)
def test_every_label_is_one_of_its_metric(where: str, labels_of: dict[str, set[str]]) -> None:
    assert names(EXPRESSIONS[where])
    for name, label in labelled(EXPRESSIONS[where]):
        assert label in labels_of[name]


def test_an_alarm_of_our_own_that_a_rule_names_is_one() -> None:
    named = {name for expression in EXPRESSIONS.values() for name in re.findall(r'\balarm="(\w+)"', expression)}
    assert named
    assert named <= {alarm.value for alarm in Alarm}


def test_a_label_is_found_with_its_metric() -> None:
    assert labelled('sum(max by (a, b) (backstay_x)) / max(backstay_y{c="d"}) > 0') == [
        ("backstay_x", "a"),
        ("backstay_x", "b"),
        ("backstay_y", "c"),
    ]


def test_the_rules_are_fine_and_each_rings_when_it_should() -> None:
    assert f"{len(RULE)} rules found" in promtool("check", "rules", RULES)
    promtool("test", "rules", RULES.with_name("rules_test.yml"))
    cases = yaml.safe_load(RULES.with_name("rules_test.yml").read_text(encoding="utf-8"))["tests"]
    checks = [check for case in cases for check in case["alert_rule_test"]]
    for rings in (True, False):
        assert {check["alertname"] for check in checks if ("exp_alerts" in check) is rings} == set(RULE)


def test_prometheus_takes_its_configuration() -> None:
    promtool("check", "config", RULES.with_name("prometheus.yml"))


def test_every_panel_asks_in_a_language_that_prometheus_speaks(tmp_path: Path) -> None:
    asked = [expression.replace("$__rate_interval", "5m") for expression in EXPRESSIONS.values()]
    rules = [{"record": f"asked:{number}", "expr": expression} for number, expression in enumerate(asked)]
    file = tmp_path / "asked.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "asked", "rules": rules}]}))
    promtool("check", "rules", file)


def test_the_panels_do_not_lie_on_each_other() -> None:
    cells: list[tuple[int, int]] = []
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells += [(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])]
    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.parametrize("name", RULE)
def test_every_rule_says_what_to_do_in_commands_that_there_are(name: str) -> None:
    said: dict[str, Any] = RULE[name]["annotations"]
    assert said["summary"]
    assert said["advice"]
    for command in re.findall(r"`backstay ([^`]+)`", said["advice"]):
        assert run([*command.split(), "--help"]) == 0


def test_the_page_lists_every_alarm() -> None:
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(Backstay\w+)` \|", page, re.MULTILINE) == list(RULE)
