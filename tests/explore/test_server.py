"""The server: only its own page gets anything, only ranges, and marks are on the disk at once."""

import http.client
import json
import threading
from contextlib import contextmanager

import pandas as pd
import pytest

import credibly as cr
from credibly.explore.marking import MarkStore
from credibly.explore.server import Explored, Server
from credibly.io.marks import marks_place, read_marks

ROWS = 6


class Asker:
    """Asks a running server, as a browser would."""

    def __init__(self, server, verdicts):
        self.server, self.verdicts = server, verdicts
        self.host = f"127.0.0.1:{server.server_address[1]}"
        self.root = f"/{server.explored.token}/"

    def ask(self, place, method="GET", body=None, *, root=None, **headers):
        connection = http.client.HTTPConnection(self.host, timeout=10)
        connection.request(
            method, (self.root if root is None else root) + place, body,
            {name.replace("_", "-"): value for name, value in headers.items()},
        )  # fmt: skip
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), content

    def mark(self, row, mark, **headers):
        given = {"Origin": f"http://{self.host}", "Content_Type": "application/json"} | headers
        return self.ask("api/marks", "POST", json.dumps({"row": row, "mark": mark}), **given)


@contextmanager
def running(folder, detail=None):
    verdicts = folder / "verdicts.parquet"
    frame = pd.DataFrame(
        {"id": [f"r{k}" for k in range(ROWS)], "verdict": "trust", "predicted": "cat", "trust": 1.0}
    )
    frame.to_parquet(verdicts)
    marks = MarkStore(marks_place(verdicts), ROWS, lambda row: (f"r{row}", "cat"))
    server = Server(Explored(verdicts, ROWS, {"title": "verdicts"}, detail, marks))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield Asker(server, verdicts)
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def asker(tmp_path):
    def detail(row):
        if row == 4:
            message = "no such luck"
            raise RuntimeError(message)
        if row == 5:
            raise cr.errors.FileFormatError("x.npy: cut short")
        return {"reason": f"row {row}", "value": float("inf")}

    with running(tmp_path, detail) as found:
        yield found


def test_the_page_comes_with_its_policy_and_may_not_be_framed(asker):
    status, headers, content = asker.ask("")
    assert status == 200
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert b'"parquet":"verdicts.parquet"' in content


@pytest.mark.parametrize("root", ["/", "/wrong/", "/../", "//"])
def test_without_the_token_nothing_is_there(asker, root):
    for place in ("", "verdicts.parquet", "api/row/1"):
        assert asker.ask(place, root=root)[0] == 404
    assert asker.ask("", root=asker.root[:-2])[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "127.0.0.1"])
def test_another_name_for_the_machine_is_refused(asker, host):
    for method in ("GET", "POST"):
        assert asker.ask("", method, Host=host)[0] == 403


def test_it_listens_on_loopback_only(asker):
    assert asker.server.server_address[0] == "127.0.0.1"
    assert asker.server.url.startswith(f"http://127.0.0.1:{asker.server.server_address[1]}/")
    assert len(asker.server.explored.token) >= 32


def test_ranges_are_the_bytes_of_the_file(asker):
    content = asker.verdicts.read_bytes()
    for first, last in ((0, 3), (10, 99), (len(content) - 8, len(content) - 1)):
        status, headers, got = asker.ask("verdicts.parquet", Range=f"bytes={first}-{last}")
        assert status == 206
        assert got == content[first : last + 1]
        assert headers["Content-Range"] == f"bytes {first}-{last}/{len(content)}"
    assert asker.ask("verdicts.parquet", Range=f"bytes=0-{10**12}")[2] == content


@pytest.mark.parametrize("given", [None, "bytes=5-2", "bytes=-5", "bytes=99999999-", "lines=1-2"])
def test_other_ranges_are_refused(asker, given):
    headers = {} if given is None else {"Range": given}
    assert asker.ask("verdicts.parquet", **headers)[0] == 416


def test_a_file_that_changed_is_not_mixed_with_the_old_one(asker):
    asker.verdicts.write_bytes(b"other")
    status, _, content = asker.ask("verdicts.parquet", Range="bytes=0-3")
    assert status == 409
    assert b"verdicts.parquet changed" in content


def test_nothing_is_said_or_marked_of_a_file_that_changed(asker):
    assert asker.ask("api/row/1")[0] == 200
    asker.verdicts.write_bytes(b"other")
    assert asker.ask("api/row/1")[0] == 409
    status, _, content = asker.mark(1, "right")
    assert status == 409
    assert b"verdicts.parquet changed" in content
    assert not marks_place(asker.verdicts).exists()


