"""The operator registry: registration, columns and their levels, groups, aliases, threads."""

import threading

import pytest
from core.core_ops import ScaleAttrs, fresh, fresh_name

from weft.base.errors import Error, InvalidType, InvalidValue, NotFound, RegistryError
from weft.core.functions import fill_namespace
from weft.core.op import (
    MAX_OUTPUTS,
    VARIADIC,
    Op,
    OpGroup,
    column_docs,
    list_op_names,
    list_ops,
    role,
    set_role,
    subscribe,
)
from weft.core.passes import list_passes, register_pass
from weft.core.symbol import Symbol


def test_register_is_register_or_get():
    name = fresh_name()
    op = Op.register(name)
    assert Op.register(name) is op
    assert Op.get(name) is op
    assert repr(op) == f"Op({name})"


@pytest.mark.parametrize("name", ["", None, 3])
def test_name_must_be_text(name):
    with pytest.raises(InvalidType, match="non-empty str"):
        Op.register(name)


def test_defaults_of_a_new_operator():
    op = fresh()
    assert (op.description, op.arguments, op.support_level, op.parser) == ("", [], 10, None)
    assert (op.inputs_of({}), op.outputs_of({}), op.visible_of({})) == (1, 1, 1)
    assert (op.input_names_of({}), op.output_names_of({})) == (["data"], ["output"])
    assert (op.mutates_of({}), op.alias_of({}), op.inplace_of({}), op.ignored_of({})) == ((), {}, [], ())
    assert op.effect_of({}) == "pure"
    assert op.pattern == 8
    assert not op.is_backward
    assert not op.is_ghost


def test_indices_are_unique_and_order_of_registration():
    first, second = fresh(), fresh()
    assert first.index < second.index
    indices = [op.index for op in list_ops()]
    assert indices == sorted(set(indices))


def test_setters_return_the_operator():
    op = fresh()
    assert op.describe("a").describe("b") is op
    assert op.description == "b"
    assert op.add_argument("x", "Tensor", "one").add_arguments([("x", "Tensor", "again")]) is op
    assert [argument.name for argument in op.arguments] == ["x", "x"]
    assert op.set_num_inputs(2).set_num_outputs(3).set_support_level(1) is op
    assert (op.inputs_of({}), op.outputs_of({}), op.support_level) == (2, 3, 1)
    assert op.output_names_of({}) == ["output0", "output1", "output2"]
    assert op.input_names_of({}) == []


@pytest.mark.parametrize(
    "register",
    [
        lambda op: op.add_alias(3),
        lambda op: op.add_alias(""),
        lambda op: op.set_num_inputs("x"),
        lambda op: op.set_num_inputs(True),
        lambda op: op.set_num_inputs(-2),
        lambda op: op.set_num_outputs("x"),
        lambda op: op.set_num_outputs(-1),
        lambda op: op.set_num_outputs(MAX_OUTPUTS + 1),
        lambda op: op.set_support_level("high"),
        lambda op: op.set_attr_parser(3),
        lambda op: op.set_attr(3, 4),
        lambda op: op.add_argument(3, "Tensor", ""),
        lambda op: op.add_arguments([("x", "Tensor", ""), ("y", None, "")]),
        lambda op: op.include(3),
        lambda op: subscribe(3),
        lambda op: fill_namespace(Symbol, None),
        lambda op: fill_namespace(int, {}),
        lambda op: fill_namespace(Symbol, {}, 3),
        lambda op: register_pass(3),
        lambda op: register_pass("P", requires="shape"),
        lambda op: register_pass("P", provides=[3]),
        lambda op: register_pass("P", op_attrs=[None]),
        lambda op: register_pass("P")(3),
    ],
)
def test_what_is_refused_changes_nothing(register):
    op = fresh()
    before = (vars(op).copy(), list(op.arguments), list(op.aliases), list_op_names(), list_passes())
    with pytest.raises((InvalidType, InvalidValue, TypeError)):
        register(op)
    now = (vars(op), op.arguments, op.aliases, list_op_names(), list_passes())
    assert before == now
    assert Op.get(fresh().describe("as before").name)  # the registry still works
    assert list(column_docs())


def test_a_group_sets_all_of_its_members_or_none():
    key, other, group = fresh_name(), fresh_name(), OpGroup.register(fresh_name())
    first, second, third = fresh().include(group.name), fresh().include(group.name), fresh()
    second.set_attr(key, "own", 1)
    with pytest.raises(RegistryError, match="plevel=1"):
        group.set_attr(key, "all")
    assert not Op.get_attr(key).contains(first)
    assert Op.get_attr(key)[second] == "own"
    group.set_attr(other, 1)
    third.set_attr(key, "mine", 3)
    group.set_attr(key, "all", 3)
    with pytest.raises(RegistryError, match="plevel=3"):
        third.include(group.name)
    assert not Op.get_attr(other).contains(third)
    assert Op.get_attr(key)[third] == "mine"
    group.set_attr(fresh_name(), 1)  # third is no member
    assert [Op.get_attr(key)[op] for op in (first, second, third)] == ["all", "all", "mine"]


