"""Pages of the protocol ``rounds``, one form a file: ``render_page(table) -> str``; ``summary`` makes the table."""
