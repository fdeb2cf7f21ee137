"""The sums of a decoder layer for few tokens: all arrays are float32, weights float32 or int8.

What a few rows cost is the reading of the weights, and a library's products read them at half the speed
that memory has, or several times over. Here the weights of one output run through the vector registers
for up to three rows together, and further rows find them in the cache, a tile of outputs at a time. The
rest of a layer is so little arithmetic that calls would take longer. No result depends on the threads.

All of it is one file, since numba reads a compiled function back as long as its own file is unchanged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, prange

from .jit import ONE, ZERO, compiled, pointer

TILES = 4, 32
"""Outputs whose weights stay in the cache for the rows behind the first three: of a single one, and of more."""
LEAST = np.float32(-87)
"""Where exp stops falling: the smallest number that is not denormal."""


@compiled()
def one_row(weights: Any, a: Any) -> Any:
    """Of one output: its sum over ``[in]``."""
    first = ZERO
    for i in range(len(weights)):
        first += a[i] * np.float32(weights[i])
    return first


@compiled()
def two_rows(weights: Any, a: Any, b: Any) -> Any:
    """The same for two rows, which share each weight."""
    first = second = ZERO
    for i in range(len(weights)):
        weight = np.float32(weights[i])
        first += a[i] * weight
        second += b[i] * weight
    return first, second


@compiled()
def three_rows(weights: Any, a: Any, b: Any, c: Any) -> Any:
    """The same for three: sums of more rows do not all stay in registers."""
    first = second = third = ZERO
    for i in range(len(weights)):
        weight = np.float32(weights[i])
        first += a[i] * weight
        second += b[i] * weight
        third += c[i] * weight
    return first, second, third


@compiled()
def two_by_two(first: Any, second: Any, a: Any, b: Any) -> Any:
    """Two outputs of two rows."""
    v = w = x = y = ZERO
    for i in range(len(first)):
        one, other = np.float32(first[i]), np.float32(second[i])
        v += a[i] * one
        w += b[i] * one
        x += a[i] * other
        y += b[i] * other
    return v, w, x, y


@compiled()
def two_by_three(first: Any, second: Any, a: Any, b: Any, c: Any) -> Any:
    """Two outputs of three rows."""
    u = v = w = x = y = z = ZERO
    for i in range(len(first)):
        one, other = np.float32(first[i]), np.float32(second[i])
        u += a[i] * one
        v += b[i] * one
        w += c[i] * one
        x += a[i] * other
        y += b[i] * other
        z += c[i] * other
    return u, v, w, x, y, z


@compiled()
def output(x: Any, weight: Any, scale: Any, y: Any, row: int, out: int) -> None:
    """One output of up to three rows: weights come in one stream, as memory likes it."""
    times, left = scale[out], len(x) - row
    if left >= 3:
        a, b, c = three_rows(weight[out], x[row], x[row + 1], x[row + 2])
        y[row, out], y[row + 1, out], y[row + 2, out] = a * times, b * times, c * times
    elif left == 2:
        a, b = two_rows(weight[out], x[row], x[row + 1])
        y[row, out], y[row + 1, out] = a * times, b * times
    else:
        y[row, out] = one_row(weight[out], x[row]) * times


@compiled()
def output_pair(x: Any, weight: Any, scale: Any, y: Any, row: int, out: int) -> None:
    """Two outputs of up to three rows: weights come from the cache, and are read half as often."""
    first, second, left = weight[out], weight[out + 1], len(x) - row
    if left >= 3:
        found = two_by_three(first, second, x[row], x[row + 1], x[row + 2])
        for i in range(3):
            y[row + i, out] = found[i] * scale[out]
            y[row + i, out + 1] = found[3 + i] * scale[out + 1]
    elif left == 2:
        pair = two_by_two(first, second, x[row], x[row + 1])
        for i in range(2):
            y[row + i, out] = pair[i] * scale[out]
            y[row + i, out + 1] = pair[2 + i] * scale[out + 1]
    else:
        y[row, out] = one_row(first, x[row]) * scale[out]
        y[row, out + 1] = one_row(second, x[row]) * scale[out + 1]


@compiled()
def outputs(x: Any, weight: Any, scale: Any, y: Any, low: int, high: int) -> None:
    """Outputs ``low`` to ``high`` of all rows."""
    tile = TILES[0] if len(x) <= 4 else TILES[1]
    for start in range(low, high, tile):
        end = min(start + tile, high)
        for out in range(start, end):
            output(x, weight, scale, y, 0, out)
        for row in range(3, len(x), 3):
            for out in range(start, end - 1, 2):
                output_pair(x, weight, scale, y, row, out)
            if (end - start) % 2:
                output(x, weight, scale, y, row, end - 1)


@compiled(parallel=True)
def product(x: Any, weight: Any, scale: Any, y: Any, threads: int) -> None:
    """``x [rows, in]`` and ``weight [out, in] * scale [out]`` into ``y [rows, out]``."""
    if threads == 1:
        outputs(x, weight, scale, y, 0, len(weight))
    else:
        share = (len(weight) + threads - 1) // threads
        for thread in prange(threads):
            end = min((thread + 1) * share, len(weight))
            outputs(x, weight, scale, y, thread * share, end)


@compiled()
def norm(x: Any, weight: Any, eps: Any, y: Any) -> None:
    """RMS norm of each row."""
    for row in range(len(x)):
        squares = ZERO
        for i in range(len(weight)):
            squares += x[row, i] * x[row, i]
        times = ONE / np.sqrt(squares / np.float32(len(weight)) + eps)
        for i in range(len(weight)):
            y[row, i] = x[row, i] * times * weight[i]


@compiled()
def exponential(x: Any) -> Any:
    """exp, off by 1.2e-7 of itself at most, without a branch or a call, so that eight run at once: x is n times
    ln 2 and a rest (Cephes)."""
    x = min(max(x, LEAST), -LEAST)
    n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
    rest = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * rest + np.float32(1.3981999507e-3)
    p = p * rest + np.float32(8.3334519073e-3)
    p = p * rest + np.float32(4.1665795894e-2)
    p = p * rest + np.float32(1.6666665459e-1)
    p = p * rest + np.float32(5.0000001201e-1)
    p = p * rest * rest + rest + ONE
    return p * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


@compiled()
def gated(both: Any, y: Any) -> None:
    """SiLU of the first half of each row, times the second."""
    for row in range(len(both)):
        inner = both.shape[1] // 2
        for i in range(inner):
            gate = both[row, i]
            y[row, i] = gate / (ONE + exponential(-gate)) * both[row, inner + i]


@compiled()
def turned(x: Any, heads: int, cos: Any, sin: Any) -> None:
    """Rotary embedding of the first heads, in place: pairs are a half apart, and the first half of ``sin`` is
    negative (Su et al. 2021)."""
    size = cos.shape[1]
    half = size // 2
    for row in range(len(x)):
        for head in range(heads):
            for i in range(head * size, head * size + half):
                at = i - head * size
                a, b = x[row, i], x[row, i + half]
                x[row, i] = a * cos[row, at] + b * sin[row, at]
                x[row, i + half] = b * cos[row, at + half] + a * sin[row, at + half]


@compiled()
def stored(x: Any, heads: int, slots: Any, keys: Any, values: Any) -> None:
    """Keys and values behind the queries of each token to its slot."""
    (rows, width), (_, shared, _, size) = slots.shape, keys.shape
    for row in range(rows):
        for token in range(width):
            for head in range(shared):
                slot, at = slots[row, token], (heads + head) * size
                for i in range(size):
                    keys[row, head, slot, i] = x[row * width + token, at + i]
                    values[row, head, slot, i] = x[row * width + token, at + shared * size + i]


@compiled()
def weigh(scores: Any, visible: Any) -> None:
    """Softmax over what is visible, in place; the rest is 0."""
    top = -np.float32(np.inf)
    for slot in range(len(scores)):
        top = max(top, scores[slot] if visible[slot] else top)
    total = ZERO
    for slot in range(len(scores)):
        weight = exponential(scores[slot] - top) if visible[slot] else ZERO
        scores[slot] = weight
        total += weight
    total = total if total > ZERO else ONE  # of padding, that may see nothing
    for slot in range(len(scores)):
        scores[slot] /= total


@compiled()
def attend(
    x: Any,
    row: int,
    head: int,
    group: int,
    scale: Any,
    visible: Any,
    keys: Any,
    values: Any,
    y: Any,
) -> None:
    """What the queries that share one head of keys find, of all tokens of a row."""
    width, attended, size = visible.shape[1], visible.shape[2], keys.shape[3]
    queries = np.empty((width * group, size), np.float32)
    for n in range(width * group):
        token, at = row * width + n // group, (head * group + n % group) * size
        for i in range(size):
            queries[n, i] = x[token, at + i] * scale
    scores = np.empty((width * group, attended), np.float32)
    outputs(queries, keys[row, head], np.ones(attended, np.float32), scores, 0, attended)
    for n in range(width * group):
        token, at = row * width + n // group, (head * group + n % group) * size
        weigh(scores[n], visible[row, n // group])
        found = np.zeros(size, np.float32)
        for slot in range(attended):
            weight = scores[n, slot]
            for i in range(size):
                found[i] += weight * values[row, head, slot, i]
        for i in range(size):
            y[token, at + i] = found[i]


@compiled(parallel=True)
def attention(
    x: Any, heads: int, scale: Any, visible: Any, keys: Any, values: Any, y: Any, threads: int
) -> None:
    """Of ``visible [rows, width, attended]`` slots, what each query of ``x`` finds, into ``y``."""
    shared = keys.shape[1]
    group, pairs = heads // shared, len(visible) * shared
    if threads == 1:
        for pair in range(pairs):
            attend(x, pair // shared, pair % shared, group, scale, visible, keys, values, y)
    else:
        for pair in prange(pairs):
            attend(x, pair // shared, pair % shared, group, scale, visible, keys, values, y)


@compiled()
def layer(
    hidden: Any,
    norms: Any,
    weights: Any,
    scales: Any,
    eps: Any,
    scale: Any,
    turns: Any,
    slots: Any,
    visible: Any,
    cache: Any,
    threads: int,
) -> Any:
    """A decoder layer: attention, then the gated feed-forward part, each behind a norm.

    Args:
        hidden: ``[tokens, hidden]``, the tokens of one row after those of another.
        norms: of attention and of the feed-forward part, each ``[hidden]``.
        weights, scales: of queries, keys and values together; of what attention gives; of gate and the
            other half together; of what comes back: ``[out, in]`` and ``[out]``.
        eps, scale: of the norms, and of queries.
        turns: cosines and sines, each ``[tokens, head]``.
        slots: ``[rows, width]``, where each token's keys and values go.
        visible: ``[rows, width, attended]`` bool.
        cache: keys and values, each ``[rows, heads, slots, head]``, written to.

    Returns:
        ``[tokens, hidden]``.
    """
    count, size = len(hidden), turns[0].shape[1]
    heads = weights[1].shape[1] // size
    shared = cache[0].shape[1]
    normed, moved = np.empty_like(hidden), np.empty_like(hidden)
    each = np.empty((count, (heads + 2 * shared) * size), np.float32)
    found = np.empty((count, heads * size), np.float32)
    both = np.empty((count, len(weights[2])), np.float32)
    inner = np.empty((count, len(weights[2]) // 2), np.float32)
    norm(hidden, norms[0], eps, normed)
    product(normed, weights[0], scales[0], each, threads)
    turned(each, heads + shared, turns[0], turns[1])
    stored(each, heads, slots, cache[0], cache[1])
    attention(each, heads, scale, visible, cache[0], cache[1], found, threads)
    product(found, weights[1], scales[1], moved, threads)
    added = hidden + moved
    norm(added, norms[1], eps, normed)
    product(normed, weights[2], scales[2], both, threads)
    gated(both, inner)
    product(inner, weights[3], scales[3], moved, threads)
    return added + moved


@compiled()
def stack(
    states: Any,
    kept: Any,
    parts: Any,
    like: Any,
    sizes: Any,
    eps: Any,
    scale: Any,
    turns: Any,
    places: Any,
    slots: Any,
    visible: Any,
    caches: Any,
    room: Any,
    final: Any,
    threads: int,
) -> None:
    """Layers one behind the other, whose arrays are given by their addresses: a call that names hundreds of
    arrays takes as long as a small layer.

    Args:
        states: ``[layers + 1, tokens, hidden]``, what comes in first; the others are written. With one more,
            the last is the norm of what is before it.
        kept: ``[layers]``, which of the model's.
        parts: ``[all layers, 10]`` addresses: both norms, four weights, their scales, as ``layer`` has them.
        like: an array of the weights' kind.
        sizes: hidden, heads, heads of keys, head, inner.
        turns: tables of cosines and sines, each ``[positions, head]``.
        places: ``[tokens]``, positions.
        caches: ``[layers, 2]`` addresses of keys and values.
        room: rows and slots of each of them.
        final: the last norm's weights.
        eps, scale, slots, visible, threads: of each layer.
    """
    hidden, heads, shared, size, inner = sizes
    ins, outs = (
        (hidden, heads * size, hidden, inner),
        ((heads + 2 * shared) * size, hidden, 2 * inner, hidden),
    )
    turned_by = turns[0][places], turns[1][places]
    for n in range(len(kept)):
        at, own = parts[kept[n]], caches[n]
        states[n + 1] = layer(
            states[n],
            (carray(pointer(at[0], final), hidden), carray(pointer(at[1], final), hidden)),
            (
                carray(pointer(at[2], like), (outs[0], ins[0])),
                carray(pointer(at[3], like), (outs[1], ins[1])),
                carray(pointer(at[4], like), (outs[2], ins[2])),
                carray(pointer(at[5], like), (outs[3], ins[3])),
            ),
            (
                carray(pointer(at[6], final), outs[0]),
                carray(pointer(at[7], final), outs[1]),
                carray(pointer(at[8], final), outs[2]),
                carray(pointer(at[9], final), outs[3]),
            ),
            eps, scale, turned_by, slots, visible,
            (
                carray(pointer(own[0], final), (room[0], shared, room[1], size)),
                carray(pointer(own[1], final), (room[0], shared, room[1], size)),
            ),
            threads,
        )  # fmt: skip
    if len(states) == len(kept) + 2:
        norm(states[len(kept)], final, eps, states[len(kept) + 1])
