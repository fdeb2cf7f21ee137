"""Every built-in rule goes through the kit; what the kit itself must see and must not see."""

from __future__ import annotations

import dataclasses
import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import Tensor

from foredraft.framework.plugins import registry
from foredraft.framework.specs import VerifierSpec
from foredraft.framework.testing.kit import (
    Subject,
    check_verifier,
    checks_of,
    run_check,
    run_checks,
    subject_of,
)
from foredraft.framework.testing.kit.process import seldom_collected
from foredraft.framework.testing.kit.report import FAILED, PASSED, SKIPPED
from foredraft.framework.testing.kit.verifiers.reads import HostRead, watched
from foredraft.verifiers.token import TokenVerifier

RULES = registry().names("verifier")
CHEAP = [
    check.name
    for check in checks_of("verifier")
    if check.name not in ("engine_law", "light_import")
]


@pytest.mark.parametrize("name", RULES)
def test_every_built_in_rule_passes_in_less_than_a_minute(name: str) -> None:
    before = time.process_time()
    report = check_verifier(name)
    assert time.process_time() - before < 60
    passed = {outcome.check.name for outcome in report.outcomes if outcome.status == PASSED}
    spec = registry().get("verifier", name)
    assert isinstance(spec, VerifierSpec)
    always = set(CHEAP) - {"joint_law_of_chains", "joint_law_of_trees", "greedy_equality"}
    assert always <= passed
    assert ("greedy_equality" in passed) == spec.lossless
    assert ("engine_law" in passed) == (spec.lossless and not spec.greedy_only)
    exact = spec.lossless and not spec.shared_noise
    assert ("joint_law_of_chains" in passed) == (exact and bool(spec.chains))
    assert ("joint_law_of_trees" in passed) == (exact and bool(spec.trees))


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", ["block", "lenient", pytest.param("traversal", marks=pytest.mark.slow)]
)
def test_no_false_alarm_with_other_seeds(name: str, seed: int) -> None:
    run_checks(subject_of("verifier", name, seed=seed), only=CHEAP).raise_failures()


@pytest.mark.parametrize("lenience", [0.0, 0.3, 1.0])
def test_values_of_the_config_are_used(lenience: float) -> None:
    run_checks(
        subject_of("verifier", "lenient", {"lenience": lenience}), only=CHEAP
    ).raise_failures()


# --- host reads --------------------------------------------------------------------------------

