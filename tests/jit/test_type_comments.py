"""Type comments as trees, as PyTorch prints them."""

import pytest
from oracles import oracle

import weft
from weft.jit.frontend.decl import decl_of

COMMENTS = [
    "# type: (Tensor, int) -> Tensor",
    "# type: (List[int], Optional[Tensor]) -> Tuple[int, str]",
    "# type: () -> None",
    "# type: (Dict[str, int], torch.Tensor) -> int",
    "# type: (int, List[int]) -> List[Tuple[int,float]]",
    "# type: (a.b.C) -> str",
    "# type: (...) -> int",
    "  # type: (int)",
]
WRONG = ["", "(int) -> int", "# type: int", "# type: (int -> int", "# type: (int) ->"]


def plain(a, b: int, c=2):
    return a


def method(self, first, second):
    return first


@pytest.mark.parametrize("comment", COMMENTS)
def test_comments_are_trees(comment):
    assert str(weft._C.parse_type_comment(comment)) == str(oracle("torch")._C.parse_type_comment(comment))


@pytest.mark.parametrize("comment", WRONG)
def test_what_is_wrong_with_a_comment(comment):
    with pytest.raises(RuntimeError) as theirs:
        oracle("torch")._C.parse_type_comment(comment)
    with pytest.raises(RuntimeError) as ours:
        weft._C.parse_type_comment(comment)
    assert str(ours.value).startswith(str(theirs.value).strip())


@pytest.mark.parametrize(
    ("function", "comment", "is_method"),
    [
        (plain, "# type: (Tensor, int, float) -> Tensor", False),
        (method, "# type: (Tensor, int) -> Tensor", True),
        (method, "# type: (Tensor) -> Tensor", False),
        (method, "# type: (Tensor, int, int) -> Tensor", True),
    ],
)
def test_comments_are_merged_with_heads(function, comment, is_method):
    torch = oracle("torch")
    name = "Owner" if is_method else None
    theirs = torch.jit.frontend.get_jit_def(function, function.__name__, self_name=name).decl()
    ours = decl_of(function, name)
    assert str(ours) == str(theirs)
    found = []
    for library, decl in ((torch, theirs), (weft, ours)):
        try:
            merged = library._C.merge_type_from_type_comment(decl, library._C.parse_type_comment(comment), is_method)
            found.append(str(merged))
        except RuntimeError as error:
            found.append(str(error).strip().splitlines()[0].rstrip(":"))
    assert found[1] == found[0]


def test_a_comment_is_a_text():
    with pytest.raises(TypeError, match="type comment"):
        weft._C.parse_type_comment(3)
