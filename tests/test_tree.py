"""The shape of a draft against plain Python, on random trees of different sizes in one batch."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from foredraft.framework.tree import NONE, Branches, Tree

WIDTH = 9


def random_parents(seed: int) -> list[int]:
    """A tree of up to ``WIDTH`` nodes, in any order in which parents come before children."""
    source = random.Random(seed)
    size = source.randrange(WIDTH + 1)
    reach = source.choice((1, 3, WIDTH))  # 1 gives chains, more gives bushes
    return [source.randrange(max(-1, node - 1 - reach), node) for node in range(size)]


def ancestors(parents: list[int], node: int) -> list[int]:
    """The nodes on the way to a node, itself last."""
    path = [node]
    while parents[path[0]] != NONE:
        path.insert(0, parents[path[0]])
    return path


def children(parents: list[int], parent: int) -> list[int]:
    return [node for node, above in enumerate(parents) if above == parent]


def leaves_first(parents: list[int], node: int = NONE) -> list[int]:
    """Nodes below a node, each after its descendants and its elder siblings."""
    found = []
    for child in children(parents, node):
        found += [*leaves_first(parents, child), child]
    return found


@pytest.fixture(scope="module")
def rows() -> list[list[int]]:
    return [random_parents(seed) for seed in range(60)]


@pytest.fixture(scope="module", params=[0, 2], ids=["tight bounds", "loose bounds"])
def batch(request: pytest.FixtureRequest, rows: list[list[int]]) -> tuple[Tree, Tensor]:
    """The trees with rubbish for padding, and which nodes are real."""
    torch.manual_seed(1)
    parents = torch.randint(-1, WIDTH, (len(rows), WIDTH))
    for row, known in enumerate(rows):
        parents[row, : len(known)] = torch.tensor(known, dtype=torch.int64)
    real = torch.arange(WIDTH) < torch.tensor([len(row) for row in rows]).unsqueeze(1)
    depth = max(len(ancestors(row, node)) for row in rows for node in range(len(row)))
    widest = max(row.count(parent) for row in rows for parent in row)
    return Tree(parents, depth + request.param, widest + request.param), real


def test_ancestors_depths_and_contexts(rows: list[list[int]], batch: tuple[Tree, Tensor]) -> None:
    tree, _ = batch
    for row, parents in enumerate(rows):
        for node in range(len(parents)):
            path = ancestors(parents, node)
            assert tree.ancestors[row, node].nonzero()[:, 0].tolist() == sorted(path)
            assert int(tree.depths[row, node]) == len(path) - 1
            assert int(tree.contexts[row, node]) == parents[node] + 1


def test_paths(rows: list[list[int]], batch: tuple[Tree, Tensor]) -> None:
    tree, _ = batch
    paths = tree.paths()
    assert paths.shape == (len(rows), WIDTH, tree.depth)
    for row, parents in enumerate(rows):
        for node in range(len(parents)):
            path = ancestors(parents, node)
            wanted = path + [NONE] * (tree.depth - len(path))
            assert paths[row, node].tolist() == wanted


def test_first_children_and_siblings(rows: list[list[int]], batch: tuple[Tree, Tensor]) -> None:
    tree, real = batch
    first, following = tree.first_child(real), tree.next_sibling(real)
    assert first.shape == (len(rows), WIDTH + 1)
    for row, parents in enumerate(rows):
        for parent in range(-1, WIDTH):
            family = children(parents, parent)
            assert int(first[row, parent + 1]) == (family[0] if family else NONE)
            for node, after in zip(family, [*family, NONE][1:], strict=True):
                assert int(following[row, node]) == after


def test_leaf_to_root(rows: list[list[int]], batch: tuple[Tree, Tensor]) -> None:
    tree, real = batch
    order = tree.leaf_to_root(real)
    for row, parents in enumerate(rows):
        assert order[row, : len(parents)].tolist() == leaves_first(parents)
        assert sorted(order[row].tolist()) == list(range(WIDTH))


def test_a_chain_is_the_tree_in_which_each_follows_the_one_before() -> None:
    chain = Tree.chain(torch.zeros(2, 4, dtype=torch.int64))
    assert (chain.depth, chain.children) == (4, 1)
    assert chain.parents.tolist() == [[-1, 0, 1, 2]] * 2
    assert chain.depths.tolist() == [[0, 1, 2, 3]] * 2
    assert chain.paths()[1].tolist() == [
        [0, -1, -1, -1],
        [0, 1, -1, -1],
        [0, 1, 2, -1],
        [0, 1, 2, 3],
    ]
    assert chain.leaf_to_root(torch.ones(2, 4, dtype=torch.bool)).tolist() == [[3, 2, 1, 0]] * 2


@pytest.mark.parametrize("depth", [0, 3])
def test_a_draft_without_nodes_has_a_shape(depth: int) -> None:
    tree, real = Tree(torch.zeros(2, 0, dtype=torch.int64), depth, 0), torch.ones(2, 0).bool()
    assert tree.first_child(real).tolist() == [[NONE], [NONE]]
    assert tree.next_sibling(real).shape == (2, 0)
    assert tree.paths().shape == (2, 0, depth)
    assert tree.leaf_to_root(real).shape == (2, 0)
    assert tree.depths.shape == (2, 0)


def test_nothing_depends_on_the_other_rows(batch: tuple[Tree, Tensor]) -> None:
    tree, real = batch
    for row in (0, 7, 31):
        alone = Tree(tree.parents[row : row + 1], tree.depth, tree.children)
        here = real[row : row + 1]
        assert torch.equal(alone.leaf_to_root(here)[0], tree.leaf_to_root(real)[row])
        assert torch.equal(alone.first_child(here)[0], tree.first_child(real)[row])
        assert torch.equal(alone.paths()[0][here[0]], tree.paths()[row][real[row]])


def test_places_behind_nodes(rows: list[list[int]], batch: tuple[Tree, Tensor]) -> None:
    tree, real = batch
    tokens = torch.arange(100, 100 + WIDTH).repeat(len(rows), 1)
    places = torch.tensor(
        [[node if node < len(row) else NONE for node in (-1, 0, 3, 8)] for row in rows]
    )
    branches = Branches(tokens, tree, places)
    committed = torch.tensor([[7, 8, 9]]).repeat(len(rows), 1)
    for row, parents in enumerate(rows):
        for place, node in enumerate(places[row].tolist()):
            path = ancestors(parents, node) if node != NONE else []
            assert int(branches.lengths[row, place]) == len(path)
            assert branches.on_path[row, place].nonzero()[:, 0].tolist() == sorted(path)
            ids = [7, 8, 9, *(100 + step for step in path)][-3:]
            assert branches.last(3, committed)[row, place].tolist() == ids


def test_places_before_anything_was_drafted() -> None:
    tokens = torch.zeros(2, 0, dtype=torch.int64)
    branches = Branches.chain(tokens, torch.full((2, 1), NONE))
    assert branches.lengths.tolist() == [[0], [0]]
    assert branches.last(2, torch.tensor([[1, 2], [3, 4]])).tolist() == [[[1, 2]], [[3, 4]]]
