"""Inputs and attributes of MXNet 1.9.1's operators, and other names that they have.

Written by tests/frontend/make_mxnet_signatures.py. A row is "inputs | name:kind=default ..."; an
input that ends in * stands for any number, a kind that ends in ? may be None.
"""

SIGNATURES: dict[str, str] = {
    "Activation": "data | act_type:text",
    "BatchNorm": (
        "data gamma beta moving_mean moving_var | eps:float=0.001 momentum:float=0.9 "
        "fix_gamma:bool=1 use_global_stats:bool=0 output_mean_var:bool=0 axis:int=1 "
        "cudnn_off:bool=0 min_calib_range:float?=None max_calib_range:float?=None"
    ),
    "BatchNorm_v1": (
        "data gamma beta moving_mean moving_var | eps:float=0.001 momentum:float=0.9 "
        "fix_gamma:bool=1 use_global_stats:bool=0 output_mean_var:bool=0"
    ),
    "BlockGrad": "data",
    "Cast": "data | dtype:text",
    "Concat": "data* | num_args:int dim:int=1",
    "Convolution": (
        "data weight bias | kernel:ints stride:ints=() dilate:ints=() pad:ints=() num_filter:int "
        "num_group:int=1 workspace:int=1024 no_bias:bool=0 cudnn_tune:text?=None "
        "cudnn_off:bool=0 layout:text?=None"
    ),
    "Convolution_v1": (
        "data weight bias | kernel:ints stride:ints=() dilate:ints=() pad:ints=() num_filter:int "
        "num_group:int=1 workspace:int=1024 no_bias:bool=0 cudnn_tune:text?=None "
        "cudnn_off:bool=0 layout:text?=None"
    ),
    "Crop": "data* | num_args:int offset:ints=(0,0) h_w:ints=(0,0) center_crop:bool=0",
    "Deconvolution": (
        "data weight bias | kernel:ints stride:ints=() dilate:ints=() pad:ints=() adj:ints=() "
        "target_shape:ints=() num_filter:int num_group:int=1 workspace:int=512 no_bias:bool=1 "
        "cudnn_tune:text?=None cudnn_off:bool=0 layout:text?=None"
    ),
    "Dropout": "data | p:float=0.5 mode:text=training axes:ints=() cudnn_off:bool?=0",
    "Embedding": "data weight | input_dim:int output_dim:int dtype:text=float32 sparse_grad:bool=0",
    "Flatten": "data",
    "FullyConnected": "data weight bias | num_hidden:int no_bias:bool=0 flatten:bool=1",
    "GroupNorm": "data gamma beta | num_groups:int=1 eps:float=1e-05 output_mean_var:bool=0",
    "IdentityAttachKLSparseReg": (
        "data moving_avg | sparseness_target:float=0.1 penalty:float=0.001 momentum:float=0.9"
    ),
    "InstanceNorm": "data gamma beta | eps:float=0.001",
    "L2Normalization": "data | eps:float=1e-10 mode:text=instance",
    "LRN": "data | alpha:float=0.0001 beta:float=0.75 knorm:float=2 nsize:int",
    "LayerNorm": "data gamma beta | axis:int=-1 eps:float=1e-05 output_mean_var:bool=0",
    "LeakyReLU": (
        "data gamma | act_type:text=leaky slope:float=0.25 lower_bound:float=0.125 "
        "upper_bound:float=0.334"
    ),
    "LinearRegressionOutput": "data label | grad_scale:float=1",
    "LogisticRegressionOutput": "data label | grad_scale:float=1",
    "MAERegressionOutput": "data label | grad_scale:float=1",
    "MakeLoss": "data | grad_scale:float=1 valid_thresh:float=0 normalization:text=null",
    "Pad": "data | mode:text pad_width:ints constant_value:float=0",
    "Pooling": (
        "data | kernel:ints=() pool_type:text=max global_pool:bool=0 cudnn_off:bool=0 "
        "pooling_convention:text=valid stride:ints=() pad:ints=() p_value:int?=None "
        "count_include_pad:bool?=None layout:text?=None"
    ),
    "Pooling_v1": (
        "data | kernel:ints=() pool_type:text=max global_pool:bool=0 "
        "pooling_convention:text=valid stride:ints=() pad:ints=()"
    ),
    "RNN": (
        "data parameters state state_cell sequence_length | state_size:int num_layers:int "
        "bidirectional:bool=0 mode:text p:float=0 state_outputs:bool=0 projection_size:int?=None "
        "lstm_state_clip_min:float?=None lstm_state_clip_max:float?=None "
        "lstm_state_clip_nan:bool=0 use_sequence_length:bool=0"
    ),
    "Reshape": "data | shape:ints=() reverse:bool=0 target_shape:ints=() keep_highest:bool=0",
    "SVMOutput": "data label | margin:float=1 regularization_coefficient:float=1 use_linear:bool=0",
    "SequenceLast": "data sequence_length | use_sequence_length:bool=0 axis:int=0",
    "SequenceMask": "data sequence_length | use_sequence_length:bool=0 value:float=0 axis:int=0",
    "SequenceReverse": "data sequence_length | use_sequence_length:bool=0 axis:int=0",
    "SliceChannel": "data | num_outputs:int axis:int=1 squeeze_axis:bool=0",
    "SoftmaxActivation": "data | mode:text=instance",
    "SoftmaxOutput": (
        "data label | grad_scale:float=1 ignore_label:float=-1 multi_output:bool=0 "
        "use_ignore:bool=0 preserve_shape:bool=0 normalization:text=null out_grad:bool=0 "
        "smooth_alpha:float=0"
    ),
    "SwapAxis": "data | dim1:int=0 dim2:int=0",
    "UpSampling": (
        "data* | scale:int num_filter:int=0 sample_type:text multi_input_mode:text=concat "
        "num_args:int workspace:int=512"
    ),
    "_CrossDeviceCopy": "data",
    "_arange": (
        "| start:float stop:float?=None step:float=1 repeat:int=1 infer_range:bool=0 ctx:text= "
        "dtype:text=float32"
    ),
    "_contrib_AdaptiveAvgPooling2D": "data | output_size:ints=()",
    "_contrib_BatchNormWithReLU": (
        "data gamma beta moving_mean moving_var | eps:float=0.001 momentum:float=0.9 "
        "fix_gamma:bool=1 use_global_stats:bool=0 output_mean_var:bool=0 axis:int=1 "
        "cudnn_off:bool=0 min_calib_range:float?=None max_calib_range:float?=None"
    ),
    "_contrib_BilinearResize2D": (
        "data like | height:int=1 width:int=1 scale_height:float?=None scale_width:float?=None "
        "mode:text=size align_corners:bool=1"
    ),
    "_contrib_DeformableConvolution": (
        "data offset weight bias | kernel:ints stride:ints=() dilate:ints=() pad:ints=() "
        "num_filter:int num_group:int=1 num_deformable_group:int=1 workspace:int=1024 "
        "no_bias:bool=0 layout:text?=None"
    ),
    "_contrib_ModulatedDeformableConvolution": (
        "data offset mask weight bias | kernel:ints stride:ints=() dilate:ints=() pad:ints=() "
        "num_filter:int num_group:int=1 num_deformable_group:int=1 workspace:int=1024 "
        "no_bias:bool=0 im2col_step:int=64 layout:text?=None"
    ),
    "_contrib_MultiBoxDetection": (
        "cls_prob loc_pred anchor | clip:bool=1 threshold:float=0.01 background_id:int=0 "
        "nms_threshold:float=0.5 force_suppress:bool=0 variances:floats=(0.1,0.1,0.2,0.2) "
        "nms_topk:int=-1"
    ),
    "_contrib_MultiBoxPrior": (
        "data | sizes:floats=(1) ratios:floats=(1) clip:bool=0 steps:floats=(-1,-1) "
        "offsets:floats=(0.5,0.5)"
    ),
    "_contrib_ROIAlign": (
        "data rois | pooled_size:ints spatial_scale:float sample_ratio:int=-1 "
        "position_sensitive:bool=0 aligned:bool=0"
    ),
    "_contrib_SparseEmbedding": (
        "data weight | input_dim:int output_dim:int dtype:text=float32 sparse_grad:bool=0"
    ),
    "_contrib_SyncBatchNorm": (
        "data gamma beta moving_mean moving_var | eps:float=0.001 momentum:float=0.9 "
        "fix_gamma:bool=1 use_global_stats:bool=0 output_mean_var:bool=0 ndev:int=1 key:text"
    ),
    "_contrib_arange_like": (
        "data | start:float=0 step:float=1 repeat:int=1 ctx:text= axis:int?=None"
    ),
    "_contrib_box_decode": (
        "data anchors | std0:float=1 std1:float=1 std2:float=1 std3:float=1 clip:float=-1 "
        "format:text=center"
    ),
    "_contrib_box_iou": "lhs rhs | format:text=corner",
    "_contrib_box_nms": (
        "data | overlap_thresh:float=0.5 valid_thresh:float=0 topk:int=-1 coord_start:int=2 "
        "score_index:int=1 id_index:int=-1 background_id:int=-1 force_suppress:bool=0 "
        "in_format:text=corner out_format:text=corner"
    ),
    "_contrib_div_sqrt_dim": "data",
    "_contrib_gradientmultiplier": "data | scalar:float=1 is_int:bool=1",
    "_contrib_interleaved_matmul_encdec_qk": "queries keys_values | heads:int",
    "_contrib_interleaved_matmul_encdec_valatt": "keys_values attention | heads:int",
    "_contrib_interleaved_matmul_selfatt_qk": "queries_keys_values | heads:int",
    "_contrib_interleaved_matmul_selfatt_valatt": "queries_keys_values attention | heads:int",
    "_contrib_quadratic": "data | a:float=0 b:float=0 c:float=0",
    "_copy": "data",
    "_div_scalar": "data | scalar:float=1 is_int:bool=1",
    "_equal": "lhs rhs",
    "_equal_scalar": "data | scalar:float=1 is_int:bool=1",
    "_eye": "| N:int M:int=0 k:int=0 ctx:text= dtype:text=float32",
    "_full": "| shape:ints?=None ctx:text= dtype:text=float32 value:float",
    "_grad_add": "lhs rhs",
    "_greater": "lhs rhs",
    "_greater_equal": "lhs rhs",
    "_greater_equal_scalar": "data | scalar:float=1 is_int:bool=1",
    "_greater_scalar": "data | scalar:float=1 is_int:bool=1",
    "_hypot": "lhs rhs",
    "_hypot_scalar": "data | scalar:float=1 is_int:bool=1",
    "_identity_with_attr_like_rhs": "lhs rhs",
    "_lesser": "lhs rhs",
    "_lesser_equal": "lhs rhs",
    "_lesser_equal_scalar": "data | scalar:float=1 is_int:bool=1",
    "_lesser_scalar": "data | scalar:float=1 is_int:bool=1",
    "_linalg_gemm2": "A B | transpose_a:bool=0 transpose_b:bool=0 alpha:float=1 axis:int=-2",
    "_logical_and": "lhs rhs",
    "_logical_and_scalar": "data | scalar:float=1 is_int:bool=1",
    "_logical_or": "lhs rhs",
    "_logical_or_scalar": "data | scalar:float=1 is_int:bool=1",
    "_logical_xor": "lhs rhs",
    "_logical_xor_scalar": "data | scalar:float=1 is_int:bool=1",
    "_maximum": "lhs rhs",
    "_maximum_scalar": "data | scalar:float=1 is_int:bool=1",
    "_minimum": "lhs rhs",
    "_minimum_scalar": "data | scalar:float=1 is_int:bool=1",
    "_minus_scalar": "data | scalar:float=1 is_int:bool=1",
    "_mod": "lhs rhs",
    "_mod_scalar": "data | scalar:float=1 is_int:bool=1",
    "_mul_scalar": "data | scalar:float=1 is_int:bool=1",
    "_not_equal": "lhs rhs",
    "_not_equal_scalar": "data | scalar:float=1 is_int:bool=1",
    "_ones": "| shape:ints=() ctx:text= dtype:text=float32",
    "_plus_scalar": "data | scalar:float=1 is_int:bool=1",
    "_power": "lhs rhs",
    "_power_scalar": "data | scalar:float=1 is_int:bool=1",
    "_rdiv_scalar": "data | scalar:float=1 is_int:bool=1",
    "_rminus_scalar": "data | scalar:float=1 is_int:bool=1",
    "_rmod_scalar": "data | scalar:float=1 is_int:bool=1",
    "_rnn_param_concat": "data* | num_args:int dim:int=1",
    "_rpower_scalar": "data | scalar:float=1 is_int:bool=1",
    "_split_v2": "data | indices:ints axis:int=1 squeeze_axis:bool=0 sections:int=0",
    "_zeros": "| shape:ints=() ctx:text= dtype:text=float32",
    "_zeros_without_dtype": "| shape:ints?=None ctx:text= dtype:int=-1",
    "abs": "data",
    "add_n": "args*",
    "amp_cast": "data | dtype:text",
    "amp_multicast": "data* | num_outputs:int cast_narrow:bool=0",
    "arccos": "data",
    "arccosh": "data",
    "arcsin": "data",
    "arcsinh": "data",
    "arctan": "data",
    "arctanh": "data",
    "argmax": "data | axis:int?=None keepdims:bool=0",
    "argmax_channel": "data",
    "argmin": "data | axis:int?=None keepdims:bool=0",
    "argsort": "data | axis:int?=-1 is_ascend:bool=1 dtype:text=float32",
    "batch_dot": "lhs rhs | transpose_a:bool=0 transpose_b:bool=0 forward_stype:text?=None",
    "batch_take": "a indices",
    "broadcast_add": "lhs rhs",
    "broadcast_axis": "data | axis:ints=() size:ints=()",
    "broadcast_div": "lhs rhs",
    "broadcast_equal": "lhs rhs",
    "broadcast_greater": "lhs rhs",
    "broadcast_greater_equal": "lhs rhs",
    "broadcast_hypot": "lhs rhs",
    "broadcast_lesser": "lhs rhs",
    "broadcast_lesser_equal": "lhs rhs",
    "broadcast_like": "lhs rhs | lhs_axes:ints?=None rhs_axes:ints?=None",
    "broadcast_logical_and": "lhs rhs",
    "broadcast_logical_or": "lhs rhs",
    "broadcast_logical_xor": "lhs rhs",
    "broadcast_maximum": "lhs rhs",
    "broadcast_minimum": "lhs rhs",
    "broadcast_mod": "lhs rhs",
    "broadcast_mul": "lhs rhs",
    "broadcast_not_equal": "lhs rhs",
    "broadcast_power": "lhs rhs",
    "broadcast_sub": "lhs rhs",
    "broadcast_to": "data | shape:ints=()",
    "cast_storage": "data | stype:text",
    "cbrt": "data",
    "ceil": "data",
    "clip": "data | a_min:float a_max:float",
    "cos": "data",
    "cosh": "data",
    "degrees": "data",
    "depth_to_space": "data | block_size:int",
    "diag": "data | k:int=0 axis1:int=0 axis2:int=1",
    "dot": "lhs rhs | transpose_a:bool=0 transpose_b:bool=0 forward_stype:text?=None",
    "elemwise_add": "lhs rhs",
    "elemwise_div": "lhs rhs",
    "elemwise_mul": "lhs rhs",
    "elemwise_sub": "lhs rhs",
    "erf": "data",
    "exp": "data",
    "expand_dims": "data | axis:int",
    "expm1": "data",
    "fix": "data",
    "floor": "data",
    "gather_nd": "data indices",
    "hard_sigmoid": "data | alpha:float=0.2 beta:float=0.5",
    "khatri_rao": "args*",
    "log": "data",
    "log10": "data",
    "log1p": "data",
    "log2": "data",
    "log_softmax": (
        "data length | axis:int=-1 temperature:float?=None dtype:text?=None use_length:bool?=0"
    ),
    "logical_not": "data",
    "make_loss": "data",
    "max": "data | axis:ints?=None keepdims:bool=0 exclude:bool=0",
    "mean": "data | axis:ints?=None keepdims:bool=0 exclude:bool=0",
    "min": "data | axis:ints?=None keepdims:bool=0 exclude:bool=0",
    "moments": "data | axes:ints?=None keepdims:bool=0",
    "nanprod": "data | axis:ints?=None keepdims:bool=0 exclude:bool=0",
    "nansum": "data | axis:ints?=None keepdims:bool=0 exclude:bool=0",
    "negative": "data",
    "norm": "data | ord:int=2 axis:ints?=None out_dtype:text?=None keepdims:bool=0",
    "one_hot": "indices | depth:int on_value:float=1 off_value:float=0 dtype:text=float32",
    "ones_like": "data",
    "pick": "data index | axis:int?=-1 keepdims:bool=0 mode:text=clip",
    "prod": "data | axis:ints?=None keepdims:bool=0 exclude:bool=0",
    "radians": "data",
    "rcbrt": "data",
    "reciprocal": "data",
    "relu": "data",
    "repeat": "data | repeats:int axis:int?=None",
    "reshape_like": (
        "lhs rhs | lhs_begin:int?=None lhs_end:int?=None rhs_begin:int?=None rhs_end:int?=None"
    ),
    "reverse": "data | axis:ints",
    "rint": "data",
    "round": "data",
    "rsqrt": "data",
    "shape_array": "data",
    "sigmoid": "data",
    "sign": "data",
    "sin": "data",
    "sinh": "data",
    "size_array": "data",
    "slice": "data | begin:ints end:ints step:ints=()",
    "slice_axis": "data | axis:int begin:int end:int?",
    "slice_like": "data shape_like | axes:ints=()",
    "smooth_l1": "data | scalar:float=1",
    "softmax": (
        "data length | axis:int=-1 temperature:float?=None dtype:text?=None use_length:bool?=0"
    ),
    "softmin": "data | axis:int=-1 temperature:float?=None dtype:text?=None use_length:bool?=0",
    "softsign": "data",
    "sort": "data | axis:int?=-1 is_ascend:bool=1",
    "space_to_depth": "data | block_size:int",
    "sqrt": "data",
    "square": "data",
    "squeeze": "data | axis:ints?=None",
    "stack": "data* | axis:int=0 num_args:int",
    "sum": "data | axis:ints?=None keepdims:bool=0 exclude:bool=0",
    "take": "a indices | axis:int=0 mode:text=clip",
    "tan": "data",
    "tanh": "data",
    "tile": "data | reps:ints",
    "topk": "data | axis:int?=-1 k:int=1 ret_typ:text=indices is_ascend:bool=0 dtype:text=float32",
    "transpose": "data | axes:ints=()",
    "trunc": "data",
    "where": "condition x y",
    "zeros_like": "data",
}

