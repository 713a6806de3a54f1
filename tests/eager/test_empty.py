"""Tensors without elements, as PyTorch has them: values, shapes, dtypes, gradients, refusals."""

import pytest
from oracles import oracle
from twins import builtin_of

import weft

# Of x, which has no rows of three columns; i is the dtype of indices.
OF_NO_ROWS = """
t.cat([x,x])
x.sum()
x.mean()
x.prod()
x.max()
x.min()
x.argmax()
x.sum(0)
x.mean(0)
x.max(0)
x.max(1)
x.argmax(1)
x.argmax(0)
x.std()
x.var(0)
x.var(1)
x.norm()
x.norm(dim=0)
x.logsumexp(0)
x.logsumexp(1)
x.softmax(0)
x.softmax(1)
x.log_softmax(1)
x.cumsum(0)
x.cumprod(1)
x.cummax(0)
x.sort(0)
x.sort(1)
x.argsort(1)
x.topk(1,1)
x.topk(1,0)
x.topk(0,0)
x.kthvalue(1,1)
x.median()
x.median(0)
x.median(1)
x.mode(1)
x.quantile(.5)
x.nanmean()
x.amax()
x.amax(0)
x.amax(1)
x.any()
x.all()
x.any(0)
x.flatten()
x.reshape(3,0)
x.reshape(-1)
x.reshape(0,-1)
x.view(-1,3)
x.t()
x.expand(0,3)
x.repeat(2,2)
x.chunk(2)
x.chunk(2,1)
x.split(1)
x.split(0)
x.unbind(1)
x.unbind(0)
t.cat([x,t.ones(2,3)])
t.stack([x,x])
t.cat([x,x],1)
x@t.ones(3,2)
x@t.ones(3)
t.ones(2,0)@x
t.ones(0)@x
t.mm(x,t.ones(3,4))
t.bmm(t.ones(0,2,3),t.ones(0,3,4))
t.bmm(t.ones(2,3,0),t.ones(2,0,4))
t.dot(t.ones(0),t.ones(0))
t.outer(t.ones(0),t.ones(3))
t.einsum('ij,jk->ik',x,t.ones(3,2))
t.addmm(t.ones(4),t.ones(2,0),t.ones(0,4))
F.linear(x,t.ones(2,3),t.ones(2))
F.linear(t.ones(2,0),t.ones(4,0),t.ones(4))
F.layer_norm(x,(3,))
F.layer_norm(t.ones(2,0),(0,))
F.batch_norm(x,t.zeros(3),t.ones(3),training=False)
F.batch_norm(x,t.zeros(3),t.ones(3),training=True)
F.group_norm(t.ones(0,4,2),2)
F.instance_norm(t.ones(0,4,3))
F.mse_loss(x,x)
F.mse_loss(x,x,reduction='sum')
F.l1_loss(x,x)
F.cross_entropy(x,t.zeros(0,dtype=i))
F.cross_entropy(x,t.zeros(0,dtype=i),reduction='sum')
F.nll_loss(x,t.zeros(0,dtype=i))
F.nll_loss(x,t.zeros(0,dtype=i),reduction='none')
F.binary_cross_entropy(x,x)
F.binary_cross_entropy_with_logits(x,x.detach())
F.kl_div(x,x)
F.smooth_l1_loss(x,x)
F.huber_loss(x,x)
F.cosine_similarity(x,x)
F.normalize(x)
F.embedding(t.zeros(0,dtype=i),t.ones(3,2))
F.one_hot(t.zeros(0,dtype=i))
F.one_hot(t.zeros(0,dtype=i),3)
F.dropout(x)
F.relu(x)
F.gelu(x)
F.pad(x,(1,1))
F.pad(x,(0,0,1,1))
F.scaled_dot_product_attention(t.ones(0,2,3,4),t.ones(0,2,3,4),t.ones(0,2,3,4))
F.scaled_dot_product_attention(t.ones(1,2,0,4),t.ones(1,2,3,4),t.ones(1,2,3,4))
F.scaled_dot_product_attention(t.ones(1,2,3,4),t.ones(1,2,0,4),t.ones(1,2,0,4))
F.interpolate(t.ones(0,3,4,4),scale_factor=2)
F.interpolate(t.ones(1,0,4,4),scale_factor=2)
t.where(x>0,x,x)
x.clamp(0,1)
x[0]
x[:,0]
x[x>0]
x[:0]
x.index_select(0,t.zeros(0,dtype=i))
x.gather(1,t.zeros(0,2,dtype=i))
x.scatter(1,t.zeros(0,2,dtype=i),1.)
x.nonzero()
x.tril()
x.diag()
x.trace()
x.flip(0)
x.roll(1,0)
x.cov()
t.cdist(x,x)
t.cdist(x,t.ones(2,3))
t.histc(x.detach())
t.bincount(t.zeros(0,dtype=i))
t.searchsorted(t.ones(0),t.ones(2))
t.linalg.norm(x)
t.linalg.det(t.zeros(0,0))
t.linalg.det(t.zeros(0,2,2))
t.linalg.inv(t.zeros(0,0))
t.linalg.solve(t.zeros(0,0),t.zeros(0,2))
t.linalg.svd(t.zeros(0,3))
t.linalg.qr(t.zeros(0,3))
t.linalg.cholesky(t.zeros(0,2,2))
t.linalg.eigh(t.zeros(0,0))
x.diff(dim=0)
x.aminmax(dim=0)
x.aminmax(dim=1)
x.count_nonzero()
x.prod(0)
x.prod(1)
x.logcumsumexp(0)
t.meshgrid(t.ones(0),t.ones(2),indexing='ij')
t.tensordot(x,t.ones(3,2),1)
t.kron(x,t.ones(2,2))
t.combinations(t.ones(0))
t.cartesian_prod(t.ones(0),t.ones(2))
t.fft.fft(x,dim=0)
x.unfold(0,1,1)
x.unfold(1,2,1)
F.unfold(t.ones(0,3,4,4),2)
F.glu(t.ones(0,4))
F.glu(t.ones(2,0))
F.triplet_margin_loss(x,x,x)
F.cosine_embedding_loss(x,x,t.ones(0))
F.ctc_loss(t.zeros(5,0,4),t.zeros(0,2,dtype=i),t.zeros(0,dtype=i),t.zeros(0,dtype=i))
""".strip().splitlines()
SPACES = {1: "4", 2: "4,4", 3: "4,4,4"}
WINDOWS = (
    "conv{n}d(x,w)",
    "conv{n}d(x,w,padding=1)",
    "conv_transpose{n}d(x,w.transpose(0,1))",
    "max_pool{n}d(x,2)",
    "avg_pool{n}d(x,2)",
    "adaptive_avg_pool{n}d(x,2)",
    "adaptive_max_pool{n}d(x,2)",
)


