"""The built-in network differentiated by hand: the matrix products of a step and little else.

On a network of a tabular size autograd, fresh memory for every intermediate result and separate passes for dropout took
more time than the products. Here every result has its place from the first step on, and one comparison undoes ReLU and
dropout together: what is not positive afterwards was cut off by one of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.training.networks import MemberDropout, MemberLinear, MemberMLP

__all__ = ["DirectMLP"]


class DirectMLP:
    """Forward and backward pass of a network in training mode, without autograd.

    Args:
        network: Its weights are read where they are; its parameters get their gradients.

    >>> network = MemberMLP(5, 10, 3, (32, 16))
    >>> direct = DirectMLP(network)
    >>> direct.forward(torch.zeros(5, 4, 10)).shape
    torch.Size([5, 4, 3])
    >>> direct.backward(torch.ones(5, 4, 3))
    >>> network.layers[0].weight.grad.shape
    torch.Size([5, 10, 32])
    """

    def __init__(self, network: MemberMLP) -> None:
        modules = list(network.layers)
        self.linears = [module for module in modules if isinstance(module, MemberLinear)]
        dropouts = [module for module in modules if isinstance(module, MemberDropout)]
        self.dropouts: list[MemberDropout | None] = [*dropouts] if dropouts else [None] * (len(self.linears) - 1)
        self._rows = torch.empty(0)
        self._inputs: list[Tensor] = []
        self._outputs: list[Tensor] = []
        self._gradients: list[Tensor] = []
        for parameter in network.parameters():
            parameter.grad = torch.zeros_like(parameter)

    def take(self, table: Tensor, index: Tensor) -> Tensor:
        """Rows of a table by an index (members, n), as (members, n, columns); overwritten by the next call."""
        shape = (*index.shape, table.shape[1])
        if self._rows.shape != shape:
            self._rows = table.new_empty(shape)
        torch.index_select(table, 0, index.flatten(), out=self._rows.view(-1, shape[2]))
        return self._rows

    @torch.no_grad()
    def forward(self, input: Tensor) -> Tensor:
        """Logits (members, n, out_features) of inputs (members, n, in_features); overwritten by the next call."""
        self._prepare(input)
        self._inputs = [input]
        for linear, dropout, output in zip(self.linears, self.dropouts, self._outputs, strict=False):
            torch.bmm(self._inputs[-1], linear.factor(), out=output)
            output.add_(linear.bias).relu_()
            if dropout is not None:
                output.mul_(dropout.mask(output))
            self._inputs.append(output)
        last = self.linears[-1]
        return torch.bmm(self._inputs[-1], last.factor(), out=self._outputs[-1]).add_(last.bias)

    @torch.no_grad()
    def backward(self, gradient: Tensor) -> None:
        """Set the gradients of all parameters, given that of the last logits."""
        for depth in range(len(self.linears) - 1, -1, -1):
            linear, input = self.linears[depth], self._inputs[depth]
            weight, bias = linear.weight, linear.bias
            torch.sum(gradient, dim=1, keepdim=True, out=bias.grad)
            if linear.is_narrow:
                weight.grad.copy_(torch.bmm(gradient.mT, input).mT)  # type: ignore[union-attr]
            else:
                torch.bmm(input.mT, gradient, out=weight.grad)
            if depth:
                dropout = self.dropouts[depth - 1]
                scale = 1.0 if dropout is None else 1 / (1 - dropout.rate)
                before = self._gradients[depth - 1].baddbmm_(gradient, weight.mT, beta=0, alpha=scale)
                gradient = torch.ops.aten.threshold_backward.grad_input(before, input, 0, grad_input=before)

    def _prepare(self, input: Tensor) -> None:
        """Places for everything, if the size of the batch is new."""
        if self._outputs and self._outputs[0].shape[:2] == input.shape[:2]:
            return
        sizes = [(*input.shape[:2], linear.weight.shape[2]) for linear in self.linears]
        self._outputs = [input.new_empty(size) for size in sizes]
        self._gradients = [input.new_empty(size) for size in sizes[:-1]]
