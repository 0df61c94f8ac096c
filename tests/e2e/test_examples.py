"""Code that people copy from the pages runs and prints what the pages say."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_of_the_readme_prints_what_it_says(capsys):
    text = (ROOT / "README.md").read_text("utf-8")
    code, output = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL).groups()
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102  # our own page
    assert capsys.readouterr().out.strip() == output.strip()
