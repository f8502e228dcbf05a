"""Whatever is sent: no 5xx, an envelope on every error, and answers as the document says.

Against a real server with what schemathesis makes of the document, valid and invalid; and in this
process with known fields of random values. Bounded and with a fixed seed.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import hypothesis
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from django_ojs.http.problems import PROBLEMS
from tests.http.refusing import MISSING
from tests.http.support import Answer, Api, LiveApi, enqueue, fetch
from tests.support import ROOT

pytestmark = pytest.mark.process

SEED = int(os.environ.get("FUZZ_SEED", "20260212"))
TIMES = int(os.environ.get("FUZZ_TIMES", "1"))
"""How much longer to look than usual: by hand, and in ``make test-all``."""
EXAMPLES = 4 * TIMES
"""For each operation, once valid and once invalid."""
MOST_REQUESTS = 1500 * TIMES
SECONDS = 30 * TIMES
IN_PROCESS = 150 * TIMES
DOCUMENT = ROOT / "docs" / "reference" / "openapi.json"
STREAMS = ("/events/stream", "/jobs/{job_id}/events", "/queues/{name}/events")
CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance]
QUIET = list(HealthCheck)


def title(raw: bytes) -> str:
    """What a page of HTML is about."""
    text = raw.decode(errors="replace")
    return " ".join(text.partition("<title>")[2].partition("</title>")[0].split()) or text[:300]


def check_error(status: int, headers: Any, raw: bytes, what: str) -> None:
    """No 5xx; an error has the envelope and our type."""
    assert status < 500, (what, status, raw[:500])
    if status < 400:
        return
    ours = headers["content-type"].startswith("application/openjobspec+json")
    assert ours, f"{status} {title(raw)} {what}"
    error = json.loads(raw)["error"]
    assert error["code"] in PROBLEMS, what
    assert status in (PROBLEMS[error["code"]].status, 405), (what, status, raw)
    assert error["type"] == error["code"]
    assert error["request_id"] == headers["x-request-id"]
    assert isinstance(error["message"], str) and isinstance(error["details"], dict)


# --- Over a socket -----------------------------------------------------------------------------


class Fuzzer:
    """Sends what schemathesis makes; counts."""

    def __init__(self, live: LiveApi) -> None:
        self.live = live
        self.document = json.loads(DOCUMENT.read_text())
        for item in self.document["paths"].values():
            for operation in item.values():
                # Otherwise it makes up credentials; those are the matter of test_matrix.
                del operation["security"]
        self.statuses: Counter[int] = Counter()
        self.made = 0
        self.session = requests.Session()
        self.session.trust_env = False
        self.jobs: list[dict[str, Any]] = []
        self.troubles: list[str] = []
        self.names: dict[str, str] = {}
        self.round = 0

    def operations(self) -> Iterator[Any]:
        """All but the streams, which do not end."""
        schema = schemathesis.openapi.from_dict(self.document)
        for found in schema.get_all_operations():
            assert isinstance(found, Ok), found
            operation = found.ok()
            if not operation.path.endswith(STREAMS):
                yield operation

    def stock(self) -> None:
        """Jobs that are waiting, running and dead, so that ids lead somewhere."""
        # Fresh ones for each operation: it may have been to pause the queue.
        self.round += 1
        self.names = {"name": f"q{self.round}", "worker_id": f"w{self.round}"}
        queue = self.names["name"]
        enqueue(self.live, queue=queue, retry={"max_attempts": 1, "on_exhaustion": "dead_letter"})
        enqueue(self.live, queue=queue)
        dead, running = fetch(self.live, queue, worker=self.names["worker_id"], count=2)
        self.live.post("/workers/nack", {"job_id": dead["id"], "error": {"message": "no"}})
        self.live.post(f"/jobs/{running['id']}/checkpoint", {"state": [1]})
        steps = [{"type": "test.job", "args": [], "queue": "idle"}] * 2
        made = self.live.post("/workflows", {"type": "chain", "steps": steps}).body
        self.names["workflow_id"] = made["id"]
        waiting = enqueue(self.live, queue="idle", scheduled_at="1h")
        pending = enqueue(self.live, queue="idle", pending=True)
        self.jobs = [dead, running, waiting, pending]
        self.made += 8

    def send(self, case: Any, pick: int, real_only: bool) -> None:
        """One request; sometimes, or always, about something that exists."""
        job = self.jobs[pick % len(self.jobs)]
        real = {"job_id": job["id"], **self.names}
        if real_only or pick >= len(self.jobs):
            for place in (case.path_parameters, case.body):
                if isinstance(place, dict):
                    place.update({name: real[name] for name in real.keys() & place.keys()})
        if isinstance(case.body, dict) and "wait_ms" in case.body:
            case.body["wait_ms"] = 0
        if isinstance(case.query, dict) and case.path.endswith("/result"):
            case.query.pop("wait", None)
        response = case.call(
            base_url=f"http://127.0.0.1:{self.live.port}",
            session=self.session,
            headers={"Authorization": "Bearer dev"},
            timeout=20,
        )
        self.statuses[response.status_code] += 1
        what = f"{case.method} {response.request.url} {response.request.body!r}"
        if response.status_code in (414, 431):
            return  # gunicorn's own limits, before anything of ours
        headers = {name.lower(): said[0] for name, said in response.headers.items()}
        try:
            check_error(response.status_code, headers, response.content, what)
            case.validate_response(response, checks=CHECKS)
        except (AssertionError, FailureGroup) as error:
            # Kept, rather than raised: what is sent again is not the same any more.
            self.troubles.append(f"{what}: {error!r} {getattr(error, 'exceptions', '')}")


@pytest.mark.timeout(180 * TIMES)
def test_what_schemathesis_makes_of_the_document(live: LiveApi, capsys: Any) -> None:
    fuzzer = Fuzzer(live)
    operations = list(fuzzer.operations())
    began = time.monotonic()
    left = len(operations)
    for operation in operations:
        if time.monotonic() - began > SECONDS:
            break
        left -= 1
        fuzzer.stock()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            fuzz(fuzzer, operation, mode)
    fuzzer.session.close()
    total = fuzzer.statuses.total() + fuzzer.made
    with capsys.disabled():
        print(f"\nfuzz: seed {SEED}, {len(operations)} operations", end=", ")
        print(f"{left} left out for want of time, {total} requests", end=": ")
        print(", ".join(f"{status}: {n}" for status, n in sorted(fuzzer.statuses.items())))
    assert not fuzzer.troubles, "\n\n".join(fuzzer.troubles[:20])
    assert len(operations) > 60
    assert total <= MOST_REQUESTS
    assert left or fuzzer.statuses[200] > 80, "too little gets through"


def fuzz(fuzzer: Fuzzer, operation: Any, mode: GenerationMode) -> None:
    """A few requests of one operation."""

    @hypothesis.seed(SEED)
    @hypothesis.settings(
        max_examples=EXAMPLES,
        database=None,
        suppress_health_check=QUIET,
        phases=[hypothesis.Phase.generate],
        verbosity=hypothesis.Verbosity.quiet,
    )
    @given(case=operation.as_strategy(generation_mode=mode), pick=st.integers(0, 7))
    def run(case: Any, pick: int) -> None:
        fuzzer.send(case, pick, real_only=mode is GenerationMode.POSITIVE)

    try:
        run()
    except hypothesis.errors.Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE


class Broken(BaseHTTPRequestHandler):
    """A server that fails."""

    def do_GET(self) -> None:
        """500."""
        self.send_error(500)

    def log_message(self, *args: Any) -> None:
        """Nothing."""


def test_a_5xx_does_not_go_unnoticed() -> None:
    with HTTPServer(("127.0.0.1", 0), Broken) as broken:
        Thread(target=broken.serve_forever, daemon=True).start()
        fuzzer = Fuzzer(LiveApi(broken.server_port))
        fuzzer.jobs = [{"id": "019539a4-b68c-7def-8000-1a2b3c4d5e6f"}]
        operation = next(found for found in fuzzer.operations() if found.method == "get")
        fuzz(fuzzer, operation, GenerationMode.POSITIVE)
        broken.shutdown()
    fuzzer.session.close()
    assert "500" in fuzzer.troubles[0]


# --- In this process ---------------------------------------------------------------------------

KNOWN = sorted(
    {
        name
        for schema in json.loads(DOCUMENT.read_text())["components"]["schemas"].values()
        for name in schema.get("properties", {})
    }
    | {"delay_until", "retry_policy", "metadata", "response_code", "leases", "lease", "max_jobs"}
    | {"visibility_ms", "maxAttempts", "backoff", "strategy", "multiplier", "initial_delay_ms"}
)
TELLING = [
    "",
    "\x00",
    "\ud800",
    "default",
    "busy",
    "test.job",
    "PT5M",
    "30s",
    "+PT1S",
    "2030-01-01T00:00:00Z",
    "9999-12-31T23:59:59-23:59",
    "0001-01-01T00:00:00+23:59",
    "RETRY",
    "dead_letter",
    "constant",
    "w1",
    "1.0",
    "x" * 300,
    "☃" * 70,
    "019539a4-b68c-7def-8000-1a2b3c4d5e6f",
]
NUMBERS = [0, 1, -1, 30, 2**31, 2**63, 2**64, 10**30, -(2**63), 0.5, -0.0, 1e308, 1.5e-9]
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(NUMBERS),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(TELLING),
    st.text(max_size=20),
)
names = st.one_of(st.sampled_from(KNOWN), st.text(max_size=8))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(names, inner, max_size=5)),
    max_leaves=12,
)
some_fields = st.dictionaries(st.sampled_from(KNOWN), values, max_size=8)

JOB = {"type": "test.job", "args": []}
ABOUT = {"worker_id": "w1"}
ENDPOINTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "enqueue": ("POST", "/jobs", JOB),
    "batch": ("POST", "/jobs/batch", {"jobs": [JOB]}),
    "fetch": ("POST", "/workers/fetch", {"queues": ["busy", "default"], **ABOUT}),
    "ack": ("POST", "/workers/ack", {"job_id": "{job}"}),
    "nack": ("POST", "/workers/nack", {"job_id": "{job}"}),
    "beat": ("POST", "/workers/heartbeat", {**ABOUT, "active_job_ids": ["{job}"]}),
    "patch": ("PATCH", "/jobs/{job}", {"priority": 3}),
    "progress": ("PUT", "/jobs/{job}/progress", {"progress": 0.3}),
    "checkpoint": ("PUT", "/jobs/{job}/checkpoint", {"state": {}}),
    "extend": ("POST", "/jobs/{job}/extend", {"extend_timeout": 5}),
    "retry": ("POST", "/jobs/{job}/retry", {}),
    "register": ("POST", "/workers/register", {**ABOUT}),
}
EACH = IN_PROCESS // len(ENDPOINTS)


@pytest.mark.every_database
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_known_fields_of_random_values(api: Api, endpoint: str) -> None:
    """A good body, some fields of it replaced or added; or no object at all."""
    method, path, good = ENDPOINTS[endpoint]
    seen: Counter[int] = Counter()
    ready: list[str] = []

    def a_job() -> str:
        """A waiting job for those who change one, otherwise a running one; kept while it lasts."""
        if endpoint == "patch":
            return str(enqueue(api, queue="idle")["id"])
        if ready and api.get(f"/jobs/{ready[0]}").body["state"] == "active":
            return ready[0]
        enqueue(api, queue="mine")
        ready[:] = [fetch(api, "mine", worker="w1")[0]["id"]]
        return ready[0]

    @hypothesis.settings(
        max_examples=EACH,
        derandomize=TIMES == 1,
        database=None,
        suppress_health_check=QUIET,
    )
    @given(st.one_of(some_fields, some_fields, some_fields, values), st.booleans())
    def run(made: Any, inside: bool) -> None:
        job = a_job()
        body = json.loads(json.dumps(good).replace("{job}", job))
        if isinstance(made, dict):
            made = {**made, "wait_ms": 0} if endpoint == "fetch" else made
            if endpoint == "batch" and inside:
                body["jobs"].append({**JOB, **made})
            elif endpoint == "enqueue" and inside:
                body["options"] = made
            else:
                body |= made
        else:
            body = made
        answer: Answer = api(method, path.replace("{job}", job), json.dumps(body).encode())
        seen[answer.status] += 1
        headers = {name.lower(): value for name, value in answer.headers.items()}
        check_error(answer.status, headers, answer.raw, f"{method} {path} {body!r}")

    run()
    assert seen.total() >= EACH


# --- Odd text in paths and queries -------------------------------------------------------------

ODD = [
    "%00",
    "a%00b",
    "%FF",
    "%ED%A0%80",
    "%F0%9F%92%A9",
    "a" * 300,
    "%25",
    "%27",
    "-1",
    "9" * 40,
    "%2F",
]


@pytest.mark.parametrize("odd", ODD)
def test_odd_text_in_paths_and_queries(api: Api, odd: str) -> None:
    """Each parameter of each operation in turn."""
    document = json.loads(DOCUMENT.read_text())
    job = str(enqueue(api)["id"])
    fine = {"job_id": job, "workflow_id": MISSING, "worker_id": "w1", "name": "default"}
    fine |= {"type": "test.job", "version": "1"}
    for path, item in document["paths"].items():
        if path.endswith(STREAMS):
            continue
        for method, operation in item.items():
            for parameter in operation.get("parameters", ()):
                values = {**fine, "code": "conflict"}
                query = ""
                if parameter["in"] == "path":
                    values[parameter["name"]] = odd
                elif parameter["in"] == "query":
                    query = f"?{parameter['name']}={odd}"
                else:
                    continue
                url = path.format(**values) + query
                answer = api(method.upper(), f"/{url}", None if method == "get" else b"{}")
                headers = {name.lower(): value for name, value in answer.headers.items()}
                check_error(answer.status, headers, answer.raw, f"{method} {url}")


# --- What was found ----------------------------------------------------------------------------


@pytest.mark.every_database
@pytest.mark.parametrize("queue", [[], {}, 7, ["a"]])
def test_a_queue_that_is_no_string(api: Api, queue: Any) -> None:
    answer = api("PATCH", f"/jobs/{enqueue(api)['id']}", {"queue": queue})
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert answer.body["error"]["details"]["field"] == "queue"
