"""What a Judge found: verdicts, p-values, a ranking, reasons and costs."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from credibly._validation import require, whole_number
from credibly.decide.exploring import Words, check_details, explore
from credibly.decide.kept import KeptInputs
from credibly.decide.reasons import Reasons
from credibly.decide.selective import ABSTAINED, Abstention
from credibly.decide.shown import judgement_html
from credibly.decide.signals import Signals
from credibly.decide.verdict import Verdict
from credibly.explore.page import Explorer
from credibly.io.labels import class_numbers
from credibly.plot.one_profile import plot_profile
from credibly.profile.profile import Profile
from credibly.types import Labels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_VERDICTS = tuple(Verdict)


@dataclass(frozen=True, eq=False, repr=False)
class Judgement:
    """What a `Judge` says of N inputs; the sample axis is first everywhere, all on the CPU.

    Attributes:
        predicted: the model's class (N,), whatever the verdict; -1 where unusable.
        trust: one number (N,) to rank by, higher is more trustworthy; NaN where unusable.
        p_outlier: the share (N,) of ordinary inputs, this one included, that are at least as unlike
            the others. For inputs like the ordinary ones the chance that it is at most a is at most
            a (conformal p-value), for any distribution and also with the cascade; the scales of the
            signals, which are quantiles of the same ordinary inputs, are taken as given.
        p_tampered: the same for the question whether the input was tampered with.
        p_ordinary: the same for both questions at once. It is what raises the alarm: a verdict is
            'outlier' or 'tampered' where it is at most the Judge's rate of false alarms.
        p_wrong: the chance (N,) that the class is wrong, for an input like the ordinary ones. With
            labels it is calibrated (Venn-Abers: of two numbers, between which it lies, one is right
            on average). Without labels it is what the model itself claims, 1 - its largest
            probability, and no promise.
        passes: what each input cost (N,); a pass is a forward and a backward, a forward is a third.
        signals: the numbers behind it all (N,), by name; NaN where no profile was needed.
        codes: the verdicts (N,) as places in `Verdict`.
        profile: the profiles of the inputs `profiled`, if any were needed and they were kept.
        profiled: numbers of the inputs that have one.
        inputs: what is needed to solve the profile of any of them, if the inputs were kept.
        names: of the classes, if known.

    Example: see `Judge`.
    """

    predicted: Tensor
    trust: Tensor
    p_outlier: Tensor
    p_tampered: Tensor
    p_ordinary: Tensor
    p_wrong: Tensor
    passes: Tensor
    codes: Tensor
    signals: Signals
    reasons: Reasons = field(repr=False)
    shares_right: dict[str, float] = field(default_factory=dict)
    names: tuple[str, ...] | None = None
    class_count: int = 2
    profile: Profile | None = None
    profiled: Tensor | None = None
    inputs: KeptInputs | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """One verdict per input."""
        return tuple(_VERDICTS[code] for code in self.codes.tolist())

    @property
    def accepted(self) -> Tensor:
        """Which inputs (N,) have the verdict to trust the class."""
        return self.codes == Verdict.TRUST.code

    @cached_property
    def classes(self) -> tuple[int | Abstention, ...]:
        """The class of each input that is accepted, `ABSTAINED` for the others."""
        rows = zip(self.predicted.tolist(), self.accepted.tolist(), strict=True)
        return tuple(k if yes else ABSTAINED for k, yes in rows)

    @property
    def cost(self) -> float:
        """Mean passes per input."""
        return float(self.passes.mean())

    def accuracy(self, labels: Labels) -> float:
        """Share of the accepted inputs whose class is right; NaN if none is accepted."""
        truth = class_numbers(labels, len(self), self.class_count, self.names)
        right = (self.predicted == truth)[self.accepted]
        return float(right.double().mean()) if len(right) else float("nan")

    def class_name(self, index: int) -> str:
        """The name of a class, or its number."""
        return str(int(index)) if self.names is None else self.names[index]

    def summary(self) -> str:
        """A few lines to read."""
        looked = int(self.signals["shift"].isfinite().sum()) if "shift" in self.signals else 0
        needed = f" ({looked} needed a profile)" if looked else ""
        lines = [f"{len(self)} inputs, {self.cost:.2f} passes each{needed}"]
        return "\n".join([*lines, *in_lines(Counter(self.verdicts), self.shares_right)])

    def to_pandas(self) -> pd.DataFrame:
        """One row per input: verdict, classes, p-values, cost, signals, why it is not accepted.

        Classes are names, or numbers where they have no names.
        """
        import pandas as pd

        numbers = {
            name: getattr(self, name).numpy()
            for name in ("trust", "p_ordinary", "p_outlier", "p_tampered", "p_wrong", "passes")
        }
        trusted = self.accepted.tolist()
        return pd.DataFrame(
            {
                "verdict": [verdict.value for verdict in self.verdicts],
                "predicted": self._class_column(self.predicted >= 0),
                "class": self._class_column(self.accepted),
                "accepted": trusted,
                **numbers,
                **{f"signal.{name}": values.numpy() for name, values in self.signals.items()},
                "reason": [None if yes else self.reasons[i] for i, yes in enumerate(trusted)],
            }
        )

    def _class_column(self, known: Tensor) -> Any:
        """Names of classes, or numbers; missing where they are not known."""
        import pandas as pd

        pairs = zip(self.predicted.tolist(), known.tolist(), strict=True)
        if self.names is None:
            return pd.array([k if yes else None for k, yes in pairs], dtype="Int64")
        return [self.names[k] if yes else None for k, yes in pairs]

    def __getitem__(self, rows: int | slice | Sequence[int] | Tensor) -> Judgement:
        """The chosen inputs."""
        index = torch.arange(len(self), device=self.codes.device)[rows].reshape(-1)
        chosen: dict[str, Any] = {
            name: value[index] for name, value in vars(self).items()
            if isinstance(value, Tensor) and name != "profiled"
        }  # fmt: skip
        if self.inputs is not None:
            chosen["inputs"] = self.inputs.select(index)
        if self.profile is not None and self.profiled is not None:
            places = {int(n): k for k, n in enumerate(self.profiled.tolist())}
            wanted = [(k, places[n]) for k, n in enumerate(index.tolist()) if n in places]
            chosen["profiled"] = index.new_tensor([k for k, _ in wanted])
            chosen["profile"] = self.profile[[place for _, place in wanted]] if wanted else None
        rest = {
            "signals": {name: values[index] for name, values in self.signals.items()},
            "reasons": self.reasons.select(index),
            **{name: getattr(self, name) for name in ("shares_right", "names", "class_count")},
        }
        return Judgement(**chosen, **rest)

    def profile_of(self, index: int) -> Profile:
        """The profile of one input; it is solved now if the verdict did not need it."""
        number = whole_number(index)
        size = len(self)
        good = number is not None and -size <= number < size
        require(good, "index", f"a number below {size}", f"{index!r}", "It counts the inputs.")
        place = (number or 0) % size
        known = [] if self.profiled is None else self.profiled.tolist()
        if self.profile is not None and place in known:
            return self.profile[known.index(place)]
        require(
            self.inputs is not None and place in self.inputs.rows,
            "index",
            "an input that was kept",
            f"{index!r}, of which only the verdict is known",
            "Judge a single batch, or pass keep=True: of streams, files and inputs with NaN or "
            "infinity there is nothing to solve with.",
        )
        assert self.inputs is not None  # noqa: S101  # just checked
        return self.inputs.profile_of(place)

    def plot(self, index: int, **settings: Any) -> Figure:
        """A figure of one input, its counterfactual x+ and its classes before and after.

        Args:
            index: of an input; see `profile_of`.
            settings: those of `credibly.plot_profile`.
        """
        profile = self.profile_of(index)
        if self.inputs is not None:  # names and scales of columns
            settings = {"features": self.inputs.examiner.clf, **settings}
        figure = plot_profile(profile, 0, **settings)
        why = textwrap.fill(self.reasons[index], 110)
        figure.suptitle(f"{why}\n{figure.get_suptitle()}", x=0.01, ha="left")
        return figure

    def explore(
        self,
        *,
        labels: Labels | None = None,
        details: int = 100,
        words: Words | None = None,
        columns: Mapping[str, Sequence[Any]] | None = None,
        title: str = "verdicts",
    ) -> Explorer:
        """One page to look through the verdicts; a notebook shows it, `.save(path)` writes it.

        Args:
            labels: true classes (N,), to show how often the answers are right.
            details: inputs shown in full, with x+ and the nearest ordinary inputs: the least
                trusted ones of each verdict in turn. Each needs a profile, which is solved now.
                Others are shown as they are, as far as there is room; 0 shows none.
            words: of each text, or a function from the number of a text to its words.
            columns: more columns by name, each with N values, such as where an input comes from.
            title: of the page.

        Example:
            >>> import torch, credibly as cr
            >>> judge = cr.Judge.fit(torch.nn.Linear(4, 3), torch.randn(200, 4))
            >>> page = judge(torch.randn(20, 4)).explore(details=2)
            >>> page.rows
            20
        """
        shown, more = check_details(details), columns or {}
        return explore(self, labels=labels, details=shown, words=words, columns=more, title=title)

    @classmethod
    def concatenate(cls, parts: Sequence[Judgement]) -> Judgement:
        """One judgement of many by the same Judge; those profiles are kept that parts have."""
        if len(parts) == 1:
            return parts[0]
        first, starts, profiles, rows = parts[0], 0, [], []
        for part in parts:
            if part.profile is not None and part.profiled is not None:
                profiles.append(part.profile)
                rows.append(part.profiled + starts)
            starts += len(part)
        tensors = {
            name: torch.cat([getattr(part, name) for part in parts])
            for name, value in vars(first).items()
            if isinstance(value, Tensor) and name != "profiled"
        }
        return cls(
            **tensors,
            signals={n: torch.cat([part.signals[n] for part in parts]) for n in first.signals},
            reasons=Reasons.concatenate([part.reasons for part in parts]),
            shares_right=first.shares_right,
            names=first.names,
            class_count=first.class_count,
            profile=Profile.concatenate(profiles) if profiles else None,
            profiled=torch.cat(rows) if rows else None,
            inputs=KeptInputs.concatenate([(len(part), part.inputs) for part in parts]),
        )

    def __repr__(self) -> str:
        counts = Counter(self.verdicts)
        words = ", ".join(f"{counts[v]} {v}" for v in Verdict if counts[v])
        return f"Judgement({len(self)} inputs: {words}; {self.cost:.2f} passes each)"

    def _repr_html_(self) -> str:
        return judgement_html(self)


def in_lines(counts: Mapping[Verdict, int], shares_right: Mapping[str, float]) -> list[str]:
    """One line per verdict that was given: how often, and what to do."""
    lines, total = [], sum(counts.values())
    for verdict in Verdict:
        count = counts.get(verdict, 0)
        if count:
            line = f"  {count:>6} {verdict} ({count / total:.1%}): {verdict.advice}"
            right = shares_right.get(verdict.value)
            if right is not None:
                line += f" Of such ordinary inputs {right:.1%} are right."
            lines.append(line)
    return lines
