"""`credibly serve` as a command: it starts, answers, is told to stop, and finishes what it took."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import httpx
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import credibly as cr
from credibly.cli.app import app
from credibly.data.sample import load_sample

MODEL = """
import pathlib, time, torch
import credibly as cr

class Slow(torch.nn.Module):
    '''Waits as long as there is a file, of which it leaves a trace.'''

    def forward(self, x):
        hold = pathlib.Path(__file__).with_name("hold")
        if hold.with_name("broken").exists():
            raise RuntimeError
        while hold.exists():
            hold.with_name("held").touch()
            time.sleep(0.01)
        return x @ torch.linspace(-1, 1, 12).reshape(4, 3)

clf = cr.Classifier(Slow().eval(), classes=["cat", "dog", "owl"], dtype=torch.float32)
"""


@contextmanager
def serving(folder, *options, **environment):
    """The command, and a client for it."""
    command = [sys.executable, "-m", "credibly", "serve", *options, "--port", "0"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(  # noqa: S603
            command, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True,
            env={**os.environ, **environment},
        )  # fmt: skip
        try:
            lines = []
            for line in process.stdout:
                lines.append(line)
                if line.startswith("http://"):
                    break
            url = lines[-1].strip()
            with httpx.Client(base_url=url, timeout=60) as client:
                while client.get("/v2/health/ready").status_code != 200:
                    pass
                yield process, client, "".join(lines)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


@pytest.fixture
def folder(tmp_path):
    """A model that can be held back, and a Judge for it."""
    (tmp_path / "model.py").write_text(MODEL)
    torch.manual_seed(0)
    loaded = cr.load_classifier(f"{tmp_path / 'model.py'}:clf")
    cr.Judge.fit(loaded, torch.randn(200, 4)).save(tmp_path / "judge")
    return tmp_path


def test_sigterm_finishes_what_was_accepted(folder):
    x, answers = torch.randn(3, 4), []
    with serving(folder, "model.py:clf", "--judge", "judge", "--watch", "watch.safetensors") as (
        process, client, text,
    ):  # fmt: skip
        assert re.search(r"memory: at most about \d+ MB beside the model", text)
        (folder / "hold").touch()
        asked = threading.Thread(
            target=lambda: answers.append(client.post("/v1/judge", json={"inputs": x.tolist()}))
        )
        asked.start()
        while not (folder / "held").exists():
            pass
        process.send_signal(signal.SIGTERM)
        with httpx.Client(base_url=client.base_url) as other:
            while other.get("/v2/health/ready").status_code == 200:
                pass
            assert other.post("/v1/judge", json={"inputs": x.tolist()}).status_code == 503
        (folder / "hold").unlink()
        asked.join(60)
        rest = process.stdout.read()
        assert process.wait(60) == 0
    found = cr.Judge.load(folder / "judge", cr.load_classifier(f"{folder / 'model.py'}:clf"))(x)
    rows = answers[0].json()["rows"]
    assert [row["verdict"] for row in rows] == [v.value for v in found.verdicts]
    assert rest.strip().endswith("stopped")
    lines = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["ready", "request", "request"]
    assert (folder / "watch.safetensors").exists()


def test_a_token_from_the_environment_guards_the_embedded_network(tmp_path):
    sample = load_sample()
    loaded = cr.load_classifier("credibly.data.sample:classifier")
    judge = cr.Judge.fit(loaded, sample.images[:200])
    judge.save(tmp_path / "judge")
    options = ("credibly.data.sample:classifier", "--judge", "judge", "--host", "0.0.0.0")  # noqa: S104
    token = "a token that is long".replace(" ", "-")
    with serving(tmp_path, *options, "--name", "shoes", CREDIBLY_TOKEN=token) as (_, client, _text):
        port = client.base_url.port
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as own:
            assert own.get("/v2").status_code == 401
            own.headers["authorization"] = f"Bearer {token}"
            assert own.get("/v2/models/shoes").status_code == 200
            x = sample.images[200:203].numpy()
            tensor = {"name": "input", "shape": list(x.shape), "datatype": "FP32",
                      "data": x.ravel().astype(float).tolist()}  # fmt: skip
            answer = own.post("/v2/models/shoes/infer", json={"inputs": [tensor]})
    outputs = {output["name"]: output["data"] for output in answer.json()["outputs"]}
    found = judge(torch.from_numpy(x))
    assert outputs["class_name"] == [found.class_name(int(k)) for k in found.predicted]
    assert np.allclose(outputs["trust"], found.trust, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host", "0.0.0.0"], "--token-file"),  # noqa: S104
        (["--host", "no.such.host.invalid"], "--token-file"),
        (["--token-file", "none"], "openssl rand"),
        (["--deadline", "0"], "deadline"),
        (["--judge", "nothing"], "judge.json"),
        (["--name", "a/b"], "--name shoes"),
        (["--ordinary", "fresh.parquet"], "--watch FILE"),
        (["--false-alarms", "0.02"], "--watch FILE"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(folder, options, words):
    given = [] if "--judge" in options else ["--judge", f"{folder / 'judge'}"]
    result = CliRunner().invoke(app, ["serve", f"{folder / 'model.py'}:clf", *given, *options])
    assert isinstance(result.exception, cr.errors.CrediblyError)
    assert words in str(result.exception)


def test_a_model_that_fails_on_any_row_ends_the_command(folder):
    """It could never be ready."""
    (folder / "broken").touch()
    command = [sys.executable, "-m", "credibly", "serve", "model.py:clf", "--judge", "judge"]
    found = subprocess.run(  # noqa: S603
        [*command, "--port", "0"], cwd=folder, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert found.returncode == 1
    assert "error: the model failed on random rows" in found.stderr
    assert "(RuntimeError)" in found.stderr
    assert "Traceback" not in found.stderr