X = torch.tensor([1.0, 0.0, 2.0])
READS: dict[str, Callable[[Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x.sum()),
    "bool": lambda x: bool(x.any()),
    "if": lambda x: 1 if (x > 0).all() else 0,
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.numpy(),
    "cpu": lambda x: x.cpu(),
    "to cpu": lambda x: x.to("cpu"),
    "slice": lambda x: x[: (x > 0).sum()],
    "index": lambda x: x[x.argmax()],
    "mask": lambda x: x[x > 0],
    "nonzero": lambda x: x.nonzero(),
    "equal": lambda x: torch.equal(x, x),
    "allclose": lambda x: torch.allclose(x, x),
    "unique": lambda x: torch.unique(x),
    "repeat": lambda x: torch.repeat_interleave(x, x.long()),
    "tensor of tensors": lambda x: torch.tensor([x[0], x[1]]),
    "where": lambda x: torch.where(x > 0),
    "put": lambda x: x.clone().index_put_((x > 0,), x[:2]),
}
STAYS: dict[str, Callable[[Tensor], object]] = {
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "fill by mask": lambda x: x.clone().masked_fill_(x > 0, 1.0),
    "set by mask": lambda x: x.clone().__setitem__(x > 0, 1.0),
    "gather": lambda x: x[x.argsort()],
    "upload": lambda x: torch.tensor([1, 2, 3]).to(x.device),
    "repeat": lambda x: x.repeat_interleave(2),
    "size": lambda x: torch.zeros(len(x), x.shape[0]),
    "dtype": lambda x: x.to(torch.float64),
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", READS)
def test_a_host_read_is_seen(name: str, inference: bool) -> None:
    with torch.inference_mode(inference), pytest.raises(HostRead), watched():
        READS[name](X)


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", STAYS)
def test_what_stays_on_the_device_is_allowed(name: str, inference: bool) -> None:
    with torch.inference_mode(inference), watched():
        STAYS[name](X)


def test_nothing_is_watched_afterwards() -> None:
    with pytest.raises(HostRead), watched():
        X.tolist()
    assert X.tolist() == [1.0, 0.0, 2.0] and "tolist" not in vars(Tensor)
    assert bool(X.any()) and X.to("cpu") is X


@pytest.mark.parametrize("before", [(700, 10, 10), (10**6, 5, 500), (0, 10, 10)])
def test_the_collector_is_what_it_was_after_a_check(before: tuple[int, int, int]) -> None:
    """It is made to come seldom, never more often, and one that is off stays off."""
    ours = gc.get_threshold()
    gc.set_threshold(*before)
    try:
        with pytest.raises(ZeroDivisionError), seldom_collected():
            inside = gc.get_threshold()
            raise ZeroDivisionError
        assert gc.get_threshold() == before
    finally:
        gc.set_threshold(*ours)
    if before[0]:
        assert all(a >= b for a, b in zip(inside, (*before[:1], 20, 100), strict=True))
        assert inside[0] >= 50_000
    else:
        assert inside == before


# --- config and import -------------------------------------------------------------------------


def shared(config: type, name: str = "config_round_trip", plugin: str | None = None) -> str:
    """How a check of any part ends for a token-wise rule with this config: its status."""
    spec = VerifierSpec("mine", lambda config: TokenVerifier(), config, contract=1)
    check = next(check for check in checks_of("verifier") if check.name == name)
    values = config() if config is not NoDefault else None
    return run_check(check, Subject("verifier", spec, values, plugin=plugin)).status


@dataclass
class Fine:
    path: Path = Path("a/b")
    bounds: list[float] = field(default_factory=lambda: [0.1, float("inf")])
    note: str | None = "yes: no"
    names: dict[str, int] = field(default_factory=lambda: {"on": 1})
    made: int = field(default=3, init=False)


@dataclass
class NoDefault:
    size: int


@dataclass
class Grows:
    size: int = 1

    def __post_init__(self) -> None:
        self.size += 1


@dataclass
class HoldsASet:
    words: set[str] = field(default_factory=set)


@pytest.mark.parametrize(
    ("config", "status"),
    [(Fine, PASSED), (NoDefault, FAILED), (Grows, FAILED), (HoldsASet, FAILED), (dict, FAILED)],
)
def test_config_round_trip(config: type, status: str) -> None:
    assert shared(config) == status


def test_light_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "light_plugin.py").write_text("import json\n")
    (tmp_path / "heavy_plugin.py").write_text("import json\nimport torch\n")
    looks = "import importlib.util\nimportlib.util.find_spec('torch')\n"
    (tmp_path / "looking_plugin.py").write_text(looks)
    (tmp_path / "broken_plugin.py").write_text("1 / 0\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    found = {
        name: shared(Fine, "light_import", name)
        for name in ("light_plugin", "heavy_plugin", "looking_plugin", "broken_plugin", "no_plugin")
    }
    assert list(found.values()) == [PASSED, FAILED, PASSED, FAILED, SKIPPED]
    assert shared(Fine, "light_import", None) == SKIPPED


def test_a_hook_that_imports_torch_is_not_light(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The most natural mistake: the class is imported where it is named."""
    lines = [
        "from foredraft.framework import hookimpl", "@hookimpl", "def foredraft_drafters():",
        "    import torch", "    yield torch",
    ]  # fmt: skip
    (tmp_path / "hooked_plugin.py").write_text("\n".join(lines))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert shared(Fine, "light_import", "hooked_plugin") == FAILED


def test_a_heavy_import_is_named_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "heavy_plugin.py").write_text("import json\nimport torch\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    spec = VerifierSpec("mine", lambda config: TokenVerifier(), Fine, contract=1)
    check = next(check for check in checks_of("verifier") if check.name == "light_import")
    outcome = run_check(check, Subject("verifier", spec, Fine(), plugin="heavy_plugin"))
    assert "torch" in outcome.detail and "heavy_plugin.py, line 2" in outcome.detail


# --- what counts as a fault, and what does not -------------------------------------------------


class WritesItsPathOut(TokenVerifier):
    """Right, but its path is written out and its dtypes are wider than they need to be."""

    def verify(self, trial):  # type: ignore[no-untyped-def]
        right = super().verify(trial)
        path = torch.arange(trial.draft.depth).expand(len(right.accepted), -1)
        return dataclasses.replace(right, next_law=right.next_law.double(), path=path)


def test_a_rule_may_write_its_path_out() -> None:
    spec = VerifierSpec("mine", lambda config: WritesItsPathOut(), Fine, contract=1)
    run_checks(subject_of("verifier", spec), only=CHEAP).raise_failures()


def test_a_rule_that_raises_fails_with_the_smallest_input() -> None:
    class Raises(TokenVerifier):
        def verify(self, trial):  # type: ignore[no-untyped-def]
            if trial.draft.width > 1:
                raise ValueError("too wide for me")
            return super().verify(trial)

    spec = VerifierSpec("mine", lambda config: Raises(), Fine, contract=1)
    with pytest.raises(AssertionError, match="ValueError: too wide for me.*rows=1, width=3"):
        run_checks(subject_of("verifier", spec), only=["well_formed_verdicts"]).raise_failures()
