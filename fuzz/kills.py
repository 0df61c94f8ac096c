"""Kills at any operation on a file: started again, the work ends as if nothing had happened."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from fuzz.server import Forks
from fuzz.tally import Case, Plan, Tally
from fuzz.work import WORK, contents

NAMES = [name for name, work in WORK.items() if work.resumes]


class Scene:
    """The work without any disturbance, to compare with; and how many operations it takes."""

    def __init__(self, forks: Forks, name: str) -> None:
        self.name, self.forks = name, forks
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            self.call(folder, prepare=True, idle=True)
            self.before = contents(folder)
            said = self.call(folder, kill=10**9)
            assert said[0]["error"] is None, said  # noqa: S101
            self.operations = len(said[0]["log"])
            self.after = contents(folder)

    def restore(self, folder: Path) -> None:
        """Put what is there before the work into a new folder."""
        for name, content in self.before.items():
            if content is None:
                (folder / name).mkdir()
            else:
                (folder / name).write_bytes(content)

    def call(self, folder: Path, **how: Any) -> list[dict[str, Any]]:
        """Do the work in a fork."""
        return list(
            self.forks.call("fuzz.work:do", {"folder": str(folder), "work": self.name, **how})
        )


def try_kill(case: Case, tally: Tally, scenes: dict[str, Scene], forks: Forks) -> None:
    """Kill once or twice, then let it end."""
    random = case.random()
    name = NAMES[case.number % len(NAMES)]
    if name not in scenes:
        scenes[name] = Scene(forks, name)
    scene = scenes[name]
    turn = case.number // len(NAMES)
    first = (
        1 + turn % scene.operations
        if case.seed == 0
        else 1 + int(random.integers(scene.operations))
    )
    places = [first]
    if turn >= scene.operations or random.random() < 0.2:  # every place once, then pairs of them
        places.append(1 + int(random.integers(scene.operations)))
    tally.counts[name] += 1
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        scene.restore(folder)
        for at in places:
            scene.call(folder, kill=at)
            tally.counts["kills"] += 1
            out = contents(folder).get(WORK[name].out)
            whole = (None, scene.before.get(WORK[name].out), scene.after[WORK[name].out])
            if out not in whole:
                tally.find(case, f"{WORK[name].out} is neither old nor new after a kill", name)
        said = scene.call(folder)[0]
        for what in _wrong(scene, said, contents(folder)):
            tally.find(case, what, f"{name}, kills at {places}")


def _wrong(scene: Scene, said: dict[str, Any], found: dict[str, bytes | None]) -> list[str]:
    """What is wrong after the work was started again."""
    out = WORK[scene.name].out
    if "error" not in said:
        return [f"started again, it ended with {said['ended']}"]
    done = found.get(out) == scene.after[out] and "exists already" in said["text"]
    if said["error"] is not None and not done:
        return [f"started again: {said['text']}"]
    wrong = []
    if different := sorted(n for n in scene.after if found.get(n, b"-") != scene.after[n]):
        wrong.append(f"other bytes than without a kill: {different}")
    if left := sorted(set(found) - set(scene.after)):
        wrong.append(f"left over: {[n.split('.tmp')[0] for n in left]}")
    return wrong


def run(plan: Plan, forks: Forks) -> Tally:
    """Kill at every operation in turn, until the time is up."""
    tally, scenes = Tally("kills"), dict[str, Scene]()
    for case in plan.cases("kills"):
        if not plan.quick or case.number % len(NAMES) == 0:
            try_kill(case, tally, scenes, forks)
    for name, scene in scenes.items():
        tally.counts[f"operations of {name}"] = scene.operations
    return tally
