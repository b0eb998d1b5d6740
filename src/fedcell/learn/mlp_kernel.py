"""The compiled loops of the MLP engine: one job of local training, and one piece of an evaluation.

Layer 0 holds nearly all weights (50,176 of 50,816 for 784-64-10) and its input is sparse, so it has loops of its own.
Its weights lie by input: row p holds the weights of input p to all units, ``width`` units to a strip. Two samples are
taken at once. The bits of their common mask name the inputs that are nonzero in at least one of them; for each such p

    forward     z_i += x_ip W_p,   z_j += x_jp W_p           z in registers: 4 loads, 8 multiply-adds
    update      W_p += x_ip g_i + x_jp g_j                   g in registers: 4 loads, 8 multiply-adds, 4 stores

in 512-bit vectors for 64 units. Inputs are x - c with x sparse and c = shift/scale. The constant's part of each step is
the same for all p, so it is kept out of W: the true weights are W_p + v with v = -c G, G the sum of all steps g so far,
and with R = sum_p W_p, S = sum_p x_p, P inputs

    z = sum_p x_p W_p + (S - c P) v + (b - c R),        R += S g with every step.

G and R are carried in float64: they are sums over a whole job.

The layers above are small and dense: weights (out, in) as in the model vector, rows padded with zeros to ``width``.
A row of the table ``layers`` describes each layer, see the column names below.
"""

from math import log
from typing import Any

import numpy as np
from numba import njit

from fedcell.learn.simd import (
    STEP,
    item,
    lowest_bit,
    pixel,
    prefetch,
    vexp,
    vfma,
    vgate,
    vload,
    vmax,
    vmuladd,
    vstore,
    vsum,
    vzero,
)
from fedcell.runtime import cached_njit

# Columns of ``layers``: sizes, padded row lengths, where the layer starts in the model vector and, in the workspace,
# its weights, biases, outputs (batch, OUT_PAD) and the steps of its pre-activations (batch, OUT_PAD).
IN, IN_PAD, OUT, OUT_PAD, VECTOR, WEIGHTS, BIAS, OUTPUT, DELTA, COLUMNS = range(10)

ONE = (0,)  # lanes of a 16-float vector

