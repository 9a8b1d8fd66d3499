"""What Markdown pages are made of: escaping, tables, numbers, and the paragraphs about one part of a report."""
