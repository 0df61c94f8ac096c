"""How docstrings are read for the reference: their examples as code, their pages as links."""

import re
from typing import Any

import griffe


class Readable(griffe.Extension):
    """Shows what follows `Example:` as code, and pages that are named as links."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one class, function or attribute before it is parsed."""
        if obj.docstring:
            obj.docstring.value = readable(obj.docstring.value)


def readable(text: str) -> str:
    """The docstring with the heading that the parser knows, and links from docs/reference/api/."""
    text = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)
    return re.sub(r"\bdocs/([\w/-]+)\.md", r"[\1](../../\1.md)", text)
