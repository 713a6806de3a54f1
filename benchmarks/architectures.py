"""Architectures of torchvision and transformers with random weights, small where a configuration
allows it, each with inputs of any size: what benchmarks/onnx_exports.py exports."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from export_networks import declared_operators
from torch import Tensor, nn

TOKENS = 90  # in a vocabulary


class Size(NamedTuple):
    """How large inputs are: items of a batch, tokens or frames, pixels of a side."""

    batch: int
    length: int
    side: int


Inputs = dict[str, Tensor]
OpenAxes = dict[str, dict[int, str]]  # name of a dimension, by input and axis


class Architecture(NamedTuple):
    """A network, its inputs for a size, and which axes of them may be open. `side` is the size of
    images of networks that ask for one. Parameters are disturbed unless that would make all scores
    of a detector the same, whose order is then of no account."""

    build: Callable[[], nn.Module]
    inputs: Callable[[Size], Inputs]
    open: OpenAxes
    side: int = 0
    disturbed: bool = True


ARCHITECTURES: dict[str, Architecture] = {}

IMAGE = {"image": {0: "batch"}}
ANY_IMAGE = {"image": {0: "batch", 2: "height", 3: "width"}}
TEXT = {"ids": {0: "batch", 1: "tokens"}, "mask": {0: "batch", 1: "tokens"}}


def images(size: Size) -> Inputs:
    return {"image": torch.randn(size.batch, 3, size.side, size.side)}


def text(size: Size) -> Inputs:
    """Token ids; the last text of a batch is shorter than the others."""
    ids = torch.randint(3, TOKENS, (size.batch, size.length))
    mask = torch.ones_like(ids)
    mask[-1, -2:] = 0
    return {"ids": ids, "mask": mask}


# torchvision


@contextmanager
def torchvision_operators() -> Iterator[None]:
    """torchvision with operators written in Python where its compiled half does not load."""
    with declared_operators() as library:
        from torchvision import extension
        from torchvision.ops.roi_align import _roi_align

        def roi_align(x: Tensor, rois: Tensor, scale: float, h: int, w: int, ratio: int, aligned: bool) -> Tensor:
            return inspect.unwrap(_roi_align)(x, rois, scale, h, w, ratio, aligned)

        library.impl("nms", suppressed, "CPU")
        library.impl("roi_align", roi_align, "CPU")
        for module in (extension, sys.modules["torchvision.ops.roi_align"]):
            module._has_ops = _has_operators
        yield


def _has_operators() -> bool:
    return True


def suppressed(boxes: Tensor, scores: Tensor, limit: float) -> Tensor:
    """The boxes that are left when each removes those of lower score that it overlaps too far."""
    from torchvision.ops import box_iou

    order = torch.sort(scores, descending=True, stable=True).indices
    overlaps = box_iou(boxes, boxes) > limit
    kept: list[int] = []
    for index in order.tolist():
        if not overlaps[index, kept].any():
            kept.append(index)
    return torch.tensor(kept, dtype=torch.int64)


def torchvision_network(
    name: str, wrapped: Callable[[nn.Module], nn.Module] = lambda network: network, **arguments: Any
) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from torchvision import models  # after its operators are there

        return wrapped(models.get_model(name, weights=None, **arguments))

    return build


for _name, _side in {
    "alexnet": 224,
    "convnext_tiny": 64,
    "efficientnet_v2_s": 64,
    "mnasnet0_5": 64,
    "mobilenet_v3_small": 64,
    "regnet_y_400mf": 64,
    "resnext50_32x4d": 64,
    "shufflenet_v2_x0_5": 64,
    "swin_t": 64,
    "swin_v2_t": 64,
}.items():
    ARCHITECTURES[_name] = Architecture(torchvision_network(_name), images, IMAGE, _side)

ARCHITECTURES["googlenet"] = Architecture(
    torchvision_network("googlenet", aux_logits=False, init_weights=False), images, IMAGE, 64
)
ARCHITECTURES["maxvit_t"] = Architecture(torchvision_network("maxvit_t"), images, IMAGE, 224)


class FirstMap(nn.Module):
    """A segmentation network's scores, which it gives in a dictionary."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, image: Tensor) -> Tensor:
        scores: Tensor = self.network(image)["out"]
        return scores


