"""Values of columns: from text to Arrow, from one type to another, and their transforms."""
