"""Who may look and who may change."""

import time

import pytest
from starlette.testclient import TestClient

from aicau.core.errors import InputError
from aicau.web import security
from aicau.web.serve import make_app, serve

TOKEN = "correct horse battery"


@pytest.fixture
def visit(folder, here):
    here += ["look", "table"]
    apps = []

    def start(base="http://127.0.0.1:8765", **options):
        apps.append(make_app([str(folder)], **options))
        return TestClient(apps[-1], base_url=base, follow_redirects=False)

    yield start
    for app in apps:  # a thread that is left would be cut off inside PyTorch when Python ends
        app.state.library.close()
        assert not app.state.library.worker.thread.is_alive()


def test_headers_and_cookie(visit):
    answer = visit().get("/")
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    for word in ("onclick", "<style", "style=", "javascript:"):
        assert word not in answer.text
    assert answer.text.count("<script") == answer.text.count("<script src=")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost@evil", "", "a b"])
def test_another_host_is_refused(visit, host):
    assert visit().get("/", headers={"host": host}).status_code == 421


def test_a_change_needs_the_word_of_a_form_and_the_same_origin(visit):
    client = visit()
    client.get("/")
    word = client.app.state.guard.csrf(client.cookies["aicau"])
    assert client.post("/name", data={"name": "a"}).status_code == 403
    assert client.post("/name", data={"name": "a", "csrf": "0" * 64}).status_code == 403
    assert client.post("/name", data={"name": "a", "csrf": word}).status_code == 303
    assert client.post("/name", data={"name": "a"}, headers={"x-csrf-token": word}).status_code == 303
    other = {"origin": "http://evil.example"}
    assert client.post("/name", data={"name": "a", "csrf": word}, headers=other).status_code == 403
    cross = {"sec-fetch-site": "cross-site"}
    assert client.post("/name", data={"name": "a", "csrf": word}, headers=cross).status_code == 403
    stranger = visit()
    stranger.get("/")
    assert stranger.post("/name", data={"name": "a", "csrf": word}).status_code == 403  # of another browser
    assert client.post("/name", data={"csrf": word, "back": "//evil.example"}).headers["location"] == "/"


def test_every_change_is_guarded(visit):
    client = visit()
    client.get("/")
    for path, verbs in client.get("/openapi.json").json()["paths"].items():
        if "post" in verbs and path != "/login":
            answer = client.post(path.replace("{key}", "screen").replace("{number}", "1"))
            assert answer.status_code in (403, 422), path
            filled = {"n": 1, "ids": "c0", "reason": "r", "tell": 1, "old": "a", "new": "b", "strategy": "random"}
            filled |= {"name": "x", "target": "t", "id": "i", "task": "count"}
            files = {"file": ("a.csv", "a\n1\n")} if path in ("/new", "/c/{key}/results") else None
            answer = client.post(path.replace("{key}", "screen").replace("{number}", "1"), data=filled, files=files)
            assert answer.status_code == 403, path


def test_a_token_opens_and_too_many_wrong_ones_wait(visit):
    client = visit(token=TOKEN)
    assert client.get("/", headers={"accept": "text/html"}).headers["location"] == "/login"
    assert client.get("/campaigns.json").status_code == 401
    assert client.get("/openapi.json").status_code == 401
    assert client.get("/static/web.css").status_code == 200
    assert client.get("/login").status_code == 200
    assert client.get("/campaigns.json", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert client.post("/name", data={"name": "a"}, headers={"authorization": f"Bearer {TOKEN}"}).status_code == 303
    assert client.post("/login", data={"token": TOKEN}).status_code == 303
    assert client.get("/campaigns.json").status_code == 200  # by its cookie
    forged = visit(token=TOKEN)
    forged.cookies.set("aicau", f"{'0' * 32}.{'0' * 64}")
    assert forged.get("/campaigns.json").status_code == 401
    for _ in range(security.MOST_WRONG):
        assert forged.post("/login", data={"token": "wrong"}).status_code == 401
    assert forged.post("/login", data={"token": TOKEN}).status_code == 429
    assert forged.get("/campaigns.json", headers={"authorization": "Bearer x"}).status_code == 429


def test_tokens_are_compared_in_constant_time(visit, monkeypatch):
    seen = []
    real = security.hmac.compare_digest
    monkeypatch.setattr(security.hmac, "compare_digest", lambda a, b: seen.append((a, b)) or real(a, b))
    security.Guard(TOKEN, ()).check("word", "client")
    assert seen == [(b"word", TOKEN.encode())]


def test_another_address_needs_a_token(folder):
    with pytest.raises(InputError, match="needs a token"):
        serve([str(folder)], host="0.0.0.0")
    with pytest.raises(InputError, match="at least 8 characters"):
        serve([str(folder)], token="short")


def test_no_request_that_fits_our_description_makes_the_server_fail(visit):
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.checks import not_a_server_error

    client, bearer = visit(token=TOKEN, hosts=["testserver"]), {"authorization": f"Bearer {TOKEN}"}
    for _ in range(200):
        if not client.get("/c/screen/state.json", headers=bearer).json()["busy"]:
            break
        time.sleep(0.05)
    schema = schemathesis.openapi.from_asgi("/openapi.json", client.app, headers=bearer)
    tried = 0
    for operation in schema.get_all_operations():

        @settings(
            max_examples=4, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(operation.ok().as_strategy())
        def attempt(case):
            nonlocal tried
            tried += 1
            if "key" in (case.path_parameters or {}):
                case.path_parameters["key"] = "screen"
            case.call_and_validate(headers=bearer, checks=[not_a_server_error])

        attempt()
    assert tried > 60