for _name in ("deeplabv3_mobilenet_v3_large", "fcn_resnet50", "lraspp_mobilenet_v3_large"):
    _build = torchvision_network(_name, FirstMap, weights_backbone=None)
    ARCHITECTURES[_name] = Architecture(_build, images, ANY_IMAGE, 64)


SPREAD = 30  # of the weights that scores come from


class Detector(nn.Module):
    """A detection network on one image; boxes, labels and scores of what it finds. Scores are spread: as initialisers
    leave them thousands are the same but for rounding, which then decides what is found."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                if "classification_head" in name and parameter.dim() > 1:
                    parameter *= SPREAD

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        found = self.network([image])[0]
        return tuple(found[key] for key in ("boxes", "labels", "scores") if key in found)


def one_image(size: Size) -> Inputs:
    return {"image": torch.rand(3, size.side, size.side + 16)}


_SMALL = {"min_size": 96, "max_size": 160}
for _name, _options in {
    "fasterrcnn_mobilenet_v3_large_320_fpn": {**_SMALL, "num_classes": 5, "box_score_thresh": 0.1},
    "retinanet_resnet50_fpn": {**_SMALL, "num_classes": 5, "score_thresh": 0.01},
    "ssd300_vgg16": {"num_classes": 5, "score_thresh": 0.1},
    "ssdlite320_mobilenet_v3_large": {"num_classes": 5, "score_thresh": 0.1},
}.items():
    _build = torchvision_network(_name, Detector, weights_backbone=None, **_options)
    ARCHITECTURES[_name] = Architecture(_build, one_image, {"image": {1: "height", 2: "width"}}, 96, disturbed=False)

ARCHITECTURES["r3d_18"] = Architecture(
    torchvision_network("r3d_18"),
    lambda size: {"video": torch.randn(size.batch, 3, 4, size.side, size.side)},
    {"video": {0: "batch"}},
    32,
)


# transformers


class Named(nn.Module):
    """A network of transformers with tensors as arguments, by position, and a tuple of tensors."""

    def __init__(self, network: nn.Module, names: Sequence[str], outputs: Sequence[str], **fixed: Any) -> None:
        super().__init__()
        self.network, self.names, self.outputs, self.fixed = network, names, outputs, fixed

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        result = self.network(**dict(zip(self.names, tensors)), **self.fixed, return_dict=True)
        return tuple(result[name] for name in self.outputs)


class Kind(NamedTuple):
    """Inputs that several architectures share: how they are made, what transformers calls them,
    and their open axes."""

    inputs: Callable[[Size], Inputs]
    names: tuple[str, ...]
    open: OpenAxes
    side: int = 0


TEXTS = Kind(text, ("input_ids", "attention_mask"), TEXT)
PICTURES = Kind(images, ("pixel_values",), IMAGE, 64)
PICTURES_OF_ANY_SIZE = Kind(images, ("pixel_values",), ANY_IMAGE, 64)


def add(
    name: str,
    family: str,
    kind: Kind,
    settings: Mapping[str, Any],
    outputs: Sequence[str] = ("last_hidden_state",),
    task: str = "Model",
    **fixed: Any,
) -> None:
    """The architecture of a family such as "Bert" that BertModel and BertConfig make."""

    def build() -> nn.Module:
        import transformers  # which imports torchvision, after its operators are there

        config = getattr(transformers, f"{family}Config")(**settings)
        return Named(getattr(transformers, f"{family}{task}")(config), kind.names, outputs, **fixed)

    ARCHITECTURES[name] = Architecture(build, kind.inputs, kind.open, kind.side)


_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_ENCODER = {**_SIZES, "vocab_size": TOKENS, "max_position_embeddings": 64}
_DEBERTA = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
_DISTILBERT = {"vocab_size": TOKENS, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}

add("albert", "Albert", TEXTS, {**_ENCODER, "embedding_size": 16})
add("deberta_v2", "DebertaV2", TEXTS, {**_ENCODER, **_DEBERTA})
add("distilbert", "DistilBert", TEXTS, _DISTILBERT)
add("electra", "Electra", TEXTS, {**_ENCODER, "embedding_size": 16})
add("mpnet", "MPNet", TEXTS, _ENCODER)
add("roberta", "Roberta", TEXTS, {**_ENCODER, "pad_token_id": 1})

# Decoders

_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_DECODER = {**_ENCODER, **_SPECIAL, "num_key_value_heads": 2, "head_dim": 8}
_CAUSAL = {"outputs": ("logits",), "task": "ForCausalLM", "use_cache": False}

add("gemma", "Gemma", TEXTS, _DECODER, **_CAUSAL)
add("mistral", "Mistral", TEXTS, {**_DECODER, "sliding_window": 8}, **_CAUSAL)
add("opt", "OPT", TEXTS, {**_ENCODER, "ffn_dim": 64, "word_embed_proj_dim": 32}, **_CAUSAL)
add("phi", "Phi", TEXTS, _ENCODER, **_CAUSAL)
add("qwen2", "Qwen2", TEXTS, _DECODER, **_CAUSAL)
add("qwen3", "Qwen3", TEXTS, _DECODER, **_CAUSAL)


class WithCache(nn.Module):
    """A decoder from new tokens and the keys and values of those before to scores and the longer
    keys and values."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, ids: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        from transformers import DynamicCache

        cache = DynamicCache(list(zip(past[::2], past[1::2])))
        result = self.network(input_ids=ids, past_key_values=cache, use_cache=True, return_dict=True)
        layers = result.past_key_values.layers
        return (result.logits, *(tensor for layer in layers for tensor in (layer.keys, layer.values)))


