"""Inputs and attributes of MXNet 1.9.1's operators, and other names that they have.

Written by tests/frontend/make_mxnet_signatures.py. A row is "name other names: inputs | attribute:kind=default ...",
and goes on where lines are indented; an input that ends in * stands for any number, a kind that ends in ? may be None.
"""

ROWS = """\
Activation _npx_activation: data | act_type:text
BatchNorm _npx_batch_norm: data gamma beta moving_mean moving_var | eps:float=0.001 momentum:float=0.9 fix_gamma:bool=1
    use_global_stats:bool=0 output_mean_var:bool=0 axis:int=1 cudnn_off:bool=0 min_calib_range:float?=None
    max_calib_range:float?=None
BatchNorm_v1: data gamma beta moving_mean moving_var | eps:float=0.001 momentum:float=0.9 fix_gamma:bool=1
    use_global_stats:bool=0 output_mean_var:bool=0
BilinearSampler: data grid | cudnn_off:bool?=None
BlockGrad _sparse_stop_gradient stop_gradient: data
CTCLoss _contrib_CTCLoss _contrib_ctc_loss ctc_loss: data label data_lengths label_lengths | use_data_lengths:bool=0
    use_label_lengths:bool=0 blank_label:text=first
Cast _npi_cast _npx_cast cast: data | dtype:text
Concat _sparse_concat concat: data* | num_args:int dim:int=1
Convolution _npx_convolution: data weight bias | kernel:ints stride:ints=() dilate:ints=() pad:ints=() num_filter:int
    num_group:int=1 workspace:int=1024 no_bias:bool=0 cudnn_tune:text?=None cudnn_off:bool=0 layout:text?=None
Convolution_v1: data weight bias | kernel:ints stride:ints=() dilate:ints=() pad:ints=() num_filter:int num_group:int=1
    workspace:int=1024 no_bias:bool=0 cudnn_tune:text?=None cudnn_off:bool=0 layout:text?=None
Correlation: data1 data2 | kernel_size:int=1 max_displacement:int=1 stride1:int=1 stride2:int=1 pad_size:int=0
    is_multiply:bool=1
Crop: data* | num_args:int offset:ints=(0,0) h_w:ints=(0,0) center_crop:bool=0
Deconvolution _npx_deconvolution: data weight bias | kernel:ints stride:ints=() dilate:ints=() pad:ints=() adj:ints=()
    target_shape:ints=() num_filter:int num_group:int=1 workspace:int=512 no_bias:bool=1 cudnn_tune:text?=None
    cudnn_off:bool=0 layout:text?=None
Dropout _npx_dropout: data | p:float=0.5 mode:text=training axes:ints=() cudnn_off:bool?=0
Embedding _npx_embedding _sparse_Embedding: data weight | input_dim:int output_dim:int dtype:text=float32
    sparse_grad:bool=0
Flatten _npx_batch_flatten flatten: data
FullyConnected _npx_fully_connected _sparse_FullyConnected: data weight bias | num_hidden:int no_bias:bool=0
    flatten:bool=1
GridGenerator: data | transform_type:text target_shape:ints=(0,0)
GroupNorm: data gamma beta | num_groups:int=1 eps:float=1e-05 output_mean_var:bool=0
IdentityAttachKLSparseReg: data moving_avg | sparseness_target:float=0.1 penalty:float=0.001 momentum:float=0.9
InstanceNorm: data gamma beta | eps:float=0.001
L2Normalization: data | eps:float=1e-10 mode:text=instance
LRN: data | alpha:float=0.0001 beta:float=0.75 knorm:float=2 nsize:int
LayerNorm _npx_layer_norm: data gamma beta | axis:int=-1 eps:float=1e-05 output_mean_var:bool=0
LeakyReLU _npx_leaky_relu: data gamma | act_type:text=leaky slope:float=0.25 lower_bound:float=0.125
    upper_bound:float=0.334
LinearRegressionOutput _sparse_LinearRegressionOutput: data label | grad_scale:float=1
LogisticRegressionOutput _sparse_LogisticRegressionOutput: data label | grad_scale:float=1
MAERegressionOutput _sparse_MAERegressionOutput: data label | grad_scale:float=1
MakeLoss: data | grad_scale:float=1 valid_thresh:float=0 normalization:text=null
Pad pad: data | mode:text pad_width:ints constant_value:float=0
Pooling _npx_pooling: data | kernel:ints=() pool_type:text=max global_pool:bool=0 cudnn_off:bool=0
    pooling_convention:text=valid stride:ints=() pad:ints=() p_value:int?=None count_include_pad:bool?=None
    layout:text?=None
Pooling_v1: data | kernel:ints=() pool_type:text=max global_pool:bool=0 pooling_convention:text=valid stride:ints=()
    pad:ints=()
RNN _npx_rnn: data parameters state state_cell sequence_length | state_size:int num_layers:int bidirectional:bool=0
    mode:text p:float=0 state_outputs:bool=0 projection_size:int?=None lstm_state_clip_min:float?=None
    lstm_state_clip_max:float?=None lstm_state_clip_nan:bool=0 use_sequence_length:bool=0
ROIPooling _npx_roi_pooling: data rois | pooled_size:ints spatial_scale:float
Reshape reshape: data | shape:ints=() reverse:bool=0 target_shape:ints=() keep_highest:bool=0
SVMOutput: data label | margin:float=1 regularization_coefficient:float=1 use_linear:bool=0
SequenceLast: data sequence_length | use_sequence_length:bool=0 axis:int=0
SequenceMask _npx_sequence_mask: data sequence_length | use_sequence_length:bool=0 value:float=0 axis:int=0
SequenceReverse: data sequence_length | use_sequence_length:bool=0 axis:int=0
SliceChannel split: data | num_outputs:int axis:int=1 squeeze_axis:bool=0
SoftmaxActivation: data | mode:text=instance
SoftmaxOutput Softmax: data label | grad_scale:float=1 ignore_label:float=-1 multi_output:bool=0 use_ignore:bool=0
    preserve_shape:bool=0 normalization:text=null out_grad:bool=0 smooth_alpha:float=0
SpatialTransformer: data loc | target_shape:ints=(0,0) transform_type:text sampler_type:text cudnn_off:bool?=None
SwapAxis _npi_swapaxes swapaxes: data | dim1:int=0 dim2:int=0
UpSampling: data* | scale:int num_filter:int=0 sample_type:text multi_input_mode:text=concat num_args:int
    workspace:int=512
_CrossDeviceCopy: data
_arange: | start:float stop:float?=None step:float=1 repeat:int=1 infer_range:bool=0 ctx:text= dtype:text=float32
_cond: cond then_branch else_branch data* | num_args:int num_outputs:int cond_input_locs:ints then_input_locs:ints
    else_input_locs:ints
_contrib_AdaptiveAvgPooling2D: data | output_size:ints=()
_contrib_BatchNormWithReLU: data gamma beta moving_mean moving_var | eps:float=0.001 momentum:float=0.9 fix_gamma:bool=1
    use_global_stats:bool=0 output_mean_var:bool=0 axis:int=1 cudnn_off:bool=0 min_calib_range:float?=None
    max_calib_range:float?=None
_contrib_BilinearResize2D: data like | height:int=1 width:int=1 scale_height:float?=None scale_width:float?=None
    mode:text=size align_corners:bool=1
_contrib_DeformableConvolution: data offset weight bias | kernel:ints stride:ints=() dilate:ints=() pad:ints=()
    num_filter:int num_group:int=1 num_deformable_group:int=1 workspace:int=1024 no_bias:bool=0 layout:text?=None
_contrib_DeformablePSROIPooling: data rois trans | spatial_scale:float output_dim:int group_size:int pooled_size:int
    part_size:int=0 sample_per_part:int=1 trans_std:float=0 no_trans:bool=0
_contrib_ModulatedDeformableConvolution: data offset mask weight bias | kernel:ints stride:ints=() dilate:ints=()
    pad:ints=() num_filter:int num_group:int=1 num_deformable_group:int=1 workspace:int=1024 no_bias:bool=0
    im2col_step:int=64 layout:text?=None
_contrib_MultiBoxDetection _npx_multibox_detection: cls_prob loc_pred anchor | clip:bool=1 threshold:float=0.01
    background_id:int=0 nms_threshold:float=0.5 force_suppress:bool=0 variances:floats=(0.1,0.1,0.2,0.2) nms_topk:int=-1
_contrib_MultiBoxPrior _npx_multibox_prior: data | sizes:floats=(1) ratios:floats=(1) clip:bool=0 steps:floats=(-1,-1)
    offsets:floats=(0.5,0.5)
_contrib_MultiProposal: cls_prob bbox_pred im_info | rpn_pre_nms_top_n:int=6000 rpn_post_nms_top_n:int=300
    threshold:float=0.7 rpn_min_size:int=16 scales:floats=(4,8,16,32) ratios:floats=(0.5,1,2) feature_stride:int=16
    output_score:bool=0 iou_loss:bool=0
_contrib_PSROIPooling: data rois | spatial_scale:float output_dim:int pooled_size:int group_size:int=0
_contrib_Proposal: cls_prob bbox_pred im_info | rpn_pre_nms_top_n:int=6000 rpn_post_nms_top_n:int=300
    threshold:float=0.7 rpn_min_size:int=16 scales:floats=(4,8,16,32) ratios:floats=(0.5,1,2) feature_stride:int=16
    output_score:bool=0 iou_loss:bool=0
_contrib_ROIAlign: data rois | pooled_size:ints spatial_scale:float sample_ratio:int=-1 position_sensitive:bool=0
    aligned:bool=0
_contrib_SparseEmbedding: data weight | input_dim:int output_dim:int dtype:text=float32 sparse_grad:bool=0
_contrib_SyncBatchNorm: data gamma beta moving_mean moving_var | eps:float=0.001 momentum:float=0.9 fix_gamma:bool=1
    use_global_stats:bool=0 output_mean_var:bool=0 ndev:int=1 key:text
_contrib_arange_like _npx_arange_like: data | start:float=0 step:float=1 repeat:int=1 ctx:text= axis:int?=None
_contrib_box_decode: data anchors | std0:float=1 std1:float=1 std2:float=1 std3:float=1 clip:float=-1 format:text=center
_contrib_box_iou: lhs rhs | format:text=corner
_contrib_box_nms _contrib_box_non_maximum_suppression: data | overlap_thresh:float=0.5 valid_thresh:float=0 topk:int=-1
    coord_start:int=2 score_index:int=1 id_index:int=-1 background_id:int=-1 force_suppress:bool=0 in_format:text=corner
    out_format:text=corner
_contrib_div_sqrt_dim: data
_contrib_gradientmultiplier: data | scalar:float=1 is_int:bool=1
_contrib_interleaved_matmul_encdec_qk: queries keys_values | heads:int
_contrib_interleaved_matmul_encdec_valatt: keys_values attention | heads:int
_contrib_interleaved_matmul_selfatt_qk: queries_keys_values | heads:int
_contrib_interleaved_matmul_selfatt_valatt: queries_keys_values attention | heads:int
_contrib_quadratic: data | a:float=0 b:float=0 c:float=0
_contrib_round_ste _sparse__contrib_round_ste: data
_contrib_sign_ste _sparse__contrib_sign_ste: data
_copy identity: data
_div_scalar _DivScalar: data | scalar:float=1 is_int:bool=1
_equal _Equal: lhs rhs
_equal_scalar _EqualScalar: data | scalar:float=1 is_int:bool=1
_eye: | N:int M:int=0 k:int=0 ctx:text= dtype:text=float32
_foreach: fn data* | num_args:int num_outputs:int num_out_data:int in_state_locs:ints in_data_locs:ints remain_locs:ints
_full _npi_full: | shape:ints?=None ctx:text= dtype:text=float32 value:float
_grad_add: lhs rhs
_greater _Greater: lhs rhs
_greater_equal _Greater_Equal: lhs rhs
_greater_equal_scalar _GreaterEqualScalar: data | scalar:float=1 is_int:bool=1
_greater_scalar _GreaterScalar: data | scalar:float=1 is_int:bool=1
_hypot _Hypot: lhs rhs
_hypot_scalar _HypotScalar _npi_hypot_scalar: data | scalar:float=1 is_int:bool=1
_identity_with_attr_like_rhs: lhs rhs
_image_crop _npx__image_crop: data | x:int y:int width:int height:int
_image_flip_left_right _npx__image_flip_left_right: data
_image_flip_top_bottom _npx__image_flip_top_bottom: data
_image_normalize _npx__image_normalize: data | mean:floats=(0,0,0,0) std:floats=(1,1,1,1)
_image_to_tensor _npx__image_to_tensor: data
_lesser _Lesser: lhs rhs
_lesser_equal _Lesser_Equal: lhs rhs
_lesser_equal_scalar _LesserEqualScalar: data | scalar:float=1 is_int:bool=1
_lesser_scalar _LesserScalar: data | scalar:float=1 is_int:bool=1
_linalg_gemm linalg_gemm: A B C | transpose_a:bool=0 transpose_b:bool=0 alpha:float=1 beta:float=1 axis:int=-2
_linalg_gemm2 linalg_gemm2: A B | transpose_a:bool=0 transpose_b:bool=0 alpha:float=1 axis:int=-2
_logical_and _Logical_And: lhs rhs
_logical_and_scalar _LogicalAndScalar: data | scalar:float=1 is_int:bool=1
_logical_or _Logical_Or: lhs rhs
_logical_or_scalar _LogicalOrScalar: data | scalar:float=1 is_int:bool=1
_logical_xor _Logical_Xor: lhs rhs
_logical_xor_scalar _LogicalXorScalar: data | scalar:float=1 is_int:bool=1
_maximum _Maximum: lhs rhs
_maximum_scalar _MaximumScalar _npi_maximum_scalar: data | scalar:float=1 is_int:bool=1
_minimum _Minimum: lhs rhs
_minimum_scalar _MinimumScalar _npi_minimum_scalar: data | scalar:float=1 is_int:bool=1
_minus_scalar _MinusScalar: data | scalar:float=1 is_int:bool=1
_mod _Mod: lhs rhs
_mod_scalar _ModScalar: data | scalar:float=1 is_int:bool=1
_mul_scalar _MulScalar: data | scalar:float=1 is_int:bool=1
_not_equal _Not_Equal: lhs rhs
_not_equal_scalar _NotEqualScalar: data | scalar:float=1 is_int:bool=1
_np_all: data | axis:ints?=None keepdims:bool=0
_np_any _np_sometrue: data | axis:ints?=None keepdims:bool=0
_np_copy: a
_np_cumsum cumsum: a | axis:int?=None dtype:text?=None
_np_dot: a b
_np_max _np_amax: a | axis:ints?=None keepdims:bool=0 initial:float?=None
_np_min _np_amin: a | axis:ints?=None keepdims:bool=0 initial:float?=None
_np_moveaxis: a | source:ints destination:ints
_np_prod _np_product: a | axis:ints?=None dtype:text?=None keepdims:bool=0 initial:float?=None
_np_reshape: a | newshape:ints order:text=C
_np_roll: data | shift:ints?=None axis:ints?=None
_np_squeeze: a | axis:ints?=None
_np_sum: a | axis:ints?=None dtype:text?=None keepdims:bool=0 initial:float?=None
_np_transpose: a | axes:ints?=None
_npi_absolute _npi_abs: x
_npi_add: lhs rhs
_npi_add_scalar: data | scalar:float=1 is_int:bool=1
_npi_arange: | start:float stop:float?=None step:float=1 repeat:int=1 infer_range:bool=0 ctx:text= dtype:text=float32
_npi_arccos: x
_npi_arccosh: x
_npi_arcsin: x
_npi_arcsinh: x
_npi_arctan: x
_npi_arctanh: x
_npi_argmax: data | axis:int?=None keepdims:bool=0
_npi_argmin: data | axis:int?=None keepdims:bool=0
_npi_around: x | decimals:int=0
_npi_broadcast_to: array | shape:ints=()
_npi_cbrt: x
_npi_ceil: x
_npi_concatenate: data* | num_args:int dim:int=1 axis:int?=0
_npi_cos: x
_npi_cosh: x
_npi_degrees: x
_npi_equal: lhs rhs
_npi_equal_scalar: data | scalar:float=1 is_int:bool=1
_npi_exp: x
_npi_expm1: x
_npi_fix: x
_npi_flip: data | axis:ints
_npi_floor: x
_npi_full_like: a | fill_value:float ctx:text= dtype:text?=None
_npi_greater: lhs rhs
_npi_greater_equal: lhs rhs
_npi_greater_equal_scalar: data | scalar:float=1 is_int:bool=1
_npi_greater_scalar: data | scalar:float=1 is_int:bool=1
_npi_hstack: data* | num_args:int dim:int=1
_npi_identity: | shape:ints=() ctx:text= dtype:text=float32
_npi_isfinite: x
_npi_isinf: x
_npi_isnan: x
_npi_less: lhs rhs
_npi_less_equal: lhs rhs
_npi_less_equal_scalar: data | scalar:float=1 is_int:bool=1
_npi_less_scalar: data | scalar:float=1 is_int:bool=1
_npi_log: x
_npi_log10: x
_npi_log1p: x
_npi_log2: x
_npi_logical_not: x
_npi_matmul: a b
_npi_mean: a | axis:ints?=None dtype:text?=None keepdims:bool=0 initial:float?=None
_npi_mod: lhs rhs
_npi_mod_scalar: data | scalar:float=1 is_int:bool=1
_npi_multiply: lhs rhs
_npi_multiply_scalar: data | scalar:float=1 is_int:bool=1
_npi_negative: x
_npi_not_equal: lhs rhs
_npi_not_equal_scalar: data | scalar:float=1 is_int:bool=1
_npi_ones: | shape:ints=() ctx:text= dtype:text=float32
_npi_power: lhs rhs
_npi_power_scalar: data | scalar:float=1 is_int:bool=1
_npi_radians: x
_npi_reciprocal: x
_npi_rint: x
_npi_rmod_scalar: data | scalar:float=1 is_int:bool=1
_npi_rpower_scalar: data | scalar:float=1 is_int:bool=1
_npi_rsubtract_scalar: data | scalar:float=1 is_int:bool=1
_npi_rtrue_divide_scalar: data | scalar:float=1 is_int:bool=1
_npi_sign: x
_npi_sin: x
_npi_sinh: x
_npi_sqrt: x
_npi_square: x
_npi_stack: data* | axis:int=0 num_args:int
_npi_std: a | axis:ints?=None dtype:text?=None ddof:int=0 keepdims:bool=0
_npi_subtract: lhs rhs
_npi_subtract_scalar: data | scalar:float=1 is_int:bool=1
_npi_tan: x
_npi_tanh: x
_npi_tensordot: a b | a_axes_summed:ints b_axes_summed:ints
_npi_tensordot_int_axes: a b | axes:int
_npi_tril: data | k:int=0
_npi_true_divide: lhs rhs
_npi_true_divide_scalar: data | scalar:float=1 is_int:bool=1
_npi_trunc: x
_npi_var: a | axis:ints?=None dtype:text?=None ddof:int=0 keepdims:bool=0
_npi_vstack: data* | num_args:int
_npi_where: condition x y
_npi_where_lscalar: condition x | scalar:float=0
_npi_where_rscalar: condition y | scalar:float=0
_npi_where_scalar2: condition | x:float=0 y:float=0
_npi_zeros: | shape:ints=() ctx:text= dtype:text=float32
_npx_relu: data
_npx_reshape _npi_reshape: a | newshape:ints reverse:bool=0 order:text=C
_npx_sigmoid: data
_ones: | shape:ints=() ctx:text= dtype:text=float32
_plus_scalar _PlusScalar: data | scalar:float=1 is_int:bool=1
_power _Power: lhs rhs
_power_scalar _PowerScalar: data | scalar:float=1 is_int:bool=1
_random_exponential random_exponential: | lam:float=1 shape:ints?=None ctx:text= dtype:text?=None
_random_exponential_like: data | lam:float=1
_random_normal normal random_normal: | loc:float=0 scale:float=1 shape:ints?=None ctx:text= dtype:text?=None
_random_normal_like: data | loc:float=0 scale:float=1
_random_randint _npi_random_randint random_randint: | low:int high:int shape:ints?=None ctx:text= dtype:text?=None
_random_uniform random_uniform uniform: | low:float=0 high:float=1 shape:ints?=None ctx:text= dtype:text?=None
_random_uniform_like: data | low:float=0 high:float=1
_rdiv_scalar _RDivScalar: data | scalar:float=1 is_int:bool=1
_rminus_scalar _RMinusScalar: data | scalar:float=1 is_int:bool=1
_rmod_scalar _RModScalar: data | scalar:float=1 is_int:bool=1
_rnn_param_concat _npi_rnn_param_concat: data* | num_args:int dim:int=1
_rpower_scalar _RPowerScalar: data | scalar:float=1 is_int:bool=1
_sample_exponential sample_exponential: lam | shape:ints=() dtype:text?=None
_sample_multinomial sample_multinomial: data | shape:ints=() get_prob:bool=0 dtype:text=int32
_sample_normal sample_normal: mu sigma | shape:ints=() dtype:text?=None
_sample_uniform sample_uniform: low high | shape:ints=() dtype:text?=None
_split_v2 _npi_split: data | indices:ints axis:int=1 squeeze_axis:bool=0 sections:int=0
_while_loop: cond func data* | num_args:int num_outputs:int num_out_data:int max_iterations:int cond_input_locs:ints
    func_input_locs:ints func_var_locs:ints
_zeros: | shape:ints=() ctx:text= dtype:text=float32
_zeros_without_dtype: | shape:ints?=None ctx:text= dtype:int=-1
abs _sparse_abs: data
add_n ElementWiseSum _sparse_ElementWiseSum _sparse_add_n: args*
amp_cast: data | dtype:text
amp_multicast: data* | num_outputs:int cast_narrow:bool=0
arccos _sparse_arccos: data
arccosh _sparse_arccosh: data
arcsin _sparse_arcsin: data
arcsinh _sparse_arcsinh: data
arctan _sparse_arctan: data
arctanh _sparse_arctanh: data
argmax: data | axis:int?=None keepdims:bool=0
argmax_channel: data
argmin: data | axis:int?=None keepdims:bool=0
argsort _npi_argsort: data | axis:int?=-1 is_ascend:bool=1 dtype:text=float32
batch_dot _npx_batch_dot: lhs rhs | transpose_a:bool=0 transpose_b:bool=0 forward_stype:text?=None
batch_take: a indices
broadcast_add _sparse_broadcast_add _sparse_broadcast_plus broadcast_plus: lhs rhs
broadcast_axis broadcast_axes: data | axis:ints=() size:ints=()
broadcast_div _sparse_broadcast_div: lhs rhs
broadcast_equal: lhs rhs
broadcast_greater: lhs rhs
broadcast_greater_equal: lhs rhs
broadcast_hypot: lhs rhs
broadcast_lesser: lhs rhs
broadcast_lesser_equal: lhs rhs
broadcast_like: lhs rhs | lhs_axes:ints?=None rhs_axes:ints?=None
broadcast_logical_and: lhs rhs
broadcast_logical_or: lhs rhs
broadcast_logical_xor: lhs rhs
broadcast_maximum _npi_maximum: lhs rhs
broadcast_minimum _npi_minimum: lhs rhs
broadcast_mod: lhs rhs
broadcast_mul _sparse_broadcast_mul: lhs rhs
broadcast_not_equal: lhs rhs
broadcast_power: lhs rhs
broadcast_sub _sparse_broadcast_minus _sparse_broadcast_sub broadcast_minus: lhs rhs
broadcast_to: data | shape:ints=()
cast_storage _sparse_cast_storage: data | stype:text
cbrt _sparse_cbrt: data
ceil _sparse_ceil: data
clip _npi_clip _sparse_clip: data | a_min:float a_max:float
cos _sparse_cos: data
cosh _sparse_cosh: data
degrees _sparse_degrees: data
depth_to_space: data | block_size:int
diag: data | k:int=0 axis1:int=0 axis2:int=1
dot _sparse_dot: lhs rhs | transpose_a:bool=0 transpose_b:bool=0 forward_stype:text?=None
elemwise_add _Plus _add _plus _sparse_elemwise_add: lhs rhs
elemwise_div _Div _div _sparse_elemwise_div: lhs rhs
elemwise_mul _Mul _mul _sparse_elemwise_mul: lhs rhs
elemwise_sub _Minus _minus _sparse_elemwise_sub _sub: lhs rhs
erf _npx_erf: data
erfinv _npx_erfinv: data
exp _sparse_exp: data
expand_dims _npi_expand_dims: data | axis:int
expm1 _sparse_expm1: data
fix _sparse_fix: data
floor _sparse_floor: data
gammaln _npx_gammaln _sparse_gammaln: data
gather_nd _npi_gather_nd _npx_gather_nd: data indices
hard_sigmoid: data | alpha:float=0.2 beta:float=0.5
khatri_rao: args*
log _sparse_log: data
log10 _sparse_log10: data
log1p _sparse_log1p: data
log2 _sparse_log2: data
log_softmax _npx_log_softmax: data length | axis:int=-1 temperature:float?=None dtype:text?=None use_length:bool?=0
logical_not: data
make_loss _sparse_make_loss: data
max max_axis: data | axis:ints?=None keepdims:bool=0 exclude:bool=0
mean _sparse_mean: data | axis:ints?=None keepdims:bool=0 exclude:bool=0
min min_axis: data | axis:ints?=None keepdims:bool=0 exclude:bool=0
moments: data | axes:ints?=None keepdims:bool=0
nanprod: data | axis:ints?=None keepdims:bool=0 exclude:bool=0
nansum: data | axis:ints?=None keepdims:bool=0 exclude:bool=0
negative _sparse_negative: data
norm _sparse_norm: data | ord:int=2 axis:ints?=None out_dtype:text?=None keepdims:bool=0
one_hot _npx_one_hot: indices | depth:int on_value:float=1 off_value:float=0 dtype:text=float32
ones_like: data
pick _npx_pick choose_element_0index: data index | axis:int?=-1 keepdims:bool=0 mode:text=clip
prod: data | axis:ints?=None keepdims:bool=0 exclude:bool=0
radians _sparse_radians: data
rcbrt: data
reciprocal: data
relu _sparse_relu: data
repeat _np_repeat: data | repeats:int axis:int?=None
reshape_like _npx_reshape_like: lhs rhs | lhs_begin:int?=None lhs_end:int?=None rhs_begin:int?=None rhs_end:int?=None
reverse flip: data | axis:ints
rint _sparse_rint: data
round _sparse_round: data
rsqrt _sparse_rsqrt: data
shape_array _npx_shape_array: data
sigmoid _sparse_sigmoid: data
sign _sparse_sign: data
sin _sparse_sin: data
sinh _sparse_sinh: data
size_array: data
slice _npi_slice _npx_slice _sparse_slice crop: data | begin:ints end:ints step:ints=()
slice_axis: data | axis:int begin:int end:int?
slice_like: data shape_like | axes:ints=()
smooth_l1 _npx_smooth_l1: data | scalar:float=1
softmax _npx_softmax: data length | axis:int=-1 temperature:float?=None dtype:text?=None use_length:bool?=0
softmin: data | axis:int=-1 temperature:float?=None dtype:text?=None use_length:bool?=0
softsign: data
sort _npi_sort: data | axis:int?=-1 is_ascend:bool=1
space_to_depth: data | block_size:int
sqrt _sparse_sqrt: data
square _sparse_square: data
squeeze: data | axis:ints?=None
stack: data* | axis:int=0 num_args:int
sum _sparse_sum sum_axis: data | axis:ints?=None keepdims:bool=0 exclude:bool=0
take _npi_take: a indices | axis:int=0 mode:text=clip
tan _sparse_tan: data
tanh _sparse_tanh: data
tile _npi_tile: data | reps:ints
topk _npx_topk: data | axis:int?=-1 k:int=1 ret_typ:text=indices is_ascend:bool=0 dtype:text=float32
transpose: data | axes:ints=()
trunc _sparse_trunc: data
where _sparse_where: condition x y
zeros_like _sparse_zeros_like: data
"""