ALIASES: dict[str, str] = {
    "ElementWiseSum": "add_n",
    "Softmax": "SoftmaxOutput",
    "_Div": "elemwise_div",
    "_DivScalar": "_div_scalar",
    "_Equal": "_equal",
    "_EqualScalar": "_equal_scalar",
    "_Greater": "_greater",
    "_GreaterEqualScalar": "_greater_equal_scalar",
    "_GreaterScalar": "_greater_scalar",
    "_Greater_Equal": "_greater_equal",
    "_Hypot": "_hypot",
    "_HypotScalar": "_hypot_scalar",
    "_Lesser": "_lesser",
    "_LesserEqualScalar": "_lesser_equal_scalar",
    "_LesserScalar": "_lesser_scalar",
    "_Lesser_Equal": "_lesser_equal",
    "_LogicalAndScalar": "_logical_and_scalar",
    "_LogicalOrScalar": "_logical_or_scalar",
    "_LogicalXorScalar": "_logical_xor_scalar",
    "_Logical_And": "_logical_and",
    "_Logical_Or": "_logical_or",
    "_Logical_Xor": "_logical_xor",
    "_Maximum": "_maximum",
    "_MaximumScalar": "_maximum_scalar",
    "_Minimum": "_minimum",
    "_MinimumScalar": "_minimum_scalar",
    "_Minus": "elemwise_sub",
    "_MinusScalar": "_minus_scalar",
    "_Mod": "_mod",
    "_ModScalar": "_mod_scalar",
    "_Mul": "elemwise_mul",
    "_MulScalar": "_mul_scalar",
    "_NotEqualScalar": "_not_equal_scalar",
    "_Not_Equal": "_not_equal",
    "_Plus": "elemwise_add",
    "_PlusScalar": "_plus_scalar",
    "_Power": "_power",
    "_PowerScalar": "_power_scalar",
    "_RDivScalar": "_rdiv_scalar",
    "_RMinusScalar": "_rminus_scalar",
    "_RModScalar": "_rmod_scalar",
    "_RPowerScalar": "_rpower_scalar",
    "_add": "elemwise_add",
    "_contrib_box_non_maximum_suppression": "_contrib_box_nms",
    "_div": "elemwise_div",
    "_minus": "elemwise_sub",
    "_mul": "elemwise_mul",
    "_np_repeat": "repeat",
    "_npi_argsort": "argsort",
    "_npi_cast": "Cast",
    "_npi_clip": "clip",
    "_npi_expand_dims": "expand_dims",
    "_npi_full": "_full",
    "_npi_gather_nd": "gather_nd",
    "_npi_hypot_scalar": "_hypot_scalar",
    "_npi_maximum": "broadcast_maximum",
    "_npi_maximum_scalar": "_maximum_scalar",
    "_npi_minimum": "broadcast_minimum",
    "_npi_minimum_scalar": "_minimum_scalar",
    "_npi_rnn_param_concat": "_rnn_param_concat",
    "_npi_slice": "slice",
    "_npi_sort": "sort",
    "_npi_split": "_split_v2",
    "_npi_swapaxes": "SwapAxis",
    "_npi_take": "take",
    "_npi_tile": "tile",
    "_npx_activation": "Activation",
    "_npx_arange_like": "_contrib_arange_like",
    "_npx_batch_dot": "batch_dot",
    "_npx_batch_flatten": "Flatten",
    "_npx_batch_norm": "BatchNorm",
    "_npx_cast": "Cast",
    "_npx_convolution": "Convolution",
    "_npx_deconvolution": "Deconvolution",
    "_npx_dropout": "Dropout",
    "_npx_embedding": "Embedding",
    "_npx_erf": "erf",
    "_npx_fully_connected": "FullyConnected",
    "_npx_gather_nd": "gather_nd",
    "_npx_layer_norm": "LayerNorm",
    "_npx_leaky_relu": "LeakyReLU",
    "_npx_log_softmax": "log_softmax",
    "_npx_multibox_detection": "_contrib_MultiBoxDetection",
    "_npx_multibox_prior": "_contrib_MultiBoxPrior",
    "_npx_one_hot": "one_hot",
    "_npx_pick": "pick",
    "_npx_pooling": "Pooling",
    "_npx_reshape_like": "reshape_like",
    "_npx_rnn": "RNN",
    "_npx_sequence_mask": "SequenceMask",
    "_npx_shape_array": "shape_array",
    "_npx_slice": "slice",
    "_npx_smooth_l1": "smooth_l1",
    "_npx_softmax": "softmax",
    "_npx_topk": "topk",
    "_plus": "elemwise_add",
    "_sparse_ElementWiseSum": "add_n",
    "_sparse_Embedding": "Embedding",
    "_sparse_FullyConnected": "FullyConnected",
    "_sparse_LinearRegressionOutput": "LinearRegressionOutput",
    "_sparse_LogisticRegressionOutput": "LogisticRegressionOutput",
    "_sparse_MAERegressionOutput": "MAERegressionOutput",
    "_sparse_abs": "abs",
    "_sparse_add_n": "add_n",
    "_sparse_arccos": "arccos",
    "_sparse_arccosh": "arccosh",
    "_sparse_arcsin": "arcsin",
    "_sparse_arcsinh": "arcsinh",
    "_sparse_arctan": "arctan",
    "_sparse_arctanh": "arctanh",
    "_sparse_broadcast_add": "broadcast_add",
    "_sparse_broadcast_div": "broadcast_div",
    "_sparse_broadcast_minus": "broadcast_sub",
    "_sparse_broadcast_mul": "broadcast_mul",
    "_sparse_broadcast_plus": "broadcast_add",
    "_sparse_broadcast_sub": "broadcast_sub",
    "_sparse_cast_storage": "cast_storage",
    "_sparse_cbrt": "cbrt",
    "_sparse_ceil": "ceil",
    "_sparse_clip": "clip",
    "_sparse_concat": "Concat",
    "_sparse_cos": "cos",
    "_sparse_cosh": "cosh",
    "_sparse_degrees": "degrees",
    "_sparse_dot": "dot",
    "_sparse_elemwise_add": "elemwise_add",
    "_sparse_elemwise_div": "elemwise_div",
    "_sparse_elemwise_mul": "elemwise_mul",
    "_sparse_elemwise_sub": "elemwise_sub",
    "_sparse_exp": "exp",
    "_sparse_expm1": "expm1",
    "_sparse_fix": "fix",
    "_sparse_floor": "floor",
    "_sparse_log": "log",
    "_sparse_log10": "log10",
    "_sparse_log1p": "log1p",
    "_sparse_log2": "log2",
    "_sparse_make_loss": "make_loss",
    "_sparse_mean": "mean",
    "_sparse_negative": "negative",
    "_sparse_norm": "norm",
    "_sparse_radians": "radians",
    "_sparse_relu": "relu",
    "_sparse_rint": "rint",
    "_sparse_round": "round",
    "_sparse_rsqrt": "rsqrt",
    "_sparse_sigmoid": "sigmoid",
    "_sparse_sign": "sign",
    "_sparse_sin": "sin",
    "_sparse_sinh": "sinh",
    "_sparse_slice": "slice",
    "_sparse_sqrt": "sqrt",
    "_sparse_square": "square",
    "_sparse_stop_gradient": "BlockGrad",
    "_sparse_sum": "sum",
    "_sparse_tan": "tan",
    "_sparse_tanh": "tanh",
    "_sparse_trunc": "trunc",
    "_sparse_where": "where",
    "_sparse_zeros_like": "zeros_like",
    "_sub": "elemwise_sub",
    "broadcast_axes": "broadcast_axis",
    "broadcast_minus": "broadcast_sub",
    "broadcast_plus": "broadcast_add",
    "cast": "Cast",
    "choose_element_0index": "pick",
    "concat": "Concat",
    "crop": "slice",
    "flatten": "Flatten",
    "flip": "reverse",
    "identity": "_copy",
    "linalg_gemm2": "_linalg_gemm2",
    "max_axis": "max",
    "min_axis": "min",
    "pad": "Pad",
    "reshape": "Reshape",
    "split": "SliceChannel",
    "stop_gradient": "BlockGrad",
    "sum_axis": "sum",
    "swapaxes": "SwapAxis",
}
