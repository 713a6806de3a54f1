"""The names of weft for tensors (written by `make docs` from the function table)."""

TENSOR_NAMES = frozenset(
    """
AVG AcceleratorError AggregationType BFloat16Storage BFloat16Tensor BoolStorage BoolTensor
ByteStorage ByteTensor CharStorage CharTensor ComplexDoubleStorage ComplexFloatStorage
DoubleStorage DoubleTensor ExtraFilesMap FatalError FloatStorage FloatTensor Future Generator
GradScaler HalfStorage HalfTensor IntStorage IntTensor LockingLogger LoggerBase LongStorage
LongTensor NoopLogger OutOfMemoryError PyTorchFileReader PyTorchFileWriter SUM ShortStorage
ShortTensor Size Tensor UntypedStorage abs abs_ absolute absolute_ acos acos_ acosh acosh_
adaptive_avg_pool1d adaptive_max_pool1d add add_ addbmm addbmm_ addcdiv addcdiv_ addcmul
addcmul_ addmm addmm_ addmv addmv_ addr addr_ adjoint affine_grid_generator alias_copy all
allclose alpha_dropout alpha_dropout_ amax amin aminmax angle any arange arccos arccos_ arccosh
arccosh_ arcsin arcsin_ arcsinh arcsinh_ arctan arctan2 arctan2_ arctan_ arctanh arctanh_
are_deterministic_algorithms_enabled argmax argmin argsort argwhere as_dtype as_strided
as_strided_ as_strided_copy as_strided_scatter as_tensor asarray asin asin_ asinh asinh_ atan
atan2 atan2_ atan_ atanh atanh_ atleast_1d atleast_2d atleast_3d autocast avg_pool1d baddbmm
baddbmm_ bartlett_window batch_norm bernoulli bfloat16 bilinear binary_cross_entropy_with_logits
bincount binomial bitwise_and bitwise_and_ bitwise_left_shift bitwise_left_shift_ bitwise_not
bitwise_not_ bitwise_or bitwise_or_ bitwise_right_shift bitwise_right_shift_ bitwise_xor
bitwise_xor_ blackman_window block_diag bmm bool broadcast_shapes broadcast_tensors broadcast_to
bucketize can_cast cartesian_prod cat cdist cdouble ceil ceil_ celu celu_ cfloat chain_matmul
channel_shuffle channels_last channels_last_3d cholesky cholesky_inverse cholesky_solve chunk
clamp clamp_ clamp_max clamp_max_ clamp_min clamp_min_ clear_autocast_cache clip clip_ clone
column_stack combinations complex complex128 complex64 concat concatenate conj conj_physical
conj_physical_ constant_pad_nd contiguous_format conv1d conv2d conv3d conv_tbc conv_transpose1d
conv_transpose2d conv_transpose3d convolution copysign copysign_ corrcoef cos cos_ cosh cosh_
cosine_embedding_loss cosine_similarity count_nonzero cov cross ctc_loss cummax cummin cumprod
cumprod_ cumsum cumsum_ cumulative_trapezoid default_generator deg2rad deg2rad_ det detach
detach_ detach_copy device diag diag_embed diagflat diagonal diagonal_copy diagonal_scatter diff
digamma digamma_ dist div div_ divide divide_ dot double dropout dropout_ dsplit dstack dtype e
eig einsum embedding embedding_bag embedding_renorm_ empty empty_like empty_permuted
empty_strided enable_grad eq eq_ equal erf erf_ erfc erfc_ erfinv erfinv_ exp exp2 exp2_ exp_
expand_copy expm1 expm1_ eye feature_alpha_dropout feature_alpha_dropout_ feature_dropout
feature_dropout_ fill fill_ finfo fix fix_ flatten flip fliplr flipud float float16 float32
float64 float_power floor floor_ floor_divide floor_divide_ fmax fmin fmod fmod_ fork frac frac_
frexp frobenius_norm from_dlpack from_file from_numpy frombuffer full full_like gather gcd gcd_
ge ge_ geqrf ger get_autocast_cpu_dtype get_autocast_dtype get_autocast_gpu_dtype
get_default_device get_default_dtype get_deterministic_debug_mode get_device
get_float32_matmul_precision get_num_interop_threads get_num_threads get_printoptions
get_rng_state gradient greater greater_ greater_equal greater_equal_ grid_sampler
grid_sampler_2d grid_sampler_3d group_norm gru gru_cell gt gt_ half hamming_window hann_window
hardshrink has_cuda has_cudnn has_lapack has_mkl has_mkldnn has_openmp heaviside heaviside_
hinge_embedding_loss histc histogram histogramdd hsplit hstack hypot hypot_ i0 i0_ igamma
igamma_ igammac igammac_ iinfo imag index_add index_add_ index_copy index_copy_ index_fill
index_fill_ index_put index_put_ index_reduce index_reduce_ index_select inf inference_mode
initial_seed inner instance_norm int int16 int32 int64 int8 inverse is_anomaly_enabled
is_autocast_cache_enabled is_autocast_cpu_enabled is_autocast_enabled is_complex is_conj
is_deterministic_algorithms_warn_only_enabled is_distributed is_floating_point is_grad_enabled
is_inference is_inference_mode_enabled is_neg is_nonzero is_same_size is_signed is_storage
is_tensor is_vulkan_available is_warn_always_enabled isclose isfinite isin isinf isnan isneginf
isposinf isreal istft kaiser_window kl_div kron kthvalue layer_norm layout lcm lcm_ ldexp ldexp_
le le_ lerp lerp_ less less_ less_equal less_equal_ lgamma lgamma_ linspace load lobpcg log
log10 log10_ log1p log1p_ log2 log2_ log_ log_softmax logaddexp logaddexp2 logcumsumexp logdet
logical_and logical_and_ logical_not logical_not_ logical_or logical_or_ logical_xor
logical_xor_ logit logit_ logspace logsumexp long lstm lstm_cell lstsq lt lt_ lu lu_solve
lu_unpack manual_seed margin_ranking_loss masked_fill masked_fill_ masked_scatter
masked_scatter_ masked_select matmul matrix_exp matrix_power matrix_rank max max_pool1d
max_pool1d_with_indices max_pool2d max_pool3d maximum mean median memory_format meshgrid min
minimum mm mode moveaxis movedim msort mul mul_ multinomial multiply multiply_ mv mvlgamma
mvlgamma_ nan nan_to_num nan_to_num_ nanmean nanmedian nanquantile nansum narrow narrow_copy
native_batch_norm native_channel_shuffle native_dropout native_group_norm native_layer_norm ne
ne_ neg neg_ negative negative_ newaxis nextafter nextafter_ no_grad nonzero nonzero_static norm
norm_except_dim normal not_equal not_equal_ nuclear_norm numel ones ones_like orgqr ormqr outer
pairwise_distance pca_lowrank pdist permute permute_copy pi pinverse pixel_shuffle
pixel_unshuffle poisson poisson_nll_loss polar polygamma positive pow pow_ prelu preserve_format
printoptions prod promote_types put put_ qr quantile rad2deg rad2deg_ rand rand_like randint
randint_like randn randn_like randperm range ravel real reciprocal reciprocal_ relu relu_
remainder remainder_ renorm renorm_ repeat_interleave reshape resize_as_ resolve_conj
resolve_neg result_type rms_norm rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell roll rot90 round
round_ row_stack rrelu rrelu_ rsqrt rsqrt_ rsub save scalar_tensor scatter scatter_ scatter_add
scatter_add_ scatter_reduce scatter_reduce_ searchsorted seed segment_reduce select select_copy
select_scatter selu selu_ set_anomaly_enabled set_autocast_cache_enabled set_autocast_cpu_dtype
set_autocast_cpu_enabled set_autocast_dtype set_autocast_enabled set_autocast_gpu_dtype
set_default_device set_default_dtype set_default_tensor_type set_deterministic_debug_mode
set_float32_matmul_precision set_flush_denormal set_grad_enabled set_num_interop_threads
set_num_threads set_printoptions set_rng_state set_warn_always sgn sgn_ short sigmoid sigmoid_
sign sign_ signbit sin sin_ sinc sinc_ sinh sinh_ slice_copy slice_scatter slogdet softmax solve
sort sparse_coo split split_copy split_with_sizes split_with_sizes_copy sqrt sqrt_ square
square_ squeeze squeeze_copy stack std std_mean stft strided sub sub_ subtract subtract_ sum svd
svd_lowrank swapaxes swapdims symeig t t_copy take take_along_dim tan tan_ tanh tanh_ tensor
tensor_split tensordot threshold threshold_ tile to_dlpack topk trace transpose transpose_copy
trapezoid trapz triangular_solve tril tril_ tril_indices triplet_margin_loss triu triu_
triu_indices true_divide true_divide_ trunc trunc_ typename uint16 uint32 uint64 uint8 unbind
unbind_copy unflatten unfold_copy unique unique_consecutive unravel_index unsafe_chunk
unsafe_split unsafe_split_with_sizes unsqueeze unsqueeze_copy use_deterministic_algorithms
vander var var_mean vdot view_as_complex view_as_complex_copy view_as_real view_as_real_copy
view_copy vmap vsplit vstack wait where xlogy xlogy_ zero_ zeros zeros_like
    """.split()
)
