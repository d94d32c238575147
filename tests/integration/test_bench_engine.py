"""The benchmarks of the layers and of growth run and count right. Their times are nobody's business here."""

import json
from math import nan
from pathlib import Path

import pytest
from typer.testing import CliRunner

from queen_bench.command import bench
from queen_bench.engine.results import PUSH, SMOKE, TAKE, Cost, Shape, middle
from queen_bench.growth import results as growth
from queen_bench.growth.results import Pair, System, ratios


def report_of(name: str, postgres: str, tmp_path: Path, *options: str) -> dict[str, list[dict[str, object]]]:
    file = tmp_path / "report.json"
    result = CliRunner().invoke(bench, [name, "--smoke", "--dsn", postgres, "--json", str(file), *options])
    assert result.exit_code == 0, result.output
    found: dict[str, list[dict[str, object]]] = json.loads(file.read_text())
    return found


def test_all_layers_are_measured_and_every_message_is_stored(postgres: str, tmp_path: Path) -> None:
    found = report_of("engine", postgres, tmp_path)
    shapes = [(operation, *shape) for operation in (PUSH, TAKE) for shape in SMOKE.shapes]
    assert [(each["operation"], each["batch"], each["clients"]) for each in found["shapes"]] == shapes
    for shape in found["shapes"]:
        for layer in ("calls", "engine", "http"):
            assert len(shape[layer]) == SMOKE.runs  # type: ignore[arg-type]
            assert all(cost["messages"] > 0 for cost in shape[layer])  # type: ignore[attr-defined]
        for layer in ("calls", "engine"):
            assert all(cost["python_s"] > 0 for cost in shape[layer])  # type: ignore[attr-defined]
        # Its backlog may be done before anybody has looked twice.
        assert all(cost["python_s"] is None or cost["python_s"] > 0 for cost in shape["http"])  # type: ignore[attr-defined]


def test_without_http_no_server_is_started(postgres: str, tmp_path: Path) -> None:
    found = report_of("engine", postgres, tmp_path, "--no-http")
    assert all(shape["http"] == [] and shape["engine"] for shape in found["shapes"])


def test_full_systems_are_measured_beside_the_empty_one(postgres: str, tmp_path: Path) -> None:
    found = report_of("growth", postgres, tmp_path, "--messages", "1000", "--partitions", "100", "--groups", "2")
    assert [each["name"] for each in found["systems"]] == ["1,000 messages", "100 partitions", "2 groups"]
    for system in found["systems"]:
        pairs = system["pairs"]
        assert [(pair["operation"], pair["batch"]) for pair in pairs] == [  # type: ignore[attr-defined]
            (operation, batch) for operation, batch, _ in growth.SMOKE.operations
        ]
        assert all(pair[side]["messages"] > 0 for pair in pairs for side in ("empty", "full"))  # type: ignore[attr-defined]


def test_a_layer_is_what_it_takes_beyond_the_one_below() -> None:
    below, engine = Cost(10, 1.0, 0.0001, 0.0002), Cost(10, 2.0, 0.0003, 0.0002)
    shape = Shape(PUSH, 1, 1, [below], [engine], [Cost(10, 4.0, 0.0007, 0.0004)])
    medians = {name: spread.median for name, spread in shape.layers.items()}
    assert medians == pytest.approx({"PostgreSQL": 20, "driver": 10, "engine": 20, "HTTP": 40})
    assert shape.ratio(shape.http, shape.engine).median == 0.5


def test_of_a_server_whose_cpu_nobody_could_look_at_only_the_rate_is_told() -> None:
    below = Cost(10, 1.0, 0.0001, 0.0002)
    shape = Shape(PUSH, 1, 1, [below], [below], [Cost(10, 4.0, nan, None)])
    assert set(shape.layers) == {"PostgreSQL", "driver", "engine"}
    shape.http.append(Cost(10, 4.0, 0.0003, 0.0002))
    shape.calls.append(below)
    shape.engine.append(below)
    assert shape.layers["HTTP"].median == pytest.approx(20)
    assert middle(shape.http, lambda cost: cost.cpu_us) == pytest.approx(50)


def test_growth_is_judged_by_the_middle_of_the_ratios_of_neighbours() -> None:
    def cost(rate: float) -> Cost:
        return Cost(int(rate), 1.0, 1.0, None)

    pairs = [Pair(PUSH, 1, cost(100), cost(full)) for full in (50, 90, 100)] + [Pair(TAKE, 1, cost(100), cost(70))]
    push, take = ratios([System("full", 0.0, pairs)])
    assert (push.rate.low, push.rate.median, push.rate.high, push.met) == (0.5, 0.9, 1.0, True)
    assert (take.operation, take.met) == (TAKE, False)