def test_details_and_their_errors(asker):
    assert json.loads(asker.ask("api/row/2")[2]) == {"reason": "row 2", "value": "Infinity"}
    assert asker.ask("api/row/4")[0] == 500
    assert b"RuntimeError: no such luck" in asker.ask("api/row/4")[2]
    status, _, content = asker.ask("api/row/5")
    assert status == 422
    assert content.startswith(b"x.npy: cut short")
    for place in ("api/row/6", "api/row/-1", "api/row/x", "api/row/", "../verdicts.parquet", "api"):
        assert asker.ask(place)[0] == 404, place


def test_marks_are_saved_at_once_changed_and_removed(asker):
    path = marks_place(asker.verdicts)
    assert asker.mark(1, "right")[0] == 204
    assert asker.mark(3, "foreign")[0] == 204
    assert asker.mark(1, "wrong")[0] == 204
    found = read_marks(path)
    assert {row: one.mark for row, one in found.items()} == {1: "wrong", 3: "does not belong"}
    assert (found[1].id, found[1].predicted) == ("r1", "cat")
    assert b'"marks":[[1,"wrong"],[3,"foreign"]]' in asker.ask("")[2]
    assert asker.mark(1, None)[0] == 204
    assert list(read_marks(path)) == [3]


@pytest.mark.parametrize(
    ("row", "mark"),
    [(6, "right"), (-1, "right"), (True, "right"), ("1", "right"), (1, "perhaps"), (1, [1])],
)
def test_other_marks_are_refused(asker, row, mark):
    assert asker.mark(row, mark)[0] == 400
    assert not marks_place(asker.verdicts).exists()


def test_marks_come_from_the_page_only(asker):
    for headers in ({"Origin": "http://evil.example"}, {"Content_Type": "text/plain"}):
        assert asker.mark(1, "right", **headers)[0] == 403
    body = json.dumps({"row": 1, "mark": "right"})
    assert asker.ask("api/marks", "POST", body, Content_Type="application/json")[0] == 403
    assert asker.ask("api/marks", "POST", "x" * 20_000, Origin=f"http://{asker.host}",
                     Content_Type="application/json")[0] == 413  # fmt: skip
    assert asker.ask("api/marks", "POST", "not json", Origin=f"http://{asker.host}",
                     Content_Type="application/json")[0] == 400  # fmt: skip
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH"):
        assert asker.ask("api/marks", method)[0] == 501
    assert not marks_place(asker.verdicts).exists()


def test_a_mark_that_cannot_be_written_is_told(asker):
    marks_place(asker.verdicts).mkdir()
    status, _, content = asker.mark(1, "right")
    assert status == 422
    assert b"cannot be written" in content
    assert asker.server.explored.marks.listed() == []


def test_marks_of_an_earlier_class_are_kept_but_do_not_count(tmp_path):
    path = tmp_path / "v.parquet.marks.csv"
    kept = (
        "row,id,predicted,mark\r\n1,r1,dog,right\r\n2,r2,dog,does not belong\r\n3,r3,cat,wrong\r\n"
    )
    path.write_bytes(kept.encode())
    marks = MarkStore(path, ROWS, lambda row: (f"r{row}", "cat"))
    assert marks.listed() == [(2, "foreign"), (3, "wrong")]
    assert marks.stale == 1
    assert marks.put(4, "right")
    assert read_marks(path)[1].predicted == "dog"
    assert marks.put(1, "right")
    assert (1, "right") in marks.listed()
    assert marks.stale == 0


def test_two_servers_of_one_file_keep_each_others_marks(tmp_path):
    path = tmp_path / "v.parquet.marks.csv"
    stores = [MarkStore(path, 200, lambda row: (f"r{row}", "cat")) for _ in range(2)]

    def work(store, rows):
        for row in rows:
            assert store.put(row, "right")

    threads = [
        threading.Thread(target=work, args=(store, range(start, 60, 2)))
        for start, store in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(read_marks(path)) == list(range(60))
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert stores[0].put(7, None)
    assert 7 not in dict(stores[1].listed())


def test_without_a_model_there_are_no_details(tmp_path):
    with running(tmp_path) as asker:
        assert asker.ask("api/row/1")[0] == 404


def test_marks_of_other_verdicts_are_not_mixed_in(tmp_path):
    path = tmp_path / "v.parquet.marks.csv"
    path.write_text("row,id,predicted,mark\r\n2,r9,cat,right\r\n", "utf-8")
    with pytest.raises(cr.errors.FileFormatError, match="row 2 with the id 'r9'"):
        MarkStore(path, ROWS, lambda row: (f"r{row}", "cat"))


def test_what_is_deeply_nested_is_no_mark(asker):
    given = {"Origin": f"http://{asker.host}", "Content_Type": "application/json"}
    status, _, said = asker.ask("api/marks", "POST", "[" * 9000, **given)
    assert (status, said) == (400, b"Expected JSON with row and mark.")


def test_the_page_of_a_file_that_is_gone_is_refused(asker):
    asker.verdicts.unlink()
    status, _, said = asker.ask("")
    assert status == 409
    assert b"Start `credibly explore` again" in said