def add_with_cache(name: str, model: str, config: str, settings: Mapping[str, Any], heads: int) -> None:
    """A decoder of two layers that keeps that many heads of eight."""
    past = ("past_key0", "past_value0", "past_key1", "past_value1")

    def build() -> nn.Module:
        import transformers

        return WithCache(getattr(transformers, model)(getattr(transformers, config)(**settings)))

    def inputs(size: Size) -> Inputs:
        made = {"ids": torch.randint(3, TOKENS, (size.batch, 3))}
        return {**made, **{name: torch.randn(size.batch, heads, size.length, 8) for name in past}}

    axes = {"ids": {0: "batch", 1: "tokens"}, **{name: {0: "batch", 2: "past"} for name in past}}
    ARCHITECTURES[name] = Architecture(build, inputs, axes)


_GPT2 = {"vocab_size": TOKENS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
add_with_cache("gpt2_with_cache", "GPT2LMHeadModel", "GPT2Config", _GPT2, 4)
add_with_cache("llama_with_cache", "LlamaForCausalLM", "LlamaConfig", _DECODER, 2)

# Encoders with decoders


def text_pair(size: Size) -> Inputs:
    return {**text(size), "decoder_ids": torch.randint(3, TOKENS, (size.batch, size.length // 2 + 1))}


def speech_and_text(size: Size) -> Inputs:
    ids = torch.randint(3, TOKENS, (size.batch, size.length))
    return {"features": torch.randn(size.batch, 16, 40), "decoder_ids": ids}


_DECODER_IDS = {"decoder_ids": {0: "batch", 1: "decoder_tokens"}}
PAIRS = Kind(text_pair, (*TEXTS.names, "decoder_input_ids"), {**TEXT, **_DECODER_IDS})
SPEECH = Kind(speech_and_text, ("input_features", "decoder_input_ids"), {"features": {0: "batch"}, **_DECODER_IDS})

_BART = {
    "vocab_size": TOKENS,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
}
_T5 = {
    "vocab_size": TOKENS,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
_WHISPER = {
    **_BART,
    **_SPECIAL,
    "num_mel_bins": 16,
    "max_source_positions": 20,
    "max_target_positions": 32,
    "decoder_start_token_id": 1,
}
_GENERATION = {"outputs": ("logits",), "task": "ForConditionalGeneration", "use_cache": False}

add("bart", "Bart", PAIRS, _BART, **_GENERATION)
add("t5", "T5", PAIRS, _T5, **_GENERATION)
add("whisper", "Whisper", SPEECH, _WHISPER, **_GENERATION)

# Sound


def sound(size: Size) -> Inputs:
    return {"samples": torch.randn(size.batch, 100 * size.length)}


SOUND = Kind(sound, ("input_values",), {"samples": {0: "batch", 1: "samples"}})
_WAV2VEC2 = {
    **_SIZES,
    "vocab_size": TOKENS,
    "conv_dim": [16, 16, 16],
    "conv_kernel": [10, 3, 3],
    "conv_stride": [5, 2, 2],
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}
_CONFORMER = {**_WAV2VEC2, "position_embeddings_type": "relative"}

add("hubert", "Hubert", SOUND, _WAV2VEC2)
add("wav2vec2", "Wav2Vec2", SOUND, _WAV2VEC2, ["logits"], "ForCTC")
add("conformer", "Wav2Vec2Conformer", SOUND, _CONFORMER, ["logits"], "ForCTC")

# Images

_VIT = {**_SIZES, "image_size": 64, "patch_size": 16}
_MOBILEVIT = {"image_size": 64, "hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 16, 24, 32, 40, 48, 64]}
_YOLOS = {**_VIT, "image_size": [64, 64], "num_detection_tokens": 5}
_RESNET = {
    "model_type": "resnet",
    "embedding_size": 8,
    "hidden_sizes": [8, 16, 24, 32],
    "depths": [1, 1, 1, 1],
    "out_features": ["stage4"],
}
_DETR = {
    "backbone_config": _RESNET,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "num_queries": 6,
    "num_labels": 4,
}
_SEGFORMER = {
    "depths": [1, 1, 1, 1],
    "hidden_sizes": [8, 16, 24, 32],
    "decoder_hidden_size": 16,
    "num_attention_heads": [1, 2, 2, 4],
}
_BOXES = ("logits", "pred_boxes")

add("beit", "Beit", PICTURES, {**_VIT, "use_relative_position_bias": True})
add("deit", "DeiT", PICTURES, _VIT)
add("dinov2", "Dinov2", PICTURES_OF_ANY_SIZE, _VIT)
add("mobilevit", "MobileViT", PICTURES, _MOBILEVIT)
add("yolos", "Yolos", PICTURES, _YOLOS, _BOXES, "ForObjectDetection")
add("detr", "Detr", PICTURES, _DETR, _BOXES, "ForObjectDetection")
add("segformer", "Segformer", PICTURES_OF_ANY_SIZE, _SEGFORMER, ["logits"], "ForSemanticSegmentation")


def texts_and_images(size: Size) -> Inputs:
    return {**text(size), **images(size)}


_TEXTS = {0: "texts", 1: "tokens"}
TEXTS_AND_PICTURES = Kind(
    texts_and_images, (*TEXTS.names, "pixel_values"), {"ids": _TEXTS, "mask": _TEXTS, **IMAGE}, 64
)
_CLIP = {"text_config": {**_ENCODER, "eos_token_id": 2}, "vision_config": _VIT, "projection_dim": 16}
add("clip", "CLIP", TEXTS_AND_PICTURES, _CLIP, ["logits_per_image", "text_embeds", "image_embeds"])
