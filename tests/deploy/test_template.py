"""The SAM template says what the code does: its handler, its settings, its bounds, the metrics of its alarms."""

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from backstay.aws_lambda import NAMESPACE, STOP_SECONDS, figures_for_alarms
from backstay.core.limits import RANGES, Limits, bounds
from backstay.observe.metrics import Metrics
from backstay.settings import PREFIX
from tests.deploy.configuration import DEPLOY, unknown_settings

TEMPLATE = DEPLOY / "lambda" / "template.yaml"


class Loader(yaml.SafeLoader):
    """Reads CloudFormation's short functions as (name, argument)."""


def _function(loader: Any, tag: str, node: yaml.Node) -> tuple[str, Any]:
    if isinstance(node, yaml.ScalarNode):
        return tag, loader.construct_scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return tag, loader.construct_sequence(node, deep=True)
    return tag, loader.construct_mapping(node, deep=True)


Loader.add_multi_constructor("!", _function)


@pytest.fixture(scope="module")
def template() -> Any:
    return yaml.load(TEMPLATE.read_text(encoding="utf-8"), Loader)


@pytest.fixture
def function(template: Any) -> Any:
    return template["Resources"]["Tick"]["Properties"]


def default(template: Any, name: str) -> Any:
    return template["Parameters"][name]["Default"]


@pytest.mark.slow
def test_cfn_lint_has_nothing_to_say() -> None:
    program = Path(sys.executable).with_name("cfn-lint")
    ran = subprocess.run([str(program), str(TEMPLATE)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


def test_the_handler_is_there(function: Any) -> None:
    module, _, name = function["Handler"].rpartition(".")
    assert callable(getattr(importlib.import_module(module), name))


def test_its_settings_are_settings(function: Any) -> None:
    names = function["Environment"]["Variables"]
    assert unknown_settings(names) == set()
    assert f"{PREFIX}DATABASE_URL" in names


def test_it_is_triggered_and_bounded_as_the_bounds_say(template: Any, function: Any) -> None:
    limits = Limits()
    assert default(template, "ChainDepthMax") == limits.chain_depth_max
    assert default(template, "TimeoutSeconds") == limits.invocation_seconds
    assert template["Parameters"]["TimeoutSeconds"]["MinValue"] > STOP_SECONDS + RANGES["invocation_seconds"][0]
    assert float(function["Environment"]["Variables"][f"{PREFIX}TICK_INTERVAL_SECONDS"]) == 300
    (schedule,) = function["Events"].values()
    assert schedule["Properties"]["ScheduleExpression"] == "rate(5 minutes)"
    assert bounds(limits).triggers == 12
    # A retry by Lambda or by the scheduler would be an invocation that the bounds do not count.
    assert function["EventInvokeConfig"]["MaximumRetryAttempts"] == 0
    assert schedule["Properties"]["RetryPolicy"]["MaximumRetryAttempts"] == 0
    assert function["ReservedConcurrentExecutions"] == ("Ref", "ConcurrencyMax")


def test_it_may_call_itself_and_nothing_else(template: Any, function: Any) -> None:
    (policy,) = function["Policies"]
    (statement,) = policy["Statement"]
    assert statement["Action"] == "lambda:InvokeFunction"
    _, name = function["FunctionName"]
    assert all(resource[1].removesuffix(":*").endswith(f":function:{name}") for resource in statement["Resource"])


def metrics_of(alarm: Any) -> set[tuple[str, str]]:
    stats = [metric["MetricStat"]["Metric"] for metric in alarm.get("Metrics", []) if "MetricStat" in metric]
    return {(metric["Namespace"], metric["MetricName"]) for metric in stats or [alarm]}


def test_every_alarm_looks_at_a_metric_that_there_is(template: Any) -> None:
    alarms = [one["Properties"] for one in template["Resources"].values() if one["Type"] == "AWS::CloudWatch::Alarm"]
    used = set().union(*map(metrics_of, alarms))
    ours = {(NAMESPACE, name) for name in figures_for_alarms(Metrics())}
    assert used - {("AWS/Lambda", "Errors"), ("AWS/Lambda", "Invocations")} == ours


@pytest.mark.parametrize(
    ("alarm", "threshold"),
    [("ItemsTimedOutAlarm", 100), ("JobsFailedAlarm", 10), ("InvocationErrorsAlarm", 5), ("ChainsFullAlarm", 6)],
)
def test_the_alarms_have_their_thresholds(template: Any, alarm: str, threshold: int) -> None:
    assert template["Resources"][alarm]["Properties"]["Threshold"] == threshold
