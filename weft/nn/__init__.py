"""Neural networks on tensors: modules, their parameters, and the functions under them."""

# ruff: noqa: F403
from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import attention as attention
from . import common_types as common_types
from . import functional as functional
from . import grad as grad
from . import init as init
from . import modules as modules
from . import parallel as parallel
from . import parameter as parameter
from . import utils as utils
from .modules.activation import *
from .modules.adaptive import *
from .modules.attention import *
from .modules.batchnorm import *
from .modules.channelshuffle import *
from .modules.container import *
from .modules.conv import *
from .modules.distance import *
from .modules.dropout import *
from .modules.factory import factory_kwargs as factory_kwargs
from .modules.flatten import *
from .modules.fold import *
from .modules.instancenorm import *
from .modules.linear import *
from .modules.loss import *
from .modules.module import Module as Module
from .modules.normalization import *
from .modules.padding import *
from .modules.pixelshuffle import *
from .modules.pooling import *
from .modules.rnn import *
from .modules.sparse import *
from .modules.transformer import *
from .modules.upsampling import *
from .parallel import DataParallel as DataParallel
from .parameter import Buffer as Buffer
from .parameter import Parameter as Parameter
from .parameter import UninitializedBuffer as UninitializedBuffer
from .parameter import UninitializedParameter as UninitializedParameter

if not _TYPE_CHECKING:  # checkers follow the stars, and would not know a list that is made
    __all__ = sorted(name for name in globals() if name[0] != "_")
