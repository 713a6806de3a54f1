"""Probes of operators on boxes, regions and sampled images."""

import mxnet as mx
import numpy as np
from probing import RNG, S, floats, ints, probe, var


def detection():
    boxes = np.sort(floats(1, 6, 2, 2, low=0, high=1), axis=2).reshape(1, 6, 4)
    for form in ("corner", "center"):
        made = S.contrib.box_decode(var("x"), var("y"), format=form, std0=0.1, std1=0.1, std2=0.2, std3=0.2)
        probe(f"box_decode_{form}", made, x=floats(2, 6, 4), y=boxes)
    made = S.contrib.box_decode(var("x"), var("y"), format="corner", clip=0.5)
    probe("box_decode_clip", made, x=floats(2, 6, 4), y=boxes)
    probe("box_iou", S.contrib.box_iou(var("x"), var("y")), x=boxes[0], y=boxes[0, :3] + np.float32(0.1))
    corners = np.sort(floats(2, 12, 2, 2, low=0, high=1), axis=2).reshape(2, 12, 4)
    data = np.concatenate([ints(3, 2, 12, 1), floats(2, 12, 1, low=0, high=1), corners], axis=2)
    for name, attrs in {
        "plain": {"overlap_thresh": 0.3, "id_index": 0},
        "forced": {"overlap_thresh": 0.2, "force_suppress": True, "id_index": 0},
        "no_class": {"overlap_thresh": 0.4},
        "valid": {"overlap_thresh": 0.3, "valid_thresh": 0.4, "topk": 5, "id_index": 0},
        "background": {"overlap_thresh": 0.3, "id_index": 0, "background_id": 0},
        "center": {"overlap_thresh": 0.3, "id_index": 0, "in_format": "center", "out_format": "corner"},
    }.items():
        probe(f"box_nms_{name}", S.contrib.box_nms(var("x"), **attrs), x=data)
    for name, attrs in {
        "plain": {"sizes": (0.5, 0.25), "ratios": (1, 2, 0.5)},
        "steps": {"sizes": (0.3,), "ratios": (2,), "steps": (0.2, 0.4), "offsets": (0.3, 0.6), "clip": True},
    }.items():
        probe(f"multibox_prior_{name}", S.contrib.MultiBoxPrior(var("x"), **attrs), x=floats(1, 3, 4, 6))
    anchors = np.sort(floats(1, 8, 2, 2, low=0, high=1), axis=2).reshape(1, 8, 4)
    scores = floats(2, 4, 8, low=0, high=1)
    scores /= scores.sum(axis=1, keepdims=True)
    for name, attrs in {
        "plain": {},
        "forced": {"force_suppress": True, "nms_threshold": 0.3},
        "top": {"nms_topk": 4, "threshold": 0.3, "clip": False},
    }.items():
        made = S.contrib.MultiBoxDetection(var("x"), var("y"), var("z"), **attrs)
        probe(f"multibox_detection_{name}", made, x=scores, y=floats(2, 32, low=-0.5, high=0.5), z=anchors)
    rois = np.array([[0, 0, 0, 4, 4], [1, 1.5, 2.2, 6.1, 7], [0, 3, 3, 3.2, 3.1]], "float32")
    for name, attrs in {
        "plain": {"pooled_size": (2, 2), "spatial_scale": 1.0, "sample_ratio": 2},
        "scaled": {"pooled_size": (3, 2), "spatial_scale": 0.5, "sample_ratio": 2},
        "aligned": {"pooled_size": (2, 2), "spatial_scale": 1.0, "sample_ratio": 2, "aligned": True},
    }.items():
        probe(f"roi_align_{name}", S.contrib.ROIAlign(var("x"), var("y"), **attrs), x=floats(2, 3, 8, 9), y=rois)


BOXES = np.array([[0, 0, 0, 4, 4], [1, 1.5, 2.5, 6.1, 7], [0, 3, 3, 3.2, 3.1], [1, -3, 5, 2, 30]], "float32")


