"""A thin layer over ``onnx.helper``: nodes by name, constants as they come."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Graph"]

_OPSET, _ML_OPSET, _IR_VERSION = 17, 2, 8
_TYPES = {"float": "FLOAT", "double": "DOUBLE", "int64": "INT64", "bool": "BOOL", "text": "STRING"}


class Graph:
    """A graph under construction; every method returns the name of a value in it.

    Attributes:
        inputs: The inputs so far: name and type.
    """

    def __init__(self) -> None:
        try:
            import onnx
        except ImportError:
            raise ImportError(
                "exporting needs the package onnx; install it with: pip install 'metricfit[onnx]'"
            ) from None
        self._onnx: Any = onnx
        self.inputs: dict[str, str] = {}
        self._values: dict[str, list[Any]] = {"nodes": [], "constants": [], "inputs": [], "outputs": []}
        self._count = 0

    def input(self, name: str, kind: str, width: int = 1) -> str:
        """An input (rows, width)."""
        self.inputs[name] = kind
        self._values["inputs"].append(self._info(name, kind, ["rows", width]))
        return name

    def output(self, name: str, value: str, kind: str, shape: list[Any]) -> None:
        """Give a value as a result."""
        self._values["nodes"].append(self._onnx.helper.make_node("Identity", [value], [name]))
        self._values["outputs"].append(self._info(name, kind, shape))

    def constant(self, value: Any) -> str:
        """A constant: a number (double), an array, or an array of text."""
        name = self._name("constant")
        array = np.asarray(value)
        if array.dtype == object:
            encoded = [str(v).encode() for v in array.ravel()]
            tensor = self._onnx.helper.make_tensor(name, self._onnx.TensorProto.STRING, array.shape, encoded)
        else:
            tensor = self._onnx.numpy_helper.from_array(np.ascontiguousarray(array), name)
        self._values["constants"].append(tensor)
        return name

    def node(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """The result of an operator; ``to`` of a cast is the name of a type."""
        if "to" in attributes:
            attributes["to"] = getattr(self._onnx.TensorProto, _TYPES[attributes["to"]])
        name = self._name(operator)
        made = self._onnx.helper.make_node(operator, list(inputs), [name], domain=domain, **attributes)
        self._values["nodes"].append(made)
        return name

    def linear(self, value: str, factor: float, term: float = 0.0) -> str:
        """Factor · value + term."""
        if factor != 1.0:
            value = self.node("Mul", value, self.constant(factor))
        return self.node("Add", value, self.constant(term)) if term else value

    def floor_divide(self, value: str, divisor: float) -> str:
        """⌊value / divisor⌋."""
        return self.node("Floor", self.node("Div", value, self.constant(divisor)))

    def clip(self, value: str, low: float, high: float) -> str:
        """The value kept between two bounds."""
        return self.node("Min", self.node("Max", value, self.constant(low)), self.constant(high))

    def as_float(self, value: str) -> str:
        """A cast to float32."""
        return self.node("Cast", value, to="float")

    def normalised(self, value: str) -> str:
        """Rows divided by their sums."""
        total = self.node("ReduceSum", value, self.constant(np.array([1])), keepdims=1)
        return self.node("Div", value, total)

    def save(self, path: Path) -> None:
        """Check the graph and write it in one step."""
        helper = self._onnx.helper
        graph = helper.make_graph(
            self._values["nodes"],
            "metricfit",
            self._values["inputs"],
            self._values["outputs"],
            self._values["constants"],
        )
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", _ML_OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="metricfit", ir_version=_IR_VERSION)
        self._onnx.checker.check_model(model)
        path = path.absolute()
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(model.SerializeToString())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def _info(self, name: str, kind: str, shape: list[Any]) -> Any:
        element = getattr(self._onnx.TensorProto, _TYPES[kind])
        return self._onnx.helper.make_tensor_value_info(name, element, shape)

    def _name(self, kind: str) -> str:
        self._count += 1
        # Inputs are named by columns: a name of ours must not be one of theirs.
        return f"metricfit/{kind}_{self._count}"
