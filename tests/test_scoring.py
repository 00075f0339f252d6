"""A classifier as a function of frames: what engines send to their workers."""

from __future__ import annotations

import pickle
import shutil
import sys

import numpy as np
import pandas as pd
import pytest

from metricfit import MetricClassifier
from metricfit.data import BadArgumentError
from metricfit.scoring import Scorer, predict_batches
from tests.helper import make_classifier


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"a": random.normal(size=300), "place": random.choice(["north", "south"], 300)})
    frame.loc[random.random(300) < 0.05, "a"] = np.nan
    frame["y"] = np.where(frame["a"].fillna(0) + random.normal(size=300) > 0.8, "yes", "no")
    return frame.assign(id=range(300))


@pytest.fixture(scope="module")
def classifier(rows: pd.DataFrame) -> MetricClassifier:
    model = MetricClassifier("f1", models=["boosting", "network"], recipe="log_loss", random_state=0, verbose=False)
    model.set_params(recipe__max_epochs=2, recipe__min_updates=1, callbacks=[lambda event: None], cv=2)
    return model.fit(rows[["a", "place"]], rows["y"])


def expected(classifier: MetricClassifier, rows: pd.DataFrame) -> pd.DataFrame:
    X = rows[["a", "place"]]
    proba = classifier.held_out_.calibration.apply(classifier.predict_proba(X, raw=True))
    found = {"id": rows["id"].to_numpy(), "prediction": classifier.predict(X)}
    return pd.DataFrame({**found, "probability_no": proba[:, 0], "probability_yes": proba[:, 1]})


def test_a_scorer_sent_elsewhere_gives_the_same_rows_whatever_the_batches(
    classifier: MetricClassifier, rows: pd.DataFrame
) -> None:
    content = pickle.dumps(classifier.scorer(keep=["id"]))  # though a callback is a lambda
    sent = pickle.loads(content)
    frames = [rows[:7], rows[7:7], rows[7:200], rows[200:].iloc[:, ::-1]]
    parts = list(sent(iter(frames)))
    assert [len(part) for part in parts] == [7, 0, 193, 100]
    pd.testing.assert_frame_equal(
        pd.concat([p for p in parts if len(p)], ignore_index=True), expected(classifier, rows), rtol=1e-7
    )
    batches = predict_batches(classifier, frames, keep=["id"])
    pd.testing.assert_frame_equal(
        pd.concat(list(batches)[2:], ignore_index=True), pd.concat(parts[2:], ignore_index=True)
    )
    assert classifier.callbacks  # the classifier itself keeps what is not sent
    assert classifier.held_out_ is not None
    assert sent.classifier.held_out_ is None


def test_raw_probabilities_labels_and_errors(classifier: MetricClassifier, rows: pd.DataFrame) -> None:
    raw = classifier.scorer(raw=True)(rows)[["probability_no", "probability_yes"]]
    np.testing.assert_array_equal(raw, classifier.predict_proba(rows[["a", "place"]], raw=True))
    with pytest.raises(BadArgumentError, match="keep: no column 'z'; "):
        classifier.scorer(keep=["z"])(rows)
    with pytest.raises(BadArgumentError, match="keep: 'prediction' is the name of a result"):
        classifier.scorer(keep=["prediction"])
    with pytest.raises(ValueError, match="columns seen in fit are missing: 'place'"):
        classifier.scorer()(rows[["a"]])
    several = make_classifier("f1:average=macro", max_epochs=1, min_updates=1, cv=2, baseline=False, verbose=False)
    labels = pd.DataFrame({"p": rows["y"] == "yes", "q": rows["a"] > 0}).astype(int)
    scorer = several.fit(rows[["a"]], labels).scorer()
    assert scorer.schema.split(", ") == [
        "`prediction_p` long", "`prediction_q` long", "`probability_p` double", "`probability_q` double",
    ]  # fmt: skip
    np.testing.assert_array_equal(scorer(rows)[["prediction_p", "prediction_q"]], several.predict(rows[["a"]]))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
def test_ray_data_gives_the_local_rows(classifier: MetricClassifier, rows: pd.DataFrame) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'metricfit[ray]'")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        dataset = ray.data.from_pandas([rows[:100], rows[100:]])
        found = dataset.map_batches(classifier.scorer(keep=["id"]), batch_format="pandas", batch_size=64).to_pandas()
    finally:
        ray.shutdown()
    found = found.sort_values("id", ignore_index=True)
    pd.testing.assert_frame_equal(found, expected(classifier, rows), check_dtype=False, rtol=1e-7)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
@pytest.mark.filterwarnings("ignore:The copy keyword is deprecated")  # PySpark passes it to pandas
def test_spark_gives_the_local_rows(
    classifier: MetricClassifier, rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = pytest.importorskip("pyspark.sql", reason="Spark is not installed: pip install 'metricfit[spark]'")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, and there is none: apt-get install default-jre-headless")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    session = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        given = session.createDataFrame(
            rows.astype(object).where(rows.notna(), None), "a double, place string, y string, id long"
        )
        scorer: Scorer = classifier.scorer(keep=["id"])
        mapped = given.mapInPandas(scorer, f"id long, {scorer.schema}").toPandas()
        inner = classifier.scorer()

        def decided(rows: pd.DataFrame) -> pd.DataFrame:  # PySpark reads the types of a function
            return inner(rows)

        scored = sql.functions.pandas_udf(decided, inner.schema)
        column = (
            given.select("id", scored(sql.functions.struct("a", "place")).alias("s")).select("id", "s.*").toPandas()
        )
    finally:
        session.stop()
    for found in (mapped, column):
        found = found.sort_values("id", ignore_index=True)
        pd.testing.assert_frame_equal(found, expected(classifier, rows), check_dtype=False, rtol=1e-7)
