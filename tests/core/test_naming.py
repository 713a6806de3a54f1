"""Names and attributes that nodes get from `with` blocks."""

import threading

import pytest
from core.core_ops import linear, relu, scale

from weft.base.errors import InvalidType, InvalidValue
from weft.core.naming import AttrScope, NameManager, Prefix
from weft.core.symbol import Variable


def test_counters_are_per_hint_and_per_manager():
    x = Variable("x")
    with NameManager():
        names = [op(x).attr("name") for op in (relu(), relu(), scale(), relu())]
    assert names == ["t_relu0", "t_relu1", "t_scale0", "t_relu2"]
    with NameManager():
        assert relu()(x).attr("name") == "t_relu0"


def test_the_users_name_wins_and_uses_no_number():
    x = Variable("x")
    with NameManager():
        assert relu()(x, name="mine").attr("name") == "mine"
        assert relu()(x, name="").attr("name") == "t_relu0"


def test_a_failed_composition_still_uses_a_number():
    x = Variable("x")
    with NameManager():
        with pytest.raises(InvalidValue):
            relu()(x, x)
        assert relu()(x).attr("name") == "t_relu1"


def test_prefix_is_put_before_names_of_operators_only():
    with Prefix("net_"):
        y = linear()(Variable("x"), name="fc")
        assert relu()(y).attr("name") == "net_t_relu0"
    assert y.list_input_names() == ["x", "net_fc_weight", "net_fc_bias"]
    assert y.attr("name") == "net_fc"


def test_current_is_the_innermost_and_the_outer_comes_back():
    outer = NameManager.current
    with Prefix("a_") as a:
        assert NameManager.current is a
        with NameManager() as plain:
            assert NameManager.current is plain
        assert NameManager.current is a
    assert NameManager.current is outer


def test_scopes_do_not_leak_into_other_threads():
    names = []
    with Prefix("a_"), AttrScope(__group__="g"):
        worker = threading.Thread(target=lambda: names.append(relu()(Variable("x"))))
        worker.start()
        worker.join()
    assert not names[0].attr("name").startswith("a_")
    assert names[0].list_attr(recursive=True) == {}


def test_scope_ends_after_an_error():
    with pytest.raises(ZeroDivisionError), Prefix("a_"):
        1 / 0
    assert not relu()(Variable("x")).attr("name").startswith("a_")


def test_attributes_of_scopes_merge_and_explicit_ones_win():
    with AttrScope(__group__="a", __x__="1"), AttrScope(__group__="b"):
        v = Variable("v", __x__="2")
        y = relu()(v, attr={"__y__": "3"})
    assert v.list_attr() == {"__group__": "b", "__x__": "2"}
    assert y.list_attr() == {"__group__": "b", "__x__": "1", "__y__": "3"}
    assert Variable("w").list_attr() == {}


def test_scope_on_an_operator_with_a_schema_takes_hidden_keys_only():
    with AttrScope(__group__="a"):
        assert scale()(Variable("x")).attr("__group__") == "a"
    with AttrScope(group="a"), pytest.raises(InvalidValue, match="unknown attribute 'group'"):
        scale()(Variable("x"))


def test_scope_takes_strings():
    with pytest.raises(InvalidValue, match="need to be strings"):
        AttrScope(group=1)


@pytest.mark.parametrize("bad", [{"name": 3}, {"attr": "text"}, {"attr": 3}])
def test_wrong_types_of_name_and_attr(bad):
    with pytest.raises(InvalidType):
        relu()(Variable("x"), **bad)
