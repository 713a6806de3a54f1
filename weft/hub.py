"""Models from a folder with a hubconf.py."""

from .eager.torch_core.hub import download_url_to_file, get_dir, load, load_state_dict_from_url, set_dir
from .eager.torch_core.hub import help_of as help
from .eager.torch_core.hub import list_entries as list

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]
