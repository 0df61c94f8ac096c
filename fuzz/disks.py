"""Full disks: an error that names the file, the old file as it was, and nothing left over."""

from __future__ import annotations

import fnmatch
import tempfile
from pathlib import Path
from typing import Any

from credibly.io.files import TEMPORARY
from fuzz.kills import Scene
from fuzz.server import Forks
from fuzz.tally import Case, Plan, Tally
from fuzz.work import QUICK, WORK, contents

NAMES = list(WORK)


def try_full(case: Case, tally: Tally, scenes: dict[str, Scene], forks: Forks) -> None:
    """Refuse one operation, or every byte beyond some size; then make room and do it again."""
    random = case.random()
    name = NAMES[case.number % len(NAMES)]
    if name not in scenes:
        scenes[name] = Scene(forks, name)
    scene = scenes[name]
    sizes = [len(content) for content in scene.after.values() if content]
    how: dict[str, Any] = {"full": 1 + int(random.integers(14))}
    if random.random() < 0.5:
        how = {"bytes": int(max(sizes) * random.random())}
    tally.counts[name] += 1
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        scene.restore(folder)
        said = scene.call(folder, **how)[0]
        found, where = contents(folder), f"{name}, {how}"
        if said.get("error") is None:
            tally.counts[
                "not struck" if "full" in how and not said.get("struck") else "unharmed"
            ] += 1
        else:
            tally.counts["refused"] += 1
            for what in _wrong(said, folder, found, scene):
                tally.find(case, what, where)
        again = scene.call(folder)[0]
        found = contents(folder)
        repeated = "exists already" in again.get("text", "") and said.get("error") is None
        if again.get("error") and not repeated:
            tally.find(case, f"with room again: {again['text']}", where)
        elif found != scene.after:
            different = sorted(
                n for n in {*found, *scene.after} if found.get(n) != scene.after.get(n)
            )
            tally.find(case, f"with room again: other files or bytes: {different}", where)


def _wrong(
    said: dict[str, Any], folder: Path, found: dict[str, bytes | None], scene: Scene
) -> list[str]:
    """What is wrong with the way that the work ended."""
    wrong, out = [], WORK[scene.name].out
    if "ended" in said:
        return [f"ended with {said['ended']}"]
    if said["error"] != "OutputError":
        wrong.append(f"not an OutputError: {said['text'].split(' | ')[0]}")
    elif str(folder) not in said["text"]:
        wrong.append(f"the file is not named: {said['text']}")
    if found.get(out) != scene.before.get(out):
        wrong.append(f"{out} is not as it was")
    left = [n for n in found if fnmatch.fnmatch(Path(n).name, TEMPORARY) or Path(n).name == "lock"]
    if left:
        wrong.append(f"left over: {[n.split('.tmp')[0] for n in left]}")
    return wrong


def run(plan: Plan, forks: Forks) -> Tally:
    """Fill disks until the time is up."""
    tally, scenes = Tally("disks"), dict[str, Scene]()
    for case in plan.cases("disks"):
        if not plan.quick or NAMES[case.number % len(NAMES)] in QUICK:
            try_full(case, tally, scenes, forks)
    return tally
