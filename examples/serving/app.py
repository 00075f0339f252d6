"""An exported model behind HTTP: the ONNX file decides, rule and all, without metricfit or torch on the server.

metricfit export model --format onnx --out model.onnx
pip install fastapi uvicorn onnxruntime
MODEL=model.onnx uvicorn --app-dir examples/serving app:app
curl localhost:8000/predict -H 'content-type: application/json' -d '{"rows": [{"age": 51, "since": "2024-02-29"}]}'
"""

import hashlib
import json
import os
from datetime import datetime, timedelta
from typing import Annotated, Any

import numpy as np
import onnxruntime
from fastapi import Body, FastAPI, HTTPException

session = onnxruntime.InferenceSession(os.environ.get("MODEL", "model.onnx"), providers=["CPUExecutionProvider"])
about = session.get_modelmeta().custom_metadata_map
inputs, rule = json.loads(about["inputs"]), json.loads(about["decision_rule"])
rule_id = hashlib.sha256(about["decision_rule"].encode()).hexdigest()[:12]
read = {
    "text": str,
    "double": float,
    "date": lambda t: (datetime.fromisoformat(t) - datetime(2000, 1, 1)) / timedelta(1),
}
app = FastAPI(title="A model of metricfit")


def column(name: str, kind: str, rows: list[dict[str, Any]]) -> np.ndarray:
    """One input of the graph, (rows, 1); null is a gap, but every row has to name the column."""
    try:
        values = [read[kind](row[name]) if row[name] is not None else "" if kind == "text" else np.nan for row in rows]
    except KeyError:
        raise HTTPException(422, f"{name!r}: a row lacks this column; send null for a gap") from None
    except (TypeError, ValueError) as error:
        raise HTTPException(422, f"{name!r}: expected a {kind}; {error}") from None
    return np.array(values, dtype=object if kind == "text" else np.float64)[:, None]


@app.get("/about")
def describe() -> dict[str, Any]:
    return {"inputs": inputs, "decision_rule": rule, "rule_id": rule_id}


@app.post("/predict")
def predict(rows: Annotated[list[dict[str, Any]], Body(embed=True, min_length=1, max_length=10_000)]) -> dict[str, Any]:
    label, proba = session.run(["label", "probabilities"], {n: column(n, k, rows) for n, k in inputs.items()})
    probabilities = [dict(zip(map(str, rule["classes"]), row, strict=True)) for row in proba.tolist()]
    return {"labels": label.tolist(), "probabilities": probabilities, "rule_id": rule_id}
