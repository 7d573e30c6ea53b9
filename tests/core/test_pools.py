"""Pools: read as of the step's start plus an episode's own additions, committed in order."""

from random import Random

import pytest

from coevolve.pools import Pool


def test_items_keep_their_order_and_repeats_are_left_out() -> None:
    pool = Pool(["b", "a", "b"])
    assert pool.items == ["b", "a"]
    pool.extend(["c", "a", "c", "d"])
    assert pool.items == ["b", "a", "c", "d"]
    assert len(pool) == 4


def test_a_pool_may_keep_repeats() -> None:
    pair = ("1+1", "2")
    pool = Pool([pair], distinct=False)
    pool.extend([pair, ("1+1", "3")])
    assert pool.items == [pair, pair, ("1+1", "3")]


def test_a_view_sees_the_pool_as_it_stood_and_its_own_additions() -> None:
    pool = Pool(["a", "b"])
    early, other = pool.view(), pool.view()
    early.add("mine")
    assert list(early) == ["a", "b", "mine"] and len(early) == 3
    assert list(other) == ["a", "b"] and len(other) == 2
    assert pool.items == ["a", "b"]
    pool.extend([*other.added, *early.added, "late"])
    assert list(early) == ["a", "b", "mine"], "what was committed later stays unseen"
    assert list(other) == ["a", "b"]
    assert list(pool.view()) == ["a", "b", "mine", "late"]


def test_a_view_outlives_a_reset_of_the_pool() -> None:
    pool = Pool(["a", "b"])
    view = pool.view()
    pool.reset(["z"])
    assert list(view) == ["a", "b"]


def test_a_distinct_view_does_not_add_what_it_holds() -> None:
    view = Pool(["a"]).view()
    for item in ("a", "b", "b"):
        view.add(item)
    assert view.added == ["b"] and list(view) == ["a", "b"]
    pairs = Pool([("q", "a")], distinct=False).view()
    pairs.add(("q", "a"))
    pairs.add(("q", "a"))
    assert pairs.added == [("q", "a")] * 2 and len(pairs) == 3


def test_reset_holds_exactly_these_items_and_forgets_the_others() -> None:
    pool = Pool(["a", "b"])
    pool.reset(["c", "c", "d"])
    assert pool.items == ["c", "d"]
    pool.extend(["a", "c"])
    assert pool.items == ["c", "d", "a"]


@pytest.mark.parametrize("distinct", [True, False])
def test_an_empty_pool_has_nothing_to_draw(distinct: bool) -> None:
    view = Pool(distinct=distinct).view()
    assert view.sample(Random(0)) is None
    view.add("only")
    assert view.sample(Random(0)) == "only"


def test_every_item_is_drawn_equally_often() -> None:
    view = Pool("abc").view()
    view.add("d")
    rng = Random(0)
    drawn = [view.sample(rng) for _ in range(4000)]
    assert set(drawn) == set("abcd")
    assert all(880 < drawn.count(item) < 1120 for item in "abcd")  # 1000, give or take 4.4 standard deviations


def test_the_same_randomness_draws_the_same_item() -> None:
    pool = Pool(range(1000))
    first, second = pool.view(), pool.view()
    assert [first.sample(Random(i)) for i in range(20)] == [second.sample(Random(i)) for i in range(20)]
