"""PTX that IR has no words for: barriers in shared memory, copies by tensor maps, products of warpgroups."""

from __future__ import annotations

from collections.abc import Sequence

WAIT = """{ .reg .pred done;
again: mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;
@done bra over;
bra again;
over: }"""
ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [$0];"
INIT = "mbarrier.init.shared::cta.b64 [$0], {count};"
EXPECT = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], {bytes};"
INITS_SEEN = "fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;"
PREFETCH_MAP = "prefetch.tensormap [$0];"
WRITES_SEEN = "fence.proxy.async.shared::cta;"  # what threads wrote to shared memory, before copies read it
STORES_READ = "cp.async.bulk.wait_group.read 0;"  # by stores: what they read may be written again
COMMIT_STORES = "cp.async.bulk.commit_group;"
MAY_BEGIN = "griddepcontrol.launch_dependents;"
WAIT_BEFORE = "griddepcontrol.wait;"
MAP_RANK = "mapa.shared::cluster.u32 $0, $1, $2;"
# Relaxed: a release would flush caches, and the fence after barriers are made orders what has to be.
CLUSTER_ARRIVE = "barrier.cluster.arrive.relaxed.aligned;"
CLUSTER_ARRIVE_APART = "barrier.cluster.arrive.relaxed;"
CLUSTER_WAIT = "barrier.cluster.wait;"
SEND = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [$0], [$1], {bytes}, [$2];"
STORE_MATRIX = "stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};"
LOAD_MATRIX = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [$4];"
KINDS = {"fp16": "k16.f32.f16.f16", "bf16": "k16.f32.bf16.bf16", "tf32": "k8.f32.tf32.tf32"}


def tile_load(rank: int) -> str:
    """A box of a tensor into shared memory: $0 where to, $1 the map, then the coordinates, last the barrier."""
    at = ", ".join(f"${2 + axis}" for axis in range(rank))
    word = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
    return f"{word} [$0], [$1, {{{at}}}], [${2 + rank}];"


def window_load() -> str:
    """Pixels of windows into shared memory: the same with offsets within the window behind the barrier."""
    word = "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
    return f"{word} [$0], [$1, {{$2, $3, $4, $5}}], [$6], {{$7, $8}};"


def tile_store(rank: int) -> str:
    """A box from shared memory: $0 the map, then the coordinates, last where from."""
    at = ", ".join(f"${1 + axis}" for axis in range(rank))
    return f"cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [$0, {{{at}}}], [${1 + rank}];"


def registers(first: int, count: int) -> str:
    """A list of operands in braces."""
    return "{" + ", ".join(f"${number}" for number in range(first, first + count)) + "}"


def multiply(kind: str, width: int, sums: str, a: str, b: str, keeps: str, turned: Sequence[bool] = ()) -> str:
    """sums (+)= a b. `keeps`: the predicate that says whether there is something to add to."""
    flags = "".join(f", {int(flag)}" for flag in turned)
    return f"wgmma.mma_async.sync.aligned.m64n{width}{KINDS[kind]} {sums}, {a}, {b}, {keeps}, 1, 1{flags};"