def regions():
    x = floats(2, 8, 9, 10)
    many = np.concatenate([ints(2, 20, 1), floats(20, 4, low=-3, high=14)], 1)
    many[:, 3:] = np.maximum(many[:, 1:3] + 0.3, many[:, 3:])
    outside = np.concatenate([BOXES, [[-1, 0, 0, 3, 3]]]).astype("float32")
    for name, boxes, attrs in (
        ("plain", BOXES, {"pooled_size": (2, 3), "spatial_scale": 1.0}),
        ("scaled", many, {"pooled_size": (3, 3), "spatial_scale": 0.3}),
        ("no_image", outside, {"pooled_size": (7, 7), "spatial_scale": 0.5}),
    ):
        probe(f"roi_pooling_{name}", S.ROIPooling(var("x"), var("y"), **attrs), x=x, y=boxes)
    own = {"pooled_size": (2, 2), "spatial_scale": 0.5, "position_sensitive": True}
    for name, attrs in {
        "adaptive": {"pooled_size": (2, 3), "spatial_scale": 0.5},
        "adaptive_zero": {"pooled_size": (2, 3), "spatial_scale": 0.3, "sample_ratio": 0},
        "adaptive_aligned": {"pooled_size": (2, 2), "spatial_scale": 0.7, "aligned": True},
        "own": {**own, "sample_ratio": 2},
        "adaptive_own": own,
    }.items():
        made = S.contrib.ROIAlign(var("x"), var("y"), **attrs)
        probe(f"roi_align_{name}", made, x=x, y=many)
    for name, attrs in {
        "plain": {"output_dim": 2, "pooled_size": 2, "spatial_scale": 0.5},
        "groups": {"output_dim": 2, "pooled_size": 3, "group_size": 2, "spatial_scale": 0.3},
    }.items():
        made = S.contrib.PSROIPooling(var("x"), var("y"), **attrs)
        probe(f"psroi_{name}", made, x=x, y=many)
    for name, moves, attrs in (
        ("plain", (20, 2, 2, 2), {"pooled_size": 2, "trans_std": 0.1, "part_size": 2}),
        ("parts", (20, 2, 3, 3), {"pooled_size": 4, "trans_std": 0.3, "part_size": 3}),
        ("classes", (20, 4, 2, 2), {"pooled_size": 2, "trans_std": 0.2, "sample_per_part": 4}),
        ("still", (), {"pooled_size": 3, "no_trans": True}),
    ):
        attrs = {"sample_per_part": 2, "spatial_scale": 0.5, "output_dim": 2, **attrs}
        more = [var("z")] if moves else []
        made = S.contrib.DeformablePSROIPooling(var("x"), var("y"), *more, group_size=2, **attrs)
        arrays = {"z": floats(*moves, low=-1, high=1)} if moves else {}
        probe(f"deformable_psroi_{name}", made, x=x, y=many, **arrays)


def proposals():
    one, several = S.contrib.Proposal, S.contrib.MultiProposal
    scores = {"output_score": True}
    best = {"rpn_pre_nms_top_n": 100, "rpn_post_nms_top_n": 20}
    few = {"rpn_pre_nms_top_n": 10, "rpn_post_nms_top_n": 12}
    other = {"scales": (2.5, 4), "ratios": (0.4, 1, 2.1), "feature_stride": 9, "rpn_min_size": 3}
    for name, make, images, attrs in (
        ("plain", one, 1, {**best, "threshold": 0.5, "rpn_min_size": 8}),
        ("few", one, 1, {**few, **scores, "threshold": 0.3}),
        ("sides", one, 1, {**scores, "rpn_post_nms_top_n": 15, "iou_loss": True}),
        ("many", several, 3, {**best, **scores, "threshold": 0.6, "rpn_min_size": 30}),
        ("scales", several, 2, {**few, **other}),
    ):
        many = len(attrs.get("scales", (4, 8, 16, 32))) * len(attrs.get("ratios", (0.5, 1, 2)))
        info = np.array([[70, 90, 1.0], [50, 60, 0.7], [64, 33, 1.5]], "float32")[:images]
        info[:, :2] *= attrs.get("feature_stride", 16) / 16
        made = make(var("x"), var("y"), var("z"), **attrs)
        found = floats(images, 2 * many, 5, 6, low=0, high=1)
        moves = floats(images, 4 * many, 5, 6, low=-0.5, high=0.5)
        probe(f"proposal_{name}", made, x=found, y=moves, z=info)


