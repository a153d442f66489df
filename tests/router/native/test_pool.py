"""Which server gets a request: load, the prompt's begin, health, draining."""

import json
import random

import pytest

from router.body import Body, look
from router.config import NativePair
from router.errors import NotConfigured
from router.native.pool import SLACK, Pool
from router.native.prefixes import LONGEST, SHORTEST, prefixes
from speedtier.errors import ConfigError

ONE, TWO, THREE = "http://one:1", "http://two:2", "http://three:3"


def body(text: str, **more: object) -> Body:
    return look(json.dumps({"model": "m", "messages": [{"role": "user", "content": text}], **more}).encode())


def test_the_least_loaded_server_is_next() -> None:
    pool = Pool([ONE, TWO + "/"], "native")
    with pool.use() as first, pool.use() as second:
        assert (first.url, second.url) == (ONE, TWO)
        assert [each.load for each in pool.servers] == [1, 1]
    assert [each.load for each in pool.servers] == [0, 0]


def test_a_load_is_given_back_when_a_request_fails() -> None:
    pool = Pool([ONE], "native")
    with pytest.raises(RuntimeError), pool.use():
        raise RuntimeError
    assert pool.servers[0].load == 0


def test_turns_of_a_conversation_go_where_its_begin_went() -> None:
    pool = Pool([ONE, TWO, THREE], "native")
    source = random.Random(1)
    talks = ["".join(source.choice("abc ") for _ in range(900)) for _ in range(30)]
    with pool.use(), pool.use():  # two servers hold something, so that the third is where all first turns go
        first = [pool.choose(prefixes(body(talk))).name for talk in talks]
    again = [pool.choose(prefixes(body(talk + " and then more" * 20))).name for talk in talks]
    assert again == first


def test_a_favourite_is_not_overloaded() -> None:
    pool = Pool([ONE, TWO, THREE], "native")
    prefix = prefixes(body("the same begin" * 100))
    uses = [pool.use(prefix) for _ in range(60)]
    for use in uses:
        use.__enter__()
        loads = sorted(each.load for each in pool.servers)
        assert loads[-1] - loads[0] <= SLACK + 1
    for use in uses:
        use.__exit__(None, None, None)


def test_prefixes_are_those_of_one_model_and_one_salt() -> None:
    plain = prefixes(body("x" * 3000))
    assert len(plain) == 4
    assert prefixes(body("x" * 3000 + "y" * 200))[-4:] == plain
    for other in (body("x" * 3000, model="n"), body("x" * 3000, cache_salt="s"), body("y" * 3000)):
        assert not set(plain) & set(prefixes(other))


def test_short_prompts_and_what_is_no_object_have_no_prefix() -> None:
    assert prefixes(None) == prefixes(look(b"[1]")) == prefixes(look(b"{}")) == []
    assert prefixes(look(json.dumps({"prompt": "x" * (SHORTEST - 3)}).encode())) == []
    assert len(prefixes(look(json.dumps({"prompt": "x" * 5 * LONGEST}).encode()))) == 13


def test_a_server_that_cannot_be_reached_is_chosen_only_when_no_other_is_left() -> None:
    pool = Pool([ONE, TWO], "native")
    one, two = pool.servers
    one.health.failed("refused")
    assert {pool.choose().name for _ in range(5)} == {"two:2"}
    with pool.use(), pool.use():
        assert pool.choose() is two, "load does not count against health"
    two.health.failed("refused")
    assert pool.choose() is one


def test_both_servers_of_a_pair_must_be_well_and_a_server_has_one_health() -> None:
    pool = Pool([], "native", [NativePair(prefill=ONE, decode=TWO), NativePair(prefill=ONE, decode=THREE)])
    first, second = pool.servers
    assert (first.name, first.url) == ("one:1+two:2", TWO)
    first.health.failed("refused")
    assert (first.healthy, second.healthy, first.last_error) == (False, True, "refused")
    assert pool.choose() is second
    assert first.prefill_health is second.prefill_health and first.prefill_health is not None
    first.prefill_health.failed("gone")
    assert not second.healthy and second.last_error == "gone"


def test_drained_servers_get_nothing_new_and_removed_ones_are_gone() -> None:
    pool = Pool([ONE, TWO], "native")
    with pool.use() as held:
        pool.drain("one:1")
        assert (held.name, held.draining) == ("one:1", True)
        assert pool.choose().name == "two:2"
        pool.remove("one:1")
        assert [each.name for each in pool.servers] == ["two:2"]
    pool.drain("two:2")
    with pytest.raises(NotConfigured, match="draining"):
        pool.choose()
    pool.drain(TWO, False)
    assert pool.choose().name == "two:2"
    pool.add(THREE)
    with pytest.raises(ConfigError, match="there already"):
        pool.add(THREE + "/")
    with pytest.raises(KeyError):
        pool.remove("one:1")


def test_an_empty_pool_names_its_setting() -> None:
    with pytest.raises(NotConfigured, match="`native`"):
        Pool([], "native").choose()
