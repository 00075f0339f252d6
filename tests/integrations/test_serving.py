"""The server of examples/serving, run for real on loopback: it answers what the classifier says."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from metricfit.store.onnx import to_onnx
from tests.helper import make_classifier

for library in ("fastapi", "uvicorn", "onnxruntime"):
    pytest.importorskip(library, reason=f"{library} is not installed: make test-slow installs it")

FOLDER = Path(__file__).parents[2] / "examples" / "serving"


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(40, 10, 200), "plan": rng.choice(["basic", "gold"], 200)})
    frame["since"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, 200), "D")
    frame.loc[::9, "age"] = np.nan
    frame["plan"] = frame["plan"].astype(object).where(np.arange(200) % 7 > 0, None)
    return frame


@pytest.fixture(scope="module")
def classifier(table):
    y = np.where(table["age"].fillna(0) + 20 * (table["plan"] == "gold") > 50, "stays", "leaves")
    return make_classifier("f1", models="boosting", cv=2, baseline=False, random_state=0).fit(table, y)


@pytest.fixture(scope="module")
def ask(classifier, tmp_path_factory):
    model = tmp_path_factory.mktemp("serving") / "model.onnx"
    to_onnx(classifier, model)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(FOLDER), "app:app", "--port", str(port)]
    process = subprocess.Popen(command, env={**os.environ, "MODEL": str(model)}, stderr=subprocess.DEVNULL)

    def ask(path, content=None):
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)

    try:
        for _ in range(600):
            try:
                ask("/about")
                break
            except urllib.error.URLError:
                assert process.poll() is None, "the server has ended"
                time.sleep(0.2)
        yield ask
    finally:
        process.terminate()
        process.wait(30)


def test_it_says_what_the_classifier_says(ask, classifier, table):
    rows = table.assign(since=table["since"].dt.strftime("%Y-%m-%dT%H:%M")).astype(object)
    rows = rows.where(rows.notna(), None).to_dict(orient="records")
    status, answer = ask("/predict", {"rows": rows})
    assert status == 200
    assert answer["labels"] == classifier.predict(table).tolist()
    proba = pd.DataFrame(answer["probabilities"])[classifier.classes_.tolist()].to_numpy()
    np.testing.assert_allclose(proba, classifier.predict_proba(table), atol=1e-12)
    about = ask("/about")[1]
    assert about["inputs"] == {"age": "double", "plan": "text", "since": "date"}
    assert about["rule_id"] == answer["rule_id"]
    assert about["decision_rule"] == json.loads(classifier.decision_rule_.to_json())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": "old"}, "'age': expected a double; could not convert"),
        ({"since": "tomorrow"}, "'since': expected a date; Invalid isoformat"),
        ({"since": "2024-02-29T00:00+01:00"}, "'since': expected a date; can't subtract"),
    ],
)
def test_a_wrong_value_is_named(ask, change, message):
    row = {"age": 51, "plan": "gold", "since": "2024-02-29"}
    status, answer = ask("/predict", {"rows": [row, row | change]})
    assert status == 422
    assert answer["detail"].startswith(message)


def test_a_missing_column_is_named_and_no_rows_are_refused(ask):
    status, answer = ask("/predict", {"rows": [{"age": 51, "plan": "gold"}]})
    assert (status, answer["detail"]) == (422, "'since': a row lacks this column; send null for a gap")
    assert ask("/predict", {"rows": []})[0] == 422