def spatial():
    places = floats(2, 2, 3, 4, low=-1.3, high=1.3)
    image = floats(2, 3, 5, 6)
    probe("bilinear_sampler", S.BilinearSampler(var("x"), var("y")), x=image, y=places)
    maps = floats(2, 6, low=-1, high=1)
    made = S.GridGenerator(var("x"), transform_type="affine", target_shape=(3, 4))
    probe("grid_affine", made, x=maps)
    probe("grid_warp", S.GridGenerator(var("x"), transform_type="warp"), x=floats(2, 2, 3, 4))
    for name, target in (("small", (3, 4)), ("large", (7, 9))):
        made = S.SpatialTransformer(
            var("x"), var("y"), target_shape=target, transform_type="affine", sampler_type="bilinear"
        )
        probe(f"transformer_{name}", made, x=image, y=maps)
    for i, attrs in enumerate(
        (
            {},
            {"max_displacement": 2, "stride2": 2, "pad_size": 2},
            {"kernel_size": 3, "pad_size": 2, "stride1": 2},
            {"max_displacement": 4, "stride2": 2, "pad_size": 4, "is_multiply": False},
        )
    ):
        made = S.Correlation(var("x"), var("y"), **attrs)
        probe(f"correlation_{i}", made, x=floats(2, 3, 7, 8), y=floats(2, 3, 7, 8))
    pixels = RNG.randint(0, 256, (5, 6, 3)).astype("uint8")
    probe("image_tensor", S.image.to_tensor(var("x", "uint8")), x=pixels)
    probe("image_tensors", S.image.to_tensor(var("x", "uint8")), x=pixels[None])
    made = S.image.normalize(var("x"), mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.1))
    probe("image_normalize", made, x=floats(3, 4, 5))
    probe("image_normalize_one", S.image.normalize(var("x"), mean=0.4, std=0.2), x=floats(2, 3, 4, 5))
    probe("image_crop", S.image.crop(var("x"), x=1, y=2, width=3, height=2), x=floats(5, 6, 3))
    for name in ("flip_left_right", "flip_top_bottom"):  # a row in the middle is left unwritten
        probe(f"image_{name}", getattr(S.image, name)(var("x")), x=floats(4, 6, 3))
    for turn in (False, True):
        made = S.linalg.gemm(var("x"), var("y"), var("z"), transpose_b=turn, alpha=1.5, beta=-0.5)
        y = floats(2, 5, 4) if turn else floats(2, 4, 5)
        probe(f"gemm_{int(turn)}", made, x=floats(2, 3, 4), y=y, z=floats(2, 3, 5))
    probe("gammaln", S.gammaln(var("x")), x=floats(6, low=0.1, high=9))
    probe("erfinv", S.erfinv(var("x")), x=floats(6, low=-0.9, high=0.9))
    probe("sign_ste", S.contrib.sign_ste(var("x")), x=floats(6))
    probe("round_ste", S.contrib.round_ste(var("x")), x=floats(6))


