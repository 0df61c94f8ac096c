"""`Judge`: one object that says of every prediction whether to trust it, why, and at what cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from credibly._validation import labels as check_labels
from credibly._validation import require
from credibly.decide import judge_files
from credibly.decide.alarm import ProfileUse
from credibly.decide.examine import Examiner, classes_of
from credibly.decide.judge_facts import Asked, Facts
from credibly.decide.judgement import Judgement
from credibly.decide.knowledge import Knowledge
from credibly.decide.learn import (
    Learned,
    calibrate,
    learn,
    make_examiner,
    shares_right,
    thresholds_of,
)
from credibly.decide.ordinary import Ordinary, read_ordinary, warn_of_left_out
from credibly.decide.ordinary_checks import warn_of_guesses
from credibly.decide.shown import judge_html
from credibly.io.fingerprints import quick_digest
from credibly.io.streams import is_batch, length_of
from credibly.model.checks import check_model
from credibly.model.derivatives import undisturbed
from credibly.model.memory import MOST_JUDGED, ChunkSize, in_chunks
from credibly.model.threads import fitting_threads
from credibly.model.variable import Variable
from credibly.model.views import View, check_views
from credibly.profile.arguments import ticking
from credibly.types import Labels, Progress
from credibly.version import __version__


@dataclass(frozen=True, eq=False, repr=False)
class Judge(Knowledge):
    """Says of every prediction of a classifier whether to trust it; fitted on ordinary inputs.

    Every input is run once. What that tells (confidence, energy, how near the ordinary inputs are
    and whether they agree on the class, whether values lie outside their range) gives the verdict;
    profiles of nine passes can be asked for, too. The docstring of `Judgement` says what is
    promised.

    `Judge.fit` makes one, `Judge.load` reads one, `judge(x)` judges; `judge.facts` says what it was
    fitted with.

    Example:
        >>> import torch, credibly as cr
        >>> _ = torch.manual_seed(0)
        >>> net, known = torch.nn.Linear(4, 3), torch.randn(200, 4)
        >>> judge = cr.Judge.fit(net, known)
        >>> found = judge(torch.tensor([[0.1, 0.2, -0.1, 0.0], [90.0, -90.0, 90.0, 90.0]]))
        >>> print(found.verdicts[1], found.classes[1])
        outlier abstained
    """

    @staticmethod
    def fit(
        net: Any,
        ordinary: Any,
        labels: Labels | str | Path | Literal[True] | None = None,
        *,
        false_alarms: float = 0.01,
        error_rate: float | None = None,
        confidence: float = 0.95,
        by_class: bool = False,
        doubted: float = 0.1,
        profile: ProfileUse = "never",
        gamma: float | Literal["auto"] = "auto",
        features: str | None = "auto",
        views: Sequence[View] = (),
        fast: bool = True,
        chunk_size: ChunkSize = "auto",
        progress: Progress = False,
    ) -> Judge:
        """Learn what is ordinary from a few hundred inputs that the model was not trained on.

        Args:
            net: a module in evaluation mode, a `Classifier`, a fitted model of scikit-learn, skorch
                or transformers, or any function from inputs to logits.
            ordinary: inputs like those to come, as for `credibility`; also a `DataLoader`, a
                dataset, an iterator of batches, or a file. At most 5000 are used. Broken ones are
                left out and named. False alarms of 0.01 need at least 99; 300 are good.
            labels: their classes (n,); True for those that a loader yields beside the inputs, or
                the name of a column; or the `.marks.csv` that `credibly explore` kept of these
                inputs, of which those marked right or wrong are then used. They calibrate
                `p_wrong`, tell how often each verdict is right, choose how trust is computed, and
                allow an error rate to be promised.
            false_alarms: the chance that an input like the ordinary ones is called an outlier or
                tampered with, at most.
            error_rate: with labels: of what is accepted, at most this share is wrong.
            confidence: with which the error rate is kept, over the draw of the labelled inputs.
            by_class: whether the error rate is kept for each predicted class by itself.
            doubted: without an error rate: the share of the ordinary inputs, those of the lowest
                trust, that are called doubtful.
            profile: 'never' decides by one forward, which was best on nearly all networks where it
                was measured (docs/explanation/evidence.md). 'doubtful' also looks at a profile
                where one forward does not settle an input, 'always' at that of every input. `plot`
                and `profile_of` solve the profile of an input when they are asked for it.
            gamma: the cost of moving an input; see `credibility`.
            features: name of the layer whose inputs are compared with those of ordinary inputs; by
                default the last linear one. None compares only the inputs themselves.
            views: functions from a batch to other views of it that keep the class, such as flips
                and shifts of photographs. Trust is then that of their mean, for a forward each.
            fast: on a GPU, judge by a faster copy of the network that gives the same logits; see
                `accelerate`.
            chunk_size: inputs handled at a time; it bounds memory. 'auto': at most 256 on a CPU and
                4096 on a GPU, and fewer where more would not fit.
            progress: show a bar, or a function called with the share done.
        """
        asked = Asked(
            false_alarms=false_alarms, error_rate=error_rate, confidence=confidence,
            by_class=by_class, doubted=doubted, profile=profile, gamma=gamma, features=features,
            chunk_size=chunk_size, views=check_views(views),
        )  # fmt: skip
        size = MOST_JUDGED["cpu"] if asked.chunk_size == "auto" else asked.chunk_size
        given = read_ordinary(net, ordinary, labels, size)
        asked.check_counts(len(given), None if given.labels is None else len(given))
        with undisturbed(given.variables[0]) as first:
            check_model(first)
        given = given.accelerated() if fast else given
        with undisturbed(given.variables[0]) as first:
            examiner = make_examiner(given, asked)
            threads = fitting_threads(first, passes=examiner.passes)
            with ticking(progress, "looking at ordinary inputs") as tick, threads:
                learned = learn(examiner, given, asked, tick)
            return _assemble(examiner, given, learned, asked)

    def __call__(
        self, x: Any, *, keep: bool | None = None, progress: Progress = False
    ) -> Judgement:
        """Judge inputs.

        Args:
            x: a batch as `credibility` takes it, a `DataLoader`, a dataset, an iterator of batches,
                or a file. Rows with NaN or infinity are 'unusable' and do not affect others.
            keep: whether to keep profiles, with x0 and x+, for `plot` and `profile_of`; by default
                for a single batch, not for a stream.
            progress: a bar, or a function called with the share done, where the length is known.
        """
        self.examiner.require_same_weights(self.facts.model)
        total, done, kept = length_of(x), 0, is_batch(x) if keep is None else keep
        parts = []
        with ticking(progress, "judging") as tick:
            for variable, _ in self.examiner.variables(x):
                parts += self._judged(variable, keep=kept)
                done += len(variable)
                if tick is not None and total:
                    tick(min(1.0, done / total))
        return Judgement.concatenate(parts)

    def _judged(self, variable: Variable, *, keep: bool) -> list[Judgement]:
        """A chunk, in several parts where memory runs out."""
        work = lambda rows: self.judge(variable.select(rows), keep=keep)  # noqa: E731
        size = len(variable)
        with undisturbed(variable), fitting_threads(variable, passes=self.facts.cost):
            return list(in_chunks(size, size, work))

    def summary(self) -> str:
        """What it was fitted with, and what it costs."""
        facts = self.facts
        promise = (
            f"false alarms {facts.false_alarms:.2%} (proved: at most {facts.proved:.2%} on average)"
        )
        if facts.error_rate is not None:
            promise += (
                f"; at most {facts.error_rate:.2%} of what is accepted is wrong, with confidence "
                f"{facts.confidence:.0%}"
            )
            promise += ", for each class" if len(set(self.thresholds.tolist())) > 1 else ""
        compared = (
            "inputs alone"
            if self.examiner.hidden is None
            else (f"inputs, and the features that enter layer {self.examiner.hidden.name!r}")
        )
        lines = [
            f"Judge of {facts.classes} classes, fitted on {facts.samples} ordinary inputs"
            + (" with labels" if facts.labelled else ""),
            f"  promise: {promise}",
            f"  cost: {facts.cost:.2f} passes per input (a forward: .33); profile: {facts.profile}",
            f"  compares: {compared}; gamma {self.examiner.gamma:g}",
        ]
        never = self.thresholds.isinf().nonzero().squeeze(1).tolist()
        if never:
            names = ", ".join(map(self.examiner.clf.class_name, never))
            lines.append(f"  never accepted: {names} (too few labels, or too many are wrong)")
        for verdict, right in facts.shares_right.items():
            lines.append(f"  ordinary inputs called {verdict}: {right:.1%} right")
        if facts.left_out:
            lines.append(f"  left out: {len(facts.left_out)} broken or strange inputs")
        return "\n".join(lines)

    def save(self, path: str | Path) -> None:
        """Write the folder `path`: judge.json and judge.safetensors, without the network."""
        judge_files.save(self, Path(path))

    @staticmethod
    def load(path: str | Path, net: Any, *, views: Sequence[View] = ()) -> Judge:
        """Read what `save` wrote, for the same network; one with other weights is refused.

        Nothing in the files is executed.

        Args:
            path: the folder.
            net: as for `fit`.
            views: those it was fitted with; functions are not saved.
        """
        remedy = "Write Judge.load(folder, net)."
        require(isinstance(path, str | Path), "path", "a folder", type(path).__name__, remedy)
        return Judge(**judge_files.load(Path(path), net, check_views(views)))

    def __repr__(self) -> str:
        facts = self.facts
        return (
            f"Judge({facts.samples} ordinary inputs, {facts.classes} classes; false alarms "
            f"{facts.false_alarms:g}; {facts.cost:.2f} passes per input)"
        )

    def _repr_html_(self) -> str:
        return judge_html(self)


def _assemble(examiner: Examiner, given: Ordinary, learned: Learned, asked: Asked) -> Judge:
    """A Judge from what was learned."""
    classes = classes_of(given.variables[0])
    labels = None if given.labels is None else given.labels[learned.rows]
    if labels is not None:
        warn_of_guesses(learned.predicted, check_labels(labels, len(labels), classes), classes)
    left_out = warn_of_left_out(given, learned.rows, learned.set_aside)
    asked.check_counts(len(learned.rows), None if labels is None else len(labels))
    trust, least = learned.trust, thresholds_of(learned, labels, asked, classes)
    codes = learned.codes(trust >= least[learned.predicted], asked.false_alarms)
    facts = Facts(
        false_alarms=asked.false_alarms,
        error_rate=asked.error_rate,
        confidence=asked.confidence,
        profile=asked.profile,
        samples=len(learned.rows),
        labelled=labels is not None,
        left_out=left_out,
        cost=float(learned.passes.mean()) + examiner.passes,
        classes=classes,
        model=quick_digest(examiner.clf),
        version=__version__,
        shares_right={} if labels is None else shares_right(codes, learned.predicted == labels),
    )
    return Judge(
        examiner=examiner,
        typicality=learned.typicality,
        alarm=learned.alarm,
        recipe=learned.recipe,
        ordinary_trust=trust.sort().values,
        thresholds=least,
        calibration=calibrate(trust, learned.predicted, labels),
        facts=facts,
    )