# nnan and ninf are left out: a diverged model has to show as NaN, not as a number. Numba sets the flags on all that a
# function holds, intrinsics too, so whoever calls vexp must not reassociate: (x + 1.5 * 2^23) - 1.5 * 2^23 is not x.
compiled = njit(nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz", "arcp"})
entry = cached_njit(nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz", "arcp"})
in_order = njit(nogil=True, error_model="numpy", fastmath={"contract"})


@compiled
def unpack(model: Any, layers: Any, work: Any, column_sums: Any, lanes: Any) -> None:
    """Lay a model vector out in the workspace; column_sums = sum_p W_p of layer 0, in float64."""
    width = STEP * len(lanes)
    inputs, units, strips = layers[0, IN], layers[0, OUT], layers[0, OUT_PAD] // width
    weights = layers[0, WEIGHTS]
    column_sums[:] = 0.0
    work[weights : weights + strips * width * inputs] = 0.0
    for first in range(0, inputs, STEP):  # 16 inputs at a time: both sides of the transposition stay in L1
        for unit in range(units):
            at = weights + (unit // width * inputs) * width + unit % width
            last = min(first + STEP, inputs)
            source = model[layers[0, VECTOR] + unit * inputs + first : layers[0, VECTOR] + unit * inputs + last]
            rows = work[at + first * width : at + last * width : width]
            total = 0.0
            for q in range(last - first):
                rows[q] = source[q]
                total += source[q]
            column_sums[unit] += total
    for k in range(layers.shape[0]):
        n_in, n_out = layers[k, IN], layers[k, OUT]
        work[layers[k, BIAS] : layers[k, BIAS] + layers[k, OUT_PAD]] = 0.0
        for o in range(n_out):
            work[layers[k, BIAS] + o] = model[layers[k, VECTOR] + n_in * n_out + o]
            if k > 0:
                row = layers[k, WEIGHTS] + o * layers[k, IN_PAD]
                work[row : row + layers[k, IN_PAD]] = 0.0
                work[row : row + n_in] = model[layers[k, VECTOR] + o * n_in : layers[k, VECTOR] + (o + 1) * n_in]


@compiled
def pack(layers: Any, work: Any, steps: Any, c: Any, model: Any, lanes: Any) -> None:
    """Write the workspace back as a model vector, with the constant's part v = -c G added to layer 0."""
    width = STEP * len(lanes)
    inputs = layers[0, IN]
    for first in range(0, inputs, STEP):
        for unit in range(layers[0, OUT]):
            at = layers[0, WEIGHTS] + (unit // width * inputs) * width + unit % width
            shared = np.float32(-c * steps[unit])
            last = min(first + STEP, inputs)
            target = model[layers[0, VECTOR] + unit * inputs + first : layers[0, VECTOR] + unit * inputs + last]
            rows = work[at + first * width : at + last * width : width]
            for q in range(last - first):
                target[q] = rows[q] + shared
    for k in range(layers.shape[0]):
        n_in, n_out, vector = layers[k, IN], layers[k, OUT], layers[k, VECTOR]
        for o in range(n_out):
            bias = work[layers[k, BIAS] + o]
            model[vector + n_in * n_out + o] = np.float32(bias + steps[o]) if k == 0 else bias
            if k > 0:
                row = layers[k, WEIGHTS] + o * layers[k, IN_PAD]
                model[vector + o * n_in : vector + (o + 1) * n_in] = work[row : row + n_in]


@compiled
def set_constants(layers: Any, work: Any, steps: Any, column_sums: Any, c: Any, v: Any, bias: Any) -> None:
    """What layer 0 adds to the sparse product: v = -c G and the bias b + G - c R."""
    for unit in range(layers[0, OUT]):
        v[unit] = np.float32(-c * steps[unit])
        bias[unit] = np.float32(work[layers[0, BIAS] + unit] + steps[unit] - c * column_sums[unit])


@compiled
def ask_for(samples: Any, ids: Any, b: Any, inputs: Any) -> None:
    """Prefetch sample b of the batch to come, if there is one: it lies anywhere in the training set."""
    if b < ids.size:
        x, masks = samples[0], samples[1]
        words, line = (inputs + 63) // 64, 64 // x.itemsize
        i = item(ids, b)
        for p in range(0, inputs, line):
            prefetch(x, i * inputs + p)
        for word in range(0, words, 8):
            prefetch(masks, i * words + word)


@compiled
def first_forward(
    samples: Any, ids: Any, coming: Any, layers: Any, work: Any, v: Any, bias: Any, c: Any, lanes: Any
) -> None:
    """Layer 0 of the samples ``ids``: outputs (batch, OUT_PAD), through ReLU if a layer follows."""
    x, masks, sums, table = samples
    width = STEP * len(lanes)
    inputs, pad, words = layers[0, IN], layers[0, OUT_PAD], (layers[0, IN] + 63) // 64
    center = np.float32(c * inputs)
    hidden = layers.shape[0] > 1
    n = ids.size
    for strip in range(0, pad, width):
        weights = layers[0, WEIGHTS] + strip * inputs
        for b in range(0, n, 2):
            i, j = item(ids, b), item(ids, min(b + 1, n - 1))  # the last of an odd batch is its own partner
            ask_for(samples, coming, b, inputs)
            zi = vfma(vload(bias, strip, lanes), item(sums, i) - center, vload(v, strip, lanes))
            zj = vfma(vload(bias, strip, lanes), item(sums, j) - center, vload(v, strip, lanes))
            for word in range(words):
                bits = item(masks, i * words + word) | item(masks, j * words + word)
                while bits != np.uint64(0):
                    p = word * 64 + lowest_bit(bits)
                    bits &= bits - np.uint64(1)
                    row = vload(work, weights + p * width, lanes)
                    zi = vfma(zi, pixel(x, i * inputs + p, table), row)
                    zj = vfma(zj, pixel(x, j * inputs + p, table), row)
            at = layers[0, OUTPUT] + b * pad + strip
            vstore(work, at, vgate(zi, zi) if hidden else zi)
            if b + 1 < n:
                vstore(work, at + pad, vgate(zj, zj) if hidden else zj)


@compiled
def first_update(
    samples: Any, ids: Any, coming: Any, layers: Any, work: Any, steps: Any, column_sums: Any, scratch: Any, lanes: Any
) -> None:
    """Add the batch's steps g (batch, OUT_PAD) to layer 0: W_p += x_p g, G += g, R += S g."""
    x, masks, sums, table = samples
    width = STEP * len(lanes)
    inputs, pad, words = layers[0, IN], layers[0, OUT_PAD], (layers[0, IN] + 63) // 64
    n = ids.size
    for strip in range(0, pad, width):
        weights = layers[0, WEIGHTS] + strip * inputs
        for b in range(0, n, 2):
            i, j = item(ids, b), item(ids, min(b + 1, n - 1))
            ask_for(samples, coming, b + 1, inputs)
            at = layers[0, DELTA] + b * pad + strip
            gi = vload(work, at, lanes)
            gj = vload(work, at + pad, lanes) if b + 1 < n else vzero(lanes)
            for word in range(words):
                bits = item(masks, i * words + word) | item(masks, j * words + word)
                while bits != np.uint64(0):
                    p = word * 64 + lowest_bit(bits)
                    bits &= bits - np.uint64(1)
                    row = vfma(vload(work, weights + p * width, lanes), pixel(x, i * inputs + p, table), gi)
                    vstore(work, weights + p * width, vfma(row, pixel(x, j * inputs + p, table), gj))
        g_sum, sg_sum = vzero(lanes), vzero(lanes)
        for b in range(n):
            g = vload(work, layers[0, DELTA] + b * pad + strip, lanes)
            g_sum = vfma(g_sum, np.float32(1.0), g)
            sg_sum = vfma(sg_sum, item(sums, item(ids, b)), g)
        vstore(scratch, 0, g_sum)
        vstore(scratch, width, sg_sum)
        for unit in range(width):
            steps[strip + unit] += scratch[unit]
            column_sums[strip + unit] += scratch[width + unit]


@compiled
def upper_forward(layers: Any, k: Any, n: Any, work: Any, lanes: Any) -> None:
    """Layer k >= 1: outputs (n, OUT_PAD) = input W^T + b, through ReLU unless it is the last."""
    width = STEP * len(lanes)
    pad, out_pad = layers[k, IN_PAD], layers[k, OUT_PAD]
    hidden = k + 1 < layers.shape[0]
    for o in range(layers[k, OUT]):
        weights = layers[k, WEIGHTS] + o * pad
        bias = item(work, layers[k, BIAS] + o)
        for b in range(n):
            source = layers[k - 1, OUTPUT] + b * pad
            total = vzero(lanes)
            for strip in range(0, pad, width):
                total = vmuladd(total, vload(work, weights + strip, lanes), vload(work, source + strip, lanes))
            z = bias + vsum(total)
            work[layers[k, OUTPUT] + b * out_pad + o] = np.float32(0.0) if hidden and z <= 0 else z


@compiled
def upper_backward(layers: Any, k: Any, n: Any, work: Any, lanes: Any) -> None:
    """Layer k >= 1: hand the steps down (through W and ReLU's derivative), then take this layer's own."""
    width = STEP * len(lanes)
    pad, out_pad = layers[k, IN_PAD], layers[k, OUT_PAD]
    weights, delta = layers[k, WEIGHTS], layers[k, DELTA]
    source, below = layers[k - 1, OUTPUT], layers[k - 1, DELTA]
    for strip in range(0, pad, width):
        for b in range(n):
            total = vzero(lanes)
            for o in range(layers[k, OUT]):
                g = item(work, delta + b * out_pad + o)
                total = vfma(total, g, vload(work, weights + o * pad + strip, lanes))
            at = b * pad + strip
            vstore(work, below + at, vgate(vload(work, source + at, lanes), total))
        for o in range(layers[k, OUT]):
            row = vload(work, weights + o * pad + strip, lanes)
            for b in range(n):
                g = item(work, delta + b * out_pad + o)
                row = vfma(row, g, vload(work, source + b * pad + strip, lanes))
            vstore(work, weights + o * pad + strip, row)
    for b in range(n):
        for o in range(layers[k, OUT]):
            work[layers[k, BIAS] + o] += work[delta + b * out_pad + o]


@in_order
def exponentials(first: Any, count: Any, layers: Any, work: Any, scratch: Any) -> None:
    """Of the logits of up to 16 samples from ``first`` on: the largest, the sum of exp(logit - largest), and those.

    The samples lie side by side in ``scratch`` (2 + classes, 16), so that each inner loop is over lanes.
    """
    last = layers.shape[0] - 1
    classes, pad = layers[last, OUT], layers[last, OUT_PAD]
    for b in range(count):
        at = layers[last, OUTPUT] + (first + b) * pad
        for o in range(classes):
            scratch[(2 + o) * STEP + b] = item(work, at + o)
    high, total = vload(scratch, 2 * STEP, ONE), vzero(ONE)
    for o in range(3, 2 + classes):
        high = vmax(high, vload(scratch, o * STEP, ONE))
    for o in range(2, 2 + classes):
        y = vexp(vfma(vload(scratch, o * STEP, ONE), np.float32(-1.0), high))
        vstore(scratch, o * STEP, y)
        total = vfma(total, np.float32(1.0), y)
    vstore(scratch, 0, high)
    vstore(scratch, STEP, total)


@compiled
def softmax_steps(labels: Any, ids: Any, layers: Any, work: Any, scratch: Any, rate: Any, rms: Any) -> Any:
    """The last layer's steps: -rate/n (softmax(logits) - onehot(label)), batch of n; and the sum of its losses.

    The third result is the sum of their squares, which costs a logarithm a sample; NaN if it is not wanted.
    """
    last = layers.shape[0] - 1
    classes, pad, n = layers[last, OUT], layers[last, OUT_PAD], ids.size
    factor = np.float32(-rate / n)
    loss, square = 0.0, 0.0 if rms else np.nan
    for first in range(0, n, STEP):
        count = min(STEP, n - first)
        exponentials(first, count, layers, work, scratch)
        sums = 1.0  # of the exponentials, each from 1 to classes: one logarithm for 16 samples
        for b in range(count):
            at = layers[last, DELTA] + (first + b) * pad
            share = factor / scratch[STEP + b]
            label = item(labels, item(ids, first + b))
            for o in range(classes):
                work[at + o] = share * scratch[(2 + o) * STEP + b]
            work[at + label] -= factor
            sums *= np.float64(scratch[STEP + b])
            loss += np.float64(scratch[b]) - item(work, layers[last, OUTPUT] + (first + b) * pad + label)
        loss += log(sums)
        if rms:
            for b in range(count):
                at = layers[last, OUTPUT] + (first + b) * pad + item(labels, item(ids, first + b))
                one = log(np.float64(scratch[STEP + b])) + np.float64(scratch[b]) - item(work, at)
                square += one * one
    return loss, square


@compiled
def score(labels: Any, ids: Any, layers: Any, work: Any, scratch: Any) -> Any:
    """How many of the samples have their largest logit at the label, and the sum of their cross-entropies."""
    last = layers.shape[0] - 1
    right, loss = 0, 0.0
    for first in range(0, ids.size, STEP):
        count = min(STEP, ids.size - first)
        exponentials(first, count, layers, work, scratch)
        for b in range(count):
            at = layers[last, OUTPUT] + (first + b) * layers[last, OUT_PAD]
            best = 0
            for o in range(1, layers[last, OUT]):
                if item(work, at + o) > item(work, at + best):
                    best = o
            label = item(labels, item(ids, first + b))
            right += best == label
            loss += log(np.float64(scratch[STEP + b])) - (item(work, at + label) - np.float64(scratch[b]))
    return right, loss


@compiled
def make_scratch(layers: Any, lanes: Any) -> Any:
    """Room for ``exponentials`` and for the two sums of ``first_update``."""
    return np.zeros(STEP * max(2 + layers[-1, OUT], 2 * len(lanes)), np.float32)


@entry
def train_mlp(
    start: Any,
    out: Any,
    order: Any,
    samples: Any,
    labels: Any,
    layers: Any,
    work: Any,
    setting: Any,
    lanes: Any,
    rms: Any,
) -> Any:
    """One job: SGD from ``start`` over the batches of ``order`` (epochs, D); the model it ends with is in ``out``.

    ``samples`` is (x flat, masks flat, sums, table), ``setting`` is (learning rate, batch size, c). Returns the mean
    loss of the samples, each before the step it was part of, and the mean of its square, NaN if not ``rms``.
    """
    rate, batch, c = setting
    loss, square = 0.0, 0.0
    pad = layers[0, OUT_PAD]
    steps, column_sums = np.zeros(pad), np.zeros(pad)
    v, bias = np.zeros(pad, np.float32), np.zeros(pad, np.float32)
    scratch = make_scratch(layers, lanes)
    unpack(start, layers, work, column_sums, lanes)
    for epoch in range(order.shape[0]):
        for first in range(0, order.shape[1], batch):
            ids = order[epoch, first : first + batch]
            coming = order[epoch, first + batch : first + 2 * batch]
            set_constants(layers, work, steps, column_sums, c, v, bias)
            first_forward(samples, ids, coming, layers, work, v, bias, c, lanes)
            for k in range(1, layers.shape[0]):
                upper_forward(layers, k, ids.size, work, lanes)
            batch_loss, batch_square = softmax_steps(labels, ids, layers, work, scratch, rate, rms)
            loss += batch_loss
            square += batch_square
            for k in range(layers.shape[0] - 1, 0, -1):
                upper_backward(layers, k, ids.size, work, lanes)
            first_update(samples, ids, coming, layers, work, steps, column_sums, scratch, lanes)
    pack(layers, work, steps, c, out, lanes)
    return loss / order.size, square / order.size


@entry
def evaluate(model: Any, ids: Any, samples: Any, labels: Any, layers: Any, work: Any, setting: Any, lanes: Any) -> Any:
    """How many of the samples ``ids`` the model labels rightly, and the sum of their cross-entropies, in float64."""
    _, batch, c = setting
    pad = layers[0, OUT_PAD]
    steps, column_sums = np.zeros(pad), np.zeros(pad)
    v, bias = np.zeros(pad, np.float32), np.zeros(pad, np.float32)
    scratch = make_scratch(layers, lanes)
    unpack(model, layers, work, column_sums, lanes)
    set_constants(layers, work, steps, column_sums, c, v, bias)
    right, loss = 0, 0.0
    for first in range(0, ids.size, batch):
        some = ids[first : first + batch]
        first_forward(samples, some, ids[:0], layers, work, v, bias, c, lanes)
        for k in range(1, layers.shape[0]):
            upper_forward(layers, k, some.size, work, lanes)
        some_right, some_loss = score(labels, some, layers, work, scratch)
        right += some_right
        loss += some_loss
    return right, loss