def deformable():
    for name, attrs in {
        "plain": {"kernel": (3, 3), "pad": (1, 1)},
        "strided": {"kernel": (3, 2), "stride": (2, 1), "dilate": (1, 2), "no_bias": True},
        "grouped": {"kernel": (3, 3), "num_group": 2, "num_deformable_group": 2},
    }.items():
        x, taps = floats(2, 4, 7, 8), attrs["kernel"][0] * attrs["kernel"][1]
        groups = attrs.get("num_deformable_group", 1)
        shape = (6, 4 // attrs.get("num_group", 1), *attrs["kernel"])
        plain = S.Convolution(
            var("x"), num_filter=1, **{k: v for k, v in attrs.items() if k in ("kernel", "pad", "stride", "dilate")}
        )
        places = plain.infer_shape(x=x.shape)[1][0][2:]
        arrays = {"x": x, "y": floats(2, 2 * taps * groups, *places), "c_weight": floats(*shape)}
        arrays.update({} if attrs.get("no_bias") else {"c_bias": floats(6)})
        made = S.contrib.DeformableConvolution(var("x"), var("y"), num_filter=6, name="c", **attrs)
        probe(f"deformable_{name}", made, **arrays)
        make = S.contrib.ModulatedDeformableConvolution
        made = make(var("x"), var("y"), var("z"), num_filter=6, name="c", **attrs)
        probe(f"modulated_{name}", made, z=floats(2, taps * groups, *places), **arrays)


def rarely():
    """Old names, and what hardly any model has."""
    I = mx.sym._internal
    x, y = ints(2, 3, 4), ints(2, 3, 4)
    for name in (
        "_equal _not_equal _greater _greater_equal _lesser _lesser_equal _logical_and _logical_or "
        "_logical_xor _grad_add _identity_with_attr_like_rhs"
    ).split():
        probe(f"plain{name}", getattr(I, name)(var("x"), var("y")), x=x, y=y)
    probe("make_loss_lower", S.make_loss(var("x")), x=floats(2, 3))
    probe("cast_storage", S.cast_storage(var("x"), stype="default"), x=floats(2, 3))
    probe("quadratic", S.contrib.quadratic(var("x"), a=2, b=-1, c=0.5), x=floats(2, 3))
    probe("gradientmultiplier", S.contrib.gradientmultiplier(var("x"), scalar=2), x=floats(2, 3))
    probe(
        "sparse_reg",
        S.IdentityAttachKLSparseReg(var("x"), name="k"),
        x=floats(2, 3, low=0.1, high=0.9),
        k_moving_avg=floats(3),
    )
    probe("svm", S.SVMOutput(var("x"), var("label")), x=floats(2, 3), label=ints(3, 2))
    probe("khatri_rao", S.khatri_rao(var("x"), var("y")), x=floats(2, 3), y=floats(4, 3))
    probe("amp_cast", S.amp_cast(var("x"), dtype="float16"), x=floats(2, 3))
    for narrow in (False, True):
        made = S.amp_multicast(var("x", "float16"), var("y"), num_outputs=2, cast_narrow=narrow)
        probe(f"amp_multicast_{int(narrow)}", made, x=floats(2, 3).astype("float16"), y=floats(2, 3))
    probe("zeros_ones", S.broadcast_add(var("x"), S.zeros((2, 3)) - S.ones((2, 3))), x=floats(2, 3))
    made = I._rnn_param_concat(var("x"), var("y"), dim=0, num_args=2)
    probe("param_concat", made, x=floats(6), y=floats(4))
    norm = {"b_gamma": floats(3), "b_beta": floats(3), "b_moving_mean": floats(3)}
    norm |= {"b_moving_var": floats(3, low=0.5)}
    probe("batch_norm_v1", S.BatchNorm_v1(var("x"), name="b"), x=floats(2, 3, 4, 5), **norm)
    made = S.contrib.SyncBatchNorm(var("x"), name="b", key="k", fix_gamma=False)
    probe("batch_norm_sync", made, x=floats(2, 3, 4, 5), **norm)
    made = S.Convolution_v1(var("x"), kernel=(3, 3), num_filter=6, pad=(1, 1), name="c")
    probe("conv_v1", made, x=floats(2, 4, 6, 6), c_weight=floats(6, 4, 3, 3), c_bias=floats(6))
    for kind in ("max", "avg", "sum"):
        for full in ("valid", "full"):
            made = S.Pooling_v1(
                var("x"), kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type=kind, pooling_convention=full
            )
            probe(f"pool_v1_{kind}_{full}", made, x=floats(1, 2, 6, 9))
    made = S.contrib.SparseEmbedding(var("x"), input_dim=5, output_dim=3, name="e")
    probe("embedding_sparse", made, x=ints(5, 2, 3), e_weight=floats(5, 3))
