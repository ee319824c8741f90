"""The exact answer for a small instance, by OR-Tools' CP-SAT: can the gang start, and in how few domains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail.model.gang import TopologyRule
from dovetail.model.pod import Pod
from tests.engine.gangs.instances import Instance, gpus_of, path

SECONDS = 30.0  # of one solver call; small instances take milliseconds


class Exact:
    """Numbers of pods by kind (role and request) and node as integer variables."""

    def __init__(self, instance: Instance, whole: bool) -> None:
        from ortools.sat.python import cp_model

        self._cp, self.instance, self.model = cp_model, instance, cp_model.CpModel()
        self.kinds: dict[str, list[Pod]] = {}
        for one in instance.group.pods:
            self.kinds.setdefault(one.role, []).append(one)
        self.x: dict[tuple[str, str], Any] = {
            (kind, node.name): self.model.new_int_var(0, len(pods), f"{kind}@{node.name}")
            for kind, pods in self.kinds.items()
            for node in instance.nodes
        }
        self._fit(whole)
        self._rule(instance.group.topology, list(self.kinds))
        for role in instance.group.roles:
            self._rule(role.topology, [role.name])

    def _fit(self, whole: bool) -> None:
        group, model = self.instance.group, self.model
        for node in self.instance.nodes:
            free = len(node.devices) - self.instance.used[node.name]
            here = [(self.x[kind, node.name], pods[0]) for kind, pods in self.kinds.items()]
            model.add(sum(x * gpus_of(one) for x, one in here) <= free)
            model.add(sum(x * one.resources.get("cpu", 0) for x, one in here) <= node.allocatable["cpu"])
        minimum = {role.name: role.minimum for role in group.roles}
        for kind, pods in self.kinds.items():
            placed = self._all([kind])
            model.add(placed <= len(pods))
            model.add(placed >= (len(pods) if whole else minimum.get(kind, 0)))
        model.add(self._all(list(self.kinds)) >= group.minimum)

    def _all(self, kinds: Sequence[str]) -> Any:
        return sum(self.x[kind, node.name] for kind in kinds for node in self.instance.nodes)

    def used(self, level: str, kinds: Sequence[str]) -> dict[tuple[str, ...], tuple[Any, Any]]:
        """By domain: whether pods of these kinds are in it, and how many."""
        domains: dict[tuple[str, ...], list[str]] = {}
        for node in self.instance.nodes:
            domains.setdefault(path(node, level), []).append(node.name)
        found = {}
        for name, nodes in domains.items():
            count = sum(self.x[kind, node] for kind in kinds for node in nodes)
            flag = self.model.new_bool_var(f"used {name} {kinds}")
            self.model.add(count >= 1).only_enforce_if(flag)
            self.model.add(count == 0).only_enforce_if(flag.negated())
            found[name] = (flag, count)
        return found

    def _rule(self, rule: TopologyRule, kinds: Sequence[str]) -> None:
        if rule.required:
            self.model.add(sum(flag for flag, _ in self.used(rule.required, kinds).values()) <= 1)
        for spread in rule.spreads:
            domains = self.used(spread.level, kinds)
            if spread.most_each:
                for _, count in domains.values():
                    self.model.add(count <= spread.most_each)
            self.model.add(sum(flag for flag, _ in domains.values()) >= spread.least_domains)

    def solve(self, fewest: str = "") -> int | None:
        """None = impossible; else the number of domains of this level used at least."""
        if fewest:
            self.model.minimize(sum(flag for flag, _ in self.used(fewest, list(self.kinds)).values()))
        solver = self._cp.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_time_in_seconds = SECONDS
        status = solver.solve(self.model)
        if status == self._cp.INFEASIBLE:
            return None
        assert status == self._cp.OPTIMAL, solver.status_name(status)
        return round(solver.objective_value) if fewest else 0
