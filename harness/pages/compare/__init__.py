"""One form of a comparison a file, ``render_page(comparison) -> str``: a ``--format`` of ``cake-bench compare``.

``words`` has the glyphs, the summary sentence and what the pages say alike; it is no page.
"""
