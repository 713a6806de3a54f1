"""The same elements in another shape or order: views, joins, parts, and copies of them."""
