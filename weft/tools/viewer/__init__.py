"""`weft view`: a model and what weft makes of it, as one HTML file."""
