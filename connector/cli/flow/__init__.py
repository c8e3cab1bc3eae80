"""What Flow does with the files that a person writes: a task, its projections, its field selection, its requests."""
