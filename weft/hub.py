"""Models from a folder with a hubconf.py."""