def shown(value):
    """A result as numbers, dtype, shape and whether a gradient flows through it."""
    if isinstance(value, (tuple, list)):
        return [shown(item) for item in value]
    kind = str(value.dtype).rpartition(".")[2]
    return kind, tuple(value.shape), repr(value.tolist()), value.requires_grad


def outcome(program: str, library):
    """What a program makes and the gradients it leaves, or the kind of its error."""
    space = {"t": library, "F": library.nn.functional, "i": library.int64}
    try:
        exec(program, space)
        made = space["r"]
        several = made if isinstance(made, (tuple, list)) else [made]
        recorded = [value for value in several if value.requires_grad]
        if recorded:
            sum(value.sum() for value in recorded).backward()
    except Exception as error:
        return builtin_of(error)
    leaves = [space[name].grad for name in "xw" if name in space]
    return shown(made), [None if g is None else (tuple(g.shape), g.tolist()) for g in leaves]


def same(program: str) -> None:
    assert outcome(program, weft) == outcome(program, oracle("torch"))


@pytest.mark.parametrize("expression", OF_NO_ROWS)
def test_functions_of_no_rows(expression):
    same(f"x=t.zeros(0,3,requires_grad=True);r={expression}")


@pytest.mark.parametrize("shape", ["(0,3,{space})", "(1,3,0{rest})"])
@pytest.mark.parametrize("rank", SPACES)
@pytest.mark.parametrize("window", WINDOWS)
def test_windows_of_nothing(window, rank, shape):
    space = SPACES[rank]
    data = shape.format(space=space, rest=space[1:])
    kernel = ",".join(["3"] * rank)
    same(f"x=t.ones{data};x.requires_grad_();w=t.ones(2,3,{kernel},requires_grad=True);r=F.{window.format(n=rank)}")


@pytest.mark.parametrize("rank", SPACES)
@pytest.mark.parametrize(
    ("name", "channels", "weight"), [("conv", 3, (0, 3)), ("conv_transpose", 0, (0, 2)), ("conv_transpose", 3, (3, 0))]
)
def test_weights_without_channels_are_refused(name, channels, weight, rank):
    kernel = ",".join(["3"] * rank)
    program = f"x=t.ones(1,{channels},{SPACES[rank]});w=t.ones(*{weight},{kernel});r=F.{name}{rank}d(x,w)"
    assert outcome(program, oracle("torch")) is RuntimeError
    assert outcome(program, weft) is RuntimeError


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("batch", [0, 2])
def test_transposed_convolutions_that_leave_nothing(rank, batch):
    torch = oracle("torch")
    found = []
    for library in (weft, torch):
        data = library.ones(batch, 4, *[1] * rank, requires_grad=True)
        weight = library.ones(4, 2, *[1] * rank, requires_grad=True)
        call = getattr(library.nn.functional, f"conv_transpose{rank}d")
        made = call(data, weight, stride=2, padding=1, output_padding=1)
        made.sum().backward()
        found.append((tuple(made.shape), data.grad.tolist(), weight.grad.tolist()))
    assert found[0] == found[1]
