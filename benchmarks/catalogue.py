"""What is known of each named benchmark set: its files, its split, its place on OpenML, its peculiarities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BUNDLED", "KEEL_FOLDER", "SOURCES", "Source"]

BUNDLED = ("breast_cancer", "digits", "iris", "wine")
"""Sets that come with scikit-learn."""

KEEL_FOLDER = "keel_imbalanced"
"""Folder of the KEEL sets, named ``keel/<file name>``."""

_CODES = "Categories are integer codes, kept as given: name them in categorical_features to treat them as categories."


@dataclass(frozen=True)
class Source:
    """Where a named set is found, and how to read it.

    Attributes:
        files: Files under the data folder, concatenated in this order.
        note: What a user should know about the copy.
        train_rows: The first rows that form the official (or customary) training part, 0 where there is none.
        text: Whether the features are text, in which "?" is no gap.
        target: Name of the target's column.
        drop: Columns that are no features.
        invert: Whether the 0/1 target of the file is turned round.
        openml: Identifier of the same set on OpenML, if there is one.
        openml_rows: Rows that OpenML's copy must have to be taken for the set.
        openml_labels: OpenML's labels in terms of the file's, where they differ and the mapping is known.
        image_shape: Height, width and channels as stored, for images.
    """

    files: tuple[str, ...]
    note: str = ""
    train_rows: int = 0
    text: bool = False
    target: str = "target"
    drop: tuple[str, ...] = ()
    invert: bool = False
    openml: int | None = None
    openml_rows: int = 0
    openml_labels: Mapping[str, Any] = field(default_factory=dict)
    image_shape: tuple[int, ...] = ()


def _csv(name: str, **details: Any) -> Source:
    return Source(files=(f"{name}/{name}.csv.gz",), **details)


SOURCES: dict[str, Source] = {
    "abalone": _csv("abalone", note="Target: rings, 28 classes of 1 to 689 rows.", openml=183, openml_rows=4177),
    "adult": Source(
        files=("adult/adult_train.csv.gz", "adult/adult_test.csv.gz"),
        note="1 = income above 50K. Gaps are NaN. The papers drop fnlwgt.",
        train_rows=32561,
        openml=1590,
        openml_rows=48842,
        openml_labels={"<=50K": 0, ">50K": 1},
    ),
    "ann_thyroid": _csv("ann_thyroid", note="3 = normal. A2 to A16 are yes/no columns.", train_rows=3772),
    "cifar10": Source(
        files=("cifar10/train_1.npz", "cifar10/train_2.npz", "cifar10/test.npz"),
        note="Classes: airplane automobile bird cat deer dog frog horse ship truck. The folder's copy has the first "
        "20,000 training images and the test images.",
        train_rows=20000,
        openml=40927,
        openml_rows=60000,
        image_shape=(32, 32, 3),
    ),
    "cocktail_party": Source(
        files=("cocktail_party/pairs.csv.gz",),
        note="1 = the pair is not in the same group (1,454 pairs), as the papers count. 22 features: the identifiers "
        "and the always-zero dyad1_y, dyad2_y are left out.",
        drop=("frame", "stamp", "person1", "person2", "dyad1_y", "dyad2_y"),
        invert=True,
    ),
    "connect4": _csv("connect4", note=_CODES, openml=40668, openml_rows=67557),
    "creditcard": Source(
        files=("creditcard/creditcard.parquet",),
        note="1 = fraud; rows in order of time. The papers drop Time and take the logarithm of Amount.",
        openml=1597,
        openml_rows=284807,
    ),
    "dermatology": _csv(
        "dermatology",
        note="KEEL's version without the 8 rows of unknown age; OpenML's has them.",
        openml=35,
        openml_rows=366,
    ),
    "diabetes_prediction": Source(
        files=("anyloss/diabetes_prediction.csv.gz",), note="1 = diabetes; 100,000 people.", target="diabetes"
    ),
    "fars": _csv("fars", note=_CODES, openml=40672, openml_rows=100968),
    "fashion_mnist": Source(
        files=("fashion_mnist/train.npz", "fashion_mnist/test.npz"),
        note="Classes: T-shirt trouser pullover dress coat sandal shirt sneaker bag ankle-boot.",
        train_rows=60000,
        openml=40996,
        openml_rows=70000,
        image_shape=(28, 28),
    ),
    "glass": _csv("glass", note="Six kinds of glass, numbered 1 to 7 without 4.", openml=41, openml_rows=214),
    "haberman": _csv(
        "haberman",
        note="1 = died within five years.",
        openml=43,
        openml_rows=306,
        openml_labels={"1": 0, "2": 1},
    ),
    "kddcup99_10pct": _csv(
        "kddcup99_10pct",
        note=f"23 classes of 2 to 280,790 rows, many duplicates. {_CODES}",
        openml=1113,
        openml_rows=494020,
    ),
    "krkopt": _csv("krkopt", note=_CODES, openml=184, openml_rows=28056),
    "letter": _csv(
        "letter",
        note="1 = A to 26 = Z. The first 16,000 rows are the customary training part.",
        train_rows=16000,
        openml=6,
        openml_rows=20000,
        openml_labels={chr(ord("A") + i): i + 1 for i in range(26)},
    ),
    "mammography": _csv(
        "mammography",
        note="1 = microcalcification.",
        openml=310,
        openml_rows=11183,
        openml_labels={"-1": 0, "1": 1},
    ),
    "new_thyroid": _csv("new_thyroid", note="1 = normal.", openml=40682, openml_rows=215),
    "nursery": _csv("nursery", note="Five classes of 2 to 4,320 rows.", openml=26, openml_rows=12960),
    "reuters_corn": Source(
        files=("reuters_corn/reuters_corn_train.csv.gz", "reuters_corn/reuters_corn_test.csv.gz"),
        note="1 = topic corn; one column of text.",
        train_rows=1554,
        text=True,
    ),
    "shuttle": _csv(
        "shuttle", note="Seven classes of 10 to 45,586 rows.", train_rows=43500, openml=40685, openml_rows=58000
    ),
    "sms_spam": _csv("sms_spam", note="1 = spam; one column of text.", text=True),
    "winequality_red": _csv("winequality_red", note="Target: quality, 3 to 8.", openml=40691, openml_rows=1599),
}