def test_a_function_of_attributes_wins_over_a_number():
    op = fresh().set_num_inputs(lambda p: int(p["n"])).set_num_inputs(7)
    op.set_num_outputs(lambda p: 2 * int(p["n"])).set_num_outputs(7)
    assert (op.inputs_of({"n": "3"}), op.outputs_of({"n": "3"})) == (3, 6)


def test_absurd_number_of_outputs_is_an_error():
    op = fresh().set_num_outputs(lambda p: 10**15)
    with pytest.raises(InvalidValue, match=f"at most {MAX_OUTPUTS}"):
        op.outputs_of({})


def test_variadic():
    assert fresh().set_num_inputs(VARIADIC).inputs_of({}) == VARIADIC


def test_output_names_may_be_fewer_than_outputs():
    op = fresh().set_num_outputs(3)
    op.output_names = ["mean"]
    assert op.output_names_of({}) == ["mean", "output1", "output2"]


# Columns


def test_higher_plevel_replaces_and_lower_is_ignored():
    op, key = fresh(), fresh_name("column")
    op.set_attr(key, 1)
    op.set_attr(key, 2, 11)
    op.set_attr(key, 3, 5)
    op.set_attr(key, 4, 5)
    assert Op.get_attr(key)[op] == 2


def test_same_plevel_is_an_error_and_changes_nothing():
    op, key = fresh(), fresh_name("column")
    op.set_attr(key, 1)
    with pytest.raises(RegistryError, match=f"{key} of operator {op.name} is already"):
        op.set_attr(key, 2)
    assert Op.get_attr(key)[op] == 1


@pytest.mark.parametrize("plevel", [0, -1, "10", None])
def test_plevel_must_be_positive(plevel):
    with pytest.raises(InvalidValue, match="integer greater than 0"):
        fresh().set_attr("TOpPattern", 1, plevel)


def test_one_type_an_attribute_name():
    key = fresh_name("column")
    fresh().set_attr(key, 1)
    for other in ("text", lambda: 1, [1], True):
        with pytest.raises(RegistryError, match="registered it as int"):
            fresh().set_attr(key, other)


def test_callables_share_one_type():
    key = fresh_name("column")
    fresh().set_attr(key, lambda: 1)
    fresh().set_attr(key, len)
    with pytest.raises(RegistryError, match="Callable"):
        fresh().set_attr(key, 1)


def test_declared_columns_take_a_value_or_a_function_of_params():
    value, rule = fresh(), fresh()
    value.input_names = ["a"]
    rule.input_names = lambda params: ["b"]
    assert (value.input_names_of({}), rule.input_names_of({})) == (["a"], ["b"])
    with pytest.raises(RegistryError):
        fresh().input_names = 3
    with pytest.raises(RegistryError):
        fresh().gradient = 3


def test_none_is_no_value():
    with pytest.raises(InvalidValue, match="cannot be None"):
        fresh().gradient = None


def test_column_as_attribute_is_the_same_as_set_attr():
    op, rule = fresh(), lambda ctx, g: [g]
    op.gradient = rule
    assert Op.get_attr("FGradient") is Op.gradient
    assert Op.get_attr("FGradient")[op] is rule
    assert op.gradient is rule


def test_columns_are_documented():
    docs = dict(column_docs())
    assert len(docs) >= 20
    assert all("Absent:" in text for text in docs.values())


def test_map_of_absent_and_null_operators():
    op, key = fresh(), fresh_name("column")
    column = Op.get_attr(key)
    with pytest.raises(NotFound, match=f"{key} has not been registered for operator {op.name}"):
        column[op]
    with pytest.raises(NotFound, match="no operator"):
        column[None]
    for absent in (op, None):
        assert column.get(absent, 5) == 5
        assert column.contains(absent) is False
        assert absent not in column
        assert column.count(absent) == 0
    op.set_attr(key, 1)
    assert (column.get(op), column.contains(op), column.count(op)) == (1, True, 1)


def test_an_unregistered_column_is_empty_and_stays():
    key = fresh_name("column")
    assert Op.get_attr(key) is Op.get_attr(key)


# Groups


def test_group_reaches_members_before_and_after():
    group, key, late = fresh_name("group"), fresh_name("column"), fresh_name("column")
    early = fresh().include(group)
    OpGroup.register(group).set_attr(key, 1)
    after = fresh().include(group)
    OpGroup.register(group).set_attr(late, 2)
    for op in (early, after):
        assert (Op.get_attr(key)[op], Op.get_attr(late)[op]) == (1, 2)


@pytest.mark.parametrize("own_first", [True, False])
def test_what_an_operator_says_itself_wins_over_its_group(own_first):
    group, key = fresh_name("group"), fresh_name("column")
    OpGroup.register(group).set_attr(key, 1)
    op = fresh()
    steps = [lambda: op.set_attr(key, 7), lambda: op.include(group)]
    for step in steps if own_first else steps[::-1]:
        step()
    assert Op.get_attr(key)[op] == 7


def test_including_twice():
    group, key = fresh_name("group"), fresh_name("column")
    op = fresh().include(group).include(group)
    OpGroup.register(group).set_attr(key, 1)
    assert Op.get_attr(key)[op] == 1
    with pytest.raises(RegistryError, match="already registered"):
        op.include(group)


def test_group_checks_its_values_without_members():
    with pytest.raises(InvalidValue):
        OpGroup.register(fresh_name("group")).set_attr("TOpPattern", 1, 0)


# Names


def test_aliases():
    op, other, alias = fresh(), fresh(), fresh_name("alias")
    assert op.add_alias(alias).add_alias(alias) is op
    assert Op.get(alias) is op
    assert Op.register(alias) is op
    assert op.aliases == [alias]
    with pytest.raises(RegistryError, match=f"taken by operator {op.name}"):
        other.add_alias(alias)
    assert {op.name, alias} <= set(list_op_names())
    assert list_op_names() == sorted(list_op_names())
    assert list_ops().count(op) == 1


def test_unknown_operator_names_the_nearest():
    op = fresh("verylongname")
    with pytest.raises(NotFound, match="is not registered") as caught:
        Op.get(op.name[:-1] + "x")
    assert op.name in str(caught.value) or "did you mean" in str(caught.value)
    assert isinstance(caught.value, KeyError)


def test_roles():
    name = fresh_name("role")
    with pytest.raises(NotFound, match="no operator plays the role"):
        role(name)
    set_role(name, "t_x")
    assert role(name) == "t_x"


# Attribute parsers


def test_parser_class_must_be_a_schema():
    with pytest.raises(InvalidType, match="@schema"):
        fresh().set_attr_parser(dict)


def test_schema_documents_its_attributes_once():
    op = fresh().set_attr_parser(ScaleAttrs).set_attr_parser(ScaleAttrs)
    assert [(a.name, a.type) for a in op.arguments] == [("factor", "float, optional, default=2.0")]


def test_function_as_parser():
    op = fresh().set_attr_parser(lambda attrs: {"n": int(attrs["n"])})
    assert op.parse({"n": "4"}) == {"n": 4}
    assert op.attributes({"n": 4}) == {"n": "4"}
    for bad in ({}, {"n": "x"}):
        with pytest.raises(InvalidValue, match=f"operator {op.name} cannot read"):
            op.parse(bad)


def test_canonical_attributes():
    op = fresh().set_attr_parser(ScaleAttrs)
    assert op.attributes(op.parse({})) == {"factor": "2.0"}
    op.attr_dict = lambda params: {"twice": str(2 * params.factor)}
    assert op.attributes(op.parse({"factor": "3"})) == {"twice": "6.0"}
    assert fresh().attributes({"any": "text"}) == {"any": "text"}
    with pytest.raises(InvalidType, match="no text form"):
        fresh().set_attr_parser(lambda attrs: object()).attributes(object())


# Threads


def test_threads_lose_no_registration_and_read_no_torn_value():
    threads, count = 16, 60
    stem, key = fresh_name("threads"), fresh_name("column")
    start, problems, seen = threading.Barrier(threads), [], {}
    subscribe(lambda op, name: seen.__setitem__(name, op))

    def work(number):
        start.wait()
        try:
            for step in range(count):
                own = Op.register(f"{stem}_{number}_{step}").describe("x").set_attr(key, (number, step))
                shared = Op.register(f"{stem}_shared_{step}")
                shared.set_attr(key, (step, number + 100), plevel=number + 1)
                own.add_alias(f"{stem}_alias_{number}_{step}").include(f"{stem}_group")
                level = Op.get_attr(key)[shared]
                if level[0] != step or Op.get_attr(key)[own] != (number, step):
                    problems.append((level, step))
                if own not in list_ops() or own.name not in list_op_names():
                    problems.append(own.name)
        except Error as error:
            problems.append(error)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert problems == []
    for step in range(count):
        shared = Op.get(f"{stem}_shared_{step}")
        assert Op.get_attr(key)[shared] == (step, 115)
        for number in range(threads):
            own = Op.get(f"{stem}_{number}_{step}")
            assert Op.get(f"{stem}_alias_{number}_{step}") is own
            assert seen[own.name] is own
    indices = [op.index for op in list_ops() if op.name.startswith(stem)]
    assert len(indices) == len(set(indices)) == (threads + 1) * count
